"""One generate() call on the device lane, put together from its parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import GenerationConfig

from ...options import DeviceLane
from ...session.session import Session
from ..decode.cache_slots import CacheSlots
from ..decode.scores import Scoring
from ..decode.sequence_state import Line
from ..decode.stopping import RowStops
from .eligibility import check_kernels, starts_of
from .kernels import Kernels, TorchKernels
from .loop import DeviceLoop
from .overrun import ExtraStep
from .rows import DeviceRows
from .steps import EagerSteps, FixedSteps
from .store import DeviceStore
from .token_choice import DeviceChoice


def run_on_device(
    lines: Sequence[Line],
    logits: Tensor,
    input_ids: Tensor,
    *,
    session: Session,
    slots: CacheSlots,
    scoring: Scoring,
    stops: RowStops,
    config: GenerationConfig,
    asked: DeviceLane,
    store: DeviceStore,
    seeds: Sequence[int] | None = None,
) -> str:
    """Generate until all rows are over, or raise before anything is generated.

    Args:
        lines: the rows behind their prompts; written.
        logits: (rows, vocab) float32 behind the prompts; written.
        input_ids: (rows, length) int64, the prompts.
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        config: of this call.
        asked: how the device lane was asked for.
        store: what is kept on the device between calls.
        seeds: of what each row draws; None has torch's generator draw them.

    Returns:
        Why steps were not captured; empty if they were, or would be on a GPU.

    Raises:
        NotOnDevice: the device lane cannot serve this call.
    """
    device, do_sample = input_ids.device, bool(config.do_sample)
    extra = ExtraStep(slots.cache, returned=bool(config.return_dict_in_generate))
    starts = starts_of(lines, session, scoring, stops, extra)
    check_kernels(asked, store, device)
    kernels = store.kernels(device).kernels
    why_eager = _why_eager(asked, kernels, slots, scoring)
    capacity = int(stops.room(lines[0].token_ids))
    ids = torch.cat([input_ids, input_ids.new_zeros(len(lines), capacity)], dim=1)
    with store.lane(
        starts, ids[:, input_ids.shape[1] :], stop_token_ids=session.stop_token_ids, limit=session.max_new_tokens
    ) as lane:
        rows = DeviceRows(
            lane,
            ids,
            DeviceChoice(lane, kernels, scoring, do_sample=do_sample, seeds=seeds),
            eos_token_ids=sorted(stops.eos_token_ids),
            pad_token_id=slots.pad_token_id,
        )
        steps = EagerSteps(slots, rows) if why_eager else FixedSteps(slots.static_forward(), rows, device)
        loop = DeviceLoop(session, rows, steps, stops, store.copies(device), extra, do_sample=do_sample)
        loop.run(lines, logits)
    return why_eager


def _why_eager(asked: DeviceLane, kernels: Kernels, slots: CacheSlots, scoring: Scoring) -> str:
    if asked != "captured":
        return "it was not asked for"
    if scoring.before:
        return "processors in front of the masks may look at the tokens so far"
    if slots.device.type == "cuda" and isinstance(kernels, TorchKernels):
        return "there are no kernels, and plain torch waits for the device"
    return slots.why_not_static
