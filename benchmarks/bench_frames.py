"""How many Python functions of this package run, and in how many of its files: for a token, a call, a request?

    python -m benchmarks.bench_frames [--list]

A count, so it does not depend on the machine: it shows detours that a timing on a fast machine hides. A token is one
more token of one row, on the thread that generates; with the companion, the masks are filled on another. A call is
``hg.generate`` with everything warm, and a request is a POST to the server until its engine is called, both on all
threads. ``--list`` prints which functions they are.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import hf_guided as hg
from benchmarks.common import finish, parser, table_of
from hf_guided import demo
from hf_guided.guide import calls_of
from hf_guided.hf.decode.call import DecodeOptions
from hf_guided.serve.app import build_app
from hf_guided.serve.options import ServeOptions

PACKAGE = str(Path(hg.__file__).parent) + os.sep
ENGINES = os.path.join("serve", "engines", "")
FEW, MANY = 8, 40  # tokens: the difference is what each further token costs
REQUEST = {
    "model": "demo",
    "messages": [{"role": "user", "content": "Write a color."}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["red", "green"]}}},
    "max_tokens": 16,
}

Calls = Counter[tuple[str, str]]  # of functions, by file and name


class Counting:
    """Counts calls on this thread and on those that start meanwhile, until a file of a folder is entered."""

    def __init__(self, until: str | None = None):
        self.calls: Calls = Counter()
        self._until, self._has_ended = until, False

    def restart(self) -> None:
        """Forget what was counted."""
        self.calls.clear()
        self._has_ended = False

    def _profile(self, frame: Any, event: str, _: object) -> None:
        if event != "call" or self._has_ended or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        file = frame.f_code.co_filename.removeprefix(PACKAGE)
        if self._until is not None and file.startswith(self._until):
            self._has_ended = True
        else:
            self.calls[file, getattr(frame.f_code, "co_qualname", frame.f_code.co_name)] += 1

    def __enter__(self) -> Counting:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def of_a_token(run: Callable[[int], Any]) -> Calls:
    """Calls for each further token."""
    for _ in range(3):
        run(MANY)  # until everything is compiled and every mask made
    with Counting() as counting:
        run(FEW)
        few = counting.calls.copy()
        counting.restart()
        run(MANY)
    each = {key: (count - few[key]) / (MANY - FEW) for key, count in counting.calls.items()}
    return Counter({key: count for key, count in each.items() if count > 0})


def tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, Calls]]:
    """For each way to generate."""
    guide, constraint = hg.Guide(model, tokenizer), hg.Regex("[a-z ]{200}")
    inputs = tokenizer("Write: ", return_tensors="pt")

    def generate(count: int, **kwargs: Any) -> None:
        model.generate(**inputs, do_sample=False, min_new_tokens=None, max_new_tokens=count, **kwargs)

    def processor(count: int) -> None:
        generate(count, logits_processor=[guide.logits_processor(constraint, overlap=False)])

    def companion(count: int) -> None:
        seam = guide.logits_processor(constraint, overlap=True)
        generate(count, logits_processor=[seam], stopping_criteria=[seam.companion])

    def loop(count: int) -> None:
        session = guide.session(constraint, overlap=False)  # the text need not close within so few tokens
        generate(count, custom_generate=calls_of(guide).decoder_of(session, DecodeOptions(closes=False)))

    for name, run in {"processor": processor, "with the companion": companion, "fast loop": loop}.items():
        yield f"a token: {name}", of_a_token(run)


def of_a_call(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Calls:
    """Calls of ``hg.generate`` for one answer of a few tokens."""

    def call() -> None:
        hg.generate(model, tokenizer, "Write a color.", ["red", "green"], max_new_tokens=16)

    with Counting() as counting:
        call()
        counting.restart()
        call()
    return counting.calls


def of_a_request() -> Calls:
    """Calls for a POST before the engine is called."""
    body = json.dumps(REQUEST).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }

    async def post(app: FastAPI) -> None:
        sent: list[dict[str, Any]] = []
        received = iter([{"type": "http.request", "body": body}])

        async def receive() -> dict[str, Any]:
            return next(received, None) or await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)
        assert sent[0]["status"] == 200, sent

    async def both() -> Calls:
        with Counting(until=ENGINES) as counting:
            app = build_app(ServeOptions("demo"))
            async with app.router.lifespan_context(app):
                await post(app)
                counting.restart()
                await post(app)
        return counting.calls

    return asyncio.run(both())


def main() -> None:
    """Print a line for each."""
    made = parser(__doc__, "frames.csv")
    made.add_argument("--list", action="store_true", help="print the functions, most often called first")
    arguments = made.parse_args()
    model, tokenizer = demo.load()
    rows = []
    counted = {**dict(tokens(model, tokenizer)), "a call": of_a_call(model, tokenizer), "a request": of_a_request()}
    for name, calls in counted.items():
        rows.append({"what": name, "calls": f"{calls.total():.1f}", "files": len({file for file, _ in calls})})
        if arguments.list:
            print(name)
            for (file, function), count in calls.most_common():
                print(f"  {count:5.1f}  {file}  {function}")
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    main()
