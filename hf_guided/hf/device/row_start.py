"""The state in which a row begins on the device, if the device can follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...backends.automaton import AutomatonEngine
from ...session.reasoning_gate import ReasoningEngine
from ...session.row import Row, RowState
from ...vocabulary.tokens import Vocabulary
from .requests import NotOnDevice
from .tables import MAX_MOVES
from .thinking import AnyLanguage, ThinkingLanguage


@dataclass(frozen=True)
class Start:
    """A row's state.

    Args:
        language: its constraint; None for a free row.
        state: before its next token.
        think_until: further tokens after which its thinking has to end; None without a limit.
    """

    language: AnyLanguage | None = None
    state: int = 0
    think_until: int | None = None


def start_of(row: Row, vocabulary: Vocabulary, stop_token_ids: Sequence[int]) -> Start:
    """The state of a row after the tokens that it has taken.

    Args:
        row: of the host.
        vocabulary: of the device's tables.
        stop_token_ids: tokens that end it.

    Raises:
        NotOnDevice: the device cannot follow it; the text continues "row 3 ...".
    """
    matcher = row.matcher
    if matcher is None:
        return Start()
    if row.state is not RowState.OPEN:
        raise NotOnDevice("has ended before its first token")
    engine = matcher.engine
    thinking = engine if isinstance(engine, ReasoningEngine) else None
    answer = engine if thinking is None else thinking.answer_engine
    if not isinstance(answer, AutomatonEngine):
        raise NotOnDevice(f"is compiled by {matcher.compiled.backend}, not by the automaton")
    if answer.language.walk.dfa.table.size > MAX_MOVES:
        raise NotOnDevice("has too large an automaton")
    if answer.language.token_bytes is not vocabulary.token_bytes:
        raise NotOnDevice("may write special tokens as text")
    if thinking is None:
        return Start(answer.language, answer.state)
    if marks := [token_id for token_id in stop_token_ids if matcher.compiled.vocabulary.is_text(token_id)]:
        raise NotOnDevice(f"has stop tokens in the markers of its thinking, {marks}")
    language = ThinkingLanguage.of(thinking)
    return Start(language, language.state_of(thinking), language.think_until(thinking))
