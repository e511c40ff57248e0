"""The pattern of a string in a schema has the same meaning in every engine, also if it is ambiguous."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hf_guided.constraints.values import JsonSchema
from tests.property.strategies import SCHEMA_BACKENDS, backend, tiny

TEXTS = ["".join(letters) for length in range(5) for letters in product("ab5x", repeat=length)]
QUOTED = {text: tiny().encode_bytes(f'"{text}"'.encode()) for text in TEXTS}


def _wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["?", "*", "+", "{2}", "{0,2}", "{1,}", "{1,2}"])
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, counts),
    )


PATTERNS = st.recursive(st.sampled_from(["a", "b", "[ab]", "[0-5]", "x"]), _wrapped, max_leaves=6)


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
@given(pattern=PATTERNS)
@example(pattern="[0-5]|[0-5]x?")
@example(pattern="[ab]|[ab]{0,2}")
@example(pattern="(?:[0-5]b)*(?:x{1,2}|x)")
@example(pattern="a(?:x[0-9]+)?b")
@example(pattern="b|(?:x[ab]|b){1,2}")
def test_pattern_of_a_string_equals_re(name: str, pattern: str) -> None:
    matcher = backend(name, tiny()).compile(JsonSchema({"type": "string", "pattern": f"^(?:{pattern})$"})).matcher()
    for text in TEXTS:
        fork = matcher.fork()
        taken = all(map(fork.accept_token, QUOTED[text])) and fork.is_completed()
        assert taken == bool(re.fullmatch(pattern, text)), text
