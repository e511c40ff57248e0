"""Whether one state inside a piece accepts every string that another one does: found out when first needed.

Both are followed side by side. A pair of states refutes the inclusion if the first may end where the second may not, or
continues where the second does not; then all pairs on the path to it are refuted too. If no pair does, all of them
hold.
"""

from __future__ import annotations

from hf_guided.automaton.fragments import EXIT, Fragment
from hf_guided.automaton.limits import EDGES, WorkMeter

Pair = tuple[int, int]
_MAX_PAIRS = 2_000  # looked at for one question; what takes more is taken for refuted, which is always safe


class Inclusion:
    """The states of one piece.

    Args:
        fragment: the piece.
        meter: counts the work.
    """

    def __init__(self, fragment: Fragment, meter: WorkMeter):
        self._meter = meter
        self._ends = {*fragment.is_end.nonzero()[0].tolist(), EXIT}
        self._rows: list[list[int]] = fragment.table.tolist()
        self._known: dict[Pair, bool] = {}
        meter.spend_cells(fragment.table.size)

    def holds(self, small: int, large: int) -> bool:
        """Whether all strings that lead from ``small`` out of the piece also do from ``large``."""
        if small == large:
            return True
        known = self._known.get((small, large))
        if known is None:
            known = self._follow((small, large))
        return known

    def _follow(self, first: Pair) -> bool:
        before: dict[Pair, Pair | None] = {first: None}
        todo = [first]  # the last one first: a refutation is mostly at the far end
        while todo:
            pair = todo.pop()
            if self._known.get(pair):
                continue
            if self._refuted(pair) or len(before) > _MAX_PAIRS:
                step: Pair | None = pair
                while step is not None:
                    self._known[step] = False
                    step = before[step]
                self._known[first] = False
                return False
            small, large = pair
            self._meter.spend(1 + len(self._rows[small]) // EDGES)
            for following in dict.fromkeys(zip(self._rows[small], self._rows[large], strict=True)):
                if following[0] and following[0] != following[1] and following not in before:
                    before[following] = pair
                    todo.append(following)
        self._known.update(dict.fromkeys(before, True))
        return True

    def _refuted(self, pair: Pair) -> bool:
        small, large = pair
        return self._known.get(pair) is False or not large or (small in self._ends and large not in self._ends)
