"""How Mistral's models write tool calls: one list in JSON, or each call with a mark of its own.

The forms are those of `mistral-common`, by the version of its tokenizers: a list up to version 7, whose calls may have
an id; then the name before the arguments, with an id between them in version 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tag = dict[str, Any]
CALLS, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_ID_PATTERN = "[a-zA-Z0-9]{9}"
MISTRAL = ("mistral", "mistral_v11", "mistral_v13")


# The first version of the tokenizers in which models write calls like this, the newest first.
_SINCE = ((13, "mistral_v13"), (11, "mistral_v11"), (2, "mistral"))


def mistral_format(tokenizer: Any) -> str | None:
    """The form that the version of a tokenizer of `mistral-common` stands for; None for other tokenizers.

    Args:
        tokenizer: transformers' ``MistralCommonBackend``, which has no chat template, or a processor that holds one.
    """
    inner = getattr(tokenizer, "tokenizer", None)
    for library in inner, getattr(inner, "tokenizer", None):
        number = getattr(getattr(library, "version", None), "version_num", None)
        if isinstance(number, int):
            return next((name for since, name in _SINCE if number >= since), None)
    return None


def mistral_tag(format: str, names: Sequence[str], *, required: bool, parallel: bool) -> Tag:
    """Text and calls as a format of a structural tag, in which ``{"title": name}`` is a tool's schema.

    Args:
        format: one of ``MISTRAL``.
        names: of the tools that may be called.
        required: whether the answer begins with a call.
        parallel: whether there may be more than one call.
    """
    if not names:
        return {"type": "any_text", "excludes": [CALLS]}
    calls = {
        "type": "tags_with_separator",
        "tags": [_in_list(name) if format == "mistral" else _marked(name, format) for name in names],
        "separator": ", " if format == "mistral" else CALLS,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }
    # SentencePiece puts a space before what follows a special token.
    bracket = {"type": "or", "elements": [_text("["), _text(" [")]}
    content = _sequence(bracket, calls) if format == "mistral" else calls
    return {
        "type": "triggered_tags",
        "triggers": [CALLS],
        "tags": [{"type": "tag", "begin": CALLS, "content": content, "end": "]" if format == "mistral" else ""}],
        "at_least_one": required,
        "stop_after_first": True,
        "excludes": [],
    }


def _in_list(name: str) -> Tag:
    call_id = _sequence(_text(', "id": "'), {"type": "regex", "pattern": _ID_PATTERN}, _text('"'))
    content = _sequence(_arguments(name), {"type": "optional", "content": call_id})
    return {"type": "tag", "begin": f'{{"name": "{name}", "arguments": ', "content": content, "end": "}"}


def _marked(name: str, format: str) -> Tag:
    if format == "mistral_v13":
        return {"type": "tag", "begin": name + _ARGUMENTS, "content": _arguments(name), "end": ""}
    call_id = _sequence(_text(_ID), {"type": "regex", "pattern": _ID_PATTERN}, _text(_ARGUMENTS))
    marks = {"type": "or", "elements": [call_id, _text(_ARGUMENTS)]}
    return {"type": "tag", "begin": name, "content": _sequence(marks, _arguments(name)), "end": ""}


def _arguments(name: str) -> Tag:
    # Readers split an answer at this mark, wherever it is.
    return {"type": "json_schema", "json_schema": {"title": name}, "style": "json", "excludes": [CALLS]}


def _text(value: str) -> Tag:
    return {"type": "const_string", "value": value}


def _sequence(*elements: Tag) -> Tag:
    return {"type": "sequence", "elements": list(elements)}
