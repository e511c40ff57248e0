"""The examples of the page on real models, with tiny random models of the classes and chat templates that it names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

import hf_guided as hg
from tests.unit.test_readme import HUB_BLOCK, ROOT, printed
from tests.vocabularies import tiny_byte_level

FOLDER = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "chat-templates"
PAGE = (ROOT / "docs" / "guides" / "real_models.md").read_text(encoding="utf-8")
SHOWN = "Qwen/Qwen3-0.6B"  # the model of the page's example
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Family(NamedTuple):
    """A model of the page's table."""

    config: type[PreTrainedConfig]
    template: str  # a file in FOLDER
    marks: tuple[str, ...]  # special tokens that the template writes
    call: str  # the beginning of a call, by the template


FAMILIES = {
    SHOWN: Family(Qwen3Config, "Qwen-Qwen3-0.6B", ("<|im_start|>",), "<tool_call>\n"),
    "NousResearch/Hermes-3-Llama-3.1-8B": Family(
        LlamaConfig, "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ("<|im_start|>",), "<tool_call>\n"
    ),
    "mistralai/Mistral-Nemo-Instruct-2407": Family(
        MistralConfig, "mistralai-Mistral-Nemo-Instruct-2407", ("[INST]", "[/INST]", "[TOOL_CALLS]"), "[TOOL_CALLS]"
    ),
}


def saved(name: str, folder: Path) -> Path:
    """A folder with a tiny random model of this family and its tokenizer."""
    family = FAMILIES[name]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tiny_byte_level().backend_tokenizer,
        bos_token="<s>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        additional_special_tokens=[*family.marks],
    )
    source = (FOLDER / f"{family.template}.jinja").read_text(encoding="utf-8")
    tool_use = family.template.endswith("tool_use")  # published beside a template for chats without tools
    tokenizer.chat_template = {"default": CHATML, "tool_use": source} if tool_use else source
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        family.config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=8192,
            initializer_range=0.5,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.generation_config.do_sample = True  # as most published chat models have it
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:.*shortened")  # random models fill every limit
@pytest.mark.parametrize("name", FAMILIES)
def test_examples_run(name: str, tmp_path: Path) -> None:
    if not FOLDER.exists():
        pytest.skip(f"no chat templates in {FOLDER}")
    folder = saved(name, tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    torch.manual_seed(0)
    for block in HUB_BLOCK.finditer(PAGE):
        if "enable_thinking" in block["code"] and name != SHOWN:
            continue  # a variable of this template alone
        code = block["code"].replace(f'"{SHOWN}"', repr(folder.as_posix()))
        assert printed(code, names) == (block["shown"] or ""), code
        if isinstance(getattr(names.get("result"), "value", None), names.get("Ticket", ())):
            jsonschema.validate(json.loads(names["result"].text), names["Ticket"].model_json_schema())
    assert type(names["model"]).__name__ in PAGE
    assert type(names["call"].arguments["city"]) is str and type(names["call"].arguments["days"]) is int
    written = names["tokenizer"].decode(names["result"].token_ids)
    assert written.startswith(FAMILIES[name].call)


@pytest.mark.parametrize("name", FAMILIES)
def test_table_names_class_and_notation(name: str, tmp_path: Path) -> None:
    """The notation is one in which hf-guided writes the call as the template does."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    kind, notation = re.findall(r"`([^`]+)`", line)[1:3]
    assert kind == FAMILIES[name].config.__name__.replace("Config", "ForCausalLM")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    assert FAMILIES[name].call.strip() in hg.describe(hg.ToolCalls([tool], format=notation))
