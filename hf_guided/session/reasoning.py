"""Thinking in front of an answer: free text between two markers, then what the constraint asks for.

``Reasoning`` is what is asked. ``Gate`` is what follows from it for one vocabulary: how the markers are written in
tokens, and where a text ends its thinking. The end marker is looked for in the bytes, so it makes no difference how it
is split over tokens, or what shares a token with it. How much of it a text ends with is all that has to be known
(Knuth, Morris, Pratt): a number, the *matched* bytes.

Some tokenizers write a marker with special tokens, which are never text. The gate has a vocabulary of its own in which
those, and no others, are text too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..constraints.incremental_utf8 import begun
from ..errors import InvalidConstraint, UnwritableConstraint
from ..vocabulary.retokenize import Continuation
from ..vocabulary.tokens import Vocabulary

_TAIL = 32  # tokens of white space that a chat template may put behind a marker, at most


@dataclass(frozen=True)
class Reasoning:
    """Free text in front of the answer, up to a marker; the constraint begins right behind it.

    Args:
        start: what thinking begins with. A prompt that ends with it (white space aside), as some chat templates do,
            has begun it; otherwise the output begins with it. Empty: thinking begins with the output in any case.
        end: what ends it, wherever it stands. A prompt that ends with it leaves nothing to think.
        max_tokens: of thinking, markers aside; when they are used up the end marker is written. None: no limit but
            that of the whole output.

    Raises:
        InvalidConstraint: no end marker, or something that is no text or no number of tokens.
    """

    start: str = "<think>"
    end: str = "</think>"
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, marker in (("start", self.start), ("end", self.end)):
            if not isinstance(marker, str):
                raise InvalidConstraint(f"reasoning: {name}: expected a str, got {marker!r}")
            try:
                marker.encode()
            except UnicodeEncodeError as error:
                raise InvalidConstraint(f"reasoning: {name}: expected text that UTF-8 can write: {error}") from None
        if not self.end:
            raise InvalidConstraint('reasoning: end: expected the text that ends thinking, such as "</think>", got ""')
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 0):
            raise InvalidConstraint(
                f"reasoning: max_tokens: expected an int of 0 or more, or None, got {self.max_tokens!r}"
            )


class Opening(Enum):
    """What of the thinking a prompt holds already."""

    NOTHING = "nothing"  # the output begins with the start marker
    START = "start"
    ALL = "all"  # there is nothing to think


class Moved(NamedTuple):
    """Where a text stands behind a token more.

    Args:
        matched: bytes of the end marker that it ends with; as many as there are where thinking is over.
        rest: what of the token stands behind the marker.
    """

    matched: int
    rest: bytes


class Free(NamedTuple):
    """What may come while there is no need to end.

    Args:
        words: (words,) int32, read-only: tokens that go on thinking, or end with the end marker.
        glued: tokens that hold the end of the marker and more: what stands behind it.
    """

    words: NDArray[np.int32]
    glued: dict[int, bytes]


class Gate:
    """The markers in one vocabulary; thread safe.

    Args:
        vocabulary: the tokens.
        reasoning: the markers.

    Raises:
        InvalidConstraint: a marker holds a stop token, behind which nothing can come.
        UnwritableConstraint: the vocabulary has no tokens for a marker.
    """

    def __init__(self, vocabulary: Vocabulary, reasoning: Reasoning):
        self.reasoning = reasoning
        self._start, self._end = reasoning.start.encode(), reasoning.end.encode()
        self._special = _special_tokens(vocabulary, (reasoning.start, reasoning.end))
        self._base = vocabulary
        self._over: dict[int, Gate] = {}
        # In which the markers are text.
        self.vocabulary = vocabulary.with_text(self._special) if self._special else vocabulary
        self._continuation = Continuation(self.vocabulary)
        self._shorter = _borders(self._end)
        self.start_ids = tuple(self._written(self._start)) if self._start else ()
        self._first, self._needed = self._ways_to_end()
        self._free: dict[int, Free] = {}

    def over(self, vocabulary: Vocabulary) -> Gate:
        """The same in the vocabulary of an answer, where that has special tokens as text; kept."""
        if vocabulary is self._base:
            return self
        found = self._over.get(id(vocabulary))
        if found is None:  # it keeps the vocabulary, so that the number stays its own
            found = self._over[id(vocabulary)] = Gate(vocabulary, self.reasoning)
        return found

    @property
    def whole(self) -> int:
        """Bytes of the end marker."""
        return len(self._end)

    @property
    def longest_way(self) -> int:
        """The most tokens that writing the end marker takes from anywhere."""
        return max(self._needed)

    def opening(self, prompt: Sequence[int] | NDArray[np.int64]) -> Opening:
        """What of the thinking a prompt holds, told by what it ends with.

        A marker that is spoken of in the middle of a prompt means nothing.

        Args:
            prompt: token ids; empty where the output does not stand behind the prompt, as in an encoder-decoder.
        """
        longest = max(len(self._start), len(self._end)) + _TAIL
        text = self.vocabulary.decode_bytes(map(int, prompt[-longest:])).rstrip()
        for marker, found in ((self._end, Opening.ALL), (self._start, Opening.START)):
            if marker.strip() and text.endswith(marker.rstrip()):
                return found
        return Opening.NOTHING if self._start else Opening.START

    def split(self, data: bytes, opening: Opening) -> tuple[bytes | None, bytes]:
        """The thinking and the answer in an output; None where nothing was to be thought.

        Args:
            data: the output, as the gate's own vocabulary reads it.
            opening: what its prompt holds.
        """
        if opening is Opening.ALL:
            return None, data
        if opening is Opening.NOTHING:
            data = data[len(self._start) :]  # it begins with that, or with a part of it
        thinking, _, answer = data.partition(self._end)
        return thinking, answer

    def splitter(self, opening: Opening) -> Splitter:
        """``split`` for an output that comes in pieces."""
        return Splitter(self._start if opening is Opening.NOTHING else b"", self._end, over=opening is Opening.ALL)

    def first_token(self, matched: int) -> int:
        """The token that comes next where the end marker has to be written."""
        token_id = self._first[matched]
        assert token_id is not None, "a place that no token may lead to"
        return token_id

    def tokens_to_end(self, matched: int) -> int:
        """How many tokens that takes in all."""
        return self._needed[matched]

    def bytes_to_end(self, matched: int) -> bytes:
        """What is missing of the end marker."""
        return self._end[matched:]

    @property
    def is_text(self) -> bool:
        """Whether both markers are written without special tokens."""
        return not self._special

    def move(self, matched: int, token_id: int) -> Moved | None:
        """Where thinking stands behind a token of the gate's vocabulary; None where that may not come."""
        data = self.vocabulary.token_bytes[token_id] or b""
        for place, byte in enumerate(data, 1):
            matched = self._after(matched, byte)
            if matched == self.whole:
                rest = data[place:]
                return None if rest and token_id in self._special else Moved(matched, rest)
        # A special token is a part of the marker or nothing; and the marker has to be in reach.
        if self._first[matched] is None or (token_id in self._special and matched < len(data)):
            return None
        return Moved(matched, b"")

    def free(self, matched: int) -> Free:
        """What may come next; made when first asked for."""
        found = self._free.get(matched)
        if found is None:
            found = self._free[matched] = self._found_free(matched)
        return found

    def _after(self, matched: int, byte: int) -> int:
        while matched and self._end[matched] != byte:
            matched = self._shorter[matched]
        return matched + (self._end[matched] == byte)

    def _found_free(self, matched: int) -> Free:
        if all(first is not None for first in self._first[: self.whole]):
            doubtful = self._may_end(matched)
        else:  # places without a way to the end: any token may lead to one
            doubtful = [i for i, data in enumerate(self.vocabulary.token_bytes) if data is not None]
        moved = {token_id: self.move(matched, token_id) for token_id in (*doubtful, *self._special)}
        glued = {token_id: to.rest for token_id, to in moved.items() if to is not None and to.rest}
        out = self.vocabulary.bitmask_of([token_id for token_id, to in moved.items() if to is None or to.rest])
        words = self.vocabulary.text_words & ~out
        words.flags.writeable = False
        return Free(words, glued)

    def _may_end(self, matched: int) -> list[int]:
        """The tokens that may hold the end of the marker, given what of it came before."""
        tails = []
        while matched:
            tails.append(self._end[matched:])
            matched = self._shorter[matched]
        begin = tuple(tails)
        return [
            token_id
            for token_id, data in enumerate(self.vocabulary.token_bytes)
            if data is not None and (data.startswith(begin) or self._end in data)
        ]

    def _ways_to_end(self) -> tuple[list[int | None], list[int]]:
        """For each number of matched bytes the token that goes on writing the marker, and how many it takes.

        Where the tokenizer's own way comes by, it goes on; a place in the middle of one of its tokens has its own.
        """
        first: list[int | None] = [None] * self.whole
        for matched in range(self.whole):
            if first[matched] is not None:
                continue
            try:
                way = self._written(self._end[matched:])
            except UnwritableConstraint:
                if not matched:
                    raise
                continue
            place = matched
            for token_id in way:
                if first[place] is not None:
                    break
                first[place] = token_id
                place += len(self.vocabulary.decode_bytes([token_id]))
        needed = [0] * (self.whole + 1)
        for matched in reversed(range(self.whole)):
            if (next_id := first[matched]) is not None:
                needed[matched] = 1 + needed[matched + len(self.vocabulary.decode_bytes([next_id]))]
        return first, needed

    def _written(self, data: bytes) -> list[int]:
        """The tokens of a marker, as the tokenizer writes it."""
        if self._special:  # some tokenizers do not read special tokens in a text
            return self.vocabulary.encode_bytes(data)
        try:
            before = self.vocabulary.encode_bytes(b"\n")  # at the start of a text some would put a space in front
        except UnwritableConstraint:
            before = []
        return self._continuation(before, data)


