"""The compile process: its start and end, limits on time and memory, crashes, forks, and recovery after each."""

from __future__ import annotations

import gc
import operator
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import hf_guided
from hf_guided.backends.subprocess_child import Limits
from hf_guided.backends.subprocess_worker import CompileWorker, JobKilled
from hf_guided.errors import CompileLimitExceeded, InternalError

DEFAULT_LIMITS = Limits(60.0, 768 * 2**20, 600.0)
FOREVER_S = 1000.0
TIMEOUT_S = 120.0  # seconds until a test that hangs fails instead


@pytest.fixture
def worker() -> Iterator[CompileWorker]:
    worker = CompileWorker()
    yield worker
    worker.close()


def process_id_of(worker: CompileWorker) -> int:
    return worker.run("test", DEFAULT_LIMITS, os.getpid)


def ends_soon(process_id: int) -> bool:
    """Whether a process ends within the timeout, even if its new parent does not reap it."""
    if sys.platform != "linux":
        try:
            return not psutil.wait_procs([psutil.Process(process_id)], TIMEOUT_S)[1]
        except psutil.NoSuchProcess:
            return True
    try:
        process = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], TIMEOUT_S)[0])
    finally:
        os.close(process)


def test_first_job_starts_the_process_and_later_jobs_reuse_it(worker: CompileWorker) -> None:
    before = set(psutil.Process().children())
    other = CompileWorker()
    assert set(psutil.Process().children()) == before, "a worker without a job has a process"
    first = process_id_of(other)
    assert {process.pid for process in set(psutil.Process().children()) - before} == {first}
    assert [process_id_of(other) for _ in range(3)] == [first] * 3
    assert os.getpid() != first != process_id_of(worker)
    other.close()
    assert not psutil.pid_exists(first)
    assert process_id_of(other) != first, "a closed worker starts again"
    other.close()


def test_values_and_errors_are_returned(worker: CompileWorker) -> None:
    assert worker.run("test", DEFAULT_LIMITS, operator.mul, b"ab", 3) == b"ababab"
    large = os.urandom(1 << 20)  # more than a pipe holds
    assert worker.run("test", DEFAULT_LIMITS, bytes.upper, large) == large.upper()
    first = process_id_of(worker)
    with pytest.raises(ValueError, match="invalid literal for int.*'x'"):
        worker.run("test", DEFAULT_LIMITS, int, "x")
    with pytest.raises(RuntimeError, match="Odd.'what a day'"):
        worker.run("test", DEFAULT_LIMITS, exec, "class Odd(Exception): pass\nraise Odd('what a day')")
    with pytest.raises(RuntimeError, match="SystemExit.7"):
        worker.run("test", DEFAULT_LIMITS, sys.exit, 7)
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        worker.run("test", DEFAULT_LIMITS, len, threading.Lock())
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        worker.run("test", DEFAULT_LIMITS, threading.Lock)
    assert process_id_of(worker) == first, "an error does not restart the process"


def test_printed_text_is_not_read_as_a_result(worker: CompileWorker, capfd: pytest.CaptureFixture[str]) -> None:
    assert worker.run("test", DEFAULT_LIMITS, os.system, "echo from below") == 0
    assert worker.run("test", DEFAULT_LIMITS, print, "x" * 100_000) is None
    assert worker.run("test", DEFAULT_LIMITS, operator.add, 1, 2) == 3
    assert capfd.readouterr() == ("", "")


def test_job_over_its_time_limit_is_killed(worker: CompileWorker) -> None:
    first = process_id_of(worker)
    with pytest.raises(CompileLimitExceeded, match=r"^me did not finish in 0.2 s on a machine that is busy"):
        worker.run("me", Limits(wall_s=0.2), time.sleep, FOREVER_S)
    assert not psutil.pid_exists(first)
    assert process_id_of(worker) not in (first, os.getpid())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of CPU time")
def test_job_over_its_cpu_time_is_killed(worker: CompileWorker) -> None:
    """Time that it sleeps does not count; a part may have a narrower limit, and is named."""
    worker.run("me", Limits(cpu_s=0.2), time.sleep, 0.5)
    first = process_id_of(worker)
    with pytest.raises(JobKilled, match=r"^me needed more than 0.2 s of CPU time; make .*cpu_s") as caught:
        worker.run("me", Limits(cpu_s=0.2), exec, "while True: pass")
    assert (caught.value.title, caught.value.used_s) == ("me", 0.2)
    assert not psutil.pid_exists(first)
    part = """
from hf_guided.backends.subprocess_child import Limits, not_counted, part
import time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
with not_counted():
    burn(0.6)
with part("easy", Limits(0.3)):
    burn(0.1)
with part("hard", Limits(0.2), "do less"):
    burn(1)
"""
    with pytest.raises(JobKilled, match=r"^hard needed more than 0.2 s of CPU time; do less$") as caught:
        worker.run("me", Limits(cpu_s=0.5), exec, part)
    assert caught.value.title == "hard"
    assert 0.3 <= caught.value.used_s < 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts all memory against RLIMIT_DATA")
