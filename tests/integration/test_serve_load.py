"""Many clients at once, clients that leave, and requests that are meant to do harm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jsonschema
import openai
import pytest

from hf_guided import demo
from hf_guided.serve.options import ServeLimits
from tests import effort
from tests.effort import repeats
from tests.serving import calls_of, client, save_long_demo, serving

CLIENTS = 16
BOTH_WAYS = pytest.mark.parametrize("batching", [False, True], ids=["one by one", "shared batches"])
ONE_BY_ONE = [pytest.param(False, id="one by one"), pytest.param(True, id="shared batches", marks=pytest.mark.slow)]
SHARED = [pytest.param(False, id="one by one", marks=pytest.mark.slow), pytest.param(True, id="shared batches")]
HOT = {"do_sample": True, "temperature": 3.0, "max_new_tokens": 120}
FREE = {"max_new_tokens": 100, "do_sample": False}


@cache
def alone() -> dict[str, str]:
    """For each prompt what transformers' own greedy loop writes behind it."""
    model, tokenizer = demo.load()
    found = {}
    for example in demo.EXAMPLES:
        inputs = tokenizer(example.prompt, return_tensors="pt")["input_ids"]
        output = model.generate(inputs, **FREE)
        found[example.prompt] = tokenizer.decode(output[0, inputs.shape[1] :], skip_special_tokens=True)
    return found


def schema_of(owner: int) -> dict[str, Any]:
    properties = {"owner": {"const": owner}, "name": {"type": "string", "maxLength": 12}, "ok": {"type": "boolean"}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def schema_valid(owner: int, message: Any) -> None:
    jsonschema.validate(json.loads(message["content"]), schema_of(owner))


def regex_valid(owner: int, message: Any) -> None:
    assert re.fullmatch(f"{owner}:[a-z]{{2,9}}", message["content"])


def choice_valid(owner: int, message: Any) -> None:
    assert message["content"] in (f"yes {owner}", f"no {owner}")


def tool_of(owner: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"tool_{owner}", "parameters": schema_of(owner)}}


def call_valid(owner: int, message: Any) -> None:
    [(name, arguments)] = message["calls"]
    assert name == f"tool_{owner}"
    jsonschema.validate(json.loads(arguments), schema_of(owner))


GUIDED: list[tuple[Callable[[int], dict[str, Any]], Callable[[int, Any], None]]] = [
    (
        lambda owner: {
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(owner)}}
        },
        schema_valid,
    ),
    (lambda owner: {"response_format": {"type": "regex", "regex": f"{owner}:[a-z]{{2,9}}"}}, regex_valid),
    (lambda owner: {"response_format": {"type": "choice", "choice": [f"yes {owner}", f"no {owner}"]}}, choice_valid),
    (
        lambda owner: {"tools": [tool_of(owner)], "tool_choice": "required", "parallel_tool_calls": False},
        call_valid,
    ),
]


def ask(api: openai.OpenAI, name: str, prompt: str, settings: dict[str, Any], *, stream: bool, **asked: Any) -> Any:
    """The answer's content and calls; it has to bear the name of the request."""
    completion = api.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": prompt}],
        stream=stream,
        extra_headers={"x-request-id": name},
        extra_body={"generation_config": json.dumps(settings)},
        **asked,
    )
    if not stream:
        assert completion.id == name
        message = completion.choices[0].message
        return {"content": message.content, "calls": calls_of([message])}
    content, deltas = "", []
    for chunk in completion:
        assert chunk.id == name
        delta = chunk.choices[0].delta
        content += delta.content or ""
        deltas.append(delta)
    assert chunk.choices[0].finish_reason in ("stop", "tool_calls", "length")
    return {"content": content, "calls": calls_of(deltas)}


def load(url: str, requests: int) -> Counter[str]:
    """So many requests by 16 clients, half of them streaming; what was asked how often."""
    expected, prompts = alone(), [example.prompt for example in demo.EXAMPLES]

    def run(owner: int) -> Counter[str]:
        done: Counter[str] = Counter()
        with client(url) as api:
            for number in range(owner, requests, CLIENTS):
                prompt, name = prompts[number % len(prompts)], f"request-{number}"
                kind = (number // CLIENTS + owner) % (len(GUIDED) + 1)
                if kind == len(GUIDED):
                    message = ask(api, name, prompt, FREE, stream=owner % 2 == 0)
                    assert message == {"content": expected[prompt], "calls": []}
                    done["free"] += 1
                else:
                    make, check = GUIDED[kind]
                    check(owner, ask(api, name, prompt, HOT, stream=owner % 2 == 0, **make(owner)))
                    done["guided"] += 1
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(run, range(CLIENTS)), Counter())