class Splitter:
    """Parts thinking from the answer while both are being written; tells only what no later piece can change.

    Args:
        start: the marker that the output begins with, or with a part of it.
        end: the marker behind the thinking.
        over: whether there is nothing to think.
    """

    def __init__(self, start: bytes, end: bytes, *, over: bool):
        self._skip = len(start)
        self._end = end
        self._over = over
        self._held = b""  # may be the beginning of the end marker

    @property
    def over(self) -> bool:
        """Whether all that comes is the answer."""
        return self._over

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """What a piece adds to the thinking, and to the answer."""
        if self._over:
            return b"", data
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        thinking, marker, answer = (self._held + data[skipped:]).partition(self._end)
        self._over = bool(marker)
        if marker:
            return thinking, answer
        held = begun(thinking, self._end)
        self._held = thinking[len(thinking) - held :]
        return thinking[: len(thinking) - held], b""

    def rest(self) -> bytes:
        """What is left of the thinking where the output ends in the middle of it."""
        return b"" if self._over else self._held


def _special_tokens(vocabulary: Vocabulary, markers: Sequence[str]) -> dict[int, bytes]:
    """The special tokens that the markers are written with, and their text."""
    found = vocabulary.special_in(markers)
    for token_id, name in found.items():
        if token_id in vocabulary.stop_token_ids:
            raise InvalidConstraint(
                f"reasoning: the marker holds the stop token {name.decode()}, behind which nothing can come; use "
                "another marker"
            )
    return found


def _borders(marker: bytes) -> list[int]:
    """For each beginning of the marker the length of the longest shorter beginning that it ends with."""
    found = [0, 0]
    for place in range(1, len(marker)):
        length = found[place]
        while length and marker[length] != marker[place]:
            length = found[length]
        found.append(length + (marker[length] == marker[place]))
    return found
