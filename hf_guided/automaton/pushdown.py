"""Texts read by a network of frames: where a text stands, what it takes to finish, and all tokens from there at once.

A *place* is a state of a frame and the places that the frames around it go on from: a stack, as a linked list. A text
may stand in several places. Equal places are one object, and what is known of a place is kept in it.

What a place needs is counted in tokens along its way out: the shortest out of its frame, then out of each around it.
Tokens that reach across the ends of frames (``"}]}``) count once. From a place that needs n tokens, one token leads
along the way to a place that needs n - 1, so it is a number that can be kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter
from .lru_bytes import ByteCache
from .max_budget_growth import worst_step
from .reach import single_byte_tokens
from .rtn import Frame
from .shortest_paths import MAX_TEXT, NO_WAY, Ways
from .token_trie import TokenTrie
from .token_walk import TokenWalk

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

Ints = NDArray[np.int64]
_AHEAD = 32  # bytes of a way that tokens from further in may reach into
_MAX_PLACES = 64  # of one text; those that need most are forgotten first
_MAX_ITEMS = 1024  # parts of one walk over the vocabulary
_EXACT = 256  # states of one part whose needs are counted one by one
_MAX_BYTES = 8 * 2**20  # of the walks kept
_KEPT_FOR = 2048  # bytes of a place and of the objects around it: most walks deep in a text find a few tokens alone


class Place:
    """A state of a frame, and where the text goes on behind that frame; made by ``Pushdown.place`` alone.

    Args:
        frame: its number.
        state: in it.
        below: where the text goes on; None behind the root.
        ahead: the first bytes of the way out.
        counts: tokens from each of those on, to the end of the text; one more than there are bytes.
        apart: tokens to the end of the text, if none reached across the end of a frame.
    """

    __slots__ = ("__weakref__", "ahead", "apart", "below", "counts", "frame", "state")

    def __init__(self, frame: int, state: int, below: Place | None, ahead: bytes, counts: list[int], apart: int):
        self.frame, self.state, self.below = frame, state, below
        self.ahead, self.counts, self.apart = ahead, counts, apart

    @property
    def needed(self) -> int:
        """Tokens to the end of the text."""
        return self.counts[0]


Places = tuple[Place, ...]


class After(NamedTuple):
    """Tokens that may come, in the order of what is needed behind them.

    Args:
        token_ids: (tokens,) int32.
        needed: (tokens,) int32, ascending.
    """

    token_ids: NDArray[np.int32]
    needed: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, with the places that it is kept for."""
        return _KEPT_FOR + self.token_ids.nbytes + self.needed.nbytes


