"""A schema as a grammar, in llguidance's Lark or in EBNF: scalars are terminals, arrays and objects are rules.

Every terminal begins and ends with a character that identifies it, so a lexer never has to guess: strings have their
quotes, and white space belongs to the brackets, commas and colons around it. In EBNF, terminals are rules too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ..automaton.limits import WorkMeter
from ..automaton.nfa import regex_dfa
from ..constraints.json_style import JsonStyle, Spelling
from ..errors import Loss, UnsupportedConstraint
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
from .layout import MAX_TABS, Layout, has_levels, layout_of
from .nesting import heights, of_known_level
from .normalize import Normalizer
from .scalars import constant_text, language_of, quoted
from .shapes import Clause, NumberClause, Position, StringClause

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
            alike = [(low, high - 1) for low, high in pairwise(cuts) if low != SURROGATES[0]]
            todo, seen = [dfa.start], {dfa.start}
            for state in todo:  # it grows
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
        style: how values are written.
        closed: whether objects that declare properties and do not speak of others have no others.
        notation: how the grammar is written, if not in Lark.
        marks: what no string holds, see ``without``.

    Raises:
        InvalidConstraint: no value satisfies it.
        UnsupportedConstraint: it is to be indented, and its depth has no bound.
        CompileLimitExceeded: it is too large.
    """
    contents_of = contents(n, closed=closed, spelling=style.spelling)
    if style.indent is not None and n.root not in heights(contents_of):
        reason = (
            "the depth is not known where the schema is recursive, or allows any value; pass max_depth=... as well, "
            'which backend="native" enforces'
        )
        raise UnsupportedConstraint("an indentation depends on the depth", (Loss("", "indent", reason),))
    return "\n".join(_SchemaWriter(n, contents_of, style, notation, marks).write())


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
        self._n = n
        self._notation = notation
        self._marks = marks
        self._contents = contents_of
        self._spelling = style.spelling
        self._style = style
        self._known = of_known_level(n.root, contents_of) if style.is_flexible else frozenset(contents_of)
        self._lines: list[tuple[str, str]] = []  # rules
        self._names: dict[tuple[Position, int | None], str] = {}
        self._signs: dict[tuple[str, int | None], str] = {}
        self._terminals: dict[str, str] = {}

    def write(self) -> list[str]:
        """The lines of the grammar, the first rule first."""
        start = self._value(self._n.root, self._level(0))
        # Every position gets its rule when it is first named; naming may name more.
        written = 0
        while written < len(self._names):
            key = list(self._names)[written]
            written += 1
            self._rule(self._names[key], *key)
        terminal = self._notation.terminal
        signs = [
            (name, terminal(_signs(layout_of(self._style, level))[sign])) for (sign, level), name in self._signs.items()
        ]
        terminals = [(name, expression) for expression, name in self._terminals.items()]
        rules = [(self._notation.start, start), *self._lines, *signs, *terminals]
        return [f"{name}{self._notation.defines}{expression}" for name, expression in rules]

    def _level(self, level: int) -> int | None:
        return level if has_levels(self._style) else None

    def _sign(self, name: str, level: int | None) -> str:
        """The terminal of a bracket, comma or colon with ``level`` open brackets around it."""
        level = None if level is None or (self._style.is_flexible and level > MAX_TABS) else level
        return self._signs.setdefault((name, level), f"{name}{'' if level is None else level}")

    def _value(self, position: Position, level: int | None) -> str:
        """The expression for a value at this position, with ``level`` open brackets around it."""
        content = self._contents[position]
        if not content.automata:
            alternatives = self._scalars(content.scalars)
            if len(alternatives) == 1:
                return alternatives[0]
            level = None
        if position not in self._known:
            level = None
        return self._names.setdefault((position, level), f"v{len(self._names)}")

    def _rule(self, name: str, position: Position, level: int | None) -> None:
        content = self._contents[position]
        alternatives = self._scalars(content.scalars) + self._containers(name, content, level)
        assert alternatives, "a rule without an alternative would be the empty text"
        self._lines.append((name, " | ".join(alternatives)))

    def _containers(self, name: str, content: Content, level: int | None) -> list[str]:
        """The expressions for the arrays and objects of a position, in the rule of this name."""
        inside = None if level is None else level + 1
        alternatives = []
        for kind, opening, empty, closing, automata in (
            ("a", "LBRACK", '"]"', "RBRACK", content.arrays),
            ("o", "LBRACE", '"}"', "RBRACE", content.objects),
        ):
            for i, automaton in enumerate(automata):
                begin, end = self._sign(opening, inside), self._sign(closing, inside)
                alternatives.append(f"{begin} {self._automaton(f'{name}_{kind}{i}', automaton, empty, end, inside)}")
        return alternatives

    def _automaton(self, prefix: str, automaton: ContentAutomaton, empty: str, closing: str, level: int | None) -> str:
        """Everything after the opening bracket.

        States on a path without branches are written one after another. The others get rules: one for before the first
        entry, and one, with a comma in front, for after it.
        """
        shared = _shared(automaton)
        named: dict[tuple[int, bool], str] = {}
        todo: list[tuple[int, bool]] = []

        def straight(state: int, begun: bool) -> list[str]:
            parts: list[str] = []
            while (state, begun) not in shared:
                edges, skips, ends = automaton.edges[state], automaton.skips[state], state in automaton.accepting
                if ends and not edges and not skips:
                    return [*parts, closing if begun else empty]
                if len(edges) != 1:
                    break
                target = edges[0].target
                if not ends and not skips:
                    parts.append(self._run(edges[0], begun, level))
                elif begun and _is_optional(automaton, state):
                    parts.append(f"({self._run(edges[0], begun, level)})?")
                else:
                    break
                state, begun = target, True
            if (state, begun) not in named:
                named[state, begun] = f"{prefix}_{len(named)}"
                todo.append((state, begun))
            return [*parts, named[state, begun]]

        start = straight(0, False)
        while todo:
            state, begun = todo.pop()
            if begun and len(automaton.edges[state]) == 1 and _is_optional(automaton, state):
                edge = automaton.edges[state][0]
                alternatives = [[f"({self._run(edge, begun, level)})?", *straight(edge.target, True)]]
            else:
                alternatives = [[closing if begun else empty]] if state in automaton.accepting else []
                alternatives += [
                    [self._run(edge, begun, level), *straight(edge.target, True)] for edge in automaton.edges[state]
                ]
                alternatives += [straight(target, begun) for target in automaton.skips[state]]
            assert alternatives, "a rule without an alternative would be the empty text"
            self._lines.append((named[state, begun], " | ".join(map(" ".join, alternatives))))
        return " ".join(start)

    def _run(self, edge: Edge, begun: bool, level: int | None) -> str:
        comma = self._sign("COMMA", level)
        entry = " | ".join(self._entry(entry, level) for entry in edge.entries)
        if len(edge.entries) > 1:
            entry = f"({entry})"
        first = f"{comma} {entry}" if begun else entry
        if not begun and self._style.indent is not None:
            first = f"{self._sign('FIRST', level)} {entry}"
        if (edge.low, edge.high) == (1, 1):
            return first
        low, high = edge.low - 1, "" if edge.high is None else edge.high - 1
        return f"{first} ({comma} {entry}){'*' if (low, high) == (0, '') else f'{{{low},{high}}}'}"

    def _entry(self, entry: Entry, level: int | None) -> str:
        name, value = entry.name, self._value(entry.value, level)
        if name is None:
            return value
        if name == ANYTHING:
            [named] = self._scalars([StringClause()])
        elif isinstance(name, str):
            named = self._terminal(text(constant_text(name, self._marks)))
        else:
            named = self._terminal(quoted(json_spelling_without(name, self._marks)))
        return f"{named} {self._sign('COLON', level)} {value}"

    def _terminal(self, language: Node) -> str:
        return self._terminals.setdefault(self._notation.terminal(language), f"T{len(self._terminals)}")

    def _scalars(self, clauses: Sequence[Clause]) -> list[str]:
        """The expressions for values without children: one terminal, but for those that many positions share."""
        shared = [(clause,) for clause in clauses if clause in _SHARED]
        others = tuple(clause for clause in clauses if clause not in _SHARED)
        alternatives: list[str] = []
        for together in (others, *shared):
            language, multiples = _scalars(together, self._spelling, self._marks)
            alternatives += [] if language == NOTHING else [self._terminal(language)]
            for clause in multiples:
                # Equal clauses of another schema may be the cached ones.
                origin = next(one.origin for one in together if isinstance(one, NumberClause) and one == clause)
                self._n.lose_at(origin, "multipleOf", "digits do not decide this factor; only native counts")
                alternatives += self._scalars([replace(clause, factors=())])
        return alternatives


