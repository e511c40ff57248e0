"""The white space of a JSON text during generation: removed, so that a compact grammar can follow, and put back.

White space inside strings is text. All other white space is a gap between two marks: brackets, commas, colons, values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_SPACE = b" \t\n\r"
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPENING, _CLOSING = b"{[", b"}]"
_SEPARATORS = (_COMMA, _COLON)


@dataclass
class _Strings:
    """Whether the text is inside a string."""

    inside: bool = False
    escaped: bool = False

    def take(self, byte: int) -> bool:
        """Take a byte; returns whether it belongs to a string, the opening quote not included."""
        if not self.inside:
            self.inside = byte == _QUOTE
            return False
        if self.escaped:
            self.escaped = False
        elif byte == _BACKSLASH:
            self.escaped = True
        elif byte == _QUOTE:
            self.inside = False
        return True


@dataclass
class _Gaps:
    """The widths of the gaps: at first those of ``json.dumps``, then those seen last.

    Args:
        before: by the mark after the gap.
        after: by the mark before it.
        indent: for the members of objects and arrays, by opening bracket: the indentation of one level, if each
            member stands on a line of its own.
    """

    before: dict[int, bytes] = field(default_factory=dict)
    after: dict[int, bytes] = field(default_factory=lambda: dict.fromkeys(_SEPARATORS, b" "))
    indent: dict[int, bytes] = field(default_factory=dict)

    def learn(self, last: int, space: bytes, mark: int, brackets: list[int]) -> None:
        """Learn white space that was seen between two marks, inside these brackets."""
        if mark in _SEPARATORS:
            self.before[mark] = space
        elif last == _COLON:
            self.after[last] = space
        elif brackets and (last == _COMMA or (last in _OPENING and mark not in _CLOSING)):
            if space.startswith(b"\n"):
                self.indent[brackets[-1]] = space[1 : 1 + len(space[1:]) // len(brackets)]
            else:
                self.indent.pop(brackets[-1], None)
                self.after[last] = space

    def between(self, last: int, mark: int | None, brackets: list[int]) -> bytes:
        """The white space to write between two marks; None is a mark that is not known yet."""
        if last == _COLON:
            return self.after[last]
        if mark is None:
            return self._inner(brackets, last) if last == _COMMA else b""
        if mark in _SEPARATORS:
            return self.before.get(mark, b"")
        if mark in _CLOSING:
            return b"" if last in _OPENING else self._inner(brackets, None)
        return self._inner(brackets, last) if last == _COMMA or last in _OPENING else b""

    def _inner(self, brackets: list[int], last: int | None) -> bytes:
        """The gap before a member, after ``last``; or after the last member."""
        indent = self.indent.get(brackets[-1])
        if indent is not None:
            return b"\n" + indent * (len(brackets) - (last is None))
        return self.after.get(brackets[-1] if last is None else last, b"")


class Layout:
    """Takes a JSON text piece by piece, returns it in the layout of ``json.dumps``, and learns its own layout."""

    def __init__(self) -> None:
        self._strings = _Strings()
        self._brackets: list[int] = []  # the open ones
        self._last = 0  # the last mark, or byte of a value
        self._space = b""  # after it
        self._gaps = _Gaps()

    def take(self, data: bytes) -> bytes:
        """The next bytes of the text in the other layout; they may break anywhere, also inside a character.

        The space after a comma or a colon is returned together with the next byte: until then the text may still turn
        out to have the layout of ``json.dumps``.
        """
        out = bytearray()
        for byte in data:
            if self._strings.take(byte):
                out.append(byte)
                self._last, self._space = byte if not self._strings.inside else 0, b""
                continue
            if self._last in _SEPARATORS and not self._space:
                out += b" "
            if byte in _SPACE:
                self._space += bytes([byte])
                continue
            out.append(byte)
            self._gaps.learn(self._last, self._space, byte, self._brackets)
            _step(self._brackets, byte)
            self._last, self._space = byte, b""
        return bytes(out)

    def write(self, data: bytes) -> bytes:
        """The next text in the layout of ``json.dumps``, converted to this text's own layout."""
        out = bytearray()
        strings = _Strings(self._strings.inside, self._strings.escaped)
        brackets, last = list(self._brackets), self._last
        begun: bytes | None = self._space  # the part of the gap after ``last`` that is written; None: all of it
        for byte in data:
            if strings.take(byte):
                out.append(byte)
                last = byte if not strings.inside else 0
                continue
            mark = None if byte in _SPACE else byte
            if begun is not None:
                gap = self._gaps.between(last, mark, brackets)
                out += gap[len(begun) :] if gap.startswith(begun) else b""
            if mark is None:
                begun = None
            else:
                _step(brackets, byte)
                out.append(byte)
                last, begun = byte, b""
        return bytes(out)


def _step(brackets: list[int], byte: int) -> None:
    if byte in _OPENING:
        brackets.append(byte)
    elif byte in _CLOSING and brackets:
        brackets.pop()
