"""The CUDA source, run as plain C++ with sanitizers, agrees with the host lane's matchers and the torch reference."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hf_guided.hf.device.lane import FORBID_ALL, LEAVE_ALONE
from hf_guided.hf.device.reference import apply_slots_
from tests import lanes
from tests.effort import repeats
from tests.kernel_harness import HEADER, Harness, HarnessFailure, build

examples = settings(max_examples=repeats(25, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])


def shuffled_step(harness: Harness, random: Random) -> lanes.Step:
    def step(lane, logits, alive):
        harness.step_(lane, logits, alive, blocks=random.randint(1, 5), seed=random.getrandbits(32))

    return step


@examples
@given(seed=st.integers(0, 2**32))
def test_step_agrees_with_the_host_lane(harness, seed):
    random = Random(seed)
    batch = lanes.random_batch(random)
    assume(batch is not None)
    lanes.run(random, batch, shuffled_step(harness, random), 4)


@pytest.mark.parametrize("rows", [0, 1, 257])
def test_step_agrees_for_many_rows(harness, rows):
    random = Random(rows)
    vocabulary = lanes.random_vocabulary(random, 300, padding=12)
    languages = [lanes.random_language(random, vocabulary, 12) for _ in range(2)]
    batch = lanes.Batch.of(vocabulary, languages, rows, 40)
    for row in range(rows):
        lanes.begin_anew(random, batch, row)
    lanes.run(random, batch, shuffled_step(harness, random), 2)


@pytest.mark.parametrize("width", [32_001, 32_017, 32_032, 262_208])
def test_step_agrees_for_large_vocabularies(harness, width):
    random = Random(width)
    vocabulary = lanes.random_vocabulary(random, width - 17, padding=17, stops=2)
    language = lanes.random_language(random, vocabulary, 20)
    batch = lanes.Batch.of(vocabulary, [language], 2, 8, wide=width % 2 == 0)
    lanes.begin_anew(random, batch, 0)
    lanes.run(random, batch, shuffled_step(harness, random), 2)


@examples
@given(seed=st.integers(0, 2**32))
def test_apply_agrees_with_the_reference(harness, seed):
    random = Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, slots = random.randint(0, 5), random.randint(1, 4)
    width = random.choice((1, 2, 7, 8, 9, 31, 32, 33, 100, 257, 5000))
    words = max(0, (width + 31) // 32 + random.choice((0, 0, 0, -1, 3)))
    share = random.choice((0.0, 0.01, 0.5, 0.99, 1.0))
    bits = torch.rand(slots, words * 32, generator=generator) < share
    wide_masks = torch.zeros(
        slots, words + random.randint(0, 3), dtype=torch.int32
    )  # the masks are a view of wider rows
    masks = wide_masks[:, :words]
    masks[:] = (bits.view(slots, words, 32).to(torch.int64) << torch.arange(32)).sum(2).to(torch.int32)
    one_to_one = rows <= slots and random.random() < 0.3
    choice = torch.randint(FORBID_ALL, slots, (rows,), generator=generator, dtype=torch.int32)
    row_slots = None if one_to_one else choice
    logits = lanes.random_logits(random, rows, width, random.choice(lanes.DTYPES))
    whole_storage = torch.empty(0, dtype=logits.dtype).set_(logits.untyped_storage())  # including the gaps between rows
    expected = whole_storage.clone()
    expected_logits = expected.as_strided(logits.shape, logits.stride(), logits.storage_offset())
    alive, expected_alive = (torch.zeros(rows, dtype=torch.int32) for _ in range(2))
    wants_alive = random.random() < 0.7
    apply_slots_(expected_logits, masks, row_slots, expected_alive if wants_alive else None)
    harness.apply_(logits, masks, row_slots, alive if wants_alive else None, blocks=random.randint(1, 4), seed=seed)
    assert lanes.same_bits(whole_storage, expected)
    assert torch.equal(alive, expected_alive)


def test_only_rows_with_a_mask_are_written(harness):
    logits = torch.randn(3, 40)
    before = logits.clone()
    masks = torch.tensor([[0b101, 0]], dtype=torch.int32)
    alive = torch.zeros(3, dtype=torch.int32)
    harness.apply_(logits, masks, torch.tensor([LEAVE_ALONE, 0, FORBID_ALL], dtype=torch.int32), alive)
    assert torch.equal(logits[0], before[0])
    assert torch.isfinite(logits).nonzero().tolist()[40:] == [[1, 0], [1, 2]]
    assert alive.tolist() == [1, 1, 0]


@pytest.mark.parametrize("length", [-1, 5])
def test_invalid_length_forbids_all_tokens(harness, length):
    random = Random(3)
    vocabulary = lanes.random_vocabulary(random, 60)
    batch = lanes.Batch.of(vocabulary, [lanes.random_language(random, vocabulary, 5)], 2, 4)
    batch.assign(0, 0)
    batch.lane.length[:] = length
    logits = torch.zeros(2, 60)
    harness.step_(batch.lane, logits)
    assert torch.isinf(logits[0]).all()
    assert not logits[1].any()  # an unconstrained row


MUTANTS = {
    "state in place": (
        ("history_line[i] = state;", "history_line[0] = state;"),
        ("history_line[common - 1]", "history_line[0]"),
    ),
    "state in place, advanced by the last token alone": (
        ("if (!t) common = compared;", "if (!t) common = now > 0 ? now - 1 : 0;"),
        ("i < compared;", "i < 0;"),
        ("history_line[common - 1]", "history_line[0]"),
        ("history_line[i] = state;", "history_line[0] = state;"),
    ),
    "shadow not written": (("shadow_line[i] = token == (gb_i32)token ? (gb_i32)token : -1;", ""),),
    "losers of a claim trust any holder": (("if (!holder || holder == masked) {", "{"),),
    "budgets that bind use the pool": (("if (!binds && language.pool_slots)", "if (language.pool_slots)"),),
    "list not emptied": (("*work_count = 0;", "{}"),),
    "one token too many in a budget": (
        ("language.needed[target] < item.tokens_left", "language.needed[target] <= item.tokens_left"),
    ),
    "tokens without a way to the end": (
        ("return language.flags[target] & GB_CAN_END ? target : GB_DEAD;", "return target;"),
    ),
    "single forbidden tokens not written": (("line[token] = (Bits)Format::NEG_INF;", "{}"),),
    "thinking need not end": (("return must_end && place >= 0", "return !must_end && place < 0"),),
    "thinking may go on for one token more": (("(until >= 0 && now >= until)", "(until >= 0 && now > until)"),),
    "a token too many of thinking is taken": (("until >= 0 && i >= until", "until >= 0 && i > until + 1"),),
    "thinking leaves the answer a token too few": (
        ("left <= language.forced_within", "left < language.forced_within"),
    ),
    "any token where one is due": (("return token == forced[0] ?", "return token >= forced[0] ?"),),
    "last quad of a row too long": (("units = (numbers - head) / quad", "units = (numbers - head + quad - 1) / quad"),),
}


def test_mutants_change_the_kernel_as_it_is_now() -> None:
    source = HEADER.read_text()
    assert not [text for changes in MUTANTS.values() for text, _ in changes if text not in source]


# These check the tests themselves. Each mutant is compiled separately.
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_kernel_are_detected(name, tmp_path: Path):
    source = HEADER.read_text()
    for text, other in MUTANTS[name]:
        assert text in source
        source = source.replace(text, other)
    mutant = Harness(build(tmp_path, source))
    try:
        with pytest.raises((AssertionError, HarnessFailure)):
            for seed in range(60):
                random = Random(seed)
                batch = lanes.random_batch(random)
                if batch is not None:
                    lanes.run(random, batch, shuffled_step(mutant, random), 6)
    finally:
        mutant.close()
