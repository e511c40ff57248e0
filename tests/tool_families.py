"""How model families write tool calls, for two independent oracles.

A chat template in each family's syntax, rendered by transformers, writes calls; and transformers' own parser of
responses reads them, by a pattern of the syntax.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from transformers.utils.chat_parsing import parse_response


class Family(NamedTuple):
    """How a family writes calls.

    Args:
        begin, end: around all calls.
        call: one, a Jinja template of ``call`` and ``i``.
        between: calls.
        opens, closes: a pattern of the text before a call's arguments, and the text after them.
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


_NL = '{{ "\\n" }}'  # Jinja drops line ends after its blocks
_ARGS = "{% for k, v in call.arguments.items() %}"
_VALUE = "{{ v if v is string else v | tojson }}"
_SCOPE = "]<]minimax[>["
_NAME = '(?P<name>[^"<>\\n]+)'


def _json_family(opens: str, closes: str, layout: str = "tojson", **more: str) -> Family:
    """Calls of which nothing but the name and the arguments, as JSON, is free."""
    parts = {"begin": "", "end": "", "between": "", **more}
    pattern = re.escape(opens).replace("NAME", _NAME).replace("NUMBER", "[0-9]+")
    call = opens.replace("{\n", '{{ "{\\n" }}').replace("NAME", "{{ call.name }}").replace("NUMBER", "{{ i }}")
    return Family(
        call=f"{call}{{{{ call.arguments | {layout} }}}}{closes}".replace("\n", _NL),
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
_TYPE = (
    '{{ "null" if v is none else "string" if v is string else "boolean" if v is boolean else '
    '"number" if v is number else "object" if v is mapping else "array" }}'
)
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
    "mistral": _json_family('{"name": "NAME", "arguments": ', "}", begin="[TOOL_CALLS][", end="]", between=", "),
    "mistral_v11": _json_family("[TOOL_CALLS]NAME[CALL_ID]aB3456789[ARGS]", ""),
    "mistral_v13": _json_family("[TOOL_CALLS]NAME[ARGS]", ""),
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
    "json": _json_family('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>", between="\n"),
    "apertus": _json_family('{"NAME": ', "}", begin="<|tools_prefix|>[", end="]<|tools_suffix|>", between=", "),
    "apriel": _json_family(
        '{"name": "NAME", "arguments": ', "}", begin="<tool_calls>[", end="]</tool_calls>", between=", "
    ),
    "command_r": _json_family(
        '    {\n        "tool_name": "NAME",\n        "parameters": ',
        "\n    }",
        begin="\nAction:\n```json\n[\n",
        end="\n]```",
        between=",\n",
        layout="tojson(indent=4) | indent(8)",
    ),
    "command_r7b": _json_family(
        '    {"tool_call_id": "NUMBER", "tool_name": "NAME", "parameters": ',
        "}",
        begin="<|START_ACTION|>[\n",
        end="\n]<|END_ACTION|>",
        between=",\n",
    ),
    "firefunction": _json_family('{"name": "NAME", "arguments": ', "}", begin=" functools[", end="]", between=", "),
    "functionary_v3_1": _json_family("<function=NAME>", "</function>"),
    "functionary_v3_2": _json_family("NAME\n", "", between=">>>"),
    "granite": _json_family('{"name": "NAME", "arguments": ', "}", begin="<|tool_call|>[", end="]", between=", "),
    "nemotron": _json_family(
        '{"name": "NAME", "arguments": ', "}", begin="<TOOLCALL>[", end="]</TOOLCALL>", between=", "
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


_THINKS = ("<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>")
ENDS: dict[str, tuple[str, ...]] = {
    "llama": (),
    "qwen_3": ("</tool_call>",),
    "exaone": ("</tool_call>",),
    "mistral": ("[TOOL_CALLS]",),
    "mistral_v11": ("[TOOL_CALLS]",),
    "mistral_v13": ("[TOOL_CALLS]",),
    "kimi": ("<|tool_call_end|>", "<|tool_calls_section_end|>"),
    "deepseek_r1": _THINKS,
    "deepseek_v3_1": _THINKS,
    "harmony": ("<|call|>",),
    "json": ("</tool_call>",),
    "apertus": ("<|tools_suffix|>",),
    "apriel": ("</tool_calls>",),
    "command_r": (),
    "command_r7b": ("<|END_ACTION|>",),
    "firefunction": (),
    "functionary_v3_1": ("</function>",),
    "functionary_v3_2": (),
    "granite": (),
    "nemotron": ("</TOOLCALL>",),
    "qwen_3_coder": ("</parameter>",),
    "qwen_3_5": ("</parameter>",),
    "mimo": ("</parameter>",),
    "glm_4_7": ("</arg_value>",),
    "minimax": ("</parameter>",),
    "deepseek_v3_2": (f"</{_DS}parameter>",),
    "deepseek_v4": (f"</{_DS}parameter>",),
    "deepseek_v4_1": (f"</{_DS} parameter>",),
    "kimi_k3": ("<|open|>", "<|close|>", "<|sep|>"),
    "cohere": ("</cofl:value>",),
    "minimax_m3": (_SCOPE,),
}
"""Texts that a value may not contain, because a parser that searches for them would end the value there."""

STARTS = {
    "llama": '{"name": ',
    "mistral": "[TOOL_CALLS]",
    "mistral_v11": "[TOOL_CALLS]",
    "mistral_v13": "[TOOL_CALLS]",
    "harmony": "<|channel|>commentary to=",
    "functionary_v3_1": "<function=",
    "functionary_v3_2": "weather\n",
    "qwen_3_coder": "<tool_call>\n<function=",
    "qwen_3_5": "<tool_call>\n<function=",
}


_OTHER_MARKS = {
    "llama": "<|start_header_id|>",
    "exaone": "[|assistant|]",
    "functionary_v3_2": ">>>all",
    "granite": "<|start_of_role|>",
}


def template(name: str) -> str:
    """A chat template that writes the calls of the last message, in the family's syntax."""
    family = FAMILIES[name]
    call = family.call
    if name in _NESTED:
        before, after = _NESTED[name]
        call = call.replace(_ARGS, _ARGS + before).replace(
            "{% endfor %}" + family.closes.replace("\n", _NL),
            after + "{% endfor %}" + family.closes.replace("\n", _NL),
        )
    between = f"{{% if i %}}{family.between}{{% endif %}}".replace("\n", _NL)
    start = "{% for one in messages[-1].tool_calls %}{% set i = loop.index0 %}{% set call = one.function %}"
    loop = f"{start}{between}{call}{{% endfor %}}"
    written = (family.before + family.begin).replace("\n", _NL) + loop + family.end.replace("\n", _NL)
    # What tells two families apart that write calls alike.
    return f"{{# {_OTHER_MARKS[name]} #}}{written}" if name in _OTHER_MARKS else written


_TEXTS = {"command_r7b": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"), "functionary_v3_2": ("all\n", ">>>")}


def chat_template(name: str) -> str:
    """A template of whole chats: tools, thinking, texts, calls in the family's syntax, and answers of tools."""
    calls = template(name).replace("messages[-1]", "m")
    begin, end = (mark.replace("\n", _NL) for mark in _TEXTS.get(name, ("", "")))
    text = f"{begin}{{{{ m.content }}}}" + (end if name == "command_r7b" else "")
    between = f"{{% if m.content and m.tool_calls %}}{end or _NL}{{% endif %}}"
    if name == "command_r7b":  # text or calls
        between = ""
    return (
        "{% if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}<|{{ m.role }}|>"
        '{% if m.role == "assistant" %}'
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
        + ("" if begin else _NL + _NL)
        + "{% endif %}"
        f"{{% if m.content %}}{text}{{% endif %}}{between}{{% if m.tool_calls %}}{calls}{{% endif %}}"
        "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


def parsed(name: str, text: str) -> list[tuple[str, Any]]:
    """What transformers' own parser makes of an answer: tools' names, and their arguments as ``flat`` writes them."""
    family = FAMILIES[name]
    if name == "llama":  # a call ends where its JSON does, which no pattern tells
        calls = []
        while (start := text.find(STARTS[name])) >= 0:
            call, end = json.JSONDecoder().raw_decode(text, start)
            calls.append((call["name"], flat(call["parameters"])))
            text = text[end:]
        return calls
    if name.startswith("mistral"):  # split at the marks, and read as JSON, as `mistral-common` writes it
        _, *calls = text.split("[TOOL_CALLS]")
        if name == "mistral":
            return [(call["name"], flat(call["arguments"])) for one in calls for call in json.loads(one)]
        heads = [call.split("[ARGS]", 1) for call in calls]
        return [(head.split("[CALL_ID]")[0], flat(json.loads(arguments))) for head, arguments in heads]
    if family.begin.rstrip().endswith("[") and not name.startswith("mistral"):  # a list in JSON
        begin = family.begin.strip()
        if (start := text.find(begin)) < 0:
            return []
        listed, _ = json.JSONDecoder().raw_decode(text, start + len(begin) - 1)
        if name == "apertus":
            return [(to, flat(arguments)) for call in listed for to, arguments in call.items()]
        keys = ("tool_name", "parameters") if name.startswith("command") else ("name", "arguments")
        return [(call[keys[0]], flat(call[keys[1]])) for call in listed]
    if name == "functionary_v3_2":  # messages to somebody, of which those to all are text
        found, text = [], text.partition(">>>")[2] if text.startswith("all\n") else text
        while text:
            to, _, text = text.partition("\n")
            value, end = json.JSONDecoder().raw_decode(text)
            found.append((to, flat(value)))
            text = text[end:].removeprefix(">>>")
        return found
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
    return [(call["name"], flat(call["arguments"])) for call in found.get("calls", [])]


def flat(arguments: dict[str, Any]) -> dict[str, str]:
    """Arguments as their text, since elements tell no types; an array that is elements again is left out."""
    return {key: _spelled(value) for key, value in arguments.items() if key != "codes"}


def _spelled(value: Any) -> str:
    """JSON in one spelling, and other text as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
