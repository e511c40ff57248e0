"""The rules of a grammar as components of a network: which call each other, and which need no call.

Only the texts of a grammar matter, so rules may be written in any other way that has the same texts. Rules become
pieces (rule_pieces.py), and rules that lead to each other at their ends become automata with loops (rule_groups.py).
The rest call each other here. So that all of this is exact, no call has the empty text: a call of a rule that has it
may be left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from ..automaton.limits import WorkMeter
from ..automaton.rtn import ComponentBuilder
from .gbnf import Gbnf
from .pieces import Call, Piece, PieceWriter, size_of
from .rule_groups import Group, groups_of
from .rule_pieces import MOST_COPIED, MOST_DEPTH, STEPS, Rule, RulePieces, calls_in, depth_of, weight


class RuleComponents:
    """The components of one grammar."""

    def __init__(self, source: Gbnf, meter: WorkMeter):
        read = RulePieces(source, meter)
        self.whole, self._loops, self._meter = read.whole, read.loops, meter
        self._groups = groups_of(source.text, read.pieces, meter)
        self._called = self._kept()
        root = Rule(source.text, source.root)
        # A component that does nothing but call the root would be another state of each text.
        self.root = root if self.whole == (Call(root),) else Rule(source.text, "")

    def build(self, name: Rule, builder: ComponentBuilder) -> tuple[int, int]:
        """Build the component of a name: see ``Rtn``."""
        start, end = builder.state(), builder.state()
        if not name.name:
            PieceWriter(builder, partial(self.add, builder)).between(start, [(self.whole, end)])
        else:
            self._add(name, start, end, builder)
        return start, end

    def add(self, builder: ComponentBuilder, name: Rule, start: int, end: int) -> None:
        """Add the texts of a rule between two states: by a call, or in place."""
        if name.name in self._called:
            builder.call(name, start, end)
        else:
            self._add(name, start, end, builder)

    def _add(self, name: Rule, start: int, end: int, builder: ComponentBuilder) -> None:
        writer, group = PieceWriter(builder, partial(self.add, builder)), self._groups[name.name]
        only_begin = builder.state() if group.has_one_begin else None
        only_end = builder.state() if group.has_one_end else None
        begins = {rule: builder.state() if only_begin is None else only_begin for rule in group.alternatives}
        ends = {rule: builder.state() if only_end is None else only_end for rule in group.alternatives}
        paths: dict[int, list[tuple[Piece, int]]] = {}
        for rule, alternatives in group.alternatives.items():
            for head, middle, tail in alternatives:
                source = begins[rule] if head is None else ends[head]
                paths.setdefault(source, []).append((middle, ends[rule] if tail is None else begins[tail]))
        for source, each in paths.items():
            writer.between(source, each)
        builder.epsilon(start, begins[name.name])
        builder.epsilon(ends[name.name], end)

    def _kept(self) -> set[str]:
        """The rules that are called: one of each circle, and those that are too large to be put into several callers.

        All others are put into their callers.
        """
        kept = {id(self._groups[name]) for name in self._loops}
        sizes: dict[int, int] = {}
        depths: dict[int, int] = {}
        used = Counter([id(self._groups[name]) for name in calls_in(self.whole)])
        for group in {id(group): group for group in self._groups.values()}.values():
            for middle in group.middles:
                self._meter.spend(STEPS * weight(middle))
                for name in calls_in(middle):
                    used[id(self._groups[name])] += len(group.alternatives)  # each rule has all of its group
        active: dict[int, None] = {}
        todo: list[tuple[Group, Iterator[str]]] = []

        def enter(group: Group) -> None:
            active[id(group)] = None
            todo.append((group, iter([name for middle in group.middles for name in calls_in(middle)])))

        for root in [*self._loops, *calls_in(self.whole)]:
            if id(self._groups[root]) not in sizes:
                enter(self._groups[root])
            while todo:
                group, names = todo[-1]
                for name in names:
                    callee = self._groups[name]
                    if id(callee) in active:
                        kept.add(id(callee))
                    elif id(callee) not in sizes and id(callee) not in kept:
                        enter(callee)
                        break
                else:
                    todo.pop()
                    del active[id(group)]
                    copied = [
                        id(self._groups[name])
                        for middle in group.middles
                        for name in calls_in(middle)
                        if id(self._groups[name]) not in kept
                    ]
                    size = sum(map(size_of, group.middles)) + sum([sizes[callee] for callee in copied])
                    depth = 3 + max(map(depth_of, group.middles), default=0)
                    depth += max([depths[callee] for callee in copied], default=0)
                    if (size > MOST_COPIED and used[id(group)] > 1) or depth > 2 * MOST_DEPTH:
                        kept.add(id(group))
                    sizes[id(group)], depths[id(group)] = size, depth
        return {name for name, group in self._groups.items() if id(group) in kept}
