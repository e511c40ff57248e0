"""Random grammars, written in GBNF and for the `lark` package, whose Earley parser decides; and the matcher's laws."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, UnexpectedInput

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.errors import InvalidConstraint
from tests.effort import repeats
from tests.property.strategies import allowed, backend
from tests.toy import letters

NAMES = ("root", "x", "y")
ALPHABET = "ab"
TEXTS = ["".join(text) for length in range(5) for text in product(ALPHABET, repeat=length)]

# A tree: ("text", "ab") | ("set", "a") | ("rule", name) | ("all" | "any", parts) | ("times", part, low, high)
LEAVES = st.one_of(
    st.tuples(st.just("text"), st.text(ALPHABET, max_size=2)),
    st.tuples(st.just("set"), st.sampled_from(["a", "b", "ab"])),
    st.tuples(st.just("rule"), st.sampled_from(NAMES)),
)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda trees: st.one_of(
        st.tuples(st.sampled_from(["all", "any"]), st.lists(trees, min_size=1, max_size=3)),
        st.tuples(st.just("times"), trees, st.integers(0, 2), st.none() | st.integers(2, 3)),
    ),
    max_leaves=5,
)
GRAMMARS = st.fixed_dictionaries({name: TREES for name in NAMES})


def gbnf(tree: Any) -> str:
    kind, *parts = tree
    if kind == "text":
        return f'"{parts[0]}"'
    if kind == "set":
        return f"[{parts[0]}]"
    if kind == "rule":
        return str(parts[0])
    if kind == "times":
        part, low, high = parts
        return f"({gbnf(part)}){{{low},{'' if high is None else high}}}"
    return f"({(' ' if kind == 'all' else ' | ').join(map(gbnf, parts[0]))})"


def lark(tree: Any) -> str:
    """The same in the package's syntax: terminals of one character, so that its lexer decides nothing."""
    kind, *parts = tree
    if kind == "text":
        return " ".join(f'"{character}"' for character in parts[0]) or "nothing"
    if kind == "set":
        return f"({' | '.join(f'{chr(34)}{character}{chr(34)}' for character in parts[0])})"
    if kind == "rule":
        return str(parts[0])
    if kind == "times":
        part, low, high = parts
        each = f"({lark(part)})"
        return f"{each}~{low} {each}*" if high is None else f"{each}~{low}..{high}"
    return f"({(' ' if kind == 'all' else ' | ').join(map(lark, parts[0]))})"


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    matcher = compiled.matcher()
    single = {data: token_id for token_id, data in enumerate(compiled.vocabulary.token_bytes) if data}
    return all(matcher.accept_token(single[character.encode()]) for character in text) and matcher.is_completed()


def productive(rules: dict[str, Any]) -> set[str]:
    """By iteration: the rules with a finite derivation."""
    known: set[str] = set()

    def ends(tree: Any) -> bool:
        kind, *parts = tree
        if kind == "rule":
            return parts[0] in known
        if kind == "times":
            return parts[1] == 0 or ends(parts[0])
        if kind in ("all", "any"):
            return (all if kind == "all" else any)(map(ends, parts[0]))
        return True

    for _ in rules:
        known |= {name for name, tree in rules.items() if ends(tree)}
    return known


@settings(max_examples=repeats(50, 150))
@given(GRAMMARS)
def test_gbnf_decided_by_the_lark_package(rules: dict[str, Any]) -> None:
    text = "\n".join(f"{name} ::= {gbnf(tree)}" for name, tree in rules.items())
    try:
        compiled = backend("native", letters(ALPHABET)).compile(hg.Grammar(text))
    except InvalidConstraint:
        assert productive(rules) != {*NAMES}, text
        return
    oracle = Lark(
        "\n".join([*(f"{name}: {lark(tree)}" for name, tree in rules.items()), "nothing:"]),
        start="root",
        parser="earley",
        lexer="dynamic_complete",
    )

    def expected(sample: str) -> bool:
        try:
            oracle.parse(sample)
        except UnexpectedInput:
            return False
        return True

    assert [accepts(compiled, sample) for sample in TEXTS] == [expected(sample) for sample in TEXTS], text
    matcher = compiled.matcher()
    for _ in range(4):
        mask = allowed(matcher)
        assert mask, f"a dead end in {text}"
        assert mask == [
            token for token in range(len(matcher.compiled.vocabulary.token_bytes)) if matcher.fork().accept_token(token)
        ]
        matcher.accept_token(mask[-1])
