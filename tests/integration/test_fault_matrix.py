"""Every method of an engine raises, at any of its calls, in every loop: its row ends alone, and says why.

The oracle is the same call without the fault: the other rows have the same tokens, and the failing row has a beginning
of its own. Nothing hangs, no thread is left, and the Guide works afterwards.
"""

from __future__ import annotations

import asyncio
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, pipeline

import hf_guided as hg
from hf_guided.session.result import GuidedResult
from tests import faulty, vocabularies
from tests.effort import repeats
from tests.integration import models
from tests.pairs import once_each

FAILING = hg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "size": {"enum": ["small", "large"]}},
        "required": ["name", "size"],
    },
    whitespace="compact",
)
OTHERS: list[Any] = [hg.Regex("[a-d]{12}"), hg.Choice(["yes", "no"])]
PROMPTS = ["x = ", "a longer prompt: ", "y"]
MAX_NEW_TOKENS = 50
SEEDS = repeats(1, 20)


@cache
def model() -> LlamaForCausalLM:
    return models.llama(vocabularies.demo(), layers=1).double()


@cache
def guide() -> hg.Guide:
    return hg.Guide(model(), vocabularies.demo())


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    faulty.register(monkeypatch)
    before = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "row .* reached a dead end", UserWarning)
        yield
    left = [thread.name for thread in set(threading.enumerate()) - before]
    # At most one thread of each of these waits for more work; those that compile are as many as the cores.
    shared = ("hf-guided-prefetch", "hf-guided-async", "tqdm_monitor")
    others = [name for name in left if not name.startswith("hf_guided-compile")]
    assert set(others) <= set(shared) and len(others) == len(set(others)), left


# -- the loops: each gives the results of the failing row and of the others ------------------------------------------


def seam(decoder: bool, *, beams: int = 1, companion: bool = False, **options: Any) -> list[GuidedResult]:
    tokenizer = vocabularies.demo()
    constraints = [FAILING, *OTHERS]
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    kwargs: dict[str, Any] = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False, "num_beams": beams}
    if decoder:
        made: Any = guide().decoder(constraints, backend=faulty.NAME, max_new_tokens=MAX_NEW_TOKENS, **options)
        kwargs["custom_generate"] = made
    else:
        made = guide().logits_processor(constraints, backend=faulty.NAME, max_new_tokens=MAX_NEW_TOKENS, **options)
        kwargs["logits_processor"] = [made]
        if companion:
            kwargs["stopping_criteria"] = [made.companion]
    output = model().generate(**inputs, **kwargs)
    results = []
    for i, row in enumerate(output[:, inputs["input_ids"].shape[1] :].tolist()):
        result = guide().read(constraints[i], row, backend=faulty.NAME)
        if result.finish_reason != "stop" and beams == 1 and i in made.dead_ends:
            result = GuidedResult(result.text, None, result.token_ids, "dead_end", made.dead_ends[i])
        results.append(result)
    return results


def generate(call: Callable[..., Any], **options: Any) -> Any:
    return call(
        model(),
        vocabularies.demo(),
        PROMPTS,
        [FAILING, *OTHERS],
        backend=faulty.NAME,
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        **options,
    )


def generated(**options: Any) -> list[GuidedResult]:
    return generate(hg.generate, **options)  # type: ignore[no-any-return]


def streamed() -> list[GuidedResult]:
    last = {partial.index: partial.result for partial in generated(stream=True)}  # type: ignore[attr-defined]
    return [last[i] for i in range(len(PROMPTS))]  # type: ignore[misc]


def awaited() -> list[GuidedResult]:
    async def run() -> Any:
        return await generate(hg.agenerate)

    return asyncio.run(run())  # type: ignore[no-any-return]


def piped(batch_size: int) -> list[GuidedResult]:
    hg.register()
    task: Any = pipeline("guided-generation", model=model(), tokenizer=vocabularies.demo())
    outputs = task(
        PROMPTS,
        response_format=[FAILING, *OTHERS],
        backend=faulty.NAME,
        max_new_tokens=MAX_NEW_TOKENS,
        do_sample=False,
        batch_size=batch_size,
    )
    # A pipeline gives no token ids; bytes serve as well here.
    return [
        GuidedResult(text := output["generated_text"], None, list(text.encode()), output["finish_reason"], reason)
        for [output] in outputs
        for reason in [output.get("error")]
    ]


LOOPS: dict[str, Callable[[], list[GuidedResult]]] = {
    "processor": lambda: seam(False, overlap=False),
    "processor with overlap": lambda: seam(False, overlap=True, companion=True),
    "beams": lambda: seam(False, beams=3),
    "decoder": lambda: seam(True, jump_forward=False),
    "jump-forward": lambda: seam(True),
    "jump-forward with overlap": lambda: seam(True, overlap=True),
    "grammar drafts": lambda: seam(True, draft="grammar"),
    "lookup drafts": lambda: seam(True, draft="prompt_lookup", jump_forward=False),
    "hg.generate": generated,
    "batches of one": lambda: generated(batch_size=1),
    "log probabilities": lambda: generated(logprobs=2),
    "stream": streamed,
    "agenerate": awaited,
    "pipeline": lambda: piped(3),
    "pipeline, one by one": lambda: piped(1),
    "continuous batching": lambda: generated(continuous_batching=True),
}


