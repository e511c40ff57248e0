"""Whether the interpreter ends: compiles on daemon threads give up then."""

from __future__ import annotations

from threading import Event

interpreter_ends = Event()
