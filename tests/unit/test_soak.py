"""The judges and the bars of benchmarks/soak.py can say no; the half hour itself is not a test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from benchmarks import soak_cases
from benchmarks.soak import COMPILED, COMPILED_NAME, CacheState, ProcessState, Round, bars, measure, rows
from benchmarks.soak_cases import Case, Left, Output, verdict
from hf_guided.automaton.lru_bytes import ByteCache

TEXTS = {
    soak_cases.choice: ("é7", "é8"),
    soak_cases.pattern: ("7:a", "7:abcd"),
    soak_cases.flag: ('{"n":7,"ok":true}', '{"n":7,"ok":1}'),
    soak_cases.text: ('{"n": 7, "s": "\\u00e9x"}', '{"n": 7, "s": "abc"}'),
    soak_cases.numbers: ("[7, 12]", "[7, 13]"),
    soak_cases.nested: ("((x7))", "((x7)"),
    soak_cases.tag: ("<t7>-1</t>", "<t7>-2</t>"),
    soak_cases.model: ('{"n": 7, "ok": false}', '{"n": 8, "ok": false}'),
}
STATE = ProcessState(100, 5, ("MainThread",), ("a", "b"), (CacheState(COMPILED_NAME, 9, 9, 1, 1),))
DONE = Round(Counter({("decoder", "valid"): 50}), [], 7)


@dataclass(frozen=True)
class CacheValue:
    nbytes: int


@pytest.mark.parametrize("kind", soak_cases.KINDS, ids=lambda kind: kind.__name__)
def test_each_judge_knows_right_from_wrong(kind: Callable[[int], Case]) -> None:
    case, (right, wrong) = kind(7), TEXTS[kind]
    assert verdict(Output(case, right, True)) == "valid"
    assert verdict(Output(case, wrong, True)) == "invalid"
    assert verdict(Output(case, right, True, "an engine failed")) == "dead end"
    for length in range(len(right)):
        assert verdict(Output(case, right[:length], True)) == "invalid"
        assert verdict(Output(case, right[:length], False)) == "cut"
    assert verdict(Output(case, "?" + right, False)) == "bad prefix"


def test_what_is_no_output_is_counted_apart() -> None:
    assert verdict(Left()) == "left"
    assert Round(Counter({("stream", "left"): 3})).judged == 0


@pytest.mark.parametrize(
    ("bar", "change"),
    [
        ("memory within 2 %", {"rss": 103}),
        ("threads constant", {"threads": 6}),
        ("descriptors constant", {"descriptors": ("a",)}),
        ("caches within their bounds", {"caches": (CacheState(COMPILED_NAME, 10, 9, 1, 1),)}),
        ("compile caches full", {"caches": (CacheState(COMPILED_NAME, 9, 9, 2, 1),)}),
        ("compile caches full", {"caches": ()}),
    ],
)
def test_a_bar_fails_alone(bar: str, change: dict[str, object]) -> None:
    assert all(bars([DONE, DONE], [STATE, STATE], 100).values())
    held = bars([DONE, DONE], [STATE, replace(STATE, **change)], 100)  # type: ignore[arg-type]
    assert [name for name, holds in held.items() if not holds] == [bar]


def test_wrong_outputs_and_too_few_fail() -> None:
    wrong = replace(DONE, failures=["decoder: invalid"])
    assert not bars([DONE, wrong], [STATE, STATE], 100)["0 wrong outputs"]
    assert not bars([DONE, DONE], [STATE, STATE], 101)["at least 101 outputs"]


def test_the_figures_have_a_row_per_round() -> None:
    figures = rows([DONE, DONE + DONE], [STATE, STATE], [60.0, 66.0])
    assert [(row["outputs"], row["minutes"]) for row in figures] == [(50, "1.0"), (100, "1.1")]


def test_this_process_is_read() -> None:
    own = ByteCache[CacheValue](COMPILED)
    own.put("key", CacheValue(100))
    state = measure(quiet_s=0)
    assert state.rss > 2**20 and state.threads >= 1 and state.descriptors
    assert CacheState(COMPILED_NAME, 100, COMPILED, 1, 0) in state.caches
