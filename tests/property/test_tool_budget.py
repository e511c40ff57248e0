"""Token budgets of tool calls, in every family's notation: a call closes in time, whatever is sampled."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.pushdown import Pushdown
from hf_guided.automaton.token_trie import token_trie
from hf_guided.backends.compiler import Compiler
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.tag_rtn import TagRtn
from tests import toy
from tests.effort import repeats
from tests.pairs import one_in
from tests.property.strategies import tiny
from tests.property.test_budget_rtn import allowed, still_open
from tests.property.test_tool_calls import as_tools, compiler, target_texts, tools_of, walk
from tests.tool_families import FAMILIES

# One token, a comma, adds a whole object to what is left to write.
PEOPLE = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer", "minimum": 0, "maximum": 150},
                    "kind": {"enum": ["staff", "guest"]},
                },
                "required": ["name", "age", "kind"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["people"],
    "additionalProperties": False,
}
ENGINES = [("network", family) for family in FAMILIES] + [("xgrammar", "qwen_3"), ("xgrammar", "llama")]


@cache
def people(engine: str, family: str, choice: str) -> tuple[hg.ToolCalls, Matcher]:
    constraint = hg.ToolCalls(as_tools({"people": PEOPLE}), family, choice)
    compiled = Compiler(tiny()).compile(constraint, engine, budget=True)
    assert compiled.keeps_budget
    return constraint, compiled.matcher()


@pytest.mark.parametrize(("engine", "family"), ENGINES)
def test_calls_close_in_time(engine: str, family: str) -> None:
    """Of a model that wants nothing but to go on, and of one that writes anything."""
    for seed in range(repeats(4, 30)):
        rng = random.Random(seed)
        choices = ["required", "people", "auto"]
        constraint, start = people(engine, family, rng.choice(choices))
        matcher = start.fork()
        minimum = matcher.min_tokens_to_finish()
        assert minimum is not None
        left, eager, taken = rng.randint(minimum, 3 * minimum + 60), rng.random() < 0.7, []
        while not matcher.is_terminated():
            assert left > 0, (seed, matcher.compiled.vocabulary.decode_bytes(taken))
            permitted = allowed(matcher, left)
            taken.append(rng.choice(still_open(matcher, permitted) if eager else permitted))
            assert matcher.accept_token(taken[-1])
            left -= 1
        answer = constraint.parse(matcher.compiled.vocabulary.decode_bytes(taken).decode())
        for call in answer.calls:
            jsonschema.validate(call.arguments, PEOPLE)
        assert answer.calls or constraint.choice == "auto"


@pytest.mark.parametrize("family", one_in(3, FAMILIES))
def test_the_network_of_a_tag_reads_what_engines_write(family: str) -> None:
    schemas: dict[str, Any] = tools_of(family)
    vocabulary, targets = toy.all_bytes(), target_texts(family, [*schemas])
    for choice in ("auto", "required", "either"):
        constraint = hg.ToolCalls(as_tools(schemas), family, choice)
        compiled = compiler().compile(constraint)
        meter = WorkMeter()
        assert compiled.spelling is not None
        components = TagRtn(constraint.structural_tag().tag, compiled.spelling).components(meter)
        rtn = Pushdown(components, token_trie(vocabulary), vocabulary, meter)
        rng, num_read = random.Random(f"{family} {choice}"), 0
        for _ in range(repeats(4, 30)):
            written = walk(compiled.matcher(), targets, rng)
            if written is None:
                continue
            assert rtn.read(rtn.start, written)[0].needed == 0, written
            cut = written[: rng.randint(0, len(written))]
            complete = compiled.matcher()
            assert complete.validate_tokens(list(cut)) == len(cut)
            for token_id in cut:
                complete.accept_token(token_id)
            assert (rtn.read(rtn.start, cut)[0].needed == 0) == complete.is_completed(), cut
            num_read += 1
        assert num_read
