"""Variables of the chat template, and whether the model is to think."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from ...constraints.suggestions import did_you_mean
from ...errors import shown
from .defaults import Defaults
from .refusals import refused

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_NO_EFFORT = ("none", "minimal")
SWITCHES = ("enable_thinking", "thinking")  # names that templates have for it
_PATH = "chat_template_kwargs"


@cache
def reserved_names() -> frozenset[str]:
    """Names that would not reach the template as a variable, or would replace what the server gives it."""
    methods = (PreTrainedTokenizerBase.apply_chat_template, ProcessorMixin.apply_chat_template, render_jinja_template)
    parameters = {name for method in methods for name in inspect.signature(method).parameters}
    of_every_template = {"messages", "raise_exception", "strftime_now"}
    return frozenset({*parameters, *of_every_template, *PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES} - {"kwargs"})


def read_thinking(
    given: Mapping[str, Any], effort: str | None, defaults: Defaults, effort_path: str = "reasoning_effort"
) -> tuple[dict[str, Any], bool | None]:
    """The template's variables, and whether the model thinks; None if the request does not say it.

    Args:
        given: the request's ``chat_template_kwargs``.
        effort: its ``reasoning_effort``.
        defaults: the variables that the template reads.
        effort_path: the field of the effort.

    Raises:
        RequestRefused: an argument of ``apply_chat_template``, a variable that the template does not read, or two
            fields that contradict each other.
    """
    known = defaults.template_variables
    for name in given:
        if name in reserved_names():
            raise refused(f"{_PATH}.{name}", "it is set by the server; leave it out", "unsupported_field")
        if known is not None and name not in known and name not in SWITCHES:
            near = did_you_mean(name, known) if len(name) <= 64 else ""
            raise refused(_PATH, f"the model's chat template does not read {shown(name)}{near}", "unknown_field")
    switches = {name: given[name] for name in SWITCHES if name in given}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise refused(f"{_PATH}.{name}", f"expected true or false, got {shown(value)}")
    said = {f"{_PATH}.{name}": value for name, value in switches.items()}
    variables = dict(given)
    if effort is not None:
        said[effort_path] = effort not in _NO_EFFORT
        variables.setdefault("reasoning_effort", effort)
    if len(set(said.values())) > 1:
        raise refused(next(iter(said)), f"expected {' and '.join(said)} to agree on whether the model thinks")
    think = next(iter(said.values()), None)
    if think is not None:
        variables = {**dict.fromkeys(SWITCHES, think), **variables}
    return {name: value for name, value in variables.items() if name in given or name in (known or ())}, think
