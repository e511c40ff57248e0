"""Forced text: text for which the grammar leaves no choice, as tokens. It needs no forward pass for each token.

Only the bytes are forced. The tokenizer might have joined the end of forced text with the text after it in one token,
such as ``{"`` for a brace that is forced and a quote that is not; the model has learned that token, and does badly
after a brace alone. So the last tokens are left to the model if a token may extend over the end, unless few of the
possible continuations would be joined: of a string after ``"`` only the empty one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

from ...backends.matcher import Narrowed
from ...session.row import Row
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.retokenize import Continuation
from ...vocabulary.tokens import Vocabulary

_RARE = 8  # joins with less than one in this many of the possible next bytes are ignored
_SEAM = 24  # bytes at the end of forced text that are examined
_TRIED = 8  # next bytes for which the tokens are computed again


class Forced(NamedTuple):
    """The forced tokens that come next."""

    taken_back: int = 0  # how many of the last tokens are replaced first (1 if the seam was tokenized again)
    token_ids: Sequence[int] = ()  # in order; the row has taken them already
    likely: Sequence[int] = ()  # the tokens after them, the rest of the forced text, left to the model: a good draft


@dataclass(eq=False, repr=False)
class ForcedText:
    """Finds forced text, in the tokenizer's own tokenization, and advances rows over it."""

    vocabulary: Vocabulary  # vocabulary of the tokenizer that writes
    continuation: Continuation  # tokenizes text after other tokens
    stop_token_ids: Sequence[int]  # tokens that end a row; the first is the one that is written
    _: KW_ONLY
    # Whether the token before forced text may be replaced, if the tokenizer would have joined the two differently.
    retokenize: bool
    may_stop: bool  # whether a row ends by itself if only a stop token may come
    weighs_all: bool = False  # whether ``narrowed`` has the masks of all forced tokens

    def __post_init__(self) -> None:
        # Of the tokens that ``advance`` has returned last, by index, and maybe of later ones: the masks where a limit
        # forbids other ways to write the text.
        self.narrowed: dict[int, Narrowed] = {}
        self._others: dict[int, ForcedText] = {}
        self._bitmask = allocate_bitmask(1, self.vocabulary.padded_size)
        self._no_stops = ~self.vocabulary.bitmask_of(self.stop_token_ids)  # (words,) int32

    def advance(self, row: Row, before: Sequence[int], tokens_left: int | None, *, loose: bool) -> Forced:
        """Advance the row over the text that is forced now.

        Args:
            row: unless it is open, no text is forced.
            before: all of the row's token ids so far.
            tokens_left: the rest of its token budget.
            loose: whether the last of them was generated and is not in a cache yet, so that it may be replaced.
        """
        own = self._for_vocabulary_of(row)
        if own is not self:
            forced = own.advance(row, before, tokens_left, loose=loose)
            self.narrowed = own.narrowed
            return forced
        self.narrowed = {}
        data = _whole_characters(row.jump_forward_bytes())
        forced = self._written(row, before, data, tokens_left, loose=loose) if data else Forced()
        # Forced text that could not be taken has to be sampled: then the row is not at its end either.
        if self.may_stop and bool(data) == bool(forced.token_ids) and self._must_stop(row):
            if self.weighs_all and (both := row.narrowed(None, always=True)) is not None:
                self.narrowed[len(forced.token_ids)] = both
            row.advance(self.stop_token_ids[0])
            return forced._replace(token_ids=[*forced.token_ids, self.stop_token_ids[0]])
        return forced

    def segments(
        self, row: Row, before: Sequence[int], draft: Sequence[int], tokens_left: int | None
    ) -> list[list[int]]:
        """A draft in segments, as it is written if it is right: each draft token with the forced text after it.

        Args:
            row: open or free; unchanged afterwards.
            before: all of the row's token ids so far.
            draft: tokens; cut before a token that the row refuses, and where it differs from forced text.
            tokens_left: the rest of its token budget.
        """
        segments: list[list[int]] = []
        written = list(before)
        start = row.mark()
        i = 0
        while i < len(draft) and row.advance(draft[i]):
            left = None if tokens_left is None else tokens_left - (len(written) - len(before)) - 1
            segment = [draft[i], *self.advance(row, [*written, draft[i]], left, loose=False).token_ids]
            segments.append(segment)
            written += segment
            agrees = list(draft[i : i + len(segment)]) == segment
            i = i + len(segment) if agrees else len(draft)
        row.return_to(start)  # a refused token has closed it
        return segments

    def _for_vocabulary_of(self, row: Row) -> ForcedText:
        """The finder for the row's own vocabulary, which may have special tokens as text."""
        if row.matcher is None or row.matcher.compiled.vocabulary is self.vocabulary:
            return self
        vocabulary = row.matcher.compiled.vocabulary
        if id(vocabulary) not in self._others:  # the entry keeps the vocabulary, so its id is not reused
            own = replace(self, vocabulary=vocabulary, continuation=Continuation(vocabulary))
            self._others[id(vocabulary)] = own
        return self._others[id(vocabulary)]

    def _written(self, row: Row, before: Sequence[int], data: bytes, tokens_left: int | None, *, loose: bool) -> Forced:
        if loose and self.retokenize:
            rewritten = self.continuation.rewritten(before[:-1], before[-1], data)
            if rewritten is not None:
                row.rewind(1)
                left = None if tokens_left is None else tokens_left + 1
                taken, likely = self._without_seam(row, before[:-1], self._taken(row, rewritten, left))
                if taken:
                    return Forced(1, taken, likely)
                row.advance(before[-1])
        taken = self._taken(row, self.continuation(before, data), tokens_left)
        return Forced(0, *self._without_seam(row, before, taken))

    def _without_seam(self, row: Row, before: Sequence[int], taken: list[int]) -> tuple[list[int], list[int]]:
        """Split off the tokens at the end that others may replace, and rewind the row over them."""
        data = self.vocabulary.decode_bytes(taken)
        start = len(data)  # start of the longest end of the text that a token may begin with and extend
        next_bytes: frozenset[int] | None = None
        joining: set[int] = set()  # first bytes of such tokens after the text
        for length in range(1, min(_SEAM, len(data)) + 1):
            followers = self.continuation.followers(data[-length:])
            if not followers:
                continue
            if next_bytes is None:  # None if the row's engine reaches its limit
                filled = row.fill(self._bitmask, 0)
                next_bytes = self.continuation.leading_bytes(self._bitmask[0].numpy()) if filled else frozenset()
            joined = followers & next_bytes
            if joined and len(joined) * _RARE >= len(next_bytes):
                start = len(data) - length
                joining |= joined
        end, kept = len(data), len(taken)
        while end > start:
            kept -= 1
            end -= len(self.vocabulary.decode_bytes([taken[kept]]))
        # A token that extends over the end may also change the tokenization before it.
        for byte in sorted(byte for byte in joining if byte < 0x80)[:_TRIED]:
            longer = self.continuation(before, data + bytes([byte]))
            kept = min(kept, next((i for i in range(kept) if longer[i : i + 1] != taken[i : i + 1]), kept))
        row.rewind(len(taken) - kept)
        return taken[:kept], taken[kept:]

    def _taken(self, row: Row, token_ids: Sequence[int], tokens_left: int | None) -> list[int]:
        """Advance over the tokens that the row accepts and its budget allows; returns them."""
        bound = tokens_left is not None and row.can_finish_in(tokens_left)
        near = self.weighs_all or row.is_near_limit(tokens_left)
        taken: list[int] = []
        self.narrowed = {}
        for token_id in token_ids[: row.num_taken(token_ids)]:
            left = None if tokens_left is None else tokens_left - len(taken)
            if near and (both := row.narrowed(left, always=self.weighs_all)) is not None:
                self.narrowed[len(taken)] = both
            row.advance(token_id)
            taken.append(token_id)
            # The tokenizer may use more tokens than the minimum.
            if bound and left is not None and row.can_finish_in(left - 1) is False:
                row.rewind(1)
                taken.pop()
                break
        return taken

    def _must_stop(self, row: Row) -> bool:
        return row.may_stop() and row.fill(self._bitmask, 0) and not (self._bitmask[0].numpy() & self._no_stops).any()


def _whole_characters(data: bytes) -> bytes:
    """The bytes without an incomplete character at the end: the tokenizer writes whole ones."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead >= 0xC0:
            length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data if length <= back else data[:-back]
        if lead < 0x80:
            break
    return data
