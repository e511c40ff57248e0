"""Which calls may run several tokens in one pass: whatever the model, every loop writes what generate() writes.

The oracle is generate() with the logits processor, in float64. The tokenizer writes single bytes, so that forced text
has one tokenization, and the loops can be compared token for token.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import peft
import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import nn
from transformers import (
    ByT5Tokenizer,
    CpmAntConfig,
    CpmAntForCausalLM,
    DogeConfig,
    DogeForCausalLM,
    DynamicCache,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    RwkvConfig,
    RwkvForCausalLM,
    XLNetConfig,
    XLNetLMHeadModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import hf_guided as hg
from hf_guided.hf.compat import CACHE_NAME
from hf_guided.hf.decode.block_rule import BlockRule, block_rule
from hf_guided.hf.decode.call import GenerateCall
from tests import effort
from tests.pairs import once_each

TOKENIZER = ByT5Tokenizer(extra_ids=0)
SIZE = len(TOKENIZER)
CONSTRAINTS = [None, hg.Regex('\\{"name": "[a-z]{3}", "city": "[a-z]{3}", "country": "[a-z]{3}"\\}')]
SHORT_CONSTRAINTS = [None, hg.Regex('\\{"name": "[a-z]{3}", "city": "[a-z]{3}"\\}')]
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "without jump-forward": {"jump_forward": False},
    "grammar drafts": {"draft": "grammar"},
    "prompt lookup": {"draft": "prompt_lookup"},
}
TURNS = ("grammar drafts", "prompt lookup", "without jump-forward")  # in turns, where slow tests do not run
PLAIN_FORMS = ("default", "without jump-forward")  # transformers' own loop runs in all of them; two are enough


def small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": SIZE,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "bos_token_id": None,
        "eos_token_id": TOKENIZER.eos_token_id,
        "pad_token_id": TOKENIZER.pad_token_id,
        **more,
    }


def built(kind: type, config: Any) -> Any:
    """A model in float64 whose every token depends on the context."""
    torch.manual_seed(0)
    model = kind(config).double().eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def phi3() -> Any:
    rope = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "rope_theta": 1e4}
    rope |= {"original_max_position_embeddings": 40, "factor": 5.0}
    config = Phi3Config(**small(max_position_embeddings=200, original_max_position_embeddings=40, rope_parameters=rope))
    return built(Phi3ForCausalLM, config)


def llama(kind: str = "default", **more: Any) -> Any:
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 1e4}
    if kind == "dynamic":
        rope["factor"] = 4.0
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 40}
    return built(LlamaForCausalLM, LlamaConfig(**small(max_position_embeddings=40, rope_parameters=rope, **more)))


def gpt2() -> Any:
    config = GPT2Config(
        vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )
    return built(GPT2LMHeadModel, config)


def cpm_ant() -> Any:
    config = CpmAntConfig(
        vocab_size=SIZE,
        hidden_size=32,
        num_attention_heads=4,
        dim_head=8,
        dim_ff=32,
        num_hidden_layers=2,
        prompt_length=4,
        eos_token_id=1,
        pad_token_id=0,
    )
    return built(CpmAntForCausalLM, config)


def xlnet() -> Any:
    config = XLNetConfig(
        vocab_size=SIZE, d_model=32, n_layer=2, n_head=4, d_inner=32, bos_token_id=0, eos_token_id=1, pad_token_id=0
    )
    return built(XLNetLMHeadModel, config).float()  # transformers mixes precisions there


def rwkv() -> Any:
    config = RwkvConfig(
        vocab_size=SIZE,
        hidden_size=32,
        attention_hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    return built(RwkvForCausalLM, config)


def doge() -> Any:
    return built(DogeForCausalLM, DogeConfig(**small(keep_window_size=8, is_moe=False)))


def git() -> Any:
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4}
    more = small(vision_config=vision, max_position_embeddings=128)
    del more["num_key_value_heads"]
    return built(GitForCausalLM, GitConfig(**more))


def adapted(config: Any) -> Any:
    model = peft.get_peft_model(llama(), config).double().eval()
    for name, parameter in model.named_parameters():
        if "prompt" in name or "lora" in name:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def prompt_tuning() -> Any:
    return adapted(peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


def prefix_tuning() -> Any:
    return adapted(peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


def lora() -> Any:
    return adapted(peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))


class Forwards(LlamaForCausalLM):
    """Overrides a method, and changes nothing."""

    def prepare_inputs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        return super().prepare_inputs_for_generation(*args, **kwargs)


class Remembers(Forwards):
    """Draws a random number in every pass, and remembers it."""

    @functools.wraps(LlamaForCausalLM.forward)
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.counted += 1
        self.remembered, self.new = "after", torch.rand(1)
        return super().forward(*args, **kwargs)


class LastTokenOnly(LlamaForCausalLM):
    """Takes one token a pass after the prompt, whatever it is given."""

    def prepare_inputs_for_generation(self, *args: Any, is_first_iteration: bool = False, **kwargs: Any) -> Any:
        inputs = super().prepare_inputs_for_generation(*args, is_first_iteration=is_first_iteration, **kwargs)
        if not is_first_iteration:
            inputs["input_ids"] = inputs["input_ids"][:, -1:]
        return inputs


class CountsAll(LlamaForCausalLM):
    """Computes positions from all tokens so far, which it expects to get."""

    def prepare_inputs_for_generation(self, input_ids: Any, **kwargs: Any) -> Any:
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        new = inputs["input_ids"].shape[1]
        inputs["position_ids"] = torch.arange(input_ids.shape[1] - new, input_ids.shape[1])[None]
        return inputs


class OwnLoop(LlamaForCausalLM):
    """Decodes in a loop of its own."""

    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        return super()._sample(*args, **kwargs)


def overriding(kind: type) -> Callable[[], Any]:
    return lambda: built(kind, LlamaConfig(**small(max_position_embeddings=200)))


def prompts(rows: int, length: int, **more: Any) -> dict[str, Any]:
    ids = torch.randint(3 + 97, 3 + 122, (rows, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if rows > 1:
        mask[1, : length // 2] = 0
    return {"input_ids": ids, "attention_mask": mask, "do_sample": False, **more}


# The model, the prompts' length, and whether transformers' own loop has to run; None: for one row only.
CASES: dict[str, tuple[Callable[[], Any], int, bool | None]] = {
    "phi3 before its switch": (phi3, 6, False),
    "phi3 passes its switch": (phi3, 30, True),
    "phi3 after its switch": (phi3, 50, False),
    "dynamic RoPE within pretraining": (lambda: llama("dynamic"), 6, False),
    "dynamic RoPE passes it": (lambda: llama("dynamic"), 30, True),
    "dynamic RoPE beyond it": (lambda: llama("dynamic"), 50, True),
    "longrope without Phi-3's class": (lambda: llama("longrope"), 30, True),
    "prompt tuning": (prompt_tuning, 6, False),
    "prefix tuning": (prefix_tuning, 6, False),
    "LoRA": (lora, 6, False),
    "CPM-Ant": (cpm_ant, 6, None),
    "an override that changes nothing": (overriding(Forwards), 6, False),
    "an override that takes one token": (overriding(LastTokenOnly), 6, True),
    "an override that counts all tokens": (overriding(CountsAll), 6, True),
    "a loop of its own": (overriding(OwnLoop), 6, True),
    "GPT-2": (gpt2, 6, False),
    "all tokens in every pass": (xlnet, 6, False),
    "rows that depend on each other": (rwkv, 6, False),
    "masks of the best slots": (doge, 6, False),
    "masks with slots of images": (git, 6, False),
}


def limited(guide: hg.Guide, constraints: Any, max_new_tokens: int = 60) -> Any:
    """A logits processor with the limit that a decoder reads from the call."""
    return guide.logits_processor(constraints, max_new_tokens=max_new_tokens)


def check(model: Any, inputs: dict[str, Any], plain: bool, forms: dict[str, dict[str, Any]]) -> None:
    guide = hg.Guide(model, TOKENIZER)
    rows = len(inputs["input_ids"])
    # The free row ends only with the limit, so that the others meet a row that goes on.
    limit, constraints = (34, SHORT_CONSTRAINTS) if inputs["input_ids"].shape[1] < 20 else (60, CONSTRAINTS)
    more, constraints = {**inputs, "max_new_tokens": limit}, constraints[-rows:]
    # Each on a copy: with dynamic RoPE, a call changes the frequencies of the next one, in generate() too.
    expected = copy.deepcopy(model).generate(**more, logits_processor=[limited(guide, constraints, limit)]).tolist()
    for name, form in forms.items():
        decoder = guide.decoder(constraints, **form)
        assert copy.deepcopy(model).generate(**more, custom_generate=decoder).tolist() == expected, name
        assert bool(decoder.plain_reason) == plain, (name, decoder.plain_reason)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it
@pytest.mark.filterwarnings("ignore:Position ids are not supported:UserWarning")
# PEFT's prefix tuning sets the cache under its old name beside that of transformers 5.24; plain generate() warns too.
@pytest.mark.filterwarnings("ignore:Both `past_key_values` and `cache` are set:FutureWarning")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        # Where the number of rows decides, both; else one of them, in turns.
        pytest.param(name, rows, marks=[pytest.mark.slow] * (CASES[name][2] is not None and i % 2 == rows - 1))
        for i, name in enumerate(CASES)
        for rows in (1, 2)
    ],
)
def test_every_loop_writes_what_generate_writes(name: str, rows: int) -> None:
    build, length, plain = CASES[name]
    plain = rows == 1 if plain is None else plain
    some = [*FORMS] if effort.everything else ["default", TURNS[len(name) % 3]]
    check(build(), prompts(rows, length), plain, {name: FORMS[name] for name in (PLAIN_FORMS if plain else some)})


@pytest.mark.parametrize(("length", "rows"), once_each([3, 9], [1, 2]))
def test_token_types_are_those_that_generate_passes(length: int, rows: int) -> None:
    types = torch.arange(length).repeat(rows, 1)
    check(gpt2(), prompts(rows, length, token_type_ids=types), False, FORMS)


def test_a_trial_costs_few_passes_once() -> None:
    model = overriding(Forwards)()
    guide = hg.Guide(model, TOKENIZER)
    # The first call would run the prompt while this compiles, and forced text after it.
    guide.compile(CONSTRAINTS[1])
    passes, forward = [], model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return forward(*args, **kwargs)

    counted.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    model.forward = counted
    counts = []
    for _ in range(3):
        passes.clear()
        decoder = guide.decoder(CONSTRAINTS[1])
        model.generate(**prompts(1, 6), max_new_tokens=60, custom_generate=decoder)
        assert decoder.plain_reason == "" and decoder.stats.forced_tokens > 20
        counts.append(len(passes))
    assert counts[0] - counts[1] == 4 and counts[1] == counts[2]


def test_a_trial_leaves_no_trace() -> None:
    model = overriding(Remembers)()
    model.remembered = "before"
    model.register_buffer("counted", torch.zeros(1))
    model.config.extra = {1, 2}  # no JSON
    config = copy.deepcopy(model.generation_config)
    seen: list[tuple[Any, ...]] = []

    def loop(model: Any, input_ids: Any, **kwargs: Any) -> Any:
        call = GenerateCall(
            model,
            input_ids,
            kwargs.pop("logits_processor"),
            kwargs.pop("stopping_criteria"),
            kwargs.pop("generation_config"),
            kwargs,
        )
        before = torch.get_rng_state()
        rule = block_rule(call, [100, 101, 102, 103, 104])
        seen.append((rule, model.remembered, hasattr(model, "new"), bool((torch.get_rng_state() == before).all())))
        assert kwargs[CACHE_NAME].get_seq_length() == 0 and model.counted == 0
        return input_ids

    model.generate(**prompts(1, 6), max_new_tokens=4, custom_generate=loop)
    assert seen == [(BlockRule(blocks=True), "before", False, True)]
    assert model.generation_config.to_dict() == config.to_dict()


@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # of torch, on Python 3.13.0
@pytest.mark.parametrize("why", ["hooks", "training mode", "compiled"])
def test_models_that_cannot_be_tried_run_as_generate_runs_them(why: str) -> None:
    model = overriding(Forwards)()
    passes: list[int] = []
    if why == "hooks":
        model.register_forward_hook(lambda *_: passes.append(1))
    if why == "training mode":
        model.train()
    if why == "compiled":
        model.model.layers[0].compile(backend="eager")
    guide = hg.Guide(model, TOKENIZER)
    inputs = prompts(2, 6, max_new_tokens=60)
    expected = model.generate(**inputs, logits_processor=[limited(guide, CONSTRAINTS)]).tolist()
    needed = len(passes)
    decoder = guide.decoder(CONSTRAINTS)
    assert model.generate(**inputs, custom_generate=decoder).tolist() == expected
    assert why in decoder.plain_reason and len(passes) == 2 * needed


class SomeCache(DynamicCache):
    """A cache that transformers does not know."""


def test_unknown_caches_take_transformers_own_loop() -> None:
    model = llama()
    guide = hg.Guide(model, TOKENIZER)
    inputs = prompts(1, 6, max_new_tokens=60)
    decoder = guide.decoder(CONSTRAINTS[1])
    expected = model.generate(**inputs, logits_processor=[limited(guide, CONSTRAINTS[1])])
    assert model.generate(**inputs, **{CACHE_NAME: SomeCache()}, custom_generate=decoder).tolist() == expected.tolist()
    assert "SomeCache" in decoder.plain_reason


def test_seeds_draw_the_same_in_both_loops() -> None:
    guide = hg.Guide(fast := overriding(LlamaForCausalLM)(), TOKENIZER)
    plain = overriding(OwnLoop)()
    plain.load_state_dict(fast.state_dict())
    inputs = prompts(2, 6, max_new_tokens=60) | {"do_sample": True, "top_k": 0, "temperature": 1.3}
    rows = []
    for model in (fast, plain):
        decoder = guide.decoder(CONSTRAINTS, seeds=[5, -6], jump_forward=False)
        rows.append(model.generate(**inputs, custom_generate=decoder).tolist())
        assert bool(decoder.plain_reason) == (model is plain)
    assert rows[0] == rows[1]


def test_log_probabilities_are_the_same_in_both_loops() -> None:
    guide = hg.Guide(fast := overriding(LlamaForCausalLM)(), TOKENIZER)
    plain = overriding(OwnLoop)()
    plain.load_state_dict(fast.state_dict())
    entries = []
    for model in (fast, plain):
        decoder = guide.decoder(CONSTRAINTS, seeds=[5, -6], jump_forward=False, logprobs=2)
        output = model.generate(**prompts(2, 6, max_new_tokens=60) | {"do_sample": True}, custom_generate=decoder)
        assert isinstance(output, torch.Tensor)
        entries.append(decoder.logprobs)
    for ours, theirs in zip(*entries, strict=True):
        assert [entry.token_id for entry in ours] == [entry.token_id for entry in theirs]
        assert [entry.logprob for entry in ours] == pytest.approx([entry.logprob for entry in theirs], abs=1e-4)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("build", [prompt_tuning, prefix_tuning])
def test_continuous_batching_refuses_virtual_tokens(build: Callable[[], Any]) -> None:
    model = build()
    with pytest.raises(hg.UnsupportedModel, match="cannot run Peft.*virtual tokens"):
        hg.generate(model, TOKENIZER, "a", CONSTRAINTS[1], continuous_batching=True, max_new_tokens=60)
    with pytest.raises(hg.UnsupportedModel, match="cannot run Peft.*virtual tokens"):
        hg.Guide(model, TOKENIZER).attach(model.init_continuous_batching())


def test_continuous_batching_refuses_requests_that_change_the_frequencies() -> None:
    model = llama("dynamic")
    manager = hg.Guide(model, TOKENIZER).attach(model.init_continuous_batching())
    with pytest.raises(hg.UnsupportedModel, match="dynamic RoPE changes at 40 tokens.*may reach 52"):
        manager.add_request([100, 101, 102], max_new_tokens=50, response_format=CONSTRAINTS[1])
    manager.add_request([100, 101, 102], max_new_tokens=30, response_format=hg.Choice(["yes", "no"]))


class Steer(nn.Module):
    """A wrapper of the caller around a layer, which steers the last token of each pass."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return steered(self.layer(*args, **kwargs))


