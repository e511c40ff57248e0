"""Sessions over languages that are compiled already."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from hf_guided.backends.base import CompiledConstraint
from hf_guided.generation.partial import PartialRow
from hf_guided.session.options import SessionOptions
from hf_guided.session.requests import Request
from hf_guided.session.result import RowReader
from hf_guided.session.session import Session
from hf_guided.vocabulary.tokens import Vocabulary


def request_of(language: CompiledConstraint | None = None, **kwargs: Any) -> Request:
    """A request whose constraint is compiled already; a free row without one."""
    future: Future[CompiledConstraint] | None = None
    if language is not None:
        future = Future()
        future.set_result(language)
    return Request(future, **kwargs)


def partial_row(vocabulary: Vocabulary, constraint: Any, prefix: bytes = b"") -> PartialRow:
    """The only answer of a stream, which is read without a compiled constraint."""
    request = request_of(constraint=constraint, prefix=prefix)
    return PartialRow(0, RowReader(vocabulary, request, SessionOptions()))


def session_of(vocabulary: Vocabulary, languages: Sequence[CompiledConstraint | None], **kwargs: Any) -> Session:
    """One language per prompt, None for a free row."""
    return Session(vocabulary, [*map(request_of, languages)], SessionOptions(**{"overlap": True, **kwargs}))
