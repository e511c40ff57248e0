"""Builds the network of a schema: the whole of it, or only what a text reaches.

A component that is surely small is built when the first text reaches it: of a large schema a text uses little. What may
be refused has to be refused before the first token, so all others are built at once, and those of doubtful rules. So is
all that different items may hold: whether another one is left may be asked in the middle of a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..automaton.frame_machine import reads
from ..automaton.limits import WorkMeter
from ..automaton.network import Network
from ..automaton.registers import ItemRule, LengthRule, NameRule, Rule
from ..automaton.rtn import Component, Rtn, build_rtn
from ..errors import Loss, UnsupportedConstraint
from ..schema.component_size import is_endless, size_of_content
from ..schema.content_automata import ContentAutomaton
from ..schema.registers import DifferentItems
from ..schema.to_network import LongString, RegisteredPositions, Track, long_string, names_of
from ..schema.to_rtn import Inside

_SMALL = 20_000  # states and moves of a component that is built later; each takes about 20 steps of work, at most 500
_BYTES = 50  # of memory for each


class Built(NamedTuple):
    """A network.

    Args:
        network: the network.
        nbytes: that all of it takes at most.
        is_compiled: whether the compiled loops read all components, where they are there.
    """

    network: Network
    nbytes: int
    is_compiled: bool


def size_of(components: Iterable[Component]) -> int:
    """Bytes that a network has, and the lists that are made of its arrays."""
    return sum(6 * component.dfa.nbytes for component in components)


def reachable_network(positions: RegisteredPositions, meter: WorkMeter) -> Built | None:
    """A network of which most components are built later.

    Args:
        positions: of the schema.
        meter: counts the work of what is built at once.

    Returns:
        None where arrays or objects without values have to be left out first.

    Raises:
        CompileLimitExceeded: a component that is built at once is too large.
    """
    rtn: Rtn[Inside | Track | LongString] = Rtn(positions.root, positions.build, meter.limits)
    later, is_compiled = 0, True
    at_once: list[int] = []
    in_doubt: list[int] = []
    whole: list[int] = []  # with all callees
    for inside, content in positions.reached():
        size = size_of_content(content)
        if size is None or size > _SMALL:
            at_once.append(rtn.number(positions.callee(inside.position, inside.level)))
        else:
            later += size
        is_compiled &= positions.is_canonical or not any(map(long_string, content.scalars))
        for number, automaton in enumerate(content.automata):
            is_compiled &= automaton.register is None
            if isinstance(automaton.register, DifferentItems):
                whole.append(rtn.number(positions.track_at(inside, number)))
            if not _has_enough(automaton):
                in_doubt.append(rtn.number(positions.track_at(inside, number)))
    nbytes, states = _BYTES * later, 0
    built: set[int] = set()
    for numbers, takes_all in ((whole, True), ([*at_once, *in_doubt], False)):
        todo = list(numbers)
        while todo:
            number = todo.pop()
            if number in built:
                continue
            built.add(number)
            component = rtn.built(number, meter)
            states += component.dfa.states
            meter.check_states(states)
            nbytes += size_of([component])
            # The inside of an array or an object, if it is a component of its own; or all callees.
            callees = [callee for callee, _ in component.calls if callee >= 0]
            todo += [callee for callee in callees if takes_all or isinstance(rtn.name(callee), Track)]

    def rule(number: int) -> Rule | None:
        callees = {callee for callee, _ in rtn[number].calls}
        return _rule(positions, rtn.name(number), lambda name: _one_of(callees, rtn.known_number(name)))

    # Names are strings: only different items have members.
    network = Network(rtn, rule, ordered=bool(whole) and positions.is_ordered)
    for number in in_doubt:
        network.reach(number)
        if not network.rules[number].is_possible(network):
            return None
    return Built(network, nbytes, is_compiled)


def whole_network(positions: RegisteredPositions, meter: WorkMeter) -> Built:
    """A network with all its components.

    Args:
        positions: of the schema; alternatives without any value are left out there.
        meter: counts the work.

    Raises:
        InvalidConstraint: no value satisfies it: there are fewer different items, or names, than there have to be.
        UnsupportedConstraint: it is not known whether there are enough.
        CompileLimitExceeded: it is too large.
    """
    while True:
        components = build_rtn(positions.root, positions.build, meter)
        numbers = {callee: number for number, callee in enumerate(components)}
        rules = {number: _rule(positions, callee, numbers.get) for callee, number in numbers.items()}
        network = Network([*components.values()], rules.get, ordered=positions.is_ordered)
        without_values: list[Track] = []
        for callee, number in numbers.items():
            if (rule := rules[number]) is None or (possible := rule.is_possible(network)):
                continue
            assert isinstance(callee, Track), "a long string is always possible"
            if possible is None:
                reason = "it is not known whether enough different ones are left"
                loss = Loss(*positions.register(callee).origin, reason)
                raise UnsupportedConstraint("the network does not take this JSON Schema", [loss])
            without_values.append(callee)
        if not without_values:
            return Built(network, size_of(components.values()), all(map(reads, rules.values())))
        positions.leave_out(without_values)


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


def _one_of(numbers: set[int], number: int | None) -> int | None:
    return number if number in numbers else None


def _rule(positions: RegisteredPositions, callee: Any, number: Callable[[Any], int | None]) -> Rule | None:
    """The rule of a component's register; None if it has none.

    Args:
        positions: of the schema.
        callee: what the component was called.
        number: of other components; None for those that the component does not call.
    """
    if isinstance(callee, LongString):
        return LengthRule(*callee, one_spelling=positions.is_canonical)
    if not isinstance(callee, Track):
        return None
    register = positions.register(callee)
    if isinstance(register, DifferentItems):
        items = positions.item_callees(callee, register)
        # One that may not come after all the others is in no component.
        numbers = tuple(None if item is None else number(item) for item in items)
        return ItemRule(numbers, register.low, positions.is_ordered, positions.is_canonical)
    names, languages = positions.names(callee)
    return NameRule(
        frozenset(json.dumps(name, ensure_ascii=False).encode() for name in register.required),
        register.low,
        register.high,
        len(names),
        tuple(known for language in languages if (known := number(language)) is not None),
        register.any_order,
    )
