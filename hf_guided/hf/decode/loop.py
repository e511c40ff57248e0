"""The steps of the fast loop, over rows that may have different numbers of tokens.

1 prefill    run the prompts, and the text that every answer has to begin with (prefill.py)
2 forced     append text for which the grammar leaves no choice
3 draft      propose further tokens, if there is a source of drafts
4 fill       fill masks for the rows whose next token is to be chosen, on a thread of their own, while
5 forward    the model runs the tokens that are not in its cache yet, and the drafts
6 choose     keep the part of each draft that the model confirms, and choose one more token; back to 2 until all rows
             are finished
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import EmptyIntersection
from ...session.masks import Masks
from ...session.row import Row
from ...session.rows import advance
from ...session.run_ahead import Done, Pending
from ...session.session import Session
from ...session.transfers import to_device
from ...trace.events import Kind
from ..drafts.verify import Accepted, accept_greedy, accept_sampling, accept_seeded
from .cache_slots import CacheSlots
from .draft_blocks import EMPTY_BLOCK, DraftBlock, DraftBlocks
from .jump_forward import JumpForward
from .scores import Scoring
from .sequence_state import SequenceState
from .step_logprobs import StepLogprobs
from .stopping import RowStops


@dataclass(frozen=True)
class _Choice:
    """The rows whose next token is to be chosen, with drafts and masks.

    Args:
        rows: numbers of the rows that get scores.
        choosing: the rows among them that choose a token.
        drafts: for each of ``rows``.
        drafted: whether any draft has tokens.
        masks: for each of ``rows``, and after each segment of its draft; until they are filled, the worker owns the
            rows.
    """

    rows: list[int]
    choosing: set[int]
    drafts: list[DraftBlock]
    drafted: bool
    masks: Pending[Masks] | Done[Masks]


class DecodeLoop:
    """One generate() call.

    Args:
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        jump: appends forced text.
        drafter: drafts tokens, for models that can run several at once; None drafts nothing.
        do_sample: whether to sample rather than take the most likely token.
        seeds: of each row's random numbers; None draws with torch's generator.
        logprobs: records log probabilities; None records nothing.
    """

    def __init__(
        self,
        session: Session,
        slots: CacheSlots,
        scoring: Scoring,
        stops: RowStops,
        *,
        jump: JumpForward,
        drafter: DraftBlocks | None,
        do_sample: bool,
        seeds: Sequence[int] | None = None,
        logprobs: StepLogprobs | None = None,
    ):
        self._session = session
        self._slots = slots
        self._scoring = scoring
        self._stops = stops
        self._jump = jump
        self._drafter = drafter
        self._do_sample = do_sample
        self._seeds = seeds
        self._logprobs = logprobs
        self._sequences: Sequence[SequenceState] = []
        self._one_each = False  # whether every row runs one token in each forward pass, also within forced text

    def run(self, sequences: Sequence[SequenceState], logits: Tensor) -> None:
        """Generate until all rows are finished.

        Args:
            sequences: the rows after their prompts; written.
            logits: (rows, vocab) float32 after the prompts.
        """
        logits = logits[:, None]
        self._begin(sequences)
        running = self._running()
        choice = self._prepare([i for i in running if not self._sequences[i].unfed], {})
        while True:
            scores = self._choose(choice, logits) if choice.rows else None
            if self._logprobs is not None:
                self._logprobs.end(logits, scores)
            running = self._running()
            if not running:
                return
            choice, logits = self._forward(running)

    def _begin(self, sequences: Sequence[SequenceState]) -> None:
        slots = self._slots
        self._one_each = not slots.wide and (not slots.holes or self._scoring.wants_batch)
        self._sequences = sequences
        if not slots.holes or self._one_each or not self._scoring.takes_drafts:
            self._drafter = None
        if self._drafter is not None:
            for sequence, padding in zip(self._sequences, slots.padding, strict=True):
                sequence.padding = padding

    def _running(self) -> list[int]:
        # With log probabilities, forced text at the end of a row needs one more forward pass.
        recorded = self._logprobs
        return [
            i
            for i, sequence in enumerate(self._sequences)
            if not sequence.finished or (recorded is not None and recorded.pending(sequence))
        ]

    def _forward(self, running: Sequence[int]) -> tuple[_Choice, Tensor]:
        """Run the tokens that are not in the cache yet, as many as the model takes at once, and the drafts after them.

        Returns:
            The next choice; (rows, columns, vocab) logits.
        """
        blocks: list[list[int]] = [[] for _ in self._sequences]
        # With one token per row in each pass we do exactly what generate() does, so finished rows run too.
        for i in range(len(self._sequences)) if self._one_each else running:
            sequence = self._sequences[i]
            unfed = sequence.token_ids[len(sequence.token_ids) - sequence.unfed :]
            if sequence.finished and not self._one_each:
                unfed.pop()  # no token follows it, and the cache or the model may have no position left for it
            blocks[i] = unfed[:1] if self._one_each else unfed
        before = [] if self._logprobs is None else [self._length_fed(i) for i in range(len(blocks))]
        for sequence, block in zip(self._sequences, blocks, strict=True):
            sequence.unfed -= len(block)
        at_choice = [i for i in running if not self._sequences[i].unfed and not self._sequences[i].finished]
        drafts = {} if self._drafter is None else self._drafter.propose(self._sequences, at_choice)
        for i, draft in drafts.items():
            blocks[i] = [*blocks[i], *draft.tokens]
        choice = self._prepare(at_choice, drafts)
        keep = 1 + max(draft.ends[-1] for draft in choice.drafts) if choice.drafted else 1
        if self._logprobs is not None:
            self._logprobs.begin(before, blocks)
            keep = max(map(len, blocks))
        start = time.perf_counter_ns()
        logits = self._slots.run(blocks, keep)
        self._session.forwarded(start, running)
        return choice, logits

    def _prepare(self, at_choice: Sequence[int], drafts: Mapping[int, DraftBlock]) -> _Choice:
        # Processors that count rows want all of them: rows that choose nothing then get an empty mask, and no token.
        rows = list(range(len(self._sequences)) if at_choice and self._scoring.wants_batch else at_choice)
        choosing = set(at_choice)
        states = [self._sequences[i].row if i in choosing else Row(None) for i in rows]
        row_drafts = [drafts.get(i, EMPTY_BLOCK) for i in rows]
        left = [self._session.tokens_left(self._sequences[i].num_generated) for i in rows]
        segments = [draft.segments for draft in row_drafts] if drafts else None
        return _Choice(rows, choosing, row_drafts, bool(drafts), self._session.fill_ahead(states, left, segments, rows))

    def _choose(self, choice: _Choice, logits: Tensor) -> Tensor:
        """Extend the rows that choose a token; returns the (positions, vocab) scores."""
        masks = choice.masks.result()
        length = max(map(self._length_fed, choice.choosing)) if self._scoring.wants_batch else 0
        logit_rows: list[int] = []
        columns: list[int] = []
        ids: list[list[int]] = []  # before each position
        for i, draft in zip(choice.rows, choice.drafts, strict=True):
            fed: list[int] = []  # no processor reads them
            if self._scoring.wants_batch:  # equal lengths: waiting rows are not longer than the others, and finished
                fed = self._sequences[i].token_ids[: self._length_fed(i)][:length]  # rows are padded
                fed += [self._slots.pad_token_id] * (length - len(fed))
            ends, tokens = draft.ends, draft.tokens
            logit_rows += [i] * len(ends)
            columns += [end - ends[-1] - 1 for end in ends]
            ids += [[*fed, *tokens[:end]] for end in ends]
        # Usually the last column of every row is needed, which takes no index.
        only_last = len(logit_rows) == len(logits) and not choice.drafted
        if only_last:
            scores = logits[:, -1]
        else:
            rows_device, columns_device = to_device([logit_rows, columns], logits.device)
            scores = logits[rows_device, columns_device]
        dead_ends: dict[int, EmptyIntersection | str] = {}
        scores = self._scoring(
            ids, scores, lambda scores: self._session.apply(scores, masks, dead_ends.__setitem__, late=True)
        )
        firsts = [draft.firsts for draft in choice.drafts]
        accepted = self._accepted(choice, scores, firsts)
        if dead_ends:
            self._record_dead_ends(choice, accepted, dead_ends)
        if self._session.recorder is not None or self._logprobs is not None:
            self._record(choice, accepted)
        surplus, chosen = [0] * len(self._sequences), dict[int, int]()
        for i, draft, (agreed, bonus) in zip(choice.rows, choice.drafts, accepted, strict=True):
            if i in choice.choosing:
                if self._drafter is not None:
                    self._drafter.observe(i, draft, agreed)
                surplus[i] = draft.ends[-1] - self._confirm(i, draft, agreed)
                if not self._sequences[i].finished:
                    chosen[i] = bonus
        self._take(chosen)
        for i in choice.choosing:
            self._jump(self._sequences[i])
        if choice.drafted:
            self._slots.forget(surplus)
        return scores

    def _record_dead_ends(
        self, choice: _Choice, accepted: Sequence[Accepted], dead_ends: Mapping[int, EmptyIntersection | str]
    ) -> None:
        """Record the rows that have to end at the position where they choose; none gets beyond a rejected draft."""
        first = 0  # position of the row's scores
        for i, draft, kept in zip(choice.rows, choice.drafts, accepted, strict=True):
            if first + kept.num_drafted in dead_ends:
                self._session.record_dead_end(i, dead_ends[first + kept.num_drafted])
            first += len(draft.ends)

    def _record(self, choice: _Choice, accepted: Sequence[Accepted]) -> None:
        """Record the confirmed and chosen tokens; all other tokens of the step are forced."""
        first = 0  # position of the row's scores
        for i, draft, (agreed, bonus) in zip(choice.rows, choice.drafts, accepted, strict=True):
            if i in choice.choosing:
                for n, token_id in enumerate([*draft.firsts[:agreed], bonus]):
                    self._record_choice(i, draft.ends[n], first + n, token_id, "drafted" if n < agreed else "chosen")
            first += len(draft.ends)

    def _record_choice(self, i: int, end: int, scores: int, token_id: int, kind: Kind) -> None:
        sequence = self._sequences[i]
        if self._session.recorder is not None:
            self._session.recorder.chose(i, sequence.num_generated + end, scores, token_id, kind)
        if self._logprobs is not None:
            self._logprobs.chose(i, len(sequence.token_ids) + end, token_id, scores)

    def _accepted(self, choice: _Choice, scores: Tensor, firsts: Sequence[Sequence[int]]) -> list[Accepted]:
        """For each draft, how many of its tokens the model confirms, and the token after them."""
        if not self._do_sample:
            return accept_greedy(scores, firsts, self._read)
        if self._seeds is None:
            probabilities = [draft.probabilities for draft in choice.drafts]
            return accept_sampling(scores, firsts, probabilities, read=self._read)
        seeds: list[int] = []
        positions: list[int] = []
        for i, draft in zip(choice.rows, choice.drafts, strict=True):
            seeds += [self._seeds[i]] * len(draft.ends)
            positions += [self._sequences[i].num_generated + end for end in draft.ends]
        numbers = to_device([seeds, positions], scores.device)
        return accept_seeded(scores, firsts, numbers[0], numbers[1], self._read)

    def _read(self, numbers: Tensor) -> list[int]:
        """Numbers (n,) of the device, and with them which rows have to end: the host waits only once."""
        late = self._session.late_alive
        if late.unread is None:
            return numbers.tolist()
        read = torch.cat([numbers.long(), late.unread.long()]).tolist()
        late.read(read[len(numbers) :])
        return read[: len(numbers)]

    def _take(self, chosen: Mapping[int, int]) -> None:
        """Append the token that the model chose, to each of these rows."""
        rows = [self._sequences[i].row for i in chosen]
        for refused in advance(rows, [*chosen.values()]):  # a processor after the masks has forced it
            i, token_id = [*chosen.items()][refused]
            sequence = self._sequences[i]
            self._session.violated(i, sequence.row, token_id, sequence.token_ids[sequence.prompt_length :])
        for i, token_id in chosen.items():
            self._append(self._sequences[i], [token_id])

    def _confirm(self, i: int, draft: DraftBlock, agreed: int) -> int:
        """Append the confirmed segments of a row.

        Returns:
            How many tokens of the draft were appended: none after the row's end.
        """
        sequence, stats = self._sequences[i], self._session.stats
        written = 0
        for token_id in draft.tokens[: draft.ends[agreed]]:
            sequence.row.advance(token_id)
            self._append(sequence, [token_id])
            sequence.unfed -= 1
            written += 1
            if sequence.finished:
                break
        if draft.segments:
            # Confirmed tokens after the row's end are not written.
            accepted = sum(start < written for start in draft.ends[:agreed])
            stats.drafted_tokens += len(draft.segments)
            stats.accepted_tokens += accepted
            stats.forced_tokens += written - accepted
        return written

    def _length_fed(self, i: int) -> int:
        """How many tokens of a row are in the cache, drafts not counted."""
        return len(self._sequences[i].token_ids) - self._sequences[i].unfed

    def _append(self, sequence: SequenceState, token_ids: Sequence[int]) -> None:
        """Append tokens that the row has taken, up to the one that ends it."""
        self._session.stats.tokens += sequence.append(token_ids, self._stops)
