"""A structural tag as an RTN: its pieces are the root component, and the values of its schemas are calls."""

from __future__ import annotations

from typing import Any

from ..automaton.limits import WorkMeter
from ..automaton.rtn import Component, ComponentBuilder, build_rtn
from ..constraints.json_style import JsonStyle, Spelling
from ..constraints.tool_xml import STYLES
from ..regex import Node
from ..schema.normalize import Normalizer
from ..schema.to_rtn import Positions
from ..schema.xml_to_rtn import ElementPositions
from .tag_pieces import Choice, Format, Piece, TagPieces, TagSchema, Times


class TagRtn(TagPieces):
    """A structural tag as an RTN. With ``spelling="any"`` it has every text that some engine writes.

    Args:
        tag: in either form that ``StructuralTag`` takes.
        spelling: how the engine spells JSON values.

    Raises:
        InvalidConstraint: a part of it matches nothing.
        UnsupportedConstraint: it has a part that no RTN has.
        CompileLimitExceeded: it is too large.

    Attributes:
        root: the name of the component of the whole tag.
        piece: the whole tag.
    """

    root = "tag"

    def __init__(self, tag: Format, spelling: Spelling):
        super().__init__(tag)
        self._spelling = spelling
        self._schemas: dict[str, Positions | ElementPositions] = {}  # by name, which is also their key
        self.piece = self.read()

    def components(self, meter: WorkMeter) -> list[Component]:
        """The RTN, the whole tag first; raises NotRegular, or CompileLimitExceeded."""
        return list(build_rtn(self.root, self.build, meter).values())

    def _values(self, schema: TagSchema) -> str:
        if schema.key not in self._schemas:
            self._schemas[schema.key] = self._read_schema(schema)
        return schema.key

    def _read_schema(self, schema: TagSchema) -> Positions | ElementPositions:
        positions = self._positions(schema, schema.layout._replace(spelling=self._spelling))
        return positions if schema.style == "json" else ElementPositions(positions, STYLES[schema.style])

    def _positions(self, schema: TagSchema, style: JsonStyle) -> Positions:
        return Positions(Normalizer.of(schema.constraint), style, closed=True, schema=schema.key, marks=schema.marks)

    def build(self, name: Any, builder: ComponentBuilder) -> tuple[int, int]:
        """Build the component of a name: see ``Rtn``."""
        if isinstance(name, str):
            start = builder.state()
            return start, self._add(self.piece, start, builder)
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
