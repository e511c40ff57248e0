"""The page: its fields, its buttons, and the server that shows it."""

from __future__ import annotations

import html
import json
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import gradio as gr
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import demo
from ...errors import InvalidArgument, shown
from ...options import is_local
from .answers import Answers, named, note
from .form import CHOICE, FREE, MOST_TEMPERATURE, PATTERN, SCHEMA, TYPE, Form, UiLimits

_DEFAULT_MAX_NEW_TOKENS = 256
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


@dataclass(frozen=True)
class Example:
    """A prompt and a JSON Schema to begin with.

    Args:
        prompt: the prompt.
        schema: the JSON Schema of its answer, as text.
    """

    prompt: str
    schema: str


def demo_examples() -> list[Example]:
    """Examples for the demo model: one of each kind of text that it reads."""
    kinds = {example.kind: example for example in reversed(demo.EXAMPLES)}
    return [Example(kinds[kind].prompt, _schema_text(kinds[kind].schema)) for kind in ("person", "booking", "invoice")]


def _schema_text(schema: dict[str, Any]) -> str:
    """The schema of an object as JSON, with one line for each property."""
    properties = ",\n".join(f"    {json.dumps(name)}: {json.dumps(of)}" for name, of in schema["properties"].items())
    rest = {name: value for name, value in schema.items() if name not in ("type", "properties")}
    lines = "".join(f",\n  {json.dumps(name)}: {json.dumps(value)}" for name, value in rest.items())
    return f'{{\n  "type": "object",\n  "properties": {{\n{properties}\n  }}{lines}\n}}'


def ui(
    model: Any,
    tokenizer: Any,
    *,
    types: Sequence[Any] = (),
    examples: Sequence[Example] = (),
    name: str = "",
    limits: UiLimits | None = None,
) -> Page:
    """Build the page for a model; ``launch`` shows it.

    Args:
        model: a transformers model that can generate. Nothing else may run it while the page is shown.
        tokenizer: its tokenizer. If it has a chat template, prompts are sent as a user's message.
        types: Pydantic classes and other Python types that the page offers by name. The page itself takes no code.
        examples: prompts with schemas to choose from; the first one is in the fields at the start.
        name: of the model, for the title; empty takes the name in its config.
        limits: of each request; None takes the defaults.

    Returns:
        The page, which is not shown yet.

    Raises:
        InvalidArgument: types without a name, or two with the same one.
        InvalidConstraint: a type that no answer can have.
        TokenizerError: model and tokenizer do not fit together.
    """
    limits = limits or UiLimits()
    known = named(types)
    title = name or str(getattr(model, "name_or_path", "")) or type(model).__name__
    answers = Answers(model, tokenizer, known, limits)
    for_any_model = Example("Our gardener Daria Pinto is 50 years old. As JSON:", _schema_text(_PERSON))
    return Page(_blocks(answers, list(known), list(examples) or [for_any_model], title, limits), limits)


