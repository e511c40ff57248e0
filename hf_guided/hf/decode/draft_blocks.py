"""From a draft to a guess: what the loop will have written if the draft is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

from torch import Tensor

from ...errors import InvalidArgument
from ...session.session import Session
from ..drafts import Asked, Draft, DraftLength, DraftSource, Warp
from ..drafts.forced_text import ForcedText
from .sequence_state import Line
from .stopping import RowStops


@dataclass(frozen=True)
class Guess:
    """A draft as it will be written: segments of a drafted token and the forced text behind it.

    Args:
        segments: what the model confirms or rejects is the first token of each.
        probabilities: of those first tokens, as in ``Draft``.
        drafted: whether a source of drafts proposed them; else they were likely anyway.
    """

    segments: Sequence[Sequence[int]] = ()
    probabilities: Tensor | None = None
    drafted: bool = False

    @cached_property
    def firsts(self) -> list[int]:
        """The tokens to be confirmed."""
        return [segment[0] for segment in self.segments]

    @cached_property
    def ends(self) -> list[int]:
        """How many tokens there are up to each position where one is to be chosen."""
        return list(accumulate(map(len, self.segments), initial=0))

    @cached_property
    def tokens(self) -> list[int]:
        """All of it."""
        return list(chain(*self.segments))


NO_GUESS = Guess()


class Guesser:
    """Guesses what a source of drafts proposes, as much as each row is worth, or else what is likely anyway.

    Args:
        source: of drafts, told now that a new generate() call begins; or None.
        session: the constraints.
        stops: when a row ends.
        forced: finds forced text, as the loop does; None if it does not.
        warp: how scores are changed before tokens are sampled; None where the best are taken.
    """

    def __init__(
        self,
        source: DraftSource | None,
        session: Session,
        stops: RowStops,
        forced: ForcedText | None,
        warp: Warp | None,
    ):
        if source is not None:
            source.reset(warp)
        self._source = source
        self._session = session
        self._stops = stops
        self._forced = forced
        self._lengths = DraftLength()

    def guesses(self, lines: Sequence[Line], at_choice: Sequence[int]) -> dict[int, Guess]:
        """A guess for the rows that are at a choice, by their numbers; for some rows there is none."""
        drafts = [Draft()] * len(at_choice)
        if self._source is not None:
            drafts = self._source.propose([self._asked(lines, i) for i in at_choice])
        guesses = {}
        for i, draft in zip(at_choice, drafts, strict=True):
            if draft.tokens or lines[i].likely:
                guesses[i] = self._guess(lines[i], draft)
        return guesses

    def observe(self, index: int, guess: Guess, agreed: int) -> None:
        """Tell how many of a row's segments were confirmed."""
        if guess.drafted:
            self._lengths.observe(index, len(guess.segments), agreed)

    def _asked(self, lines: Sequence[Line], i: int) -> Asked:
        line, left = lines[i], self._session.tokens_left(lines[i].num_generated)
        room = self._stops.room(line.token_ids)
        if left is not None:
            room = min(room, left)
        return Asked(
            index=i,
            row=line.row,
            token_ids=line.token_ids[line.padding :],
            prompt_length=line.prompt_length - line.padding,
            limit=int(min(self._lengths.wanted(i), room - 1)),
            stop_token_ids=self._session.stop_token_ids,
            prefix=self._session.prefix_of(i, len(lines)),
        )

    def _guess(self, line: Line, draft: Draft) -> Guess:
        tokens = draft.tokens or line.likely
        width = self._session.vocabulary.padded_size
        if any(not 0 <= token_id < width for token_id in tokens):
            raise InvalidArgument(
                f"draft: expected token ids from 0 to {width - 1}, got {list(tokens)} of a DraftSource"
            )
        segments: list[list[int]] = [[token_id] for token_id in tokens]
        if self._forced is not None:
            left = self._session.tokens_left(line.num_generated)
            segments = self._forced.segments(line.row, line.token_ids, tokens, left)
        # Behind the greatest length the model may have no positions, and nothing of it would be kept.
        room = self._stops.room(line.token_ids)
        segments = [
            segment for segment, end in zip(segments, accumulate(map(len, segments)), strict=True) if end < room
        ]
        q = draft.probabilities
        if q is not None:
            q = q[list(accumulate(map(len, segments), initial=0))[:-1]]  # all but the last agree with the draft
        return Guess(segments, q, drafted=bool(draft.tokens))
