"""Whether a language has any string: its tree shows this only where it holds no And and no Not.

Most that have one show it by an example made of their parts. Otherwise each part becomes an automaton, kept for other
constraints too, and the loops of emptiness.c follow the product until they find a string. They count characters beside
it: an automaton of a thousand of them would be large. Where that of another part is too large, or is one of hundreds of
words to leave out, the string that is found is looked up in it instead.
"""

from __future__ import annotations

import ctypes

from ..errors import CompileLimitExceeded
from ..regex import (
    ALL,
    ANYTHING,
    NOTHING,
    AllBut,
    Alt,
    And,
    Chars,
    Concat,
    Node,
    Not,
    Repeat,
    characters,
    complement,
    is_plain,
    matches,
    repeat,
    tree_cache,
)
from .byte_dfa import ByteDfa
from .core import CORE, record
from .limits import WorkMeter
from .nfa import language_dfa

MOST_WORK, MOST_WORK_OF_ALL = 1_000_000, 3_000_000  # steps of one automaton or search, and of a constraint
_ENDLESS = 2**31  # characters: more than there are steps
_ROOM = 2**16  # bytes of a string that was found, if it is looked at
_USUAL = "a0A_"  # allowed by most patterns
_LONGEST = 200  # characters of an example, about
_CHARACTER = Chars(ALL)


class Emptiness:
    """Says whether the languages of a constraint have strings; nothing but counted work bounds the searches."""

    def __init__(self) -> None:
        self._left = MOST_WORK_OF_ALL
        self._known: dict[Node, bool | None] = {}
        self._met: set[Node] = set()
        self._automata: dict[Node, ByteDfa | None] = {}  # None where it takes too much work

    def __call__(self, node: Node) -> bool:
        """Whether the language surely has no string."""
        return self.verdict(node) is True

    def verdict(self, node: Node) -> bool | None:
        """Whether the language has no string; None if it takes too much work to tell."""
        if is_plain(node) or node.nullable:
            return node == NOTHING
        if node not in self._known:
            self._known[node] = self._is_empty(node)
        return self._known[node]

    def _is_empty(self, node: Node) -> bool | None:
        if isinstance(node, Repeat):
            return self.verdict(node.body)  # at least once: a repetition that may be left out is nullable
        if isinstance(node, (Concat, Alt)):
            deciding = isinstance(node, Concat)  # one part without strings decides; of an Alt, one branch with strings
            verdicts = {self.verdict(part) for part in node.parts}
            return deciding if deciding in verdicts else None if None in verdicts else not deciding
        meter = WorkMeter.of_steps(min(MOST_WORK, self._left))
        try:
            return self._is_intersection_empty(node.parts if isinstance(node, And) else (node,), meter)
        except CompileLimitExceeded:
            return None
        finally:
            self._left -= meter.work

    def _is_intersection_empty(self, languages: tuple[Node, ...], meter: WorkMeter) -> bool | None:
        low, high = 0, _ENDLESS
        parts: dict[Node, bool] = {}  # value: whether the strings of the node are not wanted
        lists: list[Node] = []
        for language in languages:
            if isinstance(language, AllBut):
                lists.append(language)
                continue
            if isinstance(language, Repeat) and isinstance(language.body, Chars):
                low, high = max(low, language.low), high if language.high is None else min(high, language.high)
                language = repeat(language.body)
            is_excluded = isinstance(language, Not)
            language = language.body if isinstance(language, Not) else language
            if language != ANYTHING and parts.setdefault(language, is_excluded) != is_excluded:
                return True
        if low > high:
            return True
        # An automaton is worth its work where a language comes again.
        is_known = all([self._automata.get(language, language in self._met) for language in parts])
        self._met.update(parts)
        if not is_known and _has_example(languages, low, meter):
            return False
        automata, hard = self._split(parts)
        if low > _LONGEST or _LONGEST < high < _ENDLESS:  # many lengths are to be told apart, often for nothing
            if self._common_string(automata, 0, _ENDLESS, 0, meter) is None:
                return True
        # Words to leave out seldom matter, and there may be hundreds: an automaton of them comes last.
        for unchecked in (lists, []) if lists else ([],):
            found = self._common_string(automata, low, high, _ROOM if hard or unchecked else 0, meter)
            if found is None:
                return True
            if all(_has(language, found) for language in (*hard, *unchecked)):
                return False
            more, harder = self._split(dict.fromkeys(unchecked, False))
            automata, hard = automata + more, hard + harder
        return None

    def _split(self, parts: dict[Node, bool]) -> tuple[list[tuple[ByteDfa, bool]], list[Node]]:
        """Automata of languages, or of those that are excluded; and the languages that are too hard."""
        automata: list[tuple[ByteDfa, bool]] = []
        hard: list[Node] = []
        for language, is_excluded in parts.items():
            try:
                automata.append((self._automaton(language), is_excluded))
            except CompileLimitExceeded:
                hard.append(complement(language) if is_excluded else language)
        return automata, hard

    def _automaton(self, language: Node) -> ByteDfa:
        if language not in self._automata:
            self._automata[language] = None
            meter = WorkMeter.of_steps(min(MOST_WORK, self._left))
            try:
                self._automata[language] = language_dfa(language, meter)
            finally:
                self._left -= meter.work
        automaton = self._automata[language]
        if automaton is None:
            raise CompileLimitExceeded("the automaton has taken too much work before")
        return automaton

    def _common_string(
        self, automata: list[tuple[ByteDfa, bool]], low: int, high: int, room: int, meter: WorkMeter
    ) -> str | None:
        """A string of ``low`` to ``high`` characters that all automata have but the excluded ones.

        If the string is longer than ``room`` bytes, any text stands for it. None if there is no such string.
        """
        if all(is_excluded for _, is_excluded in automata):
            automata = [*automata, (self._automaton(ANYTHING), False)]  # valid UTF-8
        fields: list[int] = []  # the fields of ``Part`` of emptiness.c, for each
        for dfa, is_excluded in automata:
            fields += [array.ctypes.data for array in (dfa.table, dfa.byte_class, dfa.accepting)]
            fields += dfa.table.itemsize == 4, dfa.table.shape[1], dfa.start, is_excluded
        struct, place = record(*fields)
        bounds = min(low, _ENDLESS), -1 if high == _ENDLESS else high
        work, text = ctypes.c_int64(), ctypes.create_string_buffer(room)
        found = CORE.common_string(place, len(automata), *bounds, meter.left, ctypes.byref(work), text, room)
        del struct  # the loops have read it
        meter.spend(work.value)
        if found < 0 or 0 < room < found - 1:
            raise CompileLimitExceeded("it takes too much work, or memory, to find a string")
        return text.raw[: found - 1].decode() if found else None


