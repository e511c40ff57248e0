"""GRPO with TRL's own trainers: formats by json, jsonschema and re; gradients by listing every text of a constraint."""

from __future__ import annotations

import pytest

pytest.importorskip("trl", reason="needs TRL: make test-frameworks")

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import torch
from datasets import Dataset
from peft import LoraConfig
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlavaProcessor
from trl import GRPOConfig, GRPOTrainer

import hf_guided as hg
from hf_guided import demo
from hf_guided.integrations.trl import (
    DistinctMasks,
    GuidedGRPOTrainer,
    RolloutSettings,
    guided_rollout,
    importance_ratio,
    masked_logprobs,
)
from hf_guided.integrations.trl_sampling import Completions, RowConstraints
from hf_guided.session.logprobs import TokenLogprob
from hf_guided.session.result import GuidedResult

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed in v6:FutureWarning"),  # TRL's own calls
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning"),
]

WORDS = ("ab", "abc", "b", "cab")  # each has several tokenizations
LETTERS = re.compile("[ab]{2,4}( no| yes, it is)")
NUMBER = {"type": "integer", "minimum": 3, "maximum": 77}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 18}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def rain(city: str, days: int) -> str:
    """Looks up the rain.

    Args:
        city: The city.
        days: The number of days.
    """
    return f"{days} dry days in {city}"


