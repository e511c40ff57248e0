"""The web side of the server, around an engine that plays a script: what ends a request, and what it may cost."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from hf_guided.serve import answering
from hf_guided.serve.guidance import Guidance
from hf_guided.serve.job import Ended, NewTokens
from hf_guided.serve.options import ServeLimits
from tests.serve_site import (
    Emit,
    Played,
    chat,
    error_of,
    events,
    forever,
    read_all,
    request_head,
    says,
    served,
    silent,
    site,
    wait_until,
)

READS_BODIES = ("/v1/chat/completions", "/tokenize", "/v1/detokenize")


def test_too_many_requests_at_once():
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


def test_the_time_of_a_request_is_limited():
    with site(ServeLimits(request_timeout_s=1.0)) as short:
        for script in (silent, forever(short.tokenizer)):
            short.engine.script = script
            status, _, text = short.send(chat())
            assert (status, error_of(text)["code"]) == (504, "request_timeout")
            status, _, text = short.send(chat(stream=True))
            assert (status, events(text)[-1]["error"]["code"]) == (200, "request_timeout")
            assert text.endswith("data: [DONE]\n\n")
        assert all(played.cancelled.wait(10) for played in short.engine.played) and len(short.engine.played) == 4


@pytest.mark.parametrize("path", READS_BODIES)
def test_a_body_that_does_not_come(path):
    with site(ServeLimits(request_timeout_s=1.0)) as short, short.connect() as connection:
        connection.sendall(request_head(length=100, path=path) + b"{")
        answer = read_all(connection)
        assert b" 408 " in answer.split(b"\r\n")[0] and b"body_too_late" in answer


def test_a_server_that_shuts_down_does_not_wait_for_bodies(monkeypatch):
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
def test_a_client_that_leaves_before_its_body_is_complete(caplog, path):
    with site() as plain:
        with plain.connect() as connection:
            connection.sendall(request_head(length=100, path=path) + b"{")
        wait_until(lambda: 'refused_total{code="client_left"} 1.0' in plain.send(path="/metrics")[2])
        assert 'code="internal_error"' not in plain.send(path="/metrics")[2] and not caplog.records


@pytest.mark.parametrize("path", READS_BODIES)
def test_a_body_of_unknown_length_that_is_too_large(caplog, path):
    head = request_head(length=0, path=path).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with site(ServeLimits(max_request_bytes=1000)) as small, small.connect() as connection:
        connection.sendall(head + b"400\r\n" + b" " * 1024 + b"\r\n")
        answer = read_all(connection)
        assert b" 413 " in answer.split(b"\r\n")[0] and b"request_too_large" in answer
        counts = small.send(path="/metrics")[2]
        assert 'refused_total{code="request_too_large"} 1.0' in counts and counts.count("refused_total{") == 1
        assert not caplog.records


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_job(stream):
    with site() as plain:
        plain.engine.script = forever(plain.tokenizer)
        body = json.dumps(chat(stream=stream)).encode()
        with plain.connect() as connection:
            connection.sendall(request_head(len(body)) + body)
            wait_until(lambda: plain.engine.played)
        assert plain.engine.played[0].cancelled.wait(10)
        wait_until(lambda: "hf_guided_requests_held 0.0" in plain.send(path="/metrics")[2])


def test_a_client_that_leaves_while_its_constraint_compiles_gets_no_job(monkeypatch):
    jobs, began, swallowed = Guidance.jobs, threading.Event(), threading.Event()

    async def slow_jobs(*arguments: Any) -> Any:
        """Goes on after a cancellation, as asyncio.wait_for may before Python 3.12."""
        if not began.is_set():
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            swallowed.set()
        return await jobs(*arguments)

    monkeypatch.setattr(Guidance, "jobs", slow_jobs)
    with site() as plain:
        body = json.dumps(chat()).encode()
        with plain.connect() as connection:
            connection.sendall(request_head(len(body)) + body)
            assert began.wait(30)
        assert swallowed.wait(30)
        plain.engine.script = says(plain.tokenizer, "a")
        assert plain.send(chat())[0] == 200
        assert len(plain.engine.played) == 1


def test_a_client_that_does_not_read_is_cut_off(monkeypatch):
    from hf_guided.serve import limits

    monkeypatch.setattr(limits, "STALLED_S", 1.0)
    with site() as plain:
        plain.engine.script = forever(plain.tokenizer, size=2000)
        body = json.dumps(chat(stream=True)).encode()
        with plain.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request_head(len(body)) + body)
            wait_until(lambda: plain.engine.played)
            assert plain.engine.played[0].cancelled.wait(30)


def test_what_waits_for_a_slow_reader_is_bounded():
    from hf_guided.serve.answering import Events

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


def test_headers_that_come_slowly():
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


def test_connections_without_a_request_do_not_lock_others_out():
    with site() as plain:
        busy = plain.connect()
        busy.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert plain.send(path="/health")[0] == 200
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
        with busy:  # older than all of them, but in the middle of a request
            busy.sendall(b"{}")
            assert read_all(busy).startswith(b"HTTP/1.1 4")


def test_a_malformed_request_is_refused_in_openais_shape():
    with site() as plain, plain.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert error_of(answer.split(b"\r\n\r\n")[1].decode())["code"] == "malformed_http"


async def never(*_: Any) -> Any:
    import asyncio

    await asyncio.Event().wait()


async def refuses_late(*_: Any) -> Any:
    import asyncio

    from hf_guided.serve.error_responses import RequestRefused

    await asyncio.sleep(1)
    raise RequestRefused("no", code="too_late_to_be_a_status")


def test_a_stream_that_waits_gets_comments(monkeypatch):
    monkeypatch.setattr(answering, "_HEARTBEAT_S", 0.2)
    with site() as plain:

        def late(played: Played, emit: Emit) -> None:
            time.sleep(1)
            emit(Ended(0))

        plain.engine.script = late
        status, _, text = plain.send(chat(stream=True))
        assert status == 200 and text.count(": waiting\n\n") >= 3
        # The same while a constraint compiles; what is refused then is an event.
        monkeypatch.setattr(Guidance, "jobs", refuses_late)
        status, _, text = plain.send(chat(stream=True))
        assert status == 200 and text.count(": waiting\n\n") >= 3
        assert events(text)[-1]["error"]["code"] == "too_late_to_be_a_status"


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_shuts_down_does_not_wait_for_compiles(monkeypatch, stream):
    from hf_guided.serve import app

    monkeypatch.setattr(app, "_LAST_ANSWER_S", 0.2)
    monkeypatch.setattr(answering, "_HEARTBEAT_S", 0.2)
    monkeypatch.setattr(Guidance, "jobs", never)
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


def test_templates_that_take_too_long(monkeypatch):
    go = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        go.wait()
        return {"input_ids": [1]}

    with site(ServeLimits(render_timeout_s=0.5)) as plain:
        monkeypatch.setattr(served().tokenizer, "apply_chat_template", hang)
        for _ in range(4):
            status, _, text = plain.send(chat())
            assert (status, error_of(text)["code"]) == (400, "rendering_timeout")
        # All four threads still run, so there is none for a third request.
        status, headers, text = plain.send(chat())
        assert (status, error_of(text)["code"]) == (503, "rendering_busy") and headers["retry-after"]
        assert plain.send(path="/health")[0] == 200
        go.set()
        wait_until(lambda: plain.send(chat())[0] == 200)


def test_prompts_that_are_too_long():
    with site() as plain:
        long = {"messages": [{"role": "user", "content": "word " * 2000}]}
        status, _, text = plain.send(long)
        error = error_of(text)
        assert (status, error["code"]) == (400, "context_length_exceeded") and "499" in error["message"]
        assert plain.engine.played == []
