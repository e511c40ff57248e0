"""How model families write tool calls: as structural tags, and how the tokenizer identifies the family.

The tags are xgrammar's own, but for Mistral's. Those are the forms of `mistral-common`, by the version of its
tokenizers: one list in JSON up to version 7, whose calls may have an id; then the name before the arguments, with an
id between them in version 11, and a mark before each call. What is mended here: "required" that would take no
call at all, the end of a thinking part that a gate of its own looks after, the line ends that chat templates write
around arguments, and JSON that holds what ends its call, which its strings can write with escapes: many who read calls
look for that first. Families that xgrammar has no tag for are described in tool_notation.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import InvalidConstraint, shown
from .chat_families import family_of_text, template_source
from .suggestions import did_you_mean
from .tool_choice import MODES
from .tool_notation import FAMILIES, JSON, Tag, ToolFormat, any_of, in_order, literal, tagged

AUTO = "auto"
MISTRAL = ("mistral", "mistral_v11", "mistral_v13")
# The first version of the tokenizers in which models write calls like this, the newest first.
_MISTRAL_SINCE = ((13, "mistral_v13"), (11, "mistral_v11"), (2, "mistral"))
_TOOL_CALLS, _CALL_ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NINE_CHARACTERS = {"type": "regex", "pattern": "[a-zA-Z0-9]{9}"}
_HARMONY_CALL_END = "<|call|>"
_HARMONY_HEADER = literal("<|channel|>final<|message|>")
_HARMONY_MARKS = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"]


def formats() -> list[str]:
    """The names of all families."""
    from xgrammar.builtin_structural_tag import _structural_tag_registry

    return sorted((*_structural_tag_registry, *MISTRAL, *FAMILIES))


def described_format(format: str | ToolFormat) -> ToolFormat | None:
    """The description of a notation; None for those that have none."""
    return format if isinstance(format, ToolFormat) else FAMILIES.get(format)


# What readers of a family would not read back in the name of a tool, as a pattern and in words; ``read_tool`` refuses
# more for all. Readers of Harmony split the header of a call at white space, and those of Kimi its id at a colon; those
# of GLM strip the name, and those of Mistral split an answer at its marks.
_IN_NO_NAME = {
    "harmony": (r"\s", "white space"),
    "kimi": (":", "colons"),
    "glm_4_7": (r"^\s|\s$", "white space at its ends"),
    **dict.fromkeys(MISTRAL, (r"\[(TOOL_CALLS|CALL_ID|ARGS)\]", f"{_TOOL_CALLS}, {_CALL_ID} and {_ARGS}")),
}


def check_names(format: str | ToolFormat, names: Sequence[str]) -> None:
    """Raise InvalidConstraint for the name of a tool that a reader of this notation would not read back."""
    described = described_format(format)
    for name in names:
        if described is not None:
            after = described.after_name
            is_wrong, words = (name + after).find(after) < len(name), repr(after)
        else:
            pattern, words = _IN_NO_NAME.get(str(format), ("(?!)", ""))
            is_wrong = re.search(pattern, name) is not None
        if is_wrong:
            raise InvalidConstraint(
                f"ToolCalls: expected names of tools without {words}, which the notation {format!r} cannot write in a "
                f"name, got {name!r}; give the tool another name, or choose another notation"
            )


def format_of(tokenizer: Any) -> str:
    """The family that a tokenizer's chat template writes for, or the version of a tokenizer of `mistral-common`.

    Raises:
        InvalidConstraint: the tokenizer, or processor, has neither, or a template that writes calls like none of them.
    """
    template = template_source(tokenizer, {"tools": []})
    if template is None:
        if (mistral := _mistral_format(tokenizer)) is not None:
            return mistral
        raise InvalidConstraint(
            f"ToolCalls: format='auto' reads the chat template, and {type(tokenizer).__name__} has none; say which "
            f"format: {', '.join(formats())}"
        )
    family = family_of_text(template)
    if family is None or family.calls is None:
        raise InvalidConstraint(
            "ToolCalls: the tokenizer's chat template writes tool calls in none of the known formats; say which format "
            f"is meant: {', '.join(formats())}; describe it as hg.ToolFormat(begin=..., name=..., arguments=..., "
            f"end=...); or pass format={JSON!r}, a notation that the prompt explains to any model"
        )
    return family.calls


def call_tag(
    format: str | ToolFormat, names: Sequence[str], choice: str, *, parallel: bool, stops: bool = False
) -> Tag:
    """The calls of these tools as a format of a structural tag, in which ``{"title": name}`` is a tool's schema.

    Args:
        format: a family's name, or its description.
        names: of the tools.
        choice: "auto", "required", "none" or a name.
        parallel: whether there may be more than one call.
        stops: whether the marks at the end of a call and of an answer are tokens that end the output, see
            ``ends_turns``; the tag then leaves them out, and has one call at most.

    Raises:
        InvalidConstraint: an unknown family, or one that cannot write this.
    """
    named, described = choice not in MODES, described_format(format)
    called = [choice] if named else [] if choice == "none" else names
    required, several = named or choice == "required", parallel and not named
    if described is not None:
        root = described.tag(called, required=required, parallel=several)
        _keep_ends_out(root, ())
        return root
    if format in MISTRAL:
        return _mistral_tag(format, called, required=required, parallel=several)
    from xgrammar import get_model_structural_tag

    try:
        tag = get_model_structural_tag(
            format,
            [
                # Without "strict" the library would leave the arguments open.
                {"type": "function", "function": {"name": name, "strict": True, "parameters": {"title": name}}}
                for name in names
            ],
            # Where nothing may be called, what would begin a call is what may not be written.
            {"type": "function", "function": {"name": choice}} if named else "auto" if choice == "none" else choice,
            reasoning="disabled",  # reasoning has a gate of its own, before every constraint
            parallel_tool_calls=parallel or stops,  # where a call ends the output there is one at most
        )
    except ValueError as error:
        known = formats()
        if format in known:
            raise InvalidConstraint(f"ToolCalls: {error}") from None
        given = f"{shown(format)}{did_you_mean(str(format), known)}"
        expected = f"expected one of {', '.join(known)}, or an hg.ToolFormat, got {given}"
        raise InvalidConstraint(f"ToolCalls.format: {expected}") from None
    root = _without_thinking(json.loads(tag.model_dump_json())["format"])
    _spell_out(root)
    _keep_ends_out(root, ())
    if format == "harmony":
        root = _one_message(root, choice) if stops else _harmony(root, choice, named)
    return _no_calls(root) if choice == "none" and not stops else root


def with_schemas(format: Tag, fields_of: Callable[[str], Tag]) -> Tag:
    """A copy of what ``call_tag`` gave, with the fields of a schema in place of every tool's name."""
    copy: Tag = json.loads(json.dumps(format))
    for part in objects_in(copy):
        if "json_schema" in part:
            part.update(fields_of(part["json_schema"]["title"]))
    return copy


