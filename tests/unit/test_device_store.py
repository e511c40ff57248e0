"""What stays on a device between calls: tables and a pool of masks, lent to one call at a time."""

from __future__ import annotations

import gc
import weakref
from random import Random

import pytest
import torch

from hf_guided.backends.automaton import Language
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.reference import step_
from hf_guided.hf.device.store import DeviceStore, Start
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.vocabulary.tokens import Vocabulary
from tests import lanes


def stage() -> tuple[Vocabulary, list[Language]]:
    random = Random(3)
    vocabulary = lanes.random_vocabulary(random, 60)
    found = [lanes.random_language(random, vocabulary, states) for states in (5, 8)]
    return vocabulary, [one for one in found if one is not None]


def start(language: Language) -> Start:
    return Start(language, language.walk.dfa.start)


def tokens(rows: int, capacity: int = 6) -> torch.Tensor:
    return torch.zeros(rows, capacity, dtype=torch.int64)


def test_rows_begin_where_they_are_told_to() -> None:
    vocabulary, (one, other) = stage()
    store, buffer = DeviceStore(vocabulary), tokens(4)
    starts = [start(other), Start(), start(one), Start(other, 2)]
    stops = vocabulary.stop_token_ids
    with store.lane(starts, buffer, stop_token_ids=stops, limit=9) as lane:
        assert lane.tokens is buffer and lane.capacity == 6
        assert [language.states for language in lane.languages] == [other.walk.dfa.states, one.walk.dfa.states]
        assert lane.language_of.tolist() == [0, -1, 1, 0]
        assert lane.start.tolist() == [other.walk.dfa.start, 0, one.walk.dfa.start, 2]
        assert lane.limit.tolist() == [9] * 4
        assert all(language.needed is not None for language in lane.languages)


def test_masks_that_were_made_serve_the_next_call() -> None:
    vocabulary, (one, other) = stage()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    logits = torch.zeros(2, vocabulary.padded_size)
    with store.lane([start(one)] * 2, tokens(2), stop_token_ids=stops, limit=None) as lane:
        step_(lane, logits)
        made = int((lane.claims != 0).sum())
        assert made > 0
        first = lane.masks
        with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as meanwhile:
            assert meanwhile.masks is not first and not meanwhile.claims.any()
            assert meanwhile.languages == lane.languages and meanwhile.vocabulary is lane.vocabulary
    again = torch.zeros(1, vocabulary.padded_size)
    with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is first and int((lane.claims != 0).sum()) == made
        step_(lane, again)
    assert torch.equal(again[0], logits[0])
    with store.lane([start(other)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        assert not lane.claims.any()
    with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is first  # others in between do no harm


def test_the_oldest_pools_make_room() -> None:
    vocabulary, (one, other) = stage()
    store, stops = DeviceStore(vocabulary, kept_bytes=0), vocabulary.stop_token_ids
    kept = []
    for language in (one, one, other, one):
        with store.lane([start(language)], tokens(1), stop_token_ids=stops, limit=None) as lane:
            kept.append(lane.masks)
    assert kept[0] is kept[1] and kept[3] is not kept[0]


def test_a_pool_has_one_user_at_a_time() -> None:
    vocabulary, (one, _) = stage()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        first = lane.masks
    with (
        store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane,
        store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as meanwhile,
    ):
        assert lane.masks is first and meanwhile.masks is not first and meanwhile.claims is not lane.claims


def test_more_rows_than_there_are_scratch_slots_get_a_new_pool() -> None:
    vocabulary, (one, _) = stage()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        small = lane.masks
    with store.lane([start(one)] * 3, tokens(3), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is not small and len(lane.masks) == len(lane.claims) + 3


def test_a_call_that_breaks_off_keeps_its_pool() -> None:
    vocabulary, (one, _) = stage()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with pytest.raises(RuntimeError), store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        step_(lane, torch.zeros(1, vocabulary.padded_size))
        broken = lane.masks
        raise RuntimeError
    with store.lane([start(one)], tokens(1), stop_token_ids=stops, limit=None) as lane:
        assert lane.masks is not broken and not lane.claims.any()


def test_other_stop_tokens_and_budgets_are_other_tables() -> None:
    vocabulary, (one, _) = stage()
    store = DeviceStore(vocabulary)
    other_stops = [vocabulary.padded_size - 1]
    with store.lane([start(one)], tokens(1), stop_token_ids=vocabulary.stop_token_ids, limit=None) as lane:
        plain, stops = lane.languages, lane.vocabulary
        assert plain[0].needed is None
    with store.lane([start(one)], tokens(1), stop_token_ids=other_stops, limit=5) as lane:
        assert lane.vocabulary.stops.tolist() == other_stops and lane.vocabulary is not stops
        counted = lane.languages
        assert counted[0].needed is not None
    with store.lane([start(one)], tokens(1), stop_token_ids=other_stops, limit=None) as lane:
        assert lane.languages == counted  # they serve rows without budgets too


def test_tables_go_with_their_language() -> None:
    vocabulary, languages = stage()
    store, stops = DeviceStore(vocabulary), vocabulary.stop_token_ids
    with store.lane([start(languages[0])], tokens(1), stop_token_ids=stops, limit=None) as lane:
        tables = weakref.ref(lane.languages[0])
    with store.lane([start(languages[1])], tokens(1), stop_token_ids=stops, limit=None) as lane:
        pass
    store._idle.clear()
    gc.collect()
    assert tables() is not None
    del languages[0]
    gc.collect()
    assert tables() is None


def test_masks_of_other_tables_are_not_taken_over() -> None:
    vocabulary, (one, _) = stage()
    texts, table = VocabularyTables.of(vocabulary), LanguageTables.of(one)
    lane = Lane.allocate(texts, [table], 2, 4)
    assert Lane.allocate(texts, [table], 1, 9, masks_of=lane).masks is lane.masks
    for vocabulary_tables, tables, pool_bytes in (
        (VocabularyTables.of(vocabulary), [table], 1 << 20),
        (texts, [LanguageTables.of(one)], 1 << 20),
        (texts, [table, table], 1 << 20),
        (texts, [table], 16),
    ):
        other = Lane.allocate(vocabulary_tables, tables, 1, 4, pool_bytes=pool_bytes, masks_of=lane)
        assert other.masks is not lane.masks and not other.claims.any()
