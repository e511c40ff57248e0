"""A structural tag as a network: the RTN of tag_rtn.py, with exactly the values of its schemas, and their registers.

Free text, patterns and marks are exact in every RTN; here the JSON is too, and the elements of arguments around it. A
text may be read in several ways at once, so it need not show where a part ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from ..automaton.rtn import ComponentBuilder
from ..constraints.json_style import JsonStyle
from ..constraints.structural_tag_checks import inside_tag
from ..errors import Loss, UnsupportedConstraint
from ..regex import Node
from ..schema.normalize import Normalizer
from ..schema.to_network import RegisteredPositions
from ..schema.to_nfa import NotRegular
from ..schema.to_rtn import Positions
from ..schema.xml_to_rtn import ElementPositions
from .network_of_schema import NetworkPlan, SchemaPart
from .tag_marks import overlap
from .tag_pieces import Choice, Format, Piece, TagSchema, Times, impossible, unsupported
from .tag_rtn import TagRtn

_IN_ESCAPES = frozenset('"\\bfnrtu0123456789abcdef')


class TagNetwork(TagRtn):
    """Reads one structural tag exactly.

    Args:
        tag: in either form that ``StructuralTag`` takes.

    Raises:
        InvalidConstraint: a part of it matches nothing.
        UnsupportedConstraint: the network does not take it.
        CompileLimitExceeded: it is too large.

    Attributes:
        losses: what is not enforced.
        plan: of the network.
    """

    def __init__(self, tag: Format):
        self.losses: list[Loss] = []
        self._parts: dict[str, SchemaPart] = {}
        super().__init__(tag, "canonical")
        self.plan = NetworkPlan(self.root, self.build, self._parts)

    @override
    def _read_schema(self, schema: TagSchema) -> Positions | ElementPositions:
        if not _have_escapes(schema.marks):
            reason = (
                "a mark that is, or holds, a part of an escape or of another mark cannot be kept out of all strings"
            )
            raise unsupported(schema.pointer, "excludes", reason)
        with _inside(schema.pointer):
            read = super()._read_schema(schema)
            if isinstance(read, ElementPositions):
                part = self._parts[schema.key]
                self._parts[schema.key] = part._replace(starts=tuple(read.json_inside()))
        return read

    @override
    def _positions(self, schema: TagSchema, style: JsonStyle) -> Positions:
        n = Normalizer.of(schema.constraint)
        positions = RegisteredPositions(
            n, style, closed=True, key_order="declared", schema=schema.key, marks=schema.marks
        )
        self.losses += _moved(n.losses, schema.pointer)
        self._parts[schema.key] = SchemaPart(positions, (positions.whole,), schema.pointer)
        return positions

    @override
    def build(self, name: Any, builder: ComponentBuilder) -> tuple[int, int]:
        if name == self.root:
            self._check_texts(self.piece, builder)
            return super().build(name, builder)
        with _inside(self._parts[name.schema].pointer):
            return super().build(name, builder)

    def _check_texts(self, piece: Piece, builder: ComponentBuilder) -> None:
        """Raise InvalidConstraint where a regular language has no text: automata would just leave it out."""
        for part in piece:
            if isinstance(part, Choice):
                for branch in part.pieces:
                    self._check_texts(branch, builder)
            elif isinstance(part, Times):
                self._check_texts(part.piece, builder)
            elif isinstance(part, Node) and not part.nullable:
                empty = self._emptiness.verdict(part)
                if builder.is_empty(part) if empty is None else empty:
                    raise impossible("a part", "")


def _have_escapes(marks: tuple[str, ...]) -> bool:
    """Whether every string has one text without these: the first character of a mark in it is an escape there."""
    plain = all(
        mark[0] not in _IN_ESCAPES and mark[0] <= "\uffff" and "\\" not in mark and min(mark) >= " " for mark in marks
    )
    return plain and not overlap(marks)


def _moved(losses: Iterable[Loss], pointer: str) -> list[Loss]:
    return [loss._replace(pointer=pointer + loss.pointer) for loss in losses]


@contextmanager
def _inside(pointer: str) -> Iterator[None]:
    """Put the pointer of a schema before the errors that it would have alone."""
    try:
        with inside_tag(pointer):
            yield
    except NotRegular as error:
        raise unsupported(pointer + error.pointer, error.keyword, error.reason) from None
    except UnsupportedConstraint as error:
        raise UnsupportedConstraint(str(error).partition("\n")[0], _moved(error.losses, pointer)) from None