def _without_thinking(root: Tag) -> Tag:
    if root["type"] != "sequence":
        return root
    elements = root["elements"]
    while elements and elements[0]["type"] == "const_string" and elements[0]["value"].strip() in ("", "</think>"):
        elements = elements[1:]
    return elements[0] if len(elements) == 1 else {**root, "elements": elements}


def _spell_out(root: Tag) -> None:
    """Allow one spelling where templates write only one: numbers, and arguments on lines of their own."""
    for part in objects_in(root):
        if part.get("pattern") == r"\d+":
            # The number of a call, to xgrammar ASCII alone; without a bound it need not end.
            part["pattern"] = "[0-9]{1,3}"
        content = part.get("content")
        if isinstance(content, Mapping) and content.get("style") == "qwen_xml" and part["begin"].endswith("\n"):
            part["content"] = {**content, "style": "qwen_xml_lines"}
            part["end"] = part["end"].removeprefix("\n")


def _keep_ends_out(part: Any, ends: tuple[str, ...]) -> None:
    """Forbid JSON to hold the marks that end its surroundings."""
    if isinstance(part, list):
        for item in part:
            _keep_ends_out(item, ends)
    elif isinstance(part, dict) and part.get("type") == "json_schema":
        if part.get("style") == "json":
            part["excludes"] = [*part.get("excludes", ()), *ends]
    elif isinstance(part, dict) and part.get("type") == "sequence":
        for index, element in enumerate(part["elements"]):
            later_texts = [other["value"] for other in part["elements"][index + 1 :] if other["type"] == "const_string"]
            _keep_ends_out(element, (*ends, *_marks(later_texts)))
    elif isinstance(part, dict):
        end = part.get("end", [])
        for item in part.values():
            _keep_ends_out(item, (*ends, *_marks([end] if isinstance(end, str) else end)))


def _marks(texts: Sequence[str]) -> list[str]:
    """The marks in some texts, without the brackets and lines around them."""
    return [mark for text in texts for mark in re.findall("<[^<>]*>", text)]


def _harmony(root: Tag, choice: str, named: bool) -> Tag:
    """A required call is not optional, and with a named tool there is exactly one.

    The separator between a text and a call is part of every alternative for the call, so that it differs from text
    early.
    """
    if choice in ("auto", "none"):
        for part in root.get("elements", ()):
            if part["type"] == "sequence":
                texts, apart, calls = part["elements"]
                part["elements"] = [texts, any_of([in_order([apart, call]) for call in calls["tags"]])]
        return root
    root = root["content"] if root["type"] == "optional" else root
    return {**root, "at_least_one": True, "stop_after_first": named or root["stop_after_first"]}


