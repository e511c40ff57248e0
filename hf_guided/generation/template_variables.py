"""The variables that a chat template reads, and a warning for those that it ignores."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..constraints.chat_families import template_source
from ..constraints.suggestions import did_you_mean

# Variables that transformers passes to every template.
_ALWAYS = frozenset("messages add_generation_prompt raise_exception strftime_now dict namespace".split())
# A tag of transformers for training; its content is written unchanged.
_GENERATION = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")


def unread_variables(templates: Any, arguments: Mapping[str, Any]) -> str | None:
    """A warning about variables that the template never reads, so that passing them changes nothing.

    Args:
        templates: the tokenizer, or a processor.
        arguments: for ``apply_chat_template``; a value of None counts as not passed.

    Returns:
        The text; None if the template reads all of them, or cannot be parsed.
    """
    given = {name for name, value in arguments.items() if value is not None} - _of_the_method(templates)
    source = template_source(templates, arguments) if given else None
    read = None if source is None else _variables(source)
    if read is None or not (unread := sorted(given - read)):
        return None
    own = sorted(_own(read, templates))
    hint = did_you_mean(unread[0], own) if len(unread) == 1 else ""
    return (
        f"the chat template never reads {', '.join(unread)}, so this changes nothing{hint}; it reads "
        f"{', '.join(own) or 'no variables but the messages'}"
    )


def own_variables(templates: Any) -> frozenset[str] | None:
    """The variables that a template reads besides those that transformers passes to every template.

    Args:
        templates: the tokenizer, or a processor.

    Returns:
        None if there is no template, or it cannot be parsed.
    """
    source = template_source(templates, {})
    read = None if source is None else _variables(source)
    return None if read is None else _own(read, templates)


def _own(read: frozenset[str], templates: Any) -> frozenset[str]:
    return read - _ALWAYS - _special_tokens(templates)


@lru_cache(maxsize=16)
def _variables(source: str) -> frozenset[str] | None:
    """The variables of a template that it does not set itself; None if it cannot be parsed."""
    try:
        from jinja2 import Environment, TemplateError, meta
    except ImportError:  # transformers reports it when it renders
        return None
    environment = Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"], autoescape=False)
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", source))))
    except TemplateError:  # also for tags that only transformers knows
        return None


@lru_cache(maxsize=16)
def _parameters(method: Any) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters if callable(method) else ())


def _of_the_method(templates: Any) -> frozenset[str]:
    """Arguments that ``apply_chat_template`` uses itself; for a processor also those of its parts."""
    own = _parameters(getattr(type(templates), "apply_chat_template", None)) - {"documents", "tools"}
    if hasattr(templates, "tokenizer") and hasattr(templates, "attributes"):
        return own | _of_processors()
    return own | {"sanitize_control_tokens"}


@lru_cache(maxsize=1)
def _of_processors() -> frozenset[str]:
    from transformers import processing_utils

    names = {"sanitize_control_tokens"}
    for kind in vars(processing_utils).values():
        if isinstance(kind, type) and hasattr(kind, "__required_keys__"):  # a TypedDict of arguments
            names |= set(kind.__annotations__)
    return frozenset(names)


def _special_tokens(templates: Any) -> frozenset[str]:
    holder = templates if hasattr(templates, "special_tokens_map") else getattr(templates, "tokenizer", None)
    return frozenset(getattr(holder, "special_tokens_map", ()))
