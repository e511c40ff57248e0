r"""The meaning of single patterns, compared with ``re`` and ECMA-262, and the errors for unsupported patterns."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import unicodedata
from itertools import chain, starmap, zip_longest
from operator import eq

import pytest

from hf_guided import regex
from hf_guided.regex import UnsupportedRegex, charset, matches, parse_fullmatch, parse_search
from hf_guided.regex.classes import category
from tests.calls import counted_calls

SINGLE = ["a", "A", "é", "É", "ß", "ẞ", "K", "\u212a", "1", "\u0661", "_", "-", " ", "\xa0", "\n", "\r", "\x1c"]
SINGLE += [
    "\x85", "\u2028", "\ufeff", "\u0301", "😀", "/", "\\", "]", "[", "^", "&", "{", "}", ",", "b", "\b", "\x07", "\0",
]  # fmt: skip
TEXTS = [
    "",
    *SINGLE,
    "ab",
    "aa",
    "a\n",
    "\na",
    "1a",
    "é1",
    "ba",
    "aab",
    "abab",
    "^]",
    "a{,2}",
    "b\n",
    "aaa",
    "{a}",
    "\n\n",
]

CLASSES = [".", "(?s).", r"\d", r"\D", r"\w+", r"\W", r"\s", r"\S", r"[^\w\s]", r"[\d_-]", r"(?a)\w", "[]a]", "[a&&b]"]
CLASSES += [
    r"[\b]", "[\\\n]", r"[^]a]", r"[\]\\-]", r"[\x00-\x1f]", r"[\1\07]", r"(?a:\w)\w?", "(?s-i:.)", r"(?-s:.)",
    r"[\N{LATIN SMALL LETTER A}]",
]  # fmt: skip
CASELESS = ["(?i)k|ß|É", "(?i)[a-z]", "(?i:a)b", "(?i)[^k]", "(?i)(?-i:a)b"]
SHAPES = [
    "a*?b", "a{,2}", "a{2}", "(ab)+|", "(a|)b", "^a$", r"\Aa\Z", "(?:^a|b)b?", "(?P<x>a)b?", r"\/", "", "a{,}", "{a}",
]  # fmt: skip
SHAPES += [
    "(?#note)a(?#note)*", "ab(?#note)*", "ba|ab{2}|aab|(?i:1A)", "aa{b|a{,2|ab(ab)*",
    r"\0|\07|\x61|\u00e9|\U0001f600|\141", r"\a|\r|\t", "a{2}?", "(a$|b)\n?", "a$\n?", "(?:a$)?b?", "|a||",
]  # fmt: skip
SHAPES += [
    "(?!a)..?", "(?=.*b)a.*", "(?<=^)a", "a(?!b).?", "(?:(?!b).|x)a?", "a(?<!b)b", "$", "^^a$$", "a^b", "a$b",
    "(?=a$)a\n?", "a(?=$)\n?", "(?x: a b )?",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Possible set intersection:FutureWarning")  # for [a&&b]
@pytest.mark.parametrize("pattern", [*CLASSES, *CASELESS, *SHAPES])
def test_fullmatch_equals_python(pattern):
    language = parse_fullmatch(pattern)
    for text in TEXTS:
        assert matches(language, text) == bool(re.fullmatch(pattern, text)), repr(text)


@pytest.mark.parametrize(
    "pattern", ["a", "^a", "a$", "^a|b$", "^(a|b)$", "(?:(?:^a))", "b|^a$", "^$", "", "[^a]", "a."]
)
def test_search_equals_validators(pattern):
    language = parse_search(pattern)
    strict = re.compile(pattern.replace("$", r"\Z"))  # Python's $ matches before a last newline, ECMA-262's does not
    narrow = "\r\u2028" if "." in pattern else ""  # characters that ECMA-262's dot does not match
    for text in TEXTS:
        if not set(narrow) & set(text):
            assert matches(language, text) == bool(strict.search(text)), repr(text)


@pytest.mark.parametrize(
    ("pattern", "both", "one_only"),
    [
        (r"^\d$", "1", "\u0661"),
        (r"^\w$", "aAKb1_", "é\u0661"),
        (r"^\W$", "- 😀", "é\u0661"),
        (r"^\s$", " \xa0\n\r\u2028", "\ufeff\x1c\x85"),
        (r"^\S$", "aé😀", "\ufeff\x1c"),
        (r"^.$", "a \xa0", "\r\u2028"),
        (r"^[^\d]$", "a", "\u0661"),
        (r"^(\s|\S)$", "".join(SINGLE), ""),
        (r"^(?!\d)[\s\S]$", "aé", "1\u0661"),
    ],
)
def test_schema_patterns_match_only_texts_of_both_dialects(pattern, both, one_only):
    language = parse_search(pattern)
    assert all(matches(language, character) for character in both)
    assert not any(matches(language, character) for character in one_only)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"^\p{L}+$", ["é", "東京", "aB"], ["1", "", "a1"]),
        (r"^\p{Letter}\P{gc=Nd}$", ["a-", "éé"], ["a1", "a\u0661"]),
        (r"^\p{Lu}\d$", ["A1", "É2"], ["a1", "A\u0661"]),
        (r"^\u{1F600}$", ["😀"], ["u"]),
        (r"^\uD83D\uDE00$", ["😀"], [""]),
        (r"^[\uD83D\uDE00-\uD83D\uDE02]$", ["😀", "😁"], ["😃"]),
        (r"^\cJ$", ["\n"], ["J", "cJ"]),
        (r"^[^]$", ["a", "\n", "]"], ["", "ab"]),
        (r"^([]|a)$", ["a"], ["", "]"]),
        (r"^(?<year>\d+)$", ["1"], ["a", "\u0661"]),
        (r"^\/\-$", ["/-"], [r"\/\-"]),
    ],
)
def test_syntax_of_ecma_262(pattern, inside, outside):
    language = parse_search(pattern)
    assert all(matches(language, text) for text in inside)
    assert not any(matches(language, text) for text in outside)


NODE = """
const {patterns, texts} = JSON.parse(require("fs").readFileSync(0));
const found = patterns.map(pattern => texts.map(text => new RegExp(pattern, "u").test(text)));
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(
    shutil.which("node") is None, reason="needs node, for the regular expressions of ECMA-262 themselves"
)
def test_shared_syntax_is_the_intersection_of_ecma_262_and_python():
    ecma_only = [
        r"^\p{L}+$", r"^\p{Letter}\P{gc=Nd}$", r"^\u{1F600}$", r"^\cJ$", r"[^]", r"^([]|a)$", r"\p{Sc}|\p{Zs}",
        r"^(?!\P{Lu})",
    ]  # fmt: skip
    shared = [
        r"\D", r"\W", r"\S", r"[^\w]", r"[^\d\s]", ".", r"^.\s?", r"^(?!\W).", "(?<!a)b", r"\/", "a{2}|[^a]b",
        r"[\s\S]",
    ]  # fmt: skip
    query = json.dumps({"patterns": ecma_only + shared, "texts": TEXTS})
    done = subprocess.run(["node", "-e", NODE], input=query, capture_output=True, text=True, check=True)
    for pattern, row in zip(ecma_only + shared, json.loads(done.stdout), strict=True):
        language = parse_search(pattern)
        for text, matched in zip(TEXTS, row, strict=True):
            expected = matched and (pattern in ecma_only or bool(re.search(pattern, text)))
            assert matches(language, text) == expected, (pattern, text)


