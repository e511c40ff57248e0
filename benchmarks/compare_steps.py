"""What a decoding step costs beside the forward pass: the processors of bench_processor.py, and guidance's loop.

hf-guided is here as a user gets it, with its automatic choice of an engine. guidance has no processor: its whole loop
is replayed over a model that knows the document, and what lies between two of its forward passes is timed. That
includes choosing the token, which the others leave to generate(), and a step of it may write several tokens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.bench_processor import (
    OURS,
    PEER,
    Processor,
    Setup,
    Taken,
    check_accepts,
    compact_documents,
    random_scores,
    run,
)
from benchmarks.common import record12
from benchmarks.libraries import crop_by_length
from benchmarks.schema_peers import model_without_use
from tests.vocabularies import fast_tekken

SIDES = {"xgrammar.contrib.hf": PEER, "outlines": "outlines (outlines-core)"}
"""Names of libraries there, where they are not the library's."""


def processor_steps(batch: int, repetitions: int) -> tuple[dict[str, list[Taken]], dict[str, str]]:
    """What each call took, library by library; and of the others what is in the way."""
    setup = Setup("compact", with_outlines=True)
    own = {name: SIDES.get(name, name) for name in ("hf-guided", *SIDES, "lm-format-enforcer")}
    setup.sides["lm-format-enforcer"] = lm_format_enforcer(setup)
    # The side of ours that is compared with xgrammar's, mask by mask, is run as well.
    setup.sides = {name: make for name, make in setup.sides.items() if name in (*own.values(), OURS)}
    replay = setup.replay(batch)
    problems = {}
    for name, side in own.items():
        try:
            check_accepts(name, setup.sides[side](), replay, random_scores(batch, setup.vocab)[0])
        except AssertionError as error:
            problems[name] = str(error)
            del setup.sides[side]
    times = run(setup, batch, repetitions)
    return {name: times[side] for name, side in own.items() if side in times}, problems


def lm_format_enforcer(setup: Setup) -> Callable[[], Processor]:
    """As generate() uses its function; each processor with an enforcer of its own, which keeps what it has computed."""
    from transformers import PrefixConstrainedLogitsProcessor

    from benchmarks.libraries import Constraint, LMFormatEnforcer

    library = LMFormatEnforcer(model_without_use(setup.tokenizer), setup.tokenizer)
    constraint = Constraint("json", json.dumps(record12()["schema"]))
    return lambda: PrefixConstrainedLogitsProcessor(library.constrain(constraint)["prefix_allowed_tokens_fn"], 1)


# -- guidance's loop ---------------------------------------------------------------------------------------------------


def guidance_steps(repetitions: int) -> list[Taken]:
    """Steps of guidance's loop over the document that a batch of one has."""
    import guidance

    crop_by_length()
    tokenizer = fast_tekken()
    loop = guidance.models.Transformers(model_without_use(tokenizer), tokenizer, echo=False, enable_monitoring=False)
    engine = loop._interpreter.engine
    [document], prompt = compact_documents(1), record12()["prompts"][0]
    taken: list[Taken] = []
    for repetition in range(repetitions + 1):
        engine.get_logits = known = KnownText(engine.tokenizer, len(tokenizer), prompt + document)
        text = (loop + prompt + guidance.json("answer", schema=record12()["schema"]))["answer"]
        assert text == document, f"guidance does not write the document: {text!r}"
        if repetition:  # the first warms up
            taken += known.taken
    return taken


class KnownText:
    """Stands for a model that wants one text; notes what passes between two forward passes.

    Args:
        tokenizer: guidance's.
        vocab: columns of its scores.
        text: prompt and answer.
    """

    def __init__(self, tokenizer: Any, vocab: int, text: str):
        self._tokenizer, self._text = tokenizer, text.encode()
        self._scores = np.random.default_rng(0).standard_normal((1, vocab)).astype(np.float32)
        self._left: Taken | None = None
        self.taken: list[Taken] = []

    def __call__(self, token_ids: Sequence[int], include_all_uncached_tokens: bool = False) -> dict[str, Any]:
        del include_all_uncached_tokens  # for probabilities, which are not used here
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        if self._left is not None:
            self.taken.append((wall - self._left[0], cpu - self._left[1]))
        wanted, *_ = self._tokenizer.encode(self._text[len(self._tokenizer.decode(token_ids)) :])
        scores = self._scores.copy()
        scores[0, wanted] = 100.0
        self._left = time.perf_counter_ns(), time.process_time_ns()
        return {"logits": scores, "n_tokens": len(token_ids), "n_cached": len(token_ids) - 1}
