"""Tool calls as a constraint: the tools, and the format in which a model calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ..errors import InvalidConstraint, cause, reading, shown
from . import json_text
from .base import Constraint, replaced, set_fields
from .chat_families import answer_header, begun, call_id
from .coerce import coerce
from .tool_answers import Place, beginnings, calls_alone, closed, may_begin, with_answer
from .tool_choice import read_choice, read_tool
from .tool_formats import AUTO, call_tag, check_names, described_format, ends_turns, format_of, objects_in, with_schemas
from .tool_notation import JSON, Tag, ToolFormat, any_of
from .tool_parser import BegunCall, ReadCall, Reading
from .tool_xml import STYLES, settled
from .values import JsonObject, JsonSchema, StructuralTag

_ANY_ARGUMENTS = {"type": "object"}


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
        text: the rest of its answer; of an answer in the format of ``ToolCalls.answer`` all of it.
        calls: in order; none in such an answer.
        value: of such an answer, as the format reads it; None with calls.
    """

    text: str
    calls: tuple[ToolCall, ...]
    value: Any = field(default=None, hash=False)

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
            documented Python functions, as `apply_chat_template(tools=...)` takes them. In the arguments of a
            function with ``"strict": False``, objects that say nothing about additional properties may have some; and
            where its schema cannot be enforced they are any JSON object, with a warning.
        format: how the model writes its calls: "auto", by the tokenizer's chat template (by its version, for one of
            `mistral-common`); a family's name ("llama", "qwen_3", "deepseek_v3_1", "harmony", "mistral_v13" ...); an
            ``hg.ToolFormat``, which describes a notation; or "json", a notation for models whose template knows no
            tools. ``hg.generate`` describes the last two in the prompt, and writes earlier calls as text, where the
            template does not show them.
        choice: "auto" (text or calls), "required" (at least one call), "none" (no calls), or the name of one tool
            (also as ``{"type": "function", "function": {"name": ...}}``). OpenAI's ``{"type": "allowed_tools", ...}``
            limits "auto" or "required" to some of the tools; the prompt still shows all of them.
        parallel: whether there may be more than one call.
        answer: the format of an answer without calls, a constraint or a plain form of one; None is free text. With a
            format there is no text beside calls: the model answers in this format, or it calls. Where a family's calls
            have no mark of their own ("llama") and a text is both, it is a call; ``Guide.audit`` warns of that.

    Raises:
        InvalidConstraint: a tool that cannot be described, no tools where one is needed, an unknown choice, or an
            answer that is no constraint.
    """

    kind: ClassVar[str] = "tool_calls"

    tools_json: str
    format: str | ToolFormat
    choice: str
    parallel: bool
    allowed: tuple[str, ...]  # the names of the tools that may be called
    answer: Constraint | None
    header: str = ""  # before an answer, see ``answer_header``
    unchecked: tuple[str, ...] = ()  # the names of the tools whose arguments are any object
    stops: bool = False  # whether the model ends each call with a token that ends the output
    num_earlier: int = field(default=0, compare=False)  # calls in the chat so far; only ids of calls depend on it

    @reading("ToolCalls", InvalidConstraint)
    def __init__(
        self,
        tools: Sequence[Mapping[str, Any] | Callable[..., Any]],
        format: str | ToolFormat = AUTO,
        choice: str | Mapping[str, Any] = "auto",
        parallel: bool = True,
        answer: Any = None,
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
        if mode != "none":
            check_names(format, allowed)
        answer = coerce(answer)
        if isinstance(answer, ToolCalls):
            raise InvalidConstraint("ToolCalls.answer: expected the format of an answer without calls, got ToolCalls")
        set_fields(
            self,
            tools_json=json_text.dumps(dicts, "tools"),
            format=format if isinstance(format, ToolFormat) else str(format),
            choice=mode,
            parallel=bool(parallel),
            allowed=allowed,
            answer=answer,
        )

    @property
    def described(self) -> ToolFormat | None:
        """The notation, if the model does not know it unless its prompts describe it."""
        is_known = isinstance(self.format, str) and self.format != JSON
        return None if is_known else described_format(self.format)

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
        header = "" if self.answer is None else answer_header(tokenizer, {})
        if (format, stops, header) == (self.format, self.stops, self.header):
            return self
        if self.choice != "none":
            check_names(format, self.allowed)
        return replaced(self, format=format, stops=stops, header=header)

    def after(self, chat: Sequence[Mapping[str, Any]]) -> ToolCalls:
        """The same constraint for the next answer of a chat, whose calls have been numbered so far."""
        count = sum(len(message.get("tool_calls") or ()) for message in chat)
        return self if count == self.num_earlier else replaced(self, num_earlier=count)

    def call_id(self, number: int, name: str, unique: str) -> str:
        """The id of an answer's call, whose number in the answer begins at 0; see ``chat_families.call_id``."""
        return call_id(self.format, self.num_earlier + number, name, unique)

    def structural_tag(self) -> StructuralTag:
        """The same constraint as a structural tag.

        Raises:
            InvalidConstraint: an unknown format, or a tool or an answer that the format cannot write.
        """
        calls = [with_schemas(self._format, self._fields_of)] if self._may_call or not self._may_answer else []
        answers = [self._answer[0]] if self._may_answer else []
        return StructuralTag({"type": "structural_tag", "format": any_of([*calls, *answers])})

    def is_call(self, text: str) -> bool | None:
        """Whether what begins with this text is calls, or may hold them; None while that is not certain."""
        if not (self._may_answer and self._may_call):
            return self._may_call or not self._may_answer
        starts = self._starts
        if any(map(text.startswith, starts)):
            return True if self._differs else None
        return None if any(start.startswith(text) for start in starts) else False

    def plain(self, text: str) -> tuple[int, int]:
        """The start and the end of what is text, whatever follows, in the beginning of an answer."""
        if self.answer is not None:
            if self.is_call(text) is not False:
                return 0, 0
            place = self._answer[1]
            start, marks = len(place.before), place.ends
        elif self._format["type"] == "any_text":
            start, marks = 0, ()
        elif self._format["type"] == "triggered_tags" and not self._format["at_least_one"]:
            start, marks = 0, self._format["triggers"]
        else:  # a call at once; or a text, if it has a header
            headed = [part["elements"] for part in objects_in(self._format) if _is_headed_text(part)]
            if not headed or not text.startswith(header := headed[0][0]["value"]):
                return 0, 0
            start, marks = len(header), headed[0][1]["excludes"]
        found = [at for mark in marks if (at := text.find(mark, start)) >= 0]
        held = max((begun(text[start:], mark) for mark in marks), default=0)
        return start, min(found, default=len(text) - held)

    def answer_start(self, text: str) -> int:
        """The start of an answer in its format in a text that is no call."""
        before = self._answer[1].before if self._may_answer else ""
        return min(len(text), len(before)) if text.startswith(before) or before.startswith(text) else 0

    @property
    def _may_call(self) -> bool:
        return self.choice != "none" and bool(self.allowed)

    @property
    def _may_answer(self) -> bool:
        """Whether there may be an answer in its format."""
        return self.answer is not None and (not self._may_call or self.choice == "auto")

    @cached_property
    def _format(self) -> Tag:
        """The format of calls with the tools' names instead of their schemas, without that of an answer."""
        if self.answer is None:
            return self._format_for(self.choice)
        choice = self.choice if self.choice != "auto" else "required" if self._may_call else "none"
        return calls_alone(self._format_for(choice))

    def _format_for(self, choice: str) -> Tag:
        if self.format == AUTO:
            raise InvalidConstraint(
                "ToolCalls: format='auto' needs a tokenizer: compile it with a Guide, or use for_tokenizer(tokenizer)"
            )
        return call_tag(self.format, list(self.parameters), choice, parallel=self.parallel, stops=self.stops)

    @cached_property
    def _answer(self) -> tuple[Tag, Place]:
        """The format of an answer, and where it stands in the text."""
        assert self.answer is not None
        return with_answer(self._format_for("none"), self.answer, self.header)

    @cached_property
    def _starts(self) -> tuple[str, ...]:
        """The literal texts with which calls begin."""
        return tuple(beginnings(self._format))

    @cached_property
    def _differs(self) -> bool:
        """Whether no answer begins as a call does."""
        if before := self._answer[1].before:
            return not any(start.startswith(before) or before.startswith(start) for start in self._starts)
        is_json = isinstance(self.answer, (JsonSchema, JsonObject))
        return is_json and not any(may_begin(self.answer, start) for start in self._starts)

    @cached_property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The schema of the arguments of each tool that may be called: an object whether or not it says so."""
        functions = (tool["function"] for tool in self.tools)
        return {
            call["name"]: _ANY_ARGUMENTS if call["name"] in self.unchecked else _arguments(call)
            for call in functions
            if call["name"] in self.allowed
        }

    @cached_property
    def lenient(self) -> tuple[str, ...]:
        """The names of the tools that say ``"strict": False`` and whose arguments are not any object already."""
        functions = (tool["function"] for tool in self.tools)
        loose = [call["name"] for call in functions if call.get("strict") is False]
        return tuple(name for name in loose if name in self.allowed and name not in self.unchecked)

    def with_any_object(self, names: Sequence[str]) -> ToolCalls:
        """The same constraint, where the arguments of these tools are any object."""
        return replaced(self, unchecked=(*self.unchecked, *names))

    def only(self, name: str) -> ToolCalls:
        """A call of one of the tools."""
        return replaced(self, choice=name, allowed=(name,), answer=None)

    @property
    def ambiguous_starts(self) -> tuple[str, ...]:
        """The texts with which calls begin, where a text that begins so may be an answer too."""
        return self._starts if self._may_call and self._may_answer and not self._differs else ()

    def _fields_of(self, name: str) -> dict[str, Any]:
        """The fields of a tool's arguments in a structural tag."""
        is_open = name in self.lenient and not self._repeats_names
        return {"json_schema": self.parameters[name], **({"options": {"extra": "allow"}} if is_open else {})}

    @cached_property
    def _repeats_names(self) -> bool:
        """Whether the mark after an argument repeats its name: then only declared names can be written."""
        styles = {part.get("style") for part in objects_in(self._format)}
        return any("{name}" in style.closing for name, style in STYLES.items() if name in styles)

    def parse(self, text: str) -> ToolAnswer:
        """The calls with their arguments, and the text around them; or the answer in its format, with its value.

        Raises:
            ValueError: neither, or arguments that are not valid.
        """
        if not self._may_answer:
            return self._called(text)
        is_call, no_call = self.is_call(text), ""
        if is_call is not False:
            try:
                return self._called(text, exactly=is_call is None)
            except Exception as error:  # a validator may raise anything
                if is_call:
                    raise
                no_call = f"; and no call: {cause(error)}"
        assert self.answer is not None
        try:
            inside = self._answer[1].answer_in(text)
            return ToolAnswer(inside, (), self.answer.parse(inside))
        except Exception as error:  # a validator may raise anything
            if is_call is None and self.lenient:
                with suppress(ValueError):
                    return self._called(text)
            if not no_call:
                raise
            raise ValueError(f"no answer in its format: {cause(error)}{no_call}") from error

    def _called(self, text: str, *, exactly: bool = False) -> ToolAnswer:
        with _depth_as_value_error():
            answer = Reading(self._format, text).whole()
            return ToolAnswer(answer.text, self._settled(answer.calls, 0, exactly=exactly))

    def closed(self, text: str, known: int) -> tuple[str, tuple[ToolCall, ...]]:
        """The calls that are complete in the beginning of an answer, without the first ones, which are known.

        Returns:
            The text before the last of all that are complete, and the calls.
        """
        with _depth_as_value_error():
            complete = Reading(self._format, text).complete
            return complete.text, self._settled(complete.calls, known)

    def begun(self, text: str) -> list[BegunCall]:
        """The calls in the beginning of an answer whose arguments have begun; none where arguments are not JSON."""
        return Reading(self._format, text).begun()

    @cached_property
    def ends(self) -> frozenset[str]:
        """The marks after which a call may be complete."""
        ends = [part["end"] for part in objects_in(self._format) if part.get("type") == "tag"]
        marks = [mark for end in ends for mark in ([end] if isinstance(end, str) else end)]
        return frozenset(mark or "}" for mark in marks)  # without a mark, a call ends with its arguments

    def _settled(self, calls: Sequence[ReadCall], known: int, *, exactly: bool = False) -> tuple[ToolCall, ...]:
        answers = []
        for number, call in enumerate(calls[known:], known):
            try:
                arguments = settled(call.arguments, self._validator(call.name, exactly=exactly))
            except Exception:  # the validator of a schema that cannot be enforced may raise anything
                if exactly or call.name not in self.lenient:
                    raise
                arguments = settled(call.arguments, JsonSchema(True).validator())
            call_id = self.call_id(number, call.name, json.dumps(arguments))
            answers.append(ToolCall(call.name, arguments, call_id))
        return tuple(answers)

    def _validator(self, name: str, *, exactly: bool) -> Any:
        """The validator of a tool's arguments; ``exactly`` closes objects as the texts have them."""
        key = name, exactly and name not in self.lenient
        if key not in self._validators:
            schema = self.parameters[name]
            self._validators[key] = JsonSchema(closed(schema) if key[1] else schema).validator()
        return self._validators[key]

    @cached_property
    def _validators(self) -> dict[tuple[str, bool], Any]:
        return {}

    def check(self) -> None:
        """Check that the format exists and can write these tools; raises InvalidConstraint."""
        self.structural_tag()

    def _identity(self) -> Sequence[Any]:
        answer = None if self.answer is None else self.answer.key
        format = list(astuple(self.format)) if isinstance(self.format, ToolFormat) else self.format
        fields = (self.tools_json, format, self.choice, self.parallel, self.allowed, self.stops)
        return *fields, answer, self.header, self.unchecked

    def __repr__(self) -> str:
        names = [tool["function"]["name"] for tool in self.tools]
        allowed = "" if len(self.allowed) == len(names) else f", allowed={list(self.allowed)}"
        answer = "" if self.answer is None else f", answer={self.answer!r}"
        options = f"format={self.format!r}, choice={self.choice!r}, parallel={self.parallel}"
        return f"ToolCalls({names}, {options}{allowed}{answer})"


def _is_headed_text(part: Mapping[str, Any]) -> bool:
    kinds = [element["type"] for element in part["elements"]] if part.get("type") == "sequence" else []
    return kinds == ["const_string", "any_text"]


def _arguments(function: dict[str, Any]) -> dict[str, Any]:
    """A tool's parameters as the schema of an object, closed where there are none: such a tool takes none."""
    schema = {**(function.get("parameters") or {"properties": {}}), "type": "object"}
    if function.get("strict") is False:
        return schema
    if schema.get("properties") == {} and not schema.keys() & {"patternProperties", "$ref", "allOf", "anyOf", "oneOf"}:
        schema.setdefault("additionalProperties", False)
    return schema
