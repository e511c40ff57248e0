"""``hg.score``: the probability of each option of a choice after a prompt.

Token prefixes are expanded until one option is left. An option has many tokenizations, and where forced text is
appended without a choice, only some of them can occur. So the probability of an option is a sum over the paths on which
the fast loop may write it. A node is a token prefix after which a token has to be chosen and several options are still
possible; its mass is the probability that the loop reaches it. The heaviest node is expanded first, so little mass is
left when the search ends.
"""

from __future__ import annotations

import enum
import heapq
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin

import torch
from torch import Tensor

from ..constraints.argument_advice import SCORE, explains_its_arguments
from ..constraints.argument_checks import BATCH_SIZE, FLAG, check, whole
from ..constraints.coerce import coerce
from ..constraints.values import Choice, JsonSchema
from ..errors import InvalidConstraint, reading, shown
from ..guide import Guide, calls_of
from ..hf.decode.forced_text import ForcedText
from ..session.logprobs import log_softmax
from ..session.row import Row
from ..vocabulary.bitmask import allocate_bitmask, unpack
from ..vocabulary.tokens import Vocabulary
from .arguments import GenerateOptions
from .plan import Plan, plan
from .prefix_logits import PrefixLogits


class OptionScore(NamedTuple):
    """How likely one option is.

    ``probability`` is that with which ``hg.generate`` samples it: between the bounds ``low`` and ``high``, and equal to
    both if the search was complete. ``logprob`` is the natural log probability that the model gives to the option's
    text as the tokenizer writes it after the prompt, without a mask and without a stop token.
    """

    probability: float
    low: float
    high: float
    logprob: float


@dataclass(frozen=True)
class ChoiceScores:
    """The options of one prompt and the probability of each.

    Args:
        options: the score of each option, in the caller's order. An option is a text, or the member of an Enum where
            the choices are members.
        unresolved: probability of the token prefixes that were not expanded, because ``max_prefixes`` was reached; 0.0
            if the search was complete.
        num_prefixes: number of expanded token prefixes.
    """

    options: Mapping[Any, OptionScore]
    unresolved: float
    num_prefixes: int

    @property
    def best(self) -> Any:
        """The most probable option; among equals the first."""
        return max(self.options, key=lambda option: self.options[option].probability)

    @property
    def probabilities(self) -> dict[Any, float]:
        """The probability of each option; they sum to 1."""
        return {option: score.probability for option, score in self.options.items()}

    @property
    def logprobs(self) -> dict[Any, float]:
        """The model's own log probability of each option's usual tokenization."""
        return {option: score.logprob for option, score in self.options.items()}


@dataclass(order=True)
class Node:
    """A token prefix after which a token has to be chosen. The heaviest sorts first."""

    minus_mass: float  # minus the probability that the loop reaches the node
    number: int  # among equally heavy nodes the older sorts first
    token_ids: list[int] = field(compare=False)  # the prefix
    text: bytes = field(compare=False)  # its bytes
    row: Row = field(compare=False)  # the row after the prefix


