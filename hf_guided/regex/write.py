r"""A language as text: a plain pattern that all engines read equally, or a terminal of llguidance's Lark.

Engines disagree on ``.``, ``\d``, ``(?i)``, ``&&`` in a class, so there is nothing in a plain pattern but literals,
classes of explicit ranges, ``(?:...)``, ``|`` and counted repetition.
"""

from __future__ import annotations

from .ast import ANYTHING, Alt, And, Chars, Concat, Empty, Node, Not, Nothing, Repeat, UnsupportedRegex, is_plain
from .charset import CharSet, tree_cache


def to_pattern(node: Node) -> str:
    """The plain pattern of ``node``; UnsupportedRegex where it has an And, a Not, or no string at all."""
    if isinstance(node, Nothing):
        raise UnsupportedRegex("the pattern matches nothing")
    if not is_plain(node):
        raise UnsupportedRegex("look-ahead and look-behind cannot be written as a plain pattern")
    return _pattern(node)


def to_lark(node: Node) -> str:
    """The right-hand side of a terminal in llguidance's Lark, in few regular expressions; UnsupportedRegex if empty."""
    if isinstance(node, Nothing):
        raise UnsupportedRegex("the pattern matches nothing")
    return _lark(node)


def _lark(node: Node) -> str:
    if is_plain(node):
        return f"/{_pattern(node) or '(?:)'}/"
    if isinstance(node, Concat):
        parts = _gathered(node)
        # An intersection between two characters is written around the characters.
        is_quoted = len(parts) == 3 and isinstance(parts[1], (And, Not)) and {type(parts[0]), type(parts[2])} == {Chars}
        return _around(*parts) if is_quoted else f"({' '.join(map(_lark, parts))})"
    if isinstance(node, Alt):
        return f"({' | '.join(map(_lark, _gathered(node)))})"
    if isinstance(node, Repeat):
        return f"({_lark(node.body)}){times(node.low, node.high)}"
    return f"({' & '.join(map(_operand, _operands(node)))})"


def _operands(node: Node) -> tuple[Node, ...]:
    """The parts of an intersection; one at least is no complement: that of bytes would accept invalid UTF-8."""
    parts = node.parts if isinstance(node, And) else (node,)
    return (ANYTHING, *parts) if all(isinstance(part, Not) for part in parts) else parts


def _operand(node: Node) -> str:
    return f"~({_lark(node.body)})" if isinstance(node, Not) else _lark(node)


def _around(first: Node, inside: Node, last: Node) -> str:
    """An intersection of quoted texts, instead of a quoted intersection.

    The library computes most of a mask in advance where it sees what a terminal may hold, and it looks into
    intersections only from outside: masks inside a name take a tenth of the time.
    """
    quoted = [
        Not(Concat((first, part.body, last))) if isinstance(part, Not) else Concat((first, part, last))
        for part in _operands(inside)
    ]
    return f"({' & '.join(map(_operand, quoted))})"


def _gathered(node: Concat | Alt) -> list[Node]:
    kind, parts = (Concat, node.parts) if isinstance(node, Concat) else (Alt, node.parts)
    gathered: list[list[Node]] = []
    for part in parts:
        if gathered and is_plain(part) and is_plain(gathered[-1][0]):
            gathered[-1].append(part)
        else:
            gathered.append([part])
    return [run[0] if len(run) == 1 else kind(tuple(run)) for run in gathered]


@tree_cache(maxsize=4096)
def _pattern(node: Node) -> str:
    if isinstance(node, Chars):
        return _class(node.charset)
    if isinstance(node, Concat):
        return "".join(f"(?:{_pattern(part)})" if isinstance(part, Alt) else _pattern(part) for part in node.parts)
    if isinstance(node, Alt):
        return "|".join(map(_pattern, node.parts))
    if isinstance(node, Repeat):
        body = _pattern(node.body)
        if isinstance(node.body, Chars):
            return f"{body}{times(node.low, node.high)}"
        return f"(?:{body}){times(node.low, node.high)}"
    assert isinstance(node, Empty)
    return ""


def _class(charset: CharSet) -> str:
    if len(charset.ranges) == 1 and charset.ranges[0][0] == charset.ranges[0][1]:
        return _character(charset.ranges[0][0])
    written = (_character(a) if a == b else f"{_character(a)}-{_character(b)}" for a, b in charset.ranges)
    return f"[{''.join(written)}]"


def _character(code: int) -> str:
    character = chr(code)
    return character if code < 128 and character.isalnum() else f"\\u{{{code:x}}}"


def times(low: int, high: int | None) -> str:
    """Bounds of a repetition, as patterns and grammars write them; None is no bound."""
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    if (low, high) == (0, 1):
        return "?"
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"
