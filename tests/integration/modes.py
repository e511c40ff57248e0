"""What test_generation_modes.py multiplies: kinds of constraints with a judge, and generation modes.

A mode runs one or a few generate() calls and gives back what ``Guide.read`` says of each governed row. Judges know
nothing of this package: json, jsonschema, re, pydantic, membership.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pydantic
import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, T5ForConditionalGeneration

import hf_guided as hg
from tests import vocabularies
from tests.effort import repeats
from tests.integration import models

HOT: dict[str, Any] = {"do_sample": True, "temperature": 2.0, "top_k": 0}
GREEDY: dict[str, Any] = {"do_sample": False}
# Every step costs a random model about the same, so that without these beams would rather grow than end.
ENDING_BEAMS: dict[str, Any] = {"early_stopping": True, "length_penalty": 0.0}
MAX_NEW_TOKENS = 30
PROMPT_LENGTH = 4
ROWS = repeats(12, 50)

# -- kinds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kind:
    """A constraint, how it is judged, and the text of one member that a prompt may hold.

    Args:
        constraint: any plain or own form.
        judge: raises when the text is not in the language.
        example: a text of the language.
        prefix: the beginning of many texts of the language, for ``prefix=``.
        spare: a character that the language uses and can do without.
        max_new_tokens: enough for nearly every output.
    """

    name: str
    constraint: Any
    judge: Callable[[str], None]
    example: str
    prefix: str
    spare: str
    max_new_tokens: int = MAX_NEW_TOKENS

    def __str__(self) -> str:
        return self.name


def by_schema(schema: Any) -> Callable[[str], None]:
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    return lambda text: validator.validate(json.loads(text))


def by_regex(pattern: str) -> Callable[[str], None]:
    def judge(text: str) -> None:
        assert re.fullmatch(pattern, text), text

    return judge


def by_membership(options: Sequence[str]) -> Callable[[str], None]:
    def judge(text: str) -> None:
        assert text in options, text

    return judge


def by_json_lists_of_digits(text: str) -> None:
    def check(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                check(item)
        else:
            assert type(value) is int and 0 <= value <= 9, text

    value = json.loads(text)
    assert isinstance(value, list), text
    check(value)


def by_python_arithmetic(text: str) -> None:
    assert re.fullmatch(r"[0-9+*()]+", text) and text[0] == "(" and text[-1] == ")", text
    # Python's own parser decides whether the brackets and operators fit; numbers with a leading 0 it refuses.
    ast.parse(re.sub(r"[0-9]+", "1", text), mode="eval")


class Entry(pydantic.BaseModel):
    """A literal and an optional number."""

    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["in", "out"]
    amount: int | None = pydantic.Field(default=None, ge=-5, le=250)


def by_pydantic(text: str) -> None:
    Entry.model_validate_json(text, strict=True)


# All of them short: a step over 131,072 tokens costs milliseconds, and there are hundreds of cells.
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": -20, "maximum": 300}, "s": {"type": "string", "maxLength": 3}},
    "required": ["n"],
    "additionalProperties": False,
}
REGEX = r"[A-Z]{1,2}-[0-9a-f]{2}(\.x)?"
OPTIONS = ["yes", "yesterday", "no", "maybe so", "naïve", "東京"]
LISTS = 'root ::= "[" [0-9] ("," item)? "]"\nitem ::= "[" [0-9] ("," [0-9])? "]" | [0-9]'
# Recursive, and more likely to end than to go deeper.
SUMS = 'start: "(" NUMBER (("+" | "*") (NUMBER | start))? ")"\nNUMBER: /[0-9]{1,2}/'

KINDS = [
    Kind(
        "schema", hg.JsonSchema(SCHEMA, whitespace="compact"), by_schema(SCHEMA), '{"n": 12, "s": "ab"}', '{"n": 1', "x"
    ),
    Kind("pydantic", hg.JsonSchema(Entry, whitespace="compact"), by_pydantic, '{"kind": "in"}', '{"kind": "out"', "7"),
    Kind("regex", hg.Regex(REGEX), by_regex(REGEX), "AB-12", "AB-1", "f"),
    Kind("choice", OPTIONS, by_membership(OPTIONS), "yesterday", "yes", "m"),
    Kind("gbnf", hg.Grammar(LISTS), by_json_lists_of_digits, "[1,[2,3]]", "[1,[2", "7"),
    Kind("lark", hg.Grammar(SUMS), by_python_arithmetic, "(1+(20*3))", "(1+", "7"),
]


def record12(whitespace: str) -> Kind | None:
    """The record that benchmarks share; None where the data folder is missing."""
    file = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "record12.json"
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    example = json.dumps(data["documents"][0], ensure_ascii=False)
    return Kind(
        "record12",
        hg.JsonSchema(data["schema"], whitespace=whitespace),
        by_schema(data["schema"]),
        example,
        example[:20],
        "x",
        250,
    )


# -- what a mode runs on ---------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """One vocabulary with its models and guide, made once per test run."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    backend: str = "auto"
    model: LlamaForCausalLM = field(init=False)
    guide: hg.Guide = field(init=False)

    def __post_init__(self) -> None:
        self.model = models.llama(self.tokenizer)
        self.guide = hg.Guide(self.model, self.tokenizer)

    @cached_property
    def double(self) -> LlamaForCausalLM:
        """The model in fp64, where the order of additions decides no argmax."""
        return self.in_dtype(torch.float64)

    @cached_property
    def text_ids(self) -> list[int]:
        """Every token that is text."""
        vocabulary = self.guide.vocabulary
        return [i for i in range(len(vocabulary.token_bytes)) if vocabulary.is_text(i)]

    @cached_property
    def control_ids(self) -> list[int]:
        """Columns of the logits that are neither text nor a stop token: special tokens and padding."""
        vocabulary = self.guide.vocabulary
        stops = vocabulary.stop_token_ids
        return [i for i in range(vocabulary.padded_size) if not vocabulary.is_text(i) and i not in stops]

    @cached_property
    def draft(self) -> LlamaForCausalLM:
        """Agrees with the model often, not always; drafts five tokens however unsure it is."""
        draft = copy.deepcopy(self.model)
        generator = torch.Generator().manual_seed(1)
        head = draft.lm_head.weight.data
        head += 0.1 * torch.randn(head.shape, generator=generator)
        return drafting(draft)

    @cached_property
    def foreign_tokenizer(self) -> PreTrainedTokenizerBase:
        """A tokenizer with another vocabulary."""
        return vocabularies.tiny_byte_level()

    @cached_property
    def foreign_draft(self) -> LlamaForCausalLM:
        """A draft model with the foreign tokenizer."""
        return drafting(models.llama(self.foreign_tokenizer, seed=2))

    @cached_property
    def pruned_foreign_draft(self) -> LlamaForCausalLM:
        """The same for sampling, where transformers cuts the head down, once and in place, to the tokens both have."""
        return drafting(models.llama(self.foreign_tokenizer, seed=2))

    @cached_property
    def encoder_decoder(self) -> T5ForConditionalGeneration:
        return models.t5(self.tokenizer)

    def in_dtype(self, dtype: torch.dtype) -> LlamaForCausalLM:
        return copy.deepcopy(self.model).to(dtype)

    def with_stop_tokens(self, *token_ids: int) -> LlamaForCausalLM:
        """The same weights; generate() ends a row at these tokens only."""
        model = copy.copy(self.model)
        model.generation_config = copy.deepcopy(self.model.generation_config)
        model.generation_config.eos_token_id = list(token_ids)
        return model

    def prompts(self, rows: int, seed: int) -> Tensor:
        return models.prompts(self.text_ids, rows, PROMPT_LENGTH, seed)

    def write(self, text: str) -> Tensor:
        """(length,) int64: tokens that join to the text."""
        return torch.tensor(self.guide.vocabulary.encode_bytes(text.encode()))


