"""The loop whose tokens the device chooses, on a GPU: the host's tokens, and no wait but for old events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import hf_guided as hg
from hf_guided.hf.device import kernel_loader
from hf_guided.hf.device.kernels import TorchKernels
from hf_guided.hf.device.steps import CapturedStep, EagerSteps, FixedSteps
from hf_guided.session.cuda_copies import CudaTransfers
from tests import vocabularies
from tests.integration.families import FAMILIES
from tests.integration.test_decoder import BATCHES, CONSTRAINTS, inputs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]
SETTLED = 4  # steps, behind which everything has been allocated and captured
STATIC = {"cache_implementation": "static", "disable_compile": True}
HOT = {"do_sample": True, "temperature": 2.0, "top_k": 20, "top_p": 0.9}


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    found = kernel_loader.find(device="cuda")
    if isinstance(found.kernels, TorchKernels):
        pytest.skip(f"needs the CUDA kernels: {found.why_not}")


@cache
def family(name: str) -> tuple[Any, hg.Guide]:
    tokenizer = vocabularies.tiny_byte_level()
    model = FAMILIES[name](tokenizer).double().cuda()
    return model, hg.Guide(tokenizer, model)


def generate(name: str, rows: int, decoder: Any, *, padded: bool = True, **arguments: Any) -> list[list[int]]:
    given = {key: value.cuda() for key, value in inputs(name, rows).items()}
    if not padded:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    asked = {"do_sample": False, "max_new_tokens": 48, **arguments}
    output = family(name)[0].generate(**given, **asked, custom_generate=decoder)
    found: list[list[int]] = output.tolist()
    return found


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Steps behind the first few must not synchronize; yields the places at which one was watched."""
    watched: list[int] = []
    for cls in (EagerSteps, FixedSteps):

        def following(self: Any, place: int, original: Any = cls.next) -> Tensor:
            if place >= SETTLED:
                torch.cuda.set_sync_debug_mode("error")
                watched.append(place)
            found: Tensor = original(self, place)
            return found

        def end(self: Any, original: Any = cls.end) -> None:
            torch.cuda.set_sync_debug_mode("default")
            original(self)

        monkeypatch.setattr(cls, "next", following)
        monkeypatch.setattr(cls, "end", end)
    yield watched
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("lane", "padded", "arguments"),
    [
        (True, True, STATIC),
        ("captured", True, STATIC),
        ("captured", False, STATIC),
        (True, True, {**STATIC, "repetition_penalty": 1.3}),
        (True, False, {}),
        (True, True, {}),
    ],
)
@pytest.mark.parametrize("rows", BATCHES)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_greedy_tokens_are_the_host_s_and_nobody_waits(
    name: str, rows: int, lane: Any, padded: bool, arguments: dict[str, Any], no_waits: list[int]
) -> None:
    guide = family(name)[1]
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    asked = {"jump_forward": False, "backend": "automaton", "max_new_tokens": 48}
    host = guide.decoder(constraints, device_lane=False, **asked)
    expected = generate(name, rows, host, padded=padded, **arguments)
    decoder = guide.decoder(constraints, device_lane=lane, **asked)
    for _ in range(2):  # the second time with the masks of the first
        assert generate(name, rows, decoder, padded=padded, **arguments) == expected
    assert decoder.host_reason == "" and (decoder.eager_reason == "") is (lane == "captured")
    assert len(no_waits) > 10


@pytest.mark.parametrize("lane", [True, "captured"])
def test_samples_are_in_the_language_and_the_seed_s(lane: Any, no_waits: list[int]) -> None:
    guide = family("llama")[1]
    constraint = hg.Regex("[a-z]{4,9}(?: [0-9]{2,4}){1,3}")
    stop = guide.tokenizer.eos_token_id
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        decoder = guide.decoder(
            constraint, jump_forward=False, backend="automaton", device_lane=lane, max_new_tokens=40
        )
        outputs.append(generate("llama", 8, decoder, **{**STATIC, **HOT, "max_new_tokens": 40}))
        assert decoder.host_reason == ""
    assert outputs[0] == outputs[1] != outputs[2]
    start = inputs("llama", 8)["input_ids"].shape[1]
    for row in (row for output in outputs for row in output):
        written = row[start : row.index(stop, start)]
        matcher = guide.compile(constraint, "automaton").matcher()
        assert matcher.validate_tokens([*written, stop]) == len(written) + 1
    assert no_waits


def test_captured_samples_are_those_of_the_steps_one_by_one() -> None:
    guide = family("llama")[1]
    found = []
    for lane in (True, "captured"):
        torch.manual_seed(7)
        decoder = guide.decoder(CONSTRAINTS, jump_forward=False, backend="automaton", device_lane=lane)
        found.append(generate("llama", 8, decoder, **STATIC, **HOT))
    assert found[0] == found[1]


@pytest.mark.parametrize("lane", [None, "auto"])
def test_it_is_taken_only_on_request(lane: Any) -> None:
    guide = family("llama")[1]
    decoder = guide.decoder(CONSTRAINTS[:3], jump_forward=False, backend="automaton", device_lane=lane)
    generate("llama", 3, decoder)
    assert "was not requested" in decoder.host_reason and not decoder.stats.device_steps


def test_a_captured_step_is_run_once_for_each_call() -> None:
    count = torch.zeros((), dtype=torch.int64, device="cuda")

    def step() -> Tensor:
        count.add_(1)
        return count * 10

    captured = CapturedStep(step, torch.device("cuda", torch.cuda.current_device()))
    results = [captured() for _ in range(6)]
    captured.end()
    assert torch.stack(results).tolist() == [10, 20, 30, 40, 50, 60]
    assert count.item() == 6


def test_a_copy_to_the_host_waits_for_its_own_step_only() -> None:
    transfers = CudaTransfers(torch.device("cuda", torch.cuda.current_device()))
    chosen = torch.arange(8, device="cuda")
    sent = transfers.to_host(chosen)
    torch.cuda._sleep(500_000_000)  # stands for the next step, queued behind it
    following = torch.cuda.current_stream().record_event()
    sent.synchronize()
    assert not following.query(), "the host waited for the next step too"
    assert sent.tensor.tolist() == list(range(8))
