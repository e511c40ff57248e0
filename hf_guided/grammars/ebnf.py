"""Rules as xgrammar's EBNF.

Two kinds of rules are written in another way, because xgrammar cannot bear them. A rule that leads to itself and writes
nothing, as ``x ::= x{0,3}``, lets it run out of stack: references to such a rule become the empty text. Where something
that may be empty is repeated, as in ``(("a"?){0,300}){0,300}``, every number of empty repetitions is a position of its
own, and one token takes minutes: so what is repeated is written without its empty text.

xgrammar's masks are slow, up to 100 ms with a vocabulary of 131,072 tokens, for ``(x){0,}`` and for a repeated choice,
whose branches become rules of their own. So no repetition without an upper bound is written with a count, and a
repeated choice becomes a rule that leads to itself after each branch: ``s ::= "" | a s | b s``. Small rules are
replaced in it.
"""

from __future__ import annotations

from .rules import Choice, Expression, Leaf, Reference, Repeat, Rules, Sequence, may_be_empty, small_rules, writing

_EMPTY = '""'
_MAX_LEAVES = 16  # maximum number of leaves of a rule that is replaced by its alternatives in a repetition
_MAX_IN_PLACE = 500  # maximum characters of ``x x+`` written in place: masks of a rule of its own are slower


class EbnfWriter:
    """Writes one grammar.

    Args:
        rules: all rules that are referred to; each has a text. The leaf ``""`` is the empty text.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        written = writing(rules, Leaf(_EMPTY))
        self._names = {name: f"r{i}" for i, name in enumerate(rules) if name in written}
        self._may_be_empty = may_be_empty(rules, Leaf(_EMPTY))
        self._not_empty_names: dict[str, str] = {}
        self._lines: list[str] = []
        self._small = small_rules(rules, _MAX_LEAVES)

    def write(self, root: str) -> str:
        """The grammar, read from this rule."""
        self._lines = [f"root ::= {self._whole(Reference(root, 0))}"]
        for name, written in self._names.items():
            self._lines.append(f"{written} ::= {self._whole(self._rules[name])}")
        return "\n".join(self._lines)

    def _whole(self, expression: Expression) -> str:
        """An expression with all its texts."""
        if isinstance(expression, Leaf):
            return expression.written
        if isinstance(expression, Reference):
            return self._names.get(expression.name, _EMPTY)
        if isinstance(expression, Sequence):
            return f"({' '.join(map(self._whole, expression.parts))})" if expression.parts else _EMPTY
        if isinstance(expression, Choice):
            return f"({' | '.join(map(self._whole, expression.branches))})"
        return self._repeat(expression, 0)

    def _repeat(self, repeat: Repeat, least: int) -> str:
        """A repetition, with this many bodies at least that are not empty."""
        low = least if self._may_be_empty(repeat.body) else max(repeat.low, least)
        if repeat.high == 0:
            return _EMPTY
        if repeat.high is None:
            return self._endless(repeat.body, low)
        body = self._not_empty(repeat.body)
        if body is None:
            return _EMPTY
        if (low, repeat.high) == (0, 1):
            return f"({body})?"
        return f"({body}){{{low},{repeat.high}}}"

    def _endless(self, expression: Expression, low: int) -> str:
        """At least ``low`` texts of an expression that are not empty.

        Branches are rendered once, and those written more than once become rules, unless they are short: otherwise,
        nested repetitions would take exponential time, or their text would be exponentially long.
        """
        branches = list(filter(None, map(self._not_empty, self._branches(expression))))
        if not branches:
            return _EMPTY
        if len(branches) == 1:
            again = f"({branches[0]}){'+' if low else '*'}"
        else:
            name = f"s{len(self._lines)}"
            steps = " | ".join(f"{branch} {name}" for branch in branches)
            self._rule(f"{_EMPTY} | {steps}")
            again = self._rule(steps) if low else name
        if low < 2:
            return f"({again})"
        body = f"({' | '.join(branches)})"
        counted = f"{body}{{{low - 1}}}" if low > 2 else body
        written = f"{counted} {again}"
        return f"({written})" if len(written) <= _MAX_IN_PLACE else self._rule(written)

    def _branches(self, expression: Expression) -> list[Expression]:
        if isinstance(expression, Reference) and expression.name in self._small:
            return self._branches(self._rules[expression.name])
        if isinstance(expression, Choice):
            return [part for branch in expression.branches for part in self._branches(branch)]
        return [expression]

    def _not_empty(self, expression: Expression) -> str | None:
        """An expression without the empty text; None if that was its only text."""
        if not self._may_be_empty(expression):
            return self._whole(expression)
        if isinstance(expression, Leaf):
            return None
        if isinstance(expression, Reference):
            return self._not_empty_rule(expression.name)
        if isinstance(expression, Choice):
            branches = [branch for branch in map(self._not_empty, expression.branches) if branch is not None]
            return f"({' | '.join(branches)})" if branches else None
        if isinstance(expression, Repeat):
            written = self._repeat(expression, 1)
            return None if written == _EMPTY else written
        # Every part may be empty: the first one is not, and any may come after it, or one after the first is not.
        rest: str | None = None
        for part in map(self._not_empty, reversed(expression.parts)):
            if part is not None:
                rest = part if rest is None else self._rule(f"{part} ({rest} | {_EMPTY}) | {rest}")
        return rest

    def _not_empty_rule(self, name: str) -> str | None:
        if name not in self._names:
            return None
        if name not in self._not_empty_names:  # it may lead to itself
            self._not_empty_names[name] = f"n{len(self._not_empty_names)}"
            self._lines.append(f"{self._not_empty_names[name]} ::= {self._not_empty(self._rules[name])}")
        return self._not_empty_names[name]

    def _rule(self, body: str) -> str:
        """The name of a rule of its own, for what is written twice."""
        name = f"s{len(self._lines)}"
        self._lines.append(f"{name} ::= {body}")
        return name