def drafting(model: PreTrainedModel) -> PreTrainedModel:
    """The model, made to draft five tokens however unsure it is."""
    model.generation_config.num_assistant_tokens = 5
    model.generation_config.num_assistant_tokens_schedule = "constant"
    model.generation_config.assistant_confidence_threshold = 0.0
    return model


# -- modes -----------------------------------------------------------------------------------------------------------

Outputs = list[hg.GuidedResult]


@dataclass(frozen=True)
class Mode:
    """A way to call generate().

    Args:
        run: (stage, kind, seed) to the governed rows' results.
        rounds: how often it may be run to get enough finished outputs.
    """

    name: str
    run: Callable[[Stage, Kind, int], Outputs]
    rounds: int = 6

    def __str__(self) -> str:
        return self.name


def guided(
    stage: Stage,
    kind: Kind,
    ids: Tensor,
    *,
    model: PreTrainedModel | None = None,
    guide: hg.Guide | None = None,
    processor: Any = None,
    attention_mask: Tensor | None = None,
    prefix: str | None = None,
    stop_token_ids: Sequence[int] | None = None,
    **kwargs: Any,
) -> Outputs:
    """One generate() call with one constraint for all rows, read back."""
    model, guide = model or stage.model, guide or stage.guide
    if processor is None:
        processor = guide.logits_processor(
            kind.constraint, backend=stage.backend, prefix=prefix, stop_token_ids=stop_token_ids
        )
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids) if attention_mask is None else attention_mask,
        max_new_tokens=kind.max_new_tokens,
        logits_processor=[processor],
        **kwargs,
    )
    start = 1 if model.config.is_encoder_decoder else ids.shape[1]
    return read(guide, kind, output[:, start:], prefix=prefix, stop_token_ids=stop_token_ids)