class Page:
    """A page that can be shown.

    Args:
        blocks: the Gradio app.
        limits: of each request.
    """

    def __init__(self, blocks: Any, limits: UiLimits):
        self.blocks = blocks
        self._limits = limits

    def launch(self, host: str = "127.0.0.1", port: int = 7860, *, report: Callable[[str], None] = print) -> None:
        """Show the page until the process is interrupted.

        Args:
            host: address to listen at. At the default, only this machine reaches the page.
            port: to listen at; 0 takes a free one.
            report: called with a line that has the URL, and with a warning if other machines can reach the page.

        Raises:
            InvalidArgument: a port that is none.
            OSError: the port is taken.
        """
        url = self.start(host, port)
        report(f"hf-guided: the page is at {url}")
        if not is_local(host):
            report("hf-guided: warning: everyone who can reach this address can use the model")
        try:
            self.blocks.block_thread()
        finally:
            self.close()

    def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Show the page from a thread; the arguments and errors are those of ``launch``.

        Returns:
            Its URL.
        """
        if type(port) is not int or not 0 <= port < 2**16:
            raise InvalidArgument(f"port: expected a number from 0 to 65535, got {shown(port)}", name="port")
        name = f"[{host}]" if ":" in host else host  # as in a URL
        hosts = (*_LOOPBACK, name.lower()) if is_local(host) else None
        guard = Middleware(_Guard, hosts=hosts, max_bytes=self._limits.max_request_bytes)
        _, url, _ = self.blocks.launch(
            server_name=name,
            server_port=_free_port(host, port),
            share=False,
            inbrowser=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            enable_monitoring=False,
            run_history=False,
            footer_links=[],
            app_kwargs={"middleware": [guard]},
            theme=_theme(),
            css=files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        )
        return str(url)

    def close(self) -> None:
        """Stop showing it."""
        self.blocks.close(verbose=False)


class _Guard:
    """An ASGI layer before Gradio's own server, which takes files from everyone, and bodies of any size.

    Refuses file uploads, large bodies, and requests that were addressed to another host.

    Args:
        app: the server that gets the requests that are not refused.
        hosts: names in the Host header that are served; None serves all. A page of another site can make its own name
            point to this machine (DNS rebinding); its requests carry that name.
        max_bytes: the most bytes in a body.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None, max_bytes: int):
        self._app, self._hosts, self._max_bytes = app, hosts, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        refused = self._refused(scope["path"], Headers(scope=scope))
        if refused is None and "content-length" not in Headers(scope=scope):
            receive, refused = await self._read(receive)
        return await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, path: str, headers: Headers) -> ASGIApp | None:
        if self._hosts is not None and _host(headers.get("host", "")) not in self._hosts:
            return _refusal(400, "this host name is not served here")
        kinds = [kind.strip().lower() for kind in headers.getlist("content-type")]
        # Gradio also keeps files that come to other paths, as recordings.
        if path.rstrip("/").endswith("/upload") or any(kind.startswith("multipart/") for kind in kinds):
            return _refusal(403, "this page takes no files")
        length = headers.get("content-length", "0")
        if not (length.isdecimal() and int(length) <= self._max_bytes):
            return _refusal(413, "the request is too large")
        return None

    async def _read(self, receive: Receive) -> tuple[Receive, ASGIApp | None]:
        """Read a body of unknown length; gives it again as one message, or refuses it."""
        body, first = b"", await receive()
        while first["type"] == "http.request":
            body += first.get("body", b"")
            if len(body) > self._max_bytes:
                return receive, _refusal(413, "the request is too large")
            if not first.get("more_body", False):
                first = {"type": "http.request", "body": body, "more_body": False}
                break
            first = await receive()
        waiting = [first]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        return replayed, None


def _refusal(status: int, reason: str) -> ASGIApp:
    return PlainTextResponse(reason, status, headers={"connection": "close"})


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    name, _, port = header.rpartition(":")
    return (name if port.isdecimal() else header).lower()


def _theme() -> Any:
    """Colours and sizes; with fonts of the system, as on the trace's page, so that none is fetched."""
    sans = ("system-ui", "Segoe UI", "Liberation Sans", "DejaVu Sans", "sans-serif")
    mono = ("ui-monospace", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace")
    return gr.themes.Default(primary_hue="blue", text_size="sm", spacing_size="sm", font=sans, font_mono=mono)


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0; raises OSError with a plain message where it is taken, which Gradio does not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as server:
            free: int = server.getsockname()[1]
            return free
    except OSError as error:
        raise OSError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another port, or 0 for a free one"
        ) from error


