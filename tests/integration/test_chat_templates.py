"""What chat templates are given, in every face that takes chats: tools, documents, variables, descriptions."""

from __future__ import annotations

import copy
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import pipeline
from transformers.generation.continuous_batching import ContinuousBatchingManager

import hf_guided as hg
from hf_guided import demo
from hf_guided.generation.prompts import _hint
from tests import vocabularies
from tests.integration import models
from tests.pairs import one_in
from tests.tools import now, weather

TEMPLATE = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}{% if documents %}DOCS {{ documents | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
    "{# calls are written as <tool_call> #}"
)
PLAIN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}{# <tool_call> #}"
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + PLAIN
)
DROPS = PLAIN.replace("%}<", "%}{% if m['role'] != 'system' %}<").replace("\n", "\n{% endif %}")
PARTS = "{% for m in messages %}<{{ m['role'] }}>{% for p in m['content'] %}{{ p['text'] }}{% endfor %}\n{% endfor %}"
CHAT = [{"role": "user", "content": "weather in Rome?"}]
OTHER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "and the time?"}]
LETTERS = hg.Regex("[a-f]{3,9}")
DOCUMENTS = [{"title": "Rome", "text": "It is in Italy."}]


WEATHER = hg.ToolCalls([weather], choice="required", parallel=False)
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
NOW = hg.ToolCalls([now], choice="required", parallel=False)


@pytest.fixture
def tokenizer() -> Any:
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.chat_template = TEMPLATE
    return tokenizer


class Prompts:
    """The prompts that a model's generate() is given, as text."""

    def __init__(self, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch):
        self.model, self._tokenizer, self.texts = model, tokenizer, []
        generate = model.generate

        def heard(*args: Any, **kwargs: Any) -> Any:
            ids = kwargs.get("input_ids", kwargs.get("inputs"))
            mask = kwargs.get("attention_mask", torch.ones_like(ids))
            self.texts += [tokenizer.decode(row[kept.bool()]) for row, kept in zip(ids, mask, strict=True)]
            return generate(*args, **kwargs)

        monkeypatch.setattr(model, "generate", heard)
        add_request = ContinuousBatchingManager.add_request

        def heard_together(manager: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            self.texts.append(tokenizer.decode(input_ids))
            return add_request(manager, input_ids, *args, **kwargs)

        monkeypatch.setattr(ContinuousBatchingManager, "add_request", heard_together)

    def rendered(self, chat: Any, **arguments: Any) -> str:
        return str(self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **arguments))


