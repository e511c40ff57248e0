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

from ..options import NETWORK
from .byte_dfa import NOTHING, ByteDfa, productive
from .limits import SORTED, WorkMeter
from .nfa import NfaBuilder
from .products import pairs_of
from .rtn import Component, Mark
from .token_trie import TokenTrie

_IN_UTF8 = frozenset(range(0xF5)) - {0xC0, 0xC1}
_MOST_UNITS = 20_000  # bytes of units that are rows of characters; of more the longest are left out
_CHARACTER_BYTES = 4


class NothingWritable(Exception):
    """No text of a network can be written.

    Texts need the bytes ``missing``, which are in no token; there are none where it is not that simple.
    """

    def __init__(self, missing: bytes):
        super().__init__(missing)
        self.missing = missing


@dataclass(frozen=True, eq=False)
class WritableTexts:
    """The rows of the units of a vocabulary."""

    dfa: ByteDfa  # the automaton of all of them; a text ends where a unit ends
    hazards: NDArray[np.int64]  # (n,) the tokens that may end inside a unit whose rest is no row of units
    held: frozenset[int]  # the bytes that are in tokens

    @classmethod
    def of(cls, tokens: TokenTrie) -> WritableTexts | None:
        """The texts of a vocabulary; None if it has a token for every byte, so that it can write any text."""
        first = slice(tokens.trie.child[0], tokens.trie.child[1])
        single = frozenset(tokens.trie.byte[first][tokens.has_token[first]].tolist())
        if single >= _IN_UTF8:
            return None
        nodes = np.flatnonzero(tokens.has_token)
        depths = np.searchsorted(tokens.trie.levels, nodes, "right") - 1
        short = [tokens.path_to(node) for node in nodes[depths <= _CHARACTER_BYTES].tolist()]
        units = [data for data in short if len(data) == 1 or _is_character(data)]
        dfa = _rows_of(units)
        states = np.zeros(len(tokens.trie.byte), np.int64)  # the state of each node of the vocabulary
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
    builder = NfaBuilder(WorkMeter(NETWORK))
    between = builder.state()
    builder.add_words(units, between, between)
    return builder.dfa(between, between)


def _hazards(tokens: TokenTrie, dfa: ByteDfa, units: Sequence[bytes]) -> NDArray[np.int64]:
    """The hazards of ``WritableTexts``; ``units`` are those that cannot be written byte by byte."""
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

    The root is the first. In ``not_empty`` are the numbers of those with a string that has to have a character, as a
    register knows. NothingWritable is raised where the root has no text.
    """
    products: list[_Product] = []
    states = 0
    for component in components:
        products.append(_Product.of(component, texts, meter))
        states += len(products[-1].table)
        meter.check_states(states)
    written: set[int] = set()  # components with texts
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
    """The bytes of ``NothingWritable``: those that come next where no text continues."""
    missing: set[int] = set()
    reached, todo = {0}, [0]
    while todo:
        product = products[todo.pop()]
        at = product.from_start(written, meter)
        wanted = (product.wanted[at] & (product.table[at, : product.classes] == 0)).any(0)
        missing.update(np.flatnonzero(wanted[product.byte_class]).tolist())
        for callee, after in zip(product.callees, product.after_calls, strict=True):
            if callee >= 0 and callee not in written and callee not in reached and after[at].any():
                reached.add(callee)
                todo.append(callee)
    return bytes(sorted(missing - texts.held))


class _Product(NamedTuple):
    """A component beside the automaton of writable texts."""

    table: NDArray[np.int32]  # (states, classes + calls) the state after each class or call; 0 is dead, 1 the first
    byte_class: NDArray[np.int64]  # (256,) the class of each byte
    callees: tuple[int, ...]  # the callee of each call
    accepting: NDArray[np.bool_]  # (states,) whether the component may end, at the end of a unit
    wanted: NDArray[np.bool_]  # (states, classes) whether the component alone has a move

    @classmethod
    def of(cls, component: Component, texts: WritableTexts, meter: WorkMeter) -> _Product:
        """The product of a component; callees, and what a register knows, begin and end between two units."""
        dfa, rows, calls = component.dfa, texts.dfa, len(component.callees)
        together = dfa.byte_class.astype(np.int64) * rows.table.shape[1] + rows.byte_class
        _, first, byte_class = np.unique(together, return_index=True, return_inverse=True)
        between = np.where(rows.accepting, rows.start, 0)[:, None]
        own_columns = np.append(dfa.byte_class[first], dfa.table.shape[1] + np.arange(calls))
        columns = own_columns, np.append(rows.byte_class[first], np.repeat(rows.table.shape[1], calls))
        table, states, places = pairs_of(
            np.hstack([dfa.table, component.after_calls.T]),
            np.hstack([rows.table, between]),
            columns,
            (dfa.start, rows.start),
            meter,
        )
        wanted = dfa.table[:, dfa.byte_class[first]][states] > 0
        return cls(
            table, byte_class.reshape(-1), component.callees, dfa.accepting[states] & rows.accepting[places], wanted
        )

    @property
    def classes(self) -> int:
        return len(self.table[0]) - len(self.callees)

    @property
    def after_calls(self) -> NDArray[np.int32]:
        """(calls, states) the state after each call; 0 where there is none."""
        after_calls: NDArray[np.int32] = self.table[:, self.classes :].T
        return after_calls

    @property
    def has_any_length(self) -> bool:
        """Whether a character may be repeated at the beginning of the string between the marks."""
        begin = self.after_calls[self.callees.index(Mark.BEGIN)].max()
        return bool((self.table[begin, : self.classes] == begin).any())

    def moves(self, written: Collection[int]) -> NDArray[np.int32]:
        """(states, classes + calls) as ``table``, but there are no calls of components without texts."""
        moves: NDArray[np.int32] = self.table.copy()
        with_texts = [callee < 0 or callee in written for callee in self.callees]
        moves[:, self.classes :] *= np.array(with_texts, np.int32)
        return moves

    def to_end(self, written: Collection[int], meter: WorkMeter) -> NDArray[np.bool_]:
        return productive(self.moves(written), self.accepting, meter)

    def from_start(self, written: Collection[int], meter: WorkMeter) -> NDArray[np.bool_]:
        moves = self.moves(written)
        meter.spend_cells(SORTED * moves.size)
        reached = np.zeros(len(moves), np.bool_)
        todo = np.array([1])
        while len(todo):
            reached[todo] = True
            after = np.unique(moves[todo])
            todo = after[(after > 0) & ~reached[after]]
        return reached

    def trimmed(self, written: Collection[int], meter: WorkMeter) -> Component:
        kept = np.flatnonzero(self.to_end(written, meter) & self.from_start(written, meter))
        numbers = np.zeros(len(self.table), np.int32)
        numbers[kept] = 1 + np.arange(len(kept))
        kept = np.append(0, kept)
        table, classes = numbers[self.moves(written)[kept]], self.classes
        dfa = ByteDfa(
            table[:, :classes].astype(np.uint16 if len(kept) <= 1 << 16 else np.uint32),
            self.byte_class.astype(np.uint8),
            self.accepting[kept],
            int(numbers[1]),
        )
        calls = np.flatnonzero(table[:, classes:].any(0))
        callees = tuple([self.callees[number] for number in calls.tolist()])
        return Component(dfa, np.ascontiguousarray(table[:, classes + calls].T), callees)
