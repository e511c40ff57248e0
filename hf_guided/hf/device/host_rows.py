"""What the host knows of a call's rows, one step late: automaton states, matchers, token ids, and which have ended.

A step advances all rows by look-ups in the moves that the engines of a constraint share. A row's matcher and token ids
are written only when somebody reads them: at the row's end, or in each step if it has a listener or if criteria read
the tokens. So a step in which no row ends costs the host a fraction of a microsecond per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

import torch
from torch import Tensor

from ...backends.automaton import AutomatonEngine
from ...errors import GenerationError, InternalError
from ...session.logprob_recorder import LogprobRecorder
from ...session.session import Session
from ..decode.sequence_state import SequenceState
from ..decode.stopping import RowStops
from .device_logprobs import record_step
from .row_start import Start

# (state, token id) -> the next state; 0 for a token that the row cannot take as text, None if it is not known yet.
_Moves: TypeAlias = Callable[[tuple[int, int]], "int | None"]


class _Step(NamedTuple):
    """One step of all rows: the tokens that they chose, and the states after them."""

    tokens: list[int]
    states: list[int]


class HostRows:
    """The rows of one call of the device lane.

    Args:
        session: the constraints.
        sequences: the rows after their prompts, of one length; written.
        starts: of these rows on the device.
        stops: when a row ends.
        pad_token_id: follows the end of a row, for criteria that read the tokens.
        do_sample: whether tokens are sampled.
        recorder: of log probabilities; None records nothing.
    """

    def __init__(
        self,
        session: Session,
        sequences: Sequence[SequenceState],
        starts: Sequence[Start],
        stops: RowStops,
        *,
        pad_token_id: int,
        do_sample: bool,
        recorder: LogprobRecorder | None = None,
    ):
        self._session = session
        self._sequences = sequences
        self._stops = stops
        self._pad_token_id = pad_token_id
        self._do_sample = do_sample
        self._languages = [start.language for start in starts]
        self._moves: list[_Moves] = [_free_move if known is None else known.moves.get for known in self._languages]
        self._states = [1 if start.language is None else start.state for start in starts]
        self._steps: list[_Step] = []
        self._written = [0] * len(sequences)  # steps that the row's matcher and token ids have
        self._running = dict(enumerate(sequences))
        self._num_masked = sum(language is not None for language in self._languages)
        self._max_steps = stops.room(sequences[0].token_ids)
        self._prompt_length = sequences[0].prompt_length
        self._text = _padded(sequences, int(self._max_steps)) if stops.criteria else None
        self._recorder = recorder
        listened_to = any(sequence.listener is not None for sequence in sequences)
        self._read_always = listened_to or self._text is not None or recorder is not None

    @property
    def num_running(self) -> int:
        """How many rows have not ended."""
        return len(self._running)

    def receive(self, tokens: list[int], logprobs: list[list[list[float]]] | None = None) -> None:
        """Take one step.

        Args:
            tokens: one for each row; -1 if the row could choose none.
            logprobs: of the step, see ``packed_logprobs``; None without a recorder.
        """
        running = list(self._running)
        stats = self._session.stats
        stats.device_steps += 1
        stats.calls += 1
        stats.tokens += len(self._running)
        stats.masked_rows += self._num_masked
        states = [moves((state, token)) for moves, state, token in zip(self._moves, self._states, tokens, strict=True)]
        self._states = self._found(states, tokens)
        self._steps.append(_Step(tokens, self._states))
        if self._read_always or not all(self._states) or not self._stops.eos_token_ids.isdisjoint(tokens):
            for i, sequence in list(self._running.items()):
                if self._read_always or self._may_end(i):
                    self._write(i, sequence)
        if self._recorder is not None and logprobs is not None:
            record_step(self._recorder, running, [self._sequences[i].token_ids[-1] for i in running], logprobs)
        if self._text is not None:
            self._call_criteria(self._text)
        if len(self._steps) >= self._max_steps:
            for i, sequence in list(self._running.items()):
                self._append(i, sequence, len(self._steps))
                self._end(i)

    def _found(self, states: list[int | None], tokens: list[int]) -> list[int]:
        """The states after these tokens; finds those that are not known yet."""
        if None not in states:
            return cast("list[int]", states)
        found = []
        for language, before, state, token_id in zip(self._languages, self._states, states, tokens, strict=True):
            if state is None:
                assert language is not None, "a free row has no states"
                state = language.move(before, token_id)
            found.append(state)
        return found

    def _may_end(self, i: int) -> bool:
        """Whether a row's last token is not text that its constraint allows, or is a stop token."""
        tokens, states = self._steps[-1]
        return not states[i] or tokens[i] in self._stops.eos_token_ids

    def _write(self, i: int, sequence: SequenceState) -> None:
        """Bring a row up to date; its last token may end it."""
        if self._may_end(i):
            self._append(i, sequence, len(self._steps) - 1)
            self._written[i] += 1
            if self._take(i, sequence, self._steps[-1].tokens[i]):
                self._end(i)
        else:
            self._append(i, sequence, len(self._steps))
        sequence.report()

    def _append(self, i: int, sequence: SequenceState, steps: int) -> None:
        """Append a row's tokens of the first steps, those that it does not have yet; all are allowed text."""
        fresh = self._steps[self._written[i] : steps]
        self._written[i] = steps
        token_ids = [step.tokens[i] for step in fresh]
        sequence.token_ids += token_ids
        sequence.unfed += len(token_ids)
        engine = None if sequence.row.matcher is None else sequence.row.matcher.engine
        if isinstance(engine, AutomatonEngine):
            engine.follow(step.states[i] for step in fresh)
            sequence.row.took(token_ids)
        elif engine is not None:
            for token_id in token_ids:
                self._advance(i, sequence, token_id)

    def _take(self, i: int, sequence: SequenceState, token_id: int) -> bool:
        """Append a token that may be a stop token, a refused one, or none (-1); returns whether it ends the row."""
        if token_id < 0 and sequence.row.matcher is not None:
            self._session.record_dead_end(i, self._session.nothing_left(i, sequence.row, sequence.num_generated))
            token_id = self._session.fallback_stop_token_id
        elif token_id < 0 and self._do_sample:
            raise GenerationError(f"row {i}: no token has a finite score, so none can be sampled; are the logits NaN?")
        else:
            self._advance(i, sequence, token_id := max(token_id, 0))  # like argmax over only -inf elsewhere
        ended = False
        if sequence.row.dead_end:  # its engine failed: the device could continue, but the host knows no more of it
            self._session.record_dead_end(i, sequence.row.dead_end)
            ended = True
        sequence.append([token_id], self._stops.by_look_up)
        return ended or sequence.finished

    def _advance(self, i: int, sequence: SequenceState, token_id: int) -> None:
        """Give a token to a row's matcher."""
        if not sequence.row.advance(token_id):
            raise InternalError(
                f"row {i}: the device lane chose {self._session.vocabulary.token_text(token_id)} ({token_id}), which "
                "its matcher refuses; please report it, and use device_lane=False"
            )

    def _end(self, i: int) -> None:
        """A row has ended: its later tokens are not read."""
        self._running.pop(i).finished = True
        self._num_masked -= self._languages[i] is not None
        self._moves[i] = _no_move

    def _call_criteria(self, text: Tensor) -> None:
        """Call the criteria that read the tokens with those of all rows, as generate() does."""
        length = self._prompt_length + len(self._steps)
        column = [ids[length - 1] if len(ids := s.token_ids) >= length else self._pad_token_id for s in self._sequences]
        text[:, length - 1] = torch.tensor(column)
        for criterion in self._stops.criteria:  # all of them: they may keep count
            ends = torch.as_tensor(criterion(text[:, :length], None))  # generate() takes a plain bool too
            ended = ends.expand(len(text)).tolist()
            for i in [i for i in self._running if ended[i]]:
                self._end(i)


def _padded(sequences: Sequence[SequenceState], steps: int) -> Tensor:
    """(rows, prompt + steps) int64 on the CPU: the prompts, with room for the tokens of the steps."""
    prompts = torch.tensor([sequence.token_ids for sequence in sequences])
    return torch.cat([prompts, prompts.new_zeros(len(prompts), steps)], dim=1)


def _free_move(move: tuple[int, int]) -> int:
    return move[1] >= 0


def _no_move(move: tuple[int, int]) -> int:
    return 1
