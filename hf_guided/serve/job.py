"""The request as it is read (``Call``), the work of an engine for one of its prompts (``Job``), and the events.

A ``Call`` is read from a body and checked, and has not touched the model. A ``Job`` has: its prompt is rendered, its
constraint compiled. The web side and the engines share this file alone: an engine knows no HTTP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, JsonObject, JsonSchema
from ..errors import BudgetTooSmall
from ..session.logprobs import TokenLogprob
from ..session.mass_record import is_shortened
from ..session.reasoning_gate import gate_constraint
from ..session.requests import Request, check_budget, row_after_prefix
from ..session.row import Row
from ..trace.events import LimitStep
from ..vocabulary.tokens import Vocabulary

Kind = Literal["chat", "completion", "response"]
# A prompt that a template renders, a text, or token ids as they are.
Prompt: TypeAlias = "Chat | str | tuple[int, ...]"


@dataclass(frozen=True)
class Chat:
    """Messages for the model's own chat template.

    Args:
        messages: as transformers' templates read them: role and content, tool calls, tool answers; content is a text or
            a list of parts.
        calls: whose tools the prompt shows; None shows none.
        template_variables: ``enable_thinking`` and the like; never a template, nor an argument of
            ``apply_chat_template``.
    """

    messages: tuple[Mapping[str, Any], ...]
    calls: ToolCalls | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)


# The fields of Sampling that decide which tokens are drawn, and how often.
FILTERS = ("temperature", "top_k", "top_p", "min_p")
# With a temperature below this, probabilities are 0 and 1 but for rounding, and scores divided by it may be infinite.
_COLDEST = 1e-5


@dataclass(frozen=True)
class Sampling:
    """The choice of tokens, in this order: penalties and bias, the mask, temperature, top-k, top-p, min-p, the choice.

    Args:
        temperature: 0 takes the best token, and so does less than 1e-5.
        top_p: the smallest set of the most likely tokens with this probability; 1 keeps all.
        top_k: the number of most likely tokens; None keeps all.
        min_p: tokens with less than this share of the best token's probability are left out.
        repetition_penalty: as in transformers, over prompt and answer; 1 changes nothing.
        presence_penalty: subtracted once from the logit of each token in the answer, as OpenAI defines it.
        frequency_penalty: subtracted for each time that a token is in the answer, as OpenAI defines it.
        logit_bias: added to the logits of these token ids.
        seed: of this job's random numbers; answer ``i`` of a job uses ``seed + i``. None draws from torch's generator.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn; otherwise the most likely ones are taken."""
        return self.temperature >= _COLDEST


@dataclass(frozen=True)
class Call:
    """A request as it is read.

    Args:
        kind: of the answer's shape.
        prompts: one, or several for /v1/completions.
        constraint: of every answer; None is free.
        param: the field of the body that holds the constraint, for errors.
        sampling: how tokens are chosen.
        max_new_tokens: of an answer, thinking included; None: as the server's limit and the model's context allow.
        num_answers: to each prompt (``n``).
        best_of: how many answers are generated for each prompt, of which the ``num_answers`` with the highest mean log
            probability are given.
        stop: texts that end an answer and are not part of it.
        stop_token_ids: further tokens that end an answer.
        logprobs: report log probabilities, with this many alternatives; None reports none.
        echo: begin each answer's text with its prompt (/v1/completions).
        stream: answer in server-sent events.
        include_usage: with ``stream``: a last chunk with the usage.
        think: True or False where the request says it (``reasoning_effort``, ``enable_thinking``); None leaves it to
            the server.
        body: fields that an answer of /v1/responses repeats.
    """

    kind: Kind
    prompts: tuple[Prompt, ...]
    constraint: Constraint | None = None
    param: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int | None = None
    num_answers: int = 1
    best_of: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    echo: bool = False
    stream: bool = False
    include_usage: bool = False
    think: bool | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


EndReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Job:
    """A prompt, what to generate for it, and how the tokens are to be read.

    Args:
        request_id: unique in the server; for the log.
        prompt: token ids.
        guided: the constraint, compiled, and the thinking before the answer; a free answer has no constraint.
        sampling: how tokens are chosen.
        max_new_tokens: of each answer.
        stop_token_ids: tokens that end an answer, and are no part of its text.
        num_answers: how many answers to the same prompt.
        top_logprobs: report log probabilities with this many alternatives; None reports none.
        model_inputs: further inputs of the model for one row, such as ``pixel_values``; such a job runs alone.
        stop: texts that end an answer. Its reader finds them, not its engine.
    """

    request_id: str
    prompt: tuple[int, ...]
    guided: Request
    sampling: Sampling
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    num_answers: int = 1
    top_logprobs: int | None = None
    model_inputs: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()

    @property
    def log_mass(self) -> bool:
        """Whether the probability that the format leaves is added up."""
        return self.top_logprobs is not None


def first_row(job: Job, stop_token_ids: Sequence[int], prompt: Sequence[int]) -> tuple[Row, int | None]:
    """The row before the first token of an answer, and the token budget for its masks.

    Args:
        job: whose constraint is compiled, or is waited for.
        stop_token_ids: those of its stop tokens that have logits.
        prompt: the tokens that the answer follows, which may have begun the thinking; none in an encoder-decoder.

    Returns:
        A row to fork; and ``max_new_tokens``, or None if no text of the constraint fits: then the answer is cut.

    Raises:
        ConstraintError, BackendError: the constraint cannot be compiled.
    """
    compiled, gate = job.guided.compiled, job.guided.gate
    if compiled is None:
        return Row(None), job.max_new_tokens
    constraint = compiled.result()
    if gate is not None:
        constraint = gate_constraint(constraint, gate, gate.opening(prompt))
    row = row_after_prefix(constraint, job.guided.prefix, stop_token_ids)
    try:
        check_budget(row, job.max_new_tokens)
    except BudgetTooSmall:
        return row, None
    return row, job.max_new_tokens


@dataclass(frozen=True)
class NewTokens:
    """Tokens of one answer, each once and in order; the stop token too.

    Args:
        answer: 0 to ``num_answers - 1``.
        token_ids: at least one.
        logprobs: one for each token where the job asks for them; they may come later than their tokens, in an event
            without tokens.
    """

    answer: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Ended:
    """The last event of one answer.

    Args:
        answer: which.
        reason: "stop" after a stop token, "length" after ``max_new_tokens``.
        error: why it ended before; its text so far is not to be trusted.
        shortened: whether the token limit changed it; see ``GuidedResult``.
        squeezed: whether it lost more by that than white space between the parts of its format.
        log_mass: see ``GuidedResult``; None if it is not known.
    """

    answer: int
    reason: EndReason = "stop"
    error: Exception | None = None
    shortened: bool = False
    squeezed: bool = False
    log_mass: float | None = None


def ended(
    answer: int,
    job: Job,
    token_ids: Sequence[int],
    steps: Mapping[int, LimitStep],
    log_masses: Sequence[float] | None,
    vocabulary: Vocabulary,
) -> Ended:
    """The last event of an answer that its engine has finished, with the stop token among its tokens.

    ``steps`` is what the limits did to it, ``log_masses`` what the format left at each step; None is not known.
    """
    reason: EndReason = "stop" if token_ids and token_ids[-1] in job.stop_token_ids else "length"
    shortened = is_shortened(steps, sampled=job.sampling.draws)
    overruled = {i: step.preferred for i, step in steps.items() if step.overruled and not step.thinking}
    # A sample may lose half of its probability without the most probable token of any step.
    squeezed = shortened and (
        not overruled or any(_lost(job, token_ids, index, vocabulary, one) for index, one in overruled.items())
    )
    return Ended(answer, reason, None, shortened, squeezed, None if log_masses is None else math.fsum(log_masses))


def _lost(job: Job, token_ids: Sequence[int], index: int, vocabulary: Vocabulary, preferred: int) -> bool:
    """Whether an answer has lost content because the limit forbade the token that was preferred to that at an index.

    Not if that is white space without meaning.
    """
    guided, is_stopped = job.guided, token_ids[-1] in job.stop_token_ids
    space = vocabulary.token_bytes[preferred] or b""
    if not space.isspace():
        return True
    constraint = guided.constraint
    if not isinstance(constraint, (JsonSchema, JsonObject, ToolCalls)) or not is_stopped:
        # A text that went on after white space, as to a further line, has lost what would have followed.
        return is_stopped and index == len(token_ids) - 1
    if guided.compiled is not None:  # in its vocabulary, marks are text
        vocabulary = guided.compiled.result().vocabulary
    before, after = vocabulary.decode_bytes(token_ids[:index]), vocabulary.decode_bytes(token_ids[index:-1])
    if guided.gate is not None:
        gate = guided.gate.for_vocabulary(vocabulary)
        before = gate.vocabulary.decode_bytes(token_ids[:index]).rpartition(gate.end)[2]
    try:  # inside a string it would have changed the value
        with_space, without = (_value(constraint, b.decode()) for b in (before + space + after, before + after))
    except (ValueError, RecursionError):
        return True
    return bool(with_space != without)


def _value(constraint: JsonSchema | JsonObject | ToolCalls, text: str) -> Any:
    """The value of an answer, whatever the white space between its parts."""
    if not isinstance(constraint, ToolCalls):
        return json.loads(text)
    found = constraint.parse(text)
    return found.calls, found.text.strip() if found.value is None else found.value


Event: TypeAlias = "NewTokens | Ended"
