"""The compiler, with a backend that counts, waits for events, and fails on demand. No test sleeps."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hf_guided.automaton.limits import no_memory
from hf_guided.backends import compile as compiler_module
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.tool_calls import ToolCalls
from hf_guided.constraints.values import Choice, Constraint, JsonSchema, StructuralTag
from hf_guided.errors import (
    BackendError,
    BackendUnavailable,
    CompileLimitExceeded,
    InvalidConstraint,
    Loss,
    UnsupportedConstraint,
)
from hf_guided.options import CompilerOptions
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import toy

BYTES = toy.all_bytes()
TAG = StructuralTag({"type": "structural_tag", "format": {"type": "any_text"}})
LOSS = Loss("/uniqueItems", "uniqueItems", "not known")
TIMEOUT_S = 120.0  # seconds until a test that hangs fails instead


class Fake:
    """Counts its compiles, and calls ``then`` in each."""

    canonical_spelling = True

    def __init__(self, name: str = "native", then: Callable[[Constraint], None] | None = None, lost: Any = ()):
        self.name, self.then, self.lost = name, then, lost
        self.compiled: list[Constraint] = []

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        return tuple(self.lost)

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        self.compiled.append(constraint)
        if self.then is not None:
            self.then(constraint)
        return CompiledConstraint(
            constraint=constraint,
            backend=self.name,
            vocabulary=BYTES,
            new_engine=lambda: toy.SetEngine(BYTES, frozenset([b"a"])),
            nbytes=100,
            losses=tuple(self.lost),
        )


class Gate:
    """Blocks compiles until it is opened, and signals when a compile has reached it."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, constraint: Constraint) -> None:
        self.reached.set()
        assert self.open.wait(TIMEOUT_S)


def raises(error: Callable[[], Exception]) -> Callable[[Constraint], None]:
    def then(constraint: Constraint) -> None:
        raise error()

    return then


def new_compiler(*backends: Fake, **options: Any) -> Compiler:
    return Compiler(
        BYTES,
        CompilerOptions(**{"workers": 2, **options}),
        {backend.name: backend for backend in backends},
    )


def test_fifty_threads_compile_one_schema_once() -> None:
    gate = Gate()
    fake = Fake(then=gate)
    compiler = new_compiler(fake, workers=4)
    start = threading.Barrier(50)
    futures: list[Future[CompiledConstraint]] = []

    def submit(number: int) -> None:
        start.wait(TIMEOUT_S)
        # The descriptions differ, but the schemas accept the same texts.
        futures.append(compiler.submit(JsonSchema({"type": "object", "description": str(number)})))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(future.done() for future in futures)
    gate.open.set()
    results = [future.result() for future in futures]
    assert len(fake.compiled) == 1
    assert len(results) == 50
    assert len(set(map(id, results))) == 1
    assert len(set(map(id, futures))) == 50
    stats = compiler.stats()
    assert (stats.misses, stats.joined, stats.hits) == (1, 49, 0)
    assert compiler.compile(JsonSchema({"type": "object"})) is results[0]
    assert compiler.stats().hits == 1


def _thread_of_compile(compiler: Compiler, seen: list[str]) -> str:
    compiler.compile(Choice([f"a{len(seen)}"]))
    return seen[-1]


def test_a_caller_that_waits_compiles_itself_where_its_stack_is_shallow() -> None:
    seen: list[str] = []
    compiler = new_compiler(Fake(then=lambda constraint: seen.append(threading.current_thread().name)))
    found: list[str] = []

    def call(depth: int) -> None:
        if depth:
            call(depth - 1)
        else:
            found.append(_thread_of_compile(compiler, seen))

    for depth in (0, 60):
        thread = threading.Thread(target=call, args=(depth,), name="caller")
        thread.start()
        thread.join()
    assert found == ["caller", "hf_guided-compile-1"]


