"""One answer in a shared batch: its row, its output, and how its tokens are chosen.

A manager carries it among the keyword arguments of a request, and keeps it when it starts a request again that has lost
its cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

from ...hf.decode.forced_text import ForcedText
from ...hf.decode.processors import Scoring
from ...session.logprob_recorder import LogprobRecorder, Position
from ...session.logprobs import TokenLogprob
from ...session.row import Row
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from ..job import Ended, Job, NewTokens
from .row_end import left_constraint
from .running import RunningJob
from .sampling import samples


class SharedAnswer:
    """Written by the manager's thread alone, once it is queued there.

    Args:
        running: its job.
        number: of the answer in the job.
        row: before the answer's first token; owned by this object.
        budget: tokens within which the row's text closes; None: it may be cut.
        scoring: the processors of the job.
        forced_text: finds text for which the grammar leaves no choice; None leaves it to the model.
        seed: of its random numbers; None draws from torch's generator.
        vocabulary: of the logits.
    """

    def __init__(
        self,
        running: RunningJob,
        number: int,
        *,
        row: Row,
        budget: int | None,
        scoring: Scoring,
        forced_text: ForcedText | None,
        seed: int | None,
        vocabulary: Vocabulary,
    ):
        self.running, self.number = running, number
        self.seed = seed
        self.scoring = scoring
        self.ids = [*running.job.prompt]  # prompt and output
        self._delivered = 0
        self._row, self._budget = row, budget
        self._forced_text = forced_text
        self._forced: deque[int] = deque()  # tokens that the row has taken already, and that are chosen next
        self._after_choice = True  # the fast loop looks for forced text at the start, and after each token it chooses
        self._vocabulary = vocabulary
        self._words = allocate_bitmask(1, vocabulary.padded_size)
        self._entries: list[TokenLogprob] = []  # of tokens that are not delivered yet
        self._recorder: LogprobRecorder | None = None
        if self.job.top_logprobs is not None:
            stops = vocabulary.stops_with_logits(self.job.stop_token_ids)
            self._recorder = LogprobRecorder(
                vocabulary, [row.fork()], stop_token_ids=stops, tokens_left=self._tokens_left, top=self.job.top_logprobs
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedAnswer:
        return self  # the manager copies the arguments of a request that it starts again

    @property
    def job(self) -> Job:
        """The job that it belongs to."""
        return self.running.job

    @property
    def samples(self) -> bool:
        """Whether its tokens are drawn rather than the most likely ones."""
        return samples(self.job.sampling)

    @property
    def batch_key(self) -> Hashable:
        """Answers with equal keys can be processed in one call; those whose processors read the output are alone."""
        if self.scoring.wants_batch:
            return id(self)
        sampling = self.job.sampling
        return self.samples, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.ids) - len(self.job.prompt)

    @property
    def is_open(self) -> bool:
        """Whether its tokens are still wanted."""
        return self.running.is_open(self.number)

    def fail(self, error: Exception) -> None:
        """End it with an error; the manager drops it."""
        self.running.fail(error, self.number)

    def take(self, token_ids: Sequence[int]) -> None:
        """Add tokens of output that the manager has chosen from our scores."""
        for token_id in token_ids:
            self.ids.append(token_id)
            if self._forced:
                self._forced.popleft()
            else:
                self._row.advance(token_id)
                self._after_choice = True

    def mask(self) -> Tensor | None:
        """(words,) int32 on CPU: the allowed next tokens, valid until the next call; None if all are.

        Raises:
            GenerationError: the constraint cannot be continued.
        """
        if self._row.matcher is None:
            return None
        left = self._tokens_left(self.num_generated)
        if self._after_choice and self._forced_text is not None:
            self._after_choice = False
            self._forced.extend(self._forced_text.advance(self._row, self.ids, left, loose=False).token_ids)
        if self._forced:
            self._words.numpy()[0] = self._vocabulary.bitmask_of([self._forced[0]])
        elif not self._row.fill(self._words, 0, left):
            raise left_constraint(self._row.dead_end)
        return self._words[0]

    def record(self, logits: Tensor, scores: Tensor, token_id: int) -> None:
        """Record the log probabilities of the token that is chosen now, if they are requested.

        Args:
            logits: (1, vocab) of the model.
            scores: (1, vocab) from which the token is chosen.
            token_id: the token.
        """
        if self._recorder is None:
            return
        self._recorder.record(logits, [Position(0, token_id, None if self._forced else 0)], scores)
        self._entries += self._recorder.entries[0][-1:]

    def deliver(self, output: Any) -> None:
        """Make events of the manager's output so far."""
        tokens = tuple(output.generated_tokens[self._delivered :])
        self._delivered += len(tokens)
        if tokens:
            entries, self._entries = tuple(self._entries[: len(tokens)]), self._entries[len(tokens) :]
            self.running.emit(NewTokens(self.number, tokens, entries))
        if output.is_finished():
            last = output.generated_tokens[-1:]
            stopped = bool(last) and last[0] in self.job.stop_token_ids
            self.running.emit(Ended(self.number, "stop" if stopped else "length"))

    def _tokens_left(self, num_generated: int) -> int | None:
        return None if self._budget is None else self._budget - num_generated
