"""The devices of these tests: the CPU always, where they need no stream and no graph; a GPU with the marker ``gpu``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


def on_gpu(test: Any) -> Any:
    """Marks a test that needs streams or graphs."""
    for mark in needs_gpu:
        test = mark(test)
    return test


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Where scores are masked."""
    return torch.device("cpu") if request.param == "cpu" else torch.device("cuda", 0)


def pytest_itemcollected(item: pytest.Item) -> None:
    """A GPU's machine has packages of its own: their warnings are no failures, those of hf_guided are."""
    item.add_marker(pytest.mark.filterwarnings("default", "error:::hf_guided"))
