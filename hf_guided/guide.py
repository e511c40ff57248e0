"""A model's logits width and its tokenizer, bound once: compiles, caches, audits, and makes decoders and processors."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from .backends.base import CompiledConstraint
from .backends.compile import Compiler, CompilerStats
from .backends.refusals import grammar_text, not_shared
from .constraints.argument_advice import DECODER, GUIDE, PROCESSOR, explains_its_arguments, of_guide, with_fields
from .constraints.argument_checks import SHARED_BACKEND, TOKEN_IDS, check
from .constraints.coerce import coerce, coerce_batch
from .constraints.values import Constraint
from .errors import (
    BatchSizeError,
    InvalidArgument,
    InvalidConstraint,
    StopTokenError,
    UnsupportedConstraint,
    UnsupportedModel,
    reading,
    shown,
    warn,
)
from .hf.calls import Calls
from .hf.compat import check_pair, continuous_batching_reason, generation_eos_token_ids, logits_width
from .hf.decode.call import DecodeOptions
from .hf.decoder import GuidedDecoder
from .hf.logits_processor import GuidedLogitsProcessor
from .options import CompilerOptions
from .schema.audit import Audit
from .session.logprobs import num_top
from .session.options import SessionArguments, SessionOptions
from .session.result import GuidedResult, RowReader
from .session.session import Session
from .session.stats import SessionStats
from .session.tensor_parallel import Ranks
from .trace.trace import Trace
from .vocabulary.processors import tokenizer_of
from .vocabulary.tokens import Vocabulary

_LONGEST_PROMPT = 4096  # tokens that are looked through for the beginning of an answer
_MOST_READ = 20_000  # tokens that are read for this: a fraction of a second


class Guide:
    """Guides generation for one model, or width of logits, and its tokenizer. Thread safe; lives as long as the model.

    Args:
        model: a PreTrainedModel, a config, or the width of the logits as int. The width is often more than
            ``len(tokenizer)``. From a model, the stop tokens of its generation config are read too.
        tokenizer: a transformers tokenizer with exact bytes (byte-level BPE, SentencePiece, Tekken, Unigram, ByT5); or
            a processor, for its tokenizer.
        stop_token_ids: additional tokens that end a row; they have to be in the generation config too.
        options: workers, cache size and limits of the compiler.

    Raises:
        TokenizerError: not a model and its tokenizer, in this order.
        UnsupportedTokenizer: a tokenizer whose tokens have no exact bytes (WordPiece).
        VocabularySizeError: the logits have no column for some of the tokenizer's own text tokens. Special and added
            tokens without a column are left out: the model cannot write them.
        StopTokenError: there is no stop token that the model can write, or one of ``stop_token_ids`` is unknown to the
            generation config.
    """

    @explains_its_arguments(GUIDE)
    @reading("Guide")
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        stop_token_ids: Sequence[int] = (),
        options: CompilerOptions | None = None,
    ):
        check_pair(model, tokenizer, "hg.Guide(model, tokenizer)")
        check("stop_token_ids", stop_token_ids, TOKEN_IDS)
        known = generation_eos_token_ids(model)
        unknown = sorted(set(stop_token_ids) - set(known))
        if unknown and hasattr(model, "generation_config"):
            raise StopTokenError(
                f"stop tokens {unknown} are unknown to model.generation_config (eos_token_id={sorted(known)}): "
                "generate() would not end a row there; set model.generation_config.eos_token_id = "
                f"{sorted({*known, *unknown})}"
            )
        self.vocabulary = Vocabulary.from_tokenizer(
            tokenizer_of(tokenizer), padded_size=logits_width(model), stop_token_ids=(*known, *stop_token_ids)
        )
        self._not_continuous = continuous_batching_reason(model)
        self._calls = Calls(self.vocabulary, tokenizer, Compiler(self.vocabulary, options), Ranks.of(model))

    @property
    def tokenizer(self) -> Any:
        """The tokenizer this guide was made for."""
        return self.vocabulary.tokenizer

    @explains_its_arguments(of_guide("audit"))
    @reading("Guide.audit")
    def audit(self, constraint: Any, backend: str = "auto") -> Audit:
        """Report which parts of a constraint are enforced, by which backend and why, and which parts would be lost.

        Args:
            constraint: a constraint, or a plain form of one.
            backend: "auto", or the name of a backend.

        Raises:
            InvalidConstraint: the constraint is malformed. Parts that cannot be enforced are reported, not raised.
        """
        return self._calls.compiler.audit(self._calls.required(constraint), backend)

    @explains_its_arguments(of_guide("submit"))
    @reading("Guide.submit")
    def submit(self, constraint: Any, backend: str = "auto") -> Future[CompiledConstraint]:
        """Compile on the pool; equal constraints share one future. See ``compile``."""
        return self._calls.compiler.submit(self._calls.required(constraint), backend)

    @explains_its_arguments(of_guide("compile"))
    @reading("Guide.compile")
    def compile(self, constraint: Any, backend: str = "auto") -> CompiledConstraint:
        """Compile a constraint, or take it from the cache.

        Args:
            constraint: a constraint, or a plain form of one (Pydantic model, schema dict, list of strings ...).
            backend: "auto", or the name of a backend.

        Raises:
            InvalidConstraint: the constraint is malformed.
            UnsupportedConstraint: no backend enforces all of it.
            UnwritableConstraint: it needs bytes that this vocabulary cannot write.
            CompileLimitExceeded: a backend gave up.
        """
        return self._calls.compiler.compile(self._calls.required(constraint), backend)

    @explains_its_arguments(of_guide("warm_up"))
    @reading("Guide.warm_up")
    def warm_up(self, constraints: Any, backend: str = "auto") -> None:
        """Compile in advance, so that the first request does not wait; raises as ``compile``.

        Args:
            constraints: a constraint, or a list of them, in any form that ``logits_processor`` takes: a list of
                strings is one Choice.
            backend: "auto", or the name of a backend.
        """
        given = coerce_batch(constraints)
        items = given if isinstance(given, list) else [given]
        for compiling in [self.submit(item, backend) for item in items if item is not None]:
            compiling.result()

    @explains_its_arguments(of_guide("to_vllm"))
    @reading("Guide.to_vllm")
    def to_vllm(self, constraint: Any, backend: str = "xgrammar") -> dict[str, str]:
        """A constraint as arguments of vLLM's ``StructuredOutputsParams``, or as ``structured_outputs`` of a request.

        It is compiled here, so what ``audit(constraint, backend)`` calls lost is refused here too. The texts of vLLM
        can be checked with ``read(constraint, token_ids)``.

        Args:
            constraint: a constraint, or a plain form of one.
            backend: the library that vLLM decodes with: "xgrammar", or "llguidance" for a vLLM that was started with
                ``--structured-outputs-config.backend guidance``. llguidance takes no structural tags and no tool calls.

        Returns:
            ``{"grammar": text}``.

        Raises:
            InvalidArgument: another backend.
            ConstraintError, BackendError: as ``compile``.
            UnsupportedConstraint: also, the grammar means the same text only inside hf-guided.
        """
        return {"grammar": self._grammar_text(constraint, backend)}

    @explains_its_arguments(of_guide("to_sglang"))
    @reading("Guide.to_sglang")
    def to_sglang(self, constraint: Any, backend: str = "xgrammar") -> dict[str, str]:
        """A constraint as entries of SGLang's ``sampling_params``: ``{"ebnf": text}``, where llguidance's text is Lark.

        Args:
            constraint: as for ``to_vllm``; errors too.
            backend: the library that SGLang was started with, ``--grammar-backend``: "xgrammar" or "llguidance". The
                latter takes no structural tags and no tool calls.
        """
        return {"ebnf": self._grammar_text(constraint, backend)}

    def _grammar_text(self, constraint: Any, backend: str) -> str:
        check("backend", backend, SHARED_BACKEND)
        required = self._calls.required(constraint)
        try:
            return grammar_text(self._calls.compiler.compile(required, backend), self.vocabulary)
        except UnsupportedConstraint as error:
            raise not_shared(required, backend, error) from None

    @explains_its_arguments(PROCESSOR)
    @with_fields(SessionOptions)
    @reading("Guide.logits_processor")
    def logits_processor(
        self,
        constraint: Any,
        *,
        prefix: str | Sequence[str | None] | None = None,
        **options: Unpack[SessionArguments],
    ) -> GuidedLogitsProcessor:
        """A logits processor for ``model.generate``, in any generation mode.

        Returns at once: constraints compile in the background, and the first mask waits for them.

        Args:
            constraint: one for all rows, or a list with one per prompt (None = free row). A list of strings is one
                Choice.
            backend: "auto", or the name of a backend.
            prefix: part of the answer that the prompt already ends with; one for all, or one per prompt.
            stop_token_ids: the ``eos_token_id`` of this generate() call, if it differs from the generation config's.
            on_violation: what to do if other code makes a row leave its constraint (a forced token, a dead beam) or
                leaves it no allowed token: "close" ends that row alone (``dead_ends`` of the processor gives the
                reason), "raise" raises TokenRejected or EmptyIntersection.
            max_new_tokens: as for generate(); every row then closes its text before this budget ends, the stop token
                included, instead of being cut. A budget that is too small from the start raises BudgetTooSmall at the
                first mask, with a sufficient number.
            overlap: whether masks are filled on another thread while the forward pass runs; this needs
                ``stopping_criteria=[processor.companion]``. "auto": only for scores on a GPU. None reads the
                environment variable HF_GUIDED_OVERLAP, whose default is "auto". The tokens are the same.
            reasoning: lets rows with a constraint think before they answer: freely, up to a marker. A prompt that ends
                with the first marker has begun to think; one that ends with the second has finished. Not allowed with a
                ``prefix``, which begins the answer.
            trace: whether to record the candidates at every position, for ``Guide.trace``: of any number of calls,
                until ``reset()`` or 20,000 positions. Takes time and memory.
            log_mass: whether to record how much of the probability the format leaves at each position, for
                ``GuidedLogitsProcessor.log_masses``.

        Raises:
            InvalidConstraint: a constraint is malformed, or there are both a prefix and ``reasoning``.
            UnwritableConstraint: the vocabulary cannot write the markers of ``reasoning``.
            StopTokenError: the model can write none of the stop tokens, or one is unknown to tokenizer and model.
            UnsupportedModel: raised by the processor, where Whisper would write timestamps.
            VocabularySizeError: raised by the processor, for logits of another width than this guide's, except those of
                an assistant model.
        """
        return GuidedLogitsProcessor(self.session(constraint, prefix=prefix, **options))

    @explains_its_arguments(DECODER)
    @with_fields(SessionOptions)
    @reading("Guide.decoder")
    def decoder(
        self,
        constraint: Any,
        *,
        jump_forward: bool = True,
        retokenize: bool = False,
        draft: Any = None,
        streamer: Any = None,
        stop_strings: str | Sequence[str] = (),
        prefix: str | Sequence[str | None] | None = None,
        seeds: Sequence[int] | None = None,
        logprobs: bool | int = False,
        **options: Unpack[SessionArguments],
    ) -> GuidedDecoder:
        """A decoding method for ``model.generate(custom_generate=...)``: the fast loop.

        Arguments of generate() that it does not pass to such a method are arguments here. Calls for which the fast loop
        is not known to be exact run in transformers' own loop, with the same constraints
        (``GuidedDecoder.plain_reason`` gives the reason).

        Args:
            constraint: one for all rows, or one per prompt, as for ``logits_processor``.
            jump_forward: where the grammar allows only one continuation, append it without a forward pass, tokenized as
                the tokenizer would. Not used together with processors that read the tokens so far (repetition_penalty,
                bad_words_ids, min_new_tokens ...): they may forbid the forced text.
            retokenize: with ``jump_forward``, replace the sampled token before forced text if the tokenizer would have
                merged the two.
            draft: the source of draft tokens, which the model verifies, several in one forward pass: "grammar" (where
                white space is free, the layout of ``json.dumps``), "prompt_lookup" (the tokens that followed the same
                tokens before), a smaller model with the same tokenizer, a ``DraftSource``, or a list of these, the most
                reliable first. Greedy output and the distribution of samples do not change. There are no drafts for
                models whose attention is not full in every layer or that run one token a pass, nor with processors that
                may keep state between calls (guidance_scale, SynthID, the caller's own).
            streamer: a transformers streamer, for one row; or a ``hf.listening.TokenListener``, for any number.
                ``generate(streamer=...)`` never reaches a decoding method.
            stop_strings: one text, or several, that end a row.
            prefix: as for ``logits_processor``, and so are backend, stop_token_ids, on_violation and reasoning.
            max_new_tokens: a limit beside that of the generate() call, which the decoder reads: ``max_new_tokens``, or
                what ``max_length`` leaves after the prompt, or the 20 tokens that generate() allows by default. Every
                row closes its text before the smaller of the two; BudgetTooSmall as for ``logits_processor``.
            overlap: as for ``logits_processor``, but without a companion.
            trace: whether to record the steps of a call, for ``Guide.trace``.
            log_mass: whether to record how much of the probability the format leaves at each position, for
                ``GuidedDecoder.log_masses``. Forced text at the beginning or the end of the answers then takes one more
                forward pass.
            seeds: 64-bit ints, one for each row. The samples of a row then depend only on its seed and its scores: they
                are the same with any other rows, with and without drafts. None draws with torch's generator.
            logprobs: record the log probabilities of every token, for ``GuidedDecoder.logprobs``: True, or how many of
                the most likely tokens to list at each position. Forced text at the beginning or the end of the answers
                then takes one more forward pass.

        Raises:
            InvalidConstraint, StopTokenError: as ``logits_processor``.
            InvalidArgument: an unknown ``draft``, or one together with ``retokenize``; ``seeds`` that are no 64-bit
                ints.
            UnsupportedModel: a draft model that cannot take rows of different lengths exactly; ``logprobs`` of a model
                in several processes.
        """
        loop = DecodeOptions(jump_forward, retokenize, draft, streamer, stop_strings, seeds, num_top(logprobs))
        session = self.session(constraint, prefix=prefix, **options)
        return self._calls.decoder_of(session, loop, options.get("backend", "auto"))

    @explains_its_arguments(of_guide("session"))
    @with_fields(SessionOptions)
    @reading("constraint, options")
    def session(
        self,
        constraint: Any,
        *,
        prefix: str | Sequence[str | None] | None = None,
        **arguments: Unpack[SessionArguments],
    ) -> Session:
        """The state of a ``logits_processor``, for custom decode loops; arguments as for ``logits_processor``."""
        options = SessionOptions(**arguments)
        given = coerce_batch(constraint)
        constraints: list[Constraint | None] = given if isinstance(given, list) else [given]
        prefixes: list[Any] = list(prefix) if isinstance(prefix, (list, tuple)) else [prefix]
        if len(prefixes) > 1 and not isinstance(given, list):
            constraints = constraints * len(prefixes)
        if len(prefixes) == 1:
            prefixes = prefixes * len(constraints)
        if len(prefixes) != len(constraints):
            raise BatchSizeError(
                f"expected one prefix for all rows or {len(constraints)} (one per constraint), got {len(prefixes)}"
            )
        if options.reasoning is not None and any(prefixes):
            raise InvalidConstraint(
                "prefix, reasoning: expected one of the two, for a prefix begins the answer, and thinking comes before "
                "it; leave one out"
            )
        requests = self._calls.requests(constraints, prefixes, options.backend, options.reasoning)
        return self._calls.session_of(requests, options)

    @reading("Guide.trace")
    def trace(
        self,
        seam: GuidedDecoder | GuidedLogitsProcessor,
        sequences: Tensor,
        row: int = 0,
        *,
        constraint: Any = None,
        length: int | None = None,
    ) -> Trace:
        """The recording of one row of a ``model.generate`` call.

        Args:
            seam: the decoder or the logits processor of the call, made with ``trace=True``. Of a processor's calls, the
                last one that began with this prompt is traced; the processor does not know the drafts of transformers'
                own loops, so their tokens appear as chosen.
            sequences: (rows, length) int, the tensor that generate() returned, with prompts and padding.
            row: index of the row.
            constraint: of the row, to name it; None for a free row.
            length: the number of the row's output tokens; None: up to its first stop token.

        Raises:
            InvalidArgument: the seam was made without ``trace=True``; there is no such row.
        """
        if seam.recorder is None:
            raise InvalidArgument("trace: nothing was written down; make the decoder or the processor with trace=True")
        if sequences.ndim != 2 or not 0 <= row < len(sequences):
            raise InvalidArgument(
                f"trace: expected sequences (rows, length) as generate() returns them, and one of their rows, got "
                f"{tuple(sequences.shape)} and row {row}"
            )
        named = None if constraint is None else self._calls.required(constraint)
        masses = partial(seam.log_masses, row)
        return seam.recorder.trace(sequences, row, seam.stop_token_ids, length, self.vocabulary, named, masses)

    @reading("Guide.attach")
    def attach(self, manager: Any) -> Any:
        """Give every request of transformers' continuous batching its own constraint.

        Call ``manager = guide.attach(model.init_continuous_batching(...))`` before ``start()`` and ``warmup()``. Then
        ``manager.add_request(input_ids, response_format=constraint)`` takes a constraint, or a plain form of one, for
        this request and its return sequences; without it, or with None, the request is free. It also takes ``backend``
        and ``prefix``, as ``logits_processor`` does. It compiles before it queues the request: a bad constraint raises
        there (as in ``compile``, and BudgetTooSmall, StopTokenError, EmptyIntersection), and a slow compile delays no
        other request. Texts close within the request's ``max_new_tokens``. ``add_requests`` takes the same arguments
        for all of its requests. A finished output whose ``error`` is set reached a dead end. Read outputs back with
        ``guide.read(constraint, output.generated_tokens)``.

        Asynchronous batching stays on, except on a CPU and with ``num_return_sequences``. CUDA graphs stay on. A
        batch of guided requests waits for the tokens of the batch before it.

        Args:
            manager: not yet started; or one that the model has cached, and that this guide has attached before.

        Returns:
            The manager.

        Raises:
            GenerationError: it has started or warmed up.
            UnsupportedModel: several processes hold the model, and each would make its own masks; an adapter of it adds
                virtual tokens; or some of its layers are neither full nor sliding attention.
            VocabularySizeError: its model's logits have another width.
            InvalidArgument: another guide has attached it.
        """
        if self._not_continuous:
            raise UnsupportedModel(self._not_continuous)
        from .hf.continuous_batching.attach import attach  # imports large parts of transformers

        attach(manager, self.vocabulary, self._calls.tables, self.session)
        return manager

    @explains_its_arguments(of_guide("read"))
    @with_fields(SessionOptions)
    @reading("Guide.read")
    def read(
        self,
        constraint: Any,
        token_ids: Sequence[int] | Tensor,
        *,
        prefix: str | None = None,
        pad_token_id: int | None = None,
        stats: SessionStats | None = None,
        prompt: Sequence[int] = (),
        **options: Unpack[SessionArguments],
    ) -> GuidedResult:
        """Read one output row back: its text, its value, and how it ended.

        If a stop token is also the padding, a row that was forced to stop in the middle cannot be distinguished from
        one that was cut, and is read as cut ("length").

        Args:
            constraint: the one that the row was generated with; None for a free row.
            token_ids: the row after the prompt, (length,), with or without padding at the end.
            prefix: as when it was generated.
            pad_token_id: follows a row that was cut while others continued; None means the tokenizer's.
            stats: put into the result unchanged.
            prompt: with ``reasoning``, the token ids before the row; only their end is read.
            **options: as when it was generated; see ``logits_processor``. The result's ``thinking_cut`` needs the
                ``max_new_tokens`` of the call.

        Raises:
            InvalidArgument: ``token_ids`` are no token ids, or those of several rows; or the two arguments are swapped.
                Tokens that begin with the prompt are a dead end, and a warning says so.
        """
        if TOKEN_IDS.holds(constraint) and not TOKEN_IDS.holds(token_ids):
            raise InvalidArgument(
                f"constraint, token_ids: expected the constraint before the tokens, got {shown(constraint)} as the "
                f"constraint and {shown(token_ids)} as the tokens; swap the two"
            )
        shape = getattr(token_ids, "shape", None)
        if shape is not None and len(shape) != 1:
            raise InvalidArgument(f"token_ids: expected one row, got a tensor of shape {(*shape,)}; read it row by row")
        check("token_ids", token_ids, TOKEN_IDS)
        ids: list[int] = token_ids.tolist() if hasattr(token_ids, "tolist") else [*token_ids]
        given = SessionOptions(**options)
        [request] = self._calls.requests([coerce(constraint)], [prefix], given.backend, given.reasoning)
        new_reader = partial(
            self._calls.reader_of, request, given, pad_token_id=pad_token_id, stats=stats, prompt=prompt
        )
        result = new_reader().read(ids)
        if result.finish_reason == "dead_end" and not result.token_ids:
            # A row that was generated without the constraint may begin like this too.
            num_read = 0
            for begin in range(1, min(len(ids), _LONGEST_PROMPT)):
                reader = new_reader()
                if reader.take(ids[begin : begin + 1]) and reader.read(ids[begin + 1 :]).finish_reason == "stop":
                    warn(
                        f"token_ids: the first {begin} of {len(ids)} tokens are no part of an answer in the format; if "
                        "they are the prompt, pass output[row, prompt_length:]"
                    )
                    break
                num_read += reader.num_taken
                if num_read > _MOST_READ:
                    break
        return result

    @explains_its_arguments(of_guide("reader"))
    @with_fields(SessionOptions)
    @reading("Guide.reader")
    def reader(
        self,
        constraint: Any,
        *,
        prefix: str | None = None,
        pad_token_id: int | None = None,
        stats: SessionStats | None = None,
        prompt: Sequence[int] = (),
        **options: Unpack[SessionArguments],
    ) -> RowReader:
        """A reader of one output row, for use while it is being generated; arguments as for ``read``."""
        given = SessionOptions(**options)
        [request] = self._calls.requests([coerce(constraint)], [prefix], given.backend, given.reasoning)
        return self._calls.reader_of(request, given, pad_token_id=pad_token_id, stats=stats, prompt=prompt)

    @reading("Guide.close")
    def close(self, timeout_s: float) -> bool:
        """End the threads that compile; see ``Compiler.close``."""
        return self._calls.compiler.close(timeout_s)

    def stats(self) -> CompilerStats:
        """The cost of compiling so far: cache hits, misses, failures, milliseconds."""
        return self._calls.compiler.stats()


def calls_of(guide: Guide) -> Calls:
    """The maker of the parts of calls, for the other rooms of this package."""
    return guide._calls
