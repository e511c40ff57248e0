"""A structural tag as an RTN: its pieces are the root component, and the values of its schemas are calls."""

from __future__ import annotations

from ..automaton.limits import WorkMeter
from ..automaton.rtn import Component, ComponentBuilder, build_rtn
from ..constraints.json_style import Spelling
from ..constraints.tool_xml import STYLES
from ..regex import Node
from ..schema.normalize import Normalizer
from ..schema.to_rtn import Inside, Positions
from ..schema.xml_to_rtn import ElementPositions
from .tag_pieces import Choice, Format, Piece, TagPieces, TagSchema, Times

_ROOT = "tag"


class TagRtn(TagPieces):
    """Reads one structural tag.

    Args:
        tag: in either form that ``StructuralTag`` takes.
        spelling: how the engine spells JSON values.

    Raises:
        InvalidConstraint: a part of it matches nothing.
        UnsupportedConstraint: it has a part that no RTN has.
        CompileLimitExceeded: it is too large.
    """

    def __init__(self, tag: Format, spelling: Spelling):
        super().__init__(tag)
        self._spelling = spelling
        self._schemas: dict[str, Positions] = {}  # by name, which is also their key
        self._piece_of_root = self.read()

    def components(self, meter: WorkMeter) -> list[Component]:
        """The RTN, the whole tag first; raises NotRegular, or CompileLimitExceeded."""
        return list(build_rtn(_ROOT, self._build, meter).values())

    def _values(self, schema: TagSchema) -> str:
        key = schema.key
        if key not in self._schemas:
            n = Normalizer.of(schema.constraint)
            style = schema.layout._replace(spelling=self._spelling)
            if schema.style == "json":
                self._schemas[key] = Positions(n, style, closed=True, schema=key, marks=schema.excludes)
            else:
                self._schemas[key] = ElementPositions(n, STYLES[schema.style], style, closed=True, schema=key)
        return key

    def _build(self, name: Inside | str, builder: ComponentBuilder) -> tuple[int, int]:
        if isinstance(name, str):
            start = builder.state()
            return start, self._add(self._piece_of_root, start, builder)
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
