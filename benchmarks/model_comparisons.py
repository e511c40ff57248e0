"""Compares what one model writes in each way of this package with what it writes in transformers' own loop.

All tokens are compared. The vocabulary is the 256 bytes, so a text has one split into tokens, and jump-forward writes
the tokens that a loop of one forward pass per token writes.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from transformers import ContinuousBatchingConfig

import hf_guided as hg
from benchmarks.model_cases import (
    ALL,
    BY_REGEX,
    GUIDED,
    MAX_NEW_TOKENS,
    NO_PROCESSORS,
    PATTERNS,
    PROMPTS,
    SHORT,
    Case,
    PartialMatch,
    TransformersFails,
    describe,
)

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
            run = self._case.decoder(*BATCHES[name], options, **arguments)
            if wrong := difference(run.rows, expected):
                return f"{wrong} ({name})"
            if run.plain_reason:
                reasons.append(f"plain: {run.plain_reason}")
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
