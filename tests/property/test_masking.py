"""Law 7 and related properties: a mask changes only its own rows and forbidden tokens, and no other bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.errors import BitmaskShapeError
from hf_guided.session.apply import apply_bitmask
from hf_guided.vocabulary.bitmask import allocate_bitmask, apply_bitmask_reference, pack, unpack
from tests.effort import repeats
from tests.sessions import session_of
from tests.toy import compiled_set, letters

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TOKENS = 23  # of letters("abcd", stop=2)


def compiled(vocabulary: Any) -> list[CompiledConstraint | None]:
    return [
        compiled_set(vocabulary, "abab", "ab", "ddddd"),
        compiled_set(vocabulary, "ba", "bab", "cabcab"),
        compiled_set(vocabulary, "d"),
        None,
    ]


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, so that a NaN equals the same NaN, and 0.0 differs from -0.0."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).view(torch.uint8)


def same_bits(first: Tensor, second: Tensor) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and torch.equal(bits(first), bits(second))


def random_scores(rows: int, width: int, dtype: torch.dtype, seed: int, layout: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if layout == "strided":
        return torch.randn(rows, 2 * width + 1, generator=generator, dtype=torch.float64).to(dtype)[:, 1::2]
    if layout == "transposed":
        return torch.randn(width, rows, generator=generator, dtype=torch.float64).to(dtype).T
    if layout == "last_position":  # a view into (rows, length, vocab), as assisted generation passes it
        return torch.randn(rows, 3, width, generator=generator, dtype=torch.float64).to(dtype)[:, -1, :]
    return torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)


def expected_row(scores: Tensor, matcher: Matcher) -> Tensor:
    """The oracle: try every token on a fork."""
    allowed = [matcher.fork().accept_token(token_id) for token_id in range(len(scores))]
    return torch.where(torch.tensor(allowed), scores, torch.tensor(float("-inf"), dtype=scores.dtype))


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    languages = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    copies = draw(st.integers(1, 3))
    width = TOKENS + draw(st.integers(0, 80))
    steps = draw(st.integers(0, 3))
    return {
        "languages": languages,
        "copies": copies,
        "width": width,
        "dtype": draw(st.sampled_from(DTYPES)),
        "layout": draw(st.sampled_from(["plain", "strided", "transposed", "last_position"])),
        "seed": draw(st.integers(0, 2**31)),
        "tokens": [draw(st.lists(st.integers(0, TOKENS - 1), min_size=steps, max_size=steps)) for _ in range(18)],
        "beams": draw(st.lists(st.randoms(use_true_random=False), min_size=1, max_size=1))[0],
    }


@settings(max_examples=repeats(66, 200))
@given(batch=batches())
def test_each_row_gets_only_its_own_mask(batch: dict[str, Any]) -> None:
    """Over several steps with beams permuted inside each prompt, in every dtype, width and memory layout."""
    vocabulary = letters("abcd", stop=2, padded_size=batch["width"])
    languages = [compiled(vocabulary)[i] for i in batch["languages"]]
    session = session_of(vocabulary, languages)
    copies = batch["copies"]
    rows = len(languages) * copies
    tokens: list[list[int]] = [[] for _ in range(rows)]
    steps = len(batch["tokens"][0])
    for step in range(steps + 1):
        ids = torch.tensor([[7, 7, *taken] for taken in tokens])
        scores = random_scores(rows, batch["width"], batch["dtype"], batch["seed"] + step, batch["layout"])
        before = scores.clone()
        masked = session.mask(ids, scores)
        assert same_bits(scores, before), "the given scores were changed"
        assert masked.dtype == scores.dtype and masked.data_ptr() != scores.data_ptr()
        for i in range(rows):
            language = languages[i // copies]
            if language is None:
                assert same_bits(masked[i], scores[i]), "an unconstrained row was changed"
                continue
            matcher = language.matcher()
            if all(matcher.accept_token(token_id) for token_id in tokens[i]) and not matcher.is_terminated():
                assert same_bits(masked[i], expected_row(scores[i], matcher)), (i, tokens[i])
            else:  # the row has ended or left its grammar: only stop tokens remain
                alive = torch.nonzero(masked[i] > float("-inf")).flatten().tolist()
                assert alive and set(alive) <= set(vocabulary.stop_token_ids)
        if step < steps:
            parents = [i // copies * copies + batch["beams"].randrange(copies) for i in range(rows)]
            # Usually an allowed token, sometimes any token, which makes a dead beam.
            tokens = [
                [*tokens[parent], next_token(masked[parent], batch["tokens"][i][step])]
                for i, parent in enumerate(parents)
            ]


def next_token(masked: Tensor, pick: int) -> int:
    allowed = torch.nonzero(masked[:TOKENS] > float("-inf")).flatten().tolist()
    return pick if pick % 7 == 0 else allowed[pick % len(allowed)]


@settings(max_examples=50)
@given(
    order=st.permutations(range(6)),
    dtype=st.sampled_from(DTYPES),
    width=st.integers(TOKENS, TOKENS + 70),
    seed=st.integers(0, 2**31),
)
def test_batch_equals_rows_one_by_one(order: list[int], dtype: torch.dtype, width: int, seed: int) -> None:
    """Law 5 for masks: they depend neither on other rows nor on the position in the batch."""
    vocabulary = letters("abcd", stop=2, padded_size=width)
    languages = [(compiled(vocabulary) * 2)[i] for i in order]
    scores = random_scores(6, width, dtype, seed, "plain")
    ids = torch.full((6, 2), 7)
    batched = session_of(vocabulary, languages).mask(ids, scores)
    for i, language in enumerate(languages):
        alone = session_of(vocabulary, [language]).mask(ids[i : i + 1], scores[i : i + 1])
        assert same_bits(batched[i], alone[0])


@pytest.mark.parametrize("vocab", range(32001, 32033))
def test_apply_equals_the_reference_at_every_odd_width(vocab: int) -> None:
    """Almost empty, mixed and almost full rows take three different paths in apply_bitmask."""
    generator = torch.Generator().manual_seed(vocab)
    shares = [0.0, 1.0, 0.001, 0.5, 0.999, 0.02]
    mask = torch.rand(len(shares), vocab, generator=generator) < torch.tensor(shares)[:, None]
    mask[2, -1] = mask[4, -1] = True  # the last column, in the last word
    mask[3, -1] = False
    bitmask = pack(mask)
    if vocab % 32:
        bitmask[:, -1] |= -1 << (vocab % 32)  # bits after the last column must be ignored
    wider = torch.cat([bitmask, torch.full((len(shares), 3), -1, dtype=torch.int32)], dim=1)
    for dtype in DTYPES:
        scores = torch.randn(len(shares), vocab, generator=generator, dtype=torch.float64).to(dtype)
        for words in (bitmask, wider):
            masked, alive = apply_bitmask(scores, words, range(len(shares)))
            assert same_bits(masked, apply_bitmask_reference(scores, words))
            assert alive == mask.any(1).tolist()


@settings(max_examples=repeats(50, 150))
@given(
    vocab=st.integers(1, 300),
    share=st.floats(0, 1),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["plain", "strided", "transposed", "last_position"]),
    governed=st.sets(st.integers(0, 4)),
    seed=st.integers(0, 2**31),
    special=st.sampled_from([0.0, float("nan"), float("-inf"), float("inf")]),
)
def test_apply_equals_the_reference(
    vocab: int, share: float, dtype: torch.dtype, layout: str, governed: set[int], seed: int, special: float
) -> None:
    mask = torch.rand(5, vocab, generator=torch.Generator().manual_seed(seed)) < share
    scores = random_scores(5, vocab, dtype, seed, layout)
    scores[:, seed % vocab] = special
    before = scores.clone()
    masked, alive = apply_bitmask(scores, pack(mask), sorted(governed))
    assert same_bits(scores, before)
    reference = apply_bitmask_reference(scores, pack(mask))
    for i in range(5):
        assert same_bits(masked[i], reference[i] if i in governed else scores[i])
    if not math.isnan(special):
        assert alive == [bool((reference[i] > float("-inf")).any()) for i in sorted(governed)]


def test_apply_with_no_rows() -> None:
    masked, alive = apply_bitmask(torch.zeros(0, 40), allocate_bitmask(0, 40), [])
    assert masked.shape == (0, 40) and alive == []


@pytest.mark.parametrize("rows", [1, 200])
def test_bitmask_must_cover_the_vocabulary(rows: int) -> None:
    bitmask = torch.full((rows, 2), -1, dtype=torch.int32)
    for vocab in (1, 64):
        assert apply_bitmask(torch.zeros(rows, vocab), bitmask, range(rows))[0].count_nonzero() == 0
    with pytest.raises(BitmaskShapeError):
        apply_bitmask(torch.zeros(rows, 65), bitmask, range(rows))


@given(data=st.data(), vocab=st.integers(1, 200))
def test_pack_and_unpack_are_inverse(data: st.DataObject, vocab: int) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=vocab, max_size=vocab)))
    assert unpack(pack(torch.from_numpy(mask)[None]), vocab)[0].tolist() == mask.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_alive_has_the_order_of_the_given_rows(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 2.0], [-math.inf, 2.0], [math.nan, 2.0]], dtype=dtype)
    bitmask = pack(torch.tensor([[True, True], [True, False], [True, True]]))
    masked, alive = apply_bitmask(scores, bitmask, [2, 1, 0])
    assert alive == [False, False, True]
    again, fewer_alive = apply_bitmask(scores, bitmask, [1, 0])
    assert fewer_alive == [False, True]
    assert same_bits(masked[:2], again[:2]) and same_bits(again[2], scores[2])
