r"""A regular language as a network: automata that count and call each other, where one automaton would be too large.

- A language whose automaton is small is one component: its masks are the quickest.
- A repetition of one of many characters, as in ``.{10,500}`` and ``\w+``, is a component that a register counts for
  (registers.py). Its automaton is the same whatever the bounds are and wherever it stands, so its tables are made
  once for a vocabulary. So is an intersection with it, as long as its texts may have any length:
  ``(?!.*secret).{1,99}``.
- Where the rest is still too large, each of its parts is a component. A text may then be read in several ways, and
  the sets of these are made when a text reaches them: ``(a|b)*a(a|b){18}`` as one automaton has 2^19 states, and is
  never read in more than 20 ways.

Intersections and complements, which look-around becomes, are automata in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from ..errors import CompileLimitExceeded
from ..options import CompileLimits
from ..regex import (
    ALL,
    Alt,
    And,
    Chars,
    CharSet,
    Concat,
    Node,
    Not,
    Repeat,
    alt,
    both,
    concat,
    is_plain,
    only_text,
    repeat,
    tree_cache,
)
from .byte_dfa import ByteDfa
from .counted_string import CountedString, is_free
from .limits import WorkMeter
from .nfa import expected_states, language_dfa
from .registers import LengthRule
from .rtn import Component, ComponentBuilder, Mark
from .writable_texts import WritableTexts, writable_components

_SMALL = CompileLimits(max_states=1_000, max_work=150_000, expect=True)  # for an automaton that is one component
_STEPS = 40  # work of a part of a pattern that is added to a component
_PART = CompileLimits(max_states=1_000, max_work=150_000)  # for one that is a part
_COUNTED = CompileLimits(max_states=5_000, max_work=500_000, expect=True)  # for one without the counted parts
_WIDE = 20  # characters of a set that has enough tokens for one table of all counts to pay
_FEW = 4  # repetitions of a wide set that are counted by a register
_LARGE = 500  # states, about, of repetitions of a part that becomes a component
_MANY = 17  # limit for any set, where an automaton with all of them would be too large
_MOST_WAYS = 900  # maximum number of ways to read a text; frames.c takes 1024
_MOST_FOLLOWING = 16  # bytes after a repetition by which the tokens that leave it are found
_ADVICE = 'bound the repetitions of the pattern more tightly, or choose backend="llguidance"'
T = TypeVar("T")


class Counted(NamedTuple):
    """Texts with ``low`` to ``high`` characters; ``high`` None is no bound."""

    content: Node  # any number of characters: a set that is repeated, perhaps without some words
    low: int
    high: int | None

    @property
    def counts(self) -> int:
        """Number of different counts that a register has."""
        return 1 + (self.low if self.high is None else self.high)

    def add(self, builder: ComponentBuilder) -> tuple[int, int]:
        """Add them to a component of their own; returns its first and its last state."""
        start, inside, end = builder.state(), builder.state(), builder.state()
        builder.call(Mark.BEGIN, start, inside)
        if isinstance(self.content, Repeat):
            builder.add(self.content.body, inside, inside)  # made deterministic once
        else:
            inside = builder.regex(self.content, inside)
        builder.call(Mark.END, inside, end)
        return start, end


class RegexNetwork(NamedTuple):
    """The components of a language, the root first, and the rules of those that are counted."""

    components: list[Component]
    rules: dict[int, LengthRule]

    def cut_to(self, texts: WritableTexts, meter: WorkMeter) -> RegexNetwork:
        """The network of the texts that a vocabulary can write; raises NothingWritable if there are none."""
        not_empty = [place for place, rule in self.rules.items() if rule.low]
        components = writable_components(self.components, texts, not_empty, meter)
        rules = {}
        for place, rule in self.rules.items():
            component = components[place]
            if component.callees:  # else nothing of it can be written, and nothing calls it
                string = CountedString.of_characters(component.dfa, _inside(component), rule.string.following)
                rules[place] = replace(rule, string=string)
        return RegexNetwork(components, rules)


def regex_network(node: Node, meter: WorkMeter, *, endless: bool = True) -> RegexNetwork:
    """The network of a language; its root accepts nothing where the language has no text.

    ``endless`` counts repetitions without a bound too. That saves most tables, but where a language has many of them
    its masks take four times as long in the worst case.

    CompileLimitExceeded if it is too large, or there may be too many ways to read a text.
    """
    if not _has_wide(node, endless):
        dfa = _within(_SMALL, meter, partial(language_dfa, node))
        if dfa is not None:
            return RegexNetwork([Component.without_calls(dfa)], {})
    is_whole = _Parts(ComponentBuilder(meter), meter, is_deep=False).is_whole(node)
    made = None if is_whole else _within(_COUNTED, meter, partial(_network, node, is_deep=False))
    if made is None:
        try:
            made = _network(node, meter, is_deep=True)
        except CompileLimitExceeded:
            meter.look()  # time has its own message
            raise CompileLimitExceeded(f"the native engine would need too large an automaton; {_ADVICE}") from None
    if made is None:
        raise CompileLimitExceeded(f"there may be more ways to read a text than the native engine follows; {_ADVICE}")
    return made


def _within(limits: CompileLimits, meter: WorkMeter, make: Callable[[WorkMeter], T]) -> T | None:
    """The result of a function within limits; None if it takes more."""
    tried = WorkMeter(limits)
    try:
        return make(tried)
    except CompileLimitExceeded:
        return None
    finally:
        meter.spend(tried.work)


def _network(node: Node, meter: WorkMeter, *, is_deep: bool) -> RegexNetwork | None:
    """The network of a language; None where there may be too many ways to read a text.

    The parts that are counted are components; where it ``is_deep``, all parts are.
    """
    callees: dict[Hashable, int] = {}

    def number(callee: Hashable) -> int:
        return int(callee) if isinstance(callee, Mark) else callees.setdefault(callee, 1 + len(callees))

    builder = ComponentBuilder(meter)
    start, end = builder.state(), builder.state()
    parts = _Parts(builder, meter, is_deep)
    if parts.is_whole(node):
        return RegexNetwork([Component.without_calls(language_dfa(node, meter))], {})
    parts.add(node, start, end)
    root = builder.component(start, end, number)
    components, rules = [root], {}
    for callee in list(callees):
        if isinstance(callee, Counted):
            builder = ComponentBuilder(meter)
            components.append(builder.component(*callee.add(builder), number))
        else:
            assert isinstance(callee, ByteDfa)
            components.append(Component.without_calls(callee))
    for callee, place in callees.items():
        if isinstance(callee, Counted):
            following = _following(components, root.callees.index(place))
            string = CountedString.of_characters(components[place].dfa, _inside(components[place]), following)
            rules[place] = LengthRule(callee.low, callee.high, string)
    meter.check_states(sum(component.dfa.states for component in components))
    ways = root.dfa.states + 3 * np.count_nonzero(root.after_calls) + sum(map(_ways, callees))
    if ways > _MOST_WAYS and not _Entries(parts).are_unique(node):
        return None
    return RegexNetwork(components, rules)


class _Parts:
    """Lays a language into the root component of a network."""

    def __init__(self, builder: ComponentBuilder, meter: WorkMeter, is_deep: bool):
        self._builder, self._meter, self._is_deep = builder, meter, is_deep
        self._called: dict[Node, Counted | ByteDfa | None] = {}  # None where a part is not one component

    def add(self, node: Node, start: int, end: int) -> None:
        # A row is looked at as a whole for each copy.
        self._meter.spend(_STEPS + (4 * len(node.parts) if isinstance(node, Concat) else 0))
        builder = self._builder
        if callee := self.callee(node):
            builder.call(callee, start, end)
        elif not self.is_taken_apart(node):
            builder.add(node, start, end)
        elif isinstance(node, Concat):
            self._add_row(_fused(node.parts), start, end)
        elif isinstance(node, Alt):
            whole: list[Node] = []
            apart: list[Node] = []
            for branch in node.parts:
                (apart if _counted(branch) or self.is_taken_apart(branch) else whole).append(branch)
            if whole:
                builder.add(alt(*whole), start, end)
            for branch in apart:
                self.add(branch, start, end)
        elif isinstance(node, Repeat):
            self._add_repeated(node, start, end)

    def _add_row(self, parts: Sequence[Node], start: int, end: int) -> None:
        whole: list[Node] = []  # side by side
        for part in parts:
            if not self.callee(part) and not self.is_taken_apart(part):
                whole.append(part)
                continue
            if whole:
                start = self._builder.regex(concat(*whole), start)
                whole = []
            start, before = self._builder.state(), start
            self.add(part, before, start)
        if whole:
            self._builder.add(concat(*whole), start, end)
        else:
            self._builder.epsilon(start, end)

    def callee(self, node: Node) -> Counted | ByteDfa | None:
        if node not in self._called:
            callee: Counted | ByteDfa | None = None
            if (counted := _counted(node)) is not None:
                callee = counted if isinstance(node, Repeat) or self._is_free(counted) else None
            elif self._is_deep and self.is_taken_apart(node) and not _has_parts(node):
                callee = self._part(node)
            self._called[node] = callee
        return self._called[node]

    def _part(self, node: Node) -> ByteDfa | None:
        return _within(_PART, self._meter, partial(language_dfa, node))

    def _is_free(self, counted: Counted) -> bool:
        dfa = self._part(counted.content) if counted.content.nullable else None
        return dfa is not None and is_free(dfa)

    def is_taken_apart(self, node: Node) -> bool:
        if isinstance(node, Chars) or only_text(node) is not None or not isinstance(node, (Concat, Alt, Repeat)):
            return False
        return _has_parts(node) or (self._is_deep and is_plain(node))

    def is_whole(self, node: Node) -> bool:
        return isinstance(node, (And, Not)) and not self.callee(node)

    def _add_repeated(self, node: Repeat, start: int, end: int) -> None:
        builder = self._builder
        if (written := _with_wide_apart(node)) is not node:
            self.add(written, start, end)
            return
        most = node.low if node.high is None else node.high
        if _is_large(node):
            self._called[node.body] = self._part(node.body)
        for count in range(most):
            if count >= node.low:
                builder.epsilon(start, end)
            start, before = builder.state(), start
            self.add(node.body, before, start)
        if node.high is None:
            loop, last = builder.state(), builder.state()
            builder.epsilon(start, loop)
            self.add(node.body, loop, last)
            builder.epsilon(last, loop)
            start = loop
        builder.epsilon(start, end)


def _counted(node: Node) -> Counted | None:
    """The counted texts that a language is, or None; of an intersection it is to be checked whether a register can."""
    if isinstance(node, And):
        counted = [each for each in map(_counted, node.parts) if each]
        others = [part for part in node.parts if not _counted(part)]
        return counted[0]._replace(content=both(counted[0].content, *others)) if len(counted) == 1 else None
    if not isinstance(node, Repeat) or not isinstance(node.body, Chars):
        return None
    if node.low and not _has_byte(node.body):  # token limits fill up a string with characters of one byte
        return None
    most = node.low if node.high is None else node.high
    if most >= _MANY or (_is_wide(node.body) and (node.high is None or most >= _FEW)):
        return Counted(repeat(node.body), node.low, node.high)
    return None


def _has_byte(node: Chars) -> bool:
    return any(first < 0x80 for first, _ in node.charset.ranges)


def _is_wide(node: Node) -> bool:
    return isinstance(node, Chars) and len(node.charset) >= _WIDE


def _with_wide_apart(node: Repeat) -> Node:
    """``(x|y|z)*`` as ``x*(yx*|zx*)*``, where ``x`` is a wide set."""
    wide = [branch for branch in node.body.parts if _is_wide(branch)] if isinstance(node.body, Alt) else []
    if not wide or node.low or node.high is not None:
        return node
    assert isinstance(node.body, Alt)
    star = repeat(wide[0])
    others = [concat(branch, star) for branch in node.body.parts if branch is not wide[0]]
    return concat(star, repeat(alt(*others)))


def _fused(parts: Sequence[Node]) -> Sequence[Node]:
    """Repetitions of one set of characters in a row as one: ``x{2}xx*`` is ``x{3,}``."""
    if not any(isinstance(part, Repeat) for part in parts):  # as in most of a list of words
        return parts
    fused: list[Node] = []
    for part in parts:
        before = fused[-1] if fused else part
        first, second = (each if isinstance(each, Repeat) else Repeat(each, 1, 1) for each in (before, part))
        are_letters = isinstance(before, Chars) and isinstance(part, Chars)
        if fused and first.body == second.body and isinstance(first.body, Chars) and not are_letters:
            most = None if first.high is None or second.high is None else first.high + second.high
            fused[-1] = Repeat(first.body, first.low + second.low, most)
        else:
            fused.append(part)
    return fused


def _children(node: Node) -> Sequence[Node]:
    if isinstance(node, Concat):
        return _fused(node.parts)
    if isinstance(node, Alt):
        return node.parts
    return (node.body,) if isinstance(node, Repeat) else ()


def _is_large(node: Repeat) -> bool:
    """Whether the body of a repetition is to be a component, because its copies would be many states."""
    most = node.low if node.high is None else node.high
    if most < _FEW or isinstance(node.body, Chars) or not is_plain(node.body) or _has_parts(node.body):
        return False
    return most * expected_states(node.body) > _LARGE


@tree_cache(maxsize=1024)
def _has_parts(node: Node) -> bool:
    if _counted(node) or (isinstance(node, Repeat) and (_with_wide_apart(node) is not node or _is_large(node))):
        return True
    return any(_has_parts(child) for child in _children(node) if not isinstance(child, Chars))


@tree_cache(maxsize=1024)
def _has_wide(node: Node, endless: bool) -> bool:
    if isinstance(node, Repeat) and (endless or node.high is not None):
        if _with_wide_apart(node) is not node or (_is_wide(node.body) and _counted(node)):
            return True
    children = node.parts if isinstance(node, And) and _counted(node) else _children(node)
    return any(_has_wide(child, endless) for child in children if not isinstance(child, Chars))


# -- what comes after


def _inside(component: Component) -> int:
    return int(component.after_calls[component.callees.index(Mark.BEGIN)].max())


def _following(components: Sequence[Component], call: int) -> bytes | None:
    """The bytes that may come after a call, by its number, of the first component, the root; None if there are many."""
    root = components[0]
    found: set[int] = set()
    seen = {0}
    todo = np.unique(root.after_calls[call]).tolist()
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        found |= _bytes_from(root.dfa, state)
        for callee, after in root.calls:
            if after[state]:
                first = components[callee]
                inside = _inside(first) if first.callees else first.dfa.start
                found |= _bytes_from(first.dfa, inside)
                todo.append(int(after[state]))  # as if the callee had the empty text
        if len(found) > _MOST_FOLLOWING:
            return None
    return bytes(sorted(found))


def _bytes_from(dfa: ByteDfa, state: int) -> set[int]:
    return set(np.flatnonzero(dfa.table[state][dfa.byte_class]).tolist())


# -- in how many ways a text may be read


def _ways(callee: Hashable) -> int:
    """In how many ways a component may be read at once: with as many counts, or in as many states."""
    if isinstance(callee, Counted):
        return callee.counts
    assert isinstance(callee, ByteDfa)
    return callee.states


class _Entries:
    """Whether each part that is called begins at one place of a text at most, while it may continue.

    It does if no text before it ends with one of its characters, or all of them have the same length.
    """

    def __init__(self, parts: _Parts) -> None:
        self._parts, self._unique = parts, True

    def are_unique(self, node: Node) -> bool:
        self._read(node, CharSet(), True)
        return self._unique

    def _read(self, node: Node, last: CharSet, is_fixed: bool) -> tuple[CharSet, bool]:
        """Read a language after texts: their last characters, and whether they have one length; the same with it."""
        if isinstance(node, Concat):
            for part in _children(node):
                last, is_fixed = self._read(part, last, is_fixed)
            return last, is_fixed
        if isinstance(node, Repeat) and (written := _with_wide_apart(node)) is not node:
            return self._read(written, last, is_fixed)
        ends = _last(node)
        if self._parts.callee(node):
            self._unique &= is_fixed or last.isdisjoint(_characters(node))
        elif self._parts.is_taken_apart(node):
            is_again = isinstance(node, Repeat) and node.high != 1
            if isinstance(node, Repeat) and node.body.nullable and max(node.low, node.high or 0) > 1:
                self._unique = False  # any of the copies may be the one that has a text
            for child in _children(node):
                self._read(child, last | ends if is_again else last, is_fixed and not is_again)
        return ends | last if node.nullable else ends, is_fixed and _has_one_length(node)


@tree_cache(maxsize=1024)
def _last(node: Node) -> CharSet:
    """The characters that texts of a language may end with, or more."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, (And, Not)):
        return _in_all(node, _last)
    found = CharSet()
    for child in reversed(_children(node)):
        found |= _last(child)
        if isinstance(node, Concat) and not child.nullable:
            break
    return found


@tree_cache(maxsize=1024)
def _characters(node: Node) -> CharSet:
    """The characters of the texts of a language, or more."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, (And, Not)):
        return _in_all(node, _characters)
    found = CharSet()
    for child in _children(node):
        found |= _characters(child)
    return found


def _in_all(node: And | Not, characters: Callable[[Node], CharSet]) -> CharSet:
    """The characters that all parts of an intersection have."""
    found = ALL
    for part in node.parts if isinstance(node, And) else ():
        found &= characters(part)
    return found


def _has_one_length(node: Node) -> bool:
    """Whether it is plain that all texts of a language have the same length."""
    if isinstance(node, Chars):
        return True
    if isinstance(node, Concat):
        return all(map(_has_one_length, node.parts))
    return isinstance(node, Repeat) and node.low == node.high and _has_one_length(node.body)
