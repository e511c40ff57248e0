"""Every exception the package raises on purpose, and its warnings.

HFGuidedError
├── ConstraintError (ValueError)        the constraint is wrong or cannot be guaranteed
│   ├── InvalidConstraint               malformed: unknown kind, regex that does not compile, undefined rule ...
│   ├── UnsupportedConstraint           well formed, but no backend enforces all of it; carries JSON pointers
│   ├── UnwritableConstraint            needs bytes that this vocabulary cannot write
│   └── BudgetTooSmall                  no text of it closes within max_new_tokens
├── TokenizerError (ValueError)         the tokenizer, or how it fits the model, is wrong
│   ├── UnsupportedTokenizer            a class whose tokens have no exact bytes (WordPiece ...)
│   ├── StopTokenError                  no stop token, or one that generate() does not stop at
│   └── VocabularySizeError             the logits have another width, or a token has no embedding
├── PromptError (ValueError)            a chat that cannot be rendered, or of which the model would not see all
├── BackendError (RuntimeError)         an engine failed
│   ├── BackendUnavailable (ImportError)  its package is not installed
│   └── CompileLimitExceeded            gave up on time, memory or complexity
├── GenerationError (RuntimeError)      something went wrong between a mask and a token
│   ├── BatchSizeError (ValueError)     the number of constraints does not fit the rows
│   ├── BitmaskShapeError (ValueError)  bitmask and logits do not fit together
│   ├── UnsupportedModel (ValueError)   a model that the requested way of decoding cannot serve exactly
│   ├── NoValue                         the answer did not finish, or could not be read
│   ├── TokenRejected                   a row left the grammar from outside (on_violation="raise")
│   └── EmptyIntersection               grammar and other processors together allow no token (on_violation="raise")
├── UnknownArgument (TypeError)         a keyword argument that nothing takes
├── InvalidArgument (ValueError, TypeError)  a value that an argument cannot have, or arguments that exclude each other
├── UsageError                          a command line: an argument, a file or a model that the user can correct
└── InternalError (RuntimeError)        our bug: please report it

A message says what was expected, what came, and what to do next.
"""

from __future__ import annotations

import os
import reprlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

MAX_MESSAGE = 2000  # characters of an error's message
_MOST_SHOWN = 500  # warnings that a module has shown, and that are kept

__all__ = [
    "BackendError",
    "BackendUnavailable",
    "BatchSizeError",
    "BitmaskShapeError",
    "BudgetTooSmall",
    "CompileLimitExceeded",
    "ConstraintError",
    "EmptyIntersection",
    "GenerationError",
    "HFGuidedError",
    "InternalError",
    "InvalidArgument",
    "InvalidConstraint",
    "Loss",
    "NoValue",
    "PromptError",
    "StopTokenError",
    "TokenRejected",
    "TokenizerError",
    "UnknownArgument",
    "UnsupportedConstraint",
    "UnsupportedModel",
    "UnsupportedTokenizer",
    "UnwritableConstraint",
    "UsageError",
    "VocabularySizeError",
]


class Loss(NamedTuple):
    """One part of a constraint that a backend would not enforce.

    Args:
        pointer: JSON pointer of the keyword itself; "" for an option, and for a constraint that has no keywords.
        keyword: the keyword or construct, e.g. ``uniqueItems``.
        reason: why, in words a user can act on.
    """

    pointer: str
    keyword: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"

    @classmethod
    def within(cls, pointer: str, keyword: str, reason: str) -> Loss:
        """The loss of a keyword of the schema, or of the part of a tag, at a pointer."""
        return cls(f"{pointer}/{keyword}", keyword, reason)

    @property
    def place(self) -> str:
        """The pointer, for messages; also the keyword where the pointer does not end with it."""
        return self.pointer if self.pointer.endswith(f"/{self.keyword}") else f"{self.pointer or '/'} ({self.keyword})"


def _within(text: str, limit: int = MAX_MESSAGE) -> str:
    """A text in at most ``limit`` characters, without its middle if it is longer."""
    if len(text) <= limit:
        return text
    gap = f" ... [{len(text) - limit} more characters] ... "
    head = (limit - len(gap)) * 2 // 3
    return text[:head] + gap + text[len(text) - (limit - len(gap) - head) :]


