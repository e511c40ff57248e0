"""The text of tokens on a trace page: all of it is visible."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.trace.page import shown


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain text", "plain text"),
        (b"a\nb\tc", "a↵b⇥c"),
        (b"\x00\x1b\x7f", "␀␛␡"),
        (b"\xf0\x9f", "⟨F0 9F⟩"),
        (b"\x98\x80!", "⟨98 80⟩!"),
        ("\u202eabc\u200b".encode(), "⟨U+202E⟩abc⟨U+200B⟩"),
        ("\u0301".encode(), "◌\u0301"),
        ("e\u0301".encode(), "e\u0301"),
        ("שלום 東京 😀".encode(), "שלום 東京 😀"),
        (b"</script>", "</script>"),
    ],
)
def test_every_character_is_visible(data: bytes, text: str) -> None:
    assert shown(data) == text


@given(st.binary(max_size=12))
def test_any_bytes_become_visible_text(data: bytes) -> None:
    text = shown(data)
    assert all(unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)
    assert bool(text) == bool(data)
    text.encode()  # no surrogates are left
