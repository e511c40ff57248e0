"""Regular languages, compared with ``re`` (the meaning of patterns), ``json`` (spellings) and Python's sets."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache
from itertools import product

import llguidance
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hf_guided import regex
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.regex import parse
from hf_guided.regex.classes import caseless, category, ecma_class, python_class
from hf_guided.regex.dialect import PatternSyntaxError
from tests.pairs import once_each
from tests.property.strategies import single_bytes

# Ranges around the surrogates, the ends, and the first astral characters.
_codes = st.one_of(st.integers(0, 300), st.integers(0xD7F0, 0xE00F), st.integers(0xFFF0, 0x10010))
_ranges = st.lists(st.tuples(_codes, st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=5)
_UNIVERSE = frozenset(chr(code) for code in (*range(400), *range(0xD7F0, 0xE040), *range(0xFFF0, 0x10040)))


def _as_set(ranges):
    inside = {chr(code) for first, last in ranges for code in range(first, last + 1)}
    return {character for character in inside if not "\ud800" <= character <= "\udfff"}


@given(_ranges, _ranges)
def test_charsets_equal_sets(ours, theirs):
    first, second = regex.CharSet(ours), regex.CharSet(theirs)
    a, b = _as_set(ours), _as_set(theirs)
    assert set(first) == a
    assert len(first) == len(a)
    assert bool(first) == bool(a)
    assert set(first | second) == a | b
    assert set(first & second) == a & b
    assert first.isdisjoint(second) == a.isdisjoint(b)
    assert set(first - second) == a - b
    assert (first == second) == (a == b)
    assert hash(first | second) == hash(second | first)
    assert {c for c in _UNIVERSE if c in ~first} == {c for c in _UNIVERSE - a if not "\ud800" <= c <= "\udfff"}


# Patterns over a small alphabet, with all combinations of constructs.
ATOMS = ["a", "b", "A", "1", " ", r"\n", ".", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\s", r"\W", r"[^\s\d]", "é"]
ALPHABET = "abA1 \né"
TEXTS = ["".join(letters) for length in range(4) for letters in product(ALPHABET, repeat=length)]
TIMES = ["*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}", "*?"]


def _wrapped(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds(lambda body, times: f"({body}){times}", inner, st.sampled_from(TIMES)),
        inner.map(lambda body: f"(?i:{body})"),
        inner.map(lambda body: f"(?s:{body})"),
    )


plain_patterns = st.recursive(st.sampled_from(ATOMS), _wrapped, max_leaves=6)
edge_patterns = st.recursive(
    st.one_of(plain_patterns, st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B", ""])),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        inner.map(lambda body: f"(?:{body})?"),
        st.builds(
            lambda look, body: f"(?{look}{body})",
            st.sampled_from(["=", "!"]),
            inner,
        ),
        st.builds(
            lambda look, letter: f"(?<{look}{letter})", st.sampled_from(["=", "!"]), st.sampled_from(["a", r"[b1]", ""])
        ),
    ),
    max_leaves=6,
)


def _language(parse, pattern):
    try:
        re.compile(pattern)
    except re.error:
        assume(False)
    try:
        return parse(pattern)
    except regex.UnsupportedRegex:
        assume(False)


@given(plain_patterns)
def test_fullmatch_equals_python(pattern):
    compiled, language = re.compile(pattern), regex.parse_fullmatch(pattern)
    for text in TEXTS:
        assert regex.matches(language, text) == bool(compiled.fullmatch(text)), repr(text)


_verbose = [
    "a",
    " ",
    "\n",
    "# (b\n",
    r"\ ",
    r"\#",
    "[ #a]",
    "b{1, 2}",
    r"\0 1",
    "* ",
    "{2} ",
    r"\N{DIGIT ONE}",
    "(?#)",
    "#",
]
verbose_patterns = st.recursive(
    st.one_of(st.sampled_from(_verbose), plain_patterns),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.builds(lambda body, times: f"( {body} ) {times}", inner, st.sampled_from(TIMES)),
        st.builds("({}{})".format, st.sampled_from(["?x:", "?-x:", "?ix-s:", "?i-x:", "?:", ""]), inner),
    ),
    max_leaves=6,
)


@given(verbose_patterns, st.booleans())
def test_verbose_mode_equals_python(pattern, is_verbose):
    pattern = "(?x)" * is_verbose + pattern
    language = _language(regex.parse_fullmatch, pattern)
    compiled = re.compile(pattern)
    for text in (*TEXTS, "a#", "# a", "b{1, 2}", "b{1,2}", "\0 1", "\x01", "\0" + "1", "1 a", "#"):
        assert regex.matches(language, text) == bool(compiled.fullmatch(text)), repr(text)


def as_python(plain: str) -> str:
    r"""Replace ``\u{...}``, the only syntax of plain patterns that Python does not read."""
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: f"\\U{int(match[1], 16):08x}", plain)


@given(plain_patterns)
def test_plain_pattern_has_the_same_meaning(pattern):
    """The pattern written for engines, read by ``re``."""
    compiled = re.compile(pattern)
    plain = re.compile(as_python(regex.to_pattern(regex.parse_fullmatch(pattern))))
    for text in TEXTS:
        assert bool(plain.fullmatch(text)) == bool(compiled.fullmatch(text)), repr(text)


@given(edge_patterns)
def test_fullmatch_with_anchors_and_look_around_equals_python(pattern):
    language = _language(regex.parse_fullmatch, pattern)
    compiled = re.compile(pattern)
    for text in TEXTS:
        assert regex.matches(language, text) == bool(compiled.fullmatch(text)), repr(text)


_ALIKE = ["a", "é", " ", "[ab]", "[^a]", "[a-c1.]", r"[\]\-]", r"\.", r"\/", r"\(", "^", "$", "-", "{", "}", "]"]
_alike_patterns = st.recursive(
    st.sampled_from([*_ALIKE, ".", r"\d", "[]a]", "[^]", "[^]a]", "(?=a)", "(?i:a)", "[[a]", r"[\w]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.builds(lambda body, times: f"(?:{body}){times}", inner, st.sampled_from(TIMES)),
    ),
    max_leaves=6,
)


@given(_alike_patterns)
def test_a_pattern_that_is_read_once_has_no_other_reading(pattern):
    """By both readers, where each takes it."""
    assume(parse._ALIKE.fullmatch(pattern))
    with suppress(re.error, regex.UnsupportedRegex):
        flags = re.compile(pattern).flags
        ours = parse._parsed(pattern, parse._PYTHON_IN_SCHEMA, flags)
        for dialect in (parse._ECMA, parse._ECMA_AND_MORE):
            with suppress(PatternSyntaxError):
                assert parse._parsed(pattern, dialect, flags) == ours
        if "$" not in pattern:
            assert parse._parsed(pattern, parse._PYTHON, flags) == ours


@given(edge_patterns)
def test_search_equals_python_where_both_dialects_agree(pattern):
    language = _language(regex.parse_search, pattern)
    # On our alphabet the dialects differ only in whether é is in \w, so also in \b, and in $ before a last newline.
    compiled = re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))
    exact = not re.search(r"\\[wWbB]", pattern)
    positive = not re.search(r"\(\?<?!", pattern)
    for text in TEXTS:
        matched = bool(compiled.search(text))
        if exact or "é" not in text:
            assert regex.matches(language, text) == matched, repr(text)
        elif positive:
            assert matched or not regex.matches(language, text), repr(text)


@given(st.data(), plain_patterns, st.booleans())
def test_spellings_decode_to_texts_of_the_language(data, pattern, negated):
    language = regex.parse_fullmatch(pattern)
    language = regex.complement(language) if negated else language
    spellings = regex.json_spellings(language)
    pieces = st.sampled_from(
        ["a", "b", "1", "é", " ", r"\n", "\n", r"\u0061", r"\u00E9", r"\u00e9", r"\\", "\\", '"', "u"]
    )
    text = "".join(data.draw(st.lists(pieces, max_size=4)))
    try:
        value = json.loads(f'"{text}"')
    except json.JSONDecodeError:
        value = None
    assert regex.matches(spellings, text) == (value is not None and regex.matches(language, value))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), st.data())
def test_all_spellings_of_a_text_are_accepted(value, data):
    spelled = "".join(data.draw(st.sampled_from(_spellings(character))) for character in value)
    assert json.loads(f'"{spelled}"') == value
    assert regex.matches(regex.json_spellings(regex.text(value)), spelled)
    assert regex.matches(regex.json_spellings(regex.ANYTHING), spelled)
    assert not regex.matches(regex.json_spellings(regex.complement(regex.text(value))), spelled)


_texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('\n\r\t\b\f"/\\\x00\x1f\x7f\u2028😀'), max_size=6
)


@given(_texts, st.data())
def test_canonical_spelling_equals_json_dumps(value, data):
    written = json.dumps(value, ensure_ascii=False)[1:-1]
    assert regex.matches(regex.json_spelling(regex.text(value)), written)
    assert regex.matches(regex.json_spelling(regex.ANYTHING), written)
    assert not regex.matches(regex.json_spelling(regex.complement(regex.text(value))), written)
    other = "".join(data.draw(st.sampled_from([*_spellings(character), "\\/", ""])) for character in value)
    if other != written:
        assert not regex.matches(regex.json_spelling(regex.text(value)), other)
    try:
        decoded = json.loads(f'"{other}"')
    except json.JSONDecodeError:
        decoded = None
    is_canonical = decoded is not None and json.dumps(decoded, ensure_ascii=False)[1:-1] == other
    if decoded is None or decoded.isascii() or "\\u" not in other:
        assert regex.matches(regex.json_spelling(regex.ANYTHING), other) == is_canonical


@given(st.lists(_texts, min_size=1, max_size=4, unique=True), st.data())
def test_all_but_some_words(words, data):
    language = regex.all_but(tuple(words))
    value = data.draw(st.sampled_from(words) | _texts)
    written = json.dumps(value, ensure_ascii=False)[1:-1]
    assert language.nullable == ("" not in words)
    for excluding in (language, regex.complement(language.body)):
        assert regex.matches(excluding, value) == (value not in words)
        assert regex.matches(regex.json_spelling(excluding), written) == (value not in words)
        assert regex.matches(regex.json_spellings(excluding), written) == (value not in words)
    if written != value:
        assert not regex.matches(regex.json_spelling(language), value) or json.loads(f'"{value}"') not in words
    assert regex.matches(regex.complement(language), value) == (value in words)


@given(st.data(), plain_patterns)
def test_canonical_spelling_of_a_language_is_that_of_its_texts(data, pattern):
    language = regex.parse_fullmatch(pattern)
    spelled = regex.json_spelling(language)
    value = "".join(data.draw(st.lists(st.sampled_from(["a", "b", "1", "é", " ", "\n", "\\", '"']), max_size=4)))
    written = json.dumps(value, ensure_ascii=False)[1:-1]
    assert regex.matches(spelled, written) == regex.matches(language, value)
    if value != written:
        assert not regex.matches(spelled, value) or regex.matches(language, json.loads(f'"{value}"'))


def _spellings(character):
    units = character.encode("utf-16-be")
    escaped = "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    short = json.dumps(character, ensure_ascii=False)[1:-1]
    return [short, escaped, "".join(part if part in "\\u" else part.upper() for part in escaped)]


@pytest.mark.parametrize("text", [r"\ud800", r"\udc00", r"\ud800a", r"\udc00\ud800", "\n", "\x1f", '"', "\\", r"\x41"])
def test_invalid_spellings_are_refused(text):
    assert not regex.matches(regex.json_spellings(regex.ANYTHING), text)
    assert not regex.matches(regex.json_spellings(regex.complement(regex.text("a"))), text)


@cache
def _backend() -> LLGuidanceBackend:
    return LLGuidanceBackend(single_bytes())


def _accepts(matcher, data: bytes) -> bool:
    taken = matcher.deep_copy()
    return (
        taken.validate_tokens([*data]) == len(data)
        and bool(not data or taken.consume_tokens([*data]))
        and (taken.is_accepting())
    )


INVALID = [b"\xff", b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"]


@given(edge_patterns, st.booleans())
def test_llguidance_reads_our_lark_patterns(pattern, negated):
    language = _language(regex.parse_fullmatch, pattern)
    language = regex.complement(language) if negated else language
    assume(language != regex.NOTHING)
    grammar = llguidance.LLMatcher.grammar_from_lark(f"start: S\nS: {regex.to_lark(language)}")
    matcher = llguidance.LLMatcher(_backend()._tokenizer, grammar, log_level=0)
    if matcher.is_error():
        # It may refuse only an empty intersection.
        assert "Unsatisfiable" in matcher.get_error() or not any(regex.matches(language, text) for text in TEXTS), (
            matcher.get_error()
        )
        return
    for text in TEXTS[::7]:
        assert _accepts(matcher, text.encode()) == regex.matches(language, text), repr(text)
    assert not any(_accepts(matcher, data) for data in INVALID)


EVERY = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))


@pytest.mark.parametrize(("letter", "ascii_only"), once_each("dDwWsS", [False, True]))
def test_classes_equal_python(letter, ascii_only):
    flags = re.ASCII if ascii_only else 0
    assert "".join(python_class(letter, ascii_only)) == "".join(re.findall(rf"\{letter}", EVERY, flags))
    assert "".join(python_class(letter, ascii_only)) == "".join(re.findall(rf"(?i)\{letter}", EVERY, flags))


@pytest.mark.parametrize(
    "inside", ["k", "S", "i", "\u0130", "\u0131", "µ", "ß", "ΐ", "a-z", "À-Þ", "\u0345", "𐐀", "Ⓐ", "1-9", "ǅ"]
)
@pytest.mark.parametrize("flags", [re.IGNORECASE, re.IGNORECASE | re.ASCII])
def test_ignoring_case_equals_python(inside, flags):
    charset = regex.CharSet([(ord(inside[0]), ord(inside[-1]))])
    assert "".join(caseless(charset, bool(flags & re.ASCII))) == "".join(re.findall(f"[{inside}]", EVERY, flags))


def test_ecma_classes_equal_the_specification():
    assert "".join(ecma_class("d")) == "0123456789"
    assert "".join(ecma_class("w")) == "".join(re.findall(r"(?a)\w", EVERY))
    # ECMA-262, WhiteSpace and LineTerminator: tab, VT, FF, ZWNBSP, every Zs; LF, CR, LS, PS.
    spaces = {*"\t\v\f\ufeff\n\r\u2028\u2029", *category("Zs")}
    assert set(ecma_class("s")) == spaces
    assert set(ecma_class("S")) == set(EVERY) - spaces
