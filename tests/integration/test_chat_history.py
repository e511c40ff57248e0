"""Earlier tool calls in chats: what small templates, each with one habit of published ones, are given."""

from __future__ import annotations

import copy
import json
import warnings
from typing import Any

import pytest
from transformers import tokenization_utils_base

import hf_guided as hg
from tests import vocabularies
from tests.integration import models

LETTERS = hg.Regex("[a-f]{3,9}")
ARGUMENTS = {"city": 'Rome "old" <é>'}
TEXT = json.dumps(ARGUMENTS, ensure_ascii=False)
KIMI = (
    "{% for m in messages %}<|im_{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}<|tool_calls_section_begin|>"
    "{% for c in m.tool_calls %}<|tool_call_begin|>{{ c['id'] }}<|tool_call_argument_begin|>"
    "{% if c['function']['arguments'] is string %}{{ c['function']['arguments'] }}"
    "{% else %}{{ c['function']['arguments'] | tojson }}{% endif %}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}"
)
WRITERS = {
    "as an object": "{{ f.arguments | tojson }}",
    "as text": "{{ '' + f.arguments }}",
    "as text, printed": "{{ f.arguments }}",
    "as either": "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}",
    "in lines": "{{ f.arguments | tojson(indent=2) }}",
}
ELEMENTS = "{% for k, v in f.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>{% endfor %}"


def template(write: str, *, shows: str = "m.tool_calls", check: str = "") -> str:
    return (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        f"{{% if {shows} %}}{{% for c in m.tool_calls %}}{check}{{% set f = c.function %}}"
        f'<tool_call>\n{{"name": "{{{{ f.name }}}}", "arguments": {write}}}\n</tool_call>'
        "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )


def chat(*ids: Any, arguments: Any = ARGUMENTS, content: Any = "", answers: bool = True) -> list[dict[str, Any]]:
    """A chat with a message of calls with these ids; None stands for no id."""
    calls, tools = [], []
    for number, given in enumerate(ids):
        call: dict[str, Any] = {"type": "function", "function": {"name": f"tool_{number}", "arguments": arguments}}
        answer = {"role": "tool", "name": f"tool_{number}", "content": f"answer {number}"}
        calls.append(call if given is None else {"id": given, **call})
        tools.append(answer if given is None else {**answer, "tool_call_id": given})
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": content, "tool_calls": calls},
    ]
    return [*messages, *(tools if answers else ())]


@pytest.fixture
def tokenizer() -> Any:
    return copy.deepcopy(vocabularies.tiny_byte_level())


def prompt_of(tokenizer: Any, messages: Any, monkeypatch: pytest.MonkeyPatch, constraint: Any = LETTERS) -> str:
    """The prompt that the model is given."""
    model = models.llama(tokenizer)
    model.config.max_position_embeddings = 4096
    seen: list[str] = []
    generate = model.generate

    def heard(*args: Any, **kwargs: Any) -> Any:
        seen.append(tokenizer.decode(kwargs.get("input_ids", kwargs.get("inputs"))[0]))
        return generate(*args, **kwargs)

    monkeypatch.setattr(model, "generate", heard)
    hg.generate(model, tokenizer, messages, constraint, do_sample=False, max_new_tokens=60)
    [text] = seen
    return text


