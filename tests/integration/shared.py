"""A tiny random model for the demo vocabulary, and its guide: tests that leave them as they are share them."""

from __future__ import annotations

from functools import cache

from transformers import LlamaForCausalLM

import hf_guided as hg
from tests import vocabularies
from tests.integration import models


@cache
def model() -> LlamaForCausalLM:
    return models.llama(vocabularies.demo(), layers=1)


@cache
def guide() -> hg.Guide:
    return hg.Guide(model(), vocabularies.demo())
