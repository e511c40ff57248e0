"""Tool calls as a constraint: the tools, and the format in which a model calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ..errors import InvalidConstraint, reading, shown
from . import json_text
from .base import Constraint, replaced, set_fields
from .chat_families import begun, call_id
from .tool_choice import read_choice, read_tool
from .tool_formats import AUTO, call_tag, ends_turns, format_of, objects_in, with_schemas
from .tool_notation import FAMILIES, JSON, ToolFormat
from .tool_parser import BegunCall, ReadCall, Reading
from .tool_xml import settled
from .values import JsonSchema, StructuralTag


@contextmanager
def _depth_as_value_error() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise ValueError("the arguments of a call are nested too deeply to read") from None


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Args:
        name: of the tool.
        arguments: valid against its schema.
        id: for the answer of the tool, ``{"role": "tool", "tool_call_id": id, ...}``: nine letters and digits, or as
            the model's family writes it.
    """

    name: str
    arguments: dict[str, Any] = field(hash=False)
    id: str = field(default="", compare=False)


@dataclass(frozen=True)
class ToolAnswer:
    """The answer of a model that may call tools.

    Args:
        text: the rest of its answer.
        calls: in order.
    """

    text: str
    calls: tuple[ToolCall, ...]

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message for the next turn of the chat."""
        calls = [
            {
                **({"id": call.id} if call.id else {}),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in self.calls
        ]
        return {"role": "assistant", "content": self.text, **({"tool_calls": calls} if calls else {})}


@dataclass(frozen=True, init=False, repr=False)
class ToolCalls(Constraint):
    """Text in which every tool call names a given tool and has arguments valid against its schema.

    Args:
        tools: OpenAI tool dicts (``{"type": "function", "function": {...}}``, or flat as in /v1/responses), or
            documented Python functions, as `apply_chat_template(tools=...)` takes them. The arguments of a function
            with ``"strict": False`` are any JSON object.
        format: how the model writes its calls: "auto", by the tokenizer's chat template (by its version, for one of
            `mistral-common`); a family's name ("llama", "qwen_3", "deepseek_v3_1", "harmony", "mistral_v13" ...); an
            ``hg.ToolFormat``, which describes a notation; or "json", a notation for models whose template knows no
            tools. ``hg.generate`` describes the last two in the prompt, and writes earlier calls as text, where the
            template does not show them.
        choice: "auto" (text or calls), "required" (at least one call), "none" (no calls), or the name of one tool
            (also as ``{"type": "function", "function": {"name": ...}}``). OpenAI's ``{"type": "allowed_tools", ...}``
            limits "auto" or "required" to some of the tools; the prompt still shows all of them.
        parallel: whether there may be more than one call.

    Raises:
        InvalidConstraint: a tool that cannot be described, no tools where one is needed, or an unknown choice.
    """

    kind: ClassVar[str] = "tool_calls"

    tools_json: str
    format: str | ToolFormat
    choice: str
    parallel: bool
    allowed: tuple[str, ...]  # the names of the tools that may be called
    stops: bool  # whether the model ends each call with a token that ends the output
    num_earlier: int = field(compare=False)  # calls in the chat so far; only ids of calls depend on it

    @reading("ToolCalls", InvalidConstraint)
    def __init__(
        self,
        tools: Sequence[Mapping[str, Any] | Callable[..., Any]],
        format: str | ToolFormat = AUTO,
        choice: str | Mapping[str, Any] = "auto",
        parallel: bool = True,
    ) -> None:
        if not isinstance(tools, (list, tuple)):
            raise InvalidConstraint(f"ToolCalls: expected a list of tools, got {type(tools).__name__}")
        if not isinstance(format, (str, ToolFormat)):
            raise InvalidConstraint(
                f"ToolCalls.format: expected the name of a notation, or an hg.ToolFormat, got {shown(format)}"
            )
        dicts = [read_tool(tool, index) for index, tool in enumerate(tools)]
        names = [tool["function"]["name"] for tool in dicts]
        if len(set(names)) < len(names):
            raise InvalidConstraint(f"ToolCalls: expected every tool to have its own name, got {names}")
        mode, allowed = read_choice(choice, names)
        set_fields(
            self,
            tools_json=json_text.dumps(dicts, "tools"),
            format=format if isinstance(format, ToolFormat) else str(format),
            choice=mode,
            parallel=bool(parallel),
            allowed=allowed,
            stops=False,
            num_earlier=0,
        )

    @property
    def described(self) -> ToolFormat | None:
        """The notation, if the model does not know it unless its prompts describe it."""
        return self.format if isinstance(self.format, ToolFormat) else FAMILIES[JSON] if self.format == JSON else None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI dicts, a fresh copy."""
        return json.loads(self.tools_json)  # type: ignore[no-any-return]

    def for_tokenizer(self, tokenizer: Any) -> ToolCalls:
        """Replace the format "auto" by the one that the tokenizer's chat template writes.

        Raises:
            InvalidConstraint: the template writes calls in none of the known formats.
        """
        format = format_of(tokenizer) if self.format == AUTO else self.format
        stops = self.stops or ends_turns(format, tokenizer)
        if (format, stops) == (self.format, self.stops):
            return self
        return replaced(self, format=format, stops=stops)

    def after(self, chat: Sequence[Mapping[str, Any]]) -> ToolCalls:
        """The same constraint for the next answer of a chat, whose calls have been numbered so far."""
        count = sum(len(message.get("tool_calls") or ()) for message in chat)
        return self if count == self.num_earlier else replaced(self, num_earlier=count)

    def call_id(self, number: int, name: str, unique: str) -> str:
        """The id of an answer's call: as the model's family writes it, or nine letters and digits.

        Args:
            number: in the answer, from 0.
            name: of the tool.
            unique: a text that other calls of this number and name do not have.
        """
        return call_id(self.format, self.num_earlier + number, name, unique)

    def structural_tag(self) -> StructuralTag:
        """The same constraint as a structural tag.

        Raises:
            InvalidConstraint: an unknown format, or a tool the format cannot write.
        """
        return StructuralTag(with_schemas(self._tag, self.parameters.__getitem__))

    def plain(self, text: str) -> tuple[int, int]:
        """Where the text that an answer begins with starts, after its header, and ends, whatever follows."""
        root = self._tag["format"]
        if root["type"] == "any_text":
            return 0, len(text)
        if root["type"] == "triggered_tags" and not root.get("at_least_one"):
            start, marks = 0, root["triggers"]
        else:  # a call at once; or a text, if it has a header
            headed = [part["elements"] for part in objects_in(root) if _is_headed_text(part)]
            if not headed or not text.startswith(header := headed[0][0]["value"]):
                return 0, 0
            start, marks = len(header), headed[0][1]["excludes"]
        found = [at for mark in marks if (at := text.find(mark, start)) >= 0]
        return start, min(found) if found else len(text) - max(begun(text[start:], mark) for mark in marks)

    @cached_property
    def _tag(self) -> dict[str, Any]:
        """The structural tag with the tools' names instead of their schemas."""
        if self.format == AUTO:
            raise InvalidConstraint(
                "ToolCalls: format='auto' needs a tokenizer: compile it with a Guide, or use for_tokenizer(tokenizer)"
            )
        return call_tag(self.format, list(self.parameters), self.choice, parallel=self.parallel, stops=self.stops)

    @cached_property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The schema of the arguments of each tool that may be called: an object whether or not it says so."""
        functions = (tool["function"] for tool in self.tools)
        return {call["name"]: _arguments(call) for call in functions if call["name"] in self.allowed}

    def parse(self, text: str) -> ToolAnswer:
        """The calls with their arguments, and the text around them.

        Raises:
            ValueError: not an answer in this format, or arguments that are not valid.
        """
        with _depth_as_value_error():
            answer = Reading(self._tag, text).whole()
            return ToolAnswer(answer.text, self._settled(answer.calls, 0))

    def closed(self, text: str, known: int) -> tuple[str, tuple[ToolCall, ...]]:
        """The calls that are complete in the beginning of an answer, without the first ones, which are known.

        Returns:
            The text before the last of all that are complete, and the calls.
        """
        with _depth_as_value_error():
            complete = Reading(self._tag, text).complete
            return complete.text, self._settled(complete.calls, known)

    def begun(self, text: str) -> list[BegunCall]:
        """The calls in the beginning of an answer whose arguments have begun; none where arguments are not JSON."""
        return Reading(self._tag, text).begun()

    @cached_property
    def ends(self) -> frozenset[str]:
        """The marks after which a call may be complete."""
        ends = [part["end"] for part in objects_in(self._tag) if part.get("type") == "tag"]
        marks = [mark for end in ends for mark in ([end] if isinstance(end, str) else end)]
        return frozenset(mark or "}" for mark in marks)  # without a mark, a call ends with its arguments

    def _settled(self, calls: Sequence[ReadCall], known: int) -> tuple[ToolCall, ...]:
        answers = []
        for number, call in enumerate(calls[known:], known):
            if call.name not in self._validators:
                self._validators[call.name] = JsonSchema(self.parameters[call.name]).validator()
            arguments = settled(call.arguments, self._validators[call.name])
            call_id = self.call_id(number, call.name, json.dumps(arguments))
            answers.append(ToolCall(call.name, arguments, call_id))
        return tuple(answers)

    @cached_property
    def _validators(self) -> dict[str, Any]:
        return {}

    def check(self) -> None:
        """Check that the format exists and can write these tools; raises InvalidConstraint."""
        self.structural_tag()

    def _identity(self) -> Sequence[Any]:
        format = list(astuple(self.format)) if isinstance(self.format, ToolFormat) else self.format
        return self.tools_json, format, self.choice, self.parallel, self.allowed, self.stops

    def __repr__(self) -> str:
        names = [tool["function"]["name"] for tool in self.tools]
        allowed = "" if len(self.allowed) == len(names) else f", allowed={list(self.allowed)}"
        return f"ToolCalls({names}, format={self.format!r}, choice={self.choice!r}, parallel={self.parallel}{allowed})"


def _is_headed_text(part: Mapping[str, Any]) -> bool:
    kinds = [element["type"] for element in part["elements"]] if part.get("type") == "sequence" else []
    return kinds == ["const_string", "any_text"]


def _arguments(function: dict[str, Any]) -> dict[str, Any]:
    """A tool's parameters as the schema of an object, closed where there are none: such a tool takes none."""
    if function.get("strict") is False:
        return {"type": "object"}
    schema = {**(function.get("parameters") or {"properties": {}}), "type": "object"}
    if schema.get("properties") == {} and not schema.keys() & {"patternProperties", "$ref", "allOf", "anyOf", "oneOf"}:
        schema.setdefault("additionalProperties", False)
    return schema