def metrics(url: str) -> dict[str, float]:
    """The server's metrics, read by the rules of Prometheus' text format."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        text = answer.read().decode()
    samples, typed = {}, set()
    for line in text.splitlines():
        if found := re.fullmatch(r"# TYPE ([a-z_]+) (?:counter|gauge)", line):
            assert found[1] not in typed
            typed.add(found[1])
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r'(([a-z_]+)(?:\{[a-z]+="[a-z_]+"\})?) (\S+)', line)
            assert found is not None and found[2] in typed, line
            samples[found[1]] = float(found[3])
    return samples


def check_load(requests: int, **options: Any) -> None:
    with serving(**options) as url:
        done = load(url, requests)
        seen = metrics(url)
    assert done.total() == requests
    assert seen['hf_guided_generations_total{outcome="finished"}'] == done["guided"]
    assert seen['hf_guided_requests_total{kind="free"}'] == done["free"]
    assert seen["hf_guided_generations_running"] == 0
    hits, misses = seen["hf_guided_compile_cache_hits_total"], seen["hf_guided_compile_cache_misses_total"]
    assert hits + misses == done["guided"]
    assert misses <= CLIENTS * len(GUIDED)
    assert seen["hf_guided_masks_total"] > done["guided"]
    assert seen["hf_guided_masks_per_second"] > 0
    assert seen["hf_guided_compile_milliseconds_total"] > 0


@pytest.mark.parametrize("batching", ONE_BY_ONE)
def test_sixteen_clients_at_once(batching):
    check_load(repeats(8, 32), continuous_batching=batching)


@pytest.mark.slow
@BOTH_WAYS
def test_sixteen_clients_and_five_hundred_requests(batching):
    check_load(500, continuous_batching=batching)


LONG = {"response_format": {"type": "regex", "regex": "[ab]{1500}"}, "max_tokens": 1800, "stream": True}
CHAT: Any = [{"role": "user", "content": demo.EXAMPLES[0].prompt}]


@BOTH_WAYS
def test_clients_that_leave_free_their_slot(batching, tmp_path):
    with (
        serving(save_long_demo(tmp_path, 2048), continuous_batching=batching) as url,
        client(url) as api,
        client(url) as waiting,
    ):
        begun: Any = api.chat.completions.create(model="demo", messages=CHAT, **LONG)
        while not next(begun).choices[0].delta.content:
            pass  # the first chunk comes before generation begins
        # Where one waits for another, this one is gone before its turn comes.
        waiting.chat.completions.create(model="demo", messages=CHAT, **LONG).close()
        begun.close()
        short: Any = {"response_format": {"type": "regex", "regex": "[ab]{5}"}}
        done = api.chat.completions.create(model="demo", messages=CHAT, **short)
        assert re.fullmatch("[ab]{5}", done.choices[0].message.content or "")
        seen = metrics(url)
    assert seen['hf_guided_generations_total{outcome="cancelled"}'] == 2
    assert seen['hf_guided_generations_total{outcome="finished"}'] == 1
    assert seen["hf_guided_generations_running"] == 0


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


HOSTILE = {
    "slow": json_schema({"allOf": [{"type": "string", "pattern": f".*a.{{{i}}}.*"} for i in range(1, 18)]}),
    "chain of rules": {
        "type": "grammar",
        "grammar": "start: r0\n" + "\n".join(f'r{i}: "x" r{i + 1}?' for i in range(8000)) + '\nr8000: "y"\n',
    },
    "chain of terminals": {
        "type": "grammar",
        "grammar": "start: T0\n" + "\n".join(f'T{i}: "x" T{i + 1}?' for i in range(8000)) + '\nT8000: "y"\n',
    },
    "parentheses": {"type": "grammar", "grammar": "root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000},
    "groups": {"type": "regex", "regex": "(" * 300 + "a" + ")*" * 300},
}
TOO_LARGE = {  # for a server that is told no limit: engines would need gigabytes
    "properties": json_schema(
        {"type": "object", "properties": {f"property_{i}": {"type": "string"} for i in range(8000)}}
    ),
    "references": json_schema(
        {"$defs": {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(4000)}, "$ref": "#/$defs/d0"}
    ),
}


ATTACKS = [request for name, request in HOSTILE.items() if effort.everything or name not in ("slow", "chain of rules")]


@pytest.mark.parametrize("batching", SHARED)
def test_hostile_requests_are_refused_while_others_are_served(batching):
    requests = repeats(8, 32)
    with serving(continuous_batching=batching, limits=ServeLimits(max_schema_bytes=256 * 2**10)) as url:

        def attack(response_format: dict[str, Any]) -> tuple[str, str]:
            asked: Any = {"model": "demo", "messages": CHAT, "response_format": response_format}
            with client(url) as api, pytest.raises(openai.BadRequestError) as caught:
                api.chat.completions.create(**asked)
            return str(caught.value.code), caught.value.message

        with ThreadPoolExecutor(len(ATTACKS)) as attackers:
            refused = attackers.map(attack, ATTACKS)
            done = load(url, requests)
            codes = {code for code, _ in refused}
            assert {code for code, _ in attackers.map(attack, ATTACKS)} == codes, "the refusals are remembered"
    assert codes <= {"compile_limit_exceeded", "unsupported_constraint", "invalid_constraint"}
    assert done.total() == requests


def test_what_would_take_gigabytes_is_too_large():
    with serving() as url, client(url) as api:
        for response_format in TOO_LARGE.values():
            asked: Any = {"model": "demo", "messages": CHAT, "response_format": response_format}
            with pytest.raises(openai.BadRequestError, match="--max-schema-bytes") as caught:
                api.chat.completions.create(**asked)
            assert caught.value.code == "constraint_too_large"


@pytest.mark.slow  # test_serve_faults.py has one that is ended during requests
def test_the_command_serves_and_ends():
    command = [sys.executable, "-m", "hf_guided", "serve", "demo", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"hf-guided: serving demo at (http://127\.0\.0\.1:\d+)\n", said)
            assert found is not None, said or process.communicate()[1]
            with client(found[1]) as api:
                message = ask(api, "one", CHAT[0]["content"], HOT, stream=False, **GUIDED[0][0](7))
            schema_valid(7, message)
            process.terminate()
            _, err = process.communicate()
        finally:
            process.kill()
    assert "Traceback" not in err


def test_what_the_command_cannot_serve(tmp_path, capsys):
    from hf_guided.cli import commands as cli

    assert cli.main(["serve", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
