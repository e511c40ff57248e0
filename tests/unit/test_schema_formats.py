"""The patterns of formats, compared with jsonschema's checkers, JSON-Schema-Test-Suite, idna, ipaddress and node."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import unicodedata
import warnings
from email.errors import HeaderParseError
from email.headerregistry import Address
from functools import cache
from pathlib import Path
from typing import NamedTuple

import idna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validators

from hf_guided.backends.compile import Compiler
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.constraints import format_patterns as formats_hosts
from hf_guided.constraints.values import JsonSchema
from hf_guided.schema.formats import FORMATS, NARROWER
from tests import toy
from tests.effort import repeats

SUITE = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "json-schema-test-suite" / "tests"
CHECKERS = [
    validator.FORMAT_CHECKER
    for validator in (
        validators.Draft4Validator,
        validators.Draft6Validator,
        validators.Draft7Validator,
        validators.Draft201909Validator,
        validators.Draft202012Validator,
    )
]

# Texts that the test suite calls valid and our patterns exclude, by the suite's descriptions. NARROWER says why.
EXCLUDED = {
    "date-time": [
        "a valid date-time with a leap second, UTC",
        "a valid date-time with a leap second, with minus offset",
    ],
    "time": [
        "a valid time string with leap second, Zulu",
        "valid leap second, zero time-offset",
        "valid leap second, positive time-offset",
        "valid leap second, large positive time-offset",
        "valid leap second, negative time-offset",
        "valid leap second, large negative time-offset",
    ],
    "hostname": [
        "a valid host name (example.test in Hangul)",
        "Exceptions that are PVALID, left-to-right chars",
        "Exceptions that are PVALID, right-to-left chars",
        "MIDDLE DOT with surrounding 'l's",
        "Greek KERAIA followed by Greek",
        "Hebrew GERESH preceded by Hebrew",
        "Hebrew GERSHAYIM preceded by Hebrew",
        "KATAKANA MIDDLE DOT with Hiragana",
        "KATAKANA MIDDLE DOT with Katakana",
        "KATAKANA MIDDLE DOT with Han",
        "Arabic-Indic digits not mixed with Extended Arabic-Indic digits",
        "Extended Arabic-Indic digits not mixed with Arabic-Indic digits",
        "ZERO WIDTH JOINER preceded by Virama",
        "ZERO WIDTH NON-JOINER preceded by Virama",
        "ZERO WIDTH NON-JOINER not preceded by Virama but matches regexp",
    ],
    "idn-email": ["a domain label that is not in Unicode NFC is valid"],
    "iri": [
        "a valid IRI with a compressed IPv6 host",
        "an IPvFuture host with an uppercase version letter is valid",
        "a valid IRI with a supplementary-plane character in the path",
        "a valid IRI with a supplementary-plane private-use char in query",
    ],
    "relative-json-pointer": ["multi-digit prefix with a zero followed by another digit"],
    "uri-template": [
        "a variable name may start with a percent-encoded triplet",
        "a four-digit prefix max-length is valid",
    ],
    "regex": [
        "an ECMA 262 named group (?<name>...)",
        "an ECMA 262 named backreference \\k<name>",
        "a variable-width lookbehind (ES2018)",
        "an empty character class is valid ECMA 262",
        "a negated empty character class is valid ECMA 262",
        "a control escape \\cA is valid ECMA 262",
    ],
}
EXCLUDED["idn-hostname"] = [
    *EXCLUDED["hostname"][1:],
    "valid Chinese Punycode",
    "ideographic full stop as label separator",
    "fullwidth full stop as label separator",
    "halfwidth ideographic full stop as label separator",
    "label too long if separator ignored (full stop)",
    "label too long if separator ignored (ideographic full stop)",
    "label too long if separator ignored (fullwidth full stop)",
    "label too long if separator ignored (halfwidth ideographic full stop)",
]
# Examples of the other exclusions in NARROWER.
MORE_EXCLUDED = {
    "date": ["0000-02-28"],
    "date-time": ["0000-02-28T00:00:00Z"],
    "hostname": ["ab--c.example"],
    "idn-hostname": ["ü" * 21, "漢" * 15, "Ü", "ใหม่", "é.é.é.é.é"],
    "email": ["a@[x-y:z]", "a@[127.0.0.01]", "a@xn--9n2bp8q.example"],
    "idn-email": ["ü@" + "ü" * 21 + ".example"],
    "uri": ["a://[V1.a]"],
    "uri-reference": ["//[V1.a]"],
    "iri": ["a:\U00010000"],
    "iri-reference": ["//[::1]", "//[V1.a]", "\U00010000"],
    "uri-template": ["{=a}", "{,a}", "{!a}", "{@a}", "{|a}"],
    "relative-json-pointer": ["1000", "0+1", "1-1/a"],
    "regex": [
        "(?=a)",
        "(a)\\1",
        "[+-/]",
        "((((a))))",
        "a{25,27}",
        "a{100,200}",
        "a{1000}",
        "\\p{L}",
        "\\0",
        "\\b?",
        "\n",
    ],
}

# Texts to mutate where the pattern is too large for Hypothesis to draw from.
SEEDS = {
    "idn-hostname": ["ü.example", "é-b.1", "漢字.한국", "παράδειγμα.δοκιμή", "ab--c", "A-1.ü"],
    "idn-email": ["ü.x@example", "a@é-b.1", '"漢 \\""@漢字.한국', "δ@[127.0.0.1]", "ü@[IPv6:1::a]", "a.b.c@d.e-f.g"],
    "iri": ["http://é.example/漢?ü#δ", "urn:isbn:0-395", "mailto:ü@b", "ftp://[::1]:21/%C3%BC", "a:", "http://u:p@h:/"],
    "iri-reference": ["//é/ü", "../漢?a=b", "#δ", "", "a/b:c", "?%41", "http://[v1.a:b]/"],
    "uri-template": ["/{+path}/x{?q,r*}", "{a:3}{/b*}", "{#x,y}", "é{;%41a.b}", "", "{.dom*}&{&z:9999}"],
}
# Drawing from the patterns of the last three takes seconds and 200 MB: only slow tests do.


class Example(NamedTuple):
    format: str
    text: str
    valid: bool
    description: str


@cache
def suite() -> tuple[Example, ...]:
    if not SUITE.exists():
        pytest.skip(f"{SUITE} is missing; set HF_GUIDED_DATA")
    return tuple(
        Example(group["schema"]["format"], test["data"], test["valid"], test["description"])
        for draft in ("draft7", "draft2020-12")
        for file in sorted((SUITE / draft / "optional" / "format").glob("*.json"))
        for group in json.loads(file.read_text(encoding="utf-8"))
        for test in group["tests"]
        if isinstance(test["data"], str) and group["schema"]["format"] in FORMATS
    )


def body(name: str) -> str:
    """Return the pattern without its anchors, because Python's ``$`` also matches before a last newline."""
    pattern = FORMATS[name]["pattern"]
    assert pattern[0] == "^" and pattern[-1] == "$"
    return f"(?:{pattern[1:-1]})"


