"""The process that compiles: what ends it, what it leaves behind, and who goes on."""

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
from hf_guided.backends.subprocess_worker import CompileWorker
from hf_guided.errors import CompileLimitExceeded, InternalError
from hf_guided.options import WorkerLimits

AMPLE = WorkerLimits()
FOR_EVER = 1000.0
PATIENCE = 120.0  # seconds until a test that hangs fails instead


@pytest.fixture
def worker() -> Iterator[CompileWorker]:
    worker = CompileWorker()
    yield worker
    worker.close()


def pid(worker: CompileWorker) -> int:
    return worker.run("test", AMPLE, os.getpid)


def is_gone(process_id: int) -> bool:
    """Whether a process has ended, or will have in a moment; also if whoever inherited it does not care."""
    if sys.platform != "linux":
        try:
            return not psutil.wait_procs([psutil.Process(process_id)], PATIENCE)[1]
        except psutil.NoSuchProcess:
            return True
    try:
        process = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], PATIENCE)[0])
    finally:
        os.close(process)


def test_one_process_started_by_the_first_job_serves_them_all(worker: CompileWorker) -> None:
    before = set(psutil.Process().children())
    other = CompileWorker()
    assert set(psutil.Process().children()) == before, "a worker without a job has a process"
    first = pid(other)
    assert {process.pid for process in set(psutil.Process().children()) - before} == {first}
    assert [pid(other) for _ in range(3)] == [first] * 3
    assert os.getpid() != first != pid(worker)
    other.close()
    assert not psutil.pid_exists(first)
    assert pid(other) != first, "a closed worker starts again"
    other.close()


def test_values_and_errors_come_back(worker: CompileWorker) -> None:
    assert worker.run("test", AMPLE, operator.mul, b"ab", 3) == b"ababab"
    large = os.urandom(1 << 20)  # more than a pipe holds
    assert worker.run("test", AMPLE, bytes.upper, large) == large.upper()
    first = pid(worker)
    with pytest.raises(ValueError, match="invalid literal for int.*'x'"):
        worker.run("test", AMPLE, int, "x")
    with pytest.raises(RuntimeError, match="Odd.'what a day'"):
        worker.run("test", AMPLE, exec, "class Odd(Exception): pass\nraise Odd('what a day')")
    with pytest.raises(RuntimeError, match="SystemExit.7"):
        worker.run("test", AMPLE, sys.exit, 7)
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        worker.run("test", AMPLE, len, threading.Lock())
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        worker.run("test", AMPLE, threading.Lock)
    assert pid(worker) == first, "none of these is a reason to start again"


def test_what_a_job_prints_is_no_answer(worker: CompileWorker, capfd: pytest.CaptureFixture[str]) -> None:
    assert worker.run("test", AMPLE, os.system, "echo from below") == 0
    assert worker.run("test", AMPLE, print, "x" * 100_000) is None
    assert worker.run("test", AMPLE, operator.add, 1, 2) == 3
    assert capfd.readouterr() == ("", "")


