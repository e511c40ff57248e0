"""Sessions over languages that are compiled already."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from hf_guided.backends.base import CompiledConstraint
from hf_guided.session.options import SessionOptions
from hf_guided.session.requests import Request
from hf_guided.session.session import Session
from hf_guided.vocabulary.tokens import Vocabulary


def session_of(vocabulary: Vocabulary, languages: Sequence[CompiledConstraint | None], **kwargs: Any) -> Session:
    """One language per prompt, None for a free row."""
    requests = []
    for language in languages:
        future: Future[CompiledConstraint] | None = None
        if language is not None:
            future = Future()
            future.set_result(language)
        requests.append(Request(future))
    return Session(vocabulary, requests, SessionOptions(**{"overlap": True, **kwargs}), per_prompt=True)
