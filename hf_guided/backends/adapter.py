"""What all adapters do alike: ask what would be lost, refuse it or leave it out, time what remains."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..constraints import Constraint, JsonObject, JsonSchema
from ..errors import ConstraintError, InvalidConstraint, Loss, UnsupportedConstraint
from ..schema.prepare import blaming_the_schema
from .base import CompiledConstraint, Engine

if TYPE_CHECKING:
    from ..vocabulary import Vocabulary

Schema = dict[str, Any]
# Compiles; gives what makes engines at the start of the grammar, and the bytes of memory that takes.
Build = Callable[[], "tuple[Callable[[], Engine], int]"]


class Adapter(ABC):
    """A ``Backend`` on top of three questions about one library.

    Args:
        vocabulary: what it compiles for.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # what the library calls itself

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._last_reduced: tuple[str, Schema, tuple[Loss, ...]] | None = None

    @abstractmethod
    def _reduce(self, constraint: JsonSchema) -> tuple[Schema | bool, Sequence[Loss]]:
        """The schema without what the library does not enforce, and what that is."""

    @abstractmethod
    def _json(self, schema: Schema, whitespace: str) -> Build:
        """How to compile a reduced schema."""

    @abstractmethod
    def _text(self, constraint: Constraint) -> Build:
        """How to compile what is no JSON Schema; raises UnsupportedConstraint before any long work."""

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        """See ``Backend.losses``."""
        try:
            if (asked := _as_schema(constraint)) is not None:
                return self._reduced(asked)[1]
            self._text(constraint)
        except UnsupportedConstraint as error:
            return error.losses
        except ConstraintError:
            pass  # malformed, not unsupported: compile says so
        return ()

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """See ``Backend.compile``."""
        began = time.perf_counter()
        constraint.check()
        losses: tuple[Loss, ...] = ()
        if (asked := _as_schema(constraint)) is not None:
            schema, losses = self._reduced(asked)
            if losses and asked.on_unsupported == "error":
                raise UnsupportedConstraint(f"{self.title} does not enforce all of this {constraint.kind}", losses)
            build = self._json(schema, asked.whitespace)
        else:
            build = self._text(constraint)
        new_engine, nbytes = build()
        return CompiledConstraint(
            constraint=constraint,
            backend=self.name,
            vocabulary=self.vocabulary,
            new_engine=new_engine,
            nbytes=nbytes,
            compile_seconds=time.perf_counter() - began,
            losses=losses,
        )

    def _reduced(self, constraint: JsonSchema) -> tuple[Schema, tuple[Loss, ...]]:
        """``_reduce``, remembered: who asks for the losses compiles next."""
        last = self._last_reduced
        if last is None or last[0] != constraint.key:
            with blaming_the_schema(constraint):
                schema, losses = self._reduce(constraint)
            if schema is False:
                raise InvalidConstraint("the JSON Schema is `false`: no value satisfies it")
            last = constraint.key, {} if schema is True else schema, tuple(losses)
            self._last_reduced = last
        return last[1:]

    @classmethod
    def _unsupported(cls, keyword: str, reason: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(f"{cls.title} cannot enforce this", (Loss("", keyword, reason),))


def _as_schema(constraint: Constraint) -> JsonSchema | None:
    if isinstance(constraint, JsonObject):
        return JsonSchema({"type": "object"}, whitespace=constraint.whitespace)
    return constraint if isinstance(constraint, JsonSchema) else None
