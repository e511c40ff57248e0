"""smolagents' model on transformers, with ``response_format``: its own class refuses it.

    model = GuidedTransformersModel("path/to/model", max_new_tokens=500)
    agent = CodeAgent(tools=[], model=model, use_structured_outputs_internally=True)

smolagents prepares the prompt and reads the answer; the call between the two, ``self.model.generate``, is guided.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from smolagents import TransformersModel
from transformers import BatchFeature

from ..constraints.coerce import coerce
from ..constraints.values import Constraint
from ..generation.guided_call import GuidedCall, check_budgets, check_compiled, check_settings
from ..generation.prompt_inputs import processed
from ..generation.prompts import prepared, warn_of_unseen
from ..generation.templates import RESERVED, TemplateOptions, applied, is_processor
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..session.options import SessionOptions


class GuidedTransformersModel(TransformersModel):  # type: ignore[misc]  # smolagents is untyped here
    """``TransformersModel`` whose answers match ``response_format``, in any form that ``hg.generate`` takes.

    Args:
        *args: as for ``TransformersModel``.
        **kwargs: as for ``TransformersModel``.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        tokenizer = self.processor.tokenizer if hasattr(self, "processor") else self.tokenizer
        self._guide = Guide(tokenizer, self.model)

    def generate(
        self, messages: list[Any], stop_sequences: list[str] | None = None, response_format: Any = None, **kwargs: Any
    ) -> Any:
        """One answer; see ``TransformersModel.generate``.

        Args:
            messages: the chat.
            stop_sequences: texts that end a free answer; an answer with a format ends by itself, and ignores them.
            response_format: the format of the answer; None leaves it free. The chat template is given the tools of
                ``hg.ToolCalls``.
            **kwargs: as there; with a response_format also ``chat_template_kwargs``, ``documents``, ``show_tools`` and
                ``describe``, as for ``hg.generate``.

        Raises:
            ConstraintError: no answer in this format can be promised.
        """
        constraint = coerce(response_format)
        if constraint is None:
            return super().generate(messages, stop_sequences, **kwargs)
        return TransformersModel.generate(self._guided(constraint, kwargs), messages, None, **kwargs)

    def generate_stream(
        self, messages: list[Any], stop_sequences: list[str] | None = None, response_format: Any = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The answer while it is being generated; arguments as for ``generate``."""
        constraint = coerce(response_format)
        if constraint is None:
            yield from super().generate_stream(messages, stop_sequences, **kwargs)
        else:
            guided = self._guided(constraint, kwargs)
            yield from TransformersModel.generate_stream(guided, messages, None, **kwargs)
            if guided.model.failure is not None:
                raise guided.model.failure

    def _guided(self, constraint: Constraint, kwargs: dict[str, Any]) -> GuidedTransformersModel:
        """A copy of this model for one call, with a generate() that keeps to the constraint.

        Args:
            constraint: of the answer.
            kwargs: of the call; the arguments of the chat template are taken out.
        """
        options = TemplateOptions(
            kwargs.pop("chat_template_kwargs", None) or {},
            kwargs.pop("documents", None),
            show_tools=kwargs.pop("show_tools", True),
            describe=kwargs.pop("describe", False),
        )
        guided = copy.copy(self)
        name = "processor" if hasattr(self, "processor") else "tokenizer"
        templates = _Templates(getattr(self, name), constraint, options, self.model)
        setattr(guided, name, templates)
        guided.model = _Generate(self.model, self._guide, constraint, templates)
        return guided


class _Templates:
    """The tokenizer or processor, with an ``apply_chat_template`` for one call and its constraint.

    Args:
        templates: the tokenizer or processor.
        constraint: of the answer.
        options: of the chat template.
        model: the model.
    """

    def __init__(self, templates: Any, constraint: Constraint, options: TemplateOptions, model: Any):
        self._templates, self._constraint, self._options, self._model = templates, constraint, options, model
        self.media: dict[str, Any] = {}  # the model's inputs other than tokens, which smolagents does not pass on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._templates, name)

    def apply_chat_template(self, messages: Any, tools: Any = None, **kwargs: Any) -> Any:
        """As the method of the tokenizer or processor."""
        given: Mapping[str, Any] = {name: value for name, value in kwargs.items() if name not in RESERVED}
        given = {**given, **self._options.kwargs, **({"tools": tools} if tools else {})}
        options = TemplateOptions(
            given, self._options.documents, show_tools=self._options.show_tools, describe=self._options.describe
        )
        # smolagents' roles are members of an enum, which a template may print by another name.
        messages = [{**message, "role": getattr(message["role"], "value", message["role"])} for message in messages]
        prompt = prepared(self._templates, messages, self._constraint, options)
        warn_of_unseen([prompt])
        if is_processor(self._templates):
            inputs = processed(self._templates, [prompt], [None], self._model)
            self.media = {name: value for name, value in inputs.items() if name != "input_ids"}
            return BatchFeature({"input_ids": inputs["input_ids"]})
        return applied(self._templates, list(prompt.chat), **{**kwargs, **(prompt.arguments or {})})


class _Generate:
    """The parts of a model that smolagents uses, with a constraint."""

    def __init__(self, model: Any, guide: Guide, constraint: Constraint, templates: _Templates):
        self._model, self._guide, self._templates = model, guide, templates
        self._requests = guide.requests([constraint], [None])
        # A bad constraint raises here, not on the thread that generates for a stream.
        check_compiled(self._requests)
        self.device = model.device
        self.failure: Exception | None = None

    def generate(self, inputs: Any, streamer: Any = None, **kwargs: Any) -> Any:
        """As ``model.generate``; with a streamer it runs on a thread that loses errors, so the error is kept."""
        if streamer is None:
            return self._generate(inputs, **kwargs)
        try:
            return self._generate(inputs, streamer=streamer, **kwargs)
        except Exception as error:
            self.failure = error
            streamer.end()  # its reader would wait for ever
            return None

    def _generate(self, inputs: Any, **kwargs: Any) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if value is not None} | self._templates.media
        settings = GenerationSettings(self._model, kwargs)
        check_settings(self._requests, settings)
        check_budgets(self._requests, settings, [()])
        options = SessionOptions(stop_token_ids=settings.stop_token_ids(), max_new_tokens=settings.given_max_new_tokens)
        return GuidedCall(self._guide, self._requests, options).run(self._model, inputs=inputs, **kwargs)