def config(folder: Path, **given: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 64,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOConfig(output_dir=str(folder), **{**settings, **given})


class Seen:
    """A reward function that keeps what it was given."""

    __name__ = "seen"

    def __init__(self) -> None:
        self.rows: list[tuple[Any, str, Any]] = []  # prompt, completion, the row's name

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
        texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
        names = columns.get("name") or [None] * len(texts)
        self.rows += zip([str(prompt) for prompt in prompts], texts, names, strict=True)
        return [float(len(text) % 5) for text in texts]


def is_call(text: str) -> bool:
    written = re.fullmatch(r"\s*<tool_call>\n(.*)\n</tool_call>\s*", text, re.DOTALL)
    call = json.loads(written[1]) if written else {}
    arguments = call.get("arguments", {})
    return call.get("name") == "rain" and isinstance(arguments["city"], str) and isinstance(arguments["days"], int)


def is_json(schema: dict[str, Any]) -> Callable[[str], bool]:
    return lambda text: jsonschema.validate(json.loads(text), schema) is None


IS_IN_FORMAT: dict[str, Callable[[str], bool]] = {
    "letters": lambda text: LETTERS.fullmatch(text) is not None,
    "number": is_json(NUMBER),
    "person": is_json(PERSON),
    "choice": lambda text: text in ("left", "right"),
    "free": lambda text: True,
}


@pytest.mark.parametrize("policy", ["masked", "free"])
def test_every_completion_is_in_the_format_of_its_row(tmp_path: Path, policy: Any) -> None:
    rows = Dataset.from_list(
        [
            {"prompt": "Who is it?", "name": "letters", "form": None},
            {"prompt": "Who is it?", "name": "number", "form": json.dumps(NUMBER)},  # the same prompt
            {"prompt": "And a much longer prompt, so that the others are padded.", "name": "person", "form": "..."},
            {"prompt": "Where?", "name": "choice", "form": json.dumps({"choice": ["left", "right"]})},
        ]
    ).map(lambda row: {"form": json.dumps(PERSON)} if row["name"] == "person" else {})
    seen, (model, tokenizer) = Seen(), demo.load()
    before = {name: weights.clone() for name, weights in model.named_parameters()}
    trainer = GuidedGRPOTrainer(
        model,
        seen,
        config(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=1, num_iterations=2, temperature=2.5),
        rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        constraint=LETTERS,
        constraint_column="form",
        policy=policy,
    )
    trainer.train()
    assert len(seen.rows) >= 4 * 8 and {name for _, _, name in seen.rows} == set(IS_IN_FORMAT) - {"free"}
    assert all(IS_IN_FORMAT[name](text) for _, text, name in seen.rows)
    assert any(not torch.equal(before[name], weights) for name, weights in model.named_parameters())
    assert all(weights.isfinite().all() for weights in model.parameters())


def test_tool_calls_are_valid_and_free_rows_are_free(tmp_path: Path) -> None:
    model, tokenizer = demo.load()
    tokenizer.chat_template = (
        "{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    )
    calls = hg.ToolCalls([rain], format="qwen_3", choice="required", parallel=False)
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in ("Will it rain?", "Tell me anything.")]
    seen = Seen()
    trainer = GuidedGRPOTrainer(
        model,
        seen,
        config(tmp_path, max_completion_length=100),
        Dataset.from_list(rows),
        processing_class=tokenizer,
        constraint=lambda chat: calls if "rain" in chat[0]["content"] else None,
    )
    asked: list[str] = []
    sample = trainer._sampler.sample

    def sampled(*arguments: Any) -> Completions:
        completions = sample(*arguments)
        asked.extend(tokenizer.decode(ids) for ids in completions.prompt_ids)
        return completions

    trainer._sampler.sample = sampled
    trainer.train()
    called = [text for prompt, text, _ in seen.rows if "rain" in prompt]
    free = [text for prompt, text, _ in seen.rows if "anything" in prompt]
    assert (
        len(called) == len(free) == 8 and all(map(is_call, called)) and not any("<tool_call>" in text for text in free)
    )
    assert ["Looks up the rain" in text for text in asked] == ["Will it rain?" in text for text in asked]


def test_the_rollout_function_answers_each_prompt_once(tmp_path: Path) -> None:
    model, tokenizer = demo.load()
    given: list[list[str]] = []
    outputs: list[dict[str, Any]] = []

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        given.append(list(prompts))
        outputs.append(guided_rollout(lambda prompt: LETTERS if prompt == "A" else NUMBER)(prompts, trainer))
        return outputs[-1]

    seen = Seen()
    prompts = ["A", "A longer prompt than the other one"]
    trainer = GRPOTrainer(
        model,
        seen,
        config(tmp_path, num_generations=4, max_steps=2),
        Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        rollout_func=rollout,
    )
    trainer.train()
    # TRL repeats each prompt itself, contrary to its documentation.
    assert [Counter(batch) for batch in given] == [Counter(dict.fromkeys(prompts, 4))] * 2
    assert all(IS_IN_FORMAT["letters" if prompt == "A" else "number"](text) for prompt, text, _ in seen.rows)
    for batch, output in zip(given, outputs, strict=True):
        own, _, _ = trainer._tokenize_prompts(batch)
        assert output["prompt_ids"] == own
        for ids, logprobs in zip(output["completion_ids"], output["logprobs"], strict=True):
            assert len(ids) == len(logprobs) and ids[-1] == tokenizer.eos_token_id
            assert all(value <= 0 for value in logprobs)


def test_a_pydantic_class_is_a_constraint_and_reasoning_comes_first(tmp_path: Path) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        yes: bool

    model, tokenizer = demo.load()
    seen = Seen()
    trainer = GuidedGRPOTrainer(
        model,
        seen,
        config(tmp_path, max_steps=1),
        Dataset.from_dict({"prompt": ["Is it?", "Or not?"]}),
        processing_class=tokenizer,
        constraint=Answer,
        settings=RolloutSettings(reasoning=hg.Reasoning(start="<think>", end="</think>", max_tokens=5)),
        peft_config=LoraConfig(r=2, target_modules=["q_proj"]),
    )
    trainer.train()
    for _, text, _ in seen.rows:
        thinking, end, answer = text.partition("</think>")
        assert thinking and end and set(json.loads(answer)) == {"yes"}


# -- an independent oracle: every text of a finite constraint, token by token


class Listed:
    """Every completion that a mask lets through, for a constraint of a few words, in float64.

    A Llama computes its norms and rotations in float32 all the same, so padding changes the eighth digit.

    The masks here come from the words and from the texts of single tokens alone.
    """

    def __init__(self, temperature: float) -> None:
        _, self.tokenizer = demo.load()
        torch.manual_seed(5)
        shape = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        self.model = LlamaForCausalLM(
            LlamaConfig(vocab_size=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.5, **shape)
        ).double()
        self.temperature = temperature
        special = set(self.tokenizer.all_special_ids)
        texts = {i: self.tokenizer.decode([i]) for i in range(2048) if i not in special}
        self.texts = {i: text for i, text in texts.items() if text and any(text in word for word in WORDS)}
        self.completions = list(self._listed(()))
        assert len(self.completions) > len(WORDS)

    def allowed(self, written: tuple[int, ...]) -> list[int]:
        text = "".join(self.texts[i] for i in written)
        ids = [i for i, piece in self.texts.items() if any(word.startswith(text + piece) for word in WORDS)]
        return ids + [self.tokenizer.eos_token_id] * (text in WORDS)

    def _listed(self, written: tuple[int, ...]) -> Iterator[list[int]]:
        for token_id in self.allowed(written):
            if token_id == self.tokenizer.eos_token_id:
                yield [*written, token_id]
            else:
                yield from self._listed((*written, token_id))

    def logprobs(self, prompt: str, completion: list[int], *, masked: bool) -> Tensor:
        """(tokens,): from one plain forward pass over one text, without padding."""
        ids = self.tokenizer(prompt)["input_ids"]
        logits = self.model(torch.tensor([ids + completion])).logits[0, len(ids) - 1 : -1] / self.temperature
        values = []
        for place, token_id in enumerate(completion):
            allowed = self.allowed(tuple(completion[:place])) if masked else range(2048)
            values.append(logits[place, token_id] - logits[place, list(allowed)].logsumexp(-1))
        return torch.stack(values)

    def results(self, prompts: list[str]) -> list[GuidedResult[Any]]:
        """Each completion to each prompt, as if it had been sampled."""
        results = []
        for prompt in prompts:
            for ids in self.completions:
                values = self.logprobs(prompt, ids, masked=True).tolist()
                entries = [TokenLogprob(i, 0.0, 0.0, value, False) for i, value in zip(ids, values, strict=True)]
                results.append(GuidedResult("", None, ids, "stop", logprobs=entries))
        return results


PROMPTS = ["ab", "a longer prompt, so that the other is padded"]


def listed_trainer(folder: Path, listed: Listed, policy: Any, **given: Any) -> GuidedGRPOTrainer:
    trainer = GuidedGRPOTrainer(
        listed.model,
        Seen(),
        config(
            folder,
            per_device_train_batch_size=2 * len(listed.completions),
            num_generations=len(listed.completions),
            temperature=listed.temperature,
            loss_type="dr_grpo",
            max_completion_length=8,
            gradient_checkpointing=False,
            vllm_importance_sampling_mode="sequence_truncate",
            **given,
        ),
        Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=listed.tokenizer,
        constraint=list(WORDS),
        policy=policy,
    )
    trainer.current_gradient_accumulation_steps = 1  # as train() sets it
    sample, results = trainer._sampler.sample, listed.results(PROMPTS)
    trainer._sampler.sample = lambda prompts, constraints: sample(prompts, constraints)._replace(results=results)
    return trainer


def batch_of(trainer: GuidedGRPOTrainer, listed: Listed) -> dict[str, Any]:
    rows = [{"prompt": prompt} for prompt in PROMPTS for _ in listed.completions]
    return trainer._generate_and_score_completions(rows)


REWARDS = {"ab": 1.0, "abc": -0.5, "b": 2.0, "cab": 0.25}


def gradient(trainer: GuidedGRPOTrainer, listed: Listed, *, weighted: bool) -> Tensor:
    """What the trainer's loss gives where each completion counts by its probability: the expectation."""
    trainer.args.vllm_importance_sampling_correction = False
    batch = batch_of(trainer, listed)
    advantages = [
        listed.logprobs(prompt, ids, masked=True).sum().exp().item() * REWARDS[listed.tokenizer.decode(ids[:-1])]
        for prompt in PROMPTS
        for ids in listed.completions
    ]
    batch["advantages"] = torch.tensor(advantages, dtype=torch.float64)
    if weighted:
        batch["advantages"] = trainer._weighted(batch)
    listed.model.zero_grad()
    trainer._compute_loss(listed.model, batch).backward()
    scale = -2 * len(listed.completions) * trainer.max_completion_length  # dr_grpo divides by it
    return torch.cat([weights.grad.flatten() for weights in listed.model.parameters()]) * scale


def expected_gradient(listed: Listed, *, masked: bool) -> Tensor:
    """Of the expected reward of a policy: the sum over all texts of probability times reward."""
    value = torch.zeros((), dtype=torch.float64)
    for prompt in PROMPTS:
        for ids in listed.completions:
            reward = REWARDS[listed.tokenizer.decode(ids[:-1])]
            value = value + listed.logprobs(prompt, ids, masked=masked).sum().exp() * reward
    listed.model.zero_grad()
    value.backward()
    return torch.cat([weights.grad.flatten() for weights in listed.model.parameters()])


def distance(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


def test_the_gradient_is_that_of_the_expected_reward_of_the_policy_that_samples(tmp_path: Path) -> None:
    listed = Listed(temperature=0.8)
    masses = [
        sum(listed.logprobs(prompt, ids, masked=True).sum().exp().item() for ids in listed.completions)
        for prompt in PROMPTS
    ]
    assert masses == pytest.approx([1, 1])  # nothing is missing from the list
    expected = expected_gradient(listed, masked=True)
    assert distance(gradient(listed_trainer(tmp_path, listed, "masked"), listed, weighted=False), expected) < 1e-6
    # What TRL's own trainer computes from the same completions is another gradient.
    assert distance(gradient(listed_trainer(tmp_path, listed, "free"), listed, weighted=False), expected) > 0.1


def test_importance_weights_give_the_gradient_of_the_free_policy(tmp_path: Path) -> None:
    listed = Listed(temperature=1.0)
    expected = expected_gradient(listed, masked=False)
    trainer = listed_trainer(tmp_path, listed, "free")
    assert distance(gradient(trainer, listed, weighted=True), expected) < 1e-3  # TRL computes in float32
    assert distance(gradient(trainer, listed, weighted=False), expected) > 0.1
    ratios = trainer._metrics["train"]["sampling/importance_sampling_ratio/mean"]
    assert ratios and 0 < ratios[-1] < 1


def test_log_probabilities_are_those_of_a_plain_forward_pass_under_the_mask(tmp_path: Path) -> None:
    listed = Listed(temperature=0.7)
    trainer = listed_trainer(tmp_path, listed, "masked", num_iterations=2)  # keeps the log probabilities of sampling
    batch = batch_of(trainer, listed)
    rows = [(prompt, ids) for prompt in PROMPTS for ids in listed.completions]
    for row, (prompt, ids) in enumerate(rows):
        plain = listed.logprobs(prompt, ids, masked=True)
        torch.testing.assert_close(batch["old_per_token_logps"][row, : len(ids)], plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_the_trainer_and_the_sampler_agree_on_every_probability(tmp_path: Path, jump_forward: bool) -> None:
    model, tokenizer = demo.load()
    trainer = GuidedGRPOTrainer(
        model.double(),
        Seen(),
        config(tmp_path, temperature=1.4, num_iterations=2, gradient_checkpointing=False, max_completion_length=24),
        Dataset.from_dict({"prompt": ["Who?", "Who is the gardener?"], "form": [json.dumps(PERSON), None]}),
        processing_class=tokenizer,
        constraint=LETTERS,
        constraint_column="form",
        settings=RolloutSettings(jump_forward=jump_forward),
    )
    kept: list[Completions] = []
    sample = trainer._sampler.sample
    trainer._sampler.sample = lambda *given: kept.append(sample(*given)) or kept[-1]
    batch = trainer._generate_and_score_completions([row for row in trainer.train_dataset for _ in range(4)])
    mask = batch["completion_mask"].bool()
    expected = batch["sampling_per_token_logps"].double()
    torch.testing.assert_close(batch["old_per_token_logps"][mask], expected[mask], rtol=1e-5, atol=1e-5)
    forced = [entry for result in kept[0].results for entry in result.logprobs if entry.forced]
    assert bool(forced) == jump_forward and all(entry.sampled_logprob == 0 for entry in forced)
    assert mask.logical_not().any()  # padded rows


def test_the_reference_model_is_under_the_same_masks(tmp_path: Path) -> None:
    model, tokenizer = demo.load()
    trainer = GuidedGRPOTrainer(
        model,
        Seen(),
        config(tmp_path, beta=0.1, num_iterations=2, max_steps=1),
        Dataset.from_dict({"prompt": ["Who?", "Where?"]}),
        processing_class=tokenizer,
        constraint=LETTERS,
    )
    batch = trainer._generate_and_score_completions([row for row in trainer.train_dataset for _ in range(4)])
    mask = batch["completion_mask"].bool()  # the reference model is stored in float16
    difference = (batch["ref_per_token_logps"] - batch["sampling_per_token_logps"])[mask].abs().max()
    assert difference < 0.05
    trainer.train()


def test_masks_are_kept_once_and_found_by_their_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    allowed = torch.rand(3, 70, generator=generator) < 0.3
    from hf_guided.vocabulary.bitmask import pack

    table = DistinctMasks(70)
    numbers = table.add(pack(allowed)[[0, 1, 0, 2]])
    assert numbers.tolist() == [1, 2, 1, 3] and table.add(pack(allowed)[[2]]).tolist() == [3]
    found = table.allowed(torch.tensor([[3, 0], [1, 2]]))
    assert torch.equal(found[0, 0], allowed[2]) and found[0, 1].all()
    assert torch.equal(found[1], allowed[:2])


def test_masked_log_probabilities_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0), 5.0]]], dtype=torch.float64, requires_grad=True)
    allowed = torch.tensor([[[True, True, False]]])
    logp, entropy = masked_logprobs(logits, torch.tensor([[1]]), allowed, 1.0)
    assert logp.item() == pytest.approx(math.log(0.75))
    assert entropy.item() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    (logp.sum() + entropy.sum()).backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 0, 2] == 0
    other, _ = masked_logprobs(logits.detach(), torch.tensor([[2]]), allowed, 1.0)
    assert other.item() == -math.inf


