"""Tokens in structural tags, by id and by name: the texts are those of a brute force over token sequences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.matcher import Matcher
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.property.strategies import allowed
from tests.toy import LetterTokenizer

NAMES = ["<pad>", "<stop>", "<call>", "<end>", "a", "b", "ab", "c", "ca"]
SPECIAL = 4  # ids below this are no text
STOP = 1
VOCABULARY = Vocabulary(
    token_bytes=(None,) * SPECIAL + tuple(name.encode() for name in NAMES[SPECIAL:]),
    stop_token_ids=(STOP,),
    padded_size=len(NAMES),
    tokenizer=LetterTokenizer(NAMES),  # type: ignore[arg-type]
)
LONGEST = 4  # tokens


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(VOCABULARY)


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def token(token: int | str) -> dict[str, Any]:
    return {"type": "token", "token": token}


def sequence(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


CALL = {"begin": token("<call>"), "content": const("ab"), "end": token("<end>")}
# A format, and a pattern over the names of tokens, each followed by a space.
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "a token of text": (sequence(const("a"), token("ab"), const("c")), "a ab c "),
    "by its id": (sequence(token(6), const("ca")), "ab (?:ca|c a) "),
    "special tokens": (sequence(token("<call>"), const("a"), token(3)), "<call> a <end> "),
    "a tag": ({"type": "tag", **CALL}, "<call> (?:ab|a b) <end> "),
    "any other token": (sequence({"type": "exclude_token", "exclude_tokens": ["a", 6]}, const("c")), "(?:b|c|ca) c "),
    "any other tokens": (
        sequence({"type": "any_tokens", "exclude_tokens": ["a", "b", 6, "<call>"]}, const("b")),
        "(?:(?:c|ca) )*b ",
    ),
    "exactly one call": (
        {
            "type": "token_triggered_tags",
            "trigger_tokens": ["<call>"],
            "tags": [CALL],
            "at_least_one": True,
            "stop_after_first": True,
        },
        "<call> (?:ab|a b) <end> ",
    ),
    "one call at most": (
        {
            "type": "token_triggered_tags",
            "trigger_tokens": ["<call>"],
            "tags": [CALL],
            "exclude_tokens": ["<end>", "a", "ab", "ca"],
            "stop_after_first": True,
        },
        "(?:(?:b|c) )*(?:<call> (?:ab|a b) <end> )?",
    ),
    "dispatched": (
        {"type": "token_dispatch", "rules": [["c", const("ab")]], "exclude_tokens": ["a", "ab", "ca"]},
        "(?:b |c (?:ab|a b) )*",
    ),
}


def complete(matcher: Matcher) -> Iterator[tuple[int, ...]]:
    """All complete sequences of at most ``LONGEST`` tokens that the masks lead to; masks and moves agree on the way."""
    bitmask = allocate_bitmask(1, len(NAMES))
    todo: list[tuple[int, ...]] = [()]
    while todo:
        path = todo.pop()
        at = matcher.fork()
        assert all(map(at.accept_token, path))
        if at.is_completed():
            yield path
        at.fill_next_token_bitmask(bitmask)
        allowed = set(torch.nonzero(unpack(bitmask, len(NAMES))[0]).flatten().tolist())
        assert allowed == {i for i in range(len(NAMES)) if at.validate_tokens([i])}
        assert allowed == {i for i in range(len(NAMES)) if at.fork().accept_token(i)}
        assert at.jump_forward_bytes() == b"", "forced text has more than one tokenization"
        if len(path) < LONGEST:
            todo += [(*path, i) for i in allowed - {STOP}]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_tokens(compiler: Compiler, name: str) -> None:
    part, pattern = FORMATS[name]
    compiled = compiler.compile(hg.StructuralTag({"format": part}), "xgrammar")
    written = {" ".join(NAMES[i] for i in path) for path in complete(compiled.matcher())}
    all_sequences = (" ".join(names) for n in range(LONGEST + 1) for names in product(NAMES, repeat=n))
    expected = {text for text in all_sequences if re.fullmatch(pattern, f"{text} " if text else "")}
    assert written == expected
    assert expected


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        (token("nix"), "/format/token"),
        (token(len(NAMES)), "/format/token"),
        (token("<stop>"), "/format/token"),
        (token(STOP), "/format/token"),
        ({"type": "any_tokens", "exclude_tokens": ["a", "nix"]}, "/format/exclude_tokens/1"),
        ({"type": "token_dispatch", "rules": [["nix", const("a")]]}, "/format/rules/0/0"),
        (
            {"type": "token_triggered_tags", "trigger_tokens": ["a"], "tags": [CALL]},
            "/format/tags/0/begin/token",
        ),
        (
            {"type": "token_triggered_tags", "trigger_tokens": ["<call>", 4], "tags": [CALL]},
            "/format/trigger_tokens/1",
        ),
        (
            {"type": "token_triggered_tags", "trigger_tokens": [2], "exclude_tokens": ["<call>"], "tags": [CALL]},
            "/format/trigger_tokens/0",
        ),
    ],
)
def test_tokens_that_cannot_be_written_are_refused(compiler: Compiler, part: dict[str, Any], pointer: str) -> None:
    with pytest.raises(hg.InvalidConstraint, match="expected") as caught:
        compiler.compile(hg.StructuralTag({"format": part}), "xgrammar")
    assert caught.value.pointers == (pointer,)


@pytest.mark.parametrize("kind", ["any_text", "any_tokens"])
def test_a_bound_that_xgrammar_exceeds_is_a_loss(compiler: Compiler, kind: str) -> None:
    tag = hg.StructuralTag({"format": {"type": kind, "max_tokens": 2}})
    with pytest.raises(hg.UnsupportedConstraint, match="max_tokens"):
        compiler.compile(tag, "xgrammar")
    assert not compiler.audit(tag).ok


BEGINNINGS = (b"a", b"\xc3", b"\xc3\xa9", b"a\xe6")  # of texts in UTF-8; a later token may complete the last character


@pytest.mark.parametrize("data", [*BEGINNINGS, b"\x80", b"\xff", b"a\x80", b"\xa9b"])
def test_a_token_inside_a_character_is_refused(data: bytes) -> None:
    """xgrammar would allow nothing there."""
    vocabulary = Vocabulary((None, data), (0,), 2, LetterTokenizer(["<stop>", "x"]))  # type: ignore[arg-type]
    tag = hg.StructuralTag({"format": token(1)})
    if data in BEGINNINGS:
        assert allowed(Compiler(vocabulary).compile(tag, "xgrammar").matcher()) == [1]
    else:
        with pytest.raises(hg.InvalidConstraint, match="UTF-8"):
            Compiler(vocabulary).compile(tag, "xgrammar")
