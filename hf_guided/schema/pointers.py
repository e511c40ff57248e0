"""JSON pointers, and what they name."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def local_target(root: Any, ref: Any) -> Any:
    """What a reference inside the document (``#``, ``#/$defs/a``) names; None if it names nothing there."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    return lookup(root, unquote(ref[1:]))


def lookup(root: Any, pointer: str) -> Any:
    """The value at a JSON pointer; None if there is none."""
    here = root
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and token.isdecimal() and int(token) < len(here):
            here = here[int(token)]
        else:
            return None
    return here
