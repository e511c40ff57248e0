"""The sources that ``draft=`` names, and two of them: prompt lookup, and a chain of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import CompiledConstraint
from ...constraints.argument_checks import check, whole
from ...constraints.values import Constraint
from ...errors import InvalidArgument, reading, shown
from ...vocabulary.retokenize import Continuation
from .assistant import AssistantDraft
from .base import Draft, DraftRequest, DraftSource, Warp
from .grammar import GrammarDraft, compact_twin

_TRIES = 4  # matches tried while the grammar refuses the tokens after them


@reading("draft")
def draft_source(
    draft: Any,
    continuation: Continuation,
    *,
    vocab_size: int,
    compile: Callable[[Constraint], CompiledConstraint],
) -> DraftSource | None:
    """The source for ``draft``: "grammar", "prompt_lookup", a model, a DraftSource, or a list of these; None for None.

    ``compile`` is for sources that use a grammar of their own.

    Raises:
        InvalidArgument: another value.
        UnsupportedModel: see ``AssistantDraft``.
    """
    if draft is None or isinstance(draft, DraftSource):
        return draft
    if isinstance(draft, (list, tuple)):
        sources = (draft_source(part, continuation, vocab_size=vocab_size, compile=compile) for part in draft)
        return DraftChain([source for source in sources if source is not None])
    if draft == "prompt_lookup":
        return PromptLookup()
    if draft == "grammar":

        def twin_of(compiled: CompiledConstraint) -> CompiledConstraint | None:
            twin = compact_twin(compiled.constraint)
            return None if twin is None else compile(twin)

        return GrammarDraft(twin_of, continuation)
    if hasattr(draft, "generation_config"):
        return AssistantDraft(draft, vocab_size=vocab_size)
    raise InvalidArgument(
        'draft: expected "grammar", "prompt_lookup", a model, a DraftSource, or a list of these, '
        f"got {shown(draft)} of type {type(draft).__name__}"
    )


class DraftChain:
    """Gives each row the draft of the first source that has one for it.

    Args:
        sources: in the order of the calls: the most reliable, or the cheapest, first.
    """

    def __init__(self, sources: Sequence[DraftSource]):
        self._sources = tuple(sources)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``. Each source is called only for the rows that have no draft yet."""
        drafts = [Draft()] * len(requests)
        for source in self._sources:
            empty = [i for i, draft in enumerate(drafts) if not draft.tokens]
            if not empty:
                break
            for i, draft in zip(empty, source.propose([requests[i] for i in empty]), strict=True):
                drafts[i] = draft
        return drafts

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        for source in self._sources:
            source.reset(warp)


class PromptLookup:
    """Proposes the tokens after the latest earlier occurrence of the longest n-gram that ends the text.

    Works well if the answer quotes the prompt, or repeats itself (Saxena 2023, "Prompt lookup decoding").

    Args:
        max_ngram: tokens of the longest n-gram, 1 or more.
        num_tokens: the maximum number of draft tokens.
    """

    def __init__(self, max_ngram: int = 3, num_tokens: int = 10):
        for name, value in ("max_ngram", max_ngram), ("num_tokens", num_tokens):
            check(name, value, whole(1))
        self._max_ngram, self._num_tokens = max_ngram, num_tokens

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(request) for request in requests]

    def reset(self, warp: Warp | None = None) -> None:
        """There is no state to reset."""

    def _propose(self, request: DraftRequest) -> Draft:
        length = min(self._num_tokens, request.limit)
        if length < 1:
            return Draft()
        ids = np.array(request.token_ids, np.int64)
        for _, end in zip(range(_TRIES), self._matches(ids), strict=False):
            if tokens := request.legal(ids[end : end + length].tolist()):
                return Draft(tokens)
        return Draft()

    def _matches(self, ids: NDArray[np.int64]) -> Iterator[int]:
        """Positions after earlier occurrences: longer n-grams first, for equal lengths the latest first."""
        if len(ids) < 2:
            return
        # The positions after an occurrence of n tokens are among those after the last n - 1 of them.
        ends = np.flatnonzero(ids[:-1] == ids[-1]) + 1
        by_length = [ends]
        for n in range(2, min(self._max_ngram, len(ids) - 1) + 1):
            ends = ends[ends >= n]
            ends = ends[ids[ends - n] == ids[-n]]
            by_length.append(ends)
        longer: NDArray[np.int64] = ends[:0]
        for ends in reversed(by_length):
            yield from np.setdiff1d(ends, longer, assume_unique=True)[::-1].tolist()
            longer = ends
