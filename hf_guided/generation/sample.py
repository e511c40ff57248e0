"""``hg.sample``: weighted samples of a model's distribution, given that the text is in the format.

p is the model's next-token distribution at temperature T, taken at each step, with no other warper. L is the set of
token sequences that the masks allow, the token limit included, each ended by one stop token. The target is
pi(x) = p(x) / p(L) for x in L. Masked sampling draws from another distribution: at each step it divides by the mass m_t
that the mask leaves, so its probability of x is p(x) / w(x), where w is the product of the m_t.

"expand" (Fearnhead and Clifford 2003; for language models Lew et al. 2023, arXiv 2306.03081). A *prefix* is an
unfinished token sequence; all of them differ, and each has a weight: at first the empty one has 1. A step

1 multiplies the weight of each prefix by the probability of each token after it that its mask allows: its children
2 adds the weight of a child that is a stop token to its text, which is finished, and needs no row of the model
3 keeps all other children if they are at most N = ``particles``; else those whose weight is at least c as they are,
  and a systematic draw among the others, each with weight c: an item of weight w < c stays with probability w / c

Finished texts take part in the N: c solves sum min(w / c, 1) = N over children and finished texts. So the heavier the
finished texts are, the fewer rows are spent on light prefixes, and a run ends when little is open. But no finished
text is dropped for that. All items below c lie on one line, in lengths of their weights, with points every c after a
uniform start; a child with a point stays. The finished texts on the line share the weight of the points that fall on
them, in proportion to their own: the mean of what drawing one for each point would give. More than ``_MOST_TEXTS``
finished texts are thinned by the same rule. After each step, the expected weight of every sequence is that in step 1
and 2, so the expected weight of every text at the end is its probability; and step 3 keeps the total weight as it is.

"importance", the baseline: N independent masked samples, each with weight w / N; equal ones share a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..constraints.argument_advice import SAMPLE, explains_its_arguments
from ..constraints.argument_checks import SAMPLE as RULES
from ..constraints.argument_checks import check
from ..errors import EmptyIntersection, InvalidArgument, InvalidConstraint, reading
from ..guide import Guide, calls_of
from ..hf.decode.cache_slots import CacheSlots, check_reorders
from ..hf.decode.call import GenerateCall, prepare_call
from ..hf.seeds import as_int64, prompt_seeds
from ..session.masks import MaskFiller
from ..session.row import Row, advance
from ..session.transfers import to_device
from .arguments import GenerateOptions
from .plan import Plan, plan
from .samples import Samples, log_sum
from .score import UNWARPED

_MOST_TEXTS = 10_000  # finished texts that are kept, if there are not more particles
_EQUAL = 1 - 1e-12  # a weight that is c but for rounding is kept as it is


def keep(logs: Tensor, offsets: Tensor, others: Tensor, most: int, draw: float) -> tuple[Tensor, Tensor, Tensor]:
    """Keep a few items, each with its own weight as the mean of its new one; the sum of all weights stays the same.

    Args:
        logs: (rows, columns) floating point, contiguous, any device; overwritten. The log weight of an item is this
            plus the offset of its row. If at most ``most`` weights are positive, all of these items are kept.
        offsets: (rows,) float64, on the same device.
        others: (any,) float64 on the CPU: log weights that take part in the threshold, and are only scaled.
        most: items to keep together with the others.
        draw: a uniform random number from 0 to below 1.

    Returns:
        The numbers of the items, row * columns + column, ascending; their log weights; those of the others.
    """
    top = logs.topk(min(most, logs.shape[1]))
    best = (top.values + offsets[:, None]).flatten().topk(min(most, top.values.numel()))
    items = best.indices // top.values.shape[1] * logs.shape[1] + top.indices.flatten()[best.indices]
    unit = max([float(best.values[0]), *others.tolist()])
    if unit == -math.inf:
        return items[:0], best.values[:0], others
    logs.view(-1)[items] = -torch.inf
    peaks, ends = _ends(logs, offsets.dtype)  # the rest of the items
    weights, beside, scales = (best.values - unit).exp(), (others - unit).exp(), (offsets + peaks - unit).exp()
    lengths = ends[:, -1] * scales  # (rows,)
    tail = float(lengths.sum())
    if not tail:
        items, order = items[weights > 0].sort()
        return items, best.values[weights > 0][order], others
    heavy = torch.cat([weights.cpu(), beside]).sort(descending=True).values
    lighter = (heavy.flip(0).cumsum(0).flip(0) + tail)[:most]  # the weight of all items from each on, light ones first
    limits = lighter / torch.arange(most, 0, -1, device="cpu") * _EQUAL  # c, if as many are kept as they are
    limit = float(limits[min(int((heavy[:most] >= limits).sum()), most - 1)])
    stays, light = weights >= limit, beside < limit
    places = max(most - int(stays.sum()) - int((~light).sum()), 0)  # 0 if all others together are lighter than rounding
    # The line: heavy items below c, then the rest row by row, then the light ones of the others.
    first, rest = weights[~stays].cumsum(0), ends.mul_(scales[:, None]).add_((lengths.cumsum(0) - lengths)[:, None])
    length, end, light_length = float(first[-1:].sum()), float(rest[-1, -1]), float(beside[light].sum())
    spacing = (length + end + light_length) / max(places, 1)
    points = (torch.arange(places, dtype=weights.dtype, device=weights.device) + draw) * spacing
    near = items[~stays][torch.searchsorted(first, points[points < length], right=True)]
    far = points[points >= length] - length
    far = torch.searchsorted(rest.view(-1), far[far < end], right=True)
    if light_length and places:
        share = spacing * (places - len(near) - len(far)) / light_length
        others = torch.where(light, others + (math.log(share) if share else -math.inf), others)
    new = torch.full_like(torch.cat([near, far]), unit + math.log(spacing), dtype=weights.dtype)
    items, order = torch.cat([items[stays], near, far]).sort()
    return items, torch.cat([best.values[stays], new])[order], others


def _ends(logs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The greatest number of each row; the sums of the exponentials of the row up to each column, over that one's."""
    peaks = logs.amax(-1).clamp(min=torch.finfo(logs.dtype).min)  # finite also if a row has only -inf
    return peaks.to(dtype), (logs - peaks[:, None]).exp_().cumsum(-1, dtype=dtype)


