"""Advice on arguments that a call does not take: one table for all public calls.

People bring names from other libraries, from chat templates and from other calls of this package. "Leave it out" would
lose what they want, so the message says where the value goes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

from ..errors import UnknownArgument
from .suggestions import closest

P = ParamSpec("P")
R = TypeVar("R")


class Call(NamedTuple):
    """How messages name a public call and its arguments.

    Args:
        name: of the call.
        constraint: the argument that holds the constraint.
        position: its number among the positional arguments, for messages; empty if it has none.
        prompts: the argument that holds the prompts; None if the call takes no prompts, and renders no chats.
    """

    name: str
    constraint: str
    position: str
    prompts: str | None


GENERATE = Call("hg.generate", "constraint", ", the fourth argument", "prompts")
PIPELINE = Call("the pipeline", "response_format", "", "text_inputs")
SCORE = Call("hg.score", "choices", ", the fourth argument", "prompts")
DECODER = Call("guide.decoder", "constraint", ", the first argument", None)
PROCESSOR = Call("guide.logits_processor", "constraint", ", the first argument", None)


class Advice(NamedTuple):
    """The advice on an argument that a call does not take.

    Args:
        text: for the message.
        suggestion: the argument of the call that takes the value; None if no argument does.
    """

    text: str
    suggestion: str | None


_Rule = Callable[[Call, str], Advice]


def _constraint(call: Call, name: str) -> Advice:
    what = "hg.Choice(...)" if call is SCORE else "a type, a schema, hg.Regex(...), hg.Choice(...) or hg.Grammar(...)"
    return Advice(f"the constraint is {call.constraint}{call.position}: pass {what} there", call.constraint)


def _tools(form: str) -> _Rule:
    def rule(call: Call, name: str) -> Advice:
        if call is SCORE:
            return Advice('tools are shown to the model by chat_template_kwargs={"tools": ...}', "chat_template_kwargs")
        return Advice(f"tools are a constraint: pass {form} as {call.constraint}{call.position}", call.constraint)

    return rule


def _schema_option(call: Call, name: str) -> Advice:
    option = "whitespace" if name == "whitespace_pattern" else name
    wrapped = f"hg.JsonSchema(schema, {option}=...)"
    return Advice(
        f"it is an option of hg.JsonSchema: pass {wrapped} as {call.constraint}{call.position}", call.constraint
    )


def _template(call: Call, name: str) -> Advice:
    if call.prompts is None:
        return Advice(
            f"it is for the chat template: tokenizer.apply_chat_template(chat, {name}=...) makes the prompt", None
        )
    return Advice(f'it is for the chat template: pass chat_template_kwargs={{"{name}": ...}}', "chat_template_kwargs")


def _of_chats(call: Call, name: str) -> Advice:
    """Arguments of the calls that render chats; the others are given prompts that are rendered already."""
    given = "**chat_template_kwargs" if name == "chat_template_kwargs" else f"{name}=..."
    return Advice(
        f"{call.name} renders no chats: pass it to hg.generate, or make the prompt with "
        f"tokenizer.apply_chat_template(chat, {given})",
        None,
    )


def _media(kind: str) -> _Rule:
    def rule(call: Call, name: str) -> Advice:
        part = f'{{"type": "{kind}", "url": ...}}'
        where = "a message's content" if call.prompts is None else f"a message's content, in {call.prompts}"
        return Advice(
            f"it is a part of a chat: put {part} into {where}, and pass the processor instead of the tokenizer",
            call.prompts,
        )

    return rule


def _prompt(call: Call, name: str) -> Advice:
    if call.prompts is None:
        return Advice(f"{call.name} takes no prompt: pass its tokens to model.generate, or call hg.generate", None)
    return Advice(f"texts and chats are {call.prompts}: pass it there", call.prompts)


def _decided(call: Call, name: str) -> Advice:
    by = call.name if call.prompts is not None else "the caller of model.generate"
    return Advice(f"{by} decides this when it makes tokens of the prompts; leave it out", None)


def _elsewhere(text: str, suggestion: str | None = None) -> _Rule:
    return lambda call, name: Advice(text, suggestion)


def _all(names: str, rule: _Rule) -> dict[str, _Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, _Rule] = {
    **_all(
        "choice choices constraint ebnf format grammar guided_choice guided_grammar guided_json guided_regex json "
        "json_object json_schema output_schema output_type pattern pydantic_model regex response_format response_model "
        "schema structural_tag structured_output structured_outputs",
        _constraint,
    ),
    "functions": _tools("hg.ToolCalls(functions)"),
    "parallel_tool_calls": _tools("hg.ToolCalls(tools, parallel=...)"),
    "tool_choice": _tools("hg.ToolCalls(tools, choice=...)"),
    "tool_format": _tools("hg.ToolCalls(tools, format=...)"),
    "tools": _tools("hg.ToolCalls(tools)"),
    **_all(
        "extra indent key_order max_depth on_unsupported registry spelling whitespace whitespace_pattern",
        _schema_option,
    ),
    **_all(
        "builtin_tools chat_template custom_tools date_string enable_thinking preserve_thinking reasoning_effort "
        "thinking thinking_budget",
        _template,
    ),
    **_all("chat_template_kwargs describe documents show_tools", _of_chats),
    **_all("image images img imgs", _media("image")),
    **_all("audio audios", _media("audio")),
    **_all("video videos", _media("video")),
    **_all("chat chats conversation messages prompt prompts text text_inputs texts", _prompt),
    **_all("add_generation_prompt add_special_tokens padding return_tensors tokenize truncation", _decided),
    **_all(
        "system system_prompt",
        _elsewhere('put {"role": "system", "content": ...} at the beginning of the chat'),
    ),
    "continue_final_message": _elsewhere("prefix=... begins the answer", "prefix"),
    "stop_token_ids": _elsewhere("eos_token_id=[...] ends rows", "eos_token_id"),
    "overlap": _elsewhere("pass it to guide.decoder, or set the environment variable HF_GUIDED_OVERLAP"),
    "retokenize": _elsewhere("pass it to guide.decoder"),
    "max_prefixes": _elsewhere("pass it to hg.score"),
    "timeout_s": _elsewhere("what a compile may take is counted, and no option"),
    "max_thinking_tokens": _elsewhere("pass reasoning=hg.Reasoning(max_tokens=...)", "reasoning"),
    "best_of": _elsewhere("sample num_return_sequences=... answers, and choose among the results"),
    **_all(
        "frequency_penalty presence_penalty",
        _elsewhere("repetition_penalty=... is the nearest setting of transformers"),
    ),
    "logit_bias": _elsewhere("sequence_bias=... is the nearest setting of transformers"),
    "device": _elsewhere("move the model before the call: model.to(device)"),
    **_all("dtype torch_dtype", _elsewhere("load the model with it: from_pretrained(..., dtype=...)")),
}

RENAMED = {
    "eos_token_id": "stop_token_ids",
    "max_completion_tokens": "max_new_tokens",
    "max_output_tokens": "max_new_tokens",
    "max_retries": "retries",
    "max_tokens": "max_new_tokens",
    "n": "num_return_sequences",
    "num_samples": "num_return_sequences",
    "random_state": "seed",
    "retry": "retries",
    "retrys": "retries",
    "stop": "stop_strings",
    "stop_sequences": "stop_strings",
    "top_logprobs": "logprobs",
}
"""The same argument under the name that another library gives it, or under a plural or singular of its name."""


def advice(name: str, call: Call, known: Iterable[str]) -> Advice | None:
    """The advice on an argument that a call does not take; None if it is unknown.

    Args:
        name: of the argument.
        call: which call.
        known: the arguments that the call takes.
    """
    known = sorted(known)
    renamed = RENAMED.get(name)
    if renamed in known:
        return Advice(f"did you mean {renamed}?", renamed)
    if name in RULES:
        return _by_rule(name, call, known)
    match = closest(name, known)
    if match is not None:
        return Advice(f"did you mean {match}?", match)
    near = closest(name, RULES)
    if near is not None:
        advice = _by_rule(near, call, known)
        return Advice(f"did you mean {near}? {advice.text[0].upper()}{advice.text[1:]}", advice.suggestion)
    return None


def _by_rule(name: str, call: Call, known: Iterable[str]) -> Advice:
    advice = RULES[name](call, name)
    if advice.suggestion in (None, call.constraint, call.prompts) or advice.suggestion in known:
        return advice
    return Advice(f"it is for hg.generate, where {advice.text}", None)


def with_fields(options: type, *, others: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For functions whose keywords make an object: the signature, which help() shows, names its fields.

    Args:
        options: the class of the object.
        others: whether the function takes other keywords too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        *named, keywords = signature.parameters.values()
        fields = [each.replace(kind=each.KEYWORD_ONLY) for each in inspect.signature(options).parameters.values()]
        parameters = [*named, *fields, *([keywords] if others else [])]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


def takes_only_its_arguments(call: Call) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For functions without ``**kwargs``: an unknown keyword is an ``UnknownArgument`` that says where it belongs.

    Args:
        call: how messages name the function.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = set(inspect.signature(function).parameters) - {"self"}

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in known:
                    settings = "" if call.prompts else "generation settings go to model.generate; "
                    others = f"{settings}the arguments here are {', '.join(sorted(known))}"
                    text, suggestion = advice(name, call, known) or (others, None)
                    raise UnknownArgument(
                        f"unknown argument {name}: {call.name} does not take it; {text}",
                        name=name,
                        suggestion=suggestion,
                    )
            return function(*args, **kwargs)

        return checked

    return decorate
