"""The start of a call on the device lane, counted on a fake device: one copy to it, no wait, and few operations.

The fake device is torch's "meta", whose tensors have no numbers: whoever reads one, or a shape that depends on one,
gets an error.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import EosTokenCriteria, GenerationConfig, MaxLengthCriteria, StoppingCriteriaList

import hf_guided as hg
from hf_guided.hf.decode.scores import Scoring
from hf_guided.hf.decode.sequence_state import SequenceState
from hf_guided.hf.decode.stopping import RowStops
from hf_guided.hf.device.kernel_loader import Found
from hf_guided.hf.device.kernels import LaunchedKernels
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.launches import Launch
from hf_guided.hf.device.loop import DeviceLoop
from hf_guided.hf.device.prepared import PreparedLaunch, nothing
from hf_guided.hf.device.run import run_on_device
from hf_guided.hf.device.staging import Staging
from hf_guided.hf.device.store import DeviceStore
from tests.integration.test_decoder import family

META = torch.device("meta")
_VIEWS = {"slice", "select", "view", "expand", "unsqueeze", "alias", "detach"}
_ROOM = {"empty", "empty_strided", "new_empty"}  # allocate, and launch nothing


class Counted(TorchDispatchMode):
    """Counts what is queued on the fake device, and the copies to it."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: list[str] = []
        self.blocking: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        tensors = [each for each in (*args, result) if isinstance(each, Tensor)]
        if any(tensor.device == META for tensor in tensors) and name not in _VIEWS | _ROOM:
            self.queued.append(name)
            if any(tensor.device.type == "cpu" for tensor in tensors):
                given = [value for value in args if isinstance(value, bool)]
                self.blocking.append(not (kwargs.get("non_blocking") or (given and given[-1])))
        return result


class Launches:
    """A launcher that launches nothing."""

    def prepare(self, launch: Launch) -> PreparedLaunch:
        return nothing


class Kernels(LaunchedKernels):
    """Those of a GPU, without launches; count pools that are filled."""

    def __init__(self) -> None:
        super().__init__("fake", Launches(), lambda device: 1)
        self.filled = 0

    def fill_pool_(self, lane: Lane) -> None:
        lane.claim_all()
        self.filled += 1


def start(store: DeviceStore, guide: hg.Guide, constraint: Any, rows: int, *, do_sample: bool) -> Counted:
    """Run a call up to its first step; what was counted."""
    session = guide.decoder(constraint, backend="automaton", max_new_tokens=30)._session
    prompts = [[5, 6]] * rows
    sequences = [SequenceState(row, [5, 6], 2) for row in session.begin(rows, prompts)]
    stops = RowStops(
        StoppingCriteriaList([EosTokenCriteria(list(session.stop_token_ids)), MaxLengthCriteria(40)]), META
    )
    prompt = torch.zeros(rows, 2, dtype=torch.int64, device=META)
    slots: Any = SimpleNamespace(cache=None, pad_token_id=0, device=META)
    with Counted() as counted:
        run_on_device(
            sequences,
            torch.empty(rows, guide.vocabulary.padded_size, device=META),
            prompt,
            session=session,
            slots=slots,
            scoring=Scoring([]),
            stops=stops,
            config=GenerationConfig(do_sample=do_sample),
            device_lane=True,
            store=store,
        )
    return counted


@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("rows", [1, 64])
def test_a_start_is_one_copy_and_no_wait(rows: int, do_sample: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    guide, kernels = family("llama")[1], Kernels()
    store = DeviceStore(guide.vocabulary)
    monkeypatch.setattr(DeviceLoop, "run", lambda self, logits: None)
    monkeypatch.setattr(DeviceStore, "kernels", lambda self, device: Found(kernels, {}))  # type: ignore[arg-type]
    constraint = hg.Regex("[a-c]{1,12}|[0-9]{4}")
    first = start(store, guide, constraint, rows, do_sample=do_sample)
    again = start(store, guide, constraint, rows, do_sample=do_sample)
    assert kernels.filled == 1  # the pool is full, and the host knows it
    assert again.blocking == [False]
    without_seeds = [] if do_sample else ["zeros"]
    assert again.queued == ["new_zeros", "cat", *without_seeds, "copy_"]
    assert len(first.queued) < 30


def test_a_fake_device_finds_who_waits() -> None:
    numbers = torch.zeros(3, device=META)
    for waits in (numbers[0].item, numbers.tolist, lambda: numbers[numbers == 0], numbers.cpu):
        with pytest.raises((RuntimeError, NotImplementedError)):
            waits()
    with Counted() as counted:
        numbers.copy_(torch.ones(3))
        numbers.copy_(torch.ones(3), non_blocking=True)
        torch.ones(3).to(META)
    assert counted.blocking == [True, False, True]


@pytest.mark.parametrize("count", [3, 9000])
def test_staged_numbers_arrive_when_they_are_sent(count: int) -> None:
    """Over several buffers, and after an earlier copy."""
    staging = Staging(torch.device("cpu"), direct=False)
    expected = [
        torch.arange(count, dtype=torch.int32),
        torch.full((2, 5), -7),
        torch.tensor([True, False]),
        torch.linspace(0, 1, count),
        torch.arange(count, dtype=torch.int64) - (1 << 62),
    ]
    staged = []
    for i, values in enumerate(expected):
        staged.append(staging.put(values.numpy(), values.dtype))
        assert staged[-1].data_ptr() % 16 == 0 and staged[-1].is_contiguous()
        if i == 1:
            staging.send()
    staging.send()
    for tensor, values in zip(staged, expected, strict=True):
        assert torch.equal(tensor, values) and tensor.dtype == values.dtype
