"""The drawing of a graph: nodes in layers from left to right, edges through gaps that are kept free for them.

The method is that of Sugiyama, Tagawa and Toda (1981): edges that close a cycle are reversed, layers follow the longest
path from the start, an edge that crosses several layers gets a point in each, points are sorted by the mean position of
their neighbours, and coordinates follow. The label of every edge has a layer between those of its ends, so labels cover
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Graph

RADIUS = 9.0
_CHARACTER = 7.2  # width of a label's character, in the page's font
_GAP = 12.0  # between layers
_ROW = 30.0  # between the points of one layer
_SWEEPS = 24


@dataclass(frozen=True)
class Layout:
    """Coordinates, in pixels, from the left and from the top.

    Args:
        width: of the drawing.
        height: of the drawing.
        nodes: (x, y) of each node's middle.
        edges: for each edge its points, from the middle of its source to the middle of its target; an edge from a node
            to itself has only the label's point between them.
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
    # Points: first the nodes, on even layers, then the inner points of edges.
    at = [2 * node_layer for node_layer in layer]
    chains: list[list[int]] = []  # the points of each edge, from left to right
    label_of: list[int] = []  # the point where its label is
    width = [2 * RADIUS] * graph.nodes
    for edge in graph.edges:
        left_node, right_node = sorted((edge.source, edge.target), key=lambda node: layer[node])
        # An edge from a node to itself has its label in the gap to the right.
        between = range(at[left_node] + 1, at[left_node] + 2 if left_node == right_node else at[right_node])
        chain = list(range(len(at), len(at) + len(between)))
        at += between
        width += [len(edge.label) * _CHARACTER + 8, *[0.0] * (len(chain) - 1)]
        label = chain[0]
        if edge.source == right_node != left_node:  # it runs to the left: the label is near its source
            width[chain[0]], width[chain[-1]] = width[chain[-1]], width[chain[0]]
            label = chain[-1]
        label_of.append(label)
        chains.append([left_node, *chain] if left_node == right_node else [left_node, *chain, right_node])
    rows = _ordered(at, chains)
    y = _heights(rows, chains)
    x = [0.0] * len(at)
    left = _GAP
    for row in rows:
        wide = max((width[point] for point in row), default=0.0)
        for point in row:
            x[point] = left + wide / 2
        left += wide + _GAP
    edges = []
    for edge, chain in zip(graph.edges, chains, strict=True):
        points = [(x[point], y[point]) for point in chain]
        edges.append(tuple(points if edge.source == chain[0] else reversed(points)))
    return Layout(
        width=left,
        height=max(y) + _ROW,
        nodes=tuple(zip(x[: graph.nodes], y[: graph.nodes], strict=True)),
        edges=tuple(edges),
        labels=tuple((x[point], y[point]) for point in label_of),
    )


def _layers(graph: Graph) -> list[int]:
    """For each node its layer: the length of the longest path from the start without a cycle."""
    targets: list[list[int]] = [[] for _ in range(graph.nodes)]
    for edge in graph.edges:
        if edge.target not in targets[edge.source]:
            targets[edge.source].append(edge.target)
    # Depth first without recursion; a node is finished after all nodes that are reached from it.
    finished: list[int] = []
    state = [0] * graph.nodes  # 0 not seen, 1 on the path, 2 finished
    forward: list[list[int]] = [[] for _ in range(graph.nodes)]
    stack = [(0, iter(targets[0]))]
    state[0] = 1
    while stack:
        node, rest = stack[-1]
        for target in rest:
            if state[target] != 1:  # else it closes a cycle
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
    for point, layer in enumerate(at):
        rows[layer].append(point)
    before, after = _neighbours(len(at), chains)
    position = {point: float(n) for row in rows for n, point in enumerate(row)}
    for sweep in range(_SWEEPS):
        near = after if sweep % 2 else before
        for row in rows if near is before else reversed(rows):
            row.sort(
                key=lambda point: (
                    _mean([position[neighbour] for neighbour in near[point]], position[point]),
                    position[point],
                )
            )
            position.update((point, float(n)) for n, point in enumerate(row))
    return rows


def _heights(rows: Sequence[Sequence[int]], chains: Sequence[Sequence[int]]) -> list[float]:
    """For each point its y: near those of its neighbours, in the order of its layer, and at least _ROW apart."""
    count = sum(map(len, rows))
    before, after = _neighbours(count, chains)
    y = [0.0] * count
    for row in rows:
        for n, point in enumerate(row):
            y[point] = (n - (len(row) - 1) / 2) * _ROW
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            targets = [
                _mean([y[neighbour] for neighbour in (*before[point], *after[point])], y[point]) for point in row
            ]
            for point, height in zip(row, _apart(targets), strict=True):
                y[point] = height
    top = min(y)
    return [height - top + _ROW for height in y]


def _apart(targets: Sequence[float]) -> list[float]:
    """The nearest heights (least squares) that ascend by at least _ROW: blocks that meet are merged at their mean."""
    blocks: list[tuple[float, int]] = []  # (sum of the members' offsets, number of members)
    for n, height in enumerate(targets):
        total, members = height - n * _ROW, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / members:
            before = blocks.pop()
            total, members = total + before[0], members + before[1]
        blocks.append((total, members))
    heights: list[float] = []
    for total, members in blocks:
        heights += [total / members + (len(heights) + n) * _ROW for n in range(members)]
    return heights


def _neighbours(points: int, chains: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """For each point its neighbours to the left, and those to the right."""
    before: list[list[int]] = [[] for _ in range(points)]
    after: list[list[int]] = [[] for _ in range(points)]
    for chain in chains:
        for left, right in zip(chain, chain[1:], strict=False):
            after[left].append(right)
            before[right].append(left)
    return before, after


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
