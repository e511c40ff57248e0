"""Random numbers by Philox: the known answers of its authors, and exponentials against numpy's double precision."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from hf_guided.hf.seeds import exponential, philox

# Known answers of the authors, from Random123's kat_vectors: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
EDGES = [0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 2, 2**32 - 1]


def numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(counter: str, key: str, expected: str) -> None:
    parts = [torch.tensor([word]) for word in numbers(counter) + numbers(key)]
    words = philox(tuple(parts[:4]), tuple(parts[4:]))  # type: ignore[arg-type]
    assert [int(word) for word in words] == numbers(expected)


def test_exponentials_are_accurate_positive_and_finite() -> None:
    random = Random(0)
    pairs = [(high, low) for high in EDGES for low in EDGES]
    pairs += [(random.getrandbits(random.randint(1, 32)), random.getrandbits(32)) for _ in range(2000)]
    # -log(1 - u) without a subtraction that loses bits: near 1, it uses the distance of u from 1.
    exact = []
    for high, low in pairs:
        bits = (high << 32 | low) * 2 + 1  # of 2^65
        exact.append(-np.log1p(-bits / 2**65) if bits < 2**64 else -np.log((2**65 - bits) / 2**65))
    values = exponential(torch.tensor([high for high, _ in pairs]), torch.tensor([low for _, low in pairs])).numpy()
    assert (values > 0).all()
    assert np.isfinite(values).all()
    # Above 22.87 all values are 22.87, because bits below 2^-32 are ignored; such a token is not drawn anyway.
    checked = np.array([high < 2**32 - 2**12 for high, _ in pairs])
    np.testing.assert_allclose(values[checked], np.array(exact)[checked], rtol=1e-6)
    assert (values[~checked] > 13).all()
