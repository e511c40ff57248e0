"""The tracker keeps the last two prompts."""

from __future__ import annotations

import numpy as np
import pytest

from hf_guided.session.row import Row
from hf_guided.session.tracker import RowTracker
from tests.toy import compiled_set, letters

VOCABULARY = letters("ab")
STOP, A, B, AA, AB, BA, BB = range(1, 8)
LANGUAGE = compiled_set(VOCABULARY, "abab", "abba", "ab")
PROMPTS = ([50, 51, 52], [60, 61], [70, 71, 72, 73])


class Prompts:
    """A tracker. ``taken`` returns how many output tokens the row has taken after a call."""

    def __init__(self) -> None:
        self.num_prompts = 0
        self.refused: list[tuple[int, int]] = []
        self.tracker = RowTracker(self.new_rows, lambda i, row, token_id: self.refused.append((i, token_id)))

    def new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        self.num_prompts += 1
        return [Row(LANGUAGE.matcher()) for _ in range(num_rows)], num_rows

    def taken(self, prompt: int, *output: int) -> int:
        (row,) = self.tracker.update(np.array([[*PROMPTS[prompt], *output]], dtype=np.int64))
        assert self.tracker.prompt_length == len(PROMPTS[prompt]) or not row.mark().taken
        return row.mark().taken


@pytest.fixture
def prompts() -> Prompts:
    return Prompts()


def test_two_prompts_can_alternate(prompts: Prompts) -> None:
    steps = [prompts.taken(0), prompts.taken(1), prompts.taken(0, A), prompts.taken(1, AB), prompts.taken(0, A, B)]
    assert steps == [0, 0, 1, 1, 2] and prompts.num_prompts == 2
    assert prompts.taken(1, AB, A) == 2, "also after the other prompt was used twice"
    assert prompts.taken(1, AB, A, B) == 3 and prompts.num_prompts == 2


def test_third_prompt_evicts_the_least_recently_used(prompts: Prompts) -> None:
    prompts.taken(0)
    prompts.taken(1)
    prompts.taken(0, A)
    prompts.taken(2)
    assert prompts.taken(0, A, B) == 2 and prompts.num_prompts == 3
    assert prompts.taken(1, AB) == 0 and prompts.num_prompts == 4, "it was evicted, so it is a new prompt"


def test_next_step_belongs_to_the_last_used_prompt(prompts: Prompts) -> None:
    tracker = prompts.tracker
    assert not tracker.expects(1, 1)
    assert tracker.next_step(np.array([[A]])) is None
    prompts.taken(0)
    prompts.taken(1)
    prompts.taken(0, A)
    for rows in (0, 1, 2):
        for length in range(8):
            assert tracker.expects(rows, length) == ((rows, length) == (1, 5))
    assert tracker.next_step(np.array([[*PROMPTS[1], A]])) is None
    step = tracker.next_step(np.array([[*PROMPTS[0], A, B]]))
    assert step is not None
    assert [row.mark().taken for row in step.take()] == [2]
    step.undo()
    assert prompts.taken(0, A, BA) == 2 and prompts.num_prompts == 2 and not prompts.refused
