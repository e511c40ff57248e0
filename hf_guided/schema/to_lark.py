"""A schema as a grammar in llguidance's Lark: scalars are terminals, arrays and objects are rules.

Every terminal begins and ends with a character that identifies it, so the lexer never has to guess: strings have their
quotes, and white space belongs to the brackets, commas and colons around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..constraints.json_style import JsonStyle
from ..errors import Loss, UnsupportedConstraint
from ..regex import Node, concat, json_spelling, to_lark
from .content_automata import ContentAutomaton, Edge, Entry
from .grammar import Content, contents
from .lark_scalars import multiples_rule, name_terminal, scalars
from .layout import MAX_TABS, Layout, has_levels, layout_of
from .levels import has_known_levels, of_known_level
from .normalize import Normalizer
from .scalars import quoted
from .shapes import ANY, BooleanClause, Clause, NullClause, NumberClause, Position, StringClause


def lark_grammar(n: Normalizer, style: JsonStyle, *, closed: bool) -> str:
    """The grammar of the JSON texts of all values that satisfy the schema.

    Args:
        n: the schema; what cannot be said is lost there.
        style: how values are written.
        closed: whether objects that declare properties and do not speak of others have no others.

    Raises:
        InvalidConstraint: no value satisfies it.
        UnsupportedConstraint: it is to be indented, and its depth has no bound.
        CompileLimitExceeded: it is too large.
    """
    contents_of = contents(n, closed=closed, spelling=style.spelling)
    if style.indent is not None and not has_known_levels(n.root, contents_of):
        reason = (
            "the depth is not known where the schema is recursive, or allows any value; pass max_depth=... as well, "
            'which backend="native" enforces'
        )
        raise UnsupportedConstraint("an indentation depends on the depth", (Loss("", "indent", reason),))
    return "\n".join(_SchemaWriter(n, contents_of, style).write())


class _SchemaWriter:
    """Writes the rules of one schema.

    Args:
        n: the schema.
        contents_of: its positions.
        style: how values are written.
    """

    def __init__(self, n: Normalizer, contents_of: dict[Position, Content], style: JsonStyle):
        self._n = n
        self._contents = contents_of
        self._spelling = style.spelling
        self._style = style
        self._known = of_known_level(n.root, contents_of) if style.is_flexible else frozenset(contents_of)
        self._lines: list[str] = []
        self._names: dict[tuple[Position, int | None], str] = {}
        self._signs: dict[tuple[str, int | None], str] = {}
        self._terminals: dict[str, str] = {}
        self._any_is_used = False

    def write(self) -> list[str]:
        """The lines of the grammar."""
        start = self._value(self._n.root, self._level(0))
        # Every position gets its rule when it is first named; naming may name more.
        written = 0
        while written < len(self._names):
            key = list(self._names)[written]
            written += 1
            self._rule(self._names[key], *key)
        lines = self._lines
        if self._any_is_used:
            comma = self._sign("COMMA")
            lbrace, rbrace, lbrack, rbrack = map(self._sign, ("LBRACE", "RBRACE", "LBRACK", "RBRACK"))
            [string] = self._scalars([StringClause()])
            lines += [
                f"any: {' | '.join(self._scalars(_ANY_SCALAR))} | any_object | any_array",
                f'any_object: {lbrace} "}}" | {lbrace} any_member ({comma} any_member)* {rbrace}',
                f"any_member: {string} {self._sign('COLON')} any",
                f'any_array: {lbrack} "]" | {lbrack} any ({comma} any)* {rbrack}',
            ]
        lines += [f"{name}: {to_lark(self._language_of(*sign))}" for sign, name in self._signs.items()]
        lines += [f"{name}: {expression}" for expression, name in self._terminals.items()]
        return [f"start: {start}", *lines]

    def _level(self, level: int) -> int | None:
        return level if has_levels(self._style) else None

    def _sign(self, name: str, level: int | None = None) -> str:
        """The terminal of a bracket, comma or colon with ``level`` open brackets around it."""
        level = None if level is None or (self._style.is_flexible and level > MAX_TABS) else level
        return self._signs.setdefault((name, level), f"{name}{'' if level is None else level}")

    def _language_of(self, name: str, level: int | None) -> Node:
        return _signs(layout_of(self._style, level))[name]

    def _value(self, position: Position, level: int | None) -> str:
        """The expression for a value at this position, with ``level`` open brackets around it."""
        if position == ANY:
            self._any_is_used = True
            return "any"
        content = self._contents[position]
        if content.scalars and not (content.arrays or content.objects or content.any_array or content.any_object):
            alternatives = self._scalars(content.scalars)
            if len(alternatives) == 1:
                return alternatives[0]
            level = None
        if position not in self._known:
            level = None
        return self._names.setdefault((position, level), f"v{len(self._names)}")

    def _rule(self, name: str, position: Position, level: int | None) -> None:
        content = self._contents[position]
        alternatives = self._scalars(content.scalars) + self._containers(name, content, level)
        assert alternatives, "a rule without an alternative would be the empty text"
        self._lines.append(f"{name}: {' | '.join(alternatives)}")

    def _containers(self, name: str, content: Content, level: int | None) -> list[str]:
        """The expressions for the arrays and objects of a position, in the rule of this name."""
        inside = None if level is None else level + 1
        alternatives = []
        for kind, is_any, automata in (
            ("array", content.any_array, content.arrays),
            ("object", content.any_object, content.objects),
        ):
            if is_any:
                self._any_is_used = True
                alternatives.append(f"any_{kind}")
            for i, automaton in enumerate(automata):
                opening, empty, closing = (
                    ("LBRACE", '"}"', "RBRACE") if kind == "object" else ("LBRACK", '"]"', "RBRACK")
                )
                opening, closing = self._sign(opening, inside), self._sign(closing, inside)
                alternatives.append(
                    f"{opening} {self._automaton(f'{name}_{kind[0]}{i}', automaton, empty, closing, inside)}"
                )
        return alternatives

    def _automaton(self, prefix: str, automaton: ContentAutomaton, empty: str, closing: str, level: int | None) -> str:
        """Everything after the opening bracket.

        States on a path without branches are written one after another. The others get rules: one for before the first
        entry, and one, with a comma in front, for after it.
        """
        shared = _shared(automaton)
        named: dict[tuple[int, bool], str] = {}
        todo: list[tuple[int, bool]] = []

        def straight(state: int, begun: bool) -> list[str]:
            parts: list[str] = []
            while (state, begun) not in shared:
                edges, skips, ends = automaton.edges[state], automaton.skips[state], state in automaton.accepting
                if ends and not edges and not skips:
                    return [*parts, closing if begun else empty]
                if len(edges) != 1:
                    break
                target = edges[0].target
                if not ends and not skips:
                    parts.append(self._run(edges[0], begun, level))
                elif begun and _is_optional(automaton, state):
                    parts.append(f"({self._run(edges[0], begun, level)})?")
                else:
                    break
                state, begun = target, True
            if (state, begun) not in named:
                named[state, begun] = f"{prefix}_{len(named)}"
                todo.append((state, begun))
            return [*parts, named[state, begun]]

        start = straight(0, False)
        while todo:
            state, begun = todo.pop()
            if begun and len(automaton.edges[state]) == 1 and _is_optional(automaton, state):
                edge = automaton.edges[state][0]
                alternatives = [[f"({self._run(edge, begun, level)})?", *straight(edge.target, True)]]
            else:
                alternatives = [[closing if begun else empty]] if state in automaton.accepting else []
                alternatives += [
                    [self._run(edge, begun, level), *straight(edge.target, True)] for edge in automaton.edges[state]
                ]
                alternatives += [straight(target, begun) for target in automaton.skips[state]]
            assert alternatives, "a rule without an alternative would be the empty text"
            self._lines.append(f"{named[state, begun]}: {' | '.join(map(' '.join, alternatives))}")
        return " ".join(start)

    def _run(self, edge: Edge, begun: bool, level: int | None) -> str:
        comma = self._sign("COMMA", level)
        entry = " | ".join(self._entry(entry, level) for entry in edge.entries)
        if len(edge.entries) > 1:
            entry = f"({entry})"
        first = f"{comma} {entry}" if begun else entry
        if not begun and self._style.indent is not None:
            first = f"{self._sign('FIRST', level)} {entry}"
        if (edge.low, edge.high) == (1, 1):
            return first
        low, high = edge.low - 1, "" if edge.high is None else edge.high - 1
        return f"{first} ({comma} {entry}){'*' if (low, high) == (0, '') else f'{{{low},{high}}}'}"

    def _entry(self, entry: Entry, level: int | None) -> str:
        value = self._value(entry.value, level)
        if entry.name is None:
            return value
        if isinstance(entry.name, str):
            name = self._terminal(name_terminal(entry.name))
        else:
            name = self._terminal(to_lark(quoted(json_spelling(entry.name))))
        return f"{name} {self._sign('COLON', level)} {value}"

    def _terminal(self, expression: str) -> str:
        return self._terminals.setdefault(expression, f"T{len(self._terminals)}")

    def _scalars(self, clauses: Sequence[Clause]) -> list[str]:
        """The expressions for values without children: one terminal, but for those that many positions share."""
        shared = [(clause,) for clause in clauses if clause in _SHARED]
        others = tuple(clause for clause in clauses if clause not in _SHARED)
        alternatives: list[str] = []
        for together in (others, *shared):
            terminal, multiples = scalars(together, self._spelling)
            alternatives += [self._terminal(terminal)] if terminal else []
            for clause in multiples:
                if (rule := multiples_rule(clause, self._spelling)) is None:
                    reason = "digits decide only small whole factors and parts of ten"
                    self._n.lose_at(clause.origin, "multipleOf", reason)
                    alternatives += self._scalars([replace(clause, factors=())])
                else:
                    alternatives.append(rule)
        return alternatives


def _shared(automaton: ContentAutomaton) -> set[tuple[int, bool]]:
    """States, with and without something before them, that more than one path leads to."""
    seen, shared, todo = {(0, False)}, set(), [(0, False)]
    while todo:
        state, begun = todo.pop()
        following = [(edge.target, True) for edge in automaton.edges[state]]
        following += [(target, begun) for target in automaton.skips[state]]
        if begun and _is_optional(automaton, state):
            following = following[:1]  # written as one path
        for target_key in following:
            if target_key in seen:
                shared.add(target_key)
            else:
                seen.add(target_key)
                todo.append(target_key)
    # What just ends is no rule.
    return {(state, begun) for state, begun in shared if automaton.edges[state] or automaton.skips[state]}


def _is_optional(automaton: ContentAutomaton, state: int) -> bool:
    """Whether its one edge may be left out, and leads where leaving it out leads."""
    if len(automaton.edges[state]) != 1:
        return False
    target, skips = automaton.edges[state][0].target, automaton.skips[state]
    if state in automaton.accepting:
        return (
            not skips and target in automaton.accepting and not automaton.edges[target] and not automaton.skips[target]
        )
    return skips == (target,)


def _signs(layout: Layout) -> dict[str, Node]:
    """Brackets, commas and colons with the white space around them."""
    return {
        "LBRACE": layout.begin_object,
        "RBRACE": concat(layout.space, layout.last, layout.close_object),
        "LBRACK": layout.begin_array,
        "RBRACK": concat(layout.space, layout.last, layout.close_array),
        "COMMA": concat(layout.space, layout.comma),
        "COLON": layout.colon,
        "FIRST": layout.first,
    }


_ANY_SCALAR = NullClause(), BooleanClause(), NumberClause(), StringClause()
_SHARED = NumberClause(), StringClause()  # the engine takes a millisecond to read them: each is read once
