"""A server for the length of a test, in a thread of this process: it is waited for, and it is ended."""

from __future__ import annotations

import queue
import re
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from fastapi import FastAPI

from hf_guided import demo
from hf_guided.serve import models
from hf_guided.serve.app import Server, build_app
from hf_guided.serve.models import OLDEST, is_supported
from hf_guided.serve.options import ServeOptions


@contextmanager
def serving(model: str | Path = "demo", **options: object) -> Iterator[str]:
    """The URL of a server, at a free port."""
    if not is_supported():
        pytest.skip(f"the server needs transformers {OLDEST}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        serve_options = ServeOptions(str(model), host="127.0.0.1", port=0, device="cpu", **options)  # type: ignore[arg-type]
        with running(build_app(serve_options), serve_options) as url:
            yield url
    finally:
        torch.set_num_threads(threads)


@contextmanager
def running(app: FastAPI, options: ServeOptions) -> Iterator[str]:
    """The URL of a server of this app."""
    urls: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    server = Server(app, options, urls.put)

    def run() -> None:
        try:
            server.run()
        finally:
            urls.put(None)  # it will never be ready

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        url = urls.get()
        assert url is not None, "the server did not start"
        yield url
    finally:
        server.should_exit = True
        thread.join()


def save_long_demo(folder: Path, tokens: int = 2**14, prompt_end: str = "") -> Path:
    """The demo model as a checkpoint of the same name, for texts of up to so many tokens.

    Args:
        folder: to save it in.
        tokens: the length of its context.
        prompt_end: what its chat template writes after the messages.
    """
    model, tokenizer = demo.load()
    model.config.max_position_embeddings = tokens
    tokenizer.chat_template = models._DEMO_CHAT_TEMPLATE + prompt_end
    model.save_pretrained(folder / "demo")
    tokenizer.save_pretrained(folder / "demo")
    return folder / "demo"


def calls_of(pieces: Iterable[Any]) -> list[tuple[str, str]]:
    """The tool calls of a message, or of the deltas of a stream, as (name, arguments)."""
    calls: dict[int, list[str]] = {}
    for piece in pieces:
        for number, call in enumerate(piece.tool_calls or []):
            joined = calls.setdefault(getattr(call, "index", number), ["", ""])
            joined[0] += call.function.name or ""
            joined[1] += call.function.arguments or ""
    return [(name, arguments) for _, (name, arguments) in sorted(calls.items())]


def metrics(url: str) -> dict[str, float]:
    """The server's metrics, read by the rules of Prometheus' text format."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        text = answer.read().decode()
    samples, typed = {}, set[str]()
    for line in text.splitlines():
        if found := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge|histogram)", line):
            names = {found[1] + end for end in (("_bucket", "_count", "_sum") if found[2] == "histogram" else ("",))}
            assert not names & typed
            typed |= names
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r'(([a-z_]+)(?:\{[a-z]+="[a-z_0-9.+A-Z]+"\})?) (\S+)', line)
            assert found is not None and found[2] in typed, line
            samples[found[1]] = float(found[3])
    return samples


def client(url: str) -> openai.OpenAI:
    """A client that sends each request once, without retries."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600)
