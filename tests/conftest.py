"""Fixtures that every test may use, and what no test can know: how busy the machine is."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from transformers import PreTrainedTokenizerBase

from tests import vocabularies
from tests.kernel_harness import Harness, build

# Hypothesis takes a busy machine, or its own first look at Unicode, for a slow test. The same examples in every run, so
# that a change is judged by what it changed; `--hypothesis-profile=hunt` looks for new ones.
settings.register_profile("hunt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("hunt"), derandomize=True)
# Any failure kills a mutant: none is made smaller.
settings.register_profile("mutants", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("same")


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
