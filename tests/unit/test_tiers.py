"""The background compile with the native engine: which constraints get one, and when it replaces the first engine."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

import hf_guided as hg
from hf_guided import demo
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compiler import Compiler
from hf_guided.constraints.values import Constraint
from hf_guided.errors import BackendError
from hf_guided.options import CompilerOptions
from hf_guided.session.requests import Request, Requests
from tests import toy, vocabularies

TIMEOUT_S = 120.0
LOSS = hg.Loss("/properties/a", "json_schema", "the schema refers to itself")
RECURSIVE = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}


class Fake:
    def __init__(self, name: str, lost: Sequence[hg.Loss] = (), then: Callable[[], None] | None = None):
        self.name, self.lost, self.then, self.count = name, lost, then, 0

    def losses(self, constraint: Constraint) -> Sequence[hg.Loss]:
        return self.lost

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        self.count += 1
        if self.then is not None:
            self.then()
        return CompiledConstraint(
            constraint=constraint,
            backend=self.name,
            vocabulary=VOCABULARY,
            new_engine=lambda: toy.SetEngine(VOCABULARY, frozenset([b"a"])),
            nbytes=100,
        )


VOCABULARY = toy.all_bytes()


def new_compiler(*backends: Fake, **options: Any) -> Compiler:
    return Compiler(VOCABULARY, CompilerOptions(**options), {backend.name: backend for backend in backends})


def raises(error: Exception) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


def test_automaton_replaces_the_first_engine_when_it_is_ready() -> None:
    gate = threading.Event()
    first, native = Fake("llguidance"), Fake("automaton", then=lambda: check_true(gate.wait(TIMEOUT_S)))
    compiler = new_compiler(first, native)
    choice = hg.Choice(["a"])
    before = compiler.compile(choice)
    assert before.backend == "llguidance"
    assert not compiler._upgrades, "nothing says that there will be another request"
    assert compiler.compile(choice) is before, "the automaton is not ready"
    assert compiler._upgrades
    gate.set()
    compiler.settle(choice)
    after = compiler.compile(choice)
    assert after.backend == "automaton"
    assert compiler.compile(choice, budget=True) is after
    assert before.matcher().compiled is before, "a matcher keeps the engine with which it was created"
    assert before.latest is after and after.latest is after
    assert compiler.audit(choice).backend == "automaton"
    assert (first.count, native.count) == (1, 1)


def check_true(value: object) -> None:
    assert value


@pytest.mark.parametrize(
    ("native", "options"),
    [
        (Fake("automaton", lost=[LOSS]), {}),
        (Fake("automaton", then=raises(hg.CompileLimitExceeded("too large"))), {}),
        (Fake("automaton", then=raises(hg.UnwritableConstraint("no such byte"))), {}),
        (Fake("automaton"), {"tiering": False}),
        (Fake("other"), {}),
    ],
    ids=["not regular", "too large", "unwritable", "switched off", "not there"],
)
def test_first_engine_is_kept_if_the_automaton_is_unavailable(native: Fake, options: dict[str, Any]) -> None:
    compiler = new_compiler(Fake("llguidance"), native, **options)
    compiler.settle(hg.Choice(["a"]))
    assert compiler.compile(hg.Choice(["a"])).backend == "llguidance"


def test_explicit_backend_is_never_replaced() -> None:
    native = Fake("automaton")
    compiler = new_compiler(Fake("llguidance"), native)
    compiler.settle(hg.Choice(["a"]), "llguidance")
    assert compiler.compile(hg.Choice(["a"]), "llguidance").backend == "llguidance"
    assert native.count == 0


def test_internal_error_in_the_automaton_warns_and_keeps_the_first_engine() -> None:
    compiler = new_compiler(Fake("llguidance"), Fake("automaton", then=raises(ZeroDivisionError("bug"))))
    with pytest.warns(RuntimeWarning, match="the native engine failed on .*please report this: ZeroDivisionError: bug"):
        with suppress(BackendError):  # it may have failed before settle could wait for it
            compiler.settle(hg.Choice(["a"]))
        compiler._second_pool.submit(lambda: None)  # the thread is alive, and has issued its warning by now
        assert compiler.compile(hg.Choice(["a"])).backend == "llguidance"
        done = threading.Event()
        compiler._second_pool.submit(done.set)
        assert done.wait(TIMEOUT_S)


def test_settle_waits_for_the_automaton_once_the_first_engine_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = new_compiler(Fake("llguidance"), Fake("automaton"))
    choice, backends = hg.Choice(["a"]), list[str]()

    def settle_and_compile() -> None:
        compiler.settle(choice)
        backends.append(compiler.compile(choice).backend)

    thread = threading.Thread(target=settle_and_compile)
    put = compiler._cache.put

    def put_and_start_thread(key: Any, compilation: Any) -> None:
        put(key, compilation)
        if compilation.compiled.backend == "llguidance":
            thread.start()
            thread.join(0.2)  # let it run as far as it can at this moment

    monkeypatch.setattr(compiler._cache, "put", put_and_start_thread)
    compiler.compile(choice)
    thread.join(TIMEOUT_S)
    assert backends == ["automaton"]


class Panic(BaseException):
    """Stands for the exception that bindings of Rust libraries raise."""


def test_panic_in_the_automaton_releases_waiting_threads() -> None:
    gate = threading.Event()

    def panic() -> None:
        check_true(gate.wait(TIMEOUT_S))
        raise Panic

    compiler = new_compiler(Fake("llguidance"), Fake("automaton", then=panic))
    choice, raised = hg.Choice(["a"]), list[type[BaseException]]()
    compiler.compile(choice).use_again()
    upgrade = next(iter(compiler._upgrades.values()))
    upgrade.add_done_callback(lambda done: raised.append(type(done.exception())))
    with pytest.warns(RuntimeWarning, match="please report this: Panic"):
        gate.set()
        done = threading.Event()
        compiler._second_pool.submit(done.set)
        assert done.wait(TIMEOUT_S), "the thread has ended"
    assert raised == [Panic]


def test_compile_thread_survives_a_warning_raised_as_an_error() -> None:
    native = Fake("automaton", then=raises(ZeroDivisionError("bug")))
    compiler = new_compiler(Fake("llguidance"), native)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in "ab":
            compiler.compile(hg.Choice([text])).use_again()
            done = threading.Event()
            compiler._second_pool.submit(done.set)
            assert done.wait(TIMEOUT_S), "the thread has ended, and warm_up would wait forever"
    assert native.count == 2


def test_only_one_background_compile_runs_per_constraint() -> None:
    gate = threading.Event()
    first, native = Fake("llguidance"), Fake("automaton", then=lambda: check_true(gate.wait(TIMEOUT_S)))
    compiler = new_compiler(first, native, cache_bytes=0)
    for _ in range(3):
        compiler.compile(hg.Choice(["a"]))
    assert first.count == 3, "the cache keeps nothing"
    gate.set()
    compiler.settle(hg.Choice(["a"]))
    assert 1 <= native.count <= 2


def test_one_call_of_generate_builds_no_second_engine() -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    submitted: list[object] = []
    guide._compiler._second_pool.submit = submitted.append  # type: ignore[method-assign]
    processor = guide.logits_processor(hg.Regex("[a-f]{3}"))
    for calls, prompt in enumerate("ab"):
        inputs = tokenizer([prompt, prompt], return_tensors="pt")
        model.generate(**inputs, max_new_tokens=8, logits_processor=[processor])
        assert len(submitted) == calls
    hg.generate(model, tokenizer, ["a", "b"], hg.Regex("[g-h]{3}"), guide=guide)
    assert len(submitted) == 1


def test_warm_up_waits_for_the_final_engines() -> None:
    tokenizer = vocabularies.demo()
    guide = hg.Guide(tokenizer, len(tokenizer))
    regular, recursive = hg.Regex("[a-f]{3}"), hg.JsonSchema(RECURSIVE)
    guide.warm_up([regular, recursive, ["yes", "no"]])
    assert guide.compile(regular).backend == "automaton"
    assert guide.compile(["yes", "no"]).backend == "automaton"
    assert guide.compile(recursive).backend == "network"
    guide.warm_up(["left", "right"])  # a list of strings is one choice
    assert guide.compile(hg.Choice(["left", "right"])).backend == "automaton"
    with pytest.raises(hg.InvalidConstraint):
        guide.warm_up([regular, hg.Regex("(")])


def test_the_next_call_of_a_session_takes_the_engine_that_is_ready_by_then() -> None:
    gate = threading.Event()
    first, native = Fake("llguidance"), Fake("automaton", then=lambda: check_true(gate.wait(TIMEOUT_S)))
    compiler = new_compiler(first, native)
    choice = hg.Choice(["a"])
    requests = Requests([Request(compiler.submit(choice))], per_prompt=False, stop_token_ids=[2])
    requests.prepare(None)

    def backends() -> list[str]:
        return [
            row.matcher.compiled.backend
            for row in requests.new_rows(2, None, None, warnings.warn)[0]
            if row.matcher is not None
        ]

    running, _ = requests.new_rows(1, None, None, warnings.warn)
    assert not compiler._upgrades
    assert backends() == ["llguidance"] * 2
    gate.set()
    compiler.settle(choice)
    assert backends() == ["automaton"] * 2
    assert running[0].matcher is not None and running[0].matcher.compiled.backend == "llguidance"
