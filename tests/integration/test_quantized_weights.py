"""Weights that libraries for quantization hold, and weights of GGUF files. The oracle is generate() on the same model.

HQQ quantizes a loaded model: transformers' own HqqConfig cannot load one at this time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel, TorchAoConfig

from tests.integration.test_weights import check, llama

NOT_INSTALLED = "the extra quantization is not installed"
HEAD_TOO = {"llm_int8_skip_modules": ["none"]}


def loaded(path: Path, config: Any) -> PreTrainedModel:
    llama().save_pretrained(path)
    return AutoModelForCausalLM.from_pretrained(path, quantization_config=config, dtype=torch.float32).eval()


def torchao(path: Path) -> PreTrainedModel:
    quantization = pytest.importorskip("torchao.quantization", reason=NOT_INSTALLED)
    return loaded(path, TorchAoConfig(quantization.Int8WeightOnlyConfig(), modules_to_not_convert=[]))


def hqq(path: Path) -> PreTrainedModel:
    quantize = pytest.importorskip("hqq.core.quantize", reason=NOT_INSTALLED)
    from hqq.models.hf.base import AutoHQQHFModel

    model = llama()
    config = quantize.BaseQuantizeConfig(nbits=4, group_size=32)
    AutoHQQHFModel.quantize_model(model, config, torch.float32, "cpu")
    return model


def bitsandbytes(**options: Any) -> Callable[[Path], PreTrainedModel]:
    def load(path: Path) -> PreTrainedModel:
        pytest.importorskip("bitsandbytes", reason=NOT_INSTALLED)
        return loaded(path, BitsAndBytesConfig(**options))

    return load


def gguf(path: Path) -> PreTrainedModel:
    """The model as llama.cpp's tools write it: eight bits, other names."""
    library = pytest.importorskip("gguf", reason="the extra test is not installed")
    model, kind = llama(), library.GGMLQuantizationType.Q8_0
    config = model.config
    writer = library.GGUFWriter(str(path / "model.gguf"), "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_pad_token_id(config.pad_token_id)
    names = library.get_tensor_name_map(library.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        target = names.get_name(name, try_suffixes=(".weight",))
        if data.ndim == 1:
            writer.add_tensor(target, data)
        else:
            writer.add_tensor(target, library.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return AutoModelForCausalLM.from_pretrained(path, gguf_file="model.gguf", dtype=torch.float32).eval()


FORMS: dict[str, Callable[[Path], PreTrainedModel]] = {
    "torchao, the head too": torchao,
    "HQQ": hqq,
    "bitsandbytes, 8 bits": bitsandbytes(load_in_8bit=True),
    "bitsandbytes, 4 bits, the head too": bitsandbytes(load_in_4bit=True, **HEAD_TOO),
    "GGUF": gguf,
}


@pytest.mark.filterwarnings("ignore")  # of these libraries, on machines without a GPU
@pytest.mark.parametrize("form", [pytest.param(form, marks=[pytest.mark.slow] * (form != "GGUF")) for form in FORMS])
def test_quantized_weights(form: str, tmp_path: Path) -> None:
    check(FORMS[form](tmp_path))