def test_an_interrupted_caller_leaves_the_compile_to_those_who_joined_it() -> None:
    joined: list[Future[CompiledConstraint]] = []
    constraint = Choice(["a"])

    def then(constraint: Constraint) -> None:
        if not joined:
            joined.append(compiler.submit(constraint))
            raise KeyboardInterrupt

    compiler = new_compiler(Fake(then=then))
    outcome: list[BaseException] = []

    def call() -> None:
        try:
            compiler.compile(constraint)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert [type(error) for error in outcome] == [KeyboardInterrupt]
    assert joined[0].result(TIMEOUT_S).constraint == constraint
    assert compiler.stats().failures == 0


def test_an_interrupted_compile_that_nobody_joined_is_forgotten() -> None:
    interrupted: list[None] = []

    def then(constraint: Constraint) -> None:
        if not interrupted:
            interrupted.append(None)
            raise KeyboardInterrupt

    compiler = new_compiler(Fake(then=then), workers=1)

    def call() -> None:
        with suppress(KeyboardInterrupt):
            compiler.compile(Choice(["a"]))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    compiler.submit(Choice(["b"])).result(TIMEOUT_S)  # the pool has looked at the first one before it
    assert not compiler.knows(Choice(["a"]))
    assert compiler.compile(Choice(["a"])).constraint == Choice(["a"])


