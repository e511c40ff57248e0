"""The row with which an answer begins, and the token budget that it can keep."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import BudgetTooSmall
from ...session.reasoning_gate import gate_constraint
from ...session.requests import check_budget, row_after_prefix
from ...session.row import Row
from ..job import Job


def first_row(job: Job, stop_token_ids: Sequence[int], prompt: Sequence[int]) -> tuple[Row, int | None]:
    """The row before the first token of an answer, and the token budget for its masks.

    Args:
        job: whose constraint is compiled, or is waited for.
        stop_token_ids: those of its stop tokens that have logits.
        prompt: the tokens that the answer follows, which may have begun the thinking; none in an encoder-decoder.

    Returns:
        A row to fork; and ``max_new_tokens``, or None if no text of the constraint fits: then the answer is cut.

    Raises:
        ConstraintError, BackendError: the constraint cannot be compiled.
    """
    compiled, gate = job.guided.compiled, job.guided.gate
    if compiled is None:
        return Row(None), job.max_new_tokens
    constraint = compiled.result()
    if gate is not None:
        constraint = gate_constraint(constraint, gate, gate.opening(prompt))
    row = row_after_prefix(constraint, job.guided.prefix, stop_token_ids)
    try:
        check_budget(row, job.max_new_tokens)
    except BudgetTooSmall:
        return row, None
    return row, job.max_new_tokens
