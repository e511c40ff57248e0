"""The work before the first token of a request with a token budget, counted in steps, not in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hf_guided.automaton import nfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.backends.budget_search import CompletionSearch
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.values import JsonSchema
from tests.budget_types import LARGE, SCHEMAS
from tests.toy import all_bytes

VOCABULARY = all_bytes()


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
    monkeypatch.setattr(nfa, "_kept_languages", ByteCache(2**20))
    yield recorded


# The bound on the length multiplies the states of the format.
COUNTED = ("HttpUrl", "list[HttpUrl]", "three URLs")
# Others have the same parts, and fewer of them.
LONG = ("1000 integers", "1000 strings", "list of at most 20 models", "12 str of at most 200")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in (*SCHEMAS, *LARGE)]
)
def test_first_mask_takes_little_work(name: str, work: Work) -> None:
    compiled = Compiler(VOCABULARY).compile(JsonSchema({**SCHEMAS, **LARGE}[name]))
    assert compiled.keeps_budget
    assert compiled.matcher().min_tokens_to_finish() is not None
    assert 0 < work.steps < (9_000_000 if name in COUNTED else 1_000_000)
    assert not work.searches, "the number of tokens to the end is computed, not searched"