@pytest.mark.parametrize("where", ["_submit", "_outcome", "_finish"])
@pytest.mark.parametrize("is_after", [False, True])
def test_an_interrupt_anywhere_leaves_nothing_behind(
    where: str, is_after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after each step on the caller's thread."""
    compiler = new_compiler(Fake(), workers=1)
    step, interrupted = getattr(compiler, where), list[None]()

    def interrupting(*args: Any, **options: Any) -> Any:
        made = step(*args, **options) if is_after or interrupted else None
        if not interrupted:
            interrupted.append(None)
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(compiler, where, interrupting)
    monkeypatch.setattr(compiler_module, "_is_shallow", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        compiler.compile(Choice(["a"]))
    compiler.submit(Choice(["b"])).result(TIMEOUT_S)
    assert not compiler._in_flight
    assert compiler.compile(Choice(["a"])).constraint == Choice(["a"])


def threading_result(call: Callable[[], Any]) -> Any:
    """What a function returns on a thread whose stack is shallow."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), name="caller")
    thread.start()
    thread.join(TIMEOUT_S)
    (result,) = results
    return result


@pytest.mark.parametrize("error", [InvalidConstraint, CompileLimitExceeded])
def test_an_error_holds_no_frame_of_the_compile(error: type[Exception]) -> None:
    def failed() -> Exception:
        compiler = new_compiler(Fake(then=raises(lambda: error("bad"))))
        try:
            compiler.compile(Choice(["a"]))
        except error as raised:
            return raised
        raise AssertionError

    raised = threading_result(failed)
    assert raised.__cause__ is None and raised.__context__ is None
    frame = raised.__traceback__
    while frame is not None:
        others = [value for value in frame.tb_frame.f_locals.values() if isinstance(value, BaseException)]
        assert all(value is raised for value in others), frame.tb_frame
        assert "_outcome" not in frame.tb_frame.f_code.co_name
        frame = frame.tb_next


def test_different_constraints_compile_in_parallel() -> None:
    meeting = threading.Barrier(2)
    compiler = new_compiler(Fake(then=lambda constraint: discard(meeting.wait(TIMEOUT_S))))
    futures = [compiler.submit(Choice([text])) for text in "ab"]
    assert [future.result().constraint for future in futures] == [Choice(["a"]), Choice(["b"])]


def discard(value: object) -> None:
    """Discard the value that a lambda would return."""


def test_submit_returns_before_the_compile_has_finished() -> None:
    gate = Gate()
    compiler = new_compiler(Fake(then=gate))
    future = compiler.submit(Choice(["a"]))
    assert gate.reached.wait(TIMEOUT_S)
    assert not future.done()
    with pytest.raises(FutureTimeoutError):
        future.result(timeout=0)
    gate.open.set()
    assert future.result().backend == "native"


@pytest.mark.parametrize(
    "error",
    [
        InvalidConstraint("rule `x` is not defined"),
        UnsupportedConstraint("cannot", [LOSS]),
        CompileLimitExceeded("too large"),
    ],
)
def test_failures_are_cached(error: Exception) -> None:
    fake = Fake(then=raises(lambda: error))
    compiler = new_compiler(fake)
    raised = []
    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            compiler.compile(Choice(["a"]), "native")
        raised.append(caught.value)
    assert len(fake.compiled) == 1
    assert len({str(caught_error) for caught_error in raised}) == 1
    assert len(set(map(id, raised))) == 3  # a shared error would collect the tracebacks of all callers
    assert [getattr(caught_error, "losses", None) for caught_error in raised] == [getattr(error, "losses", None)] * 3
    stats = compiler.stats()
    assert (stats.failures, stats.replays, stats.misses) == (1, 2, 1)


@pytest.mark.parametrize("kind", [BackendUnavailable, MemoryError, KeyError])
def test_temporary_failures_are_not_cached(kind: type[Exception]) -> None:
    error = kind("made here, because its traceback keeps what it names")
    errors = [error]

    def once(constraint: Constraint) -> None:
        if errors:
            raise errors.pop()

    fake = Fake(then=once)
    compiler = new_compiler(fake)
    with pytest.raises(BackendError) as caught:
        compiler.compile(Choice(["a"]))
    assert error in (caught.value, caught.value.__cause__)
    assert compiler.compile(Choice(["a"])).backend == "native"
    assert len(fake.compiled) == 2


def test_a_compile_that_found_no_memory_is_tried_again() -> None:
    fake = Fake(then=raises(no_memory))
    compiler = new_compiler(fake)
    for _ in range(2):
        with pytest.raises(BackendError, match="memory"):
            compiler.compile(Choice(["a"]), "native")
    assert len(fake.compiled) == 2


def test_audit_validates_the_schema_before_any_backend_compiles() -> None:
    """compile() skips this check, because validating against a metaschema takes longer than compiling."""
    fake = Fake()
    with pytest.raises(InvalidConstraint, match="/type"):
        new_compiler(fake).audit(JsonSchema({"type": "strin"}))
    assert fake.compiled == []


def test_a_network_weighs_what_it_holds_and_not_what_it_may_hold() -> None:
    """Twenty of them would fill the cache otherwise, though most stay small."""
    compiler = Compiler(BYTES, CompilerOptions(cache_bytes=32 * 2**20))
    schemas = [JsonSchema({"properties": {f"name{i}": {"type": "string"}}}) for i in range(40)]
    compiled = [compiler.compile(schema, "native") for schema in schemas]
    held = [one.held_bytes for one in compiled]
    assert max(held) < 2**20 < min(one.nbytes for one in compiled)
    assert compiler.stats().entries == 40
    matcher = compiled[0].matcher()
    for byte in b'{"name0": "':  # each byte is the token of that number
        matcher.fill_next_token_bitmask(allocate_bitmask(1, BYTES.padded_size))
        assert matcher.accept_token(byte)
    assert compiled[0].held_bytes > held[0]
    assert compiler.stats().nbytes > sum(held)


def test_a_warning_says_how_much_a_constraint_may_come_to_hold() -> None:
    schema = JsonSchema({"properties": {"a": {"type": "string"}}})
    most = Compiler(BYTES).compile(schema, "native").nbytes
    compiler = Compiler(BYTES, CompilerOptions(cache_bytes=2**20))
    with pytest.warns(UserWarning, match=f"takes {most} bytes when compiled, .* to at least {most}"):
        compiler.compile(schema, "native")


def test_compile_limit_is_reported_if_no_other_backend_can() -> None:
    compiler = new_compiler(
        Fake("native", raises(lambda: CompileLimitExceeded("too large"))), Fake("xgrammar", lost=[LOSS])
    )
    for constraint in (TAG, JsonSchema({})):
        with pytest.raises(CompileLimitExceeded, match="too large"):
            compiler.compile(constraint)
        report = compiler.audit(constraint)
        assert (report.ok, report.backend) == (False, None)


def test_too_large_an_automaton_is_no_loss() -> None:
    """losses() builds no automaton, so only compile() reports that it is too large."""
    schema = JsonSchema({"type": "string", "pattern": "^(a|b)*a(a|b){18}$"})
    compiler = Compiler(BYTES)
    assert not NetworkBackend(BYTES).losses(schema)
    for backend in ("auto", "native"):
        with pytest.raises(CompileLimitExceeded, match="more than 18000000 steps of work"):
            compiler.compile(schema, backend)
        assert not compiler.audit(schema, backend).ok


def test_on_unsupported_makes_losses_errors_or_warnings() -> None:
    compiler = new_compiler(Fake("native", lost=[LOSS]))
    with pytest.raises(UnsupportedConstraint, match="uniqueItems"):
        compiler.compile(JsonSchema({}))
    assert compiler.audit(JsonSchema({})).lost[0].pointer == "/uniqueItems"
    assert compiler.compile(JsonSchema({}, on_unsupported="validate")).losses == (LOSS,)
    warn = JsonSchema({}, on_unsupported="warn")
    with pytest.warns(UserWarning, match=r"native does not enforce.*\s+/uniqueItems"):
        assert compiler.compile(warn).backend == "native"
    compiler.compile(warn)  # a second warning would be an error here
    assert not compiler.audit(warn).ok


def test_misspelled_keywords_give_a_warning() -> None:
    schema = {"type": "object", "proprties": {}, "properties": {"proprties": {"maxLenght": 3, "x-order": 1}}}
    with pytest.warns(UserWarning) as caught:
        new_compiler(Fake("native")).compile(JsonSchema(schema))
    message = str(caught[0].message)
    assert "/proprties: 'proprties' is no keyword of JSON Schema; did you mean 'properties'?" in message
    assert (
        "/properties/proprties/maxLenght: 'maxLenght' is no keyword of JSON Schema; did you mean 'maxLength'?"
        in message
    )
    assert len(message.splitlines()) == 3
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "requred": ["a"]}}}
    with pytest.warns(UserWarning, match="did you mean 'required'"):
        new_compiler(Fake("native")).compile(ToolCalls([tool], "qwen_3"))
    with pytest.warns(UserWarning, match="did you mean"):
        details = {row.pointer: row.detail for row in new_compiler(Fake("native")).audit(JsonSchema(schema)).rows}
    assert details["/proprties"].endswith("did you mean 'properties'?")


@pytest.mark.parametrize(("written", "meant"), [("datetime", "date-time"), ("e-mail", "email"), ("URI", "uri")])
def test_misspelled_formats_give_a_warning(written: str, meant: str) -> None:
    schema = {"properties": {"format": {"type": "string", "format": written}, "b": {"format": "date"}}}
    with pytest.warns(UserWarning) as caught:
        new_compiler(Fake("native")).compile(JsonSchema(schema))
    sentence = f"{written!r} is no format of JSON Schema; did you mean {meant!r}?"
    assert str(caught[0].message).splitlines()[1:] == [f"  /properties/format/format: {sentence}"]
    with pytest.warns(UserWarning, match="did you mean"):
        details = {row.pointer: row.detail for row in new_compiler(Fake("native")).audit(JsonSchema(schema)).rows}
    assert details["/properties/format/format"].endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize(
    "name", ["int32", "int64", "float", "double", "byte", "binary", "password", "phone", "url", ""]
)
def test_formats_of_other_specifications_give_no_warning(name: str) -> None:
    new_compiler(Fake("native")).compile(JsonSchema({"format": name}))  # a warning would be an error here


@pytest.mark.parametrize(
    "keyword", ["example", "nullable", "discriminator", "xml", "x-required", "_required", "name", "order", "ui"]
)
def test_keywords_of_other_vocabularies_give_no_warning(keyword: str) -> None:
    new_compiler(Fake("native")).compile(JsonSchema({keyword: "a"}))  # a warning would be an error here


def test_backend_compiles_tool_calls_as_a_structural_tag() -> None:
    fake = Fake("native")
    compiler = new_compiler(fake)
    calls = ToolCalls([{"type": "function", "function": {"name": "f"}}], "qwen_3")
    compiler.compile(calls)
    assert fake.compiled == [calls.structural_tag()]
    assert compiler.audit(calls).rows[0].keyword == "tool_calls"
    with pytest.raises(InvalidConstraint, match="ToolCalls.format: expected one of"):
        compiler.compile(ToolCalls(calls.tools, format="nope"))


def test_result_raises_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "WAIT_S", 0.006)
    gate = Gate()
    compiler = new_compiler(Fake(then=gate))
    future = compiler.submit(Choice(["a"]))
    with pytest.raises(CompileLimitExceeded, match="not compiled within 0.006 s"):
        future.result()
    gate.open.set()
    assert future.result(timeout=TIMEOUT_S).backend == "native"


def test_close_waits_for_running_compiles_and_ends_the_threads() -> None:
    gate = Gate()
    compiler = new_compiler(Fake(then=gate))
    before = set(threading.enumerate())
    future = compiler.submit(JsonSchema({}))
    assert gate.reached.wait(TIMEOUT_S)
    started = set(threading.enumerate()) - before
    assert started and not compiler.close(0)
    gate.open.set()
    for thread in started:
        thread.join(TIMEOUT_S)
    assert future.done() and not any(thread.is_alive() for thread in started)
    # More work starts a new thread.
    assert compiler.compile(JsonSchema({"type": "integer"})) is not None
    assert compiler.close(TIMEOUT_S)
    assert set(threading.enumerate()) <= before


def test_threads_start_on_demand_and_end_with_the_compiler() -> None:
    before = set(threading.enumerate())
    compiler = new_compiler(Fake(), workers=2)
    assert set(threading.enumerate()) == before
    for text in "abc":
        compiler.submit(Choice([text])).result()
    started = set(threading.enumerate()) - before
    assert 1 <= len(started) <= 2
    compiler_ref = weakref.ref(compiler)
    del compiler
    for thread in started:
        # The worker drops its last job shortly after the caller has the result.
        gc.collect()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert compiler_ref() is None


def test_pending_compiles_finish_after_the_compiler_is_deleted() -> None:
    gate = Gate()
    compiler = new_compiler(Fake(then=gate), workers=1)
    futures = [compiler.submit(Choice([text])) for text in "ab"]
    assert gate.reached.wait(TIMEOUT_S)
    del compiler
    gc.collect()
    gate.open.set()
    assert [future.result().constraint for future in futures] == [Choice(["a"]), Choice(["b"])]


SCRIPT = """
import os, sys, threading
from tests.unit.test_compiler import Fake, Gate, new_compiler
from hf_guided.constraints.values import Choice
gate = Gate()
fake = Fake(then=gate)
compiler = new_compiler(fake, workers=1)
future = compiler.submit(Choice(["a"]))
assert gate.reached.wait(600)
"""


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
    )


def test_interpreter_exits_while_a_compile_hangs() -> None:
    done = run_script(
        "gate.open.wait = lambda timeout: threading.Event().wait()\ncompiler.submit(Choice(['b']))\nprint('end')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_end_of_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    done = run_script(
        """
        import atexit, time, warnings
        warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
        child = os.fork()
        if child == 0:
            began = time.monotonic()
            atexit._run_exitfuncs()
            print(time.monotonic() - began < 0.9, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        gate.open.set()
        print(future.result().backend)
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\nnative\n"), done.stderr


def test_a_thread_that_cannot_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = new_compiler(Fake(), workers=1)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                compiler.submit(Choice(["a"]))
    assert compiler.submit(Choice(["a"])).result(20).backend == "native"
    assert compiler.close(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_child_compiles_independently() -> None:
    done = run_script(
        """
        import warnings
        warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
        compiler._lock.acquire()  # the worst moment to fork
        child = os.fork()
        if child == 0:
            fake.then = None
            print(compiler.compile(Choice(["a"])).backend, compiler.stats().misses, flush=True)
            os._exit(0)
        compiler._lock.release()
        assert os.waitpid(child, 0)[1] == 0
        gate.open.set()
        print(future.result().backend)
        """
    )
    assert (done.returncode, done.stdout) == (0, "native 1\nnative\n"), done.stderr
