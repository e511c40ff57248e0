"""The counts of a server, for Prometheus."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Literal

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..backends.compile import CompilerStats
from ..session.stats import SessionStats

Outcome = Literal["finished", "cancelled", "failed"]
_LABELLED = {  # what ``count`` counts by a label: its meaning, and the label's name
    "requests": ("Requests taken, by constraint.", "kind"),
    "refused": ("Requests refused, by reason.", "code"),
    "generations": ("Guided generations, by how they ended.", "outcome"),
    "text_tokens": ("Tokens of prompts and of answers.", "of"),
}
_LOST_BOUNDS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, math.inf)


class Metrics(Collector):
    """Counts of one server. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lost = [0] * len(_LOST_BOUNDS)  # answers by ``log_mass``
        self._lost_sum = 0.0
        self._followed: list[SessionStats] = []
        self._read: list[tuple[type[Metric], str, str, Callable[[], float]]] = []
        self._compiler: Callable[[], CompilerStats] = CompilerStats
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count(self, name: str, label: str = "", number: int = 1) -> None:
        """Add to a count; those without a label are "compile_cache_hits", its "misses", and "generations_running"."""
        with self._lock:
            self._counts[name, label] += number

    def observe_log_mass(self, log_mass: float) -> None:
        """Count an answer whose ``GuidedResult.log_mass`` is known."""
        with self._lock:
            self._lost[bisect_left(_LOST_BOUNDS, -log_mass)] += 1
            self._lost_sum -= log_mass

    def follow(self, stats: SessionStats) -> None:
        """Read these stats too whenever the text is made."""
        with self._lock:
            self._followed.append(stats)

    def compiler(self, stats: Callable[[], CompilerStats]) -> None:
        """Read what compiling has cost here."""
        self._compiler = stats

    def read(self, name: str, about: str, value: Callable[[], float], *, falls: bool = True) -> None:
        """Read a further value whenever the text is made, or a count, which never falls."""
        self._read.append((GaugeMetricFamily if falls else CounterMetricFamily, name, about, value))

    def text(self) -> bytes:
        """Write all counts in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Describe nothing in advance, so that a registry does not collect when it gets this one."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        with self._lock:
            counts, lost, lost_sum = self._counts.copy(), list(accumulate(self._lost)), self._lost_sum
            masks, tokens, forced, mask_ns = sum(map(np.array, map(_work, self._followed)), np.zeros(4)).tolist()
        for name, (about, label) in _LABELLED.items():
            family = CounterMetricFamily(f"hf_guided_{name}", about, labels=[label])
            for (counted, value), number in sorted(counts.items()):
                if counted == name:
                    family.add_metric([value], number)
            yield family
        about = "Minus log_mass of answers with log probabilities: the negative logarithm of what their format left."
        bounds = ["+Inf" if bound == math.inf else str(bound) for bound in _LOST_BOUNDS]
        buckets = list(zip(bounds, map(float, lost), strict=True))
        yield HistogramMetricFamily("hf_guided_minus_log_mass", about, buckets=buckets, sum_value=lost_sum)
        compiler = self._compiler()
        per_second = masks / mask_ns * 1e9 if mask_ns else 0.0
        for kind, name, about, number in (
            (CounterMetricFamily, "compile_cache_hits", "Constraints that were compiled already.", None),
            (CounterMetricFamily, "compile_cache_misses", "Constraints that had to be compiled.", None),
            (CounterMetricFamily, "compile_milliseconds", "Time spent on compiling.", compiler.compile_ms),
            (CounterMetricFamily, "compile_evictions", "Grammars dropped for room.", compiler.evictions),
            (CounterMetricFamily, "masks", "Masks made, one for each row and step that needed one.", masks),
            (CounterMetricFamily, "mask_milliseconds", "Time spent on them.", mask_ns / 1e6),
            (CounterMetricFamily, "tokens", "Tokens of answers from the fast loop.", tokens),
            (CounterMetricFamily, "forced_tokens", "Those that took no forward pass of their own.", forced),
            (GaugeMetricFamily, "generations_running", "Guided generations under way.", None),
            (GaugeMetricFamily, "compile_cache_entries", "Grammars kept.", compiler.entries),
            (GaugeMetricFamily, "compile_cache_bytes", "Their size.", compiler.nbytes),
            (GaugeMetricFamily, "masks_per_second", "Masks made per second spent on them.", per_second),
            *((kind, name, about, read()) for kind, name, about, read in self._read),
        ):
            yield kind(f"hf_guided_{name}", about, value=counts[name, ""] if number is None else number)


def _work(stats: SessionStats) -> tuple[int, int, int, int]:
    """Masks, tokens, forced tokens, and nanoseconds spent on masks."""
    spent = stats.track_ns + stats.fill_ns + stats.copy_ns + stats.apply_ns
    return stats.masked_rows, stats.tokens, stats.forced_tokens, spent
