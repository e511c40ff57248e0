"""What this process holds: memory, threads, descriptors, and the caches of hf_guided with their bounds."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.backends import frame_engine
from hf_guided.backends.cache import CompiledCache

COMPILED = 12 * 2**20  # bytes of each compile cache of the test: a hundred cases; one may come to hold 10 MiB
COMPILED_NAME = "bytes of compiled constraints"
_ONE_MASK = 2**16  # bytes at most, of half a million tokens
QUIET_S = 20.0  # the worker threads of servers end after 10 s without work


@dataclass(frozen=True)
class CacheState:
    """One cache, or all caches of one kind together."""

    name: str  # content of the cache
    held: int  # bytes or entries in the fullest cache of the kind
    bound: int | None  # bound of ``held``; None if there is none
    number: int  # number of caches of this kind
    full: int  # number of caches that have forgotten something, or lack room for a large entry


@dataclass(frozen=True)
class ProcessState:
    """A snapshot of this process, taken when nothing runs."""

    rss: int  # bytes of resident memory
    threads: int  # threads of the operating system
    names: tuple[str, ...]  # names of Python's threads
    descriptors: tuple[str, ...]  # target of each open descriptor
    caches: tuple[CacheState, ...]  # caches of hf_guided


def measure(quiet_s: float = QUIET_S) -> ProcessState:
    """The state after idle threads have ended and free memory has gone back to the system."""
    time.sleep(quiet_s)
    for _ in range(3):
        gc.collect()
    _trim()
    process = psutil.Process()
    return ProcessState(
        rss=process.memory_info().rss,
        threads=process.num_threads(),
        names=tuple(sorted(thread.name for thread in threading.enumerate())),
        descriptors=tuple(_descriptors()),
        caches=tuple(caches()),
    )


def caches() -> list[CacheState]:
    """All caches of hf_guided that live now, found through the garbage collector."""
    objects: dict[type, list[Any]] = {
        kind: [] for kind in (ByteCache, CompiledCache, frame_engine.FrameMasks, functools._lru_cache_wrapper)
    }
    for thing in gc.get_objects():
        if type(thing) in objects:
            objects[type(thing)].append(thing)
    found: list[tuple[str, int, int | None, bool]] = []
    for cache in objects[functools._lru_cache_wrapper]:
        if getattr(cache, "__module__", "").startswith("hf_guided."):
            info = cache.cache_info()
            name = f"{cache.__module__.removeprefix('hf_guided.')}.{cache.__name__}"
            found.append((name, info.currsize, info.maxsize, info.currsize == info.maxsize))
    for cache in objects[ByteCache] + objects[CompiledCache]:
        stats = cache.stats()
        name = COMPILED_NAME if cache.max_bytes == COMPILED else "bytes"
        found.append((name, stats.nbytes, cache.max_bytes, stats.evictions > 0))
    for masks in objects[frame_engine.FrameMasks]:
        held, bound = masks.machine.kept_bytes, frame_engine.MASK_BYTES + _ONE_MASK  # the next one drops them all
        found.append(("bytes of masks", held, bound, held >= frame_engine.MASK_BYTES))
    return sorted(_together(found), key=lambda state: (state.name, state.bound or 0))


def _together(found: list[tuple[str, int, int | None, bool]]) -> Iterator[CacheState]:
    kinds: dict[tuple[str, int | None], list[tuple[int, bool]]] = {}
    for name, held, bound, is_full in found:
        kinds.setdefault((name, bound), []).append((held, is_full))
    for (name, bound), each in kinds.items():
        yield CacheState(name, max(held for held, _ in each), bound, len(each), sum(full for _, full in each))


def _trim() -> None:
    """glibc keeps what was freed; other allocators have no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _descriptors() -> Iterator[str]:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the listing itself