def _shared(automaton: ContentAutomaton) -> set[tuple[int, bool]]:
    """States, with and without something before them, that more than one path leads to."""
    seen, shared, todo = {(0, False)}, set(), [(0, False)]
    while todo:
        state, begun = todo.pop()
        following = [(edge.target, True) for edge in automaton.edges[state]]
        following += [(target, begun) for target in automaton.skips[state]]
        if begun and _is_optional(automaton, state):
            following = following[:1]  # written as one path
        for target_key in following:
            if target_key in seen:
                shared.add(target_key)
            else:
                seen.add(target_key)
                todo.append(target_key)
    # What just ends is no rule.
    return {(state, begun) for state, begun in shared if automaton.edges[state] or automaton.skips[state]}


def _is_optional(automaton: ContentAutomaton, state: int) -> bool:
    """Whether its one edge may be left out, and leads where leaving it out leads."""
    if len(automaton.edges[state]) != 1:
        return False
    target, skips = automaton.edges[state][0].target, automaton.skips[state]
    if state in automaton.accepting:
        return (
            not skips and target in automaton.accepting and not automaton.edges[target] and not automaton.skips[target]
        )
    return skips == (target,)


def _signs(layout: Layout) -> dict[str, Node]:
    """Brackets, commas and colons with the white space around them."""
    return {
        "LBRACE": layout.begin_object,
        "RBRACE": concat(layout.space, layout.last, layout.close_object),
        "LBRACK": layout.begin_array,
        "RBRACK": concat(layout.space, layout.last, layout.close_array),
        "COMMA": concat(layout.space, layout.comma),
        "COLON": layout.colon,
        "FIRST": layout.first,
    }


@tree_cache(maxsize=4096)
def _scalars(
    clauses: tuple[Clause, ...], spelling: Spelling, marks: tuple[str, ...]
) -> tuple[Node, tuple[NumberClause, ...]]:
    """One language for all of the clauses.

    Args:
        clauses: of values without children.
        spelling: which texts of a value there are.
        marks: what none of the texts holds.

    Returns:
        Its texts; and numbers with factors that digits do not decide.
    """
    languages = [(clause, language_of(clause, spelling, marks)) for clause in clauses]
    multiples = tuple(
        clause
        for clause, language_or_none in languages
        if language_or_none is None and isinstance(clause, NumberClause)
    )
    return alt(*(language_or_none or NOTHING for _, language_or_none in languages)), multiples
