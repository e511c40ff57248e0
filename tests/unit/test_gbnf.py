"""GBNF: the shapes of llama.cpp's own grammars, decided by json, re and plain Python; and what is refused, where."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hf_guided as hg
from hf_guided.automaton.limits import WorkMeter
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint, UnwritableConstraint
from hf_guided.grammars.components import RuleComponents
from hf_guided.grammars.gbnf import Gbnf
from hf_guided.options import NETWORK
from tests.effort import repeats
from tests.property.strategies import allowed, backend, single_bytes, tiny
from tests.toy import letters

# Groups over several lines, comments inside them, an empty first alternative, counts.
JSON = r"""
root ::= map
any  ::= map | seq | text | num | ("null" | "true" | "false") gap

map ::=
  "{" gap (
    pair      # the first one
    ("," gap pair)*
  )? "}" gap
pair ::= text ":" gap any
seq ::= "[" gap (any ("," gap any)*)? "]" gap

text ::= "\"" (
    [^\x00-\x1F"\\\x7F] |
    [\\] (["/\\bfnrt] | "u" [A-Fa-f0-9]{4})
  )* "\"" gap

num ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([Ee] [+-]? [0-9]{1,3})? gap

gap ::= | " " | "\n" [\t ]{0,20}
"""

LIST = r"""# one line for each entry
root  ::= entry+

entry ::= "- " [^\n\r\x0b\x0c\x85\u2028\u2029]+ "\n"
"""

ARITHMETIC = r"""root ::= (sum "=" gap atom "\n")+
sum  ::= atom ([-+*/] atom)*
atom ::= name | [0-9]+ gap | "(" gap sum ")" gap
name ::= [a-z] [a-z0-9_]* gap
gap  ::= [ \t\n]*"""

CHESS = r"""root ::= (
    # the first pair of moves has the number 1
    "1. " half " " half "\n"
    ([1-9] [0-9]? ". " half " " half "\n")+   # the others have any
)
half  ::= (pawn | piece | "O-O" "-O"?) [#+]?
piece ::= [BKNQR] [a-h]? [1-8]? "x"? field
pawn  ::= ([a-h] "x")? field ("=" [BKNQR])?
field ::= [a-h] [1-8]"""

JAPANESE = r"""root   ::= letter+ ([ \t\n] letter+)*
letter ::= kana | mark | [一-鿿]
kana   ::= [ぁ-ゟ] | [ァ-ヿ]
mark   ::= [、-〾]"""

C_FUNCTIONS = r"""root     ::= (function)*
function ::= typeName name "(" parameter? ")" "{" line* "}"
typeName ::= ("int" | "float") space
name     ::= [a-z] [a-z0-9]*
parameter ::= typeName name
line     ::= typeName name space "=" space name ";" | "return" space name ";"
space    ::= ([ \t\n]+)"""


def compiled(text: str, root: str | None = None) -> CompiledConstraint:
    return backend("native", single_bytes()).compile(hg.Grammar(text, "gbnf", root))


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


def by_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def by_pattern(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def by_python_arithmetic(text: str) -> bool:
    """Names are the same in Python, and white space is no matter inside parentheses."""
    lines = re.fullmatch(r"(?:[^=]*=[ \t\n]*[^=\n]*\n)+", text)
    return bool(lines) and all(_is_equation(line) for line in text.splitlines())


def _is_equation(line: str) -> bool:
    left, _, right = line.partition("=")
    try:
        compile(left.lstrip(), "", "eval"), compile(right.lstrip(), "", "eval")
    except SyntaxError:
        return False
    return True


MOVE = r"(?:(?:[a-h]x)?[a-h][1-8](?:=[NBKQR])?|[NBKQR][a-h]?[1-8]?x?[a-h][1-8]|O-O(?:-O)?)[+#]?"
SAMPLES: dict[str, tuple[str, Callable[[str], bool], list[str]]] = {
    "json": (
        JSON,
        by_json,
        [*('{"a":1}', '{ "a": [true, null],\n\t"b": {"c": -0.5e+1}}', '{"a":"\\u00e9\\n"}', "{}", '{"a":[]}')]
        + [*("", "[1]", '{"a":}', '{"a" 1}', '{"a":01}', "{'a':1}", '{"a":"\\q"}', '{"a":1,}', '{"a":"\n"}', "{} x")],
    ),
    "list": (
        LIST,
        by_pattern(r"(?:- [^\r\n\x0b\x0c\x85\u2028\u2029]+\n)+"),
        ["- a\n", "- ä 東\n- b\n", "", "- a", "-a\n", "- \n", "- a\u2028\n", "- a\x85\n", "a\n"],
    ),
    "arithmetic": (
        ARITHMETIC,
        by_python_arithmetic,
        ["1=1\n", "a_1+(2*b)=c\n", "((x))=1\n1=2\n", "1+=1\n", "(1=1\n", "1=1", "=1\n", "1*2-3/x=9\n", "1=\n"],
    ),
    "chess": (
        CHESS,
        by_pattern(rf"1\. {MOVE} {MOVE}\n(?:[1-9][0-9]?\. {MOVE} {MOVE}\n)+"),
        [
            "1. e4 e5\n2. Nf3 Nc6\n",
            "1. e4 e5\n10. O-O O-O-O+\n11. exd8=Q# Rhx1a1\n",
            "1. e4 e5\n",
            "1. e9 e5\n2. a1 b2\n",
        ]
        + ["1. e4 e5\n2. Ra1h8 bxa3\n", "1. e4 e5\n0. a1 b2\n"],
    ),
    "japanese": (
        JAPANESE,
        by_pattern("[ぁ-ゟァ-ヿ、-〾一-鿿]+(?:[ \t\n][ぁ-ゟァ-ヿ、-〾一-鿿]+)*"),
        ["こんにちは", "東京 タワー。", "", "a", "東  京", " 東", "東a", "한"],
    ),
    "c": (
        C_FUNCTIONS,
        by_pattern(
            r"(?:(?:int|float)\s+[a-z][a-z0-9]*\((?:(?:int|float)\s+[a-z][a-z0-9]*)?\)\{"
            r"(?:(?:int|float)\s+[a-z][a-z0-9]*\s+=\s+[a-z][a-z0-9]*;|return\s+[a-z][a-z0-9]*;)*\})*"
        ),
        [
            "",
            "int f(){}",
            "int f(float x){return x;}",
            "int f(x){}",
            "int f(){int a = b;return a;}int g(){}",
            "int f()",
        ],
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_shapes_of_the_grammars_of_llama_cpp(name: str) -> None:
    grammar, oracle, texts = SAMPLES[name]
    matched = compiled(grammar)
    assert {text: accepts(matched, text) for text in texts} == {text: oracle(text) for text in texts}
    assert len({oracle(text) for text in texts}) == 2, "the oracle takes some of the texts, and refuses others"


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('root ::= "a" |', "a?"),
        ('root ::= | "a"', "a?"),
        ('root ::= ( | "a" ) "b"', "a?b"),
        ("root ::= .{,2}", "(?s:.{0,2})"),
        ('root ::= "a"{,2} "b"{1} "-"{0,0} "\\n"{0}', "a{0,2}b"),
        ('root ::= "a"{ 1 , 2 }{2}', "(?:a{1,2}){2}"),
        ("root ::= [a-]*", "[a-]*"),
        ("root ::= [-a]*", "[-a]*"),
        ("root ::= [\\-a-b\\]\\[]*", "[-a-b]*"),
        ("root ::= [^a]*", "[^a]*"),
        ("root ::= [^\\n]*", "[^\\n]*"),
        ('root ::= "\\x61\\u0062\\U0000000A"?', "(?:ab\\n)?"),
        ('root ::= ("a"\n|\n"b") # comment\n# another\n\n', "a|b"),
        ('root ::= "a" |\n  "b"\n', "a|b"),
        ('root ::= "a"\n  | "b"\n', "a|b"),
        ('root ::= x y-1\nx ::= "a"\r\ny-1 ::= 2z\n2z ::= "b"', "ab"),
        ('root ::= root "a" | "b"', "ba*"),
        ('root ::= ("a"?)* "b"', "a*b"),
        ('root ::= "a"*+?', "a*"),
        ('root ::= ""', ""),
        ('root ::= "a"\nunused ::= "b" unused', "a"),
    ],
)
def test_syntax_decided_by_re(grammar: str, pattern: str) -> None:
    matched = compiled(grammar)
    for text in texts_over("ab-\n", 3):
        assert accepts(matched, text) == bool(re.fullmatch(pattern, text)), text


def repetitions(rng: random.Random, depth: int, rules: list[tuple[str, str]]) -> tuple[str, str]:
    """A random expression of nested repetitions, in GBNF and for `re`; rules of its own are added to the list."""
    if depth == 0:
        return rng.choice([('"a"', "a"), ('"b"', "b"), ('""', "()"), ('"a"?', "a?"), ('"ab"', "(ab)")])
    parts = [repetitions(rng, depth - 1, rules) for _ in range(rng.randint(1, 2))]
    grammar, pattern = f"({' '.join(part[0] for part in parts)})", f"({''.join(part[1] for part in parts)})"
    if rng.random() < 0.3:
        other = repetitions(rng, depth - 1, rules)
        grammar, pattern = f"({grammar} | {other[0]})", f"({pattern}|{other[1]})"
    if rng.random() < 0.4:
        rules.append((f"x{len(rules)}", grammar))
        grammar = rules[-1][0]
    low, high = rng.randint(0, 2), rng.randint(2, 3)
    times = rng.choice(["", "?", "*", "+", f"{{{low},{high}}}", f"{{{low},{high}}}"])
    return f"({grammar}){times}", f"({pattern}){times}"


def test_repetitions_of_what_may_be_empty_decided_by_re() -> None:
    rng = random.Random(0)
    for _ in range(repeats(60, 300)):  # `re` takes minutes for some of the next thousand
        rules: list[tuple[str, str]] = []
        grammar, pattern = repetitions(rng, rng.randint(1, 3), rules)
        text = "\n".join([f"root ::= {grammar}", *(f"{name} ::= {body}" for name, body in rules)])
        matched, by_re = compiled(text), re.compile(pattern)
        for written in texts_over("ab", 4):
            assert accepts(matched, written) == bool(by_re.fullmatch(written)), (text, written)


def random_repetitions(rng: random.Random) -> tuple[str, str]:
    """A repetition of rules that are choices, in GBNF and for `re`."""
    low = rng.choice(["*", "+", "?", "{2,}", "{3,}", "{4,}", "{0,}", "{1,}"])
    branches = rng.sample([('"a"', "a"), ('"b" "a"?', "ba?"), ('[ab] "-"', "[ab]-"), ('"-"*', "-*")], 2)
    grammar, pattern = " | ".join(b[0] for b in branches), "|".join(b[1] for b in branches)
    return (
        f'root ::= x{low} y{rng.choice("*+?")}\nx ::= y | "a-"\ny ::= {grammar}',
        f"(?:{pattern}|a-){low}(?:{pattern})",
    )


@pytest.mark.parametrize("seed", range(40))
def test_repeated_choices_decided_by_re(seed: int) -> None:
    grammar, pattern = random_repetitions(random.Random(seed))
    times = grammar.partition("\n")[0][-1]
    matched, by_re = compiled(grammar), re.compile(pattern + times)
    for written in texts_over("ab-", 5):
        assert accepts(matched, written) == bool(by_re.fullmatch(written)), (grammar, written)


@pytest.mark.parametrize("inside", ['"x" %s', '"x"? %s', '"x" %s | "b"', '[xb] | %s "b"?'])
def test_nested_repetitions_decided_by_re(inside: str) -> None:
    all_times = list(product(("*", "+", "{2,}", "{3,}"), repeat=3))
    for times in random.Random(inside).sample(all_times, repeats(8, len(all_times))):
        grammar, pattern = '"a"', "a"
        for each in times:
            grammar, pattern = f"({inside % grammar}){each}", f"({inside % pattern}){each}"
        pattern = re.sub('[ "]', "", pattern)
        matched = compiled(f"root ::= {grammar}")
        for text in texts_over("abx", 5):
            assert accepts(matched, text) == bool(re.fullmatch(pattern, text)), (grammar, text)


@pytest.mark.parametrize(
    ("grammar", "length"),
    [
        ('root ::= (x{0,300}){0,300}\nx ::= "a"?', 60),
        ("root ::= (x{0,300})*\nx ::= y{0,9} z?\ny ::= [ab]? | z\nz ::= y{0,3}", 30),
        ('root ::= x{1,300}\nx ::= x{0,3} | "a"? x{0,200}', 30),
    ],
)
def test_empty_repetitions_are_not_counted(grammar: str, length: int) -> None:
    """Every number of empty repetitions would be a position of its own."""
    matcher = compiled(grammar).matcher()
    began = time.thread_time()
    assert all(map(matcher.accept_token, b"a" * length)) and matcher.is_completed()
    assert time.thread_time() - began < 2


def texts_over(alphabet: str, most: int) -> Iterator[str]:
    for length in range(most + 1):
        yield from map("".join, product(alphabet, repeat=length))


def test_any_character_is_any_character() -> None:
    """Line breaks too, as in llama.cpp; and never a part of one."""
    matched = compiled("root ::= .")
    assert all(accepts(matched, character) for character in ("a", "\n", "\0", "é", "東", "😀"))
    assert not matched.matcher().accept_token(0x80) and not accepts(matched, "ab")


def test_root_names_the_first_rule() -> None:
    text = 'root ::= "[" item "]"\nitem ::= "a" | "b"'
    assert accepts(compiled(text, "item"), "b") and not accepts(compiled(text, "item"), "[b]")
    assert hg.Grammar(text) == hg.Grammar(text, root="root") != hg.Grammar(text, root="item")
    assert hg.Grammar(text).key != hg.Grammar(text, root="item").key
    with pytest.raises(InvalidConstraint, match="there is no rule 'items' to start at"):
        compiled(text, "items")
    with pytest.raises(InvalidConstraint, match="root: expected the name of a rule"):
        hg.Grammar(text, root=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('root ::= "a', "line 1, column 10: expected a part of a rule"),
        ('root ::= "a"\n  foo', "line 2, column 3: the rule 'foo' is not defined"),
        ('root ::= ("a"\nx ::= "b"', "line 1, column 10: this parenthesis is not closed"),
        ('root ::= "a")', "line 1, column 13: expected a rule"),
        ('root ::= "a" x ::= "b"', "line 1, column 16: expected the name of a rule at the beginning"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule 'root' is defined twice"),
        ('a ::= "a"', "no rule 'root' to start at"),
        ('root ::= "a" | *', "line 1, column 16: expected a rule"),
        ('root ::= "a"{2,1}', "expected at least 2 after the comma, got 1"),
        ('root ::= "a"{}', "expected a number of repetitions"),
        ("root ::= []", r"no character is in \[\]"),
        ("root ::= [^]", r"no character is in \[\^\]"),
        ("root ::= [^\\x00-\\U0010FFFF]", "no character is in"),
        ("root ::= [\\ud800-\\udfff]", "no character is in"),
        ("root ::= [b-a]", "the range 'b' to 'a' is empty"),
        ('root ::= "\\q"', r"column 11: the escape \\q is not known"),
        ('root ::= "\\x1"', r"column 11: the escape \\x is not known"),
        ('root ::= "\\U00110000"', "is no character"),
        ('root ::= "\\ud83d\\ude00"', "half of a character"),
        ("root ::= root", "no text matches the rule 'root'"),
        ('root ::= "a" | x\nx ::= "b" y\ny ::= y "c" | x', "no text matches the rule '[xy]'"),
        ('root ::= "a"*****', "more than 4 operators follow each other"),
        ("limit ::= exceeded too many", "rule '(exceeded|root)'"),
    ],
)
def test_malformed_grammars_and_those_without_text(text: str, message: str) -> None:
    with pytest.raises(InvalidConstraint, match=message):
        compiled(text)


@pytest.mark.parametrize("token", ["<think>", "<[5]>", "!<think>"])
def test_tokens_in_gbnf_are_a_loss(token: str) -> None:
    with pytest.raises(UnsupportedConstraint, match="line 1, column 14") as caught:
        compiled(f'root ::= "a" {token}*')
    assert [loss.keyword for loss in caught.value.losses] == [token]


@pytest.mark.parametrize("count", ["100001", "999999999,", "2," + "9" * 5000])
def test_counts_are_bounded(count: str) -> None:
    with pytest.raises(CompileLimitExceeded, match="line 1, column 13: more than 100000 repetitions"):
        compiled(f'root ::= "a"{{{count}}}')
    assert compiled('root ::= "a"{100000}').matcher().accept_token(ord("a"))


def test_nesting_is_bounded() -> None:
    assert accepts(compiled(f'root ::= {"(" * 50}"a"{")" * 50}'), "a")
    with pytest.raises(CompileLimitExceeded, match="more than 50 parentheses"):
        compiled(f'root ::= {"(" * 100_000}"a"')


@pytest.mark.parametrize("rules", ["x ::= x{0,3}", "x ::= (x{2}){0,3}", "x ::= x?{2,3}", 'x ::= y{0,3}\ny ::= x{2} ""'])
def test_rules_that_write_nothing(rules: str) -> None:
    """xgrammar runs out of stack on them, which ends the process: by name it refuses them."""
    with pytest.raises(hg.UnsupportedConstraint, match="may be empty") as refused:
        backend("xgrammar", single_bytes()).compile(hg.Grammar(f'root ::= "a" x\n{rules}'))
    assert [(loss.pointer, loss.keyword) for loss in refused.value.losses] == [("", "grammar")]
    matched = compiled(f'root ::= "a" x\n{rules}')
    assert accepts(matched, "a") and not accepts(matched, "aa")
    assert accepts(compiled(rules, "x"), "")


# -- how much of a text is kept, and how it ends

PEOPLE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "grammars.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("row", PEOPLE, ids=lambda row: row["name"])
def test_grammars_as_people_write_them(row: dict[str, Any]) -> None:
    matched = compiled("\n".join(row["grammar"]))
    assert all(accepts(matched, text) for text in row["valid"])
    assert not any(accepts(matched, text) for text in row["invalid"])
    for text in row["valid"]:
        matcher = matched.matcher()
        for i, byte in enumerate(text.encode()):
            needed = matcher.min_tokens_to_finish()
            assert needed is not None
            assert byte in allowed(matcher, max(needed + 1, len(text.encode()) - i + 1)), text[:i]
            assert matcher.accept_token(byte)
        assert matcher.min_tokens_to_finish() == 1


@pytest.mark.parametrize("name", [*SAMPLES, *[row["name"] for row in PEOPLE[: repeats(5, 15)]]])
def test_masks_are_those_of_xgrammar(name: str) -> None:
    rows = {row["name"]: "\n".join(row["grammar"]) for row in PEOPLE}
    grammar = hg.Grammar(SAMPLES[name][0] if name in SAMPLES else rows[name])
    ours, theirs = (backend(engine, tiny()).compile(grammar) for engine in ("native", "xgrammar"))
    for seed in range(3):
        rng, matchers = random.Random(seed), (ours.matcher(), theirs.matcher())
        for _ in range(20):
            mask, expected = map(allowed, matchers)
            assert mask == expected
            texts = [token for token in mask if token not in matchers[0].stop_token_ids]
            if not texts:
                break
            token = rng.choice(texts)
            assert all([matcher.accept_token(token) for matcher in matchers])


ONE_RULE = 'root ::= root "+" root | "-" root | "(" root ")" | [0-9]+'
LEVELS = """root ::= sum
sum ::= product | sum "+" product
product ::= factor | product "*" factor
factor ::= [0-9]+ | "(" sum ")" | "-" factor | [a-z]+ "(" list? ")"
list ::= sum | sum "," list"""
N = repeats(6_000, 20_000)  # far more than Python's stack has frames
LONG = [
    ('root ::= "" | "a" root', "a" * 5 * N),
    ('root ::= "a" | root "+" "a"', "a" + "+a" * (5 * N // 2)),
    ('root ::= x | "b"\nx ::= y "c"? "a"\ny ::= "" | root', "ca" + "a" * 5 * N),
    (ONE_RULE, "1" + "+1" * (5 * N // 2)),
    (ONE_RULE, "-" * 5 * N + "1"),
    (ONE_RULE, "(" * N + "1" + ")" * N),
    (LEVELS, "f(1,2*3)+" * (N // 2) + "1"),
    (LEVELS, "f(" + "1," * (5 * N // 2) + "2)"),
    ('root ::= "(" root ")" root | ""', "(())" * N),
    ('root ::= root root | "(" root ")" | ""', "(())" * N),
    ('root ::= "a" ("+" root)* | "(" root ")" ("+" root)*', "a" + "+a" * (5 * N // 2)),
    ('root ::= "(" item* ")"\nitem ::= [a-z]+ | "<" item* ">"', "(" + "ab<c>" * N + ")"),
]


@pytest.mark.parametrize(("grammar", "text"), LONG, ids=range(len(LONG)))
def test_long_texts_are_read(grammar: str, text: str) -> None:
    """Whose stacks would be as long as they are."""
    matcher = compiled(grammar).matcher()
    assert all(map(matcher.accept_token, text.encode()))
    assert matcher.is_completed() and matcher.min_tokens_to_finish() == 1


def test_a_text_with_too_many_ways_to_read_it_is_a_limit() -> None:
    """Only the end tells which rule each x belongs to, and whether there may be a y."""
    matcher = compiled('root ::= "a" b | root "x" | "c"\nb ::= "b" root | b "y" | "d"').matcher()
    with pytest.raises(CompileLimitExceeded, match="more than 1024 ways"):
        assert all(map(matcher.accept_token, b"ab" * 3000 + b"c")) and matcher.is_completed()


@pytest.mark.parametrize(
    ("grammar", "tokens"),
    [
        ('root ::= [0-9]+ "=" [0-9]+', 4),
        ('root ::= ([^\\n]+ "\\n")* "Answer: " ("yes" | "no")', 11),
        ('root ::= "SELECT " id (", " id)* " FROM " id ";"\nid ::= [a-z] [a-z0-9_]*', 17),
        (ONE_RULE, 2),
        ('root ::= "(" root root ")" | "abc"', 4),
        # A space costs no byte on the way, and leads into another component each time.
        ('root ::= b\nb ::= s | " " b\ns ::= "x" | "{" b+ "}" | s ";" b', 2),
    ],
)
def test_the_way_to_the_end_is_known(grammar: str, tokens: int) -> None:
    matched = Compiler(single_bytes()).compile(hg.Grammar(grammar))
    assert matched.backend == "native" and matched.keeps_budget
    assert matched.matcher().min_tokens_to_finish() == tokens


def test_what_the_vocabulary_cannot_write_is_left_out() -> None:
    vocabulary = letters("ab")
    with pytest.raises(UnwritableConstraint, match="'c'"):
        backend("native", vocabulary).compile(hg.Grammar('root ::= "a" root | "c"'))
    cut = backend("native", vocabulary).compile(hg.Grammar('root ::= "a" root "c" | "b" root "a" | "b"'))
    names = {vocabulary.token_bytes[token] for token in allowed(cut.matcher())}
    assert names == {b"b", b"bb"}
    with pytest.raises(UnwritableConstraint):
        backend("native", vocabulary).compile(hg.Grammar('root ::= x | [cd]+\nx ::= "a" x "c" | "d"'))


CHAIN = "".join(f'a{i} ::= "x" a{i + 1} | "z"\n' for i in range(1500))
LEVELS_TWICE = "".join(f'a{i} ::= a{i + 1} | "y" a{i + 1}\n' for i in range(40))
LONG_NAME = "n" * 5000
EMPTY_RULES = "".join(f'\nx{i} ::= "" | "a" root | "b"' for i in range(200))


@pytest.mark.parametrize(
    ("grammar", "is_taken"),
    [
        (f'root ::= a0\n{CHAIN}a1500 ::= "y"', True),
        (f'root ::= a0\n{LEVELS_TWICE}a40 ::= "(" a0 ")" | "x"', True),
        ("root ::= " + "(" * 50 + '"a" root?' + ' | "b")*' * 50, True),
        (f'root ::= {"root? " * 300} | "a"', False),
        ("root ::= " + " ".join(f"x{i}" for i in range(200)) + EMPTY_RULES, False),
        ('root ::= "(" root ")" | [ab]* "a" [ab]{25}', False),
    ],
    ids=["chain", "levels", "nested", "optional", "optional rules", "many states"],
)
def test_the_work_of_a_grammar_is_counted(grammar: str, is_taken: bool) -> None:
    began = time.thread_time()
    try:
        assert compiled(grammar).matcher().min_tokens_to_finish() is not None
        assert is_taken
    except CompileLimitExceeded as error:
        assert not is_taken and "steps of work" in str(error)
    assert time.thread_time() - began < 8


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "b" | ' + 'root* "a"? ' * 40,
        'root ::= x | "b"\nx ::= ' + '(root "a"?)? ' * 40,
        'root ::= y*\ny ::= x x{2,} (x x{2,})+ x x{0,2} (root x?)+\nx ::= root* | root "b" root',
    ],
    ids=["many ends", "many ends of another rule", "ends in repetitions"],
)
def test_rules_with_many_ends_are_called_there(grammar: str) -> None:
    meter = WorkMeter(NETWORK)
    components = RuleComponents(Gbnf(grammar, "root"), meter)
    assert components.whole and meter.work < 1_000_000
    made = compiled(grammar)
    assert all(accepts(made, text) for text in ("b", "bb", "bbbb")) and not accepts(made, "c")


@pytest.mark.parametrize("number", [100, 400, 3000])
def test_rules_in_a_long_circle(number: int) -> None:
    rules = "\n".join(f"r{i} ::= r{i + 1}" for i in range(number))
    made = compiled(f'root ::= r0\n{rules}\nr{number} ::= r0 "x" r0 | "c"')
    assert accepts(made, "c") and accepts(made, "cxcxc") and not accepts(made, "cc")


def test_a_repetition_inside_others_is_a_limit_by_its_work() -> None:
    body = "root"
    for _ in range(12):
        body = f'({body} "a"?){{1,3}}'
    with pytest.raises(CompileLimitExceeded, match="steps of work.*more tightly"):
        compiled(f'root ::= "b" | {body}')


def test_grammars_of_one_tag_share_their_work() -> None:
    rule = 'root ::= "b" | ' + 'root* "a"? ' * 100
    assert accepts(compiled(f'{rule} | "0"'), "0")
    parts = [{"type": "grammar", "grammar": f'{rule} | "{i}"'} for i in range(3)]
    with pytest.raises(CompileLimitExceeded, match="steps of work"):
        backend("native", single_bytes()).compile(hg.StructuralTag({"format": {"type": "or", "elements": parts}}))


@pytest.mark.parametrize(
    ("grammar", "advice"),
    [
        (f"root ::= {LONG_NAME}", "define it"),
        (f'root ::= "a"\n{LONG_NAME} ::= "a"\n{LONG_NAME} ::= "b"', "rename one"),
        (f"root ::= <{LONG_NAME}>", "use Lark"),
        (f'root ::= "{LONG_NAME}\\ud800"', "write it whole"),
        (f"root ::= {LONG_NAME}\n{LONG_NAME} ::= {LONG_NAME}", "add one that ends"),
        ("root ::= []", "leave it out"),
        ("root ::= [z-a]", "write the lower character first"),
        ('root ::= "\\q"', "for a backslash write"),
    ],
)
def test_messages_stay_short_and_say_what_to_do(grammar: str, advice: str) -> None:
    with pytest.raises((InvalidConstraint, UnsupportedConstraint)) as caught:
        Gbnf(grammar, "root")
    assert advice in str(caught.value) and len(str(caught.value)) < 400
