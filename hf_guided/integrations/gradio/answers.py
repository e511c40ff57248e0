"""Answers one request of the page: the text while it is written, then the value and the trace, as HTML."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from ...constraints.coerce import coerce
from ...constraints.values import Constraint
from ...errors import HFGuidedError, InvalidArgument, PromptError, shown
from ...generation.api import agenerate
from ...generation.prompts import Prompt, encoded, prepared
from ...generation.templates import TemplateOptions
from ...guide import Guide
from ...hf.generation_settings import GenerationSettings, sampling_at
from ...session.result_html import result_html
from .form import Form, UiLimits

_log = logging.getLogger(__name__)


class Shown(NamedTuple):
    """A state of the page.

    Args:
        text: of the answer, so far; plain text.
        status: HTML.
        trace: HTML; None leaves what is there.
    """

    text: str
    status: str
    trace: str | None = None


class Answers:
    """Answers requests with one model, one after another.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        types: the Python types that the page offers, by name.
        limits: of each request.
    """

    def __init__(self, model: Any, tokenizer: Any, types: Mapping[str, Constraint], limits: UiLimits):
        self._model, self._tokenizer = model, tokenizer
        self._types, self._limits = types, limits
        self._guide = Guide(model, tokenizer)
        positions = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        self._positions = positions if isinstance(positions, int) and positions > 0 else None

    @property
    def temperature(self) -> float:
        """The temperature at the start: that of the model's generation config if it samples, else 0."""
        settings = GenerationSettings(self._model, {})
        return float(settings.get("temperature") or 1.0) if settings.get("do_sample") else 0.0

    async def stream(self, form: Form) -> AsyncGenerator[Shown, None]:
        """The states of the page. Closing the generator ends the generation at its next token.

        An error ends in a state that shows it; nothing is raised.
        """
        text = ""
        yield Shown(text, note("Reading the format …"), "")
        try:
            # On a thread, because a large schema would stop the server for all users.
            prompt, constraint, arguments = await asyncio.to_thread(self._ready, form)
            yield Shown(text, note("Waiting for the model …"))
            partials = agenerate(self._model, self._tokenizer, [prompt], [constraint], stream=True, **arguments)
            async with aclosing(partials):
                async for partial in partials:
                    text = partial.text
                    if partial.result is not None:
                        # The trace's page is in a sandboxed frame, with the model's text.
                        trace = "" if partial.result.trace is None else partial.result.trace._repr_html_()
                        yield Shown(text, result_html(partial.result, with_text=False), trace)
                    else:
                        yield Shown(text, note("Writing …"))
        except HFGuidedError as error:
            yield Shown(text, _alert(str(error), getattr(error, "pointers", ())), "")
        except Exception:  # the browser sees no traceback and no path of this machine
            _log.exception("the page could not answer a request")
            yield Shown(text, _alert("The generation failed inside the server. Its log has the reason.", ()), "")

    def _ready(self, form: Form) -> tuple[Prompt, Constraint | None, dict[str, Any]]:
        """The prompt, the constraint and other arguments of ``hg.agenerate``; raises HFGuidedError."""
        form.check(self._limits)
        constraint = form.constraint(self._types, self._limits)
        chat = bool(getattr(self._tokenizer, "chat_template", None))
        text_or_chat = [{"role": "user", "content": form.prompt}] if chat else form.prompt
        options = TemplateOptions({}, None, show_tools=True, describe=form.describe is True, thinks=False)
        prompt = prepared(self._tokenizer, text_or_chat, constraint, options)
        tokens = encoded(self._guide.vocabulary, prompt, "")
        most = int(form.max_new_tokens)
        if self._positions is not None:
            if len(tokens) >= self._positions:
                raise PromptError(
                    f"prompt: expected fewer than {self._positions} tokens, the context of the model, got "
                    f"{len(tokens)}; shorten it"
                )
            most = min(most, self._positions - len(tokens))
        arguments = {
            "guide": self._guide,
            "max_new_tokens": most,
            "trace": form.trace is True,
            "progress": False,
            **sampling_at(float(form.temperature)),
        }
        return replace(prompt, tokens=tokens), constraint, arguments


def named(types: Sequence[Any]) -> dict[str, Constraint]:
    """Python types by name, as constraints.

    Raises:
        InvalidArgument: two of them have the same name, or something has none.
        InvalidConstraint: one is no type that an answer can have.
    """
    found: dict[str, Constraint] = {}
    for each in types:
        name = getattr(each, "__name__", None)
        if not isinstance(name, str) or name in found:
            raise InvalidArgument(f"types: expected types with different names, got {shown(each)}", name="types")
        constraint = coerce(each)
        assert constraint is not None  # only None gives None, and it has no name
        found[name] = constraint
    return found


def note(text: str) -> str:
    """A plain text as the status."""
    return f'<p class="hf-guided-note">{html.escape(text)}</p>'


def _alert(message: str, pointers: Sequence[str]) -> str:
    """A message as an error, with the JSON pointers that it has; all of it is escaped."""
    places = "".join(f"<li><code>{html.escape(pointer) or '/'}</code></li>" for pointer in pointers)
    where = f"<p>Where in the schema:</p><ul>{places}</ul>" if places else ""
    return f'<div class="hf-guided-error" role="alert"><p>{html.escape(message)}</p>{where}</div>'