def test_job_over_its_memory_limit_is_killed(worker: CompileWorker) -> None:
    small = Limits(nbytes=64 * 2**20)
    for function, *args in [
        (bytes, 2**26),  # one allocation
        (exec, "held = []\nwhile True: held.append(bytes(100_000))"),
    ]:
        first = process_id_of(worker)
        with pytest.raises(CompileLimitExceeded, match="^me needed more memory than 64 MiB; make"):
            worker.run("me", small, function, *args)
        assert not psutil.pid_exists(first)
    assert len(worker.run("me", DEFAULT_LIMITS, bytes, 2**26)) == 2**26, "the limit applies to one job only"


def test_abort_for_lack_of_memory_is_reported_as_memory(worker: CompileWorker) -> None:
    for message in "memory allocation of 64 bytes failed", "terminate called after throwing 'std::bad_alloc'":
        with pytest.raises(CompileLimitExceeded, match="needed more memory than 768 MiB"):
            worker.run("me", DEFAULT_LIMITS, exec, f"import os; os.write(2, {message.encode()!r}); os.abort()")
    assert worker.run("me", DEFAULT_LIMITS, os.write, 2, b"I had a MemoryError, and went on") > 0
    deadline = time.monotonic() + TIMEOUT_S
    while not worker._child._said and time.monotonic() < deadline:  # standard error arrives on a separate pipe
        time.sleep(0.01)
    with pytest.raises(CompileLimitExceeded, match="died of SIGABRT;"):
        worker.run("me", DEFAULT_LIMITS, os.abort)  # the output of an earlier job is ignored


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_crash_of_a_job_is_reported_with_its_signal(worker: CompileWorker, code: str, name: str) -> None:
    code = f"import os; os.write(2, b'what I did last'); {code}"
    with pytest.raises(CompileLimitExceeded, match=f"me was compiling died of {name} .its last words: what I did last"):
        worker.run("me", DEFAULT_LIMITS, exec, code)
    assert worker.run("me", DEFAULT_LIMITS, operator.add, 1, 2) == 3


def test_exit_of_the_process_is_an_internal_error(worker: CompileWorker) -> None:
    with pytest.raises(InternalError, match="ended with exit code 3$"):
        worker.run("me", DEFAULT_LIMITS, os._exit, 3)
    assert worker.run("me", DEFAULT_LIMITS, operator.add, 1, 2) == 3


def test_process_killed_while_idle_is_replaced(worker: CompileWorker) -> None:
    others = set(threading.enumerate())  # these include the monitor threads of other tests
    first = process_id_of(worker)
    (process,) = [child for child in psutil.Process().children() if child.pid == first]
    process.kill()
    psutil.wait_procs([process])
    for thread in set(threading.enumerate()) - others:
        if thread.name == "hf_guided-compile-worker":
            thread.join(TIMEOUT_S)  # its monitor thread has noticed
    assert process_id_of(worker) != first


def test_each_thread_gets_its_own_result(worker: CompileWorker) -> None:
    def job(number: int) -> int:
        if number % 10 == 9:
            with pytest.raises(CompileLimitExceeded):
                worker.run("test", DEFAULT_LIMITS, os.abort)
            return number
        return worker.run("test", DEFAULT_LIMITS, operator.add, number, 0)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(job, range(60))) == list(range(60))


def test_process_outlives_the_thread_that_started_it(worker: CompileWorker) -> None:
    process_ids: list[int] = []
    thread = threading.Thread(target=lambda: process_ids.append(process_id_of(worker)))
    thread.start()
    thread.join()
    assert process_id_of(worker) == process_ids[0]
    assert worker.run("test", DEFAULT_LIMITS, time.sleep, 0.2) is None


