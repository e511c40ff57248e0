"""Patterns in plain words: what they match is what Python matches."""

from __future__ import annotations

import re

import pytest

from hf_guided.schema.python_regex import UnsupportedRegex, fullmatch_pattern, literal, search_pattern

ODD = [
    "",
    "a",
    "A",
    "é",
    "É",
    "ß",
    "ẞ",
    "K",
    "\u212a",
    "1",
    "\u0661",
    "_",
    "-",
    " ",
    "\xa0",
    "\n",
    "\r",
    "\x1c",
    "\u2028",
]
ODD += [
    "\ufeff",
    "\u0301",
    "😀",
    "/",
    "\\",
    "]",
    "[",
    "^",
    "&",
    "ab",
    "aa",
    "a\n",
    "\na",
    "1a",
    "é1",
    "b",
    "ba",
    "aab",
    "abab",
]


def as_python(plain: str) -> str:
    r"""``\u{...}`` is the one thing in plain patterns that Python does not read."""
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: f"\\U{int(match[1], 16):08x}", plain)


CLASSES = [".", "(?s).", r"\d", r"\D", r"\w+", r"\W", r"\s", r"\S", r"[^\w\s]", r"[\d_-]", r"(?a)\w", "[]a]", "[a&&b]"]
CASELESS = ["(?i)k|ß|É", "(?i)[a-z]", "(?i:a)b"]
SHAPES = ["a*?b", "a{,2}", "a{2}", "(ab)+|", "(a|)b", "^a$", r"\Aa\Z", "(?:^a|b)b?", "(?P<x>a)b?", r"\/", ""]


@pytest.mark.filterwarnings("ignore:Possible set intersection:FutureWarning")  # [a&&b], and Python is right to say so
@pytest.mark.parametrize("pattern", [*CLASSES, *CASELESS, *SHAPES])
def test_fullmatch_means_what_python_means(pattern):
    plain = re.compile(as_python(fullmatch_pattern(pattern)))
    for text in ODD:
        assert bool(plain.fullmatch(text)) == bool(re.fullmatch(pattern, text)), repr(text)


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "a$", "^a|b$", "^(a|b)$", "(?:(?:^a))", "b|^a$", "^$", "", "[^a]", "a.", r"\x61"]
)
def test_search_means_what_validators_mean(pattern):
    plain = re.compile(as_python(search_pattern(pattern)))
    for text in ODD:
        found = re.search(pattern, text)
        if "$" in pattern and text.endswith("\n"):
            continue  # Python's $ matches before a last newline, ECMA-262's does not
        assert bool(plain.fullmatch(text)) == bool(found), repr(text)


@pytest.mark.parametrize(
    ("pattern", "both"),
    [(r"^\d$", "1"), (r"^\w$", "aAKb1_"), (r"^\s$", " \xa0\n\r\u2028"), (r"^\S$", "aé😀"), (r"^.$", "a \xa0")],
)
def test_in_schemas_only_what_both_dialects_take(pattern, both):
    plain = re.compile(as_python(search_pattern(pattern)))
    assert all(plain.fullmatch(character) for character in both)
    ecma_only_or_python_only = {
        r"^\d$": "\u0661",
        r"^\w$": "é\u0661",
        r"^\s$": "\ufeff\x1c",
        r"^\S$": "\ufeff\x1c",
        r"^.$": "\r\u2028",
    }
    assert not any(plain.fullmatch(character) for character in ecma_only_or_python_only[pattern])


def test_an_alphabet_narrows():
    plain = re.compile(as_python(search_pattern('^(a|")+$', alphabet=r'[^"]')))
    assert plain.fullmatch("aa")
    assert not plain.fullmatch('a"')
    with pytest.raises(UnsupportedRegex, match="matches nothing"):
        search_pattern('^"$', alphabet=r'[^"]')


@pytest.mark.parametrize(
    "pattern", ["(?=a)", "(?<!a)b", r"(a)\1", r"\b", r"\B", "a^b", "a$b", "(^a)+", "(?(1)a|b)", "[^\\s\\S]"]
)
def test_what_is_not_regular_is_refused(pattern):
    if pattern == "(?(1)a|b)":
        pattern = "(a)?(?(1)a|b)"
    with pytest.raises(UnsupportedRegex):
        fullmatch_pattern(pattern)


def test_a_literal_matches_itself_alone():
    for text in ODD:
        assert re.fullmatch(as_python(literal(text)), text)
    assert not re.fullmatch(as_python(literal("a.c")), "abc")