@pytest.fixture
def sent(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Prompts:
    model = models.llama(tokenizer)
    model.config.max_position_embeddings = 4096
    return Prompts(model, tokenizer, monkeypatch)


SHORT = {"max_new_tokens": 100, "do_sample": False}
FACES: dict[str, dict[str, Any]] = {
    "batches": {},
    "one by one": {"batch_size": 1},
    "stream": {"stream": True},
    "continuous": {"continuous_batching": True},
    "plain loop": {"jump_forward": False},
}


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", one_in(2, FACES))
def test_each_chat_shows_the_tools_of_its_own_constraint(sent: Prompts, tokenizer: Any, face: str) -> None:
    chats, constraints = [CHAT, OTHER, CHAT, "a text"], [WEATHER, NOW, LETTERS, LETTERS]
    list(hg.generate(sent.model, tokenizer, chats, constraints, **SHORT, **FACES[face]))
    # After a manager, the first answer, which its limit changed, takes one more pass over its prompt.
    assert sent.texts[4:] == sent.texts[:1] * (face == "continuous")
    assert sent.texts[:4] == [
        sent.rendered(CHAT, tools=[weather]),
        sent.rendered(OTHER, tools=[now]),
        sent.rendered(CHAT),
        "a text",
    ]
    assert "TOOLS" in sent.texts[0] and "Tells the weather." in sent.texts[0]


def test_tools_as_dicts(sent: Prompts, tokenizer: Any) -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    hg.generate(sent.model, tokenizer, CHAT, hg.ToolCalls(tools, choice="now"), **SHORT)
    assert sent.texts == [sent.rendered(CHAT, tools=tools)]


def test_what_is_not_shown(sent: Prompts, tokenizer: Any) -> None:
    hg.generate(sent.model, tokenizer, CHAT, WEATHER, show_tools=False, **SHORT)
    hg.generate(sent.model, tokenizer, CHAT, hg.ToolCalls([now], choice="none"), **SHORT)
    assert sent.texts == [sent.rendered(CHAT)] * 2
    own = {"tools": [now]}
    hg.generate(sent.model, tokenizer, CHAT, WEATHER, chat_template_kwargs=own, **SHORT)
    hg.generate(sent.model, tokenizer, CHAT, LETTERS, chat_template_kwargs=own, **SHORT)
    assert sent.texts[2:] == [sent.rendered(CHAT, tools=[now])] * 2


def test_a_template_that_ignores_tools_is_warned_of(sent: Prompts, tokenizer: Any) -> None:
    tokenizer.chat_template = PLAIN
    with pytest.warns(UserWarning, match="does not show the tools") as heard:
        hg.generate(sent.model, tokenizer, [CHAT, OTHER], WEATHER, **SHORT)
    assert sum("tools" in str(one.message) for one in heard) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "max_new_tokens=100 shortened")
        hg.generate(sent.model, tokenizer, CHAT, WEATHER, show_tools=False, **SHORT)
        hg.generate(sent.model, tokenizer, CHAT, WEATHER, describe=True, **SHORT)
        hg.generate(sent.model, tokenizer, "a text", WEATHER, show_tools=False, **SHORT)
        hg.generate(sent.model, tokenizer, "a text", WEATHER, describe=True, **SHORT)
    assert hg.describe(WEATHER, tokenizer) in sent.texts[-3] and hg.describe(WEATHER, tokenizer) in sent.texts[-1]


def test_plain_prompts_do_not_show_tools(sent: Prompts, tokenizer: Any) -> None:
    with pytest.warns(UserWarning, match=r"plain prompt does not show the tools.*pass a chat.*describe=True") as heard:
        hg.generate(sent.model, tokenizer, ["a text", "another"], WEATHER, **SHORT)
    assert sum("tools" in str(one.message) for one in heard) == 1 and sent.texts == ["a text", "another"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "max_new_tokens=100 shortened")
        hg.generate(sent.model, tokenizer, "a text", hg.ToolCalls([now], choice="none"), **SHORT)
        hg.generate(sent.model, tokenizer, "a text", LETTERS, **SHORT)


# -- what a template does not read -------------------------------------------------------------------------------------


