"""The web side of the server, around an engine that plays a script: who may ask, what ends a request, what it costs."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from hf_guided.serve import answering, models
from hf_guided.serve.app import app_of
from hf_guided.serve.guidance import Guidance
from hf_guided.serve.job import Ended, Event, Job, NewTokens
from hf_guided.serve.limits import ServeLimits
from hf_guided.serve.live_request import Backstage
from hf_guided.serve.metrics import Metrics
from hf_guided.serve.models import ServedModel
from hf_guided.serve.options import ServeOptions, source_of
from hf_guided.serve.thread_pool import ThreadPool
from hf_guided.session.stats import SessionStats
from tests.serving import running

Emit = Callable[[Event], None]
Script = Callable[["Played", Emit], None]
ROUTES = {
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model_id:path}"),
    ("POST", "/tokenize"),
    ("POST", "/v1/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/detokenize"),
    ("GET", "/health"),
    ("GET", "/metrics"),
}


class Played:
    """A job of the scripted engine."""

    def __init__(self, job: Job):
        self.job = job
        self.cancelled = threading.Event()
        self.cancelled_answers: list[int | None] = []

    def cancel(self, answer: int | None = None) -> None:
        """See ``Running``."""
        self.cancelled_answers.append(answer)
        if answer is None or len(set(self.cancelled_answers)) == self.job.num_answers:
            self.cancelled.set()


class ScriptedEngine:
    """Plays a script for each job, on a thread of its own."""

    max_tokens = 500

    def __init__(self) -> None:
        self.stats = SessionStats()
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


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return models.load(source_of(ServeOptions("demo", device="cpu")), "demo")


@pytest.fixture
def site(served: ServedModel) -> Callable[..., Any]:
    @contextmanager
    def start(limits: ServeLimits | None = None, **more: Any) -> Iterator[Site]:
        options = ServeOptions("demo", host="127.0.0.1", port=0, limits=limits or ServeLimits(), **more)
        metrics, engine = Metrics(), ScriptedEngine()
        guidance = Guidance(served, options, metrics)
        pool = ThreadPool(options.limits.render_timeout_s, threads=2)
        backstage = Backstage(served, engine, guidance, pool, options.limits, metrics, {})
        with running(app_of(options, backstage), options) as url:
            yield Site(url, engine, served)

    return start


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


def test_the_routes_are_these_and_no_others(site):
    def routes(url: str) -> set[tuple[str, str]]:
        with urllib.request.urlopen(f"{url}/openapi.json") as answer:
            paths = json.load(answer)["paths"]
        return {(method.upper(), path) for path, methods in paths.items() for method in methods}

    with site(docs_pages=True) as with_pages:
        assert {(method, path.replace(":path", "")) for method, path in ROUTES} == routes(with_pages.url)
    with site() as plain:
        for path in ("/docs", "/redoc", "/openapi.json", "/load_model", "/reset", "/v1/systemone", "/v1/audio/x"):
            for body in (None, {}):
                status, _, text = plain.send(body, path)
                assert status == 404 and error_of(text)["code"] == "not_found"
        assert plain.send(path="/v1/chat/completions")[0] == 405
        assert plain.send(path="/health")[0] == 200


def test_a_stream_ends_each_answer_once(site):
    with site() as started:
        started.engine.script = says(started.tokenizer, "abc", "de")  # the last tokens often come with the end
        for _ in range(10):
            _, _, text = started.send(chat(stream=True, n=2, temperature=1.0))
            choices = [choice for event in events(text) for choice in event["choices"]]
            assert sorted(choice["index"] for choice in choices if choice["finish_reason"] is not None) == [0, 1]
        started.engine.script = says(started.tokenizer, "abc")
        for _ in range(10):
            _, _, text = started.send({"input": "x", "stream": True}, "/v1/responses")
            kinds = [event["type"] for event in events(text)]
            assert kinds.count("response.output_text.done") == kinds.count("response.completed") == 1


def test_every_route_but_health_wants_a_key(site):
    with site(api_keys=("first", "second")) as guarded:
        assert guarded.send(path="/health")[0] == 200
        for method, path in sorted(ROUTES - {("GET", "/health")}):
            body = {} if method == "POST" else None
            for headers in ({}, {"authorization": "Bearer third"}, {"authorization": "Basic first"}):
                status, answered, text = guarded.send(body, path, **headers)
                assert (status, answered["www-authenticate"]) == (401, "Bearer")
                assert error_of(text)["code"] == "invalid_api_key"
        for key in ("first", "second"):
            assert guarded.send(path="/v1/models", authorization=f"Bearer {key}")[0] == 200
        assert 'refused_total{code="invalid_api_key"}' in guarded.send(path="/metrics", authorization="Bearer first")[2]


def test_other_pages_may_call_only_if_they_are_named(site):
    headers = {"origin": "https://a.example"}
    with site() as plain:
        assert "access-control-allow-origin" not in plain.send(path="/v1/models", **headers)[1]
    with site(allowed_origins=("https://a.example",)) as named:
        assert named.send(path="/v1/models", **headers)[1]["access-control-allow-origin"] == "https://a.example"
        answered = named.send(path="/v1/models", origin="https://b.example")[1]
        assert answered.get("access-control-allow-origin") != "https://b.example"
        assert "access-control-allow-credentials" not in answered
    with site(allowed_origins=("*",)) as every:
        answered = every.send(path="/v1/models", **headers)[1]
        assert answered["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answered


def test_a_page_cannot_send_a_request_without_asking_first(site):
    with site() as plain:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            status, _, text = plain.send(chat(), **{"content-type": kind})
            assert status == 415 and error_of(text)["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 10_000 + b"}", b"[1]", b"null"]
)
def test_bodies_that_are_no_objects(site, body):
    with site() as plain:
        status, _, text = plain.send(body)
        assert status == 400 and error_of(text)["type"] == "invalid_request_error"


def test_too_many_requests_at_once(site):
    with site(ServeLimits(max_queue=2)) as busy:
        go = threading.Event()

        def waits(played: Played, emit: Emit) -> None:
            go.wait()
            emit(Ended(0))

        busy.engine.script = waits
        held = [threading.Thread(target=busy.send, args=(chat(stream=stream),)) for stream in (True, False)]
        for thread in held:
            thread.start()
        wait_until(lambda: len(busy.engine.played) == 2)
        status, headers, text = busy.send(chat())
        assert (status, headers["retry-after"], error_of(text)["code"]) == (429, "5", "queue_full")
        assert busy.send(path="/health")[0] == 200
        assert "hf_guided_requests_held 2.0" in busy.send(path="/metrics")[2]
        go.set()
        for thread in held:
            thread.join()
        assert busy.send(chat())[0] == 200
        assert "hf_guided_requests_held 0.0" in busy.send(path="/metrics")[2]


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_the_time_of_a_request_is_limited(site):
    with site(ServeLimits(request_timeout_s=1.0)) as short:
        for script in (silent, forever(short.tokenizer)):
            short.engine.script = script
            status, _, text = short.send(chat())
            assert (status, error_of(text)["code"]) == (504, "request_timeout")
            status, _, text = short.send(chat(stream=True))
            assert (status, events(text)[-1]["error"]["code"]) == (200, "request_timeout")
            assert text.endswith("data: [DONE]\n\n")
        assert all(played.cancelled.wait(10) for played in short.engine.played) and len(short.engine.played) == 4


READS_BODIES = ("/v1/chat/completions", "/tokenize", "/v1/detokenize")


@pytest.mark.parametrize("path", READS_BODIES)
def test_a_body_that_does_not_come(site, path):
    with site(ServeLimits(request_timeout_s=1.0)) as short, short.connect() as connection:
        connection.sendall(request_head(length=100, path=path) + b"{")
        answer = read_all(connection)
        assert b" 408 " in answer.split(b"\r\n")[0] and b"body_too_late" in answer


def test_a_server_that_shuts_down_does_not_wait_for_bodies(site, monkeypatch):
    from hf_guided.serve import app

    monkeypatch.setattr(app, "_LAST_ANSWER_S", 0.2)
    began = time.monotonic()
    with ExitStack() as connections:
        with site() as plain:
            for path in READS_BODIES:
                connection = connections.enter_context(plain.connect())
                connection.sendall(request_head(length=100, path=path) + b"{")
            held = f"hf_guided_requests_held {len(READS_BODIES)}.0"
            wait_until(lambda: held in plain.send(path="/metrics")[2])
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("path", READS_BODIES)
def test_a_client_that_leaves_before_its_body_is_complete(site, caplog, path):
    with site() as plain:
        with plain.connect() as connection:
            connection.sendall(request_head(length=100, path=path) + b"{")
        wait_until(lambda: 'refused_total{code="client_left"} 1.0' in plain.send(path="/metrics")[2])
        assert 'code="internal_error"' not in plain.send(path="/metrics")[2] and not caplog.records


@pytest.mark.parametrize("path", READS_BODIES)
def test_a_body_of_unknown_length_that_is_too_large(site, caplog, path):
    head = request_head(length=0, path=path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with site(ServeLimits(max_request_bytes=1000)) as small, small.connect() as connection:
        connection.sendall(head + b"400\r\n" + b" " * 1024 + b"\r\n")
        answer = read_all(connection)
        assert b" 413 " in answer.split(b"\r\n")[0] and b"request_too_large" in answer
        counts = small.send(path="/metrics")[2]
        assert 'refused_total{code="request_too_large"} 1.0' in counts and counts.count("refused_total{") == 1
        assert not caplog.records


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


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_job(site, stream):
    with site() as plain:
        plain.engine.script = forever(plain.tokenizer)
        body = json.dumps(chat(stream=stream)).encode()
        with plain.connect() as connection:
            connection.sendall(request_head(len(body)) + body)
            wait_until(lambda: plain.engine.played)
        assert plain.engine.played[0].cancelled.wait(10)
        wait_until(lambda: "hf_guided_requests_held 0.0" in plain.send(path="/metrics")[2])


def test_a_client_that_leaves_while_its_constraint_compiles_gets_no_job(site, monkeypatch):
    read, began, swallowed = Guidance.read, threading.Event(), threading.Event()

    async def slow_read(*arguments: Any) -> Any:
        """Goes on after a cancellation, as asyncio.wait_for may before Python 3.12."""
        if not began.is_set():
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            swallowed.set()
        return await read(*arguments)

    monkeypatch.setattr(Guidance, "read", slow_read)
    with site() as plain:
        body = json.dumps(chat()).encode()
        with plain.connect() as connection:
            connection.sendall(request_head(len(body)) + body)
            assert began.wait(30)
        assert swallowed.wait(30)
        plain.engine.script = says(plain.tokenizer, "a")
        assert plain.send(chat())[0] == 200
        assert len(plain.engine.played) == 1


def test_a_client_that_does_not_read_is_cut_off(site, monkeypatch):
    from hf_guided.serve import web_protocol

    monkeypatch.setattr(web_protocol, "STALLED_S", 1.0)
    monkeypatch.setattr(web_protocol.limited_protocol, "__defaults__", (1.0,))
    with site() as plain:
        plain.engine.script = forever(plain.tokenizer, size=2000)
        body = json.dumps(chat(stream=True)).encode()
        with plain.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request_head(len(body)) + body)
            wait_until(lambda: plain.engine.played)
            assert plain.engine.played[0].cancelled.wait(30)


def test_what_waits_for_a_slow_reader_is_bounded():
    from hf_guided.serve.events import Events

    async def check() -> None:
        cancelled = threading.Event()
        waiting = Events(asyncio.get_running_loop(), cancelled.set)
        take = waiting.taker(0)
        for _ in range(100_000):
            take(NewTokens(0, (1, 2, 3)))
            if cancelled.is_set():
                break
        assert cancelled.is_set()
        kept = await waiting.get(1)
        assert len(kept) < 50_000 and waiting.overflowed

    asyncio.run(check())


def test_headers_that_come_slowly(site):
    with site(ServeLimits(header_timeout_s=1.0)) as plain, plain.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        began, answer = time.monotonic(), b""
        for _ in range(100):
            try:
                connection.sendall(b"X: y\r\n")
            except OSError:
                break
            connection.settimeout(0.1)
            try:
                answer += connection.recv(1000)
            except OSError:
                continue
            break
        assert time.monotonic() - began < 5
        assert answer.startswith(b"HTTP/1.1 408 ") and b"headers_too_late" in answer
        # A connection that was served may wait for its next request, and then has the same time.
        assert plain.send(path="/health")[0] == 200


def test_connections_without_a_request_do_not_lock_others_out(site):
    with site() as plain:
        idle = [plain.connect() for _ in range(300)]
        try:
            assert plain.send(path="/health")[0] == 200
            idle[0].settimeout(10)
            assert idle[0].recv(1) == b""  # the oldest was closed
        except ConnectionResetError:
            pass
        finally:
            for connection in idle:
                connection.close()


def test_a_malformed_request_is_refused_in_openais_shape(site):
    with site() as plain, plain.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert error_of(answer.split(b"\r\n\r\n")[1].decode())["code"] == "malformed_http"


def test_a_stream_that_waits_gets_comments(site, monkeypatch):
    monkeypatch.setattr(answering, "_HEARTBEAT_S", 0.2)
    with site() as plain:

        def late(played: Played, emit: Emit) -> None:
            time.sleep(1)
            emit(Ended(0))

        plain.engine.script = late
        status, _, text = plain.send(chat(stream=True))
        assert status == 200 and text.count(": waiting\n\n") >= 3
        # The same while a constraint compiles; what is refused then is an event.
        monkeypatch.setattr(Guidance, "read", refuses_late)
        status, _, text = plain.send(chat(stream=True))
        assert status == 200 and text.count(": waiting\n\n") >= 3
        assert events(text)[-1]["error"]["code"] == "too_late_to_be_a_status"


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_shuts_down_does_not_wait_for_compiles(site, monkeypatch, stream):
    from hf_guided.serve import app

    monkeypatch.setattr(app, "_LAST_ANSWER_S", 0.2)
    monkeypatch.setattr(answering, "_HEARTBEAT_S", 0.2)
    monkeypatch.setattr(Guidance, "read", never)
    answers: list[tuple[int, Any, str]] = []
    began = time.monotonic()
    with site() as plain:
        waiting = threading.Thread(target=lambda: answers.append(plain.send(chat(stream=stream))))
        waiting.start()
        wait_until(lambda: "hf_guided_requests_held 1.0" in plain.send(path="/metrics")[2])
    waiting.join()
    [(status, _, text)] = answers
    error = events(text)[-1]["error"] if stream and status == 200 else error_of(text)
    assert status in (200 if stream else 503, 503) and error["code"] == "server_shuts_down"
    assert time.monotonic() - began < 30


async def never(*_: Any) -> Any:
    import asyncio

    await asyncio.Event().wait()


async def refuses_late(*_: Any) -> Any:
    import asyncio

    from hf_guided.serve.error_responses import RequestRefused

    await asyncio.sleep(1)
    raise RequestRefused("no", code="too_late_to_be_a_status")


def test_templates_that_take_too_long(site, served, monkeypatch):
    go = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        go.wait()
        return {"input_ids": [1]}

    with site(ServeLimits(render_timeout_s=0.5)) as plain:
        monkeypatch.setattr(served.tokenizer, "apply_chat_template", hang)
        for _ in range(2):
            status, _, text = plain.send(chat())
            assert (status, error_of(text)["code"]) == (400, "rendering_timeout")
        # Both threads still run, so there is none for a third request.
        status, headers, text = plain.send(chat())
        assert (status, error_of(text)["code"]) == (503, "rendering_busy") and headers["retry-after"]
        assert plain.send(path="/health")[0] == 200
        go.set()
        wait_until(lambda: plain.send(chat())[0] == 200)


def test_stop_strings_end_their_answer_alone(site):
    with site() as plain:
        plain.engine.script = says(plain.tokenizer, "one STOP more", "two")
        for stream in (False, True):
            status, _, text = plain.send(chat(n=2, stop=["STOP"], stream=stream))
            assert status == 200
            found = ["", ""]
            if stream:
                for event in events(text):
                    choice = event["choices"][0]
                    found[choice["index"]] += choice["delta"].get("content") or ""
            else:
                choices = json.loads(text)["choices"]
                found = [choice["message"]["content"] for choice in choices]
                assert [choice["finish_reason"] for choice in choices] == ["stop", "stop"]
            assert found == ["one ", "two"]
            assert 0 in plain.engine.played[-1].cancelled_answers
            assert 1 not in plain.engine.played[-1].cancelled_answers


def test_the_best_of_several(site):
    from hf_guided.session.logprobs import TokenLogprob

    with site() as plain:
        ids = [plain.tokenizer.encode(text, add_special_tokens=False)[0] for text in "abc"]

        def ranked(played: Played, emit: Emit) -> None:
            assert played.job.top_logprobs == 0
            for answer, logprob in enumerate((-3.0, -1.0, -2.0)):
                emit(NewTokens(answer, (ids[answer],)))
                emit(NewTokens(answer, logprobs=(TokenLogprob(ids[answer], logprob, 0.0, 0.0, False),)))
                emit(Ended(answer))

        plain.engine.script = ranked
        body = {"prompt": "x", "n": 2, "best_of": 3}
        status, _, text = plain.send(body, "/v1/completions")
        found = json.loads(text)
        assert status == 200
        assert [(choice["index"], choice["text"]) for choice in found["choices"]] == [(0, "b"), (1, "c")]
        assert found["usage"]["completion_tokens"] == 3 and found["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stream", [False, True])
def test_an_engines_error_names_no_file(site, stream):
    with site() as plain:
        plain.engine.script = lambda played, emit: emit(Ended(0, error=RuntimeError("no /home/someone/model.bin here")))
        status, _, text = plain.send(chat(stream=stream))
        error = events(text)[-1]["error"] if stream else error_of(text)
        assert status == (200 if stream else 500)
        assert (error["type"], error["message"]) == ("server_error", "no (path) here")


def test_usage_comes_when_it_is_asked_for(site):
    with site() as plain:
        plain.engine.script = says(plain.tokenizer, "two words")
        _, _, text = plain.send(chat(stream=True))
        assert all("usage" not in event for event in events(text))
        _, _, text = plain.send(chat(stream=True, stream_options={"include_usage": True}))
        *chunks, last = events(text)
        assert all(chunk["usage"] is None for chunk in chunks)
        assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0


def test_prompts_that_are_too_long(site):
    with site() as plain:
        long = {"messages": [{"role": "user", "content": "word " * 2000}]}
        status, _, text = plain.send(long)
        error = error_of(text)
        assert (status, error["code"]) == (400, "context_length_exceeded") and "499" in error["message"]
        assert plain.engine.played == []


def test_tokens_and_back(site):
    with site() as plain:
        text = "Grüße <b>"
        _, _, body = plain.send({"prompt": text, "add_special_tokens": False, "return_token_strs": True}, "/tokenize")
        found = json.loads(body)
        assert found["tokens"] == plain.tokenizer.encode(text, add_special_tokens=False)
        assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
        _, _, body = plain.send({"tokens": found["tokens"]}, "/v1/detokenize")
        assert json.loads(body) == {"prompt": text}
        _, _, body = plain.send({"messages": [{"role": "user", "content": text}]}, "/v1/tokenize")
        assert json.loads(body)["count"] > 0
        again = {"messages": [{"role": "user", "content": text}], "add_special_tokens": True}
        status, _, body = plain.send(again, "/tokenize")
        assert (status, error_of(body)["param"]) == (400, "add_special_tokens")


@pytest.mark.parametrize("stream", [False, True])
def test_echo_repeats_a_text_as_it_was_sent(site, served, stream, monkeypatch):
    """Not as the tokenizer would write it again, with special tokens of its own."""
    with site() as plain:
        prompt = "Grüße\r\n"
        begins = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", served.tokenizer.bos_token_id)])
        monkeypatch.setattr(served.tokenizer.backend_tokenizer, "post_processor", begins)
        assert served.tokenizer.decode(served.tokenizer(prompt)["input_ids"]) != prompt
        plain.engine.script = says(plain.tokenizer, "!")
        _, _, text = plain.send({"prompt": prompt, "echo": True, "stream": stream}, "/v1/completions")
        made = events(text) if stream else [json.loads(text)]
        assert "".join(choice["text"] for part in made for choice in part["choices"]) == f"{prompt}!"


def test_a_stop_string_waits_for_the_log_probabilities_of_its_text(site):
    from hf_guided.session.logprobs import TokenLogprob

    with site() as plain:
        ids = plain.tokenizer.encode("hello world", add_special_tokens=False)

        def late(played: Played, emit: Emit) -> None:
            emit(NewTokens(0, tuple(ids)))
            emit(NewTokens(0, logprobs=tuple(TokenLogprob(token_id, -1.0, 0.0, 0.0, False) for token_id in ids)))
            if not played.cancelled.wait(10):
                emit(Ended(0, "length"))

        plain.engine.script = late
        _, _, text = plain.send(chat(logprobs=True, stop="rld"))
        [choice] = json.loads(text)["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("hello wo", "stop")
        *whole, cut = [token["token"] for token in choice["logprobs"]["content"]]
        assert len("".join(whole)) < len("hello wo") and "".join([*whole, cut]).startswith("hello wo")


def test_a_client_is_known_by_its_key_however_the_header_is_spaced():
    from starlette.datastructures import Headers

    from hf_guided.serve.auth import key_of

    written = ("Bearer first", "bearer  first", "BEARER   first ")
    assert {key_of(Headers({"authorization": value})) for value in written} == {"first"}
    assert key_of(Headers({"authorization": "Basic first"})) == key_of(Headers({})) == ""


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [("0.0.0.0", (), True), ("0.0.0.0", ("k",), False), ("localhost", (), False), ("::1", (), False), ("", (), True)],
)
def test_a_server_that_all_may_use_says_so(host, keys, warned, caplog):
    from fastapi import FastAPI

    from hf_guided.serve.app import Server

    Server(FastAPI(), ServeOptions("demo", host=host, api_keys=keys), lambda _: None)
    assert any("--api-key" in record.getMessage() for record in caplog.records) == warned
