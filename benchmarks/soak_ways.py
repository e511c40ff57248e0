"""The ways to generate that the soak test mixes. Each job draws its constraints and returns what came of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import hf_guided as hg
from benchmarks.soak_cases import Case, Left, Output, Refused, draw
from hf_guided import demo
from tests import vocabularies
from tests.integration import models
from tests.serving import serving

ROWS = 16  # of a batch
HOT = 2.5  # with logits that are spread by about one: nearly every allowed token has the same chance
ENOUGH, SHORT = 40, 3  # tokens: every case ends within the first, most are cut at the second

COMPILED = 12 * 2**20  # bytes of each compile cache of the test: a hundred cases; one may come to hold 10 MiB
PATIENCE = 300.0  # seconds that a request may take before it counts as lost


Job = Iterable[Output | Refused | Left]


class Manager:
    """transformers' manager, which runs as long as the test, and the thread that hands its outputs out."""

    def __init__(self, guide: hg.Guide, model: Any):
        settings = GenerationConfig(
            do_sample=True, temperature=HOT, max_new_tokens=ENOUGH, eos_token_id=guide.tokenizer.eos_token_id
        )
        room = ContinuousBatchingConfig(num_blocks=512, page_size=16, max_batch_tokens=256, max_requests_per_batch=32)
        self._manager = guide.attach(model.init_continuous_batching(settings, room))
        self._waiting: dict[str, queue.SimpleQueue[Any]] = {}
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._hand_out, name="soak manager")
        self._manager.start()
        self._thread.start()

    def add(self, prompt: list[int], case: Case) -> queue.SimpleQueue[Any]:
        """Queue that gets the output of one request."""
        request_id = f"soak {next(self._numbers)}"
        waiting = self._waiting[request_id] = queue.SimpleQueue()
        self._manager.add_request(prompt, request_id=request_id, response_format=case.constraint, max_new_tokens=ENOUGH)
        return waiting

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._manager.stop(block=True, hard_stop=True)
        self._manager.destroy()

    def _hand_out(self) -> None:
        while not self._stopped.is_set():
            output = self._manager.get_result(timeout=0.2)
            if output is not None and output.is_finished():
                self._waiting.pop(output.request_id).put(output)


