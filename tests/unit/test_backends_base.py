"""The matcher, which wraps every engine."""

from __future__ import annotations

import pytest

from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests.toy import SetEngine, compiled_set, letters


def test_matcher_removes_special_tokens_and_padding_from_the_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = letters("ab", stop=2, padded_size=70)  # 9 tokens, followed by words of padding
    monkeypatch.setattr(SetEngine, "fill", lambda self, bitmask, row: bitmask[row].fill_(-1))
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    matcher = compiled_set(vocabulary, "ab").matcher()
    matcher.fill_next_token_bitmask(bitmask)
    allowed = unpack(bitmask, 96)[0].nonzero().flatten().tolist()
    assert allowed == [i for i in range(96) if vocabulary.is_text(i)]
