"""The texts that a vocabulary can write where some single bytes are no tokens, and a network cut to them.

A text is writable if it is a row of tokens. Most tokens are rows of shorter ones, so what counts are the *units*: the
tokens of a single byte, those that are one character, and those that are no row of such ones (an added token
``<tool>``, where ``<`` is no token). The automaton of all rows of units is small. In a network, each component is
intersected with it, so no unit begins in one component and ends in another. After that every text of the network is a
row of tokens.

A text that is not complete may end inside a unit, which no token can complete: with a token for é and none for its
second byte, the first byte alone leads nowhere. Only some tokens can end there, in most vocabularies none. They are
*hazards*: whether a text can be completed after one of them has to be looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import NOTHING, ByteDfa, backwards, minimized
from .limits import SORTED, WorkMeter
from .rtn import Component, Mark, Shape
from .token_trie import TokenTrie

_IN_UTF8 = frozenset(range(0xF5)) - {0xC0, 0xC1}
_MOST_UNITS = 20_000  # bytes of units that are rows of characters; of more the longest are left out
_CHARACTER_BYTES = 4


class NothingWritable(Exception):
    """No text of a network can be written.

    Args:
        missing: bytes that texts need, and that are in no token; none where it is not that simple.
    """

    def __init__(self, missing: bytes):
        super().__init__(missing)
        self.missing = missing


def _single_byte_tokens(tokens: TokenTrie) -> bytes:
    """The bytes that are tokens."""
    trie = tokens.trie
    first = slice(trie.child[0], trie.child[1])
    return trie.byte[first][tokens.has_token[first]].tobytes()


@dataclass(frozen=True, eq=False)
class WritableTexts:
    """The rows of the units of a vocabulary.

    Args:
        dfa: the automaton of all of them; a text ends where a unit ends.
        hazards: (n,) the tokens that may end inside a unit whose rest is no row of units.
        held: the bytes that are in tokens.
    """

    dfa: ByteDfa
    hazards: NDArray[np.int64]
    held: frozenset[int]

    @classmethod
    def of(cls, tokens: TokenTrie) -> WritableTexts | None:
        """Those of a vocabulary; None if it has a token for every byte, so that it can write any text."""
        single = frozenset(_single_byte_tokens(tokens))
        if single >= _IN_UTF8:
            return None
        nodes = np.flatnonzero(tokens.has_token)
        depths = np.searchsorted(tokens.trie.levels, nodes, "right") - 1
        short = [tokens.path_to(node) for node in nodes[depths <= _CHARACTER_BYTES].tolist()]
        units = [data for data in short if len(data) == 1 or _is_character(data)]
        dfa = _rows_of(units)
        states = np.zeros(len(tokens.trie.byte), np.int64)  # of each node of the vocabulary
        states[0] = dfa.start
        for low, high in pairwise(tokens.trie.levels[1:]):
            by = dfa.byte_class[tokens.trie.byte[low:high]]
            states[low:high] = dfa.table[states[tokens.trie.parent[low:high]], by]
        size, longer = 0, []
        for node in nodes[~dfa.accepting[states[nodes]]].tolist():  # the shortest first
            data = tokens.path_to(node)
            size += len(data)
            if size > _MOST_UNITS:
                break
            longer.append(data)
        if longer:
            units += longer
            dfa = _rows_of(units)
        held = frozenset(tokens.trie.byte[1:].tolist())
        return cls(dfa, _hazards(tokens, dfa, [unit for unit in units if not single.issuperset(unit)]), held)


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def _rows_of(units: Sequence[bytes]) -> ByteDfa:
    """The automaton of all rows of units: its states are sets of places in units, 0 the place between two."""
    children: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for unit in units:
        node = 0
        for byte in unit:
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
            node = children[node][byte]
        ends.add(node)
    numbers: dict[frozenset[int], int] = {frozenset(): 0, frozenset({0}): 1}
    rows: list[NDArray[np.int64]] = []
    todo = list(numbers)
    for places in todo:  # grows meanwhile
        row = np.zeros(256, np.int64)
        after: dict[int, set[int]] = {}
        for place in places:
            for byte, node in children[place].items():
                reached = after.setdefault(byte, set())
                if children[node]:
                    reached.add(node)
                if node in ends:
                    reached.add(0)
        for byte, reached in after.items():
            target = frozenset(reached)
            if target not in numbers:
                numbers[target] = len(numbers)
                todo.append(target)
            row[byte] = numbers[target]
        rows.append(row)
    accepting = np.array([0 in places for places in numbers])
    columns, letters = np.unique(np.array(rows), axis=1, return_inverse=True)
    return minimized(columns, letters.reshape(-1), accepting, 1, WorkMeter())


def _hazards(tokens: TokenTrie, dfa: ByteDfa, units: Sequence[bytes]) -> NDArray[np.int64]:
    """See ``WritableTexts``.

    Args:
        tokens: the vocabulary.
        dfa: of all rows of units.
        units: those that cannot be written byte by byte.
    """
    texts = {tokens.path_to(node): node for node in np.flatnonzero(tokens.has_token).tolist()}
    longest = max(map(len, units), default=0)
    ends = {text[-length:] for text in texts for length in range(1, min(longest, len(text) + 1))}
    begun: set[bytes] = set()  # beginnings of units after which a token may end, though the rest cannot be written
    inside: set[bytes] = set()  # tokens inside of units that may end there
    for unit in units:
        may_end = [False] * len(unit)  # at each place, whether a token may
        for place in range(1, len(unit)):
            within = [unit[first:place] for first in range(1, place) if may_end[first] and unit[first:place] in texts]
            may_end[place] = bool(within) or unit[:place] in ends
            if may_end[place] and not dfa.accepts(unit[place:]):
                begun.add(unit[:place])
                inside.update(within)
    lengths = {*map(len, begun)}
    found = [
        node
        for text, node in texts.items()
        if text in inside or any([text[-length:] in begun for length in lengths if length <= len(text)])
    ]
    return tokens.tokens_at(np.array(found, np.int64))[0]


# -- networks


def writable_components(
    components: Sequence[Component], texts: WritableTexts, not_empty: Collection[int], meter: WorkMeter
) -> list[Component]:
    """The components of a network with the writable texts alone, by the same numbers; some may have no text.

    Args:
        components: the root first.
        texts: of the vocabulary.
        not_empty: the numbers of those with a string that has to have a character, as a register knows.
        meter: counts the work.

    Raises:
        NothingWritable: the root has no text.
        CompileLimitExceeded: there are too many states.
    """
    products: list[_Product] = []
    states = 0
    for component in components:
        products.append(_Product.of(component, texts, meter))
        states += len(products[-1].table)
        meter.check_states(states)
    written: set[int] = set()  # those with texts
    before = -1
    while len(written) > before:
        before = len(written)
        for number in reversed(range(len(products))):  # most callees come after their callers
            if number not in written and (number not in not_empty or products[number].has_any_length):
                if products[number].to_end(written, meter)[1]:
                    written.add(number)
    if 0 not in written:
        raise NothingWritable(_missing(products, written, texts, meter))
    empty = Component.without_calls(NOTHING)
    return [product.trimmed(written, meter) if number in written else empty for number, product in enumerate(products)]


def _missing(products: Sequence[_Product], written: Collection[int], texts: WritableTexts, meter: WorkMeter) -> bytes:
    """See ``NothingWritable``: those that come next where no text goes on."""
    missing: set[int] = set()
    reached, todo = {0}, [0]
    while todo:
        product = products[todo.pop()]
        at = product.from_start(written, meter)
        wanted = (product.wanted[at] & (product.table[at] == 0)).any(0)
        missing.update(np.flatnonzero(wanted[product.byte_class]).tolist())
        for callee, after in zip(product.callees, product.after_calls, strict=True):
            if callee >= 0 and callee not in written and callee not in reached and after[at].any():
                reached.add(callee)
                todo.append(callee)
    return bytes(sorted(missing - texts.held))


class _Product(NamedTuple):
    """A component beside the automaton of writable texts.

    Args:
        table: (states, classes) where each class of bytes leads; state 0 is dead, 1 the first.
        byte_class: (256,) the class of each byte.
        after_calls: (calls, states) the state after each call; 0 where there is none.
        callees: of each call.
        accepting: (states,) whether the component may end, at the end of a unit.
        wanted: (states, classes) whether the component alone has a move.
    """

    table: NDArray[np.int64]
    byte_class: NDArray[np.int64]
    after_calls: NDArray[np.int64]
    callees: tuple[int, ...]
    accepting: NDArray[np.bool_]
    wanted: NDArray[np.bool_]

    @classmethod
    def of(cls, component: Component, texts: WritableTexts, meter: WorkMeter) -> _Product:
        """That of a component; what it calls begins and ends between two units, and so does what a register knows."""
        dfa, rows_of_units = component.dfa, texts.dfa
        together = dfa.byte_class.astype(np.int64) * rows_of_units.table.shape[1] + rows_of_units.byte_class
        _, first, byte_class = np.unique(together, return_index=True, return_inverse=True)
        moves = dfa.table[:, dfa.byte_class[first]].astype(np.int64)
        unit_moves = rows_of_units.table[:, rows_of_units.byte_class[first]].astype(np.int64)
        after_calls = component.shape.after_calls.T.astype(np.int64)  # (states, calls)
        callees = component.callees
        width = rows_of_units.states  # a pair of states is one number
        frontier = np.array([dfa.start * width + rows_of_units.start])
        known, rows = frontier, []
        while len(frontier):
            meter.check_states(len(known))
            states, places = np.divmod(frontier, width)
            between = np.where(rows_of_units.accepting[places], rows_of_units.start, 0)
            to = np.concatenate([moves[states], after_calls[states]], 1)
            to_places = np.concatenate([unit_moves[places], np.repeat(between[:, None], len(callees), 1)], 1)
            rows.append(np.where((to > 0) & (to_places > 0), to * width + to_places, 0))
            meter.spend_cells(4 * to.size)
            frontier = np.setdiff1d(rows[-1], np.append(known, 0))
            known = np.concatenate([known, frontier])
        table = np.concatenate([np.zeros((1, len(first) + len(callees)), np.int64), *rows])
        order = np.argsort(known)
        table = np.where(table > 0, 1 + order[np.searchsorted(known[order], table).clip(max=len(known) - 1)], 0)
        states, places = np.divmod(np.append(0, known), width)
        accepting = dfa.accepting[states] & rows_of_units.accepting[places]
        byte_moves, calls = table[:, : len(first)], table[:, len(first) :].T
        return cls(byte_moves, byte_class, calls, callees, accepting, moves[states] > 0)

    @property
    def has_any_length(self) -> bool:
        """Whether a character may be repeated at the beginning of the string between the marks."""
        begin = self.after_calls[self.callees.index(Mark.BEGIN)].max()
        return bool((self.table[begin] == begin).any())

    def _edges(self, written: Collection[int], meter: WorkMeter) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sources and targets of the moves by bytes, marks, and calls of components with texts."""
        kept = [callee < 0 or callee in written for callee in self.callees]
        targets = np.concatenate([self.table, self.after_calls[kept].T], 1)
        meter.spend_cells(SORTED * targets.size)
        sources = np.broadcast_to(np.arange(len(targets))[:, None], targets.shape)
        pairs = np.unique((sources * len(targets) + targets)[targets > 0])
        return np.divmod(pairs, len(targets))

    def to_end(self, written: Collection[int], meter: WorkMeter) -> NDArray[np.bool_]:
        """(states,) from which the end can be reached."""
        ends = np.flatnonzero(self.accepting).tolist()
        return backwards(*self._edges(written, meter), len(self.table), ends, meter)

    def from_start(self, written: Collection[int], meter: WorkMeter) -> NDArray[np.bool_]:
        """(states,) that can be reached."""
        sources, targets = self._edges(written, meter)
        return backwards(targets, sources, len(self.table), [1], meter)

    def trimmed(self, written: Collection[int], meter: WorkMeter) -> Component:
        """The component, with the states that are reached and reach the end."""
        kept = np.flatnonzero(self.to_end(written, meter) & self.from_start(written, meter))
        numbers = np.zeros(len(self.table), np.int64)
        numbers[kept] = 1 + np.arange(len(kept))
        kept = np.append(0, kept)
        after_calls = numbers[self.after_calls[:, kept]]
        calls = [
            number
            for number, callee in enumerate(self.callees)
            if (callee < 0 or callee in written) and after_calls[number].any()
        ]
        dfa = ByteDfa(
            numbers[self.table[kept]].astype(np.uint16 if len(kept) <= 1 << 16 else np.uint32),
            self.byte_class.astype(np.uint8),
            self.accepting[kept],
            int(numbers[1]),
        )
        callees = tuple([self.callees[number] for number in calls])
        return Component(Shape(dfa, np.ascontiguousarray(after_calls[calls], np.int32)), callees)