def test_variables_that_no_template_reads_are_warned_of(sent: Prompts, tokenizer: Any) -> None:
    given: list[tuple[dict[str, Any], str]] = [
        (
            {"chat_template_kwargs": {"enable_thinkin": False}},
            r"reads enable_thinkin, .*mean 'enable_thinking'\?",
        ),
        (
            {"chat_template_kwargs": {"think": 1, "effort": 2}},
            r"reads effort, think, .*documents, enable_th.*, tools",
        ),
    ]
    for arguments, message in given:
        with pytest.warns(UserWarning, match=message) as heard:
            hg.generate(sent.model, tokenizer, [CHAT, OTHER], LETTERS, **arguments, **SHORT)
        assert len(heard) == 1
    tokenizer.chat_template = "{% generation %}" + PLAIN + "{% endgeneration %}"
    for arguments, name in (
        ({"documents": DOCUMENTS}, "documents"),
        ({"chat_template_kwargs": {"tools": [now]}}, "tools"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "enable_thinking"),
    ):
        with pytest.warns(UserWarning, match=f"never reads {name}, .*no variables but the messages"):
            hg.generate(sent.model, tokenizer, CHAT, LETTERS, **arguments, **SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kwargs in ({"chat_template": TEMPLATE, "enable_thinking": True}, {"enable_thinking": None}):
            hg.generate(sent.model, tokenizer, CHAT, LETTERS, chat_template_kwargs=kwargs, **SHORT)


TYPED = (
    "{% for m in messages %}<{{ m['role'] }}>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}"
)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "img", "img": "x.png"}, r"part 1: .*type 'img'.*one of text, image, .*did you mean 'image'\?"),
        ({"type": "tex", "text": "never rendered"}, r"did you mean 'text'\?"),
        ({"type": "adio", "url": "x.wav"}, r"did you mean 'audio'\?"),
        ({"text": "no type"}, "part of type ''"),
        ({"type": "text", "content": "another key"}, "leaves out the part of type 'text'"),
        ({"type": "document", "text": "x"}, "part of type 'document'.*expected one of text, image"),
    ],
)
def test_a_part_that_the_template_leaves_out_is_refused(
    sent: Prompts, tokenizer: Any, part: dict[str, Any], message: str
) -> None:
    tokenizer.chat_template = TYPED
    text = {"type": "text", "text": "What is this?"}
    with pytest.raises(hg.PromptError, match=message):
        hg.generate(sent.model, tokenizer, [{"role": "user", "content": [text, part]}], LETTERS, **SHORT)
    assert not sent.texts
    hg.generate(sent.model, tokenizer, [{"role": "user", "content": [text, text]}], LETTERS, **SHORT)
    history = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, text]}]
    hg.generate(sent.model, tokenizer, [*CHAT, *history, *CHAT], LETTERS, **SHORT)
    tokenizer.chat_template = PARTS  # shows every part that has a text
    hg.generate(
        sent.model, tokenizer, [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], LETTERS, **SHORT
    )
    assert sent.texts[-1].strip() == "<user>Hi"


# -- variables and documents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", FACES)
def test_variables_and_documents(sent: Prompts, tokenizer: Any, face: str) -> None:
    given = {"chat_template_kwargs": {"enable_thinking": False}, "documents": DOCUMENTS}
    list(hg.generate(sent.model, tokenizer, [CHAT, OTHER, "text"], LETTERS, **given, **SHORT, **FACES[face]))
    expected = [sent.rendered(chat, enable_thinking=False, documents=DOCUMENTS) for chat in (CHAT, OTHER)]
    assert sent.texts == [*expected, "text"]
    assert all("DOCS" in text and text.endswith("<think></think>") for text in expected)


def test_one_for_each_prompt(sent: Prompts, tokenizer: Any) -> None:
    kwargs, documents = [{"enable_thinking": False}, {}], [None, DOCUMENTS]
    hg.generate(
        sent.model, tokenizer, [CHAT, OTHER], LETTERS, chat_template_kwargs=kwargs, documents=documents, **SHORT
    )
    assert sent.texts == [sent.rendered(CHAT, enable_thinking=False), sent.rendered(OTHER, documents=DOCUMENTS)]
    hg.generate(sent.model, tokenizer, CHAT, LETTERS, chat_template_kwargs={"chat_template": PLAIN}, **SHORT)
    assert sent.texts[-1] == sent.rendered(CHAT, chat_template=PLAIN)


