"""``python -m hf_guided.batch`` and ``accelerate launch -m hf_guided.batch`` are ``hf_guided.cli.batch``."""

from .cli.batch.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
