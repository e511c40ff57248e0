"""The libraries with one small interface, each used as its documentation shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Constraint(NamedTuple):
    """The constraint of a row: a JSON Schema (as text) or a regular expression."""

    kind: str  # "json" | "regex"
    text: str


Constraints = Constraint | Sequence[Constraint | None]  # one for all rows, or one per prompt; None is a free row


class NotSupported(Exception):
    """The library does not support this."""


class Library:
    """One library, bound to a tokenizer and a model.

    ``constrain`` gives keyword arguments for generate(), and ``generate`` calls it with them. A library with a loop of
    its own has no such arguments: its ``prepare`` returns what its ``generate`` takes instead. ``between_calls`` does
    what the library's documentation requires before the same arguments may be used in another call: nothing, a reset,
    or new arguments.
    """

    name: str
    package: str
    takes_batches = True

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        raise NotImplementedError

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        raise NotImplementedError

    def between_calls(self, kwargs: dict[str, Any], constraints: Constraints) -> dict[str, Any]:
        return kwargs

    def prepare(self, constraints: Constraints) -> dict[str, Any]:
        return self.constrain(constraints)

    def generate(
        self, model: PreTrainedModel, inputs: Mapping[str, Tensor], prepared: dict[str, Any], **settings: Any
    ) -> list[list[int]] | list[str]:
        """The output after the prompts: token ids of each row, or texts if the library gives no ids."""
        output = model.generate(**inputs, **prepared, **settings)
        return output[:, inputs["input_ids"].shape[1] :].tolist()


class HFGuided(Library):
    name = package = "hf-guided"
    key_order = "declared"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import hf_guided

        self._hg = hf_guided
        self._guide = hf_guided.Guide(model, tokenizer)

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        if isinstance(constraints, Constraint):
            ours = self._ours(constraints)
        else:
            ours = [constraint and self._ours(constraint) for constraint in constraints]
        return {"logits_processor": [self._guide.logits_processor(ours)]}

    def _ours(self, constraint: Constraint) -> Any:
        if constraint.kind == "regex":
            return self._hg.Regex(constraint.text)
        return self._hg.JsonSchema(json.loads(constraint.text), whitespace="compact", key_order=self.key_order)


class XGrammar(Library):
    name = "xgrammar.contrib.hf"
    package = "xgrammar"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import xgrammar
        from xgrammar.contrib.hf import LogitsProcessor

        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._processor = LogitsProcessor

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        if isinstance(constraints, Constraint):
            return {"logits_processor": [self._processor(self._compile(constraints))]}
        if any(constraint is None for constraint in constraints):
            raise NotSupported("every row needs a grammar")
        return {
            "logits_processor": [
                self._processor([self._compile(constraint) for constraint in constraints if constraint])
            ]
        }

    def between_calls(self, kwargs: dict[str, Any], constraints: Constraints) -> dict[str, Any]:
        return self.constrain(constraints)

    def _compile(self, constraint: Constraint) -> Any:
        if constraint.kind == "regex":
            return self._compiler.compile_regex(constraint.text)
        return self._compiler.compile_json_schema(constraint.text, any_whitespace=False)


class Outlines(Library):
    name = package = "outlines"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import outlines
        from outlines.types import JsonSchema, Regex

        self._generator = outlines.Generator
        self._model = outlines.from_transformers(model, tokenizer)
        self._types: dict[str, Callable[[str], Any]] = {
            "regex": Regex,
            "json": lambda text: JsonSchema(text, whitespace_pattern=" ?"),
        }

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        if not isinstance(constraints, Constraint):
            raise NotSupported("one output type for all prompts")
        processor = self._generator(self._model, self._types[constraints.kind](constraints.text)).logits_processor
        processor.reset()
        return {"logits_processor": [processor]}

    def between_calls(self, kwargs: dict[str, Any], constraints: Constraints) -> dict[str, Any]:
        kwargs["logits_processor"][0].reset()
        return kwargs


class LMFormatEnforcer(Library):
    name = package = "lm-format-enforcer"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        integration = lm_format_enforcer_integration()
        import lmformatenforcer

        self._parsers: dict[str, Callable[[str], Any]] = {
            "regex": lmformatenforcer.RegexParser,
            "json": lambda text: lmformatenforcer.JsonSchemaParser(json.loads(text)),
        }
        self._data = integration.build_token_enforcer_tokenizer_data(tokenizer)
        self._prefix_fn = integration.build_transformers_prefix_allowed_tokens_fn

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        if isinstance(constraints, Constraint):
            return {"prefix_allowed_tokens_fn": self._fn(constraints)}
        # generate() passes the index of the row's prompt to the function, so the caller can choose among several.
        everything = list(range(self._data.vocab_size))
        fns = [self._fn(constraint) if constraint else None for constraint in constraints]

        def choose(prompt: int, ids: Any) -> list[int]:
            fn = fns[prompt]
            return everything if fn is None else list(fn(prompt, ids))

        return {"prefix_allowed_tokens_fn": choose}

    def _fn(self, constraint: Constraint) -> Callable[[int, Any], list[int]]:
        return self._prefix_fn(self._data, self._parsers[constraint.kind](constraint.text))


def lm_format_enforcer_integration() -> Any:
    """Its transformers integration, which imports a name from where transformers 5 no longer has it."""
    import transformers.tokenization_utils as moved

    # Upstream's fix (its pull request 175) imports this name from its present module.
    moved.PreTrainedTokenizerBase = PreTrainedTokenizerBase
    os.environ["LMFE_MAX_CONSECUTIVE_WHITESPACES"] = "1"  # its documented way to bound white space
    from lmformatenforcer.integrations import transformers as integration

    return integration


class Guidance(Library):
    """Library with a loop of its own, for one row, that writes text; it has no arguments for generate()."""

    name = package = "guidance"
    takes_batches = False
    # The settings that its loop takes or does not need.
    _known = frozenset({"do_sample", "temperature", "max_new_tokens", "pad_token_id"})

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import guidance

        crop_by_length()
        self._lib = guidance
        self._tokenizer = tokenizer
        self._loops = {id(model): self._loop(model)}

    def _loop(self, model: PreTrainedModel) -> Any:
        # Quiet, as for timing: by default it watches the machine, and draws what it writes.
        top_k = {"top_k": model.generation_config.top_k or 50}  # what generate() samples from
        return self._lib.models.Transformers(
            model, self._tokenizer, echo=False, enable_monitoring=False, sampling_params=top_k
        )

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        raise NotSupported("it has a loop of its own, and nothing to hand to generate()")

    def prepare(self, constraints: Constraints) -> dict[str, Any]:
        if not isinstance(constraints, Constraint):
            raise NotSupported("one prompt at a time")
        return {"constraint": constraints}

    def generate(
        self, model: PreTrainedModel, inputs: Mapping[str, Tensor], prepared: dict[str, Any], **settings: Any
    ) -> list[str]:
        if unknown := settings.keys() - self._known:
            raise NotSupported(f"its loop has no {', '.join(sorted(unknown))}")
        [*rows] = inputs["input_ids"].tolist()
        if len(rows) > 1:
            raise NotSupported("one prompt at a time")
        if id(model) not in self._loops:
            self._loops[id(model)] = self._loop(model)
        temperature = settings.get("temperature", 1.0) if settings.get("do_sample") else 0.0
        node = self._node(prepared["constraint"], temperature=temperature, max_tokens=settings.get("max_new_tokens"))
        prompt = self._tokenizer.decode(rows[0], skip_special_tokens=True)
        return [(self._loops[id(model)] + prompt + node)["answer"]]

    def _node(self, constraint: Constraint, **limits: Any) -> Any:
        if constraint.kind == "regex":
            return self._lib.gen("answer", regex=constraint.text, **limits)
        return self._lib.json("answer", schema=json.loads(constraint.text), **limits)


def crop_by_length() -> None:
    """Let a cache be cropped by the length it should have, as transformers 4 did."""
    from transformers import Cache

    crop = Cache.crop
    if not hasattr(crop, "by_length"):

        def by_length(cache: Any, length: int) -> None:
            crop(cache, length - cache.get_seq_length() if length >= 0 else length)

        by_length.by_length = True  # type: ignore[attr-defined]
        Cache.crop = by_length


LIBRARIES: dict[str, type[Library]] = {
    one.name: one for one in (XGrammar, Outlines, LMFormatEnforcer, Guidance, HFGuided)
}