def read(
    guide: hg.Guide, kind: Kind, new_tokens: Tensor, *, stop_token_ids: Sequence[int] | None = None, **kwargs: Any
) -> Outputs:
    """Read rows back; after its end a row may hold nothing that a user who decodes the whole row would see."""
    results = [guide.read(kind.constraint, row, stop_token_ids=stop_token_ids, **kwargs) for row in new_tokens.tolist()]
    ends = {guide.tokenizer.eos_token_id, *(stop_token_ids or guide.vocabulary.stop_token_ids)}  # EOS pads, too
    for row, result in zip(new_tokens.tolist(), results, strict=True):
        if result.finish_reason == "stop":
            assert set(row[len(result.token_ids) :]) <= ends, "something was written after the end"
    return results


def plain(rows: int = ROWS, **kwargs: Any) -> Callable[[Stage, Kind, int], Outputs]:
    """Equal prompts lengths, one generate() call."""
    return lambda stage, kind, seed: guided(stage, kind, stage.prompts(rows, seed), **kwargs)


def assisted(**kwargs: Any) -> Callable[[Stage, Kind, int], Outputs]:
    """A smaller model drafts; transformers takes one prompt at a time."""

    def run(stage: Stage, kind: Kind, seed: int) -> Outputs:
        outputs: Outputs = []
        for i in range(ROWS):
            outputs += guided(stage, kind, stage.prompts(1, seed * ROWS + i), assistant_model=stage.draft, **kwargs)
        return outputs

    return run


def left_padding(stage: Stage, kind: Kind, seed: int) -> Outputs:
    ids, mask = ragged(stage, ROWS, seed)
    return guided(stage, kind, ids, attention_mask=mask, **GREEDY)


