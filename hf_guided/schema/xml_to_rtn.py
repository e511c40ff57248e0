"""A call's arguments as elements, as an RTN: see constraints/tool_xml.py for the format, and to_rtn.py for JSON."""

from __future__ import annotations

from ..constraints.json_style import JsonStyle
from ..constraints.tool_xml import XmlStyle
from .content_automata import ContentAutomaton, Edge, Entry
from .normalize import Normalizer
from .shapes import ANY
from .to_nfa import NotRegular
from .to_rtn import Caller, Inside, Positions
from .xml_elements import ANY_NAME, XmlElements

_ANY_ITEMS = ContentAutomaton([[Edge((Entry(None, ANY),), 1, 0, None)], []], [[], []], {1})
_ANY_MEMBERS = ContentAutomaton([[Edge((Entry(ANY_NAME, ANY),), 1, 0, None)], []], [[], []], {1})


class ElementPositions(Positions):
    """The positions of a schema whose root is an object, written as elements.

    Args:
        n: the schema.
        xml: how elements are written.
        style: how the JSON inside elements is written.
        closed: see ``Positions``.
        schema: see ``Positions``.
    """

    def __init__(self, n: Normalizer, xml: XmlStyle, style: JsonStyle, *, closed: bool, schema: str = ""):
        super().__init__(n, style, closed=closed, schema=schema, marks=xml.marks)
        self._xml, self._elements = xml, XmlElements(xml, self.language)
        self.root = Inside(n.root, None, schema, "object", as_elements=True)

    def build(self, callee: Inside, builder: Caller) -> tuple[int, int]:
        """See ``Positions.build``."""
        if not callee.as_elements:
            return super().build(callee, builder)
        start, end = builder.state(), builder.state()
        content = self.container(callee)
        automata = [*content.arrays, *content.objects]
        if content.any_array or content.any_object:
            automata = [_ANY_ITEMS if content.any_array else _ANY_MEMBERS]
        for automaton in automata:
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
        content = self._schema.contents[entry.value]
        elements, counted = self._elements.whole(entry, content)
        if counted:
            raise NotRegular("", "multipleOf", "its remainders are counted")
        for node in elements:
            builder.add(node, start, end)
        for kind in self._elements.containers(content):
            before, after = self._elements.marks(entry, kind)
            inside = Inside(entry.value, None, self._name, kind, as_elements=self._xml.item is not None)
            opened, closing = builder.regex(before, start), builder.state()
            builder.call(inside, opened, closing)
            builder.add(after, closing, end)
