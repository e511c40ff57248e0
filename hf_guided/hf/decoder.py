"""The fast loop: ``model.generate(custom_generate=guide.decoder(c))``.

Rows keep their own token ids: text that the grammar leaves no choice about is appended without a forward pass, and
enters the cache together with the next sampled token (decode/loop.py). Where nothing is to be appended or drafted and
the device lane serves all rows, a loop that does not wait for the device takes its place (device/loop.py). What
generate() may ask for and neither loop does (beams, scores, logits, attentions, hidden states) runs through
transformers' own loop with the same session.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, StopStringCriteria
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput
from transformers.utils import ModelOutput

from ..constraints.argument_checks import Rule
from ..errors import GenerationError, InvalidArgument, UnsupportedConstraint
from ..session.logprob_recorder import LogprobRecorder
from ..session.logprobs import TokenLogprob
from ..session.session import Session
from ..session.stats import SessionStats
from ..session.tensor_parallel import Ranks
from ..trace.recorder import Recorder
from ..vocabulary.retokenize import Continuation
from .compat import in_step_with_others
from .decode.cache_slots import CacheSlots
from .decode.draft_blocks import DraftBlocks
from .decode.jump_forward import JumpForward
from .decode.loop import DecodeLoop
from .decode.options import DecodeOptions
from .decode.prefill import prefill
from .decode.rank_zero_slots import RankZeroSlots, replay_rank_zero, run_rank_zero
from .decode.scores import Scoring, before_warpers
from .decode.step_logprobs import StepLogprobs, record_output
from .decode.stopping import RowStops
from .decode.streamers import RowStreamer, StreamerListener, TokenListener
from .device.requests import NotOnDevice, check_requested
from .drafts import DraftSource
from .drafts.forced_text import ForcedText
from .logits_processor import GuidedLogitsProcessor
from .seeds import as_int64

if TYPE_CHECKING:
    from .device.store import DeviceStore

_SEEDS = Rule(
    "a list of ints, one for each row",
    lambda value: isinstance(value, Sequence) and not isinstance(value, str),
    "pass [seed]; hg.generate(..., seed=...) takes one int",
)


class GuidedDecoder:
    """A decoding method for ``generate(custom_generate=...)``. Made by ``Guide.decoder``.

    Serves one generate() call after another; a second one at the same time is refused.

    Args:
        session: the constraints.
        continuation: tokenizes forced text; it remembers, so the guide's decoders share one.
        options: what else the loop does.
        drafts: what ``options.draft`` names, made for this guide; None drafts nothing.
        store: gives what is kept on the device between calls; the guide's decoders share one.
    """

    def __init__(
        self,
        session: Session,
        continuation: Continuation,
        options: DecodeOptions,
        *,
        drafts: DraftSource | None = None,
        store: Callable[[], DeviceStore],
    ):
        self._session = session
        self._continuation = continuation
        self._options = options
        self._drafts = drafts
        hears_all = isinstance(options.streamer, TokenListener)
        self._streamer = None if hears_all else options.streamer
        self._listener: TokenListener | None = options.streamer if hears_all else None
        if self._streamer is not None:
            self._listener = StreamerListener(self._streamer)
        texts = options.stop_strings
        self._stop_strings = [texts] if isinstance(texts, str) else list(texts)
        self._store = store
        self._seeds = None if options.seeds is None else [as_int64(seed) for seed in options.seeds]
        self._logprobs: LogprobRecorder | None = None
        self._why_host = self._why_eager = "nothing was generated yet"
        self._serving = Lock()

    @property
    def why_host(self) -> str:
        """Why tokens were chosen on the host in the last call; empty where the device lane chose them."""
        return self._why_host

    @property
    def why_eager(self) -> str:
        """Why steps were not captured as a whole in the last call; empty where they were, or would be on a GPU."""
        return self._why_host or self._why_eager

    @property
    def stats(self) -> SessionStats:
        """What this decoder has done so far."""
        return self._session.stats

    @property
    def recorder(self) -> Recorder | None:
        """What writes down what is done; None without ``trace=True``. ``Guide.trace`` reads it."""
        return self._session.recorder

    @property
    def logprobs(self) -> list[list[TokenLogprob]] | None:
        """Of each row of the last call, an entry for every token of output; None without ``logprobs``.

        A row that has left its constraint may have entries after the end of ``GuidedResult.token_ids``.
        """
        return None if self._logprobs is None else self._logprobs.entries

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a row."""
        return self._session.stop_token_ids

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """One call of generate(), which passes all of this.

        Args:
            model: the model.
            input_ids: (rows, length) int64, padded left.
            logits_processor: generate()'s and the caller's.
            stopping_criteria: likewise.
            generation_config: complete.
            **model_kwargs: for the model.

        Returns:
            What generate() returns: (rows, length + longest output) int64, padded right, or a ModelOutput with it.

        Raises:
            GenerationError: it serves another call, whose masks and rows this one would take.
            UnsupportedConstraint: a generation mode, or a model spread over processes, that takes another seam.
            InvalidArgument: a streamer for several rows; another number of seeds than of rows; log probabilities of
                beams.
        """
        if not self._serving.acquire(blocking=False):
            raise GenerationError(
                "this decoder serves another generate() call at this moment: make one for each thread, "
                "with guide.decoder(...)"
            )
        try:
            return self._generated(
                model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs
            )
        finally:
            self._serving.release()

    def _generated(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
    ) -> Any:
        if in_step_with_others(model):
            # generate() does not tell a decoding method that it has to go on until all processes have ended.
            raise UnsupportedConstraint(
                "the decoder cannot keep processes in step (FSDP, DeepSpeed ZeRO-3); "
                "use logits_processor=[guide.logits_processor(c)]"
            )
        self._logprobs = None
        if self._session.recorder is not None:
            self._session.recorder.begin(input_ids.shape[1])
        criteria = StoppingCriteriaList(stopping_criteria)
        if self._stop_strings:
            criteria.append(StopStringCriteria(self._session.vocabulary.tokenizer, self._stop_strings))
        try:
            if self._streamer is not None:
                if len(input_ids) > 1:
                    raise InvalidArgument(f"streamer: expected one row, got {len(input_ids)}; leave it out for batches")
                self._streamer.put(input_ids.cpu())
            theirs = _transformers_own(model, generation_config)
            if theirs is not None:
                if self._seeds is not None and generation_config.do_sample:
                    raise InvalidArgument(
                        "seeds: transformers' own loop, for beams and scores, draws from one generator"
                    )
                if self._options.top_logprobs is not None:
                    if generation_config.num_beams != 1:
                        raise InvalidArgument(
                            f"logprobs, num_beams={generation_config.num_beams}: a beam is chosen by the sum of many "
                            "tokens, none of which was chosen by itself; leave one of the two out"
                        )
                    generation_config = copy.copy(generation_config)
                    generation_config.output_logits = generation_config.output_scores = True
                self._why_host = "transformers' own loop serves this generation mode and these outputs"
                processors = _with_mask(logits_processor, GuidedLogitsProcessor(self._session))
                if generation_config.num_beams == 1:
                    told = self._row_streamer(input_ids) if self._streamer is None else self._streamer
                    model_kwargs["streamer"] = told
                output = theirs(input_ids, processors, criteria, generation_config, **model_kwargs)
                if self._options.top_logprobs is not None:
                    recorder = self._new_logprobs(input_ids, self._options.top_logprobs)
                    record_output(recorder, output, input_ids.shape[1], self._session.stop_token_ids)
                return output
            if self._seeds is not None and len(self._seeds) != len(input_ids):
                raise InvalidArgument(f"seeds: expected one for each of {len(input_ids)} rows, got {len(self._seeds)}")
            with model._optimize_model_for_decode():
                stops, scoring = RowStops(criteria, input_ids.device), Scoring(logits_processor)
                call = (model, input_ids, generation_config, model_kwargs)
                ranks = Ranks.of(model)
                if ranks is not None:
                    ranks.agreed(input_ids.tolist, repr)
                slots = CacheSlots(*call) if ranks is None or not ranks.first else RankZeroSlots(ranks, *call)
                loop = partial(self._run, slots, input_ids, scoring, stops, generation_config)
                if ranks is None:
                    rows = loop()
                elif ranks.first:
                    rows = run_rank_zero(ranks, slots, loop)
                else:
                    rows = replay_rank_zero(ranks, slots)
                    self._why_host = "another process chooses for this one"
                    self._tell(rows, input_ids.shape[1])
        except BaseException:
            if self._streamer is not None:
                self._streamer.end()  # an iterator over it would wait for ever
            raise
        if self._streamer is not None:
            self._streamer.end()
        return _output(model, generation_config, input_ids, rows, slots.cache)

    def _run(
        self, slots: CacheSlots, input_ids: Tensor, scoring: Scoring, stops: RowStops, config: GenerationConfig
    ) -> list[list[int]]:
        """The tokens of each row, from a loop of ours: on the device if that is wanted and can be, else on the host."""
        forced = self._forced_text(scoring, stops)
        jump = JumpForward(self._session, stops, forced)
        lines, logits = prefill(
            self._session,
            slots,
            input_ids.tolist(),
            jump if forced else None,
            listener=self._listener,
            text_too=self._options.top_logprobs is None,
        )
        self._why_host = ""
        try:
            check_requested(
                self._options.device_lane_or_default,
                slots.device,
                jump_forward=self._options.jump_forward,
                drafts=self._drafts is not None,
                recorded=self._session.recorder is not None,
                spread=isinstance(slots, RankZeroSlots),
                logprobs=self._options.top_logprobs is not None,
            )
            from .device.run import run_on_device  # comes with the automaton, which takes time to import

            self._why_eager = run_on_device(
                lines,
                logits,
                input_ids,
                session=self._session,
                slots=slots,
                scoring=scoring,
                stops=stops,
                config=config,
                device_lane=self._options.device_lane_or_default,
                store=self._store(),
                seeds=self._seeds,
            )
        except NotOnDevice as reason:
            self._why_host = str(reason)
        if self._why_host:  # behind the handler: an error of the loop has nothing to do with the reason
            logprobs = None
            if self._options.top_logprobs is not None:
                logprobs = StepLogprobs(self._new_logprobs(input_ids, self._options.top_logprobs), lines)
            self._host_loop(slots, scoring, stops, forced, jump, config, logprobs).run(lines, logits)
        return [line.token_ids for line in lines]

    def _tell(self, rows: Sequence[Sequence[int]], prompt_length: int) -> None:
        """The listener hears of rows that were written elsewhere, of all of their tokens at once."""
        if self._listener is not None:
            for i, token_ids in enumerate(rows):
                self._listener.on_tokens(i, token_ids[prompt_length:])

    def _row_streamer(self, input_ids: Tensor) -> RowStreamer | None:
        """For transformers' own loop, behind the prompts (rows, length)."""
        if self._listener is None:
            return None
        streamer = RowStreamer(self._listener, self._session.stop_token_ids)
        streamer.put(input_ids)
        return streamer

    def _host_loop(
        self,
        slots: CacheSlots,
        scoring: Scoring,
        stops: RowStops,
        forced: ForcedText | None,
        jump: JumpForward,
        config: GenerationConfig,
        logprobs: StepLogprobs | None,
    ) -> DecodeLoop:
        drafter = None
        if not self._options.retokenize:  # else a token that was confirmed might have to give way again
            warp = scoring.warp if config.do_sample else None
            drafter = DraftBlocks(self._drafts, self._session, stops, forced, warp)
        return DecodeLoop(
            self._session,
            slots,
            scoring,
            stops,
            jump=jump,
            drafter=drafter,
            do_sample=config.do_sample,
            seeds=self._seeds,
            logprobs=logprobs,
        )

    def _new_logprobs(self, input_ids: Tensor, top: int) -> LogprobRecorder:
        """Records a call with these prompts, (rows, length)."""
        report = None if self._listener is None else self._listener.on_logprobs
        self._logprobs = self._session.logprob_recorder(input_ids.tolist(), top, report)
        return self._logprobs

    def _forced_text(self, scoring: Scoring, stops: RowStops) -> ForcedText | None:
        if not self._options.jump_forward or scoring.wants_batch:
            return None  # who looks at the tokens so far may forbid what the grammar forces, and has to be asked
        return ForcedText(
            self._session.vocabulary,
            self._continuation,
            self._session.stop_token_ids,
            retokenize=self._options.retokenize,
            may_stop=self._session.stop_token_ids[0] in stops.eos_token_ids,
        )


