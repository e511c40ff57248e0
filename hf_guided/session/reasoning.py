"""Thinking before an answer: free text between two markers, then the constraint.

``Reasoning`` is the user's option. ``ReasoningGate`` derives from it, for one vocabulary, the tokens of the markers and
the end of a text's thinking. It searches the bytes for the end marker, so the marker may be split over tokens at any
byte, and share a token with other text. Its state is one number, the *matched* bytes: how much of the end marker the
text ends with (Knuth, Morris, Pratt).

Some tokenizers write a marker with special tokens, which are never text. The gate has a vocabulary of its own in which
these, and no others, are text too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..constraints.base import expect_utf8
from ..constraints.chat_families import begun, template_source, thinking_markers
from ..errors import InvalidConstraint, UnwritableConstraint, reading, shown
from ..vocabulary.retokenize import Continuation
from ..vocabulary.tokens import Vocabulary

_DEFAULT = ("<think>", "</think>")
_TAIL = 32  # tokens of white space, at most, that a chat template may put after a marker


@dataclass(frozen=True)
class Reasoning:
    """Free text before the answer, up to a marker; the constraint begins after it.

    White space that the model's chat template writes after the marker is allowed there, and is no part of the text.
    The default markers stand for those of the model's own chat template, if it has others.

    Args:
        start: the marker that begins thinking. A prompt that ends with it (white space aside), as with some chat
            templates, has begun the thinking; otherwise the output begins with it. Empty: the output always begins
            with thinking.
        end: the marker that ends thinking, anywhere in the text. After a prompt that ends with it, there is no
            thinking. Once one of its special tokens is written, the rest of it follows.
        max_tokens: of thinking, markers not counted; after them the end marker is written. None: thinking and its
            markers take at most three quarters of the token limit (``max_new_tokens``). Without a limit, as in a logits
            processor that is given none, thinking ends where the model ends it.

    Raises:
        InvalidConstraint: no end marker, or a value of another type.
    """

    start: str = _DEFAULT[0]
    end: str = _DEFAULT[1]
    max_tokens: int | None = None

    @reading("Reasoning", InvalidConstraint)
    def __post_init__(self) -> None:
        for name, marker in (("start", self.start), ("end", self.end)):
            if not isinstance(marker, str):
                raise InvalidConstraint(f"reasoning: {name}: expected a str, got {shown(marker)}")
            expect_utf8(marker, f"reasoning: {name}")
        if not self.end:
            raise InvalidConstraint('reasoning: end: expected the text that ends thinking, such as "</think>", got ""')
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 0):
            raise InvalidConstraint(
                f"reasoning: max_tokens: expected an int of 0 or more, or None, got {shown(self.max_tokens)}"
            )


def with_own_markers(reasoning: Reasoning, templates: Any) -> Reasoning:
    """The caller's reasoning with the markers of a chat template in place of the defaults, or of a part of its markers.

    ``templates`` is the tokenizer, or a processor.
    """
    given, own = (reasoning.start, reasoning.end), thinking_markers(templates)
    if own is None or given == own:
        return reasoning
    is_part = given[0] == own[0] and own[1].startswith(given[1])  # a template that begins a message after thinking
    if is_part or (given == _DEFAULT and _DEFAULT[1] not in (template_source(templates, {}) or "")):
        return replace(reasoning, start=own[0], end=own[1])
    return reasoning


class Opening(Enum):
    """How much of the thinking a prompt already contains."""

    NOTHING = "nothing"  # the output begins with the start marker
    START = "start"
    ALL = "all"  # there is no thinking


class MarkerMatch(NamedTuple):
    """The state of thinking after one more token."""

    matched: int  # bytes of the end marker that the text ends with; all of them if thinking has ended
    rest: bytes  # the part of the token after the marker


class FreeTokens(NamedTuple):
    """The tokens that are allowed while thinking need not end."""

    words: NDArray[np.int32]  # (words,) read-only: tokens that continue thinking, or end with the end marker
    glued: dict[int, bytes]  # tokens that contain the end of the marker and more, with the bytes after it


class Space(NamedTuple):
    """One character, repeated, between the end of the thinking and an answer."""

    character: bytes = b"\n"  # one byte
    own: int = 0  # how often the answer itself can begin with it; it has the first ones
    extra: int = 0  # how often it may then follow without being a part of the answer

    def answer(self, text: bytes) -> bytes:
        """The answer in a text after the end marker."""
        lead = len(text) - len(text.lstrip(self.character))
        own = min(lead, self.own)
        return text[:own] + text[own + min(lead - own, self.extra) :]

    def added(self, lead: int | None, data: bytes) -> bytes:
        """The bytes that a piece of text adds to the answer, after ``lead`` such characters; None after others, too."""
        if lead is None:
            return data
        before = self.character * lead
        return self.answer(before + data)[len(self.answer(before)) :]

    def lead(self, lead: int | None, data: bytes) -> int | None:
        """The same count after this piece."""
        return None if lead is None or data.strip(self.character) else lead + len(data)


class ReasoningGate:
    """The markers in one vocabulary; thread safe.

    Args:
        vocabulary: the tokens.
        reasoning: the markers.
        ends_prompts: whether every prompt ends with the end marker, which then says nothing about thinking: it begins
            the next message.
        space: line ends that the model may write between the end marker and the answer.

    Raises:
        InvalidConstraint: a marker contains a stop token, after which nothing can follow.
        UnwritableConstraint: the vocabulary has no tokens for a marker.
    """

    def __init__(
        self, vocabulary: Vocabulary, reasoning: Reasoning, ends_prompts: bool = False, space: Space | None = None
    ):
        space = Space() if space is None else space
        self.reasoning, self.ends_prompts, self.space = reasoning, ends_prompts, space
        self._start, self.end = reasoning.start.encode(), reasoning.end.encode()
        self.end_length = len(self.end)
        self._special = vocabulary.special_in((reasoning.start, reasoning.end))  # special tokens in the markers
        for token_id, name in self._special.items():
            if token_id in vocabulary.stop_token_ids:
                raise InvalidConstraint(
                    f"reasoning: the marker contains the stop token {name.decode()}, after which nothing can follow; "
                    "use another marker"
                )
        self.is_text = not self._special  # whether both markers are written without special tokens
        self._base = vocabulary
        self._for_vocabulary: dict[int, ReasoningGate] = {}
        # In this vocabulary the markers are text.
        self.vocabulary = vocabulary.with_text(self._special) if self._special else vocabulary
        self._continuation = Continuation(self.vocabulary)
        self._shorter = _borders(self.end)
        # From here on the marker has to be finished: a special token of it is never text.
        written = [self.end.find(name) + len(name) for name in self._special.values() if name in self.end]
        self._committed = min(written, default=self.end_length)
        self.start_ids = tuple(self._written(self._start)) if self._start else ()
        # For each number of matched bytes, how many tokens the rest of the end marker needs.
        self._first, self.tokens_to_end = self._paths_to_end()
        self.max_tokens_to_end = max(self.tokens_to_end)
        self._free: dict[int, FreeTokens] = {}

    def for_vocabulary(self, vocabulary: Vocabulary) -> ReasoningGate:
        """The gate for an answer's vocabulary, which may have special tokens as text; cached."""
        if vocabulary is self._base:
            return self
        gate = self._for_vocabulary.get(id(vocabulary))
        if gate is None:  # the gate keeps the vocabulary, so its id is not reused
            gate = ReasoningGate(vocabulary, self.reasoning, self.ends_prompts, self.space)
            self._for_vocabulary[id(vocabulary)] = gate
        return gate

    def opening(self, prompt: Sequence[int] | NDArray[np.int64]) -> Opening:
        """How much of the thinking a prompt contains, judged by its end.

        A marker in the middle of a prompt has no meaning: a prompt may mention one.

        Args:
            prompt: token ids; empty if the output does not follow the prompt, as in an encoder-decoder.
        """
        longest = max(len(self._start), len(self.end)) + _TAIL
        text = self.vocabulary.decode_bytes(map(int, prompt[-longest:])).rstrip()
        for marker, opening in ((self.end, Opening.ALL), (self._start, Opening.START)):
            if self.ends_prompts and opening is Opening.ALL:
                continue
            if marker.strip() and text.endswith(marker.rstrip()):
                return opening
        return Opening.NOTHING if self._start else Opening.START

    def splitter(self, opening: Opening, space: Space) -> Splitter:
        """Separates the thinking from the answer in an output, decoded by the gate's own vocabulary.

        ``space`` may stand between the two, see ``reasoning_gate.space_before``.
        """
        start = self._start if opening is Opening.NOTHING else b""
        return Splitter(start, self.end, space, over=opening is Opening.ALL)

    def first_token(self, matched: int) -> int:
        """The next token if the end marker has to be written."""
        token_id = self._first[matched]
        assert token_id is not None, "a state that no token may lead to"
        return token_id

    def move(self, matched: int, token_id: int) -> MarkerMatch | None:
        """The state of thinking after a token of the gate's vocabulary; None if the token is not allowed."""
        data = self.vocabulary.token_bytes[token_id] or b""
        for end, byte in enumerate(data, 1):
            if matched >= self._committed and self.end[matched] != byte:
                return None
            matched = self._after(matched, byte)
            if matched == self.end_length:
                rest = data[end:]
                return None if rest and token_id in self._special else MarkerMatch(matched, rest)
            # A special token is part of the marker or not allowed; and the rest of the marker must be writable.
        if self._first[matched] is None or (token_id in self._special and matched < len(data)):
            return None
        return MarkerMatch(matched, b"")

    def free(self, matched: int) -> FreeTokens:
        """The tokens that are allowed next; computed at the first call."""
        if matched in self._free:
            return self._free[matched]
        starting_with, others = self.vocabulary.starting_with, self.vocabulary.text_words
        if matched >= self._committed:  # the rest of the marker has to follow
            candidates, others = set(starting_with(self.end[matched : matched + 1])), np.zeros_like(others)
        elif None in self._first:  # from some states the marker cannot be finished: any token may lead to one
            candidates = {i for i, data in enumerate(self.vocabulary.token_bytes) if data is not None}
        else:  # the tokens that may contain the end of the marker, or of its part that has to be finished
            candidates, border = set(self._containing), matched
            while border:
                candidates.update(starting_with(self.end[border : self._committed]))
                border = self._shorter[border]
        candidates.update(self._special)
        moved = {token_id: to for token_id in candidates if (to := self.move(matched, token_id)) is not None}
        words = others & ~self.vocabulary.bitmask_of(candidates)
        words |= self.vocabulary.bitmask_of([token_id for token_id, to in moved.items() if not to.rest])
        words.flags.writeable = False
        free = FreeTokens(words, {token_id: to.rest for token_id, to in sorted(moved.items()) if to.rest})
        return self._free.setdefault(matched, free)

    @cached_property
    def _containing(self) -> list[int]:
        """The tokens that contain the whole end marker, or its part that has to be finished."""
        texts, ids = self.vocabulary.in_order
        return [token_id for data, token_id in zip(texts, ids, strict=True) if self.end[: self._committed] in data]

    def _after(self, matched: int, byte: int) -> int:
        while matched and self.end[matched] != byte:
            matched = self._shorter[matched]
        return matched + (self.end[matched] == byte)

    def _paths_to_end(self) -> tuple[list[int | None], list[int]]:
        """For each number of matched bytes, the next token of the end marker and how many tokens the rest needs.

        States on the tokenizer's own path follow it; a state inside one of its tokens has a path of its own.
        """
        first: list[int | None] = [None] * self.end_length
        for matched in range(self.end_length):
            if first[matched] is not None:
                continue
            try:
                path = self._written(self.end[matched:])
            except UnwritableConstraint:
                if not matched:
                    raise
                continue
            position = matched
            for token_id in path:
                if first[position] is not None:
                    break
                first[position] = token_id
                position += len(self.vocabulary.decode_bytes([token_id]))
        needed = [0] * (self.end_length + 1)
        for matched in reversed(range(self.end_length)):
            if (next_id := first[matched]) is not None:
                needed[matched] = 1 + needed[matched + len(self.vocabulary.decode_bytes([next_id]))]
        return first, needed

    def _written(self, data: bytes) -> list[int]:
        """The tokens of a marker in the tokenizer's own tokenization."""
        if self._special:  # some tokenizers do not recognize special tokens in a text
            return self.vocabulary.encode_bytes(data)
        try:
            before = self.vocabulary.encode_bytes(b"\n")  # some tokenizers add a space at the start of a text
        except UnwritableConstraint:
            before = []
        return self._continuation(before, data)


