"""The rules of a grammar as components of a network: which call each other, and which need no call.

Only the texts of a grammar matter, so rules may be written in any other way that has the same texts. Rules that do not
lead to themselves are put into their callers. A rule that leads to itself at the beginning or at the end of its texts
needs no call there, but a loop. If each alternative of ``A`` is ``A x A``, ``u A``, ``A v``, or ``b`` without ``A`` at
its ends, the texts of ``A`` are ``u* b v* (x u* b v*)*``: an automaton with one state where ``A`` begins and one where
it ends. Rules that lead to each other only at their ends (or only at their beginnings) have an automaton with a state
where each begins (ends): the others begin where they end. Where they do both, all but one are put into that one. If
this is not possible, or takes too many alternatives, they call each other at their ends, and loop at their beginnings:
what calls itself before its first byte would never end.

So that all of this is exact, no call has the empty text: a call of a rule that has it may be left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

from ..automaton.limits import WorkMeter
from ..automaton.rtn import ComponentBuilder
from ..errors import CompileLimitExceeded
from ..regex import characters
from . import rules as grammar
from .gbnf import Gbnf
from .pieces import (
    Call,
    Choice,
    Part,
    Piece,
    PieceWriter,
    Times,
    any_of,
    inside,
    joined,
    not_empty,
    nullable,
    parts_in,
    size_of,
    times,
)
from .rules import Expression, Reference, Rules, known_by_steps, references

_MOST_COPIED = 500  # characters and calls of a rule that is put into several callers
_STEPS = 8  # of work, for a part of a piece that is made
_MOST_PRODUCTS = 300_000  # steps for the alternatives of a group by both ends; where they take more, only its heads
_MOST_REPLACED = 150  # depths of all rules of a group that are put into one of them: a function follows by recursion
_MOST_TRIED = 50  # rules of a group, each of which all others may be put into
_MOST_DEPTH = 60  # pieces inside each other where rules are put into their callers: functions follow these by recursion
Name = TypeVar("Name", bound=Hashable)


class Rule(NamedTuple):
    """The name of a component: the texts of a rule, but for the empty one; the rule "" is the whole of a grammar."""

    grammar: str
    name: str


class _Alternative(NamedTuple):
    """Texts of a rule: maybe those of another rule of its group, then a middle, maybe those of another rule."""

    head: str | None
    middle: Piece
    tail: str | None


_NOTHING = _Alternative(None, (), None)


class _Group(NamedTuple):
    """Rules that lead to each other at their ends, as one automaton."""

    alternatives: Mapping[str, Collection[_Alternative]]
    has_one_begin: bool = False  # whether all rules begin in one state; else they may end in one
    has_one_end: bool = False

    @property
    def middles(self) -> Iterator[Piece]:
        for alternatives in self.alternatives.values():
            yield from [alternative.middle for alternative in alternatives]


class RuleComponents:
    """The components of one grammar."""

    def __init__(self, source: Gbnf, meter: WorkMeter):
        text, rules, root = source.text, source.rules, source.root
        self._text, self._rules, self._meter = text, rules, meter
        self._with_empty = known_by_steps(rules, grammar.derives_empty)
        self._with_texts = known_by_steps(rules, grammar.writes)
        self._inline: dict[str, Piece] = {}  # rules that are put into their callers
        self._depths: dict[str, int] = {}
        self._pieces: dict[str, Piece] = {}  # all others
        self._reading: set[str] = set()  # rules that lead to each other
        self._loops: dict[Piece, str] = {}
        calls = _reached(rules, root)
        used = Counter([name for names in calls.values() for name in names])
        for names in _groups(calls):
            self._read(names, used, is_recursive=len(names) > 1 or names[0] in calls[names[0]])
        self.whole = self._called(root)
        self._groups: dict[str, _Group] = {}
        ends = {name: self._ends(name) for name in self._pieces}
        for names in _groups(ends):
            of_group = {*names}
            self._group(names, {name: ends[name] & of_group for name in names})
        self._components = self._kept()
        # A component that does nothing but call the root would be another state of each text.
        self.root = Rule(text, root if self.whole == (Call(Rule(text, root)),) else "")

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
        if name.name in self._components:
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

    # -- Rules as pieces.

    def _read(self, names: Collection[str], used: Mapping[str, int], *, is_recursive: bool) -> None:
        """Read rules that lead to each other, or one that does not lead to itself."""
        pieces: dict[str, Piece] = {}
        depth = 0
        self._reading = {*names} if is_recursive else set()
        for name in names:
            pieces[name] = self._piece(self._rules[name])
            inlined = [self._depths.get(each.name, 0) for each in references(self._rules[name])]
            depth = _nesting(self._rules[name]) + max(inlined, default=0)
        if not is_recursive:
            (name,) = names
            is_small = size_of(pieces[name]) <= _MOST_COPIED or used[name] < 2
            if is_small and depth <= _MOST_DEPTH:
                self._inline[name], self._depths[name] = pieces[name], depth
                return
        self._pieces |= {name: piece for name, piece in pieces.items() if piece}

    def _called(self, name: str) -> Piece:
        """A reference to a rule."""
        if name not in self._with_texts:
            return ()
        if (piece := self._inline.get(name)) is not None:
            self._meter.spend(1 + sum([1 if isinstance(part, Call) else characters(part) for part in parts_in(piece)]))
            return piece
        call = Call(Rule(self._text, name))
        return times((call,), 0, 1) if name in self._with_empty else (call,)

    def _piece(self, expression: Expression) -> Piece:
        self._meter.spend(1)
        if isinstance(expression, Reference):
            return self._called(expression.name)
        if isinstance(expression, grammar.Leaf):
            return joined((expression.language,))
        if isinstance(expression, grammar.Choice):
            return any_of([self._piece(part) for part in expression.parts])
        if isinstance(expression, grammar.Repeat):
            body = self._piece(expression.body)
            if expression.low <= 1 and expression.high is None and self._follows_itself(body):
                return self._loop(body, expression.low)
            return times(body, expression.low, expression.high)
        return joined(*map(self._piece, expression.parts))

    def _follows_itself(self, body: Piece) -> bool:
        """Whether a rule that leads to those that are being read follows itself where a piece is repeated."""
        return not self._reading.isdisjoint(_calls_at_end(body, last=False) & _calls_at_end(body, last=True))

    def _loop(self, body: Piece, low: int) -> Piece:
        """A repetition as a rule: if it is called, and not what is repeated, nothing tells where one ends."""
        name = self._loops.setdefault(body, f"{len(self._loops)}+")  # no rule of a text has such a name
        self._pieces[name] = times(body, 1, None)
        call = Call(Rule(self._text, name))
        return times((call,), 0, 1) if low == 0 or nullable(body) else (call,)

    # -- Rules that lead to themselves at their ends.

    def _ends(self, name: str) -> set[str]:
        piece = self._pieces[name]
        self._meter.spend(_STEPS * _weight(piece))
        return _calls_at_end(piece, last=False) | _calls_at_end(piece, last=True)

    def _group(self, names: Sequence[str], ends: Mapping[str, set[str]]) -> None:
        """Find the automaton of rules that lead to each other at their ends; ``ends`` are those among them."""
        if not any(ends.values()):
            for name in names:
                self._groups[name] = _Group({name: _in_one(self._pieces[name])})
            return
        tried = WorkMeter.of_steps(min(_MOST_PRODUCTS, self._meter.left))
        try:
            groups = self._by_both_ends(names, ends, tried)
        except CompileLimitExceeded:
            groups = None
        self._meter.spend(tried.work)
        if groups is None:
            only_heads = _Ends.of(names, self._meter)
            found = {name: self._alternatives(self._pieces[name], only_heads, tail=False) for name in names}
            for each in found.values():  # each has the rest of its text: states of a DFA are sets of these
                self._meter.spend(2 * len(each) * sum([len(one.middle) for one in each]))
            groups = dict.fromkeys(names, _Group(found, has_one_begin=True))
        self._groups |= groups

    def _by_both_ends(
        self, names: Sequence[str], ends: Mapping[str, set[str]], meter: WorkMeter
    ) -> dict[str, _Group] | None:
        """The groups by the alternatives of their rules, without calls at the ends; None if there are none."""
        of_names = _Ends.of(names, meter)
        found = {name: self._alternatives(self._pieces[name], of_names) for name in names}
        if len(names) == 1:
            (name,) = names
            return {name: _Group({name: _as_loop(Rule(self._text, name), found[name], meter)})}
        each = [alternative for alternatives in found.values() for alternative in alternatives]
        if not any(one.head and (one.middle or one.tail) for one in each):
            for name, alternatives in found.items():  # A rule that is all of another one ends with it, too.
                found[name] = [_Alternative(None, one.middle, one.head or one.tail) for one in alternatives]
            return dict.fromkeys(names, _Group(found, has_one_end=True))
        if not any(one.tail for one in each):
            return dict.fromkeys(names, _Group(found, has_one_begin=True))
        if sum([1 + _depth(self._pieces[name]) for name in names]) > _MOST_REPLACED:
            return None
        edges = sum(map(len, ends.values()))
        for kept in names[:_MOST_TRIED]:
            meter.spend(_STEPS * (len(names) + edges))
            rest = {name: ends[name] - {kept} for name in names if name != kept}
            if all(len(some) == 1 and some[0] not in rest[some[0]] for some in _groups(rest)):
                alternatives = self._alternatives(self._pieces[kept], _Ends.of(names, meter, rest))
                group = _Group({kept: _as_loop(Rule(self._text, kept), alternatives, meter)})
                return {kept: group, **{name: _Group({name: _in_one(self._pieces[name])}) for name in rest}}
        return None

    def _alternatives(self, piece: Piece, ends: _Ends, *, head: bool = True, tail: bool = True) -> list[_Alternative]:
        """The texts of a piece but the empty one by the rules at its ends, which ``head`` and ``tail`` look for."""
        ends.meter.spend(_STEPS * _weight(piece))  # to look it up, and to see its ends
        found = ends.found.get((piece, head, tail))
        if found is None:
            found = self._by_ends(piece, ends, head=head, tail=tail)
            ends.meter.spend(_STEPS * sum([1 + len(one.middle) for one in found]))
            found = ends.found[piece, head, tail] = [*dict.fromkeys(found)]
        return found

    def _by_ends(self, piece: Piece, ends: _Ends, *, head: bool, tail: bool) -> list[_Alternative]:
        names = _calls_at_end(piece, last=False) if head else set[str]()
        names |= _calls_at_end(piece, last=True) if tail else set()
        if names.isdisjoint(ends.names):
            return _in_one(piece)
        if len(piece) == 1:
            return self._of_part(piece[0], ends, head=head, tail=tail)
        # Where the head is looked for, the first part that is not empty; where the tail is, the last one.
        needed = [i for i, part in enumerate(piece) if not nullable((part,))]
        firsts = range(needed[0] + 1 if needed else len(piece)) if head else [0]
        lasts = range(needed[-1] if needed else 0, len(piece)) if tail else [len(piece) - 1]
        found: list[_Alternative] = []
        for first in firsts:
            for last in lasts:
                if first == last and head and tail:
                    found += self._alternatives(piece[first : last + 1], ends)
                elif first <= last:
                    begins = self._alternatives(piece[first : first + 1], ends, tail=False) if head else [_NOTHING]
                    endings = self._alternatives(piece[last : last + 1], ends, head=False) if tail else [_NOTHING]
                    found += _in_a_row(begins, piece[first + head : last + (not tail)], endings, ends.meter)
        return found

    def _of_part(self, part: Part, ends: _Ends, *, head: bool, tail: bool) -> list[_Alternative]:
        """The part of a piece that has a rule at its ends, without the empty text."""
        if isinstance(part, Call):
            name = part.name.name
            if name in ends.replaced:
                return self._alternatives(self._pieces[name], ends, head=head, tail=tail)
            if name not in ends.names:
                return [_Alternative(None, (part,), None)]
            return [_Alternative(name, (), None) if head else _Alternative(None, (), name)]
        if isinstance(part, Choice):
            return [one for each in part.pieces for one in self._alternatives(each, ends, head=head, tail=tail)]
        assert isinstance(part, Times), "a language has no rule at its ends"
        body, high = not_empty(part.piece) or (), part.high
        low = 0 if nullable(part.piece) else part.low
        plain = _in_one(body)  # no rule is looked for there
        begins = self._alternatives(body, ends, tail=False) if head else plain
        lasts = self._alternatives(body, ends, head=False) if tail else plain
        if begins == plain or lasts == plain:
            middle = times(body, max(low - 1, 0), None if high is None else high - 1)
            row = ([_NOTHING], middle, lasts) if begins == plain else (begins, middle, [_NOTHING])
            return _in_a_row(*row, ends.meter)
        found = [*self._alternatives(body, ends)] if low <= 1 else []
        if high is None or high > 1:
            middle = times(body, max(low - 2, 0), None if high is None else high - 2)
            found += _in_a_row(begins, middle, lasts, ends.meter)
        return found

    # -- Calls.

    def _kept(self) -> set[str]:
        """The rules that are called: one of each circle, and those that are too large to be put into several callers.

        All others are put into their callers.
        """
        kept = {id(self._groups[name]) for name in self._loops.values()}
        sizes: dict[int, int] = {}
        depths: dict[int, int] = {}
        used = Counter([id(self._groups[name]) for name in _calls_in(self.whole)])
        for group in {id(group): group for group in self._groups.values()}.values():
            for middle in group.middles:
                self._meter.spend(_STEPS * _weight(middle))
                for name in _calls_in(middle):
                    used[id(self._groups[name])] += len(group.alternatives)  # each rule has all of its group
        active: dict[int, None] = {}
        todo: list[tuple[_Group, Iterator[str]]] = []

        def enter(group: _Group) -> None:
            active[id(group)] = None
            todo.append((group, iter([name for middle in group.middles for name in _calls_in(middle)])))

        for root in [*self._loops.values(), *_calls_in(self.whole)]:
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
                        for name in _calls_in(middle)
                        if id(self._groups[name]) not in kept
                    ]
                    size = sum(map(size_of, group.middles)) + sum([sizes[callee] for callee in copied])
                    depth = 3 + max(map(_depth, group.middles), default=0)
                    depth += max([depths[callee] for callee in copied], default=0)
                    if (size > _MOST_COPIED and used[id(group)] > 1) or depth > 2 * _MOST_DEPTH:
                        kept.add(id(group))
                    sizes[id(group)], depths[id(group)] = size, depth
        return {name for name, group in self._groups.items() if id(group) in kept}


class _Ends(NamedTuple):
    """The rules that are looked for at the ends of pieces; those ``replaced`` by their alternatives are among them."""

    names: Collection[str]
    meter: WorkMeter
    replaced: Collection[str]
    found: dict[tuple[Piece, bool, bool], list[_Alternative]]

    @classmethod
    def of(cls, names: Iterable[str], meter: WorkMeter, replaced: Iterable[str] = ()) -> _Ends:
        return cls(frozenset(names), meter, frozenset(replaced), {})


def _in_one(piece: Piece) -> list[_Alternative]:
    """The texts of a piece but the empty one, if there are others."""
    middle = not_empty(piece)
    return [] if middle is None else [_Alternative(None, middle, None)]


def _in_a_row(
    begins: Collection[_Alternative], middle: Piece, lasts: Collection[_Alternative], meter: WorkMeter
) -> list[_Alternative]:
    size = sum([4 + len(begin.middle) + len(middle) for begin in begins]) * len(lasts)
    meter.spend(_STEPS * (size + len(begins) * sum([len(last.middle) for last in lasts])))
    return [
        _Alternative(begin.head, joined(begin.middle, middle, last.middle), last.tail)
        for begin in begins
        for last in lasts
    ]


def _as_loop(rule: Rule, found: Collection[_Alternative], meter: WorkMeter) -> list[_Alternative]:
    """The alternatives of a rule A that leads to itself at its ends, with fewer calls where A x A has only texts of A.

    This is plain for each x where A x A is an alternative, or where every alternative ends with A, or there is the same
    with (x A)* after it. Then a repetition that may be left out, of x A before x A or of A x before A, adds no text.
    """
    here, name = Call(rule), rule.name
    known = {one for one in found if one.middle or one.tail}  # A is A tells nothing

    between = {_without_first(one.middle) for one in known if (one.head, one.tail) == (name, name)}

    def is_kept(one: _Alternative, x: Piece, more: Piece) -> bool:
        meter.spend(_STEPS * (_weight(one.middle) + _weight(x)))
        return bool(one.tail) or _Alternative(one.head, joined(one.middle, more, x), name) in known

    @cache
    def is_closed(x: Piece) -> bool:
        more = (Times((*x, here), 0, None),)
        return x in between or all(is_kept(one, x, more) for one in known)

    simple: dict[_Alternative, None] = {}
    for one in filter(known.__contains__, found):
        while one.tail:
            meter.spend(_STEPS * _weight(one.middle))
            for i, part in enumerate(one.middle):
                x = one.middle[i + 1 :]
                if not isinstance(part, Times) or part.low:
                    continue
                if part.piece == (*x, here) and is_closed(x):
                    break
                if not x and part.piece[0] == here and is_closed(part.piece[1:]):
                    break
            else:
                break
            one = one._replace(middle=joined(one.middle[:i], x))
        simple[one] = None
    return [*simple]


def _nesting(expression: Expression) -> int:
    if isinstance(expression, grammar.Repeat):
        return 1 + _nesting(expression.body)
    if isinstance(expression, (grammar.Choice, grammar.Sequence)):
        return 1 + max(map(_nesting, expression.parts), default=0)
    return 1


def _depth(piece: Piece) -> int:
    return max([1 + _depth(within) for part in piece for within in inside(part)], default=0)


def _weight(piece: Piece) -> int:
    """The parts of a piece, each as often as it is inside another one: what a function by recursion looks at."""
    found, level = 1, [*piece]
    depth = 1
    while level:
        found += depth * len(level)
        level = [part for each in level for within in inside(each) for part in within]
        depth += 1
    return found


def _without_first(middle: Piece) -> Piece:
    """A piece without what may be left out at its beginning."""
    return middle[1:] if middle and isinstance(middle[0], Times) and not middle[0].low else middle


def _calls_in(piece: Piece) -> list[str]:
    return [part.name.name for part in parts_in(piece) if isinstance(part, Call)]


def _calls_at_end(piece: Piece, *, last: bool) -> set[str]:
    """The rules that a text of a piece may begin or end with."""
    found: set[str] = set()
    for part in reversed(piece) if last else piece:
        if isinstance(part, Call):
            found.add(part.name.name)
        for within in inside(part):
            found |= _calls_at_end(within, last=last)
        if not nullable((part,)):
            break
    return found


def _reached(rules: Rules, root: str) -> dict[str, list[str]]:
    """The rules that the root leads to, and the references in each."""
    reached: dict[str, list[str]] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached[name] = [reference.name for reference in references(rules[name])]
            todo += reached[name]
    return reached


def _groups(graph: Mapping[Name, Iterable[Name]]) -> list[list[Name]]:
    """The strongly connected groups of a graph, each after those that it leads to: Tarjan's algorithm."""
    groups: list[list[Name]] = []
    order: dict[Name, int] = {}
    low: dict[Name, int] = {}
    waiting: dict[Name, None] = {}
    todo: list[tuple[Name, Iterator[Name]]] = []
    for root in graph:
        if root in low:
            continue
        todo.append((root, iter(graph[root])))
        low[root] = order[root] = len(low)
        waiting[root] = None
        while todo:
            name, following = todo[-1]
            for other in following:
                if other in graph and other not in low:
                    low[other] = order[other] = len(low)
                    waiting[other] = None
                    todo.append((other, iter(graph[other])))
                    break
                if other in waiting:
                    low[name] = min(low[name], low[other])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[name])
                if low[name] == order[name]:
                    group: list[Name] = []
                    while not group or group[-1] != name:
                        group.append(waiting.popitem()[0])
                    groups.append(group[::-1])
    return groups
