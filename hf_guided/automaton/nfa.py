"""Builds an NFA over bytes: Thompson's construction, from pieces that are deterministic already.

One rule makes the pieces fit: a part added between two states adds no edge into the first, and none out of the last,
except where both are one state. Then pieces can share their ends with others, and few empty moves are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from ..errors import CompileLimitExceeded
from ..regex import (
    ANYTHING,
    AllBut,
    Alt,
    And,
    Chars,
    Concat,
    Empty,
    Node,
    Not,
    Nothing,
    Repeat,
    characters,
    is_plain,
    only_text,
    tree_cache,
)
from .byte_dfa import ByteDfa
from .direct_dfas import dawg_dfa, multiples_dfa
from .fragments import Fragment, Literal, from_dfa, one_of
from .limits import NFA_STATES, WorkMeter
from .lru_bytes import ByteCache
from .products import difference, intersection, without_words
from .stored_dfas import stored_dfa
from .subsets import Nfa, Piece, Repetition, determinize

_MANY = 8  # from this number on literal branches become a list of words, and repetitions use one piece
_FEW_WORDS = 64  # maximum number of words that are a piece each
_LONG, _READ_STEPS = 1_000, 8  # characters of a long text, and the work of reading each where it is copied
_SMALL = 400  # characters in a language that is made one piece where it is repeated, if it is no larger
_LARGE = 6_000  # the same where pieces are wanted
_MANY_LETTERS = 256  # characters of a set that are words of one letter
_KEPT_BYTES = 16 * 2**20  # bytes of automata of languages; a string or a number has a few kilobytes


class _Added(NamedTuple):
    """A language between two states: how many states, pieces, skips and repetitions there were before and after it."""

    start: int
    end: int
    before: tuple[int, int, int, int]
    after: tuple[int, int, int, int]
    work: int


class NfaBuilder:
    """An NFA that grows, until ``dfa`` makes an automaton of it.

    ``in_pieces`` makes languages that are not large one piece each, and keeps these: worth it for what other
    constraints have too.
    """

    def __init__(self, meter: WorkMeter, *, in_pieces: bool = False):
        self._meter, self._in_pieces = meter, in_pieces
        self._states, self._most_states = 0, NFA_STATES * meter.limits.max_states
        self._pieces: list[Piece] = []
        self._skips: list[tuple[int, int]] = []
        self._repetitions: list[Repetition] = []
        self._added: dict[Node, _Added] = {}  # branches: those of a letter with several spellings come again and again

    def spend(self, steps: int) -> None:
        """Count the work of finding out what to add."""
        self._meter.spend(steps)

    def state(self) -> int:
        """A new state."""
        self._states += 1
        if self._states > self._most_states:
            self._meter.check_states(self._states, self._most_states)
        self._meter.spend(1)
        return self._states - 1

    def epsilon(self, source: int, target: int) -> None:
        """Add an edge without a byte."""
        self._skips.append((source, target))
        self._meter.spend(1)

    def add(self, node: Node, start: int, end: int) -> None:
        """Add the strings of a language between two states."""
        if isinstance(node, Empty):
            self.epsilon(start, end)
        elif isinstance(node, Chars) or only_text(node) is not None or self._is_piece(node):
            self._put(self._piece(node), start, end)
        elif not isinstance(node, Nothing):
            self._take_apart(node, start, end)

    def _is_piece(self, node: Node) -> bool:
        """A language in one piece; of a row, as names and patterns are, only the parts: no other constraint has it."""
        return self._in_pieces and not isinstance(node, Concat) and is_plain(node) and characters(node) <= _LARGE

    def need(self, states: int) -> None:
        """Raise CompileLimitExceeded at once if an automaton of at least this number of states is too large."""
        self._meter.check_states(states)

    def regex(self, node: Node, start: int) -> int:
        """Add the strings of a language after a state; returns the new state that they end in."""
        end = self.state()
        self.add(node, start, end)
        return end

    def is_empty(self, node: Node) -> bool:
        """Whether a language has no strings, by its automaton."""
        return not language_dfa(node, self._meter).accepting.any()

    def add_multiples(self, node: Node, factors: Iterable[Decimal], start: int, end: int) -> None:
        """Add, of the numbers without an exponent in a language, those that are multiples of each factor."""
        key = node, tuple(factors)
        if key not in self._meter.made:
            dfa = regex_dfa(node, self._meter)
            for factor in key[1]:
                dfa = intersection(dfa, multiples_dfa(factor, self._meter), self._meter)
            self._meter.made[key] = from_dfa(dfa)
        self._put(self._meter.made[key], start, end)

    def add_word(self, word: bytes, start: int, end: int) -> None:
        """Add a byte string, which is not empty."""
        self._put(Literal(word), start, end)

    def add_words(self, words: Iterable[bytes], start: int, end: int) -> None:
        """Add a finite set of byte strings; common beginnings and ends are stored once."""
        distinct: set[bytes] = set()
        for word in words:
            distinct.add(word)
            self._meter.spend(1)
        if len(distinct) <= _FEW_WORDS and b"" not in distinct:
            for word in sorted(distinct):
                self.add_word(word, start, end)
        elif distinct:
            self._put(from_dfa(dawg_dfa(distinct, self._meter)), start, end)

    def dfa(self, start: int, end: int) -> ByteDfa:
        """The automaton of all strings on a path from one state to the other."""
        if self._meter.limits.expect:  # with little ambiguity each state of a piece becomes a state of the automaton
            self._meter.check_states(self._states + sum(piece.states for _, piece, _ in self._pieces))
        return determinize(Nfa(self._states, self._pieces, self._skips, self._repetitions), start, end, self._meter)

    def _put(self, piece: Fragment | Literal | None, start: int, end: int, *, passed: bool = False) -> None:
        """Add a piece (None: no string) between two states; ``passed`` if another path has the empty string already."""
        if piece is None:
            return
        self._meter.spend(1)
        self._pieces.append((start, piece, end))
        if piece.nullable and not passed:
            self.epsilon(start, end)

    def _piece(self, node: Node) -> Fragment | Literal | None:
        made = self._meter.made
        piece: Fragment | Literal | None = made.get(node)
        if piece is None and node not in made:
            piece = made[node] = _piece(node, self._meter)
        return piece

    def _take_apart(self, node: Node, start: int, end: int) -> None:
        if self._meter.limits.expect:
            self._meter.check_states(expected_states(node))
        if isinstance(node, Concat):
            self._add_row(node.parts, start, end)
        elif isinstance(node, Alt):
            added = self._added.get(node)
            if added is not None:
                self._add_again(added, start, end)
                return
            before, work = self._size(), self._meter.work
            self._add_branches(node, start, end)
            if start != end:  # in a loop to its own beginning, a state may be either of the two
                self._added[node] = _Added(start, end, before, self._size(), self._meter.work - work)
        elif isinstance(node, Repeat):
            self._add_repeated(node, start, end)
        elif isinstance(node, (And, Not)):
            made = self._meter.made
            if node not in made:
                whole, words = _combined(node, self._meter)
                made[node] = without_words(whole, words, self._meter) if words else from_dfa(whole)
            self._put(made[node], start, end)
        else:
            self.add(node, start, end)

    def _add_row(self, parts: tuple[Node, ...], start: int, end: int) -> None:
        spelled: list[Node] = []  # characters side by side are one piece
        rows: list[Node] = []
        for part in (*parts, None):
            if part is not None and _is_letter(part):
                spelled.append(part)
                continue
            if spelled:
                rows.append(spelled[0] if len(spelled) == 1 else Concat(tuple(spelled)))
                spelled = []
            if part is not None:
                rows.append(part)
        for part in rows[:-1]:
            start, before = self.state(), start
            self.add(part, before, start)
        self.add(rows[-1], start, end)

    def _add_branches(self, node: Alt, start: int, end: int) -> None:
        words, others = [], []
        for branch in node.parts:
            word = only_text(branch)
            if word is None:
                others.append(branch)
            else:
                words.append(word.encode())
        if len(words) < _MANY:
            others = list(node.parts)
        else:
            self.add_words(words, start, end)
        for branch in others:
            self.add(branch, start, end)

    def _add_repeated(self, node: Repeat, start: int, end: int) -> None:
        body, low, high = node.body, node.low, node.high
        if isinstance(body, Repeat) and body.low == 0 and body.high is not None and high is not None:
            low, high = 0, body.high * high  # (x?){5} is x{0,5}: no edge without a byte is needed
            body = body.body
        if body.nullable:
            low = 0  # the copies that must be there may be empty
        size = characters(body)
        if isinstance(body, Chars) or (max(low, high or 0) >= _MANY and size <= _SMALL):
            # Repeated so often that building it once pays off in any case.
            add = partial(self._put, self._piece(body), passed=body.nullable)
        else:
            add = partial(self.add, body)
        copies: list[tuple[int, int]] = []  # the first state and the first piece of each
        for i in range(low if high is None else high):
            if i >= low:  # All the exits share what comes after; an exit before the end would not.
                self.epsilon(start, end)
            if size > _LONG:  # a long text takes few steps, but is read for each copy
                self._meter.spend(_READ_STEPS * size)
            copies.append((self._states, len(self._pieces)))
            start, before = self.state(), start
            add(before, start)
        if high is None:
            copies.append((self._states, len(self._pieces)))
            loop = self.state()
            self.epsilon(start, loop)
            add(loop, loop)
            start = loop
        self.epsilon(start, end)
        self._note_repetition(copies[max(low - 1, 0) :])  # one may leave after each of these

    def _size(self) -> tuple[int, int, int, int]:
        return self._states, len(self._pieces), len(self._skips), len(self._repetitions)

    def _add_again(self, added: _Added, start: int, end: int) -> None:
        """Add the same between other states, with states of its own."""
        (states, pieces, skips, repetitions), (states_after, *after) = added.before, added.after
        more, more_pieces = self._states - states, len(self._pieces) - pieces
        where = {added.start: start, added.end: end}
        where.update(zip(range(states, states_after), range(self._states, more + states_after), strict=True))
        self._states = more + states_after
        self._meter.check_states(self._states, self._most_states)
        self._meter.spend(added.work)
        self._pieces += [(where[a], piece, where[b]) for a, piece, b in self._pieces[pieces : after[0]]]
        self._skips += [(where[a], where[b]) for a, b in self._skips[skips : after[1]]]
        self._repetitions += [
            repeated._replace(first_state=repeated.first_state + more, first_piece=repeated.first_piece + more_pieces)
            for repeated in self._repetitions[repetitions : after[2]]
        ]

    def _note_repetition(self, copies: list[tuple[int, int]]) -> None:
        """Note copies each of which dominates the next."""
        if len(copies) > 1:
            (state, piece), (next_state, next_piece) = copies[:2]
            states, pieces = next_state - state, next_piece - piece
            assert (self._states, len(self._pieces)) == (state + len(copies) * states, piece + len(copies) * pieces)
            self._repetitions.append(Repetition(state, states, piece, pieces, len(copies)))


def _combined(node: And | Not, meter: WorkMeter) -> tuple[ByteDfa, list[bytes]]:
    """An automaton; and words that are to be left out of it."""
    parts = node.parts if isinstance(node, And) else (node,)
    wanted = [language_dfa(part, meter) for part in parts if not isinstance(part, Not)]
    wanted.sort(key=lambda dfa: dfa.states)  # small ones first: most products are then of small ones
    whole = wanted[0] if wanted else utf8()
    for other in wanted[1:]:
        whole = intersection(whole, other, meter)
    words: list[bytes] = []
    for part in parts:
        if isinstance(part, Not):
            words += (listed := _left_out(part))
            if not listed:
                whole = difference(whole, language_dfa(part.body, meter), meter)
    return whole, words if whole.start else []


def regex_dfa(node: Node, meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of a language, over its UTF-8 bytes."""
    if isinstance(node, (And, Not)) and node not in meter.made:
        if meter.limits.expect:
            meter.check_states(expected_states(node))
        whole, words = _combined(node, meter)
        if not words:
            return whole
        meter.made[node] = without_words(whole, words, meter)
    builder = NfaBuilder(meter)
    start, end = builder.state(), builder.state()
    builder._take_apart(node, start, end)
    return builder.dfa(start, end)