@cache
def expected(loop: str) -> list[GuidedResult]:
    return LOOPS[loop]()


# -- the law ---------------------------------------------------------------------------------------------------------


def check(loop: str, fault: faulty.Fault, name: str) -> None:
    expected(loop)
    with faulty.armed(fault):
        try:
            results = LOOPS[loop]()
        except hg.HFGuidedError as error:
            # Nothing was generated yet: the constraints are checked before the call begins.
            assert fault.fired and faulty.is_reported(error, name)
            assert fault.method in ("new_engine", "min_tokens_to_finish", "validate")
            return
    failed, *others = results
    wanted, *wanted_others = expected(loop)
    for other, wanted_other in zip(others, wanted_others, strict=True):
        assert (other.token_ids, other.finish_reason) == (wanted_other.token_ids, wanted_other.finish_reason)
    if failed.token_ids == wanted.token_ids:
        return  # no call of this number, or one whose result was not needed
    assert fault.fired
    if loop == "beams":  # other beams of the prompt may go on, with other tokens
        assert failed.finish_reason in ("stop", "dead_end", "length")
    elif failed.finish_reason == "stop":
        FAILING.parse(failed.text)
    else:
        stops = guide().vocabulary.stop_token_ids
        taken = [token_id for token_id in failed.token_ids if token_id not in stops]
        assert taken == wanted.token_ids[: len(taken)]
        assert failed.finish_reason == "dead_end" and faulty.is_reported(failed.error, name), failed


@pytest.mark.parametrize(("loop", "method"), once_each(LOOPS, faulty.METHODS))
def test_a_failing_engine_ends_its_row_alone(loop: str, method: str) -> None:
    rng = random.Random(f"{loop} {method}")
    for _ in range(SEEDS):
        name = rng.choice(list(faulty.ERRORS))
        fault = faulty.Fault(
            FAILING.key,
            method,
            rng.choice((0, rng.randrange(6), rng.randrange(30))),
            faulty.ERRORS[name],
            lasting=rng.random() < 0.5,
            after=rng.random() < 0.3,
        )
        check(loop, fault, name)
    assert [result.token_ids for result in LOOPS[loop]()] == [result.token_ids for result in expected(loop)]


@pytest.mark.parametrize("name", faulty.ERRORS)
@pytest.mark.parametrize("method", ["compile", "losses"])
def test_a_compiler_that_fails_is_an_error_of_this_package(method: str, name: str) -> None:
    failing = hg.Regex(f"[a-c]{{3}}{method}{name}")
    with faulty.armed(faulty.Fault(failing.key, method, 0, faulty.ERRORS[name], lasting=True)):
        fresh = hg.Guide(model(), vocabularies.demo())
        for call in (fresh.compile, fresh.audit, lambda *given: fresh.submit(*given).result()):
            with pytest.raises(hg.HFGuidedError) as caught:
                call(failing, faulty.NAME)
            assert faulty.is_reported(caught.value, name)
        with pytest.raises(hg.HFGuidedError):
            hg.generate(model(), vocabularies.demo(), "x", failing, backend=faulty.NAME)
    assert fresh.compile(failing, faulty.NAME).matcher().jump_forward_bytes() == b""


@pytest.mark.parametrize("name", faulty.ERRORS)
@pytest.mark.parametrize("method", faulty.METHODS)
def test_a_matcher_raises_only_errors_of_this_package(method: str, name: str) -> None:
    compiled = guide().compile(FAILING, faulty.NAME)
    calls: dict[str, Callable[[Any], Any]] = {
        "new_engine": lambda matcher: matcher.reset(),
        "accept": lambda matcher: matcher.accept_token(guide().vocabulary.encode_bytes(b"{")[0]),
        "validate": lambda matcher: matcher.validate_tokens(guide().vocabulary.encode_bytes(b"{")),
        "rollback": lambda matcher: matcher.rollback(1),
        "fork": lambda matcher: matcher.fork(),
        "mask": lambda matcher: matcher.fill_next_token_bitmask(
            torch.zeros(1, -(-guide().vocabulary.padded_size // 32), dtype=torch.int32)
        ),
        "is_completed": lambda matcher: matcher.is_completed(),
        "jump_forward_bytes": lambda matcher: matcher.jump_forward_bytes(),
        "min_tokens_to_finish": lambda matcher: matcher.min_tokens_to_finish(),
    }
    matcher = compiled.matcher()
    if method == "rollback":
        assert matcher.accept_token(guide().vocabulary.encode_bytes(b"{")[0])
    with faulty.armed(faulty.Fault(FAILING.key, method, 0, faulty.ERRORS[name])), pytest.raises(hg.HFGuidedError) as e:
        calls[method](matcher)
    assert faulty.is_reported(e.value, name)
