"""The page of ``hf-guided ui`` in a real browser: answers as they are written, errors, Stop, and hostile texts."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
from pydantic import BaseModel, Field

import hf_guided as hg
from hf_guided import demo
from hf_guided.options import is_local
from tests.devtools import Tab, tab

pytest.importorskip("gradio", reason="needs Gradio: make test-frameworks")

from hf_guided.integrations.gradio import Example, Page, UiLimits, ui  # noqa: E402
from hf_guided.integrations.gradio.answers import Answers  # noqa: E402
from hf_guided.integrations.gradio.form import CHOICE, FREE, PATTERN, SCHEMA, TYPE, Form  # noqa: E402

# Gradio leaves event loops and their sockets to the garbage collector, and uses an option of pandas that is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*future.no_silent_downcasting")
ROOT = Path(__file__).parents[2]
PROMPT = demo.make_prompt("person", "Our gardener Daria Pinto is 50 years old, reachable at daria@laurel.example.")
RUN, STOP, ANSWER = "#hf-guided-run", "#hf-guided-stop", "document.querySelector('#hf-guided-answer textarea').value"
STATUS = "document.querySelector('#hf-guided-status').innerText"
FINISHED = f"{STATUS}.includes('finish reason')"
FRAME = "document.querySelector('#hf-guided-trace iframe')"
LIMITS = UiLimits(max_format_chars=5000, max_prompt_chars=5000, max_new_tokens=400, max_request_bytes=50_000)


class Person(BaseModel):
    name: str
    age: int = Field(ge=18, le=99)


class Impossible(BaseModel):
    call: Callable[[], int]  # no JSON is one


class Pace:
    """Counts the forward passes of a model, and makes them slower.

    Args:
        model: the model.
    """

    def __init__(self, model: Any):
        self.seconds, self.passes, self.running, self.most_at_once = 0.0, 0, 0, 0
        self._lock = threading.Lock()
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        with self._lock:
            self.passes += 1
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
        time.sleep(self.seconds)

    def _end(self, *_: Any) -> None:
        with self._lock:
            self.running -= 1

    def ends(self) -> None:
        """Wait until no pass has begun for a second."""
        end = time.monotonic() + 60
        before = -1
        while before != self.passes:
            assert time.monotonic() < end, "the model still runs"
            before = self.passes
            time.sleep(1)


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[str, Pace, Page]]:
    """The URL of a page, the pace of its model, and the page."""
    model, tokenizer = demo.load()
    pace = Pace(model)
    schema = json.dumps(demo.SCHEMAS["person"])
    page = ui(model, tokenizer, types=[Person], examples=[Example(PROMPT, schema)], name="demo", limits=LIMITS)
    url = page.start()
    yield url, pace, page
    page.close()


@pytest.fixture
def site(shown: tuple[str, Pace, Page]) -> Iterator[tuple[str, Pace]]:
    url, pace, _ = shown
    yield url, pace
    pace.seconds = 0.0
    pace.ends()


@pytest.fixture
def opened(site: tuple[str, Pace], tmp_path: Path) -> Iterator[Tab]:
    """The page in a browser."""
    with tab(tmp_path) as one:
        show(one, site[0])
        yield one


def show(one: Tab, url: str) -> None:
    one.resize(1400, 1000)
    one.open(url)
    one.wait(
        f"document.querySelector('{RUN}') !== null && document.querySelector('#hf-guided-schema textarea') !== null"
    )


def choose(one: Tab, kind: str) -> None:
    """Choose a kind of format."""
    labels = "[...document.querySelectorAll('#hf-guided-kind label')]"
    one.run(f"{labels}.find((one) => one.innerText.trim() === {kind!r}).click()")


def field(one: Tab, name: str, text: str) -> None:
    selector = f"#hf-guided-{name} textarea"
    one.wait(f"document.querySelector('{selector}')?.offsetParent != null")
    one.write(selector, text)


def test_the_answer_to_a_schema_that_is_typed(opened: Tab) -> None:
    """It comes piece by piece, satisfies the schema, and nothing is fetched from elsewhere, not even a font."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 18}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    field(opened, "schema", json.dumps(schema))
    opened.run(
        f"""(() => {{
          window.states = [];
          const look = () => {{ window.states.push({ANSWER}); requestAnimationFrame(look); }};
          look();
        }})()"""
    )
    opened.click(RUN)
    opened.wait(FINISHED)
    text = opened.run(ANSWER)
    jsonschema.validate(json.loads(text), schema)
    assert json.loads(text)["name"] == "Daria Pinto"
    states = [state for state in opened.run("window.states") if state and text.startswith(state)]
    assert len(set(states)) > 3, "the answer came in one piece"
    status = opened.run(STATUS)
    assert "Daria Pinto" in status and "stop (the answer is finished)" in status
    assert text not in status  # the answer has its own field
    opened.wait(f"{FRAME} !== null")
    assert opened.run(f"{FRAME}.getAttribute('sandbox')") == "allow-scripts"
    [frame] = opened.frames()
    opened.wait("document.querySelectorAll('#tokens .token').length > 5", frame=frame)
    assert opened.outside() == []
    assert opened.errors == []
    assert not [url for url in opened.requested if "font" in url]


