"""The task ``guided-generation``: transformers' text-generation pipeline with a constraint for every prompt.

Prompts, chats, data sets, batches and generation arguments are handled as in the text-generation pipeline. A constraint
stays with its prompt through preprocessing and collation, so it governs the right row in any batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, GenerationConfig, TextGenerationPipeline
from transformers.pipelines import PIPELINE_REGISTRY  # takes seconds, so only users of the task import this file
from transformers.pipelines.text_generation import Chat, ReturnType
from transformers.utils.chat_template_utils import is_valid_message

from ..constraints.argument_advice import PIPELINE, explains_its_arguments
from ..constraints.argument_checks import FLAG, check
from ..constraints.coerce import coerce, coerce_batch
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import BatchSizeError, InvalidArgument, PromptError
from ..guide import calls_of
from ..hf.calls import Futures
from ..hf.generation_settings import GenerationSettings
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.reasoning import Reasoning
from .arguments import GenerateOptions, check_arguments
from .guided_call import GuidedCall, check_budgets, check_compiled, guide_for
from .messages import has_calls
from .plan import choose_loop
from .prompt_inputs import PromptInputs, check_takes_media
from .prompts import Prompt, as_prompts, hint_at_description, prepared, warn_of_unseen
from .templates import is_processor, rendered, template_options

TASK = "guided-generation"
# Arguments that the text-generation pipeline takes, and that are in no signature.
_PARENTS = ("add_special_tokens", "batch_size", "num_workers", "padding", "prefix_length")
_FOR_PROMPTS = ("response_format", "chat_template_kwargs", "show_tools", "describe")
_FOR_LOOP = ("backend", "reasoning", "jump_forward")
_COMPILED = "compiled"  # the constraints of a call, from ``__call__`` to ``_forward``


@dataclass(frozen=True)
class _Prompt:
    """A prompt with its own constraint."""

    prompt: Any
    constraint: Constraint | None


@dataclass(frozen=True)
class _Row:
    """What belongs to one prompt's tokens."""

    constraint: Constraint | None  # the answer's; None is free
    prefix: str | None  # the beginning of the answer, if the prompt holds it already
    prompt: Prompt | None  # what a processor has still to make tensors of; None where a tokenizer has made the tokens


