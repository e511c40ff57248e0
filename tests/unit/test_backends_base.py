"""The matcher above every engine."""

from __future__ import annotations

import pytest

from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests.toy import SetEngine, compiled_set, letters


def test_an_engine_that_allows_everything_gets_no_special_token_and_no_padding_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary = letters("ab", stop=2, padded_size=70)  # 9 tokens, and words of padding behind them
    monkeypatch.setattr(SetEngine, "fill", lambda self, bitmask, row: bitmask[row].fill_(-1))
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    matcher = compiled_set(vocabulary, "ab").matcher()
    matcher.fill_next_token_bitmask(bitmask)
    allowed = unpack(bitmask, 96)[0].nonzero().flatten().tolist()
    assert allowed == [i for i in range(96) if vocabulary.is_text(i)]