def test_a_python_type_is_chosen_by_name(opened: Tab) -> None:
    choose(opened, TYPE)
    opened.wait("document.querySelector('#hf-guided-type')?.offsetParent != null")
    opened.click(RUN)
    opened.wait(FINISHED)
    assert Person.model_validate_json(opened.run(ANSWER)).name == "Daria Pinto"
    assert opened.run("document.querySelectorAll('#hf-guided-type textarea').length") == 0  # nothing to type code into


@pytest.mark.parametrize(
    ("kind", "name", "text", "answer"),
    [(PATTERN, "pattern", "(?:a|a)*c|b{3}", ("c", "bbb")), (CHOICE, "options", "left\n\nright", ("left", "right"))],
)
def test_other_kinds_of_formats(kind: str, name: str, text: str, answer: tuple[str, ...], opened: Tab) -> None:
    choose(opened, kind)
    field(opened, name, text)
    opened.click(RUN)
    opened.wait(FINISHED)
    written = opened.run(ANSWER)
    assert written in answer or (kind == PATTERN and written.strip("a") == "c")


def test_patterns_are_not_matched_by_python() -> None:
    """``re`` needs twice the time for each further letter of this answer, and stops all threads meanwhile."""
    pattern = "(?:a|a)*c|a{20}"
    for fields in (
        {"kind": PATTERN, "pattern": pattern},
        {"schema": json.dumps({"regex": pattern})},
        {"schema": json.dumps({"type": "regex", "pattern": pattern})},
    ):
        constraint = Form(**{**DEFAULTS, **fields}).constraint({}, LIMITS)
        assert constraint is not None and constraint.parse("a" * 20) == "a" * 20


def test_errors_are_shown_as_text_with_pointers(opened: Tab) -> None:
    hostile = "<img src=x onerror='window.hacked = 1'>"
    for schema, expected in (
        ('{"properties": {"age": {"type": "int"}}}', "/properties/age/type"),
        (json.dumps({"properties": {"age": {"type": hostile}}}), "onerror"),
        ('{"type": ', "JSON Schema is not JSON"),
    ):
        field(opened, "schema", schema)
        opened.click(RUN)
        shown = opened.wait(
            f"{STATUS}.includes({expected!r}) && document.querySelector('#hf-guided-status [role=alert]').innerText"
        )
        assert "Traceback" not in shown and ".py" not in shown
    assert opened.run("document.querySelector('#hf-guided-status img')") is None
    assert opened.run("window.hacked === undefined") and opened.errors == []
    # The page can be used again.
    field(opened, "schema", '{"const": 5}')
    opened.click(RUN)
    opened.wait(FINISHED)
    assert opened.run(ANSWER) == "5"


HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "${window.hacked = 1}",
    "{{constructor.constructor('window.hacked = 1')()}}",
    '"><svg onload="window.hacked = 1">',
    "</textarea><script>window.hacked = 1</script>",
    "]]>&lt;script&gt;window.hacked = 1&lt;/script&gt;",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_scripts_in_prompt_schema_and_answer_do_not_run(text: str, opened: Tab) -> None:
    """The answer, its value and the trace show the text; no script of it runs, in the page or in the frame."""
    field(opened, "prompt", text)
    field(opened, "schema", json.dumps({"type": "object", "properties": {text: {"const": text}}, "required": [text]}))
    opened.click(RUN)
    opened.wait(FINISHED)
    assert json.loads(opened.run(ANSWER)) == {text: text}
    assert text in opened.run(STATUS)
    opened.wait(f"{FRAME} !== null")
    [frame] = opened.frames()
    opened.wait("document.querySelectorAll('#tokens .token').length > 5", frame=frame)
    time.sleep(0.5)  # an event handler of what was inserted would run by now
    assert opened.run("window.hacked === undefined")
    assert opened.run("window.hacked === undefined", frame=frame)
    assert opened.run(f"{FRAME}.contentDocument === null")  # the frame's scripts do not reach the page either
    assert opened.errors == []


SLOW = "[a-z]{300}"


def test_stop_ends_the_generation(site: tuple[str, Pace], opened: Tab) -> None:
    _, pace = site
    pace.seconds = 0.1
    choose(opened, PATTERN)
    field(opened, "pattern", SLOW)
    opened.click(RUN)
    opened.wait(f"{ANSWER}.length > 3")
    opened.click(STOP)
    opened.wait(f"{STATUS}.includes('Stopped')")
    pace.ends()
    text = opened.run(ANSWER)
    assert 3 < len(text) < 300
    # The model is free again.
    pace.seconds = 0.0
    choose(opened, CHOICE)
    opened.click(RUN)
    opened.wait(FINISHED)
    assert opened.run(ANSWER) in ("yes", "no")


def test_a_client_that_leaves_ends_its_generation(site: tuple[str, Pace], opened: Tab) -> None:
    _, pace = site
    pace.seconds = 0.1
    before = pace.passes
    choose(opened, PATTERN)
    field(opened, "pattern", SLOW)
    opened.click(RUN)
    opened.wait(f"{ANSWER}.length > 3")
    opened.open("about:blank")
    pace.ends()
    assert pace.passes - before < 200  # the whole answer has more tokens


def test_users_wait_for_each_other(site: tuple[str, Pace], opened: Tab, tmp_path: Path) -> None:
    url, pace = site
    pace.seconds, pace.most_at_once = 0.05, 0
    (tmp_path / "second").mkdir()
    with tab(tmp_path / "second") as other:
        show(other, url)
        for one in (opened, other):
            one.click(RUN)
        for one in (opened, other):
            one.wait(FINISHED)
            assert json.loads(one.run(ANSWER))["name"] == "Daria Pinto"
    assert pace.most_at_once == 1


def test_the_page_takes_no_code(shown: tuple[str, Pace, Page]) -> None:
    """A request that is made without the page cannot name anything but the types of the program."""
    code = "__import__('pathlib').Path('hacked').touch() or dict"
    refused = ask(shown, kind=TYPE, type_name=code)
    assert refused["success"] is False and not Path("hacked").exists()
    form = Form("x", TYPE, "", "", "", code, 9, 0, False, False)
    with pytest.raises(hg.InvalidArgument, match=r"Python type: expected one of: Person; got"):
        form.constraint({"Person": hg.JsonSchema(Person)}, LIMITS)
    assert ask(shown, kind=TYPE, type_name="Person")["success"] is True


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema", json.dumps({"description": "x" * 5000}), "schema: expected at most 5,000 characters, got 5,019"),
        ("prompt", "x" * 5001, "prompt: expected at most 5,000 characters, got 5,001"),
        ("prompt", "x " * 2400, "prompt: expected fewer than 512 tokens"),
        ("prompt", 5.5, None),  # Gradio makes a text of it
        ("schema", None, "schema: expected a text, got None"),
        ("max_new_tokens", 2.5, "most tokens: expected a whole number, got 2.5"),
        ("max_new_tokens", 1, "is too small"),
    ],
)
def test_limits_hold_without_the_page(
    field: str, value: Any, message: str | None, shown: tuple[str, Pace, Page]
) -> None:
    output = ask(shown, **{field: value})["output"]
    status = output["data"][1]
    assert ("finish reason" in status) if message is None else (message in status and "hf-guided-error" in status)


