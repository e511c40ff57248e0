"""Masks inside JSON strings, where nearly every token may come: found once per vocabulary, not once per state.

What any string lets pass is walked through the vocabulary once: for each token how many characters it takes, and what
of it comes after the string. A state of another automaton is *like a string for n characters* if each of the next n
may be any character, and all spellings of it lead to one and the same state. Of such a state only those tokens are
walked that are longer than n characters, and of those that leave the string the part after it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .string_dfas import stand, string_dfas
from .token_trie import TokenTrie, packed, trie_of
from .token_walk import Ints, TokenWalk

_MOST = 128  # characters that are looked ahead at; tokens that have more are walked from there


@dataclass(frozen=True, eq=False)
class _StringForm:
    """One spelling of strings, and a vocabulary.

    Args:
        dfa: any number of characters; its start is where each of them ends.
        inside: masks of what can be typed into room for 0, 1 ... ``most`` characters; last, into any room.
        inner: the nodes at which 0, 1 ... ``most`` characters end.
        exits: the ends of tokens from the byte on that leaves the string.
        before: (size,) the characters before that, ``most + 1`` where there are more; for other tokens nothing.
    """

    dfa: ByteDfa
    inside: tuple[NDArray[np.int32], ...]
    inner: tuple[Ints, ...]
    exits: TokenTrie
    before: NDArray[np.uint8]

    @property
    def most(self) -> int:
        return len(self.inner) - 1


_forms: WeakKeyDictionary[TokenTrie, tuple[_StringForm, ...]] = WeakKeyDictionary()
_lock = threading.Lock()


def string_forms(tokens: TokenTrie) -> tuple[_StringForm, ...]:
    """What strings let pass of a vocabulary; the same at every call, and the first one takes as long as many masks."""
    with _lock:
        forms = _forms.get(tokens)
        if forms is None:
            forms = _forms[tokens] = tuple(_walked(dfa, tokens) for dfa in string_dfas())
        return forms


def _walked(dfa: ByteDfa, tokens: TokenTrie) -> _StringForm:
    trie = tokens.trie
    state = np.zeros(len(trie.byte), np.int64)  # 0 where the node is in no string
    taken = np.zeros(len(trie.byte), np.int64)  # characters that are complete
    exit_of = np.zeros(len(trie.byte), np.int64)  # the node at which the string was left
    state[0] = dfa.start
    for low, high in pairwise(trie.levels[1:]):
        level, parent = slice(low, high), trie.parent[low:high]
        state[level] = dfa.table[state[parent], dfa.byte_class[trie.byte[level]]]
        taken[level] = taken[parent] + (state[level] == dfa.start)
        leaves = (state[level] == 0) & (state[parent] == dfa.start)
        exit_of[level] = np.where(leaves, np.arange(low, high), exit_of[parent])
    inside = state != 0
    needs = taken + (state != dfa.start)  # characters' room
    most = min(_MOST, int(needs[inside].max()))
    node_of = np.repeat(np.arange(len(trie.byte)), np.diff(tokens.token_start))  # of each token
    within = np.where(inside, np.minimum(needs, most + 1), most + 2)[node_of]
    masks, bits = [], np.zeros(tokens.size, np.bool_)
    for some in _by_number(within, most + 2):
        bits[tokens.token_ids[some]] = True
        masks.append(packed(bits))
    whole = np.where(state == dfa.start, np.minimum(taken, most + 1), most + 1)
    inner = _by_number(whole, most + 1)
    leaving = np.flatnonzero(exit_of[node_of])
    before = np.zeros(tokens.size, np.uint8)
    before[tokens.token_ids[leaving]] = np.minimum(taken[trie.parent[exit_of[node_of[leaving]]]], most + 1)
    ends = [_spelled(trie.parent, trie.byte, int(node), int(exit_of[node])) for node in node_of[leaving]]
    exits = trie_of(ends, tokens.token_ids[leaving], tokens.size)
    return _StringForm(dfa, tuple(masks), inner, exits, before)


def _by_number(numbers: Ints, count: int) -> tuple[Ints, ...]:
    """The indices of 0, of 1 ..., for ``count`` numbers."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1))
    return tuple(order[low:high] for low, high in pairwise(bounds.tolist()))


def _spelled(parent: Ints, byte: NDArray[np.uint8], node: int, first: int) -> bytes:
    """The bytes from one node of a trie down to another."""
    spelled = bytearray()
    while node >= first:  # nodes further down have higher numbers
        spelled.append(byte[node])
        node = int(parent[node])
    return bytes(spelled[::-1])


