"""Chooses the texts of a corpus: ``python -m tests.fuzz.minimize regex --new fuzz-new``.

The corpus becomes the texts of both folders that together reach the most lines of our readers, at most ``MOST``.
"""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz import law

CORPUS = Path(__file__).with_name("corpus")
ROOMS = ("constraints", "regex", "schema", "grammars", "backends")
MOST = 60
LONGEST = 1000  # bytes of a text


def lines_of(kind: str, text: str) -> frozenset[tuple[str, int, bool]]:
    """The lines of our readers that a text reaches, on any thread, each with whether it is a constraint."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(f"/hf_guided/{room}/" in name for room in ROOMS):
            return None
        reached.add((name, frame.f_lineno))
        return trace

    law.compiler.cache_clear()  # its threads take the tracer with them when they start
    threading.settrace(trace)
    sys.settrace(trace)
    is_constraint = False
    try:
        with suppress(Exception):
            is_constraint = law.check(kind, text)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type] # as sys.settrace
    return frozenset((*line, is_constraint) for line in reached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("kind", choices=law.KINDS)
    parser.add_argument("--new", type=Path, required=True, help="a folder of more texts")
    arguments = parser.parse_args()
    folder = CORPUS / arguments.kind
    texts = {path.read_bytes() for where in (folder, arguments.new) for path in where.iterdir()}
    reached = {}
    for text in sorted(texts, key=lambda text: (len(text), text)):
        if len(text) <= LONGEST:
            reached[text] = lines_of(arguments.kind, text.decode(errors="replace"))
    chosen: list[bytes] = []
    known: frozenset[tuple[str, int, bool]] = frozenset()
    while len(chosen) < MOST:
        best = max(reached, key=lambda text: len(reached[text] - known))  # the shortest of those that add the most
        if reached[best] <= known:
            break
        chosen.append(best)
        known |= reached[best]
    for path in folder.iterdir():
        path.unlink()
    for text in chosen:
        (folder / sha1(text).hexdigest()[:12]).write_bytes(text)
    print(f"{arguments.kind}: {len(chosen)} of {len(texts)} texts reach {len(known)} lines")


if __name__ == "__main__":
    main()