def shown(value: object, limit: int = 80) -> str:
    """The ``repr`` of a caller's value for a message: of at most ``limit`` characters, and it never raises."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = limit
    try:
        return _within(short.repr(value), limit)
    except Exception:  # the value's own __repr__ raises, or it is an int with more digits than Python writes
        return f"<{type(value).__name__} without a repr>"


def cause(error: BaseException) -> str:
    """The class and message of a foreign exception for a message of ours; it never raises."""
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be read"
    return _within(f"{type(error).__name__}: {message}" if message else type(error).__name__, MAX_MESSAGE // 2)


class HFGuidedError(Exception):
    """Base of every error of this package.

    Its message has at most ``MAX_MESSAGE`` characters: a longer one loses its middle. It comes back from a pickle as it
    was, because it may cross into another process.
    """

    def __init__(self, message: str = "", *rest: Any) -> None:
        super().__init__(_within(message), *rest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), self.args, self.__dict__)


def _revived(kind: type[HFGuidedError], args: tuple[Any, ...], state: dict[str, Any]) -> HFGuidedError:
    """The error without its ``__init__``, whose keyword arguments are in ``state``."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConstraintError(HFGuidedError, ValueError):
    """The constraint is wrong or cannot be guaranteed."""


class InvalidConstraint(ConstraintError):
    """The constraint is malformed.

    Args:
        message: what was expected and what came.
        pointers: JSON pointers into its schema, where the position is known.
    """

    def __init__(self, message: str, *, pointers: Sequence[str] = ()) -> None:
        self.pointers = tuple(pointers)
        super().__init__(message)


class UnsupportedConstraint(ConstraintError):
    """No backend enforces all of the constraint.

    Args:
        message: what was requested and what to do next.
        losses: every part that would be lost, with its JSON pointer.
    """

    def __init__(self, message: str, losses: Sequence[Loss] = ()) -> None:
        self.losses = tuple(losses)
        self.pointers = tuple(loss.pointer for loss in self.losses)
        super().__init__("\n  ".join([message, *map(str, self.losses)]))


class UnwritableConstraint(ConstraintError):
    """The vocabulary has no token for bytes that the constraint needs."""


class BudgetTooSmall(ConstraintError):
    """No text of the constraint closes within ``max_new_tokens``.

    Args:
        message: what was given and what is needed.
        minimum: tokens that are enough, the stop token counted.
    """

    def __init__(self, message: str, *, minimum: int) -> None:
        self.minimum = minimum
        super().__init__(message)


class TokenizerError(HFGuidedError, ValueError):
    """The tokenizer, or how it fits the model, is wrong."""


class UnsupportedTokenizer(TokenizerError):
    """The tokenizer's tokens have no exact bytes."""


class StopTokenError(TokenizerError):
    """There is no stop token, or generate() would not stop at it."""


class VocabularySizeError(TokenizerError):
    """The model's logits have another width than the vocabulary, or it has no embedding for a token of a prompt."""

    @classmethod
    def of_logits(cls, columns: int, expected: int) -> VocabularySizeError:
        """The error for logits with another number of columns than the guide was built for."""
        return cls(
            f"the model's logits have {columns} columns, and the guide was built for {expected}; build it with this "
            f"model, or with Guide({columns}, tokenizer)"
        )


class PromptError(HFGuidedError, ValueError):
    """A chat that its template or processor refuses, or that holds something the model would not see."""


class BackendError(HFGuidedError, RuntimeError):
    """An engine failed."""


class BackendUnavailable(BackendError, ImportError):
    """The engine's package is not installed, or not the compiled part of hf-guided."""


class CompileLimitExceeded(BackendError):
    """The engine gave up on time, memory or complexity."""


class GenerationError(HFGuidedError, RuntimeError):
    """Something went wrong between a mask and a token."""


class BatchSizeError(GenerationError, ValueError):
    """The number of constraints does not fit the number of rows."""


class BitmaskShapeError(GenerationError, ValueError):
    """Bitmask and logits do not fit together."""


class UnsupportedModel(GenerationError, ValueError):
    """A model that the requested way of decoding cannot serve exactly."""


