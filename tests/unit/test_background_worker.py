"""The worker: what it does, what becomes of errors, and that nobody waits for a thread that is no more."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from hf_guided.errors import InternalError
from hf_guided.session.background_worker import Pending, submit

PATIENCE = 120.0  # seconds until a test that hangs fails instead


class Blocker:
    """A job that holds the worker until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.pending = Pending(self)

    def __call__(self) -> str:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return threading.current_thread().name


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    """Begun, and let go at the end at the latest."""
    blocker = Blocker()
    submit(blocker.pending)
    assert blocker.begun.wait(PATIENCE)
    yield blocker
    blocker.let_go.set()
    blocker.pending.wait()


def test_jobs_run_on_one_thread_that_is_not_ours(blocker: Blocker) -> None:
    assert not blocker.pending.done()
    blocker.let_go.set()
    assert blocker.pending.result() == "hf-guided-prefetch" != threading.current_thread().name
    assert blocker.pending.done()


def test_jobs_run_in_order(blocker: Blocker) -> None:
    seen: list[int] = []
    all_run = threading.Event()
    for i in range(5):
        submit(Pending(lambda i=i: seen.append(i)))  # type: ignore[misc]
    submit(Pending(all_run.set))
    blocker.let_go.set()
    assert all_run.wait(PATIENCE)
    assert seen == list(range(5))


def test_a_job_not_begun_is_done_by_who_wants_it(blocker: Blocker) -> None:
    waited: list[int] = []
    pending = Pending(lambda: threading.current_thread().name, waited.append)
    submit(pending)
    assert pending.result() == threading.current_thread().name
    assert not blocker.pending.done(), "nobody waited for the worker"


def test_a_job_is_done_once(blocker: Blocker) -> None:
    times: list[int] = []
    pending = Pending(lambda: times.append(1))
    submit(pending)
    pending.result()
    pending.run()
    behind = threading.Event()
    submit(Pending(behind.set))
    blocker.let_go.set()
    assert behind.wait(PATIENCE), "the worker has gone past it"
    assert times == [1]


def test_a_cancelled_job_is_not_begun(blocker: Blocker) -> None:
    times: list[int] = []
    pending = Pending(lambda: times.append(1))
    submit(pending)
    pending.cancel()
    pending.wait()
    behind = threading.Event()
    submit(Pending(behind.set))
    blocker.let_go.set()
    assert behind.wait(PATIENCE)
    assert pending.done() and times == []


def test_errors_are_raised_where_the_result_is_asked_for() -> None:
    def fail() -> None:
        raise ZeroDivisionError("here")

    pending, tried = Pending(fail), threading.Event()
    submit(pending)
    submit(Pending(tried.set))
    assert tried.wait(PATIENCE)
    pending.wait()  # waiting is not asking
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="here"):
            pending.result()


def test_a_worker_that_is_told_to_end_hangs_nobody() -> None:
    def leave() -> None:
        raise SystemExit(3)

    tried, ended = threading.Event(), []

    def job() -> None:
        ended.append(threading.current_thread())
        tried.set()
        leave()

    pending = Pending(job)
    submit(pending)
    assert tried.wait(PATIENCE)
    with pytest.raises(InternalError, match="was stopped") as caught:
        pending.result()
    assert isinstance(caught.value.__cause__, SystemExit)
    ended[0].join(PATIENCE)
    assert not ended[0].is_alive()
    after = Blocker()
    submit(after.pending)
    assert after.begun.wait(PATIENCE), "another worker has begun it"
    after.let_go.set()
    assert after.pending.result() == "hf-guided-prefetch"


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals sent to a thread")
@pytest.mark.usefixtures("control_c")
def test_control_c_while_waiting_leaves_the_job_running() -> None:
    waiting, let_go = threading.Event(), threading.Event()

    def job() -> str:
        assert waiting.wait(PATIENCE)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert let_go.wait(PATIENCE)
        return "done"

    begun: Blocker = Blocker()
    pending = Pending(lambda: (begun.begun.set(), job())[1])
    submit(pending)
    assert begun.begun.wait(PATIENCE)
    real = pending._done.wait
    pending._done.wait = lambda timeout=None: (waiting.set(), real(timeout))[1]  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pending.result()
    assert pending.left and not pending.done()
    let_go.set()
    assert pending.result() == "done"


def test_control_c_in_a_job_done_by_who_wants_it() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    pending = Pending(interrupted)
    with pytest.raises(KeyboardInterrupt):
        pending.result()
    assert pending.done()


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(sys, "getswitchinterval") or sys.platform == "win32", reason="needs fork")
def test_a_forked_child_has_a_worker_of_its_own() -> None:
    told = in_a_fresh_process(
        """
        import os, threading
        from hf_guided.errors import InternalError
        from hf_guided.session.background_worker import Pending, submit

        begun, let_go, ran = threading.Event(), threading.Event(), threading.Event()
        first = Pending(lambda: (begun.set(), let_go.wait()))
        second = Pending(lambda: threading.current_thread().name)
        submit(first)
        submit(second)
        begun.wait()
        child = os.fork()
        if not child:
            try:
                first.result()
            except InternalError as error:
                print("lost:", "ended in the middle" in str(error))
            print("not begun:", second.result())
            names = []
            submit(Pending(lambda: (names.append(threading.current_thread().name), ran.set())))
            ran.wait()
            print("own:", names[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        let_go.set()
        first.result()
        print("parent:", second.result())
        """
    )
    assert told.splitlines()[:3] == [
        "lost: True",
        "not begun: MainThread",
        "own: hf-guided-prefetch",
    ]
    assert told.splitlines()[3] in ("parent: hf-guided-prefetch", "parent: MainThread")


def test_the_end_of_the_interpreter_hangs_nobody() -> None:
    told = in_a_fresh_process(
        """
        import os, threading
        from hf_guided.errors import InternalError
        from hf_guided.session.background_worker import Pending, submit

        begun, never = threading.Event(), threading.Event()
        # With globals of its own: what a running thread can see is not taken down.
        stuck = Pending(eval("lambda: (begun.set(), never.wait())", {"begun": begun, "never": never}))
        submit(stuck)
        begun.wait()

        class Last:
            def __init__(self):
                self.tools = Pending, submit, stuck, InternalError, os.write

            def __del__(self):
                Pending, submit, stuck, InternalError, write = self.tools
                pending = Pending(lambda: b"done all the same\\n")
                submit(pending)
                write(1, pending.result())
                try:
                    stuck.result()
                except InternalError:
                    write(1, b"lost\\n")

        kept = Last()
        """
    )
    assert told.splitlines() == ["done all the same", "lost"]
