"""Readable labels of tokens: every character is visible, and none has an effect."""

from __future__ import annotations

import unicodedata

_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"}


def shown(data: bytes) -> str:
    r"""Bytes as text in which everything is visible; spaces stay as they are.

    Control characters become their pictures (``\n`` becomes ``↵``), other invisible characters, such as those that
    change the direction of writing, become their numbers. Incomplete characters, because a token ends in the middle of
    one, become their bytes: ``⟨F0 9F⟩``. A combining mark without a letter is put on a circle.
    """
    parts: list[str] = []
    loose: list[str] = []  # bytes without a character
    for character in data.decode("utf-8", "surrogateescape"):
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            loose.append(f"{code - 0xDC00:02X}")
            continue
        if loose:
            parts.append(f"⟨{' '.join(loose)}⟩")
            loose = []
        parts.append(_character(character, first=not parts))
    if loose:
        parts.append(f"⟨{' '.join(loose)}⟩")
    return "".join(parts)


def _character(character: str, *, first: bool) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character == " ":
        return character
    if character in "\n\t":
        return {"\n": "↵", "\t": "⇥"}[character]
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if category in _INVISIBLE:
        return f"⟨U+{code:04X}⟩"
    return f"◌{character}" if first and category in ("Mn", "Me") else character
