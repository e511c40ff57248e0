"""The rules of a context-free grammar, in either syntax, and whether each has a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint

MAX_NESTING = 50  # open parentheses: engines, and the functions here, follow them by recursion


class Leaf(NamedTuple):
    """What refers to no rule.

    Args:
        written: as the engine reads it; some text matches it.
    """

    written: str


class Reference(NamedTuple):
    """Another rule.

    Args:
        name: of the rule.
        position: where the reference stands in the text.
    """

    name: str
    position: int


class Sequence(NamedTuple):
    """One after another; the empty text if there are no parts."""

    parts: tuple[Expression, ...]


class Choice(NamedTuple):
    """Any of them."""

    branches: tuple[Expression, ...]


class Repeat(NamedTuple):
    """``body`` at least ``low`` times and at most ``high`` times; None is no bound."""

    body: Expression
    low: int
    high: int | None


Expression = Leaf | Reference | Sequence | Choice | Repeat
Rules = Mapping[str, Expression]


class Reader:
    """The position in the text of a grammar, for messages."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._depth = 0

    def malformed(self, problem: str, position: int) -> InvalidConstraint:
        """The error for what is wrong at a position."""
        return InvalidConstraint(f"Grammar: {self.where(position)}: {problem}")

    def loss(self, construct: str, reason: str, position: int) -> Loss:
        """What is well formed at a position, and not enforced."""
        return Loss("", construct, f"{reason} (at {self.where(position)})")

    def unsupported(self, construct: str, reason: str, position: int) -> UnsupportedConstraint:
        """The error for a single loss."""
        return UnsupportedConstraint("no engine enforces all of this grammar", [self.loss(construct, reason, position)])

    def where(self, position: int) -> str:
        """The position as messages say it."""
        before = self.text[:position]
        return f"line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"

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
    """Refuse a grammar in which a rule that the start can lead to has no text.

    An engine would enter such a rule, and never find the end of it.

    Args:
        reader: of the text.
        rules: all rules that are referred to.
        start: name of the first rule.

    Raises:
        InvalidConstraint: names the rule.
    """
    productive = _known_by_steps(rules, _derives(lambda leaf: True))
    reached, todo = {start}, [start]
    while todo:
        name = todo.pop()
        if name not in productive:
            raise InvalidConstraint(
                f"Grammar: no text matches the rule {name!r}: every alternative leads back to it; add one that ends"
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
        elif isinstance(part, Sequence):
            todo += part.parts
        elif isinstance(part, Choice):
            todo += part.branches
        elif isinstance(part, Repeat):
            todo.append(part.body)


def writing(rules: Rules, empty: Leaf) -> set[str]:
    """The rules that have another text than the empty one; all rules have a text.

    Args:
        rules: all rules that are referred to.
        empty: the empty text, as it stands in the rules.
    """

    def writes(expression: Expression, known: set[str]) -> bool:
        if isinstance(expression, Leaf):
            return expression != empty
        if isinstance(expression, Reference):
            return expression.name in known
        if isinstance(expression, Repeat):
            return expression.high != 0 and writes(expression.body, known)
        parts = expression.parts if isinstance(expression, Sequence) else expression.branches
        return any(writes(part, known) for part in parts)

    return _known_by_steps(rules, writes)


def may_be_empty(rules: Rules, empty: Leaf) -> Callable[[Expression], bool]:
    """Tells of an expression whether the empty text is one of its texts; see ``writing``."""
    derives = _derives(lambda leaf: leaf == empty)
    known = _known_by_steps(rules, derives)
    return lambda expression: derives(expression, known)


def small_rules(rules: Rules, max_leaves: int) -> set[str]:
    """The rules that have at most ``max_leaves`` leaves when references are replaced by what they refer to.

    Args:
        rules: all rules that are referred to.
        max_leaves: of a small rule.
    """
    sizes: dict[str, int] = {}

    def size(expression: Expression) -> int:
        if isinstance(expression, Leaf):
            return 1
        if isinstance(expression, Reference):
            return sizes.get(expression.name, max_leaves + 1)
        if isinstance(expression, Repeat):
            return size(expression.body)
        # Without parts, it is still one branch: else a small rule could have any number of them.
        return sum(map(size, expression.parts if isinstance(expression, Sequence) else expression.branches)) or 1

    def is_small(expression: Expression, known: set[str]) -> bool:
        sizes.update({name: size(rules[name]) for name in known - set(sizes)})
        return size(expression) <= max_leaves

    return _known_by_steps(rules, is_small)


def _known_by_steps(rules: Rules, holds: Callable[[Expression, set[str]], bool]) -> set[str]:
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


def _derives(is_wanted: Callable[[Leaf], bool]) -> Callable[[Expression, set[str]], bool]:
    """Whether an expression has a text that consists of these leaves alone, if some rules are known to have one."""

    def derives(expression: Expression, known: set[str]) -> bool:
        if isinstance(expression, Leaf):
            return is_wanted(expression)
        if isinstance(expression, Reference):
            return expression.name in known
        if isinstance(expression, Sequence):
            return all(derives(part, known) for part in expression.parts)
        if isinstance(expression, Choice):
            return any(derives(branch, known) for branch in expression.branches)
        return expression.low == 0 or derives(expression.body, known)

    return derives
