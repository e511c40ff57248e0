"""A step of many rows is the steps of each, and equal keys have equal masks."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.automaton import frame_machine
from hf_guided.constraints.coerce import coerce
from hf_guided.session.row import Row, advance, mask_keys
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies

TOKENIZER = vocabularies.tiny_byte_level()
GUIDE = hg.Guide(len(TOKENIZER), TOKENIZER)
SIZE = GUIDE.vocabulary.padded_size
STOP = GUIDE.vocabulary.stop_token_ids[0]
CONSTRAINTS: list[Any] = [
    hg.Regex("[ab]{2,9}c?"),
    hg.Regex(".{3,40}"),  # counted: far from its bounds many states have one mask
    hg.JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 4}),
    hg.JsonSchema({"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}}),
    hg.JsonSchema({"type": "object", "properties": {"a": {}, "b": {"type": "integer"}}}, key_order="any"),
    hg.Grammar('root ::= "x" root | "y"'),
    None,
]


def rows_of(which: list[int]) -> list[Row]:
    compiled = [None if CONSTRAINTS[i] is None else GUIDE.compile(coerce(CONSTRAINTS[i])) for i in which]
    return [Row(None if one is None else one.matcher()) for one in compiled]


def mask_of(row: Row, left: int | None) -> torch.Tensor | None:
    bitmask = allocate_bitmask(1, SIZE)
    return bitmask[0] if row.fill(bitmask, 0, left) else None


@given(
    st.lists(st.integers(0, len(CONSTRAINTS) - 1), min_size=1, max_size=6),
    st.sampled_from([None, 12, 60]),
    st.sampled_from([0, 20_000, frame_machine._BYTES]),
    st.integers(0, 2**20),
)
def test_a_step_is_that_of_each_row(which: list[int], left: int | None, most_bytes: int, seed: int) -> None:
    """Also where a token is refused, where rows have ended, and where engines forget their sets all the time."""
    rng, known = random.Random(seed), dict[Hashable, list[int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_machine, "_BYTES", most_bytes)
        together, alone = rows_of(which), rows_of(which)
        for step in range(14):
            remaining = [None if left is None else left - step for _ in which]
            keys = mask_keys(together, remaining)
            assert keys == mask_keys(together, remaining)
            token_ids = []
            for key, *pair in zip(keys, together, alone, strict=True):
                ours, theirs = (mask_of(row, remaining[0]) for row in pair)
                assert (ours is None) == (theirs is None)
                if ours is None or theirs is None:
                    assert key is None
                    token_ids.append(rng.choice([0, STOP]))
                    continue
                assert torch.equal(ours, theirs)
                if key is not None:
                    assert known.setdefault(key, ours.tolist()) == ours.tolist(), "one key for two masks"
                allowed = torch.nonzero(unpack(ours[None], SIZE)[0]).flatten().tolist()
                token_ids.append(rng.choice(allowed if rng.random() < 0.95 else range(SIZE)))
            refused = [i for i, row in enumerate(alone) if not row.advance(token_ids[i])]
            assert advance(together, token_ids) == refused
            for ours, theirs in zip(together, alone, strict=True):
                assert (ours.state, ours.tail, ours.mark()) == (theirs.state, theirs.tail, theirs.mark())
            if rng.random() < 0.3:
                i, back = rng.randrange(len(which)), rng.randrange(1, 3)
                if together[i].mark().taken >= back:
                    together[i].rewind(back)
                    alone[i].rewind(back)


def test_masks_far_from_a_limit_have_keys_and_those_near_it_have_none() -> None:
    [row] = rows_of([2])
    for token_id in TOKENIZER.encode('["ab", "', add_special_tokens=False):
        assert row.advance(token_id)
    least = row.min_tokens_to_finish()
    assert least is not None
    assert mask_of(row, 1000) is not None  # its ways to the end are known now
    assert row.mask_key(1000) == row.mask_key(None) is not None
    assert row.mask_key(least) is None
    assert not np.array_equal(mask_of(row, least), mask_of(row, None))  # type: ignore[arg-type]
    row.advance(STOP)
    assert row.mask_key(1000) is None, "it has ended"


def test_what_an_engine_raises_ends_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of([0, 0, 2])
    machine = rows[1].engine._machine  # type: ignore[attr-defined]
    read, count = machine.read_each, 0

    def failing(numbers: list[int], token_ids: list[int]) -> list[int]:
        nonlocal count
        count += 1
        if count in (1, 3):  # the call for both, and the second of the rows when they are asked by themselves
            raise MemoryError("no room")
        return list(read(numbers, token_ids))

    monkeypatch.setattr(machine, "read_each", failing)
    a, bracket = (TOKENIZER.encode(text, add_special_tokens=False)[0] for text in ("a", "["))
    assert advance(rows, [a, a, bracket]) == []
    assert [row.is_open for row in rows] == [True, False, True]
    assert "no room" in str(rows[1].dead_end)
