"""Many clients, clients that leave, and requests that are meant to do harm: each request gets its own answer, once."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import openai
import psutil
import pytest

from hf_guided import demo
from tests import effort
from tests.serve_process import CHAT, Target, started
from tests.serving import client, metrics, save_long_demo, serving

MODES = pytest.mark.parametrize("arguments", [(), ("--continuous-batching",)], ids=["one by one", "shared batches"])
MOST_GROWTH = 1.02  # of memory, from one round to the next
# As DeepSeek's: the prompt has begun the thinking.
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if enable_thinking | default(true) %}<think>\n{% else %}<think></think>{% endif %}"
)
PROMPTS = [example.prompt for example in demo.EXAMPLES]
FREE = 30  # tokens of a free answer


class Asked(NamedTuple):
    """One request.

    Args:
        name: its id.
        body: what is sent.
        check: raises if these texts are not its answers; None: it has to be refused.
        path: of the route.
        leaves: whether the client leaves before the end.
        free: whether it has no constraint.
    """

    name: str
    body: dict[str, Any]
    check: Callable[[list[dict[str, Any]]], None] | None
    path: str = CHAT
    leaves: bool = False
    free: bool = False


def schema_of(name: str) -> dict[str, Any]:
    """One whose values all say whose they are."""
    properties = {"owner": {"const": name}, "size": {"type": "integer", "minimum": 0, "maximum": 99}}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def is_record(name: str) -> Callable[[list[dict[str, Any]]], None]:
    def check(answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            jsonschema.validate(json.loads(answer["text"]), schema_of(name))

    return check


def is_thought(name: str) -> Callable[[list[dict[str, Any]]], None]:
    def check(answers: list[dict[str, Any]]) -> None:
        is_record(name)(answers)
        assert all(answer["thinking"] for answer in answers)

    return check


def matches(pattern: str, number: int = 1) -> Callable[[list[dict[str, Any]]], None]:
    def check(answers: list[dict[str, Any]]) -> None:
        assert len(answers) == number
        assert all(re.fullmatch(pattern, answer["text"]) for answer in answers), answers

    return check


def is_call(name: str) -> Callable[[list[dict[str, Any]]], None]:
    def check(answers: list[dict[str, Any]]) -> None:
        [answer] = answers
        assert answer["text"] == "" and [called for called, _ in answer["calls"]] == [name]
        jsonschema.validate(json.loads(answer["calls"][0][1]), schema_of(name))

    return check


@cache
def alone() -> dict[str, str]:
    """What transformers' own greedy loop writes after each prompt, without thinking."""
    model, tokenizer = demo.load()
    found = {}
    for prompt in PROMPTS:
        ids = tokenizer(f"{prompt}<think></think>", return_tensors="pt", add_special_tokens=False)["input_ids"]
        output = model.generate(ids, max_new_tokens=FREE, do_sample=False)
        found[prompt] = tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
    return found


def is_free(prompt: str) -> Callable[[list[dict[str, Any]]], None]:
    def check(answers: list[dict[str, Any]]) -> None:
        [answer] = answers
        assert answer["text"] == alone()[prompt] and answer["num_logprobs"] > 0

    return check


