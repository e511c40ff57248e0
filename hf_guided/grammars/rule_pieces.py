"""The rules of a grammar as pieces: which are put into their callers, and which are called.

Only the texts of a grammar matter, so a rule that does not lead to itself is put into its callers, unless it is large
and has several. A repetition of what may begin and end with a rule that is being read is a rule of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..automaton.limits import WorkMeter
from ..regex import characters
from . import rules as grammar
from .gbnf import Gbnf
from .pieces import Call, Piece, any_of, inside, joined, nullable, parts_in, size_of, times
from .rules import Expression, Reference, Rules, circles, known_by_steps, references

MOST_COPIED = 500  # characters and calls of a rule that is put into several callers
MOST_DEPTH = 60  # pieces inside each other where rules are put into their callers: functions follow these by recursion
STEPS = 8  # steps of work for each part of a piece


class Rule(NamedTuple):
    """The name of a component: the texts of a rule, but for the empty one; the rule "" is the whole of a grammar."""

    grammar: str
    name: str


class RulePieces:
    """The rules of one grammar.

    ``pieces`` are the texts of the rules that are called, by name, ``loops`` the names of repetitions among them, and
    ``whole`` those of the grammar.
    """

    def __init__(self, source: Gbnf, meter: WorkMeter):
        text, rules, root = source.text, source.rules, source.root
        self._text, self._rules, self._meter = text, rules, meter
        self._with_empty = known_by_steps(rules, grammar.derives_empty)
        self._with_texts = known_by_steps(rules, grammar.writes)
        self._inline: dict[str, Piece] = {}  # rules that are put into their callers
        self._depths: dict[str, int] = {}
        self._reading: set[str] = set()  # rules that lead to each other
        self._loops: dict[Piece, str] = {}
        self.pieces: dict[str, Piece] = {}
        calls = _reached(rules, root)
        used = Counter([name for names in calls.values() for name in names])
        for names in circles(calls):
            self._read(names, used, is_recursive=len(names) > 1 or names[0] in calls[names[0]])
        self.whole, self.loops = self._called(root), list(self._loops.values())

    def _read(self, names: Collection[str], used: Mapping[str, int], *, is_recursive: bool) -> None:
        """Read rules that lead to each other, or one that does not lead to itself."""
        pieces: dict[str, Piece] = {}
        depth = 0
        self._reading = {*names} if is_recursive else set()
        for name in names:
            pieces[name] = self._piece(self._rules[name])
            inlined = [self._depths.get(each.name, 0) for each in references(self._rules[name])]
            depth = _nesting(self._rules[name]) + max(inlined, default=0)
        if not is_recursive:
            (name,) = names
            is_small = size_of(pieces[name]) <= MOST_COPIED or used[name] < 2
            if is_small and depth <= MOST_DEPTH:
                self._inline[name], self._depths[name] = pieces[name], depth
                return
        self.pieces |= {name: piece for name, piece in pieces.items() if piece}

    def _called(self, name: str) -> Piece:
        """A reference to a rule."""
        if name not in self._with_texts:
            return ()
        if (piece := self._inline.get(name)) is not None:
            self._meter.spend(1 + sum([1 if isinstance(part, Call) else characters(part) for part in parts_in(piece)]))
            return piece
        call = Call(Rule(self._text, name))
        return times((call,), 0, 1) if name in self._with_empty else (call,)

    def _piece(self, expression: Expression) -> Piece:
        self._meter.spend(1)
        if isinstance(expression, Reference):
            return self._called(expression.name)
        if isinstance(expression, grammar.Leaf):
            return joined((expression.language,))
        if isinstance(expression, grammar.Choice):
            return any_of([self._piece(part) for part in expression.parts])
        if isinstance(expression, grammar.Repeat):
            body = self._piece(expression.body)
            if expression.low <= 1 and expression.high is None and self._follows_itself(body):
                return self._loop(body, expression.low)
            return times(body, expression.low, expression.high)
        return joined(*map(self._piece, expression.parts))

    def _follows_itself(self, body: Piece) -> bool:
        """Whether a rule that leads to those that are being read follows itself where a piece is repeated."""
        return not self._reading.isdisjoint(calls_at_end(body, last=False) & calls_at_end(body, last=True))

    def _loop(self, body: Piece, low: int) -> Piece:
        """A repetition as a rule: if it is called, and not what is repeated, nothing tells where one ends."""
        name = self._loops.setdefault(body, f"{len(self._loops)}+")  # no rule of a text has such a name
        self.pieces[name] = times(body, 1, None)
        call = Call(Rule(self._text, name))
        return times((call,), 0, 1) if low == 0 or nullable(body) else (call,)


def _nesting(expression: Expression) -> int:
    if isinstance(expression, grammar.Repeat):
        return 1 + _nesting(expression.body)
    if isinstance(expression, (grammar.Choice, grammar.Sequence)):
        return 1 + max(map(_nesting, expression.parts), default=0)
    return 1


def depth_of(piece: Piece) -> int:
    """The number of pieces inside each other."""
    return max([1 + depth_of(within) for part in piece for within in inside(part)], default=0)


def weight(piece: Piece) -> int:
    """The parts of a piece, each as often as it is inside another one: what a function by recursion looks at."""
    found, level = 1, [*piece]
    depth = 1
    while level:
        found += depth * len(level)
        level = [part for each in level for within in inside(each) for part in within]
        depth += 1
    return found


def calls_in(piece: Piece) -> list[str]:
    """The rules that a piece calls, as often as it does."""
    return [part.name.name for part in parts_in(piece) if isinstance(part, Call)]


def calls_at_end(piece: Piece, *, last: bool) -> set[str]:
    """The rules that a text of a piece may begin or end with."""
    found: set[str] = set()
    for part in reversed(piece) if last else piece:
        if isinstance(part, Call):
            found.add(part.name.name)
        for within in inside(part):
            found |= calls_at_end(within, last=last)
        if not nullable((part,)):
            break
    return found


def _reached(rules: Rules, root: str) -> dict[str, list[str]]:
    """The rules that the root leads to, and the references in each."""
    reached: dict[str, list[str]] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached[name] = [reference.name for reference in references(rules[name])]
            todo += reached[name]
    return reached