@pytest.mark.parametrize(("field", "value"), [("max_new_tokens", 401), ("max_new_tokens", -1), ("temperature", -1)])
def test_numbers_out_of_range_are_refused(field: str, value: Any, shown: tuple[str, Pace, Page]) -> None:
    assert ask(shown, **{field: value})["success"] is False  # by Gradio
    given = {**DEFAULTS, field: value}
    with pytest.raises(hg.InvalidArgument, match="expected"):
        Form(**given).check(LIMITS)


DEFAULTS: dict[str, Any] = {
    "prompt": PROMPT,
    "kind": SCHEMA,
    "schema": json.dumps(demo.SCHEMAS["person"]),
    "pattern": "a",
    "options": "a",
    "type_name": "Person",
    "max_new_tokens": 200,
    "temperature": 0,
    "describe": False,
    "trace": False,
}


def ask(shown: tuple[str, Pace, Page], **given: Any) -> dict[str, Any]:
    """The last message of Gradio's queue about a request that was made without the page."""
    url, _, page = shown
    [number] = [number for number, fn in page.blocks.fns.items() if fn.name == "generate"]
    data = list({**DEFAULTS, **given}.values())
    session = f"test{time.monotonic_ns()}"
    status, body = requested(
        url,
        "POST",
        "/gradio_api/queue/join",
        json.dumps({"data": data, "fn_index": number, "session_hash": session}).encode(),
        {"Content-Type": "application/json"},
    )
    assert status == 200, body
    _, stream = requested(url, "GET", f"/gradio_api/queue/data?session_hash={session}")
    messages = [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]
    done = next(message for message in messages if message["msg"] == "process_completed")
    generating = [message for message in messages if message["msg"] == "process_generating"]
    if done["success"] and generating:  # the first state is whole, and the next ones are differences
        state = generating[0]["output"]["data"]
        for message in generating[1:]:
            state = [changed(*pair) for pair in zip(state, message["output"]["data"], strict=True)]
        done["output"]["data"] = state
    return done


def changed(value: Any, edits: Any) -> Any:
    """A value after Gradio's edits of it."""
    if not isinstance(edits, list):
        return edits
    for action, path, new in edits:
        assert path == [], "only whole texts change"
        value = value + new if action == "append" else new
    return value


