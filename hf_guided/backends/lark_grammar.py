"""A user's Lark grammar as llguidance gets it, with the parts that llguidance would take in another sense replaced.

- ``%json`` is this package's JSON Schema: the rules it makes of the schema, as a grammar beside the user's.
- ``<|name|>`` is the id of the tokenizer's special token: llguidance knows special tokens by number only.
- What it would drop in silence, or enforce only together with a sampler of its own, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..constraints.json_text import shorten
from ..constraints.suggestions import did_you_mean
from ..constraints.values import Constraint, Grammar, JsonSchema
from ..errors import Loss, UnsupportedConstraint
from ..grammars.lark import Lark, may_repeat_one_text
from ..grammars.rules import Token, references
from ..schema.normalize import Normalizer
from ..schema.to_lark import lark_grammar

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_START = "start"
_LOST_ATTRIBUTES = {
    "temperature": "the temperature is an argument of generate(), for the whole text",
    "capture": "a result has the whole text, and no parts of it; parse it with your own parser",
    "stop_capture": "a result has the whole text, and no parts of it; parse it with your own parser",
    "stop": "it would take text back that is written already; use suffix= or lazy",
}
_OPTIONS = ("no_forcing", "allow_initial_skip")
_SUBSTRINGS = (["substring_chunks"], ["substring_words"], ["substring_chars"])
# A pattern without these matches something; the others are tried.
_MAY_BE_EMPTY = ("[^", "&", "~", "--", "\\b", "\\B", "\\P", "^", "$")
_MOST_PROBES = 100
_PROBE = '%llguidance {"no_forcing": true}\nstart: PROBED-TERMINAL\nPROBED-TERMINAL: '
_IDS = re.compile(r"<\[[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*\]>")


@dataclass(frozen=True)
class LarkGrammar:
    """A grammar for llguidance."""

    text: str
    schemas: Mapping[str, str] = field(default_factory=dict)  # the grammars that it refers to, by name
    special: Mapping[int, bytes] = field(default_factory=dict)  # special tokens in its texts, and their names
    by_text: bool = True  # a position depends on the text alone, not on which tokens wrote it, or on how many
    forces_text: bool = True  # forced text always has an end, so it may be asked for


def read(constraint: Grammar, vocabulary: Vocabulary) -> LarkGrammar:
    """Read a user's grammar, which may name special tokens; raises InvalidConstraint or UnsupportedConstraint."""
    lark = _parsed(constraint.text, constraint.root)
    losses = [
        lark.loss(attribute.name, _LOST_ATTRIBUTES[attribute.name], attribute.position)
        for attribute in lark.attributes
        if attribute.name in _LOST_ATTRIBUTES
    ]
    special: dict[int, bytes] = {}
    schemas: dict[str, str] = {}
    replaced: list[tuple[int, int, str]] = []
    for token in lark.tokens:
        if token.kind == "special":
            ids = _token_ids(lark, token, vocabulary)
            special |= {i: vocabulary.token_text(i).encode() for i in ids if not vocabulary.is_text(i)}
            if not token.text.startswith("<["):
                replaced.append((token.start, token.end, f"<[{ids[0]}]>"))
        elif token.kind == "%json":
            name = f"json-{len(schemas)}"
            schemas[name] = _schema(lark, token, losses)
            replaced.append((token.start, token.end, f"@{name} "))
        elif token.kind == "%llguidance":
            losses += _option_losses(lark, token)
        elif token.kind == "%regex" and [*_object(lark, token)] not in _SUBSTRINGS:
            raise lark.malformed("%regex: expected substring_chunks, substring_words or substring_chars", token.start)
        elif token.kind == "grammar":
            raise lark.malformed(f"there is no grammar {token.text}; write %lark {{...}} in its place", token.start)
    for begins, ends in lark.negated:  # else a negation takes bytes that are no text
        replaced += [(begins, begins, "(/(?s:.*)/ & "), (ends, ends, ")")]
    if losses:
        raise UnsupportedConstraint("llguidance does not enforce all of this grammar", losses)
    text = _renamed(lark, constraint.root, replaced)
    counts_tokens = any(attribute.name == "max_tokens" for attribute in lark.attributes)
    by_text = not (counts_tokens or names_tokens(constraint))
    endless = any(may_repeat_one_text(body) for scope in lark.scopes for _, body in scope.terminals.values())
    return LarkGrammar(text, schemas, special, by_text, forces_text=by_text and not endless)


def names_tokens(constraint: Constraint) -> bool:
    """Whether a constraint is a Lark grammar that names tokens, which no other vocabulary has."""
    if not isinstance(constraint, Grammar) or constraint.syntax != "lark":
        return False
    return any(token.kind == "special" for token in _parsed(constraint.text, constraint.root).tokens)