def _transformers_own(model: Any, config: GenerationConfig) -> Callable[..., Any] | None:
    """The method of transformers that serves what the fast loop does not; None where it does.

    Raises:
        UnsupportedConstraint: neither does.
    """
    mode = config.get_generation_mode()
    if mode in (GenerationMode.BEAM_SEARCH, GenerationMode.BEAM_SAMPLE):
        beams: Callable[..., Any] = model._beam_search
        return beams
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        raise UnsupportedConstraint(
            f"the decoder cannot serve the generation mode {mode.value}; "
            "use logits_processor=[guide.logits_processor(c)]"
        )
    wanted = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
    if config.return_dict_in_generate and any(getattr(config, name) for name in wanted):
        plain: Callable[..., Any] = model._sample
        return plain
    return None


def _with_mask(processors: LogitsProcessorList, mask: GuidedLogitsProcessor) -> LogitsProcessorList:
    """The mask where generate() puts a caller's processors: in front of the warpers."""
    place = before_warpers(processors)
    return LogitsProcessorList([*processors[:place], mask, *processors[place:]])


def _output(
    model: Any, config: GenerationConfig, input_ids: Tensor, rows: Sequence[Sequence[int]], cache: Any
) -> Tensor | ModelOutput:
    """What generate() returns; rows are padded on the right."""
    pad = config._pad_token_tensor
    longest = max(map(len, rows))
    sequences = torch.full((len(rows), longest), 0 if pad is None else int(pad), device=input_ids.device)
    for i, ids in enumerate(rows):
        sequences[i, : len(ids)] = torch.tensor(ids)
    if not config.return_dict_in_generate:
        return sequences
    kind = GenerateEncoderDecoderOutput if model.config.is_encoder_decoder else GenerateDecoderOnlyOutput
    return kind(sequences=sequences, past_key_values=cache)
