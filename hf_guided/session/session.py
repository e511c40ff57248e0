"""The session: constraints and input_ids in, masked scores out. Every integration with generate() holds one.

Stages of a call: find the rows (tracker), fill a bitmask row for each (matcher), write -inf (apply), and check that a
choice is left. The first call waits for compilation, so that compilation overlaps the prefill.

The first two stages can run while the model computes the scores, on the worker of run_ahead.py: ``fill_ahead``
starts them for loops that keep their rows, ``look_ahead`` starts them if the next ids are known before the forward
pass. At most one such job runs at a time, and every other call first takes the rows, the tracker and the buffers back
from it (``_settle``). If the ids never come, the job's steps are undone, and its errors and warnings are dropped. If a
caller stopped waiting for the job (Ctrl-C), the job keeps what it owns, and the session continues with new objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..errors import (
    BatchSizeError,
    EmptyIntersection,
    GenerationError,
    InvalidArgument,
    StopTokenError,
    TokenRejected,
    VocabularySizeError,
    shown,
)
from ..options import LoopOptions
from ..trace.recorder import Recorder
from ..vocabulary.bitmask import allocate_bitmask
from ..vocabulary.tokens import Vocabulary
from .logprobs import LogprobRecorder, TokenLogprob
from .mask_kernel import log_sums_dtype
from .mask_table import MaskTables
from .masks import MaskFiller, Masks, OnDeadEnd, Segments
from .mass_record import MassRecord
from .options import SessionOptions
from .requests import Request, Requests
from .row import Row
from .run_ahead import ExpectedIds, LateAlive, Pending, submit
from .stats import SessionStats
from .tensor_parallel import Ranks
from .tracker import RowTracker, TokenIds

T = TypeVar("T")


class Session:
    """Masks the scores of one generate() call after another.

    Args:
        vocabulary: whose tokens the constraints were compiled for.
        requests: one for all rows, or one per prompt; rows of one prompt (beams, return sequences) are consecutive.
        options: how rows are masked.
        ranks: the processes that hold the model, if there are several; rank zero masks for all.
        tables: see ``MaskFiller``.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        requests: Sequence[Request],
        options: SessionOptions,
        *,
        ranks: Ranks | None = None,
        tables: MaskTables | None = None,
    ):
        self.vocabulary = vocabulary
        self.stats = SessionStats()
        self.recorder = Recorder() if options.trace else None
        given = options.stop_token_ids
        if given is not None and not given:
            raise StopTokenError("stop_token_ids: expected at least one, got none; pass generate()'s eos_token_id")
        self.stop_token_ids = vocabulary.stop_token_ids if given is None else vocabulary.stops_with_logits(given)
        self._own_limit = self._limit = options.max_new_tokens
        self._raise_on_violation = options.on_violation == "raise"
        self.dead_ends: dict[int, str] = {}  # why rows of this call had to end, though their constraint could continue
        self.mass_record = MassRecord(weighs_all=options.log_mass)  # what limits and format have left in this call
        self.requests = Requests(requests, self.stop_token_ids)
        self._tracker = RowTracker(self._new_rows, self._violated)
        self._filler = MaskFiller(
            vocabulary, self.stop_token_ids, tables=tables, stats=self.stats, recorder=self.recorder
        )
        self.late_alive = LateAlive()
        self._ids = np.zeros((0, 0), dtype=np.int64)  # token ids of the current call, for messages
        self._overlap = LoopOptions.from_env().overlap if options.overlap is None else options.overlap
        self._ranks = ranks
        self._job: Pending[Any] | None = None  # the one that may be running
        self._expected: ExpectedIds | None = None  # the ids it is for; None if its caller reads the result

    def reset(self) -> None:
        """Start over: the next call is a new prompt, for any token ids."""
        self.late_alive.drop()
        self._settle()
        self._tracker.reset()
        self.forget_rows()
        if self.recorder is not None:
            self.recorder.begin()

    def forget_rows(self) -> None:
        """Forget how rows of the last call ended."""
        self.dead_ends.clear()
        self.mass_record.clear()

    def mask(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores with -inf for every token a row's constraint forbids.

        Args:
            input_ids: (rows, length) int, any device; prompt and output so far.
            scores: (rows, vocab) floating point, any device; never written.

        Returns:
            A new tensor like ``scores``.

        Raises:
            BatchSizeError: the number of rows is not a multiple of the number of prompts.
            VocabularySizeError: the scores have another width than this vocabulary's; the session is unchanged.
            BudgetTooSmall: at the first call, if ``max_new_tokens`` is too small from the start.
            TokenRejected: a row left its grammar, with ``on_violation="raise"``.
            EmptyIntersection: other processors have forbidden every token that the constraint allows, with
                ``on_violation="raise"``; otherwise the row ends, and ``dead_ends`` has the reason.

        Streams: for scores on a GPU it waits for the device once, to learn which rows have to end. It does not wait if
            ``look_ahead`` has announced the ids: then ``look_ahead`` waits, and raises EmptyIntersection, when it is
            called with the token chosen from these scores.
        """
        if self._ranks is not None:
            return self._ranks.computed(lambda: self._masked(input_ids, scores), like=scores)
        return self._masked(input_ids, scores)

    def _masked(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """See ``mask``."""
        if not isinstance(input_ids, Tensor) or not isinstance(scores, Tensor):
            raise InvalidArgument(f"expected two tensors, got input_ids {shown(input_ids)} and scores {shown(scores)}")
        if input_ids.ndim != 2 or scores.ndim != 2 or len(input_ids) != len(scores):
            raise BatchSizeError(
                "expected input_ids (rows, length) and scores (rows, vocab) with the same number of rows, "
                f"got {tuple(input_ids.shape)} and {tuple(scores.shape)}"
            )
        if scores.shape[-1] != self.vocabulary.padded_size:
            raise VocabularySizeError.of_logits(scores.shape[-1], self.vocabulary.padded_size)
        if not self.requests.ready:
            self._prepare()
        if self.late_alive.unread is not None:
            self.late_alive.read()
        try:
            masks = None if self._job is None else self._lookahead_masks(input_ids)
            announced = masks is not None and self._ranks is None
            if masks is None:
                ids = input_ids.cpu().numpy()
                masks = self._masks_after(ids, partial(self._tracker.update, ids), self._filler)
        except GenerationError:
            raise  # raised after a complete step
        except BaseException:
            # The step is incomplete, so the state of these rows is unknown.
            self._tracker.reset()
            raise
        if self._ids.shape[1] == self._tracker.prompt_length:  # a new call, maybe with the last one's prompt
            self.forget_rows()
        masked = self.apply(scores, masks, late=announced)
        if announced and self.late_alive.unread is not None and self._filler.transfers is not None:
            self.late_alive.send(self._filler.transfers)
        if not self.mass_record.is_empty:
            for row in range(len(scores)):
                self.mass_record.note(row, self._ids.shape[1] - self._tracker.prompt_length, row)
        if self.recorder is not None:
            self.recorder.follow(self._ids, self._tracker.prompt_length, self.requests.num_groups)
        return masked

    def look_ahead(self, input_ids: Tensor) -> None:
        """Start to fill the masks after these ids, which are probably the next call's.

        Does so only if each row got one token more. ``mask`` raises the errors, if it is called with these ids.

        Args:
            input_ids: as for ``mask``; on a GPU not to be written in place until ``mask`` is called.

        Raises:
            EmptyIntersection: of the last call of ``mask``, if that did not wait for the device.

        Streams: the ids are copied to the host after the work queued on the current stream so far, without waiting for
            the forward pass that follows. The host waits only if the last call of ``mask`` did not, and then for its
            masks.
        """
        if self._pays and (self._ranks is None or self._ranks.first):
            if self._job is not None:
                self._settle()
            if input_ids.ndim == 2 and self._tracker.expects(*input_ids.shape):
                self._start_lookahead(input_ids)
        self.late_alive.read()

    def _start_lookahead(self, input_ids: Tensor) -> None:
        expected = ExpectedIds(input_ids, None if input_ids.is_inference() else input_ids._version)
        filler, tracker, copied = self._filler, self._tracker, None
        if filler.transfers is not None and filler.transfers.device == input_ids.device:
            copied = filler.transfers.to_host(input_ids)
        else:
            expected.ids = input_ids.cpu().numpy().copy()  # the caller may write into its own

        def job() -> Masks | None:
            if copied is not None:
                copied.synchronize()
                expected.ids = copied.tensor.numpy()
            assert expected.ids is not None
            expected.step = tracker.next_step(expected.ids)
            return None if expected.step is None else self._masks_after(expected.ids, expected.step.take, filler)

        self._start_job(job, expected)

    def _start_job(self, job: Callable[[], T], expected: ExpectedIds | None = None) -> Pending[T]:
        """Start a job on the worker, after ``_settle``."""
        # Stored before it starts: after an interruption in between, the session must still know the running job.
        self._expected = expected
        self._job = pending = Pending(job, self._waited)
        submit(pending)
        return pending

    # -- for loops that keep their own rows ----------------------------------------------------------------------

    @property
    def prompt_length(self) -> int:
        """Columns of ``input_ids`` before the output of the last call of ``mask``."""
        return self._tracker.prompt_length

    def begin(self, num_rows: int, prompts: Sequence[Sequence[int]] | None = None) -> list[Row]:
        """Rows at the start of their constraints, after the prefixes.

        Args:
            num_rows: how many.
            prompts: token ids of each row, if rows think first: a prompt may have begun the thinking.

        Raises:
            BatchSizeError, BudgetTooSmall: see ``mask``.
        """
        self.late_alive.drop()
        self._settle()
        if not self.requests.ready:
            self._prepare()
        return self.requests.new_rows(num_rows, prompts, self._limit, self._filler.warn_once)[0]

    def logprob_recorder(
        self,
        prompts: Sequence[Sequence[int]],
        top: int,
        report: Callable[[int, Sequence[TokenLogprob]], None] | None = None,
    ) -> LogprobRecorder:
        """A recorder for the log probabilities of the rows after these prompts; see ``LogprobRecorder``."""
        return LogprobRecorder(
            self.vocabulary,
            self.begin(len(prompts), prompts),
            stop_token_ids=self.stop_token_ids,
            tokens_left=self.tokens_left,
            top=top,
            report=report,
        )

    def tokens_left(self, generated: int) -> int | None:
        """The rest of a row's token budget after this many generated tokens; None without a budget."""
        return None if self._limit is None else self._limit - generated

    def fill_ahead(
        self,
        rows: Sequence[Row],
        tokens_left: Sequence[int | None],
        segments: Segments | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Callable[[], Masks]:
        """``MaskFiller.fill`` on the worker; until the returned function has given the masks, the job owns the rows.

        Without overlap, the masks are filled before this returns.
        """
        if self._job is not None:
            self._settle()
        fill = partial(self._filler.fill, rows, tokens_left, segments, numbers)
        if self._pays:
            return self._start_job(fill).result
        masks = fill()
        return lambda: masks

    def apply(
        self, scores: Tensor, masks: Masks, on_dead_end: OnDeadEnd | None = None, *, late: bool = False
    ) -> Tensor:
        """Masked scores, one row for each of the ``masks`` positions; see ``MaskFiller.apply``.

        Args:
            scores: (positions, vocab).
            masks: of these positions.
            on_dead_end: called with each position where a row has to end. None records them all: for calls without
                drafts, whose rows reach every position.
            late: whether the caller reads ``late_alive`` itself, after it has queued the choice of the tokens. On the
                CPU there is nothing to read.
        """
        start = time.perf_counter_ns()
        record = on_dead_end or (lambda position, reason: self.record_dead_end(masks.rows[position], reason))
        log_sums = None
        if self.mass_record.weighs_all:
            log_sums = torch.empty(len(scores), 2, dtype=log_sums_dtype(scores.device), device=scores.device)
        masked, alive = self._filler.apply(scores, masks, log_sums)
        self.stats.apply_ns += time.perf_counter_ns() - start
        self.mass_record.see(scores, masks.narrowed, log_sums)
        if self.recorder is not None:
            self.recorder.see(scores, masks, self.mass_record.step)
        if isinstance(alive, list):
            if masks.ended or not all(alive):
                self._filler.report(masks, record, alive)
        else:
            self.late_alive.expect(alive, partial(self._filler.report, masks, record))
            if not late:
                self.late_alive.read()
        self.stats.calls += 1
        self.stats.masked_rows += len(masks.governed)
        return masked

    def forwarded(self, start_ns: int, rows: Sequence[int]) -> None:
        """Count a forward pass with these rows that started at ``start_ns`` and has just ended."""
        self.stats.forward_ns += time.perf_counter_ns() - start_ns
        self.stats.forwards += 1
        self.stats.row_forwards += len(rows)
        if self.recorder is not None:
            self.recorder.spent("forward", start_ns, rows)

    def limit_call(self, max_new_tokens: int | None) -> None:
        """Set the limit after which the next generate() call cuts its rows; the session's own limit holds too."""
        limits = [limit for limit in (self._own_limit, max_new_tokens) if limit is not None]
        self._limit = min(limits, default=None)

    def record_dead_end(self, row: int, reason: EmptyIntersection | str) -> None:
        """Record why a row has to end, alone; of the reasons that are texts, filling the masks has warned.

        Raises:
            EmptyIntersection: this reason, with ``on_violation="raise"``.
        """
        if isinstance(reason, EmptyIntersection):
            if self._raise_on_violation:
                raise reason
            self._filler.warn_once(f"{reason}; it ends here")
        self.dead_ends.setdefault(row, str(reason))

    def nothing_left(self, index: int, row: Row, generated: int) -> EmptyIntersection:
        """The error for an open row with this number, whose allowed tokens all have no finite score."""
        bitmask = allocate_bitmask(1, self.vocabulary.padded_size)
        row.fill(bitmask, 0, self.tokens_left(generated))
        return self._filler.nothing_left(index, bitmask)

    # -- lookahead -----------------------------------------------------------------------------------------------

    @property
    def _pays(self) -> bool:
        """Whether masks are filled on another thread.

        On a CPU that saves nothing: the thread and the forward pass wait for each other, and for the interpreter.
        """
        if self._overlap == "auto":
            return self._filler.transfers is not None
        return self._overlap

    def _waited(self, nanoseconds: int) -> None:
        self.stats.wait_mask_ns += nanoseconds
        if self.recorder is not None:
            self.recorder.spent("wait", time.perf_counter_ns() - nanoseconds)

    def _lookahead_masks(self, input_ids: Tensor) -> Masks | None:
        """The masks that the lookahead filled for these ids; None if there are none, after undoing its step."""
        job, expected = self._job, self._expected
        if job is not None and expected is not None and not job.left:
            job.wait()
            if expected.is_for(input_ids):
                self._job = self._expected = None
                masks: Masks | None = job.result()
                self.stats.foreseen += masks is not None
                return masks
        self._settle()
        return None

    def _settle(self) -> None:
        """Take the rows, the tracker and the buffers back from the job, and undo its step."""
        job, expected = self._job, self._expected
        if job is None:
            return
        try:
            if expected is not None:
                job.cancel()
            if not job.left:
                job.wait()
            if not job.done():  # a caller has stopped waiting for it: it continues, and keeps what it owns
                self._tracker = RowTracker(self._new_rows, self._violated)
                self._filler = self._filler.with_new_buffers()
            elif expected is not None and expected.step is not None:
                expected.step.undo()
            self._job = self._expected = None
        except BaseException:
            self._tracker.reset()
            raise

    def _masks_after(self, ids: TokenIds, find_rows: Callable[[], list[Row]], filler: MaskFiller) -> Masks:
        """Find the rows of ids (rows, length) and fill the masks of their next tokens."""
        start = time.perf_counter_ns()
        self._ids = ids
        rows = find_rows()
        self.stats.track_ns += time.perf_counter_ns() - start
        left = self.tokens_left(ids.shape[1] - self._tracker.prompt_length)
        return filler.fill(rows, [left] * len(rows))

    # -- rows ----------------------------------------------------------------------------------------------------

    def _new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        """Rows for a new prompt, that of the current call."""
        return self.requests.new_rows(num_rows, self._ids, self._limit, self._filler.warn_once)

    def _prepare(self) -> None:
        """Wait for compilation."""
        start = time.perf_counter_ns()
        self.requests.prepare()
        self.stats.wait_ns += time.perf_counter_ns() - start
        if self.recorder is not None:
            self.recorder.spent("compile", start)

    def _violated(self, index: int, row: Row, token_id: int) -> None:
        self.violated(index, row, token_id, self._ids[index, self._tracker.prompt_length : -1].tolist())

    def violated(self, index: int, row: Row, token_id: int, before: Sequence[int]) -> None:
        """Handle a token that has just closed the row with this number, after this output.

        Raises:
            TokenRejected: with ``on_violation="raise"``.
        """
        if not self._raise_on_violation:
            return
        assert row.matcher is not None
        position = len(before)
        so_far = self.vocabulary.decode_bytes(before)
        bitmask = allocate_bitmask(1, self.vocabulary.padded_size)
        row.matcher.fill_next_token_bitmask(bitmask)
        raise TokenRejected(
            f"row {index} left its constraint at output position {position}: after "
            f"{so_far.decode(errors='replace')!r} came {self.vocabulary.token_text(token_id)} ({token_id}), allowed "
            f"were {self._filler.token_names(bitmask)}; "
            'find what forces this token, or use on_violation="close" to end such rows',
            row=index,
            position=position,
            token_id=token_id,
        )
