"""A call's arguments as elements, as an RTN: see constraints/tool_xml.py for the format, and to_rtn.py for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..constraints.tool_xml import XmlStyle
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import only_text
from .content_automata import ContentAutomaton, Edge, Entry
from .shapes import ANY, Kind, NumberClause, Position
from .to_rtn import Caller, Inside, Positions
from .xml_elements import ANY_NAME, XmlElements, without_text

_ANY_ITEMS = ContentAutomaton([[Edge((Entry(None, ANY),), 1, 0, None)], []], [(), ()], {1})
_ANY_MEMBERS = ContentAutomaton([[Edge((Entry(ANY_NAME, ANY),), 1, 0, None)], []], [(), ()], {1})


class ElementPositions:
    """The positions of a schema whose root is an object, written as elements.

    Args:
        positions: of the schema; they write the JSON inside elements.
        xml: how elements are written.

    Attributes:
        root: see ``Positions``.
    """

    def __init__(self, positions: Positions, xml: XmlStyle):
        self._positions, self._xml = positions, xml
        self._elements = XmlElements(xml, positions)
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

    def build(self, callee: Any, builder: Caller) -> tuple[int, int]:
        """See ``Positions.build``.

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

    def _run(self, edge: Edge, start: int, end: int, builder: Caller) -> None:
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

    def _one_of(self, edge: Edge, start: int, builder: Caller) -> int:
        end = builder.state()
        for entry in edge.entries:
            self._element(entry, start, end, builder)
        return end

    def _element(self, entry: Entry, start: int, end: int, builder: Caller) -> None:
        content = self._positions.content(entry.value)
        elements, called = self._elements.whole(entry, content)
        containers = self._elements.containers(content)
        if not elements and not called and not containers:
            raise without_text(self._xml)
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