def _has(language: Node, text: str) -> bool:
    return text not in language.words if isinstance(language, AllBut) else matches(language, text)


def _has_example(languages: tuple[Node, ...], least: int, meter: WorkMeter) -> bool:
    """Whether one of a few strings is in all languages.

    These strings are an example of each plain language, alone and one after another, with ``least`` or more characters.
    """
    size = sum(map(characters, languages))
    plain = [
        part for part in languages if is_plain(part) and not (isinstance(part, Repeat) and part.body == _CHARACTER)
    ]
    examples = [text for text in map(_example, plain) if text is not None]
    for text in dict.fromkeys((*examples, "".join(examples))) if least <= _LONGEST else ():
        text = text.ljust(max(least, 1), _USUAL[0])
        meter.spend_cells(size * len(text))
        if all(_has(language, text) for language in languages):
            return True
    return False


@tree_cache(maxsize=4096)
def _example(node: Node) -> str | None:
    """A string of a plain language; None if it would be long."""
    if isinstance(node, Chars):
        return next((character for character in _USUAL if character in node.charset), None) or next(iter(node.charset))
    if isinstance(node, Alt):
        return _example(node.parts[0])
    parts: tuple[Node, ...] = node.parts if isinstance(node, Concat) else ()
    if isinstance(node, Repeat) and node.low:
        parts = (node.body,) * min(node.low, _LONGEST + 1)
    text = ""
    for part in parts:
        example = _example(part)
        if example is None or len(text) > _LONGEST:
            return None
        text += example
    return text
