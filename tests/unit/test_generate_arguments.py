"""The typed keyword arguments equal the real ones, and unknown arguments are refused before anything runs."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections import deque
from typing import Any

import pydantic
import pytest
import torch
from transformers import GenerationConfig, GenerationMixin

import hf_guided as hg
from hf_guided import demo
from hf_guided.constraints.argument_advice import DECODER, GENERATE, PROCESSOR, RENAMED, RULES, SCORE, advice
from hf_guided.generation.arguments import GenerateArguments, GenerationConfigArguments, ModelArguments, check_arguments
from hf_guided.hf.calls import Calls
from hf_guided.session.options import SessionArguments, SessionOptions
from tests import vocabularies
from tests.integration import models

# Attributes of a GenerationConfig that are no settings.
NO_SETTINGS = {"transformers_version", "continuous_batching_config"}


def keyword_only_names(function: Any) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_generation_settings_equal_those_of_transformers() -> None:
    settings = {name for name in vars(GenerationConfig()) if not name.startswith("_")} - NO_SETTINGS
    assert set(GenerationConfigArguments.__annotations__) == settings


def test_parameters_of_transformers_generate_are_all_declared() -> None:
    parameters = set(inspect.signature(GenerationMixin.generate).parameters) - {"self", "inputs", "kwargs"}
    assert parameters <= set(ModelArguments.__annotations__)


def test_declared_arguments_equal_those_of_generate() -> None:
    ours = set(GenerateArguments.__annotations__) - set(ModelArguments.__annotations__)
    assert ours == keyword_only_names(hg.generate) - {"stream"}


def test_declared_arguments_of_a_session_equal_its_options() -> None:
    options = set(SessionArguments.__annotations__)
    assert options == {field.name for field in dataclasses.fields(SessionOptions)}
    for function in (hg.Guide.logits_processor, hg.Guide.decoder, hg.Guide.session, hg.Guide.read, hg.Guide.reader):
        assert options | {"prefix"} <= keyword_only_names(function)


@pytest.fixture(scope="module")
def model_and_tokenizer() -> tuple[Any, Any]:
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
def test_unknown_argument_is_refused_before_anything_runs(
    model_and_tokenizer: tuple[Any, Any], name: str, value: Any, meant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = model_and_tokenizer
    guide = hg.Guide(model, tokenizer)
    monkeypatch.setattr(guide, "compile", lambda *_, **__: pytest.fail("a constraint was compiled"))
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    for arguments in ({}, {"stream": True}, {"continuous_batching": True}):
        with pytest.raises(hg.UnknownArgument, match=f"unknown argument {name}: ") as raised:
            hg.generate(model, tokenizer, "x", ["yes"], guide=guide, **arguments, **{name: value})
        assert (raised.value.name, raised.value.suggestion) == (name, meant)
        assert isinstance(raised.value, TypeError) and isinstance(raised.value, hg.HFGuidedError)
        assert (f"did you mean {meant}?" in str(raised.value)) == (meant is not None)


@pytest.mark.parametrize("name", ["inputs", "input_ids", "attention_mask"])
def test_model_inputs_made_from_prompts_are_refused(model_and_tokenizer: tuple[Any, Any], name: str) -> None:
    with pytest.raises(hg.UnknownArgument, match="made from prompts"):
        hg.generate(*model_and_tokenizer, "x", ["yes"], **{name: torch.ones(1, 1, dtype=torch.long)})


def check_model_arguments(model: Any, **arguments: Any) -> None:
    check_arguments(model, arguments, ["batch_size"], GENERATE)


def test_inputs_of_the_model_are_accepted() -> None:
    tokenizer = vocabularies.tiny_byte_level()
    llama, t5, (llava, _) = models.llama(tokenizer, layers=1), models.t5(tokenizer), models.llava(tokenizer)
    check_model_arguments(
        llama, position_ids=1, past_key_values=1, use_cache=True, logits_to_keep=1, assistant_tokenizer=1
    )
    check_model_arguments(llava, pixel_values=1, vision_feature_layer=-1)
    check_model_arguments(t5, decoder_input_ids=1, decoder_attention_mask=1, encoder_outputs=1, decoder_inputs_embeds=1)
    with pytest.raises(hg.UnknownArgument, match=r"input of LlamaForCausalLM; leave it out"):
        check_model_arguments(llama, pixel_values=1)
    with pytest.raises(hg.UnknownArgument, match="did you mean pixel_values"):
        check_model_arguments(llava, pixel_value=1)
    with pytest.raises(hg.UnknownArgument, match="did you mean decoder_input_ids"):
        check_model_arguments(t5, decoder_inputs_id=1)
    check_model_arguments(llama, pixel_values=None)  # generate() also ignores None


def test_parameter_of_a_custom_model_is_accepted(model_and_tokenizer: tuple[Any, Any]) -> None:
    """Even if its name is similar to ``batch_size``."""
    model, tokenizer = model_and_tokenizer
    received = []

    class Custom(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, bach_size: int = 0, **kwargs: Any) -> Any:
            received.append(bach_size)
            return super().forward(*args, **kwargs)

    custom = Custom(model.config)
    custom.load_state_dict(model.state_dict())
    custom.generation_config = model.generation_config
    [result] = hg.generate(custom, tokenizer, "x", ["yes", "no"], bach_size=7, max_new_tokens=8)
    assert result.value in ("yes", "no") and set(received) == {7}


def test_parameters_of_custom_generate_are_accepted(model_and_tokenizer: tuple[Any, Any]) -> None:
    def custom_generate(model: Any, input_ids: Any, *, steps: int = 1, **kwargs: Any) -> Any:
        return input_ids

    check_model_arguments(model_and_tokenizer[0], custom_generate=custom_generate, steps=3)
    with pytest.raises(hg.UnknownArgument):
        check_model_arguments(model_and_tokenizer[0], custom_generate=None, steps=3)


def test_wrapped_models_accept_the_inputs_of_the_inner_model(model_and_tokenizer: tuple[Any, Any]) -> None:
    model = model_and_tokenizer[0]

    class Wrapper:
        """Like the wrappers of PEFT, it passes all arguments to the inner model."""

        config, generation_config = model.config, model.generation_config

        def get_base_model(self) -> Any:
            return model

        def generate(self, **kwargs: Any) -> Any:
            return model.generate(**kwargs)

    check_model_arguments(Wrapper(), position_ids=1, adapter_names=["a"])
    compiled = torch.compile(model, backend="eager")
    check_model_arguments(compiled, position_ids=1)
    for wrapper in (Wrapper(), compiled):
        with pytest.raises(hg.UnknownArgument, match="did you mean batch_size"):
            check_model_arguments(wrapper, bach_size=3)


def test_custom_settings_of_a_generation_config_are_accepted(model_and_tokenizer: tuple[Any, Any]) -> None:
    check_model_arguments(model_and_tokenizer[0], generation_config=GenerationConfig(frobnication=1), frobnication=2)


def test_pipeline_refuses_unknown_arguments(
    model_and_tokenizer: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import pipeline

    hg.register()
    model, tokenizer = model_and_tokenizer
    guided = pipeline("guided-generation", model=model, tokenizer=tokenizer)
    monkeypatch.setattr(hg.Guide, "compile", lambda *_, **__: pytest.fail("something was compiled"))
    for name, meant in (("bach_size", "batch_size"), ("retun_full_text", "return_full_text"), ("backed", "backend")):
        with pytest.raises(hg.UnknownArgument, match=f"did you mean {meant}"):
            guided("x", response_format=["yes"], **{name: 3})
        with pytest.raises(hg.UnknownArgument, match=f"did you mean {meant}"):
            pipeline("guided-generation", model=model, tokenizer=tokenizer, **{name: 3})
    with pytest.raises(hg.UnknownArgument, match="nonsense"):
        guided("x", response_format=["yes"], nonsense=3)


def test_pipeline_accepts_the_arguments_of_its_parent(model_and_tokenizer: tuple[Any, Any]) -> None:
    from transformers import pipeline

    class Answer(pydantic.BaseModel):
        yes: bool

    hg.register()
    guided = pipeline(
        "guided-generation", model=model_and_tokenizer[0], tokenizer=model_and_tokenizer[1], batch_size=2, num_workers=0
    )
    arguments: dict[str, Any] = {
        "add_special_tokens": False,
        "batch_size": 2,
        "clean_up_tokenization_spaces": False,
        "do_sample": True,
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


# The name of an argument of another API, the advice that hg.generate gives, and the suggested argument.
ELSEWHERE = [
    ("enable_thinking", 'chat_template_kwargs={"enable_thinking": ...}', "chat_template_kwargs"),
    ("enable_thinkin", 'chat_template_kwargs={"enable_thinking": ...}', "chat_template_kwargs"),
    ("response_format", "constraint, the fourth argument", "constraint"),
    ("schema", "constraint, the fourth argument", "constraint"),
    ("regex", "hg.Regex(...)", "constraint"),
    ("guided_json", "constraint, the fourth argument", "constraint"),
    ("tools", "hg.ToolCalls(tools)", "constraint"),
    ("tool_choice", "hg.ToolCalls(tools, choice=...)", "constraint"),
    ("whitespace", "hg.JsonSchema(schema, whitespace=...)", "constraint"),
    ("indent", "hg.JsonSchema(schema, indent=...)", "constraint"),
    ("spelling", "hg.JsonSchema(schema, spelling=...)", "constraint"),
    ("extra", "hg.JsonSchema(schema, extra=...)", "constraint"),
    ("max_depth", "hg.JsonSchema(schema, max_depth=...)", "constraint"),
    ("images", '{"type": "image", "url": ...}', "prompts"),
    ("audio", '{"type": "audio", "url": ...}', "prompts"),
    ("messages", "texts and chats are prompts", "prompts"),
    ("stop_token_ids", "eos_token_id=[...]", "eos_token_id"),
    ("retokenize", "guide.decoder", None),
    ("retrys", "did you mean retries?", "retries"),
    ("max_retries", "did you mean retries?", "retries"),
]


def public_calls(model_and_tokenizer: tuple[Any, Any]) -> dict[str, Any]:
    """All public calls that take the arguments of ``hg.generate``."""

    async def awaited(**arguments: Any) -> Any:
        return await hg.agenerate(*model_and_tokenizer, "x", ["yes"], **arguments)

    return {
        "generate": lambda **arguments: hg.generate(*model_and_tokenizer, "x", ["yes"], **arguments),
        "stream": lambda **arguments: hg.generate(*model_and_tokenizer, "x", ["yes"], stream=True, **arguments),
        "agenerate": lambda **arguments: asyncio.run(awaited(**arguments)),
        "Model": lambda **arguments: hg.Model(*model_and_tokenizer)("x", ["yes"], **arguments),
    }


@pytest.mark.parametrize(("name", "text", "suggestion"), ELSEWHERE)
def test_error_for_an_argument_of_another_api_gives_advice(
    model_and_tokenizer: tuple[Any, Any], name: str, text: str, suggestion: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_and_tokenizer[0], "forward", lambda *_, **__: pytest.fail("the model ran"))
    for call in public_calls(model_and_tokenizer).values():
        with pytest.raises(hg.UnknownArgument, match=f"unknown argument {name}: ") as raised:
            call(**{name: 3})
        assert text in str(raised.value) and "leave it out" not in str(raised.value)
        assert raised.value.suggestion == suggestion


def test_advice_names_the_arguments_of_each_call(model_and_tokenizer: tuple[Any, Any]) -> None:
    from transformers import pipeline

    hg.register()
    guide = hg.Guide(*model_and_tokenizer)
    guided = pipeline("guided-generation", model=model_and_tokenizer[0], tokenizer=model_and_tokenizer[1])
    cases: list[tuple[Any, str, str]] = [
        (lambda **k: guided("x", response_format=["yes"], **k), "enable_thinking", "chat_template_kwargs={"),
        (lambda **k: guided("x", response_format=["yes"], **k), "schema", "the constraint is response_format"),
        (lambda **k: guided("x", response_format=["yes"], **k), "indent", "as response_format"),
        (
            lambda **k: hg.score(*model_and_tokenizer, "x", ["yes"], **k),
            "response_format",
            "choices, the fourth argument",
        ),
        (lambda **k: hg.score(*model_and_tokenizer, "x", ["yes"], **k), "batchsize", "did you mean batch_size?"),
        (lambda **k: guide.decoder(["yes"], **k), "documents", "apply_chat_template(chat, documents=...)"),
        (lambda **k: guide.decoder(["yes"], **k), "enable_thinking", "apply_chat_template(chat, enable_thinking=...)"),
        (lambda **k: guide.decoder(["yes"], **k), "indent", "hg.JsonSchema(schema, indent=...)"),
        (lambda **k: guide.decoder(["yes"], **k), "temperature", "generation settings go to model.generate"),
        (lambda **k: guide.decoder(["yes"], **k), "jump_foward", "did you mean jump_forward?"),
        (lambda **k: guide.logits_processor(["yes"], **k), "tools", "hg.ToolCalls(tools) as constraint, the first"),
        (lambda **k: guide.logits_processor(["yes"], **k), "eos_token_id", "did you mean stop_token_ids?"),
    ]
    for call, name, text in cases:
        with pytest.raises(hg.UnknownArgument) as raised:
            call(**{name: 3})
        assert raised.value.name == name and text in str(raised.value)


def test_every_suggestion_is_an_argument_of_the_call() -> None:
    """Advice must not name an argument that the call refuses."""
    parameters = {
        GENERATE: {*GenerateArguments.__annotations__, *inspect.signature(hg.generate).parameters},
        SCORE: set(inspect.signature(hg.score).parameters),
        DECODER: set(inspect.signature(hg.Guide.decoder).parameters),
        PROCESSOR: set(inspect.signature(hg.Guide.logits_processor).parameters),
    }
    for call, known in parameters.items():
        for name in (*RULES, *RENAMED):
            if name not in known and (suggested := advice(name, call, known)) and suggested.suggestion:
                assert suggested.suggestion in known, (call.name, name, suggested)


def call_of(name: str, model_and_tokenizer: tuple[Any, Any]) -> Any:
    """A public call with what it needs beside the arguments that are wrong."""
    model = hg.Model(*model_and_tokenizer)
    guide = hg.Guide(*model_and_tokenizer)
    return {
        "generate": lambda *given, **wrong: hg.generate(*model_and_tokenizer, *given, **wrong),
        "agenerate": lambda *given, **wrong: hg.agenerate(*model_and_tokenizer, *given, **wrong),
        "score": lambda *given, **wrong: hg.score(*model_and_tokenizer, *given, **wrong),
        "Model": model,
        "Model.batch": model.batch,
        "Model.acall": lambda *args, **kwargs: asyncio.run(model.acall(*args, **kwargs)),
        "describe": hg.describe,
        **{each: getattr(guide, each) for each in ("compile", "audit", "submit", "decoder", "logits_processor")},
    }[name]


@pytest.mark.parametrize(
    ("name", "given", "wrong", "meant"),
    [
        ("generate", ("x",), {"tools": [print]}, "constraint"),
        ("generate", ("x",), {"schema": {}}, "constraint"),
        ("generate", (), {"prompt": "x", "schema": {}}, "prompts"),
        ("generate", (), {"messages": [], "constraint": None}, "prompts"),
        ("agenerate", ("x",), {"response_format": {}}, "constraint"),
        ("score", ("x",), {"schema": {}}, "choices"),
        ("score", (), {"text": "x", "choices": ["a", "b"]}, "prompts"),
        ("Model", (), {"prompts": "x"}, "prompt"),
        ("Model.acall", (), {"text": "x"}, "prompt"),
        ("Model.batch", (), {"prompt": ["x"]}, "prompts"),
        ("describe", (), {"schema": {}}, "constraint"),
        ("compile", (), {"schema": {}}, "constraint"),
        ("audit", (), {"json_schema": {}}, "constraint"),
        ("submit", (), {"regex": "a"}, "constraint"),
        ("decoder", (), {"response_format": {}}, "constraint"),
        ("logits_processor", (), {"tools": [print]}, "constraint"),
    ],
)
def test_arguments_under_other_names_for_those_that_are_missing(
    name: str, given: tuple[Any, ...], wrong: dict[str, Any], meant: str, model_and_tokenizer: tuple[Any, Any]
) -> None:
    with pytest.raises(hg.UnknownArgument, match="unknown argument .*did you mean ") as raised:
        call_of(name, model_and_tokenizer)(*given, **wrong)
    assert raised.value.suggestion == meant and f"did you mean {meant}?" in str(raised.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda pair: hg.generate(*pair, "x"),
            r"'constraint'; write hg\.generate\(model, tokenizer, prompts, constraint\)$",
        ),
        (lambda pair: hg.Guide(pair[1]), r"'tokenizer'; write hg\.Guide\(model, tokenizer\)$"),
        (lambda pair: hg.Model(pair[1]), r"'tokenizer'; write hg\.Model\(model, tokenizer\)$"),
        (lambda pair: hg.generate(*pair, "x", ["a"], 3), "too many positional arguments; write hg.generate"),
        (lambda pair: hg.Guide(*pair).read(["a"]), r"'token_ids'; write guide\.read\(constraint, token_ids\)$"),
    ],
)
def test_a_call_that_does_not_fit_is_shown(call: Any, message: str, model_and_tokenizer: tuple[Any, Any]) -> None:
    with pytest.raises(hg.InvalidArgument, match=message):
        call(model_and_tokenizer)


def columns_of(texts: list[str]) -> dict[str, Any]:
    """The same prompts in the containers that people have."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    return {
        "series": pd.Series(texts, index=range(5, 5 + len(texts))),
        "strings of pandas": pd.Series(texts, dtype="string"),
        "array": np.array(texts),
        "array of objects": np.array(texts, dtype=object),
        "arrow": pa.chunked_array([texts]),
        "generator": (text for text in texts),
        "map": map(str, texts),
        "keys": dict.fromkeys(texts).keys(),
        "deque": deque(texts),
    }