def test_a_job_that_takes_too_long_is_killed(worker: CompileWorker) -> None:
    first = pid(worker)
    with pytest.raises(CompileLimitExceeded, match=r"^me did not finish in 0.2 s; make the constraint smaller"):
        worker.run("me", WorkerLimits(seconds=0.2), time.sleep, FOR_EVER)
    assert not psutil.pid_exists(first)
    assert pid(worker) not in (first, os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts all memory against RLIMIT_DATA")
def test_a_job_that_takes_too_much_memory_is_killed(worker: CompileWorker) -> None:
    small = WorkerLimits(nbytes=64 * 2**20)
    for function, *args in [
        (bytes, 2**26),  # one allocation
        (exec, "held = []\nwhile True: held.append(bytes(100_000))"),
    ]:
        first = pid(worker)
        with pytest.raises(CompileLimitExceeded, match="^me needed more than 64 MiB of memory; make"):
            worker.run("me", small, function, *args)
        assert not psutil.pid_exists(first)
    assert len(worker.run("me", AMPLE, bytes, 2**26)) == 2**26, "the limit is that of one job"


def test_memory_that_ends_in_an_abort_is_called_by_its_name(worker: CompileWorker) -> None:
    for words in "memory allocation of 64 bytes failed", "terminate called after throwing 'std::bad_alloc'":
        with pytest.raises(CompileLimitExceeded, match="needed more than 768 MiB"):
            worker.run("me", AMPLE, exec, f"import os; os.write(2, {words.encode()!r}); os.abort()")
    assert worker.run("me", AMPLE, os.write, 2, b"I had a MemoryError, and went on") > 0
    deadline = time.monotonic() + PATIENCE
    while not worker._child._said and time.monotonic() < deadline:  # words come on a pipe of their own
        time.sleep(0.01)
    with pytest.raises(CompileLimitExceeded, match="died of SIGABRT;"):
        worker.run("me", AMPLE, os.abort)  # what an earlier job said does not count


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_job_that_crashes_its_process(worker: CompileWorker, code: str, name: str) -> None:
    code = f"import os; os.write(2, b'what I did last'); {code}"
    with pytest.raises(CompileLimitExceeded, match=f"me was compiling died of {name} .its last words: what I did last"):
        worker.run("me", AMPLE, exec, code)
    assert worker.run("me", AMPLE, operator.add, 1, 2) == 3


def test_a_process_that_ends_by_itself_is_a_bug(worker: CompileWorker) -> None:
    with pytest.raises(InternalError, match="ended with exit code 3$"):
        worker.run("me", AMPLE, os._exit, 3)
    assert worker.run("me", AMPLE, operator.add, 1, 2) == 3


def test_a_process_that_somebody_killed_while_idle_is_replaced(worker: CompileWorker) -> None:
    others = set(threading.enumerate())  # keepers of other tests' processes among them
    first = pid(worker)
    (process,) = [one for one in psutil.Process().children() if one.pid == first]
    process.kill()
    psutil.wait_procs([process])
    for thread in set(threading.enumerate()) - others:
        if thread.name == "hf_guided-compile-worker":
            thread.join(PATIENCE)  # its keeper has noticed
    assert pid(worker) != first


def test_threads_take_turns_and_get_their_own_answers(worker: CompileWorker) -> None:
    def job(number: int) -> int:
        if number % 10 == 9:
            with pytest.raises(CompileLimitExceeded):
                worker.run("test", AMPLE, os.abort)
            return number
        return worker.run("test", AMPLE, operator.add, number, 0)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(job, range(60))) == list(range(60))


def test_the_thread_that_started_it_may_end(worker: CompileWorker) -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(pid(worker)))
    thread.start()
    thread.join()
    assert pid(worker) == found[0]
    assert worker.run("test", AMPLE, time.sleep, 0.2) is None


class _Interrupted(BaseException):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
def test_a_caller_that_gives_up_leaves_no_answer_for_the_next_one(worker: CompileWorker) -> None:
    def interrupt(*_: object) -> None:
        raise _Interrupted

    first = pid(worker)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(_Interrupted):
            worker.run("test", AMPLE, time.sleep, FOR_EVER)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not psutil.pid_exists(first)
    assert worker.run("test", AMPLE, operator.add, 1, 2) == 3


def test_it_ends_with_its_worker() -> None:
    worker = CompileWorker()
    first = pid(worker)
    del worker
    gc.collect()
    assert not psutil.pid_exists(first)


def test_torch_is_not_imported(worker: CompileWorker) -> None:
    code = "__import__('hf_guided.automaton.nfa') and sorted(__import__('sys').modules)"
    modules = worker.run("test", AMPLE, eval, code)
    assert "hf_guided.automaton.nfa" in modules
    assert not {"torch", "transformers", "hf_guided.guide"} & set(modules)


# -- in processes of their own: how they end is the question ----------------------------------------------------------

# A bare package, because the package's own __init__ takes seconds to import torch, and plays no part here.
BEGIN = f"""
import operator, os, signal, sys, threading, time, types
sys.modules["hf_guided"] = types.ModuleType("hf_guided")
sys.modules["hf_guided"].__path__ = [{os.path.dirname(hf_guided.__file__)!r}]
from hf_guided.backends.subprocess_worker import SHARED
from hf_guided.options import WorkerLimits
say = lambda *what: print(*what, flush=True)
"""


