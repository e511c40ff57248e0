"""The choice of tokens: a job's sampling as transformers takes it, and the sampler of shared batches.

No error leaves ``BatchSampler``: it would end the generation thread, and with it all answers. An answer that causes one
ends alone; so does an answer whose constraint cannot be continued.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from ...backends.matcher import Narrowed
from ...errors import GenerationError
from ...hf.compat import input_device
from ...hf.continuous_batching.compat import ContinuousBatchingLogitsProcessor, effective_config, new_tokens
from ...hf.decode.forced_text import ForcedText
from ...hf.decode.processors import Scoring
from ...hf.seeds import BITS, as_int64, gumbel
from ...session.apply import apply_bitmask
from ...session.logprobs import LogprobRecorder, Position, TokenLogprob
from ...session.mass_record import MassRecord
from ...session.row import Row
from ...session.stats import SessionStats
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from ..job import FILTERS, Job, NewTokens, ended
from .jobs import RunningJob, left_constraint

# Modes that generate() would take from a model's own generation config. A job has none of them.
_ONE_TOKEN_AT_A_TIME = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "return_dict_in_generate": False,
    "output_scores": False,
    "output_logits": False,
}


def generation_config(model: Any, job: Job) -> GenerationConfig:
    """The generation config for a job: the model's own, with the job's sampling and stop tokens."""
    sampling = job.sampling
    config = copy.deepcopy(model.generation_config)
    for name in ("prompt_lookup_num_tokens", "stop_strings", "max_length", "min_p"):
        setattr(config, name, None)
    # Values that change nothing are written down too: generate() fills None from the model's own config.
    filters: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50}  # values that greedy decoding expects
    if sampling.draws:
        filters = {name: getattr(sampling, name) for name in FILTERS}
        filters["top_k"] = sampling.top_k or 0
        if not (sampling.min_p or model.generation_config.min_p):
            del filters["min_p"]  # no processor for it
    config.update(
        **_ONE_TOKEN_AT_A_TIME,
        **filters,
        do_sample=sampling.draws,
        repetition_penalty=sampling.repetition_penalty,
        max_new_tokens=job.max_new_tokens,
        eos_token_id=list(job.stop_token_ids),
    )
    if config.pad_token_id is None:
        config.pad_token_id = job.stop_token_ids[0]
    return config


def own_processors(job: Job, prompt_length: int) -> LogitsProcessorList:
    """The processors of a job that transformers does not have.

    They run before the mask, so none may forbid tokens: those that it leaves could all be forbidden by the mask. The
    ids that they get have ``prompt_length`` tokens before the answer.
    """
    sampling, processors = job.sampling, LogitsProcessorList()
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(OccurrencePenalties(prompt_length, sampling.presence_penalty, sampling.frequency_penalty))
    if sampling.logit_bias:
        processors.append(LogitBias(sampling.logit_bias))
    return processors


def all_processors(model: Any, job: Job) -> LogitsProcessorList:
    """The processors that generate() would call for a job of a decoder, in order, without the mask."""
    config = effective_config(model, {"generation_config": generation_config(model, job)})
    device, length = input_device(model), len(job.prompt)
    model._prepare_special_tokens(config, True, device=device)  # the processors read the stop tokens as a tensor
    return model._get_logits_processor(
        config, input_ids_seq_length=length, logits_processor=own_processors(job, length), device=device
    )


def answer_seeds(job: Job, answers: Iterable[int]) -> list[int] | None:
    """The seeds of some answers of a job, as signed 64-bit ints; None if it has no seed or is greedy."""
    if job.sampling.seed is None or not job.sampling.draws:
        return None
    return [as_int64((job.sampling.seed + answer) % (1 << BITS)) for answer in answers]


# OpenAI's penalties and logit_bias as logits processors. They compute everything from the token ids that they are
# called with, and keep no state. So they are right in any loop: for drafts that are rejected, for rows that were rolled
# back, and for rows that moved in the batch.


class OccurrencePenalties(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Subtracts from the logits of the tokens that the answer has already, as OpenAI defines it.

    Args:
        prompt_length: tokens before the answer, which do not count.
        presence: subtracted once from each token of the answer.
        frequency: subtracted for each time that the token is in the answer.
    """

    keeps_no_state = True

    def __init__(self, prompt_length: int, presence: float, frequency: float):
        self._prompt_length = prompt_length
        self._presence, self._frequency = presence, frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), a new tensor, given the ids so far (rows, length)."""
        answer = input_ids[:, self._prompt_length :]
        counts = torch.zeros_like(scores).scatter_add_(1, answer, torch.ones_like(answer, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


class LogitBias(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Adds a number to the logits of each of some token ids."""

    keeps_no_state = True

    def __init__(self, bias: Mapping[int, float]):
        self._token_ids, self._values = list(bias), list(bias.values())

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), a new tensor."""
        index = torch.tensor(self._token_ids, device=scores.device)
        return scores.index_add(1, index, scores.new_tensor(self._values).expand(len(scores), -1))


@dataclass(eq=False)
class SharedAnswer:
    """An answer in a shared batch: its row, its output, and how its tokens are chosen.

    A manager carries it among the keyword arguments of a request, and keeps it when it starts a request again that has
    lost its cache. Its thread alone writes the answer, once it is queued there.

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

    running: RunningJob
    number: int
    row: Row
    budget: int | None
    scoring: Scoring
    forced_text: ForcedText | None
    seed: int | None
    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        self.ids = [*self.job.prompt]  # prompt and output
        self._delivered = 0
        # Tokens that the row has taken already, and that are chosen next, with the masks that the limit has narrowed.
        self._forced: deque[tuple[int, Narrowed | None]] = deque()
        self._narrowed: Narrowed | None = None  # what the limit does to the next token
        self._masses = MassRecord(weighs_all=self.job.log_mass)  # what the limits left, and the format if that is asked
        self._after_choice = True  # the fast loop looks for forced text at the start, and after each token it chooses
        self._words = allocate_bitmask(1, self.vocabulary.padded_size)
        self._entries: list[TokenLogprob] = []  # entries of tokens that are not delivered yet
        self._recorder: LogprobRecorder | None = None
        if (top := self.job.top_logprobs) is not None:
            stops = self.vocabulary.stops_with_logits(self.job.stop_token_ids)
            self._recorder = LogprobRecorder(
                self.vocabulary, [self.row.fork()], stop_token_ids=stops, tokens_left=self._tokens_left, top=top
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedAnswer:
        return self  # the manager copies the arguments of a request that it starts again

    @property
    def job(self) -> Job:
        """The job that it belongs to."""
        return self.running.job

    @property
    def batch_key(self) -> Hashable:
        """Answers with equal keys can be processed in one call; those whose processors read the output are alone."""
        if self.scoring.wants_batch:
            return id(self)
        return self.job.sampling.draws, *(getattr(self.job.sampling, name) for name in FILTERS)

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.ids) - len(self.job.prompt)

    @property
    def is_open(self) -> bool:
        """Whether further tokens are still wanted."""
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
                self.row.advance(token_id)
                self._after_choice = True

    def mask(self) -> Tensor | None:
        """(words,) int32 on CPU: the allowed next tokens, valid until the next call; None if all are.

        Raises:
            GenerationError: the constraint cannot be continued.
        """
        if self.row.matcher is None:
            return None
        left = self._tokens_left(self.num_generated)
        if self._after_choice and self.forced_text is not None:
            self._after_choice = False
            forced = self.forced_text.advance(self.row, self.ids, left, loose=False)
            narrowed = self.forced_text.narrowed
            self._forced.extend((each, narrowed.get(index)) for index, each in enumerate(forced.token_ids))
        if self._forced:
            token_id, self._narrowed = self._forced[0]
            self._words.numpy()[0] = self.vocabulary.bitmask_of([token_id])
        elif self.row.fill(self._words, 0, left):
            self._narrowed = self.row.narrowed(left, self._words[0].numpy(), always=self.job.log_mass)
        else:
            raise left_constraint(self.row.dead_end)
        return self._words[0]

    def weigh(self, scores: Tensor) -> None:
        """Weigh what the masks leave of the probability of the next token.

        Args:
            scores: (1, vocab) before the mask.
        """
        self._masses.see(scores, {} if self._narrowed is None else {0: self._narrowed})
        self._masses.note(0, self.num_generated, 0)

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
            made = output.generated_tokens
            log_masses = self._masses.log_masses(0, len(made), is_free=self.row.matcher is None)
            steps = self._masses.steps(0, len(made))
            self.running.emit(ended(self.number, self.job, made, steps, log_masses, self.vocabulary))

    def _tokens_left(self, num_generated: int) -> int | None:
        return None if self.budget is None else self.budget - num_generated


