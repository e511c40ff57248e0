"""The steps of the fast loop, over rows that may have different numbers of tokens.

1 prefill    the prompts, and what every answer has to begin with (prefill.py)
2 forced     text that the grammar leaves no choice about is appended
3 guess      what comes behind, where there is a source of drafts
4 fill       masks for the rows that will be at a choice, on a thread of their own, while
5 forward    the model runs what is not in its cache yet, and the guesses
6 choose     keep of each guess what the model confirms, and one token more; back to 2 until all rows are over
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...session.background_worker import Pending
from ...session.masks import Masks
from ...session.row import Row
from ...session.session import Session
from ...trace.events import Kind
from ..drafts.verify import Accepted, accept_greedy, accept_sampling, accept_seeded
from .cache_slots import CacheSlots
from .draft_blocks import NO_GUESS, Guess, Guesser
from .jump_forward import Jumps
from .scores import Scoring
from .sequence_state import Line
from .step_logprobs import StepLogprobs
from .stopping import RowStops


@dataclass(frozen=True)
class _Choice:
    """Rows whose next token is to be chosen, and what may come.

    Args:
        places: the rows of the batch that are looked at.
        at: those of them that are at a choice.
        guesses: for each place.
        drafted: whether there are tokens in any of them.
        masks: for each place, and behind each segment guessed there; until they are there the rows are the worker's.
    """

    places: list[int]
    at: set[int]
    guesses: list[Guess]
    drafted: bool
    masks: Pending[Masks]


class DecodeLoop:
    """One generate() call.

    Args:
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        jump: appends forced text.
        guesser: guesses ahead, for models that can take that; None guesses nothing.
        do_sample: whether to sample, or take the best.
        seeds: of what each row draws; None draws with torch's generator.
        logprobs: records log probabilities; None records nothing.
    """

    def __init__(
        self,
        session: Session,
        slots: CacheSlots,
        scoring: Scoring,
        stops: RowStops,
        *,
        jump: Jumps,
        guesser: Guesser | None,
        do_sample: bool,
        seeds: Sequence[int] | None = None,
        logprobs: StepLogprobs | None = None,
    ):
        self._session = session
        self._slots = slots
        self._scoring = scoring
        self._stops = stops
        self._jump = jump
        self._guesser = guesser
        self._do_sample = do_sample
        self._seeds = seeds
        self._logprobs = logprobs
        self._lines: Sequence[Line] = []
        self._one_each = False  # whether every row gets one token in each forward pass, forced or not

    def run(self, lines: Sequence[Line], logits: Tensor) -> None:
        """Generate until all rows are over.

        Args:
            lines: the rows behind their prompts; written.
            logits: (rows, vocab) float32 behind the prompts.
        """
        logits = logits[:, None]
        self._begin(lines)
        running = self._running()
        choice = self._prepare([i for i in running if not self._lines[i].unfed], {})
        while True:
            scores = self._choose(choice, logits) if choice.places else None
            if self._logprobs is not None:
                self._logprobs.end(logits, scores)
            running = self._running()
            if not running:
                return
            choice, logits = self._forward(running)

    def _begin(self, lines: Sequence[Line]) -> None:
        slots = self._slots
        self._one_each = not slots.wide and (not slots.holes or self._scoring.wants_batch)
        self._lines = lines
        if not slots.holes or self._one_each or not self._scoring.takes_guesses:
            self._guesser = None
        if self._guesser is not None:
            for line, padding in zip(self._lines, slots.padding, strict=True):
                line.padding = padding

    def _running(self) -> list[int]:
        # Log probabilities of forced text at the end of a row take one pass more than its text.
        recorded = self._logprobs
        return [
            i
            for i, line in enumerate(self._lines)
            if not line.over or (recorded is not None and recorded.pending(line))
        ]

    def _forward(self, running: Sequence[int]) -> tuple[_Choice, Tensor]:
        """Run what is not in the cache yet, or as much of it as the model takes at once, and what is drafted behind.

        Returns:
            The choice to be made then; (rows, columns, vocab) logits.
        """
        blocks: list[list[int]] = [[] for _ in self._lines]
        for i in running:
            line = self._lines[i]
            unfed = line.token_ids[-line.unfed :]
            if line.over:
                unfed.pop()  # nothing comes after it: a cache may have no room for it, nor the model a position
            blocks[i] = unfed[:1] if self._one_each else unfed
        before = [] if self._logprobs is None else [self._length_fed(i) for i in range(len(blocks))]
        for i in running:
            self._lines[i].unfed -= len(blocks[i])
        at_choice = [i for i in running if not self._lines[i].unfed]
        guesses = {} if self._guesser is None else self._guesser.guesses(self._lines, at_choice)
        for i, guess in guesses.items():
            blocks[i] = [*blocks[i], *guess.tokens]
        choice = self._prepare(at_choice, guesses)
        keep = 1 + max(guess.ends[-1] for guess in choice.guesses) if choice.drafted else 1
        if self._logprobs is not None:
            self._logprobs.begin(before, blocks)
            keep = max(map(len, blocks))
        start = time.perf_counter_ns()
        logits = self._slots.run(blocks, keep)
        self._session.forwarded(start, running)
        return choice, logits

    def _prepare(self, at_choice: Sequence[int], guesses: Mapping[int, Guess]) -> _Choice:
        # Processors that count rows want all of them: those not at a choice are nobody's, and nothing comes of them.
        places = list(range(len(self._lines)) if at_choice and self._scoring.wants_batch else at_choice)
        at = set(at_choice)
        rows = [self._lines[i].row if i in at else Row(None) for i in places]
        guessed = [guesses.get(i, NO_GUESS) for i in places]
        most = self._session.max_new_tokens
        left = [None if most is None else most - self._lines[i].num_generated for i in places]
        segments = [guess.segments for guess in guessed] if guesses else None
        return _Choice(places, at, guessed, bool(guesses), self._session.fill_ahead(rows, left, segments))

    def _choose(self, choice: _Choice, logits: Tensor) -> Tensor:
        """Extend the rows that are at a choice; returns the (lines, vocab) scores they were chosen from."""
        masks = choice.masks.result()
        length = max(map(self._length_fed, choice.at)) if self._scoring.wants_batch else 0
        rows: list[int] = []
        columns: list[int] = []
        ids: list[list[int]] = []  # in front of each line of scores
        for i, guess in zip(choice.places, choice.guesses, strict=True):
            fed: list[int] = []  # nobody looks at them
            if self._scoring.wants_batch:  # of one length: rows that wait are no longer than the others, rows that
                fed = self._lines[i].token_ids[: self._length_fed(i)][:length]  # are over have padding
                fed += [self._slots.pad_token_id] * (length - len(fed))
            ends, tokens = guess.ends, guess.tokens
            rows += [i] * len(ends)
            columns += [end - ends[-1] - 1 for end in ends]
            ids += [[*fed, *tokens[:end]] for end in ends]
        # As a rule the last column of every row is wanted; an index would have to travel to a GPU.
        last_of_all = len(rows) == len(logits) and not choice.drafted
        scores = logits[:, -1] if last_of_all else logits[rows, columns]
        scores = self._scoring(ids, scores, lambda scores: self._session.apply(scores, masks))
        firsts = [guess.firsts for guess in choice.guesses]
        accepted = self._accepted(choice, scores, firsts)
        if self._session.recorder is not None or self._logprobs is not None:
            self._record(choice, accepted)
        if choice.drafted:
            # Rejected tokens leave the cache; rows that are over have nothing there to keep.
            rejected = {
                i: guess.ends[-1] - guess.ends[kept.num_drafted]
                for i, guess, kept in zip(choice.places, choice.guesses, accepted, strict=True)
            }
            most = max(rejected.values())
            self._slots.forget([rejected.get(i, most) for i in range(len(self._lines))])
        for i, guess, (agreed, bonus) in zip(choice.places, choice.guesses, accepted, strict=True):
            if i in choice.at:
                if self._guesser is not None:
                    self._guesser.observe(i, guess, agreed)
                self._take(i, guess, agreed, bonus)
        return scores

    def _record(self, choice: _Choice, accepted: Sequence[Accepted]) -> None:
        """Say what was confirmed and chosen; what else is written behind it is forced."""
        first = 0  # of a place's lines of scores
        for i, guess, (agreed, bonus) in zip(choice.places, choice.guesses, accepted, strict=True):
            if i in choice.at:
                for n, token_id in enumerate([*guess.firsts[:agreed], bonus]):
                    self._record_choice(i, guess.ends[n], first + n, token_id, "drafted" if n < agreed else "chosen")
            first += len(guess.ends)

    def _record_choice(self, i: int, end: int, scores: int, token_id: int, kind: Kind) -> None:
        line = self._lines[i]
        if self._session.recorder is not None:
            self._session.recorder.chose(i, line.num_generated + end, scores, token_id, kind)
        if self._logprobs is not None:
            self._logprobs.chose(i, len(line.token_ids) + end, token_id, scores)

    def _accepted(self, choice: _Choice, scores: Tensor, firsts: Sequence[Sequence[int]]) -> list[Accepted]:
        """Of each guess what the model confirms, and the token behind it."""
        if not self._do_sample:
            return accept_greedy(scores, firsts)
        if self._seeds is None:
            return accept_sampling(scores, firsts, [guess.probabilities for guess in choice.guesses])
        seeds: list[int] = []
        positions: list[int] = []
        for i, guess in zip(choice.places, choice.guesses, strict=True):
            seeds += [self._seeds[i]] * len(guess.ends)
            positions += [self._lines[i].num_generated + end for end in guess.ends]
        numbers = torch.tensor([seeds, positions], device=scores.device)
        return accept_seeded(scores, firsts, numbers[0], numbers[1])

    def _take(self, i: int, guess: Guess, agreed: int, bonus: int) -> None:
        """Add the segments that the model has seen and confirmed, and the token that it chose behind them."""
        line, stats = self._lines[i], self._session.stats
        written = 0
        for token_id in guess.tokens[: guess.ends[agreed]]:
            line.row.advance(token_id)
            self._append(line, [token_id])
            line.unfed -= 1
            written += 1
            if line.over:
                break
        else:
            if not line.row.advance(bonus):  # who came behind the masks has forced it
                self._session.violated(i, line.row, bonus, line.token_ids[line.prompt_length :])
            self._append(line, [bonus])
        if guess.segments:
            # Of what was confirmed, that behind the row's end is not written.
            accepted = sum(start < written for start in guess.ends[:agreed])
            stats.drafted_tokens += len(guess.segments)
            stats.accepted_tokens += accepted
            stats.forced_tokens += written - accepted
        self._jump(line)

    def _length_fed(self, i: int) -> int:
        """How many tokens of a row the model has seen, drafts aside."""
        return len(self._lines[i].token_ids) - self._lines[i].unfed

    def _append(self, line: Line, token_ids: Sequence[int]) -> None:
        """Add tokens that the row has taken, up to the one that ends it."""
        self._session.stats.tokens += line.append(token_ids, self._stops)
