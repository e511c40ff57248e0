"""JSON text brought into the layout of ``json.dumps`` while it is being written."""

from __future__ import annotations

_SPACE = b" \t\n\r"
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_SEPARATORS = b",:"


class CanonicalLayout:
    """Takes the beginning of a JSON text piece by piece, and gives it back with white space as ``json.dumps`` has it.

    White space inside strings is text and stays. The space behind a comma or a colon is written when something comes
    behind them, white space or not: until then the text may still turn out to be canonical as it is.
    """

    __slots__ = ("_escaped", "_in_string", "_owes_space")

    def __init__(self) -> None:
        self._in_string = False
        self._escaped = False
        self._owes_space = False

    def feed(self, data: bytes) -> bytes:
        """The next bytes of the text, laid out; they may break anywhere, inside a character too."""
        out = bytearray()
        for byte in data:
            if self._in_string:
                out.append(byte)
                if self._escaped:
                    self._escaped = False
                elif byte == _BACKSLASH:
                    self._escaped = True
                elif byte == _QUOTE:
                    self._in_string = False
                continue
            if self._owes_space:
                out += b" "
                self._owes_space = False
            if byte in _SPACE:
                continue
            out.append(byte)
            self._in_string = byte == _QUOTE
            self._owes_space = byte in _SEPARATORS
        return bytes(out)
