"""Whether the device lane can run a generate() call, and the reason if it cannot."""

from __future__ import annotations

from collections.abc import Sequence

from ...session.session import Session
from ..decode.scores import Scoring
from ..decode.sequence_state import SequenceState
from ..decode.stopping import RowStops
from .overrun import CacheRollback
from .requests import NotOnDevice
from .row_start import Start, start_of
from .token_choice import unsupported_processors

_MOST_TOKENS = 1 << 25  # the maximum that a call allocates; half a gigabyte


def starts_of(
    sequences: Sequence[SequenceState], session: Session, scoring: Scoring, stops: RowStops, rollback: CacheRollback
) -> list[Start]:
    """The rows' first states on the device, if it can run the call as the host would.

    Args:
        sequences: the rows after their prompts.
        session: the constraints.
        scoring: the processors.
        stops: when a row ends.
        rollback: undoes the surplus forward pass.

    Raises:
        NotOnDevice: it cannot run the call.
    """
    if unknown := unsupported_processors([*scoring.before, *scoring.after]):
        raise NotOnDevice(f"processors that may read the device or keep a state on the host: {', '.join(unknown)}")
    if not set(session.stop_token_ids) <= stops.eos_token_ids:
        raise NotOnDevice(
            f"generate() does not end at all stop tokens {list(session.stop_token_ids)}, only at "
            f"{sorted(stops.eos_token_ids)}"
        )
    if own := [type(criterion).__name__ for criterion in stops.criteria if not _is_from_transformers(criterion)]:
        if stops.device.type != "cpu":  # they may hold tensors there, and the lane has its tokens on the host
            raise NotOnDevice(f"stopping criteria that may read the device: {', '.join(own)}")
    if text := [token_id for token_id in session.stop_token_ids if session.vocabulary.is_text(token_id)]:
        # These may not occur in a constraint's text now: rows that need them come to a dead end.
        raise NotOnDevice(f"stop tokens that are text otherwise, {text}: the host may have to end rows")
    if stops.room(sequences[0].token_ids) * len(sequences) > _MOST_TOKENS:
        raise NotOnDevice("the maximum length is too large: the device allocates memory for all tokens in advance")
    if not rollback.can_be_undone:
        raise NotOnDevice("the cache is returned, and a forward pass cannot be removed from it")
    starts = []
    for i, sequence in enumerate(sequences):
        try:
            starts.append(start_of(sequence.row, session.vocabulary, session.stop_token_ids))
        except NotOnDevice as reason:
            raise NotOnDevice(f"row {i} {reason}") from None
    return starts


def _is_from_transformers(criterion: object) -> bool:
    return type(criterion).__module__.startswith("transformers.")