def test_importance_ratios_by_hand(tmp_path: Path) -> None:
    policy, sampled = torch.tensor([[0.5, 0.1, 0.2]]).log(), torch.tensor([[1.0, 0.5, 1.0]]).log()
    mask = torch.tensor([[1, 1, 0]])

    def ratio(mode: str, least: float | None = None, most: float | None = 3.0) -> list[float]:
        args = config(
            tmp_path,
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_min=least,
            vllm_importance_sampling_clip_max=most,
        )
        return importance_ratio(policy, sampled, mask, args)[0].tolist()

    assert ratio("token_mask") == pytest.approx([0.5, 0.2, 1])
    assert ratio("token_mask", most=1.0) == pytest.approx([0.5, 0.2, 1])  # a ratio at the bound is kept
    assert ratio("token_mask", least=0.3) == pytest.approx([0.5, 0, 1])
    assert ratio("token_truncate", least=0.3) == pytest.approx([0.5, 0.3, 1])
    assert ratio("sequence_truncate", most=0.05) == pytest.approx([0.05])
    assert ratio("sequence_mask") == pytest.approx([0.1])
    with pytest.raises(hg.InvalidArgument, match="expected token_truncate"):
        ratio("tokens")


# -- what is refused


def guided(folder: Path, *, given: dict[str, Any] | None = None, **arguments: Any) -> GuidedGRPOTrainer:
    model, tokenizer = demo.load()
    arguments = {"processing_class": tokenizer, "constraint": LETTERS, **arguments}
    rows = Dataset.from_dict({"prompt": ["A", "B"], "form": ["{}", "{}"]})
    return GuidedGRPOTrainer(model, Seen(), config(folder, **(given or {})), rows, **arguments)


