"""The key of a JSON text: the same for equal values, and for no others."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton.written_values import OUTSIDE, key_of, lexed
from tests.effort import repeats

TEXT = st.text(st.sampled_from('ab"\\\n\x1fé€\U0001f600 '), max_size=3)
VALUES = st.recursive(
    TEXT | st.sampled_from([0, 1, 10, -1]) | st.booleans() | st.none(),
    lambda value: st.lists(value, max_size=2) | st.dictionaries(st.sampled_from("ab"), value, max_size=2),
)


def turned(value: Any) -> Any:
    """The members of all objects the other way round, and numbers that are no integers."""
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [*map(turned, value)]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def written(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@settings(max_examples=repeats(200, 10_000))
@given(value=VALUES, other=VALUES, indent=st.sampled_from([None, 2]))
def test_equal_values_and_no_others_have_the_same_key(value: Any, other: Any, indent: int | None) -> None:
    key = key_of(written(value).encode(), ordered=False)
    assert key == key_of(json.dumps(turned(value), ensure_ascii=False, indent=indent).encode(), ordered=False)
    assert (key == key_of(written(other).encode(), ordered=False)) == (written(value) == written(other))


@given(value=VALUES)
def test_the_end_of_a_text_is_outside_of_strings(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        places = list(accumulate(text.encode(), lexed, initial=OUTSIDE))
        assert places[-1] == OUTSIDE
        outside = [byte for byte, place in zip(text.encode(), places[1:], strict=True) if place == OUTSIDE]
        assert bytes(outside).decode() == re.sub(r'"(?:\\.|[^"\\])*"', '"', text)