@pytest.mark.skipif(
    shutil.which("node") is None, reason="needs node, for the regular expressions of ECMA-262 themselves"
)
def test_patterns_invalid_in_unicode_mode_are_read_without_it():
    """Patterns that neither Python nor unicode mode accepts are read as in ECMA-262's Annex B."""
    patterns = [
        r"^[\w-\.]+@[\w-]+$", r"^[\w-.]$", r"^[\d-x]a{,3}]$", r"^[a-\d]\cA\x4$", r"^\y\u12[\s-\d]$",
        r"^\-{}\e[\s-\S]$", r"^(?<name>[\W-a])\_$", r"[\w-\/]\b",
    ]  # fmt: skip
    texts = [
        "a@b", "a.b-@c-", "-", ".", "7", "xa{,3}]", "-a{,3}]", "aaaa]", "-\x01x4", "b\x01x4", "yu12-", "-{}ez", "-_",
        "a_",
    ]  # fmt: skip
    query = json.dumps({"patterns": patterns, "texts": texts})
    without_unicode_mode = NODE.replace('(pattern, "u")', "(pattern)")
    done = subprocess.run(["node", "-e", without_unicode_mode], input=query, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)
    assert any(map(any, rows))
    for pattern, row in zip(patterns, rows, strict=True):
        with pytest.raises(re.error):
            re.compile(pattern)
        language = parse_search(pattern)
        for text, expected in zip(texts, row, strict=True):
            assert matches(language, text) == expected, (pattern, text)


