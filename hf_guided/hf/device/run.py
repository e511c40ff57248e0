"""Runs one generate() call on the device lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import GenerationConfig

from ...options import DeviceLane
from ...session.logprob_recorder import LogprobRecorder
from ...session.session import Session
from ..decode.cache_slots import CacheSlots
from ..decode.scores import Scoring
from ..decode.sequence_state import SequenceState
from ..decode.stopping import RowStops
from .eligibility import starts_of
from .host_rows import HostRows
from .kernels import Kernels, TorchKernels
from .loop import DeviceLoop
from .overrun import CacheRollback
from .row_output import RowOutput
from .rows import DeviceRows
from .staging import Staging
from .steps import EagerSteps, FixedSteps
from .store import DeviceStore
from .token_choice import DeviceChoice


def run_on_device(
    sequences: Sequence[SequenceState],
    logits: Tensor,
    input_ids: Tensor,
    *,
    session: Session,
    slots: CacheSlots,
    scoring: Scoring,
    stops: RowStops,
    config: GenerationConfig,
    device_lane: DeviceLane,
    store: DeviceStore,
    seeds: Sequence[int] | None = None,
    new_recorder: Callable[[], LogprobRecorder] | None = None,
) -> str:
    """Generate until all rows are finished, or raise before any token is generated.

    Args:
        sequences: the rows after their prompts; written.
        logits: (rows, vocab) float32 after the prompts; written.
        input_ids: (rows, length) int64, the prompts.
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        config: of this call.
        device_lane: the caller's option.
        store: tensors that stay on the device between calls.
        seeds: of each row's draws; None draws the seeds with torch's generator.
        new_recorder: makes the recorder of log probabilities; None records nothing.

    Returns:
        Why steps were not captured; empty if they were captured, or would be on a GPU.

    Raises:
        NotOnDevice: the device lane cannot run this call.
    """
    device, do_sample = input_ids.device, bool(config.do_sample)
    rollback = CacheRollback(slots.cache, returned=bool(config.return_dict_in_generate))
    starts = starts_of(sequences, session, scoring, stops, rollback)
    kernels = store.kernels(device).kernels
    recorder = None if new_recorder is None else new_recorder()
    eager_reason = _eager_reason(device_lane, kernels, slots, scoring, logprobs=recorder is not None)
    capacity = int(stops.room(sequences[0].token_ids))
    ids = torch.cat([input_ids, input_ids.new_zeros(len(sequences), capacity)], dim=1)
    staging = Staging(device)
    with store.lane(
        starts,
        ids[:, input_ids.shape[1] :],
        stop_token_ids=session.stop_token_ids,
        limit=session.max_new_tokens,
        staging=staging,
    ) as lane:
        output = RowOutput.of(
            lane,
            staging,
            eos_token_ids=sorted(stops.eos_token_ids),
            pad_token_id=slots.pad_token_id,
            fallbacks=[_fallback_token_id(sequence, session) for sequence in sequences],
        )
        choice = DeviceChoice(
            lane,
            kernels,
            scoring,
            output,
            staging,
            do_sample=do_sample,
            seeds=seeds,
            keep_scores=recorder is not None,
        )
        rows = DeviceRows(lane, ids, choice, output, top_logprobs=None if recorder is None else recorder.top)
        staging.send()
        store.fill(lane)
        steps = EagerSteps(slots, rows) if eager_reason else FixedSteps(slots.static_forward(), rows, device)
        on_host = HostRows(
            session, sequences, starts, stops, pad_token_id=slots.pad_token_id, do_sample=do_sample, recorder=recorder
        )
        DeviceLoop(rows, on_host, steps, store.copies(device), rollback, session.stats).run(logits)
    return eager_reason


def _fallback_token_id(sequence: SequenceState, session: Session) -> int:
    """The token that a row takes if it can choose none: a guided one ends, a free one takes what argmax gives."""
    return 0 if sequence.row.matcher is None else session.fallback_stop_token_id


def _eager_reason(
    device_lane: DeviceLane, kernels: Kernels, slots: CacheSlots, scoring: Scoring, *, logprobs: bool
) -> str:
    if device_lane != "captured":
        return "it was not requested"
    if logprobs:
        return "log probabilities are sent in each step"
    if scoring.before:
        return "processors before the masks may read the tokens so far"
    if slots.device.type == "cuda" and isinstance(kernels, TorchKernels):
        return "there are no kernels, and plain torch waits for the device"
    return slots.static_reason