class Splitter:
    """Separates thinking from the answer while both are generated; returns only final text.

    Args:
        start: the marker that the output begins with, or with a part of it.
        end: the marker after the thinking.
        space: what belongs to neither.
        over: whether there is no thinking.
    """

    def __init__(self, start: bytes, end: bytes, space: Space, *, over: bool):
        self._skip = len(start)
        self._end = end
        self._space = space
        self._lead = None if over else 0  # characters of the space after the marker; None after another character
        self.over = over  # whether all further text belongs to the answer
        self._held = b""  # may be the beginning of the end marker

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes that a piece of output adds to the thinking, and to the answer."""
        if self.over:
            return b"", self._after_space(data)
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        thinking, marker, answer = (self._held + data[skipped:]).partition(self._end)
        self.over = bool(marker)
        if marker:
            return thinking, self._after_space(answer)
        held = begun(thinking, self._end)
        self._held = thinking[len(thinking) - held :]
        return thinking[: len(thinking) - held], b""

    def _after_space(self, data: bytes) -> bytes:
        added = self._space.added(self._lead, data)
        self._lead = self._space.lead(self._lead, data)
        return added

    def rest(self) -> bytes:
        """The rest of the thinking, if the output ends in the middle of it."""
        return b"" if self.over else self._held


def _borders(marker: bytes) -> list[int]:
    """For each prefix of the marker, the length of its longest proper suffix that is also a prefix of the marker."""
    borders = [0, 0]
    for end in range(1, len(marker)):
        length = borders[end]
        while length and marker[length] != marker[end]:
            length = borders[length]
        borders.append(length + (marker[length] == marker[end]))
    return borders
