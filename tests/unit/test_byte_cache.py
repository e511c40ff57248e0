"""The LRU cache with a bound in bytes, and the options of the compiler in environment variables."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest

from hf_guided.automaton.lru_bytes import ByteCache, CacheStats, Growth
from hf_guided.backends.cache import CompiledCache
from hf_guided.options import CompilerOptions


@dataclass(frozen=True)
class Item:
    nbytes: int


def test_least_recently_used_value_is_evicted_first() -> None:
    cache: ByteCache[Item] = ByteCache(30)
    for name in "abc":
        cache.put(name, Item(10))
    assert cache.get("a") == Item(10)
    cache.put("d", Item(10))
    assert [name in cache for name in "abcd"] == [True, False, True, True]
    assert cache.get("b") is None
    assert cache.stats() == CacheStats(hits=1, misses=1, evictions=1, entries=3, nbytes=30)


def test_large_value_evicts_several_others() -> None:
    cache: ByteCache[Item] = ByteCache(30)
    for name in "abc":
        cache.put(name, Item(10))
    cache.put("d", Item(25))
    assert ("d" in cache, len(cache), cache.stats().nbytes, cache.stats().evictions) == (True, 1, 25, 3)


def test_value_larger_than_the_cache_is_not_stored_and_evicts_nothing() -> None:
    cache: ByteCache[Item] = ByteCache(30)
    cache.put("a", Item(30))
    cache.put("b", Item(31))
    assert cache.get("a") == Item(30)
    assert cache.get("b") is None
    assert cache.stats().evictions == 1


def test_replacing_a_value_counts_its_size_once() -> None:
    cache: ByteCache[Item] = ByteCache(30)
    cache.put("a", Item(10))
    cache.put("a", Item(20))
    assert (cache.get("a"), cache.stats().nbytes, cache.stats().evictions) == (Item(20), 20, 0)


def test_bound_holds_with_many_threads() -> None:
    cache: ByteCache[Item] = ByteCache(100)
    over: list[int] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(500):
            cache.put(dice.randrange(20), Item(dice.randrange(40)))
            cache.get(dice.randrange(20))
            if cache.stats().nbytes > 100:
                over.append(cache.stats().nbytes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = cache.stats()
    held = [item.nbytes for key in range(20) if (item := cache.get(key))]
    assert not over
    assert (stats.nbytes, stats.entries) == (sum(held), len(held))
    assert stats.hits + stats.misses == 8 * 500


class GrowingItem:
    def __init__(self, at_once: int, nbytes: int = 20):
        self.at_once, self.nbytes = at_once, nbytes
        self.growth = Growth()

    @property
    def held_bytes(self) -> int:
        return self.at_once + self.growth.nbytes


STEP = 2**16


def test_what_has_grown_makes_room_at_once() -> None:
    """All grow to five times their size, by small steps: together they stay within a step each of the bound."""
    cache: CompiledCache = CompiledCache(100 * STEP)
    kept: dict[int, GrowingItem] = {}
    held: dict[int, int] = {}
    for key in range(500):
        kept[key] = GrowingItem(STEP)
        cache.put(key, kept[key])
        for grown in range(0, 4 * STEP + 1, STEP // 4):
            kept[key].growth.update(grown)
            held[key] = STEP + grown
            kept = {key: item for key, item in kept.items() if key in cache}
            assert cache.stats().nbytes == sum(item.held_bytes for item in kept.values()) <= 100 * STEP
            assert sum(held[key] for key in kept) <= (100 + len(kept)) * STEP
    assert len(kept) == 20, "as many as there is room for"
    assert key in kept, "the last one is never the first to go"


def test_what_shrinks_leaves_room() -> None:
    cache: CompiledCache = CompiledCache(10 * STEP)
    items = [GrowingItem(STEP) for _ in range(2)]
    for key, item in enumerate(items):
        cache.put(key, item)
        item.growth.update(4 * STEP)
    items[0].growth.update(0)
    assert cache.stats().nbytes == 6 * STEP
    items[0].growth.update(STEP - 1)
    assert cache.stats().nbytes == 6 * STEP, "less than a step is reported with the next one"


def test_growth_that_nothing_holds_is_not_counted() -> None:
    """A row may still read what the cache has dropped, or replaced, or what was kept by a cache that is gone."""
    cache: CompiledCache = CompiledCache(10 * STEP)
    dropped, replaced, kept = GrowingItem(9 * STEP), GrowingItem(STEP), GrowingItem(2 * STEP)
    other: CompiledCache = CompiledCache(10 * STEP)
    other.put("a", kept)
    cache.put("a", dropped)
    cache.put("b", replaced)
    cache.put("c", replaced)
    assert (len(cache), cache.stats().nbytes) == (2, 2 * STEP)
    cache.put("b", kept)
    del other
    dropped.growth.update(STEP)
    assert cache.stats().nbytes == 3 * STEP
    replaced.growth.update(STEP)
    assert cache.stats().nbytes == 4 * STEP, "it is still held under one key"
    kept.growth.update(STEP)
    assert (len(cache), cache.stats().nbytes) == (2, 5 * STEP)


def test_what_grows_larger_than_the_cache_goes_alone() -> None:
    cache: CompiledCache = CompiledCache(10 * STEP)
    small, large = GrowingItem(STEP), GrowingItem(STEP)
    cache.put("small", small)
    cache.put("large", large)
    large.growth.update(10 * STEP)
    assert ("small" in cache, "large" in cache, cache.stats().nbytes) == (True, False, STEP)


@pytest.mark.parametrize("seed", range(5))
def test_values_that_grow_while_others_are_put_are_counted_exactly(seed: int) -> None:
    """Each is put on one thread while it grows on another."""
    cache: CompiledCache = CompiledCache(2**40)
    items = [GrowingItem(STEP) for _ in range(4)]

    def grow(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        for _ in range(300):
            items[number].growth.update(dice.randrange(20) * STEP)

    def put() -> None:
        for key in range(200):
            cache.put((key, key % 4), items[key % 4])

    threads = [threading.Thread(target=grow, args=(number,)) for number in range(4)] + [threading.Thread(target=put)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats().nbytes == 50 * sum(item.held_bytes for item in items)


def test_what_may_grow_larger_than_the_cache_is_not_kept() -> None:
    cache: CompiledCache = CompiledCache(100)
    cache.put("a", GrowingItem(1, 100))
    cache.put("b", GrowingItem(1, 101))
    assert ("a" in cache, "b" in cache, cache.stats().evictions) == (True, False, 1)


def test_options_are_read_from_the_environment() -> None:
    assert CompilerOptions.from_env({}) == CompilerOptions()
    read = CompilerOptions.from_env(
        {
            "HF_GUIDED_COMPILE_WORKERS": "3",
            "HF_GUIDED_COMPILE_CACHE_BYTES": "1000",
            "HF_GUIDED_COMPILE_MAX_FAILURES": "",
        }
    )
    assert read == CompilerOptions(workers=3, cache_bytes=1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS", "many"),
        ("WORKERS", "0"),
        ("CACHE_BYTES", "-1"),
    ],
)
def test_error_for_an_invalid_variable_names_it(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"HF_GUIDED_COMPILE_{name}='{value}'"):
        CompilerOptions.from_env({f"HF_GUIDED_COMPILE_{name}": value})
