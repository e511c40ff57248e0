"""An estimate of an automaton's number of states, from the expression alone, in microseconds.

It is for parts of a regular expression that may be taken apart instead. The guess is that repetitions multiply what is
repeated, and that a text whose length is counted while it follows a pattern has every state of the pattern at every
length.
"""

from __future__ import annotations

from ..regex import AllBut, Alt, And, Chars, Concat, Node, Not, Repeat, tree_cache


@tree_cache(maxsize=4096)
def expected_states(node: Node) -> int:
    """About how many states: where one part bounds the length of what another describes, they are multiplied."""
    if isinstance(node, Concat):
        return sum(map(expected_states, node.parts))
    if isinstance(node, Alt):
        return sum(map(expected_states, node.parts))
    if isinstance(node, Repeat):
        return max(node.low, node.high or 1, 1) * expected_states(node.body)
    if isinstance(node, And):
        endless = [part for part in node.parts if longest(part) is None]
        most = longest(node)
        if endless and most is not None:
            return most * sum(map(expected_states, endless))
        return max(map(expected_states, node.parts))
    if isinstance(node, AllBut):
        return 1 + sum(map(len, node.words))
    return 1 + expected_states(node.body) if isinstance(node, Not) else 1


@tree_cache(maxsize=4096)
def longest(node: Node) -> int | None:
    """Characters of the longest text, or more; None if there is no bound."""
    if isinstance(node, Not):
        return None
    if isinstance(node, Repeat):
        most = longest(node.body)
        return None if most is None or node.high is None else most * node.high
    if isinstance(node, (Concat, Alt, And)):
        lengths = [longest(part) for part in node.parts]
        bounded = [length for length in lengths if length is not None]
        if isinstance(node, And):
            return min(bounded, default=None)
        if len(bounded) < len(lengths):
            return None
        return max(bounded) if isinstance(node, Alt) else sum(bounded)
    return 1 if isinstance(node, Chars) else 0
