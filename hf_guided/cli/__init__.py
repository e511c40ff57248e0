"""The command lines: arguments and printing. ``hf-guided`` is ``main``."""

from .commands import main

__all__ = ["main"]
