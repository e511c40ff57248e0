"""What a compiler warns of, once for each constraint."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from typing import Any

from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, JsonSchema
from ..schema.audit import may_be_misspelt, misspelt_names
from .attempts import Compilation
from .compile_job import Key
from .router import BackendChoice

_MAX_SENTENCES = 10  # of a warning


def warn_of_misspelt_names(constraint: Constraint) -> None:
    """Warn of keywords and formats that look like others, each time."""
    schemas: list[Any] = []
    if isinstance(constraint, JsonSchema) and may_be_misspelt(constraint.normal_form):
        schemas = [constraint.schema]
    elif isinstance(constraint, ToolCalls):
        schemas = list(constraint.parameters.values())
    if misspelt := [sentence for schema in schemas for sentence in misspelt_names(schema)]:
        if len(misspelt) > _MAX_SENTENCES:
            misspelt[_MAX_SENTENCES:] = [f"{len(misspelt) - _MAX_SENTENCES} more"]
        warnings.warn("the schema has keywords that constrain nothing:\n  " + "\n  ".join(misspelt), stacklevel=2)


class CompileWarnings:
    """Warns. Thread safe.

    Args:
        most: how many constraints to remember.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._warned: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def losses(self, constraint: Constraint, choice: BackendChoice) -> None:
        """Warn of keywords that the engine does not enforce, if that is what the constraint wants."""
        if choice.losses and constraint.on_unsupported == "warn":
            lost = "\n  ".join(map(str, choice.losses))
            self._once(constraint.key, f"{choice.backend} does not enforce all of the schema:\n  {lost}")

    def too_large(self, key: Key, compilation: Compilation, cache_bytes: int) -> None:
        """Warn of what the cache cannot hold."""
        self._once(
            "/".join(map(str, key)),
            f"{compilation.compiled.constraint} takes {compilation.most_bytes} bytes when compiled, and the cache of "
            f"compiled constraints holds {cache_bytes} in all: every request compiles it again; raise "
            f"CompilerOptions.cache_bytes to at least {compilation.most_bytes}",
        )

    def _once(self, key: str, message: str) -> None:
        with self._lock:
            if key in self._warned:
                return
            self._warned[key] = None
            while len(self._warned) > self._most:
                self._warned.popitem(last=False)
        warnings.warn(message, stacklevel=2)