class GuidedGenerationPipeline(TextGenerationPipeline):  # type: ignore[misc]  # transformers is untyped here
    """``pipeline("guided-generation", model=model, tokenizer=tokenizer)(prompts, response_format=constraint)``.

    Takes what the text-generation pipeline takes, and

    - ``response_format``: a constraint for all prompts, or a list with one per prompt of a list (None = free). Given to
      ``pipeline(...)`` it is the default of every call.
    - ``backend``: "auto", or the name of a backend.
    - ``reasoning``: what comes before every answer, an ``hg.Reasoning``.
    - ``jump_forward``: False (the default) runs transformers' own loop, with one forward pass per token. True runs the
      fast loop, as ``hg.generate`` does: text that the grammar leaves no choice about is appended without the model, in
      the tokenizer's own tokenization. Beams, and features that only generate() itself has (an assistant model, stop
      strings, a streamer ...), run in transformers' own loop in any case.
    - ``chat_template_kwargs``, ``documents``, ``show_tools``, ``describe``: as for ``hg.generate``, one for all
      prompts. Chat templates are given the tools of ``hg.ToolCalls`` where the call has no ``tools``.

    With ``pipeline(..., processor=processor)`` chats may hold images, video and audio.

    As in ``hg.generate``, answers are sampled if the call or the model's generation config sets ``do_sample``, and else
    greedy. (The text-generation pipeline samples at temperature 0.7.)

    An argument that is unknown to the pipeline, the generation settings and the model is an ``UnknownArgument``.

    Returns a list of dicts per prompt, one per returned sequence, as the text-generation pipeline does, with

    - ``generated_text``: the answer alone (``return_full_text=True`` puts the prompt, or the chat, before it);
    - ``thinking``: only with ``reasoning``, and unless the prompt had ended it: the text before the answer;
    - ``value``: the answer as a value of the constraint; None if it did not finish;
    - ``finish_reason``: "stop", "length" or "dead_end";
    - ``shortened``: only where the token limit changed the answer, see ``GuidedResult``: True;
    - ``thinking_cut``: only where the thinking had to end, see ``GuidedResult``: True;
    - ``error``: only where a finished answer could not be turned into a value: the reason.

    A chat that ends with a message of the assistant is continued; that message is the beginning of the answer.
    """

    _default_generation_config = GenerationConfig(max_new_tokens=DEFAULT_MAX_NEW_TOKENS)
    _load_tokenizer = None  # a processor brings its own

    def __init__(self, *args: Any, tokenizer: Any = None, processor: Any = None, **kwargs: Any):
        if tokenizer is None and processor is not None:
            tokenizer = processor.tokenizer
        if tokenizer is None:
            raise InvalidArgument("expected a tokenizer or a processor, got neither; pass tokenizer= or processor=")
        super().__init__(*args, tokenizer=tokenizer, processor=processor, **kwargs)

    def check_model_type(self, supported_models: Any) -> None:
        """Without a processor, check as the text-generation pipeline; with one, there is no list of models."""
        if not is_processor(self._templates):
            super().check_model_type(supported_models)

    @property
    def _templates(self) -> Any:
        """The processor or the tokenizer, whichever renders chats."""
        return self.processor if self.processor is not None and is_processor(self.processor) else self.tokenizer

    @explains_its_arguments(PIPELINE)
    def __call__(self, text_inputs: Any, **kwargs: Any) -> Any:
        """Generate; see the class.

        Raises:
            UnknownArgument: an unknown keyword argument; before anything is compiled.
            InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: before anything is generated.
            BatchSizeError: the number of constraints is not the number of prompts.
        """
        self._check_arguments(kwargs).warn_of_ignored()
        if hasattr(text_inputs, "tolist"):  # a Series or an array; generators and data sets are read one by one
            text_inputs = as_prompts(text_inputs)
        if "response_format" in kwargs:
            given = coerce_batch(kwargs.pop("response_format"))
        elif "response_format" in self._preprocess_params:
            given = coerce_batch(self._preprocess_params["response_format"])
        else:
            raise InvalidArgument("expected response_format: a constraint, one per prompt, or None to generate freely")
        constraints = given if isinstance(given, list) else [given]
        compiled: Futures = {}
        backend = kwargs.get("backend", self._forward_params.get("backend", "auto"))
        guide = guide_for(self.model, self.tokenizer)
        # A bad constraint raises here, before any prompt is run.
        check_compiled(calls_of(guide).requests(constraints, [None] * len(constraints), backend, futures=compiled))
        kwargs[_COMPILED] = compiled
        if isinstance(given, list):
            return super().__call__(_pair(text_inputs, given), **kwargs)
        return super().__call__(text_inputs, response_format=given, **kwargs)

    def _check_arguments(self, arguments: dict[str, Any]) -> GenerationSettings:
        """Check the arguments of a call, or of ``pipeline``; the settings of the call that they are for."""
        known = {*_FOR_PROMPTS, *_FOR_LOOP, *_PARENTS, *inspect.signature(super()._sanitize_parameters).parameters}
        others = {name: value for name, value in arguments.items() if name not in known}
        check_arguments(self.model, others, known, PIPELINE)
        check("jump_forward", arguments.get("jump_forward", False), FLAG)
        settings = GenerationSettings(self.model, self._prepare_generate_kwargs(others))
        settings.check_values()
        return settings

    def _sanitize_parameters(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        # Taken out first: transformers passes every argument that it does not know to generate().
        compiled = {_COMPILED: kwargs.pop(_COMPILED)} if _COMPILED in kwargs else {}
        self._check_arguments(kwargs)
        for_prompts = {name: kwargs.pop(name) for name in _FOR_PROMPTS if name in kwargs}
        for_loop = {name: kwargs.pop(name) for name in _FOR_LOOP if name in kwargs}
        preprocess, forward, postprocess = super()._sanitize_parameters(**kwargs)
        if "reasoning" in for_loop:
            preprocess["thinks"] = for_loop["reasoning"] is not None
        return {**preprocess, **for_prompts}, {**forward, **for_loop, **compiled}, postprocess

    def preprocess(
        self,
        prompt_text: Any,
        response_format: Any = None,
        *,
        chat_template_kwargs: dict[str, Any] | None = None,
        documents: Any = None,
        tools: Any = None,
        show_tools: bool = True,
        describe: bool = False,
        thinks: bool = False,
        tokenizer_encode_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Tokenize a prompt, and keep its constraint with its tokens."""
        if isinstance(prompt_text, _Prompt):
            prompt_text, response_format = prompt_text.prompt, prompt_text.constraint
        constraint = coerce(response_format)
        prefix = _continued_text(prompt_text, kwargs.get("continue_final_message"))
        given = {**(chat_template_kwargs or {}), **({} if tools is None else {"tools": tools})}
        chat = prompt_text.messages if isinstance(prompt_text, Chat) else prompt_text
        [options] = template_options(given, documents, [chat], show_tools=show_tools, describe=describe, thinks=thinks)
        prompt = prepared(self._templates, chat, constraint, options, continues=prefix is not None)
        warn_of_unseen([prompt])
        hint_at_description([prompt], [constraint])
        if isinstance(constraint, ToolCalls):
            constraint = constraint.after(prompt.chat)
        if is_processor(self._templates):
            check_takes_media(self._templates, [prompt], self.model)
            if prefix is not None:  # so that the answer can be joined to it
                prompt_text = Chat([*chat[:-1], {**chat[-1], "content": prefix}])
            inputs: Any = {"prompt_text": prompt_text, "row": _Row(constraint, prefix, prompt)}
            return inputs
        arguments = {**(tokenizer_encode_kwargs or {}), **(prompt.arguments or {})}
        arguments.pop("continue_final_message", None)  # the text-generation pipeline decides it in the same way
        for_template = {name: arguments.pop(name, None) for name in ("tools", "documents")}
        ready = Chat(list(prompt.chat)) if prompt.text is None else prompt.text
        if prompt.answer_start or has_calls(prompt.chat):  # transformers would render it as it is
            ready = rendered(self._templates, prompt.chat, prompt.arguments) + prompt.answer_start
            arguments, for_template = tokenizer_encode_kwargs or {}, {}
            kwargs |= {"add_special_tokens": False, "prefix": ""}
        inputs = super().preprocess(ready, tokenizer_encode_kwargs=arguments, **for_template, **kwargs)
        inputs["prompt_text"] = prompt_text  # the original, for the outputs
        inputs["row"] = _Row(constraint, prefix, None)
        return inputs

    def _forward(
        self,
        model_inputs: Any,
        backend: str = "auto",
        reasoning: Reasoning | None = None,
        jump_forward: bool = False,
        compiled: Futures | None = None,
        **generate_kwargs: Any,
    ) -> dict[str, Any]:
        given = model_inputs.pop("row")
        collated = isinstance(given, list)
        rows: list[_Row] = given if collated else [given]
        options = GenerateOptions(backend=backend, reasoning=reasoning, jump_forward=jump_forward)
        if all(row.prompt is None for row in rows):
            outputs = self._answered(model_inputs, rows, options, compiled, generate_kwargs)
        else:
            texts = model_inputs["prompt_text"] if collated else [model_inputs["prompt_text"]]
            padding = self.tokenizer.pad_token_id
            inputs = PromptInputs(
                self.model,
                guide_for(self.model, self.tokenizer).vocabulary,
                self._templates,
                [row.prompt for row in rows if row.prompt is not None],
                [None] * len(rows),  # a chat that is continued holds its prefix
                self.tokenizer.eos_token_id if padding is None else padding,
                {},
            )
            settings = GenerationSettings(self.model, self._prepare_generate_kwargs(dict(generate_kwargs)))
            parts = []
            for indices in inputs.batches(range(len(rows)), len(rows)):
                _, tensors, copies = inputs.of_call(indices, settings)
                part: Any = {name: tensors.pop(name) for name in ("input_ids", "attention_mask")}
                part["prompt_text"] = [texts[i] for i in indices] if collated else texts[0]
                chosen, kwargs = [rows[i] for i in indices], {**generate_kwargs, **tensors}
                parts.append(self._answered(part, chosen, options, compiled, kwargs, copies))
            outputs = parts[0] if len(parts) == 1 else joined(parts, inputs.pad_token_id)
        if not collated:  # the pipeline takes a batch apart by indexing; a lone prompt's outputs it leaves as they are
            [outputs["results"]] = outputs["results"]
        return outputs

    def _answered(
        self,
        inputs: Any,
        rows: Sequence[_Row],
        options: GenerateOptions,
        compiled: Futures | None,
        generate_kwargs: dict[str, Any],
        copies: int = 1,
    ) -> dict[str, Any]:
        """The outputs of the text-generation pipeline for prompts that are tokens, with their results.

        Each prompt stands ``copies`` times in the inputs, in place of ``num_return_sequences``.
        """
        settings = GenerationSettings(self.model, self._prepare_generate_kwargs(dict(generate_kwargs)))
        guide = guide_for(self.model, self.tokenizer)
        constraints, prefixes = [row.constraint for row in rows], [row.prefix for row in rows]
        requests = calls_of(guide).requests(constraints, prefixes, options.backend, options.reasoning, futures=compiled)
        settings.check_against(check_compiled(requests))
        input_ids = inputs["input_ids"]
        check_budgets(requests, settings, input_ids[::copies].tolist())
        loop = None
        if options.jump_forward:
            fast, options = choose_loop(settings, options)
            loop = options.decode(streamer=None, seeds=None) if fast else None
        budget = settings.max_new_tokens(max(input_ids.shape[-1], 1)) or DEFAULT_MAX_NEW_TOKENS
        call = GuidedCall(guide, requests, options.session(settings.stop_token_ids(), budget), settings, loop)
        if copies > 1:
            generate_kwargs = settings.over(generate_kwargs, num_return_sequences=1)
        outputs: dict[str, Any] = super()._forward(inputs, **call.arguments(self.model, generate_kwargs))
        if copies > 1:
            outputs = regrouped(outputs, copies)
        input_ids, start = outputs["input_ids"], call.seam.prompt_length  # generate() begins an empty prompt with BOS
        prompts: list[list[int]] = [[]] * len(rows) if input_ids is None else input_ids.tolist()
        results = [
            [
                call.read(i * len(sequences) + j, token_ids, prompt)
                for j, token_ids in enumerate(sequences[:, start:].tolist())
            ]
            for i, (prompt, sequences) in enumerate(zip(prompts, outputs["generated_sequence"], strict=True))
        ]
        outputs["results"] = list(zip(rows, results, strict=True))
        return outputs

    def postprocess(
        self, model_outputs: Any, return_type: ReturnType = ReturnType.NEW_TEXT, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """One dict per returned sequence; see the class."""
        row, results = model_outputs.pop("results")
        prompt_text = model_outputs["prompt_text"]
        records: list[dict[str, Any]] = super().postprocess(model_outputs, return_type=return_type, **kwargs)
        for record, result in zip(records, results, strict=True):
            # The exact text: a tokenizer's decode() may drop a leading space, or tidy spaces away.
            new_text = result.text[len(row.prefix or "") :]
            if return_type is ReturnType.NEW_TEXT:
                record["generated_text"] = new_text
            elif return_type is ReturnType.FULL_TEXT and isinstance(prompt_text, str):
                record["generated_text"] = prompt_text + new_text
            record.update(value=result.value, finish_reason=result.finish_reason)
            if result.shortened:
                record["shortened"] = True
            if result.thinking_cut:
                record["thinking_cut"] = True
            if result.thinking is not None:
                record["thinking"] = result.thinking
            if result.error is not None:
                record["error"] = result.error
        return records


def _pair(prompts: Any, constraints: list[Constraint | None]) -> list[_Prompt]:
    """Each prompt with its constraint."""
    several = isinstance(prompts, (list, tuple)) and not (prompts and is_valid_message(prompts[0]))
    if not several or len(prompts) != len(constraints):
        raise BatchSizeError(
            f"expected one constraint for all prompts, or as many constraints as prompts, got {len(constraints)} "
            f"constraints for {f'{len(prompts)} prompts' if several else 'something that is not a list of prompts'}"
        )
    return [
        _Prompt(prompt if isinstance(prompt, str) else Chat(prompt), constraint)
        for prompt, constraint in zip(prompts, constraints, strict=True)
    ]


def _continued_text(prompt: Any, continue_final_message: bool | None) -> str | None:
    """The beginning of the answer, if the prompt is a chat whose last message is to be continued."""
    if not isinstance(prompt, Chat):
        return None
    last = prompt.messages[-1]
    if continue_final_message is None:
        continue_final_message = last["role"] == "assistant"
    if not continue_final_message:
        return None
    content = last["content"]
    if isinstance(content, (list, tuple)):  # as processors have it
        if any(not isinstance(part.get("text"), str) for part in content):
            raise PromptError("expected text alone in a message of the assistant that is to be continued")
        return "".join(part["text"] for part in content)
    return str(content)


def regrouped(outputs: dict[str, Any], copies: int) -> dict[str, Any]:
    """The outputs of copies of prompts, (prompts * copies, 1, ...), as those of prompts: (prompts, copies, ...)."""
    rows = len(outputs["input_ids"])
    fields = {
        name: value.reshape(rows // copies, copies, *value.shape[2:])
        for name, value in outputs.items()
        if name != "input_ids" and isinstance(value, torch.Tensor) and value.shape[:2] == (rows, 1)
    }
    return {**outputs, **fields, "input_ids": outputs["input_ids"][::copies]}


def joined(parts: list[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The outputs of several calls as those of one call: answers are padded at their end, prompts at their beginning.

    Raises:
        InvalidArgument: there are outputs other than tokens.
    """
    names = {"generated_sequence", "input_ids", "prompt_text", "results"}
    if more := sorted({name for part in parts for name in part} - names):
        raise InvalidArgument(
            f"{', '.join(more)}: prompts of several kinds (texts, chats, chats with images) run in calls of their own, "
            "and these outputs cannot be joined; pass batch_size=1"
        )
    widest = max(part["input_ids"].shape[-1] for part in parts)
    longest = max(part["generated_sequence"].shape[-1] - part["input_ids"].shape[-1] for part in parts)
    outputs: dict[str, Any] = {"generated_sequence": [], "input_ids": [], "prompt_text": [], "results": []}
    for part in parts:
        prompts, sequences = part["input_ids"], part["generated_sequence"]
        before = widest - prompts.shape[-1]
        after = longest - (sequences.shape[-1] - prompts.shape[-1])
        outputs["input_ids"].append(pad(prompts, (before, 0), value=pad_token_id))
        outputs["generated_sequence"].append(pad(sequences, (before, after), value=pad_token_id))
        outputs["prompt_text"] += part["prompt_text"]
        outputs["results"] += part["results"]
    return outputs | {name: torch.cat(outputs[name]) for name in ("input_ids", "generated_sequence")}


def register() -> None:
    """Make ``transformers.pipeline("guided-generation", ...)`` work. Safe to call any number of times."""
    known = PIPELINE_REGISTRY.supported_tasks.get(TASK)
    if known is None or known["impl"] is not GuidedGenerationPipeline:
        PIPELINE_REGISTRY.register_pipeline(
            TASK,
            pipeline_class=GuidedGenerationPipeline,
            pt_model=(AutoModelForCausalLM, AutoModelForImageTextToText),
            type="text",
        )
