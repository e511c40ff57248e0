"""Masks inside JSON strings, where nearly every token may come: found once per vocabulary, not once per state.

What any string lets pass is walked through the vocabulary once: for each node of the trie how many characters it takes,
and where it leaves the string. A state of another automaton is *like a string for n characters* if each of the next n
may be any character, and all spellings of it lead to one and the same state. Of such a state only the tokens that leave
the string, or are longer than n characters, have to be walked.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..regex import ANYTHING, json_spelling, json_spellings
from .byte_dfa import ByteDfa
from .limits import Clock
from .nfa import regex_dfa
from .token_trie import TokenTrie
from .token_walk import Ints, TokenWalk

MOST = 12  # characters that are looked ahead at; tokens that have more are walked from there


@dataclass(frozen=True, eq=False)
class _Body:
    """One way to write strings, and a vocabulary.

    Args:
        dfa: any number of characters; its start is where each of them ends.
        tokens: what can be typed after 0, 1 ... ``MOST`` characters' room: (MOST + 1, size) bool; last, without an end.
        inner: the nodes at which ``MOST`` characters, or fewer, end; by their number.
        exits: by a byte that is in no string the nodes it leads to from inside, and the characters in front of it,
            ascending.
    """

    dfa: ByteDfa
    tokens: NDArray[np.bool_]
    inner: tuple[Ints, ...]
    exits: dict[int, tuple[Ints, Ints]]


@lru_cache(maxsize=1)
def _languages() -> tuple[ByteDfa, ...]:
    """Strings with all spellings of each character, and with the one that ``json.dumps`` writes."""
    return tuple(regex_dfa(spell(ANYTHING), Clock()) for spell in (json_spellings, json_spelling))


_bodies: WeakKeyDictionary[TokenTrie, tuple[_Body, ...]] = WeakKeyDictionary()
_lock = threading.Lock()


def _bodies_of(tokens: TokenTrie) -> tuple[_Body, ...]:
    with _lock:
        found = _bodies.get(tokens)
        if found is None:
            found = _bodies[tokens] = tuple(_walked(dfa, tokens) for dfa in _languages())
        return found


def _walked(dfa: ByteDfa, tokens: TokenTrie) -> _Body:
    trie = tokens.trie
    state = np.zeros(len(trie.byte), np.int64)  # 0 where the node is in no string
    taken = np.zeros(len(trie.byte), np.int64)  # characters that are complete
    state[0] = dfa.start
    for depth in range(1, len(trie.levels) - 1):
        level = slice(trie.levels[depth], trie.levels[depth + 1])
        parent = trie.parent[level]
        state[level] = dfa.table[state[parent], dfa.byte_class[trie.byte[level]]]
        taken[level] = taken[parent] + (state[level] == dfa.start)
    needs = np.where(state == 0, len(trie.byte), taken + (state != dfa.start))  # characters' room
    ends = np.repeat(needs, np.diff(tokens.token_start))  # of each token
    room = np.zeros((MOST + 2, tokens.size), np.bool_)
    for characters in range(MOST + 2):
        fits = ends <= characters if characters <= MOST else ends < len(trie.byte)
        room[characters, tokens.token_ids[fits]] = True
    whole = state == dfa.start
    inner = tuple(np.flatnonzero(whole & (taken == characters)) for characters in range(MOST + 1))
    left = np.flatnonzero((state == 0) & whole[trie.parent])
    left = left[np.argsort(taken[trie.parent[left]], kind="stable")]
    byte, before = trie.byte[left], taken[trie.parent[left]]
    exits = {int(one): (left[byte == one], before[byte == one]) for one in np.unique(byte)}
    return _Body(dfa, room, inner, exits)


class StringBodies:
    """The states of one automaton that are like a string; thread safe.

    Args:
        walk: the automaton and the vocabulary.
    """

    def __init__(self, walk: TokenWalk):
        self._walk, self._dfa = walk, walk.dfa
        self._bodies = _bodies_of(walk.tokens)
        self._ways = [_ways(body.dfa, self._dfa) for body in self._bodies]
        self._next: dict[tuple[int, int], int] = {}

    def tokens(self, state: int) -> NDArray[np.bool_] | None:
        """(size,) the tokens that may come in this state; None where it is not like a string."""
        for number, body in enumerate(self._bodies):
            chain = [state]
            while len(chain) <= MOST and (after := self._after(number, chain[-1])):
                chain.append(after)
                if after == state:
                    return self._allowed(body, np.full(1, state), endless=True)
            if len(chain) > 1:
                return self._allowed(body, np.array(chain), endless=False)
        return None

    def _allowed(self, body: _Body, chain: Ints, *, endless: bool) -> NDArray[np.bool_]:
        """What is typed inside, and what is walked from where it goes on.

        Args:
            body: how the strings are written.
            chain: the states after 0, 1 ... characters; one for any number if it is endless.
            endless: whether there is no last character.
        """
        characters = len(chain) - 1
        allowed: NDArray[np.bool_] = body.tokens[-1 if endless else characters].copy()
        nodes, states = [], []
        left = self._dfa.table[chain][:, self._dfa.byte_class[list(body.exits)]]  # (chain, exits)
        for byte, behind in zip(body.exits, left.T.astype(np.int64), strict=True):
            if not behind.any():
                continue
            places, before = body.exits[byte]
            if not endless:
                count = int(np.searchsorted(before, characters))  # from where the chain ends all is walked, below
                places, behind = places[:count], behind[before[:count]]
            there = np.broadcast_to(behind, len(places))
            nodes.append(places[there != 0])
            states.append(there[there != 0])
        for some in nodes:
            self._mark(allowed, some)
        if not endless:
            nodes.append(body.inner[characters])
            states.append(np.full(len(body.inner[characters]), chain[-1]))
        if nodes:
            for below, _ in self._walk.descend(np.concatenate(nodes), np.concatenate(states)):
                self._mark(allowed, below)
        return allowed

    def _mark(self, allowed: NDArray[np.bool_], nodes: Ints) -> None:
        allowed[self._walk.tokens_at(nodes)[0]] = True

    def _after(self, number: int, state: int) -> int:
        """The state behind any one character; 0 if there is no such state."""
        known = self._next.get((number, state))
        if known is None:
            known = self._next[number, state] = self._followed(number, state)
        return known

    def _followed(self, number: int, state: int) -> int:
        start, ways = self._bodies[number].dfa.start, self._ways[number]
        image = {start: state}
        end = 0
        todo = [start]
        while todo:
            here = todo.pop()
            row = self._dfa.table[image[here]]
            dead, live = ways[here]
            if here != start and row[dead].any():
                return 0
            for target, classes in live:
                reached = row[classes]
                first = int(reached[0])
                if not first or (reached != first).any():
                    return 0
                known = end if target == start else image.get(target, 0)
                if not known:
                    if target == start:
                        end = first
                    else:
                        image[target] = first
                        todo.append(target)
                elif known != first:
                    return 0
        return end


_Ways = dict[int, "tuple[Ints, list[tuple[int, Ints]]]"]


def _ways(body: ByteDfa, dfa: ByteDfa) -> _Ways:
    """For each state of the body the other automaton's classes of bytes that are in no string, and those to each state.

    A class of the other's may hold bytes that the body tells apart: then it stands with each of them.
    """
    pairs = np.unique(body.byte_class.astype(np.int64) * 256 + dfa.byte_class)
    ours, theirs = pairs // 256, pairs % 256
    found: _Ways = {}
    for state in range(1, body.states):
        targets = body.table[state, ours]
        live = [(int(target), theirs[targets == target]) for target in np.unique(targets[targets != 0])]
        found[state] = theirs[targets == 0], live
    return found
