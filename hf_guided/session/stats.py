"""What a session counts while it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SessionStats:
    """What a session has done so far; times in nanoseconds, of whichever thread did it.

    Args:
        calls: calls that masked something or could have.
        masked_rows: rows for which a bitmask was applied.
        foreseen: calls whose masks had been begun before they were asked for.
        wait_ns: waiting for compilation.
        wait_mask_ns: waiting for masks that were being filled ahead.
        track_ns: finding rows and advancing matchers.
        fill_ns: filling bitmasks.
        copy_ns: sending them to a GPU; what the host spends on it, not how long they travel.
        apply_ns: writing -inf.
        tokens: tokens of output, stop tokens included; this and what follows only where the loop is ours.
        forwards: forward passes of the model, the prompts' included.
        row_forwards: the same, counted for each row that was still running.
        forced_tokens: tokens that needed no choice, and so no forward pass of their own.
        drafted_tokens: tokens that were drafted.
        accepted_tokens: those of them that the model confirmed, in front of the row's end.
        device_steps: steps whose tokens the device lane chose.
        forward_ns: forward passes; on a GPU until they are queued, not until they are done. On the device lane the
            choice behind each of them is counted too.
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
    device_steps: int = 0
    forward_ns: int = 0
