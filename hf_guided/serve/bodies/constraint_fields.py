"""The fields that constrain an answer: OpenAI's, vLLM's and SGLang's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ...constraints.response_format import from_request, from_tools
from ...constraints.values import (
    Choice,
    Constraint,
    Grammar,
    JsonObject,
    JsonSchema,
    Regex,
    StructuralTag,
    laid_out,
)
from ..limits import ServeLimits
from .defaults import Defaults
from .parts import List, Part, problem
from .refusals import naming, refused


def _text_or_object(value: Any) -> Any:
    if not isinstance(value, (str, dict)):
        raise problem("expected an object, or its JSON text, got {value}", value=value)
    return value


Document = Annotated[Any, BeforeValidator(_text_or_object)]


class StructuredOutputs(Part):
    """vLLM's ``structured_outputs``."""

    other_fields = {
        "disable_fallback": (False,),
        "disable_any_whitespace": (False,),
        "disable_additional_properties": (False, True),  # schemas that say nothing about them are closed here
        "whitespace_pattern": (),
    }
    json_: Document = Field(None, alias="json")
    regex: str | None = None
    choice: List[str] = []
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Document = None


class ConstraintFields(Part):
    """The fields that vLLM and SGLang have added to all routes."""

    other_fields = {"guided_decoding_backend": (), "guided_whitespace_pattern": ()}
    structured_outputs: StructuredOutputs | None = None
    guided_json: Document = None
    guided_regex: str | None = None
    guided_choice: List[str] = []
    guided_grammar: str | None = None
    regex: str | None = None
    json_schema: Document = None
    ebnf: str | None = None
    structural_tag: Document = None


_MAKERS: dict[str, Callable[[Any], Constraint]] = {
    "structured_outputs.json": JsonSchema,
    "structured_outputs.regex": Regex,
    "structured_outputs.choice": Choice,
    "structured_outputs.grammar": Grammar,
    "structured_outputs.json_object": lambda _: JsonObject(),
    "structured_outputs.structural_tag": StructuralTag,
    "guided_json": JsonSchema,
    "guided_regex": Regex,
    "guided_choice": Choice,
    "guided_grammar": Grammar,
    "regex": Regex,
    "json_schema": JsonSchema,
    "ebnf": Grammar,
    "structural_tag": StructuralTag,
}
_OPENAI = ("response_format", "text", "tools", "tool_choice", "parallel_tool_calls")


def read_constraint(
    body: Mapping[str, Any], defaults: Defaults, limits: ServeLimits
) -> tuple[Constraint | None, str | None]:
    """The one constraint of a request, and the field that holds it.

    Args:
        body: of the request, after its model has checked it.
        defaults: the notation of tool calls, and the layout of JSON.
        limits: of a request.

    Raises:
        RequestRefused: malformed, too large, or more than one.
    """
    given = {name: value for name, value in body.items() if value is not None and name in _FIELDS}
    openai = {name: given[name] for name in _OPENAI if name in given}
    found: dict[str, Constraint] = {}
    _check_size(given, limits.max_schema_bytes)
    param = _param(openai)
    with naming(param):
        constraint = from_request(openai, defaults.tool_format)
        if constraint is not None and param is not None:
            found[param] = constraint
    for name, value in _others(given):
        with naming(name):
            found[name] = _MAKERS[name](value)
    if len(found) > 1:
        raise refused(next(iter(found)), f"expected one kind of constraint, got {' and '.join(found)}; leave one out")
    for name, constraint in found.items():
        with naming(name):
            return laid_out(constraint, defaults.whitespace, defaults.indent, defaults.spelling), name
    if given.get("tools") and given.get("tool_choice") == "none":
        with naming("tools"):
            return from_tools(given["tools"], "none", defaults.tool_format), "tools"
    return None, None


_FIELDS = {*_OPENAI, *(name.partition(".")[0] for name in _MAKERS)}


def _param(openai: Mapping[str, Any]) -> str | None:
    """Which of OpenAI's fields holds the constraint; None if none does."""
    if openai.get("response_format") is not None:
        return "response_format"
    if isinstance(openai.get("text"), Mapping) and openai["text"].get("format") is not None:
        return "text.format"
    return "tools" if openai.get("tools") or openai.get("tool_choice") not in (None, "auto", "none") else None


def _others(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    outputs = given.get("structured_outputs") or {}
    nested = {f"structured_outputs.{name}": value for name, value in outputs.items()}
    if nested.get("structured_outputs.json_object") is False:
        del nested["structured_outputs.json_object"]
    return [(name, value) for name, value in {**given, **nested}.items() if name in _MAKERS and value is not None]


def _check_size(given: Mapping[str, Any], most: int) -> None:
    size = len(json.dumps(given))
    if size > most:
        raise refused(
            max(given, key=lambda name: len(json.dumps(given[name]))),
            f"expected {most} bytes at most, as JSON, got {size}; ask for less, or raise --max-schema-bytes",
            "constraint_too_large",
        )
