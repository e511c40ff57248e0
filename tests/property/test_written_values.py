"""What is certain of a JSON text that has only begun, beside the key of the whole text."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton.written_values import Strings, begun, key_of
from tests.effort import repeats

TEXT = st.text(st.sampled_from('ab"\\\n\x1fé€\U0001f600 '), max_size=6)
VALUES = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none(),
    lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXT, value, max_size=3),
)


IN_STRING = re.compile(
    rb'(?:[^"]|"(?:[^"\\]|\\.)*")*"(?:[^"\\]|\\[^u]|\\u(?!d83d)[0-9a-f]{4}|\\ud83d\\ude00)*', re.DOTALL
)
"""Whether a JSON text ends inside a string, and in no escape."""


@settings(max_examples=repeats(200, 10_000))
@given(value=VALUES, ascii_only=st.booleans(), ordered=st.booleans(), at=st.floats(0, 1))
def test_a_beginning_is_the_beginning_of_the_key(value: Any, ascii_only: bool, ordered: bool, at: float) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    start, key = text[: int(at * len(text))], key_of(text, ordered=ordered)
    found = begun(start, ordered=ordered)
    assert key.startswith(found.key)
    strings = Strings.of(start)
    assert all(other in key for other in (*strings.complete, *strings.names)) and not strings.repeats
    string = strings.last
    assert (string is not None) == (IN_STRING.fullmatch(start) is not None)
    assert string is None or string in key
    if string is not None and found.is_whole and found.in_string:
        assert found.key.endswith(string)