class JsonStringMasks:
    """The states of one automaton that are like a string; thread safe.

    Args:
        walk: the automaton and the vocabulary.
    """

    def __init__(self, walk: TokenWalk):
        self._walk = walk
        self._forms: dict[int, _FormInAutomaton] = {}

    def mask(self, state: int) -> NDArray[np.int32] | None:
        """(words,) int32: the tokens that may come in this state; None where it is not like a string."""
        for number, string_form in enumerate(string_forms(self._walk.tokens)):
            form = self._forms.get(number)
            if form is None:
                form = self._forms[number] = _FormInAutomaton(string_form, self._walk)
            chain = form.chain(state)
            if len(chain) > 1:
                return form.mask(chain)
        return None


class _FormInAutomaton:
    """A spelling of strings in one automaton.

    Args:
        form: how they are written.
        walk: the automaton and the vocabulary.
    """

    def __init__(self, form: _StringForm, walk: TokenWalk):
        self._form, self._walk, self._table = form, walk, walk.dfa.table
        self._ends = walk.over(form.exits)
        start, states = form.dfa.start, form.dfa.states
        # A class of the other automaton may hold bytes that the form distinguishes: then it is paired with each of
        # them.
        both = np.unique(form.dfa.byte_class.astype(np.int64) * 256 + walk.dfa.byte_class)
        classes = both % 256
        targets = form.dfa.table[:, both // 256].astype(np.int64)  # (body's states, classes)
        self._exits = np.unique(classes[targets[start] == 0])
        self._enters = np.unique(classes[targets[start] != 0])
        # The form's states in the automaton: 0 dead, last the state after the character.
        targets[targets == start] = states
        self._sources, indices = np.nonzero(targets)
        self._classes, self._targets = classes[indices], targets[self._sources, indices]
        self._inner = np.array([state for state in range(1, states) if state != start])
        live, dead = np.zeros((2, states, walk.dfa.table.shape[1]), np.bool_)
        live[self._sources, self._classes] = True
        sources, indices = np.nonzero(targets == 0)
        dead[sources, classes[indices]] = True
        self._live = live[self._inner].sum(1)
        # What is live inside a character for one byte of a class and dead for another is like no string.
        self._never = bool((live & dead)[self._inner].any())
        self._after: dict[int, int] = {}  # the state after any one character; 0 if there is no such state

    def chain(self, state: int) -> list[int]:
        """The states after 0, 1 ... any characters, at most ``most``; the last one twice where it repeats for ever."""
        after = self._after
        if state not in after:
            if not self._table[state, self._enters].all():
                after[state] = 0
                return [state]
            self._follow([state])
        unknown, here = [], state
        for _ in range(self._form.most):
            there = after.get(here)
            if there is None:
                unknown.append(here)
                there = stand(self._form.dfa, self._walk, here)[-1]
            if there in (0, here):
                break
            here = there
        if unknown:
            self._follow(unknown)
        chain = [state]
        while len(chain) <= self._form.most and (there := after.get(chain[-1], 0)):
            chain.append(there)
            if there == chain[-2]:
                break
        return chain

    def _follow(self, states: list[int]) -> None:
        """Find out which states are like a string, and the state after the next character."""
        stands = np.array([stand(self._form.dfa, self._walk, state) for state in states])  # (states, body's states + 1)
        likes = (stands[:, self._targets] != 0).all(1) & (not self._never)
        likes &= (self._table[stands[:, self._sources], self._classes] == stands[:, self._targets]).all(1)
        likes &= (np.count_nonzero(self._table[stands[:, self._inner]], axis=2) == self._live).all(1)
        self._after.update(zip(states, np.where(likes, stands[:, -1], 0).tolist(), strict=True))

    def mask(self, chain: list[int]) -> NDArray[np.int32]:
        """(words,) int32: tokens inside the string, tokens that leave it, and tokens walked from its end."""
        form, last = self._form, chain[-1]
        endless = last == chain[-2]
        characters = len(chain) - 1
        words: NDArray[np.int32] = form.inside[-1 if endless else characters].copy()
        exits = self._table[chain][:, self._exits]  # (chain, classes)
        walks_on = not endless and bool(self._table[last, self._enters].any())
        # Positions with the same exits from the string.
        by_exits: dict[bytes, list[int]] = {}
        for position in np.flatnonzero(exits.any(1)).tolist()[: characters if walks_on else None]:
            by_exits.setdefault(exits[position].tobytes(), []).append(position)
        for positions in by_exits.values():
            there = np.zeros(form.most + 2, np.bool_)
            there[positions] = True
            if endless and positions[-1] == characters:
                there[characters:] = True
            tokens = form.exits.tokens_at(self._ends.nodes(chain[positions[0]])[0])[0]
            _set(words, tokens[there[form.before[tokens]]])
        if walks_on:
            nodes = form.inner[characters]
            below, _ = self._walk.below(nodes, np.full(len(nodes), last))
            words |= self._walk.tokens.mask_of(below[len(nodes) :])
        return words


def _set(words: NDArray[np.int32], tokens: Ints) -> None:
    bits = np.left_shift(np.uint32(1), (tokens & 31).astype(np.uint32))
    np.bitwise_or.at(words.view(np.uint32), tokens >> 5, bits)
