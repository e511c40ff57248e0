"""What a request with a token budget waits for before its first token, counted in steps of work, not in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from hf_guided.automaton import nfa
from hf_guided.automaton.estimate import characters, expected_states, longest
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.piece_cache import PieceCache
from hf_guided.backends import automaton, registry
from hf_guided.backends.automaton import AutomatonBackend
from hf_guided.backends.compiler import Compiler
from hf_guided.backends.completion_search import CompletionSearch
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import QUICK, CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.budget_types import LARGE, SCHEMAS
from tests.toy import all_bytes

VOCABULARY = all_bytes()
BACKENDS = {name: registry.create(name, VOCABULARY) for name in ("automaton", "llguidance", "xgrammar")}


class Work:
    """All meters that were made, and the steps of searches for a way to the end."""

    def __init__(self) -> None:
        self.meters: list[WorkMeter] = []
        self.searches: list[int] = []

    @property
    def steps(self) -> int:
        """Of all compiles; a part's are among those of the compile it is part of."""
        return sum(meter.work for meter in self.meters if not meter.is_part)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """With nothing left from other compiles."""
    found, begin, find = Work(), WorkMeter.__init__, CompletionSearch.find

    def begun(meter: WorkMeter, limits: CompileLimits | None = None) -> None:
        begin(meter, limits)
        found.meters.append(meter)

    def searched(search: CompletionSearch, engine, steps):
        found.searches.append(steps)
        return find(search, engine, steps)

    monkeypatch.setattr(WorkMeter, "__init__", begun)
    monkeypatch.setattr(CompletionSearch, "find", searched)
    monkeypatch.setattr(nfa, "_kept", PieceCache())
    yield found


@pytest.mark.parametrize("name", [*SCHEMAS, *LARGE])
def test_the_first_mask_takes_little_work(name: str, work: Work) -> None:
    most = 1_000_000 if name in SCHEMAS else 1_500_000
    compiled = Compiler(VOCABULARY, backends=BACKENDS).compile(JsonSchema({**SCHEMAS, **LARGE}[name]), budget=True)
    assert compiled.keeps_budget
    assert compiled.matcher().min_tokens_to_finish() is not None
    assert 0 < work.steps < most
    assert not work.searches, "the way out is counted, not searched"


@pytest.mark.parametrize("name", ["HttpUrl", "str of at most 5000", "three URLs"])
def test_what_is_too_large_is_seen_before_it_is_built(name: str, work: Work) -> None:
    schema = JsonSchema({**SCHEMAS, **LARGE}[name])
    backend = AutomatonBackend(VOCABULARY)
    with pytest.raises(CompileLimitExceeded, match="the automaton grew past 50000 states"):
        backend.quick().compile(schema)
    quick = work.steps
    with pytest.raises(CompileLimitExceeded, match="grew past"):
        backend.compile(schema)
    assert quick < work.steps / 2
    if name == "HttpUrl":
        assert quick < 0.02 * work.steps, "neither the pattern nor the lengths were built"


@pytest.mark.parametrize("on_unsupported", ["error", "warn", "validate"])
def test_what_no_other_engine_enforces_is_built_whatever_it_takes(monkeypatch, on_unsupported: Any) -> None:
    """Nothing is refused or lost because the automaton was first tried in a hurry."""
    monkeypatch.setattr(automaton, "QUICK", CompileLimits(max_states=100, expect=True))
    native = AutomatonBackend(VOCABULARY)
    number = {"type": "number", "multipleOf": 3.5}
    schema = JsonSchema({"type": "array", "items": number, "maxItems": 9}, on_unsupported=on_unsupported)
    with pytest.raises(CompileLimitExceeded):
        native.quick().compile(schema)
    compiled = Compiler(VOCABULARY, backends={**BACKENDS, "automaton": native}).compile(schema, budget=True)
    assert (compiled.backend, compiled.losses) == ("automaton", ())
    easy = Compiler(VOCABULARY, backends={**BACKENDS, "automaton": native})
    assert easy.compile(JsonSchema({"type": "string", "maxLength": 99}), budget=True).backend == "llguidance"


@pytest.mark.parametrize(
    ("pattern", "size", "expected", "most"),
    [
        ("abc", 3, 3, 3),
        ("a{10}|b", 11, 11, 10),
        ("(a{1,30}b){1,30}", 930, 930, 930),
        ("a*", 1, 1, math.inf),
        ("(?=[a-z]+$).{1,100}", 102, 200, 100),
        ("(?=[a-z]{1,50}$).{1,100}", 151, 100, 51),
    ],
)
def test_what_is_expected_of_a_pattern(pattern: str, size: int, expected: int, most: float) -> None:
    node = parse_fullmatch(pattern)
    assert (characters(node), expected_states(node)) == (size, expected)
    assert (math.inf if longest(node) is None else longest(node)) == most


@pytest.mark.parametrize(
    "pattern", ["[a-z]{1,300}", "(?:[a-z]{2,5}-){1,40}[a-z]", "(?=[ab]*c?$).{0,80}", "(ab|cd){3,90}"]
)
def test_what_is_expected_is_near_what_comes(pattern: str) -> None:
    node = parse_fullmatch(pattern)
    states = regex_dfa(node, WorkMeter()).states
    assert states / 4 <= expected_states(node) <= 4 * states


def test_expectations_are_for_quick_compiles_alone() -> None:
    node = parse_fullmatch("((a|b)?c?){30000}|(a{300}){200}")
    assert expected_states(node) > QUICK.max_states
    with pytest.raises(CompileLimitExceeded, match="grew past 50000 states"):
        regex_dfa(node, meter := WorkMeter(QUICK))
    assert meter.work < 100
