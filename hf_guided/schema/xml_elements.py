"""The elements that hold a call's arguments, as formal languages: see constraints/tool_xml.py for the format."""

from __future__ import annotations

from ..constraints.tool_xml import NAME, XmlStyle
from ..errors import Loss, UnsupportedConstraint
from ..regex import (
    MAX_ALL_PROOFS,
    MAX_PROOF,
    NOTHING,
    Emptiness,
    Node,
    alt,
    both,
    concat,
    matches,
    parse_fullmatch,
    text,
)
from .content_automata import Entry
from .grammar import Content
from .scalars import without
from .shapes import (
    BooleanClause,
    Clause,
    Kind,
    NullClause,
    NumberClause,
    StringClause,
    canonical_strings,
)
from .to_rtn import Positions

ANY_NAME = parse_fullmatch(NAME)
_KINDS: tuple[tuple[type[Clause], Kind], ...] = (
    (NullClause, "null"),
    (BooleanClause, "boolean"),
    (NumberClause, "number"),
    (StringClause, "string"),
)


class XmlElements:
    """The elements of one style.

    Args:
        style: how they are written.
        positions: of the schema.
    """

    def __init__(self, style: XmlStyle, positions: Positions):
        self._style, self._positions = style, positions
        self._emptiness = Emptiness(MAX_PROOF, MAX_ALL_PROOFS)

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
                raise unsayable("names that are not declared, because closing marks repeat them")
            before, after = self._style.before("{name}", kind).split("{name}")
            return concat(text(before), both(name, ANY_NAME), text(after)), text(self._style.after(""))
        if name is not None and not matches(ANY_NAME, name):
            raise unsayable(f"the name {name!r}")
        return text(self._style.before(name, kind)), text(self._style.after(name))

    def _raw(self, clause: StringClause) -> Node | None:
        if self._positions.long_string(clause) is not None:
            return None
        language = without(canonical_strings(clause), self._style.marks)
        empty = self._emptiness.verdict(language)
        if empty is None:
            raise unsayable("strings of which it takes too long to tell whether there are any")
        return NOTHING if empty else language


def without_text(style: XmlStyle) -> UnsupportedConstraint:
    """The error for an element whose every value would end it."""
    return unsayable(f"strings that all hold {' or '.join(style.marks)}, which ends them")


def unsayable(what: str) -> UnsupportedConstraint:
    """The error for what elements cannot hold."""
    return UnsupportedConstraint(
        "this format of arguments cannot express all of the schema",
        (Loss("", "properties", f"the elements that hold this family's arguments cannot express {what}"),),
    )
