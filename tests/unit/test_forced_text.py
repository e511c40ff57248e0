"""Forced text ends at the boundary of a character."""

from __future__ import annotations

import codecs

import pytest

from hf_guided.hf.decode.forced_text import _whole_characters

TEXTS = ["a", "é", "€", "😀", "aé€😀", "😀€éa", "é😀", "ßẞ𝕊", "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff"]


@pytest.mark.parametrize("text", TEXTS)
def test_incomplete_character_is_removed(text: str) -> None:
    data = text.encode()
    for end in range(len(data) + 1):
        decoder = codecs.getincrementaldecoder("utf-8")()
        assert _whole_characters(data[:end]) == decoder.decode(data[:end]).encode()


@pytest.mark.parametrize("text", TEXTS)
def test_rest_of_an_earlier_character_is_kept(text: str) -> None:
    """The last token of the row may end inside a character."""
    rest = "😀".encode()[1:]
    for skipped in range(len(rest)):
        for end in range(len(text.encode()) + 1):
            data = text.encode()[:end]
            complete = codecs.getincrementaldecoder("utf-8")().decode(data).encode()
            assert _whole_characters(rest[skipped:] + data) == rest[skipped:] + complete
