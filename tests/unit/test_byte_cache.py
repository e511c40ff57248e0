"""The LRU cache with a bound in bytes, and the options of the compiler in environment variables."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

import pytest

from hf_guided.automaton.lru_bytes import ByteCache, CacheStats
from hf_guided.backends.growing_cache import GrowingCache
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


@dataclass
class GrowingItem:
    nbytes: int
    most_bytes: int = 20


def test_what_has_grown_is_weighed_again_while_others_come() -> None:
    """All grow to five times their size: together they stay within half more than the bound."""
    cache: GrowingCache[GrowingItem] = GrowingCache(1000)
    kept: dict[int, GrowingItem] = {}
    for key in range(2000):
        kept[key] = GrowingItem(4)
        cache.put(key, kept[key])
        assert cache.stats().nbytes <= 1000
        kept[key].nbytes = 20
        kept = {key: item for key, item in kept.items() if key in cache}
        assert sum(item.nbytes for item in kept.values()) <= 1500
    assert len(kept) >= 50, "nearly as many as there is room for"
    assert key in kept, "the last one is never the first to go"


def test_what_grows_by_use_alone_is_weighed_again() -> None:
    """Nothing new comes: the same values are looked up in turns, and grow each time."""
    cache: GrowingCache[GrowingItem] = GrowingCache(1000)
    kept = {key: GrowingItem(4) for key in range(250)}
    for key, item in kept.items():
        cache.put(key, item)
    assert len(cache) == 250
    for key in range(250):
        if (found := cache.get(key)) is not None:
            found.nbytes = 20
        assert cache.stats().nbytes <= 1000
        held = sum(item.nbytes for key, item in kept.items() if key in cache)
        assert held <= 2000, key
    assert len(cache) < 100


def test_a_size_that_is_not_known_leaves_the_turns_as_they_were() -> None:
    class Broken(GrowingItem):
        is_broken = False

        def __getattribute__(self, name: str) -> object:
            if name == "nbytes" and type(self).is_broken:
                raise RuntimeError("no size")
            return super().__getattribute__(name)

    cache: GrowingCache[GrowingItem] = GrowingCache(100)
    cache.put("a", Broken(5))
    Broken.is_broken = True
    with pytest.raises(RuntimeError, match="no size"):
        cache.put("b", GrowingItem(5))
    Broken.is_broken = False
    cache.put("c", GrowingItem(5))
    assert sorted(cache._turns) == ["a", "b", "c"]
    assert cache.stats().nbytes == 15


def test_what_may_grow_larger_than_the_cache_is_not_kept() -> None:
    cache: GrowingCache[GrowingItem] = GrowingCache(100)
    cache.put("a", GrowingItem(1, 100))
    cache.put("b", GrowingItem(1, 101))
    assert ("a" in cache, "b" in cache, cache.stats().evictions) == (True, False, 1)


def test_a_value_that_is_replaced_is_weighed_once_each_turn() -> None:
    cache: GrowingCache[GrowingItem] = GrowingCache(100)
    for _ in range(50):
        cache.put("a", GrowingItem(7))
    cache.put("b", GrowingItem(5))
    assert (len(cache), cache.stats().nbytes, len(cache._turns)) == (2, 12, 2)


def test_options_are_read_from_the_environment() -> None:
    assert CompilerOptions.from_env({}) == CompilerOptions()
    read = CompilerOptions.from_env(
        {
            "HF_GUIDED_COMPILE_WORKERS": "3",
            "HF_GUIDED_COMPILE_CACHE_BYTES": "1000",
            "HF_GUIDED_COMPILE_MAX_FAILURES": "",
            "HF_GUIDED_COMPILE_CPU_S": "none",
            "HF_GUIDED_COMPILE_MEMORY_BYTES": "2000",
        }
    )
    assert read == CompilerOptions(workers=3, cache_bytes=1000, cpu_s=None, memory_bytes=2000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS", "many"),
        ("WORKERS", "0"),
        ("CACHE_BYTES", "-1"),
        ("CPU_S", "soon"),
        ("CPU_S", "0"),
        ("MEMORY_BYTES", "0"),
    ],
)
def test_error_for_an_invalid_variable_names_it(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"HF_GUIDED_COMPILE_{name}='{value}'"):
        CompilerOptions.from_env({f"HF_GUIDED_COMPILE_{name}": value})
