"""A schema as a grammar, in llguidance's Lark or in EBNF: scalars are terminals, arrays and objects are rules.

Every terminal begins and ends with a character that identifies it, so a lexer never has to guess: strings have their
quotes, and white space belongs to the brackets, commas and colons around it. In EBNF, terminals are rules too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..automaton.limits import WorkMeter
from ..automaton.nfa import regex_dfa
from ..constraints.json_style import JsonStyle
from ..options import EBNF
from ..regex import (
    ANYTHING,
    NOTHING,
    Alt,
    Chars,
    CharSet,
    Concat,
    Node,
    Not,
    Repeat,
    UnsupportedRegex,
    alt,
    concat,
    json_spelling_without,
    text,
    to_lark,
    tree_cache,
)
from ..regex.ast import AllBut, Empty, Parts
from ..regex.charset import LAST, SURROGATES
from ..regex.write import times
from .content_automata import ContentAutomaton, Edge, Entry
from .grammar import Content, contents
from .layout import layout_of
from .normalize import Normalizer
from .scalars import constant_text, language_of, quoted
from .shapes import Clause, NumberClause, Position, StringClause

_Place = tuple[int, bool]  # a state of an array or an object, and whether an entry comes before it
_SHARED = NumberClause(), StringClause()  # llguidance takes a millisecond to read them: each is read once


class Notation(NamedTuple):
    """A way to write grammars whose choices, sequences, repetitions and texts are written as in Lark."""

    start: str  # the name of the first rule
    defines: str  # the sign between a name and its expression
    terminal: Callable[[Node], str]  # the expression of a language


LARK = Notation("start", ": ", tree_cache(maxsize=4096)(to_lark))


class Ebnf:
    """Languages in one grammar in EBNF. Those of an intersection or a complement get rules, one for each state."""

    def __init__(self) -> None:
        self.notation = Notation("root", " ::= ", self.written)
        self._named: dict[Node, str] = {}  # by their own rules

    def written(self, node: Node) -> str:
        """The expression of a language, which may name some of ``rules``."""
        if isinstance(node, Chars):
            return _class(node.charset)
        if isinstance(node, (Concat, Alt)):
            return f"({(' ' if isinstance(node, Concat) else ' | ').join(map(self.written, node.parts))})"
        if isinstance(node, Repeat):
            return f"({self.written(node.body)}){times(node.low, node.high)}"
        if isinstance(node, Empty):
            return '""'
        return self._named.setdefault(node, f"d{len(self._named)}")

    def rules(self) -> Iterator[str]:
        """The rules that the expressions name; UnsupportedRegex where one has no text, CompileLimitExceeded."""
        for node, name in self._named.items():
            dfa = regex_dfa(node, WorkMeter(EBNF))
            if not dfa.start:
                raise UnsupportedRegex("one of its patterns matches nothing")
            yield f"{name} ::= {name}_{dfa.start}"
            # Characters between two cuts are alike, so the first of them shows where they lead.
            cuts = sorted({0, SURROGATES[0], SURROGATES[1] + 1, LAST + 1, *_cuts(node)})
            alike = [(low, high - 1) for low, high in itertools.pairwise(cuts) if low != SURROGATES[0]]
            todo, seen = [dfa.start], {dfa.start}
            for state in todo:  # the list grows meanwhile
                leading: dict[int, list[tuple[int, int]]] = {}
                for low, high in alike:
                    if target := dfa.advance(state, chr(low).encode()):
                        leading.setdefault(target, []).append((low, high))
                todo += leading.keys() - seen
                seen |= leading.keys()
                branches = [f"{_class(CharSet(ranges))} {name}_{target}" for target, ranges in leading.items()]
                branches += ['""'] if dfa.accepting[state] else []
                yield f"{name}_{state} ::= {' | '.join(branches)}"


def _class(charset: CharSet) -> str:
    ranges = (_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in charset.ranges)
    return f"[{''.join(ranges)}]"


def _code(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else rf"\U{code:08x}"


def _cuts(node: Node) -> set[int]:
    """The characters before which something in an expression may change."""
    if isinstance(node, Chars):
        return {cut for low, high in node.charset.ranges for cut in (low, high + 1)}
    if isinstance(node, AllBut):
        return {cut for word in node.words for letter in word for cut in (ord(letter), ord(letter) + 1)}
    if isinstance(node, (Repeat, Not)):
        return _cuts(node.body)
    return set().union(*map(_cuts, node.parts)) if isinstance(node, Parts) else set()


def lark_grammar(
    n: Normalizer, style: JsonStyle, *, closed: bool, notation: Notation = LARK, marks: tuple[str, ...] = ()
) -> str:
    """The grammar of the JSON texts of all values that satisfy the schema.

    Args:
        n: the schema; what cannot be said is lost there.
        style: how values are written, but for an indentation: a grammar does not know the depth.
        closed: whether objects that declare properties and do not speak of others have no others.
        notation: how the grammar is written, if not in Lark.
        marks: what no string holds, see ``without``.

    Raises:
        InvalidConstraint: no value satisfies it.
        CompileLimitExceeded: it is too large.
    """
    contents_of = contents(n, closed=closed, spelling=style.spelling)
    return "\n".join(_SchemaWriter(n, contents_of, style._replace(indent=None), notation, marks).write())


class _SchemaWriter:
    """Writes the rules of one schema, whose positions ``contents_of`` are; the rest is as ``lark_grammar`` has it."""

    def __init__(
        self,
        n: Normalizer,
        contents_of: dict[Position, Content],
        style: JsonStyle,
        notation: Notation,
        marks: tuple[str, ...],
    ):
        self._n, self._contents = n, contents_of
        self._spelling, self._layout, self._marks = style.spelling, layout_of(style), marks
        self._notation = notation
        self._values: dict[Position, str] = {}  # terminals, and names of rules
        self._todo: list[Position] = []  # positions whose rules are not written yet
        self._rules: dict[str, str] = {}
        self._numbers = itertools.count()  # numbers of the rules of states
        self._terminals: dict[str, str] = {}

    def write(self) -> list[str]:
        """The lines of the grammar, the first rule first."""
        start = self._value(self._n.root)
        for position in self._todo:  # grows meanwhile
            self._rule(position)
        terminals = ((name, expression) for expression, name in self._terminals.items())
        rules = [(self._notation.start, start), *self._rules.items(), *terminals]
        return [f"{name}{self._notation.defines}{expression}" for name, expression in rules]

    def _value(self, position: Position) -> str:
        """The expression for a value at this position."""
        if position not in self._values:
            content = self._contents[position]
            alternatives = [] if content.automata else self._scalars(content.scalars)
            if len(alternatives) == 1:
                self._values[position] = alternatives[0]
            else:
                self._values[position] = f"v{len(self._values)}"
                self._todo.append(position)
        return self._values[position]

    def _rule(self, position: Position) -> None:
        content, layout = self._contents[position], self._layout
        alternatives = self._scalars(content.scalars)
        for automata, begin, close in (
            (content.arrays, layout.begin_array, layout.close_array),
            (content.objects, layout.begin_object, layout.close_object),
        ):
            alternatives += [f"{self._terminal(begin)} {self._entries(automaton, close)}" for automaton in automata]
        self._define(self._values[position], alternatives)

    def _define(self, name: str, alternatives: Sequence[str]) -> None:
        assert alternatives, "a rule without an alternative would be the empty text"
        self._rules[name] = " | ".join(alternatives)

    def _entries(self, automaton: ContentAutomaton, close: Node) -> str:
        """Everything after the opening bracket.

        States on a path without branches are written one after another. The others get rules: one for before the first
        entry, and one, with a comma in front, for after it.
        """
        empty, closing = self._terminal(close), self._terminal(concat(self._layout.space, close))
        # For each state, with and without an entry before it, the texts that may come next and where they lead.
        steps: dict[_Place, list[tuple[str, _Place | None]]] = {(0, False): []}
        todo = [*steps]
        for state, begun in todo:  # grows meanwhile
            here = steps[state, begun]
            if state in automaton.accepting:
                here.append((closing if begun else empty, None))
            here += [(self._run(edge, begun), (edge.target, True)) for edge in automaton.edges[state]]
            here += [("", (target, begun)) for target in automaton.skips[state]]
            for _, place in here:
                if place is not None and place not in steps:
                    steps[place] = []
                    todo.append(place)
        paths = Counter([place for here in steps.values() for _, place in here])
        named: dict[_Place, str] = {}
        unwritten: list[_Place] = []

        def path(place: _Place | None) -> str:
            parts: list[str] = []
            while place is not None:
                (part, following), *others = steps[place]
                if others or (following is not None and paths[place] > 1):
                    if place not in named:
                        named[place] = f"r{next(self._numbers)}"
                        unwritten.append(place)
                    part, following = named[place], None
                parts.append(part)
                place = following
            return " ".join(filter(None, parts))

        whole = path((0, False))
        while unwritten:
            place = unwritten.pop()
            alternatives = [" ".join(filter(None, (part, path(after)))) for part, after in steps[place]]
            self._define(named[place], alternatives)
        return whole

    def _run(self, edge: Edge, begun: bool) -> str:
        comma = self._terminal(concat(self._layout.space, self._layout.comma))
        entry = " | ".join(map(self._entry, edge.entries))
        if len(edge.entries) > 1:
            entry = f"({entry})"
        first = f"{comma} {entry}" if begun else entry
        if (edge.low, edge.high) == (1, 1):
            return first
        return f"{first} ({comma} {entry}){times(edge.low - 1, None if edge.high is None else edge.high - 1)}"

    def _entry(self, entry: Entry) -> str:
        name, value = entry.name, self._value(entry.value)
        if name is None:
            return value
        if name == ANYTHING:
            [named] = self._scalars([StringClause()])
        elif isinstance(name, str):
            named = self._terminal(text(constant_text(name, self._marks)))
        else:
            named = self._terminal(quoted(json_spelling_without(name, self._marks)))
        return f"{named} {self._terminal(self._layout.colon)} {value}"

    def _terminal(self, language: Node) -> str:
        return self._terminals.setdefault(self._notation.terminal(language), f"T{len(self._terminals)}")

    def _scalars(self, clauses: Sequence[Clause]) -> list[str]:
        """The expressions for values without children: one terminal, but for those that many positions share."""
        alternatives: list[str] = []
        groups: list[list[Clause]] = [[clause for clause in clauses if clause not in _SHARED]]
        groups += [[clause] for clause in clauses if clause in _SHARED]
        for together in groups:
            language = alt(*map(self._language, together))
            alternatives += [] if language == NOTHING else [self._terminal(language)]
        return alternatives

    def _language(self, clause: Clause) -> Node:
        language = language_of(clause, self._spelling, self._marks)
        if language is not None:
            return language
        assert isinstance(clause, NumberClause), "other values need no counting"
        self._n.lose(clause.origin, "multipleOf", "digits do not decide this factor; only native counts")
        return self._language(replace(clause, factors=()))