@tree_cache(maxsize=4096)
def expected_states(node: Node) -> int:
    """About how many states the automaton has, from the expression alone, in microseconds.

    The guess is that repetitions multiply what is repeated, and that a text whose length is counted while it follows a
    pattern has every state of the pattern at every length.
    """
    if isinstance(node, (Concat, Alt)):
        return sum(map(expected_states, node.parts))
    if isinstance(node, Repeat):
        return max(node.low, node.high or 1, 1) * expected_states(node.body)
    if isinstance(node, And):
        endless = [part for part in node.parts if longest(part) is None]
        most = longest(node)
        if endless and most is not None:
            return most * sum(map(expected_states, endless))
        return max(map(expected_states, node.parts))
    if isinstance(node, AllBut):
        return 1 + sum(map(len, node.words))
    return 1 + expected_states(node.body) if isinstance(node, Not) else 1


@tree_cache(maxsize=4096)
def longest(node: Node) -> int | None:
    """Characters of the longest text, or more; None if there is no bound."""
    if isinstance(node, Not):
        return None
    if isinstance(node, Repeat):
        most = longest(node.body)
        return None if most is None or node.high is None else most * node.high
    if isinstance(node, (Concat, Alt, And)):
        lengths = [longest(part) for part in node.parts]
        bounded = [length for length in lengths if length is not None]
        if isinstance(node, And):
            return min(bounded, default=None)
        if len(bounded) < len(lengths):
            return None
        return max(bounded) if isinstance(node, Alt) else sum(bounded)
    return 1 if isinstance(node, Chars) else 0