@dataclass(eq=False, repr=False)
class OptionSearch:
    """The search after one prompt."""

    options: Sequence[bytes]  # without duplicates
    row: InitVar[Row]  # at the start of the answer; the search owns it from now on
    before: Sequence[int]  # token ids of the prompt
    _: KW_ONLY
    forced: ForcedText  # finds forced text, as the fast loop does
    vocabulary: Vocabulary
    stop_token_ids: Sequence[int]  # tokens that end a row
    tokens_left: Callable[[int], int | None]  # the rest of the budget after a number of tokens; None without a budget
    max_prefixes: int  # the greatest number of nodes to expand
    num_prefixes: int = field(default=0, init=False)  # nodes that were expanded

    def __post_init__(self, row: Row) -> None:
        self._order = sorted(range(len(self.options)), key=lambda i: self.options[i])
        self._sorted = [self.options[i] for i in self._order]
        self._bitmask = allocate_bitmask(1, self.vocabulary.padded_size)
        self._low = [0.0] * len(self.options)  # in sorted order
        self._open: list[Node] = []
        self._add(1.0, [], b"", row)

    @property
    def heaviest(self) -> float:
        """The mass of the next node; 0.0 if there is none."""
        return -self._open[0].minus_mass if self._may_expand else 0.0

    @property
    def _may_expand(self) -> bool:
        return bool(self._open) and self.num_prefixes < self.max_prefixes

    def next_node(self) -> Node | None:
        """The heaviest node, for ``expand``; None if there is none, or no more may be expanded."""
        if not self._may_expand:
            return None
        self.num_prefixes += 1
        return heapq.heappop(self._open)

    def expand(self, node: Node, logits: Tensor) -> bool:
        """Share the mass of a node among the allowed tokens, by the logits (vocab,) after the node's tokens.

        Returns:
            Whether an allowed token had a finite logit; the mass of the node is lost where none had.
        """
        allowed = self._allowed(node)
        token_ids = torch.nonzero(allowed).flatten()
        if not len(token_ids):
            return True  # a dead end, which the loop would report; it leads to no option
        scores = logits.cpu().double()[token_ids]
        if scores.isnan().any() or not scores.isfinite().any():
            return False
        shares = scores.softmax(-1).tolist()
        for token_id, share in zip(token_ids.tolist(), shares, strict=True):
            if mass := -node.minus_mass * share:
                self._follow(node, token_id, mass)
        return True

    def bounds(self) -> tuple[list[float], list[float], list[float]]:
        """For each option a lower bound of its probability, an estimate, and an upper bound.

        The estimate shares the mass of each node that was not expanded equally among its options.
        """
        low, middle, high = list(self._low), list(self._low), list(self._low)
        for node in self._open:
            first, end = self._range(node.text)
            for index in range(first, end):
                high[index] -= node.minus_mass
                middle[index] -= node.minus_mass / (end - first)
        places = sorted(range(len(self._order)), key=self._order.__getitem__)  # the place of each option in order
        low, middle, high = ([min(values[place], 1.0) for place in places] for values in (low, middle, high))
        return low, middle, high

    @property
    def unresolved(self) -> float:
        """The mass of the nodes that were not expanded."""
        return sum((-node.minus_mass for node in self._open), 0.0)

    def _allowed(self, node: Node) -> Tensor:
        if not node.row.fill(self._bitmask, 0, self.tokens_left(len(node.token_ids))):
            self._bitmask.zero_()
        return unpack(self._bitmask, self.vocabulary.padded_size)[0]

    def _follow(self, node: Node, token_id: int, mass: float) -> None:
        if token_id in self.stop_token_ids:
            self._low[bisect_left(self._sorted, node.text)] += mass
            return
        text = node.text + self.vocabulary.decode_bytes([token_id])
        first, end = self._range(text)
        if end - first == 1:  # whichever tokens follow
            self._low[first] += mass
            return
        row = node.row.fork()
        row.advance(token_id)
        self._add(mass, [*node.token_ids, token_id], text, row)

    def _add(self, mass: float, token_ids: list[int], text: bytes, row: Row) -> None:
        """Add a node after the forced text, unless one option is left."""
        first, end = self._range(text)
        if end - first == 1:
            self._low[first] += mass
            return
        left = self.tokens_left(len(token_ids))
        forced = self.forced.advance(row, [*self.before, *token_ids], left, loose=False).token_ids
        text += self.vocabulary.decode_bytes(forced)
        node = Node(-mass, self.num_prefixes + len(self._open), [*token_ids, *forced], text, row)
        heapq.heappush(self._open, node)

    def _range(self, text: bytes) -> tuple[int, int]:
        """The slice of the sorted options that begin with a text; UTF-8 has no byte 0xff."""
        return bisect_left(self._sorted, text), bisect_left(self._sorted, text + b"\xff")


# Sampling of one row, without warpers, whatever the model's own generation config has.
UNWARPED = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_beams": 1, "num_return_sequences": 1}
_SCALARS = (str, int, float, type(None), enum.Enum)  # a list of these is the options of all prompts
_NAMED = 8  # options in a message


