"""A call's arguments as elements: see constraints/tool_xml.py for the format, and to_network.py for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..automaton.emptiness import Emptiness
from ..automaton.rtn import ComponentBuilder
from ..constraints.tool_xml import NAME, XmlStyle
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import EMPTY, NOTHING, Node, alt, both, concat, matches, only_text, parse_fullmatch, text
from .content_automata import Entry
from .grammar import Content
from .layout import Layout
from .network_writer import Entries, Inside
from .scalars import without
from .shapes import KINDS, Clause, Kind, NumberClause, Position, StringClause, canonical_strings
from .to_network import Positions

_ANY_NAME = parse_fullmatch(NAME)
_NOTHING_BETWEEN = Layout(*[EMPTY] * 7)  # elements follow one another


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
        self._emptiness = Emptiness()
        self.root = self._inside(positions.position, "object", as_elements=True)

    def _inside(self, position: Position, kind: Kind, *, as_elements: bool) -> Inside:
        return Inside(position, None if as_elements else 0, self._positions.name, kind, as_elements)

    def json_inside(self) -> Iterator[Inside]:
        """The arrays and objects that elements hold as JSON."""
        if self._xml.item is None:
            for position in self._positions.content_of(self.root).children():
                for kind in _containers(self._positions.content(position)):
                    yield self._inside(position, kind, as_elements=False)

    def build(self, callee: Any, builder: ComponentBuilder) -> tuple[int, int]:
        """See ``Positions.build``.

        Raises:
            InvalidConstraint: no object satisfies the schema.
            UnsupportedConstraint: the elements cannot hold something.
        """
        if not isinstance(callee, Inside) or not callee.as_elements:
            return self._positions.build(callee, builder)
        start, end = builder.state(), builder.state()
        automata = self._positions.content_of(callee).automata
        if not automata:
            raise InvalidConstraint("a tool's arguments are an object, and this schema allows none")
        for automaton in automata:
            if automaton.register is not None:
                loss = Loss.within(*automaton.register.origin, "is not kept where items or members are elements")
                raise UnsupportedConstraint("elements have no registers", [loss])
            element = partial(self._element, builder)
            Entries(builder, automaton, _NOTHING_BETWEEN, EMPTY, end, element, builder.add).build(start)
        return start, end

    def _element(self, builder: ComponentBuilder, entry: Entry, start: int, end: int) -> None:
        content = self._positions.content(entry.value)
        elements, called = self._whole(entry, content)
        containers = _containers(content)
        if not elements and not called and not containers:
            raise _unsayable(f"strings that all hold {' or '.join(self._xml.marks)}, which ends them")
        for node in elements:
            builder.add(node, start, end)
        for kind, clauses in called:
            before, after = self._marks(entry, kind)
            opened, closing = builder.regex(before, start), builder.state()
            for clause in clauses:
                if isinstance(clause, NumberClause):
                    self._positions.add_multiples(clause, opened, closing, builder)
                else:  # the component has the closing mark, whose first byte shows where the string ends
                    builder.call(self._positions.long_string(clause, only_text(after)), opened, end)
            builder.add(after, closing, end)
        for kind in containers:
            before, after = self._marks(entry, kind)
            opened, closing = builder.regex(before, start), builder.state()
            builder.call(self._inside(entry.value, kind, as_elements=self._xml.item is not None), opened, closing)
            builder.add(after, closing, end)

    def _whole(self, entry: Entry, content: Content) -> tuple[list[Node], list[tuple[Kind, list[Clause]]]]:
        """Two lists: elements whose values have no children, with their marks; and clauses that are calls.

        Numbers that digits do not decide are calls, and strings that a register counts.
        """
        of_kind: dict[Kind, Node] = {}
        called: list[tuple[Kind, list[Clause]]] = []
        for kind in KINDS:
            clauses = [clause for clause in content.scalars if clause.kind == kind]
            languages = [
                self._raw(clause) if isinstance(clause, StringClause) else self._positions.language(clause)
                for clause in clauses
            ]
            of_kind[kind] = alt(*(node for node in languages if node is not None))
            if rest := [clause for clause, node in zip(clauses, languages, strict=True) if node is None]:
                called.append((kind, rest))
        if self._xml.kinds is None:
            # Strings and numbers are not distinguishable, so they are one language.
            of_kind = {"string": alt(*of_kind.values())}
        elements = []
        for kind, node in of_kind.items():
            if node != NOTHING:
                before, after = self._marks(entry, kind)
                elements.append(concat(before, node, after))
        return elements, called

    def _marks(self, entry: Entry, kind: Kind) -> tuple[Node, Node]:
        """The marks before and after a value; raises UnsupportedConstraint if the style cannot write the name."""
        name = entry.name
        if isinstance(name, Node):
            if "{name}" in self._xml.closing:
                raise _unsayable("names that are not declared, because closing marks repeat them")
            before, after = self._xml.before("{name}", kind).split("{name}")
            return concat(text(before), both(name, _ANY_NAME), text(after)), text(self._xml.after(""))
        if name is not None and not matches(_ANY_NAME, name):
            raise _unsayable(f"the name {name!r}")
        return text(self._xml.before(name, kind)), text(self._xml.after(name))

    def _raw(self, clause: StringClause) -> Node | None:
        if self._positions.long_string(clause, closing="") is not None:
            return None
        language = without(canonical_strings(clause), self._xml.marks)
        empty = self._emptiness.verdict(language)
        if empty is None:
            raise _unsayable("strings of which it takes too long to tell whether there are any")
        return NOTHING if empty else language


def _containers(content: Content) -> list[Kind]:
    """The kinds of arrays and objects among the values."""
    kinds: list[Kind] = ["object"] if content.objects else []
    return [*kinds, "array"] if content.arrays else kinds


def _unsayable(what: str) -> UnsupportedConstraint:
    """The error for a part of a schema that elements cannot hold."""
    return UnsupportedConstraint(
        "this format of arguments cannot express all of the schema",
        (Loss.within("", "properties", f"the elements that hold this family's arguments cannot express {what}"),),
    )
