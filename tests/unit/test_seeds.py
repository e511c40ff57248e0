"""Seeds: valid values, one seed per prompt, and their representation as int64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hf_guided.errors import InvalidArgument
from hf_guided.hf.seeds import as_int64, prompt_seeds, row_seed


def test_single_seed_gives_every_prompt_a_different_seed() -> None:
    seeds = prompt_seeds(7, 1000)
    assert seeds is not None
    assert len(set(seeds)) == 1000
    assert prompt_seeds(7, 3) == seeds[:3], "the seeds depend on the number of prompts"
    assert not set(seeds).intersection(prompt_seeds(8, 1000) or ())
    drawn = np.array(seeds, dtype=np.int64)  # raises if a seed has more bits
    assert abs((drawn < 0).mean() - 0.5) < 0.1, "the seeds do not use all 64 bits"


def test_row_seed_distinguishes_the_parts_of_an_index() -> None:
    assert len({row_seed(1, 11), row_seed(11, 1), row_seed(1, 1, 1), row_seed(111), row_seed(1, 1)}) == 5


def test_list_of_seeds_is_not_changed() -> None:
    assert prompt_seeds([5, -1], 2) == [5, -1]
    assert prompt_seeds((), 0) == []
    assert prompt_seeds(None, 2) is None


@pytest.mark.parametrize("seed", [[5], [5, 6, 7], "56", True, [True, 5], [5, None], 1.5, [1.5, 2.5], {5, 6}])
def test_invalid_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidArgument, match="one for each of 2 prompts"):
        prompt_seeds(seed, 2)


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
def test_as_int64_equals_numpy(seed: int) -> None:
    assert as_int64(seed) == int(np.array(seed % 2**64, dtype=np.uint64).view(np.int64))


@pytest.mark.parametrize("seed", [-(2**63) - 1, 2**64, 2**64 + 2**62, True, 1.0, "1", None])
def test_seeds_outside_64_bits_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidArgument, match="ints of 64 bits"):
        as_int64(seed)
