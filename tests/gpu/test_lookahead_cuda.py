"""Masks and ids on their way between host and GPU: on a side stream, with events, behind nobody's forward pass."""

from __future__ import annotations

import pytest
import torch

import hf_guided as hg
from hf_guided import demo
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from hf_guided.session.transfers import CudaTransfers, PinnedBuffers
from tests.gpu.conftest import on_gpu
from tests.toy import compiled_set, letters

LONG = 500_000_000  # cycles that a kernel sleeps: a quarter of a second or so


def transfers() -> CudaTransfers:
    return CudaTransfers(torch.device("cuda", torch.cuda.current_device()))


@on_gpu
def test_ids_reach_the_host_while_the_forward_pass_runs() -> None:
    lane = transfers()
    ids = torch.arange(12, device="cuda").view(3, 4)
    arriving = lane.to_host(ids)
    torch.cuda._sleep(LONG)  # stands for the forward pass, queued behind the ids
    forward = torch.cuda.current_stream().record_event()
    arriving.synchronize()
    assert not forward.query(), "the ids waited for the forward pass"
    assert arriving.tensor.tolist() == ids.tolist()


@on_gpu
def test_ids_that_are_still_being_computed_are_waited_for() -> None:
    lane = transfers()
    ids = torch.zeros(64, dtype=torch.long, device="cuda")
    torch.cuda._sleep(LONG)
    ids += 5
    arriving = lane.to_host(ids)
    arriving.synchronize()
    assert arriving.tensor.tolist() == [5] * 64


@on_gpu
def test_the_current_stream_waits_for_masks_and_the_host_does_not() -> None:
    lane = transfers()
    with torch.cuda.stream(lane._stream):
        torch.cuda._sleep(LONG)
    pinned = torch.arange(64, dtype=torch.int32).view(4, 16).pin_memory()
    sent = lane.to_device([pinned[1:3], pinned[3:]])
    sent.join()
    doubled = sent.tensor * 2
    assert not torch.cuda.current_stream().record_event().query(), "somebody waited on the host"
    assert doubled.cpu().tolist() == (torch.arange(16, 64).view(3, 16) * 2).tolist()


@on_gpu
def test_no_slot_is_written_before_its_copy_is_done() -> None:
    lane = transfers()
    slots = PinnedBuffers(1 << 17, lane)
    sent = []
    for step in range(8):
        bitmask, first = slots.take(4)
        assert bitmask.is_pinned()
        with torch.cuda.stream(lane._stream):
            torch.cuda._sleep(LONG // 10)  # every copy is late
        bitmask[first : first + 4] = step
        sent.append(slots.send([0, 1, 2, 3]))
    for step, transfer in enumerate(sent):
        transfer.join()
        assert (transfer.tensor == step).all()


def test_masks_on_a_device_are_those_of_the_cpu(device: torch.device) -> None:
    vocabulary = letters("abc", stop=1)
    rows = [Row(compiled_set(vocabulary, "abc").matcher()), Row(None), Row(compiled_set(vocabulary, "cab").matcher())]
    scores = torch.randn(3, vocabulary.padded_size)
    host, there = (MaskFiller(vocabulary, (1,)) for _ in range(2))
    for _ in range(4):  # from the second on, they are sent ahead
        expected, alive = host.apply(scores, host.fill(rows, [None] * 3))
        masks = there.fill(rows, [None] * 3)
        found, found_alive = there.apply(scores.to(device), masks)
        assert torch.equal(found.cpu(), expected) and [bool(one) for one in found_alive] == alive
    assert device.type == "cpu" or (masks.transfer is not None and masks.transfer.tensor.is_cuda)


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 4}], ids=str)
def test_overlap_on_is_overlap_off(device: torch.device, mode: dict[str, int]) -> None:
    model, tokenizer = demo.load()
    model = model.double().to(device)
    guide = hg.Guide(model, tokenizer)
    for example in demo.examples(3 if device.type == "cuda" else 1, seed=2):
        inputs = tokenizer(example.prompt, return_tensors="pt", return_token_type_ids=False).to(device)
        outputs = []
        for overlap in (False, True):
            processor = guide.logits_processor(example.schema, overlap=overlap)
            outputs.append(
                model.generate(
                    **inputs,
                    **mode,
                    do_sample=False,
                    max_new_tokens=100 if device.type == "cuda" else 40,
                    logits_processor=[processor],
                    stopping_criteria=[processor.companion],
                )
            )
        assert torch.equal(*outputs)
        assert mode or processor.stats.foreseen == processor.stats.calls - 1
