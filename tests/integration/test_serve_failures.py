"""What goes wrong inside the server is logged with its traceback, and answered as OpenAI's clients read it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
import pytest

from hf_guided import demo
from hf_guided.serve import models
from tests.serving import client, save_long_demo, serving

CHAT: Any = [{"role": "user", "content": demo.EXAMPLES[0].prompt}]
REGEX = {"type": "regex", "regex": "[ab]{20}"}
# Would break an event of the stream, and the JSON in it, if it were put there as it is.
MESSAGE = 'no "memory"\n\ndata: left'


class Faulty:
    """The demo model, whose forward raises while it is told to."""

    def __init__(self) -> None:
        self.raises = False
        self.model, self.tokenizer = demo.load()
        forward = self.model.forward

        def perhaps(*args: Any, **kwargs: Any) -> Any:
            if self.raises:
                raise RuntimeError(MESSAGE)
            return forward(*args, **kwargs)

        self.model.forward = perhaps  # type: ignore[method-assign]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    found = Faulty()
    load = models.load
    monkeypatch.setattr(models, "load", lambda *args: replace(load(*args), model=found.model))
    return found


@pytest.fixture
def tracebacks(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How many tracebacks of the failure have been logged since it was last asked."""

    def count() -> int:
        found = sum(one.exc_info is not None and MESSAGE in str(one.exc_info[1]) for one in caplog.records)
        caplog.clear()
        return found

    return count


def ask(api: openai.OpenAI, *, stream: bool, guided: bool) -> str:
    asked: dict[str, Any] = {"response_format": REGEX} if guided else {"max_tokens": 5}
    found: Any = api.chat.completions.create(model="demo", messages=CHAT, stream=stream, **asked)
    if not stream:
        return str(found.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in found)


@pytest.mark.parametrize("guided", [False, True])
def test_a_model_that_raises(faulty, guided, tracebacks):
    with serving() as url, client(url) as api:
        faulty.raises = True
        with pytest.raises(openai.InternalServerError) as caught:
            ask(api, stream=False, guided=guided)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["type"] == "server_error"
        assert MESSAGE in caught.value.body["message"]
        assert tracebacks() == 1
        with pytest.raises(openai.APIError) as in_stream:
            ask(api, stream=True, guided=guided)
        assert isinstance(in_stream.value.body, dict)
        assert in_stream.value.body["type"] == "server_error"
        assert in_stream.value.body["message"] == in_stream.value.message == MESSAGE
        assert tracebacks() == 1
        faulty.raises = False
        assert len(ask(api, stream=False, guided=True)) == len(ask(api, stream=True, guided=True)) == 20


def test_responses_of_a_model_that_raises(faulty, tracebacks):
    with serving() as url, client(url) as api:
        faulty.raises = True
        asked: dict[str, Any] = {"model": "demo", "input": "x", "text": {"format": REGEX}}
        with pytest.raises(openai.InternalServerError):
            api.responses.create(**asked)
        events = list(api.responses.create(stream=True, **asked))
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None
        assert events[-1].response.error.message == MESSAGE
        assert tracebacks() == 2


def test_shared_batches_of_a_model_that_raises(faulty):
    """transformers ends the thread that generates; it is started again for later requests."""
    with serving(continuous_batching=True) as url, client(url) as api:
        assert len(ask(api, stream=False, guided=True)) == 20
        faulty.raises = True
        with pytest.raises(openai.InternalServerError) as caught:
            ask(api, stream=False, guided=True)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["message"]
        with pytest.raises(openai.APIError):
            ask(api, stream=True, guided=False)
        faulty.raises = False
        assert len(ask(api, stream=False, guided=True)) == len(ask(api, stream=True, guided=True)) == 20
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert re.search(r"^hf_guided_engine_restarts_total [1-9]", answer.read().decode(), re.MULTILINE)


@pytest.mark.slow  # test_serve_faults.py lets a command end in every run
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.usefixtures("control_c")
def test_the_command_ends_its_threads(times, tmp_path):
    """Told once it answers those who wait; told twice, in the middle of a forward pass, it leaves them."""
    model = str(save_long_demo(tmp_path, 2**15))
    command = [sys.executable, "-m", "hf_guided", "serve", "--model", model, "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            url = process.stdout.readline().split()[-1]
            length = 300 if times == 1 else 20_000
            asked = {"type": "regex", "regex": f"[ab]{{{length}}}"}
            answers: list[Any] = []
            begun = threading.Event()

            def run() -> None:
                with client(url) as api:
                    try:
                        chunks: Any = api.chat.completions.create(
                            model="demo", messages=CHAT, response_format=asked, max_tokens=length + 100, stream=True
                        )
                        text = ""
                        for chunk in chunks:
                            text += chunk.choices[0].delta.content or ""
                            if text:
                                begun.set()
                        answers.append(text)
                    except Exception as error:
                        answers.append(error)
                    finally:
                        begun.set()

            waiting = threading.Thread(target=run)
            waiting.start()
            begun.wait()
            process.send_signal(signal.SIGINT)
            if times == 2:
                # The first has arrived when nobody may connect any more.
                while refused(url) is None:
                    pass
                process.send_signal(signal.SIGINT)
            _, err = process.communicate()
            waiting.join()
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "terminate called" not in err
    if times == 1:
        assert len(answers[0]) == length


def refused(url: str) -> Exception | None:
    try:
        urllib.request.urlopen(f"{url}/health").close()
    except OSError as error:
        return error
    return None


def test_metrics_of_failures(faulty):
    with serving() as url, client(url) as api:
        faulty.raises = True
        with pytest.raises(openai.InternalServerError):
            ask(api, stream=False, guided=True)
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            text = answer.read().decode()
    assert 'hf_guided_generations_total{outcome="failed"} 1.0\n' in text
    assert re.search(r"^hf_guided_generations_running 0.0$", text, re.MULTILINE)
