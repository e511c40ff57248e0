"""Tool calls of every family: what hot random models write, what chat templates write, and that both are read back.

Two oracles that are not ours: transformers' own parser of responses, told each family's syntax by a pattern, reads what
was generated; and chat templates in each family's syntax, rendered by transformers, write what has to be accepted.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import jsonschema
import pytest
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_parsing import parse_response

import hf_guided as hg
from hf_guided.tool_formats import formats
from tests.integration import models

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 6},
        "days": {"type": "integer", "minimum": -3, "maximum": 14},
        "codes": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2, "uniqueItems": False},
        "unit": {"enum": ["c", "f", 5]},
        "note": {"type": ["string", "null"], "maxLength": 4},
    },
    "required": ["city", "unit"],
}
SCHEMAS = {"weather": PARAMETERS, "now": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": one}} for name, one in SCHEMAS.items()]
CHOICES = ("auto", "required", "weather", "now", "none")
CALLS = [
    hg.ToolCall("weather", {"city": 'Ö "x"', "days": 3, "codes": ["a", "<"], "unit": "c"}),
    hg.ToolCall("now", {}),
    hg.ToolCall("weather", {"city": "5", "unit": 5, "note": None}),
]


class Family(NamedTuple):
    """How a family writes calls.

    Args:
        begin, end: around all calls.
        call: one, a Jinja template of ``call`` and ``i``.
        between: calls.
        opens, closes: a pattern of what stands before a call's arguments, and what stands behind them.
        element: a pattern of one argument; None where the arguments are JSON.
        before: what an answer begins with that calls at once.
    """

    begin: str
    call: str
    end: str
    between: str
    opens: str
    closes: str
    element: str | None = None
    before: str = ""


_NL = '{{ "\\n" }}'  # Jinja drops line ends behind its blocks
_ARGS = "{% for k, v in call.arguments.items() %}"
_VALUE = "{{ v if v is string else v | tojson }}"
_SCOPE = "]<]minimax[>["
_NAME = '(?P<name>[^"<>\\n]+)'


def _json_family(opens: str, closes: str, **more: str) -> Family:
    """Calls of which nothing but the name and the arguments, as JSON, is free."""
    parts = {"begin": "", "end": "", "between": "", **more}
    pattern = re.escape(opens).replace("NAME", _NAME).replace("NUMBER", "[0-9]+")
    call = opens.replace("NAME", "{{ call.name }}").replace("NUMBER", "{{ i }}").replace("\n", _NL)
    return Family(
        call=f"{call}{{{{ call.arguments | tojson }}}}{closes}".replace("\n", _NL),
        opens=pattern,
        closes=closes,
        **parts,
    )


def _elements(opens: str, element: str, closes: str, **more: str) -> Family:
    """Calls that write each argument as an element, in which K is its name, V its value and T tells its type."""
    parts = {"begin": "", "end": "", "between": "", **more}
    kind = more.pop("kind", "")
    parts.pop("kind", None)
    pattern = re.escape(opens).replace("NAME", _NAME).replace("NUMBER", "[0-9]+")
    call = opens.replace("NAME", "{{ call.name }}").replace("NUMBER", "{{ i }}")
    each = element.replace("KEY", "{{ k }}").replace("VALUE", _VALUE).replace("TYPE", kind)
    one = (
        re.escape(element)
        .replace("KEY", '(?P<key>[^"<>]+)')
        .replace("VALUE", "(?P<value>.*?)")
        .replace("TYPE", "[a-z]+")
    )
    jinja = f"{call}{_ARGS}{each}{{% endfor %}}{closes}".replace("\n", _NL)
    return Family(call=jinja, opens=pattern, closes=closes, element=one, **parts)


_BOOL = '{{ "true" if v is string else "false" }}'
_TYPE = '{{ "null" if v is none else "string" if v is string else "number" if v is number else "array" }}'
_COFL = '{{ "raw" if v is string else "json" }}'
_DS = "｜DSML｜"


def _dsml(section: str, space: str = "") -> Family:
    return _elements(
        f'<{_DS}{space}invoke name="NAME">\n',
        f'<{_DS}{space}parameter name="KEY" string="TYPE">VALUE</{_DS}{space}parameter>\n',
        f"</{_DS}{space}invoke>\n",
        kind=_BOOL,
        begin=f"\n\n<{_DS}{section}>\n",
        end=f"</{_DS}{section}>",
    )


_THINK = {"begin": "<｜tool▁calls▁begin｜>", "end": "<｜tool▁calls▁end｜>"}
_QWEN_CODER = _elements(
    "<tool_call>\n<function=NAME>\n",
    "<parameter=KEY>\nVALUE\n</parameter>\n",
    "</function>\n</tool_call>",
    between="\n",
)
FAMILIES: dict[str, Family] = {
    "llama": _json_family('{"name": "NAME", "parameters": ', "}"),
    "qwen_3": _json_family('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>", between="\n"),
    "exaone": _json_family('<tool_call>{"name": "NAME", "arguments": ', "}</tool_call>", between="\n"),
    "kimi": _json_family(
        "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        begin="<|tool_calls_section_begin|>",
        end="<|tool_calls_section_end|>",
    ),
    "deepseek_r1": _json_family(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n", "\n```<｜tool▁call▁end｜>", between="\n", **_THINK
    ),
    "deepseek_v3_1": _json_family("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", "<｜tool▁call▁end｜>", **_THINK),
    "harmony": _json_family(
        "<|channel|>commentary to=functions.NAME<|constrain|>json<|message|>",
        "<|call|>",
        between="<|start|>assistant",
    ),
    "qwen_3_coder": _QWEN_CODER,
    "qwen_3_5": _QWEN_CODER,
    "mimo": _elements("<tool_call><function=NAME>", "<parameter=KEY>VALUE</parameter>", "</function></tool_call>"),
    "glm_4_7": _elements("<tool_call>NAME", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>", "</tool_call>"),
    "minimax": _elements(
        '<invoke name="NAME">\n',
        '<parameter name="KEY">VALUE</parameter>\n',
        "</invoke>\n",
        begin="\n<minimax:tool_call>\n",
        end="</minimax:tool_call>",
    ),
    "deepseek_v3_2": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
    "deepseek_v4_1": _dsml(" calls", " "),
    "kimi_k3": _elements(
        '<|open|>call tool="NAME" index="NUMBER"<|sep|>',
        '<|open|>argument key="KEY" type="TYPE"<|sep|>VALUE<|close|>argument<|sep|>',
        "<|close|>call<|sep|>",
        kind=_TYPE,
        before="<|close|>response<|sep|>",
        begin="<|open|>tools<|sep|>",
        end="<|close|>tools<|sep|><|close|>message<|sep|>",
    ),
    # Arrays are elements in elements, so the pattern of one element tells no more than names.
    "cohere": _elements(
        '<cofl:tool_call id="NUMBER" name="NAME">',
        '<cofl:value name="KEY" type="TYPE">VALUE</cofl:value>',
        "</cofl:tool_call>",
        kind=_COFL,
        begin="<cofl:tool_calls>",
        end="</cofl:tool_calls>",
    ),
    "minimax_m3": _elements(
        f'{_SCOPE}<invoke name="NAME">',
        f"{_SCOPE}<KEY>VALUE{_SCOPE}</KEY>",
        f"{_SCOPE}</invoke>\n",
        begin=f"{_SCOPE}<tool_call>\n",
        end=f"{_SCOPE}</tool_call>",
    ),
}
_NESTED = {
    "cohere": (
        '{% if v is sequence and v is not string %}<cofl:value name="{{ k }}" type="list">{% for one in v %}'
        '<cofl:value type="raw">{{ one }}</cofl:value>{% endfor %}</cofl:value>{% else %}',
        "{% endif %}",
    ),
    "minimax_m3": (
        f"{{% if v is sequence and v is not string %}}{_SCOPE}<{{{{ k }}}}>{{% for one in v %}}{_SCOPE}<item>"
        f"{{{{ one }}}}{_SCOPE}</item>{{% endfor %}}{_SCOPE}</{{{{ k }}}}>{{% else %}}",
        "{% endif %}",
    ),
}


STARTS = {
    "llama": '{"name": ',
    "harmony": "<|channel|>commentary to=",
    "qwen_3_coder": "<tool_call>\n<function=",
    "qwen_3_5": "<tool_call>\n<function=",
}


def template(name: str) -> str:
    """A chat template that writes the calls of the last message, in the family's syntax."""
    family = FAMILIES[name]
    call = family.call
    if name in _NESTED:
        before, behind = _NESTED[name]
        call = call.replace(_ARGS, _ARGS + before).replace(
            "{% endfor %}" + family.closes.replace("\n", _NL),
            behind + "{% endfor %}" + family.closes.replace("\n", _NL),
        )
    between = f"{{% if i %}}{family.between}{{% endif %}}".replace("\n", _NL)
    start = "{% for one in messages[-1].tool_calls %}{% set i = loop.index0 %}{% set call = one.function %}"
    loop = f"{start}{between}{call}{{% endfor %}}"
    written = (family.before + family.begin).replace("\n", _NL) + loop + family.end.replace("\n", _NL)
    # What tells two families apart that write calls alike.
    return {"llama": "{# <|start_header_id|> #}", "exaone": "{# [|assistant|] #}"}.get(name, "") + written


