"""A schema as a finite automaton: the same shapes and tracks that `lark.py` writes as a grammar, without recursion.

What is not regular says so: a schema that refers to itself, or a place where any JSON value may stand.
"""

from __future__ import annotations

from typing import Protocol

from ..regex import NOTHING, Node, alt, concat, json_spelling, text
from .grammar import Content, contents, too_deep_is_a_limit
from .layout import Layout, layout_of
from .normalize import Normalizer
from .scalars import constant_language, language_of, quoted
from .shapes import ANY, Clause, Position
from .tracks import Edge, Entry, Track


class NotRegular(Exception):
    """The schema has texts that no finite automaton tells from others.

    Args:
        pointer: JSON pointer of the schema in question.
        reason: why.
    """

    def __init__(self, pointer: str, reason: str):
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer = pointer
        self.reason = reason


class Builder(Protocol):
    """What makes the automaton; it may raise when it grows too large."""

    def state(self) -> int:
        """A new state."""
        ...

    def epsilon(self, source: int, target: int) -> None:
        """A way that takes no character."""
        ...

    def regex(self, node: Node, start: int) -> int:
        """The texts of a language behind a state; gives the state behind them."""
        ...


@too_deep_is_a_limit()
def lower(n: Normalizer, builder: Builder, *, whitespace: str, closed: bool) -> tuple[int, int]:
    """Build the automaton of the JSON texts of all values that satisfy the schema.

    Args:
        n: the schema; what cannot be said is lost there.
        builder: takes the states.
        whitespace: "flexible" or "compact".
        closed: whether objects that declare properties and do not speak of others have no others.

    Returns:
        The state before the text, and the one behind it.

    Raises:
        NotRegular: it refers to itself, or some value may be anything.
        InvalidConstraint: no value satisfies it.
        CompileLimitExceeded: it is too large.
    """
    start = builder.state()
    return start, Lowering(contents(n, closed=closed), builder, layout_of(whitespace)).value(n.root, start)


class Lowering:
    """Writes values behind states.

    Args:
        found: the content of every position.
        builder: takes the states.
        layout: what stands between values.
    """

    def __init__(self, found: dict[Position, Content], builder: Builder, layout: Layout):
        self._contents = found
        self._builder = builder
        self._layout = layout
        self._open: list[Position] = []

    def value(self, position: Position, start: int) -> int:
        """A value at this position behind ``start``."""
        if position == ANY:
            raise NotRegular(_pointer(self._open[-1]) if self._open else "", "any value may stand here")
        if position in self._open:
            raise NotRegular(_pointer(position), "the schema refers to itself")
        content = self._contents[position]
        if content.any_array or content.any_object:
            raise NotRegular(_pointer(position), "anything may stand in it")
        self._open.append(position)
        end = self.content(position, content, start)
        self._open.pop()
        return end

    def content(self, position: Position, content: Content, start: int) -> int:
        """A value of this content behind ``start``; those inside it by ``value``."""
        end = self._builder.state()
        languages = []
        for clause in content.scalars:
            if (language := self.language(clause)) is None:
                raise NotRegular(_pointer(position), "multipleOf has a factor that digits do not tell")
            languages.append(language)
        whole = alt(*languages)
        if whole != NOTHING:
            self._builder.epsilon(self._builder.regex(whole, start), end)
        layout = self._layout
        for track in content.arrays:
            self._track(track, start, end, layout.begin_array, text("]"), layout.end_array)
        for track in content.objects:
            self._track(track, start, end, layout.begin_object, text("}"), layout.end_object)
        return end

    def language(self, clause: Clause) -> Node | None:
        """The texts of a clause's values; None if digits do not tell them."""
        return language_of(clause)

    def _track(self, track: Track, start: int, end: int, begin: Node, empty: Node, closing: Node) -> None:
        """States of the track, once for before the first entry and once for behind it, where a comma comes first."""
        builder = self._builder
        states = {(0, False): builder.regex(begin, start)}
        todo = [(0, False)]
        while todo:
            state, begun = todo.pop()
            here = states[state, begun]
            if state in track.accepting:
                builder.epsilon(builder.regex(closing if begun else empty, here), end)
            ways = [((target, begun), here) for target in track.skips[state]]
            ways += [((edge.target, True), self._run(edge, here, begun)) for edge in track.edges[state]]
            for following, behind in ways:
                if following not in states:
                    states[following] = builder.state()
                    todo.append(following)
                builder.epsilon(behind, states[following])

    def _run(self, edge: Edge, start: int, begun: bool) -> int:
        """``low`` to ``high`` entries in a row."""
        builder, end, here = self._builder, self._builder.state(), start
        count = 0
        while edge.high is None or count < edge.high:
            if count >= edge.low:
                builder.epsilon(here, end)
                if edge.high is None:
                    again = self._entries(edge.entries, builder.regex(self._layout.comma, here))
                    builder.epsilon(again, here)
                    return end
            here = self._entries(edge.entries, builder.regex(self._layout.comma, here) if begun or count else here)
            count += 1
        builder.epsilon(here, end)
        return end

    def _entries(self, entries: tuple[Entry, ...], start: int) -> int:
        end = self._builder.state()
        for entry in entries:
            self._builder.epsilon(self._entry(entry, start), end)
        return end

    def _entry(self, entry: Entry, start: int) -> int:
        if entry.name is None:
            return self.value(entry.value, start)
        named = isinstance(entry.name, str)
        name = constant_language(entry.name) if named else quoted(json_spelling(entry.name))
        return self.value(entry.value, self._builder.regex(concat(name, self._layout.colon), start))


def _pointer(position: Position) -> str:
    return min((term.schema for term in position), key=lambda schema: schema.order).pointer
