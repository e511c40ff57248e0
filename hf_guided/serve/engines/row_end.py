"""How a row of a generate() call has ended."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GenerationError
from ...generation.guided_call import GuidedCall
from ..job import Ended, Job


def left_constraint(reason: str | None) -> GenerationError:
    """The error of an answer that its constraint could not continue, or that has left it."""
    return GenerationError(f"the answer left its constraint: {reason or 'no token continued it'}")


def ended(call: GuidedCall, row: int, job: Job, answer: int, prompt: Sequence[int], token_ids: Sequence[int]) -> Ended:
    """The last event of an answer.

    Args:
        call: that generated it.
        row: its number in the call.
        job: the job.
        answer: its number in the job.
        prompt: the tokens that the answer follows; none in an encoder-decoder.
        token_ids: of the answer.
    """
    try:
        if job.guided.compiled is not None:
            result = call.ended(row, call.reader(row, prompt).read(token_ids))
            if result.finish_reason == "dead_end":
                return Ended(answer, error=left_constraint(result.error))
    except Exception as error:  # reading may call the constraint's own code
        return Ended(answer, error=error)
    return Ended(answer, "stop" if token_ids and token_ids[-1] in job.stop_token_ids else "length")
