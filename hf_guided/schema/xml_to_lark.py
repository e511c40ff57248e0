"""A call's arguments as elements, in llguidance's Lark: see constraints/tool_xml.py for the format.

An element whose value has no children is one terminal, marks included, so that the lexer never has to guess where a
string without quotes ends.
"""

from __future__ import annotations

from ..constraints.json_style import JsonStyle
from ..constraints.tool_xml import NAME, XmlStyle
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import NOTHING, Emptiness, Node, alt, both, concat, matches, parse_fullmatch, text, to_lark
from ..regex.write import times
from .content_automata import ContentAutomaton, Entry
from .grammar import Content, contents
from .normalize import Normalizer
from .scalars import language_of, without
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
from .to_lark import Rules, SchemaWriter

_ANY_CONTENT = Content([NullClause(), BooleanClause(), NumberClause(), StringClause()], any_array=True, any_object=True)
_NAME = parse_fullmatch(NAME)
_KINDS: tuple[tuple[type[Clause], Kind], ...] = (
    (NullClause, "null"),
    (BooleanClause, "boolean"),
    (NumberClause, "number"),
    (StringClause, "string"),
)


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
        self._is_empty = Emptiness()

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
                alternatives = [f"({self._element(Entry(_NAME if kind == 'object' else None, ANY))})*"]
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
        of_kind: dict[Kind, Node] = {}
        alternatives = []
        for kind_of_clause, kind in _KINDS:
            clauses = [clause for clause in content.scalars if isinstance(clause, kind_of_clause)]
            languages = [
                self._raw(clause) if isinstance(clause, StringClause) else language_of(clause, self._spelling)
                for clause in clauses
            ]
            of_kind[kind] = alt(*(node for node in languages if node is not None))
            counted = [clause for clause, node in zip(clauses, languages, strict=True) if node is None]
            if counted:
                alternatives.append(self._around(entry, kind, " | ".join(self._scalars(counted))))
        if self._xml.kinds is None:
            # Strings and numbers are not distinguishable, so they are one terminal.
            of_kind = {"string": alt(*of_kind.values())}
        alternatives += [
            self._terminal(to_lark(self._whole(entry, kind, node))) for kind, node in of_kind.items() if node != NOTHING
        ]
        for kind, there in (
            ("object", content.objects or content.any_object),
            ("array", content.arrays or content.any_array),
        ):
            if there:
                alternatives.append(self._around(entry, kind, self._inside(entry.value, content, kind)))
        if not alternatives:
            raise _unsayable(f"strings that all hold {' or '.join(self._xml.marks)}, which ends them")
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
        before, after = self._marks(entry, kind)
        return f"{self._terminal(to_lark(before))} ({value}) {self._terminal(to_lark(after))}"

    def _whole(self, entry: Entry, kind: Kind, value: Node) -> Node:
        before, after = self._marks(entry, kind)
        return concat(before, value, after)

    def _marks(self, entry: Entry, kind: Kind) -> tuple[Node, Node]:
        name = entry.name
        if isinstance(name, Node):
            if "{name}" in self._xml.closing:
                raise _unsayable("names that are not declared, because closing marks repeat them")
            before, after = self._xml.before("{name}", kind).split("{name}")
            return concat(text(before), both(name, _NAME), text(after)), text(self._xml.after(""))
        if name is not None and not matches(_NAME, name):
            raise _unsayable(f"the name {name!r}")
        return text(self._xml.before(name, kind)), text(self._xml.after(name))

    def _raw(self, clause: StringClause) -> Node:
        language = without(canonical_strings(clause), self._xml.marks)
        return NOTHING if self._is_empty(language) else language


def _unsayable(what: str) -> UnsupportedConstraint:
    return UnsupportedConstraint(
        "this format of arguments cannot express all of the schema",
        (Loss("", "properties", f"the elements that hold this family's arguments cannot express {what}"),),
    )
