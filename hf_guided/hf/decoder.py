"""The fast loop: ``model.generate(custom_generate=guide.decoder(c))``.

Rows keep their own token ids: text that the grammar leaves no choice about is appended without a forward pass, and
enters the cache together with the next sampled token (decode/loop.py).

Before the first pass, a rule (decode/block_rule.py) decides whether this loop may run several tokens of a row in one
pass, one token a pass, or not at all. In the last case transformers' own loop runs with the same session
(decode/plain_loop.py), as it does for beams, and for outputs that our loop does not have (scores, logits, attentions,
hidden states). A cache that is returned, or that is the caller's, is completed at the end (decode/returned_cache.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput
from transformers.utils import ModelOutput

from ..errors import GenerationError, InvalidArgument, UnsupportedConstraint
from ..session.logprob_recorder import LogprobRecorder
from ..session.logprobs import TokenLogprob
from ..session.session import Session
from ..session.stats import SessionStats
from ..session.tensor_parallel import Ranks
from ..trace.recorder import Recorder
from ..vocabulary.retokenize import Continuation
from .compat import CACHE_NAME, in_step_with_others, is_callers_own
from .decode.block_rule import BlockRule
from .decode.cache_slots import CacheSlots
from .decode.draft_blocks import DraftBlocks
from .decode.generate_call import GenerateCall
from .decode.jump_forward import JumpForward
from .decode.loop import DecodeLoop
from .decode.options import DecodeOptions
from .decode.plain_loop import mode_reason, run_plain
from .decode.prefill import prefill
from .decode.rank_zero_slots import RankZeroSlots, replay_rank_zero, run_rank_zero
from .decode.returned_cache import complete_cache
from .decode.scores import Scoring
from .decode.step_logprobs import StepLogprobs
from .decode.stopping import RowStops
from .decode.streamers import RowStreamer, StreamerListener, TokenListener
from .drafts import DraftSource
from .drafts.forced_text import ForcedText
from .seeds import as_int64

_NOTHING_YET = "nothing was generated yet"


class GuidedDecoder:
    """A decoding method for ``generate(custom_generate=...)``. Made by ``Guide.decoder``.

    Serves one generate() call after another; a second one at the same time is refused.

    Args:
        session: the constraints.
        continuation: tokenizes forced text; it remembers, so the guide's decoders share one.
        options: of the loop.
        drafts: the source that ``options.draft`` names, made for this guide; None drafts nothing.
    """

    def __init__(
        self,
        session: Session,
        continuation: Continuation,
        options: DecodeOptions,
        *,
        drafts: DraftSource | None = None,
    ):
        self._session = session
        self._continuation = continuation
        self._options = options
        self._drafts = drafts
        for_all_rows = isinstance(options.streamer, TokenListener)
        self._streamer = None if for_all_rows else options.streamer
        self._listener: TokenListener | None = options.streamer if for_all_rows else None
        if self._streamer is not None:
            self._listener = StreamerListener(self._streamer)
        texts = options.stop_strings
        self._stop_strings = [texts] if isinstance(texts, str) else list(texts)
        self._seeds = None if options.seeds is None else [as_int64(seed) for seed in options.seeds]
        self._logprobs: LogprobRecorder | None = None
        self._plain_reason = _NOTHING_YET
        self._serving = Lock()
        self._prompt_length = 0

    @property
    def prompt_length(self) -> int:
        """Columns of ``input_ids`` before the output of the last call: a decoder's own prompt in an encoder-decoder."""
        return self._prompt_length

    @property
    def plain_reason(self) -> str:
        """Why the last call ran in transformers' own loop, without jump-forward and drafts; empty if it did not.

        The fast loop runs several tokens in one pass. If this is not known to give the same tokens as one token at a
        time, transformers' own loop runs instead. Before the first call, and after one that failed early, the reason is
        that nothing was generated.
        """
        return self._plain_reason

    @property
    def stats(self) -> SessionStats:
        """What has been spent so far."""
        return self._session.stats

    @property
    def recorder(self) -> Recorder | None:
        """Records each call for ``Guide.trace``; None without ``trace=True``."""
        return self._session.recorder

    @property
    def logprobs(self) -> list[list[TokenLogprob]] | None:
        """For each row of the last call, an entry for every token of output; None without ``logprobs``.

        A row that has left its constraint may have entries after the end of ``GuidedResult.token_ids``.
        """
        return None if self._logprobs is None else self._logprobs.entries

    @property
    def dead_ends(self) -> Mapping[int, str]:
        """Rows of the last call that had to end because other processors left none of their tokens, and why.

        A row number is that of the step in which the row ended; beams are reordered after it.
        """
        return self._session.dead_ends

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
            logits_processor: those of generate() and of the caller.
            stopping_criteria: those of generate() and of the caller.
            generation_config: with every default filled in.
            **model_kwargs: for the model.

        Returns:
            As generate(): (rows, length + longest output) int64, padded right, or a ModelOutput with this tensor.

        Raises:
            GenerationError: it serves another call at this moment, and the two would share masks and rows.
            UnsupportedConstraint: a generation mode, or a model in several processes, that only a logits processor can
                serve.
            InvalidArgument: a streamer for several rows; another number of seeds than of rows; seeds of
                sampled beams; log probabilities of beams.
            BudgetTooSmall: the shortest text takes more tokens than the call, or the decoder, allows.
            VocabularySizeError: the guide was built for another number of columns than the logits have.
        """
        if not self._serving.acquire(blocking=False):
            raise GenerationError(
                "this decoder serves another generate() call at this moment: make one for each thread, "
                "with guide.decoder(...)"
            )
        try:
            criteria = StoppingCriteriaList(stopping_criteria)
            return self._generated(
                GenerateCall(model, input_ids, logits_processor, criteria, generation_config, model_kwargs)
            )
        finally:
            self._serving.release()

    def _generated(self, call: GenerateCall) -> Any:
        model, input_ids = call.model, call.input_ids
        self._prompt_length = call.prompt_length
        self._logprobs = None
        self._plain_reason = _NOTHING_YET
        self._session.dead_ends.clear()
        self._session.limit_call(call.max_new_tokens if self._options.closes else None)
        if in_step_with_others(model):
            # generate() does not tell a decoding method that it has to continue until all processes have ended.
            raise UnsupportedConstraint(
                "the decoder cannot keep processes in step (FSDP, DeepSpeed ZeRO-3); "
                "use logits_processor=[guide.logits_processor(c)]"
            )
        if self._session.recorder is not None:
            self._session.recorder.begin(call.prompt_length)
        if self._stop_strings:
            call.criteria.append(StopStringCriteria(self._session.vocabulary.tokenizer, self._stop_strings))
        with self._streaming(input_ids):
            if self._seeds is not None and call.config.num_beams == 1 and len(self._seeds) != len(input_ids):
                raise InvalidArgument(f"seeds: expected one for each of {len(input_ids)} rows, got {len(self._seeds)}")
            if reason := mode_reason(call.config):
                rule = BlockRule(blocks=False, plain_reason=reason)
            else:
                rule = BlockRule.of(call, self._session.vocabulary.some_text(5))
            self._plain_reason = rule.plain_reason
            if self._plain_reason:
                return self._through_transformers(call)
            with model._optimize_model_for_decode():
                rows, cache = self._through_own_loop(call, rule.blocks)
        if self._streamer is not None:
            self._streamer.end()
        return _output(call, rows, cache)

    @contextmanager
    def _streaming(self, input_ids: Tensor) -> Iterator[None]:
        """Around a call: its streamer gets the prompt, and is ended by an error; the loop ends it otherwise."""
        if self._streamer is None:
            yield
            return
        try:
            if len(input_ids) > 1:
                raise InvalidArgument(f"streamer: expected one row, got {len(input_ids)}; leave it out for batches")
            self._streamer.put(input_ids.cpu())
            yield
        except BaseException:
            self._streamer.end()  # an iterator over it would wait for ever
            raise

    def _through_transformers(self, call: GenerateCall) -> Any:
        """The output of transformers' own loop with this session's masks."""
        top = self._options.top_logprobs
        return run_plain(
            call,
            self._session,
            streamer=self._row_streamer(call.input_ids) if self._streamer is None else self._streamer,
            seeds=self._seeds,
            recorder=None if top is None else partial(self._new_logprobs, call.input_ids, top),
        )

    def _through_own_loop(self, call: GenerateCall, blocks: bool) -> tuple[Sequence[Sequence[int]], Any]:
        """The tokens of each row, and the model's cache; in several processes the first one decides."""
        ranks = Ranks.of(call.model)
        if ranks is None:
            slots = CacheSlots(call, blocks=blocks)
            return self._run(slots, call), slots.cache
        ranks.agreed(call.input_ids.tolist, repr)
        if ranks.first:
            slots = RankZeroSlots(ranks, call, blocks=blocks)
            return run_rank_zero(ranks, slots, partial(self._run, slots, call)), slots.cache
        slots = CacheSlots(call, blocks=blocks)
        rows = replay_rank_zero(ranks, slots)
        self._report(rows, call.prompt_length)
        return rows, slots.cache

    def _run(self, slots: CacheSlots, call: GenerateCall) -> list[list[int]]:
        """The tokens of each row."""
        stops, scoring = RowStops(call.criteria, call.input_ids.device), Scoring(call.processors)
        forced = self._forced_text(scoring, stops)
        jump = JumpForward(self._session, stops, forced)
        sequences, logits = prefill(
            self._session,
            slots,
            call.input_ids.tolist(),
            jump if forced else None,
            listener=self._listener,
            text_too=self._options.top_logprobs is None,
        )
        logprobs = None
        if self._options.top_logprobs is not None:
            logprobs = StepLogprobs(self._new_logprobs(call.input_ids, self._options.top_logprobs), sequences)
        self._loop(slots, scoring, stops, forced, jump, call.config, logprobs).run(sequences, logits)
        cache = slots.cache
        if cache is not None and (call.config.return_dict_in_generate or is_callers_own(cache)):
            complete_cache(slots, sequences)
        return [sequence.token_ids for sequence in sequences]

    def _report(self, rows: Sequence[Sequence[int]], prompt_length: int) -> None:
        """Report to the listener rows that another process generated, with all of their tokens at once."""
        if self._listener is not None:
            for i, token_ids in enumerate(rows):
                self._listener.on_tokens(i, token_ids[prompt_length:])

    def _row_streamer(self, input_ids: Tensor) -> RowStreamer | None:
        """A streamer for transformers' own loop, after the prompts (rows, length)."""
        if self._listener is None:
            return None
        streamer = RowStreamer(self._listener, self._session.stop_token_ids)
        streamer.put(input_ids)
        return streamer

    def _loop(
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
        if not self._options.retokenize:  # retokenizing may replace a token that was confirmed
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
        """A recorder for a call with these prompts, (rows, length)."""
        report = None if self._listener is None else self._listener.on_logprobs
        self._logprobs = self._session.logprob_recorder(input_ids.tolist(), top, report)
        return self._logprobs

    def _forced_text(self, scoring: Scoring, stops: RowStops) -> ForcedText | None:
        if not self._options.jump_forward or scoring.wants_batch:
            return None  # a processor that reads the tokens so far may forbid forced text, so it has to be called
        return ForcedText(
            self._session.vocabulary,
            self._continuation,
            self._session.stop_token_ids,
            retokenize=self._options.retokenize,
            may_stop=self._session.stop_token_ids[0] in stops.eos_token_ids,
        )


def _output(call: GenerateCall, rows: Sequence[Sequence[int]], cache: Any) -> Tensor | ModelOutput:
    """The return value of generate(); rows are padded on the right."""
    longest = max(map(len, rows))
    sequences = torch.full((len(rows), longest), call.pad_token_id, device=call.input_ids.device)
    for i, ids in enumerate(rows):
        sequences[i, : len(ids)] = torch.tensor(ids, device="cpu")
    if not call.config.return_dict_in_generate:
        return sequences
    kind = GenerateEncoderDecoderOutput if call.model.config.is_encoder_decoder else GenerateDecoderOnlyOutput
    return kind(sequences=sequences, **{CACHE_NAME: cache})
