"""The counts of a server, for Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..backends.compile import CompilerStats
from ..session.stats import SessionStats

Outcome = Literal["finished", "cancelled", "failed"]


class Metrics(Collector):
    """Counts of one server. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._generations: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._running = self._hits = self._misses = 0
        self._followed: list[SessionStats] = []
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._counters: list[tuple[str, str, Callable[[], float]]] = []
        self._compiler: Callable[[], CompilerStats] = CompilerStats
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def request(self, kind: str) -> None:
        """Count a request that was accepted; ``kind`` is that of its constraint, or "free"."""
        with self._lock:
            self._requests[kind] += 1

    def refused(self, code: str) -> None:
        """Count a request that was refused, or that failed before its answer began."""
        with self._lock:
            self._refused[code] += 1

    def looked_up(self, *, found: bool) -> None:
        """Count a look-up in the compile cache; ``found`` if the constraint is compiled, or being compiled."""
        with self._lock:
            self._hits += found
            self._misses += not found

    def begun(self) -> None:
        """Count a guided generation that begins; ``ended`` has to follow."""
        with self._lock:
            self._running += 1

    def ended(self, outcome: Outcome) -> None:
        """Count its end."""
        with self._lock:
            self._running -= 1
            self._generations[outcome] += 1

    def tokens(self, *, prompt: int = 0, answer: int = 0) -> None:
        """Count tokens of prompts and of answers, guided or free."""
        with self._lock:
            self._tokens["prompt"] += prompt
            self._tokens["answer"] += answer

    def follow(self, stats: SessionStats) -> None:
        """Read these stats too whenever the text is made."""
        with self._lock:
            self._followed.append(stats)

    def compiler(self, stats: Callable[[], CompilerStats]) -> None:
        """Read what compiling has cost here."""
        self._compiler = stats

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Read a further value whenever the text is made."""
        self._gauges.append((name, about, value))

    def counter(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Read a further count whenever the text is made; it never falls."""
        self._counters.append((name, about, value))

    def text(self) -> bytes:
        """All counts in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing in advance, so that a registry does not collect when it gets this one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        with self._lock:
            labelled = [
                ("requests", "Requests taken, by constraint.", "kind", dict(self._requests)),
                ("refused", "Requests refused, by reason.", "code", dict(self._refused)),
                ("generations", "Guided generations, by how they ended.", "outcome", dict(self._generations)),
                ("text_tokens", "Tokens of prompts and of answers.", "of", dict(self._tokens)),
            ]
            running, hits, misses = self._running, self._hits, self._misses
            masks, tokens, forced, mask_ns = sum(map(np.array, map(_work, self._followed)), np.zeros(4)).tolist()
        for name, about, label, counts in labelled:
            family = CounterMetricFamily(f"hf_guided_{name}", about, labels=[label])
            for labelled_with, count in sorted(counts.items()):
                family.add_metric([labelled_with], count)
            yield family
        compiler = self._compiler()
        for name, about, value in (
            ("compile_cache_hits", "Constraints that were compiled already.", hits),
            ("compile_cache_misses", "Constraints that had to be compiled.", misses),
            ("compile_milliseconds", "Time spent on compiling.", compiler.compile_ms),
            ("compile_evictions", "Grammars dropped for room.", compiler.evictions),
            ("masks", "Masks made, one for each row and step that needed one.", masks),
            ("mask_milliseconds", "Time spent on them.", mask_ns / 1e6),
            ("tokens", "Tokens of answers from the fast loop.", tokens),
            ("forced_tokens", "Those that took no forward pass of their own.", forced),
            *((name, about, read()) for name, about, read in self._counters),
        ):
            yield CounterMetricFamily(f"hf_guided_{name}", about, value=value)
        for name, about, value in (
            ("generations_running", "Guided generations under way.", running),
            ("compile_cache_entries", "Grammars kept.", compiler.entries),
            ("compile_cache_bytes", "Their size.", compiler.nbytes),
            ("masks_per_second", "Masks made per second spent on them.", masks / mask_ns * 1e9 if mask_ns else 0.0),
            *((name, about, read()) for name, about, read in self._gauges),
        ):
            yield GaugeMetricFamily(f"hf_guided_{name}", about, value=value)


def _work(stats: SessionStats) -> tuple[int, int, int, int]:
    """Masks, tokens, forced tokens, and nanoseconds spent on masks."""
    spent = stats.track_ns + stats.fill_ns + stats.copy_ns + stats.apply_ns
    return stats.masked_rows, stats.tokens, stats.forced_tokens, spent
