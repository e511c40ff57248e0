"""A call's arguments as elements, in llguidance's Lark: see constraints/tool_xml.py for the format.

An element whose value has no children is one terminal, marks included, so that the lexer never has to guess where a
string without quotes ends.
"""

from __future__ import annotations

from ..constraints.json_style import JsonStyle
from ..constraints.tool_xml import XmlStyle
from ..errors import InvalidConstraint
from ..regex import to_lark
from ..regex.write import times
from .content_automata import ContentAutomaton, Entry
from .grammar import Content, contents
from .normalize import Normalizer
from .scalars import language_of
from .shapes import ANY, BooleanClause, Kind, NullClause, NumberClause, Position, StringClause
from .to_lark import Rules, SchemaWriter
from .xml_elements import ANY_NAME, XmlElements, without_text

_ANY_CONTENT = Content((NullClause(), BooleanClause(), NumberClause(), StringClause()), any_array=True, any_object=True)


def xml_rules(n: Normalizer, style: XmlStyle, json_style: JsonStyle, *, closed: bool, prefix: str) -> Rules:
    """The rules of all objects that satisfy the schema.

    Args:
        n: the schema.
        style: how they are written.
        json_style: how JSON inside elements is written.
        closed: whether objects that declare properties and do not speak of others have no others.
        prefix: what all names of rules begin with.

    Raises:
        InvalidConstraint: no object satisfies it.
        UnsupportedConstraint: it has names that the style cannot write.
    """
    contents_of = contents(n, closed=closed, spelling=json_style.spelling)
    return _XmlWriter(n, contents_of, style, json_style, prefix).write()


class _XmlWriter(SchemaWriter):
    def __init__(
        self,
        n: Normalizer,
        contents_of: dict[Position, Content],
        style: XmlStyle,
        json_style: JsonStyle,
        prefix: str,
    ):
        super().__init__(n, contents_of, json_style, prefix, style.marks)
        self._xml = style
        self._bodies: dict[tuple[Position, Kind], str] = {}  # of elements
        self._json: dict[tuple[Position, Kind], str] = {}  # the same positions, where elements hold JSON
        self._elements_of = XmlElements(style, lambda clause: language_of(clause, self._spelling), lambda _: False)

    def _root(self) -> str:
        content = self._content(self._n.root)
        if not content.objects and not content.any_object:
            raise InvalidConstraint("a tool's arguments are an object, and this schema allows none")
        return self._body(self._n.root, "object")

    def _content(self, position: Position) -> Content:
        return _ANY_CONTENT if position == ANY else self._contents[position]

    def _body(self, position: Position, kind: Kind) -> str:
        """The rule of the elements inside an object or an array."""
        name = self._bodies.get((position, kind))
        if name is None:
            # Named before it is written: its content may refer back to it.
            name = self._bodies[position, kind] = f"{self._prefix}x{len(self._bodies)}"
            content = self._content(position)
            if content.any_object if kind == "object" else content.any_array:
                alternatives = [f"({self._element(Entry(ANY_NAME if kind == 'object' else None, ANY))})*"]
            else:
                automata = content.objects if kind == "object" else content.arrays
                alternatives = [self._elements(f"{name}_{i}", automaton) for i, automaton in enumerate(automata)]
            self._lines.append(f"{name}: {' | '.join(alternatives)}")
        return name

    def _elements(self, prefix: str, automaton: ContentAutomaton) -> str:
        """A rule for each state; gives the first one's name."""
        for state, (edges, skips) in enumerate(zip(automaton.edges, automaton.skips, strict=True)):
            alternatives = ['""'] if state in automaton.accepting else []
            for edge in edges:
                entry = " | ".join(map(self._element, edge.entries))
                count = "" if (edge.low, edge.high) == (1, 1) else times(edge.low, edge.high)
                alternatives.append(f"({entry}){count} {prefix}_{edge.target}")
            alternatives += [f"{prefix}_{target}" for target in skips]
            self._lines.append(f"{prefix}_{state}: {' | '.join(alternatives)}")
        return f"{prefix}_0"

    def _element(self, entry: Entry) -> str:
        content = self._content(entry.value)
        elements, counted = self._elements_of.whole(entry, content)
        alternatives = [self._around(entry, kind, " | ".join(self._scalars(clauses))) for kind, clauses in counted]
        alternatives += [self._terminal(to_lark(node)) for node in elements]
        for kind in self._elements_of.containers(content):
            alternatives.append(self._around(entry, kind, self._inside(entry.value, content, kind)))
        if not alternatives:
            raise without_text(self._xml)
        return " | ".join(alternatives)

    def _inside(self, position: Position, content: Content, kind: Kind) -> str:
        if self._xml.item is not None:
            return self._body(position, kind)
        name = self._json.get((position, kind))
        if name is None:
            name = self._json[position, kind] = f"{self._prefix}j{len(self._json)}"
            self._lines.append(f"{name}: {' | '.join(self._containers(name, content, self._level(0), (kind,)))}")
        return name

    def _around(self, entry: Entry, kind: Kind, value: str) -> str:
        before, after = self._elements_of.marks(entry, kind)
        return f"{self._terminal(to_lark(before))} ({value}) {self._terminal(to_lark(after))}"
