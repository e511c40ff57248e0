"""Lark grammars: what is refused and with which error, special tokens, %json, and the parts that count tokens."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.lark_grammar import read
from hf_guided.backends.llguidance import refusal
from hf_guided.backends.matcher import Matcher
from hf_guided.errors import BackendError, CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint
from hf_guided.grammars.lark import may_repeat_one_text
from hf_guided.vocabulary.tokens import Vocabulary
from tests.property.strategies import allowed, backend, single_bytes
from tests.toy import LetterTokenizer

NAMES = ["<pad>", "</s>", "<|tool|>", "<|end|>", *'ab<|>"{}:1xtol ', "ab", "ba", "<|", '{"x":', "1}a", "b "]


@cache
def tokens() -> Vocabulary:
    """Four special tokens, of which one is the stop token, and texts of one character and more."""
    data = (None, None, None, None, *(name.encode() for name in NAMES[4:]))
    return Vocabulary(data, (1,), len(data), LetterTokenizer(NAMES))  # type: ignore[arg-type]


def compiled(text: str, vocabulary: Vocabulary | None = None, root: str | None = None) -> CompiledConstraint:
    return backend("llguidance", vocabulary or single_bytes()).compile(hg.Grammar(text, "lark", root))


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


# -- malformed, without text, not enforced -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start: limit", "line 1, column 8: the rule 'limit' is not defined"),
        ('start: "a" too_large', "line 1, column 12: the rule 'too_large' is not defined"),
        ('start: "fuel exceeded', "line 1, column 8: expected a part of a rule"),
        ("start: /a{2,1} limit/", "the start must be <= the end"),
        ('start: A\nA: "limit" A', "circular reference"),
        ('start: A\nB: "max_ limit exceeds"', 'unknown name: "A"'),
        ('start: "a"\n%ignore', "line 2, column 1: expected a pattern after %ignore"),
        ('start: ("a"', "line 1, column 8: this bracket is not closed"),
        ('start: "a"{x}', "expected a number, got 'x'"),
        ('start: "a"~1.5', "expected a whole number, got 1.5"),
        ('start: "a"{' + "9" * 5000 + "}", "expected a whole number"),
        ('rule: "a"', "there is no rule 'start' to start at"),
        ('start: "a"\nstart: "b"', "line 2, column 1: the rule 'start' is defined twice"),
        ("start: @other", "there is no grammar @other"),
        ('start: "a" %lark {\nx: "b"\n}', "line 1, column 19: there is no rule 'start'"),
        ('start: "a"\n%llguidance {', "%llguidance must be followed by JSON"),
        ('%llguidance {"a":' + "[" * 50_000 + '\nstart: "a"', "nested too deeply"),
        ("start: %json " + '{"a":' * 15_000, "nested too deeply"),
        ("start: %json [1]", "expected a JSON Schema"),
        ('start: %json {"type": "strin"}', "at /type"),
        ('start: %json {"type": "string", "minLength": 2, "maxLength": 1}', "no value satisfies"),
        ("start: %json false", "no value satisfies"),
        ('start: %regex {"substring_words": "a b", "x": 1}', "%regex: expected substring_chunks"),
        ('start: x\nx[max_tokens=0]: "a"', "max_tokens: expected a number of at least 1"),
        ('start: x\nx[suffix=""]: "a"', "suffix: expected a text"),
        ('start: x "b"\nx[lazy]: /a*/', "a lazy rule that may be empty always is"),
        ('start: "a" <[999]>', "the ids go from 0 to 256"),
        ("start: <[5-3]>", "the lower one first"),
        ("start: <[x]>", "expected ids of tokens"),
        ("start: <|tool|>", r"line 1, column 8: the tokenizer has no token <\|tool\|>"),
        # No text.
        ("start: start", "no text matches the rule 'start'"),
        ('start: "x" | y\ny: "a" y | y "b"', "no text matches the rule 'y'"),
        (r"start: /[^\s\S]/", "no text matches '/"),
        ("start: A\nA: /a/ & /b/", "line 2, column 1: no text matches 'A'"),
        ('start: "x" | A\nA: "a" & ~"a"', "line 2, column 1: no text matches 'A'"),
        ('start: "a" %lark {\nstart: "b" start\n}', "no text matches the rule 'start'"),
    ],
)
def test_malformed_grammars_and_those_without_text(text: str, message: str) -> None:
    with pytest.raises(InvalidConstraint, match=message) as caught:
        compiled(text)
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize(
    ("text", "keyword", "where"),
    [
        ('start: "a" x\nx[temperature=0.5]: /b+/', "temperature", "line 2, column 3"),
        ('start: "a" x\nx[capture]: /b+/', "capture", "line 2, column 3"),
        ('start: x\nx[suffix="b", stop_capture="name"]: /a+/', "stop_capture", "line 2, column 15"),
        ('start: x "c"\nx[stop="c"]: /[a-c]+/', "stop", "line 2, column 3"),
        ('start: x "c"\nx[stop=""]: /[a-c]+/', "stop", "line 2, column 3"),
        ('start: x\nx[max_tokens=2]: %json {"type": "null"}', "max_tokens", "line 2, column 1"),
        ('start: x\nx[max_tokens=1]: %lark {\nstart: "a" "b"\n}', "max_tokens", "line 2, column 1"),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', "%llguidance allow_invalid_utf8", "line 1, column 1"),
        ('start.2: "a"', "priority", "line 1, column 6"),
        ('start: pair{"a"}\npair{x}: x x', "template", "line 1, column 8"),
        ('%declare A\nstart: "a"', "%declare", "line 1, column 1"),
        ('start: "a"\n%override start: "b"', "%override", "line 2, column 1"),
        ('start: ~A\nA: "a"', "~", "line 1, column 8"),
        ("start: <[*]>", "<[*]>", "line 1, column 8"),
        ("start: <[^5]>", "<[^5]>", "line 1, column 8"),
        ('start: "a" <[256]>', "<[256]>", "line 1, column 12"),
        (r"start: /a(?=b)/ /b/", "grammar", "1(8)"),
        (r"start: /a\b/", "grammar", "1(8)"),
        ("start: A & B\nA: /a/\nB: /a/", "grammar", "1(8)"),
        ('start: %json {"type": "array", "uniqueItems": true}', "uniqueItems", "in %json at line 1, column 8"),
        ('start: %json {"x-guidance": {"lenient": true}}', "x-guidance", "in %json; leave it out (at line 1, column 8"),
        ('start: "a"\n | %json {"items": {"x-guidance": {}}}', "x-guidance", "at /items in %json"),
        ("start: /a.*?b.*?x/", "lazy", "line 1, column 8"),
        ('start: T\nT: "a" /b*?/ "x"', "lazy", "line 2, column 8"),
        ('start: T\nT: S "x"\nS: /a.*?b/', "T", "S has a lazy quantifier"),
    ],
)
def test_what_nothing_honours_is_a_loss(text: str, keyword: str, where: str) -> None:
    for name in ("llguidance", "auto"):
        report = Compiler(single_bytes()).audit(hg.Grammar(text, "lark"), name)
        assert [row.keyword for row in report.lost] == [keyword] and not report.ok
        assert where in report.lost[0].detail
    with pytest.raises(UnsupportedConstraint) as caught:
        compiled(text)
    assert [loss.keyword for loss in caught.value.losses] == [keyword]


def test_nesting_is_bounded() -> None:
    with pytest.raises(CompileLimitExceeded, match="more than 50 parentheses"):
        compiled(f'start: {"(" * 50_000}"a"')
    with pytest.raises(CompileLimitExceeded, match="more than 50 parentheses"):
        compiled("start: %lark {\n" * 1000)


def test_a_panic_of_the_library_has_a_short_message() -> None:
    error = refusal("panic: assertion failed\n<backtrace>\n" + "   0: <unknown>\n" * 200)
    assert isinstance(error, BackendError) and str(error) == "llguidance failed: panic: assertion failed"


# -- the syntax, decided by re -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('start: "a" | "b"\n  | "ab"', "a|b|ab"),
        ('start: ["a"] "b"~1..2 ("x")? // comment\n# another', "a?b{1,2}x?"),
        ('start: "a"{,2} "b"{1,} "x"{0,1}', "a{0,2}b+x?"),
        ('?start: _x -> name\n_x: "a" y\n!y: "b"', "ab"),
        ('start: "A"i /b/i', "[Aa][Bb]"),
        ('start: "a".."b"', "[ab]"),
        ("X: /a+/ & ~/aa/\nstart: X", "a|aaa+"),
        ("X: ~/a*/\nstart: X", "[abx ]*[bx ][abx ]*"),
        ('X: ~"a"+\nstart: "b" X', "b(?!a$)[abx ]*"),
        ('start: x "b"\nx[lazy]: /a+/', "ab"),
        ('start: x "b"\nx[lazy]: /a+/ /a+/', "aab"),
        ('start: x\nx[suffix="b"]: /a*/', "a*b"),
        ('start: /a[ab]*?b/ "x"', "aa*bx"),
        ('start: S "x"\nS: /a[ab]*?b/', "aa*bx"),
        ('start: "x" | S\nS: /a.*?b/', "x|a[^b\n]*b"),
        ('start: "x" "a"\n%ignore /b[^a]*?b/', "x(b[^a]*b)*a"),
        ("start: /a[ab]??b*?x/", "a[ab]?b*x"),
        ('start: %lark {\nstart: x "b"\nx: "a"\n} x\nx: "x"', "abx"),
        ('start: s::0\ns::_: "a" s::incr(_) %if lt(_, 2) | "b"', "a{0,2}b"),
        ('start: %regex {"substring_chars": "abx"}', "|a|b|x|ab|bx|abx"),
        ('start: "a" "b"\n%ignore " "', "a *b"),
        ('start: "a" "b"?\n%ignore " "', "a *b?"),
        ('start: "a" ("x" "a")*\n%ignore " "', "a( *x *a)* *"),
        ('%llguidance {"allow_initial_skip": true}\nstart: "a" "b"\n%ignore " "', " *a *b"),
        ('%import common.LCASE_LETTER -> L\nstart: L "b"', "[abx]b"),
    ],
)
def test_syntax_decided_by_re(grammar: str, pattern: str) -> None:
    matched = compiled(grammar)
    for length in range(4):
        for text in map("".join, product("abx ", repeat=length)):
            assert accepts(matched, text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        (r'start: S "z"' + '\nS: /".*?"/', {'"a"z': True, '""z': True, '"a"b"z': False, '"a"': False}),
        (r"start: C" + "\n" + r"C: /\/\*.*?\*\//s", {"/*a*/": True, "/***/": True, "/*a*/*/": False, "/*a": False}),
        (r'start: "b" "c"' + "\n" + r"%ignore /<!--.*?-->/", {"b<!--x-->c": True, "b<!---->c": True, "b<!--c": False}),
    ],
)
def test_lazy_patterns_end_at_the_first_end(grammar: str, texts: dict[str, bool]) -> None:
    """So a model can stop: a greedy pattern goes on after each end. The texts are judged by hand."""
    matched = compiled(grammar)
    assert {text: accepts(matched, text) for text in texts} == texts


def test_a_lazy_pattern_leaves_only_the_end() -> None:
    matcher = compiled('start: /".*?"/').matcher()
    assert all(map(matcher.accept_token, b'"a"')) and matcher.is_completed() and allowed(matcher) == [256]


def test_terminals_that_take_long_are_refused() -> None:
    """The constructor of the library counts neither the first step of a terminal, nor the parts of an intersection."""
    periods = " & ".join(f"/(.{{{length}}})*x/" for length in (7, 11, 13, 17, 19, 23))
    steps = " & ".join(f"/.*a.{{{length}}}b.*/" for length in range(1, 30))
    for grammar in (
        f"start: T\nT: {periods}",
        f'start: U\nU: /a.*/ | "b" T\nT: {periods}',
        f"start: T\nT: {steps}",
        "start: /" + "a?" * 9000 + "/",
        "start: T\n" + "\n".join(f"T{i}: ~/a{i}/" for i in range(101)) + "\nT: T0",
        "start: " + "|" * 100_000,
    ):
        with pytest.raises(CompileLimitExceeded) as caught:
            compiled(grammar)
        assert len(str(caught.value)) < 2_000
    assert accepts(compiled("start: T\nT: /.*[a-z].*/ & /.*[0-9].*/ & /[a-z0-9]{3,8}/"), "ab1")


def test_a_negation_takes_text_alone() -> None:
    start = compiled('X: ~"a"\nstart: X').matcher()
    assert start.accept_token("é".encode()[0]) and not start.accept_token(ord("a"))
    assert not compiled('X: ~"a"\nstart: X').matcher().accept_token(0xFF)


def test_root_names_the_first_rule() -> None:
    text = 'start: "[" item "]"\nitem: "a" | start'
    assert accepts(compiled(text, root="item"), "a") and accepts(compiled(text, root="item"), "[[a]]")
    assert not accepts(compiled(text), "a")
    assert accepts(compiled('item: "a" | "(" item ")"', root="item"), "((a))")


# -- %json -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ('{"type": "integer", "multipleOf": 25, "minimum": 0}', ["0", "50", "15", "-25", "25.0", "175"]),
        ('{"properties": {"a": {"const": 1}}, "required": ["a"]}', ['{"a": 1}', '{"a":1,"b":2}', "{}", '{"a":2}', "5"]),
        ('{"type": "string", "format": "date"}', ['"2024-02-29"', '"2024-02-30"', '"x"']),
        ('{"oneOf": [{"minimum": 3}, {"maximum": 4}], "type": "number"}', ["2", "3", "3.5", "5"]),
        ('{"not": {"enum": [1, "a"]}, "enum": [1, "a", "b"]}', ["1", '"a"', '"b"']),
    ],
)
def test_json_in_a_grammar_is_our_json_schema(schema: str, texts: list[str]) -> None:
    """The library's own reading leaves out multipleOf, formats' days and oneOf, or refuses them."""
    alone = backend("llguidance", single_bytes()).compile(hg.JsonSchema(schema))
    inside = compiled(f'start: "<" value ">" | "nothing"\nvalue: %json {schema}')
    expected = {text: accepts(alone, text) for text in texts}
    assert {text: accepts(inside, f"<{text}>") for text in texts} == expected and len(set(expected.values())) == 2
    validator = jsonschema.Draft202012Validator(hg.JsonSchema(schema).schema, format_checker=jsonschema.FormatChecker())
    assert all(validator.is_valid(hg.JsonObject().parse(text)) for text in texts if expected[text])
    assert accepts(inside, "nothing")


def test_remainders_in_json_are_a_loss_with_its_place() -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="line 1, column 8") as caught:
        compiled('start: %json {"type": "integer", "multipleOf": 7}')
    assert [loss.keyword for loss in caught.value.losses] == ["multipleOf"]


def test_two_schemas_at_one_place() -> None:
    matched = compiled('start: a | b\na: %json {"const": "a"}\nb: %json {"const": "b"}')
    assert accepts(matched, '"a"') and accepts(matched, '"b"') and not accepts(matched, '"c"')


# -- special tokens ----------------------------------------------------------------------------------------------------


def ids(*names: str) -> list[int]:
    return [NAMES.index(name) for name in names]


def completes(matcher: Matcher, names: list[str]) -> bool:
    return all(map(matcher.accept_token, ids(*names))) and matcher.is_completed()


def test_special_tokens_by_name() -> None:
    matched = compiled('start: /[^b]*/ <|tool|> "a" <|end|>', tokens())
    assert completes(matched.matcher(), ["a", "<|tool|>", "a", "<|end|>"])
    assert not completes(matched.matcher(), [*"a<|tool|>a", "<|end|>"]), "the same characters are no special token"
    after = matched.matcher()
    assert not after.accept_token(NAMES.index("<pad>"))
    assert after.accept_token(NAMES.index("<|tool|>")) and allowed(after) == ids("a")
    assert matched.vocabulary.decode_bytes(ids("a", "<|tool|>", "a")) == b"a<|tool|>a"
    assert compiled('start: "a"', tokens()).vocabulary is tokens()


def test_tokens_by_id() -> None:
    matched = compiled(f'start: <[2-3,{NAMES.index("ab")}]> "b"', tokens())
    assert allowed(matched.matcher()) == ids("<|tool|>", "<|end|>", "ab")
    assert completes(matched.matcher(), ["ab", "b"]) and not completes(matched.matcher(), ["a", "b", "b"])


def test_a_stop_token_is_a_loss() -> None:
    with pytest.raises(UnsupportedConstraint, match="a stop token ends every text by itself"):
        compiled('start: "a" </s>', tokens())


def test_a_misspelt_token_has_a_suggestion() -> None:
    with pytest.raises(InvalidConstraint, match=r"did you mean '<\|tool\|>'"):
        compiled("start: <|tools|>", tokens())


# -- the matcher's laws ------------------------------------------------------------------------------------------------

BY_TOKENS = [
    'start: /[a-b]*/ <|tool|> "a"',
    f'start: (<[2,{NAMES.index("ab")}]> "b")+ <[3]>',
    'start: <|tool|>* "a" <|end|>',
    'start: x "b"*\nx[max_tokens=2]: /a+/',
    'start: x "a"\nx[max_tokens=1]: /a|aa/',
    "start: x x\nx[max_tokens=2]: /[ab]+/",
    'start: x <|end|>\nx[max_tokens=1, suffix="b"]: /[ab]+/',
    'start: "a" "b"?\n%ignore " "',
    'start: "a" value "a"\nvalue: %json {"const": {"x": 1}}\n%ignore " "',
    'start: "a" %lark {\nstart: "b" <|tool|>\n} "a"',
    'start: x "a"\nx[max_tokens=1]: /b{4}/',
]


@pytest.mark.parametrize("text", BY_TOKENS)
def test_laws_of_the_matcher(text: str) -> None:
    """Every path of up to four tokens: masks and acceptance agree, nothing else advances, every way back is exact."""
    start = compiled(text, tokens()).matcher()
    examined = 0

    def state(matcher: Matcher) -> tuple[list[int], bool, bytes]:
        return allowed(matcher), matcher.is_completed(), matcher.jump_forward_bytes()

    def walk(matcher: Matcher, left: int) -> None:
        nonlocal examined
        examined += 1
        before = mask, _, forced = state(matcher)
        assert mask, "a dead end"
        assert mask == [token_id for token_id in range(len(NAMES)) if matcher.fork().accept_token(token_id)]
        for token_id in mask:
            text_so_far = tokens().token_bytes[token_id] or b""
            assert not forced or forced.startswith(text_so_far) or text_so_far.startswith(forced)
            after = matcher.fork()
            after.accept_token(token_id)
            following = allowed(after) if token_id != 1 else [1]
            assert all(matcher.validate_tokens([token_id, other]) == 2 for other in following)
            assert state(matcher) == before
            for other in following:
                assert after.accept_token(other)
                after.rollback(1)
                assert token_id == 1 or allowed(after) == following
            after.rollback(1)
            assert state(after) == before
            if left and token_id != 1:
                after.accept_token(token_id)
                walk(after, left - 1)

    walk(start, 3)
    assert examined > 2


def test_jump_forward_keeps_what_depends_on_tokens() -> None:
    """The library forces text that a count of tokens does not allow."""
    for text in BY_TOKENS[:7]:
        assert not read(hg.Grammar(text, "lark"), tokens()).by_text
        assert compiled(text, tokens()).matcher().jump_forward_bytes() == b""
    assert compiled('start: "ab" "ab"', tokens()).matcher().jump_forward_bytes() == b"abab"


@pytest.mark.parametrize(
    ("terminal", "endless"),
    [
        ("/a+/", True),
        ("/[a]+/", True),
        (r"/[\n]*/", True),
        ("/(ab){2,}/", True),
        ('A: "a"+', True),
        ("A: B & /[a-z]+/", True),
        ("/[ab]+/", False),
        (r"/\d+/", False),
        ('/[^"]*/', False),
        ("/a{1,9}/", False),
        ('"a+b*"', False),
    ],
)
def test_terminals_that_repeat_one_text(terminal: str, endless: bool) -> None:
    assert may_repeat_one_text(terminal) == endless


@pytest.mark.parametrize("text", ["start: /a+/ /a+/", 'start: "x" | "b" /a+/ /a+/', 'start: A A\nA: "a"+'])
def test_forced_text_without_an_end_is_not_asked_for(text: str) -> None:
    """The library would never return."""
    matcher = backend("llguidance", single_bytes()).compile(hg.Grammar(text)).matcher()
    matcher.accept_token(ord("b"))
    assert matcher.jump_forward_bytes() == b""
