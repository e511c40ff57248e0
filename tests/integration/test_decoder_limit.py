"""The decoder closes its texts within the limit of the generate() call."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided import demo


@pytest.mark.parametrize("given", ["max_new_tokens", "max_length"])
@pytest.mark.parametrize("modes", [{}, {"num_beams": 2}])
def test_decoder_reads_the_limit_of_the_call(given: str, modes: dict[str, Any]) -> None:
    model, tokenizer = demo.load()
    guide, schema = hg.Guide(tokenizer, model), hg.JsonSchema(demo.SCHEMAS["person"])
    inputs = tokenizer("Daria Pinto is 50 years old: ", return_tensors="pt", return_token_type_ids=False)
    start = inputs["input_ids"].shape[1]
    limit = {given: 40 + (start if given == "max_length" else 0), "do_sample": False, **modes}
    output = model.generate(**inputs, **limit, custom_generate=guide.decoder(schema))
    assert torch.equal(
        output, model.generate(**inputs, **limit, custom_generate=guide.decoder(schema, max_new_tokens=40))
    )
    json.loads(tokenizer.decode(output[0, start:], skip_special_tokens=True))