class _Interrupted(BaseException):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
def test_interrupted_call_leaves_no_result_for_the_next_call(worker: CompileWorker) -> None:
    def interrupt(*_: object) -> None:
        raise _Interrupted

    first = process_id_of(worker)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(_Interrupted):
            worker.run("test", DEFAULT_LIMITS, time.sleep, FOREVER_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not psutil.pid_exists(first)
    assert worker.run("test", DEFAULT_LIMITS, operator.add, 1, 2) == 3


def test_process_ends_when_its_worker_is_collected() -> None:
    worker = CompileWorker()
    first = process_id_of(worker)
    del worker
    gc.collect()
    assert not psutil.pid_exists(first)


def test_process_does_not_import_torch(worker: CompileWorker) -> None:
    code = "__import__('hf_guided.automaton.nfa') and sorted(__import__('sys').modules)"
    modules = worker.run("test", DEFAULT_LIMITS, eval, code)
    assert "hf_guided.automaton.nfa" in modules
    assert not {"torch", "transformers", "hf_guided.guide"} & set(modules)


# -- in separate parent processes: how parent and child end -----------------------------------------------------------

# An empty package object replaces hf_guided's own __init__, which takes seconds to import torch and is not needed here.
PREAMBLE = f"""
import operator, os, signal, sys, threading, time, types
sys.modules["hf_guided"] = types.ModuleType("hf_guided")
sys.modules["hf_guided"].__path__ = [{os.path.dirname(hf_guided.__file__)!r}]
from hf_guided.backends.subprocess_worker import SHARED
from hf_guided.backends.subprocess_child import Limits
say = lambda *what: print(*what, flush=True)
"""


def start_script(script: str, folder: Path) -> subprocess.Popen[str]:
    """Run the script from a file, so that it has a ``__main__`` that a child process could run again."""
    file = folder / "script.py"
    file.write_text(PREAMBLE + textwrap.dedent(script))
    return subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a busy process outlives its parent until its job ends")
@pytest.mark.parametrize("code", ["time.sleep(1000)", "3 ** (10 ** 9)", None])
def test_process_dies_when_its_parent_is_killed(tmp_path: Path, code: str | None) -> None:
    """While it sleeps, while it holds the GIL, and while it is idle."""
    started = str(tmp_path / "started")
    os.mkfifo(started)
    script = f"""
    say(SHARED.run("test", Limits(), os.getpid))
    if {code!r}:
        code = "import time; open({started!r}, 'w').close(); {code}"
        threading.Thread(target=SHARED.run, args=("test", Limits(1000), exec, code), daemon=True).start()
        open({started!r}).close()  # waits for the other end
    say("started")
    time.sleep(1000)
    """
    with start_script(script, tmp_path) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "started\n"
        assert psutil.pid_exists(child)
        parent.kill()
        assert ends_soon(child)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a way to stop a process")
def test_time_limit_holds_while_the_parent_is_stopped(tmp_path: Path) -> None:
    script = """
    say(SHARED.run("test", Limits(), os.getpid))
    code = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); 3 ** (10 ** 9)"
    try:
        SHARED.run("me", Limits(cpu_s=100, wall_s=2), exec, code)
    except Exception as error:
        say(error)
    """
    with start_script(script, tmp_path) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert ends_soon(child)
        parent.send_signal(signal.SIGCONT)
        assert parent.stdout.readline() == (
            "me did not finish in 2 s on a machine that is busy with other work; make the constraint smaller, or try "
            "again later\n"
        )


def run_script(script: str, folder: Path) -> tuple[int | None, list[str], str]:
    with start_script(script, folder) as process:
        out, err = process.communicate(timeout=600)
        return process.returncode, out.splitlines(), err


def test_process_dies_when_its_parent_exits(tmp_path: Path) -> None:
    script = """
    import atexit
    atexit.register(time.sleep, 0.5)  # time for a thread to report an error if its job ended too early
    say(SHARED.run("test", Limits(), os.getpid))
    threading.Thread(target=SHARED.run, args=("test", Limits(1000), time.sleep, 1000), daemon=True).start()
    time.sleep(0.2)
    """
    code, (child,), err = run_script(script, tmp_path)
    assert (code, err) == (0, "")
    assert ends_soon(int(child))


def test_unguarded_main_runs_once(tmp_path: Path) -> None:
    assert run_script('say("main")\nsay(SHARED.run("test", Limits(), operator.add, 1, 2))', tmp_path) == (
        0,
        ["main", "3"],
        "",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_child_starts_its_own_process(tmp_path: Path) -> None:
    script = """
    import warnings
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # newer Pythons warn of any fork with threads
    first = SHARED.run("test", Limits(), os.getpid)
    busy = threading.Thread(target=lambda: say(SHARED.run("test", Limits(), eval, "__import__('time').sleep(1)")))
    busy.start()
    time.sleep(0.3)
    pipe = SHARED._child._jobs.fileno()
    child = os.fork()  # while a job runs, and its lock is held
    if child == 0:
        try:
            os.fstat(pipe)
        except OSError:
            say("closed")
        own = SHARED.run("test", Limits(), os.getpid)
        say(own not in (first, os.getpid(), os.getppid()))
        SHARED.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    busy.join()
    say(SHARED.run("test", Limits(), os.getpid) == first)
    """
    assert run_script(script, tmp_path) == (0, ["closed", "True", "None", "True"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_child_does_not_end_the_process_of_its_parent(tmp_path: Path) -> None:
    script = """
    import gc, warnings
    from hf_guided.backends.subprocess_worker import CompileWorker
    warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
    worker = CompileWorker()
    first = worker.run("test", Limits(), os.getpid)
    child = os.fork()
    if child == 0:
        del worker
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    say(worker.run("test", Limits(), os.getpid) == first)
    """
    assert run_script(script, tmp_path) == (0, ["True"], "")