@lru_cache(maxsize=1)
def utf8() -> ByteDfa:
    """The automaton of all texts."""
    return regex_dfa(ANYTHING, WorkMeter())


@dataclass(frozen=True)
class _KeptLanguage:
    dfa: ByteDfa
    work: int  # the steps that it took to make it

    @cached_property
    def piece(self) -> Fragment | None:
        return from_dfa(self.dfa)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, the piece counted: its table has integers that may be twice as wide."""
        return 3 * self.dfa.nbytes + 1024


_kept_languages: ByteCache[_KeptLanguage] = ByteCache(_KEPT_BYTES)


def _language(node: Node, meter: WorkMeter) -> _KeptLanguage:
    """A language, kept for other constraints: the same strings, numbers and white space are in every schema.

    Kept or not, the same work is counted: earlier compiles must not decide what is served.
    """
    key = node, meter.limits
    kept = _kept_languages.get(key)
    if kept is None:
        stored = stored_dfa(node, meter.limits)
        if stored is None:
            part = meter.part()
            try:
                stored = regex_dfa(node, part), part.work
            except CompileLimitExceeded:
                meter.work += part.work
                raise
        kept = _KeptLanguage(*stored)
        _kept_languages.put(key, kept)
    meter.spend(kept.work)
    return kept


def language_dfa(node: Node, meter: WorkMeter) -> ByteDfa:
    """The automaton of ``regex_dfa``, but the same object for as long as it is kept for other constraints."""
    return _language(node, meter).dfa


def _piece(node: Node, meter: WorkMeter) -> Fragment | Literal | None:
    """A language that is not the empty string alone as one piece; None if it has no string."""
    if isinstance(node, Chars):
        return one_of(node.charset)
    if word := only_text(node):
        return Literal(word.encode())
    return _language(node, meter).piece


def _left_out(node: Not) -> list[bytes]:
    """The texts, if it leaves out a list of some; else none."""
    if isinstance(node, AllBut):
        return [word.encode() for word in node.words]
    words: list[bytes] = []
    for branch in node.body.parts if isinstance(node.body, Alt) else (node.body,):
        if isinstance(branch, Chars) and len(branch.charset) <= _MANY_LETTERS:
            words += map(str.encode, branch.charset)
        elif word := only_text(branch):
            words.append(word.encode())
        else:
            return []
    return words


def _is_letter(node: Node) -> bool:
    return type(node) is Chars and len(node.charset) == 1
