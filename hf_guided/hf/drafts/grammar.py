"""Drafts from the grammar: the text that is forced except for its white space.

A flexible grammar forces hardly any text, because white space may stand between any two tokens of JSON. The same schema
with compact white space forces all text between two values. So each row has a *twin*, a matcher of the compact grammar:
it takes the row's text in the layout of ``json.dumps``, in whichever layout the model writes it, and the text that it
forces next is drafted, with white space in the model's layout so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from ...backends.base import CompiledConstraint
from ...backends.matcher import Matcher
from ...constraints.values import Constraint, JsonObject, JsonSchema
from ...errors import BackendError, HFGuidedError
from ...session.reasoning_gate import ReasoningEngine
from ...session.row import Row, RowState
from .base import Draft, DraftRequest, Warp
from .layout import Layout

Tokenize: TypeAlias = Callable[[Sequence[int], bytes], list[int]]
TwinOf: TypeAlias = Callable[[CompiledConstraint], "CompiledConstraint | None"]


def compact_twin(constraint: Constraint) -> Constraint | None:
    """The constraint in the layout of ``json.dumps``; None if its layout is not flexible."""
    if isinstance(constraint, JsonObject) and constraint.style.is_flexible:
        return JsonObject("compact", spelling=constraint.spelling)
    if isinstance(constraint, JsonSchema) and constraint.style.is_flexible:
        return constraint.styled(constraint.style._replace(whitespace="compact"))
    return None


class GrammarDraft:
    """Proposes the text that the compact twin of a row's grammar forces next.

    Args:
        twin_of: returns the compact twin of a row's compiled constraint (see ``compact_twin``), for the same
            vocabulary; None if there is none, or not yet. Called again until it returns one.
        tokenize: returns the tokens of some bytes after the tokens of a row (prompt and output so far).
    """

    def __init__(self, twin_of: TwinOf, tokenize: Tokenize):
        self._twin_of, self._tokenize = twin_of, tokenize
        self._twins: dict[CompiledConstraint, CompiledConstraint] = {}
        self._followers: dict[int, _Follower] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(request) for request in requests]

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        self._twins.clear()
        self._followers.clear()

    def _propose(self, request: DraftRequest) -> Draft:
        follower = self._follower(request) if request.limit > 0 else None
        data = b"" if follower is None else follower.forced()
        return Draft(request.legal(self._tokenize(request.token_ids, data))) if data else Draft()

    def _follower(self, request: DraftRequest) -> _Follower | None:
        """The row's twin, advanced to the row's text."""
        twin = self._twin(request.row)
        if twin is None:
            return None
        output, prefix = list(request.token_ids[request.prompt_length :]), request.prefix
        engine = None if request.row.matcher is None else request.row.matcher.engine
        if isinstance(engine, ReasoningEngine):
            if engine.answer is None:
                return None
            thought, prefix = engine.answer
            del output[:thought]
        follower = self._followers.get(request.index)
        if follower is None or not follower.is_before(twin, output):
            follower = self._followers[request.index] = _Follower(twin, prefix)
        follower.follow(output)
        return follower

    def _twin(self, row: Row) -> CompiledConstraint | None:
        if row.matcher is None or row.state is not RowState.OPEN:
            return None
        compiled = row.matcher.compiled
        if compiled not in self._twins and (twin := self._twin_of(compiled)) is not None:
            self._twins[compiled] = twin
        return self._twins.get(compiled)


class _Follower:
    """A matcher of the compact grammar that takes the same text as a row.

    It is lost after it refuses the row's text (the engines of the two may not agree on every text), or fails.
    """

    def __init__(self, twin: CompiledConstraint, prefix: bytes):
        self._twin = twin
        self._layout = Layout()
        self._output: list[int] = []  # the tokens it has taken
        self._matcher: Matcher | None = None
        with suppress(BackendError):
            self._matcher = twin.matcher()
        self._take(self._layout.take(prefix))

    def is_before(self, twin: CompiledConstraint, output: Sequence[int]) -> bool:
        """Whether it belongs to this twin, and its tokens are the beginning of this output."""
        return self._twin is twin and self._output == output[: len(self._output)]

    def follow(self, output: Sequence[int]) -> None:
        """Advance to the end of this output."""
        new = output[len(self._output) :]
        self._output.extend(new)
        self._take(self._layout.take(self._twin.vocabulary.decode_bytes(new)))

    def forced(self) -> bytes:
        """The text that the compact grammar forces next, in the row's own layout; empty if the twin was lost."""
        if self._matcher is None:
            return b""
        try:
            return self._layout.write(self._matcher.jump_forward_bytes())
        except HFGuidedError:
            self._matcher = None
            return b""

    def _take(self, data: bytes) -> None:
        if self._matcher is None:
            return
        try:
            # A grammar does not depend on how the text is split into tokens.
            taken = all(map(self._matcher.accept_token, self._twin.vocabulary.encode_bytes(data)))
        except HFGuidedError:
            taken = False
        if not taken:
            self._matcher = None
