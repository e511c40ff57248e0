"""Transformers' own loops with a session's masks, for what the fast loop cannot run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode

from ...errors import InvalidArgument, UnsupportedConstraint, VocabularySizeError
from ...session.logprobs import LogprobRecorder, Position
from ...session.session import Session
from ..compat import logits_width
from ..logits_processor import GuidedLogitsProcessor
from ..seeds import gumbel
from .call import GenerateCall
from .processors import before_warpers

_BEAMS = (GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE)
_ONE_BY_ONE = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def mode_reason(config: GenerationConfig) -> str:
    """Why the generation mode of a call, or its outputs, take transformers' own loop; empty if they do not.

    Raises:
        UnsupportedConstraint: no loop can serve the mode with a custom decoding method.
    """
    mode = config.get_generation_mode()
    if mode in _BEAMS:
        return "beams run in transformers' own loop"
    if mode not in _ONE_BY_ONE:
        raise UnsupportedConstraint(
            f"the decoder cannot serve the generation mode {mode.value}; "
            "use logits_processor=[guide.logits_processor(c)]"
        )
    wanted = [name for name in _OUTPUTS if config.return_dict_in_generate and getattr(config, name)]
    return f"{', '.join(wanted)}: transformers' own loop collects them" if wanted else ""


def run_plain(
    call: GenerateCall,
    session: Session,
    *,
    streamer: Any,
    seeds: Sequence[int] | None,
    new_recorder: Callable[[], LogprobRecorder] | None,
) -> Any:
    """Run a call in transformers' own loop, and return what generate() returns.

    ``streamer`` is one of transformers; beams stream nothing. Without ``seeds``, one for each row, torch's generator
    draws. ``new_recorder`` makes the recorder for log probabilities; None records nothing.

    Raises:
        InvalidArgument: seeds of sampled beams; log probabilities of beams.
        VocabularySizeError: the guide was built for another number of columns than the logits have.
    """
    if (width := logits_width(call.model)) != session.vocabulary.padded_size:
        raise VocabularySizeError.of_logits(width, session.vocabulary.padded_size)
    config, beams = call.config, call.config.num_beams != 1
    if seeds is not None and config.do_sample and beams:
        raise InvalidArgument("seeds: beams draw from one generator; leave one of the two out")
    if new_recorder is not None:
        if beams:
            raise InvalidArgument(
                f"logprobs, num_beams={config.num_beams}: a beam is chosen by the sum of many tokens, none of which "
                "was chosen by itself; leave one of the two out"
            )
        config = copy.copy(config)
        config.output_logits = config.output_scores = config.return_dict_in_generate = True
    mask, criteria = GuidedLogitsProcessor(session), call.criteria
    index = before_warpers(call.processors)  # where generate() puts a caller's processors
    processors = LogitsProcessorList([*call.processors[:index], mask, *call.processors[index:]])
    choice = None
    if not beams:
        criteria = StoppingCriteriaList([*criteria, mask.companion])
        call.model_kwargs["streamer"] = streamer
        if seeds is not None and config.do_sample:
            returned = config.return_dict_in_generate and config.output_scores
            choice = _SeededChoice(seeds, call.prompt_length, keep_scores=bool(returned))
            processors.append(choice)
    loop = call.model._beam_search if beams else call.model._sample
    output = loop(call.input_ids, processors, criteria, config, **call.model_kwargs)
    if choice is not None and choice.scores:
        output.scores = tuple(choice.scores)
    if new_recorder is not None:
        record_output(new_recorder(), output, call.prompt_length, session.stop_token_ids)
    return output if call.config.return_dict_in_generate or not config.return_dict_in_generate else output.sequences


@dataclass(eq=False)
class _SeededChoice(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """The last processor of a call: leaves each row only the token that its seed draws, so that sampling takes it."""

    seeds: Sequence[int]
    prompt_length: int
    keep_scores: bool
    scores: list[Tensor] = field(default_factory=list)  # one for each step, (rows, vocab), before the choice

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab) that are finite for one token of each row."""
        if self.keep_scores:
            self.scores.append(scores)
        positions = torch.full((len(scores),), input_ids.shape[1] - self.prompt_length, device=scores.device)
        tokens = torch.arange(scores.shape[-1], device=scores.device)
        noise = gumbel(torch.tensor(self.seeds, device=scores.device), positions, tokens)
        drawn = (scores + noise).argmax(-1, keepdim=True)  # (rows, 1)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0)


def record_output(recorder: LogprobRecorder, output: Any, start: int, stop_token_ids: Sequence[int]) -> None:
    """Record a call of generate() with ``output_logits`` and ``output_scores``, and without beams.

    The output begins at the column ``start``. After a stop token, a row has only padding.
    """
    running = list(range(len(output.sequences)))
    for step, (logits, scores) in enumerate(zip(output.logits, output.scores, strict=True)):
        token_ids = output.sequences[:, start + step].tolist()
        recorder.record(logits[running], [Position(i, token_ids[i], i) for i in running], scores)
        running = [i for i in running if token_ids[i] not in stop_token_ids]
        if not running:
            return