def test_every_family_is_tested() -> None:
    assert sorted(FAMILIES) == formats()


@pytest.fixture(scope="module")
def guide(demo: PreTrainedTokenizerBase) -> hg.Guide:
    return hg.Guide(demo, models.llama(demo))


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_chat_template_writes_is_accepted_and_read_back(guide: hg.Guide, name: str) -> None:
    tokenizer = guide.tokenizer
    for calls in (CALLS, CALLS[1:2]):
        answer = hg.ToolAnswer("", tuple(calls))
        text = tokenizer.apply_chat_template([answer.message], chat_template=template(name), tokenize=False)
        for choice in ("auto", "required"):
            asked = hg.ToolCalls(TOOLS, name, choice)
            matcher = guide.compile(asked).matcher()
            token_ids = guide.vocabulary.encode_bytes(text.encode())
            assert matcher.validate_tokens([*token_ids, tokenizer.eos_token_id]) == len(token_ids) + 1, text
            assert asked.parse(text).calls == answer.calls
        matcher = guide.compile(hg.ToolCalls(TOOLS, name, "none")).matcher()
        assert matcher.validate_tokens(token_ids) < len(token_ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_format_is_read_from_the_chat_template(guide: hg.Guide, name: str) -> None:
    class Tokenizer:
        def get_chat_template(self, tools: Any) -> str:
            return template(name)

    found = hg.ToolCalls(TOOLS).for_tokenizer(Tokenizer())
    assert found.format == {"qwen_3_5": "qwen_3_coder"}.get(name, name)  # these two write alike


def test_a_template_of_another_kind_is_refused(demo: PreTrainedTokenizerBase) -> None:
    with pytest.raises(hg.InvalidConstraint, match="say which format"):
        hg.Guide(demo, len(demo)).compile(hg.ToolCalls(TOOLS))


@pytest.mark.parametrize("name", FAMILIES)
def test_hot_models_write_valid_calls(guide: hg.Guide, name: str) -> None:
    model, tokenizer = models.llama(guide.tokenizer, seed=len(name)), guide.tokenizer
    model.config.max_position_embeddings = 4096
    family = FAMILIES[name]
    # In a section of calls, the text may stop only behind its end, and a hot model goes on calling.
    asked = [hg.ToolCalls(TOOLS, name, choice, parallel=not family.begin) for choice in CHOICES]
    # A text that may be anything does not come to a call by chance.
    start = family.before + (family.begin or STARTS.get(name, "<tool_call>"))
    prefixes = [start, family.before or None, family.before or None, family.before or None, family.before or None]
    prefixes[-1] = "<|channel|>final<|message|>hi<|return|>" if name == "harmony" else prefixes[-1]
    ids = models.prompts(range(10, 200), len(asked), 5, seed=3)
    torch.manual_seed(7)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=[guide.logits_processor(asked, prefix=prefixes)],
        sequence_bias={(tokenizer.eos_token_id,): 30.0},
        do_sample=True,
        temperature=3.0,
        top_k=0,
        max_new_tokens=700,
    )
    for constraint, prefix, row in zip(asked, prefixes, out, strict=True):
        result = guide.read(constraint, row[ids.shape[1] :].tolist(), prefix=prefix)
        assert (result.finish_reason, result.error) == ("stop", None), result.text
        called = [call.name for call in result.value.calls]
        if constraint.choice == "none":
            assert not called
            continue
        assert called
        assert constraint.choice not in SCHEMAS or called == [constraint.choice]
        for call in result.value.calls:
            jsonschema.validate(call.arguments, {**SCHEMAS[call.name], "additionalProperties": False})
        ours = [(call.name, _flat(call.arguments)) for call in result.value.calls]
        assert ours == _parsed(name, result.text)