def _blocks(answers: Answers, types: list[str], examples: list[Example], title: str, limits: UiLimits) -> Any:
    """The Gradio app."""
    with gr.Blocks(title="hf-guided", analytics_enabled=False, fill_width=True) as blocks:
        gr.HTML(
            f'<h1>hf-guided</h1><p>The answers of <b dir="auto">{html.escape(title)}</b> always have the format that '
            "you describe here.</p>",
            elem_classes="hf-guided-title",
        )
        with gr.Row():
            with gr.Column(scale=2, min_width=340):
                fields, run, stop = _question(answers, types, examples, limits)
            with gr.Column(scale=3, min_width=420):
                answer = gr.Textbox(
                    label="Answer", lines=4, max_lines=12, interactive=False, elem_id="hf-guided-answer"
                )
                status = gr.HTML(note("The answer appears here while it is written."), elem_id="hf-guided-status")
                frame = gr.HTML("", elem_id="hf-guided-trace")

        async def generate(*values: Any) -> AsyncGenerator[tuple[Any, ...], None]:
            states = answers.stream(Form(*values))
            async with aclosing(states):
                async for state in states:
                    yield state.text, state.status, gr.skip() if state.trace is None else state.trace

        # One answer at a time, because one model writes them; the others wait in Gradio's queue.
        running = run.click(
            generate,
            fields,
            [answer, status, frame],
            concurrency_limit=1,
            show_progress="hidden",
            api_visibility="private",
        )
        stop.click(
            lambda: note("Stopped."),
            None,
            status,
            cancels=[running],
            queue=False,
            show_progress="hidden",
            api_visibility="private",
        )
        _, kind, *texts = fields[:6]
        kind.change(
            lambda chosen: [gr.update(visible=chosen == each) for each in (SCHEMA, PATTERN, CHOICE, TYPE)],
            kind,
            texts,
            queue=False,
            show_progress="hidden",
            api_visibility="private",
        )
    blocks.queue(max_size=limits.max_queue, default_concurrency_limit=1)
    return blocks


def _question(
    answers: Answers, types: list[str], examples: list[Example], limits: UiLimits
) -> tuple[list[Any], gr.Button, gr.Button]:
    """The fields of ``Form`` in their order, and the buttons that begin and stop an answer."""
    kinds = [SCHEMA, PATTERN, CHOICE, *([TYPE] if types else []), FREE]
    prompt = gr.Textbox(
        examples[0].prompt,
        label="Prompt",
        lines=4,
        max_lines=12,
        max_length=limits.max_prompt_chars,
        elem_id="hf-guided-prompt",
    )
    kind = gr.Radio(kinds, value=SCHEMA, label="Format of the answer", elem_id="hf-guided-kind")
    texts = [
        _format_text(examples[0].schema, "JSON Schema", "hf-guided-schema", limits, lines=12),
        _format_text("[A-Z][a-z]+ [A-Z][a-z]+", "Regular expression", "hf-guided-pattern", limits, lines=2),
        _format_text("yes\nno", "Options, one on each line", "hf-guided-options", limits, lines=4),
        gr.Dropdown(
            types,
            value=types[0] if types else None,
            label="Python type",
            info="Types are given when the page is started. The page takes no code.",
            visible=False,
            elem_id="hf-guided-type",
        ),
    ]
    with gr.Row():
        run = gr.Button("Generate", variant="primary", size="md", scale=3, elem_id="hf-guided-run")
        stop = gr.Button("Stop", size="md", scale=1, min_width=80, elem_id="hf-guided-stop")
    with gr.Accordion("Settings", open=False):
        tokens = gr.Slider(
            1,
            limits.max_new_tokens,
            value=min(_DEFAULT_MAX_NEW_TOKENS, limits.max_new_tokens),
            step=1,
            label="Most tokens",
            elem_id="hf-guided-tokens",
        )
        temperature = gr.Slider(
            0,
            MOST_TEMPERATURE,
            value=min(answers.temperature, MOST_TEMPERATURE),
            step=0.05,
            label="Temperature (0: the most likely token)",
        )
        describe = gr.Checkbox(False, label="Describe the format in the prompt")
        trace = gr.Checkbox(True, label="Record the trace")
    if len(examples) > 1:
        gr.Examples(
            [[example.prompt, example.schema] for example in examples],
            inputs=[prompt, texts[0]],
            example_labels=[example.prompt[:60] for example in examples],
            cache_examples=False,
            api_visibility="private",
        )
    return [prompt, kind, *texts, tokens, temperature, describe, trace], run, stop


def _format_text(value: str, label: str, elem_id: str, limits: UiLimits, *, lines: int) -> Any:
    """A field for the text of a format; the first kind is visible at the start."""
    return gr.Textbox(
        value,
        label=label,
        lines=lines,
        max_lines=14,
        max_length=limits.max_format_chars,
        visible=elem_id == "hf-guided-schema",
        elem_id=elem_id,
    )