def test_other_ways_to_sample_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for name, step in (("use_vllm", "guide.to_vllm"), ("use_transformers_continuous_batching", "leave it out")):
        with pytest.raises(hg.InvalidArgument, match=f"{name}: expected False.*{step}") as caught:
            guided(tmp_path, given={name: True})
        assert caught.value.name == name
    with pytest.raises(hg.InvalidArgument, match="tools, environment_factory: expected none.*hg.ToolCalls"):
        guided(tmp_path, tools=[rain])
    with pytest.raises(hg.InvalidArgument, match="rollout_func: this trainer has its own; leave it out"):
        guided(tmp_path, rollout_func=guided_rollout(LETTERS))
    with pytest.raises(hg.InvalidArgument, match="expected a tokenizer, got a processor"):
        guided(tmp_path, processing_class=LlavaProcessor.__new__(LlavaProcessor))
    with pytest.raises(hg.InvalidArgument, match="policy: expected 'masked' or 'free', got 'mask'"):
        guided(tmp_path, policy="mask")
    with pytest.raises(hg.InvalidArgument, match="generation_kwargs: expected no num_return_sequences"):
        guided(tmp_path, given={"generation_kwargs": {"num_return_sequences": 2}})
    with pytest.raises(hg.InvalidArgument, match="vespo.*use policy='masked'"):
        guided(tmp_path, policy="free", given={"loss_type": "vespo"})


