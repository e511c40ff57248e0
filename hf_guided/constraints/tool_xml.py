"""How model families write a call's arguments as elements instead of JSON: one element for each argument.

A string is written between the marks unchanged, with no quotes and no escapes, so it can never hold the mark that ends
it. Everything else is JSON, or elements again in the families that nest them. Strings inside such JSON write that mark
with escapes, since a reader of an element looks for its mark first. The layout is that of the families' chat
templates; names as in xgrammar's ``style``, and one more: "qwen_xml_lines", with every value on lines of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAME = r'[^"<>&\x00-\x1f]+'  # of an argument: with other characters, the end of the name would be ambiguous


@dataclass(frozen=True)
class XmlStyle:
    """One family's elements.

    Args:
        opening: the mark before a value, with ``{name}`` and, where it shows the type, ``{kind}``.
        closing: the mark after it, with or without ``{name}``.
        marks: what no value holds as it is.
        kinds: the opening's name for each JSON type; None where it does not show the type.
        item: the opening of an array's items, where arrays and objects inside are elements too; their closing is that
            of the name "item".
    """

    opening: str
    closing: str
    marks: tuple[str, ...]
    kinds: Mapping[str, str] | None = None
    item: str | None = None

    def before(self, name: str | None, kind: str) -> str:
        """The opening mark of an argument, or with None of an array's item, for a value of this JSON type."""
        kind_name = "" if self.kinds is None else self.kinds[kind]
        pattern = self.item if name is None else self.opening
        assert pattern is not None, "only nested styles have items"
        return pattern.replace("{kind}", kind_name).replace("{name}", name or "")

    def after(self, name: str | None) -> str:
        """The closing mark."""
        return self.closing.replace("{name}", "item" if name is None else name)


_DSML = "｜DSML｜"
_SCOPE = "]<]minimax[>["
_IS_STRING = {"string": "true"} | dict.fromkeys(("null", "boolean", "number", "array", "object"), "false")
_OWN_NAMES = {kind: kind for kind in ("null", "boolean", "number", "string", "array", "object")}
_COFL = {"string": "raw", "array": "list", "object": "dict"} | dict.fromkeys(("null", "boolean", "number"), "json")


def _dsml(word: str) -> XmlStyle:
    closing = f"</{_DSML}{word}>"
    return XmlStyle(f'<{_DSML}{word} name="{{name}}" string="{{kind}}">', f"{closing}\n", (closing,), _IS_STRING)


STYLES: dict[str, XmlStyle] = {
    "qwen_xml": XmlStyle("<parameter={name}>", "</parameter>", ("</parameter>",)),
    "qwen_xml_lines": XmlStyle("<parameter={name}>\n", "\n</parameter>\n", ("</parameter>",)),
    "minimax_xml": XmlStyle('<parameter name="{name}">', "</parameter>\n", ("</parameter>",)),
    "minimax_m3_xml": XmlStyle(f"{_SCOPE}<{{name}}>", f"{_SCOPE}</{{name}}>", (_SCOPE,), item=f"{_SCOPE}<item>"),
    "deepseek_xml": _dsml("parameter"),
    "deepseek_v4_1_xml": _dsml(" parameter"),
    "glm_xml": XmlStyle("<arg_key>{name}</arg_key><arg_value>", "</arg_value>", ("</arg_value>",)),
    "cohere_xml": XmlStyle(
        '<cofl:value name="{name}" type="{kind}">',
        "</cofl:value>",
        ("</cofl:value>",),
        _COFL,
        item='<cofl:value type="{kind}">',
    ),
    "kimi_k3_xml": XmlStyle(
        '<|open|>argument key="{name}" type="{kind}"<|sep|>',
        "<|close|>argument<|sep|>",
        ("<|open|>", "<|close|>", "<|sep|>"),
        _OWN_NAMES,
    ),
}