def check_terminals(constraint: Grammar, probe: Callable[[str], tuple[bool, bool]]) -> None:
    """Refuse terminals that match nothing, and lazy ones that match the empty text, and so no other."""
    lark = _parsed(constraint.text, constraint.root)
    doubtful = (
        (scope, name, position)
        for scope in lark.scopes
        for name, (position, body) in scope.terminals.items()
        if name in scope.lazy or any(sign in body for sign in _MAY_BE_EMPTY)
    )
    for scope, name, position in islice(doubtful, _MOST_PROBES):  # a further dead end is found while generating
        nullable, empty = probe("\n".join([_PROBE + name, *scope.definitions]))
        if empty:
            raise lark.malformed(f"no text matches {shorten(name)}", position)
        if nullable and name in scope.lazy:
            raise lark.malformed("a lazy rule that may be empty always is; leave lazy out", position)


_parsed = lru_cache(maxsize=4)(Lark)


def _token_ids(lark: Lark, token: Token, vocabulary: Vocabulary) -> list[int]:
    """The ids that ``<|name|>``, ``<[5]>`` or ``<[5,8-9]>`` stands for."""
    if not (token.text.startswith("<[") and token.text.endswith("]>")):
        token_id = vocabulary.id_of(token.text)
        if token_id is None:
            names = [vocabulary.token_text(i) for i, data in enumerate(vocabulary.token_bytes) if data is None]
            near = did_you_mean(token.text, names)
            problem = f"the tokenizer has no token {token.text}{near}; the text itself stands in quotes"
            raise lark.malformed(problem, token.start)
        ids = [token_id]
    elif any(sign in token.text for sign in "*^"):
        raise lark.unsupported(token.text, "it may be a stop token; list the tokens", token.start)
    elif not _IDS.fullmatch(token.text):
        raise lark.malformed(f"expected ids of tokens, as in <[5,8-9]>, got {shorten(token.text)}", token.start)
    else:
        ids, size = [], len(vocabulary.token_bytes)
        for first, _, last in (part.partition("-") for part in token.text[2:-2].split(",")):
            if not int(first) <= int(last or first) < size:
                problem = f"{token.text}: the ids go from 0 to {size - 1}, the lower one first"
                raise lark.malformed(problem, token.start)
            ids += range(int(first), int(last or first) + 1)
    if set(ids) & set(vocabulary.stop_token_ids):
        raise lark.unsupported(token.text, "a stop token ends every text by itself; leave it out", token.start)
    return ids


def _schema(lark: Lark, token: Token, losses: list[Loss]) -> str:
    if not isinstance(token.value, (dict, bool)):
        raise lark.malformed("%json: expected a JSON Schema, an object or a bool", token.start)
    constraint = JsonSchema(token.value)
    constraint.check()
    n = Normalizer.of(constraint)
    rules = lark_grammar(n, constraint.style, closed=True)
    losses += [loss._replace(reason=f"{loss.reason} (in %json at {lark.where(token.start)})") for loss in n.losses]
    return rules


def _object(lark: Lark, token: Token) -> dict[str, Any]:
    if not isinstance(token.value, dict):
        raise lark.malformed("expected a JSON object", token.start)
    return token.value


def _option_losses(lark: Lark, token: Token) -> Iterator[Loss]:
    for name, value in _object(lark, token).items():
        if name not in _OPTIONS:
            yield lark.loss(f"%llguidance {name}", f"known are {' and '.join(_OPTIONS)}", token.start)
        elif not isinstance(value, bool):
            raise lark.malformed(f"%llguidance: expected true or false for {name}, got {value!r}", token.start)


def _renamed(lark: Lark, root: str, replaced: list[tuple[int, int, str]]) -> str:
    main = lark.main
    added = ""
    if root != _START:
        added = f"\n{_START}: {root}"
        if _START in main.rules:
            name = next(name for name in (f"{_START}-{i}" for i in count()) if name not in main.rules)
            at = [main.heads[_START]]
            at += [ref.position for rule in main.rules.values() for ref in references(rule) if ref.name == _START]
            replaced = replaced + [(position, position + len(_START), name) for position in at]
    parts, end = [], 0
    for first, last, new in sorted(replaced):
        parts += [lark.text[end:first], new]
        end = last
    return "".join([*parts, lark.text[end:], added])


