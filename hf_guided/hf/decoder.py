"""``model.generate(custom_generate=guide.decoder(c))``: sends a call to the fast loop, or to transformers' own loop.

Before the first pass, a rule (decode/block_rule.py) decides whether the fast loop (decode/loop.py) may run several
tokens of a row in one pass, one token a pass, or not at all. In the last case transformers' own loop runs with the same
session (decode/plain_loop.py), as it does for beams, and for outputs that our loop does not have (scores, logits,
attentions, hidden states).
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, StopStringCriteria
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from ..errors import GenerationError, InvalidArgument, UnsupportedConstraint
from ..session.logprobs import LogprobRecorder, TokenLogprob
from ..session.session import Session
from ..vocabulary.retokenize import Continuation
from .compat import CACHE_NAME, check_no_timestamps, in_step_with_others
from .decode.block_rule import BlockRule, block_rule
from .decode.cache_slots import CacheSlots
from .decode.call import DecodeOptions, GenerateCall
from .decode.loop import DecodeLoop
from .decode.plain_loop import mode_reason, run_plain
from .decode.rank_zero_slots import run_on_all_ranks
from .drafts.base import DraftSource
from .listening import RowStreamer, StreamerListener, TokenListener
from .logits_processor import SessionFace
from .seeds import as_int64

_NOTHING_YET = "nothing was generated yet"


class GuidedDecoder(SessionFace):
    """A decoding method for ``generate(custom_generate=...)``. Made by ``Guide.decoder``.

    Serves one generate() call after another; a second one at the same time is refused.

    Args:
        continuation: tokenizes forced text; it remembers, so the guide's decoders share one.
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
        super().__init__(session)
        self._continuation = continuation
        self._options = options
        self._drafts = drafts
        self._serving = Lock()
        self._streamer = None if isinstance(options.streamer, TokenListener) else options.streamer
        self._listener: TokenListener | None = (
            options.streamer if self._streamer is None else StreamerListener(self._streamer)
        )
        #: Rows of the last call that had to end because other processors left none of their tokens, and why. A row
        #: number is that of the step in which the row ended; beams are reordered after it.
        self.dead_ends: Mapping[int, str] = session.dead_ends
        #: Columns of ``input_ids`` before the output of the last call: a decoder's own prompt in an encoder-decoder.
        self.prompt_length = 0
        #: Why the last call ran in transformers' own loop, without jump-forward and drafts; empty if it did not. The
        #: fast loop runs several tokens in one pass. If this is not known to give the same tokens as one token at a
        #: time, transformers' own loop runs instead. Before the first call, and after one that failed early, the reason
        #: is that nothing was generated.
        self.plain_reason = _NOTHING_YET
        #: For each row of the last call, an entry for every token of output; None without ``logprobs``. A row that has
        #: left its constraint may have entries after the end of ``GuidedResult.token_ids``.
        self.logprobs: list[list[TokenLogprob]] | None = None

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Any:
        """Run a call of generate(), which passes all arguments: see ``GenerateCall``.

        Returns:
            As generate(): (rows, length + longest output) int64, padded right, or a ModelOutput with this tensor.

        Raises:
            GenerationError: it serves another call at this moment, and the two would share masks and rows.
            UnsupportedConstraint: a generation mode, or a model in several processes, that only a logits processor can
                serve.
            InvalidArgument: a streamer for several rows; another number of seeds than of rows; seeds of
                sampled beams; log probabilities of beams.
            UnsupportedModel: Whisper would write timestamps.
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
            call = GenerateCall(model, input_ids, logits_processor, criteria, generation_config, model_kwargs)
            self.prompt_length, self.logprobs, self.plain_reason = call.prompt_length, None, _NOTHING_YET
            self._session.forget_rows()
            self._session.limit_call(call.max_new_tokens if self._options.closes else None)
            check_no_timestamps(logits_processor)
            if in_step_with_others(model):
                # generate() does not tell a decoding method that it has to continue until all processes have ended.
                raise UnsupportedConstraint(
                    "the decoder cannot keep processes in step (FSDP, DeepSpeed ZeRO-3); "
                    "use logits_processor=[guide.logits_processor(c)]"
                )
            if self.recorder is not None:
                self.recorder.begin(call.prompt_length)
            if texts := self._options.stop_strings:
                texts = [texts] if isinstance(texts, str) else list(texts)
                criteria.append(StopStringCriteria(self._session.vocabulary.tokenizer, texts))
            if self._streamer is not None:
                if len(input_ids) > 1:
                    raise InvalidArgument(f"streamer: expected one row, got {len(input_ids)}; leave it out for batches")
                self._streamer.put(input_ids.cpu())
            return self._run(call)
        finally:
            self._serving.release()
            if self._streamer is not None:
                self._streamer.end()  # an iterator over it would wait for ever

    def _run(self, call: GenerateCall) -> Any:
        """Choose a loop for a call, and run it."""
        options = self._options
        seeds = None if options.seeds is None else [as_int64(seed) for seed in options.seeds]
        if seeds is not None and call.config.num_beams == 1 and len(seeds) != len(call.input_ids):
            raise InvalidArgument(f"seeds: expected one for each of {len(call.input_ids)} rows, got {len(seeds)}")

        def recorder() -> LogprobRecorder:
            assert options.top_logprobs is not None
            report = None if self._listener is None else self._listener.on_logprobs
            made = self._session.logprob_recorder(call.input_ids.tolist(), options.top_logprobs, report)
            self.logprobs = made.entries
            return made

        new_recorder = None if options.top_logprobs is None else recorder
        rule = BlockRule(blocks=False, plain_reason=mode_reason(call.config))
        if not rule.plain_reason:
            rule = block_rule(call, self._session.vocabulary.some_text(5))
        self.plain_reason = rule.plain_reason
        if rule.plain_reason:
            streamer = None if self._listener is None else RowStreamer(self._listener, self.stop_token_ids)
            if streamer is not None:
                streamer.put(call.input_ids)
            return run_plain(call, self._session, streamer=streamer, seeds=seeds, new_recorder=new_recorder)

        def loop(slots: CacheSlots) -> list[list[int]]:
            return DecodeLoop(
                call,
                slots,
                self._session,
                options,
                continuation=self._continuation,
                drafts=self._drafts,
                listener=self._listener,
                seeds=seeds,
                new_recorder=new_recorder,
            ).run()

        with call.model._optimize_model_for_decode():
            rows, cache = run_on_all_ranks(call, loop, self._listener, blocks=rule.blocks)
        ids = [torch.tensor(token_ids, device="cpu") for token_ids in rows]
        sequences = pad_sequence(ids, batch_first=True, padding_value=call.pad_token_id).to(call.input_ids.device)
        if not call.config.return_dict_in_generate:
            return sequences
        kind = GenerateEncoderDecoderOutput if call.model.config.is_encoder_decoder else GenerateDecoderOnlyOutput
        return kind(sequences=sequences, **{CACHE_NAME: cache})
