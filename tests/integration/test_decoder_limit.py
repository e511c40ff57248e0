"""The decoder closes its texts within the limit of the generate() call."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided import demo
from tests import vocabularies
from tests.integration import models
from tests.integration.shared import guide, model


@pytest.mark.parametrize("given", ["max_new_tokens", "max_length"])
@pytest.mark.parametrize("modes", [{}, {"num_beams": 2}])
def test_decoder_reads_the_limit_of_the_call(given: str, modes: dict[str, Any]) -> None:
    model, tokenizer = demo.load()
    guide, schema = hg.Guide(model, tokenizer), hg.JsonSchema(demo.SCHEMAS["person"])
    inputs = tokenizer("Daria Pinto is 50 years old: ", return_tensors="pt", return_token_type_ids=False)
    start = inputs["input_ids"].shape[1]
    limit = {given: 40 + (start if given == "max_length" else 0), "do_sample": False, **modes}
    output = model.generate(**inputs, **limit, custom_generate=guide.decoder(schema))
    assert torch.equal(
        output, model.generate(**inputs, **limit, custom_generate=guide.decoder(schema, max_new_tokens=40))
    )
    json.loads(tokenizer.decode(output[0, start:], skip_special_tokens=True))


def test_each_limit_is_named_that_may_cut_a_text() -> None:
    model, tokenizer = demo.load()
    decoder = hg.Guide(model, tokenizer).decoder(hg.Grammar("start: /[a-z]{3000}/"))  # no search finds the end
    inputs = tokenizer("Go.", return_tensors="pt", return_token_type_ids=False)
    for limit in (3, 6):
        with pytest.warns(UserWarning, match=f"found no way to the end of .* by max_new_tokens={limit};"):
            model.generate(**inputs, max_new_tokens=limit, do_sample=False, custom_generate=decoder)


WORD = hg.Regex("[a-z]{3,90}")


def closed(own: Any, new_tokens: torch.Tensor, **prefix: str) -> list[int]:
    """The lengths of rows, all of which have to match."""
    guide = hg.Guide(own, vocabularies.demo())
    results = [guide.read(WORD, row, **prefix) for row in new_tokens.tolist()]
    assert all(result.finish_reason == "stop" and re.fullmatch("[a-z]{3,90}", result.text) for result in results)
    return [len(result.token_ids) for result in results]


@pytest.mark.parametrize(
    ("asked", "ours", "limit"),
    [
        ({"max_new_tokens": 8}, {}, 8),
        ({"max_new_tokens": 8}, {"max_new_tokens": 6}, 6),
        ({"max_new_tokens": 6}, {"max_new_tokens": 8}, 6),
        ({"max_new_tokens": 6}, {"prefix": "abc"}, 6),
        ({"max_new_tokens": 8, "num_beams": 3}, {}, 8),
        ({"max_new_tokens": 8, "do_sample": True, "num_return_sequences": 3}, {}, 8),
        ({"max_new_tokens": 8}, {"draft": "prompt_lookup"}, 8),
        ({"max_new_tokens": 8}, {"jump_forward": False}, 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["decoder-only", "inputs_embeds", "encoder-decoder"])
def test_rows_close_within_the_limit(form: str, asked: dict[str, Any], ours: dict[str, Any], limit: int) -> None:
    own = models.t5(vocabularies.demo()) if form == "encoder-decoder" else model()
    ids = torch.full((1, 3), 70)
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "do_sample": False, **asked}
    if form == "inputs_embeds":
        given["inputs_embeds"] = own.get_input_embeddings()(given.pop("input_ids"))
    output = own.generate(**given, custom_generate=hg.Guide(own, vocabularies.demo()).decoder(WORD, **ours))
    start = {"decoder-only": 3, "inputs_embeds": 0, "encoder-decoder": 1}[form]
    prefix = {"prefix": ours["prefix"]} if "prefix" in ours else {}
    assert all(length <= limit for length in closed(own, output[:, start:], **prefix))
    assert output.shape[1] - start <= limit


def test_the_default_limit_applies_and_is_warned_of() -> None:
    ids = torch.full((1, 3), 70)
    asked = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    with pytest.warns(UserWarning, match="max_length"):
        output = model().generate(ids, **asked, custom_generate=guide().decoder(hg.Regex("[a-z]{3,900}")))
    (result,) = (guide().read(WORD, row) for row in output[:, 3:].tolist())
    assert result.finish_reason == "stop" and output.shape[1] <= 23


@pytest.mark.parametrize("beams", [1, 2])
def test_a_limit_that_no_text_fits_is_refused(beams: int) -> None:
    ids, decoder = torch.full((1, 3), 70), guide().decoder(hg.Regex("[0-9]{30}"))
    asked = {"attention_mask": torch.ones_like(ids), "num_beams": beams, "do_sample": False}
    with pytest.raises(hg.BudgetTooSmall, match="max_new_tokens=2 is too small") as raised:
        model().generate(ids, **asked, max_new_tokens=2, custom_generate=decoder)
    output = model().generate(ids, **asked, max_new_tokens=raised.value.minimum, custom_generate=decoder)
    assert guide().read(hg.Regex("[0-9]{30}"), output[0, 3:].tolist()).finish_reason == "stop"


@pytest.mark.parametrize("overlap", [False, True])
def test_thinking_leaves_room_for_the_answer(overlap: bool) -> None:
    thinking = hg.Reasoning("<t>", "</t>")
    ids = torch.full((4, 3), 70)
    asked = {"attention_mask": torch.ones_like(ids), "do_sample": True, "temperature": 2.0, "max_new_tokens": 24}
    torch.manual_seed(0)
    decoder = guide().decoder(hg.Choice(["yes", "no"]), reasoning=thinking, overlap=overlap)
    output = model().generate(ids, **asked, custom_generate=decoder)
    for row in output[:, 3:].tolist():
        result = guide().read(hg.Choice(["yes", "no"]), row, reasoning=thinking)
        assert result.finish_reason == "stop" and result.value in ("yes", "no")