# A part of a grammar: a comment, a text or a pattern, which are skipped; the head of a rule; a name in its body.
_PART = re.compile(
    r"""//[^\n]* | \#[^\n]* | "(?:\\.|[^"\\\n])*" | /(?:\\.|[^/\\\n])+/
      | ^[ \t]*[?!]*(?P<head>[A-Za-z_]\w*)[^:\n"/]*: | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.MULTILINE,
)


def longest_chain(grammar: str) -> int:
    """How many rules and terminals are open at once while references are followed, each rule once.

    That is the depth of a compiler's recursion. The order in which it follows the references of a rule decides; both
    orders are tried. A text that is no grammar gives some number.
    """
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for part in _PART.finditer(grammar):
        if part["head"]:
            body = bodies.setdefault(part["head"], [])
        elif part["name"]:
            body.append(part["name"])
    return max(_deepest(bodies), _deepest({name: names[::-1] for name, names in bodies.items()}))


def _deepest(bodies: Mapping[str, list[str]]) -> int:
    seen: set[str] = set()
    deepest = 0
    for first in ("start", *bodies):
        open_rules = [iter([first])]
        while open_rules:
            deepest = max(deepest, len(open_rules) - 1)
            name = next((name for name in open_rules[-1] if name in bodies and name not in seen), None)
            if name is None:
                open_rules.pop()
            else:
                seen.add(name)
                open_rules.append(iter(bodies[name]))
    return deepest


MOST_STATES = 5_000
"""States of repetitions side by side that take llguidance a tenth of a second."""

_MOST = 10**9  # Python's integers have no bound
_OF_GROUPS = re.compile(r"\)\s*[*+]")  # repetitions; those of one character have one state
_COUNTED = re.compile(r"(?<!\\u)\{\d")
_PIECE = re.compile(
    r"""\{(?P<low>\d+)(?P<comma>,)?(?P<high>\d*)\} | (?P<open>\((?:\?[:=!])?) | (?P<close>\)) | (?P<or>\|)
      | (?P<and>[ ]&[ ]) | (?P<times>[*+?]) | \[(?:\\.|[^\]\\])*\] | \\u\{[^{}]*\} | \\. | [ /]
      | (?P<not>~) | (?P<one>.)""",
    re.VERBOSE | re.DOTALL,
)


class _Size(NamedTuple):
    """Of an expression.

    Args:
        shortest: characters of its shortest text.
        cycle: states of what it repeats without end; 0 for nothing.
        counted: characters that are counted.
    """

    shortest: int = 1
    cycle: int = 0
    counted: int = 0


class _Group:
    """A group that is being read: its finished alternatives, parts of an intersection, and items in sequence."""

    def __init__(self) -> None:
        self.alternatives: list[_Size] = []
        self.parts: list[_Size] = []
        self.items: list[_Size] = []
        self._negated = False

    def add(self, item: _Size) -> None:
        if self._negated:  # whatever it is, there is no end to what it is not
            item = item._replace(cycle=max(item.cycle, 1))
        self.items.append(item)
        self._negated = False

    def negate(self) -> None:
        self._negated = True

    def repeat(self, low: int, unbounded: bool) -> None:
        if self.items:
            shortest, cycle, counted = self.items[-1]
            if unbounded:
                cycle = max(cycle, shortest, 1)
            repeated = min(shortest * low, _MOST)
            self.items[-1] = _Size(repeated, cycle, repeated if low > 1 else counted)

    def end_part(self) -> None:
        shortest = min(sum(item.shortest for item in self.items), _MOST)
        cycle = max((item.cycle for item in self.items), default=0)
        counted = min(sum(item.counted for item in self.items), _MOST)
        # A part like `.*a.{20}` has to remember where it saw the a.
        self.parts.append(_Size(shortest, max(cycle, counted) if cycle else 0, counted))
        self.items = []

    def end_alternative(self) -> None:
        self.end_part()
        product = 1
        for part in self.parts:
            product = min(product * part.cycle, _MOST)
        if not all(part.cycle for part in self.parts):
            product = 0  # the texts of one part end, and those of the others with them
        longest = max(part.counted for part in self.parts)
        self.alternatives.append(_Size(max(part.shortest for part in self.parts), product, longest))
        self.parts = []

    def size(self) -> _Size:
        self.end_alternative()
        shortest, cycles, counted = zip(*self.alternatives, strict=True)
        return _Size(min(shortest), max(cycles), max(counted))


def lexer_cost(grammar: str) -> int:
    """The states of repetitions side by side in one terminal, at most, about.

    Args:
        grammar: Lark, as llguidance reads it; what is no grammar gives some number.
    """
    cost = 1
    for line in grammar.splitlines():
        if " & " in line:
            cost = max(cost, _line_cost(line.partition(":")[2]))
    return cost


def _line_cost(expression: str) -> int:
    if len(expression) < MOST_STATES and len(_OF_GROUPS.findall(expression)) < 2 and not _COUNTED.search(expression):
        return 1  # at most one repetition has more than one state: not worth reading the line
    groups = [_Group()]
    for piece in _PIECE.finditer(expression):
        group = groups[-1]
        if piece["open"]:
            groups.append(_Group())
        elif piece["close"]:
            if len(groups) > 1:
                groups.pop()
                groups[-1].add(group.size())
        elif piece["or"]:
            group.end_alternative()
        elif piece["and"]:
            group.end_part()
        elif piece["not"]:
            group.negate()
        elif piece["low"]:
            group.repeat(int(piece["low"]), bool(piece["comma"]) and not piece["high"])
        elif piece["times"]:
            group.repeat(1 if piece["times"] == "+" else 0, piece["times"] != "?")
        elif piece["one"] or piece[0][0] in "[\\":
            group.add(_Size())
    while len(groups) > 1:
        group = groups.pop()
        groups[-1].add(group.size())
    return groups[0].size().cycle
