"""Builds an NFA over bytes: Thompson's construction, with the tails of counted repetitions and of word lists shared.

One rule makes the pieces fit: what is added between two states adds no way into the first, and none out of the last,
except where both are one state. Then pieces can share their ends with others, and few empty moves are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from ..regex import Alt, And, Chars, CharSet, Concat, Empty, Node, Not, Repeat
from .byte_dfa import ByteDfa, complement, difference, intersection
from .limits import NFA_STATES, Clock
from .subsets import Nfa, determinize
from .utf8 import END, START, utf8_steps
from .words import word_graph

_MANY = 8  # so many literal branches are a list of words


class NfaBuilder:
    """An NFA that grows, until ``dfa`` makes an automaton of it.

    Args:
        clock: the limits of the whole compile.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._states = 0
        self._edges = array("q")
        self._epsilons = array("q")

    def state(self) -> int:
        """A new state."""
        self._states += 1
        if self._states % 256 == 0:
            self._clock.check(self._states, NFA_STATES * self._clock.limits.max_states)
        return self._states - 1

    def edge(self, source: int, low: int, high: int, target: int) -> None:
        """A way by any byte from ``low`` to ``high``."""
        self._edges.extend((source, low, high, target))

    def epsilon(self, source: int, target: int) -> None:
        """A way without a byte."""
        self._epsilons.extend((source, target))
        if len(self._epsilons) % 512 == 0:
            self._clock.check()

    def regex(self, node: Node, start: int) -> int:
        """Add the strings of a language behind a state.

        Returns:
            The new state that they end in.
        """
        end = self.state()
        self._add(node, start, end)
        return end

    def words(self, words: Iterable[bytes], start: int) -> int:
        """Add a finite set of byte strings behind a state; common beginnings and ends are stored once.

        Returns:
            The new state that they end in.
        """
        end = self.state()
        self._add_words(words, start, end)
        return end

    def automaton(self, dfa: ByteDfa, start: int) -> int:
        """Add the strings of an automaton behind a state.

        Returns:
            The new state that they end in.
        """
        end = self.state()
        self._add_automaton(dfa, start, end)
        return end

    def dfa(self, start: int, end: int, clock: Clock | None = None) -> ByteDfa:
        """The minimal automaton of all strings on a way from one state to the other.

        Args:
            start: where the strings begin.
            end: where they end.
            clock: None goes on with the one the states were made with.
        """
        return determinize(
            Nfa(self._states, self._edges, self._epsilons), start, end, self._clock if clock is None else clock
        )

    def _add(self, node: Node, start: int, end: int) -> None:
        if isinstance(node, Chars):
            self._add_characters(node.charset, start, end)
        elif isinstance(node, Empty):
            self.epsilon(start, end)
        elif isinstance(node, Concat):
            for part in node.parts[:-1]:
                start, before = self.state(), start
                self._add(part, before, start)
            self._add(node.parts[-1], start, end)
        elif isinstance(node, Alt):
            self._add_branches(node, start, end)
        elif isinstance(node, Repeat):
            self._add_repeated(node, start, end)
        elif isinstance(node, (And, Not)):
            self._add_automaton(self._combined(node), start, end)
        # Nothing adds nothing.

    def _add_characters(self, charset: CharSet, start: int, end: int) -> None:
        count, steps = utf8_steps(charset)
        states = {START: start, END: end}
        for inner in range(count - 2):
            states[inner + 2] = self.state()
        for source, low, high, target in steps:
            self.edge(states[source], low, high, states[target])

    def _add_branches(self, node: Alt, start: int, end: int) -> None:
        words, others = [], []
        for branch in node.branches:
            word = _word(branch)
            if word is None:
                others.append(branch)
            else:
                words.append(word)
        if len(words) < _MANY:
            others = list(node.branches)
        else:
            self._add_words((word.encode() for word in words), start, end)
        for branch in others:
            self._add(branch, start, end)

    def _add_repeated(self, node: Repeat, start: int, end: int) -> None:
        body, low, high = node.body, node.low, node.high
        if isinstance(body, Repeat) and body.low == 0 and body.high is not None and high is not None:
            low, high = 0, body.high * high  # (x?){5} is x{0,5}: no way without a byte is needed
            body = body.body
        for _ in range(low):
            start, before = self.state(), start
            self._add(body, before, start)
        if high is None:
            loop = self.state()
            self.epsilon(start, loop)
            self._add(body, loop, loop)
            self.epsilon(loop, end)
            return
        # One may leave after each time. All the exits share what comes behind; an exit before the end would not.
        for _ in range(low, high):
            self.epsilon(start, end)
            start, before = self.state(), start
            self._add(body, before, start)
        self.epsilon(start, end)

    def _add_words(self, words: Iterable[bytes], start: int, end: int) -> None:
        graph = word_graph(words, self._clock)
        numbers = [self.state() for _ in graph.nexts]
        self.epsilon(start, numbers[-1])  # the last is the root
        for number, nexts, final in zip(numbers, graph.nexts, graph.final, strict=True):
            for byte, target in nexts:
                self.edge(number, byte, byte, numbers[target])
            if final:
                self.epsilon(number, end)

    def _add_automaton(self, dfa: ByteDfa, start: int, end: int) -> None:
        if not dfa.start:
            return
        numbers = [self.state() for _ in range(dfa.states)]
        self.epsilon(start, numbers[dfa.start])
        for state in range(1, dfa.states):
            if state % 64 == 0:
                self._clock.check()
            low, row = 0, dfa.table[state][dfa.byte_class].tolist()
            for byte in range(1, 257):
                if byte == 256 or row[byte] != row[low]:
                    if row[low]:
                        self.edge(numbers[state], low, byte - 1, numbers[row[low]])
                    low = byte
            if dfa.accepting[state]:
                self.epsilon(numbers[state], end)

    def _combined(self, node: And | Not) -> ByteDfa:
        if isinstance(node, Not):
            return complement(self._apart(node.body), self._clock)
        wanted = [self._apart(part) for part in node.parts if not isinstance(part, Not)]
        excluded = [self._apart(part.body) for part in node.parts if isinstance(part, Not)]
        whole = complement(excluded.pop(), self._clock) if not wanted else wanted.pop()
        for other in wanted:
            whole = intersection(whole, other, self._clock)
        for other in excluded:
            whole = difference(whole, other, self._clock)
        return whole

    def _apart(self, node: Node) -> ByteDfa:
        builder = NfaBuilder(self._clock)
        start = builder.state()
        return builder.dfa(start, builder.regex(node, start))


def regex_dfa(node: Node, clock: Clock) -> ByteDfa:
    """The minimal automaton of a language, over its UTF-8 bytes."""
    builder = NfaBuilder(clock)
    start = builder.state()
    return builder.dfa(start, builder.regex(node, start))


def _word(node: Node) -> str | None:
    """The text, if the language is a single one."""
    characters = []
    for part in node.parts if isinstance(node, Concat) else (node,):
        if not isinstance(part, Chars) or len(part.charset.ranges) != 1:
            return None
        ((first, last),) = part.charset.ranges
        if first != last:
            return None
        characters.append(chr(first))
    return "".join(characters)
