"""The web side of the server around an engine that plays a script, and what its tests say to it."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from hf_guided.serve import models
from hf_guided.serve.answering import Answering
from hf_guided.serve.app import app_of
from hf_guided.serve.guidance import Guidance
from hf_guided.serve.job import Ended, Event, Job, NewTokens
from hf_guided.serve.metrics import Metrics
from hf_guided.serve.models import ServedModel
from hf_guided.serve.options import ServeLimits, ServeOptions
from hf_guided.session.stats import SessionStats
from tests.serving import running

Emit = Callable[[Event], None]
Script = Callable[["Played", Emit], None]


class Played:
    """A job of the scripted engine."""

    def __init__(self, job: Job):
        self.job = job
        self.cancelled = threading.Event()
        self.cancelled_answers: list[int | None] = []

    def cancel(self, answer: int | None = None) -> None:
        """See ``RunningJob``."""
        self.cancelled_answers.append(answer)
        if answer is None or len(set(self.cancelled_answers)) == self.job.num_answers:
            self.cancelled.set()


class ScriptedEngine:
    """Plays a script for each job, on a thread of its own."""

    max_tokens = 500

    def __init__(self) -> None:
        self.stats = SessionStats()
        self.restarts = 0
        self.script: Script = lambda played, emit: emit(Ended(0))
        self.played: list[Played] = []

    def submit(self, job: Job, emit: Emit) -> Played:
        """See ``Engine``."""
        played = Played(job)
        self.played.append(played)
        threading.Thread(target=self.script, args=(played, emit), daemon=True).start()
        return played

    def alive(self) -> bool:
        """See ``Engine``."""
        return True

    def end_jobs(self) -> None:
        """See ``Engine``."""

    def close(self) -> None:
        """See ``Engine``."""


class Site:
    """A running server, its engine, and its tokenizer."""

    def __init__(self, url: str, engine: ScriptedEngine, served: ServedModel):
        self.url, self.engine, self.tokenizer = url, engine, served.tokenizer

    def send(self, body: Any = None, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, Any, str]:
        """The status, the headers and the body of one answer; without a body it is a GET."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.url}{path}", data, headers), timeout=60
            ) as found:
                return found.status, found.headers, found.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def connect(self) -> socket.socket:
        """A connection of one's own."""
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=60)


@cache
def served() -> ServedModel:
    """The demo model."""
    return models.load(ServeOptions("demo", device="cpu"))


@contextmanager
def site(limits: ServeLimits | None = None, **more: Any) -> Iterator[Site]:
    """A server with these limits and options, whose engine plays a script."""
    options = ServeOptions("demo", host="127.0.0.1", port=0, limits=limits or ServeLimits(), **more)
    metrics, engine = Metrics(), ScriptedEngine()
    guidance = Guidance(served(), options, metrics)
    answering = Answering(options, served(), engine, guidance, metrics)
    with running(app_of(options, answering), options) as url:
        yield Site(url, engine, served())


def chat(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}], **more}


def says(tokenizer: Any, *texts: str, reason: Any = "stop") -> Script:
    """Emits a text for each answer."""

    def script(played: Played, emit: Emit) -> None:
        for answer, text in enumerate(texts):
            for token_id in tokenizer.encode(text, add_special_tokens=False):
                emit(NewTokens(answer, (token_id,)))
            emit(Ended(answer, reason))

    return script


def forever(tokenizer: Any, pause_s: float = 0.001, size: int = 1) -> Script:
    """Emits tokens until it is cancelled."""
    [token_id] = tokenizer.encode("x", add_special_tokens=False)

    def script(played: Played, emit: Emit) -> None:
        while not played.cancelled.wait(pause_s):
            emit(NewTokens(0, (token_id,) * size))

    return script


def silent(played: Played, emit: Emit) -> None:
    """Says nothing."""


def events(text: str) -> list[Any]:
    """The data of a stream's events."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def error_of(text: str) -> Any:
    error = json.loads(text)["error"]
    assert error.keys() >= {"message", "type", "param", "code"}
    return error


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def request_head(length: int, path: str = "/v1/chat/completions") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}"
    return f"{head}\r\n\r\n".encode()


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(4096):
        data += piece
        if b"code" in data:
            break
    return data
