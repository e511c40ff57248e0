"""Weights in every form: quantized, packed, adapted, compiled, offloaded. The oracle is generate() on the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

import hf_guided as hg
from hf_guided.hf.compat import logits_width

TOKENIZER = ByT5Tokenizer(extra_ids=0)
CONSTRAINT = hg.Regex('\\{"name": "[a-z]{3}", "age": [0-9]{2}\\}')
WIDTH = len(TOKENIZER) + 5


def llama(tied: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WIDTH,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        bos_token_id=None,
        eos_token_id=TOKENIZER.eos_token_id,
        pad_token_id=TOKENIZER.pad_token_id,
        initializer_range=0.4,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).eval()


class PackedHead(nn.Module):
    """Two weights of four bits in each byte, as a column, like the heads of bitsandbytes."""

    def __init__(self, head: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = head.in_features, head.out_features
        self.scale = head.weight.abs().max() / 7
        levels = (head.weight / self.scale).round().long() + 8
        self.register_buffer("weight", (levels.flatten()[::2] * 16 + levels.flatten()[1::2]).to(torch.uint8)[:, None])

    def forward(self, states: Tensor) -> Tensor:
        levels = torch.stack([self.weight[:, 0] // 16, self.weight[:, 0] % 16], 1).flatten().float() - 8
        return states @ (levels * self.scale).view(self.out_features, self.in_features).T


def packed(path: Path) -> Any:
    model = llama()
    model.lm_head = PackedHead(model.lm_head)
    return model


def int8(path: Path) -> Any:
    return torch.ao.quantization.quantize_dynamic(llama(), {nn.Linear}, dtype=torch.qint8)


def compiled(path: Path) -> Any:
    return torch.compile(llama(), backend="eager")


def adapted(targets: list[str], saved: list[str] | None) -> Any:
    return peft.get_peft_model(llama(), peft.LoraConfig(target_modules=targets, modules_to_save=saved)).eval()


def on_disk(path: Path) -> Any:
    return accelerate.disk_offload(llama(), str(path), execution_device=torch.device("cpu"))


FORMS: dict[str, Callable[[Path], Any]] = {
    "int8, dynamic": int8,
    "packed head": packed,
    "tied head": lambda _: llama(tied=True),
    "compiled": compiled,
    "adapter on the head": lambda _: adapted(["lm_head"], None),
    "a head of the adapter's own": lambda _: adapted(["q_proj"], ["lm_head"]),
    "on disk": on_disk,
    "on the CPU, for a device": lambda _: accelerate.cpu_offload(llama(), execution_device=torch.device("cpu")),
}


def check(model: Any) -> None:
    """The default way of ``hg.generate`` writes what generate() writes with a logits processor, row by row."""
    assert logits_width(model) == WIDTH
    guide = hg.Guide(model, TOKENIZER)
    prompts = ["hello", "a longer prompt"]
    options: dict[str, Any] = {"max_new_tokens": 60, "do_sample": False}
    results = hg.generate(model, TOKENIZER, prompts, CONSTRAINT, guide=guide, **options)
    for prompt, result in zip(prompts, results, strict=True):
        ids = TOKENIZER(prompt, return_tensors="pt").input_ids
        expected = model.generate(ids, **options, logits_processor=[guide.logits_processor(CONSTRAINT)])
        assert result.token_ids == expected[0, ids.shape[1] :].tolist()
        assert result.finish_reason == "stop"


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:torch.*deprecated")
@pytest.mark.parametrize("form", FORMS)
def test_weights_in_every_form(form: str, tmp_path: Path) -> None:
    check(FORMS[form](tmp_path))


@pytest.mark.parametrize(
    "mode", [{}, {"num_beams": 2}, {"output_scores": True, "return_dict_in_generate": True}], ids=str
)
def test_a_width_that_is_not_the_model_s(mode: dict[str, Any]) -> None:
    guide = hg.Guide(WIDTH + 3, TOKENIZER)
    with pytest.raises(hg.VocabularySizeError, match=f"{WIDTH} columns.*{WIDTH + 3}"):
        llama().generate(torch.tensor([[70, 71]]), max_new_tokens=40, custom_generate=guide.decoder(CONSTRAINT), **mode)