def ragged(stage: Stage, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Prompts of 1 to 6 tokens, padded left: input_ids and attention_mask, (rows, 6)."""
    ids = models.prompts(stage.text_ids, rows, 6, seed)
    lengths = torch.randint(1, 7, (rows,), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(6) >= 6 - lengths[:, None]).long()
    return ids.masked_fill(mask == 0, stage.tokenizer.eos_token_id), mask


def rows_of_their_own(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """The constraint among free rows and rows of another; free rows are compared with a run without guidance."""
    other = hg.Regex("[a-e]{3,9}")
    constraints = [kind.constraint, None, kind.constraint, other] * (ROWS // 2 + 1)
    ids, mask = ragged(stage, len(constraints), seed)
    kwargs = {"attention_mask": mask, **GREEDY}
    processor = stage.guide.logits_processor(constraints)
    mixed = stage.model.generate(ids, max_new_tokens=kind.max_new_tokens, logits_processor=[processor], **kwargs)
    free = stage.model.generate(ids, max_new_tokens=8, **kwargs)
    assert torch.equal(mixed[1::4, : free.shape[1]], free[1::4]), "a free row was touched"
    new = mixed[:, ids.shape[1] :]
    for row in new[3::4].tolist():
        result = stage.guide.read(other, row)
        assert result.finish_reason == "stop" and re.fullmatch("[a-e]{3,9}", result.text), result
    return read(stage.guide, kind, new[0::2])


def reused(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """One processor, three calls: a prompt, one that extends the first output, and the first prompt again."""
    processor = stage.guide.logits_processor(kind.constraint)
    ids = stage.prompts(1 + ROWS // 3, seed)
    kwargs = {"max_new_tokens": kind.max_new_tokens, "logits_processor": [processor], **GREEDY}
    first = stage.model.generate(ids, attention_mask=torch.ones_like(ids), **kwargs)
    longer = torch.cat([first, stage.prompts(1 + ROWS // 3, seed + 1)], dim=1)
    second = stage.model.generate(longer, attention_mask=torch.ones_like(longer), **kwargs)
    third = stage.model.generate(ids, attention_mask=torch.ones_like(ids), **kwargs)
    new = [first[:, ids.shape[1] :], second[:, longer.shape[1] :], third[:, ids.shape[1] :]]
    return [result for tokens in new for result in read(stage.guide, kind, tokens)]


def prefixed(stage: Stage, kind: Kind, seed: int) -> Outputs:
    ids = torch.cat([stage.prompts(ROWS, seed), stage.write(kind.prefix).expand(ROWS, -1)], dim=1)
    results = guided(stage, kind, ids, prefix=kind.prefix, **GREEDY)
    assert all(result.text.startswith(kind.prefix) for result in results)
    return results


def embedded(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """inputs_embeds: the processor sees empty input_ids first, and generate() gives new tokens alone."""
    ids = stage.prompts(ROWS, seed)
    output = stage.model.generate(
        inputs_embeds=stage.model.get_input_embeddings()(ids),
        attention_mask=torch.ones_like(ids),
        max_new_tokens=kind.max_new_tokens,
        logits_processor=[stage.guide.logits_processor(kind.constraint)],
        **GREEDY,
    )
    return read(stage.guide, kind, output)


def stops_given_per_call(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """A control token, and a token that would be text otherwise: it ends rows, so it cannot be typed any more."""
    stops = [stage.control_ids[5], int(stage.write(kind.spare)[0])]
    ids = stage.prompts(ROWS, seed)
    results = guided(stage, kind, ids, stop_token_ids=stops, eos_token_id=stops, **HOT)
    assert {result.token_ids[-1] for result in results if result.finish_reason == "stop"} == set(stops)
    return results


def several_stops(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """generation_config knows three; each must be able to end a row."""
    stops = [stage.tokenizer.eos_token_id, *stage.control_ids[-2:]]
    model = stage.with_stop_tokens(*stops)
    results = guided(stage, kind, stage.prompts(ROWS, seed), model=model, guide=hg.Guide(model, stage.tokenizer), **HOT)
    used = {result.token_ids[-1] for result in results if result.finish_reason == "stop"}
    assert len(used) > 1, "only one of three stop tokens was ever allowed"
    return results


def stops_without_the_tokenizers(stage: Stage, kind: Kind, seed: int) -> Outputs:
    """generation_config knows a control token only: rows that end with the tokenizer's EOS must still end."""
    stop = stage.control_ids[-1]
    model = stage.with_stop_tokens(stop)
    guide = hg.Guide(model, stage.tokenizer)
    ids = stage.prompts(ROWS, seed)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=kind.max_new_tokens,
        logits_processor=[guide.logits_processor(kind.constraint)],
        **GREEDY,
    )
    results = read(guide, kind, output[:, ids.shape[1] :])
    for row, result in zip(output[:, ids.shape[1] :].tolist(), results, strict=True):
        if result.finish_reason == "stop":
            tail = row[len(result.token_ids) - 1 :]
            assert stop in tail[:3] or len(tail) < 3, "the row had ended, and generate() did not notice"
    return results


