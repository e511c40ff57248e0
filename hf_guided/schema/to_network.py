"""A schema as a network: automata of its values that call each other, with registers.

The inside of an array or an object that has a register is a component of its own; marks in it say where the register
is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from ..automaton.network import MAX_FRAMES
from ..automaton.rtn import ComponentBuilder, Mark
from ..constraints.json_style import JsonStyle, KeyOrder
from ..errors import Loss, UnsupportedConstraint
from ..regex import ANYTHING, Node, json_spelling_without, json_spellings, text
from .content_automata import ContentAutomaton, DifferentItems, Register, has_one_order
from .grammar import Content, completable_contents, contents, with_equal_positions
from .nesting import heights, of_known_level, within_depth
from .network_writer import Callee, Inside, NetworkWriter
from .normalize import Normalizer, too_deep_is_a_limit
from .ranges import remainder_states, undecided_factors
from .scalars import (
    LongString,
    Values,
    language_of,
    long_string,
    long_string_of_language,
    numbers_without_undecided,
    quoted,
    without,
)
from .shapes import Clause, NumberClause, Position, pointer_of
from .sizes import LeastSizes

_MAX_REMAINDERS = 5_000  # states for one multipleOf, for all decimal places in total


class Track(NamedTuple):
    """The component from the opening bracket of an array or an object with a register to its closing bracket.

    Args:
        position: of the array or object.
        level: how many brackets are open inside, where that is known.
        number: of its content automaton among the position's, arrays first.
        schema: its name, where one network has several.
    """

    position: Position
    level: int | None
    number: int
    schema: str


class Positions:
    """The positions of a schema, each with exactly its texts.

    Args:
        n, closed, key_order, as_elements: see ``ContentWriter``.
        style: how values are written.
        schema: a name, where one network has several.
        marks: what none of the texts holds, see ``without``.
        max_depth: see ``within_depth``.

    Raises:
        InvalidConstraint: no value satisfies it.
        UnsupportedConstraint: it is to be indented, and its depth has no bound; or a multipleOf has too many
            remainders.
        CompileLimitExceeded: it is too large.

    Attributes:
        style, name, marks: the arguments.
        position: of a whole text.
        root: its callee.
    """

    def __init__(
        self,
        n: Normalizer,
        style: JsonStyle,
        *,
        closed: bool,
        key_order: KeyOrder,
        schema: str = "",
        marks: tuple[str, ...] = (),
        max_depth: int | None = None,
        as_elements: bool = False,
    ):
        self._key_order = key_order
        self._uncounted: set[Node] = set()
        self.style, self.name, self.marks = style, schema, marks
        found = contents(n, closed=closed, spelling=style.spelling, key_order=key_order, as_elements=as_elements)
        found = with_equal_positions(found)
        _check_remainders(n, found)
        self.position, self._all = within_depth(n.root, found, max_depth)
        if style.indent is not None and self.position not in heights(self._all):
            reason = (
                "the depth is not known where the schema is recursive, or allows any value; pass max_depth=... as well"
            )
            raise UnsupportedConstraint("an indentation depends on the depth", (Loss("", "indent", reason),))
        self.root = self.callee(self.position, 0)

    @cached_property
    def _known(self) -> frozenset[Position]:
        """The positions whose levels are distinguished: the layout may depend on the number of open brackets."""
        if self.style.indent is not None:
            return frozenset(self._all)
        is_bounded_by_level = self.style.is_flexible and self.style.max_space is None
        return of_known_level(self.position, self._all) if is_bounded_by_level else frozenset()

    def leave_out(self, tracks: Collection[Track]) -> None:
        """Leave out alternatives for arrays or objects that have no value; raises InvalidConstraint if none is left."""
        none = {id(self.automaton(track)) for track in tracks}

        def others(automata: tuple[ContentAutomaton, ...]) -> tuple[ContentAutomaton, ...]:
            return tuple([automaton for automaton in automata if id(automaton) not in none])

        # A copy: where no value is left, the schema may be compiled again, and has to be refused again.
        left = {at: Content(had.scalars, others(had.arrays), others(had.objects)) for at, had in self._all.items()}
        self._all = completable_contents(left, self.position)

    def content(self, position: Position) -> Content:
        """The values at a position."""
        return self._all[position]

    def content_of(self, inside: Inside) -> Content:
        """The values at a position, or those of one kind."""
        content = self.content(inside.position)
        if inside.only is None:
            return content
        return Content(arrays=content.arrays) if inside.only == "array" else Content(objects=content.objects)

    def reached(self, starts: Iterable[Inside]) -> Iterator[tuple[Inside, Content]]:
        """All positions of values, from the outermost ``starts`` on, each once for each level, and their contents."""
        todo = list(starts)
        seen = set(todo)
        while todo:
            inside = todo.pop()
            content = self.content_of(inside)
            yield inside, content
            level = None if inside.level is None else inside.level + 1
            for position in content.children():
                child = self.inside(position, level)
                if child not in seen:
                    seen.add(child)
                    todo.append(child)

    @cached_property
    def is_ordered(self) -> bool:
        """Whether equal values always have their members in the same order."""
        objects = [automaton for content in self._all.values() for automaton in content.objects]
        return self._key_order == "declared" and has_one_order(objects)

    @property
    def is_spelled_like_keys(self) -> bool:
        """Whether a string has one text, which is its key too (written_values.py): keys have no escapes for marks."""
        return self.style.is_canonical and not self.marks

    @property
    def most_calls(self) -> int:
        """The most different values in one place; where white space is called too, each is read in more ways."""
        return MAX_FRAMES // (5 if self.style.is_flexible else 2)

    # -- components ----------------------------------------------------------------------------------------------------

    def callee(self, position: Position, level: int | None) -> Callee:
        """The callee for a value at a position: the same where the same scalars are allowed."""
        content = self.content(position)
        if content.automata or not all(map(self._is_regular, content.scalars)):
            return self.inside(position, level)
        return Values(content.scalars, self.style.spelling, self.marks)

    @property
    def whole(self) -> Inside:
        """The position of the whole text."""
        return self.inside(self.position, 0)

    def inside(self, position: Position, level: int | None) -> Inside:
        """A position with its level, where levels are distinguished."""
        return Inside(position, level if position in self._known else None, self.name)

    def name_of(self, inside: Inside) -> Callee:
        """The name of the component of a position."""
        return self.callee(inside.position, inside.level) if inside.only is None else inside

    def automaton(self, track: Track) -> ContentAutomaton:
        """The content automaton of a track."""
        return self.content(track.position).automata[track.number]

    def track(self, position: Position, level: int | None, automaton: ContentAutomaton) -> Track:
        """The track of a content automaton of a position, with ``level`` open brackets around, where that is known."""
        inside = None if level is None else level + 1
        automata = self.content(position).automata
        number = next(i for i, other in enumerate(automata) if other is automaton)
        return Track(position, inside, number, self.name)

    def register(self, track: Track) -> Register:
        """The register of a component."""
        register = self.automaton(track).register
        assert register is not None, "only what has one is a track"
        return register

    def has_values(self, position: Position) -> bool:
        """Whether a value may stand at a position."""
        return position in self._all

    @cached_property
    def _least(self) -> LeastSizes:
        return LeastSizes(self._all, self.style, self.marks)

    def least_size(self, callee: Hashable) -> int | None:
        """Bytes that are enough for the text of a component; None where only its automaton tells."""
        if isinstance(callee, LongString):
            if callee.language != ANYTHING:
                return None
            return callee.low + (2 if callee.closing is None else len(callee.closing.encode()))
        if isinstance(callee, Values):
            return self._least.of_scalars(callee.clauses)
        if isinstance(callee, Inside) and callee.only is None and not callee.as_elements:
            return self._least.at(callee.position)
        return None

    @too_deep_is_a_limit()
    def build(self, callee: Inside | Track | LongString, builder: ComponentBuilder) -> tuple[int, int]:
        """Build the automaton of a callee; return the state before its text, and the one after it."""
        if isinstance(callee, LongString):
            return self._long_string(callee, builder)
        start, end = builder.state(), builder.state()
        if isinstance(callee, Track):
            is_array = callee.number < len(self.content(callee.position).arrays)
            NetworkWriter(self, builder).entries(self.automaton(callee), callee.level, start, end, is_array=is_array)
        else:
            writer = NetworkWriter(self, builder, is_inline=callee.only is None and self._is_inline(callee.position))
            writer.write(callee, start, end)
        return start, end

    def _is_inline(self, position: Position) -> bool:
        """Whether so many different values may come in one place that they are written without calls, if they can be.

        Calls would all be followed; without them, what several values have in common is one path.
        """
        by_name: dict[str | Node | None, set[Position]] = {}
        for automaton in self.content(position).automata:
            for entry in automaton.entries():
                by_name.setdefault(entry.name, set()).add(entry.value)
        if max(map(len, by_name.values()), default=0) <= self.most_calls or position not in heights(self._all):
            return False
        inside = [content for _, content in self.reached([Inside(position, None, self.name)])]
        return not any([automaton.register for content in inside for automaton in content.automata])

    def _long_string(self, string: LongString, builder: ComponentBuilder) -> tuple[int, int]:
        """A string, with the calls ``Mark.BEGIN`` and ``Mark.END`` around its characters."""
        start, begun, ended = builder.state(), builder.state(), builder.state()
        opening, closing = ('"', '"') if string.closing is None else ("", string.closing)
        builder.call(Mark.BEGIN, builder.regex(text(opening), start), begun)
        if string.closing is not None:
            content = without(ANYTHING, self.marks)
        elif self.style.is_canonical:
            content = json_spelling_without(string.language, self.marks)
        else:
            content = without(json_spellings(string.language), self.marks)
        builder.call(Mark.END, builder.regex(content, begun), ended)
        return start, builder.regex(text(closing), ended)

    # -- texts ---------------------------------------------------------------------------------------------------------

    def names_text(self, language: Node) -> Node:
        """How the names of a language are written; none is left out, so marks in them are written with escapes."""
        return quoted(json_spelling_without(language, self.marks))

    def language(self, clause: Clause) -> Node | None:
        """The texts of a clause's values; None where digits do not decide, and where a register counts."""
        return None if self.long_string(clause) else language_of(clause, self.style.spelling, self.marks)

    def _is_regular(self, clause: Clause) -> bool:
        return not undecided_factors(clause) and not self.long_string(clause)

    def long_string(self, clause: Clause, closing: str | None = None) -> LongString | None:
        """The component of a string that a register counts, or None; for ``closing`` see ``LongString``."""
        counts = closing is None and self._counts_languages
        string = long_string_of_language(clause, self.style.spelling, self.name) if counts else None
        if string is None:
            return long_string(clause, self.name, closing)
        return None if string.language in self._uncounted else string

    @cached_property
    def _counts_languages(self) -> bool:
        """Whether registers may count strings of a language: not where it matters how many of them there are."""
        automata = [automaton for content in self._all.values() for automaton in content.automata]
        return not any(isinstance(one.register, DifferentItems) for one in automata)

    def leave_uncounted(self, string: LongString) -> None:
        """Have a string counted by the states of an automaton."""
        self._uncounted.add(string.language)

    def add_multiples(self, clause: NumberClause, start: int, end: int, builder: ComponentBuilder) -> None:
        """Add the numbers of a clause that digits do not decide between two states."""
        numbers = numbers_without_undecided(clause, self.style.spelling)
        builder.add_multiples(numbers, undecided_factors(clause), start, end)


def names_of(automaton: ContentAutomaton) -> tuple[list[str], list[Node]]:
    """The names of members that are listed, and the languages of the others."""
    names = dict.fromkeys([entry.name for entry in automaton.entries()])
    return [name for name in names if isinstance(name, str)], [name for name in names if isinstance(name, Node)]


def _check_remainders(n: Normalizer, contents_of: dict[Position, Content]) -> None:
    """Raise UnsupportedConstraint where a multipleOf has too many remainders."""
    for position, content in contents_of.items():
        for clause in content.scalars:
            if not isinstance(clause, NumberClause):
                continue
            for factor in undecided_factors(clause):
                if remainder_states(factor) > _MAX_REMAINDERS:
                    reason = f"{factor} has more than {_MAX_REMAINDERS} remainders to distinguish"
                    loss = Loss.within(clause.origin or pointer_of(position), "multipleOf", reason)
                    message = "the native engine does not take this JSON Schema"
                    raise UnsupportedConstraint(message, [*n.losses, loss])