def test_wrong_columns_and_constraints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(hg.InvalidArgument, match="no column 'from'; the columns are prompt, form.*remove_unused"):
        guided(tmp_path, constraint_column="from")
    with pytest.raises(hg.InvalidConstraint, match="function"):
        guided(tmp_path, constraint=lambda prompt: rain)._rows.of_prompt("A")
    with pytest.raises(hg.InvalidConstraint):
        guided(tmp_path, constraint={"type": "objekt"})
    with pytest.raises(hg.UnsupportedConstraint):
        guided(tmp_path, constraint=re.compile(r"(a|b)\1"))
    with pytest.raises(hg.BudgetTooSmall, match="raise max_new_tokens"):
        guided(tmp_path, constraint=re.compile("a{300}b"))
    trainer = guided(tmp_path, constraint_column="form")
    trainer._rows._column = "gone"  # as if the trainer had removed it
    with pytest.raises(hg.InvalidArgument, match="no column 'gone'"):
        trainer.train()
    with pytest.raises(hg.InvalidConstraint, match="column 'form': "):
        guided(tmp_path, constraint_column="form")._rows.of_row({"prompt": "A", "form": "{'type': 1}"})
    with pytest.raises(hg.InvalidConstraint):
        guided_rollout({"type": "objekt"})
    rows = RowConstraints(["yes", "no"], "form")
    for own, constraint in (
        (None, rows.default),
        ("", rows.default),
        ({}, hg.JsonSchema({})),
        ("{}", hg.JsonSchema({})),
    ):
        assert rows.of_row({"prompt": "A", "form": own}) == constraint
    with pytest.raises(hg.InvalidConstraint, match="column 'form': "):
        rows.of_row({"prompt": "A", "form": []})


def test_a_completion_that_leaves_its_constraint_ends_the_training(tmp_path: Path) -> None:
    trainer = guided(tmp_path, constraint=["yes", "no"])
    trainer._sampler._kwargs["suppress_tokens"] = list(range(3, 2048))
    with (
        pytest.warns(UserWarning, match="it ends here"),
        pytest.raises(
            hg.GenerationError, match="left its constraint after ''.*suppress_tokens.*leave out generation_kw"
        ),
    ):
        trainer.train()
