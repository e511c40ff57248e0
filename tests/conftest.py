"""Fixtures that every test may use."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from tests import vocabularies


@pytest.fixture(scope="session")
def tekken() -> PreTrainedTokenizerBase:
    return vocabularies.tekken()


@pytest.fixture(scope="session")
def sentencepiece() -> PreTrainedTokenizerBase:
    return vocabularies.sentencepiece_32k()


@pytest.fixture(scope="session")
def demo() -> PreTrainedTokenizerBase:
    return vocabularies.demo()
