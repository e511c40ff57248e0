"""A structural tag as a network: its pieces are the root component, and the values of its schemas are calls.

A text may be read in several ways at once, so it need not show where a part ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..automaton.rtn import ComponentBuilder
from ..constraints.structural_tag_checks import inside_tag
from ..constraints.tool_xml import STYLES
from ..errors import Loss, UnsupportedConstraint
from ..regex import Node
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from ..schema.xml_to_network import ElementPositions
from .network_of_schema import NetworkPlan, SchemaPart
from .tag_marks import overlap
from .tag_pieces import Choice, Format, Piece, TagPieces, TagSchema, Times, impossible, unsupported

_IN_ESCAPES = frozenset('"\\bfnrtu0123456789abcdef')


class TagNetwork(TagPieces):
    """Reads one structural tag exactly.

    Args:
        tag: in either form that ``StructuralTag`` takes.

    Raises:
        InvalidConstraint: a part of it matches nothing.
        UnsupportedConstraint: the network does not take it.
        CompileLimitExceeded: it is too large.

    Attributes:
        root: the name of the component of the whole tag.
        losses: what is not enforced.
        plan: of the network.
    """

    root = "tag"

    def __init__(self, tag: Format):
        super().__init__(tag)
        self.losses: list[Loss] = []
        self._parts: dict[str, SchemaPart] = {}
        self._schemas: dict[str, Positions | ElementPositions] = {}  # by name, which is also their key
        self._whole = self.read()
        self.plan = NetworkPlan(self.root, self.build, self._parts)

    def _values(self, schema: TagSchema) -> str:
        if schema.key not in self._schemas:
            if not _have_escapes(schema.marks):
                reason = (
                    "a mark that is, or holds, a part of an escape or of another mark cannot be kept out of all strings"
                )
                raise unsupported(schema.pointer, "excludes", reason)
            with _inside(schema.pointer):
                self._schemas[schema.key] = self._read_schema(schema)
        return schema.key

    def _read_schema(self, schema: TagSchema) -> Positions | ElementPositions:
        n = Normalizer.of(schema.constraint)
        style = schema.layout._replace(spelling="canonical")
        positions = Positions(n, style, closed=True, key_order="declared", schema=schema.key, marks=schema.marks)
        self.losses += _moved(n.losses, schema.pointer)
        if schema.style == "json":
            self._parts[schema.key] = SchemaPart(positions, (positions.whole,), schema.pointer)
            return positions
        elements = ElementPositions(positions, STYLES[schema.style])
        self._parts[schema.key] = SchemaPart(positions, tuple(elements.json_inside()), schema.pointer)
        return elements

    def build(self, name: Any, builder: ComponentBuilder) -> tuple[int, int]:
        """Build the component of a name: see ``Rtn``."""
        if name == self.root:
            self._check_texts(self._whole, builder)
            start = builder.state()
            return start, self._add(self._whole, start, builder)
        with _inside(self._parts[name.schema].pointer):
            return self._schemas[name.schema].build(name, builder)

    def _add(self, piece: Piece, state: int, builder: ComponentBuilder) -> int:
        """Add a piece after a state; returns the state after it, which nothing in the piece leaves."""
        for part in piece:
            if isinstance(part, Node):
                state = builder.regex(part, state)
            elif isinstance(part, str):
                state, before = builder.state(), state
                builder.call(self._schemas[part].root, before, state)
            elif isinstance(part, Choice):
                state, before = builder.state(), state
                for branch in part.pieces:
                    builder.epsilon(self._add(branch, before, builder), state)
            else:
                state = self._repeat(part, state, builder)
        return state

    def _repeat(self, times: Times, state: int, builder: ComponentBuilder) -> int:
        end = builder.state()
        for count in range(times.low if times.high is None else times.high):
            if count >= times.low:
                builder.epsilon(state, end)
            state = self._add(times.piece, state, builder)
        if times.high is None:
            state, before = builder.state(), state
            builder.epsilon(before, state)
            builder.epsilon(self._add(times.piece, state, builder), state)
        builder.epsilon(state, end)
        return end

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
    except UnsupportedConstraint as error:
        raise UnsupportedConstraint(str(error).partition("\n")[0], _moved(error.losses, pointer)) from None
