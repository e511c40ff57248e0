"""The surplus forward pass of a loop that learns one step late that all rows have ended, and its rollback.

If the caller can see the model's cache, because it is returned or is the caller's own, the cache must look as if that
pass had never run. Layers that drop old tokens (sliding windows) keep them meanwhile. Caches that cannot be rolled back
(static caches, recurrent states) are no problem as long as the caller cannot see them.
"""

from __future__ import annotations

from typing import Any

from ..compat import is_callers_own


class CacheRollback:
    """Keeps a cache as it was until a forward pass is known to count.

    Args:
        cache: of the model, after the prompts; or None.
        returned: whether generate() returns it to its caller.
    """

    def __init__(self, cache: Any, *, returned: bool):
        self._cache = cache if cache is not None and (returned or is_callers_own(cache)) else None

    @property
    def can_be_undone(self) -> bool:
        """Whether the caller will see no trace of the pass."""
        return self._cache is None or bool(getattr(self._cache, "is_croppable", False))

    def begin(self) -> None:
        """Start recording: any later pass may be the surplus one."""
        if self._cache is not None:
            self._cache.activate_past_recording()

    def keep(self) -> None:
        """Keep the last pass."""
        if self._cache is not None:
            self._cache.crop(0)

    def undo(self) -> None:
        """Roll back the last pass."""
        if self._cache is not None:
            self._cache.crop(-1)

    def end(self) -> None:
        """Stop recording: no later pass is rolled back."""
        if self._cache is not None:
            self._cache = getattr(self._cache, "self_attention_cache", self._cache)
            for layer in self._cache.layers:
                if hasattr(layer, "record_past"):
                    layer.record_past = False
