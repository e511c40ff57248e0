"""A LogitsProcessor for ``model.generate(logits_processor=[...])``, in any generation mode.

generate() calls logits processors after it has started the forward pass, and stopping criteria before that. So a
criterion that never stops can start to fill the next masks earlier: that is a processor's ``companion``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import torch
from transformers import LogitsProcessor, StoppingCriteria

from ..errors import VocabularySizeError
from ..session.session import Session
from ..trace.events import LimitStep
from .compat import check_no_timestamps


class MaskCompanion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """A processor's ``companion``: announces the chosen tokens to the session; never stops generation."""

    def __init__(self, session: Session):
        self._session = session

    def __call__(self, input_ids: torch.LongTensor, scores: object, **kwargs: object) -> torch.Tensor:
        """Start to fill the next masks; see ``Session.look_ahead``.

        Returns:
            (rows,) bool on the device of ``input_ids``: False everywhere.
        """
        self._session.look_ahead(input_ids)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class SessionFace:
    """The fields of a session that a caller reads, from its processor or from its decoder."""

    def __init__(self, session: Session):
        self._session = session
        #: Records each call for ``Guide.trace``; None without ``trace=True``.
        self.recorder = session.recorder
        #: Tokens that end a row.
        self.stop_token_ids = session.stop_token_ids
        #: Counters and times of all calls so far.
        self.stats = session.stats

    def limit_steps(self, row: int, length: int | None = None) -> dict[int, LimitStep]:
        """The steps of a row of the last call at which a limit forbade tokens that the format allows.

        Args:
            row: the row's number; rows must keep their places, which beams do not.
            length: number of its output tokens; None counts all steps, also those after rejected drafts.

        Returns:
            By the index of the step's token in the output.
        """
        return self._session.mass_record.steps(row, length)

    def log_masses(self, row: int, length: int) -> list[float] | None:
        """For each token of a row of the last call, the logarithm of the probability that the format left at its step.

        Their sum is ``GuidedResult.log_mass``. None without ``log_mass=True``, or if not all are known.

        Args:
            row: the row's number; rows must keep their places, which beams do not.
            length: number of its output tokens, the stop token counted.
        """
        return self._session.mass_record.log_masses(row, length)


class GuidedLogitsProcessor(SessionFace, LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every row inside its constraint. Made by ``Guide.logits_processor``.

    One processor may be used in any number of generate() calls, one after another. tracker.py says how it distinguishes
    a new prompt from a continuation; ``reset()`` always begins a new one. generate() calls that run at the same time
    must not share a processor.
    """

    def __init__(self, session: Session):
        super().__init__(session)
        #: A stopping criterion that starts to fill the masks during the forward pass, not after it.
        #: ``generate(logits_processor=[processor], stopping_criteria=[processor.companion])``. It never stops
        #: generation. On a GPU it also takes over the processor's wait for the device: it is called after the next
        #: tokens are queued.
        self.companion = MaskCompanion(session)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Mask one step; see ``Session.mask`` for shapes, devices and errors.

        generate() also gives its processors to an assistant model. The scores of an assistant with another width are
        returned unchanged: the main model verifies its tokens, with masks.
        """
        try:
            return self._session.mask(input_ids, scores)
        except VocabularySizeError:
            if not _an_assistant_drafts():
                raise
            return scores

    # generate() looks at the signature before every call; one that is kept costs it a third.
    __call__.__signature__ = inspect.signature(__call__)  # type: ignore[attr-defined]

    def set_begin_index(self, begin_index: int) -> None:
        """Raise UnsupportedModel if Whisper would write timestamps; its generate() calls this before each segment."""
        frame = inspect.currentframe()
        caller = None if frame is None else frame.f_back
        # Whisper tells a processor nothing else before its decoder runs.
        check_no_timestamps(() if caller is None else caller.f_locals.get("logits_processor") or ())

    def reset(self) -> None:
        """Start over: the next call is a new prompt, for any token ids."""
        self._session.reset()

    @property
    def dead_ends(self) -> Mapping[int, str]:
        """Rows of the last call that had to end because other processors left none of their tokens, and why.

        A row number is that of the step in which the row ended; beams are reordered after it.
        """
        self._session.late_alive.read()  # of a caller's own loop that has left out the last call of ``companion``
        return self._session.dead_ends

    @property
    def prompt_length(self) -> int:
        """Columns of ``input_ids`` before the output of the last call: a decoder's own prompt in an encoder-decoder."""
        return self._session.prompt_length


def _an_assistant_drafts() -> bool:
    """Whether a candidate generator of transformers has called this, directly or through its assistant."""
    from transformers.generation.candidate_generator import CandidateGenerator  # imports scikit-learn, if it is there

    # The processor is not told which model it serves, and an assistant's first step comes before the main model's.
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), CandidateGenerator):
            return True
        frame = frame.f_back
    return False
