"""Fixtures that every test may use, and what no test can know: how busy the machine is."""

from __future__ import annotations

import ctypes
import gc
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings
from transformers import PreTrainedTokenizerBase

from hf_guided.serve.models import OLDEST, is_supported
from tests import effort, vocabularies
from tests.kernel_harness import Harness, build

collect_ignore_glob = [] if is_supported() else ["integration/test_serve*.py"]


def pytest_report_header() -> str:
    return "" if is_supported() else f"without the server's tests, which need transformers {OLDEST}"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its own options
def pytest_configure(config: pytest.Config) -> None:
    effort.everything = config.getoption("markexpr") != "not slow"
    # Hypothesis takes a busy machine, or its own first look at Unicode, for a slow test. Every run has the same
    # examples (but for a few constants that Hypothesis takes from the modules loaded by then), so that a change is
    # judged by what it changed; `--hypothesis-profile=hunt` looks for new ones.
    settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        "same", settings.get_profile("hunt"), derandomize=True, max_examples=effort.repeats(25, 100)
    )
    # Any failure kills a mutant: none is made smaller.
    settings.register_profile("mutants", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("same")


def pytest_collection() -> None:
    """Imports leave no garbage worth looking for."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported stays, so that no later collection has to look at its half a million objects."""
    gc.enable()
    gc.collect()
    gc.freeze()


class Memory:
    """Of this process. It collects garbage between files only when it has grown: that takes longer than many a file."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._kept = self._resident()

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)

    def trim(self) -> None:
        if self._resident() < self._kept + 150 * 2**20:
            return
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # what is left belongs to all files: transformers collects whenever a manager stops
        with suppress(AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
        self._kept = self._resident()


@pytest.fixture(scope="session")
def memory() -> Memory:
    return Memory()


@pytest.fixture(scope="module", autouse=True)
def caches_go_with_their_file(request: pytest.FixtureRequest, memory: Memory) -> Iterator[None]:
    """Models and compiled constraints that a file's tests share take memory only until its last test has run."""
    yield
    for one in vars(request.module).values():
        if getattr(one, "__module__", "") == request.module.__name__ and hasattr(one, "cache_clear"):
            one.cache_clear()
    memory.trim()


@pytest.fixture
def control_c() -> Iterator[None]:
    """SIGINT is KeyboardInterrupt, though a shell may have had a job in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def tekken() -> PreTrainedTokenizerBase:
    return vocabularies.tekken()


@pytest.fixture(scope="session")
def sentencepiece() -> PreTrainedTokenizerBase:
    return vocabularies.sentencepiece_32k()


@pytest.fixture(scope="session")
def demo() -> PreTrainedTokenizerBase:
    return vocabularies.demo()


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """The kernels as plain C++."""
    found = Harness(build(tmp_path_factory.mktemp("harness")))
    yield found
    found.close()
