"""The common part of all adapters: find the losses, refuse or drop those keywords, time the compile."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from ..constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex
from ..errors import CompileLimitExceeded, ConstraintError, Loss, UnsupportedConstraint, UnwritableConstraint
from .base import CompiledConstraint, Engine, held_spelling

if TYPE_CHECKING:
    from ..automaton.lru_bytes import Growth
    from ..regex import Node
    from ..vocabulary.tokens import Vocabulary


_MOST_NAMED = 8  # bytes in a message


class CompileResult(NamedTuple):
    """The result of a compile; see ``CompiledConstraint``."""

    new_engine: Callable[[], Engine]
    nbytes: int
    at_once_bytes: int | None = None
    growth: Growth | None = None


Build = Callable[[], "CompileResult | tuple[Callable[[], Engine], int]"]  # compiles

_T = TypeVar("_T")


class Adapter(ABC):
    """A ``Backend`` on top of two questions about one library."""

    name: ClassVar[str]
    title: ClassVar[str]  # the library's own name
    canonical_spelling = True  # see ``held_spelling``
    is_native: ClassVar[bool] = False  # whether its engines are ``MaskedEngine``, and hold ``max_depth`` and any order

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._last: tuple[str, Build, tuple[Loss, ...]] | None = None

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        """A function that compiles the enforced part of a schema, and the losses; without this, all is one loss."""
        constraint.check()
        reason = f"{self.title} is not proven to enforce JSON Schema; use llguidance, or the native engine"
        raise self._unsupported(constraint.kind, reason)

    @abstractmethod
    def _text(self, constraint: Constraint) -> Build:
        """A function that compiles other constraints; raises UnsupportedConstraint before any long work."""

    def _vocabulary(self, constraint: Constraint) -> Vocabulary:
        """The vocabulary of a constraint: its special tokens are text there if the constraint names them."""
        return self.vocabulary

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        """See ``Backend.losses``."""
        try:
            return self._prepared(constraint)[1]
        except UnsupportedConstraint as error:
            return error.losses
        except (ConstraintError, CompileLimitExceeded):
            return ()  # malformed or too large, not unsupported: compile raises it

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """See ``Backend.compile``."""
        began = time.perf_counter()
        build, losses = self._prepared(constraint)
        if losses and constraint.on_unsupported == "error":
            raise UnsupportedConstraint(f"{self.title} does not enforce all of this {constraint.kind}", losses)
        made = CompileResult(*build())
        return CompiledConstraint(
            constraint=constraint,
            backend=self.name,
            vocabulary=self._vocabulary(constraint),
            **made._asdict(),
            compile_seconds=time.perf_counter() - began,
            losses=losses,
            keeps_budget=self.is_native,
            keeps_masks=self.is_native,
            spelling=held_spelling(self, constraint),
        )

    def _prepared(self, constraint: Constraint) -> tuple[Build, tuple[Loss, ...]]:
        """A function that compiles it, and the losses; cached, because a compile usually follows."""
        last = self._last
        if last is None or last[0] != constraint.key:
            if isinstance(constraint, JsonObject):
                constraint = constraint.as_schema()
            build, losses = (
                self._schema(constraint) if isinstance(constraint, JsonSchema) else (self._text(constraint), ())
            )
            if isinstance(constraint, JsonSchema) and not self.is_native:
                losses = (*losses, *self._lost_options(constraint))
            last = self._last = constraint.key, build, tuple(losses)
        return last[1:]

    def _lost_options(self, constraint: JsonSchema) -> Iterator[Loss]:
        if constraint.max_depth is not None:
            yield Loss("", "max_depth", f"{self.title} does not bound the depth of nesting")
        if constraint.indent is not None:
            reason = f"{self.title} does not count open brackets; native does, with max_depth=... where values are deep"
            yield Loss("", "indent", reason)
        if constraint.key_order != "declared":
            yield Loss("", "key_order", f"{self.title} writes members in the order of the schema")

    def _written(self, constraint: Constraint, write: Callable[[Node], _T]) -> _T:
        """A choice or a regular expression, as ``write`` writes it; raises UnsupportedConstraint for all others."""
        from ..automaton.emptiness import Emptiness  # loaded with the first engine, not with us
        from ..regex import UnsupportedRegex, alt, parse_fullmatch, text

        try:
            if isinstance(constraint, Choice):
                return write(alt(*map(text, constraint.options)))
            if isinstance(constraint, Regex):
                node = parse_fullmatch(constraint.pattern)
                if (empty := Emptiness().verdict(node)) is not False:
                    reason = (
                        "the pattern matches nothing" if empty else "whether the pattern matches any text is unknown"
                    )
                    raise UnsupportedRegex(reason)
                return write(node)
        except UnsupportedRegex as error:
            raise self._unsupported(constraint.kind, str(error)) from None
        raise self._unsupported(constraint.kind, f"{self.title} takes no {constraint.kind.replace('_', ' ')}s")

    @classmethod
    def _unsupported(cls, keyword: str, reason: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(f"{cls.title} cannot enforce this", (Loss("", keyword, reason),))


def unwritable(constraint: Constraint, missing: Iterable[int]) -> UnwritableConstraint:
    """The error for a constraint whose every text needs one of some bytes; none where no row of tokens is a text."""
    names = ", ".join([repr(bytes((byte,)))[1:] for byte in [*missing][:_MOST_NAMED]])
    needed = f"every text of {constraint} needs one of the bytes {names}, and no token of this vocabulary has them"
    return UnwritableConstraint(
        f"{needed if names else f'no text of {constraint} can be written with the tokens of this vocabulary'}; use a "
        "model whose tokenizer can write it (any byte-level BPE, or SentencePiece with byte fallback)"
    )
