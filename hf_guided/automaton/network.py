"""A network: an RTN with registers, which compiled loops read (frame_machine.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from .after_fork import Shared
from .network_graph import NetworkGraph
from .registers import Rule
from .rtn import Components

MAX_FRAMES = 1024  # maximum number of ways to read one text, as in frames.h


class Network(Shared):
    """A network; thread safe.

    Only components that a text reaches are looked up, and may be built then; ``rules`` are theirs. The root is the
    first. ``rule`` gives the rule of a component's register, by number; None if it has none. ``ordered`` says whether
    equal values have their members in the same order.
    """

    def __init__(self, components: Components, rule: Callable[[int], Rule | None], *, ordered: bool):
        self.components, self.ordered, self._new_rule = components, ordered, rule
        self.rules: dict[int, Rule] = {}
        self._reached: set[int] = set()
        super().__init__()

    def reach(self, component: int) -> None:
        """Build a component, if it is not there yet, and its rule."""
        if component in self._reached:
            return
        with self._lock:
            if component not in self._reached:
                _ = self.components[component]
                rule = self._new_rule(component)
                if rule is not None:
                    self.rules[component] = rule
                self._reached.add(component)  # last, for other threads look here

    def rule(self, component: int) -> Rule | None:
        """The rule of a component's register; None if it has none."""
        self.reach(component)
        return self.rules.get(component)

    @cached_property
    def graph(self) -> NetworkGraph:
        """Where infinitely many values remain."""
        return NetworkGraph(self)
