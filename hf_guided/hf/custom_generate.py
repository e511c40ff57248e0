"""``hf_guided.generation.custom_generate`` under the name that Hub repositories import.

Resolved at first use: that module stands above this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("hf_guided.generation.custom_generate"), name)