def steered(states: Any) -> Any:
    """A steering vector on the last token of each pass: a block of tokens would be steered once."""
    return torch.cat([states[:, :-1], states[:, -1:] + 3.0], 1)


def steered_attention(*args: Any, **kwargs: Any) -> Any:
    output, weights = sdpa_attention_forward(*args, **kwargs)
    return steered(output), weights


class SteeringHook(ModelHook):
    def post_forward(self, module: Any, output: Any) -> Any:
        return steered(output)


def patch(model: Any, what: str) -> None:
    """Add the steering vector to a model."""
    layer = model.model.layers[0]
    inner = layer.forward
    if what == "a hook":
        layer.register_forward_hook(lambda _, __, output: steered(output))
    elif what == "another forward":
        layer.forward = lambda *args, **kwargs: steered(inner(*args, **kwargs))
    elif what == "a bound method":
        layer.forward = MethodType(lambda _, *args, **kwargs: steered(inner(*args, **kwargs)), layer)
    elif what == "another forward below a hook of accelerate":
        layer.forward = lambda *args, **kwargs: steered(inner(*args, **kwargs))
        add_hook_to_module(layer, ModelHook())
    elif what == "a hook for accelerate":
        add_hook_to_module(layer, SteeringHook())
    elif what == "a wrapper":
        model.model.layers[0] = Steer(layer)
    else:
        model.set_attn_implementation("steered")


