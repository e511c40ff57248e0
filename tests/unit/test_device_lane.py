"""Lanes and their tables: the layout of a vocabulary, the pools of masks, ids that are no tokens."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from hf_guided.backends.automaton import AutomatonBackend, AutomatonEngine
from hf_guided.constraints.values import Regex
from hf_guided.hf.device.lane import DEAD, STOPPED, Lane
from hf_guided.hf.device.reference import advance, fill_pool_, mask_of, step_
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.vocabulary.bitmask import unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests import lanes
from tests.kernel_harness import Harness
from tests.toy import LetterTokenizer


def vocabulary_of(*texts: bytes | None, stops: tuple[int, ...], padding: int = 0) -> Vocabulary:
    names = LetterTokenizer([repr(text) for text in texts])
    return Vocabulary(texts, stops, len(texts) + padding, names)  # type: ignore[arg-type]


def test_each_token_starts_at_a_word_of_eight_bytes() -> None:
    vocabulary = vocabulary_of(b"a", None, b"12345678", b"", b"123456789\xff", stops=(1,))
    tables = VocabularyTables.of(vocabulary)
    assert tables.token_length.tolist() == [1, 0, 8, 0, 10]
    assert tables.token_start.tolist() == [0, 1, 1, 2, 2]
    data = tables.token_bytes.numpy().tobytes()
    assert data == b"a".ljust(8, b"\0") + b"12345678" + b"123456789\xff".ljust(16, b"\0")


def test_stop_token_with_bytes_is_not_text() -> None:
    tables = VocabularyTables.of(vocabulary_of(b"a", b"\n", b"b", stops=(0,), padding=3), [1, 5])
    assert tables.token_length.tolist() == [1, 0, 1]
    assert tables.stops.tolist() == [1, 5]


@pytest.mark.parametrize("token", [0, -1, 3, 1 << 31, 1 << 32, -(1 << 40), 1 << 62])
def test_ids_that_are_no_tokens_close_the_row(token: int) -> None:
    random = Random(1)
    vocabulary = vocabulary_of(None, b"a", b"b", stops=(0,))
    language = lanes.random_language(random, vocabulary, 3)
    assert language is not None
    batch = lanes.Batch.of(vocabulary, [language], 1, 4)
    batch.assign(0, 0)
    batch.write(0, [token])
    advance(batch.lane)
    stops = token == 0 and bool(language.accepting[language.walk.dfa.start])
    assert batch.lane.state_of.item() == (STOPPED if stops else DEAD)


@pytest.mark.parametrize("pool_bytes", [0, 40, 100, 1 << 20])
def test_pools_stay_within_their_bytes_and_do_not_overlap(pool_bytes: int) -> None:
    random = Random(2)
    vocabulary = lanes.random_vocabulary(random, 40)
    languages = [lanes.random_language(random, vocabulary, states) for states in (3, 9, 6)]
    tables = [LanguageTables.of(language) for language in languages if language is not None]
    assert len(tables) == 3
    lane = Lane.allocate(VocabularyTables.of(vocabulary), tables, 5, 7, pool_bytes=pool_bytes)
    assert 4 * lane.masks.shape[1] * len(lane.claims) <= pool_bytes
    slots = [slot for first, count in lane.pools for slot in range(first, first + count)]
    assert slots == list(range(len(lane.claims)))
    assert len(lane.masks) == len(lane.claims) + 5
    if pool_bytes == 1 << 20:
        assert [count for _, count in lane.pools] == [table.states for table in tables]


def test_masks_of_all_states_equal_those_of_the_host() -> None:
    random = Random(4)
    vocabulary = lanes.random_vocabulary(random, 700, padding=9)
    language = lanes.random_language(random, vocabulary, 15)
    assert language is not None
    tables, tokens = LanguageTables.of(language, budget=True), VocabularyTables.of(vocabulary)
    needed, masks = language.budget
    for state in range(1, tables.states):
        stops = torch.zeros(vocabulary.padded_size, dtype=torch.bool)
        stops[list(vocabulary.stop_token_ids)] = language.accepting[state]
        for left in (-1, *range(int(needed.needed[state]), tables.worst + 1)):
            words = language.masks.of(state) if left < 0 else masks.of(state, left)
            expected = unpack(torch.tensor(words).unsqueeze(0), vocabulary.padded_size)[0] | stops
            actual = unpack(mask_of(tokens, tables, state, left).unsqueeze(0), vocabulary.padded_size)[0]
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("pool_bytes", [0, 40, 1 << 20])
def test_fill_pool_computes_the_masks_of_all_states(pool_bytes: int) -> None:
    random = Random(6)
    vocabulary = lanes.random_vocabulary(random, 60)
    drawn = [lanes.random_language(random, vocabulary, states) for states in (5, 8)]
    languages = [language for language in drawn if language is not None]
    assert len(languages) == 2
    batch = lanes.Batch.of(vocabulary, languages, 4, 9, pool_bytes=pool_bytes)
    lane = batch.lane
    for row in range(2):  # some masks exist before
        batch.assign(row, row)
    advance(lane)
    before = int(lane.work_count)
    assert before == 2
    fill_pool_(lane)
    held = [int(state) for state in lane.claims if state]
    if pool_bytes == 1 << 20:
        assert len(held) == sum(int(np.count_nonzero(language.can_end)) for language in languages)
    assert len(lane.claim_all()) == 0
    for (first, slots), tables in zip(lane.pools, lane.languages, strict=True):
        already_listed = {int(item[0]) for item in lane.work[:before]}  # these were on the work list already
        for slot in range(first, first + slots):
            state = int(lane.claims[slot])
            if state and slot not in already_listed:
                assert torch.equal(lane.masks[slot], mask_of(lane.vocabulary, tables, state))


@pytest.fixture(params=["torch", "kernel"])
def step(request: pytest.FixtureRequest) -> lanes.Step:
    """Both implementations in turn."""
    if request.param == "torch":
        return step_
    harness: Harness = request.getfixturevalue("harness")
    return harness.step_


def test_step_walks_only_new_tokens(step: lanes.Step) -> None:
    vocabulary = vocabulary_of(None, b"a", b"b", stops=(0,))
    compiled = AutomatonBackend(vocabulary).compile(Regex("[ab]{9}"))
    engine = compiled.new_engine()
    assert isinstance(engine, AutomatonEngine)
    batch = lanes.Batch.of(vocabulary, [engine._language], 1, 9)
    batch.assign(0, 0)
    batch.write(0, [1, 1, 2])
    lane, logits = batch.lane, torch.zeros(1, 3)
    step(lane, logits, None)
    correct_state = lane.history[0, 2].item()
    lane.history[0, 2] = STOPPED  # a walk from the start would overwrite this
    batch.write(0, [1, 1, 2, 1])
    step(lane, logits, None)
    assert lane.state_of.item() == STOPPED
    batch.write(0, [1, 2, 2])  # everything after the first token is new
    step(lane, logits, None)
    assert lane.state_of.item() == correct_state
    assert lane.known.item() == 3


@pytest.mark.parametrize("entry", [np.uint16, np.uint32])
def test_states_above_half_the_range_of_their_type(step: lanes.Step, entry: type) -> None:
    random = Random(9)
    vocabulary = lanes.random_vocabulary(random, 90)
    language = lanes.random_language(random, vocabulary, 6)
    assert language is not None
    small = LanguageTables.of(language)
    offset = 50_000  # rows that no transition reaches
    table = np.zeros((offset + small.states, small.table.shape[1]), entry)
    moves = small.table.numpy().astype(np.int64)
    table[offset:] = np.where(moves != 0, moves + offset, 0)
    flags = torch.zeros(len(table), dtype=torch.uint8)
    flags[offset:] = small.flags
    large = replace(small, table=torch.from_numpy(table), flags=flags, start=small.start + offset)
    tokens, logits = VocabularyTables.of(vocabulary), torch.zeros(small.states - 1, 90)
    lane = Lane.allocate(tokens, [large], small.states - 1, 3)
    for row in range(small.states - 1):
        lane.assign(row, 0, start=offset + row + 1)
    step(lane, logits, None)
    for row in range(small.states - 1):
        expected = mask_of(tokens, small, row + 1)
        assert torch.equal(lane.masks[int(lane.slot_of[row])], expected)
