"""outlines-core as a backend accepts exactly the texts of a pattern, for any order of its alternatives."""

from __future__ import annotations

import re
from itertools import product

import outlines_core
import pytest
import regex as partial
from hypothesis import given, settings

from hf_guided.backends import outlines
from hf_guided.backends.outlines import OutlinesBackend, build_index
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint
from hf_guided.regex import ALL, CharSet, alphabet, complement, parse_fullmatch
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.property import strategies as draw
from tests.property.test_regex import TEXTS, plain_patterns

LETTERS = "abcd"
STRINGS = ["".join(letters) for length in range(5) for letters in product(LETTERS, repeat=length)]
# A search that stops at the first matching alternative would end all of these too early.
PATTERNS = [
    *("a|ab", "ab|a", "(ab)*", "a(bc)?", "(a|ab)(c|bcd)", "a??b?", "a*?b*?", "(a|b|ab)*c", "", "a{2}|a{4}", "(?:|a)b?"),
    *("[a-c]{1,3}d", "(a|b)*a(a|b){2}", "[^a]*", ".?.?", "(abcd|ab|c)+", "a(b|bc|bcd)?"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_and_completion_equal_brute_force(pattern: str) -> None:
    """After every text of up to four letters, a token is allowed if ``regex`` finds a partial match."""
    vocabulary = toy.letters(LETTERS)
    start = OutlinesBackend(vocabulary).compile(Regex(pattern)).matcher()
    oracle = partial.compile(pattern)
    token_of = {data: token_id for token_id, data in enumerate(vocabulary.token_bytes) if data is not None}
    for string in STRINGS:
        matcher = start.fork()
        viable = bool(oracle.fullmatch(string, partial=True))
        assert all([matcher.accept_token(token_of[letter.encode()]) for letter in string]) == viable
        if viable:
            assert matcher.is_completed() == bool(re.fullmatch(pattern, string)), string
            expected = {i for data, i in token_of.items() if oracle.fullmatch(string + data.decode(), partial=True)}
            assert set(draw.allowed(matcher)) == expected | ({1} if matcher.is_completed() else set()), string


def test_outlines_core_alone_misses_these_texts() -> None:
    """This is why we add marks around the pattern. If this test fails, the marks are no longer needed."""
    by_letters = outlines_core.Vocabulary(4, {b"a": [0], b"b": [1], b"c": [2]})
    for pattern, inside in {"a|ab": "ab", "(ab)*": "abab", "a(bc)?": "abc"}.items():
        index = outlines_core.Index(pattern, by_letters)
        state: int | None = index.get_initial_state()
        for letter in inside:
            state = None if state is None else index.get_next_state(state, "abc".index(letter))
        assert state is None, pattern


@settings(max_examples=40)
@given(plain_patterns)
def test_alphabet_has_every_character_of_every_match(pattern: str) -> None:
    used, compiled = alphabet(parse_fullmatch(pattern)), re.compile(pattern)
    assert all(set(text) <= set(used & CharSet.of(text)) for text in TEXTS if compiled.fullmatch(text))


def test_alphabet_has_no_other_characters() -> None:
    assert alphabet(parse_fullmatch("(?:a[b-d])*|é{2,3}(?!xy)x?y?")) == CharSet.of("abcdéxy")
    assert alphabet(parse_fullmatch("")) == CharSet()
    assert alphabet(complement(parse_fullmatch("a"))) == ALL


def test_all_tokens_with_the_same_bytes_are_allowed() -> None:
    tokens = (b"a", b"a", None, b"ab", b"b", None, b"a", b"\x00", b"a\x00")
    vocabulary = Vocabulary(tokens, (5,), 70, draw.single_bytes().tokenizer)
    matcher = OutlinesBackend(vocabulary).compile(Regex("ab|ac")).matcher()
    assert draw.allowed(matcher) == [0, 1, 3, 6]
    assert matcher.accept_token(6)
    assert draw.allowed(matcher) == [4]


def test_characters_used_as_marks_may_be_in_a_text() -> None:
    characters = [chr(code) for code in range(128)]
    matcher = OutlinesBackend(draw.single_bytes()).compile(Regex(r"[^\x05]*")).matcher()
    assert all(matcher.accept_token(ord(character)) == (character != "\x05") for character in characters)
    assert draw.allowed(matcher) == sorted({*range(256), 256} - {5, *range(0x80, 0xC2), *range(0xF5, 0x100)})


@pytest.mark.parametrize(
    ("constraint", "keyword", "reason"),
    [
        (Regex(r"[\s\S]*"), "regex", "needs an ASCII character that no text has"),
        (Regex("(?!a)[a-c]"), "regex", "look-ahead"),
        (Choice(["".join(map(chr, range(128))), "a"]), "choice", "needs an ASCII character that no text has"),
        (JsonSchema({"type": "integer"}), "json_schema", "use llguidance, or the native engine"),
        (JsonSchema({"type": "integer"}, on_unsupported="validate"), "json_schema", "use llguidance"),
        (JsonObject(), "json_schema", "use llguidance"),
        (Grammar('root ::= "a"'), "grammar", "outlines-core takes no grammars"),
    ],
    ids=str,
)
def test_unsupported_constraint_is_a_loss(constraint: Constraint, keyword: str, reason: str) -> None:
    engine = OutlinesBackend(draw.tiny())
    (loss,) = engine.losses(constraint)
    assert (loss.pointer, loss.keyword) == ("", keyword)
    assert reason in loss.reason
    with pytest.raises(UnsupportedConstraint, match="outlines-core cannot enforce this"):
        engine.compile(constraint)


def test_malformed_schema_is_invalid_not_unsupported() -> None:
    engine = OutlinesBackend(draw.tiny())
    assert engine.losses(JsonSchema({"type": "strin"})) == ()
    with pytest.raises(InvalidConstraint, match="/type"):
        engine.compile(JsonSchema({"type": "strin"}))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a|b)*a(a|b){24}", "too large for outlines-core too: the automaton"),
        pytest.param(
            *(r"(\w{1000}){1000}", "too large for outlines-core too: the automaton"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_hostile_patterns_end_within_their_limits(pattern: str, message: str) -> None:
    with pytest.raises(
        CompileLimitExceeded, match=f"^{message}.*; (make the constraint smaller|bound .* more tightly), or "
    ):
        OutlinesBackend(draw.tiny()).compile(Regex(pattern))
    matcher = OutlinesBackend(draw.tiny()).compile(Regex("ab?")).matcher()
    assert all(map(matcher.accept_token, draw.tiny().encode_bytes(b"ab")))


def test_trials_of_tokens_are_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "OUTLINES_MOST_STEPS", 1_000)
    with pytest.raises(CompileLimitExceeded, match=r"would try \d+ tokens in each of \d+ states, and more than 1000"):
        OutlinesBackend(draw.tiny()).compile(Regex("[a-z]{1,40}"))
    assert OutlinesBackend(draw.tiny()).compile(Regex("ab")).matcher()


def test_error_of_outlines_core_is_a_compile_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Patterns that are too large for outlines-core reach our limits first. Only invalid syntax is small enough.
    monkeypatch.setattr(outlines, "to_pattern", lambda node: "(?<")
    with pytest.raises(CompileLimitExceeded, match="outlines-core gave up: .*; make the constraint smaller"):
        OutlinesBackend(draw.tiny()).compile(Regex("a"))


@pytest.mark.parametrize("pattern", [r"[a-z]{1,40}", r".{0,9}", "", "(a|b)*a(a|b){5}"])
def test_reported_memory_is_close_to_the_real_memory(pattern: str) -> None:
    tokens = {token_id: data for token_id, data in enumerate(draw.tiny().token_bytes) if data is not None}
    letters = bytes(byte for byte in range(256) if byte != 10)
    built = build_index(pattern, 10, tokens, letters, 1024)
    moves = built.index.get_transitions()
    entries = sum(map(len, moves.values()))
    # A hash table stores a token and a state in four bytes each. It is at least 7/16 full, or has four slots.
    assert 8 * entries <= built.nbytes <= 9 * (16 / 7 * entries + 8 * len(moves)) + 200 * len(moves)
    assert built.states in (len(moves) - 1, len(moves) - 2), (
        "all states but those before the first mark and after the last"
    )
    assert OutlinesBackend(draw.tiny()).compile(Regex(pattern or "a?")).nbytes > built.nbytes / 2


def test_evicted_masks_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlines, "MASK_BYTES", 1)
    matcher = OutlinesBackend(draw.tiny()).compile(Regex("[ab]{1,30}c")).matcher()
    masks = []
    for _ in range(20):
        masks.append(draw.allowed(matcher))
        assert matcher.accept_token(draw.tiny().encode_bytes(b"a")[0])
    for mask in reversed(masks):
        matcher.rollback(1)
        assert draw.allowed(matcher) == mask
