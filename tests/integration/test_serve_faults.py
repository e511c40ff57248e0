"""Faults of an engine inside the server, and signals to it: requests end with a reason, and nothing hangs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hf_guided as hg
from hf_guided.backends import compile as compile_module
from tests import faulty
from tests.effort import repeats
from tests.serving import save_long_demo, serving

FAILING = {"type": "regex", "regex": "[ab]{20}"}
OTHER = {"type": "regex", "regex": "[xy]{30}"}
KEY = hg.Regex(FAILING["regex"]).key
METHODS = [method for method in faulty.METHODS if method not in ("fork", "rollback")]  # of drafts, which fail alone


def send(url: str, body: dict[str, Any]) -> tuple[int, str]:
    """The status and the body of one answer."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 60, **body}
    data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", data, headers)) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def events(text: str) -> list[Any]:
    """The events of a stream, which ends with [DONE]."""
    *data, done = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    assert done == "[DONE]"
    return [json.loads(line) for line in data]


def answer_of(text: str, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(text)["choices"][0]["message"]["content"])
    choices = [event["choices"][0] for event in events(text)]
    assert choices[-1]["finish_reason"] == "stop"
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def reason_of(status: int, text: str, *, stream: bool) -> str:
    """The message of an answer that has failed."""
    assert "Traceback" not in text
    bodies = [event for event in events(text) if "error" in event] if stream and status == 200 else [json.loads(text)]
    assert len(bodies) == 1, text
    assert bodies[0]["error"]["type"] in ("server_error", "invalid_request_error")
    return str(bodies[0]["error"]["message"])


@pytest.fixture(params=[False, True], ids=["one by one", "shared batches"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    faulty.register(monkeypatch)
    monkeypatch.setattr(compile_module, "chosen", lambda *_: faulty.NAME)
    with serving(continuous_batching=request.param) as url:
        yield url


@pytest.mark.filterwarnings("ignore:row .* reached a dead end:UserWarning")
def test_an_engine_that_fails_ends_its_request_alone(url: str) -> None:
    expected = {stream: send(url, {"response_format": OTHER, "stream": stream})[1] for stream in (False, True)}
    for method in METHODS:
        for stream in (False, True):
            for name in list(faulty.ERRORS)[: repeats(1, 4)]:
                fault = faulty.Fault(KEY, method, 1, faulty.ERRORS[name], lasting=True)
                with faulty.armed(fault), ThreadPoolExecutor(2) as threads:
                    failing = threads.submit(send, url, {"response_format": FAILING, "stream": stream})
                    beside = threads.submit(send, url, {"response_format": OTHER, "stream": stream})
                    (status, text), (other_status, other) = failing.result(), beside.result()
                assert other_status == 200
                assert answer_of(other, stream=stream) == answer_of(expected[stream], stream=stream)
                if "error" not in text:
                    assert len(answer_of(text, stream=stream)) == 20  # the method was not needed
                    continue
                assert fault.fired and status in (200 if stream else 500, 500), text
                assert faulty.is_reported(reason_of(status, text, stream=stream), name), (method, text)
    status, text = send(url, {"response_format": FAILING})
    assert status == 200 and len(answer_of(text, stream=False)) == 20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.usefixtures("control_c")
@pytest.mark.parametrize(
    ("number", "batching"), [("SIGINT", False), pytest.param("SIGTERM", True, marks=pytest.mark.slow)]
)
def test_a_signal_during_requests_ends_them_and_the_command(number: str, batching: bool, tmp_path: Path) -> None:
    sent, model = getattr(signal, number), str(save_long_demo(tmp_path))
    command = [sys.executable, "-m", "hf_guided", "serve", "--model", model, "--host", "127.0.0.1", "--port", "0"]
    endless = {"response_format": {"type": "regex", "regex": "[ab]{9000}"}, "max_tokens": 10_000}
    with subprocess.Popen(
        [*command, *["--continuous-batching"] * batching], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            status, text = send(url, {"response_format": OTHER})
            assert status == 200 and re.fullmatch(OTHER["regex"], answer_of(text, stream=False))
            with ThreadPoolExecutor(3) as threads:
                answers = [threads.submit(send, url, {**endless, "stream": stream}) for stream in (True, False)]
                free = {"stream": True, "max_tokens": 10_000}
                answers += [] if batching else [threads.submit(send, url, free)]
                wait_for(url, r"hf_guided_requests_total\{[^}]*regex[^}]*\} 3.0\n")
                process.send_signal(sent)
                began = time.monotonic()
                _, err = process.communicate(timeout=120)
                seconds = time.monotonic() - began
                (status, streamed), (other, whole) = (answer.result() for answer in answers[:2])
        finally:
            process.kill()
    assert process.returncode == (130 if number == "SIGINT" else -sent), err
    assert "Traceback" not in err and "terminate called" not in err, err
    assert seconds < 60, "a few seconds, on a busy machine"
    assert status == 200 and "shuts down" in reason_of(status, streamed, stream=True)
    assert other == 503 and json.loads(whole)["error"]["code"] == "server_shuts_down"
    if not batching:
        assert answers[2].result()[0] == 200


def wait_for(url: str, pattern: str) -> None:
    """Until the server's metrics say this."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}/metrics") as response:
            if re.search(pattern, response.read().decode()):
                return
        threading.Event().wait(0.05)
    pytest.fail("the requests did not begin")
