"""How often the host waits for the device in a forward pass, counted on a device that is not there."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided.errors import EmptyIntersection
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.hf.decode.loop import DecodeLoop
from hf_guided.hf.logits_processor import GuidedLogitsProcessor, MaskCompanion
from hf_guided.session import mask_table, session, transfers
from hf_guided.session.run_ahead import Pending
from hf_guided.vocabulary.bitmask import words
from tests import vocabularies
from tests.fake_device import FakeDevice, FakeOrder, FakeTransfers, is_on, put, put_model, take_model
from tests.integration import models
from tests.pairs import once_each, pairwise

CONSTRAINTS = [
    hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?"),
    hg.JsonSchema({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}),
    None,
]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "top_k": 5},
    "seeds": {"do_sample": True},
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    mode = FakeDevice()

    def at_once(pending: Pending[Any]) -> None:
        waits = mode.waits.copy()
        pending.run()
        mode.waits = waits  # of the worker

    monkeypatch.setattr(transfers, "CudaTransfers", lambda device: FakeTransfers(device, mode))
    monkeypatch.setattr(mask_table, "StreamOrder", lambda device: FakeOrder())
    monkeypatch.setattr(session, "submit", at_once)
    return mode


@pytest.fixture(scope="module")
def pair() -> tuple[Any, hg.Guide]:
    tokenizer = vocabularies.tiny_byte_level()
    model = models.llama(tokenizer, layers=2)
    return model, hg.Guide(model, tokenizer)


def prompts(guide: hg.Guide, rows: int, padded: bool) -> dict[str, Tensor]:
    text = [i for i in range(len(guide.tokenizer)) if guide.vocabulary.is_text(i)]
    ids = torch.tensor([text[i : i + 6] for i in range(rows)])
    mask = torch.ones_like(ids)
    if padded:
        for row in range(rows):
            mask[row, :row] = 0
    return {"input_ids": ids, "attention_mask": mask}


@contextmanager
def on_device(device: FakeDevice, model: Any, inputs: dict[str, Tensor]) -> Iterator[None]:
    put_model(model)
    for tensor in inputs.values():
        put(tensor)
    try:
        with device:
            yield
    finally:
        take_model(model)


def count(
    monkeypatch: pytest.MonkeyPatch, device: FakeDevice, cls: type, method: str, note: Callable[[Counter[str]], None]
) -> None:
    """Call ``note`` with the waits of each call of the method."""
    original = getattr(cls, method)

    def call(*given: Any) -> Any:
        before = device.waits.copy()
        result = original(*given)
        note(device.waits - before)
        return result

    monkeypatch.setattr(cls, method, call)


@pytest.mark.parametrize(
    ("rows", "padded", "way", "attention", "table"),
    once_each(
        [1, 3],
        [False, True],
        ARGUMENTS,
        ["sdpa", "eager"],
        [0, 3, 1000],
        only_slow=lambda cell: cell[:2] == ("1", "True"),
    ),
)
def test_fast_loop_waits_once_for_each_choice_and_never_in_a_pass(
    pair: tuple[Any, hg.Guide],
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    padded: bool,
    way: str,
    attention: str,
    table: int,
) -> None:
    """One read brings the tokens and the rows that have to end. Verifying drafts under sampling takes one more."""
    model = pair[0]
    monkeypatch.setenv("HF_GUIDED_MASK_TABLE_BYTES", str(table * 4 * words(model.config.vocab_size)))
    guide = hg.Guide(model, pair[1].tokenizer)
    inputs = prompts(guide, rows, padded)
    decode: dict[str, Any] = {"overlap": False, "seeds": [3] * rows if way == "seeds" else None}
    arguments = {**inputs, "max_new_tokens": 20, **ARGUMENTS[way]}
    model.set_attn_implementation(attention)
    torch.manual_seed(7)
    expected = model.generate(**arguments, custom_generate=guide.decoder(CONSTRAINTS[:rows], **decode)).tolist()
    passes: list[Counter[str]] = []
    choices: list[Counter[str]] = []
    drafted: list[bool] = []
    count(monkeypatch, device, CacheSlots, "run", passes.append)
    count(monkeypatch, device, DecodeLoop, "_choose", choices.append)
    choose = DecodeLoop._choose
    monkeypatch.setattr(
        DecodeLoop,
        "_choose",
        lambda self, choice, logits: (drafted.append(choice.drafted), choose(self, choice, logits))[1],
    )
    decoder = guide.decoder(CONSTRAINTS[:rows], **decode)
    try:
        torch.manual_seed(7)
        with on_device(device, model, inputs):
            written = model.generate(**arguments, custom_generate=decoder)
    finally:
        model.set_attn_implementation("sdpa")
    assert not decoder.plain_reason
    assert is_on(written) and written.tolist() == expected
    assert len(passes) > 1 and not any(waits.total() for waits in passes), passes
    twice = [with_drafts and way == "sampling" for with_drafts in drafted]
    assert [waits.total() for waits in choices] == [1 + more for more in twice], choices


@pytest.mark.parametrize("way", ["greedy", "sampling"])
@pytest.mark.parametrize("with_companion", [True, False])
def test_processor_waits_for_nothing_if_its_companion_does(
    pair: tuple[Any, hg.Guide],
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    with_companion: bool,
) -> None:
    """The companion runs after the choice of the tokens is queued, where generate() itself waits next."""
    model, guide = pair
    inputs = prompts(guide, 3, padded=True)
    arguments = {**inputs, "max_new_tokens": 12, **ARGUMENTS[way]}
    torch.manual_seed(7)
    expected = model.generate(**arguments, logits_processor=[guide.logits_processor(CONSTRAINTS)]).tolist()
    masking: list[Counter[str]] = []
    following: list[Counter[str]] = []
    count(monkeypatch, device, GuidedLogitsProcessor, "__call__", masking.append)
    count(monkeypatch, device, MaskCompanion, "__call__", following.append)
    processor = guide.logits_processor(CONSTRAINTS)
    torch.manual_seed(7)
    with on_device(device, model, inputs):
        criteria = [processor.companion] if with_companion else []
        written = model.generate(**arguments, logits_processor=[processor], stopping_criteria=criteria)
    assert written.tolist() == expected
    if with_companion:
        # The first call reads the prompts, and which rows have to end; the next one is announced.
        assert not any(waits.total() for waits in masking[1:]), masking
        assert [waits.total() for waits in following] == [0] + [1] * (len(following) - 1), following
    else:
        assert all(waits.total() == 2 for waits in masking[1:]), masking  # the ids, and which rows have to end


class Forbids(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Makes every score of a row -inf, or NaN, in one step."""

    def __init__(self, row: int, step: int, value: float):
        self.row, self.step, self.value = row, step, value
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        if self.calls == self.step:
            scores[self.row] = self.value
        self.calls += 1
        return scores


