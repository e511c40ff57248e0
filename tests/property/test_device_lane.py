"""The device lane in torch agrees with the host lane's matchers: states, masks and outputs are equal bit for bit."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.hf.device.reference import step_
from tests import lanes
from tests.effort import repeats


@settings(max_examples=repeats(40, 400))
@given(st.integers(0, 2**32))
def test_device_lane_agrees_with_the_host_lane(seed):
    random = Random(seed)
    batch = lanes.random_batch(random, most_rows=20)
    assume(batch is not None)
    lanes.run(random, batch, step_, 6)


@pytest.mark.parametrize("rows", [0, 1, 64, 257])
def test_lanes_agree_for_many_rows(rows):
    random = Random(rows)
    vocabulary = lanes.random_vocabulary(random, 500, padding=12)
    languages = [lanes.random_language(random, vocabulary, 12) for _ in range(2)]
    batch = lanes.Batch.of(vocabulary, languages, rows, 40)
    for row in range(rows):
        if row % 5:
            lanes.begin_anew(random, batch, row)
    lanes.run(random, batch, step_, 3)


@pytest.mark.parametrize(
    "width",
    [pytest.param(width, marks=[pytest.mark.slow] * (width % 8 != 1)) for width in range(32_001, 32_033)] + [262_208],
)
def test_lanes_agree_for_large_vocabularies(width):
    random = Random(width)
    vocabulary = lanes.random_vocabulary(random, width - 17, padding=17, stops=2)
    language = lanes.random_language(random, vocabulary, 20)
    batch = lanes.Batch.of(vocabulary, [language], 3, 8, wide=width % 2 == 0)
    for row in range(2):
        lanes.begin_anew(random, batch, row)
    lanes.run(random, batch, step_, 2)
