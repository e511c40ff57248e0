"""The schemas, patterns and grammars inside a structural tag: held to the same rules as each of them alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..constraints.structural_tag_checks import inside_tag
from ..constraints.values import DEFAULT_ROOT, JsonSchema
from ..errors import Loss, UnsupportedConstraint
from ..grammars.gbnf import Gbnf
from ..regex import Node, UnsupportedRegex, parse_fullmatch, to_pattern
from ..schema.prepare import prepare
from ..schema.subschemas import escape, iter_subschemas
from .tag_marks import overlap, runs_on
from .xgrammar_json import UNESCAPED, XGrammarSubset

TOOL_WHITESPACE = 20  # white space characters in a row inside a call's arguments; without a bound it may never end
_SCHEMA_FORMATS = ("json_schema", "qwen_xml_parameter")
# Beside these, xgrammar's ``excludes`` drops the bounds of a string, or does not apply to it.
_NOT_FILTERED = frozenset(("pattern", "format", "minLength", "maxLength", "patternProperties", "propertyNames"))


def reduce_tag(value: Any, patterns: list[Node], pointer: str = "") -> Iterator[Loss]:
    """Replace each schema in a part of a tag by its enforced part, in place, bound white space, and yield the losses.

    Patterns and grammars are read and written plainly: patterns mean what they mean to Python's `re`, and grammars that
    end the process in xgrammar do not reach it. ``patterns`` receives those of the schemas, see ``XGrammarSubset``;
    pointers lead into the tag; arguments written as elements (XML) are a loss.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from reduce_tag(item, patterns, f"{pointer}/{index}")
    if not isinstance(value, dict):
        return
    # The older form of a tag has {"begin": ..., "schema": ..., "end": ...} in its list of structures.
    older = "begin" in value and "schema" in value
    name = "schema" if older else "json_schema" if value.get("type") in _SCHEMA_FORMATS else None
    for key, item in value.items():
        if key != name:
            yield from reduce_tag(item, patterns, f"{pointer}/{escape(key)}")
    if value.get("max_tokens") is not None:
        reason = "xgrammar writes more tokens where a character, or what follows, is not complete; use max_chars"
        yield Loss(pointer, "max_tokens", reason)
    if "begin" in value and "content" in value and runs_on(value["content"]):
        ends = value["end"] if isinstance(value["end"], list) else [value["end"]]
        if overlap(end for end in ends if isinstance(end, str)):
            reason = "free text before it may hold a part of an end, and xgrammar goes on past the first one"
            yield Loss(pointer, "end", reason)
    content = value["content"] if value.get("type") == "tag" else value if value.get("excludes") else {}
    if content.get("type") == "any_text" and content.get("max_chars") is not None:
        at = pointer if content is value else f"{pointer}/content"
        reason = "where a text excludes something, or ends at a mark, xgrammar counts bytes and not characters"
        yield Loss(at, "max_chars", reason)
    if value.get("type") == "regex":
        try:
            value["pattern"] = to_pattern(parse_fullmatch(value["pattern"]))
        except UnsupportedRegex as error:
            yield Loss(pointer, "pattern", str(error))
    if value.get("type") == "grammar":
        try:
            with inside_tag(f"{pointer}/grammar"):
                value["grammar"] = Gbnf(value["grammar"], DEFAULT_ROOT["gbnf"]).to_ebnf()
        except UnsupportedConstraint as error:
            yield from (loss._replace(pointer=f"{pointer}/grammar") for loss in error.losses)
    if name is not None:
        with inside_tag(f"{pointer}/{name}"):
            prepared, losses = prepare(JsonSchema(value[name]), alphabet=UNESCAPED)
            subset = XGrammarSubset(prepared, patterns)
            value[name] = subset.reduce()
        for keyword, reason in _not_exact(value, value[name]):
            yield Loss(pointer, keyword, reason)
        style = "json" if older else "xml" if value["type"] != "json_schema" else value.get("style") or "json"
        if style != "json":
            reason = "xgrammar's own converter writes these arguments, and ignores keywords without an error"
            yield Loss(pointer, "style", reason)
        for loss in (*losses, *subset.losses):
            yield loss._replace(pointer=f"{pointer}/{name}{loss.pointer}")
        if not older and value.get("max_whitespace_cnt") is None:
            value["max_whitespace_cnt"] = TOOL_WHITESPACE  # else a model that likes white space continues for ever


def _not_exact(part: dict[str, Any], schema: Any) -> Iterator[tuple[str, str]]:
    """The options of a JSON format that xgrammar does not enforce exactly, and why."""
    if part.get("any_order"):
        yield "any_order", "with it, xgrammar lets required members be missing, and members come twice; leave it out"
    if part.get("max_whitespace_cnt") == 0:
        yield "max_whitespace_cnt", "xgrammar takes no bound below 1"
    keywords = {key for each in iter_subschemas(schema) if isinstance(each.schema, dict) for key in each.schema}
    if part.get("excludes") and (unfiltered := sorted(keywords & _NOT_FILTERED)):
        yield "excludes", f"xgrammar does not enforce it together with {', '.join(unfiltered)}"
