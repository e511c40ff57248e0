"""The stored automata of formats are those that are built, with the same count of work, and none is missing."""

from __future__ import annotations

import json

import pytest

from hf_guided.automaton import nfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import language_dfa, regex_dfa
from hf_guided.automaton.stored_dfas import BUILT_WITHIN, FILE, Stored, digest, loaded, stored_dfa
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import NETWORK, CompileLimits
from hf_guided.regex import Node, parse_fullmatch
from scripts.store_dfas import languages, stored, written


@pytest.fixture(scope="module")
def made() -> dict[str, Stored]:
    return written()


def test_the_file_is_the_one_that_the_script_writes(made: dict[str, Stored]) -> None:
    found = {name: Stored(*values) for name, values in json.loads(FILE.read_bytes()).items()}
    assert found == made, "run python scripts/store_dfas.py"
    assert len(found) > 10


def kept(node: Node, meter: WorkMeter) -> str:
    """What ``language_dfa`` gives, and the work that it counts; or why not."""
    try:
        dfa = language_dfa(node, meter)
    except CompileLimitExceeded as error:
        return str(error)
    return f"{stored(dfa, meter.work)}"


@pytest.mark.parametrize(
    "limits", [BUILT_WITHIN, NETWORK, CompileLimits(max_work=100_000), CompileLimits(max_work=60_000)]
)
def test_a_stored_automaton_is_as_good_as_a_built_one(
    limits: CompileLimits, made: dict[str, Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same count of work, and refused within the same limits."""
    for node in languages():
        if digest(node) not in made:
            continue
        outcomes = set()
        for look_up in (stored_dfa, lambda node, limits: None):
            monkeypatch.setattr(nfa, "stored_dfa", look_up)
            monkeypatch.setattr(nfa, "_kept_languages", type(nfa._kept_languages)(2**20))
            found = kept(node, WorkMeter(limits))
            outcomes.add("refused" if "steps" in found or "states;" in found else found)
        assert len(outcomes) == 1, outcomes


def test_automata_are_loaded_as_they_were_stored() -> None:
    dfa = regex_dfa(parse_fullmatch("(ab|é)*c{2,9}"), WorkMeter())
    again = loaded(stored(dfa, 7))
    assert again.table.tolist() == dfa.table.tolist() and again.byte_class.tolist() == dfa.byte_class.tolist()
    assert again.accepting.tolist() == dfa.accepting.tolist() and again.start == dfa.start
    assert again.table.flags.writeable and again.byte_class.flags.writeable


def test_other_languages_are_built() -> None:
    assert stored_dfa(parse_fullmatch("a{5000}"), NETWORK) is None
    assert stored_dfa(parse_fullmatch("a+"), NETWORK) is None
