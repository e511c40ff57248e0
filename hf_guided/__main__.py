"""``python -m hf_guided`` is ``hf-guided``."""

from .cli import main

raise SystemExit(main())
