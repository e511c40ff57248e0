"""The requests of one generate() call: constraint, prefix and thinking of each prompt, and the rows made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..backends.base import CompiledConstraint, Engine
from ..constraints.base import expect_utf8
from ..constraints.values import Constraint, Grammar, StructuralTag
from ..errors import BackendError, BatchSizeError, BudgetTooSmall, InvalidConstraint, shown
from .reasoning import Opening, ReasoningGate
from .reasoning_gate import gate_constraint
from .row import Row


@dataclass(frozen=True)
class Request:
    """The request for one prompt's rows."""

    compiled: Future[CompiledConstraint] | None = None  # the constraint, possibly still compiling; None is a free row
    prefix: bytes = b""  # the part of the answer that the prompt already contains
    gate: ReasoningGate | None = None  # ends the thinking before the answer; None if rows do not think
    constraint: Constraint | None = None  # bound to the tokenizer; its ``parse`` makes values; None for a free row


class Requests:
    """The requests of one generate() call; makes their rows.

    Args:
        requests: one for all rows, or one per prompt; rows of one prompt (beams, return sequences) are consecutive.
        stop_token_ids: tokens that end a row.
    """

    def __init__(self, requests: Sequence[Request], stop_token_ids: Sequence[int]):
        self._requests = tuple(requests)
        self.num_groups = len(self._requests)  # groups of rows that have a request of their own
        self._stop_token_ids = stop_token_ids
        self._prototypes: dict[tuple[int, Opening], Row] = {}
        self.ready = False  # whether ``prepare`` has been called, so that rows can be made

    @property
    def compiled(self) -> bool:
        """Whether ``prepare``, and a session's ``begin``, would not wait for compilation."""
        return all(request.compiled is None or request.compiled.done() for request in self._requests)

    def prepare(self) -> None:
        """Wait for compilation, and let each prompt's row accept its prefix.

        Raises:
            InvalidConstraint: a prefix is not the beginning of any text.
        """
        for number in range(len(self._requests)):
            self._prototypes[number, Opening.ALL] = self._prototype(number, Opening.ALL)
        self.ready = True

    def new_rows(
        self,
        num_rows: int,
        prompts: Sequence[Sequence[int]] | NDArray[np.int64] | None,
        max_new_tokens: int | None,
        warn: Callable[[str], None],
    ) -> tuple[list[Row], int]:
        """Rows after their prefixes, and how many consecutive rows share a request; only after ``prepare``.

        Args:
            num_rows: how many.
            prompts: token ids of each row, which may have begun the thinking; None if they have not.
            max_new_tokens: every row closes its text within this many tokens; None sets no limit.
            warn: called with a message if a constraint's text may be cut, because no way to its end was found.

        Raises:
            BatchSizeError: the number of rows is not a multiple of the number of prompts.
            BudgetTooSmall: ``max_new_tokens`` is too small even without any thinking.
        """
        groups = self.num_groups
        if num_rows % groups:
            raise BatchSizeError(
                f"expected {groups} rows or a multiple, because {groups} constraints were given (one per prompt), "
                f"got {num_rows} rows; pass one constraint per prompt, or a single one for all"
            )
        group_size = max(num_rows // groups, 1)
        rows = [self._row_at(i // group_size, () if prompts is None else prompts[i]) for i in range(num_rows)]
        if max_new_tokens is not None:
            for row in {id(row): row for row in rows}.values():
                if check_budget(row, max_new_tokens) is None and row.matcher is not None and row.is_open:
                    warn(_may_be_cut(row.matcher.compiled, max_new_tokens))
        return [row.fork() for row in rows], group_size

    def _row_at(self, number: int, prompt: Sequence[int] | NDArray[np.int64]) -> Row:
        gate = self._requests[number].gate
        opening = Opening.ALL if gate is None else gate.opening(prompt)
        row = self._prototypes.get((number, opening))
        if row is None or row.failure is not None:  # another call is another attempt
            row = self._prototypes[number, opening] = self._prototype(number, opening)
        return row

    def _prototype(self, number: int, opening: Opening) -> Row:
        request = self._requests[number]
        compiled = None
        if request.compiled is not None:
            compiled = gate_constraint(request.compiled.result(), request.gate, opening)
        return row_after_prefix(compiled, request.prefix, self._stop_token_ids)

    def prefix_of(self, row: int, num_rows: int) -> bytes:
        """The part of a row's answer that its prompt already contains."""
        return self._requests[row * self.num_groups // num_rows].prefix


def row_after_prefix(compiled: CompiledConstraint | None, prefix: bytes, stop_token_ids: Sequence[int] | None) -> Row:
    """A row that has accepted the bytes of ``prefix``; closed if the engine fails, free without ``compiled``.

    Raises:
        InvalidConstraint: no text of the constraint begins with the prefix.
    """
    if compiled is None:
        return Row(None)
    try:
        row = Row(compiled.matcher(stop_token_ids))
    except BackendError as error:
        row = Row(replace(compiled, new_engine=_NoEngine).matcher(stop_token_ids))
        row.fail(error, lost=True)
    token_ids = compiled.vocabulary.encode_bytes(prefix)
    for taken, token_id in enumerate(token_ids):
        if not row.advance(token_id):
            good = compiled.vocabulary.decode_bytes(token_ids[:taken]).decode(errors="replace")
            raise InvalidConstraint(
                f"prefix {prefix.decode(errors='replace')!r} is not the beginning of any text in the constraint: it "
                f"takes {good!r} and nothing after it; correct the prefix, or the constraint"
            )
    return row


class _NoEngine(Engine):
    """Stands for an engine that could not be made. Its row is lost, so that no method is called."""


def _may_be_cut(compiled: CompiledConstraint, max_new_tokens: int) -> str:
    if not isinstance(compiled.constraint, (Grammar, StructuralTag)):  # the same text for all: it is shown once
        return f'{compiled.backend} keeps no token limit, so texts may be cut; backend="auto" closes them in time'
    return (
        f"{compiled.backend} found no way to the end of {compiled.constraint}, so its texts may be cut by "
        f"max_new_tokens={max_new_tokens}; allow more tokens, or a constraint that ends"
    )


def check_budget(row: Row, max_new_tokens: int) -> bool | None:
    """Raise BudgetTooSmall if the row's text cannot be finished in this many tokens; else True, None if not known."""
    is_enough = row.can_finish_in(max_new_tokens)
    if is_enough is False:
        minimum = row.min_tokens_to_finish() or 0
        raise BudgetTooSmall(
            f"max_new_tokens={max_new_tokens} is too small: the shortest text found for this constraint takes "
            f"{minimum} tokens, the stop token included; raise max_new_tokens to at least {minimum}, or choose a "
            "constraint with shorter texts",
            minimum=minimum,
        )
    return is_enough


def prefix_bytes(prefix: str | None) -> bytes:
    """A prefix as bytes, empty for None; raises InvalidConstraint if it is not text."""
    if not isinstance(prefix, (str, type(None))):
        raise InvalidConstraint(f"prefix: expected a str, got {shown(prefix)} of type {type(prefix).__name__}")
    expect_utf8(prefix or "", "prefix")
    return (prefix or "").encode()
