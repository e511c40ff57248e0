"""States of requests that come and go on the device are those of the host's matchers, whatever seats and places do."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.hf.device.kernels import Kernels, TorchKernels
from hf_guided.hf.device.request_states import RequestStates, RowStep
from hf_guided.hf.device.row_start import start_of
from hf_guided.hf.device.thinking import AnyLanguage
from hf_guided.session.reasoning import Opening
from hf_guided.session.row import Row
from hf_guided.vocabulary.tokens import Vocabulary
from tests import lanes
from tests.effort import repeats
from tests.kernel_harness import Harness, HarnessKernels

MOST_ROWS = 5


@dataclass
class Request:
    """A request on the host, and what the device was told of it."""

    name: str
    host: lanes.HostRow
    language: AnyLanguage
    until: int | None  # tokens of its output after which its thinking has to end
    known_to_device: int | None = None  # tokens that its state there has taken


def request_of(random: Random, name: str, batch: lanes.Batch) -> Request:
    asked = random.choice(batch.languages)
    limit = random.choice((None, random.randint(0, 12)))
    if isinstance(asked, lanes.Thinking):
        row, known = asked.row(random.choice((Opening.START, Opening.NOTHING))), asked.language
    else:
        row, known = Row(lanes.compiled_from(asked, batch.vocabulary, asked.walk.dfa.start).matcher()), None
    start = start_of(row, batch.vocabulary, batch.vocabulary.stop_token_ids)
    assert start.language is not None
    host = lanes.HostRow(row, 0, start.state, limit, [], known)
    return Request(name, host, start.language, start.think_until)


def told(random: Random, states: RequestStates, request: Request, vocabulary: Vocabulary) -> RowStep | None:
    """What the device is told of a request for its next token; None if it has no place or has ended."""
    taken = len(request.host.tokens)
    if not request.host.row.is_open:
        return None
    place = states.place(request.language, None)
    if place is None:
        return None
    seat, is_new = states.seat(request.name)
    continues = not is_new and request.known_to_device == taken - 1 and random.random() < 0.9
    request.known_to_device = taken
    state = start_of(request.host.row, vocabulary, vocabulary.stop_token_ids).state
    return RowStep(
        seat,
        place,
        -1 if continues else state,
        -1 if request.host.limit is None else max(0, request.host.limit - taken),
        -1 if request.until is None else max(0, request.until - (taken - continues)),
    )


def run(random: Random, kernels: Kernels, batch: lanes.Batch, steps: int) -> int:
    """Let requests come and go; returns how many rows were masked."""
    vocabulary = batch.vocabulary
    stops = vocabulary.stop_token_ids
    states = RequestStates(vocabulary, stops, kernels, torch.device("cpu"), MOST_ROWS)
    running: list[Request] = []
    masked = 0
    for step in range(steps):
        while len(running) < 2 * MOST_ROWS and random.random() < 0.7:
            running.append(request_of(random, f"{step}-{len(running)}", batch))
        states.begin_batch()
        rows = random.sample(running, min(len(running), random.randint(1, MOST_ROWS)))
        steps_told = [told(random, states, request, vocabulary) for request in rows]
        padding = random.randint(0, MOST_ROWS - len(rows))
        lines = [one or RowStep() for one in steps_told] + [RowStep()] * padding
        arguments = torch.tensor(lines, dtype=torch.int32).view(-1, len(RowStep._fields)).mT
        fed = [request.host.tokens[-1] if request.host.tokens else 7 for request in rows]
        input_ids = torch.tensor(fed + [0] * padding, dtype=torch.int32)
        logits = torch.randn(len(input_ids), vocabulary.padded_size)
        expected = logits.clone()
        for line, request, one in zip(expected, rows, steps_told, strict=False):
            may = None if one is None else request.host.allowed(vocabulary.padded_size)
            if may is not None:
                line.masked_fill_(~may, -torch.inf)
                masked += 1
        states.step_(input_ids, logits, arguments)
        assert lanes.same_bits(logits, expected)
        for line, request in zip(logits, rows, strict=False):
            tokens = [*request.host.tokens, int(line.argmax())]
            request.host.write(tokens)
        for request in [one for one in running if not one.host.row.is_open or random.random() < 0.05]:
            running.remove(request)
            states.leave(request.name)
    return masked


@settings(max_examples=repeats(30, 300))
@given(st.integers(0, 2**32))
def test_masks_are_those_of_the_host(seed: int) -> None:
    random = Random(seed)
    torch.manual_seed(seed % 2**31)
    batch = lanes.random_batch(random)
    assume(batch is not None)
    assert batch is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_guided.hf.device.request_states.PLACES", random.choice((1, 2, 16)))
        patch.setattr("hf_guided.hf.device.request_states.POOL_BYTES", random.choice((0, 1 << 10, 1 << 20)))
        run(random, TorchKernels(), batch, 12)


def test_masks_of_the_kernels_are_those_of_the_host(harness: Harness) -> None:
    masked = 0
    for seed in range(4):
        random = Random(seed)
        torch.manual_seed(seed)
        batch = lanes.random_batch(random)
        if batch is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("hf_guided.hf.device.request_states.POOL_BYTES", 1 << 14)
                masked += run(random, HarnessKernels(harness), batch, 6)
    assert masked > 20