@explains_its_arguments(SCORE)
def score(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    choices: Any,
    *,
    guide: Guide | None = None,
    backend: str = "auto",
    batch_size: int = 8,
    max_prefixes: int = 256,
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Any] | None = None,
    describe: bool = False,
) -> list[ChoiceScores]:
    """The probability of each option, for classification with confidence.

    An option's probability is that with which ``hg.generate(model, tokenizer, prompts, hg.Choice(choices),
    do_sample=True, temperature=1.0, top_k=0, top_p=1.0)`` returns it: over all tokenizations that can occur, where
    forced text is appended as there, and where stopping competes with continuing if one option begins another. Warpers
    and processors of the model's generation config are not used. No token is sampled.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer; or its processor, if chats contain images, video or audio.
        prompts: a text, a chat, or a list of those; see ``hg.generate``.
        choices: the options of all prompts: a list of strings, an ``hg.Choice``, an Enum whose values are strings, or
            a Literal of strings; or a list with one of these per prompt. The bare strings are scored, but
            ``hg.generate`` with the Enum or the Literal itself writes them as JSON, with quotes.
        guide: a Guide for this model and tokenizer; None makes one and caches it.
        backend: "auto", or the name of a backend.
        batch_size: prompts that run at a time, and token prefixes of them.
        max_prefixes: the maximum number of token prefixes to run for each prompt. The probability that they do not
            decide is ``ChoiceScores.unresolved``, and makes ``low`` and ``high`` differ.
        chat_template_kwargs: variables of the chat template; see ``hg.generate``.
        documents: for chat templates with documents; see ``hg.generate``.
        describe: whether each prompt describes the options; see ``hg.generate``.

    Returns:
        One ``ChoiceScores`` per prompt, in order.

    Raises:
        InvalidConstraint: ``choices`` are not options.
        BatchSizeError: the number of choices is not the number of prompts.
        PromptError: a chat template refuses a chat, or the model would not see part of it.
        BudgetTooSmall: no option closes within the ``max_new_tokens`` of the model's generation config.
        StopTokenError: no token would end an answer.
        EmptyIntersection: the model's logits are NaN for a token that has to be chosen.
        UnsupportedModel: several processes hold the model.
        InvalidArgument: ``batch_size`` or ``max_prefixes`` is less than 1.
    """
    with reading("score"):
        check("batch_size", batch_size, BATCH_SIZE)
        check("max_prefixes", max_prefixes, whole(1))
        check("describe", describe, FLAG)
        options = GenerateOptions(
            guide=guide,
            backend=backend,
            batch_size=batch_size,
            draft=None,
            chat_template_kwargs=chat_template_kwargs,
            documents=documents,
            describe=describe,
        )
        planned = plan(model, tokenizer, prompts, _choices(choices), options, UNWARPED).for_own_loop("score")
    return [scores for indices in planned.batches() for scores in _Scorer(planned, indices, max_prefixes).scores()]


def _choices(choices: Any) -> Choice | list[Choice]:
    """One Choice for all prompts, or one per prompt."""
    per_prompt = isinstance(choices, (list, tuple)) and any(not isinstance(item, _SCALARS) for item in choices)
    return [_choice(item) for item in choices] if per_prompt else _choice(choices)


def _choice(value: Any) -> Choice:
    """The options; an error suggests the texts that were probably meant, or ``hg.generate``."""
    if isinstance(value, Choice):
        return value
    constraint = coerce(value) if isinstance(value, dict) else None  # {"choice": [...]} and the like
    if isinstance(constraint, Choice):
        return constraint
    values: Any = value
    if isinstance(constraint, JsonSchema) and isinstance(constraint.schema, dict):
        values = constraint.schema.get("enum")
    elif isinstance(value, enum.EnumMeta):
        values = [*value]
    elif get_origin(value) is Literal:
        values = list(get_args(value))
    if not isinstance(values, (list, tuple)):
        raise InvalidConstraint(
            f"choices: expected the options as a list of strings, such as ['yes', 'no'], got {shown(value)} of "
            f"type {type(value).__name__}; use hg.generate for other values"
        )
    plain = [item.value if isinstance(item, enum.Enum) else item for item in values]
    if isinstance(constraint, JsonSchema) or not all(isinstance(item, str) for item in plain):
        texts = [item if isinstance(item, str) else json.dumps(item, default=str) for item in plain]
        raise InvalidConstraint(
            f"choices: expected the options as strings, got {shown(value)}; hg.score compares texts: pass "
            f"{texts if len(texts) <= _NAMED else [*texts[:_NAMED], '...']}, or use hg.generate for JSON values"
        )
    return Choice(values)


