"""A call's arguments as elements, as an RTN: see constraints/tool_xml.py for the format, and to_rtn.py for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..automaton.emptiness import Emptiness
from ..constraints.tool_xml import NAME, XmlStyle
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import (
    NOTHING,
    Node,
    alt,
    both,
    concat,
    matches,
    only_text,
    parse_fullmatch,
    text,
)
from .content_automata import ContentAutomaton, Edge, Entry
from .grammar import Content
from .scalars import without
from .shapes import (
    ANY,
    BooleanClause,
    Clause,
    Kind,
    NullClause,
    NumberClause,
    Position,
    StringClause,
    canonical_strings,
)
from .to_network import Inside, RegisteredPositions
from .to_nfa import Builder

_ANY_NAME = parse_fullmatch(NAME)
_KINDS: tuple[tuple[type[Clause], Kind], ...] = (
    (NullClause, "null"),
    (BooleanClause, "boolean"),
    (NumberClause, "number"),
    (StringClause, "string"),
)
_ANY_ITEMS = ContentAutomaton([[Edge((Entry(None, ANY),), 1, 0, None)], []], [(), ()], {1})
_ANY_MEMBERS = ContentAutomaton([[Edge((Entry(_ANY_NAME, ANY),), 1, 0, None)], []], [(), ()], {1})


class ElementPositions:
    """The positions of a schema whose root is an object, written as elements.

    Args:
        positions: of the schema; they write the JSON inside elements.
        xml: how elements are written.

    Attributes:
        root: see ``RegisteredPositions``.
    """

    def __init__(self, positions: RegisteredPositions, xml: XmlStyle):
        self._positions, self._xml = positions, xml
        self._elements = _Elements(xml, positions)
        self.root = self._inside(positions.position, "object")

    def _inside(self, position: Position, kind: Kind, *, as_elements: bool = True) -> Inside:
        level = None if as_elements else self._positions.level
        return Inside(position, level, self._positions.name, kind, as_elements)

    def json_inside(self) -> Iterator[Inside]:
        """The arrays and objects that elements hold as JSON."""
        if self._xml.item is None:
            for automaton in self._automata(self.root):
                for entry in (entry for edges in automaton.edges for edge in edges for entry in edge.entries):
                    for kind in self._elements.containers(self._positions.content(entry.value)):
                        yield self._inside(entry.value, kind, as_elements=False)

    def build(self, callee: Any, builder: Builder) -> tuple[int, int]:
        """See ``RegisteredPositions.build``.

        Raises:
            InvalidConstraint: no object satisfies the schema.
            UnsupportedConstraint: the elements cannot hold something.
        """
        if not isinstance(callee, Inside) or not callee.as_elements:
            return self._positions.build(callee, builder)
        start, end = builder.state(), builder.state()
        automata = self._automata(callee)
        if not automata:
            raise InvalidConstraint("a tool's arguments are an object, and this schema allows none")
        for automaton in automata:
            if automaton.register is not None:
                reason = "is not kept where items or members are elements"
                raise UnsupportedConstraint("elements have no registers", [Loss(*automaton.register.origin, reason)])
            states = [builder.state() for _ in automaton.edges]
            builder.epsilon(start, states[0])
            for state in automaton.accepting:
                builder.epsilon(states[state], end)
            for state, (edges, skips) in enumerate(zip(automaton.edges, automaton.skips, strict=True)):
                for target in skips:
                    builder.epsilon(states[state], states[target])
                for edge in edges:
                    self._run(edge, states[state], states[edge.target], builder)
        return start, end

    def _automata(self, callee: Inside) -> list[ContentAutomaton]:
        content = self._positions.container(callee)
        if content.any_array or content.any_object:
            return [_ANY_ITEMS if content.any_array else _ANY_MEMBERS]
        return [*content.arrays, *content.objects]

    def _run(self, edge: Edge, start: int, end: int, builder: Builder) -> None:
        """``low`` to ``high`` elements in a row."""
        state = builder.state()
        builder.epsilon(start, state)
        for count in range(edge.low if edge.high is None else edge.high):
            if count >= edge.low:
                builder.epsilon(state, end)
            state = self._one_of(edge, state, builder)
        if edge.high is None:
            builder.epsilon(self._one_of(edge, state, builder), state)
        builder.epsilon(state, end)

    def _one_of(self, edge: Edge, start: int, builder: Builder) -> int:
        end = builder.state()
        for entry in edge.entries:
            self._element(entry, start, end, builder)
        return end

    def _element(self, entry: Entry, start: int, end: int, builder: Builder) -> None:
        content = self._positions.content(entry.value)
        elements, called = self._elements.whole(entry, content)
        containers = self._elements.containers(content)
        if not elements and not called and not containers:
            raise _without_text(self._xml)
        for node in elements:
            builder.add(node, start, end)
        for kind, clauses in called:
            before, after = self._elements.marks(entry, kind)
            opened, closing = builder.regex(before, start), builder.state()
            for clause in clauses:
                if isinstance(clause, NumberClause):
                    self._positions.add_multiples(clause, opened, closing, builder)
                else:  # its component has the closing mark, whose first byte shows where the string ends
                    builder.call(self._positions.long_string(clause, only_text(after)), opened, end)
            builder.add(after, closing, end)
        for kind in containers:
            before, after = self._elements.marks(entry, kind)
            opened, closing = builder.regex(before, start), builder.state()
            builder.call(self._inside(entry.value, kind, as_elements=self._xml.item is not None), opened, closing)
            builder.add(after, closing, end)


class _Elements:
    """The elements of one style.

    Args:
        style: how they are written.
        positions: of the schema.
    """

    def __init__(self, style: XmlStyle, positions: RegisteredPositions):
        self._style, self._positions = style, positions
        self._emptiness = Emptiness()

    def whole(self, entry: Entry, content: Content) -> tuple[list[Node], list[tuple[Kind, list[Clause]]]]:
        """Two lists: elements whose values have no children, with their marks; and clauses that are calls.

        Numbers that digits do not decide are calls, and strings that a register counts.
        """
        of_kind: dict[Kind, Node] = {}
        called: list[tuple[Kind, list[Clause]]] = []
        for kind_of_clause, kind in _KINDS:
            clauses = [clause for clause in content.scalars if isinstance(clause, kind_of_clause)]
            languages = [
                self._raw(clause) if isinstance(clause, StringClause) else self._positions.language(clause)
                for clause in clauses
            ]
            of_kind[kind] = alt(*(node for node in languages if node is not None))
            if rest := [clause for clause, node in zip(clauses, languages, strict=True) if node is None]:
                called.append((kind, rest))
        if self._style.kinds is None:
            # Strings and numbers are not distinguishable, so they are one language.
            of_kind = {"string": alt(*of_kind.values())}
        elements = []
        for kind, node in of_kind.items():
            if node != NOTHING:
                before, after = self.marks(entry, kind)
                elements.append(concat(before, node, after))
        return elements, called

    def containers(self, content: Content) -> list[Kind]:
        """Which of arrays and objects the values may be."""
        kinds: list[Kind] = ["object"] if content.objects or content.any_object else []
        return [*kinds, "array"] if content.arrays or content.any_array else kinds

    def marks(self, entry: Entry, kind: Kind) -> tuple[Node, Node]:
        """What stands before and after a value; raises UnsupportedConstraint if the style cannot write the name."""
        name = entry.name
        if isinstance(name, Node):
            if "{name}" in self._style.closing:
                raise _unsayable("names that are not declared, because closing marks repeat them")
            before, after = self._style.before("{name}", kind).split("{name}")
            return concat(text(before), both(name, _ANY_NAME), text(after)), text(self._style.after(""))
        if name is not None and not matches(_ANY_NAME, name):
            raise _unsayable(f"the name {name!r}")
        return text(self._style.before(name, kind)), text(self._style.after(name))

    def _raw(self, clause: StringClause) -> Node | None:
        if self._positions.long_string(clause) is not None:
            return None
        language = without(canonical_strings(clause), self._style.marks)
        empty = self._emptiness.verdict(language)
        if empty is None:
            raise _unsayable("strings of which it takes too long to tell whether there are any")
        return NOTHING if empty else language


def _without_text(style: XmlStyle) -> UnsupportedConstraint:
    """The error for an element whose every value would end it."""
    return _unsayable(f"strings that all hold {' or '.join(style.marks)}, which ends them")


def _unsayable(what: str) -> UnsupportedConstraint:
    """The error for what elements cannot hold."""
    return UnsupportedConstraint(
        "this format of arguments cannot express all of the schema",
        (Loss("", "properties", f"the elements that hold this family's arguments cannot express {what}"),),
    )