@pytest.mark.parametrize("pattern", [r"^[\w-\u{61}]$", r"^[\w-\p{L}]$", "^[z-a]$", r"[\w-.](a"])
def test_pattern_of_no_dialect_is_an_error(pattern):
    with pytest.raises(re.error):
        parse_search(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?!foo)bar$",
        "^(?!.*foo).*$",
        r"^(?=.*[0-9])(?=.*[a-z]).{8,}$",
        "(?!b)a",
        "a(?!b)",
        "^.*(?<!foo)$",
        "(?<=a)b",
        "^(?!$)",
        "(?=.*a$)b",
        "^((?!foo).)*",
        r"^(?:(?!ab)[a-c]{2}|foo(?=b)ba)",
    ],
)
def test_look_around_is_exact(pattern):
    texts = [
        "", "a", "b", "ab", "ba", "foo", "bar", "foobar", "barfoo", "abcdefg1", "abcdefgh", "1234567a", "foob", "ca",
        "xfoo", "b a",
    ]  # fmt: skip
    if pattern == "^((?!foo).)*":
        with pytest.raises(UnsupportedRegex, match="inside a repetition"):
            parse_search(pattern)
        return
    language = parse_search(pattern)
    for text in texts:
        assert matches(language, text) == bool(re.search(pattern, text)), repr(text)


@pytest.mark.parametrize(
    ("pattern", "reason", "position"),
    [
        (r"(a)\1", "back-reference", 3),
        (r"(?P<x>a)(?P=x)", "back-reference", 8),
        (r"(\ba)+", "word boundaries inside a repetition", 5),
        (r"a(?=\b)b", "looks out", 4),
        (r"a(?=(?=b\b)b)b", "looks out", 8),
        (r"x(?<=\ba\b)b", "looks out", 8),
        ("(^a)+", "inside a repetition", 4),
        ("(a)?(?(1)a|b)", "conditional", 4),
        ("a(?=b)b(?<=b)b", "to the right of a look-ahead", 7),
        ("a(?=^)b", "looks out", 4),
        ("(?m)^a", "multi-line", 4),
        ("(^a|$|^b)?" * 4, "too many alternatives", 30),
        ("(?:" * 300 + "a" + ")" * 300, "nest", None),
        ("(a|b(" * 60 + "c" + "))" * 60, "nest", None),
    ],
)
def test_unsupported_syntax_is_named(pattern, reason, position):
    for parse in (parse_fullmatch, parse_search):
        with pytest.raises(UnsupportedRegex, match=reason) as caught:
            parse(pattern)
        if position is not None:
            assert caught.value.position == position