@pytest.mark.parametrize(
    ("prompts", "given", "error", "says"),
    [
        (CHAT, {"chat_template_kwargs": {"add_generation_prompt": False}}, ValueError, "add_generation_prompt cannot"),
        (CHAT, {"chat_template_kwargs": "x"}, ValueError, "expected a dict"),
        (CHAT, {"chat_template_kwargs": {"documents": []}, "documents": DOCUMENTS}, ValueError, "one of the two"),
        ([CHAT, CHAT], {"chat_template_kwargs": [{}]}, hg.BatchSizeError, "one for each of 2"),
        ([CHAT, CHAT], {"documents": [DOCUMENTS]}, hg.BatchSizeError, "one for each of 2"),
        (["a", "b"], {"documents": DOCUMENTS}, hg.PromptError, "which no chat template renders"),
        ([CHAT, "b"], {"documents": [None, DOCUMENTS]}, hg.PromptError, "which no chat template renders"),
        (["a"], {"chat_template_kwargs": {"enable_thinking": False}}, hg.PromptError, "which no chat template renders"),
        (CHAT, {"chat_template_kwargs": {"chat_template": "{{ raise_exception('no') }}"}}, hg.PromptError, "refuses"),
        (CHAT, {"chat_template_kwargs": {"chat_template": "{{ oops"}}, hg.PromptError, "TemplateSyntaxError"),
    ],
)
def test_what_is_refused(sent: Prompts, tokenizer: Any, prompts: Any, given: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        hg.generate(sent.model, tokenizer, prompts, LETTERS, **given, **SHORT)
    assert not sent.texts


def test_a_tokenizer_without_a_template(sent: Prompts, tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(hg.PromptError, match="set tokenizer.chat_template"):
        hg.generate(sent.model, tokenizer, CHAT, LETTERS, **SHORT)


# -- descriptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "constraint", "is_named"),
    [
        ("Which colour?", ["red", "blue"], False),
        ("Which colour, red or Blue?", ["red", "blue"], True),
        ("Who?", PERSON, False),
        ("Who? Answer as JSON.", PERSON, True),
        ("Who? The name, please.", PERSON, True),
        ("When?", re.compile("[0-9]{4}"), False),
        ("When? In this format: 2026.", re.compile("[0-9]{4}"), True),
        ("When?", None, True),
        ("When?", NOW, True),
    ],
)
def test_a_chat_that_does_not_name_the_format_has_one_hint(
    tokenizer: Any, content: str, constraint: Any, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _hint.cache_clear()
    model, chat = models.llama(tokenizer), [{"role": "user", "content": content}]
    hg.generate(model, tokenizer, chat, constraint, describe=True, **SHORT)
    hg.generate(model, tokenizer, content, constraint if is_named else ["a"], show_tools=False, **SHORT)  # not a chat
    assert not caplog.records
    for _ in range(2):
        hg.generate(model, tokenizer, chat, constraint, **SHORT)
    assert [record.name for record in caplog.records] == ([] if is_named else ["hf_guided"])
    assert is_named or "describe=True" in caplog.text


@pytest.mark.parametrize("face", one_in(2, FACES, first=1))
def test_descriptions(sent: Prompts, tokenizer: Any, face: str) -> None:
    number = hg.JsonSchema({"type": "integer", "minimum": 0, "maximum": 9})
    prompts, constraints = [CHAT, OTHER, "text", CHAT, "free"], [LETTERS, number, number, None, None]
    list(hg.generate(sent.model, tokenizer, prompts, constraints, describe=True, **SHORT, **FACES[face]))
    letters, digit = hg.describe(LETTERS), hg.describe(number)
    assert sent.texts == [
        sent.rendered([{"role": "system", "content": letters}, *CHAT]),
        sent.rendered([{"role": "system", "content": f"Be brief.\n\n{digit}"}, OTHER[1]]),
        f"{digit}\n\ntext",
        sent.rendered(CHAT),
        "free",
    ]
    assert "integer (0..9)" in digit


@pytest.mark.parametrize("template", [REFUSES, DROPS], ids=["refuses", "drops"])
def test_a_template_without_system_messages(sent: Prompts, tokenizer: Any, template: str) -> None:
    tokenizer.chat_template = template
    chat = [*CHAT, {"role": "assistant", "content": "?"}, {"role": "user", "content": "please"}]
    hg.generate(sent.model, tokenizer, chat, LETTERS, describe=True, **SHORT)
    said = {"role": "user", "content": f"{hg.describe(LETTERS)}\n\n{CHAT[0]['content']}"}
    assert sent.texts == [sent.rendered([said, *chat[1:]])]
    with pytest.raises(hg.PromptError, match="put hg.describe"):
        hg.generate(sent.model, tokenizer, [{"role": "assistant", "content": "x"}], LETTERS, describe=True, **SHORT)


def test_messages_in_parts(sent: Prompts, tokenizer: Any) -> None:
    tokenizer.chat_template = PARTS

    def parts(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    chat = [{"role": "user", "content": parts("a")}]
    hg.generate(sent.model, tokenizer, chat, LETTERS, describe=True, **SHORT)
    system = [{"role": "system", "content": parts("Be brief.")}, *chat]
    hg.generate(sent.model, tokenizer, system, LETTERS, describe=True, **SHORT)
    said = hg.describe(LETTERS)
    assert sent.texts == [
        sent.rendered([{"role": "system", "content": parts(said)}, *chat]),
        sent.rendered([{"role": "system", "content": parts("Be brief.", f"\n\n{said}")}, *chat]),
    ]


def test_tools_that_are_shown_are_not_described_again(sent: Prompts, tokenizer: Any) -> None:
    hg.generate(sent.model, tokenizer, CHAT, WEATHER, describe=True, **SHORT)
    told = {"role": "system", "content": "Call one tool."}
    hg.generate(sent.model, tokenizer, "a text", WEATHER, describe=True, **SHORT)
    assert sent.texts == [
        sent.rendered([told, *CHAT], tools=[weather]),
        f"{hg.describe(WEATHER, tokenizer)}\n\na text",
    ]
    assert '<tool_call>\n{"name": "weather", "arguments": [JSON: {' in sent.texts[1]


# -- the other faces ---------------------------------------------------------------------------------------------------


def test_the_pipeline(sent: Prompts, tokenizer: Any) -> None:
    hg.register()
    guided = pipeline("guided-generation", model=sent.model, tokenizer=tokenizer)
    given = {"chat_template_kwargs": {"enable_thinking": False}, "documents": DOCUMENTS, "describe": True}
    records = guided([CHAT, OTHER], response_format=[WEATHER, LETTERS], return_full_text=True, **given, **SHORT)
    rest = {"enable_thinking": False, "documents": DOCUMENTS}
    assert sent.texts == [
        sent.rendered([{"role": "system", "content": "Call one tool."}, *CHAT], tools=[weather], **rest),
        sent.rendered([{"role": "system", "content": f"Be brief.\n\n{hg.describe(LETTERS)}"}, OTHER[1]], **rest),
    ]
    # What comes back is the chat as it was given.
    assert [record["generated_text"][:-1] for [record] in records] == [CHAT, OTHER]
    sent.texts.clear()
    guided("text", response_format=LETTERS, describe=True, **SHORT)
    guided(CHAT, response_format=WEATHER, tools=[now], **SHORT)
    guided(CHAT, response_format=WEATHER, show_tools=False, **SHORT)
    begun = [*CHAT, {"role": "assistant", "content": "ab"}]
    [record] = guided(begun, response_format=LETTERS, describe=True, **SHORT)
    said = {"role": "system", "content": hg.describe(LETTERS)}
    assert sent.texts == [
        f"{hg.describe(LETTERS)}\n\ntext",
        sent.rendered(CHAT, tools=[now]),
        sent.rendered(CHAT),
        str(tokenizer.apply_chat_template([said, *begun], continue_final_message=True, tokenize=False)),
    ]
    assert LETTERS.parse("ab" + record["generated_text"])


@pytest.mark.parametrize(
    "given", [{"chat_template_kwargs": {"enable_thinking": False}}, {"documents": DOCUMENTS}, {"tools": [now]}]
)
def test_the_pipeline_refuses_what_a_text_would_not_show(sent: Prompts, tokenizer: Any, given: dict[str, Any]) -> None:
    hg.register()
    guided = pipeline("guided-generation", model=sent.model, tokenizer=tokenizer)
    with pytest.raises(hg.PromptError, match="expected chats, got plain texts"):
        guided("a text", response_format=LETTERS, **given, **SHORT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("model")
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    model.save_pretrained(found)
    tokenizer.save_pretrained(found)
    return found


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts of every model, as text of the demo's tokenizer."""
    from transformers import LlamaForCausalLM

    tokenizer, texts, generate = vocabularies.demo(), [], LlamaForCausalLM.generate

    def listening(model: Any, *args: Any, **kwargs: Any) -> Any:
        ids = kwargs.get("input_ids", kwargs.get("inputs"))
        mask = kwargs.get("attention_mask", torch.ones_like(ids))
        texts.extend(tokenizer.decode(row[kept.bool()]) for row, kept in zip(ids, mask, strict=True))
        return generate(model, *args, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "generate", listening)
    return texts


def rendered(chat: Any, **arguments: Any) -> str:
    tokenizer = vocabularies.demo()
    return str(
        tokenizer.apply_chat_template(
            chat, chat_template=TEMPLATE, add_generation_prompt=True, tokenize=False, **arguments
        )
    )


def test_the_command_line(folder: Path, heard: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hf_guided.cli.commands import main

    documents = tmp_path / "documents.json"
    documents.write_text(json.dumps(DOCUMENTS))
    asked = ["generate", "--model", str(folder), "--regex", LETTERS.pattern, "--prompt", "hi"]
    options = ["--describe", "--chat-template-kwargs", '{"enable_thinking": false}', "--documents", str(documents)]
    assert main([*asked, "--chat", *options]) == 0
    said = [{"role": "system", "content": hg.describe(LETTERS)}, {"role": "user", "content": "hi"}]
    assert heard == [rendered(said, enable_thinking=False, documents=DOCUMENTS)]
    assert main([*asked, "--describe"]) == 0
    assert heard[1:] == [f"{hg.describe(LETTERS)}\n\nhi"]
    capsys.readouterr()
    assert main([*asked, "--documents", str(documents)]) == 2
    assert "add --chat" in capsys.readouterr().err
    documents.write_text('{"no": "list"}')
    assert main([*asked, "--chat", "--documents", str(documents)]) == 2
    assert "expected a list of objects" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*asked, "--chat-template-kwargs", "[1]"])
    assert "expected a JSON object" in capsys.readouterr().err


def test_data_sets(folder: Path, heard: list[str], tmp_path: Path) -> None:
    from hf_guided.cli.batch.__main__ import main

    rows = [{"prompt": "a"}, {"prompt": CHAT, "documents": DOCUMENTS}, {"prompt": OTHER, "documents": "no list"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--model", str(folder), "--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    options = ["--describe", "--chat-template-kwargs", '{"enable_thinking": false}', "--device", "cpu"]
    assert main([*asked, "--regex", LETTERS.pattern, *options]) == 0
    said = [{"role": "system", "content": hg.describe(LETTERS)}, *CHAT]
    assert heard == [rendered(said, enable_thinking=False, documents=DOCUMENTS)]
    text, documents = map(json.loads, (tmp_path / "out.failures.jsonl").read_text().splitlines())
    assert text["row"] == 0 and "expected a chat, got a text" in text["error"]
    assert documents["row"] == 2 and "--documents-column" in documents["error"]


def test_smolagents(folder: Path, heard: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own imports, which call transformers by names of old
        from hf_guided.integrations.smolagents import GuidedTransformersModel

        model = GuidedTransformersModel(str(folder), device_map="cpu", max_new_tokens=200, do_sample=False)
    chat = [{"role": "user", "content": [{"type": "text", "text": "weather in Rome?"}]}]
    given = {"chat_template_kwargs": {"enable_thinking": False}, "documents": DOCUMENTS}
    model.generate(chat, response_format=WEATHER, **given)
    "".join(delta.content for delta in model.generate_stream(chat, response_format=LETTERS, describe=True))
    model.generate(chat, response_format=WEATHER, show_tools=False)
    said = [{"role": "system", "content": hg.describe(LETTERS)}, *CHAT]
    assert heard == [
        rendered(CHAT, tools=[weather], enable_thinking=False, documents=DOCUMENTS),
        rendered(said),
        rendered(CHAT),
    ]
