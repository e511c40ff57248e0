"""A dozen families of models of the table in docs/architectures.md; benchmarks/bench_models.py runs all."""

from __future__ import annotations

from functools import cache

import pytest

import hf_guided as hg
from benchmarks.model_comparisons import RIGHT, Comparisons, TransformersFails, difference, usable_case
from benchmarks.tiny_models import MAPPINGS, WIDTH, tokenizer, variants
from tests import effort

COLUMNS = ("decoder", "lookup", "steps", "static")
FAMILIES = (
    ("causal", "llama", "base"),
    ("causal", "gemma3_text", "base"),  # windows
    ("causal", "mistral", "base"),  # windows
    ("causal", "phi3", "longrope"),
    ("causal", "gpt2", "base"),
    ("causal", "bloom", "base"),  # biases by distance
    ("causal", "falcon_mamba", "base"),
    ("causal", "recurrent_gemma", "base"),
    ("causal", "mixtral", "base"),
    ("seq2seq", "t5", "base"),
    ("seq2seq", "bart", "base"),
    ("image", "qwen2_vl", "base"),
    ("image", "mllama", "base"),  # a method of its own that makes the inputs of the next pass
)
LIKE_OTHERS = ("mistral", "recurrent_gemma", "bart")  # another one has windows, states, an encoder
# Models that the decoder must not leave to transformers' own loop.
EVERY_COLUMN = ("llama", "t5")  # where slow tests do not run
IN_THE_FAST_LOOP = frozenset({"llama, base", "mistral, base", "gpt2, base", "mixtral, base", "t5, base"})


@cache
def guide() -> hg.Guide:
    """Compiles the constraints once for all models, which have the same vocabulary."""
    return hg.Guide(WIDTH, tokenizer())


@pytest.mark.filterwarnings("ignore")  # of transformers, about configs of this size
@pytest.mark.parametrize(
    ("task", "name", "variant"),
    [
        pytest.param(*case, id="-".join(case[1:]), marks=[pytest.mark.slow] * (case[1] in LIKE_OTHERS))
        for case in FAMILIES
    ],
)
def test_every_way_writes_what_generate_writes(task: str, name: str, variant: str) -> None:
    case, built = usable_case(name, MAPPINGS[task][name], variants(name)[variant], guide())
    assert case is not None, built
    comparisons = Comparisons(case)
    in_the_fast_loop = f"{name}, {variant}" in IN_THE_FAST_LOOP
    columns = COLUMNS if in_the_fast_loop and (effort.everything or name in EVERY_COLUMN) else ("decoder", "steps")
    cells = {column: comparisons.cell(column) for column in columns}
    assert not {
        column: cell
        for column, cell in cells.items()
        if not cell.startswith((RIGHT, "plain: ", "host: ", "transformers itself: "))
    }
    if in_the_fast_loop:
        assert set(cells.values()) == {RIGHT}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("task", "name"), [("causal", "llama"), ("causal", "mamba"), ("seq2seq", "t5")])
def test_masks_are_those_of_brute_force(task: str, name: str) -> None:
    case, built = usable_case(name, MAPPINGS[task][name], {}, guide())
    assert case is not None, built
    assert Comparisons(case).cell("processor") == RIGHT


def test_outputs_show_mistakes() -> None:
    """The outputs are long, and depend on the prompt, so that a wrong cache or position changes them."""
    case, _ = usable_case("llama", "LlamaForCausalLM", {}, guide())
    assert case is not None
    free = Comparisons(case).reference("batch 4, free")
    assert all(len(set(row)) > 8 for row in free)
    assert len({tuple(row) for row in free}) == len(free)
    assert difference([[1, 2, 3], [4, 5]], [[1, 2, 3], [4, 6]]) == "wrong at token 1 of row 1"
    assert difference([[1, 2]], [[1, 2, 3]]) == "wrong at token 2 of row 0"


def test_an_error_of_transformers_is_not_ours() -> None:
    case, _ = usable_case("llama", "LlamaForCausalLM", {}, guide())
    assert case is not None
    with pytest.raises(TransformersFails, match="ValueError"):
        case.plain((0,), (None,), cache_implementation="no such cache")
