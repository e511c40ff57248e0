"""The device store keeps tables and a pool of masks between calls, and lends the pool to one call at a time."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
import torch

from hf_guided.backends.automaton import Language
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.reference import step_
from hf_guided.hf.device.row_start import Start
from hf_guided.hf.device.store import DeviceStore
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.vocabulary.tokens import Vocabulary
from tests import lanes


def vocabulary_and_languages() -> tuple[Vocabulary, list[Language]]:
    random = Random(3)
    vocabulary = lanes.random_vocabulary(random, 60)
    languages = [lanes.random_language(random, vocabulary, states) for states in (5, 8)]
    return vocabulary, [language for language in languages if language is not None]


def start(language: Language) -> Start:
    return Start(language, language.walk.dfa.start)


def token_buffer(rows: int, capacity: int = 6) -> torch.Tensor:
    return torch.zeros(rows, capacity, dtype=torch.int64)


def test_rows_start_in_the_given_states() -> None:
    vocabulary, (first, second) = vocabulary_and_languages()
    store, buffer = DeviceStore(vocabulary), token_buffer(4)
    starts = [start(second), Start(), start(first), Start(second, 2)]
    stops = vocabulary.stop_token_ids
    with store.lane(starts, buffer, stop_token_ids=stops, limit=9) as lane:
        assert lane.tokens is buffer and lane.capacity == 6
        assert [language.states for language in lane.languages] == [second.walk.dfa.states, first.walk.dfa.states]
        assert lane.language_of.tolist() == [0, -1, 1, 0]
        assert lane.start.tolist() == [second.walk.dfa.start, 0, first.walk.dfa.start, 2]
        assert lane.limit.tolist() == [9] * 4
        assert all(language.needed is not None for language in lane.languages)


def test_next_call_reuses_the_masks() -> None:
    vocabulary, (language, other_language) = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    logits = torch.zeros(2, vocabulary.padded_size)
    with store.lane([start(language)] * 2, token_buffer(2), stop_token_ids=stops, limit=None) as lane:
        step_(lane, logits)
        num_masks = int((lane.claims != 0).sum())
        assert num_masks > 0
        pool = lane.masks
        with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as meanwhile:
            assert meanwhile.masks is not pool and not meanwhile.claims.any()
            assert meanwhile.languages == lane.languages and meanwhile.vocabulary is lane.vocabulary
    again = torch.zeros(1, vocabulary.padded_size)
    with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is pool and int((lane.claims != 0).sum()) == num_masks
        step_(lane, again)
    assert torch.equal(again[0], logits[0])
    with store.lane([start(other_language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        assert not lane.claims.any()
    with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is pool  # the call in between has not evicted it


def test_oldest_pool_is_evicted() -> None:
    vocabulary, (first, second) = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary, kept_bytes=0), vocabulary.stop_token_ids
    pools = []
    for language in (first, first, second, first):
        with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
            pools.append(lane.masks)
    assert pools[0] is pools[1] and pools[3] is not pools[0]


def test_pool_is_used_by_one_call_at_a_time() -> None:
    vocabulary, (language, _) = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        pool = lane.masks
    with (
        store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane,
        store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as meanwhile,
    ):
        assert lane.masks is pool and meanwhile.masks is not pool and meanwhile.claims is not lane.claims


def test_more_rows_than_scratch_slots_allocate_a_new_pool() -> None:
    vocabulary, (language, _) = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        small = lane.masks
    with store.lane([start(language)] * 3, token_buffer(3), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is not small and len(lane.masks) == len(lane.claims) + 3


def test_pool_of_a_failed_call_is_not_reused() -> None:
    vocabulary, (language, _) = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with (
        pytest.raises(RuntimeError),
        store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane,
    ):
        step_(lane, torch.zeros(1, vocabulary.padded_size))
        broken = lane.masks
        raise RuntimeError
    with store.lane([start(language)], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is not broken and not lane.claims.any()


def test_other_stop_tokens_or_a_budget_need_new_tables() -> None:
    vocabulary, (language, _) = vocabulary_and_languages()
    store = DeviceStore(vocabulary)
    other_stops = [vocabulary.padded_size - 1]
    with store.lane([start(language)], token_buffer(1), stop_token_ids=vocabulary.stop_token_ids, limit=None) as lane:
        plain, stops = lane.languages, lane.vocabulary
        assert plain[0].needed is None
    with store.lane([start(language)], token_buffer(1), stop_token_ids=other_stops, limit=5) as lane:
        assert lane.vocabulary.stops.tolist() == other_stops and lane.vocabulary is not stops
        counted = lane.languages
        assert counted[0].needed is not None
    with store.lane([start(language)], token_buffer(1), stop_token_ids=other_stops, limit=None) as lane:
        assert lane.languages == counted  # they serve rows without budgets too


def test_tables_are_freed_with_their_language() -> None:
    vocabulary, languages = vocabulary_and_languages()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(languages[0])], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        tables = weakref.ref(lane.languages[0])
    with store.lane([start(languages[1])], token_buffer(1), stop_token_ids=stops, limit=None) as lane:
        pass
    store._idle.clear()
    gc.collect()
    assert tables() is not None
    del languages[0]
    gc.collect()
    assert tables() is None


def test_masks_are_not_reused_for_other_tables() -> None:
    vocabulary, (language, _) = vocabulary_and_languages()
    texts, table = VocabularyTables.of(vocabulary), LanguageTables.of(language)
    lane = Lane.allocate(texts, [table], 2, 4)
    assert Lane.allocate(texts, [table], 1, 9, masks_of=lane).masks is lane.masks
    for vocabulary_tables, tables, pool_bytes in (
        (VocabularyTables.of(vocabulary), [table], 1 << 20),
        (texts, [LanguageTables.of(language)], 1 << 20),
        (texts, [table, table], 1 << 20),
        (texts, [table], 16),
    ):
        other = Lane.allocate(vocabulary_tables, tables, 1, 4, pool_bytes=pool_bytes, masks_of=lane)
        assert other.masks is not lane.masks and not other.claims.any()
