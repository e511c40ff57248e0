"""Advice on arguments that a call does not take: one table for all public calls.

People bring names from other libraries, from chat templates and from other calls of this package. "Leave it out" would
lose what they want, so the message says where the value goes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ..errors import InvalidArgument, UnknownArgument
from .argument_checks import WARPERS
from .suggestions import closest

P = ParamSpec("P")
R = TypeVar("R")


class Call(NamedTuple):
    """Names of a public call and its arguments, for messages.

    Args:
        name: of the call.
        constraint: the argument that holds the constraint; "" if the call takes none.
        place: the same with its number among the positional arguments, if it has one.
        takes: what it may be.
        prompts: the argument that holds the prompts; None if the call takes no prompts, and renders no chats.
    """

    name: str
    constraint: str
    place: str
    takes: str
    prompts: str | None


_ANY = "a type, a schema, hg.Regex(...), hg.Choice(...) or hg.Grammar(...)"
GENERATE = Call("hg.generate", "constraint", "constraint, the fourth argument", _ANY, "prompts")
PIPELINE = Call("the pipeline", "response_format", "response_format", _ANY, "text_inputs")
SCORE = Call("hg.score", "choices", "choices, the fourth argument", "hg.Choice(...)", "prompts")
SAMPLE = Call("hg.sample", "constraint", "constraint, the fourth argument", _ANY, "prompts")
DESCRIBE = Call("hg.describe", "constraint", "constraint, the first argument", _ANY, None)
GUIDE = Call("hg.Guide", "", "an argument of hg.generate, guide.decoder and guide.logits_processor", _ANY, None)
MODEL = Call("hg.Model(model, tokenizer)", "constraint", "constraint, the second argument", _ANY, "prompt")


def of_guide(name: str) -> Call:
    """A method of Guide whose first argument is the constraint."""
    return Call(f"guide.{name}", "constraint", "constraint, the first argument", _ANY, None)


DECODER, PROCESSOR = of_guide("decoder"), of_guide("logits_processor")


class Advice(NamedTuple):
    """The advice on an argument that a call does not take.

    Args:
        text: for the message. In a table it has ``{argument}`` and the fields of ``Call`` in braces.
        suggestion: the argument of the call that takes the value; None if no argument does. In a table, "constraint"
            and "prompts" stand for the arguments that hold them.
    """

    text: str
    suggestion: str | None = None


def _all(names: str, text: str, suggestion: str | None = None) -> dict[str, Advice]:
    return dict.fromkeys(names.split(), Advice(text, suggestion))


def _tools(names: str, form: str) -> dict[str, Advice]:
    return _all(names, f"tools are a constraint: pass {form} as {{place}}", "constraint")


def _media(kind: str, names: str) -> dict[str, Advice]:
    part = f'{{{{"type": "{kind}", "url": ...}}}}'
    into = f"it is a part of a chat: put {part} into a message's content, and pass the processor as the tokenizer"
    return _all(names, into, "prompts")


RULES: dict[str, Advice] = {
    **_all(
        "choice choices constraint ebnf format grammar guided_choice guided_grammar guided_json guided_regex json "
        "json_object json_schema output_schema output_type pattern pydantic_model regex response_format response_model "
        "schema structural_tag structured_output structured_outputs",
        "the constraint is {place}: pass {takes} there",
        "constraint",
    ),
    **_tools("functions", "hg.ToolCalls(functions)"),
    **_tools("parallel_tool_calls", "hg.ToolCalls(tools, parallel=...)"),
    **_tools("tool_choice", "hg.ToolCalls(tools, choice=...)"),
    **_tools("tool_format", "hg.ToolCalls(tools, format=...)"),
    **_tools("tools", "hg.ToolCalls(tools)"),
    **_all(
        "extra indent key_order max_depth on_unsupported registry spelling whitespace",
        "it is an option of hg.JsonSchema: pass hg.JsonSchema(schema, {argument}=...) as {place}",
        "constraint",
    ),
    "whitespace_pattern": Advice(
        "it is an option of hg.JsonSchema: pass hg.JsonSchema(schema, whitespace=...) as {place}", "constraint"
    ),
    **_all(
        "builtin_tools chat_template custom_tools date_string enable_thinking preserve_thinking reasoning_effort "
        "thinking thinking_budget",
        'it is for the chat template: pass chat_template_kwargs={{"{argument}": ...}}, or make the prompt with '
        "tokenizer.apply_chat_template(chat, {argument}=...)",
        "chat_template_kwargs",
    ),
    **_all(
        "describe documents show_tools",
        "{name} renders no chats: pass it to hg.generate, or make the prompt with "
        "tokenizer.apply_chat_template(chat, {argument}=...)",
    ),
    "chat_template_kwargs": Advice(
        "{name} renders no chats: pass it to hg.generate, or make the prompt with "
        "tokenizer.apply_chat_template(chat, **chat_template_kwargs)"
    ),
    **_media("image", "image images img imgs"),
    **_media("audio", "audio audios"),
    **_media("video", "video videos"),
    **_all(
        "chat chats conversation messages prompt prompts text text_inputs texts",
        "texts and chats are {prompts}: pass it there",
        "prompts",
    ),
    **_all(
        "add_generation_prompt add_special_tokens padding return_tensors tokenize truncation",
        "it is decided where the prompts become tokens; leave it out",
    ),
    **_all("system system_prompt", 'put {{"role": "system", "content": ...}} at the beginning of the chat'),
    "continue_final_message": Advice("prefix=... begins the answer", "prefix"),
    "stop_token_ids": Advice("eos_token_id=[...] ends rows", "eos_token_id"),
    "overlap": Advice("pass it to guide.decoder, or set the environment variable HF_GUIDED_OVERLAP"),
    "retokenize": Advice("pass it to guide.decoder"),
    "max_prefixes": Advice("pass it to hg.score"),
    "timeout_s": Advice("what a compile may take is counted, and no option"),
    "max_thinking_tokens": Advice("pass reasoning=hg.Reasoning(max_tokens=...)", "reasoning"),
    "best_of": Advice("sample num_return_sequences=... answers, and choose among the results"),
    **_all("frequency_penalty presence_penalty", "repetition_penalty=... is the nearest setting of transformers"),
    "logit_bias": Advice("sequence_bias=... is the nearest setting of transformers"),
    "device": Advice("move the model before the call: model.to(device)"),
    **_all("dtype torch_dtype", "load the model with it: from_pretrained(..., dtype=...)"),
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


_OTHER_WARPERS = frozenset(("frequency_penalty", "presence_penalty", "logit_bias", "logits_processor"))


def advice(name: str, call: Call, known: Iterable[str]) -> Advice | None:
    """The advice on an argument that a call does not take; None if it is unknown."""
    if call is SAMPLE and (name in WARPERS or name in _OTHER_WARPERS):
        return Advice("it would change the distribution whose samples these are; leave it out, or use hg.generate")
    known = sorted(known)
    renamed = RENAMED.get(name)
    if renamed in known:
        return Advice(f"did you mean {renamed}?", renamed)
    if name in RULES:
        found = _by_rule(name, call, known)
        return (
            found if found.suggestion is None else Advice(f"{found.text}; did you mean {found.suggestion}?", found[1])
        )
    match = closest(name, known)
    if match is not None:
        return Advice(f"did you mean {match}?", match)
    near = closest(name, RULES)
    if near is not None:
        advice = _by_rule(near, call, known)
        return Advice(f"did you mean {near}? {advice.text[0].upper()}{advice.text[1:]}", advice.suggestion)
    return None


def _by_rule(name: str, call: Call, known: Iterable[str]) -> Advice:
    text, suggestion = RULES[name]
    if call is SCORE and "ToolCalls" in text:
        text, suggestion = 'tools are shown by chat_template_kwargs={{"tools": ...}}', "chat_template_kwargs"
    text = text.format(argument=name, **{**call._asdict(), "prompts": call.prompts or "prompts of hg.generate"})
    suggestion = {"constraint": call.constraint, "prompts": call.prompts}.get(suggestion or "", suggestion) or None
    if suggestion in (None, call.constraint, call.prompts) or suggestion in known:
        return Advice(text, suggestion)
    return Advice(f"it is for hg.generate, where {text}")


def with_fields(options: type, *, others: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Name the fields of an object in the signature, which help() shows, of a function whose keywords make it.

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


def explains_its_arguments(call: Call) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Raise an error that says how a function is called, for arguments that do not fit its signature."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = [each for each in signature.parameters.values() if each.name != "self"]
        known = {each.name for each in parameters}
        takes_others = any(each.kind == each.VAR_KEYWORD for each in parameters)
        required = [each.name for each in parameters if each.default is each.empty and each.kind in _POSITIONAL]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            unknown = [name for name in kwargs if name not in known]
            if unknown and not takes_others:
                settings = "" if call.prompts else "generation settings go to model.generate; "
                others = f"{settings}the arguments here are {', '.join(sorted(known))}"
                raise _unknown(unknown[0], call, advice(unknown[0], call, known) or Advice(others))
            try:
                return function(*args, **kwargs)
            except TypeError:
                try:
                    signature.bind(*args, **kwargs)
                except TypeError as error:
                    misfit = str(error)
                else:
                    raise
            for name in unknown:  # an unknown name may stand for an argument that is missing
                found = advice(name, call, known)
                if found is not None and found.suggestion in required and found.suggestion not in kwargs:
                    raise _unknown(name, call, found)
            raise InvalidArgument(f"{call.name}: {misfit}; write {call.name}({', '.join(required)})")

        if not inspect.iscoroutinefunction(function):
            return checked

        # Frameworks ask whether it is a coroutine function.
        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await cast(Any, checked(*args, **kwargs))

        return cast("Callable[P, R]", awaited)

    return decorate


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _unknown(name: str, call: Call, found: Advice) -> UnknownArgument:
    return UnknownArgument(
        f"unknown argument {name}: {call.name} does not take it; {found.text}", name=name, suggestion=found.suggestion
    )