@pytest.mark.parametrize("kind", columns_of(["a"]))
def test_columns_of_prompts_are_lists_of_prompts(kind: str, model_and_tokenizer: tuple[Any, Any]) -> None:
    texts = ["Is it?", "Is it not?"]
    expected = [each.text for each in hg.generate(*model_and_tokenizer, texts, ["yes", "no"])]
    assert [each.text for each in hg.generate(*model_and_tokenizer, columns_of(texts)[kind], ["yes", "no"])] == expected
    assert hg.Model(*model_and_tokenizer).batch(columns_of(texts)[kind], ["yes", "no"]) == expected
    assert hg.Model(*model_and_tokenizer)(columns_of(texts[:1])[kind], ["yes", "no"]) == expected[0]
    assert len(hg.score(*model_and_tokenizer, columns_of(texts)[kind], ["yes", "no"])) == 2


def test_chats_in_columns_are_read(model_and_tokenizer: tuple[Any, Any]) -> None:
    import numpy as np
    import pandas as pd

    from hf_guided.generation.prompts import as_prompts

    chat = [{"role": "user", "content": "x"}]
    cell = np.empty(1, dtype=object)  # as pandas reads a list from a Parquet file
    cell[0] = chat[0]
    assert as_prompts(pd.Series([cell, chat])) == [chat, chat] and as_prompts(iter(chat)) == [chat]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (lambda: __import__("pandas").DataFrame({"prompt": ["a"]}), "pass the column that holds the prompts"),
        (lambda: __import__("pandas").Series(["a", None]), "item 1 is nan of type float"),
        (lambda: (number for number in (1, 2)), "item 0 is 1 of type int"),
        (lambda: {"a", "b"}, "expected a text"),
        (lambda: b"ab", "expected a text"),
        (lambda: torch.tensor([1, 2]), "hg.generate tokenizes by itself"),
        (lambda: [1, 2], "hg.generate tokenizes by itself"),
    ],
)
def test_what_holds_no_prompts_is_refused(prompts: Any, message: str, model_and_tokenizer: tuple[Any, Any]) -> None:
    with pytest.raises(hg.InvalidArgument, match=message):
        hg.generate(*model_and_tokenizer, prompts(), ["yes", "no"])


