"""What the server's prompts say of tools where the model's chat template says nothing of them."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import pytest

import hf_guided as hg
from hf_guided.errors import PromptError
from hf_guided.serve.job import Chat
from hf_guided.serve.models import ServedModel
from tests import media_models, vocabularies

NO_TOOLS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
SHOWS_TOOLS = "{{ tools | tojson if tools else '' }}" + NO_TOOLS
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"id": "a1B2c3D4e", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}

USER: dict[str, object] = {"role": "user", "content": "Weather?"}


def prompt_of(template: str, tool_format: str, messages: list[dict[str, object]], choice: str = "auto") -> str:
    tokenizer = copy.copy(vocabularies.demo())
    tokenizer.chat_template = template
    served = ServedModel(None, tokenizer, f"{template} {tool_format}", tool_format)
    tools = None if choice == "none" else hg.ToolCalls([TOOL], format="json" if tool_format == "json" else "qwen_3")
    ids, _ = served.render(Chat(tuple(messages), tools), {})
    return str(tokenizer.decode(ids))


def test_a_json_notation_is_described_with_its_tools() -> None:
    text = prompt_of(NO_TOOLS, "json", [{"role": "user", "content": "Weather?"}])
    assert "get_weather" in text and "Tells the weather." in text and "<tool_call>" in text
    assert prompt_of(NO_TOOLS, "json", [{"role": "user", "content": "Weather?"}], "none") == "<user>Weather?</user>"
    shown = prompt_of(SHOWS_TOOLS, "json", [{"role": "user", "content": "Weather?"}])
    assert shown.count("get_weather") == 1 and "<tool_call>" not in shown


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_earlier_calls_and_answers_are_shown_as_text(choice: str) -> None:
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": "22 degrees"},
    ]
    text = prompt_of(NO_TOOLS, "json", messages, choice)
    call = text.partition("<assistant><tool_call>")[2].partition("</tool_call>")[0]
    assert json.loads(call) == {"name": "get_weather", "arguments": {"city": "Rome"}}
    assert "22 degrees" in text


# As many have it: turns alternate, no other role is known, and content of models that see is a list.
STRICT = (
    "{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}{{ raise_exception('no ' ~ m.role)"
    " }}{% endif %}<{{ m.role }}>{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}"
    "</{{ m.role }}>{% endfor %}"
)


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("said", [(), ("I look.",), ("I look.", " Wait.")])
def test_earlier_calls_of_a_model_that_sees_are_shown_as_text(said: tuple[str, ...]) -> None:
    processor = copy.copy(media_models.llava()[1])
    processor.chat_template = STRICT
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": parts("Weather?")},
        {"role": "assistant", "content": parts(*said), "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": parts("22 ", "degrees")},
        {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": []},
        {"role": "user", "content": parts("Tomorrow?")},
    ]
    before = copy.deepcopy(messages)
    served = ServedModel(None, processor, f"sees {said}", "json")
    ids, _ = served.render(Chat(tuple(messages), hg.ToolCalls([TOOL], format="json")), {})
    first, _, rest = str(served.tokenizer.decode(ids)).partition("<assistant>")
    called, _, answered = rest.partition("</assistant>")
    assert "Tells the weather." in first and first.endswith("Weather?</user>")
    text, _, call = called.partition("<tool_call>")
    assert text == ("".join(said) + "\n" if said else "")
    assert json.loads(call.removesuffix("</tool_call>")) == {"name": "get_weather", "arguments": {"city": "Rome"}}
    responses = "<tool_response>\n22 degrees\n</tool_response>\n<tool_response>\n\n</tool_response>"
    assert answered == f"<user>{responses}\nTomorrow?</user>"
    assert messages == before


def test_a_description_that_the_template_refuses_is_not_blamed() -> None:
    system: dict[str, object] = {"role": "system", "content": "Be brief."}
    with pytest.raises(PromptError, match="^the chat template refuses these messages: no system$"):
        prompt_of(STRICT.replace("for p in m.content", "for p in []"), "json", [system])
    with pytest.raises(PromptError, match="^the chat template shows no tools, .* leave tools out"):
        prompt_of("{{ messages[-1].content }}", "json", [USER, {"role": "assistant", "content": "Rain."}])


def test_tools_that_a_template_does_not_show_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hf_guided.serve"):
        for _ in range(2):
            prompt_of(NO_TOOLS, "qwen_3", [{"role": "user", "content": "Weather?"}])
        prompt_of(SHOWS_TOOLS, "qwen_3", [{"role": "user", "content": "Weather?"}])
    [record] = caplog.records
    assert "does not show the tools" in record.message and "--tool-format json" in record.message
