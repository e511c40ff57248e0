"""The steps of the fast loop, over rows that may have different numbers of tokens.

1 prefill    the prompts, while constraints still compile
2 forced     text that the grammar leaves no choice about is appended
3 fill       masks for the rows that will be at a choice, while
4 forward    the model runs what is not in its cache yet
5 choose     a token for each of those rows; back to 2 until all rows are over
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from torch import Tensor

from ..acceptance import accept_greedy, accept_sampling
from ..drafts import Asked, Draft, DraftLength, DraftSource
from ..forced import ForcedText
from ..masks import Masks
from ..row import Row
from ..session import Session
from .sampling import Scoring
from .slots import Slots
from .stopping import RowStops


@dataclass
class Line:
    """One row of the batch, and its text.

    Args:
        row: its place in the grammar.
        token_ids: prompt, padding included, and output so far.
        prompt_length: how many of them are the prompt.
        unfed: how many of the last are not in the model's cache yet.
        padding: how many of the prompt are padding.
        over: whether it has ended.
        streamed: how many of the tokens the streamer has.
    """

    row: Row
    token_ids: list[int]
    prompt_length: int
    unfed: int = 0
    padding: int = 0
    over: bool = False
    streamed: int = 0

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length


@dataclass(frozen=True)
class _Guess:
    """A draft as it will be written: stretches of a drafted token and the forced text behind it.

    Args:
        stretches: what the model confirms or rejects is the first token of each.
        probabilities: of those first tokens, as in ``Draft``.
    """

    stretches: Sequence[Sequence[int]] = ()
    probabilities: Tensor | None = None

    @property
    def firsts(self) -> list[int]:
        """The tokens to be confirmed."""
        return [stretch[0] for stretch in self.stretches]

    @property
    def ends(self) -> list[int]:
        """How many tokens there are up to each place where one is to be chosen."""
        return list(accumulate(map(len, self.stretches), initial=0))

    @property
    def tokens(self) -> list[int]:
        """All of it."""
        return list(chain(*self.stretches))


@dataclass(frozen=True)
class _Choice:
    """Rows whose next token is to be chosen, and what may come.

    Args:
        places: the rows of the batch that are looked at.
        at: those of them that are at a choice.
        guesses: for each place.
        masks: for each place, and behind each stretch guessed there.
    """

    places: list[int]
    at: set[int]
    guesses: list[_Guess]
    masks: Masks


class DecodeLoop:
    """One generate() call.

    Args:
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        forced: finds forced text; None samples it like all other text.
        drafts: a source of drafts; None, and models that cannot take them, draft nothing.
        do_sample: whether to sample, or take the best.
        streamer: gets every token of a single row; or None.
    """

    def __init__(
        self,
        session: Session,
        slots: Slots,
        scoring: Scoring,
        stops: RowStops,
        *,
        forced: ForcedText | None,
        drafts: DraftSource | None,
        do_sample: bool,
        streamer: Any,
    ):
        self._session = session
        self._slots = slots
        self._scoring = scoring
        self._stops = stops
        self._forced = forced
        self._drafts = drafts
        self._lengths = DraftLength()
        self._do_sample = do_sample
        self._streamer = streamer
        self._lines: list[Line] = []
        self._one_each = False  # whether every row gets one token in each forward pass, forced or not

    def run(self, prompts: Sequence[Sequence[int]]) -> list[Line]:
        """Generate until all rows are over.

        Args:
            prompts: token ids of each row, padding included.
        """
        logits = self._slots.prefill()[:, None]
        self._begin(prompts)
        running = self._running()
        choice = self._prepare([i for i in running if not self._lines[i].unfed], {})
        while True:
            if choice.places:
                self._choose(choice, logits)
            running = self._running()
            if not running:
                return self._lines
            choice, logits = self._forward(running)

    def _begin(self, prompts: Sequence[Sequence[int]]) -> None:
        slots = self._slots
        self._one_each = not slots.wide and (not slots.holes or self._scoring.wants_batch)
        rows = zip(self._session.begin(len(prompts)), prompts, strict=True)
        self._lines = [Line(row, list(ids), len(ids), streamed=len(ids)) for row, ids in rows]
        self._count_forward(len(prompts))
        if not slots.holes or self._one_each:
            self._drafts = None
        if self._drafts is not None:
            self._drafts.reset()
            for line, count in zip(self._lines, slots.counts, strict=True):
                line.padding = line.prompt_length - count
        for line in self._lines:
            self._jump(line)

    def _running(self) -> list[int]:
        return [i for i, line in enumerate(self._lines) if not line.over]

    def _forward(self, running: Sequence[int]) -> tuple[_Choice, Tensor]:
        """Run what is not in the cache yet, or as much of it as the model takes at once, and what is drafted behind.

        Returns:
            The choice to be made then; (rows, columns, vocab) logits.
        """
        blocks: list[list[int]] = [[] for _ in self._lines]
        for i in running:
            line = self._lines[i]
            unfed = line.token_ids[-line.unfed :]
            blocks[i] = unfed[:1] if self._one_each else unfed
            line.unfed -= len(blocks[i])
        at_choice = [i for i in running if not self._lines[i].unfed]
        guesses = self._guesses(at_choice)
        for i, guess in guesses.items():
            blocks[i] = [*blocks[i], *guess.tokens]
        choice = self._prepare(at_choice, guesses)
        logits = self._slots.run(blocks, keep=1 + max((guess.ends[-1] for guess in choice.guesses), default=0))
        self._count_forward(len(running))
        return choice, logits

    def _guesses(self, at_choice: Sequence[int]) -> dict[int, _Guess]:
        if self._drafts is None:
            return {}
        asked = []
        for i in at_choice:
            line, left = self._lines[i], self._tokens_left(self._lines[i])
            room = self._stops.room(line.token_ids) if left is None else min(left, self._stops.room(line.token_ids))
            asked.append(
                Asked(
                    index=i,
                    row=line.row,
                    token_ids=line.token_ids[line.padding :],
                    prompt_length=line.prompt_length - line.padding,
                    limit=int(min(self._lengths.wanted(i), room - 1)),
                    stop_token_ids=self._session.stop_token_ids,
                    prefix=self._session.prefix_of(i, len(self._lines)),
                )
            )
        drafts = self._drafts.propose(asked)
        return {i: self._guess(self._lines[i], draft) for i, draft in zip(at_choice, drafts, strict=True)}

    def _guess(self, line: Line, draft: Draft) -> _Guess:
        stretches: list[list[int]] = [[token_id] for token_id in draft.tokens]
        if self._forced is not None:
            stretches = self._forced.stretches(line.row, line.token_ids, draft.tokens, self._tokens_left(line))
        q = draft.probabilities
        if q is not None:
            places = list(accumulate(map(len, stretches), initial=0))[:-1]  # all but the last agree with the draft
            q = q[places]
        return _Guess(stretches, q)

    def _prepare(self, at_choice: Sequence[int], guesses: Mapping[int, _Guess]) -> _Choice:
        # Processors that count rows want all of them: those not at a choice are nobody's, and nothing comes of them.
        places = list(range(len(self._lines)) if at_choice and self._scoring.wants_batch else at_choice)
        at = set(at_choice)
        rows = [self._lines[i].row if i in at else Row(None) for i in places]
        guessed = [guesses.get(i, _Guess()) for i in places]
        left = [self._tokens_left(self._lines[i]) for i in places]
        return _Choice(places, at, guessed, self._session.fill(rows, left, [guess.stretches for guess in guessed]))

    def _choose(self, choice: _Choice, logits: Tensor) -> None:
        columns, length = logits.shape[1], max(map(self._length_fed, choice.at))
        lines, ids = [], []
        for i, guess in zip(choice.places, choice.guesses, strict=True):
            fed = self._lines[i].token_ids[: self._length_fed(i)]
            if self._scoring.wants_batch:  # of one length: rows that wait are no longer than the others, rows that
                fed = fed[:length] + [self._slots.pad_token_id] * (length - len(fed))  # are over have padding
            ends, tokens = guess.ends, guess.tokens
            lines.append(logits[i, [columns - 1 - ends[-1] + end for end in ends]])
            ids += [[*fed, *tokens[:end]] for end in ends]
        scores = self._scoring(ids, torch.cat(lines), lambda scores: self._session.apply(scores, choice.masks))
        firsts = [guess.firsts for guess in choice.guesses]
        if self._do_sample:
            accepted = accept_sampling(scores, firsts, [guess.probabilities for guess in choice.guesses])
        else:
            accepted = accept_greedy(scores, firsts)
        if any(firsts):
            # Rejected tokens leave the cache; rows that are over have nothing there to keep.
            rejected = {
                i: guess.ends[-1] - guess.ends[kept.num_drafted]
                for i, guess, kept in zip(choice.places, choice.guesses, accepted, strict=True)
            }
            most = max(rejected.values())
            self._slots.forget([rejected.get(i, most) for i in range(len(self._lines))])
        for i, guess, (agreed, bonus) in zip(choice.places, choice.guesses, accepted, strict=True):
            if i in choice.at:
                self._lengths.observe(i, len(guess.stretches), agreed)
                self._take(self._lines[i], guess, agreed, bonus)

    def _take(self, line: Line, guess: _Guess, agreed: int, bonus: int) -> None:
        """Add the stretches that the model has seen and confirmed, and the token that it chose behind them."""
        stats = self._session.stats
        stats.drafted_tokens += len(guess.stretches)
        stats.accepted_tokens += agreed
        for token_id in guess.tokens[: guess.ends[agreed]]:
            line.row.advance(token_id)
            self._append(line, [token_id])
            line.unfed -= 1
            if line.over:
                break
        else:
            line.row.advance(bonus)
            self._append(line, [bonus])
        stats.forced_tokens += guess.ends[agreed] - agreed
        self._jump(line)

    def _length_fed(self, i: int) -> int:
        """How many tokens of a row the model has seen, drafts aside."""
        return len(self._lines[i].token_ids) - self._lines[i].unfed

    def _jump(self, line: Line) -> None:
        """Append what the grammar leaves no choice about."""
        if self._forced is not None and not line.over:
            taken_back, token_ids = self._forced.advance(
                line.row, line.token_ids, self._tokens_left(line), loose=line.unfed > 0
            )
            if taken_back:
                del line.token_ids[-taken_back:]
                line.unfed -= taken_back
                self._session.stats.tokens -= taken_back
            self._append(line, token_ids)
            self._session.stats.forced_tokens += len(token_ids) - taken_back
        if self._streamer is not None:
            self._streamer.put(torch.tensor(line.token_ids[line.streamed :]))
            line.streamed = len(line.token_ids)

    def _append(self, line: Line, token_ids: Sequence[int]) -> None:
        """Add tokens that the row has taken, up to the one that ends it."""
        for token_id in token_ids:
            line.token_ids.append(token_id)
            line.unfed += 1
            self._session.stats.tokens += 1
            if self._stops(line.token_ids):
                line.over = True
                break

    def _tokens_left(self, line: Line) -> int | None:
        return self._session.tokens_left(line.num_generated)

    def _count_forward(self, rows: int) -> None:
        self._session.stats.forwards += 1
        self._session.stats.row_forwards += rows
