"""Pearson's chi-square test, without a library for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

NEVER_BY_CHANCE = 1e-6


def tail_of_chi_square(x: float, freedom: int) -> float:
    """The probability of x or more: the regularized upper incomplete gamma function."""
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), torch.tensor(x / 2.0).double()))


def p_value(seen: Mapping[Any, int], expected: Mapping[Any, float]) -> float:
    """How likely counts so far from the expected are, or farther; 0 if something came that cannot."""
    total = sum(seen.values())
    possible = {outcome: total * share for outcome, share in expected.items() if share > 0}
    if set(seen) - set(possible):
        return 0.0
    assert min(possible.values()) >= 5, "too few samples for chi-square"
    if len(possible) == 1:
        return 1.0
    statistic = sum((seen.get(outcome, 0) - count) ** 2 / count for outcome, count in possible.items())
    return tail_of_chi_square(statistic, len(possible) - 1)
