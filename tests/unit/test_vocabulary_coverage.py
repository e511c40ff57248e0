"""A constraint whose texts the vocabulary cannot write is refused at compile time."""

from __future__ import annotations

import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.vocabulary_coverage import check_writable
from hf_guided.backends.xgrammar import XGrammarBackend
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy

BACKENDS = [LLGuidanceBackend, XGrammarBackend]


def vocabulary_without(missing: bytes) -> Vocabulary:
    tokens = tuple(bytes([byte]) for byte in range(256) if byte not in missing)
    return Vocabulary(
        token_bytes=(*tokens, None), stop_token_ids=(len(tokens),), padded_size=len(tokens) + 1, tokenizer=None
    )


def check(backend: type, missing: bytes, constraint: hg.Constraint) -> None:
    check_writable(backend(vocabulary_without(missing)).compile(constraint), backend)


RECORD = hg.JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("missing", "constraint", "named"),
    [
        (b"{}", RECORD, r"'\{'"),
        (b'"', RECORD, "'\"'"),
        (b"0123456789", hg.Regex(r"x[0-9]"), "'0', '1'"),
        (b"b", hg.Choice(["a", "ab"]), "'b'"),
        (b"z", hg.Regex("(a|b)z"), "'z'"),
    ],
)
def test_error_names_the_missing_byte_that_every_text_needs(
    backend: type, missing: bytes, constraint: hg.Constraint, named: str
) -> None:
    with pytest.raises(hg.UnwritableConstraint, match=named):
        check(backend, missing, constraint)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("missing", "constraint"),
    [
        (b"{", hg.JsonSchema({"type": "integer"})),
        (b"z", hg.Regex("[a-z]+")),
        (b"z", hg.Regex("a|z")),
        (b"z", RECORD),
        (b"\xff", hg.JsonObject()),
    ],
)
def test_constraint_with_a_writable_text_is_accepted(backend: type, missing: bytes, constraint: hg.Constraint) -> None:
    check(backend, missing, constraint)


@pytest.mark.parametrize("backend", ["auto", "llguidance", "xgrammar", "outlines", "lm_format_enforcer"])
@pytest.mark.parametrize("pattern", ["a(?!a)a", r"(?=a.*b)[ab]:\W{2,5}(?!c)" + r"\x00" * 28])
def test_look_arounds_that_exclude_each_other_are_refused(pattern: str, backend: str) -> None:
    """The second pattern is too long to be known as empty before an engine has compiled it."""
    with pytest.raises(hg.errors.ConstraintError, match="matches nothing|look-ahead"):
        Compiler(toy.all_bytes()).compile(hg.Regex(pattern), backend)


def test_the_network_is_not_looked_through_again() -> None:
    """It has the writable texts alone, and refuses where there are none; a walk over single bytes took a minute."""
    items = {"type": "array", "items": {"type": "object"}, "uniqueItems": True, "minItems": 3}
    constraint = hg.JsonSchema(items, extra="allow", max_depth=3)
    printable = bytes(range(32, 127))
    compiler = Compiler(vocabulary_without(bytes(set(range(256)) - set(printable))))
    assert compiler.compile(constraint).backend == "native"
    with pytest.raises(hg.UnwritableConstraint, match=r"'\['"):
        Compiler(vocabulary_without(b"[")).compile(constraint)
