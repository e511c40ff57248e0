"""The stored automata of formats are those that are built, with the same count of work, and none is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hf_guided.automaton import nfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import language_dfa
from hf_guided.automaton.stored_dfas import BUILT_WITHIN, FILE, digest, stored_dfa
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import NETWORK, CompileLimits
from hf_guided.regex import Node, parse_fullmatch
from scripts.store_dfas import languages, written


@pytest.fixture(scope="module")
def made() -> dict[str, NDArray[Any]]:
    return written()


def test_the_file_is_the_one_that_the_script_writes(made: dict[str, NDArray[Any]]) -> None:
    with np.load(FILE) as file:
        assert set(file) == set(made) and len(made) > 40, "run python scripts/store_dfas.py"
        for name, array in made.items():
            assert file[name].dtype == array.dtype and np.array_equal(file[name], array), "run it"


def kept(node: Node, meter: WorkMeter) -> str:
    """What ``language_dfa`` gives, and the work that it counts; or why not."""
    try:
        dfa = language_dfa(node, meter)
    except CompileLimitExceeded as error:
        return str(error)
    parts = dfa.table.shape, dfa.table.tobytes(), dfa.byte_class.tobytes(), dfa.accepting.tobytes(), dfa.start
    return f"{parts} {meter.work}"


@pytest.mark.parametrize(
    "limits", [BUILT_WITHIN, NETWORK, CompileLimits(max_work=100_000), CompileLimits(max_work=60_000)]
)
def test_a_stored_automaton_is_as_good_as_a_built_one(
    limits: CompileLimits, made: dict[str, NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same count of work, and refused within the same limits."""
    for node in languages():
        if f"{digest(node)}.table" not in made:
            continue
        outcomes = set()
        for look_up in (stored_dfa, lambda node, limits: None):
            monkeypatch.setattr(nfa, "stored_dfa", look_up)
            monkeypatch.setattr(nfa, "_kept_languages", type(nfa._kept_languages)(2**20))
            found = kept(node, WorkMeter(limits))
            outcomes.add("refused" if "steps" in found or "states;" in found else found)
        assert len(outcomes) == 1, outcomes


def test_other_languages_are_built() -> None:
    assert stored_dfa(parse_fullmatch("a{5000}"), NETWORK) is None
    assert stored_dfa(parse_fullmatch("a+"), NETWORK) is None
