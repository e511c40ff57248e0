"""Where the nodes and edges of a graph are drawn: in layers from left to right, edges through gaps kept free for them.

The way of Sugiyama, Tagawa and Toda (1981): edges that close a ring are turned round, layers follow the longest way
from the start, edges that cross several layers get a place in each, neighbours are brought near each other by their
means, and coordinates follow. Every edge has a layer of its own for its label, between those of its ends, so labels
lie on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Graph

RADIUS = 9.0
_CHARACTER = 7.2  # width of one of a label, in the page's font for them
_GAP = 12.0  # between layers
_ROW = 30.0  # between places of one layer
_SWEEPS = 24


@dataclass(frozen=True)
class Layout:
    """Coordinates, in pixels, from the left and from the top.

    Args:
        width: of all.
        height: of all.
        nodes: (x, y) of each node's middle.
        edges: for each edge the points it goes through, from its source's middle to its target's; of a ring from a node
            to itself only the label's point is between.
        labels: (x, y) of the middle of each edge's label.
    """

    width: float
    height: float
    nodes: tuple[tuple[float, float], ...]
    edges: tuple[tuple[tuple[float, float], ...], ...]
    labels: tuple[tuple[float, float], ...]


def layout(graph: Graph) -> Layout:
    """Coordinates for a graph; the same for the same graph."""
    layer = _layers(graph)
    # Points: first the nodes, on even layers, then those that edges go through.
    at = [2 * one for one in layer]
    chains: list[list[int]] = []  # from the left end of each edge to its right one
    label_of: list[int] = []  # the point where its label is
    width = [2 * RADIUS] * graph.nodes
    for edge in graph.edges:
        left, right = sorted((edge.source, edge.target), key=lambda node: layer[node])
        # A ring to itself has its label in the gap to the right.
        between = range(at[left] + 1, at[left] + 2 if left == right else at[right])
        chain = list(range(len(at), len(at) + len(between)))
        at += between
        width += [len(edge.label) * _CHARACTER + 8, *[0.0] * (len(chain) - 1)]
        label = chain[0]
        if edge.source == right != left:  # it runs back: the label is near its source
            width[chain[0]], width[chain[-1]] = width[chain[-1]], width[chain[0]]
            label = chain[-1]
        label_of.append(label)
        chains.append([left, *chain] if left == right else [left, *chain, right])
    rows = _ordered(at, chains)
    y = _heights(rows, chains)
    x = [0.0] * len(at)
    place = _GAP
    for row in rows:
        wide = max((width[point] for point in row), default=0.0)
        for point in row:
            x[point] = place + wide / 2
        place += wide + _GAP
    edges = []
    for edge, chain in zip(graph.edges, chains, strict=True):
        points = [(x[point], y[point]) for point in chain]
        edges.append(tuple(points if edge.source == chain[0] else reversed(points)))
    return Layout(
        width=place,
        height=max(y) + _ROW,
        nodes=tuple(zip(x[: graph.nodes], y[: graph.nodes], strict=True)),
        edges=tuple(edges),
        labels=tuple((x[point], y[point]) for point in label_of),
    )


def _layers(graph: Graph) -> list[int]:
    """For each node its layer: the longest way from the start that goes round no ring."""
    targets: list[list[int]] = [[] for _ in range(graph.nodes)]
    for edge in graph.edges:
        if edge.target not in targets[edge.source]:
            targets[edge.source].append(edge.target)
    # Depth first without recursion; behind all that is reached from it a node is finished.
    finished: list[int] = []
    state = [0] * graph.nodes  # 0 not seen, 1 on the way, 2 finished
    forward: list[list[int]] = [[] for _ in range(graph.nodes)]
    stack = [(0, iter(targets[0]))]
    state[0] = 1
    while stack:
        node, rest = stack[-1]
        for target in rest:
            if state[target] != 1:  # else it closes a ring
                forward[node].append(target)
            if state[target] == 0:
                state[target] = 1
                stack.append((target, iter(targets[target])))
                break
        else:
            state[node] = 2
            finished.append(node)
            stack.pop()
    layer = [0] * graph.nodes
    for node in reversed(finished):
        for target in forward[node]:
            layer[target] = max(layer[target], layer[node] + 1)
    return layer


def _ordered(at: Sequence[int], chains: Sequence[Sequence[int]]) -> list[list[int]]:
    """The points of each layer from top to bottom, with few crossings."""
    rows: list[list[int]] = [[] for _ in range(max(at) + 1)]
    for point, one in enumerate(at):
        rows[one].append(point)
    before, behind = _neighbours(len(at), chains)
    place = {point: float(n) for row in rows for n, point in enumerate(row)}
    for sweep in range(_SWEEPS):
        near = behind if sweep % 2 else before
        for row in rows if near is before else reversed(rows):
            row.sort(key=lambda point: (_mean([place[one] for one in near[point]], place[point]), place[point]))
            place.update((point, float(n)) for n, point in enumerate(row))
    return rows


def _heights(rows: Sequence[Sequence[int]], chains: Sequence[Sequence[int]]) -> list[float]:
    """For each point its y: near those of its neighbours, in the order of its layer and apart from the next."""
    count = sum(map(len, rows))
    before, behind = _neighbours(count, chains)
    y = [0.0] * count
    for row in rows:
        for n, point in enumerate(row):
            y[point] = (n - (len(row) - 1) / 2) * _ROW
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([y[one] for one in (*before[point], *behind[point])], y[point]) for point in row]
            for point, height in zip(row, _apart(wanted), strict=True):
                y[point] = height
    least = min(y)
    return [height - least + _ROW for height in y]


def _apart(wanted: Sequence[float]) -> list[float]:
    """The nearest heights (by squares) that are ascending and _ROW apart: blocks that meet are put in their middle."""
    blocks: list[tuple[float, int]] = []  # (sum of where each begins, members)
    for n, height in enumerate(wanted):
        total, members = height - n * _ROW, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / members:
            before = blocks.pop()
            total, members = total + before[0], members + before[1]
        blocks.append((total, members))
    found: list[float] = []
    for total, members in blocks:
        found += [total / members + (len(found) + n) * _ROW for n in range(members)]
    return found


def _neighbours(points: int, chains: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """For each point those to its left that it is joined to, and those to its right."""
    before: list[list[int]] = [[] for _ in range(points)]
    behind: list[list[int]] = [[] for _ in range(points)]
    for chain in chains:
        for left, right in zip(chain, chain[1:], strict=False):
            behind[left].append(right)
            before[right].append(left)
    return before, behind


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
