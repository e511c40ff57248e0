"""What jump-forward does to a row's tokens: which of them are in the model's cache, and which are counted."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import StoppingCriteriaList

from hf_guided.hf.decode.forced_text import Forced
from hf_guided.hf.decode.processors import RowStops
from hf_guided.hf.decode.sequences import SequenceState, jump_forward
from hf_guided.session.row import Row
from hf_guided.session.stats import SessionStats


class Forces:
    """Forces some tokens, in the place of the last one if that may be replaced."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = tuple(token_ids)
        self.narrowed: dict[int, Any] = {}

    def advance(self, row: Row, before: Sequence[int], tokens_left: int | None, *, loose: bool) -> Forced:
        return Forced(int(loose), self._token_ids, ())


@pytest.mark.parametrize("cached", [4, 3, 2])
@pytest.mark.parametrize("forced", [(), (7,), (7, 8)])
def test_only_tokens_outside_the_cache_are_replaced(cached: int, forced: tuple[int, ...]) -> None:
    stats = SessionStats()
    session: Any = SimpleNamespace(tokens_left=lambda num_generated: None, stats=stats)
    stops = RowStops(StoppingCriteriaList(), torch.device("cpu"))
    sequence = SequenceState(Row(None), [1, 2, 3, 4], prompt_length=2, unfed=4 - cached)
    jump_forward(sequence, session, stops, Forces(forced))  # type: ignore[arg-type]
    kept = [1, 2, 3] if cached < 4 else [1, 2, 3, 4]
    assert sequence.token_ids == [*kept, *forced]
    assert len(sequence.token_ids) - sequence.unfed == min(cached, len(kept))
    assert stats.forced_tokens == stats.tokens == len(sequence.token_ids) - 4
