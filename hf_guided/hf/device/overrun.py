"""The one forward pass too many of a loop that learns a step late that all rows have ended, and how it is undone.

Who gets to see the model's cache, because it was asked for or is the caller's own, has to find it as if that pass had
never been. Layers that throw old tokens away (sliding windows) keep them meanwhile; what cannot be taken back (static
caches, recurrent states) is no harm as long as nobody sees it.
"""

from __future__ import annotations

from typing import Any

from ..compat import is_callers_own


class ExtraStep:
    """Keeps a cache as it was until a forward pass is known to count.

    Args:
        cache: of the model, behind the prompts; or None.
        returned: whether generate() hands it to its caller.
    """

    def __init__(self, cache: Any, *, returned: bool):
        self._cache = cache if cache is not None and (returned or is_callers_own(cache)) else None

    @property
    def can_be_undone(self) -> bool:
        """Whether nobody will see anything of it."""
        return self._cache is None or bool(getattr(self._cache, "is_croppable", False))

    def begin(self) -> None:
        """From now on a pass may be one too many."""
        if self._cache is not None:
            self._cache.activate_past_recording()

    def keep(self) -> None:
        """The last pass counts."""
        if self._cache is not None:
            self._cache.crop(0)

    def undo(self) -> None:
        """The last pass was one too many."""
        if self._cache is not None:
            self._cache.crop(-1)

    def end(self) -> None:
        """No pass will be undone any more."""
        if self._cache is not None:
            self._cache = getattr(self._cache, "self_attention_cache", self._cache)
            for layer in self._cache.layers:
                if hasattr(layer, "record_past"):
                    layer.record_past = False
