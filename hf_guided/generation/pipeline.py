"""The task ``guided-generation``: transformers' text-generation pipeline with a constraint for every prompt.

Prompts, chats, data sets, batches and generation arguments go the way they go in the text-generation pipeline. A
constraint travels with its prompt through preprocessing and collation, so it meets the right row in any batch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import GenerationConfig, TextGenerationPipeline
from transformers.pipelines.text_generation import Chat, ReturnType
from transformers.utils.chat_template_utils import is_valid_message

from ..constraints.argument_advice import PIPELINE
from ..constraints.coerce import coerce, coerce_batch
from ..constraints.values import Constraint
from ..errors import BatchSizeError, InvalidArgument, PromptError
from ..hf.generation_settings import GenerationSettings
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.reasoning import Reasoning
from .chat_prompts import Prompt, is_processor, prepared
from .guide_cache import guide_for
from .plan import template_options, warn_of_unseen
from .processor_inputs import check_takes_media
from .prompt_inputs import PromptInputs
from .unknown_arguments import check_arguments

# Taken by the text-generation pipeline without being in a signature.
_PARENTS = ("add_special_tokens", "batch_size", "num_workers", "padding", "prefix_length")
_FOR_PROMPTS = ("response_format", "chat_template_kwargs", "show_tools", "describe")
_OWN = (*_FOR_PROMPTS, "backend", "reasoning")
_DEFAULTS = GenerationConfig(max_new_tokens=DEFAULT_MAX_NEW_TOKENS, do_sample=True, temperature=0.7)


@dataclass(frozen=True)
class _Prompt:
    """A prompt beside its own constraint."""

    prompt: Any
    constraint: Constraint | None


@dataclass(frozen=True)
class _Asked:
    """What goes with one prompt's tokens: its constraint, and how much of the answer the prompt holds already.

    ``prompt`` is what a processor has still to make tensors of, all prompts of a batch at once; None where a tokenizer
    has made the tokens.
    """

    constraint: Constraint | None
    prefix: str | None
    prompt: Prompt | None


class GuidedGenerationPipeline(TextGenerationPipeline):  # type: ignore[misc]  # transformers is untyped here
    """``pipeline("guided-generation", model=model, tokenizer=tokenizer)(prompts, response_format=constraint)``.

    Takes what the text-generation pipeline takes, and

    - ``response_format``: a constraint for all prompts, or a list with one per prompt of a list (None = free). Given to
      ``pipeline(...)`` it is the default of every call.
    - ``backend``: "auto", or the name of a backend.
    - ``reasoning``: what comes in front of every answer, an ``hg.Reasoning``.
    - ``chat_template_kwargs``, ``documents``, ``show_tools``, ``describe``: as for ``hg.generate``, one for all
      prompts. Chat templates are given the tools of ``hg.ToolCalls`` where the call has no ``tools``.

    With ``pipeline(..., processor=processor)`` chats may hold images, video and audio.

    As in the text-generation pipeline, answers are sampled, at temperature 0.7, where neither the call nor the model's
    generation config says something else; pass ``do_sample=False`` for greedy decoding. (``hg.generate`` is greedy
    unless the call or the model's generation config sets ``do_sample``.)

    An argument that none of the pipeline, the generation settings and the model takes is an ``UnknownArgument``.

    Returns a list of dicts per prompt, one per returned sequence, as the text-generation pipeline does, with

    - ``generated_text``: the answer alone (``return_full_text=True`` puts the prompt, or the chat, in front of it);
    - ``thinking``: only with ``reasoning``, and where the prompt had not ended it: what came in front of the answer;
    - ``value``: the answer as a value of the constraint; None if it did not finish;
    - ``finish_reason``: "stop", "length" or "dead_end";
    - ``error``: only where a finished answer could not be turned into a value, and why.

    A chat that ends with a message of the assistant is continued; that message is the beginning of the answer.
    """

    _default_generation_config = _DEFAULTS
    _load_tokenizer = None  # a processor brings its own

    def __init__(self, *args: Any, tokenizer: Any = None, processor: Any = None, **kwargs: Any):
        if tokenizer is None and processor is not None:
            tokenizer = processor.tokenizer
        if tokenizer is None:
            raise InvalidArgument("expected a tokenizer or a processor, got neither; pass tokenizer= or processor=")
        super().__init__(*args, tokenizer=tokenizer, processor=processor, **kwargs)

    def check_model_type(self, supported_models: Any) -> None:
        """Models for text are those of the text-generation pipeline; with a processor, there is no list of them."""
        if not is_processor(self._templates):
            super().check_model_type(supported_models)

    @property
    def _templates(self) -> Any:
        """What renders chats: the processor, if there is one."""
        return self.processor if self.processor is not None and is_processor(self.processor) else self.tokenizer

    def __call__(self, text_inputs: Any, **kwargs: Any) -> Any:
        """Generate; see the class.

        Raises:
            UnknownArgument: a keyword argument that nothing takes; before anything is compiled.
            InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: before anything is generated.
            BatchSizeError: the number of constraints is not the number of prompts.
        """
        self._check_arguments(kwargs)
        if "response_format" in kwargs:
            asked = coerce_batch(kwargs.pop("response_format"))
        elif "response_format" in self._preprocess_params:
            asked = coerce_batch(self._preprocess_params["response_format"])
        else:
            raise InvalidArgument("expected response_format: a constraint, one per prompt, or None to generate freely")
        backend = kwargs.get("backend", self._forward_params.get("backend", "auto"))
        guide = guide_for(self.tokenizer, self.model)
        for constraint in asked if isinstance(asked, list) else [asked]:
            if constraint is not None:
                guide.compile(constraint, backend, budget=True)  # a bad one raises here, before any prompt is run
        if isinstance(asked, list):
            return super().__call__(_pair(text_inputs, asked), **kwargs)
        return super().__call__(text_inputs, response_format=asked, **kwargs)

    def _check_arguments(self, arguments: dict[str, Any]) -> None:
        known = {*_OWN, *_PARENTS, *inspect.signature(super()._sanitize_parameters).parameters}
        others = {name: value for name, value in arguments.items() if name not in known}
        check_arguments(self.model, others, known, PIPELINE)
        GenerationSettings(self.model, others).check_values()

    def _sanitize_parameters(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        self._check_arguments(kwargs)
        # Taken out first: transformers hands everything it does not know to generate().
        asked = {key: kwargs.pop(key) for key in _FOR_PROMPTS if key in kwargs}
        chosen = {key: kwargs.pop(key) for key in ("backend", "reasoning") if key in kwargs}
        preprocess, forward, postprocess = super()._sanitize_parameters(**kwargs)
        return {**preprocess, **asked}, {**forward, **chosen}, postprocess

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
        tokenizer_encode_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Tokenize a prompt and put its constraint beside it."""
        if isinstance(prompt_text, _Prompt):
            prompt_text, response_format = prompt_text.prompt, prompt_text.constraint
        constraint = coerce(response_format)
        begun = _begun(prompt_text, kwargs.get("continue_final_message"))
        given = {**(chat_template_kwargs or {}), **({} if tools is None else {"tools": tools})}
        chat = prompt_text.messages if isinstance(prompt_text, Chat) else prompt_text
        [options] = template_options(given, documents, [chat], show_tools=show_tools, describe=describe)
        prompt = prepared(self._templates, chat, constraint, options, continues=begun is not None)
        warn_of_unseen([prompt])
        if is_processor(self._templates):
            check_takes_media(self._templates, [prompt], self.model)
            if begun is not None:  # so that the answer can be joined to it
                prompt_text = Chat([*chat[:-1], {**chat[-1], "content": begun}])
            inputs: Any = {"prompt_text": prompt_text, "asked": _Asked(constraint, begun, prompt)}
            return inputs
        arguments = {**(tokenizer_encode_kwargs or {}), **(prompt.arguments or {})}
        arguments.pop("continue_final_message", None)  # the text-generation pipeline decides it likewise
        for_template = {name: arguments.pop(name, None) for name in ("tools", "documents")}
        ready = Chat(list(prompt.chat)) if prompt.text is None else prompt.text
        inputs = super().preprocess(ready, tokenizer_encode_kwargs=arguments, **for_template, **kwargs)
        inputs["prompt_text"] = prompt_text  # as it was given, for what comes back
        inputs["asked"] = _Asked(constraint, begun, None)
        return inputs

    def _forward(
        self, model_inputs: Any, backend: str = "auto", reasoning: Reasoning | None = None, **generate_kwargs: Any
    ) -> dict[str, Any]:
        asked = model_inputs.pop("asked")
        batched = isinstance(asked, list)  # once collated
        rows: list[_Asked] = asked if batched else [asked]
        prompts = [row.prompt for row in rows if row.prompt is not None]
        if not prompts:
            return self._answered(model_inputs, rows, batched, backend, reasoning, generate_kwargs)
        padding = self.tokenizer.pad_token_id
        inputs = PromptInputs(
            self.model,
            guide_for(self.tokenizer, self.model).vocabulary,
            self._templates,
            prompts,
            [None] * len(rows),  # a chat that is continued holds it
            self.tokenizer.eos_token_id if padding is None else padding,
            {},
        )
        texts = model_inputs["prompt_text"] if batched else [model_inputs["prompt_text"]]
        settings = GenerationSettings(self.model, self._prepare_generate_kwargs(dict(generate_kwargs)))
        sequences = settings.get("num_return_sequences") or 1
        parts = []
        for indices in inputs.batches(range(len(rows)), len(rows)):
            # transformers' own copies of a row may get the images of other rows; the processor's do not.
            copies = sequences if settings.samples and any(prompts[i].media for i in indices) else 1
            tensors = inputs.batch(indices, copies)[1]
            if max(settings.get("num_beams") or 1, sequences // copies) > 1:
                inputs.check_repeated(tensors)
            part: Any = {name: tensors.pop(name) for name in ("input_ids", "attention_mask")}
            part["prompt_text"] = [texts[i] for i in indices] if batched else texts[0]
            chosen = [rows[i] for i in indices]
            given = {**generate_kwargs, **tensors}
            parts.append(self._answered(part, chosen, batched, backend, reasoning, given, copies))
        return parts[0] if len(parts) == 1 else _joined(parts, inputs.pad_token_id)

    def _answered(
        self,
        model_inputs: Any,
        rows: list[_Asked],
        batched: bool,
        backend: str,
        reasoning: Reasoning | None,
        generate_kwargs: dict[str, Any],
        copies: int = 1,
    ) -> dict[str, Any]:
        """What the text-generation pipeline gives for prompts that are tokens, with their results.

        Args:
            model_inputs: of all rows.
            rows: one for each prompt.
            batched: whether the pipeline has collated the prompts.
            backend: "auto", or the name of a backend.
            reasoning: what comes before every answer.
            generate_kwargs: of this call.
            copies: how many rows of ``model_inputs`` each prompt has, in place of ``num_return_sequences``.
        """
        guide = guide_for(self.tokenizer, self.model)
        settings = GenerationSettings(self.model, self._prepare_generate_kwargs(dict(generate_kwargs)))
        stops = settings.stop_token_ids()
        asked_of = [row.constraint for row in rows if row.constraint is not None]
        settings.check_against([guide.compile(constraint, backend, budget=True) for constraint in asked_of])
        budget = settings.max_new_tokens(max(model_inputs["input_ids"].shape[-1], 1)) or DEFAULT_MAX_NEW_TOKENS
        processor = guide.logits_processor(
            [row.constraint for row in rows for _ in range(copies)],
            backend=backend,
            prefix=[row.prefix for row in rows for _ in range(copies)],
            stop_token_ids=stops,
            max_new_tokens=budget,
            reasoning=reasoning,
        )
        theirs = generate_kwargs.pop("logits_processor", None) or []
        criteria = generate_kwargs.pop("stopping_criteria", None) or []
        if copies > 1:
            generate_kwargs = settings.over(generate_kwargs, num_return_sequences=1)
        outputs: dict[str, Any] = super()._forward(
            model_inputs,
            logits_processor=[*theirs, processor],
            stopping_criteria=[*criteria, processor.companion],
            **generate_kwargs,
        )
        if copies > 1:
            outputs = _regrouped(outputs, copies)
        input_ids = outputs["input_ids"]
        start = 1 if input_ids is None else input_ids.shape[-1]  # generate() begins an empty prompt with BOS
        prompts: list[list[int]] = [[]] * len(rows) if input_ids is None else input_ids.tolist()
        results = [
            [
                guide.read(
                    row.constraint,
                    token_ids,
                    backend=backend,
                    prefix=row.prefix,
                    stop_token_ids=stops,
                    max_new_tokens=budget,
                    reasoning=reasoning,
                    prompt=prompt,
                )
                for token_ids in sequences[:, start:].tolist()
            ]
            for row, prompt, sequences in zip(rows, prompts, outputs["generated_sequence"], strict=True)
        ]
        # The pipeline takes a batch apart by indexing; a lone prompt's outputs it leaves as they are.
        outputs["results"] = list(zip(rows, results, strict=True)) if batched else (rows[0], results[0])
        return outputs

    def postprocess(
        self, model_outputs: Any, return_type: ReturnType = ReturnType.NEW_TEXT, **kwargs: Any
    ) -> list[dict[str, Any]]:
        """One dict per returned sequence; see the class."""
        asked, results = model_outputs.pop("results")
        prompt_text = model_outputs["prompt_text"]
        records: list[dict[str, Any]] = super().postprocess(model_outputs, return_type=return_type, **kwargs)
        for record, result in zip(records, results, strict=True):
            # The exact text: a tokenizer's decode() may drop a leading space, or tidy spaces away.
            new_text = result.text[len(asked.prefix or "") :]
            if return_type is ReturnType.NEW_TEXT:
                record["generated_text"] = new_text
            elif return_type is ReturnType.FULL_TEXT and isinstance(prompt_text, str):
                record["generated_text"] = prompt_text + new_text
            record.update(value=result.value, finish_reason=result.finish_reason)
            if result.thinking is not None:
                record["thinking"] = result.thinking
            if result.error is not None:
                record["error"] = result.error
        return records


def _pair(prompts: Any, constraints: list[Constraint | None]) -> list[_Prompt]:
    """Each prompt beside its constraint."""
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


def _regrouped(outputs: dict[str, Any], copies: int) -> dict[str, Any]:
    """The outputs of copies of prompts, (prompts * copies, 1, ...), as those of prompts: (prompts, copies, ...)."""
    rows = len(outputs["input_ids"])
    regrouped = {
        name: value.reshape(rows // copies, copies, *value.shape[2:])
        for name, value in outputs.items()
        if name != "input_ids" and isinstance(value, torch.Tensor) and value.shape[:2] == (rows, 1)
    }
    return {**outputs, **regrouped, "input_ids": outputs["input_ids"][::copies]}


def _joined(parts: list[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The outputs of several calls as those of one call: answers are padded at their end, prompts at their beginning.

    Raises:
        InvalidArgument: there is more than tokens.
    """
    names = {"generated_sequence", "input_ids", "prompt_text", "results"}
    if more := sorted({name for part in parts for name in part} - names):
        raise InvalidArgument(
            f"{', '.join(more)}: prompts of several kinds (texts, chats, chats with images) run in calls of their own, "
            "and these outputs cannot be joined; pass batch_size=1"
        )
    widest = max(part["input_ids"].shape[-1] for part in parts)
    longest = max(part["generated_sequence"].shape[-1] - part["input_ids"].shape[-1] for part in parts)
    joined: dict[str, Any] = {"generated_sequence": [], "input_ids": [], "prompt_text": [], "results": []}
    for part in parts:
        prompts, sequences = part["input_ids"], part["generated_sequence"]
        before = widest - prompts.shape[-1]
        after = longest - (sequences.shape[-1] - prompts.shape[-1])
        joined["input_ids"].append(pad(prompts, (before, 0), value=pad_token_id))
        joined["generated_sequence"].append(pad(sequences, (before, after), value=pad_token_id))
        joined["prompt_text"] += part["prompt_text"]
        joined["results"] += part["results"]
    return joined | {name: torch.cat(joined[name]) for name in ("input_ids", "generated_sequence")}


def _begun(prompt: Any, continue_final_message: bool | None) -> str | None:
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
