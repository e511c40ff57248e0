"""Whether a call may use the device lane. Only then is the lane imported: it imports the automaton."""

from __future__ import annotations

from ...options import DeviceLane


class NotOnDevice(Exception):
    """The host chooses the tokens; the text is the reason."""


def check_requested(
    device_lane: DeviceLane,
    *,
    jump_forward: bool,
    drafts: bool,
    spread: bool,
    recorded: bool,
) -> None:
    """Check the options of a call, before any part of the lane is created.

    Args:
        device_lane: the caller's option.
        jump_forward: whether forced text is appended.
        drafts: whether there is a source of drafts.
        spread: whether several processes hold the model.
        recorded: whether a trace is recorded.

    Raises:
        NotOnDevice: the options exclude it.
    """
    if device_lane is False:
        raise NotOnDevice("device_lane=False")
    if device_lane == "auto":  # until a GPU's times are in benchmarks/results
        raise NotOnDevice("device_lane=True was not requested")
    if spread:
        raise NotOnDevice("several processes hold the model: rank zero chooses for all")
    if jump_forward:
        raise NotOnDevice("jump_forward=True: the host finds forced text")
    if drafts:
        raise NotOnDevice("the host makes and verifies drafts")
    if recorded:
        raise NotOnDevice("trace=True: the host records scores and masks")
