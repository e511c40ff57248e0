"""The rules of a context-free grammar, in either syntax: whether each has a text, and which lead to each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint, shown
from ..regex import ANYTHING, EMPTY, Node

MAX_NESTING = 50  # open parentheses: engines, and the functions here, follow them by recursion
REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Leaf(NamedTuple):
    """A text or a set; some text matches it."""

    language: Node = ANYTHING  # in Lark not read


class Reference(NamedTuple):
    """Another rule, and where the reference stands in the text."""

    name: str
    position: int


class Sequence(NamedTuple):
    """One after another; the empty text if there are no parts."""

    parts: tuple[Expression, ...]


class Choice(NamedTuple):
    """Any of them."""

    parts: tuple[Expression, ...]


class Repeat(NamedTuple):
    """``body`` at least ``low`` times and at most ``high`` times; None is no bound."""

    body: Expression
    low: int
    high: int | None


Expression = Leaf | Reference | Sequence | Choice | Repeat
Rules = Mapping[str, Expression]


class Token(NamedTuple):
    """A part of the text of a grammar."""

    kind: str  # a sign or a keyword is its own kind
    text: str
    start: int
    end: int
    value: Any = None  # the JSON after a keyword of Lark that takes some


class Reader:
    """The position in the text of a grammar, and in its tokens."""

    tokens: list[Token]

    def __init__(self, text: str) -> None:
        self.text = text
        self._depth = 0
        self._next = 0

    def malformed(self, problem: str, position: int) -> InvalidConstraint:
        """The error for what is wrong at a position."""
        return InvalidConstraint(f"Grammar: {self.where(position)}: {problem}")

    def loss(self, construct: str, reason: str, position: int) -> Loss:
        """A construct at a position that is well formed, and not enforced."""
        return Loss("", construct, f"{reason} (at {self.where(position)})")

    def unsupported(self, construct: str, reason: str, position: int) -> UnsupportedConstraint:
        """The error for a single loss."""
        return UnsupportedConstraint("no engine enforces all of this grammar", [self.loss(construct, reason, position)])

    def where(self, position: int) -> str:
        """The position as messages say it."""
        before = self.text[:position]
        return f"line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"

    def match(self, pattern: re.Pattern[str], position: int) -> re.Match[str]:
        """The token at a position."""
        match = pattern.match(self.text, position)
        if match is None:
            raise self.malformed(f"expected a part of a rule, got {self.text[position : position + 10]!r}", position)
        return match

    @property
    def here(self) -> Token:
        """The next token."""
        return self.tokens[self._next]

    def take(self, *kinds: str) -> Token | None:
        """The next token, if it is of one of these kinds."""
        token = self.here
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def open(self, position: int) -> None:
        """Count an opening parenthesis."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise CompileLimitExceeded(
                f"Grammar: {self.where(position)}: more than {MAX_NESTING} parentheses are open; give parts rules of "
                "their own"
            )

    def close(self) -> None:
        """Count a closing parenthesis."""
        self._depth -= 1


def sequence(parts: list[Expression]) -> Expression:
    """One after another; a single part stays itself."""
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def choice(branches: list[Expression]) -> Expression:
    """Any of them; a single one stays itself."""
    return branches[0] if len(branches) == 1 else Choice(tuple(branches))


def check_rules(reader: Reader, rules: Rules, start: str) -> None:
    """Refuse rules that are not there, and rules without a text that the start can lead to, by InvalidConstraint.

    An engine would enter a rule without a text, and never find the end of it.
    """
    for rule in rules.values():
        for reference in references(rule):
            if reference.name not in rules:
                problem = f"the rule {shown(reference.name)} is not defined; define it, or correct the name"
                raise reader.malformed(problem, reference.position)
    productive = known_by_steps(rules, derives_from(lambda leaf: True))
    reached, todo = {start}, [start]
    while todo:
        name = todo.pop()
        if name not in productive:
            raise InvalidConstraint(
                f"Grammar: no text matches the rule {shown(name)}: every alternative leads back to it; add one that "
                "ends"
            )
        following = {reference.name for reference in references(rules[name])} - reached
        reached |= following
        todo += following


def references(expression: Expression) -> Iterator[Reference]:
    """All references in an expression."""
    todo = [expression]
    while todo:
        part = todo.pop()
        if isinstance(part, Reference):
            yield part
        elif isinstance(part, (Sequence, Choice)):
            todo += reversed(part.parts)
        elif isinstance(part, Repeat):
            todo.append(part.body)


def known_by_steps(rules: Rules, holds: Callable[[Expression, set[str]], bool]) -> set[str]:
    """The rules of which something holds that may follow from its holding of other rules."""
    users: dict[str, list[str]] = {}
    for name, expression in rules.items():
        for reference in references(expression):
            users.setdefault(reference.name, []).append(name)
    known: set[str] = set()
    todo = list(rules)
    while todo:
        name = todo.pop()
        if name not in known and holds(rules[name], known):
            known.add(name)
            todo += users.get(name, ())
    return known


def derives_from(is_wanted: Callable[[Leaf], bool]) -> Callable[[Expression, set[str]], bool]:
    """Whether an expression has a text that consists of these leaves alone, if some rules are known to have one."""

    def derives(expression: Expression, known: set[str]) -> bool:
        if isinstance(expression, Leaf):
            return is_wanted(expression)
        if isinstance(expression, Reference):
            return expression.name in known
        if isinstance(expression, Sequence):
            return all(derives(part, known) for part in expression.parts)
        if isinstance(expression, Choice):
            return any(derives(part, known) for part in expression.parts)
        return expression.low == 0 or derives(expression.body, known)

    return derives


derives_empty = derives_from(lambda leaf: leaf.language == EMPTY)
"""Whether an expression of GBNF has the empty text, if some rules are known to have it."""


def writes(expression: Expression, known: set[str]) -> bool:
    """Whether an expression of GBNF has another text than the empty one, if some rules are known to have one."""
    if isinstance(expression, Leaf):
        return expression.language != EMPTY
    if isinstance(expression, Reference):
        return expression.name in known
    if isinstance(expression, Repeat):
        return expression.high != 0 and writes(expression.body, known)
    return any(writes(part, known) for part in expression.parts)


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The strongly connected groups of a graph, each after those that it leads to: Tarjan's algorithm."""
    groups: list[list[str]] = []
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: dict[str, None] = {}
    todo: list[tuple[str, Iterator[str]]] = []
    for root in graph:
        if root in low:
            continue
        todo.append((root, iter(graph[root])))
        low[root] = order[root] = len(low)
        waiting[root] = None
        while todo:
            name, following = todo[-1]
            for other in following:
                if other in graph and other not in low:
                    low[other] = order[other] = len(low)
                    waiting[other] = None
                    todo.append((other, iter(graph[other])))
                    break
                if other in waiting:
                    low[name] = min(low[name], low[other])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[name])
                if low[name] == order[name]:
                    group: list[str] = []
                    while not group or group[-1] != name:
                        group.append(waiting.popitem()[0])
                    groups.append(group[::-1])
    return groups