def asked(number: int) -> Asked:
    """The request of this number; every kind comes in turn, with random settings."""
    rng, name = random.Random(number), f"request-{number}"
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": (prompt := rng.choice(PROMPTS))}],
        "max_tokens": 80,
        "stream": rng.random() < 0.5,
        "chat_template_kwargs": {"enable_thinking": False},
        **rng.choice([{}, {"temperature": 1.5, "seed": number}, {"top_p": 0.9, "top_k": 50, "min_p": 0.01}]),
    }
    record = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema_of(name)}}
    pattern = rf"{name}-[a-f]{{2,6}}"
    completion = {key: value for key, value in chat.items() if key not in ("messages", "chat_template_kwargs")}
    tool = {"type": "function", "function": {"name": name, "parameters": schema_of(name)}}
    thinks = {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 200}
    bad = rng.choice([{"max_tokens": -1}, {"regex": "((("}, {"model": "other"}, {"tools": 3}, {"unknown": 1}])
    kinds = [
        Asked(name, chat | {"response_format": record}, is_record(name)),
        Asked(name, chat | {"regex": pattern, "n": 2, "temperature": 1.0}, matches(pattern, 2)),
        Asked(name, chat | {"structured_outputs": {"choice": [f"{name} a", f"{name} b"]}}, matches(f"{name} [ab]")),
        Asked(
            name,
            chat | {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": name}}},
            is_call(name),
        ),
        Asked(name, chat | {"response_format": record} | thinks, is_thought(name)),
        Asked(
            name,
            chat | {"logprobs": True, "top_logprobs": 2, "max_tokens": FREE, "temperature": 0},
            is_free(prompt),
            free=True,
        ),
        Asked(name, chat | bad, None),
        Asked(name, chat | {"regex": "[ab]{400}", "max_tokens": 440}, None, leaves=True),
        Asked(
            name,
            completion | {"prompt": PROMPTS[:2], "guided_regex": pattern, "frequency_penalty": 0.5},
            matches(pattern, 2),
            "/v1/completions",
        ),
    ]
    return kinds[number % len(kinds)]


def send(target: Target, request: Asked) -> str:
    """Send a request, check what comes, and say how it ended."""
    headers = {"x-request-id": request.name}
    if request.leaves:
        leave(target, request)
        return "left"
    status, body = target.post(request.body, request.path, **headers)
    if request.check is None:
        assert 400 <= status < 500, (request, status, body)
        assert json.loads(body)["error"].keys() >= {"message", "type", "param", "code"}
        return "refused"
    assert status == 200, (request, status, body)
    answers = list(streamed(body, request.name) if request.body["stream"] else whole(body, request.name))
    request.check(answers)
    return "answered"


def leave(target: Target, request: Asked) -> None:
    """Send it, wait for nothing or for the first bytes, and close the connection."""
    data = json.dumps(request.body).encode()
    head = f"POST {request.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    with target.connect() as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + data)
        if request.body["stream"]:
            connection.recv(200)


def whole(body: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The answers of a response that is no stream."""
    response = json.loads(body)
    assert response["id"] == name and [choice["index"] for choice in response["choices"]] == [
        *range(len(response["choices"]))
    ]
    for choice in response["choices"]:
        message = choice.get("message", {"content": choice.get("text")})
        assert choice["finish_reason"] in ("stop", "tool_calls", "length")
        yield {
            "text": message["content"] or "",
            "thinking": message.get("reasoning_content") or "",
            "calls": [
                (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []
            ],
            "num_logprobs": len((choice.get("logprobs") or {}).get("content") or []),
        }


def streamed(body: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The answers of a stream, each ended once."""
    events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    assert events.count("[DONE]") == 1 and events[-1] == "[DONE]"
    answers: dict[int, dict[str, Any]] = {}
    ends: Counter[int] = Counter()
    for event in map(json.loads, events[:-1]):
        assert event["id"] == name
        for choice in event["choices"]:
            index = choice["index"]
            answer = answers.setdefault(index, {"text": "", "thinking": "", "calls": [], "num_logprobs": 0})
            assert not ends[index], "nothing comes after the end"
            ends[index] += choice.get("finish_reason") is not None
            delta = choice.get("delta", {"content": choice.get("text")})
            answer["text"] += delta.get("content") or ""
            answer["thinking"] += delta.get("reasoning_content") or ""
            answer["num_logprobs"] += len((choice.get("logprobs") or {}).get("content") or [])
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(answer["calls"]):
                    answer["calls"].append((call["function"]["name"], ""))
                called, arguments = answer["calls"][call["index"]]
                answer["calls"][call["index"]] = called, arguments + call["function"].get("arguments", "")
    assert set(ends.values()) == {1}
    return (answers[index] for index in sorted(answers))


def a_round(target: Target, numbers: range, clients: int) -> Counter[str]:
    """How the requests of these numbers ended."""
    with ThreadPoolExecutor(clients) as pool:
        return Counter(pool.map(lambda number: send(target, asked(number)), numbers))


def settled_bytes(target: Target, process: psutil.Process) -> int:
    """The memory of the server, after the requests of clients that left have ended."""
    deadline = time.monotonic() + 60
    while b"hf_guided_requests_held 0.0" not in target.post(None, "/metrics", "GET")[1]:
        assert time.monotonic() < deadline, "a request has not ended"
        time.sleep(0.1)  # the metrics can only be polled
    return int(process.memory_info().rss)


@contextmanager
def thinking(folder: Path, *arguments: str) -> Iterator[tuple[Target, psutil.Process]]:
    """A server whose model thinks."""
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    for part in (model, tokenizer):
        part.save_pretrained(folder / "demo")
    limits = ("--tool-format", "qwen_3", "--max-thinking-tokens", "20")
    with started(*limits, *arguments, model=folder / "demo") as (target, process):
        yield target, process


def kinds_of(requests: int) -> Counter[str]:
    """How the first requests have to end."""
    return Counter(
        "left" if each.leaves else "answered" if each.check else "refused" for each in map(asked, range(requests))
    )


def check_rounds(folder: Path, requests: int, clients: int, *arguments: str, rounds: int) -> list[int]:
    """The memory of the server after each round."""
    kinds, memory = kinds_of(requests), []
    with thinking(folder, *arguments) as (target, process):
        for _ in range(rounds):
            began = time.monotonic()
            assert a_round(target, range(requests), clients) == kinds
            memory.append(settled_bytes(target, process))
            print(f"{dict(kinds)} in {time.monotonic() - began:.0f} s, {memory[-1] / 2**20:.1f} MiB")
        seen = metrics(f"http://{target.host}:{target.port}")
    free = rounds * sum(each.free for each in map(asked, range(requests)))
    guided, left = rounds * kinds["answered"] - free, rounds * kinds["left"]
    assert seen['hf_guided_requests_total{kind="free"}'] == free
    assert guided <= seen['hf_guided_generations_total{outcome="finished"}'] <= guided + left
    assert seen["hf_guided_generations_running"] == 0
    hits, misses = seen["hf_guided_compile_cache_hits_total"], seen["hf_guided_compile_cache_misses_total"]
    assert guided <= hits + misses <= guided + left and (hits > 0 or rounds == 1)
    assert seen["hf_guided_masks_total"] > guided and seen["hf_guided_masks_per_second"] > 0
    assert seen["hf_guided_compile_milliseconds_total"] > 0
    return memory


def test_a_few_clients(tmp_path: Path) -> None:
    check_rounds(tmp_path, 18, 6, rounds=1)


@pytest.mark.slow
@MODES
def test_64_clients_and_2000_requests(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    first, second = check_rounds(tmp_path, 2000, 64, *arguments, rounds=2)
    assert second <= MOST_GROWTH * first


BOTH_WAYS = pytest.mark.parametrize("batching", [False, True], ids=["one by one", "shared batches"])
LONG = {"response_format": {"type": "regex", "regex": "[ab]{1500}"}, "max_tokens": 1800, "stream": True}
CHAT_OF_DEMO: Any = [{"role": "user", "content": PROMPTS[0]}]


@BOTH_WAYS
def test_clients_that_leave_free_their_slot(batching, tmp_path):
    with (
        serving(save_long_demo(tmp_path, 2048), continuous_batching=batching) as url,
        client(url) as api,
        client(url) as waiting,
    ):
        begun: Any = api.chat.completions.create(model="demo", messages=CHAT_OF_DEMO, **LONG)
        while not next(begun).choices[0].delta.content:
            pass  # the first chunk comes before generation begins
        # Where one waits for another, this one is gone before its turn comes.
        waiting.chat.completions.create(model="demo", messages=CHAT_OF_DEMO, **LONG).close()
        begun.close()
        short: Any = {"response_format": {"type": "regex", "regex": "[ab]{5}"}}
        done = api.chat.completions.create(model="demo", messages=CHAT_OF_DEMO, **short)
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


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="one by one", marks=pytest.mark.slow),
        pytest.param(("--continuous-batching",), id="shared batches"),
    ],
)
def test_hostile_requests_are_refused_while_others_are_served(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    requests = effort.repeats(9, 36)
    with thinking(tmp_path, "--max-schema-bytes", str(256 * 2**10), *arguments) as (target, _):

        def attack(response_format: dict[str, Any]) -> tuple[int, str]:
            body = {"messages": CHAT_OF_DEMO, "response_format": response_format}
            status, answer = target.post(body)
            return status, json.loads(answer)["error"]["code"]

        with ThreadPoolExecutor(len(ATTACKS)) as attackers:
            refused = attackers.map(attack, ATTACKS)
            assert a_round(target, range(requests), 6) == kinds_of(requests)
            found = set(refused)
            assert set(attackers.map(attack, ATTACKS)) == found, "the refusals are remembered"
    assert {status for status, _ in found} == {400}
    assert {code for _, code in found} <= {"compile_limit_exceeded", "unsupported_constraint", "invalid_constraint"}


def test_what_would_take_gigabytes_is_too_large():
    with serving() as url, client(url) as api:
        for response_format in TOO_LARGE.values():
            asked: Any = {"model": "demo", "messages": CHAT_OF_DEMO, "response_format": response_format}
            with pytest.raises(openai.BadRequestError, match="--max-schema-bytes") as caught:
                api.chat.completions.create(**asked)
            assert caught.value.code == "constraint_too_large"


def test_what_the_command_cannot_serve(tmp_path, capsys):
    from hf_guided.cli import commands as cli

    assert cli.main(["serve", "--model", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
