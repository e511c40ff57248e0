"""Whether the device lane can serve a generate() call, and if not, why."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...backends.automaton import AutomatonEngine
from ...options import DeviceLane
from ...session.reasoning_gate import ReasoningEngine
from ...session.row import RowState
from ...session.session import Session
from ..decode.scores import Scoring
from ..decode.sequence_state import Line
from ..decode.stopping import RowStops
from .kernels import TorchKernels
from .overrun import ExtraStep
from .requests import NotOnDevice
from .store import DeviceStore, Start
from .tables import MAX_MOVES
from .token_choice import others

_MOST_TOKENS = 1 << 25  # that a call makes room for; half a gigabyte


def starts_of(
    lines: Sequence[Line], session: Session, scoring: Scoring, stops: RowStops, extra: ExtraStep
) -> list[Start]:
    """Where the rows begin on the device, if it can serve the call as the host would.

    Args:
        lines: the rows behind their prompts.
        session: the constraints.
        scoring: the processors.
        stops: when a row ends.
        extra: undoes the forward pass too many.

    Raises:
        NotOnDevice: it cannot.
    """
    if unknown := others([*scoring.before, *scoring.after]):
        raise NotOnDevice(f"processors that may ask or remember something on the host: {', '.join(unknown)}")
    if not set(session.stop_token_ids) <= stops.eos_token_ids:
        raise NotOnDevice(
            f"generate() does not end at all stop tokens {list(session.stop_token_ids)}, only at "
            f"{sorted(stops.eos_token_ids)}"
        )
    if text := [token_id for token_id in session.stop_token_ids if session.vocabulary.is_text(token_id)]:
        # Which no text of a constraint may contain now: rows that cannot do without come to a dead end.
        raise NotOnDevice(f"stop tokens that are text otherwise, {text}: rows may need the host to end them")
    if stops.room(lines[0].token_ids) * len(lines) > _MOST_TOKENS:
        raise NotOnDevice("the greatest length is too far off: the device needs room for all tokens ahead")
    if not extra.can_be_undone:
        raise NotOnDevice("the cache is returned, and a forward pass cannot be taken back from it")
    return [_start_of(i, line) for i, line in enumerate(lines)]


def _start_of(i: int, line: Line) -> Start:
    matcher = line.row.matcher
    if matcher is None:
        return Start()
    engine = matcher.engine
    if isinstance(engine, ReasoningEngine):
        raise NotOnDevice(f"row {i} thinks first, and the end of that is found on the host")
    if not isinstance(engine, AutomatonEngine):
        raise NotOnDevice(f"row {i} is served by {matcher.compiled.backend}, not by the automaton")
    if line.row.state is not RowState.OPEN:
        raise NotOnDevice(f"row {i} has ended before its first token")
    if engine.language.walk.dfa.table.size > MAX_MOVES:
        raise NotOnDevice(f"the automaton of row {i} is too large")
    return Start(engine.language, engine.state)


def check_kernels(asked: DeviceLane, store: DeviceStore, device: torch.device) -> None:
    """Whether there is something fast enough to run the lane by default.

    Raises:
        NotOnDevice: there is not.
    """
    found = store.kernels(device)
    if asked == "auto" and isinstance(found.kernels, TorchKernels):
        reasons = "; ".join(f"{way}: {why}" for way, why in found.why_not.items())
        raise NotOnDevice(f"no kernels for the device, and plain torch waits for it ({reasons})")
