"""The probability of each option: token prefixes are expanded until one option is left.

An option has many tokenizations, and where forced text is appended without a choice, only some of them can occur. So
the probability of an option is a sum over the paths on which the fast loop may write it. A node is a token prefix after
which a token has to be chosen and several options are still possible; its mass is the probability that the loop reaches
it. The heaviest node is expanded first, so little mass is left when the search ends.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..hf.decode.forced_text import ForcedText
from ..session.row import Row
from ..vocabulary.bitmask import allocate_bitmask, unpack
from ..vocabulary.tokens import Vocabulary


@dataclass(order=True)
class Node:
    """A token prefix after which a token has to be chosen. The heaviest sorts first.

    Args:
        minus_mass: minus the probability that the loop reaches the node.
        number: among equally heavy nodes the older sorts first.
        token_ids: the prefix.
        text: its bytes.
        row: after the prefix.
    """

    minus_mass: float
    number: int
    token_ids: list[int] = field(compare=False)
    text: bytes = field(compare=False)
    row: Row = field(compare=False)


class OptionSearch:
    """The search after one prompt.

    Args:
        options: the bytes of the options, without duplicates.
        row: at the start of the answer; the search owns it from now on.
        before: token ids of the prompt.
        forced: finds forced text, as the fast loop does.
        vocabulary: of the tokens.
        stop_token_ids: tokens that end a row.
        tokens_left: the tokens left in the budget after a number of tokens; None if there is no budget.
        max_prefixes: the greatest number of nodes to expand.
    """

    def __init__(
        self,
        options: Sequence[bytes],
        row: Row,
        before: Sequence[int],
        *,
        forced: ForcedText,
        vocabulary: Vocabulary,
        stop_token_ids: Sequence[int],
        tokens_left: Callable[[int], int | None],
        max_prefixes: int,
    ):
        self._order = sorted(range(len(options)), key=lambda i: options[i])
        self._sorted = [options[i] for i in self._order]
        self._before = list(before)
        self._forced = forced
        self._vocabulary = vocabulary
        self._stops = frozenset(stop_token_ids)
        self._tokens_left = tokens_left
        self._left = max_prefixes
        self._bitmask = allocate_bitmask(1, vocabulary.padded_size)
        self._low = [0.0] * len(options)  # in sorted order
        self._open: list[Node] = []
        self.num_prefixes = 0
        self._add(1.0, [], b"", row)

    @property
    def heaviest(self) -> float:
        """The mass of the next node; 0.0 if there is none."""
        return -self._open[0].minus_mass if self._open and self._left else 0.0

    def next_node(self) -> Node | None:
        """The heaviest node, for ``expand``; None if there is none, or no more may be expanded."""
        if not self._open or not self._left:
            return None
        self._left -= 1
        self.num_prefixes += 1
        return heapq.heappop(self._open)

    def expand(self, node: Node, logits: Tensor) -> bool:
        """Share the mass of a node among the allowed tokens.

        Args:
            node: from ``next_node``.
            logits: (vocab,) floating point, any device: the model's output after the node's tokens.

        Returns:
            Whether an allowed token had a finite logit; the mass of the node is lost where none had.
        """
        allowed = self._allowed(node)
        token_ids = torch.nonzero(allowed).flatten()
        if not len(token_ids):
            return True  # a dead end, which the loop would report; it leads to no option
        scores = logits.cpu().double()[token_ids]
        if scores.isnan().any() or not scores.isfinite().any():
            return False
        shares = scores.softmax(-1).tolist()
        for token_id, share in zip(token_ids.tolist(), shares, strict=True):
            if mass := -node.minus_mass * share:
                self._follow(node, token_id, mass)
        return True

    def bounds(self) -> tuple[list[float], list[float], list[float]]:
        """For each option a lower bound of its probability, an estimate, and an upper bound.

        The estimate shares the mass of each node that was not expanded equally among its options.
        """
        low, middle, high = list(self._low), list(self._low), list(self._low)
        for node in self._open:
            first, end = self._range(node.text)
            for index in range(first, end):
                high[index] -= node.minus_mass
                middle[index] -= node.minus_mass / (end - first)
        bounds: tuple[list[float], list[float], list[float]] = ([], [], [])
        index_of = {option: index for index, option in enumerate(self._order)}
        for values, given in zip(bounds, (low, middle, high), strict=True):
            values += [min(given[index_of[option]], 1.0) for option in range(len(given))]
        return bounds

    @property
    def unresolved(self) -> float:
        """The mass of the nodes that were not expanded."""
        return sum((-node.minus_mass for node in self._open), 0.0)

    def _allowed(self, node: Node) -> Tensor:
        if not node.row.fill(self._bitmask, 0, self._tokens_left(len(node.token_ids))):
            self._bitmask.zero_()
        return unpack(self._bitmask, self._vocabulary.padded_size)[0]

    def _follow(self, node: Node, token_id: int, mass: float) -> None:
        if token_id in self._stops:
            self._low[bisect_left(self._sorted, node.text)] += mass
            return
        text = node.text + self._vocabulary.decode_bytes([token_id])
        first, end = self._range(text)
        if end - first == 1:  # whichever tokens follow
            self._low[first] += mass
            return
        row = node.row.fork()
        row.advance(token_id)
        self._add(mass, [*node.token_ids, token_id], text, row)

    def _add(self, mass: float, token_ids: list[int], text: bytes, row: Row) -> None:
        """Add a node after the forced text, unless one option is left."""
        first, end = self._range(text)
        if end - first == 1:
            self._low[first] += mass
            return
        left = self._tokens_left(len(token_ids))
        forced = self._forced.advance(row, [*self._before, *token_ids], left, loose=False).token_ids
        text += self._vocabulary.decode_bytes(forced)
        node = Node(-mass, self.num_prefixes + len(self._open), [*token_ids, *forced], text, row)
        heapq.heappush(self._open, node)

    def _range(self, text: bytes) -> tuple[int, int]:
        """The slice of the sorted options that begin with a text; UTF-8 has no byte 0xff."""
        return bisect_left(self._sorted, text), bisect_left(self._sorted, text + b"\xff")
