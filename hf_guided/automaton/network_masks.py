"""The tokens that may come after a text that a network reads.

Most tokens that fit stay in one component, or leave it near their end. So for each state of a component it is worked
out once, for all tokens, which stay and where the others leave (``_Table``). What the others do after that depends on
the frames below, but hardly on how they began: nodes of the trie are followed together from there (``_Followed``).

Where an item or a name may be one that is entered already, the tokens that could make it equal are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .lru_bytes import ByteCache
from .network import Frame, Frames, Network, Text
from .refine import ranges
from .registers import UNKNOWN, Different, LengthRule
from .token_trie import TokenTrie
from .token_walk import TokenWalk
from .written_values import characters

Ints = NDArray[np.integer[Any]]
Words = NDArray[np.int32]
_FEW = 2_000  # nodes of which a mask is made when it is needed
_NONE: Ints = np.empty(0, np.int64)
_MASK_BYTES = 2 * 2**20  # of the masks kept
_TABLE_BYTES = 8 * 2**20  # of the tables kept
_STAY_BYTES = 4 * 2**20  # of what they are made of


class _Followed:
    """Nodes of the trie that are followed together.

    Args:
        tokens: the vocabulary.
        nodes: of the trie.
    """

    def __init__(self, tokens: TokenTrie, nodes: Ints):
        self._tokens, self.nodes = tokens, nodes

    @cached_property
    def children(self) -> list[tuple[int, _Followed]]:
        """The nodes after each byte."""
        trie = self._tokens.trie
        starts = trie.child[self.nodes]
        below = ranges(starts, trie.child[self.nodes + 1] - starts)
        order = np.argsort(trie.byte[below], kind="stable")
        counts = np.bincount(trie.byte[below], minlength=256)
        letters = np.flatnonzero(counts)
        parts = np.split(below[order], np.cumsum(counts[letters])[:-1])
        return [
            (letter, _Followed(self._tokens, nodes)) for letter, nodes in zip(letters.tolist(), parts, strict=False)
        ]

    @cached_property
    def token_ids(self) -> Ints:
        """The tokens that end in these nodes."""
        return self._tokens.tokens_at(self.nodes)[0]

    @property
    def longer_token_ids(self) -> Ints:
        """The tokens that end below them."""
        found, todo = [], [self]
        while todo:
            for _, below in todo.pop().children:
                found.append(below.token_ids)
                todo.append(below)
        return np.concatenate(found) if found else np.empty(0, np.int64)


_Leaving = tuple[int, Ints, _Followed]


class _Stay(NamedTuple):
    """The nodes of the trie that tokens reach in one component.

    Args:
        nodes: (n,) int32, ascending.
        states: (n,) int32 of the component there.
    """

    nodes: Ints
    states: Ints

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.nodes.nbytes + self.states.nbytes


class _Table(NamedTuple):
    """What tokens do from one state of a component.

    Args:
        words: the tokens that end in the component; None where they are so few that a mask is made when it is needed.
        leaving: states where other than bytes may come, with the nodes that reach them and have more bytes.
    """

    words: Words | None
    leaving: tuple[_Leaving, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        words = 0 if self.words is None else self.words.nbytes
        return words + sum(64 + nodes.nbytes for _, nodes, _ in self.leaving)


class _Walk(NamedTuple):
    """One component and the vocabulary.

    Args:
        walk: through its automaton.
        leaves: (states,) whether anything but bytes may come.
    """

    walk: TokenWalk
    leaves: NDArray[np.bool_]


class _Mask(NamedTuple):
    words: Words

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.words.nbytes + 1024


class NetworkMasks:
    """A network and a vocabulary; thread safe.

    Args:
        network: what reads the text.
        tokens: the vocabulary.
        token_bytes: of each token.
    """

    def __init__(self, network: Network, tokens: TokenTrie, token_bytes: Sequence[bytes | None]):
        self._network, self._tokens, self._token_bytes = network, tokens, token_bytes
        self._walks: dict[int, _Walk] = {}
        self._reach = len(tokens.trie.levels)  # no token is longer
        self._stays: ByteCache[_Stay] = ByteCache(_STAY_BYTES)
        self._tables: ByteCache[_Table] = ByteCache(_TABLE_BYTES)
        self._masks: ByteCache[_Mask] = ByteCache(_MASK_BYTES)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most."""
        walks = sum(6 * component.dfa.nbytes for component in self._network.components)
        return walks + _MASK_BYTES + _TABLE_BYTES + _STAY_BYTES

    def of(self, frames: Frames, text: bytes | bytearray) -> Words:
        """(words,) int32: the tokens that may come.

        Args:
            frames: after the text.
            text: all of it.
        """
        at = Text(text, len(text))
        key = tuple(self._network.place(frame, at, self._reach) if frame.has_begun else frame for frame in frames)
        known = self._masks.get(key)
        if known is None:
            words = np.zeros(self._tokens.size // 32, np.int32)
            for frame in self._network.everywhere(frames, at):
                words |= self._from(frame, at)
            words.flags.writeable = False
            known = _Mask(words)
            self._masks.put(key, known)
        return known.words

    def _from(self, frame: Frame, text: Text) -> Words:
        """The tokens that begin with a byte in this frame's component."""
        words, leaving = self._table(frame.component, frame.state)
        suspects = self._suspects(frame, text) if frame.is_watched else _NONE
        bounds = self._bounds(frame, text)
        if bounds is not None:
            words, leaving = self._within(frame, leaving, *bounds)
        if words is None:
            words = self._tokens.mask_of(self._stay(frame.component, frame.state).nodes)
        found: list[Ints] = []
        doubtful: list[Ints] = []
        # Where the text left the component is not the same for all: what began before is at hand for none.
        beyond = Text(None, text.end + 1)
        for state, nodes, followed in leaving:
            if len(suspects):
                nodes = _without(nodes, suspects)
                followed = followed if len(nodes) == len(followed.nodes) else _Followed(self._tokens, nodes)
            here = self._network.frame(frame.component, state, frame.entered, frame.below)
            onwards = tuple(place for place in self._network.everywhere([here], beyond) if place is not here)
            if onwards and len(nodes):
                self._follow(followed, onwards, beyond, found, doubtful)
        if len(suspects):
            words = words & ~self._tokens.mask_of(suspects)
            self._read_suspects(frame, text, suspects, found)
        found += [self._readable(token_ids, frame, text) for token_ids in doubtful]
        return words | self._tokens.mask(np.concatenate(found)) if found else words

    def _bounds(self, frame: Frame, text: Text) -> tuple[int, int | None] | None:
        """How many characters a string may go on for; None where that does not restrict any token."""
        rule = self._network.rules.get(frame.component)
        if not isinstance(rule, LengthRule) or frame.entered is None or not frame.entered.has_begun:
            return None
        written = text.since(frame.entered.begin)
        assert written is not None
        count = characters(written)
        high = None if rule.high is None else rule.high - count
        low = max(0, rule.low - count)
        return None if not low and (high is None or high >= self._reach) else (low, high)

    def _within(
        self, frame: Frame, leaving: tuple[_Leaving, ...], low: int, high: int | None
    ) -> tuple[Words, tuple[_Leaving, ...]]:
        """The part of a table where strings go on for ``low`` to ``high`` characters, ``low`` only where they end."""
        count = self._characters
        fitting = self._stay(frame.component, frame.state).nodes
        fitting = fitting if high is None else fitting[count[fitting] <= high]
        within = []
        for state, nodes, followed in leaving:
            kept = nodes[count[nodes] >= low]
            kept = kept if high is None else kept[count[kept] <= high]
            if len(kept):
                same = len(kept) == len(nodes)
                within.append((state, kept, followed if same else _Followed(self._tokens, kept)))
        return self._tokens.mask_of(fitting), tuple(within)

    def _follow(
        self, followed: _Followed, frames: Frames, text: Text, found: list[Ints], doubtful: list[Ints] | None
    ) -> None:
        """Collect the tokens below some nodes of the trie.

        Args:
            followed: the nodes.
            frames: there.
            text: up to there.
            found: takes the tokens that may come.
            doubtful: takes those that have to be read one by one; None where the whole text is at hand.
        """
        todo = [(followed, frames, text)]
        while todo:
            followed, frames, text = todo.pop()
            places = self._network.everywhere(frames, text)
            if doubtful is not None and any(_is_doubtful(place) for place in places):
                doubtful.append(followed.longer_token_ids)
                continue
            for byte, below in followed.children:
                longer = text.plus(bytes((byte,)))
                after = tuple(
                    frame for frame in self._network.moved(places, byte) if self._network.is_alive(frame, longer)
                )
                if after:
                    found.append(below.token_ids)
                    todo.append((below, after, longer))

    def _readable(self, token_ids: Ints, frame: Frame, text: Text) -> Ints:
        """Those of some tokens that may come, read one by one."""
        kept = [
            token_id
            for token_id in token_ids.tolist()
            if self._network.read((frame,), self._token_bytes[token_id] or b"", text)
        ]
        return np.array(kept, np.int64)

    def _suspects(self, frame: Frame, text: Text) -> Ints:
        """The nodes where something that has begun may be equal to what is entered already, ascending."""
        suspects: list[Ints] = []
        reached = self._stay(frame.component, frame.state).nodes
        for owner in frame.stack():
            if not owner.is_watched:
                break
            if owner.entered is None or not owner.entered.has_begun:
                continue
            rule = self._network.rules[owner.component]
            written = text.since(owner.entered.begin)
            assert written is not None
            if isinstance(rule, LengthRule):
                if self._bounds(frame, text) is not None and _is_inside_character(written):
                    return reached
                if self._bounds(frame, text) is not None and not rule.one_spelling:
                    suspects.append(reached[self._escapes[reached] > 0])
                continue
            assert isinstance(rule, Different)
            begun = rule.begun(written)
            similar = rule.similar(owner.entered, begun)
            if rule.is_simple and not similar:
                continue
            if not rule.is_simple or not (begun.is_whole and begun.in_string):
                return self._bounded(frame)
            for key in similar:
                suspects.append(self._along(key[len(begun.key) :]))
            if not rule.one_spelling:
                suspects.append(reached[self._escapes[reached] > 0])
        if not suspects:
            return _NONE
        together = np.unique(np.concatenate(suspects))
        places = np.searchsorted(reached, together)
        places = places[places < len(reached)]
        return together[np.isin(together, reached[places])]

    def _bounded(self, frame: Frame) -> Ints:
        """The nodes from which there are not ways without number, or that leave the component."""
        nodes, states = self._stay(frame.component, frame.state)
        suspect = ~self._network.graph.unbounded(frame.component)[states]
        suspect |= self._walk(frame.component).leaves[states]
        return nodes[suspect]

    def _along(self, path: bytes) -> Ints:
        """The nodes on a way down the trie, the root first."""
        child, letters = self._tokens.children, self._tokens.letters
        nodes = [0]
        for byte in path:
            at = letters.find(byte, child[nodes[-1]], child[nodes[-1] + 1])
            if at < 0:
                break
            nodes.append(at)
        return np.array(nodes)

    @cached_property
    def _escapes(self) -> Ints:
        """(nodes,) how many backslashes are on the way to each."""
        backslash = np.zeros(256, np.int64)
        backslash[ord("\\")] = 1
        return self._tokens.along(backslash)

    @cached_property
    def _characters(self) -> Ints:
        """(nodes,) how many characters of a JSON string are on the way to each, one that has only begun counted."""
        first = np.ones(256, np.int64)
        first[0x80:0xC0] = 0
        count = self._tokens.along(first)
        for node in np.flatnonzero(self._escapes).tolist():
            count[node] = characters(self._tokens.path_to(node))
        return count

    def _read_suspects(self, frame: Frame, text: Text, suspects: Ints, found: list[Ints]) -> None:
        """Collect the tokens that end in these nodes, and those that leave the component there."""
        network = self._network
        reached, states = self._stay(frame.component, frame.state)
        states = states[np.searchsorted(reached, suspects)]
        for node, state in zip(suspects.tolist(), states.tolist(), strict=True):
            here = network.frame(frame.component, state, frame.entered, frame.below)
            longer = text.plus(self._tokens.path_to(node))
            if not node or not network.is_alive(here, longer):
                continue
            nodes = np.array([node])
            found.append(self._tokens.tokens_at(nodes)[0])
            if network.leaves(frame.component, state):
                onwards = tuple(place for place in network.everywhere([here], longer) if place is not here)
                if onwards:
                    self._follow(_Followed(self._tokens, nodes), onwards, longer, found, None)

    def _table(self, component: int, state: int) -> _Table:
        table = self._tables.get((component, state))
        if table is None:
            table = self._made_table(component, state)
            self._tables.put((component, state), table)
        return table

    def _made_table(self, component: int, state: int) -> _Table:
        nodes, states = self._stay(component, state)
        leaves = self._walk(component).leaves[states] & self._tokens.has_longer[nodes]
        leaves[0] = False  # before any byte: the caller looks everywhere himself
        reached = states[leaves]
        leaving = tuple(
            (to, at := nodes[leaves][reached == to], _Followed(self._tokens, at))
            for to in np.flatnonzero(np.bincount(reached)).tolist()
        )
        return _Table(self._tokens.mask_of(nodes) if len(nodes) > _FEW else None, leaving)

    def _walk(self, number: int) -> _Walk:
        """Made when it is first needed: a text visits few components of a large network."""
        walk = self._walks.get(number)
        if walk is None:
            dfa = self._network.components[number].dfa
            leaves = np.array([self._network.leaves(number, state) for state in range(dfa.states)])
            walk = self._walks[number] = _Walk(TokenWalk(dfa, self._tokens), leaves)
        return walk

    def _stay(self, component: int, state: int) -> _Stay:
        stay = self._stays.get((component, state))
        if stay is None:
            # Nodes of a level come after those of the one above, and in order.
            stay = _Stay(*self._walk(component).walk.below(np.zeros(1, np.int32), np.array([state])))
            self._stays.put((component, state), stay)
        return stay


def _is_inside_character(written: bytes) -> bool:
    """Whether a string has only begun to write its last character with an escape."""
    return b"\\" in written[-12:] and characters(written + b"a") == characters(written)


def _is_doubtful(frame: Frame) -> bool:
    """Whether something has begun that could be equal to what is entered, but is not at hand."""
    return any(
        place.entered is not None and place.entered.has_begun and UNKNOWN in place.entered.keys
        for place in frame.stack()
    )


def _without(nodes: Ints, others: Ints) -> Ints:
    """Those of some nodes (n,), ascending, that are not among a few others."""
    places = np.searchsorted(nodes, others)
    places = places[places < len(nodes)]
    return np.delete(nodes, places[np.isin(nodes[places], others)])
