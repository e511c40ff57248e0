"""Model families, as their chat templates tell them apart: thinking, calls, ids of calls.

This is the one table of them. What a template says itself is read from the template: whether it shows a call's
arguments as an object or as text, and which ids it refuses (generation/messages.py), the header of an answer, and
which markers of thinking it has. ``templates`` is always the tokenizer, or a processor.
"""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, AnyStr, Generic, TypeVar

_QUESTION, _MARK, _THOUGHT = {"role": "user", "content": "Go."}, "markOfAnswer", "markOfThinking"
_THINKS = {"enable_thinking": True, "thinking": True}  # variables by which templates are asked for thinking
_ALPHANUMERIC = string.digits + string.ascii_letters

Value = TypeVar("Value")


class Measured(Generic[Value]):
    """Findings from renderings of small chats, of the 256 templates used last; for any threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, template: Hashable, variables: Mapping[str, Any], measure: Callable[[], Value]) -> Value:
        """The value of a template with these variables, measured where it is not known."""
        key = template, repr(sorted(variables.items(), key=lambda item: item[0]))
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = measure()  # not locked: a template may take its time
        with self._lock:
            self._values[key] = value
            if len(self._values) > 256:
                self._values.popitem(last=False)
        return value


_headers: Measured[str] = Measured()
_spaces: Measured[str] = Measured()


@dataclass(frozen=True)
class ChatFamily:
    """A model family, as its chat templates have it in common.

    Args:
        calls: the notation of tool calls, a name of ``ToolCalls.format``; None if there is none for it.
        mark: a pattern that only templates of this family contain.
        thinking: the markers around thinking; None: those of ``_THINKING`` that the template contains.
        ends_prompts: whether every prompt ends with the end of thinking, which begins the next message.
        call_ids: a pattern of all ids of calls that the family knows; None where any id will do.
    """

    calls: str | None
    mark: str
    thinking: tuple[str, str] | None = None
    ends_prompts: bool = False
    call_ids: str | None = None


_NINE = "[0-9A-Za-z]{9}"

# The more particular families first. Templates hold line ends as they are or as escapes, and may join marks from parts.
_FAMILIES = (
    ChatFamily("mistral_v11", r"\[CALL_ID\]", call_ids=_NINE),
    ChatFamily("mistral_v13", r"\[ARGS\]", call_ids=_NINE),
    ChatFamily("mistral", r"\[TOOL_CALLS\]", call_ids=_NINE),
    # After its analysis a model begins a new message: a call, or the answer with its header.
    ChatFamily(
        "harmony",
        r"<\|channel\|>",
        thinking=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        ends_prompts=True,
    ),
    ChatFamily("kimi_k3", r"<\|open\|>", thinking=("<|open|>think<|sep|>", "<|close|>think<|sep|>")),
    # Solar Open, Muse, Hunyuan 3.
    ChatFamily(None, r"<\|tool_call:begin\|>", thinking=("<|think|>", "<|end|><|begin|>assistant"), ends_prompts=True),
    ChatFamily(
        None, r"to=self<\|message\|>", thinking=(" to=self<|message|>", "<|eom|><|start|>assistant"), ends_prompts=True
    ),
    ChatFamily(None, r"hy_Assistant", thinking=("<think:opensource>", "</think:opensource>")),
    ChatFamily("kimi", r"<\|tool_calls_section_begin\|>", call_ids=r"functions\.[^:]+:[0-9]+"),
    ChatFamily("deepseek_v4_1", r"｜DSML｜ calls"),
    ChatFamily("deepseek_v4", r"｜DSML｜.*tool_calls>"),
    ChatFamily("deepseek_v3_2", r"｜DSML｜.*function_calls>"),
    ChatFamily("deepseek_r1", r"<｜tool▁calls▁begin｜>.*```json"),
    ChatFamily("deepseek_v3_1", r"<｜tool▁calls▁begin｜>"),
    ChatFamily("minimax_m3", r"\]<\]minimax\[>\["),
    ChatFamily("minimax", r"<minimax:tool_call>"),
    ChatFamily("cohere", r"<cofl:tool_call"),
    ChatFamily("command_r7b", r"<\|START_ACTION\|>"),
    ChatFamily("command_r", r"\"tool_name\": .*\]```"),
    ChatFamily("nemotron", r"<TOOLCALL>\["),
    ChatFamily("apertus", r"<\|tools_prefix\|>"),
    ChatFamily("firefunction", r"functools\["),
    ChatFamily("functionary_v3_2", r">>>all"),
    ChatFamily("granite", r"<\|tool_call\|>.*<\|start_of_role\|>|<\|start_of_role\|>.*<\|tool_call\|>"),
    ChatFamily("apriel", r"<tool_calls>\["),
    ChatFamily(None, r"<seed:tool_call>"),  # Seed-OSS
    ChatFamily("glm_4_7", r"<arg_key>"),
    ChatFamily("mimo", r"<tool_call><function="),
    ChatFamily("qwen_3_coder", r"<function=.*<parameter="),
    ChatFamily("functionary_v3_1", r"<function=.*</function>"),
    ChatFamily("exaone", r"\[\|assistant\|\].*<tool_call>|<tool_call>.*\[\|assistant\|\]"),
    ChatFamily("qwen_3", r"<tool_call>"),
    ChatFamily("llama", r"<\|start_header_id\|>.*\"parameters\": |\"parameters\": .*<\|start_header_id\|>"),
)
_THINKING = (
    ("<think>", "</think>"),
    ("<|channel>thought\n", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("<mm:think>", "</mm:think>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
)
# Names of thinking in response templates, and in messages.
_THINKING_FIELDS = ("reasoning_content", "thinking", "reasoning")
# A tool and a call of it, for small chats whose renderings show how a template writes them.
PROBE_KEY, PROBE_VALUE = "probe", "value 7"
PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": _MARK,
        "description": "Looks up.",
        "parameters": {
            "type": "object",
            "properties": {PROBE_KEY: {"type": "string", "description": "What."}},
            "required": [PROBE_KEY],
        },
    },
}
# With its arguments as templates take them: as an object, or as text.
PROBE_CALLS: list[dict[str, Any]] = [
    {"id": "a1B2c3D4e", "type": "function", "function": {"name": _MARK, "arguments": arguments}}
    for arguments in ({PROBE_KEY: PROBE_VALUE}, json.dumps({PROBE_KEY: PROBE_VALUE}))
]


def begun(text: AnyStr, mark: AnyStr) -> int:
    """The length of the longest proper prefix of a mark that the text ends with: the next text may complete it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)


