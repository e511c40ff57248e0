"""Chains of grammar rules are measured, and refused before a library overflows its stack."""

from __future__ import annotations

import sys

import pytest

import hf_guided as hg
from hf_guided import demo
from hf_guided.backends.lark_grammar import longest_chain


def chain(rules: int, body: str) -> str:
    names = [f"r{i}: {body.replace('NEXT', f'r{i + 1}')}" for i in range(rules)]
    return "\n".join(["start: r0", *names, f'r{rules}: "y"', ""])


@pytest.mark.parametrize("body", ["NEXT", '"x" NEXT?', '"x" (NEXT "z" | "w")', '/a\\/"b/ NEXT // r0 is no reference'])
def test_length_of_a_chain(body):
    assert longest_chain(chain(50, body)) == 52


@pytest.mark.parametrize("order", ["r0 NEXT", "NEXT r0"])
def test_longest_chain_follows_the_order_of_references(order):
    # The oracle recurses from each rule into the rules that it refers to.
    bodies = {f"r{i}": [name if name != "NEXT" else f"r{i + 1}" for name in order.split()] for i in range(30)}
    bodies |= {"start": ["r0"], "r30": []}
    deepest, seen = 0, set()

    def follow(name: str, depth: int) -> None:
        nonlocal deepest
        deepest = max(deepest, depth)
        seen.add(name)
        for other in bodies[name]:
            if other not in seen:
                follow(other, depth + 1)

    follow("start", 1)
    assert longest_chain(chain(30, order)) == deepest


def test_names_in_texts_patterns_and_comments_are_no_references():
    grammar = 'start: "a b" c // d\nc: /d b/ "\\"d" # d\nd: c b\nb: "x"\n'
    assert longest_chain(grammar) == 2  # start and c; d and b


def test_measuring_a_long_chain_does_not_recurse():
    assert longest_chain(chain(20 * sys.getrecursionlimit(), '"x" NEXT?')) == 20 * sys.getrecursionlimit() + 2


@pytest.fixture(scope="module")
def guide() -> hg.Guide:
    model, tokenizer = demo.load()
    return hg.Guide(tokenizer, model)


@pytest.mark.parametrize(
    "constraint",
    [
        hg.Grammar(chain(8000, '"x" NEXT?')),
        hg.Grammar(chain(8000, "NEXT").replace("r", "R").replace("staRt", "start")),
        hg.JsonSchema({"type": "object", "properties": {f"p{i}": {} for i in range(6000)}}),
        hg.JsonSchema({"prefixItems": [{"type": "integer"}] * 6000}),
    ],
    ids=["rules", "terminals", "properties", "items"],
)
def test_long_chains_are_refused_without_a_crash(guide, constraint):
    with pytest.raises(hg.CompileLimitExceeded):
        guide.compile(constraint, backend="llguidance")