class Pushdown:
    """A network of frames and a vocabulary; thread safe.

    Args:
        frames: the network, its root first.
        tokens: the vocabulary's trie.
        vocabulary: the vocabulary.
        meter: limits of what is done at once.
    """

    def __init__(self, frames: Sequence[Frame], tokens: TokenTrie, vocabulary: Vocabulary, meter: WorkMeter):
        self._vocabulary, self.tokens = vocabulary, tokens
        self._frames = frames
        self._walks = [TokenWalk(frame.dfa, tokens) for frame in frames]
        self._ways = Ways(frames, vocabulary, single_byte_tokens(self._walks[0]), meter)
        self._tokens = [np.array(least.tokens) for least in self._ways.of]  # out of its frame, for each state
        self._accepting = [frame.dfa.accepting.tolist() for frame in frames]
        # For each frame the states in which a call may stand: who is called, and the state behind.
        self._calls: list[dict[int, list[tuple[int, int]]]] = []
        for frame in frames:
            calls: dict[int, list[tuple[int, int]]] = {}
            for callee, behind in frame.calls:
                for state in np.flatnonzero(behind).tolist():
                    calls.setdefault(state, []).append((callee, int(behind[state])))
            self._calls.append(calls)
        self._places: WeakValueDictionary[tuple[int, int, int], Place] = WeakValueDictionary()
        self._kept: ByteCache[After] = ByteCache(_MAX_BYTES)
        self._lock = threading.Lock()
        self.start: Places = (self.place(0, frames[0].dfa.start, None),)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, or that may be."""
        return sum(walk.nbytes + 2 * walk.dfa.nbytes for walk in self._walks) + _MAX_BYTES

    def shortest(self) -> bytes | None:
        """A shortest text in bytes; None if it is longer than MAX_TEXT, or cannot be written."""
        start = self._frames[0].dfa.start
        return self._ways.text(0, start) if self._ways.of[0].size[start] <= MAX_TEXT else None

    # -- places

    def place(self, frame: int, state: int, below: Place | None) -> Place:
        """The place; always the same object."""
        key = frame, state, id(below)  # a place holds the one below, so its id stays its own
        found = self._places.get(key)
        if found is None:
            apart = self._ways.of[frame].tokens[state] + (0 if below is None else below.apart)
            made = Place(frame, state, below, *self._way(frame, state, below), apart)
            with self._lock:
                found = self._places.setdefault(key, made)
        return found

    def _way(self, frame: int, state: int, below: Place | None) -> tuple[bytes, list[int]]:
        least = self._ways.of[frame]
        around = 0 if below is None else below.needed
        tokens = min(least.tokens[state] + around, NO_WAY)
        text = self._ways.text(frame, state)
        if tokens == NO_WAY or (not text and least.size[state]):
            return b"", [tokens]  # too long to be looked at byte by byte, or no way at all
        if below is not None:
            text += below.ahead
        counts = [NO_WAY] * len(text) + [0]
        inside = least.size[state]
        counts[inside:] = [0] if below is None else below.counts
        for i in range(inside - 1, -1, -1):
            counts[i] = min((1 + counts[i + length] for length in self._vocabulary.lengths_at(text, i)), default=NO_WAY)
        counts[0] = min(counts[0], tokens)
        return text[:_AHEAD], counts[: _AHEAD + 1]

    def read(self, places: Places, data: bytes) -> Places:
        """Where the text stands after some more bytes; nowhere if they do not fit."""
        found = {(place.frame, place.state, place.below) for place in places}
        for byte in data:
            after = set()
            for frame, state, below in self._everywhere(found):
                dfa = self._frames[frame].dfa
                moved = int(dfa.table[state, dfa.byte_class[byte]])
                if moved:
                    after.add((frame, moved, below))
            found = after
        made = sorted((self.place(*one) for one in found), key=lambda place: place.needed)
        return tuple(place for place in made[:_MAX_PLACES] if place.needed < NO_WAY)

    def _everywhere(self, places: Iterable[tuple[int, int, Place | None]]) -> Iterable[tuple[int, int, Place | None]]:
        """These places, and those that calls and the ends of frames lead to."""
        found = dict.fromkeys(places)
        todo = list(found)
        while todo:
            frame, state, below = todo.pop()
            more: list[tuple[int, int, Place | None]] = []
            if below is not None and self._accepting[frame][state]:
                more.append((below.frame, below.state, below.below))
            for callee, behind in self._calls[frame].get(state, ()):
                more.append((callee, self._frames[callee].dfa.start, self.place(frame, behind, below)))
            for one in more:
                if one not in found:
                    found[one] = None
                    todo.append(one)
        return found

    # -- tokens

    def after(self, places: Places) -> After:
        """All tokens that fit, with what is needed behind each: one walk of the vocabulary, kept for next time."""
        found = self._kept.get(places)
        if found is None:
            found = self._walked(places)
            self._kept.put(places, found)
        return found

    def _walked(self, places: Places) -> After:
        needed = np.full(len(self.tokens.trie.byte), NO_WAY, np.int32)
        root = np.zeros(1, np.int64)
        todo = [(place.frame, place.below, root, np.array([place.state])) for place in places]
        for done, (frame, below, nodes, states) in enumerate(todo):  # grows meanwhile
            if done >= _MAX_ITEMS:
                break  # what was not looked at is not allowed
            begun = len(nodes)
            levels = [(nodes, states), *self._walks[frame].descend(nodes, states)]
            nodes, states = (np.concatenate(parts) for parts in zip(*levels, strict=True))
            self._note(needed, frame, below, nodes[begun:], states[begun:])
            todo += self._onwards(frame, below, nodes, states)
        found = np.flatnonzero((needed < NO_WAY) & self.tokens.has_token)
        found = found[np.argsort(needed[found], kind="stable")]
        token_ids, counts = self._walks[0].tokens_at(found)
        return After(token_ids.astype(np.int32), np.repeat(needed[found], counts))

    def _note(self, needed: NDArray[np.int32], frame: int, below: Place | None, nodes: Ints, states: Ints) -> None:
        """What is needed in these nodes, where it is less than was known."""
        distinct, which = np.unique(states, return_inverse=True)
        tokens = self._tokens[frame][distinct] + (0 if below is None else below.needed)
        for i, state in enumerate(distinct[:_EXACT].tolist()):
            tokens[i] = self.place(frame, state, below).needed
        needed[nodes] = np.minimum(needed[nodes], np.minimum(tokens, NO_WAY)[which.reshape(-1)])

    def _onwards(
        self, frame: int, below: Place | None, nodes: Ints, states: Ints
    ) -> Iterable[tuple[int, Place | None, Ints, Ints]]:
        """Where calls and the end of the frame lead, for those nodes that have others below them."""
        child = self.tokens.trie.child
        inner = child[nodes + 1] > child[nodes]
        nodes, states = nodes[inner], states[inner]
        if below is not None:
            ends = nodes[self._frames[frame].dfa.accepting[states]]
            if len(ends):
                yield below.frame, below.below, ends, np.full(len(ends), below.state)
        for callee, behind in self._frames[frame].calls:
            returns = behind[states]
            for state in np.unique(returns[returns > 0]).tolist():
                begin = nodes[returns == state]
                start = np.full(len(begin), self._frames[callee].dfa.start)
                yield callee, self.place(frame, state, below), begin, start

    @cached_property
    def worst_step(self) -> int:
        """How many tokens more than ``apart`` may be needed behind any one token, at most."""
        return worst_step(self._frames, self._ways, self.tokens)
