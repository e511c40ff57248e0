"""Generation modes, run on tiny random models, and what is said of their outputs.

A mode gets a ``Bench`` and yields the rows it generated, each with the constraint it was generated under. Random models
are adversaries: they have no habit of writing JSON, so whatever comes out valid was made valid by the library.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jsonschema
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, pipeline, set_seed

from benchmarks.libraries import Constraint, Constraints, Library

# Bounded, so that every output can end, and made of what all four libraries enforce.
JSON = Constraint(
    "json",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]{1,8}$"},
                "role": {"enum": ["admin", "user", "guest"]},
                "active": {"type": "boolean"},
            },
            "required": ["name", "role", "active"],
            "additionalProperties": False,
        }
    ),
)
REGEX = Constraint("regex", "[a-z]{3,9}-[0-9]{1,4}")
CONSTRAINTS = (JSON, REGEX)
PROMPTS = (
    'As {"name": "anna", "role": "user", "active": true} and item-17, write the next:',
    "Customer record, please.\n",
    "Fill in this form for Ada, who is an admin:",
    "A",
)
MAX_NEW_TOKENS = 110  # more than the longest output has bytes
HOT = {"do_sample": True, "temperature": 1.5}
GREEDY = {"do_sample": False}
PAD, BOS, EOS = 0, 1, 2  # of the demo tokenizer


class WrongOutput(Exception):
    """The rows look right, and something else is not."""


class Row(NamedTuple):
    """One output: token ids after the prompt, or its text if a mode gives no ids."""

    constraint: Constraint | None
    output: list[int] | str


Outputs = list[list[int]] | list[str]


@dataclass
class Bench:
    """A library, its models, and one run of a mode."""

    library_type: type[Library]
    tokenizer: PreTrainedTokenizerBase

    @cached_property
    def model(self) -> LlamaForCausalLM:
        return tiny_llama(len(self.tokenizer), seed=0)

    @cached_property
    def draft(self) -> LlamaForCausalLM:
        """The model with noise on it: some of what it proposes is taken, some rejected."""
        draft = copy.deepcopy(self.model)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in draft.parameters():
                weight += 0.05 * weight.std() * torch.randn(weight.shape, generator=generator)
        _propose(draft)
        return draft

    @cached_property
    def library(self) -> Library:
        return self.library_type(self.model, self.tokenizer)

    def encode(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        encoded = self.tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
        return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}

    def run(
        self, constraints: Constraints, prompts: Sequence[str], model: PreTrainedModel | None = None, **kwargs: Any
    ) -> Any:
        """Generate, and pair each output row with its constraint."""
        return self.rows(
            constraints, self.generate(prompts, self.library.prepare(constraints), model, **kwargs), len(prompts)
        )

    def generate(
        self, prompts: Sequence[str], prepared: dict[str, Any], model: PreTrainedModel | None = None, **kwargs: Any
    ) -> Outputs:
        settings = {"max_new_tokens": MAX_NEW_TOKENS, **kwargs}
        return self.library.generate(model or self.model, self.encode(prompts), prepared, **settings)

    def rows(self, constraints: Constraints, outputs: Outputs, prompts: int) -> list[Row]:
        copies = len(outputs) // prompts
        per_row = [constraints] * prompts if isinstance(constraints, Constraint) else list(constraints)
        return [Row(per_row[i // copies], output) for i, output in enumerate(outputs)]


def run_once(bench: Bench, name: str, constraint: Constraint, seed: int) -> list[Row]:
    set_seed(seed)
    return list(MODES[name](bench, constraint, seed))


# -- the modes ---------------------------------------------------------------------------------------------------------

Mode = Callable[[Bench, Constraint, int], Iterable[Row]]


def _prompt(seed: int) -> list[str]:
    return [PROMPTS[seed % len(PROMPTS)]]


def settings(**given: Any) -> Mode:
    """One prompt and these arguments of generate()."""
    return lambda bench, constraint, seed: bench.run(constraint, _prompt(seed), **given)


def assisted(**given: Any) -> Mode:
    return lambda bench, constraint, seed: bench.run(constraint, _prompt(seed), assistant_model=bench.draft, **given)


def dtype(of: torch.dtype) -> Mode:
    return lambda bench, constraint, seed: bench.run(
        constraint, _prompt(seed), copy.deepcopy(bench.model).to(of), **HOT
    )


def prompt_lookup(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    kwargs = HOT if seed % 2 else GREEDY
    return bench.run(constraint, PROMPTS[:1], prompt_lookup_num_tokens=4, **kwargs)


def other_tokenizer(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    from tests.vocabularies import tiny_byte_level

    other = tiny_byte_level()
    assistant = tiny_llama(len(other), seed=2, eos_token_id=other.eos_token_id, pad_token_id=other.pad_token_id)
    _propose(assistant)
    tokenizers = {"tokenizer": bench.tokenizer, "assistant_tokenizer": other}
    return bench.run(constraint, _prompt(seed), assistant_model=assistant, **tokenizers, **GREEDY)


def encoder_decoder(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    model = _tiny_t5(len(bench.tokenizer))
    constrained = bench.library.constrain(constraint)
    output = model.generate(**bench.encode(_prompt(seed)), **constrained, max_new_tokens=MAX_NEW_TOKENS, **HOT)
    return bench.rows(constraint, output[:, 1:].tolist(), 1)  # after the decoder's start token


def batch(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    return bench.run(constraint, PROMPTS, **HOT)


def one_per_prompt(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    other = REGEX if constraint == JSON else JSON
    return bench.run([constraint, other, constraint], PROMPTS[:3], **HOT)


def a_row_free(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    rows = bench.run([constraint, None, constraint], PROMPTS[:3], **GREEDY)
    free = bench.generate(PROMPTS[:3], {}, **GREEDY)[1]
    length = min(len(free), len(rows[1].output))
    if rows[1].output[:length] != free[:length]:
        raise WrongOutput("the free row is not what it is without constraints")
    return [rows[0], rows[2]]


def reuse(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    prepared = bench.library.prepare(constraint)
    for number in (seed, seed + 1):
        yield from bench.rows(constraint, bench.generate(_prompt(number), prepared, **HOT), 1)


def extended_prompt(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    inputs = bench.encode(_prompt(seed))["input_ids"]
    prepared = bench.library.prepare(constraint)
    for turn in ("first", "second"):
        if turn == "second":
            prepared = bench.library.between_calls(prepared, constraint)
        given = {"input_ids": inputs, "attention_mask": torch.ones_like(inputs)}
        [output] = bench.library.generate(bench.model, given, prepared, max_new_tokens=MAX_NEW_TOKENS, **GREEDY)
        yield Row(constraint, output)
        ids = output if isinstance(output, list) else bench.tokenizer.encode(output, add_special_tokens=False)
        more = bench.tokenizer.encode(" And another:", add_special_tokens=False)
        inputs = torch.cat([inputs, torch.tensor([ids + more])], dim=1)


def in_pipeline(batch_size: int) -> Mode:
    def run(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
        generator = pipeline("text-generation", model=bench.model, tokenizer=bench.tokenizer, device="cpu")
        kwargs = {"return_full_text": False, "max_new_tokens": MAX_NEW_TOKENS, **GREEDY}
        outputs = generator(list(PROMPTS[:2]), batch_size=batch_size, **bench.library.constrain(constraint), **kwargs)
        return [Row(constraint, output[0]["generated_text"]) for output in outputs]

    return run


def inputs_embeds(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    inputs = bench.encode(_prompt(seed))
    given = {
        "inputs_embeds": bench.model.get_input_embeddings()(inputs["input_ids"]),
        "attention_mask": inputs["attention_mask"],
        "max_new_tokens": MAX_NEW_TOKENS,
    }
    output = bench.model.generate(**given, **bench.library.constrain(constraint), **HOT)
    return bench.rows(constraint, output.tolist(), 1)


def raw_logits(bench: Bench, constraint: Constraint, seed: int) -> Iterable[Row]:
    inputs = bench.encode(_prompt(seed))
    constrained = bench.library.constrain(constraint)
    asked_for = {"output_logits": True, "return_dict_in_generate": True, "max_new_tokens": MAX_NEW_TOKENS}
    output = bench.model.generate(**inputs, **constrained, **asked_for, **HOT)
    if any(torch.isinf(logits).any() for logits in output.logits):
        raise WrongOutput("output_logits are masked")
    return bench.rows(constraint, output.sequences[:, inputs["input_ids"].shape[1] :].tolist(), 1)


MODES: dict[str, Mode] = {
    "greedy": settings(**GREEDY),
    "sampling": settings(**HOT),
    "num_return_sequences": settings(num_return_sequences=4, **HOT),
    "beam search": settings(num_beams=4, num_return_sequences=2, **GREEDY),
    "beam sampling": settings(num_beams=4, num_return_sequences=2, **HOT),
    "assisted, greedy": assisted(**GREEDY),
    "assisted, sampling": assisted(**HOT),
    "prompt lookup": prompt_lookup,
    "assistant with another tokenizer": other_tokenizer,
    "static cache": settings(cache_implementation="static", **HOT),
    "encoder-decoder (T5)": encoder_decoder,
    "left-padded batch": batch,
    "one constraint per prompt": one_per_prompt,
    "one per prompt, a row free": a_row_free,
    "reuse over two calls": reuse,
    "prompt extends the first output": extended_prompt,
    "pipeline, two prompts": in_pipeline(1),
    "pipeline, two prompts in a batch": in_pipeline(2),
    "inputs_embeds": inputs_embeds,
    "fp16": dtype(torch.float16),
    "bf16": dtype(torch.bfloat16),
    "output_logits stay raw": raw_logits,
}


# -- the models --------------------------------------------------------------------------------------------------------


def tiny_llama(vocab_size: int, seed: int, **config: Any) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    tokens = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "max_position_embeddings": 1024, **config}
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    # A wide init makes logits that differ; the usual one is so flat that greedy repeats one token for ever.
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, initializer_range=0.2, **shape, **tokens)).eval()


def _tiny_t5(vocab_size: int) -> PreTrainedModel:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(3)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    tokens = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    return T5ForConditionalGeneration(T5Config(vocab_size=vocab_size, **shape, **tokens)).eval()


def _propose(assistant: PreTrainedModel) -> None:
    """Always four draft tokens: by default an assistant that is unsure of itself proposes none."""
    assistant.generation_config.num_assistant_tokens = 4
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0


# -- the judge ---------------------------------------------------------------------------------------------------------


def problem(constraint: Constraint | None, text: str) -> str:
    """Problem of a finished text; empty if it is in the constraint's language. Nothing of ours decides."""
    if constraint is None:
        return ""
    if not text:
        return "empty text"
    if constraint.kind == "regex":
        return "" if re.fullmatch(constraint.text, text) else "text does not match"
    try:
        value = json.loads(text)
    except ValueError:
        return "invalid JSON"
    return "" if jsonschema.Draft202012Validator(json.loads(constraint.text)).is_valid(value) else "violates the schema"


def finished_text(output: list[int] | str, decode: Callable[[list[int]], str]) -> str | None:
    """The text up to the stop token; None where there is none. A text without ids counts as finished."""
    if isinstance(output, str):
        return output
    return decode(output[: output.index(EOS)]) if EOS in output else None
