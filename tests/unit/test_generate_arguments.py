"""The keyword arguments that type checkers read are those that there are; others are refused at once."""

from __future__ import annotations

import inspect
from typing import Any

import pydantic
import pytest
import torch
from transformers import GenerationConfig, GenerationMixin

import hf_guided as hg
from hf_guided import demo
from hf_guided.generate_arguments import GenerateArguments, GenerationConfigArguments, ModelArguments
from hf_guided.unknown_arguments import check_arguments
from tests import vocabularies
from tests.integration import models

# Kept by a GenerationConfig beside its settings: where it comes from, and what generate() warns of.
NO_SETTINGS = {"transformers_version", "continuous_batching_config"}


def keywords(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}


def test_generation_settings_are_those_of_transformers() -> None:
    settings = {name for name in vars(GenerationConfig()) if not name.startswith("_")} - NO_SETTINGS
    assert set(GenerationConfigArguments.__annotations__) == settings


def test_generates_own_parameters_are_all_there() -> None:
    parameters = set(inspect.signature(GenerationMixin.generate).parameters) - {"self", "inputs", "kwargs"}
    assert parameters <= set(ModelArguments.__annotations__)


def test_our_arguments_are_those_of_generate() -> None:
    ours = set(GenerateArguments.__annotations__) - set(ModelArguments.__annotations__)
    assert ours == keywords(hg.generate) - {"stream"}


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


MISSPELLED = [
    ("bach_size", 3, "batch_size"),
    ("batchsize", 3, "batch_size"),
    ("max_new_token", 3, "max_new_tokens"),
    ("max_tokens", 3, "max_new_tokens"),
    ("temprature", 0.5, "temperature"),
    ("topk", 5, "top_k"),
    ("retrie", 1, "retries"),
    ("steam", True, "stream"),
    ("constrain", None, "constraint"),
    ("stop", ["x"], "stop_strings"),
    ("nonsense", 3, None),
]


