"""Sources of draft tokens; here the names that a source of another package needs."""

from .base import Draft, DraftRequest, DraftSource, Warp

__all__ = ["Draft", "DraftRequest", "DraftSource", "Warp"]
