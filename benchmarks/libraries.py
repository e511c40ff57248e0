"""The libraries behind one small face, each used the way its documentation shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Constraint(NamedTuple):
    """What is asked of a row: a JSON Schema (as text) or a regular expression."""

    kind: str  # "json" | "regex"
    text: str


Asked = Constraint | Sequence[Constraint | None]  # one for all rows, or one per prompt; None is a free row


class NotSupported(Exception):
    """The library has no way to be asked for this."""


class Library:
    """One library, bound to a tokenizer and a model.

    ``constrain`` gives keyword arguments for generate(), and ``generate`` calls it with them. A library with a loop of
    its own has no such arguments: its ``prepare`` says what its ``generate`` takes in their place. ``between_calls``
    does what the library's documentation asks for before the same may be used in another call: nothing, a reset, or
    new ones.
    """

    name: str
    package: str
    remark = ""
    takes_batches = True

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        raise NotImplementedError

    def constrain(self, asked: Asked) -> dict[str, Any]:
        raise NotImplementedError

    def between_calls(self, kwargs: dict[str, Any], asked: Asked) -> dict[str, Any]:
        return kwargs

    def prepare(self, asked: Asked) -> dict[str, Any]:
        """What ``generate`` is given."""
        return self.constrain(asked)

    def generate(
        self, model: PreTrainedModel, inputs: Mapping[str, Tensor], prepared: dict[str, Any], **settings: Any
    ) -> list[list[int]] | list[str]:
        """What was written behind the prompts: token ids of each row, or texts where there are no ids."""
        output: Tensor = model.generate(**inputs, **prepared, **settings)
        rows: list[list[int]] = output[:, inputs["input_ids"].shape[1] :].tolist()
        return rows


class HFGuided(Library):
    name = package = "hf-guided"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import hf_guided

        self._hg = hf_guided
        self._guide = hf_guided.Guide(tokenizer, model)

    def constrain(self, asked: Asked) -> dict[str, Any]:
        constraint = self._ours(asked) if isinstance(asked, Constraint) else [one and self._ours(one) for one in asked]
        return {"logits_processor": [self._guide.logits_processor(constraint)]}

    def _ours(self, one: Constraint) -> Any:
        if one.kind == "regex":
            return self._hg.Regex(one.text)
        return self._hg.JsonSchema(json.loads(one.text), whitespace="compact")


class XGrammar(Library):
    name = "xgrammar.contrib.hf"
    package = "xgrammar"
    remark = "a new processor per generate() call, as its documentation asks, except where the mode is reuse"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import xgrammar
        from xgrammar.contrib.hf import LogitsProcessor

        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._processor = LogitsProcessor

    def constrain(self, asked: Asked) -> dict[str, Any]:
        if isinstance(asked, Constraint):
            return {"logits_processor": [self._processor(self._compile(asked))]}
        if any(one is None for one in asked):
            raise NotSupported("every row needs a grammar")
        return {"logits_processor": [self._processor([self._compile(one) for one in asked if one])]}

    def between_calls(self, kwargs: dict[str, Any], asked: Asked) -> dict[str, Any]:
        return self.constrain(asked)

    def _compile(self, one: Constraint) -> Any:
        if one.kind == "regex":
            return self._compiler.compile_regex(one.text)
        return self._compiler.compile_json_schema(one.text, any_whitespace=False)


class Outlines(Library):
    name = package = "outlines"
    remark = (
        "the processor of outlines.Generator (outlines-core, its default), reset() between two calls as Generator "
        "does, except where the mode is reuse: through Generator itself two calls work"
    )

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        import outlines
        from outlines.types import JsonSchema, Regex

        self._generator = outlines.Generator
        self._model = outlines.from_transformers(model, tokenizer)
        self._types: dict[str, Callable[[str], Any]] = {
            "regex": Regex,
            "json": lambda text: JsonSchema(text, whitespace_pattern=" ?"),
        }

    def constrain(self, asked: Asked) -> dict[str, Any]:
        if not isinstance(asked, Constraint):
            raise NotSupported("one output type for all prompts")
        processor = self._generator(self._model, self._types[asked.kind](asked.text)).logits_processor
        processor.reset()
        return {"logits_processor": [processor]}

    def between_calls(self, kwargs: dict[str, Any], asked: Asked) -> dict[str, Any]:
        kwargs["logits_processor"][0].reset()
        return kwargs


class LMFormatEnforcer(Library):
    name = package = "lm-format-enforcer"
    remark = "its transformers integration raises ImportError on transformers 5; run here with that one import repaired"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        os.environ["LMFE_MAX_CONSECUTIVE_WHITESPACES"] = "1"  # its documented way to bound white space
        import lmformatenforcer

        import_repaired()
        from lmformatenforcer.integrations import transformers as integration

        self._parsers: dict[str, Callable[[str], Any]] = {
            "regex": lmformatenforcer.RegexParser,
            "json": lambda text: lmformatenforcer.JsonSchemaParser(json.loads(text)),
        }
        self._data = integration.build_token_enforcer_tokenizer_data(tokenizer)
        self._prefix_fn = integration.build_transformers_prefix_allowed_tokens_fn

    def constrain(self, asked: Asked) -> dict[str, Any]:
        if isinstance(asked, Constraint):
            return {"prefix_allowed_tokens_fn": self._fn(asked)}
        # generate() tells the function which prompt a row belongs to, so the caller can choose among several.
        everything = list(range(self._data.vocab_size))
        fns = [self._fn(one) if one else None for one in asked]

        def choose(prompt: int, ids: Any) -> list[int]:
            fn = fns[prompt]
            return everything if fn is None else list(fn(prompt, ids))

        return {"prefix_allowed_tokens_fn": choose}

    def _fn(self, one: Constraint) -> Callable[[int, Any], list[int]]:
        fn: Callable[[int, Any], list[int]] = self._prefix_fn(self._data, self._parsers[one.kind](one.text))
        return fn


def lm_format_enforcer_import_error() -> str:
    """What importing its transformers integration raises here; empty if it imports."""
    try:
        import lmformatenforcer.integrations.transformers  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


def import_repaired() -> None:
    if lm_format_enforcer_import_error():
        import transformers.tokenization_utils as moved

        # Upstream's fix (its pull request 175) imports this name from where it stands now.
        moved.PreTrainedTokenizerBase = PreTrainedTokenizerBase


class Guidance(Library):
    """It has a loop of its own, for one row, and writes text; there is nothing to hand to generate()."""

    name = package = "guidance"
    remark = (
        "its own loop, models.Transformers, one prompt at a time; with transformers 5 the second prompt raises "
        "ValueError, because it still crops a cache by a length: run here with that one call repaired"
    )
    takes_batches = False
    # What its loop can be told, or need not be told.
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

    def constrain(self, asked: Asked) -> dict[str, Any]:
        raise NotSupported("it has a loop of its own, and nothing to hand to generate()")

    def prepare(self, asked: Asked) -> dict[str, Any]:
        if not isinstance(asked, Constraint):
            raise NotSupported("one prompt at a time")
        return {"asked": asked}

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
        node = self._node(prepared["asked"], temperature=temperature, max_tokens=settings.get("max_new_tokens"))
        prompt = self._tokenizer.decode(rows[0], skip_special_tokens=True)
        return [(self._loops[id(model)] + prompt + node)["answer"]]

    def _node(self, one: Constraint, **limits: Any) -> Any:
        if one.kind == "regex":
            return self._lib.gen("answer", regex=one.text, **limits)
        return self._lib.json("answer", schema=json.loads(one.text), **limits)


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
