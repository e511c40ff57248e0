"""How many states llguidance has to look at before the first token: a guess, from the text of a grammar.

The library looks whether a terminal with an intersection or a complement has any text, when it reads the grammar. It
follows all parts side by side. Parts that return to a state after different numbers of characters, as ``(?:.{7})*`` and
``(?:.{11})*`` do, are together in a state again only after the product of these numbers. The library's own limit does
not end that. Nearly all other intersections have about as many states as their longest part.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_STATES = 5_000
"""Of repetitions side by side: a tenth of a second."""

_MOST = 10**9  # Python's integers have no bound
_OF_GROUPS = re.compile(r"\)\s*[*+]")  # repetitions; those of one character have one state
_COUNTED = re.compile(r"(?<!\\u)\{\d")
_PIECE = re.compile(
    r"""\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\} | (?P<open>\((?:\?[:=!])?) | (?P<close>\)) | (?P<or>\|)
      | (?P<and>[ ]&[ ]) | (?P<times>[*+?]) | \[(?:\\.|[^\]\\])*\] | \\u\{[^{}]*\} | \\. | [ /]
      | (?P<not>~) | (?P<one>.)""",
    re.VERBOSE | re.DOTALL,
)


class _Size(NamedTuple):
    """Of an expression.

    Args:
        shortest: characters of its shortest text.
        cycle: states of what it repeats without end; 0 for nothing.
        counted: characters that are counted.
    """

    shortest: int = 1
    cycle: int = 0
    counted: int = 0


class _Group:
    """A group that is being read: its finished alternatives, parts of an intersection, and items in sequence."""

    def __init__(self) -> None:
        self.alternatives: list[_Size] = []
        self.parts: list[_Size] = []
        self.items: list[_Size] = []
        self._negated = False

    def add(self, item: _Size) -> None:
        if self._negated:  # whatever it is, there is no end to what it is not
            item = item._replace(cycle=max(item.cycle, 1))
        self.items.append(item)
        self._negated = False

    def negate(self) -> None:
        self._negated = True

    def repeat(self, low: int, unbounded: bool) -> None:
        if self.items:
            shortest, cycle, counted = self.items[-1]
            if unbounded:
                cycle = max(cycle, shortest, 1)
            repeated = min(shortest * low, _MOST)
            self.items[-1] = _Size(repeated, cycle, repeated if low > 1 else counted)

    def end_part(self) -> None:
        shortest = min(sum(item.shortest for item in self.items), _MOST)
        cycle = max((item.cycle for item in self.items), default=0)
        counted = min(sum(item.counted for item in self.items), _MOST)
        # A part like `.*a.{20}` has to remember where it saw the a.
        self.parts.append(_Size(shortest, max(cycle, counted) if cycle else 0, counted))
        self.items = []

    def end_alternative(self) -> None:
        self.end_part()
        product = 1
        for part in self.parts:
            product = min(product * part.cycle, _MOST)
        if not all(part.cycle for part in self.parts):
            product = 0  # the texts of one part end, and those of the others with them
        longest = max(part.counted for part in self.parts)
        self.alternatives.append(_Size(max(part.shortest for part in self.parts), product, longest))
        self.parts = []

    def size(self) -> _Size:
        self.end_alternative()
        shortest, cycles, counted = zip(*self.alternatives, strict=True)
        return _Size(min(shortest), max(cycles), max(counted))


def lexer_cost(grammar: str) -> int:
    """The states of repetitions side by side in one terminal, at most, about.

    Args:
        grammar: Lark, as llguidance reads it; what is no grammar gives some number.
    """
    cost = 1
    for line in grammar.splitlines():
        if " & " in line:
            cost = max(cost, _line_cost(line.partition(":")[2]))
    return cost


def _line_cost(expression: str) -> int:
    if len(expression) < MOST_STATES and len(_OF_GROUPS.findall(expression)) < 2 and not _COUNTED.search(expression):
        return 1  # at most one repetition has more than one state: not worth reading the line
    groups = [_Group()]
    for piece in _PIECE.finditer(expression):
        group = groups[-1]
        if piece["open"]:
            groups.append(_Group())
        elif piece["close"]:
            if len(groups) > 1:
                groups.pop()
                groups[-1].add(group.size())
        elif piece["or"]:
            group.end_alternative()
        elif piece["and"]:
            group.end_part()
        elif piece["not"]:
            group.negate()
        elif piece["low"]:
            group.repeat(int(piece["low"]), bool(piece["comma"]) and not piece["high"])
        elif piece["times"]:
            group.repeat(1 if piece["times"] == "+" else 0, piece["times"] != "?")
        elif piece["one"] or piece[0][0] in "[\\":
            group.add(_Size())
    while len(groups) > 1:
        group = groups.pop()
        groups[-1].add(group.size())
    return groups[0].size().cycle