class NoValue(GenerationError):
    """An answer that did not finish, or could not be read, where a value was wanted.

    Args:
        message: why there is none.
        result: the ``GuidedResult`` of the answer, or the ``Samples``.
    """

    def __init__(self, message: str, *, result: Any) -> None:
        self.result = result
        super().__init__(message)


class TokenRejected(GenerationError):
    """A row left the grammar from outside.

    Args:
        message: row, position, text so far, token and what was allowed.
        row: the row of the batch.
        position: how many tokens the row had generated before the refused one.
        token_id: the refused token.
    """

    def __init__(self, message: str, *, row: int, position: int, token_id: int) -> None:
        self.row, self.position, self.token_id = row, position, token_id
        super().__init__(message)


class EmptyIntersection(GenerationError):
    """Grammar and other logits processors together allow no token.

    Raised before anything is generated if the configuration shows it; later only with ``on_violation="raise"``.

    Args:
        message: row and cause.
        row: the row of the batch, or None when found in the configuration before generation.
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        self.row = row
        super().__init__(message)


class UnknownArgument(HFGuidedError, TypeError):
    """A keyword argument that neither hf-guided, nor generate(), nor the model takes.

    Args:
        message: the name, and what was probably meant.
        name: of the argument.
        suggestion: the known name that was probably meant; None if nothing is near.
    """

    def __init__(self, message: str, *, name: str, suggestion: str | None = None) -> None:
        self.name, self.suggestion = name, suggestion
        super().__init__(message)


class InvalidArgument(HFGuidedError, ValueError, TypeError):
    """An argument has a value that it cannot have, or excludes another argument.

    A ``ValueError`` and a ``TypeError``: a text instead of a number is both.

    Args:
        message: the name, what was expected, what came, and what to do next.
        name: of the argument; None if there are several.
    """

    def __init__(self, message: str, *, name: str | None = None) -> None:
        self.name = name
        super().__init__(message)


class UsageError(HFGuidedError):
    """What the user of a command line can correct: an argument, a file, or a model's location.

    Its text is all that a command line shows.
    """


class InternalError(HFGuidedError, RuntimeError):
    """A belief of ours did not hold."""


class Line(NamedTuple):
    """A line of a caller's code, as ``warnings.warn_explicit`` takes it."""

    file: str
    number: int
    module: str
    registry: dict[Any, Any]  # the warnings that its module has shown


_PACKAGE = os.path.dirname(__file__) + os.sep
# Packages whose frames (of decorators, of generate()) may stand between a user's call and this package.
_BETWEEN = ("contextlib", "torch", "transformers", "accelerate", "peft")
_line: ContextVar[Line | None] = ContextVar("line", default=None)


def users_line() -> Line:
    """The line of the user's code that called this package, however deep in it the caller is."""
    if (line := _line.get()) is not None:
        return line
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN
    ):
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return Line(frame.f_code.co_filename, frame.f_lineno, str(names.get("__name__", "<unknown>")), registry)


@contextmanager
def warnings_at(line: Line | None) -> Iterator[None]:
    """Around work on another thread: its warnings point at the line that asked for it."""
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)


def warn(message: str) -> None:
    """Warn at the user's line."""
    line = users_line()
    # Python keeps each text that it has shown at a line, so as not to repeat it. Texts may differ without end, as those
    # about schemas of requests do. A module that has shown many forgets them, and may show one of them again.
    if len(line.registry) > _MOST_SHOWN:
        line.registry.clear()
    warnings.warn_explicit(_within(message), UserWarning, line.file, line.number, line.module, line.registry)


@contextmanager
def reading(what: str, kind: type[HFGuidedError] = InvalidArgument) -> Iterator[None]:
    """Around code, or on a function, that reads a caller's objects: they may raise anything.

    Args:
        what: the arguments, for messages.
        kind: the error for exceptions that are neither of this package, nor a TypeError or ValueError with a message of
            usual length.
    """
    try:
        yield
    except HFGuidedError:
        raise
    except Exception as error:
        if type(error) in (TypeError, ValueError) and len(str(error)) <= MAX_MESSAGE:
            raise
        raise kind(f"{what}: the arguments cannot be read: {cause(error)}") from error
