"""Rules that lead to each other at their ends, as automata that loop instead of calling.

If each alternative of ``A`` is ``A x A``, ``u A``, ``A v``, or ``b`` without ``A`` at its ends, the texts of ``A`` are
``u* b v* (x u* b v*)*``: an automaton with one state where ``A`` begins and one where it ends. Rules that lead to each
other only at their ends (or only at their beginnings) have an automaton with a state where each begins (ends): the
others begin where they end. Where they do both, all but one are put into that one. If this is not possible, or takes
too many alternatives, they call each other at their ends, and loop at their beginnings: what calls itself before its
first byte would never end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ..automaton.limits import WorkMeter
from ..errors import CompileLimitExceeded
from .pieces import Call, Choice, Part, Piece, Times, joined, not_empty, nullable, times
from .rule_pieces import STEPS, Rule, calls_at_end, depth_of, weight
from .rules import circles

_MOST_PRODUCTS = 300_000  # steps for the alternatives of a group by both ends; where they take more, only its heads
_MOST_REPLACED = 150  # depths of all rules of a group that are put into one of them: a function follows by recursion
_MOST_TRIED = 50  # rules of a group, each of which all others may be put into


class _Alternative(NamedTuple):
    """Texts of a rule: maybe those of another rule of its group, then a middle, maybe those of another rule."""

    head: str | None
    middle: Piece
    tail: str | None


_NOTHING = _Alternative(None, (), None)


class Group(NamedTuple):
    """Rules that lead to each other at their ends, as one automaton."""

    alternatives: Mapping[str, Collection[_Alternative]]
    has_one_begin: bool = False  # whether all rules begin in one state; else they may end in one
    has_one_end: bool = False

    @property
    def middles(self) -> Iterator[Piece]:
        """The middle of each alternative."""
        for alternatives in self.alternatives.values():
            yield from [alternative.middle for alternative in alternatives]


def groups_of(text: str, pieces: Mapping[str, Piece], meter: WorkMeter) -> dict[str, Group]:
    """The group of each rule; ``pieces`` are the texts of the rules of the grammar ``text``."""
    return _Grouping(text, pieces, meter).groups


class _Grouping:
    """Puts the rules of one grammar into groups."""

    def __init__(self, text: str, pieces: Mapping[str, Piece], meter: WorkMeter):
        self._text, self._pieces, self._meter = text, pieces, meter
        self.groups: dict[str, Group] = {}
        ends = {name: self._ends(name) for name in pieces}
        for names in circles(ends):
            of_group = {*names}
            self._group(names, {name: ends[name] & of_group for name in names})

    def _ends(self, name: str) -> set[str]:
        piece = self._pieces[name]
        self._meter.spend(STEPS * weight(piece))
        return calls_at_end(piece, last=False) | calls_at_end(piece, last=True)

    def _group(self, names: Sequence[str], ends: Mapping[str, set[str]]) -> None:
        """Find the automaton of rules that lead to each other at their ends; ``ends`` are those among them."""
        if not any(ends.values()):
            for name in names:
                self.groups[name] = Group({name: _in_one(self._pieces[name])})
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
            groups = dict.fromkeys(names, Group(found, has_one_begin=True))
        self.groups |= groups

    def _by_both_ends(
        self, names: Sequence[str], ends: Mapping[str, set[str]], meter: WorkMeter
    ) -> dict[str, Group] | None:
        """The groups by the alternatives of their rules, without calls at the ends; None if there are none."""
        of_names = _Ends.of(names, meter)
        found = {name: self._alternatives(self._pieces[name], of_names) for name in names}
        if len(names) == 1:
            (name,) = names
            return {name: Group({name: _as_loop(Rule(self._text, name), found[name], meter)})}
        each = [alternative for alternatives in found.values() for alternative in alternatives]
        if not any(one.head and (one.middle or one.tail) for one in each):
            for name, alternatives in found.items():  # A rule that is all of another one ends with it, too.
                found[name] = [_Alternative(None, one.middle, one.head or one.tail) for one in alternatives]
            return dict.fromkeys(names, Group(found, has_one_end=True))
        if not any(one.tail for one in each):
            return dict.fromkeys(names, Group(found, has_one_begin=True))
        if sum([1 + depth_of(self._pieces[name]) for name in names]) > _MOST_REPLACED:
            return None
        edges = sum(map(len, ends.values()))
        for kept in names[:_MOST_TRIED]:
            meter.spend(STEPS * (len(names) + edges))
            rest = {name: ends[name] - {kept} for name in names if name != kept}
            if all(len(some) == 1 and some[0] not in rest[some[0]] for some in circles(rest)):
                alternatives = self._alternatives(self._pieces[kept], _Ends.of(names, meter, rest))
                group = Group({kept: _as_loop(Rule(self._text, kept), alternatives, meter)})
                return {kept: group, **{name: Group({name: _in_one(self._pieces[name])}) for name in rest}}
        return None

    def _alternatives(self, piece: Piece, ends: _Ends, *, head: bool = True, tail: bool = True) -> list[_Alternative]:
        """The texts of a piece but the empty one by the rules at its ends, which ``head`` and ``tail`` look for."""
        ends.meter.spend(STEPS * weight(piece))  # to look it up, and to see its ends
        found = ends.found.get((piece, head, tail))
        if found is None:
            found = self._by_ends(piece, ends, head=head, tail=tail)
            ends.meter.spend(STEPS * sum([1 + len(one.middle) for one in found]))
            found = ends.found[piece, head, tail] = [*dict.fromkeys(found)]
        return found

    def _by_ends(self, piece: Piece, ends: _Ends, *, head: bool, tail: bool) -> list[_Alternative]:
        names = calls_at_end(piece, last=False) if head else set[str]()
        names |= calls_at_end(piece, last=True) if tail else set()
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
    meter.spend(STEPS * (size + len(begins) * sum([len(last.middle) for last in lasts])))
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
        meter.spend(STEPS * (weight(one.middle) + weight(x)))
        return bool(one.tail) or _Alternative(one.head, joined(one.middle, more, x), name) in known

    @cache
    def is_closed(x: Piece) -> bool:
        more = (Times((*x, here), 0, None),)
        return x in between or all(is_kept(one, x, more) for one in known)

    simple: dict[_Alternative, None] = {}
    for one in filter(known.__contains__, found):
        while one.tail:
            meter.spend(STEPS * weight(one.middle))
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


def _without_first(middle: Piece) -> Piece:
    """A piece without what may be left out at its beginning."""
    return middle[1:] if middle and isinstance(middle[0], Times) and not middle[0].low else middle