def test_read_tells_the_prompt_from_the_answer(model_and_tokenizer: tuple[Any, Any]) -> None:
    model, tokenizer = model_and_tokenizer
    guide = hg.Guide(model, tokenizer)
    inputs = tokenizer(["A long prompt: ", "Short: "], return_tensors="pt", padding=True, padding_side="left")
    output = model.generate(**inputs, custom_generate=guide.decoder(["yes", "no"]), max_new_tokens=8)
    start = inputs["input_ids"].shape[1]
    for row in output:
        for whole, answer in (
            (row, row[start:]),
            (row.tolist(), row[start:].tolist()),
            (row.numpy(), row[start:].numpy()),
        ):
            assert guide.read(["yes", "no"], answer).value in ("yes", "no")
            with pytest.warns(UserWarning, match=rf"first {start} of .*output\[row, prompt_length:\]"):
                assert guide.read(["yes", "no"], whole).finish_reason == "dead_end"
            with pytest.raises(hg.InvalidArgument, match=r"constraint before the tokens.*swap the two"):
                guide.read(answer, ["yes", "no"])
    with pytest.raises(hg.InvalidArgument, match="token_ids: expected a list of token ids, got 'yes' of type str"):
        guide.read(["yes", "no"], "yes")
    # A row whose first token other code has forced, and that ends there, is no prompt.
    [first, *_] = tokenizer("yes", add_special_tokens=False)["input_ids"]
    assert guide.read(hg.Regex("[0-9]*"), [first, tokenizer.eos_token_id]).finish_reason == "dead_end"


def test_looking_for_a_prompt_is_bounded(model_and_tokenizer: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every end of this text is a beginning of the pattern: reading them all takes the square of its length."""
    model, tokenizer = model_and_tokenizer
    guide, readers, reader_of = hg.Guide(model, tokenizer), [], Calls.reader_of
    monkeypatch.setattr(
        Calls, "reader_of", lambda *args, **kwargs: readers.append(reader_of(*args, **kwargs)) or readers[-1]
    )
    [letter] = tokenizer("a", add_special_tokens=False)["input_ids"]
    [capital] = tokenizer("A", add_special_tokens=False)["input_ids"]
    assert guide.read(hg.Regex("a*"), [capital, *[letter] * 3000]).finish_reason == "dead_end"
    assert sum(reader.num_taken for reader in readers) < 30_000


def test_acall_is_a_coroutine_function(model_and_tokenizer: tuple[Any, Any]) -> None:
    get = hg.Model(*model_and_tokenizer)
    assert inspect.iscoroutinefunction(get.acall)
    with pytest.raises(hg.InvalidArgument, match="acall: too many positional arguments"):
        asyncio.run(get.acall("Yes? ", ["yes", "no"], 3))