def outcome(model: Any, guide: hg.Guide, inputs: dict[str, Tensor], seam: str, forbids: Forbids, **options: Any) -> Any:
    """What a user sees of a call: tokens, error, ended rows and warnings."""
    processor = guide.logits_processor(CONSTRAINTS[:2], **options)
    decoder = guide.decoder(CONSTRAINTS[:2], overlap=False, **options)
    if seam == "decoder":
        arguments: dict[str, Any] = {"custom_generate": decoder, "logits_processor": [forbids]}
    else:
        criteria = [processor.companion] if seam == "companion" else []
        arguments = {"logits_processor": [forbids, processor], "stopping_criteria": criteria}
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        try:
            tokens = model.generate(**inputs, max_new_tokens=20, do_sample=True, **arguments).tolist()
        except EmptyIntersection as error:
            tokens = [str(error), error.row, forbids.calls]
    ended = dict((decoder if seam == "decoder" else processor).dead_ends)
    return tokens, ended, [str(warning.message) for warning in issued]


@pytest.mark.parametrize(
    ("seam", "on_violation", "value", "step"),
    pairwise(["processor", "companion", "decoder"], ["close", "raise"], [-torch.inf, torch.nan], [0, 2, 7]),
)
def test_row_without_an_allowed_token_ends_as_on_the_cpu(
    pair: tuple[Any, hg.Guide], device: FakeDevice, seam: str, on_violation: str, value: float, step: int
) -> None:
    """Also in the last step, after which the processor is not called again."""
    model, guide = pair
    inputs = prompts(guide, 2, padded=True)
    torch.manual_seed(5)
    expected = outcome(model, guide, inputs, seam, Forbids(1, step, value), on_violation=on_violation)
    assert expected[1] or on_violation == "raise"
    torch.manual_seed(5)
    with on_device(device, model, inputs):
        seen = outcome(model, guide, inputs, seam, Forbids(1, step, value), on_violation=on_violation)
    assert seen == expected
