"""One ``model.generate`` call with constraints: checked, run and read back in the same way for every caller.

Callers without a guide of their own share those of the last few models.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

from ..backends.base import CompiledConstraint
from ..constraints.argument_checks import Rule, check
from ..guide import Guide, calls_of
from ..hf.compat import check_pair, generation_eos_token_ids, logits_width, with_cache_argument
from ..hf.decode.call import DecodeOptions
from ..hf.decoder import GuidedDecoder
from ..hf.generation_settings import GenerationSettings
from ..hf.logits_processor import GuidedLogitsProcessor
from ..session.mass_record import with_limit
from ..session.options import SessionOptions
from ..session.reasoning import Opening
from ..session.reasoning_gate import gate_constraint
from ..session.requests import Request, check_budget, row_after_prefix
from ..session.result import GuidedResult, RowReader, with_dead_end
from ..session.session import Session
from ..session.tensor_parallel import Ranks
from ..vocabulary.processors import tokenizer_of

_MAX_KEPT = 4
_kept: OrderedDict[tuple[Any, ...], Guide] = OrderedDict()
_kept_lock = Lock()


def guide_for(model: Any, tokenizer: Any, given: Guide | None = None) -> Guide:
    """The caller's own guide; or the cached one for a model's width, stop tokens and processes, and a tokenizer.

    Raises:
        TokenizerError: no model, or no tokenizer.
        InvalidArgument: ``given`` is no Guide.
    """
    check_pair(model, tokenizer, "hg.generate(model, tokenizer, prompts, constraint)")
    if given is not None:
        check("guide", given, Rule("an hg.Guide or None", lambda value: isinstance(value, Guide)))
        return given
    # A guide keeps its tokenizer, so its id is not reused while the guide is cached.
    ranks = Ranks.of(model)
    spread = None if ranks is None else (id(ranks.group), ranks.device)  # the guide keeps the group, too
    inner = tokenizer_of(tokenizer)
    key = (
        id(tokenizer),
        len(inner),
        logits_width(model),
        inner.eos_token_id,
        generation_eos_token_ids(model),
        spread,
    )
    with _kept_lock:
        if key not in _kept:
            _kept[key] = Guide(model, tokenizer)
        _kept.move_to_end(key)
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
        return _kept[key]


def check_compiled(requests: Sequence[Request]) -> list[CompiledConstraint | None]:
    """Wait until all constraints are compiled; None for free rows. Raises the first error of compiling."""
    return [None if request.compiled is None else request.compiled.result() for request in requests]


def check_budgets(requests: Sequence[Request], settings: GenerationSettings, prompts: Sequence[Sequence[int]]) -> None:
    """Raise BudgetTooSmall if an answer cannot be finished within ``max_new_tokens``.

    ``prompts`` has for each request the tokens of its prompt if it may have begun to think; else no tokens.
    """
    most, stops = settings.given_max_new_tokens, settings.stop_token_ids()
    if most is None:
        return
    # Many prompts have the same constraint, prefix and thinking: each combination is checked once.
    distinct = dict.fromkeys(
        (request.compiled, request.prefix, gate, Opening.ALL if gate is None else gate.opening(prompt))
        for request, prompt in zip(requests, prompts, strict=True)
        for gate in [request.gate]
    )
    for future, prefix, gate, opening in distinct:
        compiled = None if future is None else future.result()
        thinking = compiled if compiled is None or gate is None else gate_constraint(compiled, gate, opening)
        check_budget(row_after_prefix(thinking, prefix, stops), most)


class GuidedCall:
    """Brings constraints into one ``model.generate`` call, and reads its answers.

    Args:
        guide: for the model.
        requests: one for each prompt.
        options: of the masks.
        settings: of the call.
        loop: options of the fast loop; None runs transformers' own loop.
    """

    def __init__(
        self,
        guide: Guide,
        requests: Sequence[Request],
        options: SessionOptions,
        settings: GenerationSettings,
        loop: DecodeOptions | None,
    ):
        calls = calls_of(guide)
        self._calls, self._requests, self._options = calls, requests, options
        self._beams = settings.get("num_beams") or 1
        self._copies = int(settings.get("num_return_sequences") or 1)  # rows of output of each prompt: neighbours
        decides = calls.ranks is None or calls.ranks.first  # only there the masks are known
        self._sampled = settings.sampled if decides else None
        self.new_session: Callable[[], Session] = partial(calls.session_of, requests, options)
        # What ``model.generate`` is given: a decoding method, or a processor for transformers' own loop.
        self.seam: GuidedDecoder | GuidedLogitsProcessor
        if loop is None:
            self.seam = GuidedLogitsProcessor(self.new_session())
        else:
            self.seam = calls.decoder_of(self.new_session(), loop, options.backend)
        self.stats = self.seam.stats

    def arguments(self, model: Any, generate_kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments for ``model.generate``, with the caller's own processors and criteria."""
        given = with_cache_argument(model, generate_kwargs)
        processors = list(given.pop("logits_processor", None) or [])
        criteria = list(given.pop("stopping_criteria", None) or [])
        if isinstance(self.seam, GuidedDecoder):
            given["custom_generate"] = self.seam
        else:
            processors.append(self.seam)
            criteria.append(self.seam.companion)
        return {**given, "logits_processor": processors, "stopping_criteria": criteria}

    def run(self, model: Any, **generate_kwargs: Any) -> Any:
        """The output of ``model.generate``."""
        return model.generate(**self.arguments(model, generate_kwargs))

    def read(
        self, row: int, token_ids: Sequence[int], prompt: Sequence[int] = (), pad_token_id: int | None = None
    ) -> GuidedResult:
        """The result of a row, with the reason if the call had to end it; arguments as for ``reader``."""
        result, reasons = self.reader(row, prompt, pad_token_id).read(token_ids), self.seam.dead_ends
        result = self.with_limit(row, result)
        if self._beams == 1:
            return with_dead_end(result, reasons.get(row))
        if result.finish_reason != "dead_end":  # another beam has ended
            return result
        first = row // self._copies * self._beams  # beams change places, so the reason of any of them counts
        return with_dead_end(result, next(filter(None, map(reasons.get, range(first, first + self._beams))), None))

    def with_limit(self, row: int, result: GuidedResult) -> GuidedResult:
        """The result of a row that has ended, with what the limits and the format left."""
        # The step at which the call had to end a row counts too: the limit may have left no token there.
        length = len(result.token_ids)
        steps = self.seam.limit_steps(row, length + (row in self.seam.dead_ends))
        return with_limit(result, steps, self.seam.log_masses(row, length), sampled=self._sampled)

    def reader(self, row: int, prompt: Sequence[int] = (), pad_token_id: int | None = None) -> RowReader:
        """A reader of a row of output; arguments as for ``Guide.read``."""
        request = self._requests[row // self._copies]
        return self._calls.reader_of(request, self._options, pad_token_id=pad_token_id, stats=self.stats, prompt=prompt)
