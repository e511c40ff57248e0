"""Random grammars, written in GBNF and for the `lark` package, whose Earley parser decides; and the matcher's laws."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, UnexpectedInput

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint
from hf_guided.grammars import rule_groups
from tests.effort import repeats
from tests.property.strategies import allowed, backend
from tests.reference.grammar_texts import texts_of
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


LONGEST = 6


def recursive_rules(rng: random.Random) -> dict[str, Any]:
    """Rules of one to four names that mostly lead to themselves: at the left, at the right, inside, maybe empty."""
    names = ("root", "x", "y", "z")[: rng.randint(1, 4)]

    def tree(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            leaves = [("text", rng.choice(["a", "b", "", "ab"])), ("set", rng.choice(["a", "b", "ab"]))]
            return rng.choice([*leaves, *(("rule", name) for name in names)])
        if rng.random() < 0.8:
            return rng.choice(["all", "all", "any"]), [tree(depth - 1) for _ in range(rng.randint(1, 3))]
        low = rng.randint(0, 2)
        return "times", tree(depth - 1), low, rng.choice([None, max(low, 1), 3])

    def branch() -> Any:
        return "all", [tree(rng.random() < 0.4) for _ in range(rng.randint(0, 3))]

    return {name: ("any", [branch() for _ in range(rng.randint(1, 4))]) for name in names}


def written(rules: dict[str, Any]) -> str:
    return "\n".join(f"{name} ::= {gbnf(tree)}" for name, tree in rules.items())


@settings(max_examples=repeats(150, 3000))
@given(st.randoms(use_true_random=False))
def test_recursive_rules_have_the_texts_of_their_definition(rng: random.Random) -> None:
    rules = recursive_rules(rng)
    try:
        compiled = backend("native", letters(ALPHABET)).compile(hg.Grammar(written(rules)))
    except InvalidConstraint as error:
        assert "no text matches the rule" in str(error)
        return
    expected = texts_of(rules, "root", LONGEST)
    samples = ("".join(text) for length in range(LONGEST + 1) for text in product(ALPHABET, repeat=length))
    try:
        assert {sample for sample in samples if accepts(compiled, sample)} == expected, written(rules)
    except CompileLimitExceeded as error:
        assert "ways" in str(error)  # a few of these grammars have hundreds of ways to read six letters


@settings(max_examples=repeats(100, 1500))
@given(st.randoms(use_true_random=False))
def test_rules_with_too_many_ends_have_the_same_texts(rng: random.Random) -> None:
    """As if the alternatives of each group by both of its ends took too much work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule_groups, "_MOST_PRODUCTS", 0)
        test_recursive_rules_have_the_texts_of_their_definition.hypothesis.inner_test(rng)  # type: ignore[attr-defined]


@settings(max_examples=repeats(100, 1500))
@given(st.randoms(use_true_random=False))
def test_the_way_to_the_end_of_a_grammar_is_known(rng: random.Random) -> None:
    """After any text that needs some tokens an allowed token leads to one that needs one less, and none to more."""
    rules = recursive_rules(rng)
    vocabulary = letters(ALPHABET)
    try:
        matcher = backend("native", vocabulary).compile(hg.Grammar(written(rules))).matcher()
    except InvalidConstraint:
        return

    def texts(left: int | None = None) -> list[int]:
        return [token for token in allowed(matcher, left) if token not in vocabulary.stop_token_ids]

    try:
        shortest = min(map(len, texts_of(rules, "root", LONGEST)), default=LONGEST + 1)
        needed = matcher.min_tokens_to_finish()
        assert needed is not None and needed >= 1 + (shortest + 1) // 2, "tokens have two letters at most"
        for _ in range(rng.randint(0, LONGEST)):
            if not (following := texts()):
                break
            assert matcher.accept_token(rng.choice(following))
        needed = matcher.min_tokens_to_finish()
        while needed != 1:
            assert needed is not None
            after: dict[int, int | None] = {}
            for token in texts(needed):
                other = matcher.fork()
                assert other.accept_token(token)
                after[token] = other.min_tokens_to_finish()
            assert max(filter(None, after.values())) == needed - 1, written(rules)
            assert matcher.accept_token(rng.choice([*after]))
            needed = matcher.min_tokens_to_finish()
        assert matcher.is_completed()
    except CompileLimitExceeded as error:
        assert "ways" in str(error)