def matches(name: str, text: str) -> bool:
    return bool(re.fullmatch(body(name), text)) and len(text) <= FORMATS[name].get("maxLength", len(text))


def conforms(name: str, text: str) -> bool:
    """Whether the checkers of all drafts that know the format accept the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # `re` warns of patterns that will change their meaning
        accepted = all(checker.conforms(text, name) for checker in CHECKERS if name in checker.checkers)
    return accepted and (not name.endswith("email") or _is_mailbox(text))


def _is_mailbox(text: str) -> bool:
    """Check more than the checkers, which only look for an @: the standard library reads local parts, idna domains."""
    local, _, domain = text.rpartition("@")
    try:
        Address(addr_spec=re.sub(r"[^\x00-\x7f]", "u", local) + "@a.b")
        if domain.startswith("[") and domain.endswith("]"):
            version6 = re.fullmatch(r"(?i:ipv6):(.*)", domain[1:-1])
            ipaddress.IPv6Address(version6[1]) if version6 else ipaddress.IPv4Address(domain[1:-1])
        else:
            for label in domain.split("."):
                idna.alabel(label)
    except (ValueError, IndexError, HeaderParseError, idna.IDNAError):
        return False
    return True


def texts_up_to(alphabet: str, most: int) -> list[str]:
    """All texts of at most ``most`` letters."""
    return ["".join(text) for size in range(most + 1) for text in itertools.product(alphabet, repeat=size)]


def test_formats_are_those_of_jsonschemas_checkers():
    # A checker whose package is missing is not registered, and would accept everything.
    assert set(FORMATS) == {name for checker in CHECKERS for name in checker.checkers}


def test_no_invalid_instance_of_the_suite_matches():
    accepted = [example for example in suite() if not example.valid and matches(example.format, example.text)]
    assert not accepted
    assert {example.format for example in suite()} == set(FORMATS)


def test_valid_instances_of_the_suite_match_or_are_listed():
    refused = {(example.format, example.description) for example in suite() if example.valid} - {
        (example.format, example.description) for example in suite() if matches(example.format, example.text)
    }
    assert refused == {(name, description) for name, texts in EXCLUDED.items() for description in texts}


def test_narrower_formats_are_documented():
    for name, texts in MORE_EXCLUDED.items():
        assert not [text for text in texts if matches(name, text)], name
    assert set(NARROWER) == set(EXCLUDED) | set(MORE_EXCLUDED)
    print(*(f"{name} leaves out {why}." for name, why in NARROWER.items()), sep="\n")


# The parser of IRIs is slow.
EXAMPLES = {"iri": 8, "iri-reference": 8}
FEW = {"iri": 2, "iri-reference": 2, "uri-reference": 5, "uri-template": 12}


@pytest.mark.parametrize(
    ("name", "examples", "from_seeds"),
    [
        *(pytest.param(name, FEW.get(name, repeats(12, 80)), name in SEEDS, id=name) for name in FORMATS),
        *(
            pytest.param(name, EXAMPLES.get(name, 80), False, id=f"{name}, more", marks=pytest.mark.slow)
            for name in FEW
        ),
    ],
)
def test_drawn_texts_that_match_conform(name, examples, from_seeds):
    pattern = re.compile(body(name))
    alphabet = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
        "ßÜя漢가\u0301א019aAzZ-+._~%:/?#[]@!$&'()*,;={}|^\\\" \n"
    )

    @settings(max_examples=examples)
    @given(st.sampled_from(SEEDS[name]) if from_seeds else st.from_regex(pattern, fullmatch=True), st.data())
    def check(text, data):
        if matches(name, text):
            assert conforms(name, text)
        for _ in range(5):
            at = data.draw(st.integers(0, len(text)))
            mutant = text[:at] + data.draw(st.just("") | alphabet) + text[at + data.draw(st.integers(0, 1)) :]
            if matches(name, mutant):
                assert conforms(name, mutant)

    check()


@pytest.mark.parametrize(
    ("name", "alphabet", "most"),
    [
        ("duration", "P10YMDTHSW", 5),
        ("hostname", "aZ9-._", 5),
        ("idn-hostname", "a9-.ßÜ漢א\u0301", 5),
        ("ipv4", "0129.a", 7),
        ("json-pointer", "/~01a", 6),
        ("relative-json-pointer", "/~019#", 5),
        ("regex", "a-[]^(?:){1,\\d|+&", 4),
        ("uri", "a1:/?#[]@%.é", 4),
        ("uri-reference", "a1:/?#[]@%.é", 4),
        ("uri-template", "a.{},:*%1+", 5),
        ("time", "0:Z+-", 4),
    ],
)
def test_all_short_texts_that_match_conform(name, alphabet, most):
    pattern = re.compile(body(name))
    assert not [text for text in texts_up_to(alphabet, most) if pattern.fullmatch(text) and not conforms(name, text)]


@pytest.mark.parametrize("name", ["uri", "uri-reference", "json-pointer"])
def test_all_short_texts_that_conform_match(name):
    pattern = re.compile(body(name))
    wrong = [text for text in texts_up_to("a1:/?#[]@%.~", 4) if bool(pattern.fullmatch(text)) != conforms(name, text)]
    assert not wrong


def test_iris_of_ascii_are_uris():
    for text in [*texts_up_to("a1:/?#[]@%.~", 4), *(example.text for example in suite() if example.text.isascii())]:
        for name in ("", "-reference"):
            assert matches(f"iri{name}", text) == matches(f"uri{name}", text) or "::" in text, text


def test_leap_days_of_all_years():
    for year in range(10_000):
        text = f"{year:04}-02-29"
        try:
            exists = bool(datetime.date(year, 2, 29))
        except ValueError:
            exists = False
        assert matches("date", text) == matches("date-time", f"{text}t23:59:59.5z") == exists, text


def test_ipv6_pattern_equals_ipaddress():
    def reads(text: str) -> bool:
        try:
            return not ipaddress.IPv6Address(text).scope_id
        except ipaddress.AddressValueError:
            return False

    groups = [":".join(["1", "ab", "0000", "F"][i % 4] for i in range(size)) for size in range(10)]
    tails = [*groups, *(f"{group}:1.2.3.255" if group else "1.2.3.255" for group in groups)]
    texts = [left + middle + tail for left in groups for middle in (":", "::", ":::") for tail in tails]
    texts += [*tails, "1::2::3", "::1.2.3.4:1", "::12345", "::g", "::1.2.3.256", "::1.2.3.04", "::1%eth0", "::1\n"]
    assert [text for text in texts if matches("ipv6", text) != reads(text)] == []
    assert sum(map(reads, texts)) > 60


def _letters(characters: str) -> list[str]:
    return re.findall(f"[{characters}]", "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000)))))


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_letters_of_international_names_are_valid_in_any_order(step):
    pairs = (unicodedata.decomposition(chr(code)).split() for code in range(0x110000))  # a list would take 200 MB
    seconds = {pair[1] for pair in pairs if len(pair) == 2 and not pair[0].startswith("<")}
    for letter in _letters(formats_hosts._ANY_SCRIPT)[::step]:
        idna.check_label(letter)  # raises: not valid by itself
        assert unicodedata.bidirectional(letter) in ("L", "EN"), letter
        assert not unicodedata.combining(letter) and unicodedata.is_normalized("NFC", letter), letter
        assert f"{ord(letter):04X}" not in seconds, letter  # would combine with the character before it


@pytest.mark.parametrize(("characters", "most"), [(formats_hosts._EUROPEAN, 20), (formats_hosts._ANY_SCRIPT, 14)])
def test_international_labels_fit_four_to_a_name(characters, most):
    letters = _letters(characters)
    extremes = [letters[0], letters[36], letters[37], letters[len(letters) // 2], letters[-2], letters[-1]]
    rng = random.Random(0)
    for source in (letters, extremes, extremes[2:], letters[36:]):
        for _ in range(repeats(200, 1000)):
            label = "".join(rng.choices(source, k=most))
            assert matches("idn-hostname", label) and len(idna.encode(label)) <= 62, label


@pytest.fixture(scope="module")
def node() -> str:
    path = shutil.which("node")
    if path is None:
        pytest.skip("needs node, which implements ECMA-262")
    return path


def _run_node(node: str, script: str, question: object) -> list[bool]:
    script = f"const question = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n{script}"
    done = subprocess.run([node, "-e", script], input=json.dumps(question), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_ecma_262_and_python_agree_on_the_patterns(node):
    question = [[FORMATS[example.format]["pattern"], example.text] for example in suite()]
    script = "console.log(JSON.stringify(question.map(([pattern, text]) => new RegExp(pattern, 'u').test(text))))"
    assert _run_node(node, script, question) == [bool(re.fullmatch(body(name), text)) for name, text, *_ in suite()]


def test_regexes_compile_as_ecma_262(node):
    texts = [text for text in texts_up_to("a-[]^(?:){1,\\d|+&", 4) if matches("regex", text)]

    @settings(max_examples=repeats(100, 300))
    @given(st.from_regex(body("regex"), fullmatch=True))
    def collect(text):
        texts.append(text)

    collect()
    script = """
    const compiles = (text, flags) => { try { new RegExp(text, flags); return true } catch { return false } };
    console.log(JSON.stringify(question.map(text => compiles(text, '') && compiles(text, 'u'))))"""
    answers = _run_node(node, script, texts)
    assert len(texts) > 1000 and [text for text, good in zip(texts, answers, strict=True) if not good] == []


@pytest.mark.parametrize("name", FORMATS)
def test_llguidance_enforces_the_format(name):
    constraint = JsonSchema({"type": "string", "format": name}, spelling="any")
    compiled = LLGuidanceBackend(toy.all_bytes()).compile(constraint)
    assert not compiled.losses
    texts = [example.text for example in suite() if example.format == name]
    # llguidance writes control characters only as \uXXXX, which our grammar excludes.
    for text in {*texts_up_to('"\\a/~:é', 2), *(text for text in texts if not re.search(r"[\x00-\x1f\x7f]", text))}:
        written = json.dumps(text, ensure_ascii=False).encode()
        assert (compiled.matcher().validate_tokens(list(written)) == len(written)) == matches(name, text), text


def test_the_sizes_of_an_address_are_not_part_of_its_format() -> None:
    """The rule Mailbox of RFC 5321 has none, and checkers refuse none; a pattern beside the format adds one."""
    compiler = Compiler(toy.all_bytes())
    alone = compiler.compile(JsonSchema({"type": "string", "format": "email"}))
    limited = compiler.compile(JsonSchema({"type": "string", "format": "email", "pattern": "^.{1,64}@"}))
    for length, within in ((64, True), (65, False), (300, False)):
        address = "a" * length + "@b.example"
        assert conforms("email", address)
        for compiled, accepted in ((alone, True), (limited, within)):
            matcher = compiled.matcher()
            assert (all(map(matcher.accept_token, f'"{address}"'.encode())) and matcher.is_completed()) is accepted
