"""Which transformers the server needs: the continuous batching of older ones has other classes."""

from __future__ import annotations

import transformers
from packaging.version import Version

from ..errors import UsageError

OLDEST = "5.23"


def is_supported() -> bool:
    """Whether the installed transformers is new enough."""
    return Version(transformers.__version__).release >= Version(OLDEST).release


def check_transformers() -> None:
    """Refuse an older transformers.

    Raises:
        UsageError: it is too old.
    """
    if not is_supported():
        raise UsageError(
            f"the server needs transformers {OLDEST} or newer, found {transformers.__version__}; "
            "pip install -U transformers (newer ones need Python 3.11)"
        )
