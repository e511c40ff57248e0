"""How often a test repeats itself: a few times in the default run, many times in ``make test-all``.

Most errors that seeds, random examples and samples can find are found by the first few of them; rare ones need more.
"""

from __future__ import annotations

everything = False
"""Whether slow tests run too; conftest.py sets it before any test is imported."""


def repeats(default: int, thorough: int) -> int:
    """The first number in the default run, the second one where slow tests run too."""
    assert default <= thorough
    return thorough if everything else default
