"""Transformers' own loops with a session's masks, for what the fast loop cannot run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode

from ...errors import InvalidArgument, UnsupportedConstraint, VocabularySizeError
from ...session.logprob_recorder import LogprobRecorder
from ...session.session import Session
from ..compat import logits_width
from ..logits_processor import GuidedLogitsProcessor
from .generate_call import GenerateCall
from .scores import before_warpers
from .seeded_choice import SeededChoice
from .step_logprobs import record_output

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
    recorder: Callable[[], LogprobRecorder] | None,
) -> Any:
    """Run a call in transformers' own loop.

    Args:
        call: of generate().
        session: the constraints.
        streamer: a streamer of transformers; None, or beams, stream nothing.
        seeds: one for each row; None draws with torch's generator.
        recorder: makes the recorder for log probabilities; None records nothing.

    Returns:
        As generate().

    Raises:
        InvalidArgument: seeds of sampled beams; log probabilities of beams.
        VocabularySizeError: the guide was built for another number of columns than the logits have.
    """
    if (width := logits_width(call.model)) != session.vocabulary.padded_size:
        raise VocabularySizeError.of_logits(width, session.vocabulary.padded_size)
    config, beams = call.config, call.config.num_beams != 1
    if seeds is not None and config.do_sample and beams:
        raise InvalidArgument("seeds: beams draw from one generator; leave one of the two out")
    if recorder is not None:
        config = _with_recorded_scores(config)
    mask = GuidedLogitsProcessor(session)
    processors, criteria = _with_mask(call.processors, mask), call.criteria
    choice = None
    if not beams:
        criteria = StoppingCriteriaList([*criteria, mask.companion])
        call.model_kwargs["streamer"] = streamer
        if seeds is not None and config.do_sample:
            returned = config.return_dict_in_generate and config.output_scores
            choice = SeededChoice(seeds, call.prompt_length, keep_scores=bool(returned))
            processors.append(choice)
    loop = call.model._beam_search if beams else call.model._sample
    output = loop(call.input_ids, processors, criteria, config, **call.model_kwargs)
    if choice is not None and choice.scores:
        output.scores = tuple(choice.scores)
    if recorder is not None:
        record_output(recorder(), output, call.prompt_length, session.stop_token_ids)
    return output if call.config.return_dict_in_generate or not config.return_dict_in_generate else output.sequences


def _with_recorded_scores(config: GenerationConfig) -> GenerationConfig:
    """The config of a call that returns what log probabilities are read from.

    Raises:
        InvalidArgument: the call runs beams.
    """
    if config.num_beams != 1:
        raise InvalidArgument(
            f"logprobs, num_beams={config.num_beams}: a beam is chosen by the sum of many tokens, none of which was "
            "chosen by itself; leave one of the two out"
        )
    config = copy.copy(config)
    config.output_logits = config.output_scores = config.return_dict_in_generate = True
    return config


def _with_mask(processors: LogitsProcessorList, mask: GuidedLogitsProcessor) -> LogitsProcessorList:
    """The mask where generate() puts a caller's processors: before the warpers."""
    index = before_warpers(processors)
    return LogitsProcessorList([*processors[:index], mask, *processors[index:]])
