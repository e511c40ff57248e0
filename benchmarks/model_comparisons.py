"""Compares what a tiny model writes in each way of this package with what it writes in transformers' own loop.

All tokens are compared, of greedy outputs. The vocabulary is the 256 bytes, so a text has one split into tokens, and
jump-forward writes the tokens that a loop of one forward pass per token writes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import regex
import torch
from torch import Tensor
from transformers import ContinuousBatchingConfig, LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase

import hf_guided as hg
from benchmarks.tiny_models import FIRST_BYTE, PAD, STOP, extra_inputs, tiny_config, tiny_model, tokenizer
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
    ) -> tuple[list[list[int]], str]:
        """The outputs, and why the call ran in transformers' own loop, if it did."""
        # Outputs are cut long before their text could close, so that few steps show the whole of a text's beginning.
        loop = DecodeOptions(**options, closes=False)
        decoder = calls_of(self.guide).decoder_of(self.guide.session(list(constraints)), loop)
        return self.generate(rows, custom_generate=decoder, **arguments), decoder.plain_reason


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


RIGHT = "right"
FREE = (None,) * 4
BATCHES: dict[str, tuple[Sequence[int], Sequence[Any]]] = {
    "batch 1": ((0,), GUIDED[:1]),
    "batch 1, free": ((1,), FREE[:1]),
    "batch 4": (ALL, GUIDED),
    "batch 4, free": (ALL, FREE),
}
"""Which prompts, and their constraints."""
PAIR = ("batch 1", "batch 4")


def difference(found: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    """First difference of two outputs; empty if there is none."""
    for row, (a, b) in enumerate(zip(found, expected, strict=True)):
        if list(a) != list(b):
            token = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"wrong at token {token} of row {row}"
    return ""


class Comparisons:
    """The columns of the table for one model; each runs once, and references are shared."""

    def __init__(self, case: Case):
        self._case = case
        self._references: dict[tuple[str, bool], list[list[int]] | Exception] = {}

    def reference(self, batch: str, static: bool = False) -> list[list[int]]:
        """Tokens that transformers' own loop writes; whatever it raised is raised again."""
        key = batch, static
        if key not in self._references:
            arguments = {"cache_implementation": "static"} if static else {}
            try:
                self._references[key] = self._case.plain(*BATCHES[batch], **arguments)
            except Exception as error:
                self._references[key] = error
        found = self._references[key]
        if isinstance(found, Exception):
            raise found
        return found

    def processor(self) -> str:
        """The logits processor, against masks by brute force; the second row is free."""
        case = self._case
        try:
            masks = PartialMatch(PATTERNS)
            expected = case.generate(ALL, logits_processor=[masks])
        except Exception as error:
            raise TransformersFails(describe(error)) from error
        if not masks.called:
            raise TransformersFails(NO_PROCESSORS)
        found = case.generate(ALL, logits_processor=[case.guide.logits_processor(list(BY_REGEX))])
        return difference(found, expected) or RIGHT

    def decoder(self, batches: Sequence[str], *, static: bool = False, **options: Any) -> str:
        reasons = []
        arguments = {"cache_implementation": "static"} if static else {}
        for name in batches:
            expected = self.reference(name, static)
            found, plain_reason = self._case.decoder(*BATCHES[name], options, **arguments)
            if wrong := difference(found, expected):
                return f"{wrong} ({name})"
            if plain_reason:
                reasons.append(f"plain: {plain_reason}")
        if not reasons:
            return RIGHT
        return (
            reasons[0] if len(reasons) == len(batches) else f"{reasons[0]} ({len(reasons)} of {len(batches)} batches)"
        )

    def continuous(self) -> str:
        """Continuous batching, of a guided and a free prompt; each alone is the reference."""
        case = self._case
        if case.encodes:
            return "not supported: encoder-decoder"
        rows = (1, 3)
        prompts = [list(case.inputs((row,))["input_ids"][0]) for row in rows]
        config = ContinuousBatchingConfig(num_blocks=16, page_size=64, max_batch_tokens=64, max_requests_per_batch=4)
        settings = copy.copy(case.model.generation_config)
        settings.do_sample, settings.max_new_tokens = False, MAX_NEW_TOKENS
        try:
            outputs = case.model.generate_batch(
                [[int(token_id) for token_id in prompt] for prompt in prompts],
                generation_config=settings,
                continuous_batching_config=config,
                progress_bar=False,
            )
        except Exception as error:
            raise TransformersFails(describe(error)) from error
        theirs = list(outputs.values())
        if len(theirs) != len(rows) or any(output.error for output in theirs):
            raise TransformersFails(str([output.error for output in theirs])[:160])
        free = [case.generate((row,))[0] for row in rows]
        if wrong := difference([output.generated_tokens for output in theirs], free):
            raise TransformersFails(f"{wrong} of free prompts")
        results = hg.generate(
            case.model,
            case.tokenizer,
            [PROMPTS[row].decode() for row in rows],
            [SHORT[row] for row in rows],
            guide=case.guide,
            continuous_batching=config,
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        expected = [case.plain((row,), [SHORT[row]])[0] for row in rows]
        return difference([result.token_ids for result in results], expected) or RIGHT

    @property
    def columns(self) -> dict[str, Callable[[], str]]:
        return {
            "processor": self.processor,
            "decoder": lambda: self.decoder(tuple(BATCHES)),
            "grammar": lambda: self.decoder(PAIR, draft="grammar"),
            "lookup": lambda: self.decoder((*PAIR, "batch 1, free"), draft="prompt_lookup"),
            "steps": lambda: self.decoder(PAIR, jump_forward=False),
            "static": lambda: self.decoder(PAIR, static=True),
            "continuous": self.continuous,
        }

    def cell(self, column: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.columns[column]()
            except TransformersFails as error:
                return f"transformers itself: {error}"
            except Exception as error:
                return f"error: {describe(error)}"
