"""How many bytes are enough for a value, without its automaton: what a token limit has to leave for it.

Never fewer than the shortest text of the value has. Where only the automaton tells, the answer is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from ..constraints.json_style import JsonStyle
from ..regex import ANYTHING, AllBut, Node
from .content_automata import ContentAutomaton, Edge, Entry
from .grammar import Content
from .scalars import constant_text, listed_texts
from .shapes import Clause, NumberClause, Position, StringClause

_NEVER = 1 << 29
_DIGITS = tuple(map(Decimal, range(10)))
_FREE = 90  # characters that have one byte in a JSON string


class LeastSizes:
    """The sizes of the values at all positions of a schema.

    Args:
        contents: of the positions, children mostly after their parents.
        style: how values are written.
        marks: what no string holds.
    """

    def __init__(self, contents: dict[Position, Content], style: JsonStyle, marks: tuple[str, ...]):
        self._style, self._marks = style, marks
        is_compact = style.whitespace == "compact"
        self._comma, self._colon = (2, 2) if is_compact else (1, 1)
        self._sizes: dict[Position, int] = {}
        self._names: dict[str | Node, int] = {}
        waiting = [*reversed(contents)] if style.indent is None else []  # an indentation depends on the depth
        while waiting:
            left = [position for position in waiting if not self._find(position, contents[position])]
            if len(left) == len(waiting):
                break
            waiting = left

    def at(self, position: Position) -> int | None:
        """Bytes that are enough for a value at a position."""
        return self._sizes.get(position)

    def of_scalars(self, clauses: Iterable[Clause]) -> int | None:
        """Bytes that are enough for a value of one of these clauses."""
        sizes = [size for clause in clauses if (size := self._scalar(clause)) is not None]
        return min(sizes, default=None)

    def _find(self, position: Position, content: Content) -> bool:
        """Find the size of a position, unless it depends on what is not known yet."""
        size = _NEVER if not content.scalars else self.of_scalars(content.scalars) or _NEVER
        if content.any_array or content.any_object:
            size = min(size, 2)
        for automaton in content.automata:
            size = min(size, 2 + self._entries(automaton))
        if size < _NEVER:
            self._sizes[position] = size
        return size < _NEVER

    def _scalar(self, clause: Clause) -> int | None:
        texts = listed_texts(clause, self._style.spelling, self._marks)
        if texts is not None:
            return min((len(text.encode()) for text in texts), default=None)
        if isinstance(clause, NumberClause):
            return 1 if clause.integral is not False and any(map(clause.has, _DIGITS)) else None
        if isinstance(clause, StringClause) and clause.language == ANYTHING:
            return 2 + clause.low
        return None

    def _entries(self, automaton: ContentAutomaton) -> int:
        """Bytes that are enough between the brackets: each entry counts with a comma, and one has none."""
        costs = [0 if state in automaton.accepting else _NEVER for state in range(len(automaton.edges))]
        changed = True
        while changed:
            changed = False
            for state in reversed(range(len(costs))):  # most edges lead to later ones
                ways = [costs[target] for target in automaton.skips[state]]
                ways += [costs[edge.target] + edge.low * self._entry(edge) for edge in automaton.edges[state]]
                cost = min(ways, default=_NEVER)
                if cost < costs[state]:
                    costs[state], changed = cost, True
        return max(0, costs[0] - self._comma)

    def _entry(self, edge: Edge) -> int:
        if not edge.low:
            return 0
        return self._comma + min(map(self._named, edge.entries), default=_NEVER)

    def _named(self, entry: Entry) -> int:
        value = self._sizes.get(entry.value, _NEVER)
        if entry.name is None or value >= _NEVER:
            return value
        if entry.name not in self._names:
            self._names[entry.name] = self._name(entry.name)
        return min(_NEVER, self._names[entry.name] + self._colon + value)

    def _name(self, name: str | Node) -> int:
        if isinstance(name, str):
            return len(constant_text(name, self._marks).encode())
        left_out = name.words if isinstance(name, AllBut) else () if name == ANYTHING else None
        if left_out is None:
            return _NEVER
        length = 0
        while sum(len(word) == length for word in left_out) >= _FREE**length:
            length += 1
        return 2 + length
