"""Texts read by an RTN: the configurations of a text, the tokens needed to finish it, and the tokens allowed next.

A *configuration* is a state of a component and a stack of the states to return to, as a linked list. A text may be in
several configurations. Equal configurations are one object, which also holds what is computed for it.

The tokens that a configuration needs are counted along its shortest path out: out of its component, then out of each
caller. A token that crosses the ends of components (``"}]}``) counts once. From a configuration that needs n tokens,
one token on the path leads to a configuration that needs n - 1, so a budget of n tokens is always enough.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter
from .lru_bytes import ByteCache
from .max_budget_growth import MaxBudgetGrowth
from .reach import single_byte_tokens
from .rtn import Component
from .shortest_paths import MAX_TEXT, UNREACHABLE, ShortestPaths
from .token_trie import TokenTrie
from .token_walk import TokenWalk

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

Ints = NDArray[np.integer[Any]]
_AHEAD = 32  # bytes of a path that tokens from inner components may reach into
_MAX_CONFIGURATIONS = 64  # of one text; those that need the most tokens are dropped first
_MAX_ITEMS = 1024  # parts of one walk over the vocabulary
_EXACT = 256  # states of one part whose needed tokens are counted individually
_MAX_BYTES = 8 * 2**20  # of the cached walks
_KEY_BYTES = 2048  # bytes of a configuration and its objects: most walks deep in a text find only a few tokens


class Configuration:
    """A state of a component, and the configuration after that component; only ``Pushdown.configuration`` creates it.

    Args:
        component: its number.
        state: in the component.
        below: the configuration to return to; None for the root.
        ahead: the first bytes of the path out.
        counts: tokens from each of those bytes to the end of the text; one entry more than there are bytes.
        apart: tokens to the end of the text, if no token crossed the end of a component.
    """

    __slots__ = ("__weakref__", "ahead", "apart", "below", "component", "counts", "state")

    def __init__(
        self, component: int, state: int, below: Configuration | None, ahead: bytes, counts: list[int], apart: int
    ):
        self.component, self.state, self.below = component, state, below
        self.ahead, self.counts, self.apart = ahead, counts, apart

    @property
    def needed(self) -> int:
        """Tokens to the end of the text."""
        return self.counts[0]


Configurations = tuple[Configuration, ...]


class After(NamedTuple):
    """Allowed tokens, ordered by the number of tokens needed after them.

    Args:
        token_ids: (tokens,) int32.
        needed: (tokens,) int32, ascending.
    """

    token_ids: NDArray[np.int32]
    needed: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, including the configurations that are its key."""
        return _KEY_BYTES + self.token_ids.nbytes + self.needed.nbytes