@pytest.mark.parametrize(("name", "value", "meant"), MISSPELLED)
def test_an_unknown_argument_is_refused_before_anything_is_compiled(
    pair: tuple[Any, Any], name: str, value: Any, meant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = pair
    guide = hg.Guide(tokenizer, model)
    monkeypatch.setattr(guide, "compile", lambda *_, **__: pytest.fail("something was compiled"))
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    for arguments in ({}, {"stream": True}, {"continuous_batching": True}):
        with pytest.raises(hg.UnknownArgument, match=f"unknown argument {name}: ") as raised:
            hg.generate(model, tokenizer, "x", ["yes"], guide=guide, **arguments, **{name: value})
        assert (raised.value.name, raised.value.suggestion) == (name, meant)
        assert isinstance(raised.value, TypeError) and isinstance(raised.value, hg.HFGuidedError)
        assert (f"did you mean {meant}?" in str(raised.value)) == (meant is not None)


@pytest.mark.parametrize("name", ["inputs", "input_ids", "attention_mask"])
def test_the_input_comes_from_the_prompts(pair: tuple[Any, Any], name: str) -> None:
    with pytest.raises(hg.UnknownArgument, match="made from prompts"):
        hg.generate(*pair, "x", ["yes"], **{name: torch.ones(1, 1, dtype=torch.long)})


def check(model: Any, **arguments: Any) -> None:
    check_arguments(model, arguments, ["batch_size"], "prompts")


def test_inputs_of_the_model_pass() -> None:
    tokenizer = vocabularies.tiny_byte_level()
    llama, t5, (llava, _) = models.llama(tokenizer, layers=1), models.t5(tokenizer), models.llava(tokenizer)
    check(llama, position_ids=1, past_key_values=1, use_cache=True, logits_to_keep=1, assistant_tokenizer=1)
    check(llava, pixel_values=1, vision_feature_layer=-1)
    check(t5, decoder_input_ids=1, decoder_attention_mask=1, encoder_outputs=1, decoder_inputs_embeds=1)
    with pytest.raises(hg.UnknownArgument, match=r"input of LlamaForCausalLM; leave it out"):
        check(llama, pixel_values=1)
    with pytest.raises(hg.UnknownArgument, match="did you mean pixel_values"):
        check(llava, pixel_value=1)
    with pytest.raises(hg.UnknownArgument, match="did you mean decoder_input_ids"):
        check(t5, decoder_inputs_id=1)
    check(llama, pixel_values=None)  # as generate() has it


def test_a_models_own_parameter_is_no_misspelling(pair: tuple[Any, Any]) -> None:
    """It is near ``batch_size``, and the model takes it."""
    model, tokenizer = pair
    seen = []

    class Own(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, bach_size: int = 0, **kwargs: Any) -> Any:
            seen.append(bach_size)
            return super().forward(*args, **kwargs)

    own = Own(model.config)
    own.load_state_dict(model.state_dict())
    own.generation_config = model.generation_config
    [result] = hg.generate(own, tokenizer, "x", ["yes", "no"], bach_size=7, max_new_tokens=8)
    assert result.value in ("yes", "no") and set(seen) == {7}


def test_what_custom_generate_declares_passes(pair: tuple[Any, Any]) -> None:
    def own(model: Any, input_ids: Any, *, steps: int = 1, **kwargs: Any) -> Any:
        return input_ids

    check(pair[0], custom_generate=own, steps=3)
    with pytest.raises(hg.UnknownArgument):
        check(pair[0], custom_generate=None, steps=3)


def test_wrapped_models_take_what_the_model_inside_takes(pair: tuple[Any, Any]) -> None:
    model = pair[0]

    class Wrapper:
        """As PEFT's: everything is handed on."""

        config, generation_config = model.config, model.generation_config

        def get_base_model(self) -> Any:
            return model

        def generate(self, **kwargs: Any) -> Any:
            return model.generate(**kwargs)

    check(Wrapper(), position_ids=1, adapter_names=["a"])
    compiled = torch.compile(model, backend="eager")
    check(compiled, position_ids=1)
    for wrapper in (Wrapper(), compiled):
        with pytest.raises(hg.UnknownArgument, match="did you mean batch_size"):
            check(wrapper, bach_size=3)


def test_settings_of_a_configs_own_pass(pair: tuple[Any, Any]) -> None:
    check(pair[0], generation_config=GenerationConfig(frobnication=1), frobnication=2)


def test_the_pipeline_refuses_too(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import pipeline

    hg.register()
    model, tokenizer = pair
    guided = pipeline("guided-generation", model=model, tokenizer=tokenizer)
    monkeypatch.setattr(hg.Guide, "compile", lambda *_, **__: pytest.fail("something was compiled"))
    for name, meant in (("bach_size", "batch_size"), ("retun_full_text", "return_full_text"), ("backed", "backend")):
        with pytest.raises(hg.UnknownArgument, match=f"did you mean {meant}"):
            guided("x", response_format=["yes"], **{name: 3})
        with pytest.raises(hg.UnknownArgument, match=f"did you mean {meant}"):
            pipeline("guided-generation", model=model, tokenizer=tokenizer, **{name: 3})
    with pytest.raises(hg.UnknownArgument, match="nonsense"):
        guided("x", response_format=["yes"], nonsense=3)


def test_the_pipeline_takes_what_its_parent_takes(pair: tuple[Any, Any]) -> None:
    from transformers import pipeline

    class Answer(pydantic.BaseModel):
        yes: bool

    hg.register()
    guided = pipeline("guided-generation", model=pair[0], tokenizer=pair[1], batch_size=2, num_workers=0)
    arguments: dict[str, Any] = {
        "add_special_tokens": False,
        "batch_size": 2,
        "clean_up_tokenization_spaces": False,
        "handle_long_generation": None,
        "max_new_tokens": 40,
        "padding": False,
        "return_full_text": False,
        "skip_special_tokens": True,
        "temperature": 0.5,
        "tokenizer_encode_kwargs": {},
        "truncation": None,
    }
    records = guided(["x", "y"], response_format=Answer, **arguments)
    assert all(isinstance(record["value"], Answer) for [record] in records)
