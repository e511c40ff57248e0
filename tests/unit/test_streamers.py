"""Listeners: the interface, and its old names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from hf_guided.hf.decode.streamers import RowStreamer, TokenListener
from hf_guided.hf.listening import RowListener


class New(TokenListener):
    def __init__(self) -> None:
        self.tokens: list[tuple[int, list[int]]] = []

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        self.tokens.append((row, list(token_ids)))


class Old(RowListener):  # type: ignore[misc]  # ``hear`` stands for ``on_tokens``
    def __init__(self) -> None:
        self.tokens: list[tuple[int, list[int]]] = []

    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        self.tokens.append((row, list(token_ids)))


class OfOld(Old):
    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        super().hear(row + 10, token_ids)


def test_a_streamer_passes_tokens_to_listeners_of_both_names() -> None:
    received = []
    for listener in New(), Old():  # type: ignore[abstract]
        streamer = RowStreamer(listener, [0])
        for value in torch.tensor([[7], [7]]), torch.tensor([1, 0]), torch.tensor([2, 3]):
            streamer.put(value)
        received.append(listener.tokens)
    assert received == [[(0, [1]), (1, [0]), (0, [2])]] * 2


def test_a_subclass_of_an_old_listener_overrides_its_method() -> None:
    listener = OfOld()  # type: ignore[abstract]
    listener.on_tokens(1, [5])
    assert listener.tokens == [(11, [5])]


def test_the_old_name_is_the_same_class() -> None:
    assert RowListener is TokenListener
    with pytest.raises(TypeError):
        type("Neither", (TokenListener,), {})()
