"""What one model is asked to write in each way of this package, and what transformers' own loop writes.

Every comparison is of tokens, greedy. The vocabulary is the 256 bytes, so a text has one split into tokens, and
jump-forward writes the tokens that a loop of one forward pass per token writes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex
import torch
from torch import Tensor
from transformers import ContinuousBatchingConfig, LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase

import hf_guided as hg
from benchmarks.tiny_models import FIRST_BYTE, PAD, STOP, extra_inputs, tiny_config, tiny_model, tokenizer

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

RIGHT = "right"


class PartialMatch(LogitsProcessor):
    """Masks by trying every byte with the library ``regex``, which knows partial matches."""

    def __init__(self, patterns: Sequence[str | None], start: int):
        self._patterns = [None if pattern is None else regex.compile(pattern) for pattern in patterns]
        self._start = start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
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


class TransformersFails(Exception):
    """Plain generate(), without this package, fails."""


@dataclass
class Run:
    """The outputs of one call, and why the call ran in transformers' own loop, if it did."""

    rows: list[list[int]]
    plain_reason: str = ""
    host_reason: str = ""


class Case:
    """A model, and everything that is compared on it.

    Args:
        model: in float64.
        tokenizer: of the bytes.
        guide: shared with other models; None makes one for this model.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, guide: hg.Guide | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.encodes = bool(model.config.is_encoder_decoder)
        self._guide = guide

    @property
    def guide(self) -> hg.Guide:
        """Compiles the constraints."""
        if self._guide is None:
            self._guide = hg.Guide(self.tokenizer, self.model)
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

    def has_numbers(self) -> bool:
        """Whether plain generate() runs on all prompts, without NaN among its logits."""
        inputs = self.inputs(ALL)
        settings = {"do_sample": False, "max_new_tokens": 3, "output_logits": True, "return_dict_in_generate": True}
        return not any(bool(logits.isnan().any()) for logits in self.model.generate(**inputs, **settings).logits)

    def plain(self, rows: Sequence[int], constraints: Sequence[Any], **arguments: Any) -> list[list[int]]:
        """The reference: transformers' own loop with this package's processor; without it where all rows are free."""
        try:
            if any(constraint is not None for constraint in constraints):
                arguments["logits_processor"] = [self.guide.logits_processor(list(constraints))]
            return self.generate(rows, **arguments)
        except Exception as error:
            try:
                arguments.pop("logits_processor", None)
                self.generate(rows, **arguments)
            except Exception as own:
                raise TransformersFails(describe(own)) from own
            raise error

    def decoder(
        self, rows: Sequence[int], constraints: Sequence[Any], options: dict[str, Any], **arguments: Any
    ) -> Run:
        decoder = self.guide.decoder(list(constraints), **options)
        rows_ = self.generate(rows, custom_generate=decoder, **arguments)
        return Run(rows_, getattr(decoder, "plain_reason", ""), decoder.host_reason)


def usable_case(
    config_type: str, class_name: str, changes: Mapping[str, Any], guide: hg.Guide | None = None
) -> tuple[Case | None, str]:
    """A model with which generate() works, and its dtype with the reason if that is not float64.

    Some models have parts in float32 only, and masks of the eager attention are infinite where float64 becomes float32.
    """
    problem = ""
    for dtype in (torch.float64, torch.float32):
        try:
            case = Case(tiny_model(tiny_config(config_type, changes), class_name).to(dtype), tokenizer(), guide)
            if case.has_numbers():
                return case, "float64" if dtype is torch.float64 else f"float32: {problem}"
            problem = problem or "transformers itself: NaN among the logits"
        except Exception as error:
            problem = problem or f"error: {describe(error)}"
    return None, problem


def describe(error: BaseException) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def difference(found: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    """Where two outputs differ first; empty if they do not."""
    for row, (a, b) in enumerate(zip(found, expected, strict=True)):
        if list(a) != list(b):
            token = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"wrong at token {token} of row {row}"
    return ""


ALL = (0, 1, 2, 3)
FREE = (None,) * 4
BATCHES: dict[str, tuple[Sequence[int], Sequence[Any]]] = {
    "batch 1": ((0,), GUIDED[:1]),
    "batch 1, free": ((1,), FREE[:1]),
    "batch 4": (ALL, GUIDED),
    "batch 4, free": (ALL, FREE),
}
"""Which prompts, and their constraints."""
PAIR = ("batch 1", "batch 4")


class Comparisons:
    """The columns of the table for one model; each runs once, and references are shared."""

    def __init__(self, case: Case):
        self._case = case
        self._references: dict[tuple[str, bool], list[list[int]] | Exception] = {}

    def reference(self, batch: str, static: bool = False) -> list[list[int]]:
        """What transformers' own loop writes.

        Raises:
            Exception: whatever it raised, also when it is asked for again.
        """
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
        """The logits processor, against masks by brute force; and free rows beside guided ones."""
        case = self._case
        start = 1 if case.encodes else case.inputs(ALL)["input_ids"].shape[1]
        try:
            expected = case.generate(ALL, logits_processor=[PartialMatch(PATTERNS, start)])
        except Exception as error:
            raise TransformersFails(describe(error)) from error
        found = case.generate(ALL, logits_processor=[case.guide.logits_processor(list(BY_REGEX))])
        if wrong := difference(found, expected):
            return wrong
        guided, free = self.reference("batch 4"), self.reference("batch 4, free")
        if wrong := difference(guided[1:2], free[1:2]):
            return f"{wrong} (free row)"
        return RIGHT

    def decoder(self, batches: Sequence[str], *, static: bool = False, **options: Any) -> str:
        """The decoder with these options, in batches of these names."""
        reasons = []
        arguments = {"cache_implementation": "static"} if static else {}
        for name in batches:
            expected = self.reference(name, static)
            run = self._case.decoder(*BATCHES[name], options, **arguments)
            if wrong := difference(run.rows, expected):
                return f"{wrong} ({name})"
            if run.plain_reason:
                reasons.append(f"plain: {run.plain_reason}")
            elif run.host_reason and options.get("device_lane"):
                reasons.append(f"host: {run.host_reason}")
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
            "device": lambda: self.decoder(PAIR, jump_forward=False, device_lane=True),
            "static": lambda: self.decoder(PAIR, static=True),
            "static_device": lambda: self.decoder(PAIR, static=True, jump_forward=False, device_lane=True),
            "continuous": self.continuous,
        }

    def cell(self, column: str) -> str:
        """One cell of the table."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.columns[column]()
            except TransformersFails as error:
                return f"transformers itself: {error}"
            except Exception as error:
                return f"error: {describe(error)}"
