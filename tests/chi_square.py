"""Whether samples may well be of a distribution, by Pearson's test."""

from __future__ import annotations

from collections import Counter

import torch

NEVER_BY_CHANCE = 1e-6
"""A p-value that the same seeds do not fall below in any of a few hundred tests, unless something is wrong."""


def tail_of_chi_square(x: float, freedom: int) -> float:
    """The probability of x or more: the regularized upper incomplete gamma function."""
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), torch.tensor(x / 2.0).double()))


def p_value(seen: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """How likely counts so far from the expected are, or farther; 0 if something came that cannot."""
    total = sum(seen.values())
    possible = {outcome: total * share for outcome, share in expected.items() if share > 0}
    if set(seen) - set(possible):
        return 0.0
    assert min(possible.values()) >= 5, "too few samples for chi-square"
    if len(possible) == 1:
        return 1.0
    statistic = sum((seen[outcome] - count) ** 2 / count for outcome, count in possible.items())
    return tail_of_chi_square(statistic, len(possible) - 1)
