"""TokenListener: the interface and its old names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from hf_guided.hf.decode.streamers import RowStreamer, TokenListener
from hf_guided.hf.listening import RowListener


class NewListener(TokenListener):
    def __init__(self) -> None:
        self.tokens: list[tuple[int, list[int]]] = []

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        self.tokens.append((row, list(token_ids)))


class OldListener(RowListener):  # type: ignore[misc]  # ``hear`` implements ``on_tokens``
    def __init__(self) -> None:
        self.tokens: list[tuple[int, list[int]]] = []

    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        self.tokens.append((row, list(token_ids)))


class OldListenerSubclass(OldListener):
    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        super().hear(row + 10, token_ids)


def test_streamer_calls_the_new_and_the_old_method() -> None:
    received = []
    for listener in NewListener(), OldListener():  # type: ignore[abstract]
        streamer = RowStreamer(listener, [0])
        for value in torch.tensor([[7], [7]]), torch.tensor([1, 0]), torch.tensor([2, 3]):
            streamer.put(value)
        received.append(listener.tokens)
    assert received == [[(0, [1]), (1, [0]), (0, [2])]] * 2


def test_a_listener_ends_a_row() -> None:
    class Ends(NewListener):
        def on_tokens(self, row: int, token_ids: Sequence[int]) -> bool:  # type: ignore[override]
            super().on_tokens(row, token_ids)
            return row == 0 and token_ids[-1] == 2

    listener = Ends()
    streamer = RowStreamer(listener, [0])
    for value in torch.tensor([[7], [7]]), torch.tensor([1, 1]), torch.tensor([2, 2]), torch.tensor([3, 3]):
        streamer.put(value)
    assert listener.tokens == [(0, [1]), (1, [1]), (0, [2]), (1, [2]), (1, [3])]


def test_subclass_of_an_old_listener_overrides_hear() -> None:
    listener = OldListenerSubclass()  # type: ignore[abstract]
    listener.on_tokens(1, [5])
    assert listener.tokens == [(11, [5])]


def test_old_name_is_an_alias() -> None:
    assert RowListener is TokenListener
    with pytest.raises(TypeError):
        type("Neither", (TokenListener,), {})()