PATCHES = (
    "a hook",
    "another forward",
    "a bound method",
    "another forward below a hook of accelerate",
    "a hook for accelerate",
    "a wrapper",
    "an attention function",
)


@pytest.mark.parametrize(("what", "after_a_call"), once_each(PATCHES, [False, True]))
def test_code_inside_the_model_takes_transformers_own_loop(
    what: str, after_a_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "steered", steered_attention)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "steered", sdpa_mask)
    model = overriding(LlamaForCausalLM)()
    if after_a_call:
        check(model, prompts(2, 6), False, {"default": {}})
    patch(model, what)
    check(model, prompts(2, 6), True, {name: FORMS[name] for name in PLAIN_FORMS})


@pytest.mark.parametrize("why", ["hooks", "training mode", "forward"])
def test_a_verdict_is_not_used_for_a_changed_model(why: str) -> None:
    """The trial before the change says that blocks are right."""
    model = overriding(Forwards)()
    check(model, prompts(2, 6), False, {"default": {}})
    if why == "hooks":
        model.register_forward_pre_hook(lambda *_: None)
    elif why == "training mode":
        model.train()
    else:
        forward = model.forward

        @functools.wraps(forward)
        def last_token_steered(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            output.logits = steered(output.logits)
            return output

        model.forward = last_token_steered
    guide = hg.Guide(model, TOKENIZER)
    decoder = guide.decoder(CONSTRAINTS)
    inputs = prompts(2, 6, max_new_tokens=60)
    expected = model.generate(**inputs, logits_processor=[limited(guide, CONSTRAINTS)]).tolist()
    assert model.generate(**inputs, custom_generate=decoder).tolist() == expected
    assert decoder.plain_reason


def test_dynamic_frequencies_that_an_earlier_call_changed() -> None:
    """generate() resets them in a pass below the length of pretraining, not in one of just this length."""
    model = llama("dynamic")
    guide = hg.Guide(model, TOKENIZER)
    forced = hg.Regex('\\{"name": "x", "ci[a-z]*')
    guide.compile(forced)
    outputs = []
    for arguments in (
        {"logits_processor": [limited(guide, forced, 18)]},
        {"custom_generate": guide.decoder(forced)},
    ):
        model.generate(**prompts(1, 30), max_new_tokens=60)
        outputs.append(model.generate(**prompts(1, 23), max_new_tokens=18, **arguments).tolist())
    assert outputs[0] == outputs[1]


def test_a_rejected_draft_ends_no_row() -> None:
    """Where only the draft would come to a position at which other processors leave nothing."""
    model = overriding(LlamaForCausalLM)()
    guide = hg.Guide(model, TOKENIZER)
    constraint = hg.Regex("[a-z](c[0-9]|d|e)[a-z]{5,30}")
    ids = TOKENIZER("ac7 bc7 cc7 dc7 ec7 fc7 gc7 ", add_special_tokens=False, return_tensors="pt").input_ids
    digits = [3 + byte for byte in b"0123456789"]
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 10, "suppress_tokens": digits}
    plain, drafted = (guide.decoder(constraint, draft=draft) for draft in (None, "prompt_lookup"))
    expected = model.generate(ids, **options, custom_generate=plain).tolist()
    assert model.generate(ids, **options, custom_generate=drafted).tolist() == expected
    assert not plain.dead_ends and not drafted.dead_ends and drafted.stats.drafted_tokens > 0