def begin(script: str, folder: Path) -> subprocess.Popen[str]:
    """A script in a file: there is a ``__main__`` that could be run again."""
    file = folder / "script.py"
    file.write_text(BEGIN + textwrap.dedent(script))
    return subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a busy process outlives its parent until its job ends")
@pytest.mark.parametrize("code", ["time.sleep(1000)", "3 ** (10 ** 9)", None])
def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path, code: str | None) -> None:
    """While it sleeps, while it never lets go of the interpreter's lock, and while it has nothing to do."""
    begun = str(tmp_path / "begun")
    os.mkfifo(begun)
    script = f"""
    say(SHARED.run("test", WorkerLimits(), os.getpid))
    if {code!r}:
        code = "import time; open({begun!r}, 'w').close(); {code}"
        threading.Thread(target=SHARED.run, args=("test", WorkerLimits(1000), exec, code), daemon=True).start()
        open({begun!r}).close()  # waits for the other end
    say("begun")
    time.sleep(1000)
    """
    with begin(script, tmp_path) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "begun\n"
        assert psutil.pid_exists(child)
        parent.kill()
        assert is_gone(child)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a way to stop a process")
def test_a_job_ends_at_its_limit_when_the_parent_cannot_see_to_it(tmp_path: Path) -> None:
    script = """
    say(SHARED.run("test", WorkerLimits(), os.getpid))
    code = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); 3 ** (10 ** 9)"
    try:
        SHARED.run("me", WorkerLimits(seconds=2), exec, code)
    except Exception as error:
        say(error)
    """
    with begin(script, tmp_path) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_gone(child)
        parent.send_signal(signal.SIGCONT)
        assert parent.stdout.readline() == "me did not finish in 2 s; make the constraint smaller, or use llguidance\n"


def run(script: str, folder: Path) -> tuple[int | None, list[str], str]:
    with begin(script, folder) as process:
        out, err = process.communicate(timeout=600)
        return process.returncode, out.splitlines(), err


def test_it_dies_with_a_parent_that_ends(tmp_path: Path) -> None:
    script = """
    import atexit
    atexit.register(time.sleep, 0.5)  # time for a thread to complain, were its job ended before
    say(SHARED.run("test", WorkerLimits(), os.getpid))
    threading.Thread(target=SHARED.run, args=("test", WorkerLimits(1000), time.sleep, 1000), daemon=True).start()
    time.sleep(0.2)
    """
    code, (child,), err = run(script, tmp_path)
    assert (code, err) == (0, "")
    assert is_gone(int(child))


def test_an_unguarded_main_is_not_run_again(tmp_path: Path) -> None:
    assert run('say("main")\nsay(SHARED.run("test", WorkerLimits(), operator.add, 1, 2))', tmp_path) == (
        0,
        ["main", "3"],
        "",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_has_a_process_of_its_own(tmp_path: Path) -> None:
    script = """
    import warnings
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # newer Pythons warn of any fork with threads
    first = SHARED.run("test", WorkerLimits(), os.getpid)
    busy = threading.Thread(target=lambda: say(SHARED.run("test", WorkerLimits(), eval, "__import__('time').sleep(1)")))
    busy.start()
    time.sleep(0.3)
    pipe = SHARED._child._jobs.fileno()
    child = os.fork()  # while a job runs, and its lock is held
    if child == 0:
        try:
            os.fstat(pipe)
        except OSError:
            say("closed")
        own = SHARED.run("test", WorkerLimits(), os.getpid)
        say(own not in (first, os.getpid(), os.getppid()))
        SHARED.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    busy.join()
    say(SHARED.run("test", WorkerLimits(), os.getpid) == first)
    """
    assert run(script, tmp_path) == (0, ["closed", "True", "None", "True"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_that_drops_its_worker_does_not_end_the_parent_s_process(tmp_path: Path) -> None:
    script = """
    import gc, warnings
    from hf_guided.backends.subprocess_worker import CompileWorker
    warnings.simplefilter("ignore")  # newer Pythons warn of any fork with threads
    worker = CompileWorker()
    first = worker.run("test", WorkerLimits(), os.getpid)
    child = os.fork()
    if child == 0:
        del worker
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    say(worker.run("test", WorkerLimits(), os.getpid) == first)
    """
    assert run(script, tmp_path) == (0, ["True"], "")