def ends_turns(format: str | ToolFormat, tokenizer: Any) -> bool:
    """Whether the mark after a call is a token of this tokenizer, which ends the output (Harmony's <|call|>)."""
    if format != "harmony":
        return False
    added = getattr(getattr(tokenizer, "tokenizer", tokenizer), "added_tokens_decoder", {})
    return any(token.content == _HARMONY_CALL_END and token.special for token in added.values())


def _one_message(root: Tag, choice: str) -> Tag:
    """Harmony's calls, each an answer of its own that its end token ends, and the text of an answer."""
    root = root["content"] if root["type"] == "optional" else root
    calls = [
        {
            **tag,
            "content": {**tag["content"], "excludes": [*_HARMONY_MARKS, "<|constrain|>", _HARMONY_CALL_END]},
            "end": "",
        }
        for tag in root["tags"]
        if tag["end"] == _HARMONY_CALL_END and choice != "none"
    ]
    text = in_order([_HARMONY_HEADER, {"type": "any_text", "excludes": _HARMONY_MARKS}])
    return any_of([*calls, *([text] if choice in ("auto", "none") else [])])


def _no_calls(root: Tag) -> Tag:
    """Leave the calls out of an answer."""
    if root["type"] == "triggered_tags":
        return {"type": "any_text", "excludes": [*root["triggers"], *root["excludes"]]}
    if root["type"] == "or":
        return _no_calls(root["elements"][0])
    parts = {"sequence": "elements", "tags_with_separator": "tags"}.get(root["type"])
    if parts is None:
        return root
    texts = [part for part in root[parts] if not any("json_schema" in inner for inner in objects_in(part))]
    return {**root, parts: texts, **({"stop_after_first": True} if parts == "tags" else {})}


def objects_in(value: Any) -> Iterator[Tag]:
    """Every object in a tag, the outer ones first."""
    if isinstance(value, list):
        for item in value:
            yield from objects_in(item)
    elif isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key != "json_schema":
                yield from objects_in(item)


def _mistral_format(tokenizer: Any) -> str | None:
    """The form that the version of a tokenizer of `mistral-common` stands for; None for other tokenizers."""
    # Transformers' ``MistralCommonBackend``, which has no chat template, or a processor that holds one.
    inner = getattr(tokenizer, "tokenizer", None)
    for library in inner, getattr(inner, "tokenizer", None):
        number = getattr(getattr(library, "version", None), "version_num", None)
        if isinstance(number, int):
            return next((name for since, name in _MISTRAL_SINCE if number >= since), None)
    return None


def _mistral_tag(format: str, names: Sequence[str], *, required: bool, parallel: bool) -> Tag:
    """Text and calls in one of the formats ``MISTRAL``; as ``ToolFormat.tag``."""
    if not names:
        return {"type": "any_text", "excludes": [_TOOL_CALLS]}
    calls = {
        "type": "tags_with_separator",
        "tags": [_in_list(name) if format == "mistral" else _marked(name, format) for name in names],
        "separator": ", " if format == "mistral" else _TOOL_CALLS,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }
    # SentencePiece puts a space before what follows a special token.
    content, end = calls, ""
    if format == "mistral":
        content, end = in_order([any_of([literal("["), literal(" [")]), calls]), "]"
    return {
        "type": "triggered_tags",
        "triggers": [_TOOL_CALLS],
        "tags": [tagged(_TOOL_CALLS, content, end)],
        "at_least_one": required,
        "stop_after_first": True,
        "excludes": [],
    }


def _in_list(name: str) -> Tag:
    call_id = in_order([literal(', "id": "'), _NINE_CHARACTERS, literal('"')])
    content = in_order([_arguments(name), {"type": "optional", "content": call_id}])
    return tagged(f'{{"name": "{name}", "arguments": ', content, "}")


def _marked(name: str, format: str) -> Tag:
    if format == "mistral_v13":
        return tagged(name + _ARGS, _arguments(name), "")
    marks = any_of([in_order([literal(_CALL_ID), _NINE_CHARACTERS, literal(_ARGS)]), literal(_ARGS)])
    return tagged(name, in_order([marks, _arguments(name)]), "")


def _arguments(name: str) -> Tag:
    # Readers split an answer at this mark, wherever it is.
    return {"type": "json_schema", "json_schema": {"title": name}, "style": "json", "excludes": [_TOOL_CALLS]}
