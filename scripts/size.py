"""Prints how many lines and files each room of hf_guided has, beside the lines it should have.

    python -m scripts.size

The rooms are those of docs/map.md, by their folders. A room that is larger than its target needs a reason in REASONS,
which states the lines that it may have.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "hf_guided"
LOOSE = "guide, options, errors"  # the files outside of folders

TARGETS = {
    "cli": 1820,
    "serve": 5200,
    "integrations": 2450,
    "checkpoints": 390,
    "generation": 4900,
    "demo": 530,
    LOOSE: 1300,
    "hf": 4000,
    "session": 3600,
    "trace": 500,
    "backends": 3500,
    "schema": 5600,
    "grammars": 1450,
    "automaton": 5500,
    "vocabulary": 860,
    "constraints": 5100,
    "regex": 1800,
}
"""Lines of Python of each room; together at most MOST_LINES."""
MOST_LINES = 48_500


class Reason(NamedTuple):
    """Why a room is larger than its target, and the lines that it may have."""

    allowed: int
    why: str


REASONS = {
    "cli": Reason(
        2350, "the batch command: four formats, URLs, shards with locks, parts that continue; exit codes in each help"
    ),
    "serve": Reason(5900, "routes, three kinds of bodies and histories, limits against attacks, two engines"),
    "integrations": Reason(2900, "nine frameworks; most of it is methods that these require"),
    "checkpoints": Reason(500, "the location of a checkpoint is a file of its own: the Hub, folders, pinned commits"),
    "generation": Reason(
        6050, "streams, values of unfinished text, scores, weighted samples, pipelines, threads beside the plain call"
    ),
    "demo": Reason(600, "the words and templates of the examples that the demo model was trained on"),
    "hf": Reason(4650, "the fast loop and its block rule know many kinds of models, caches and drafts; parts of calls"),
    "session": Reason(4400, "contracts: of threads, streams, and who owns a row when; what limits and formats left"),
    "trace": Reason(700, "the recorder, the events and the page are files of their own"),
    "backends": Reason(4200, "adapters of five engines; schemas and tags become networks; lenient schemas"),
    "schema": Reason(6100, "each keyword is exact in the network, and in the grammar for engines by name"),
    "grammars": Reason(1700, "left recursion is removed, and rules become loops, without copies"),
    "automaton": Reason(5900, "networks, their exits, and one face for each compiled loop"),
    "constraints": Reason(7000, "tool notations, answers beside them, chat families, and Pydantic's types, exact"),
    "regex": Reason(2100, "dialects, verbose mode, assertions and Unicode classes are passes of their own"),
    LOOSE: Reason(1350, "Guide, the tree of errors, warnings, limits and environment variables"),
}


class Size(NamedTuple):
    """What a room has."""

    lines: int
    files: int


def sizes() -> dict[str, Size]:
    """The size of every room of hf_guided."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        folder, *rest = file.relative_to(PACKAGE).parts
        room = folder if rest else LOOSE
        lines[room] += len(file.read_text(encoding="utf-8").splitlines())
        files[room] += 1
    return {room: Size(lines[room], files[room]) for room in lines}


def problems(found: dict[str, Size], reasons: dict[str, Reason]) -> list[str]:
    """The rooms that are larger than their targets without a reason, or larger than their reasons allow."""
    said = []
    for room, size in found.items():
        if room not in TARGETS:
            said.append(f"{room} has no target in scripts/size.py")
        elif size.lines > TARGETS[room] and room not in reasons:
            said.append(f"{room} has {size.lines} lines, at most {TARGETS[room]} wanted, and no reason")
        elif size.lines > TARGETS[room] and size.lines > reasons[room].allowed:
            said.append(f"{room} has {size.lines} lines, its reason allows {reasons[room].allowed}")
    return said


def main() -> None:
    found = sizes()
    print(f"{'room':24}{'files':>6}{'lines':>8}{'target':>8}{'over':>7}  why")
    for room, target in TARGETS.items():
        lines, files = found[room]
        why = f"{REASONS[room].why} (at most {REASONS[room].allowed})" if lines > target and room in REASONS else ""
        print(f"{room:24}{files:6}{lines:8}{target:8}{lines - target:+7}  {why}")
    total = found.values()
    print(f"{'all':24}{sum(one.files for one in total):6}{sum(one.lines for one in total):8}{MOST_LINES:8}")
    print("\n".join(problems(found, REASONS)))


if __name__ == "__main__":
    main()
