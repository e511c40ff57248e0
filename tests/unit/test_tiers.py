"""The second compile: who gets one, what it changes, and what it must not change."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compiler import Compiler
from hf_guided.constraints.values import Constraint
from hf_guided.options import CompilerOptions
from tests import toy, vocabularies

PATIENCE = 120.0
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


def make(*backends: Fake, **options: Any) -> Compiler:
    return Compiler(VOCABULARY, CompilerOptions(timeout_s=PATIENCE, **options), {one.name: one for one in backends})


def fail(error: Exception) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


def test_the_first_request_is_answered_at_once_and_later_ones_by_the_automaton() -> None:
    gate = threading.Event()
    first, native = Fake("llguidance"), Fake("automaton", then=lambda: void(gate.wait(PATIENCE)))
    compiler = make(first, native)
    choice = hg.Choice(["a"])
    begun = compiler.compile(choice)
    assert begun.backend == "llguidance"
    assert compiler.compile(choice) is begun, "the other one is not ready"
    gate.set()
    compiler.settle(choice)
    later = compiler.compile(choice)
    assert later.backend == "automaton"
    assert compiler.compile(choice, budget=True) is later
    assert begun.matcher().compiled is begun, "who began with it goes on with it"
    assert compiler.audit(choice).backend == "automaton"
    assert (first.count, native.count) == (1, 1)


def void(value: object) -> None:
    assert value


@pytest.mark.parametrize(
    ("native", "options"),
    [
        (Fake("automaton", lost=[LOSS]), {}),
        (Fake("automaton", then=fail(hg.CompileLimitExceeded("too large"))), {}),
        (Fake("automaton", then=fail(hg.UnwritableConstraint("no such byte"))), {}),
        (Fake("automaton"), {"tiering": False}),
        (Fake("other"), {}),
    ],
    ids=["not regular", "too large", "unwritable", "switched off", "not there"],
)
def test_the_first_engine_stays_where_the_automaton_is_not_to_be_had(native: Fake, options: dict[str, Any]) -> None:
    compiler = make(Fake("llguidance"), native, **options)
    compiler.settle(hg.Choice(["a"]))
    assert compiler.compile(hg.Choice(["a"])).backend == "llguidance"


def test_a_backend_asked_for_by_name_stays() -> None:
    native = Fake("automaton")
    compiler = make(Fake("llguidance"), native)
    compiler.settle(hg.Choice(["a"]), "llguidance")
    assert compiler.compile(hg.Choice(["a"]), "llguidance").backend == "llguidance"
    assert native.count == 0


def test_a_bug_of_ours_is_told_and_harms_nobody() -> None:
    compiler = make(Fake("llguidance"), Fake("automaton", then=fail(ZeroDivisionError("bug"))))
    with pytest.warns(RuntimeWarning, match="the native engine failed on .*please report this: ZeroDivisionError: bug"):
        try:
            compiler.settle(hg.Choice(["a"]))
        except ZeroDivisionError:
            pass
        compiler._second_pool.submit(lambda: None)  # the thread lives, and has told by now
        assert compiler.compile(hg.Choice(["a"])).backend == "llguidance"
        done = threading.Event()
        compiler._second_pool.submit(done.set)
        assert done.wait(PATIENCE)


def test_who_finds_the_first_engine_finds_that_there_will_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = make(Fake("llguidance"), Fake("automaton"))
    choice, served = hg.Choice(["a"]), list[str]()

    def ask() -> None:
        compiler.settle(choice)
        served.append(compiler.compile(choice).backend)

    asking = threading.Thread(target=ask)
    put = compiler._cache.put

    def put_and_ask(key: Any, compilation: Any) -> None:
        put(key, compilation)
        if compilation.compiled.backend == "llguidance":
            asking.start()
            asking.join(0.2)  # as far as it comes at this moment

    monkeypatch.setattr(compiler._cache, "put", put_and_ask)
    compiler.compile(choice)
    asking.join(PATIENCE)
    assert served == ["automaton"]


class Panic(BaseException):
    """What bindings of Rust libraries raise."""


def test_a_panic_leaves_nobody_waiting() -> None:
    gate = threading.Event()

    def panic() -> None:
        void(gate.wait(PATIENCE))
        raise Panic

    compiler = make(Fake("llguidance"), Fake("automaton", then=panic))
    choice, told = hg.Choice(["a"]), list[type[BaseException]]()
    compiler.compile(choice)
    upgrade = next(iter(compiler._upgrades.values()))
    upgrade.add_done_callback(lambda done: told.append(type(done.exception())))
    with pytest.warns(RuntimeWarning, match="please report this: Panic"):
        gate.set()
        done = threading.Event()
        compiler._second_pool.submit(done.set)
        assert done.wait(PATIENCE), "the thread lives"
    assert told == [Panic]


def test_a_bug_of_ours_ends_no_thread_where_warnings_are_errors() -> None:
    native = Fake("automaton", then=fail(ZeroDivisionError("bug")))
    compiler = make(Fake("llguidance"), native)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in "ab":
            compiler.compile(hg.Choice([text]))
            done = threading.Event()
            compiler._second_pool.submit(done.set)
            assert done.wait(PATIENCE), "nobody would end a warm_up any more"
    assert native.count == 2


def test_one_second_compile_at_a_time() -> None:
    gate = threading.Event()
    first, native = Fake("llguidance"), Fake("automaton", then=lambda: void(gate.wait(PATIENCE)))
    compiler = make(first, native, cache_bytes=0)
    for _ in range(3):
        compiler.compile(hg.Choice(["a"]))
    assert first.count == 3, "nothing is kept"
    gate.set()
    compiler.settle(hg.Choice(["a"]))
    assert 1 <= native.count <= 2


def test_warm_up_leaves_the_engines_that_will_serve() -> None:
    tokenizer = vocabularies.demo()
    guide = hg.Guide(tokenizer, len(tokenizer))
    regular, recursive = hg.Regex("[a-f]{3}"), hg.JsonSchema(RECURSIVE)
    guide.warm_up([regular, recursive, ["yes", "no"]])
    assert guide.compile(regular).backend == "automaton"
    assert guide.compile(["yes", "no"]).backend == "automaton"
    assert guide.compile(recursive).backend == "llguidance"
    guide.warm_up(["left", "right"])  # a list of strings is one choice, as everywhere
    assert guide.compile(hg.Choice(["left", "right"])).backend == "automaton"
    with pytest.raises(hg.InvalidConstraint):
        guide.warm_up([regular, hg.Regex("(")])