class BatchSampler(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Chooses the tokens of all answers in a manager's batch, each by its own job's sampling and constraint.

    It is the manager's only logits processor. The manager takes the largest score, so this class adds noise where
    tokens are drawn: the largest of log p + Gumbel noise is a sample of p. Seeded noise depends on seed, position and
    token alone, as in the fast loop, which gives the same tokens.

    Called on the manager's generation thread, never inside a CUDA graph.

    Args:
        width: columns of the logits.
        stats: of the shared batches; written.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"answer": SharedAnswer}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, width: int, stats: SessionStats):
        self._width, self._stats = width, stats
        self._batch: list[SharedAnswer] = []
        self._bitmask = allocate_bitmask(0, width)  # (rows, words)
        self._masked: set[int] = set()  # the rows of the batch that have a mask

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """The tensor of arguments, (1,) int32, is not used."""

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Take the tokens of the last batch, and fill the masks of the next one.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each row of logits.

        Returns:
            (rows,) int32, not used.
        """
        start = time.perf_counter_ns()
        states = [future.state for future in requests_with_new_token]
        self._batch = [state.logit_processor_kwargs["answer"] for state in states]
        if len(self._bitmask) < len(states):
            self._bitmask = allocate_bitmask(len(states), self._width)
        self._masked.clear()
        for row, (state, answer) in enumerate(zip(states, self._batch, strict=True)):
            try:
                answer.take(new_tokens(state, answer.num_generated))
                mask = answer.mask() if answer.is_open else None
                if mask is not None:
                    self._bitmask[row] = mask
                    self._masked.add(row)
            except Exception as error:
                answer.fail(error)
        self._stats.calls += 1
        self._stats.forwards += 1
        self._stats.tokens += len(states)
        self._stats.masked_rows += len(self._masked)
        self._stats.fill_ns += time.perf_counter_ns() - start
        return torch.zeros(len(states), dtype=torch.int32, device="cpu")

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """Scores whose largest one is the chosen token of each row.

        Args:
            scores: (>= rows, vocab) float32: the logits; read only.
            tensor_arg: not used.
        """
        start = time.perf_counter_ns()
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for row, answer in enumerate(self._batch):
            if answer.is_open:
                groups[answer.batch_key].append(row)
        chosen = scores.clone()  # the scores may be the model's own
        for rows in groups.values():
            try:
                chosen[rows] = self._scored(scores[rows], rows)
            except Exception as error:
                for row in rows:
                    self._batch[row].fail(error)
        self._stats.apply_ns += time.perf_counter_ns() - start
        return chosen

    def _scored(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """(rows, vocab) scores for rows with the same settings."""
        answers = [self._batch[row] for row in rows]
        ids = [answer.ids for answer in answers]
        scores = answers[0].scoring(ids, logits, lambda unmasked: self._apply_masks(unmasked, rows))
        final = scores + _noise(answers, scores) if answers[0].job.sampling.draws else scores
        recorded = [i for i, answer in enumerate(answers) if answer.job.top_logprobs is not None]
        if recorded:
            token_ids = final[recorded].argmax(-1).tolist()
            for i, token_id in zip(recorded, token_ids, strict=True):
                try:
                    answers[i].record(logits[i : i + 1], scores[i : i + 1], token_id)
                except Exception as error:
                    answers[i].fail(error)
        return final

    def _apply_masks(self, scores: Tensor, rows: Sequence[int]) -> Tensor:
        governed = [i for i, row in enumerate(rows) if row in self._masked]
        if not governed:
            return scores
        for i in governed:
            self._batch[rows[i]].weigh(scores[i : i + 1])
        masked, alive = apply_bitmask(scores, self._bitmask[list(rows)], governed)
        for i, ok in zip(governed, alive, strict=True):
            if not ok:
                reason = "none of the tokens that the constraint allows has a finite score"
                self._batch[rows[i]].fail(GenerationError(reason))
        return masked


def _noise(answers: Sequence[SharedAnswer], scores: Tensor) -> Tensor:
    """(rows, vocab) float32 Gumbel noise, from the seeds of the answers that have one."""
    tiny = torch.finfo(torch.float32).tiny
    seeded = [i for i, answer in enumerate(answers) if answer.seed is not None]
    noise = torch.empty_like(scores)
    if len(seeded) < len(answers):
        noise = -noise.exponential_().clamp_(min=tiny).log_()
    if seeded:
        seeds = torch.tensor([answers[i].seed for i in seeded], device=scores.device)
        positions = torch.tensor([answers[i].num_generated for i in seeded], device=scores.device)
        noise[seeded] = gumbel(seeds, positions, torch.arange(scores.shape[-1], device=scores.device)).to(noise.dtype)
    return noise