def test_a_trial_is_for_the_methods_that_were_tried() -> None:
    """Also where an instance gets another one later."""
    model = overriding(Forwards)()
    guide = hg.Guide(model, TOKENIZER)
    inputs = prompts(1, 6, max_new_tokens=60)
    decoder = guide.decoder(CONSTRAINTS[1])
    expected = model.generate(**inputs, custom_generate=decoder).tolist()
    assert decoder.plain_reason == ""
    model.prepare_inputs_for_generation = functools.partial(LastTokenOnly.prepare_inputs_for_generation, model)
    model.__class__ = LastTokenOnly  # so that its super() finds the instance
    assert model.generate(**inputs, custom_generate=decoder).tolist() == expected
    assert "block" in decoder.plain_reason


def test_seeds_are_counted_in_both_loops() -> None:
    model = overriding(LlamaForCausalLM)()
    guide = hg.Guide(model, TOKENIZER)
    for more in ({}, {"output_scores": True, "return_dict_in_generate": True}):
        with pytest.raises(hg.InvalidArgument, match="one for each of 2 rows, got 1"):
            inputs = prompts(2, 6, max_new_tokens=9) | {"do_sample": True} | more
            model.generate(**inputs, custom_generate=guide.decoder(CONSTRAINTS, seeds=[1]))