class Ways:
    """The models, the guide, the manager and the servers that all threads share."""

    def __init__(self, stack: ExitStack) -> None:
        self.tokenizer = vocabularies.demo()
        self.model = models.llama(self.tokenizer)
        self.guide = hg.Guide(
            self.model, self.tokenizer, options=hg.CompilerOptions(cache_bytes=COMPILED, max_failures=64)
        )
        self.text_ids = [i for i in range(len(self.tokenizer)) if self.guide.vocabulary.is_text(i)]
        batched = models.llama(self.tokenizer)  # a manager changes the attention of its model
        self.manager = Manager(self.guide, batched)
        stack.callback(self.manager.stop)
        self.own_manager = models.llama(self.tokenizer)  # of calls that make a manager; one at a time
        self.own_manager_lock = threading.Lock()
        self.urls = [
            stack.enter_context(serving(continuous_batching=batching, compile_cache_bytes=COMPILED))
            for batching in (False, True)
        ]
        self.prompts = [example.prompt for example in demo.EXAMPLES]

    def ids(self, random: Random, rows: int = ROWS) -> torch.Tensor:
        """(rows, 1 to 4) int64: random prompts."""
        return models.prompts(self.text_ids, rows, random.randint(1, 4), random.randrange(2**31))

    def generate(self, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """(rows, length) int64: what follows the prompts."""
        settings = {"do_sample": True, "temperature": HOT, "top_k": 0, "max_new_tokens": ENOUGH, **kwargs}
        return self.model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[:, ids.shape[1] :]

    def output(self, case: Case, token_ids: list[int], error: str | None = None) -> Output:
        """The output of one row; padding is the stop token."""
        stop = self.tokenizer.eos_token_id
        end = token_ids.index(stop) if stop in token_ids else len(token_ids)
        return Output(case, self.tokenizer.decode(token_ids[:end]), end < len(token_ids), error)


def _cases(random: Random) -> tuple[list[Case], Any]:
    """Cases of a batch's rows, and the argument that asks for them: one for all, or one per prompt."""
    if random.random() < 0.5:
        case = draw(random)
        return [case] * ROWS, case.constraint
    cases = [draw(random) for _ in range(ROWS)]
    return cases, [case.constraint for case in cases]


def processor(ways: Ways, random: Random) -> Job:
    """generate() with the logits processor; a third is cut."""
    cases, constraint = _cases(random)
    kwargs: dict[str, Any] = {}
    budget: int | None = ENOUGH
    if random.random() < 0.3:
        kwargs["max_new_tokens"], budget = SHORT, None
    if random.random() < 0.1:
        kwargs["num_beams"] = 2
    seam = ways.guide.logits_processor(constraint, max_new_tokens=budget)
    if random.random() < 0.5:
        kwargs["stopping_criteria"] = [seam.companion]
    rows = ways.generate(ways.ids(random), logits_processor=[seam], **kwargs).tolist()
    for i, (case, row) in enumerate(zip(cases, rows, strict=True)):
        yield ways.output(case, row, None if "num_beams" in kwargs else seam.dead_ends.get(i))


def decoder(ways: Ways, random: Random) -> Job:
    """generate() with the fast loop; a third has a limit that is too small for most cases."""
    cases, constraint = _cases(random)
    most = SHORT if random.random() < 0.3 else ENOUGH
    draft = random.choice([None, "grammar", "prompt_lookup"])
    seam = ways.guide.decoder(constraint, draft=draft)
    try:
        rows = ways.generate(ways.ids(random), custom_generate=seam, max_new_tokens=most).tolist()
    except hg.BudgetTooSmall:
        if most == ENOUGH:
            raise
        yield Refused()
        return
    for i, (case, row) in enumerate(zip(cases, rows, strict=True)):
        yield ways.output(case, row, seam.dead_ends.get(i))


def whole_call(ways: Ways, random: Random) -> Job:
    """hg.generate."""
    cases, constraint = _cases(random)
    return _results(cases, _call(ways, random, hg.generate, constraint, jump_forward=random.random() < 0.7))


def async_call(ways: Ways, random: Random) -> Job:
    """hg.agenerate, in an event loop of its own."""
    cases, constraint = _cases(random)

    async def run() -> Any:
        return await _call(ways, random, hg.agenerate, constraint)

    return _results(cases, asyncio.run(run()))


def stream(ways: Ways, random: Random) -> Job:
    """hg.generate(stream=True); some readers leave."""
    cases, constraint = _cases(random)
    leaves = random.random() < 0.2
    partials = _call(ways, random, hg.generate, constraint, stream=True)
    results = {}
    for partial in partials:
        if leaves:
            partials.close()
            return [Left()]
        _ = partial.value
        if partial.result is not None:
            results[partial.index] = partial.result
    return _results(cases, [results[i] for i in range(ROWS)])


def continuous(ways: Ways, random: Random) -> Job:
    """Requests to a manager that other threads use too."""
    waiting = []
    for case in (draw(random) for _ in range(ROWS)):
        waiting.append((case, ways.manager.add(ways.ids(random, 1)[0].tolist(), case)))
    for case, place in waiting:
        output = place.get(timeout=PATIENCE)
        yield ways.output(case, output.generated_tokens, output.error)


def own_manager(ways: Ways, random: Random) -> Job:
    """hg.generate(continuous_batching=True), which makes a manager for this call."""
    cases, constraint = _cases(random)
    with ways.own_manager_lock:
        return _results(
            cases, _call(ways, random, hg.generate, constraint, model=ways.own_manager, continuous_batching=True)
        )


def server(ways: Ways, random: Random) -> Job:
    """Requests to the servers: one answer after another, or in shared batches; some clients leave a stream."""
    for _ in range(4):
        yield _ask(ways, random, random.choice(ways.urls))


def refused(ways: Ways, random: Random) -> Job:
    """Constraints that have to be refused, each time with another number."""
    number = random.randrange(100_000)
    bad: list[Any] = [
        hg.JsonSchema({"type": "string", "minLength": number + 2, "maxLength": 1}),
        {"type": "object", "properties": {f"n{number}": {"$ref": f"#/$defs/{number}"}}},
        hg.Grammar(f"root ::= missing{number}"),
    ]
    for constraint in bad:
        try:
            _call(ways, random, hg.generate, constraint)
        except hg.HFGuidedError:
            yield Refused()
        else:
            raise AssertionError(f"{constraint} was not refused")


def many_options(ways: Ways, random: Random) -> Job:
    """A constraint that takes some time to compile."""
    number = random.randrange(40)
    options = [f"w{number} {i}" for i in range(8001)]
    known = frozenset(options)
    case = Case(options, {}, known.__contains__, rf"w{number} \d{{1,4}}")
    return _results([case] * ROWS, _call(ways, random, hg.generate, hg.Choice(options)))


# How often each is drawn. Of what makes a process, a manager or thousands of strings, little is enough.
WAYS: dict[Callable[[Ways, Random], Job], float] = {
    processor: 18,
    decoder: 22,
    whole_call: 18,
    async_call: 4,
    stream: 8,
    continuous: 7,
    server: 6,
    refused: 3,
    own_manager: 0.3,
    many_options: 0.5,
}


def _call(ways: Ways, random: Random, generate: Callable[..., Any], constraint: Any, **kwargs: Any) -> Any:
    prompts = [ways.tokenizer.decode(row) for row in ways.ids(random)]
    model = kwargs.pop("model", ways.model)
    settings = {"do_sample": True, "temperature": HOT, "top_k": 0, "max_new_tokens": ENOUGH, **kwargs}
    return generate(model, ways.tokenizer, prompts, constraint, guide=ways.guide, batch_size=ROWS, **settings)


def _results(cases: list[Case], results: list[hg.GuidedResult[Any]]) -> Job:
    for case, result in zip(cases, results, strict=True):
        error = result.error if result.finish_reason != "dead_end" else result.error or "dead end"
        yield Output(case, result.text, result.finish_reason == "stop", error)


def _ask(ways: Ways, random: Random, url: str) -> Output | Left:
    case = draw(random)
    streams = random.random() < 0.5
    leaves = streams and random.random() < 0.2
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": random.choice(ways.prompts)}],
        "stream": streams,
        "response_format": case.response_format,
        "generation_config": json.dumps({"do_sample": True, "temperature": 2 * HOT, "max_new_tokens": ENOUGH}),
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    text, reason = "", None
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        for choice in _choices(answer, streams):
            text += choice["delta" if streams else "message"].get("content") or ""
            reason = choice.get("finish_reason") or reason
            if leaves and text:
                return Left()
    return Output(case, text, reason == "stop")


def _choices(answer: Iterable[bytes], streams: bool) -> Iterator[dict[str, Any]]:
    """The choice of each chunk of a stream; or the only one."""
    if not streams:
        yield json.loads(b"".join(answer))["choices"][0]
        return
    for line in answer:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))["choices"][0]


@contextmanager
def ways() -> Iterator[Ways]:
    """Everything that runs as long as the test."""
    with ExitStack() as stack:
        yield Ways(stack)
