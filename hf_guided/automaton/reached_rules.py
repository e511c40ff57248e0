"""The rules of a network's registers, each known from when a text first reaches its component."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .after_fork import renew_in_child
from .registers import Rule
from .rtn import Components


class ReachedRules:
    """Rules by the number of their component; thread safe.

    Args:
        components: those that are not there yet are built where they are reached.
        rule: of the register of a component; None if it has none.

    Attributes:
        known: of the components that were reached.
    """

    def __init__(self, components: Components, rule: Callable[[int], Rule | None]):
        self._components, self._rule = components, rule
        self.known: dict[int, Rule] = {}
        self._reached: set[int] = set()
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.Lock()

    def reach(self, component: int) -> None:
        """Build a component, if it is not there yet, and its rule."""
        if component in self._reached:
            return
        with self._lock:
            if component not in self._reached:
                _ = self._components[component]
                rule = self._rule(component)
                if rule is not None:
                    self.known[component] = rule
                self._reached.add(component)  # last, for other threads look here

    def of(self, component: int) -> Rule | None:
        """The rule of a component; None if it has none."""
        self.reach(component)
        return self.known.get(component)

    def has_many_values(self, component: int) -> bool:
        """See ``Rule.has_many_values``."""
        rule = self.of(component)
        return rule is not None and rule.has_many_values

    def starts_open(self, component: int) -> bool:
        """Whether a component has a register that lets anything begin as long as nothing is entered."""
        rule = self.of(component)
        return rule is not None and rule.starts_open