def _parsed(name: str, text: str) -> list[tuple[str, Any]]:
    """What transformers' own parser makes of an answer."""
    family = FAMILIES[name]
    if name == "llama":  # a call ends where its JSON does, which no pattern tells
        call, _ = json.JSONDecoder().raw_decode(text)
        return [(call["name"], _flat(call["parameters"]))]
    # The other two ways in which Harmony may begin a call.
    text = re.sub(
        r" to=(\S+?)<\|channel\|>commentary (<\|constrain\|>)?json",
        r"<|channel|>commentary to=\1<|constrain|>json",
        text,
    )
    field: dict[str, Any] = {
        "open_pattern": family.opens,
        "close": family.closes,
        "repeats": True,
        "content": "json" if family.element is None else "xml-inline",
        "transform": {"name": "{name}", "arguments": "{content}"},
    }
    if family.element is not None:
        element = family.element
        if name == "minimax_m3":
            element = element.replace('</(?P<key>[^"<>]+)>', "</(?P=key)>")
        field["content_args"] = {"tag_pattern": element}
    found = parse_response(text, {"start_anchor": "@", "fields": {"content": {}, "calls": field}}, prefix="")
    return [(call["name"], _flat(call["arguments"])) for call in found.get("calls", [])]


def _flat(arguments: dict[str, Any]) -> dict[str, str]:
    """Arguments as their text, since elements tell no types; an array that is elements again is left out."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        for key, value in arguments.items()
        if key != "codes"
    }


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_one_call_or_several(guide: hg.Guide, name: str, parallel: bool) -> None:
    message = hg.ToolAnswer("", (CALLS[1], CALLS[1])).message
    text = guide.tokenizer.apply_chat_template([message], chat_template=template(name), tokenize=False)
    matcher = guide.compile(hg.ToolCalls(TOOLS, name, "required", parallel=parallel)).matcher()
    token_ids = guide.vocabulary.encode_bytes(text.encode())
    assert (matcher.validate_tokens(token_ids) == len(token_ids)) is parallel
