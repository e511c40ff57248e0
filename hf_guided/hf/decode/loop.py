"""The fast loop: one generate() call, over rows that may have different numbers of tokens.

1 prefill    run the prompts, while constraints compile; if they are compiled already, the same pass also runs the text
             with which every answer has to begin
2 forced     append text for which the grammar leaves no choice
3 draft      propose further tokens, if there is a source of drafts
4 fill       fill masks for the rows whose next token is to be chosen, on a thread of their own, while
5 forward    the model runs the tokens that are not in its cache yet, and the drafts
6 choose     keep the part of each draft that the model confirms, and choose one more token; back to 2 until all rows
             are finished
7 complete   bring a cache that the caller will see into the form in which generate() returns it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...backends.matcher import Narrowed
from ...errors import EmptyIntersection, VocabularySizeError
from ...session.logprobs import LogprobRecorder, Position
from ...session.masks import Masks
from ...session.row import Row, advance
from ...session.session import Session
from ...session.transfers import to_device
from ...trace.events import Kind
from ...vocabulary.retokenize import Continuation
from ..compat import is_callers_own
from ..drafts.base import DraftSource
from ..drafts.verify import Accepted, accept_greedy, accept_sampling, accept_seeded
from ..listening import TokenListener
from .cache_slots import CacheSlots
from .call import DecodeOptions, GenerateCall
from .draft_blocks import EMPTY_BLOCK, DraftBlock, DraftBlocks
from .forced_text import ForcedText
from .processors import RowStops, Scoring
from .sequences import SequenceState, jump_forward


class _Choice(NamedTuple):
    """The rows whose next token is to be chosen, with drafts and masks."""

    rows: list[int]  # numbers of the rows that get scores
    choosing: set[int]  # the rows among them that choose a token
    drafts: list[DraftBlock]  # for each of ``rows``
    drafted: bool  # whether any draft has tokens
    # For each of ``rows``, and after each segment of its draft. Until they are filled, the worker owns the rows.
    masks: Callable[[], Masks]


@dataclass(eq=False, repr=False)
class DecodeLoop:
    """One generate() call."""

    call: GenerateCall
    slots: CacheSlots  # the model and the cache of the call
    session: Session  # the constraints
    options: DecodeOptions
    _: KW_ONLY
    continuation: Continuation  # tokenizes forced text
    drafts: DraftSource | None  # the source that ``options.draft`` names; None drafts nothing
    listener: TokenListener | None  # gets the tokens of the rows
    seeds: Sequence[int] | None  # one for each row; None draws with torch's generator
    new_recorder: Callable[[], LogprobRecorder] | None  # makes the recorder for log probabilities; None records nothing

    def __post_init__(self) -> None:
        self._scoring = Scoring(self.call.processors)
        self._stops = RowStops(self.call.criteria, self.call.input_ids.device)
        # A processor that reads the tokens so far may forbid forced text, so it has to be called for each token.
        self._forced: ForcedText | None = None
        if self.options.jump_forward and not self._scoring.wants_batch:
            self._forced = ForcedText(
                self.session.vocabulary,
                self.continuation,
                self.session.stop_token_ids,
                retokenize=self.options.retokenize,
                may_stop=self.session.stop_token_ids[0] in self._stops.eos_token_ids,
                weighs_all=self.session.mass_record.weighs_all,
            )
        self._sequences: list[SequenceState] = []
        self._recorder: LogprobRecorder | None = None
        # Tokens that were chosen or verified in this step; forced text may still replace them.
        self._chosen: dict[tuple[int, int], tuple[int, int]] = {}  # (row, index of a token) -> token id, score index
        self._drafter: DraftBlocks | None = None
        # For each row of the last pass: its tokens in the cache before, and the number of tokens that were run.
        self._run: dict[int, tuple[int, int]] = {}
        self._one_each = False  # whether every row runs one token in each forward pass, also within forced text

    def run(self) -> list[list[int]]:
        """Generate until all rows are finished; returns the tokens of each, prompt and padding included."""
        logits = self._prefill()
        slots = self.slots
        self._one_each = not slots.wide and (not slots.holes or self._scoring.wants_batch)
        drafts = slots.holes and not self._one_each and self._scoring.takes_drafts
        if drafts and not self.options.retokenize:  # retokenizing may replace a token that was confirmed
            warp = self._scoring.warp if self.call.config.do_sample else None
            self._drafter = DraftBlocks(self.drafts, self.session, self._stops, self._forced, warp)
            for sequence, padding in zip(self._sequences, slots.padding, strict=True):
                sequence.padding = padding
        running = self._running()
        choice = self._prepare([i for i in running if not self._sequences[i].unfed], {})
        while True:
            scores = self._choose(choice, logits) if choice.rows else None
            self._weigh_forced(logits)  # which may report the end of a row
            if self._recorder is not None:
                self._record_logprobs(self._recorder, logits, scores)
            running = self._running()
            if not running:
                break
            choice, logits = self._forward(running)
        if slots.cache is not None and (self.call.config.return_dict_in_generate or is_callers_own(slots.cache)):
            self._complete_cache()
        return [sequence.token_ids for sequence in self._sequences]

    def _prefill(self) -> Tensor:
        """Run the prompts, and create the rows; (rows, columns, vocab) logits of the last columns."""
        session, prompts = self.session, self.call.input_ids.tolist()
        # With log probabilities, the logits after each forced token are needed, and a prefill returns only the last.
        text_too = self._forced is not None and self.new_recorder is None
        ready = text_too and session.requests.compiled and self.slots.prompt_can_grow
        if ready:
            self._start_rows(prompts)
        width = min((sequence.unfed for sequence in self._sequences), default=0)  # a pass has one width for all rows
        if ready and all(sequence.finished for sequence in self._sequences):
            width -= 1  # no token follows the last one, and a cache or the model may have no position left for it
        keep = 1
        if any(sequence.narrowed for sequence in self._sequences):  # the logits before forced tokens are needed, too
            width = 0 if self.call.config.prefill_chunk_size else width
            keep += width
        began = time.perf_counter_ns()
        start = [sequence.token_ids[sequence.prompt_length :][:width] for sequence in self._sequences]
        self.slots.prefill(start, keep)
        logits = self.slots.last(keep)
        session.forwarded(began, range(len(prompts)))
        if logits.shape[-1] != session.vocabulary.padded_size:
            raise VocabularySizeError.of_logits(logits.shape[-1], session.vocabulary.padded_size)
        for sequence in self._sequences:
            sequence.unfed -= width
        if not ready:
            self._start_rows(prompts)
        if self.new_recorder is not None:
            self._recorder = self.new_recorder()
        self._run = {i: (sequence.prompt_length - 1, 1 + width) for i, sequence in enumerate(self._sequences)}
        return logits

    def _start_rows(self, prompts: Sequence[list[int]]) -> None:
        """Create the rows at the beginning of their constraints, with the text that is forced there."""
        rows = self.session.begin(len(prompts), prompts)
        for i, (row, ids) in enumerate(zip(rows, prompts, strict=True)):
            listener = None if self.listener is None else partial(self.listener.on_tokens, i)
            sequence = SequenceState(row, ids, len(ids), num_reported=len(ids), listener=listener)
            self._sequences.append(sequence)
        if self._forced is not None:
            for sequence in self._sequences:
                jump_forward(sequence, self.session, self._stops, self._forced)

    def _running(self) -> list[int]:
        # Where its log probabilities are needed, forced text at the end of a row takes one more forward pass.
        recorded = self._recorder is not None
        return [
            i
            for i, sequence in enumerate(self._sequences)
            if not sequence.finished or sequence.narrowed or (recorded and sequence.unfed > 1)
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
            unfed = sequence.token_ids[sequence.num_fed :]
            if sequence.finished and not self._one_each:
                unfed.pop()  # no token follows it, and the cache or the model may have no position left for it
            blocks[i] = unfed[:1] if self._one_each else unfed
        before = [sequence.num_fed for sequence in self._sequences]
        for sequence, block in zip(self._sequences, blocks, strict=True):
            sequence.unfed -= len(block)
        at_choice = [i for i in running if not self._sequences[i].unfed and not self._sequences[i].finished]
        drafts = {} if self._drafter is None else self._drafter.propose(self._sequences, at_choice)
        for i, draft in drafts.items():
            blocks[i] = [*blocks[i], *draft.tokens]
        self._run = {i: (before[i], len(block)) for i, block in enumerate(blocks) if block}
        choice = self._prepare(at_choice, drafts)
        keep = 1 + max(draft.ends[-1] for draft in choice.drafts) if choice.drafted else 1
        if self._recorder is not None or any(sequence.narrowed for sequence in self._sequences):
            keep = max(map(len, blocks))
        start = time.perf_counter_ns()
        logits = self.slots.run(blocks, keep)
        self.session.forwarded(start, running)
        return choice, logits

    def _prepare(self, at_choice: Sequence[int], drafts: Mapping[int, DraftBlock]) -> _Choice:
        # Processors that count rows want all of them: rows that choose nothing then get an empty mask, and no token.
        rows = list(range(len(self._sequences)) if at_choice and self._scoring.wants_batch else at_choice)
        choosing = set(at_choice)
        states = [self._sequences[i].row if i in choosing else Row(None) for i in rows]
        row_drafts = [drafts.get(i, EMPTY_BLOCK) for i in rows]
        left = [self.session.tokens_left(self._sequences[i].num_generated) for i in rows]
        segments = [draft.segments for draft in row_drafts] if drafts else None
        return _Choice(rows, choosing, row_drafts, bool(drafts), self.session.fill_ahead(states, left, segments, rows))

    def _choose(self, choice: _Choice, logits: Tensor) -> Tensor:
        """Extend the rows that choose a token; returns the (positions, vocab) scores."""
        masks = choice.masks()
        length = max(self._sequences[i].num_fed for i in choice.choosing) if self._scoring.wants_batch else 0
        logit_rows: list[int] = []
        columns: list[int] = []
        ids: list[list[int]] = []  # before each position
        for i, draft in zip(choice.rows, choice.drafts, strict=True):
            fed: list[int] = []  # no processor reads them
            if self._scoring.wants_batch:  # equal lengths: waiting rows are not longer than the others, and finished
                fed = self._sequences[i].token_ids[: self._sequences[i].num_fed][:length]  # rows are padded
                fed += [self.slots.pad_token_id] * (length - len(fed))
            ends, tokens = draft.ends, draft.tokens
            logit_rows += [i] * len(ends)
            columns += [end - ends[-1] - 1 for end in ends]
            ids += [[*fed, *tokens[:end]] for end in ends]
        # Usually the last column of every row is needed, which takes no index.
        if len(logit_rows) == len(logits) and not choice.drafted:
            scores = logits[:, -1]
        else:
            rows_device, columns_device = to_device([logit_rows, columns], logits.device)
            scores = logits[rows_device, columns_device]
        dead_ends: dict[int, EmptyIntersection | str] = {}
        scores = self._scoring(
            ids, scores, lambda scores: self.session.apply(scores, masks, dead_ends.__setitem__, late=True)
        )
        surplus, chosen = [0] * len(self._sequences), dict[int, int]()
        first = 0  # position of the row's scores
        for i, draft, (agreed, bonus) in zip(choice.rows, choice.drafts, self._accepted(choice, scores), strict=True):
            if first + agreed in dead_ends:  # where the row chooses; none gets beyond a rejected draft
                self.session.record_dead_end(i, dead_ends[first + agreed])
            if i in choice.choosing:
                records = self.session.recorder is not None or self._recorder is not None
                if records or not self.session.mass_record.is_empty:
                    # Only confirmed and chosen tokens: all other tokens of the step are forced.
                    for n, token_id in enumerate([*draft.firsts[:agreed], bonus]):
                        self._record(i, draft.ends[n], first + n, token_id, "drafted" if n < agreed else "chosen")
                if draft.segments:
                    surplus[i] = draft.ends[-1] - self._confirm(i, draft, agreed)
                if not self._sequences[i].finished:
                    chosen[i] = bonus
            first += len(draft.ends)
        self._take(chosen)
        for i in choice.choosing:
            jump_forward(self._sequences[i], self.session, self._stops, self._forced)
        if choice.drafted:
            self.slots.forget(surplus)
        return scores

    def _accepted(self, choice: _Choice, scores: Tensor) -> list[Accepted]:
        """For each draft, how many of its tokens the model confirms, and the token after them."""
        firsts = [draft.firsts for draft in choice.drafts]
        if not self.call.config.do_sample:
            return accept_greedy(scores, firsts, self._read)
        if self.seeds is None:
            probabilities = [draft.probabilities for draft in choice.drafts]
            return accept_sampling(scores, firsts, probabilities, read=self._read)
        seeds: list[int] = []
        positions: list[int] = []
        for i, draft in zip(choice.rows, choice.drafts, strict=True):
            seeds += [self.seeds[i]] * len(draft.ends)
            positions += [self._sequences[i].num_generated + end for end in draft.ends]
        numbers = to_device([seeds, positions], scores.device)
        return accept_seeded(scores, firsts, numbers[0], numbers[1], self._read)

    def _read(self, numbers: Tensor) -> list[int]:
        """Numbers (n,) of the device, and with them which rows have to end: the host waits only once."""
        late = self.session.late_alive
        if late.unread is None:
            return numbers.tolist()
        read = torch.cat([numbers.long(), late.unread.long()]).tolist()
        late.read(read[len(numbers) :])
        return read[: len(numbers)]

    def _record(self, i: int, end: int, scores: int, token_id: int, kind: Kind) -> None:
        """Record a token of a row: after this many tokens of its draft, from the scores with this index."""
        sequence = self._sequences[i]
        self.session.mass_record.note(i, sequence.num_generated + end, scores)
        if self.session.recorder is not None:
            self.session.recorder.chose(i, sequence.num_generated + end, scores, token_id, kind)
        if self._recorder is not None:
            self._chosen[i, len(sequence.token_ids) + end] = token_id, scores

    def _confirm(self, i: int, draft: DraftBlock, agreed: int) -> int:
        """Append the confirmed segments of a row's draft; returns how many of its tokens: none after the row's end."""
        assert self._drafter is not None
        self._drafter.observe(i, draft, agreed)
        sequence, stats = self._sequences[i], self.session.stats
        written, firsts = 0, set(draft.ends)
        always = self.session.mass_record.weighs_all
        near = always or sequence.row.is_near_limit(self.session.tokens_left(sequence.num_generated))
        for index, token_id in enumerate(draft.tokens[: draft.ends[agreed]]):
            if near and index not in firsts:  # the token is forced
                both = sequence.row.narrowed(self.session.tokens_left(sequence.num_generated), always=always)
                if both is not None:
                    sequence.narrowed[len(sequence.token_ids)] = both
            sequence.row.advance(token_id)
            written += sequence.append([token_id], self._stops)
            sequence.unfed -= 1
            if sequence.finished:
                break
        accepted = sum(start < written for start in draft.ends[:agreed])  # none after the row's end
        stats.tokens += written
        stats.drafted_tokens += len(draft.segments)
        stats.accepted_tokens += accepted
        stats.forced_tokens += written - accepted
        return written

    def _take(self, chosen: Mapping[int, int]) -> None:
        """Append the token that the model chose, to each of these rows."""
        rows = [self._sequences[i].row for i in chosen]
        for refused in advance(rows, [*chosen.values()]):  # a processor after the masks has forced it
            i, token_id = [*chosen.items()][refused]
            sequence = self._sequences[i]
            self.session.violated(i, sequence.row, token_id, sequence.token_ids[sequence.prompt_length :])
        for i, token_id in chosen.items():
            self.session.stats.tokens += self._sequences[i].append([token_id], self._stops)

    def _weigh_forced(self, logits: Tensor) -> None:
        """Weigh the forced tokens that have masks to weigh and whose logits the last pass has given.

        Args:
            logits: (rows, columns, vocab); the last column belongs to a row's last token.
        """
        found: list[tuple[int, int, int, Narrowed]] = []
        for i, (before, width) in self._run.items():
            sequence = self._sequences[i]
            for index in [index for index in sequence.narrowed if index <= sequence.num_fed]:
                found.append((i, index, index - before - 1 - width, sequence.narrowed.pop(index)))
        if not found:
            return
        rows_device, columns_device = to_device([[one[0] for one in found], [one[2] for one in found]], logits.device)
        scores = self._scoring.unmasked([()] * len(found), logits[rows_device, columns_device])
        record = self.session.mass_record
        record.see(scores, {place: one[3] for place, one in enumerate(found)})
        for place, (i, index, _, _) in enumerate(found):
            record.note(i, index - self._sequences[i].prompt_length, place)
        for i in {one[0] for one in found}:
            if self._sequences[i].finished:  # its end was held back
                self._sequences[i].report()

    def _record_logprobs(self, recorder: LogprobRecorder, logits: Tensor, scores: Tensor | None) -> None:
        """Record the tokens whose logits the last pass has given, each once and in order; all of them are final now.

        Args:
            recorder: gets them.
            logits: (rows, columns, vocab); the last column belongs to a row's last token, those before it to forced
                text and to verified drafts.
            scores: (positions, vocab) of the step; None if no token was chosen.
        """
        rows: list[int] = []
        columns: list[int] = []
        positions: list[Position] = []
        for i, (before, width) in self._run.items():
            sequence = self._sequences[i]
            # ``num_fed`` has no rejected drafts.
            for index in range(before + 1, min(sequence.num_fed + 1, len(sequence.token_ids))):
                token_id = sequence.token_ids[index]
                chosen, score_index = self._chosen.get((i, index), (None, None))
                rows.append(i)
                columns.append(index - before - 1 - width)
                positions.append(Position(i, token_id, score_index if chosen == token_id else None))
        self._chosen.clear()
        if positions:
            recorder.record(logits[rows, columns], positions, scores)

    def _complete_cache(self) -> None:
        """Bring the cache into the form in which generate() returns it, so that a next turn can continue from it.

        Slot j then holds column j of the returned tokens, for every column but the last: generate() never runs the last
        one. To save passes, this loop has not run a row's last tokens, and has left holes between slots. Running these
        tokens takes one more forward pass; one for each of them where a pass takes one token per row.
        """
        slots, sequences = self.slots, self._sequences
        end = max(len(sequence.token_ids) for sequence in sequences) - 1
        while any(blocks := [sequence.token_ids[sequence.num_fed : end] for sequence in sequences]):
            if not slots.holes and not slots.wide:
                blocks = [block[:1] for block in blocks]
            slots.run(blocks)
            for sequence, block in zip(sequences, blocks, strict=True):
                sequence.unfed -= len(block)
        if slots.holes:
            slots.close_holes(end - self.call.prompt_length)