@pytest.mark.skipif("sys.version_info < (3, 11)", reason="Python 3.10 knows neither")
@pytest.mark.parametrize(("pattern", "reason"), [("a++", "possessive"), ("(?>a)", "atomic"), ("a{2}+", "possessive")])
def test_unsupported_syntax_of_newer_pythons_is_named(pattern, reason):
    with pytest.raises(UnsupportedRegex, match=reason):
        parse_fullmatch(pattern)


@pytest.mark.parametrize("pattern", [r"\k<a>(?<a>b)", r"\p{Script=Greek}", r"\p{Alphabetic}"])
def test_unsupported_syntax_of_ecma_262(pattern):
    with pytest.raises(UnsupportedRegex):
        parse_search(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "a)",
        "[a",
        "*",
        r"\p{L}(",
        r"\p{L}\Z",
        r"(?i)\p{L}",
        r"\p{L}\a",
        "a**",
        r"[z-a]",
        r"\pL\q",
        "a{1}{2}",
        "{2}b",
        "(?x:a))b)",
    ],
)
def test_malformed_pattern_is_an_re_error(pattern):
    with pytest.raises(re.error):
        parse_search(pattern)
    with pytest.raises(re.error):
        parse_fullmatch(pattern)


def test_deepest_allowed_pattern_passes_all_stages():
    pattern = "(?:a|b(?:x|" * 25 + "c" + ")+d)+" * 25
    language = parse_search(f"^{pattern}(?!e)")
    assert matches(language, "ba") == bool(re.search(f"^{pattern}(?!e)", "ba"))
    spellings = regex.json_spellings(regex.only(language, regex.CharSet.of("abcdx")))
    assert matches(spellings, "ab" * 5)
    assert len(regex.to_lark(spellings)) > 1000
    re.compile(as_python(regex.to_pattern(parse_fullmatch(pattern))))


def test_length_of_a_pattern_is_bounded():
    words = "|".join(f"{number:0110}" for number in range(2000))
    assert matches(parse_fullmatch(words), f"{1999:0110}")
    assert matches(parse_fullmatch(re.escape(words).replace(r"\|", "|")), f"{7:0110}")
    for pattern in ("a" * 500_001, "a?" * 30_001, "a|" * 30_001):
        with pytest.raises(UnsupportedRegex, match="too long .* use Choice"):
            parse_fullmatch(pattern)


def test_many_alternatives_may_be_anchored():
    words = [f"w{i}" for i in range(300)]
    language = parse_search(f"({'|'.join(f'^{word}$' for word in words)})")
    assert all(matches(language, word) for word in words)
    assert not matches(language, "w300")


def test_pattern_that_never_matches_is_nothing():
    for pattern in ("a^b", "a$b", "a^", r"[^\s\S]", r"\ud800"):
        assert parse_fullmatch(pattern) == regex.NOTHING
    assert parse_search("x$y") == regex.NOTHING
    for write in (regex.to_pattern, regex.to_lark):
        with pytest.raises(UnsupportedRegex, match="matches nothing"):
            write(regex.NOTHING)


def test_bounds_of_repetitions_are_written_in_short():
    """Such patterns are in schemas of Python types, which prompts describe."""
    assert regex.to_pattern(parse_fullmatch("a?b*c+d{2}e{2,}f{0,2}")) == "a?b*c+d{2}e{2,}f{0,2}"


def test_plain_pattern_cannot_express_an_intersection():
    with pytest.raises(UnsupportedRegex, match="look-ahead"):
        regex.to_pattern(parse_search("^(?!foo)bar"))


def test_only_restricts_the_characters():
    letters = regex.CharSet.of("ab")
    language = regex.only(parse_search('^(a|"|b[^x])+$'), letters)
    assert [text for text in ("a", "ba", "bb", 'a"', 'b"', "bc") if matches(language, text)] == ["a", "ba", "bb"]
    assert regex.only(parse_search('^"$'), letters) == regex.NOTHING
    assert not matches(regex.only(parse_search("^(?!a)"), letters), "c")
    assert matches(regex.only(parse_search("^(?!a)"), letters), "ba")