def in_dtype(dtype: torch.dtype) -> Callable[[Stage, Kind, int], Outputs]:
    def run(stage: Stage, kind: Kind, seed: int) -> Outputs:
        return guided(stage, kind, stage.prompts(ROWS, seed), model=stage.in_dtype(dtype), **GREEDY)

    return run


def encoder_decoder(**kwargs: Any) -> Callable[[Stage, Kind, int], Outputs]:
    def run(stage: Stage, kind: Kind, seed: int) -> Outputs:
        return guided(stage, kind, stage.prompts(ROWS, seed), model=stage.encoder_decoder, **kwargs)

    return run


def lookup(**kwargs: Any) -> Callable[[Stage, Kind, int], Outputs]:
    """Prompts hold an example twice, so that there is something to look up."""

    def run(stage: Stage, kind: Kind, seed: int) -> Outputs:
        outputs: Outputs = []
        for i in range(ROWS):
            noise = stage.prompts(1, seed * ROWS + i)[0]
            ids = torch.cat([stage.write(kind.example), noise, stage.write(kind.example)])[None]
            outputs += guided(stage, kind, ids, prompt_lookup_num_tokens=4, **kwargs)
        return outputs

    return run


def foreign_assistant(**kwargs: Any) -> Callable[[Stage, Kind, int], Outputs]:
    """The processor sees the assistant's scores too, and lets them pass."""

    def run(stage: Stage, kind: Kind, seed: int) -> Outputs:
        outputs: Outputs = []
        for i in range(ROWS):
            outputs += guided(
                stage,
                kind,
                stage.prompts(1, seed * ROWS + i),
                assistant_model=stage.pruned_foreign_draft if kwargs["do_sample"] else stage.foreign_draft,
                tokenizer=stage.tokenizer,
                assistant_tokenizer=stage.foreign_tokenizer,
                **kwargs,
            )
        return outputs

    return run


MODES = [
    Mode("greedy", plain(**GREEDY)),
    Mode("sampling", plain(**HOT)),
    Mode("num_return_sequences", plain(rows=1 + ROWS // 6, num_return_sequences=6, **HOT)),
    Mode("beams", plain(rows=1 + ROWS // 4, num_beams=4, num_return_sequences=4, **ENDING_BEAMS, **GREEDY)),
    Mode("beam_sampling", plain(rows=1 + ROWS // 3, num_beams=3, num_return_sequences=3, **ENDING_BEAMS, **HOT)),
    Mode("assisted_greedy", assisted(**GREEDY)),
    Mode("assisted_sampling", assisted(**HOT)),
    Mode("foreign_assistant_greedy", foreign_assistant(**GREEDY)),
    Mode("foreign_assistant_sampling", foreign_assistant(**HOT)),
    Mode("prompt_lookup_greedy", lookup(**GREEDY)),
    Mode("prompt_lookup_sampling", lookup(**HOT)),
    Mode("static_cache", plain(cache_implementation="static", **GREEDY)),
    Mode("encoder_decoder_greedy", encoder_decoder(**GREEDY)),
    Mode("encoder_decoder_sampling", encoder_decoder(**HOT)),
    Mode("encoder_decoder_beams", encoder_decoder(num_beams=3, **ENDING_BEAMS, **GREEDY)),
    Mode("left_padding", left_padding),
    Mode("constraint_per_prompt", rows_of_their_own),
    Mode("reused_processor", reused),
    Mode("prefix", prefixed),
    Mode("inputs_embeds", embedded),
    Mode("stops_given_per_call", stops_given_per_call),
    Mode("several_stops", several_stops),
    Mode("stops_without_the_tokenizers", stops_without_the_tokenizers),
    Mode("float16", in_dtype(torch.float16)),
    Mode("bfloat16", in_dtype(torch.bfloat16)),
    Mode("float64", in_dtype(torch.float64)),
]