class Prefix(NamedTuple):
    """An unfinished text."""

    row: Row  # after its tokens
    text: bytes


@dataclass(eq=False, repr=False)
class Particles:
    """The weighted texts after one prompt."""

    row: Row  # at the start of the answer; these particles own it from now on
    filler: MaskFiller  # fills and applies the masks
    stop_token_ids: Sequence[int]  # tokens that end a row
    tokens_left: Callable[[int], int | None]  # the rest of the token limit after a number of tokens
    most: int  # N
    temperature: float = 1.0
    method: str = "expand"  # "expand" or "importance"
    generator: torch.Generator | None = None  # on the CPU; None is torch's own

    def __post_init__(self) -> None:
        self.prefixes = [Prefix(self.row, b"")]
        self.finished: dict[bytes, float] = {}  # text -> log weight
        self.cut: list[float] = []  # log weights of prefixes that could not be finished
        # On the device of the logits, in float64 but for MPS, which has none:
        self._logs = torch.zeros(1)  # log weights of the prefixes, of one sample each
        self._counts = torch.tensor([self.most])  # samples of each prefix; only for "importance"
        self._taken = 0

    def run(self, logits: Tensor, forward: Callable[[Sequence[int], Sequence[int]], Tensor]) -> None:
        """Extend the prefixes, by the logits (1, vocab) after the prompt, until all have ended, or the limit cuts them.

        ``forward`` gets what ``step`` returns, and returns the next logits.
        """
        parents, tokens = self.step(logits)
        while parents and self.tokens_left(self._taken) != 0:
            parents, tokens = self.step(forward(parents, tokens))
        self.cut += self._weights().tolist()  # the prefixes that are left

    def step(self, logits: Tensor) -> tuple[list[int], list[int]]:
        """Extend the prefixes by one token, by the logits (prefixes, vocab) after them.

        Returns:
            For each new prefix the number of the old one, ascending, and its token; empty at the end.

        Raises:
            EmptyIntersection: logits are NaN or infinite.
            InvalidArgument: logits are infinite only after the temperature.
        """
        logs = self._children(logits)
        items = self._expand(logs) if self.method == "expand" else self._draw(logs)
        parents, tokens = (items // logits.shape[1]).tolist(), (items % logits.shape[1]).tolist()
        prefixes: list[Prefix] = []
        for place, (parent, token) in enumerate(zip(parents, tokens, strict=True)):
            row, text = self.prefixes[parent]
            assert row.matcher is not None
            is_last = [parent] != parents[place + 1 : place + 2]  # the last child takes its parent's row
            text += row.matcher.compiled.vocabulary.decode_bytes([token])
            prefixes.append(Prefix(row if is_last else row.fork(), text))
        advance([prefix.row for prefix in prefixes], tokens)
        self.prefixes = prefixes
        self._taken += 1
        return parents, tokens

    def _children(self, logits: Tensor) -> Tensor:
        """(prefixes, vocab) masked logits; the weights of prefixes become those of their children at the logit 0."""
        rows = [prefix.row for prefix in self.prefixes]
        # On a GPU, the logits are computed meanwhile.
        masks = self.filler.fill(rows, [self.tokens_left(self._taken)] * len(rows))
        wide = torch.float32 if logits.device.type == "mps" else torch.float64
        self._logs, self._counts = self._logs.to(logits.device, wide), self._counts.to(logits.device)
        scores = logits if self.temperature == 1 else logits / self.temperature
        totals = scores.logsumexp(-1).to(wide)  # (prefixes,)
        if not bool(totals.isfinite().all()):
            if logits.isfinite().any(-1).all() and not (logits.isnan() | logits.isposinf()).any():
                raise InvalidArgument(
                    f"temperature: {self.temperature} is too small to divide logits in {logits.dtype} by it; choose a "
                    "greater one, or decode greedily with hg.generate",
                    name="temperature",
                )
            raise EmptyIntersection("expected finite logits, got NaN or infinity; check the model's weights and dtype")
        masked, alive = self.filler.apply(scores, masks)
        is_open = torch.as_tensor(alive, device=logits.device).bool()
        if masks.ended:
            is_open[list(masks.ended)] = False
            # An engine that fails does not say that no text follows.
            failed = [i for i in masks.ended if rows[i].failure is not None or rows[i].tail]
            self.cut += self._weights()[failed].tolist()
        self._logs = (self._logs - totals).masked_fill(~is_open, -torch.inf)
        return masked

    def _expand(self, logs: Tensor) -> Tensor:
        """The numbers (prefix * vocab + token) of the children that are kept; stop tokens finish texts."""
        stops = to_device(self.stop_token_ids, logs.device)
        self._finish(range(len(logs)), (logs[:, stops] + self._logs[:, None]).logsumexp(-1))
        logs.index_fill_(1, stops, -torch.inf)
        others = torch.tensor([*self.finished.values()], dtype=torch.float64)
        items, self._logs, others = keep(logs, self._logs, others, self.most, self._uniform())
        self._set_finished([*self.finished], others)
        return items

    def _draw(self, logs: Tensor) -> Tensor:
        """As ``_expand``: each sample of a prefix draws a child, by its probability under the mask."""
        peaks, ends = _ends(logs, self._logs.dtype)
        self._logs = self._logs + peaks + ends[:, -1].log()  # times the mass that the mask leaves
        samples = torch.where(self._logs > -torch.inf, self._counts, 0).tolist()
        # The prefix of each sample.
        prefixes = to_device([i for i, number in enumerate(samples) for _ in range(number)], logs.device)
        draws = torch.rand(len(prefixes), generator=self.generator, dtype=torch.float64).to(ends)
        ends = ends / ends[:, -1:].clamp(min=1) + torch.arange(len(logs), device=logs.device)[:, None]  # length 1
        drawn = torch.searchsorted(ends.view(-1), prefixes + draws, right=True)
        counts = drawn.bincount(minlength=ends.numel())
        items = counts.nonzero().flatten()
        self._counts, self._logs = counts[items], self._logs[items // logs.shape[1]]
        ended = torch.isin(items % logs.shape[1], to_device(self.stop_token_ids, logs.device))
        self._finish((items // logs.shape[1])[ended].tolist(), self._weights()[ended])
        self._logs, self._counts = self._logs[~ended], self._counts[~ended]
        return items[~ended]

    def _finish(self, prefixes: Sequence[int], logs: Tensor) -> None:
        """Add log weights to the texts of prefixes."""
        for i, log in zip(prefixes, logs.tolist(), strict=True):
            if log > -math.inf:
                text = self.prefixes[i].text
                self.finished[text] = log_sum([log, self.finished.get(text, -math.inf)])
        if len(self.finished) > (most := max(self.most, _MOST_TEXTS)):
            texts, weights = [*self.finished], torch.tensor([[*self.finished.values()]], dtype=torch.float64)
            items, kept, _ = keep(weights, torch.zeros(1, dtype=torch.float64), weights[0, :0], most, self._uniform())
            self._set_finished([texts[i] for i in items.tolist()], kept)

    def _set_finished(self, texts: Sequence[bytes], logs: Tensor) -> None:
        self.finished = {text: log for text, log in zip(texts, logs.tolist(), strict=True) if log > -math.inf}

    def _weights(self) -> Tensor:
        """(prefixes,) log weights, of all samples of a prefix together."""
        return self._logs if self.method == "expand" else self._logs + self._counts.log() - math.log(self.most)

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))


@explains_its_arguments(SAMPLE)
def sample(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    particles: int = 32,
    temperature: float = 1.0,
    max_new_tokens: int | None = None,
    method: Literal["expand", "importance"] = "expand",
    seed: int | Sequence[int] | None = None,
    guide: Guide | None = None,
    backend: str = "auto",
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Any] | None = None,
    describe: bool = False,
) -> list[Samples]:
    """Weighted samples of the model's distribution, given that the answer is in the format.

    Masks keep the format, and bend the distribution. Here each text has an unbiased estimate of its probability, over
    all its tokenizations; it is exact if there are never more than ``particles`` unfinished sequences. No other warper
    than ``temperature`` is applied; a warning names those of the model's generation config. Prompts run one by one.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer; or its processor, if chats contain images, video or audio.
        prompts: a text, a chat, or a list of those; see ``hg.generate``.
        constraint: one for all prompts, or a list with one per prompt; not None.
        particles: how many unfinished token sequences are kept, each in a row of its own; more are more exact.
        temperature: divides the logits of each step; above 0.
        max_new_tokens: tokens of an answer, the stop token included; None takes the generation config's, or 512. The
            masks let every text end within it, so that longer texts are not in the format.
        method: "expand" keeps the heaviest sequences and an unbiased draw of the others. "importance" weights as many
            independent masked samples as there are particles: a baseline to compare with.
        seed: one int, or one for each prompt; None draws with torch's generator.
        guide: a Guide for this model and tokenizer; None makes one and caches it.
        backend: "auto", or the name of one; for those that know no way to the end see ``Samples.unfinished``.
        chat_template_kwargs: variables of the chat template; see ``hg.generate``.
        documents: for chat templates with documents.
        describe: whether each prompt describes the format.

    Returns:
        One ``Samples`` per prompt, in order.

    Raises:
        UnknownArgument: an argument that is not listed here, such as a warper.
        UnsupportedModel: several processes hold the model; the rows of its cache cannot be reordered; or its generation
            config has ``stop_strings`` or ``token_healing``.
        EmptyIntersection: the model's logits are NaN or infinite.
        HFGuidedError: also what ``hg.generate`` raises before it runs.
    """
    with reading("sample"):
        for name, value in zip(RULES, (particles, temperature, method, describe), strict=True):
            check(name, value, RULES[name])
        options = GenerateOptions(guide=guide, backend=backend, draft=None, documents=documents, describe=describe)
        options = replace(options, chat_template_kwargs=chat_template_kwargs)
        limit = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
        kwargs = {**UNWARPED, "use_cache": True, **limit}
        planned = plan(model, tokenizer, prompts, constraint, options, kwargs).for_own_loop("sample")
        seeds = prompt_seeds(seed, len(planned.requests))
        if any(request.constraint is None for request in planned.requests):
            raise InvalidConstraint("constraint: expected a format, got None; sample free text with hg.generate")
    planned.settings.warn_of_warpers()
    settings = int(particles), float(temperature), method
    return [_samples(planned, i, seeds, *settings) for i in range(len(planned.requests))]


def _samples(plan: Plan, index: int, seeds: list[int] | None, most: int, temperature: float, method: str) -> Samples:
    """Run one prompt."""
    inputs, request = plan.inputs.of_call([index], plan.settings)[1], plan.requests[index]
    options = plan.session_options(plan.start_of_output(inputs), overlap=False)
    session = calls_of(plan.guide).session_of([request], options)
    generator = None if seeds is None else torch.Generator().manual_seed(as_int64(seeds[index]))
    stops = plan.stop_token_ids
    filler = MaskFiller(plan.guide.vocabulary, stops, tables=calls_of(plan.guide).tables)
    [row] = session.begin(1)
    particles = Particles(row, filler, stops, session.tokens_left, most, temperature, method, generator)

    def loop(call: GenerateCall) -> None:
        check_reorders(call)
        slots, dtype = CacheSlots(call, blocks=False), torch.promote_types(call.model.dtype, torch.float32)

        def forward(parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
            slots.reorder(parents)
            slots.run([[token] for token in tokens])
            return slots.last(1, dtype)[:, 0]

        slots.prefill()
        particles.run(slots.last(1, dtype)[:, 0], forward)

    prepare_call(plan.model, inputs, plan.generate_kwargs, loop)
    assert request.constraint is not None
    return Samples.of(particles.finished, particles.cut, request.constraint.parse)
