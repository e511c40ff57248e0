"""Drafts from the grammar: where white space is up to the model, what must come but for white space.

A flexible grammar forces hardly anything, because white space may stand between any two tokens of JSON. The same
schema with compact white space forces all that stands between two values. So each row has a *twin*, a matcher of the
compact grammar: it takes the row's text in the layout of ``json.dumps``, whatever layout the model chose, and what it
forces next is drafted, with white space where the model has put it so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...backends.base import CompiledConstraint, Matcher
from ...constraints.values import Constraint, JsonObject, JsonSchema
from ...errors import CompileLimitExceeded, UnwritableConstraint
from ...session.reasoning_gate import ReasoningEngine
from ...session.row import Row, RowState
from .base import Asked, Draft, Warp
from .layout import Layout

Tokenize: TypeAlias = Callable[[Sequence[int], bytes], list[int]]
TwinOf: TypeAlias = Callable[[CompiledConstraint], "CompiledConstraint | None"]


def compact_twin(constraint: Constraint) -> Constraint | None:
    """The constraint with the layout of ``json.dumps``; None where it leaves no layout open."""
    if isinstance(constraint, JsonObject) and constraint.style.is_flexible:
        return JsonObject("compact", spelling=constraint.spelling)
    if isinstance(constraint, JsonSchema) and constraint.style.is_flexible:
        return constraint.styled(constraint.style._replace(whitespace="compact"))
    return None


class GrammarDraft:
    """Proposes what the compact twin of a row's grammar forces next.

    Args:
        twin_of: gives the compact twin of what a row was compiled from (``compact_twin`` says which constraint that
            is), for the same vocabulary; None where there is none, or not yet. Asked again until it gives one.
        tokenize: the tokens that write some bytes behind the tokens of a row (prompt and output so far).
    """

    def __init__(self, twin_of: TwinOf, tokenize: Tokenize):
        self._twin_of, self._tokenize = twin_of, tokenize
        self._twins: dict[CompiledConstraint, CompiledConstraint] = {}
        self._followers: dict[int, _Follower] = {}

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(one) for one in asked]

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        self._twins.clear()
        self._followers.clear()

    def _propose(self, asked: Asked) -> Draft:
        follower = self._follower(asked) if asked.limit > 0 else None
        data = b"" if follower is None else follower.forced()
        return Draft(asked.legal(self._tokenize(asked.token_ids, data))) if data else Draft()

    def _follower(self, asked: Asked) -> _Follower | None:
        """The row's twin, where the row stands now."""
        twin = self._twin(asked.row)
        if twin is None:
            return None
        output, prefix = list(asked.token_ids[asked.prompt_length :]), asked.prefix
        engine = None if asked.row.matcher is None else asked.row.matcher.engine
        if isinstance(engine, ReasoningEngine):
            if engine.answer is None:
                return None
            thought, prefix = engine.answer
            del output[:thought]
        follower = self._followers.get(asked.index)
        if follower is None or not follower.stands_before(twin, output):
            follower = self._followers[asked.index] = _Follower(twin, prefix)
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
    """A matcher of the compact grammar that goes where a row went.

    It is lost for good once the twin refuses the row's text (the engines of the two may not agree on every text).
    """

    def __init__(self, twin: CompiledConstraint, prefix: bytes):
        self._twin = twin
        self._layout = Layout()
        self._output: list[int] = []  # what it has followed
        self._matcher: Matcher | None = twin.matcher()
        self._take(self._layout.take(prefix))

    def stands_before(self, twin: CompiledConstraint, output: Sequence[int]) -> bool:
        """Whether it is of this twin, and got no farther than this output, on the same way."""
        return self._twin is twin and self._output == output[: len(self._output)]

    def follow(self, output: Sequence[int]) -> None:
        """Go on to the end of this output."""
        new = output[len(self._output) :]
        self._output.extend(new)
        self._take(self._layout.take(self._twin.vocabulary.decode_bytes(new)))

    def forced(self) -> bytes:
        """What must come next in the compact layout, in the row's own; nothing when lost."""
        if self._matcher is None:
            return b""
        try:
            return self._layout.write(self._matcher.jump_forward_bytes())
        except CompileLimitExceeded:
            self._matcher = None
            return b""

    def _take(self, data: bytes) -> None:
        if self._matcher is None:
            return
        try:
            # How the text is split into tokens makes no difference to a grammar.
            taken = all(map(self._matcher.accept_token, self._twin.vocabulary.encode_bytes(data)))
        except (CompileLimitExceeded, UnwritableConstraint):
            taken = False
        if not taken:
            self._matcher = None
