"""What the decode loops are measured on: a model, prompts, and a schema for each prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

import hf_guided as hg
from benchmarks.common import record12
from benchmarks.oracle import is_instance
from hf_guided import demo
from tests.vocabularies import fast_tekken

ROWS = 8  # prompts of a case
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}


@dataclass(frozen=True)
class Task:
    """A prompt and what its answer has to be."""

    prompt: str  # text in front of the answer
    schema: dict[str, Any]  # schema of the answer
    record: dict[str, Any] | None = None  # the right answer; None where there is none


@dataclass(frozen=True, eq=False)
class Case:
    name: str  # name in the tables
    model: PreTrainedModel  # model in eval mode, on its device
    tokenizer: PreTrainedTokenizerBase
    tasks: Sequence[Task]
    max_new_tokens: int  # limit that is enough for guided answers, and cuts free ones

    @cached_property
    def guide(self) -> hg.Guide:
        return hg.Guide(self.model, self.tokenizer)

    def batches(self, batch: int) -> Iterator[tuple[Sequence[Task], dict[str, Tensor]]]:
        """The tasks in batches, with what generate() is given of them, padded left."""
        for first in range(0, len(self.tasks), batch):
            tasks = self.tasks[first : first + batch]
            ids = [self.tokenizer.encode(task.prompt) for task in tasks]
            longest = max(map(len, ids))
            padded = torch.tensor([[self.tokenizer.eos_token_id] * (longest - len(row)) + row for row in ids])
            mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
            yield tasks, {"input_ids": padded.to(self.model.device), "attention_mask": mask.to(self.model.device)}

    def generate(self, inputs: dict[str, Tensor], **arguments: Any) -> list[list[int]]:
        """New tokens of each row, up to its stop token, which is among them."""
        stop = self.tokenizer.eos_token_id
        output = self.model.generate(
            **inputs, max_new_tokens=self.max_new_tokens, do_sample=False, pad_token_id=stop, **arguments
        )
        rows = output[:, inputs["input_ids"].shape[1] :].tolist()
        return [row[: row.index(stop) + 1] if stop in row else row for row in rows]

    def text(self, row: Sequence[int]) -> bytes | None:
        """The text of a row that has ended; of a free one it need not be UTF-8."""
        if not row or row[-1] != self.tokenizer.eos_token_id:
            return None
        return self.guide.vocabulary.decode_bytes(row[:-1])


def is_valid(task: Task, text: bytes | None) -> bool:
    """Whether a text is what the schema asks for; nothing of ours decides."""
    return text is not None and is_instance(task.schema, text)


def is_right(task: Task, text: bytes | None) -> bool:
    return is_valid(task, text) and text is not None and json.loads(text) == task.record


def record_tasks() -> list[Task]:
    """The 12-field record: its prompts in turn, each for a customer of its own, so that no two rows are the same."""
    record = record12()
    prompts = record["prompts"]
    return [Task(f"Customer {i + 1}. {prompts[i % len(prompts)]}", record["schema"]) for i in range(ROWS)]


def demo_record(max_new_tokens: int) -> Case:
    """The demo model, which has never seen such a record; nearly all compact ones have fewer than 160 tokens."""
    model, tokenizer = demo.load()
    return Case("demo model, record12", model, tokenizer, record_tasks(), max_new_tokens)


def demo_examples() -> Case:
    model, tokenizer = demo.load()
    tasks = [Task(one.prompt, one.schema, one.record) for one in demo.EXAMPLES[:ROWS]]
    return Case("demo model, its own tasks", model, tokenizer, tasks, 200)


def random_model(
    shape: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A random Llama of this shape, and Tekken, whose vocabulary it has."""
    tokenizer = fast_tekken()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        # Wide for a small one, so that the context counts: otherwise greedy repeats one token for ever.
        initializer_range=0.2 if shape == "tiny" else 0.02,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **SHAPES[shape],
    )
    torch.manual_seed(1)  # with 0 the tiny one writes digits for ever, and some of its answers never end
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval(), tokenizer


def random_llama() -> Case:
    model, tokenizer = random_model("tiny")
    return Case("random Llama (tiny), record12", model, tokenizer, record_tasks(), 400)
