"""The part of the surrounding schema that the meaning of a keyword may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..errors import CompileLimitExceeded, Loss
from ..regex import Node
from .documents import Documents, Subschema
from .shapes import Clause, Position, Shape, Term


class SchemaContext(Protocol):
    """Shapes of one schema's positions, and the losses in computing them. ``normalize.Normalizer`` is the one.

    Attributes:
        point_zero: whether an integer may be written 1.0.
        documents: the schema, and the documents it may refer to.
        formats: schemas that say the same, made once each.
        is_widest: whether patterns are read so that what any reader of JSON Schema takes is taken; else what all take.
    """

    point_zero: bool
    documents: Documents
    formats: dict[str, Subschema]
    is_widest: bool

    @property
    def widest(self) -> SchemaContext:
        """The same schema, with ``is_widest``: what has no value there has none for any reader."""
        ...

    @property
    def losses(self) -> list[Loss]:
        """The losses so far."""
        ...

    def lose(self, sub: Subschema, keyword: str, reason: str) -> None:
        """Note that a keyword will not be enforced."""

    def lose_at(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that the keyword at this position will not be enforced."""

    def position(self, parent: Subschema, schema: Any, *steps: str | int) -> Position:
        """The position that one schema inside another governs."""

    def position_of(self, sub: Subschema) -> Position:
        """The position that one schema governs."""

    def opposite(self, position: Position) -> Position:
        """The position whose value fails what one schema says."""

    def value(self, value: Any, near: Subschema | None = None) -> Position:
        """The position that only this JSON value satisfies."""

    def shape(self, position: Position) -> Shape:
        """The values that all terms of a position agree on."""

    def term(self, term: Term) -> Shape:
        """The values for which one schema holds, or does not."""

    def tags(self, position: Position) -> Mapping[str, frozenset[Any]]:
        """The types of the values at a position, and the values themselves if they are listed."""

    def names(self, position: Position) -> Node:
        """The strings at a position, as one language."""

    def is_plainly_empty(self, clause: Clause) -> bool:
        """Whether no value satisfies a clause, as far as is visible without the children."""

    def meet(self, first: Shape, second: Shape, sub: Subschema, keyword: str) -> Shape:
        """The intersection of two shapes; the first one where it has too many alternatives, which is a loss."""

    def common(self, first: Shape, second: Shape) -> Shape:
        """The values that satisfy both branches; all of the first where this takes too long to compute."""

    def meetings(self, shapes: Sequence[Shape]) -> dict[tuple[int, int], Shape]:
        """The common part of each two shapes, by their numbers; pairs that have none are left out."""


@contextmanager
def too_deep_is_a_limit() -> Iterator[None]:
    """Turn Python's RecursionError into CompileLimitExceeded."""
    try:
        yield
    except RecursionError:
        raise CompileLimitExceeded("the JSON Schema is nested too deeply; flatten it with $defs and $ref") from None