def as_python(plain: str) -> str:
    r"""Replace ``\u{...}``, the only syntax of plain patterns that Python does not read."""
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: f"\\U{int(match[1], 16):08x}", plain)


@pytest.mark.parametrize("name", ["Lu", "L", "LC", "Nd", "Zs", "Cn", "Co", "P"])
def test_categories_equal_unicodedata(name):
    prefixes = ("Lu", "Ll", "Lt") if name == "LC" else (name,)
    codes = chain(range(0xD800), range(0xE000, 0x110000))
    expected = (chr(code) for code in codes if unicodedata.category(chr(code)).startswith(prefixes))
    assert all(starmap(eq, zip_longest(category(name), expected)))  # without lists: one has 800,000 characters


def test_equivalent_patterns_have_equal_trees():
    assert parse_fullmatch("a|b|[c-d]") == parse_fullmatch("[a-d]")
    assert hash(parse_fullmatch("(?:ab)*")) == hash(parse_fullmatch("(ab)*?"))
    assert parse_fullmatch("(a*)*") == parse_fullmatch("a*") == parse_fullmatch("(?:a?)*")
    assert parse_fullmatch("(a+){2,}") == parse_fullmatch("a{2,}") != parse_fullmatch("a+")


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|b|ab)*c", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?:a{0,50}){0,50}b"]
)
def test_matching_takes_no_exponential_time(pattern):
    language = parse_search(f"^(?:{pattern})$".replace("^(?:^", "^(?:").replace("$)$", ")$"))
    matched, calls = counted_calls(lambda: matches(language, "a" * 300 + "!"))
    assert not matched
    assert calls < 100_000  # `re` would not finish on most of these


def test_spellings_of_any_text_are_small_and_shared():
    anything = regex.json_spellings(regex.ANYTHING)
    assert regex.json_spellings(regex.repeat(regex.chars(regex.ALL))) is anything
    assert len(regex.to_pattern(anything)) < 400
    assert matches(anything, json.dumps("".join(TEXTS))[1:-1])
    assert matches(anything, json.dumps("".join(TEXTS), ensure_ascii=False)[1:-1])


def test_quoted_intersections_are_intersections_of_quoted_texts() -> None:
    """The library sees what a terminal may hold only if the intersection is outside."""
    quote, names = regex.text('"'), regex.alt(regex.text("a"), regex.text("bc"))
    letters = regex.repeat(regex.parse_fullmatch("[a-c]"), 0, None)
    other = regex.concat(quote, regex.both(letters, regex.complement(names)), quote)
    assert regex.to_lark(other) == r"(/\u{22}[a-c]*\u{22}/ & ~(/\u{22}(?:a|bc)\u{22}/))"
    # More than one character around it: the parts would not be told apart by their length alone.
    longer = regex.concat(letters, quote, regex.both(letters, regex.complement(names)), quote)
    assert regex.to_lark(longer) == r"(/[a-c]*\u{22}/ (/[a-c]*/ & ~(/a|bc/)) /\u{22}/)"


def test_trees_of_many_long_patterns_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charset, "MOST_CHARACTERS", 10_000)
    charset.count_characters(10_001)
    sizes = []
    for number in range(40):
        parse_search(f"^{number:0>1000}$")
        sizes.append(parse_search.cache_info().currsize)
    assert max(sizes) < 20 < sum(sizes)


def test_names_that_are_left_out_are_not_all_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charset, "MOST_CHARACTERS", 10_000)
    charset.count_characters(10_001)
    sizes = []
    for number in range(40):
        regex.json_spelling(regex.all_but((f"{number:0>1000}", "a")))
        sizes.append(regex.json_spelling.cache_info().currsize)
    assert max(sizes) < 20 < sum(sizes)
