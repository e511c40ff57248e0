"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any

DONE = "data: [DONE]\n\n"
# Clients ignore comments; they keep connections open that something between would close as idle.
HEARTBEAT = ": waiting\n\n"


def event(value: Any, name: str | None = None) -> str:
    """One event with an object as its data; ASCII alone, for some clients split lines at other characters too."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n"
