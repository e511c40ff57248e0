"""Text that the grammar leaves no choice about, as tokens: it needs no forward pass.

Only the bytes are forced. Where forced text ends, the tokenizer might have joined its end with what comes behind it in
one token, such as ``{"`` for a brace that must and a quote that may come; the model has learned that token, and would
be lost behind a brace alone. So the last tokens are left to the model where a token may go on over the end, unless few
of the texts that may follow would be joined: of a string behind ``"`` only the empty one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...session.row import Row, RowState
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.retokenize import Continuation
from ...vocabulary.tokens import Vocabulary

_RARE = 8  # what joins with less than one in so many of the bytes that may follow is not waited for
_SEAM = 24  # bytes at the end of forced text that are looked at
_TRIED = 8  # bytes that may follow it, behind which its tokens are looked at again


class Forced(NamedTuple):
    """What has to come next.

    Args:
        taken_back: how many of the last tokens give way first (0, or 1 where the seam was tokenized anew).
        token_ids: in order; the row has taken them already.
        likely: the tokens behind them that write the rest of what is forced, left to the model: a good draft.
    """

    taken_back: int = 0
    token_ids: Sequence[int] = ()
    likely: Sequence[int] = ()


class ForcedText:
    """Finds forced text, in the tokenizer's own tokenization, and moves rows over it.

    Args:
        vocabulary: whose tokenizer writes.
        continuation: tokenizes behind other tokens.
        stop_token_ids: tokens that end a row; the first is the one that is written.
        retokenize: whether the token in front of forced text may be replaced, where the tokenizer would have joined the
            two otherwise.
        may_stop: whether a row ends by itself where nothing but a stop token may come.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        continuation: Continuation,
        stop_token_ids: Sequence[int],
        *,
        retokenize: bool,
        may_stop: bool,
    ):
        self._vocabulary = vocabulary
        self._continuation = continuation
        self._retokenize = retokenize
        self._may_stop = may_stop
        self._stop_token_ids = stop_token_ids
        self._stop = stop_token_ids[0]
        self._others: dict[int, ForcedText] = {}
        self._bitmask = allocate_bitmask(1, vocabulary.padded_size)
        self._no_stops = ~vocabulary.bitmask_of(stop_token_ids)  # (words,) int32

    def advance(self, row: Row, before: Sequence[int], tokens_left: int | None, *, loose: bool) -> Forced:
        """Move the row over whatever is forced here.

        Args:
            row: open, or nothing is forced.
            before: all of the row's token ids so far.
            tokens_left: what is left of its budget.
            loose: whether the last of them was generated and is in no cache yet, so that it may be replaced.
        """
        own = self._over(row)
        if own is not self:
            return own.advance(row, before, tokens_left, loose=loose)
        data = _whole_characters(row.jump_forward_bytes())
        forced = self._written(row, before, data, tokens_left, loose=loose) if data else Forced()
        # Text that is forced but could not be taken has to be sampled: then the row is not at its end either.
        if self._may_stop and bool(data) == bool(forced.token_ids) and self._must_stop(row):
            row.advance(self._stop)
            return forced._replace(token_ids=[*forced.token_ids, self._stop])
        return forced

    def segments(
        self, row: Row, before: Sequence[int], draft: Sequence[int], tokens_left: int | None
    ) -> list[list[int]]:
        """A draft as it will be written if it is right: each drafted token with the forced text behind it.

        Args:
            row: open or free; comes back as it was.
            before: all of the row's token ids so far.
            draft: tokens; cut where the row refuses one, and where it goes another way than forced text does.
            tokens_left: what is left of its budget.
        """
        segments: list[list[int]] = []
        written = list(before)
        start = row.mark()
        place = 0
        while place < len(draft) and row.advance(draft[place]):
            left = None if tokens_left is None else tokens_left - (len(written) - len(before)) - 1
            segment = [draft[place], *self.advance(row, [*written, draft[place]], left, loose=False).token_ids]
            segments.append(segment)
            written += segment
            agrees = list(draft[place : place + len(segment)]) == segment
            place = place + len(segment) if agrees else len(draft)
        row.return_to(start)  # a token that it refused has closed it
        return segments

    def _over(self, row: Row) -> ForcedText:
        """The same in the row's own vocabulary, where that has special tokens as text."""
        if row.matcher is None or row.matcher.compiled.vocabulary is self._vocabulary:
            return self
        vocabulary = row.matcher.compiled.vocabulary
        if id(vocabulary) not in self._others:  # which is kept there, so that the number stays its own
            self._others[id(vocabulary)] = ForcedText(
                vocabulary,
                Continuation(vocabulary),
                self._stop_token_ids,
                retokenize=self._retokenize,
                may_stop=self._may_stop,
            )
        return self._others[id(vocabulary)]

    def _written(self, row: Row, before: Sequence[int], data: bytes, tokens_left: int | None, *, loose: bool) -> Forced:
        if loose and self._retokenize:
            rewritten = self._continuation.rewritten(before[:-1], before[-1], data)
            if rewritten is not None:
                row.rewind(1)
                left = None if tokens_left is None else tokens_left + 1
                taken, likely = self._without_seam(row, before[:-1], self._taken(row, rewritten, left))
                if taken:
                    return Forced(1, taken, likely)
                row.advance(before[-1])
        taken = self._taken(row, self._continuation(before, data), tokens_left)
        return Forced(0, *self._without_seam(row, before, taken))

    def _without_seam(self, row: Row, before: Sequence[int], taken: list[int]) -> tuple[list[int], list[int]]:
        """Parted from the tokens at the end that others may take the place of; the row moves back with those."""
        data = self._vocabulary.decode_bytes(taken)
        start = len(data)  # of the longest end of the text with which a token begins that may go on behind it
        nexts: frozenset[int] | None = None
        joining: set[int] = set()  # what such tokens have behind the text
        for length in range(1, min(_SEAM, len(data)) + 1):
            followers = self._continuation.followers(data[-length:])
            if not followers:
                continue
            nexts = self._next_bytes(row) if nexts is None else nexts
            joined = followers & nexts
            if joined and len(joined) * _RARE >= len(nexts):
                start = len(data) - length
                joining |= joined
        end, kept = len(data), len(taken)
        while end > start:
            kept -= 1
            end -= len(self._vocabulary.decode_bytes([taken[kept]]))
        # A token that goes on behind the text may also change how what stands in front of it is cut.
        for byte in sorted(byte for byte in joining if byte < 0x80)[:_TRIED]:
            longer = self._continuation(before, data + bytes([byte]))
            kept = min(kept, next((i for i in range(kept) if longer[i : i + 1] != taken[i : i + 1]), kept))
        row.rewind(len(taken) - kept)
        return taken[:kept], taken[kept:]

    def _next_bytes(self, row: Row) -> frozenset[int]:
        """The bytes that may come next in the row; none where its engine gives up."""
        return self._continuation.leading_bytes(self._bitmask[0].numpy()) if row.fill(self._bitmask, 0) else frozenset()

    def _taken(self, row: Row, token_ids: Sequence[int], tokens_left: int | None) -> list[int]:
        """Advance by as many of the tokens as the row takes and its budget allows."""
        assert row.matcher is not None
        least = None if tokens_left is None else row.matcher.min_tokens_to_finish()
        bound = tokens_left is not None and least is not None and least <= tokens_left
        taken: list[int] = []
        for token_id in token_ids[: row.num_taken(token_ids)]:
            row.advance(token_id)
            taken.append(token_id)
            # The tokenizer's tokens may be more than the fewest that would do.
            if bound and (row.matcher.min_tokens_to_finish() or 0) > (tokens_left or 0) - len(taken):
                row.rewind(1)
                taken.pop()
                break
        return taken

    def _must_stop(self, row: Row) -> bool:
        """Whether nothing but a stop token may come."""
        if row.matcher is None or row.state is not RowState.OPEN or not row.matcher.is_completed():
            return False
        return row.fill(self._bitmask, 0) and not (self._bitmask[0].numpy() & self._no_stops).any()


def _whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character at the end: the tokenizer writes whole ones."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data if length <= back else data[:-back]
        if lead < 0x80:
            break
    return data
