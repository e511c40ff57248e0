"""If the model is certain of every token, every acceptance rule gives the same result as decoding token by token."""

from __future__ import annotations

from random import Random

import pytest
import torch

from hf_guided.hf.drafts.verify import Accepted, accept_greedy, accept_sampling, accept_seeded

VOCAB = 7


@pytest.mark.parametrize("seed", range(40))
def test_certain_model_decides_every_position(seed: int) -> None:
    """The drafts have different lengths and are right up to some token. Their sources may give probabilities."""
    random = Random(seed)
    drafts, certain, expected = [], [], []
    for _ in range(random.randint(1, 5)):
        tokens = [random.randrange(VOCAB) for _ in range(random.randint(1, 5))]  # the tokens that the model writes
        draft = tokens[:-1]
        num_right = random.randint(0, len(draft))
        draft[num_right:] = [(token_id + random.randint(1, VOCAB - 1)) % VOCAB for token_id in draft[num_right:]]
        drafts.append(draft)
        certain += tokens
        expected.append(Accepted(num_right, tokens[num_right]))
    scores = torch.full((len(certain), VOCAB), -torch.inf)
    scores[range(len(certain)), certain] = torch.randn(len(certain))
    probabilities = [None if random.random() < 0.5 else torch.full((len(draft), VOCAB), 1 / VOCAB) for draft in drafts]
    positions = torch.arange(len(certain))
    assert accept_greedy(scores, drafts) == expected
    assert accept_sampling(scores, drafts, probabilities) == expected
    assert accept_sampling(scores, drafts) == expected
    assert accept_seeded(scores, drafts, positions * 0 + seed, positions) == expected