@lru_cache(maxsize=64)
def family_of_text(template: str) -> ChatFamily | None:
    """The family of a chat template's source; None if it is unknown."""
    return next((family for family in _FAMILIES if re.search(family.mark, template, re.DOTALL)), None)


def family_of(templates: Any) -> ChatFamily | None:
    """The family of a tokenizer or a processor; None if it has no chat template, or one of an unknown family."""
    source = template_source(templates, {"tools": []})
    return None if source is None else family_of_text(source)


def template_source(templates: Any, arguments: Mapping[str, Any]) -> str | None:
    """The source of the chat template that ``apply_chat_template`` uses with these arguments; None if there is none."""
    chosen, own = arguments.get("chat_template"), getattr(templates, "chat_template", None)
    if own is None and chosen is None and hasattr(templates, "get_chat_template"):
        try:
            own = templates.get_chat_template(tools=arguments.get("tools"))
        except (AttributeError, NotImplementedError, ValueError):
            return None
    if isinstance(own, Mapping):
        default = "tool_use" if arguments.get("tools") is not None and "tool_use" in own else "default"
        chosen = own.get(chosen or default, chosen)
    chosen = own if chosen is None else chosen
    return chosen if isinstance(chosen, str) else None


def attempts(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The arguments for a template, and those with no tools in a list if they have none.

    Some templates go through their tools without asking whether there are any.
    """
    return [arguments] if arguments.get("tools") is not None else [arguments, {**arguments, "tools": []}]


def rendered_if_taken(templates: Any, chat: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> str | None:
    """The text that a template makes of a chat as it is; None if the template refuses it."""
    kept = {name: value for name, value in arguments.items() if name not in ("tokenize", "sanitize_control_tokens")}
    for given in attempts(kept):
        try:
            return str(templates.apply_chat_template(chat, tokenize=False, **given))
        except Exception:  # a template may raise anything
            continue
    return None


def thinking_markers(templates: Any) -> tuple[str, str] | None:
    """The markers between which a model thinks; None if its templates know of no thinking.

    A response template describes a family, of which some models do not think: their chat templates do not contain its
    marker.
    """
    source = template_source(templates, {})
    if source is None:
        return None
    family = family_of_text(source)
    if family is not None and family.thinking is not None:
        return family.thinking
    tokenizer = getattr(templates, "tokenizer", templates)
    fields = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
    declared = [fields[name] for name in _THINKING_FIELDS if name in fields]
    for start, end in [*((field.get("open"), field.get("close")) for field in declared), *_THINKING]:
        if isinstance(start, str) and isinstance(end, str) and end in source:
            return start, end
    return None


def call_id(calls: object, number: int, name: str, unique: str) -> str:
    """The id of a tool call.

    Args:
        calls: the notation of the calls.
        number: how many calls the conversation has before this one.
        name: of the tool.
        unique: a text that other calls of this number and name do not have.
    """
    if calls == "kimi":
        return f"functions.{name}:{number}"
    return nine_alphanumerics(f"{number} {name} {unique}")


def nine_alphanumerics(text: str) -> str:
    """An id of nine characters, the same for the same text: the only form that all templates take."""
    rest = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big")
    characters = []
    for _ in range(9):
        rest, index = divmod(rest, len(_ALPHANUMERIC))
        characters.append(_ALPHANUMERIC[index])
    return "".join(characters)


def accepts_id(family: ChatFamily | None, given: str) -> bool:
    """Whether an id has a form that the family knows."""
    return family is None or family.call_ids is None or re.fullmatch(family.call_ids, given) is not None


def answer_header(templates: Any, arguments: Mapping[str, Any]) -> str:
    """The text that a model writes before an answer, after its prompt or its thinking; often empty.

    It is measured: what the template writes between a prompt and an answer that follows it.
    """
    if (source := template_source(templates, arguments)) is None:
        return ""
    return _headers.get(source, arguments, lambda: _measured_header(templates, arguments))


def _measured_header(templates: Any, arguments: Mapping[str, Any]) -> str:
    start, end = markers = thinking_markers(templates) or ("", "")
    prompt = rendered_if_taken(templates, [_QUESTION], {**arguments, "add_generation_prompt": True})
    if prompt is None:
        return ""
    # A template may write an answer's thinking otherwise than its prompt does.
    for text in (prompt, _without_thinking(prompt, markers)):
        header = _before_next(templates, arguments, text, "assistant")
        if header is not None:
            break
    # What a message of the user can follow is no beginning of an answer: the template writes none.
    if header is None or _before_next(templates, arguments, text, "user") is not None:
        return ""
    header = header.rpartition(end)[2] if end else header
    return header if header.strip() and not (start and start in header) else ""


def space_after_thinking(templates: Any) -> str:
    """The line ends that a model writes between the end of its thinking and an answer or a call; often none.

    It is measured: what the template writes there, or, where it leaves thinking out of messages, what goes with the
    beginning of thinking in its prompts.
    """
    markers, source = thinking_markers(templates), template_source(templates, {})
    if markers is None or source is None:
        return ""
    start, end = markers

    def measured() -> str:
        written = [*_spaces_in_messages(templates, end)] or [*_spaces_of_prompts(templates, start, end)]
        return max(written, key=len, default="")

    return _spaces.get(source, {}, measured)


def _spaces_in_messages(templates: Any, end: str) -> Iterator[str]:
    thought = dict.fromkeys(_THINKING_FIELDS, _THOUGHT)
    answer: dict[str, Any] = {"role": "assistant", "content": _MARK, **thought}
    for variables in ({}, _THINKS):
        for message in (answer, *({**answer, "content": "", "tool_calls": [call]} for call in PROBE_CALLS)):
            chat: list[Mapping[str, Any]] = [_QUESTION, message]
            text = rendered_if_taken(templates, chat, {**variables, "tools": [PROBE_TOOL]}) or ""
            _, thinks, later = text.partition(_THOUGHT)
            between, ended, after = later.partition(end)
            if thinks and ended and not between.strip() and _MARK in after:
                yield after[: len(after) - len(after.lstrip("\n"))]


def _spaces_of_prompts(templates: Any, start: str, end: str) -> Iterator[str]:
    for variables in ({}, _THINKS):
        prompt = rendered_if_taken(templates, [_QUESTION], {**variables, "add_generation_prompt": True}) or ""
        if prompt.rstrip().endswith(start.rstrip()):
            yield end_of_thinking(prompt, end).partition(end)[2]


def end_of_thinking(prompt: str, end: str) -> str:
    """The end marker as a model writes it whose prompts begin thinking like this.

    Templates whose marker ends its line write the end in a line of its own, and an empty line after it.
    """
    return f"\n{end}\n\n" if prompt.endswith("\n") else end


def _before_next(templates: Any, arguments: Mapping[str, Any], prompt: str, role: str) -> str | None:
    """The text between a prompt and the text of the next message; None if that message does not follow it."""
    chat = [_QUESTION, {"role": role, "content": _MARK}]
    text = rendered_if_taken(templates, chat, arguments)
    if text is None:
        return None
    before, found, _ = text.removeprefix(prompt).partition(_MARK)
    return before if found and text.startswith(prompt) else None


def _without_thinking(prompt: str, markers: tuple[str, str]) -> str:
    """A prompt without the markers of thinking that it ends with."""
    text = prompt.rstrip()
    for marker in reversed(markers):
        text = text.removesuffix(marker.rstrip()).rstrip()
    return text
