"""Mutants that no test can notice, or that no test of the default run should: each with the reason."""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """A mutant that may survive.

    Args:
        file: under hf_guided/.
        old: the line that changes.
        new: what it becomes.
        why: what makes the mutant equivalent, or where the difference is tested.
    """

    file: str
    old: str
    new: str
    why: str


EXPLAINED: list[Explained] = []
