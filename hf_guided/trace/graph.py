"""A byte automaton as a readable graph: characters for bytes, and texts for chains of characters.

If the automaton reads the bytes of a character one by one, the graph has one edge for the whole character; if it reads
one text without a choice, one edge for the whole text. Tokens may end anywhere, so the position after a token is a node
or a point on an edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .token_labels import shown

if TYPE_CHECKING:
    from ..automaton.byte_dfa import ByteDfa

MOST_NODES = 60
_MOST_STATES = 600  # before chains become edges
_MOST_SHOWN = 28  # characters of a label

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # of code points, ascending, both ends included


class TooLarge(Exception):
    """There is no graph; the message says why."""


class Position(NamedTuple):
    """The position of a row in the graph.

    Args:
        node: the node, if the row is at one.
        edge: otherwise the edge that the row is on.
    """

    node: int | None = None
    edge: int | None = None


@dataclass(frozen=True)
class Edge:
    """One text, or one character of a class.

    Args:
        source: node.
        target: node.
        label: the text, or the class in brackets; shortened.
        full: the label, not shortened.
    """

    source: int
    target: int
    label: str
    full: str


@dataclass(frozen=True)
class Graph:
    """An automaton.

    Args:
        nodes: the number of nodes; the start is 0.
        accepting: the nodes at which a text may end.
        edges: between the nodes.
        positions: after 0, 1, 2 ... tokens of output.
    """

    nodes: int
    accepting: tuple[int, ...]
    edges: tuple[Edge, ...]
    positions: tuple[Position, ...] = ()


def graph_of(dfa: ByteDfa, tokens: Iterable[bytes | None] = (), begun: bytes = b"") -> Graph:
    """The graph of an automaton, and the path of an output through it.

    Args:
        dfa: reads the bytes of valid UTF-8.
        tokens: bytes of each token of output; None for tokens without text.
        begun: bytes before the first token.

    Raises:
        TooLarge: it has more than MOST_NODES nodes, or accepts bytes that are not UTF-8.
    """
    moves = _characters(dfa)
    into: dict[int, int] = {}
    for targets in moves.values():
        for target in targets:
            into[target] = into.get(target, 0) + 1
    inner = {
        state
        for state, targets in moves.items()
        if state != dfa.start
        and not dfa.accepting[state]
        and into[state] == 1
        and [low == high for ranges in targets.values() for low, high in ranges] == [True]
    }
    # After a class of characters a new edge begins: "[0-9]-" would read as one text.
    for targets in moves.values():
        inner -= {target for target, ranges in targets.items() if not _is_single(ranges)}
    nodes = {state: n for n, state in enumerate([dfa.start, *(s for s in moves if s not in inner and s != dfa.start)])}
    if len(nodes) > MOST_NODES:
        raise TooLarge(f"it has {len(nodes)} states, too many to draw")
    edges: list[Edge] = []
    edge_of: dict[int, int] = {}  # by the states along it
    for state in nodes:
        for target, ranges in moves[state].items():
            text = chr(ranges[0][0]) if _is_single(ranges) else ""
            while target in inner:
                edge_of[target] = len(edges)
                [(target, next_ranges)] = moves[target].items()
                text += chr(next_ranges[0][0])
            full = shown(text.encode()).replace(" ", "␣") if text else f"[{_class(ranges)}]"
            label = full if len(full) <= _MOST_SHOWN else f"{full[: _MOST_SHOWN - 1]}…"
            edges.append(Edge(nodes[state], nodes[target], label, full))
    accepting = tuple(n for state, n in nodes.items() if dfa.accepting[state])
    return Graph(len(nodes), accepting, tuple(edges), tuple(_positions(dfa, nodes, edge_of, tokens, begun)))


def _positions(
    dfa: ByteDfa, nodes: dict[int, int], edge_of: dict[int, int], tokens: Iterable[bytes | None], begun: bytes
) -> Iterable[Position]:
    state, position = dfa.start, Position(0)
    for data in (begun, *tokens):
        for byte in data or b"":
            state = dfa.advance(state, bytes((byte,)))
            if state in nodes:
                position = Position(nodes[state])
            elif state in edge_of:
                position = Position(edge=edge_of[state])
            # else it is inside a character, and keeps the position where that began
        yield position


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


# -- characters ----------------------------------------------------------------------------------------------------


def _characters(dfa: ByteDfa) -> dict[int, dict[int, Ranges]]:
    """For each state between characters: its targets, and the characters that lead there."""
    moves: dict[int, dict[int, Ranges]] = {}
    todo = [dfa.start]
    while todo:
        state = todo.pop()
        if state in moves:
            continue
        if len(moves) >= _MOST_STATES:
            raise TooLarge(f"it has more than {_MOST_STATES} states")
        targets: dict[int, list[tuple[int, int]]] = {}
        for byte, target in enumerate(_row(dfa, state)):
            if not target:
                continue
            if byte < 0x80:
                targets.setdefault(target, []).append((byte, byte))
                continue
            length = 1 if 0xC2 <= byte < 0xE0 else 2 if 0xE0 <= byte < 0xF0 else 3 if 0xF0 <= byte < 0xF5 else 0
            if not length:
                raise TooLarge("it allows bytes that are not UTF-8")
            base = (byte & (0x3F >> length)) << 6 * length
            for end, low, high in _tails(dfa, target, length):
                targets.setdefault(end, []).append((base + low, base + high))
        moves[state] = {target: _joined(ranges) for target, ranges in targets.items()}
        todo += reversed(moves[state])
    return moves


def _tails(dfa: ByteDfa, state: int, length: int) -> list[tuple[int, int, int]]:
    """The targets of ``length`` continuation bytes: (state, lowest, highest) of the numbers that the bytes encode."""
    if not length:
        return [(state, 0, 0)]
    tails: list[tuple[int, int, int]] = []
    known: dict[int, list[tuple[int, int, int]]] = {}
    for byte, target in enumerate(_row(dfa, state)[0x80:0xC0]):
        if not target:
            continue
        if target not in known:
            known[target] = _tails(dfa, target, length - 1)
        base = byte << 6 * (length - 1)
        for end, low, high in known[target]:
            if tails and tails[-1][0] == end and tails[-1][2] + 1 == base + low:
                tails[-1] = end, tails[-1][1], base + high
            else:
                tails.append((end, base + low, base + high))
    return tails


def _row(dfa: ByteDfa, state: int) -> list[int]:
    """(256,) the target of each byte; 0 means none."""
    row: list[int] = dfa.table[state][dfa.byte_class].tolist()
    return row


def _joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and joined[-1][1] + 1 >= low:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def _class(ranges: Ranges) -> str:
    """A class of characters: its members, or "^" and the others, whichever is shorter."""
    rest: list[tuple[int, int]] = []
    begin = 0
    for low, high in ranges:
        # No character of UTF-8 is a surrogate, so these are missing everywhere.
        rest += [(a, b) for a, b in ((begin, low - 1),) if a <= b and not (a >= 0xD800 and b <= 0xDFFF)]
        begin = high + 1
    if begin <= 0x10FFFF:
        rest.append((begin, 0x10FFFF))
    if len(rest) < len(ranges) or (ranges[-1][1] == 0x10FFFF and len(rest) <= len(ranges)):
        return f"^{_listed(rest)}" if rest else "any"
    return _listed(ranges)


def _listed(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(
        _escaped(low) if low == high else f"{_escaped(low)}{'' if high == low + 1 else '-'}{_escaped(high)}"
        for low, high in ranges
    )


def _escaped(code: int) -> str:
    text = shown(chr(code).encode()).replace(" ", "␣")
    return f"\\{text}" if text in "[]^-\\" else text
