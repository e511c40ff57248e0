"""The work before the first token of a request with a token budget, counted in steps, not in seconds."""

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
    """Records all work meters, and the work that all completion searches may do."""

    def __init__(self) -> None:
        self.meters: list[WorkMeter] = []
        self.searches: list[int] = []

    @property
    def steps(self) -> int:
        """The steps of all compiles. The steps of a part are included in those of the whole."""
        return sum(meter.work for meter in self.meters if not meter.is_part)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Record the work from here on, with an empty cache of compiled pieces."""
    recorded, init_meter, find = Work(), WorkMeter.__init__, CompletionSearch.find

    def recording_init(meter: WorkMeter, *limits: Any) -> None:
        init_meter(meter, *limits)
        recorded.meters.append(meter)

    def recording_find(search: CompletionSearch, engine, work):
        recorded.searches.append(work)
        return find(search, engine, work)

    monkeypatch.setattr(WorkMeter, "__init__", recording_init)
    monkeypatch.setattr(CompletionSearch, "find", recording_find)
    monkeypatch.setattr(nfa, "_kept", PieceCache())
    yield recorded


# Others have the same parts, and fewer of them.
LONG = ("1000 integers", "1000 strings", "list of at most 20 models", "12 str of at most 200")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in (*SCHEMAS, *LARGE)]
)
def test_first_mask_takes_little_work(name: str, work: Work) -> None:
    most = 1_000_000 if name in SCHEMAS else 1_500_000
    compiled = Compiler(VOCABULARY, backends=BACKENDS).compile(JsonSchema({**SCHEMAS, **LARGE}[name]), budget=True)
    assert compiled.keeps_budget
    assert compiled.matcher().min_tokens_to_finish() is not None
    assert 0 < work.steps < most
    assert not work.searches, "the number of tokens to the end is computed, not searched"


@pytest.mark.parametrize("name", ["HttpUrl", "str of at most 5000", "three URLs"])
def test_too_large_automaton_is_detected_before_it_is_built(name: str, work: Work) -> None:
    schema = JsonSchema({**SCHEMAS, **LARGE}[name])
    backend = AutomatonBackend(VOCABULARY)
    with pytest.raises(CompileLimitExceeded, match="the automaton grew past 50000 states"):
        backend.quick().compile(schema)
    quick = work.steps
    with pytest.raises(CompileLimitExceeded, match="grew past"):
        backend.compile(schema)
    assert quick < work.steps / 2
    if name == "HttpUrl":
        assert quick < 0.02 * work.steps, "parts of the automaton were built"


@pytest.mark.parametrize("on_unsupported", ["error", "warn", "validate"])
def test_constraint_only_for_the_automaton_ignores_the_quick_limits(monkeypatch, on_unsupported: Any) -> None:
    """The first, quick attempt with the automaton causes no error and no loss."""
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
def test_estimates_of_a_pattern(pattern: str, size: int, expected: int, most: float) -> None:
    node = parse_fullmatch(pattern)
    assert (characters(node), expected_states(node)) == (size, expected)
    assert (math.inf if longest(node) is None else longest(node)) == most


@pytest.mark.parametrize(
    "pattern", ["[a-z]{1,300}", "(?:[a-z]{2,5}-){1,40}[a-z]", "(?=[ab]*c?$).{0,80}", "(ab|cd){3,90}"]
)
def test_estimated_states_are_close_to_the_real_number(pattern: str) -> None:
    node = parse_fullmatch(pattern)
    states = regex_dfa(node, WorkMeter()).states
    assert states / 4 <= expected_states(node) <= 4 * states


def test_estimates_stop_quick_compiles_early() -> None:
    node = parse_fullmatch("((a|b)?c?){30000}|(a{300}){200}")
    assert expected_states(node) > QUICK.max_states
    with pytest.raises(CompileLimitExceeded, match="grew past 50000 states"):
        regex_dfa(node, meter := WorkMeter(QUICK))
    assert meter.work < 100
