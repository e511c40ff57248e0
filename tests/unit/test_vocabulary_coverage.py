"""Constraints with texts that the vocabulary cannot write, or that have no text."""

from __future__ import annotations

import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.vocabulary.tokens import Vocabulary
from tests.property.strategies import allowed


def vocabulary_without(missing: bytes) -> Vocabulary:
    tokens = tuple(bytes([byte]) for byte in range(256) if byte not in missing)
    return Vocabulary(
        token_bytes=(*tokens, None), stop_token_ids=(len(tokens),), padded_size=len(tokens) + 1, tokenizer=None
    )


RECORD = hg.JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


@pytest.mark.parametrize("backend", ["llguidance", "xgrammar"])
@pytest.mark.parametrize(
    ("missing", "constraint", "written"),
    [
        (b"{}", RECORD, b""),
        (b"0123456789", hg.Regex(r"x[0-9]"), b"x"),
        (b"z", hg.Regex("(a|b)z"), b"a"),
    ],
)
def test_other_engines_allow_nothing_where_no_token_continues(
    backend: str, missing: bytes, constraint: hg.Constraint, written: bytes
) -> None:
    """Rows report this as a dead end."""
    vocabulary = vocabulary_without(missing)
    matcher = Compiler(vocabulary).compile(constraint, backend).matcher()
    assert all(map(matcher.accept_token, vocabulary.encode_bytes(written)))
    assert allowed(matcher) == []


@pytest.mark.parametrize("backend", ["auto", "llguidance", "xgrammar", "outlines", "lm_format_enforcer"])
def test_an_option_that_no_tokens_write_is_refused(backend: str) -> None:
    with pytest.raises(hg.UnwritableConstraint, match="'b'"):
        Compiler(vocabulary_without(b"b")).compile(hg.Choice(["a", "ab"]), backend)


def test_the_native_engine_refuses_what_no_tokens_write() -> None:
    """It has the writable texts alone, and refuses where there are none; a walk over single bytes took a minute."""
    items = {"type": "array", "items": {"type": "object"}, "uniqueItems": True, "minItems": 3}
    constraint = hg.JsonSchema(items, extra="allow", max_depth=3)
    printable = bytes(range(32, 127))
    compiler = Compiler(vocabulary_without(bytes(set(range(256)) - set(printable))))
    assert compiler.compile(constraint).backend == "native"
    with pytest.raises(hg.UnwritableConstraint, match=r"'\['"):
        Compiler(vocabulary_without(b"[")).compile(constraint)
