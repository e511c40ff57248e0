"""What decides how tokens are chosen where a call says nothing: the model's generation config, in every face."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, pipeline

import hf_guided as hg
from hf_guided import demo
from hf_guided.cli.commands import main
from hf_guided.generation.row_answers import RowAnswers, RowRequest, RowSettings
from hf_guided.integrations.answer_columns import AnswerColumns
from hf_guided.integrations.chat_call import ChatCall, ChatFields
from tests.serving import client, serving

PROMPT = demo.EXAMPLES[0].prompt
WORD = hg.Regex("[a-z]{12}")
HOT: dict[str, Any] = {"do_sample": True, "temperature": 6.0, "top_k": 40}


@pytest.fixture
def pair() -> tuple[Any, Any]:
    return demo.load()


def plain(model: Any, tokenizer: Any, **settings: Any) -> str:
    """What transformers writes alone."""
    inputs = tokenizer(PROMPT, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=12, **settings)
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def by_pipeline(model: Any, tokenizer: Any, **settings: Any) -> str:
    hg.register()
    pipe = pipeline("guided-generation", model=model, tokenizer=tokenizer, device="cpu")
    [record] = pipe(PROMPT, response_format=None, max_new_tokens=12, **settings)
    return str(record["generated_text"])


def by_generate(model: Any, tokenizer: Any, **settings: Any) -> str:
    return hg.generate(model, tokenizer, PROMPT, None, max_new_tokens=12, **settings)[0].text


def by_stream(model: Any, tokenizer: Any, **settings: Any) -> str:
    *_, last = hg.generate(model, tokenizer, PROMPT, None, max_new_tokens=12, stream=True, **settings)
    return last.text


def by_agenerate(model: Any, tokenizer: Any, **settings: Any) -> str:
    return asyncio.run(hg.agenerate(model, tokenizer, PROMPT, None, max_new_tokens=12, **settings))[0].text


def by_model(model: Any, tokenizer: Any, **settings: Any) -> str:
    return str(hg.Model(model, tokenizer, max_new_tokens=12, **settings)(PROMPT, None))


FACES = [by_pipeline, by_generate, by_stream, by_agenerate, by_model]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("settings", [{}, HOT, {"do_sample": False, "temperature": 3.0}], ids=["empty", "hot", "cold"])
def test_free_text_is_that_of_generate(pair: Any, face: Callable[..., str], settings: dict[str, Any]) -> None:
    model, tokenizer = pair
    vars(model.generation_config).update(settings)
    torch.manual_seed(5)
    expected = plain(model, tokenizer)
    torch.manual_seed(5)
    assert face(model, tokenizer) == expected
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0, bos_token_id=1)
    assert (plain(model, tokenizer) == expected) == (settings is not HOT), "only the hot one differs from greedy"


def test_pipelines_own_arguments_sample(pair: Any) -> None:
    model, tokenizer = pair
    hg.register()
    pipe = pipeline("guided-generation", model=model, tokenizer=tokenizer, device="cpu", **HOT)
    records = pipe(PROMPT, response_format=WORD, num_return_sequences=4)
    assert len({record["generated_text"] for record in records}) > 1
    with pytest.warns(UserWarning, match="temperature=6.0, top_k=40: ignored"):
        pipe(PROMPT, response_format=WORD, do_sample=False)


@pytest.mark.parametrize("face", [by_pipeline, by_generate])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temperature": 0.7}, "temperature=0.7"),
        ({"temperature": 1.0}, "temperature=1.0"),
        ({"temperature": 0.7, "do_sample": False}, "temperature=0.7"),
        ({"top_p": 0.9, "top_k": 5}, "top_k=5, top_p=0.9"),
        ({"min_p": 0.1, "num_beams": 2}, "min_p=0.1"),
        ({"generation_config": GenerationConfig(temperature=0.7)}, "temperature=0.7"),
    ],
)
def test_what_nothing_reads_is_said_once(
    pair: Any, face: Callable[..., str], settings: dict[str, Any], told: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        face(*pair, **settings)
    [warning] = [each for each in caught if "ignored" in str(each.message)]
    assert issubclass(warning.category, UserWarning)
    assert str(warning.message).startswith(f"{told}: ") and "do_sample=True" in str(warning.message)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7, "do_sample": True},
        {"temperature": 1.0, "top_p": 1.0, "do_sample": False},
        {"temperature": 0},
        {"top_k": 50, "top_p": 1.0, "temperature": None},
        {"temperature": 0.7, "do_sample": True, "num_beams": 2},
    ],
)
def test_what_is_read_or_changes_nothing_is_not_warned_of(pair: Any, settings: dict[str, Any]) -> None:
    by_generate(*pair, **settings)  # warnings are errors
    by_pipeline(*pair, **{name: value for name, value in settings.items() if name != "temperature" or value})


def test_settings_of_a_generation_config_are_not_the_callers(pair: Any) -> None:
    model, tokenizer = pair
    vars(model.generation_config).update(HOT)
    by_generate(model, tokenizer, do_sample=False)
    own = GenerationConfig.from_dict({**model.generation_config.to_dict(), "do_sample": False})
    by_generate(model, tokenizer, generation_config=own)
    by_generate(model, tokenizer, temperature=0.7)  # sampled, as the generation config says


def by_rows(model: Any, tokenizer: Any, temperature: float | None) -> list[str]:
    answers = RowAnswers(model, tokenizer, WORD, RowSettings(max_new_tokens=20, temperature=temperature))
    return [result.text for result in answers.answer([RowRequest("x", WORD)] * 4, range(4))]  # type: ignore[union-attr]


def by_chat_call(model: Any, tokenizer: Any, temperature: float | None) -> list[str]:
    fields = ChatFields(model=model, tokenizer=tokenizer, temperature=temperature)
    return [ChatCall(fields, 20, "x", {"response_format": WORD}).result().text for _ in range(4)]


@pytest.mark.parametrize("face", [by_rows, by_chat_call])
def test_faces_with_a_temperature_of_their_own(pair: Any, face: Callable[..., list[str]]) -> None:
    model, tokenizer = pair
    [greedy] = set(face(model, tokenizer, None))
    vars(model.generation_config).update(HOT)
    assert len(set(face(model, tokenizer, None))) > 1, "as the generation config says"
    assert len(set(face(model, tokenizer, 3.0))) > 1
    assert set(face(model, tokenizer, 0)) == {greedy}


def test_samples_of_a_generation_config_need_numbers_of_rows_too(pair: Any) -> None:
    model, tokenizer = pair
    vars(model.generation_config).update(HOT)
    with pytest.raises(hg.InvalidArgument, match="samples need row_column"):
        AnswerColumns(model, tokenizer, WORD, RowSettings(max_new_tokens=20), prompt_column="prompt")
    greedy = RowSettings(max_new_tokens=20, temperature=0)
    AnswerColumns(model, tokenizer, WORD, greedy, prompt_column="prompt")


def test_rows_take_top_p_where_they_sample(pair: Any) -> None:
    model, tokenizer = pair
    request = RowRequest("x", WORD)
    with pytest.raises(hg.InvalidArgument, match="top_p: expected samples"):
        RowAnswers(model, tokenizer, WORD, RowSettings(max_new_tokens=20, top_p=0.5))
    with pytest.raises(hg.InvalidArgument, match="top_p: expected a number above 0"):
        RowSettings(temperature=0, top_p=0.5)
    [greedy] = set(by_rows(model, tokenizer, 0))
    vars(model.generation_config).update(HOT)
    assert set(by_rows(model, tokenizer, None)) != {greedy}
    for temperature in (None, 6.0):
        settings = RowSettings(max_new_tokens=20, temperature=temperature, top_p=1e-6)  # leaves the best token alone
        [result] = RowAnswers(model, tokenizer, WORD, settings).answer([request], [0])
        assert result.text == greedy  # type: ignore[union-attr]


def saved(folder: Path, **settings: Any) -> Path:
    """The demo model as a checkpoint named "demo" with these settings in its generation config."""
    model, tokenizer = demo.load()
    model.save_pretrained(folder / "demo")
    tokenizer.save_pretrained(folder / "demo")
    file = folder / "demo" / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return folder / "demo"


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def words(model: str, *more: str) -> set[str]:
        for seed in "1234":
            asked = ["--prompt", "x", "--regex", "[a-z]{12}", "--seed", seed, "--device", "cpu", *more]
            assert main(["generate", "--model", model, *asked]) == 0
        return set(capsys.readouterr().out.split())

    hot = str(saved(tmp_path, **HOT))
    [greedy] = words("demo")
    assert words(hot, "--temperature", "0") == {greedy}
    assert len(words(hot)) > 1


def test_server_samples_as_request_then_generation_config_then_temperature_1(tmp_path: Path) -> None:
    def words(api: Any, **asked: Any) -> set[str]:
        asked |= {"prompt": "Number: ", "extra_body": {"guided_regex": "[a-z]{12}"}, "max_tokens": 20}
        return {api.completions.create(model="demo", **asked).choices[0].text for _ in range(5)}

    with serving() as url, client(url) as api:
        [greedy] = words(api, temperature=0)
        assert len(words(api)) > 1, "temperature 1"
        assert words(api, temperature=0.01) == {greedy}
    cold = saved(tmp_path / "cold", do_sample=True, temperature=0.01)
    with serving(cold) as url, client(url) as api:
        assert words(api) == {greedy}
        assert len(words(api, temperature=1)) > 1
    with serving(saved(tmp_path / "greedy", do_sample=False)) as url, client(url) as api:
        assert words(api) == {greedy}
