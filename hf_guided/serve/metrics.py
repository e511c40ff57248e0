"""The counts of a server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np

from ..backends.compiler import CompilerStats
from ..session.stats import SessionStats

Outcome = Literal["finished", "cancelled", "failed"]


class Sample(NamedTuple):
    """One line of the exposition: a name without prefix, its kind, its help, label and value."""

    name: str
    kind: str
    about: str
    value: float
    label: tuple[str, str] | None = None


class Metrics:
    """Counts of one server. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._generations: Counter[str] = Counter()
        self._running = self._hits = self._misses = 0
        self._past = np.zeros(4, np.int64)  # of sessions that have ended, see _work
        self._followed: list[SessionStats] = []

    def request(self, kind: str) -> None:
        """Count a request that was accepted; ``kind`` is that of its constraint, or "free"."""
        with self._lock:
            self._requests[kind] += 1

    def refused(self, code: str) -> None:
        """Count a request that was refused."""
        with self._lock:
            self._refused[code] += 1

    def looked_up(self, *, found: bool) -> None:
        """Count a look-up in the compile cache; ``found`` if the constraint had been compiled before."""
        with self._lock:
            self._hits += found
            self._misses += not found

    @contextmanager
    def generation(self, stats: SessionStats, cancelled: type[BaseException]) -> Iterator[None]:
        """Around one guided generate() call.

        Args:
            stats: of its session, read at the end.
            cancelled: the exception that is raised when the client has disconnected.
        """
        outcome: Outcome = "failed"
        self.begun()
        try:
            yield
            outcome = "finished"
        except cancelled:
            outcome = "cancelled"
            raise
        finally:
            self.ended(outcome, stats)

    def begun(self) -> None:
        """Count a guided generation that begins; ``ended`` has to follow."""
        with self._lock:
            self._running += 1

    def ended(self, outcome: Outcome, stats: SessionStats | None = None) -> None:
        """Count its end; ``stats`` are given if it had its own session."""
        with self._lock:
            self._running -= 1
            self._generations[outcome] += 1
            if stats is not None:
                self._past += np.array(_work(stats))

    def follow(self, stats: SessionStats) -> None:
        """Count these stats too whenever the text is made: those of a session that many generations share."""
        with self._lock:
            self._followed.append(stats)

    def text(self, compilers: Iterable[CompilerStats]) -> str:
        """All counts in Prometheus' text format.

        Args:
            compilers: of the guides in use.
        """
        lines: list[str] = []
        described = set()
        for name, kind, about, value, label in self._samples(list(compilers)):
            full = f"hf_guided_{name}"
            if full not in described:
                described.add(full)
                lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
            labels = "" if label is None else f'{{{label[0]}="{label[1]}"}}'
            lines.append(f"{full}{labels} {value:.12g}")
        return "\n".join(lines) + "\n"

    def _samples(self, compilers: list[CompilerStats]) -> Iterator[Sample]:
        with self._lock:
            requests, refused = sorted(self._requests.items()), sorted(self._refused.items())
            generations = sorted(self._generations.items())
            running, hits, misses = self._running, self._hits, self._misses
            masks, tokens, forced, mask_ns = sum(map(np.array, map(_work, self._followed)), self._past).tolist()
        for kind, count in requests:
            yield Sample("requests_total", "counter", "Requests taken, by constraint.", count, ("kind", kind))
        for code, count in refused:
            yield Sample("refused_total", "counter", "Requests refused, by reason.", count, ("code", code))
        for outcome, count in generations:
            about = "Guided generations, by how they ended."
            yield Sample("generations_total", "counter", about, count, ("outcome", outcome))
        yield Sample("generations_running", "gauge", "Guided generations under way.", running)
        yield Sample("compile_cache_hits_total", "counter", "Constraints that were compiled already.", hits)
        yield Sample("compile_cache_misses_total", "counter", "Constraints that had to be compiled.", misses)
        for name, about, value in (
            ("compile_milliseconds_total", "Time spent on compiling.", sum(each.compile_ms for each in compilers)),
            ("compile_evictions_total", "Grammars dropped for room.", sum(each.evictions for each in compilers)),
        ):
            yield Sample(name, "counter", about, value)
        for name, about, value in (
            ("compile_cache_entries", "Grammars kept.", sum(each.entries for each in compilers)),
            ("compile_cache_bytes", "Their size.", sum(each.nbytes for each in compilers)),
        ):
            yield Sample(name, "gauge", about, value)
        yield Sample("masks_total", "counter", "Masks made, one for each row and step that needed one.", masks)
        yield Sample("mask_milliseconds_total", "counter", "Time spent on them.", mask_ns / 1e6)
        about = "Masks made per second of the time spent on them."
        yield Sample("masks_per_second", "gauge", about, masks / mask_ns * 1e9 if mask_ns else 0.0)
        yield Sample("tokens_total", "counter", "Tokens of guided answers from the fast loop.", tokens)
        yield Sample("forced_tokens_total", "counter", "Those that took no forward pass of their own.", forced)


def _work(stats: SessionStats) -> tuple[int, int, int, int]:
    """Masks, tokens, forced tokens, and nanoseconds spent on masks."""
    spent = stats.track_ns + stats.fill_ns + stats.copy_ns + stats.apply_ns
    return stats.masked_rows, stats.tokens, stats.forced_tokens, spent
