"""A tiny model with prompts and constraints: what it writes, greedily, in transformers' own loop and in the decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex
import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase

import hf_guided as hg
from benchmarks.tiny_configs import FIRST_BYTE, PAD, STOP, tiny_config
from benchmarks.tiny_models import extra_inputs, tiny_model, tokenizer
from hf_guided.guide import calls_of
from hf_guided.hf.decode.call import DecodeOptions

MAX_NEW_TOKENS = 24
PROMPTS = (b'a {"name": "ab', b"xyzxyzxyz", b"go north north", b"abbab")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-f]{3}$"},
        "size": {"enum": ["small", "smaller"]},
        "code": {"type": "string", "pattern": "^[0-9]{30}$"},
    },
    "required": ["name", "size", "code"],
    "additionalProperties": False,
}
CODE, WORD, LETTERS = r"id-[0-9]{2}-(?:north|south)ern-[a-z]{30}", r"go|stop", r"(?:ab|ba){20}"
GUIDED = (hg.JsonSchema(SCHEMA), None, hg.Regex(WORD), hg.Regex(LETTERS))
BY_REGEX = (hg.Regex(CODE), None, hg.Regex(WORD), hg.Regex(LETTERS))
SHORT = (hg.Regex(r"id-[0-9]{2}-(?:north|south)ern"), None, hg.Regex(WORD), hg.Regex("(?:ab|ba){10}"))
PATTERNS = (CODE, None, WORD, LETTERS)

ALL = (0, 1, 2, 3)  # rows

WEIGHTS = ((1.5, 0), (3.0, 1), (6.0, 1))
"""Spread and seed of the weights, tried until the outputs have enough different tokens."""
ENOUGH = 24


class PartialMatch(LogitsProcessor):
    """Masks by trying every byte with the library ``regex``, which knows partial matches."""

    def __init__(self, patterns: Sequence[str | None]):
        self._patterns = [None if pattern is None else regex.compile(pattern) for pattern in patterns]
        self._start: int | None = None  # the length of the prompts

    @property
    def called(self) -> bool:
        return self._start is not None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        if self._start is None:
            self._start = input_ids.shape[1]
        for row, pattern in enumerate(self._patterns):
            text = input_ids[row, self._start :].tolist()
            if pattern is None or STOP in text:
                continue
            written = "".join(chr(token_id - FIRST_BYTE) for token_id in text)
            allowed = torch.zeros(scores.shape[1], dtype=torch.bool)
            allowed[STOP] = pattern.fullmatch(written) is not None
            for byte in range(256):
                allowed[FIRST_BYTE + byte] = pattern.fullmatch(written + chr(byte), partial=True) is not None
            scores[row, ~allowed] = -torch.inf
        return scores


NO_PROCESSORS = "its generate() calls no logits processor of the caller"


class TransformersFails(Exception):
    """Plain generate(), without this package, fails."""


@dataclass
class Run:
    """The outputs of one call, and why the call ran in transformers' own loop, if it did."""

    rows: list[list[int]]
    plain_reason: str = ""


class Case:
    """A model with the tokenizer of the bytes, and all that is compared on it; models may share a guide."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, guide: hg.Guide | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.encodes = bool(model.config.is_encoder_decoder)
        self._guide = guide

    @property
    def guide(self) -> hg.Guide:
        if self._guide is None:
            self._guide = hg.Guide(self.model, self.tokenizer)
        return self._guide

    def inputs(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The prompts of these rows, padded: an encoder's on the right, a decoder's on the left."""
        width = max(len(PROMPTS[row]) for row in rows)
        ids = torch.full((len(rows), width), PAD)
        for i, row in enumerate(rows):
            text = FIRST_BYTE + torch.tensor(list(PROMPTS[row]))
            ids[i, slice(None, len(text)) if self.encodes else slice(width - len(text), None)] = text
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), **extra_inputs(self.model, rows)}

    def generate(self, rows: Sequence[int], **arguments: Any) -> list[list[int]]:
        """The outputs of generate(), each up to and with its stop token."""
        inputs = self.inputs(rows)
        output = self.model.generate(**inputs, do_sample=False, max_new_tokens=MAX_NEW_TOKENS, **arguments)
        start = 1 if self.encodes else inputs["input_ids"].shape[1]
        return [row[: row.index(STOP) + 1] if STOP in row else row for row in output[:, start:].tolist()]

    def variety(self) -> int:
        """How many different tokens free rows have, added up; plain generate() runs on all prompts."""
        settings = {"do_sample": False, "max_new_tokens": MAX_NEW_TOKENS}
        found = self.model.generate(**self.inputs(ALL), **settings, output_logits=True, return_dict_in_generate=True)
        if any(bool(logits.isnan().any()) for logits in found.logits):
            raise TransformersFails("NaN among the logits")
        return sum(len(set(row)) for row in found.sequences[:, -MAX_NEW_TOKENS:].tolist())

    def plain(self, rows: Sequence[int], constraints: Sequence[Any], **arguments: Any) -> list[list[int]]:
        """The reference: transformers' own loop with this package's processor; without it where all rows are free."""
        processor = None
        try:
            if any(constraint is not None for constraint in constraints):
                processor = self.guide.logits_processor(list(constraints))
                arguments["logits_processor"] = [processor]
            output = self.generate(rows, **arguments)
        except Exception as error:
            try:
                arguments.pop("logits_processor", None)
                self.generate(rows, **arguments)
            except Exception as own:
                raise TransformersFails(describe(own)) from own
            raise error
        if processor is not None and processor.stats.calls == 0:
            raise TransformersFails(NO_PROCESSORS)
        return output

    def decoder(
        self, rows: Sequence[int], constraints: Sequence[Any], options: dict[str, Any], **arguments: Any
    ) -> Run:
        # Outputs are cut long before their text could close, so that few steps show the whole of a text's beginning.
        loop = DecodeOptions(**options, closes=False)
        decoder = calls_of(self.guide).decoder_of(self.guide.session(list(constraints)), loop)
        rows_ = self.generate(rows, custom_generate=decoder, **arguments)
        return Run(rows_, decoder.plain_reason)


def usable_case(
    config_type: str, class_name: str, changes: Mapping[str, Any], guide: hg.Guide | None = None
) -> tuple[Case | None, str]:
    """A model with which generate() works and writes various tokens; its dtype, with the reason if not float64.

    Some models have parts in float32 only, and masks of the eager attention are infinite where float64 becomes float32.
    """
    problem = ""
    for dtype in (torch.float64, torch.float32):
        found: list[tuple[int, Case]] = []
        try:
            for gain, seed in WEIGHTS:
                if not found or found[-1][0] < ENOUGH:
                    model = tiny_model(tiny_config(config_type, changes), class_name, seed, gain).to(dtype)
                    case = Case(model, tokenizer(), guide)
                    found.append((case.variety(), case))
        except TransformersFails as error:
            problem = problem or f"transformers itself: {error}"
        except Exception as error:
            problem = problem or f"error: {describe(error)}"
        if found:
            best = max(found, key=lambda pair: pair[0])[1]
            return best, "float64" if dtype is torch.float64 else f"float32: {problem}"
    return None, problem


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
