"""A tiny model, its draft twin and their tokenizer, for examples and tests that need no network.

The model reads a short business text. Left free, it writes one of three records that it has learned, mostly valid when
decoded greedily and broken at a high temperature. Guided, it cannot break, and it fills in a class of your own: names,
e-mail addresses, phone numbers, ages, cities, dates, amounts, yes or no, one of a list, lists of names.

    from hf_guided import demo

    model, tokenizer = demo.load()
    example = demo.EXAMPLES[0]
    print(example.prompt, example.schema)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hf_guided.demo.data import KINDS, Example, Split, examples, iter_examples, make_prompt
from hf_guided.demo.schemas import SCHEMAS

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = [
    "EXAMPLES",
    "KINDS",
    "SCHEMAS",
    "Example",
    "Split",
    "examples",
    "iter_examples",
    "load",
    "load_draft",
    "make_prompt",
]

MODEL_FOLDER = "model"
DRAFT_FOLDER = "draft"
TOKENIZER_FOLDER = "tokenizer"

EXAMPLES: tuple[Example, ...] = tuple(examples(12, seed=1))
"""A dozen held-out examples, four of each kind."""

_HERE = Path(__file__).parent


def load() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Load the demo model and its tokenizer from the package.

    Returns:
        A new model (float32, CPU, eval mode, context of 512 tokens) and a new tokenizer (it pads on the left).
    """
    from transformers import PreTrainedTokenizerFast

    return _load_model(MODEL_FOLDER), PreTrainedTokenizerFast.from_pretrained(_HERE / TOKENIZER_FOLDER)


def load_draft() -> LlamaForCausalLM:
    """Load the smaller model that proposes tokens for the one of `load`, with the same tokenizer.

    Returns:
        A new model (float32, CPU, eval mode, context of 512 tokens).
    """
    return _load_model(DRAFT_FOLDER)


def _load_model(folder: str) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(_HERE / folder, dtype=torch.float32).eval()