class _Scorer:
    """Scores the options after the prompts of one batch."""

    def __init__(self, plan: Plan, indices: Sequence[int], max_prefixes: int):
        self._plan = plan
        self._indices = indices
        vocabulary = plan.guide.vocabulary
        inputs = plan.inputs.of_call(indices, plan.settings)[1]
        self._logits = PrefixLogits(
            plan.model, inputs, plan.pad_token_id, plan.generate_kwargs, vocabulary.some_text(5)
        )
        options = plan.session_options(len(self._logits.before[0]), overlap=False)
        calls, stops = calls_of(plan.guide), plan.stop_token_ids
        self._session = calls.session_of([plan.requests[i] for i in indices], options)
        forced = ForcedText(vocabulary, calls.continuation, stops, retokenize=False, may_stop=True)
        self._searches = [
            OptionSearch(
                [option.encode() for option in _choice_of(plan, i).options],
                row,
                before,
                forced=forced,
                vocabulary=vocabulary,
                stop_token_ids=plan.stop_token_ids,
                tokens_left=self._session.tokens_left,
                max_prefixes=max_prefixes,
            )
            for i, row, before in zip(indices, self._session.begin(len(indices)), self._logits.before, strict=True)
        ]

    def scores(self) -> list[ChoiceScores]:
        """Search until every prompt is decided, or its prefixes are used up."""
        while nodes := list(self._next_nodes()):
            numbers = [number for number, _ in nodes]
            logits = self._logits(numbers, [node.token_ids for _, node in nodes])
            for (number, node), after in zip(nodes, logits[:, -1], strict=True):
                if not self._searches[number].expand(node, after):
                    raise self._session.nothing_left(number, node.row, len(node.token_ids))
        results = []
        for i, search, logprobs in zip(self._indices, self._searches, self._logprobs(), strict=True):
            low, middle, high = search.bounds()
            scores = dict(
                zip(_choice_of(self._plan, i).values, map(OptionScore, middle, low, high, logprobs), strict=True)
            )
            results.append(ChoiceScores(scores, search.unresolved, search.num_prefixes))
        return results

    def _next_nodes(self) -> Iterator[tuple[int, Node]]:
        """The heaviest nodes of all prompts, as many as one batch takes."""
        for _ in range(self._plan.step):
            number = max(range(len(self._searches)), key=lambda i: self._searches[i].heaviest)
            node = self._searches[number].next_node()
            if node is None:
                return
            yield number, node

    def _logprobs(self) -> list[list[float]]:
        """For each prompt the log probability of each option's usual tokens."""
        rows: list[int] = []
        tokens: list[list[int]] = []
        for number, (i, before) in enumerate(zip(self._indices, self._logits.before, strict=True)):
            for option in _choice_of(self._plan, i).options:
                rows.append(number)
                tokens.append(calls_of(self._plan.guide).continuation(before, option.encode()) if option else [])
        logprobs: list[list[float]] = [[] for _ in self._indices]
        step = self._plan.step
        for first in range(0, len(rows), step):
            chunk = tokens[first : first + step]
            keep = max(1, *map(len, chunk))
            logits = self._logits(rows[first : first + step], [token_ids[:-1] for token_ids in chunk], keep)
            for row, token_ids, columns in zip(rows[first : first + step], chunk, logits, strict=True):
                own = log_softmax(columns[keep - len(token_ids) :])  # (tokens, vocab)
                values = own.gather(1, torch.tensor(token_ids, dtype=torch.long, device=own.device)[:, None])
                logprobs[row].append(float(values.sum()))
        return logprobs


def _choice_of(plan: Plan, index: int) -> Choice:
    choice = plan.requests[index].constraint
    assert isinstance(choice, Choice)
    return choice