def requested(
    url: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).hostname or "", urlsplit(url).port, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def test_the_server_takes_no_files_no_large_bodies_and_no_other_host(shown: tuple[str, Pace, Page]) -> None:
    url = shown[0]
    assert requested(url, "GET", "/config")[0] == 200
    assert requested(url, "GET", "/config", headers={"Host": "localhost:1"})[0] == 200
    assert requested(url, "GET", "/config", headers={"Host": "rebound.example"})[0] == 400
    assert requested(url, "POST", "/gradio_api/upload", b"x")[0] == 403
    recording = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\nx\r\n--b--\r\n'
    headers = {"Content-Type": "Multipart/form-data; boundary=b"}
    assert requested(url, "POST", "/gradio_api/process_recording", recording, headers)[0] == 403
    join, large = "/gradio_api/queue/join", b" " * 60_000
    assert requested(url, "POST", join, large)[0] == 413
    assert requested(url, "POST", join, iter([large[:30_000], large[:30_000]]))[0] == 413  # without a length


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_every_address_of_this_machine_is_served_by_its_own_name(host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        pytest.skip(f"no program can listen on {host} here: {error}")
    page = ui(*demo.load())
    url = page.start(host)
    try:
        assert requested(url, "GET", "/config")[0] == 200
        assert requested(url, "GET", "/config", headers={"Host": "rebound.example"})[0] == 400
    finally:
        page.close()


def test_a_failure_inside_shows_no_traceback(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    model, tokenizer = demo.load()
    answers = Answers(model, tokenizer, {}, LIMITS)
    monkeypatch.setattr(model, "forward", lambda *_, **__: 1 / 0)

    async def states() -> list[Any]:
        return [state async for state in answers.stream(Form(**DEFAULTS))]

    last = asyncio.run(states())[-1]
    assert "failed inside the server" in last.status and "division" not in last.status
    assert "ZeroDivisionError" in caplog.text


def test_what_the_page_is_made_with_is_checked() -> None:
    pair = demo.load()
    with pytest.raises(hg.InvalidArgument, match="different names"):
        ui(*pair, types=[Person, Person])
    with pytest.raises(hg.InvalidConstraint):
        ui(*pair, types=[Impossible])
    with pytest.raises(hg.InvalidArgument, match="max_queue"):
        UiLimits(max_queue=0)
    with pytest.raises(hg.InvalidArgument, match="port"):
        ui(*pair).start(port=70_000)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="cannot listen at 127.0.0.1"):
        ui(*pair).start(port=taken.getsockname()[1])
    assert Form(**{**DEFAULTS, "kind": FREE}).constraint({}, LIMITS) is None
    with pytest.raises(hg.InvalidConstraint, match="at least one option"):
        Form(**{**DEFAULTS, "kind": CHOICE, "options": "\n \n"}).constraint({}, LIMITS)
    assert [is_local(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")] == [
        *(True, True, True, False, False)
    ]


QUIET = """
import json, os, sys
environment = dict(os.environ)
reached = []
def audit(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        reached.append(arguments[1][0])
    elif event == "socket.getaddrinfo":
        reached.append(arguments[0])
sys.addaudithook(audit)
import hf_guided
assert "gradio" not in sys.modules
from hf_guided import demo
from hf_guided.integrations.gradio import ui
page = ui(*demo.load())
url = page.start()
import time
time.sleep(2)
changes = {name: value for name, value in os.environ.items() if environment.get(name) != value}
print(json.dumps({"url": url, "reached": sorted({str(one) for one in reached}), "changes": changes,
    "share": page.blocks.share, "host": page.blocks.server_name}))
page.close()
"""


def test_it_starts_without_a_network_and_is_not_shared() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["reached"]) <= {"127.0.0.1", "localhost"}
    assert found["share"] is False and found["host"] == "127.0.0.1"
    assert not [name for name in found["changes"] if "GRADIO" in name], found["changes"]


@pytest.mark.usefixtures("control_c")
def test_the_command_shows_the_page_until_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from pydantic import BaseModel\nclass Pet(BaseModel):\n    name: str\n")
    command = [sys.executable, "-m", "hf_guided", "ui", "--model", "demo", "--port", "0", "--type", "mine:Pet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith("hf-guided: the page is at http://127.0.0.1:"), process.stderr.read()
            status, config = requested(line.split()[-1], "GET", "/config")
            assert status == 200 and "Pet" in config
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)


def test_the_app_of_the_space_shows_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "space", tmp_path, dirs_exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADIO_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"}
    environment.pop("GRADIO_SERVER_NAME", None)
    command = [sys.executable, "app.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("hf-guided: the page is at http://127.0.0.1:")
            status, config = requested(line.split()[-1], "GET", "/config")
            assert status == 200 and "Person" in config and "[invoice]" in config
        finally:
            process.terminate()