@pytest.mark.parametrize("given", [ARGUMENTS, TEXT])
@pytest.mark.parametrize("writer", WRITERS)
def test_arguments_are_in_the_form_of_the_template(
    tokenizer: Any, writer: str, given: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.chat_template = template(WRITERS[writer])
    text = prompt_of(tokenizer, chat("a", arguments=given), monkeypatch)
    written = text.partition('"arguments": ')[2]
    assert json.JSONDecoder().raw_decode(written)[0] == ARGUMENTS


@pytest.mark.parametrize("given", [ARGUMENTS, TEXT])
def test_elements_are_made_of_an_object(tokenizer: Any, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = template(ELEMENTS)
    text = prompt_of(tokenizer, chat("a", arguments=given), monkeypatch)
    assert f"<parameter=city>\n{ARGUMENTS['city']}\n</parameter>" in text


@pytest.mark.parametrize("content", ["", None])
def test_calls_that_are_shown_only_without_content(
    tokenizer: Any, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.chat_template = template(WRITERS["as text"], shows="m.content is none")
    text = prompt_of(tokenizer, chat("a", "b", content=content), monkeypatch)
    assert text.count(TEXT) == 2


def test_a_call_that_is_left_out_is_warned_of_once(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = template(WRITERS["as text"], shows="m.content is none")
    with pytest.warns(UserWarning, match="does not show the call of 'tool_0' in message 1") as heard:
        prompt_of(tokenizer, chat("a", content="I look."), monkeypatch)
    assert len(heard) == 1
    tokenizer.chat_template = template(WRITERS["as an object"]).replace(
        "m.content }}", "m.content if m.role != 'tool' }}"
    )
    with pytest.warns(UserWarning, match="does not show the tool's answer in message 2") as heard:
        prompt_of(tokenizer, chat("a"), monkeypatch)
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("habit", "lost"),
    [
        ("m.content if not m.tool_calls", "the assistant's text in message 2"),
        ("m.content if m.role != 'system' or loop.last", "the system's text in message 0"),
    ],
)
def test_a_text_that_is_left_out_is_warned_of_once(
    tokenizer: Any, habit: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.chat_template = template(WRITERS["as an object"]).replace("m.content }}", habit + " }}")
    messages = [{"role": "system", "content": "Be kind."}, *chat("a", content="I look.")]
    with pytest.warns(UserWarning, match=f"does not show {lost}, so") as heard:
        prompt_of(tokenizer, messages, monkeypatch)
    assert len(heard) == 1


@pytest.mark.parametrize("ids", [("call_1", "toolu_x"), ("abcdefghi", "call_1"), (None, None), ("a" * 80, "b" * 80)])
def test_refused_ids_are_replaced_one_to_one(
    tokenizer: Any, ids: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = "{% if not c.id is defined or c.id | length != 9 %}{{ raise_exception('ids of length 9') }}{% endif %}"
    tokenizer.chat_template = template("{{ c.id }} {{ f.arguments | tojson }}", check=check) + (
        "{% for m in messages if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endfor %}"
    )
    text = prompt_of(tokenizer, chat(*ids), monkeypatch)
    calls = [piece.split()[0] for piece in text.split('"arguments": ')[1:]]
    answers = [piece.partition("]")[0] for piece in text.split("[")[1:]]
    assert calls == answers and len(set(calls)) == 2
    assert all(len(one) == 9 and one.isalnum() for one in calls)
    assert all(given not in ids or given == own for given, own in zip(ids, calls, strict=True) if given == "abcdefghi")
    # A later turn gives the same ids to the same calls.
    longer = [*chat(*ids), {"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}]
    assert [piece.split()[0] for piece in prompt_of(tokenizer, longer, monkeypatch).split('"arguments": ')[1:]] == calls


def test_ids_that_any_template_takes_stay(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = template("{{ c.id }} {{ f.arguments | tojson }}")
    text = prompt_of(tokenizer, chat("call_1", "toolu_x"), monkeypatch)
    assert "call_1" in text and "toolu_x" in text


def test_kimis_ids_count_over_the_conversation(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(city: str) -> str:
        """Looks up.

        Args:
            city: A city.
        """
        return city

    tokenizer.chat_template = KIMI
    model = models.llama(tokenizer)
    model.config.max_position_embeddings = 4096
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    tools = hg.ToolCalls([look], choice="required", parallel=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the chat template does not show the tools")
        for turn in range(3):
            parts = list(
                hg.generate(model, tokenizer, messages, tools, do_sample=False, max_new_tokens=150, stream=True)
            )
            result = parts[-1].result
            [call] = result.value.calls
            assert call.id == f"functions.look:{turn}"
            assert {one.id for part in parts if part.value is not None for one in part.value.calls} == {call.id}
            messages += [
                result.value.message,
                {"role": "tool", "tool_call_id": call.id, "content": "found"},
            ]
    # Calls of another provider are renamed around those of the family.
    mixed = [*messages, *chat("call_1", "call_2")[1:]]
    text = prompt_of(tokenizer, mixed, monkeypatch)
    found = [piece.partition("<|")[0] for piece in text.split("<|tool_call_begin|>")[1:]]
    assert found == [*(f"functions.look:{n}" for n in range(3)), "functions.tool_0:3", "functions.tool_1:4"]
    assert [piece.partition("]")[0] for piece in text.split("[")[1:]] == found


def test_a_template_that_goes_through_tools_without_any(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = "{% for t in tools %}{{ t }}{% endfor %}" + template(WRITERS["as an object"])
    assert "<user>Go." in prompt_of(tokenizer, chat("a")[:1], monkeypatch)


def test_a_refused_chat_says_what_the_template_says(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    for messages in (chat("a"), chat("a")[:1]):
        with pytest.raises(hg.PromptError, match="roles must alternate"):
            prompt_of(tokenizer, messages, monkeypatch)


@pytest.mark.parametrize("first", [False, True])
def test_the_form_of_arguments_may_depend_on_a_variable(tokenizer: Any, first: bool) -> None:
    """Each variable has its own form, whichever comes first."""
    tokenizer.chat_template = template(
        "{% if text_args %}{{ '' + f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}"
    )
    model = models.llama(tokenizer)
    for text_args in (first, not first):
        variables = {"text_args": True} if text_args else {}
        options = {"do_sample": False, "max_new_tokens": 30, "chat_template_kwargs": variables}
        [result] = hg.generate(model, tokenizer, chat("abcDEF123"), LETTERS, **options)
        assert result.finish_reason == "stop"


@pytest.mark.parametrize("calls", [0, 1])
def test_a_chat_is_rendered_once(tokenizer: Any, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once more with marks, to see whether its calls are shown."""
    tokenizer.chat_template = "{# <think></think> #}" + template(WRITERS["as an object"])
    model = models.llama(tokenizer)
    counted: list[str] = []
    render = tokenization_utils_base.render_jinja_template

    def heard(*args: Any, **kwargs: Any) -> Any:
        counted.append(kwargs["conversations"][0][0]["content"])
        return render(*args, **kwargs)

    monkeypatch.setattr(tokenization_utils_base, "render_jinja_template", heard)
    messages = [{"role": "user", "content": "Once."}, *(chat("abcDEF123")[1:] if calls else ())]
    hg.generate(model, tokenizer, messages, LETTERS, do_sample=False, max_new_tokens=30)
    assert counted.count("Once.") == 1


def test_the_chat_is_not_changed(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.chat_template = template(WRITERS["as text"], shows="m.content is none")
    messages = chat(None, "call_1", content=None)
    before = copy.deepcopy(messages)
    prompt_of(tokenizer, messages, monkeypatch)
    assert messages == before


# -- where an answer begins --------------------------------------------------------------------------------------------

ANSWERS = {
    # What is written before an answer's text, and at the end of prompts; and what an answer without thinking follows.
    "a header": ("<a><text>", "<a>", "<a><text>"),
    "a name": (">>>all\n", ">>>", ">>>all\n"),
    "a header after no thinking": ("<a><text>", "<a><think></think>", "<a><think></think><text>"),
    "a header after thinking": ("<a><text>", "<a><think>", "<a><think></think><text>"),
    "thinking that is closed": ("<a><think>\n\n</think>\n\n", "<a><think>\n", "<a><think>\n\n</think>\n\n"),
    "thinking that is open in the chat": ("<a><think>", "<a>", "<a>"),
    "thinking that the chat leaves out": ("<a>", "<a><think>", "<a><think></think>"),
    "a space": ("<a> ", "<a>", "<a>"),
    "no beginning of an answer": ("<a>", "", "Go.\n"),
    "another beginning": ("<a>", "<b>", "<b>"),
    "thoughts in words": ("<a>", "<a>Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]\n\n"),
}


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("habit", ANSWERS)
def test_an_answer_begins_as_those_of_the_chat(
    tokenizer: Any, habit: str, always: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, end, expected = ANSWERS[habit]
    marker = "[BEGIN FINAL RESPONSE]" if "reasoning" in end else "</think>" if "think" in before + end else ""
    tokenizer.chat_template = (
        f"{{# {marker} #}}{{% for m in messages %}}{{% if m.role == 'assistant' %}}{before}{{% else %}}<u>{{% endif %}}"
        f"{{{{ m.content }}}}\n{{% endfor %}}{{% if add_generation_prompt{' or true' if always else ''} %}}{end}"
        "{% endif %}"
    ).replace("\n", "{{ '\\n' }}")
    assert prompt_of(tokenizer, [{"role": "user", "content": "Go."}], monkeypatch).endswith(expected)


def test_the_header_follows_the_thinking(tokenizer: Any) -> None:
    tokenizer.chat_template = (
        "{# <think></think> #}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<text>{% endif %}"
        "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    model = models.llama(tokenizer)
    [result] = hg.generate(
        model,
        tokenizer,
        [{"role": "user", "content": "Go."}],
        LETTERS,
        do_sample=False,
        max_new_tokens=60,
        reasoning=hg.Reasoning(max_tokens=5),
    )
    written = tokenizer.decode(result.token_ids)
    assert written.startswith("<think>") and f"</think><text>{result.text}" in written
