"""Counters and times of a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SessionStats:
    """Counters of a session; times in nanoseconds, summed over threads.

    Args:
        calls: calls that applied masks, including those in which no row needed one.
        masked_rows: rows for which a bitmask was applied.
        foreseen: calls whose masks a lookahead had started before the call.
        wait_ns: waiting for compilation.
        wait_mask_ns: waiting for masks that another thread was filling.
        track_ns: finding rows and advancing matchers.
        fill_ns: filling bitmasks.
        copy_ns: host time for queueing copies to a GPU, not the duration of the copies.
        apply_ns: writing -inf.
        tokens: tokens of output, stop tokens included; this and all following fields are counted only in our loops.
        forwards: forward passes of the model, prefill included.
        row_forwards: the same, counted for each row that was still running.
        forced_tokens: tokens that needed no choice, and therefore no forward pass of their own.
        drafted_tokens: tokens that were drafted.
        accepted_tokens: drafted tokens that the model confirmed before the row's end.
        forward_ns: forward passes; on a GPU until they are queued, not until they are done.
    """

    calls: int = 0
    masked_rows: int = 0
    foreseen: int = 0
    wait_ns: int = 0
    wait_mask_ns: int = 0
    track_ns: int = 0
    fill_ns: int = 0
    copy_ns: int = 0
    apply_ns: int = 0
    tokens: int = 0
    forwards: int = 0
    row_forwards: int = 0
    forced_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forward_ns: int = 0