class Pushdown:
    """An RTN and a vocabulary; thread safe.

    Args:
        components: the components of the RTN, the root first.
        tokens: the vocabulary's trie.
        vocabulary: the vocabulary.
        meter: limits of the work done at once.
    """

    def __init__(self, components: Sequence[Component], tokens: TokenTrie, vocabulary: Vocabulary, meter: WorkMeter):
        self._vocabulary, self.tokens = vocabulary, tokens
        self._components = components
        self._walks = [TokenWalk(component.dfa, tokens) for component in components]
        self._paths = ShortestPaths(components, vocabulary, single_byte_tokens(self._walks[0].tokens), meter)
        self._tokens = [np.array(paths.tokens) for paths in self._paths.of]  # out of its component, for each state
        self._accepting = [component.dfa.accepting.tolist() for component in components]
        # For each component the states from which calls start: the callee, and the state after the call.
        self._calls: list[dict[int, list[tuple[int, int]]]] = []
        for component in components:
            calls: dict[int, list[tuple[int, int]]] = {}
            for callee, after_call in component.calls:
                for state in np.flatnonzero(after_call).tolist():
                    calls.setdefault(state, []).append((callee, int(after_call[state])))
            self._calls.append(calls)
        self._configurations: WeakValueDictionary[tuple[int, int, int], Configuration] = WeakValueDictionary()
        self._kept: ByteCache[After] = ByteCache(_MAX_BYTES)
        self._lock = threading.Lock()
        self.start: Configurations = (self.configuration(0, components[0].dfa.start, None),)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most."""
        return sum(walk.nbytes + 2 * walk.dfa.nbytes for walk in self._walks) + _MAX_BYTES

    def shortest(self) -> bytes | None:
        """A shortest text in bytes; None if it is longer than MAX_TEXT, or cannot be written."""
        start = self._components[0].dfa.start
        return self._paths.text(0, start) if self._paths.of[0].size[start] <= MAX_TEXT else None

    # -- configurations

    def configuration(self, component: int, state: int, below: Configuration | None) -> Configuration:
        """The configuration; always the same object."""
        key = component, state, id(below)  # a configuration holds the one below, so the id stays unique
        known = self._configurations.get(key)
        if known is None:
            apart = self._paths.of[component].tokens[state] + (0 if below is None else below.apart)
            created = Configuration(component, state, below, *self._path(component, state, below), apart)
            with self._lock:
                known = self._configurations.setdefault(key, created)
        return known

    def _path(self, component: int, state: int, below: Configuration | None) -> tuple[bytes, list[int]]:
        paths = self._paths.of[component]
        around = 0 if below is None else below.needed
        tokens = min(paths.tokens[state] + around, UNREACHABLE)
        text = self._paths.text(component, state)
        if tokens == UNREACHABLE or (not text and paths.size[state]):
            return b"", [tokens]  # too long for byte-by-byte counting, or no path at all
        if below is not None:
            text += below.ahead
        counts = [UNREACHABLE] * len(text) + [0]
        inside = paths.size[state]
        counts[inside:] = [0] if below is None else below.counts
        for i in range(inside - 1, -1, -1):
            counts[i] = min(
                (1 + counts[i + length] for length in self._vocabulary.lengths_at(text, i)), default=UNREACHABLE
            )
        counts[0] = min(counts[0], tokens)
        return text[:_AHEAD], counts[: _AHEAD + 1]

    def read(self, configurations: Configurations, data: bytes) -> Configurations:
        """The configurations after some more bytes; empty if the bytes do not fit."""
        current = {
            (configuration.component, configuration.state, configuration.below) for configuration in configurations
        }
        for byte in data:
            after = set()
            for component, state, below in self._everywhere(current):
                dfa = self._components[component].dfa
                moved = int(dfa.table[state, dfa.byte_class[byte]])
                if moved:
                    after.add((component, moved, below))
            current = after
        read = sorted((self.configuration(*key) for key in current), key=lambda configuration: configuration.needed)
        return tuple(
            configuration for configuration in read[:_MAX_CONFIGURATIONS] if configuration.needed < UNREACHABLE
        )

    def _everywhere(
        self, configurations: Iterable[tuple[int, int, Configuration | None]]
    ) -> Iterable[tuple[int, int, Configuration | None]]:
        """These configurations, and those that calls and the ends of components lead to."""
        reached = dict.fromkeys(configurations)
        todo = list(reached)
        while todo:
            component, state, below = todo.pop()
            more: list[tuple[int, int, Configuration | None]] = []
            if below is not None and self._accepting[component][state]:
                more.append((below.component, below.state, below.below))
            for callee, after_call in self._calls[component].get(state, ()):
                returning = self.configuration(component, after_call, below)
                more.append((callee, self._components[callee].dfa.start, returning))
            for configuration in more:
                if configuration not in reached:
                    reached[configuration] = None
                    todo.append(configuration)
        return reached

    # -- tokens

    def after(self, configurations: Configurations) -> After:
        """All tokens that fit, with the tokens needed after each: one walk of the vocabulary, then cached."""
        after = self._kept.get(configurations)
        if after is None:
            after = self._walked(configurations)
            self._kept.put(configurations, after)
        return after

    def _walked(self, configurations: Configurations) -> After:
        needed = np.full(len(self.tokens.trie.byte), UNREACHABLE, np.int32)
        root: Ints = np.zeros(1, np.int64)
        todo: list[tuple[int, Configuration | None, Ints, Ints]] = [
            (configuration.component, configuration.below, root, np.array([configuration.state]))
            for configuration in configurations
        ]
        for done, (component, below, nodes, states) in enumerate(todo):  # grows meanwhile
            if done >= _MAX_ITEMS:
                break  # tokens not reached by then are not allowed
            begun = len(nodes)
            reached = self._walks[component].below(nodes, states)
            self._note(needed, component, below, *(part[begun:] for part in reached))
            todo += self._onwards(component, below, *reached)
        fitting = np.flatnonzero((needed < UNREACHABLE) & self.tokens.has_token)
        fitting = fitting[np.argsort(needed[fitting], kind="stable")]
        token_ids, counts = self.tokens.tokens_at(fitting)
        return After(token_ids.astype(np.int32), np.repeat(needed[fitting], counts))

    def _note(
        self, needed: NDArray[np.int32], component: int, below: Configuration | None, nodes: Ints, states: Ints
    ) -> None:
        """Lower the tokens needed in these nodes where this configuration needs fewer."""
        distinct, which = np.unique(states, return_inverse=True)
        tokens = self._tokens[component][distinct] + (0 if below is None else below.needed)
        for i, state in enumerate(distinct[:_EXACT].tolist()):
            tokens[i] = self.configuration(component, state, below).needed
        needed[nodes] = np.minimum(needed[nodes], np.minimum(tokens, UNREACHABLE)[which.reshape(-1)])

    def _onwards(
        self, component: int, below: Configuration | None, nodes: Ints, states: Ints
    ) -> Iterable[tuple[int, Configuration | None, Ints, Ints]]:
        """Where calls and the end of the component lead, for the nodes that have children."""
        child = self.tokens.trie.child
        inner = child[nodes + 1] > child[nodes]
        nodes, states = nodes[inner], states[inner]
        if below is not None:
            ends = nodes[self._components[component].dfa.accepting[states]]
            if len(ends):
                yield below.component, below.below, ends, np.full(len(ends), below.state)
        for callee, after_call in self._components[component].calls:
            returns = after_call[states]
            for state in np.unique(returns[returns > 0]).tolist():
                begin = nodes[returns == state]
                start = np.full(len(begin), self._components[callee].dfa.start)
                yield callee, self.configuration(component, state, below), begin, start

    @cached_property
    def max_budget_growth(self) -> MaxBudgetGrowth:
        """By how many tokens one token can raise the count above ``apart``."""
        return MaxBudgetGrowth(self._components, self._paths, self.tokens)
