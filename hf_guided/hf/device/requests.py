"""Whether the device lane is wanted for a call. What serves it is imported only then: it comes with the automaton."""

from __future__ import annotations

import torch

from ...options import DeviceLane


class NotOnDevice(Exception):
    """Tokens are chosen on the host; the text is the reason."""


def check_asked(
    asked: DeviceLane,
    device: torch.device,
    *,
    jump_forward: bool,
    drafts: bool,
    spread: bool,
    recorded: bool,
    logprobs: bool,
) -> None:
    """Find out before anything of it is looked at.

    Args:
        asked: by the caller.
        device: the model's.
        jump_forward: whether forced text is to be appended.
        drafts: whether there is a source of drafts.
        recorded: whether what is done is written down.
        logprobs: whether log probabilities are recorded.
        spread: whether several processes hold the model.

    Raises:
        NotOnDevice: it is not wanted.
    """
    if asked is False:
        raise NotOnDevice("device_lane=False")
    if spread:
        raise NotOnDevice("several processes hold the model: one of them chooses for all")
    if jump_forward:
        raise NotOnDevice("jump_forward=True: forced text is found on the host")
    if drafts:
        raise NotOnDevice("drafts are made and verified on the host")
    if recorded:
        raise NotOnDevice("trace=True: scores and masks are looked at on the host")
    if logprobs:
        raise NotOnDevice("logprobs: logits and masks are compared on the host")
    if asked == "auto" and device.type != "cuda":
        raise NotOnDevice(f"the model is on {device.type}; device_lane=True takes the device lane there too")
