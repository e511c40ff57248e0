"""TokenListener, and the streamer that calls it in transformers' loops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from hf_guided.hf.listening import RowStreamer, TokenListener


class Listener(TokenListener):
    def __init__(self) -> None:
        self.tokens: list[tuple[int, list[int]]] = []

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> bool | None:
        self.tokens.append((row, list(token_ids)))
        return None


def test_a_streamer_reports_each_row_until_its_stop_token() -> None:
    listener = Listener()
    streamer = RowStreamer(listener, [0])
    for value in torch.tensor([[7], [7]]), torch.tensor([1, 0]), torch.tensor([2, 3]):
        streamer.put(value)
    assert listener.tokens == [(0, [1]), (1, [0]), (0, [2])]


def test_a_listener_ends_a_row() -> None:
    class Ends(Listener):
        def on_tokens(self, row: int, token_ids: Sequence[int]) -> bool:
            super().on_tokens(row, token_ids)
            return row == 0 and token_ids[-1] == 2

    listener = Ends()
    streamer = RowStreamer(listener, [0])
    for value in torch.tensor([[7], [7]]), torch.tensor([1, 1]), torch.tensor([2, 2]), torch.tensor([3, 3]):
        streamer.put(value)
    assert listener.tokens == [(0, [1]), (1, [1]), (0, [2]), (1, [2]), (1, [3])]


def test_a_listener_without_on_tokens_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        type("Neither", (TokenListener,), {})()
