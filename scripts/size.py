"""Prints how many lines and files each room of hf_guided has, beside the lines it should have.

    python -m scripts.size

The rooms are those of docs/map.md, by their folders. A room that is larger than its target needs a reason in REASONS,
which states the lines that it may have for now.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "hf_guided"
LOOSE = "guide, options, errors"  # the files outside of folders

TARGETS = {
    "cli": 1650,
    "serve": 5200,
    "integrations": 2450,
    "checkpoints": 560,
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
        2869, "nearly half is the batch command: its tables, parts, places and Arrow files are separate layers"
    ),
    "serve": Reason(5874, "bodies of requests, jobs, engines and answers each have their own records of one request"),
    "integrations": Reason(3131, "twenty files for nine frameworks; data sets, TRL and Gradio take several files each"),
    "checkpoints": Reason(595, "the loader, the location and the arguments of a checkpoint are separate files"),
    "generation": Reason(5716, "not yet shortened: options, plan, runs, streams and results are separate layers"),
    "demo": Reason(
        557, "it holds words and templates of the demo model's examples, which the trained model depends on"
    ),
    LOOSE: Reason(
        1434, "not yet shortened: limits and environment variables, the tree of errors, and Guide with its examples"
    ),
    "hf": Reason(
        4504, "not yet shortened: the fast loop, its block rule and its cache slots know many kinds of models"
    ),
    "session": Reason(
        4438, "not yet shortened: the worker thread, the tables of masks and the rows are separate layers"
    ),
    "trace": Reason(613, "the recorder, the events and the page are separate files with types of their own"),
    "backends": Reason(
        4059, "not yet shortened: schemas and tags have writers here, beside the adapters of five engines"
    ),
    "schema": Reason(6406, "not yet shortened: the writer of networks and the readers of keywords"),
    "grammars": Reason(1583, "not yet shortened: rules are read into pieces, and pieces into components"),
    "automaton": Reason(
        5719, "not yet shortened: networks, their exits and masks, and the faces of the compiled loops"
    ),
    "vocabulary": Reason(864, "four lines more than wanted, in files that are not yet shortened"),
    "constraints": Reason(
        6608, "not yet shortened: tool formats, chat families, Python types and plain forms of constraints"
    ),
    "regex": Reason(1927, "not yet shortened: syntax trees, dialects and assertions are separate passes"),
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
