"""Fixtures that every test may use, and what no test can know: how busy the machine is."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from transformers import PreTrainedTokenizerBase

from tests import vocabularies

# Hypothesis takes a busy machine, or its own first look at Unicode, for a slow test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def tekken() -> PreTrainedTokenizerBase:
    return vocabularies.tekken()


@pytest.fixture(scope="session")
def sentencepiece() -> PreTrainedTokenizerBase:
    return vocabularies.sentencepiece_32k()


@pytest.fixture(scope="session")
def demo() -> PreTrainedTokenizerBase:
    return vocabularies.demo()
