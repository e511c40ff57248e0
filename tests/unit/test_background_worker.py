"""The background worker: job order, errors, interrupts, and no wait for a thread that has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from hf_guided.errors import InternalError
from hf_guided.session.run_ahead import Pending, submit

TIMEOUT_S = 120.0  # seconds until a test that hangs fails instead


class Blocker:
    """A job that blocks the worker until `release` is set."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()
        self.pending = Pending(self)

    def __call__(self) -> str:
        self.started.set()
        assert self.release.wait(TIMEOUT_S)
        return threading.current_thread().name


@pytest.fixture
def blocker() -> Iterator[Blocker]:
    """A blocker that has started. It is released at the end of the test at the latest."""
    blocker = Blocker()
    submit(blocker.pending)
    assert blocker.started.wait(TIMEOUT_S)
    yield blocker
    blocker.release.set()
    blocker.pending.wait()


def test_jobs_run_on_the_worker_thread(blocker: Blocker) -> None:
    assert not blocker.pending.done()
    blocker.release.set()
    assert blocker.pending.result() == "hf-guided-prefetch" != threading.current_thread().name
    assert blocker.pending.done()


def test_jobs_run_in_order(blocker: Blocker) -> None:
    seen: list[int] = []
    all_run = threading.Event()
    for i in range(5):
        submit(Pending(lambda i=i: seen.append(i)))  # type: ignore[misc]
    submit(Pending(all_run.set))
    blocker.release.set()
    assert all_run.wait(TIMEOUT_S)
    assert seen == list(range(5))


def test_result_runs_a_job_that_has_not_started_in_the_calling_thread(blocker: Blocker) -> None:
    waited: list[int] = []
    pending = Pending(lambda: threading.current_thread().name, waited.append)
    submit(pending)
    assert pending.result() == threading.current_thread().name
    assert not blocker.pending.done(), "the worker is still blocked"


def test_each_job_runs_once(blocker: Blocker) -> None:
    runs: list[int] = []
    pending = Pending(lambda: runs.append(1))
    submit(pending)
    pending.result()
    pending.run()
    next_job_ran = threading.Event()
    submit(Pending(next_job_ran.set))
    blocker.release.set()
    assert next_job_ran.wait(TIMEOUT_S), "the worker has not passed the job"
    assert runs == [1]


def test_cancelled_job_does_not_run(blocker: Blocker) -> None:
    runs: list[int] = []
    pending = Pending(lambda: runs.append(1))
    submit(pending)
    pending.cancel()
    pending.wait()
    next_job_ran = threading.Event()
    submit(Pending(next_job_ran.set))
    blocker.release.set()
    assert next_job_ran.wait(TIMEOUT_S)
    assert pending.done() and runs == []


def test_result_raises_the_error_of_the_job() -> None:
    def fail() -> None:
        raise ZeroDivisionError("here")

    pending, next_job_ran = Pending(fail), threading.Event()
    submit(pending)
    submit(Pending(next_job_ran.set))
    assert next_job_ran.wait(TIMEOUT_S)
    pending.wait()  # wait() does not raise the error
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="here"):
            pending.result()


def test_system_exit_in_a_job_raises_and_a_new_worker_starts() -> None:
    def leave() -> None:
        raise SystemExit(3)

    started, threads = threading.Event(), []

    def job() -> None:
        threads.append(threading.current_thread())
        started.set()
        leave()

    pending = Pending(job)
    submit(pending)
    assert started.wait(TIMEOUT_S)
    with pytest.raises(InternalError, match="was stopped") as caught:
        pending.result()
    assert isinstance(caught.value.__cause__, SystemExit)
    threads[0].join(TIMEOUT_S)
    assert not threads[0].is_alive()
    after = Blocker()
    submit(after.pending)
    assert after.started.wait(TIMEOUT_S), "no new worker has started the job"
    after.release.set()
    assert after.pending.result() == "hf-guided-prefetch"


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals sent to a thread")
@pytest.mark.usefixtures("control_c")
def test_control_c_while_waiting_does_not_stop_the_job() -> None:
    waiting, release = threading.Event(), threading.Event()

    def job() -> str:
        assert waiting.wait(TIMEOUT_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert release.wait(TIMEOUT_S)
        return "done"

    started: Blocker = Blocker()
    pending = Pending(lambda: (started.started.set(), job())[1])
    submit(pending)
    assert started.started.wait(TIMEOUT_S)
    real = pending._done.wait
    pending._done.wait = lambda timeout=None: (waiting.set(), real(timeout))[1]  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pending.result()
    assert pending.left and not pending.done()
    release.set()
    assert pending.result() == "done"


def test_control_c_in_a_job_that_runs_in_the_calling_thread() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    pending = Pending(interrupted)
    with pytest.raises(KeyboardInterrupt):
        pending.result()
    assert pending.done()


def run_in_new_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(sys, "getswitchinterval") or sys.platform == "win32", reason="needs fork")
def test_forked_child_starts_its_own_worker() -> None:
    output = run_in_new_process(
        """
        import os, threading
        from hf_guided.errors import InternalError
        from hf_guided.session.run_ahead import Pending, submit

        started, release, ran = threading.Event(), threading.Event(), threading.Event()
        first = Pending(lambda: (started.set(), release.wait()))
        second = Pending(lambda: threading.current_thread().name)
        submit(first)
        submit(second)
        started.wait()
        child = os.fork()
        if not child:
            try:
                first.result()
            except InternalError as error:
                print("lost:", "ended in the middle" in str(error))
            print("not started:", second.result())
            names = []
            submit(Pending(lambda: (names.append(threading.current_thread().name), ran.set())))
            ran.wait()
            print("own:", names[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        release.set()
        first.result()
        print("parent:", second.result())
        """
    )
    assert output.splitlines()[:3] == [
        "lost: True",
        "not started: MainThread",
        "own: hf-guided-prefetch",
    ]
    assert output.splitlines()[3] in ("parent: hf-guided-prefetch", "parent: MainThread")


def test_interpreter_shutdown_does_not_hang() -> None:
    output = run_in_new_process(
        """
        import os, threading
        from hf_guided.errors import InternalError
        from hf_guided.session.run_ahead import Pending, submit

        started, never = threading.Event(), threading.Event()
        # With its own globals: the interpreter does not tear down objects that a running thread can reach.
        stuck = Pending(eval("lambda: (started.set(), never.wait())", {"started": started, "never": never}))
        submit(stuck)
        started.wait()

        class Last:
            def __init__(self):
                self.tools = Pending, submit, stuck, InternalError, os.write

            def __del__(self):
                Pending, submit, stuck, InternalError, write = self.tools
                pending = Pending(lambda: b"done after shutdown\\n")
                submit(pending)
                write(1, pending.result())
                try:
                    stuck.result()
                except InternalError:
                    write(1, b"lost\\n")

        kept = Last()
        """
    )
    assert output.splitlines() == ["done after shutdown", "lost"]
