"""The server's engines with other models: encoder-decoders, images, hooks that take the fast loop away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import hf_guided as hg
from hf_guided.errors import UnsupportedModel
from hf_guided.serve.engines.jobs import Engine
from hf_guided.serve.engines.one_by_one import OneByOne
from hf_guided.serve.engines.shared_batches import SharedBatches
from tests import vocabularies
from tests.integration import models
from tests.jobs import Client, finished, job

CONSTRAINT = hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?")


@contextmanager
def running(kind: type, model: PreTrainedModel, guide: hg.Guide) -> Iterator[Engine]:
    engine = kind(model, guide)
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize("constraint", [None, CONSTRAINT], ids=["free", "guided"])
def test_encoder_decoder(constraint: Any) -> None:
    model = models.t5(vocabularies.demo()).double()
    guide = hg.Guide(model, vocabularies.demo())
    prompt = guide.tokenizer("Anna booked two")["input_ids"]
    settings: dict[str, Any] = {"max_new_tokens": 30, "do_sample": False, "backend": "native"}
    [result] = hg.generate(model, guide.tokenizer, ["Anna booked two"], constraint, guide=guide, **settings)
    with running(OneByOne, model, guide) as engine:
        made = job(guide, prompt, constraint, max_new_tokens=30, num_answers=2)
        assert finished(engine, made) == [list(result.token_ids)] * 2
        # The penalty counts the answer alone, which starts after one token that the decoder is given.
        made = job(
            guide, prompt, max_new_tokens=10, presence_penalty=100.0, logit_bias={guide.tokenizer.eos_token_id: -1e9}
        )
        [answer] = finished(engine, made)
        assert len(set(answer)) == len(answer) == 10
    with pytest.raises(UnsupportedModel):
        SharedBatches(model, guide)


@pytest.mark.parametrize("kind", [OneByOne, SharedBatches])
def test_images_run_alone(kind: type) -> None:
    model, image = models.llava(vocabularies.demo())
    model = model.double()
    guide = hg.Guide(model, vocabularies.demo())
    prompt = [image] * 4 + list(guide.tokenizer("The")["input_ids"])
    torch.manual_seed(0)
    with running(kind, model, guide) as engine:
        answers = []
        for pixels in (torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)):
            expected = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                pixel_values=pixels.double(),
                max_new_tokens=10,
                do_sample=False,
            )[0, len(prompt) :].tolist()
            made = job(guide, prompt, max_new_tokens=10, num_answers=2, model_inputs={"pixel_values": pixels})
            assert finished(engine, made) == [expected, expected]
            answers.append(expected)
        assert answers[0] != answers[1], "the model sees the image"
        text = job(guide, prompt[4:], CONSTRAINT, max_new_tokens=30)
        [answer] = finished(engine, text)
        assert guide.read(CONSTRAINT, answer).finish_reason == "stop"


def test_transformers_own_loop() -> None:
    """A hook inside the model may treat the last token of a pass differently, so the fast loop steps aside."""
    model = models.llama(vocabularies.demo(), layers=2).double()
    guide = hg.Guide(model, vocabularies.demo())
    prompt = guide.tokenizer("Anna booked two")["input_ids"]
    model.model.layers[0].register_forward_hook(lambda *_: None)
    with running(OneByOne, model, guide) as engine:
        for settings in ({}, {"temperature": 1.5, "seed": 2}, {"temperature": 1.5, "seed": 2, "presence_penalty": 0.5}):
            made = job(guide, prompt, CONSTRAINT, num_answers=3, top_logprobs=2, **settings)
            whole = Client(engine, made)
            tokens = whole.finished()
            for answer in tokens:
                assert guide.read(CONSTRAINT, answer).finish_reason == "stop"
            made = job(guide, prompt, CONSTRAINT, num_answers=3, **settings)
            client = Client(engine, made, cancel_after={1: 1})
            assert client.finished()[::2] == tokens[::2] and client.cancelled == {1}
        assert engine.stats.forced_tokens == 0
        client = Client(engine, job(guide, prompt, max_new_tokens=300, num_answers=2), cancel_after={0: 1, 1: 1}).wait()
        assert finished(engine, job(guide, prompt, max_new_tokens=3))
        assert max(map(len, client.tokens)) < 5
