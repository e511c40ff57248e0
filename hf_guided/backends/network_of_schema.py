"""Builds the network of a schema, of a grammar, or of a tag with several: the whole of it, or what a text reaches.

A component that is surely small is built when the first text reaches it: of a large schema a text uses little. What may
be refused has to be refused before the first token, so all others are built at once, and those of doubtful rules. So is
all that different items may hold: whether another one is left may be asked in the middle of a text. And so are the
texts of a tag, the rules of a grammar, and arguments as elements, whose sizes are not plain to see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from ..automaton.counted_string import AmbiguousString
from ..automaton.limits import WorkMeter
from ..automaton.network import MAX_FRAMES, Network
from ..automaton.registers import ItemRule, LengthRule, NameRule, Rule
from ..automaton.rtn import Component, ComponentBuilder, Mark, Rtn, build_rtn
from ..automaton.values import ValueSearch
from ..automaton.writable_texts import NothingWritable, WritableTexts, writable_components
from ..constraints.structural_tag_checks import inside_tag
from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint
from ..grammars.rule_pieces import Rule as GrammarRule
from ..regex import ANYTHING, characters
from ..schema.content_automata import ContentAutomaton, DifferentItems, is_endless
from ..schema.grammar import Content
from ..schema.network_writer import Inside
from ..schema.scalars import LongString, Values, constant_text
from ..schema.shapes import StringClause
from ..schema.sizes import size_of_content
from ..schema.to_network import Positions, Track, names_of

_SMALL = 20_000  # states and moves of a component that is built later; each takes about 20 steps of work, at most 500
_BYTES = 50  # memory for each
_SPELLED_OUT = 9_000  # characters of a format in all its spellings: 20 ms in the middle of a text would be too long


class BuiltNetwork(NamedTuple):
    """A network."""

    network: Network
    values: ValueSearch  # the values of its components
    nbytes: int  # memory at most, for the whole network
    at_once: Collection[int]  # the numbers of the components that are built already
    # Bytes that are enough for the text of a component; None where only its automaton tells.
    least: Callable[[int], int | None] = lambda number: None

    @classmethod
    def of(cls, components: Sequence[Component], rules: Mapping[int, Rule | None], ordered: bool) -> BuiltNetwork:
        """The network of components that are there; see ``Network``."""
        network = Network(components, rules.get, ordered=ordered)
        return cls(network, ValueSearch(network), size_of(components), range(len(components)))

    @property
    def at_once_bytes(self) -> int:
        """Bytes of the arrays that are built already."""
        return sum([self.network.components[number].nbytes for number in self.at_once])


def size_of(components: Iterable[Component]) -> int:
    """Bytes that a network has, and the lists that are made of its arrays."""
    return sum([6 * component.dfa.nbytes for component in components])


class SchemaPart(NamedTuple):
    """A schema of a network."""

    positions: Positions
    starts: tuple[Inside, ...]  # its outermost positions that are written as JSON
    pointer: str  # its position in the constraint


class NetworkPlan(NamedTuple):
    """The parts that a network is built of."""

    root: Any  # the name of its first component
    build: Callable[[Any, ComponentBuilder], tuple[int, int]]  # the component of a name, see ``Rtn``
    parts: Mapping[str, SchemaPart]  # schemas of the constraint, by the names that they have in the names of components

    @classmethod
    def of_schema(cls, positions: Positions) -> NetworkPlan:
        """The plan of one schema."""
        part = SchemaPart(positions, (positions.whole,), "")
        return cls(positions.root, positions.build, {positions.name: part})

    @property
    def is_ordered(self) -> bool:
        """Whether equal values always have their members in the same order."""
        return all(part.positions.is_ordered for part in self.parts.values())

    def part(self, name: Any) -> SchemaPart | None:
        """The schema to which the component of a name belongs; None for regular languages, and the texts of a tag."""
        return self.parts[name.schema] if isinstance(name, (Inside, Track, LongString)) else None

    def least_size(self, name: Any) -> int | None:
        """Bytes that are enough for the text of the component of a name; None where only its automaton tells."""
        if isinstance(name, Values):  # equal for all schemas
            return next(iter(self.parts.values())).positions.least_size(name)
        part = self.part(name)
        return None if part is None else part.positions.least_size(name)

    def check(self, name: Any, component: Component) -> None:
        """Refuse a component that no text could be read by: it has none, or there would be too many ways to read one.

        After an AmbiguousString, the plan counts that string in another way.
        """
        part, after_calls = self.part(name), component.after_calls
        most = MAX_FRAMES if part is None else part.positions.most_calls
        if len(after_calls) > most and np.count_nonzero(after_calls, 0).max() > most:
            raise CompileLimitExceeded(
                f"more than {most} different values may come in one place; let what tells the alternatives apart come "
                "first, or choose another backend"
            )
        if not component.dfa.accepting.any():
            pointer = "" if part is None else part.pointer
            raise InvalidConstraint(f"no text fits {f'what is at {pointer}' if pointer else 'it'}", pointers=[pointer])
        if isinstance(name, LongString) and name.language != ANYTHING:
            try:
                _ = component.counted_string
            except AmbiguousString:
                self.parts[name.schema].positions.leave_uncounted(name)
                raise


def reachable_network(plan: NetworkPlan, meter: WorkMeter) -> BuiltNetwork | None:
    """A network of which most components are built later; None where some without values have to be left out first."""
    rtn: Rtn[Any] = Rtn(plan.root, plan.build, meter.limits)
    later: dict[Hashable, int] = {}  # sizes
    at_once: list[int] = [] if plan.part(plan.root) else [0]
    in_doubt: list[int] = []
    whole: list[int] = []  # components that are built with all callees
    for positions, starts, _ in plan.parts.values():
        for inside, content in positions.reached(starts):
            # Equal values without children have the same component.
            alike: Hashable = inside if content.automata else (positions.marks, *content.scalars)
            if alike in later:
                continue
            size = size_of_content(content, positions.marks)
            if size is None or size > _SMALL or _takes_long(positions, content):
                at_once.append(rtn.number(positions.name_of(inside)))
            else:
                later[alike] = size
            for automaton in content.automata:
                if isinstance(automaton.register, DifferentItems):
                    whole.append(rtn.number(positions.track(inside.position, inside.level, automaton)))
                if not _has_enough(automaton):
                    in_doubt.append(rtn.number(positions.track(inside.position, inside.level, automaton)))
    states = 0
    built: set[int] = set()
    for numbers, takes_all in ((whole, True), ([*at_once, *in_doubt], False)):
        todo = list(numbers)
        while todo:
            number = todo.pop()
            if number in built:
                continue
            built.add(number)
            component = rtn.built(number, meter)
            plan.check(rtn.name(number), component)
            states += component.dfa.states
            meter.check_states(states)
            callees = [callee for callee in component.callees if callee >= 0]
            todo += [callee for callee in callees if takes_all or _comes_at_once(rtn.name(callee))]

    def rule(number: int) -> Rule | None:
        return _rule(plan, rtn.name(number), rtn[number], rtn.known_number)

    # Names are strings: only different items have members.
    network = Network(rtn, rule, ordered=bool(whole) and plan.is_ordered)
    values = ValueSearch(network)
    for number in in_doubt:
        network.reach(number)
        if not network.rules[number].is_possible(values):
            return None
    nbytes = size_of(rtn[number] for number in built) + _BYTES * sum(later.values())
    return BuiltNetwork(network, values, nbytes, built, lambda number: plan.least_size(rtn.name(number)))


def whole_network(plan: NetworkPlan, meter: WorkMeter, texts: WritableTexts | None = None) -> BuiltNetwork:
    """A network with all its components; alternatives without any value are left out of the plan.

    The network has only texts among ``texts``, those that the vocabulary can write (None is all); NothingWritable where
    it has none. InvalidConstraint: no value satisfies a schema, as there are fewer different items, or names, than
    there have to be. UnsupportedConstraint: it is not known whether there are enough.
    """
    while True:
        named = build_rtn(plan.root, plan.build, meter)
        for name, component in named.items():
            plan.check(name, component)
        names, components = [*named], [*named.values()]
        built, impossible = _with_rules(plan, names, components, is_cut=False)
        is_cut = texts is not None and not impossible
        if texts is not None and not impossible:
            strings = [number for number, name in enumerate(names) if isinstance(name, LongString) and name.low]
            components = writable_components(components, texts, strings, meter)
            built, impossible = _with_rules(plan, names, components, is_cut=True)
        if not impossible:
            return built
        for schema, tracks in impossible.items():
            positions, _, pointer = plan.parts[schema]
            try:
                with inside_tag(pointer) if pointer else nullcontext():
                    positions.leave_out(tracks)
            except InvalidConstraint:
                if is_cut:
                    raise NothingWritable(b"") from None
                raise


def _with_rules(
    plan: NetworkPlan, names: Sequence[Any], components: Sequence[Component], *, is_cut: bool
) -> tuple[BuiltNetwork, dict[str, list[Track]]]:
    """The network of all components, some without a text; and of each schema the arrays and objects without a value."""
    numbers = {name: number for number, name in enumerate(names)}
    rules = {
        number: _rule(plan, name, component, numbers.get, is_cut=is_cut) if component.dfa.start else None
        for number, (name, component) in enumerate(zip(names, components, strict=True))
    }
    built = BuiltNetwork.of(components, rules, plan.is_ordered)
    impossible: dict[str, list[Track]] = {}
    for number, known in rules.items():
        if known is None:
            continue
        possible = known.is_possible(built.values)
        if is_cut and _ends_early(known, components[number]):
            possible = False
        if possible:
            continue
        track = names[number]
        assert isinstance(track, Track), "a long string is always possible"
        if possible is None:
            positions, _, pointer = plan.parts[track.schema]
            origin, keyword = positions.register(track).origin
            reason = "it is not known whether enough different items are left"
            if isinstance(known, NameRule):
                advice = "" if known.any_order else '; key_order="any" finds out'
                reason = f"it is not known whether enough names are left{advice}"
            loss = Loss.within(pointer + origin, keyword, reason)
            raise UnsupportedConstraint("the native engine does not take this JSON Schema", [loss])
        impossible.setdefault(track.schema, []).append(track)
    return built, impossible


def _takes_long(positions: Positions, content: Content) -> bool:
    """Whether a component is small, and takes tens of milliseconds nevertheless: few formats do, in any spelling."""
    if positions.is_spelled_like_keys:
        return False
    formats = [clause for clause in content.scalars if isinstance(clause, StringClause) and clause.is_format]
    languages = filter(None, map(positions.language, formats))
    return any([characters(language) > _SPELLED_OUT for language in languages])


def _comes_at_once(name: Any) -> bool:
    """Whether a component is built with its caller: one of which only building tells how large it is."""
    is_counted = isinstance(name, LongString) and name.language != ANYTHING
    return is_counted or isinstance(name, (Track, GrammarRule)) or (isinstance(name, Inside) and name.as_elements)


def _has_enough(automaton: ContentAutomaton) -> bool:
    """Whether it is plain that there are enough different items or names: see ``Rule.is_possible``."""
    register = automaton.register
    if register is None:
        return True
    if isinstance(register, DifferentItems):
        return register.low <= 1
    listed, languages = names_of(automaton)
    if register.any_order:
        return register.low <= len(listed) or any(map(is_endless, languages))
    return all(map(is_endless, languages))


def _ends_early(rule: Rule, component: Component) -> bool:
    """Whether an array or an object has to have several entries, and the comma between them cannot be written."""
    needs_more = isinstance(rule, (NameRule, ItemRule)) and (
        rule.low > 1 or (isinstance(rule, NameRule) and bool(rule.required))
    )
    return needs_more and Mark.BEGIN in component.callees and Mark.MORE not in component.callees


def _has_name(component: Component, text: bytes) -> bool:
    calls, dfa = dict(component.calls), component.dfa
    begins = {state for mark in (Mark.BEGIN, Mark.BEGIN_REQUIRED) if mark in calls for state in calls[mark].tolist()}
    return any([bool(calls[Mark.END][dfa.advance(state, text)]) for state in begins])


def _rule(
    plan: NetworkPlan,
    callee: Any,
    component: Component,
    number: Callable[[Any], int | None],
    *,
    is_cut: bool = False,
) -> Rule | None:
    """The rule of a component's register, or None. A component that is cut lacks texts that cannot be written."""
    if not isinstance(callee, (Track, LongString)):
        return None
    positions = plan.parts[callee.schema].positions
    if isinstance(callee, LongString):
        return LengthRule(callee.low, callee.high, component.counted_string)
    register = positions.register(callee)

    def called(name: Any) -> int | None:
        known = number(name)
        return known if known in component.callees else None

    if isinstance(register, DifferentItems):
        # One that may not come after all the others is in no component.
        numbers = tuple(
            called(positions.callee(item, callee.level)) if positions.has_values(item) else None
            for item in register.items
        )
        return ItemRule(numbers, register.low, plan.is_ordered, positions.is_spelled_like_keys)
    listed, languages = names_of(positions.automaton(callee))
    texts = frozenset([constant_text(name, positions.marks).encode() for name in listed])
    return NameRule(
        frozenset(constant_text(name, positions.marks).encode() for name in register.required),
        register.low,
        register.high,
        frozenset([text for text in texts if _has_name(component, text)]) if is_cut else texts,
        tuple(known for language in map(positions.names_text, languages) if (known := called(language)) is not None),
        register.any_order,
    )
