"""The matcher, which wraps every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hf_guided.errors import BitmaskShapeError
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests.toy import SetEngine, compiled_set, letters


def test_matcher_removes_special_tokens_and_padding_from_the_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = letters("ab", stop=2, padded_size=70)  # 9 tokens, followed by words of padding
    monkeypatch.setattr(SetEngine, "fill", lambda self, bitmask, row: bitmask[row].fill_(-1))
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    matcher = compiled_set(vocabulary, "ab").matcher()
    matcher.fill_next_token_bitmask(bitmask)
    allowed = unpack(bitmask, 96)[0].nonzero().flatten().tolist()
    assert allowed == [i for i in range(96) if vocabulary.is_text(i)]


@pytest.mark.parametrize(
    "move",
    [
        torch.Tensor.share_memory_,
        lambda bitmask: bitmask.set_(torch.zeros_like(bitmask)),
        lambda bitmask: setattr(bitmask, "data", torch.zeros_like(bitmask)),
    ],
    ids=["shared memory", "another storage", "other data"],
)
def test_a_bitmask_that_has_moved_is_filled_where_it_is(move: Callable[[torch.Tensor], object]) -> None:
    vocabulary = letters("ab", stop=2)
    matcher = compiled_set(vocabulary, "ab").matcher()
    bitmask = allocate_bitmask(2, vocabulary.padded_size)
    matcher.fill_next_token_bitmask(bitmask, 0)
    expected = bitmask[0].clone()
    move(bitmask)
    bitmask.zero_()
    matcher.fill_next_token_bitmask(bitmask, 1)
    assert bitmask.tolist() == [[0] * len(expected), expected.tolist()]


def test_a_bitmask_that_has_become_smaller_is_refused() -> None:
    vocabulary = letters("ab", stop=2)
    matcher = compiled_set(vocabulary, "ab").matcher()
    bitmask = allocate_bitmask(4, vocabulary.padded_size)
    matcher.fill_next_token_bitmask(bitmask, 3)
    bitmask.resize_((1, bitmask.shape[1]))
    with pytest.raises(BitmaskShapeError, match="row"):
        matcher.fill_next_token_bitmask(bitmask, 3)


class OwnEngine:
    """The methods that the guide on backends shows, without a base of ours."""

    def __init__(self, engine: SetEngine):
        for name in ("accept", "validate", "rollback", "fill", "is_completed", "jump_forward_bytes"):
            setattr(self, name, getattr(engine, name))
        self.fork = lambda: OwnEngine(engine.fork())


@pytest.mark.parametrize("tokens_left", [None, 5])
def test_the_masks_of_an_engine_without_a_base_can_be_weighed(tokens_left: int | None) -> None:
    vocabulary = letters("ab", stop=2)
    language = frozenset([b"ab", b"aa"])
    compiled = compiled_set(vocabulary, "ab", "aa")
    compiled = replace(compiled, new_engine=lambda: OwnEngine(SetEngine(vocabulary, language)))  # type: ignore[arg-type, return-value]
    row = Row(compiled.matcher())
    both = row.narrowed(tokens_left, always=True)
    assert both is not None and not both.narrows and both.by_format.any()
    assert row.is_near_limit(tokens_left) == (tokens_left is not None)
