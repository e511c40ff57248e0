"""Tokens as a person reads them: every character can be seen, and none does anything."""

from __future__ import annotations

import unicodedata

_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"}


def shown(data: bytes) -> str:
    r"""Bytes as text in which everything can be seen; spaces stay as they are.

    Control characters become their pictures (``\n`` becomes ``↵``), other invisible ones, such as those that turn the
    direction of writing, their numbers. Bytes that are no whole character, because a token ends in its middle, are
    written as such: ``⟨F0 9F⟩``. A mark that wants a letter gets a circle to stand on.
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
