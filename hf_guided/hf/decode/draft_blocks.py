"""Draft blocks: drafts with the forced text after each token, as the loop writes them if they are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

from torch import Tensor

from ...errors import InvalidArgument
from ...session.session import Session
from ..drafts.base import Draft, DraftLength, DraftRequest, DraftSource, Warp
from .forced_text import ForcedText
from .processors import RowStops
from .sequences import SequenceState


@dataclass(frozen=True)
class DraftBlock:
    """A draft in segments: a draft token, and the forced text after it."""

    segments: Sequence[Sequence[int]] = ()  # the model confirms or rejects the first token of each
    probabilities: Tensor | None = None  # probabilities of these first tokens, as in ``Draft``
    drafted: bool = False  # whether a source of drafts proposed them; otherwise the grammar made them likely

    @cached_property
    def firsts(self) -> list[int]:
        """The tokens that the model confirms or rejects."""
        return [segment[0] for segment in self.segments]

    @cached_property
    def ends(self) -> list[int]:
        """Number of tokens up to each position where the model chooses."""
        return list(accumulate(map(len, self.segments), initial=0))

    @cached_property
    def tokens(self) -> list[int]:
        """All tokens of the block."""
        return list(chain(*self.segments))


EMPTY_BLOCK = DraftBlock()


@dataclass(eq=False, repr=False)
class DraftBlocks:
    """Makes blocks from a source of drafts, as long as pays for each row; or from tokens that are likely anyway."""

    source: DraftSource | None  # it is reset for the new generate() call
    session: Session  # the constraints
    stops: RowStops  # when a row ends
    forced: ForcedText | None  # finds forced text, as the loop does; None if the loop does not
    warp: Warp | None  # changes scores before tokens are sampled; None if the most likely tokens are taken

    def __post_init__(self) -> None:
        self._lengths = DraftLength()
        if self.source is not None:
            self.source.reset(self.warp)

    def propose(self, sequences: Sequence[SequenceState], at_choice: Sequence[int]) -> dict[int, DraftBlock]:
        """A block for each of the rows that choose a token, by row number; rows without a draft have none."""
        drafts = [Draft()] * len(at_choice)
        if self.source is not None:
            drafts = self.source.propose([self._request(sequences, i) for i in at_choice])
        return {
            i: self._block(sequences[i], draft)
            for i, draft in zip(at_choice, drafts, strict=True)
            if draft.tokens or sequences[i].likely
        }

    def observe(self, index: int, block: DraftBlock, agreed: int) -> None:
        """Adapt a row's draft length to the number of confirmed segments."""
        if block.drafted:
            self._lengths.observe(index, len(block.segments), agreed)

    def _request(self, sequences: Sequence[SequenceState], i: int) -> DraftRequest:
        sequence, left = sequences[i], self.session.tokens_left(sequences[i].num_generated)
        room = self.stops.room(sequence.token_ids)
        room = room if left is None else min(room, left)
        return DraftRequest(
            index=i,
            row=sequence.row,
            token_ids=sequence.token_ids[sequence.padding :],
            prompt_length=sequence.prompt_length - sequence.padding,
            limit=int(min(self._lengths.wanted(i), room - 1)),
            stop_token_ids=self.session.stop_token_ids,
            prefix=self.session.requests.prefix_of(i, len(sequences)),
            padded_size=self.session.vocabulary.padded_size,
        )

    def _block(self, sequence: SequenceState, draft: Draft) -> DraftBlock:
        tokens = draft.tokens or sequence.likely
        width = self.session.vocabulary.padded_size
        if any(not 0 <= token_id < width for token_id in tokens):
            raise InvalidArgument(
                f"draft: expected token ids from 0 to {width - 1}, got {list(tokens)} of a DraftSource"
            )
        segments: list[list[int]] = [[token_id] for token_id in tokens]
        if self.forced is not None:
            left = self.session.tokens_left(sequence.num_generated)
            segments = self.forced.segments(sequence.row, sequence.token_ids, tokens, left)
        # After the maximum length the model may have no positions, and no token would be kept.
        room = self.stops.room(sequence.token_ids)
        segments = [
            segment for segment, end in zip(segments, accumulate(map(len, segments)), strict=True) if end < room
        ]
        q = draft.probabilities
        if q is not None:
            q = q[list(accumulate(map(len, segments), initial=0))[:-1]]  # all but the last agree with the draft
        return DraftBlock(segments, q, drafted=bool(draft.tokens))
