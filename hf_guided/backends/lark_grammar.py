"""A user's Lark grammar as llguidance gets it, with the parts that llguidance would take in another sense replaced.

- ``%json`` is this package's JSON Schema: the rules it makes of the schema, as a grammar beside the user's.
- ``<|name|>`` is the id of the tokenizer's special token: llguidance knows special tokens by number only.
- A pattern with a lazy quantifier ends as soon as it can; llguidance would take it for greedy.
- What it would drop in silence, or enforce only together with a sampler of its own, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from ..automaton.limits import WorkMeter
from ..automaton.nfa import regex_dfa
from ..constraints.suggestions import did_you_mean
from ..constraints.values import Grammar, JsonSchema
from ..errors import CompileLimitExceeded, InvalidConstraint, Loss, UnsupportedConstraint, shown
from ..grammars.lark import Lark, may_repeat_one_text
from ..grammars.rules import Token, references
from ..regex import UnsupportedRegex, parse_fullmatch
from ..schema.documents import iter_keywords
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
_MOST_ALTERNATIVES = 100_000  # derivatives in one step of an intersection; a tenth of a second
_MOST_CHARACTERS = 100_000  # the longest grammar: reading takes about two microseconds for each character
_MOST_STEPS = 100_000  # work of looking at one lazy pattern
_PROBE = '%llguidance {"no_forcing": true}\nstart: PROBED-TERMINAL\nPROBED-TERMINAL: "x" '
_SIGN = re.compile(r"[|*+?{]")
_PIECE = re.compile(
    r"""/(?P<pattern>(?:\\.|[^/\\])+)/[imslux]* | "(?:\\.|[^"\\])*"i?
      | (?P<name>_?[A-Z][_A-Z0-9-]*) | (?P<sign>[()|&*+?{~]) | .""",
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER = re.compile(
    r"""(?P<fixed>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?|\{[0-9]+\}\??|[^*+?{|])
      | (?:[*+?]|\{[0-9,]*\})(?P<lazy>\?)? | [|{]""",
    re.VERBOSE | re.DOTALL,
)
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
    """Read a user's grammar, which may name special tokens; raises InvalidConstraint or UnsupportedConstraint.

    CompileLimitExceeded: it is too long.
    """
    if len(constraint.text) > _MOST_CHARACTERS:
        raise CompileLimitExceeded(
            f"a Lark grammar may have {_MOST_CHARACTERS} characters, this one has {len(constraint.text)}; use "
            "Choice or JsonSchema for its long parts"
        )
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
    lazy, added = _lazy_patterns(lark)
    replaced += lazy
    if losses:
        raise UnsupportedConstraint("llguidance does not enforce all of this grammar", losses)
    text = "\n".join([_renamed(lark, constraint.root, replaced), *added])
    counts_tokens = any(attribute.name == "max_tokens" for attribute in lark.attributes)
    by_text = not (counts_tokens or any(token.kind == "special" for token in lark.tokens))
    endless = any(may_repeat_one_text(body) for scope in lark.scopes for _, body in scope.terminals.values())
    return LarkGrammar(text, schemas, special, by_text, forces_text=by_text and not endless)


def check_terminals(constraint: Grammar, probe: Callable[[str], tuple[bool, bool]]) -> None:
    """Refuse terminals that match nothing, lazy ones that match the empty text, and those that take long.

    ``probe`` tells of a grammar of one terminal whether it takes the empty text, and whether it takes no text at all;
    it raises CompileLimitExceeded where llguidance takes more than its fuel to find out.
    """
    lark = _parsed(constraint.text, constraint.root)
    for scope in lark.scopes:
        terminals = Terminals(dict((name, body) for name, (_, body) in scope.terminals.items()))
        imports = [text for text in scope.definitions if text.startswith("%")]
        doubtful = [
            name
            for name, body in terminals.bodies.items()
            if name in scope.lazy or any(sign in body for sign in _MAY_BE_EMPTY)
        ]
        # If there are too many doubtful terminals, the last ones are checked while generating.
        for name in [*terminals.combined(_MOST_ALTERNATIVES), *islice(doubtful, _MOST_PROBES)]:
            nullable, empty = probe("\n".join([_PROBE + name, *terminals.definitions(name), *imports]))
            position = scope.terminals[name][0]
            if empty:
                raise lark.malformed(f"no text matches {shown(name)}", position)
            if nullable and name in scope.lazy:
                raise lark.malformed("a lazy rule that may be empty always is; leave lazy out", position)


def check_written(grammar: str, probe: Callable[[str], tuple[bool, bool]]) -> None:
    """Do ``check_terminals`` for a grammar that this package has written: one definition a line."""
    heads = [(line.partition(":")[0], line) for line in grammar.splitlines()]
    terminals = Terminals({head: line for head, line in heads if head.isupper()})
    for name in terminals.combined():
        probe("\n".join([_PROBE + name, *terminals.definitions(name)]))


class Terminals:
    """The terminals of one scope: name and definition, or a pattern twice.

    llguidance counts the work of its lexer (its "fuel"), but for two things. Its constructor looks for a text after
    every first byte of every terminal without a limit; so terminals with ``&`` or ``~`` are probed after one more
    byte, where the fuel counts. And each step of an intersection multiplies the alternatives of its parts.
    """

    def __init__(self, bodies: Mapping[str, str]) -> None:
        self.bodies = bodies
        self._read: dict[str, tuple[int, bool, frozenset[str]]] = {}

    def combined(self, most_alternatives: int | None = None) -> list[str]:
        """Terminals that have, or refer to, an intersection or a negation; CompileLimitExceeded where they take long.

        ``most_alternatives`` are those that a step may multiply; None is any number.
        """
        names = []
        for name in self.bodies:
            width, is_combined, _ = self._of(name)
            if most_alternatives is not None and width > most_alternatives:
                raise CompileLimitExceeded(
                    f"the parts of the intersection in {shown(name)} have more than {most_alternatives} "
                    "combinations; intersect fewer parts, with fewer repetitions and alternatives"
                )
            if is_combined:
                names.append(name)
        if len(names) > _MOST_PROBES:
            raise CompileLimitExceeded(f"more than {_MOST_PROBES} terminals have & or ~; write fewer with these signs")
        return names

    def definitions(self, name: str) -> list[str]:
        """The definitions of what a terminal refers to, and its own."""
        return [self.bodies[each] for each in self._of(name)[2] if self.bodies[each] != each]

    def _of(self, name: str) -> tuple[int, bool, frozenset[str]]:
        """How many alternatives a step multiplies at most, about; whether it is combined; and what it refers to."""
        if name in self._read:
            return self._read[name]
        self._read[name] = 1, False, frozenset([name])  # where it refers to itself, llguidance refuses it
        # A group is an open bracket: alternatives before the last |, product of the parts before the last &, the rest.
        groups, is_combined, names = [[0, 1, 1]], False, {name}
        for piece in _PIECE.finditer(self.bodies[name]):
            group, sign = groups[-1], piece["sign"]
            if piece["name"] in self.bodies:
                inner = self._of(piece["name"])
                group[2] += inner[0] - 1
                is_combined, names = is_combined or inner[1], names | inner[2]
            elif sign == "(":
                groups.append([0, 1, 1])
            elif sign == ")" and len(groups) > 1:
                before, product, width = groups.pop()
                groups[-1][2] += before + product * width - 1
            elif sign == "|":
                group[:] = group[0] + group[1] * group[2], 1, 1
            elif sign == "&":
                group[1:] = group[1] * group[2], 1
            else:
                group[2] += len(_SIGN.findall(piece["pattern"] or sign or ""))
            is_combined |= sign in ("&", "~")
        before, product, width = groups[0]
        self._read[name] = found = before + product * width, is_combined, frozenset(names)
        return found


def _lazy_patterns(lark: Lark) -> tuple[list[tuple[int, int, str]], list[str]]:
    """Write patterns with lazy quantifiers so that they end as soon as they can: llguidance takes these for greedy.

    That is what they mean where the shortest text is the first one that a backtracking matcher finds, and where nothing
    follows in the same terminal; others are refused, unless they have no choice where to end.
    """
    replaced: list[tuple[int, int, str]] = []
    added: list[str] = []
    in_terminal, head, lazy = False, "", set[str]()
    tokens = [Token("newline", "", 0, 0), *lark.tokens]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if before.kind in ("newline", "{") and token.kind in ("rule", "terminal", "%ignore"):
            head = token.text
            in_terminal = token.kind != "rule" or after.kind == "["
        if token.kind != "pattern" or not (signs := _quantifiers(token.text)):
            continue
        is_whole = before.kind in (":", "%ignore") and after.kind in ("newline", "}")
        if _ends_by_itself(token.text):
            continue
        if not (signs == ["lazy"] and (is_whole or not in_terminal)):
            reason = (
                "engines take every quantifier for greedy here; write what may not follow, as in [^x]*, or one pattern "
                "with one lazy quantifier and no other, as a terminal of its own"
            )
            raise lark.unsupported("lazy", f"{shown(token.text)}: {reason}", token.start)
        body = f"({token.text} & ~({token.text} /(?s:.)+/))"
        if not in_terminal:
            added.append(f"LAZY-PATTERN-{len(added)}: {body}")
            body = f" LAZY-PATTERN-{len(added) - 1} "
        elif before.kind == ":":
            lazy.add(head)
        replaced.append((token.start, token.end, body))
    for scope in lark.scopes if lazy else ():
        for name, (position, body) in scope.terminals.items():
            pieces = _PIECE.finditer(body)
            if inside := next((piece["name"] for piece in pieces if piece["name"] in lazy - {name}), None):
                reason = (
                    f"{inside} has a lazy quantifier, and ends in a terminal of its own only; refer to it in a rule"
                )
                raise lark.unsupported(name, reason, position)
    return replaced, added


def _quantifiers(pattern: str) -> list[str]:
    """The kinds of the quantifiers and alternatives in a pattern, if any quantifier is lazy."""
    found = ["lazy" if part["lazy"] else "other" for part in _QUANTIFIER.finditer(pattern) if not part["fixed"]]
    return found if "lazy" in found else []


def _ends_by_itself(pattern: str) -> bool:
    """Whether no text that matches a pattern begins with another one, so that it is the same where it is lazy."""
    body, _, flags = pattern[1:].rpartition("/")
    try:
        node = parse_fullmatch(f"(?{flags}:{body})" if flags else body)
        dfa = regex_dfa(node, WorkMeter.of_steps(_MOST_STEPS))
    except (UnsupportedRegex, CompileLimitExceeded, InvalidConstraint):
        return False
    return not dfa.table[dfa.accepting].any()


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
        raise lark.malformed(f"expected ids of tokens, as in <[5,8-9]>, got {shown(token.text)}", token.start)
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
    for pointer, here in iter_keywords(token.value):
        if "x-guidance" in here:
            reason = f"an option of llguidance's own JSON Schema, at {pointer or '/'} in %json; leave it out"
            losses.append(lark.loss("x-guidance", reason, token.start))
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
