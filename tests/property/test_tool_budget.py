"""Token budgets of tool calls, in every family's notation: a call closes in time, whatever is sampled."""

from __future__ import annotations

import random
from functools import cache

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.matcher import Matcher
from tests.effort import repeats
from tests.property.strategies import allowed, still_open, tiny
from tests.property.test_tool_calls import as_tools
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


@cache
def people(family: str, choice: str) -> tuple[hg.ToolCalls, Matcher]:
    constraint = hg.ToolCalls(as_tools({"people": PEOPLE}), family, choice)
    compiled = Compiler(tiny()).compile(constraint)
    assert compiled.keeps_budget
    return constraint, compiled.matcher()


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_close_in_time(family: str) -> None:
    """Of a model that wants nothing but to go on, and of one that writes anything."""
    for seed in range(repeats(4, 30)):
        rng = random.Random(seed)
        choices = ["required", "people", "auto"]
        constraint, start = people(family, rng.choice(choices))
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
