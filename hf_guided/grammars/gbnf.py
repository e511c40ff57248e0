r"""GBNF, the grammars of llama.cpp, as rules: for the native engine, and as xgrammar reads them.

All of llama.cpp's syntax is read, with empty alternatives and ``.`` for any character. Beyond it, ``{,2}`` is
``{0,2}``, and a rule may continue on the next line without parentheses. Where llama.cpp takes the last of two
definitions, or a class without characters, this is an error. Tokens (``<[5]>``, ``<name>``, ``!<name>``) are refused.

For xgrammar two kinds of rules are written in another way, because xgrammar cannot bear them. A rule that leads to
itself and writes nothing, as ``x ::= x{0,3}``, lets it run out of stack: references to such a rule become the empty
text. Where something that may be empty is repeated, as in ``(("a"?){0,300}){0,300}``, every number of empty repetitions
is a position of its own, and one token takes minutes: so what is repeated is written without its empty text.

xgrammar's masks are slow, up to 100 ms with a vocabulary of 131,072 tokens, for ``(x){0,}`` and for a repeated choice,
whose branches become rules of their own. So no repetition without an upper bound is written with a count, and a
repeated choice becomes a rule that leads to itself after each branch: ``s ::= "" | a s | b s``. Small rules are
replaced in it.
"""

from __future__ import annotations

import re

from ..errors import CompileLimitExceeded
from ..regex import ALL, CharSet, chars, text
from .rules import (
    REPEATS,
    Choice,
    Expression,
    Leaf,
    Reader,
    Reference,
    Repeat,
    Rules,
    Sequence,
    Token,
    check_rules,
    choice,
    derives_empty,
    known_by_steps,
    sequence,
    writes,
)

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|\#[^\r\n]*)+) | (?P<define>::=) | (?P<name>[a-zA-Z0-9_-]+)
      | (?P<text>"(?:[^"\\]|\\.)*") | (?P<set>\[(?:[^\]\\]|\\.)*\]) | (?P<token>!?<[^>]*>) | (?P<any>\.)
      | (?P<times>[*+?] | \{\s*[0-9]*\s*(?:,\s*[0-9]*\s*)?\}) | (?P<sign>[|()])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n", **{sign: sign for sign in "\\\"[]-'/^"}}
MAX_REPEAT = 100_000  # xgrammar counts every one: some megabytes for this many
_MOST_OPERATORS = 4  # maximum number of operators in a row
_HYPHEN = -1
_EMPTY = '""'
_MAX_LEAVES = 16  # maximum number of leaves of a rule that is replaced by its alternatives in a repetition
_MAX_IN_PLACE = 500  # maximum characters of ``x x+`` written in place: masks of a rule of its own are slower


class Gbnf(Reader):
    """Reads one grammar, which starts at the rule ``root``; its errors have line and column."""

    def __init__(self, text: str, root: str) -> None:
        super().__init__(text)
        self.root = root
        self.tokens = self._lex()
        self.rules = self._read()
        check_rules(self, self.rules, root)

    def to_ebnf(self) -> str:
        """The grammar as xgrammar reads it; it starts at ``root``."""
        return EbnfWriter(self.rules).write(self.root)

    def _lex(self) -> list[Token]:
        tokens: list[Token] = []
        position, line_start, first_in_line = 0, 0, True
        while position < len(self.text):
            match = self.match(_TOKEN, position)
            kind = str(match.lastgroup)
            if kind == "define":
                if not tokens or tokens[-1].kind != "name" or tokens[-1].start != line_start:
                    raise self.malformed("expected the name of a rule at the beginning of the line", position)
                tokens[-1] = tokens[-1]._replace(kind="head")
            elif kind == "space":
                first_in_line = first_in_line or "\n" in match[0] or "\r" in match[0]
            else:
                tokens.append(Token(match[0] if kind == "sign" else kind, match[0], position, match.end()))
                line_start = position if first_in_line else line_start
                first_in_line = False
            position = match.end()
        return [*tokens, Token("end", "the end of the text", position, position)]

    def _read(self) -> Rules:
        rules: dict[str, Expression] = {}
        while (head := self.take("head")) is not None:
            if head.text in rules:
                raise self.malformed(f"the rule {head.text!r} is defined twice", head.start)
            rules[head.text] = self._choice()
        if self.take("end") is None:
            raise self.malformed(f"expected a rule, got {self.here.text!r}", self.here.start)
        if self.root not in rules:
            raise self.malformed(f"there is no rule {self.root!r} to start at; name it, or pass root=", 0)
        return rules

    def _choice(self) -> Expression:
        branches = [self._sequence()]
        while self.take("|"):
            branches.append(self._sequence())
        return choice(branches)

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while (part := self._part()) is not None:
            operators = 0
            while (times := self.take("times")) is not None:
                operators += 1
                part = self._repeat(part, times, operators)
            parts.append(part)
        return sequence(parts)

    def _part(self) -> Expression | None:
        token = self.take("name", "text", "set", "any", "token", "(")
        if token is None:
            return None
        if token.kind == "name":
            return Reference(token.text, token.start)
        if token.kind == "text":
            return self._text(token)
        if token.kind == "set":
            return self._set(token)
        if token.kind == "any":
            return _leaf(ALL)
        if token.kind == "token":
            raise self.unsupported(token.text, "no token can be named in GBNF; use Lark", token.start)
        self.open(token.start)
        inside = self._choice()
        if self.take(")") is None:
            raise self.malformed("this parenthesis is not closed", token.start)
        self.close()
        return inside

    def _repeat(self, part: Expression, times: Token, operators: int) -> Expression:
        if operators > _MOST_OPERATORS:
            raise self.malformed(f"more than {_MOST_OPERATORS} operators follow each other", times.start)
        if times.text in "*+?":
            return Repeat(part, *REPEATS[times.text])
        first, comma, last = "".join(times.text[1:-1].split()).partition(",")
        if not (first or last):
            raise self.malformed("expected a number of repetitions between { and }", times.start)
        if max(len(first), len(last)) > len(str(MAX_REPEAT)) or max(int(first or 0), int(last or 0)) > MAX_REPEAT:
            raise CompileLimitExceeded(
                f"Grammar: {self.where(times.start)}: more than {MAX_REPEAT} repetitions; leave the bound out"
            )
        low = int(first or 0)
        high = (int(last) if last else None) if comma else low
        if high is not None and high < low:
            raise self.malformed(f"expected at least {low} after the comma, got {high}", times.start)
        return Repeat(part, low, high)

    def _text(self, token: Token) -> Expression:
        codes = [ord("-") if code == _HYPHEN else code for code in self._characters(token, 1)]
        if any(0xD800 <= code < 0xE000 for code in codes):
            raise self.malformed(f"half of a character in {token.text}; write it whole, as in \\U0001f600", token.start)
        return Leaf(f'"{"".join(map(_code, codes))}"', text("".join(map(chr, codes))))

    def _set(self, token: Token) -> Expression:
        negated = token.text.startswith("[^")
        characters = self._characters(token, 2 if negated else 1)
        ranges, i = [], 0
        while i < len(characters):
            is_range = i + 2 < len(characters) and characters[i + 1] == _HYPHEN
            first, last = (
                ord("-") if code == _HYPHEN else code for code in (characters[i], characters[i + 2 * is_range])
            )
            i += 3 if is_range else 1
            if last < first:
                raise self.malformed(f"the range {chr(first)!r} to {chr(last)!r} is empty", token.start)
            ranges.append((first, last))
        charset = CharSet(ranges)
        charset = ALL - charset if negated else charset
        if not characters or not charset:
            raise self.malformed(f"no character is in {token.text}", token.start)
        return _leaf(charset)

    def _characters(self, token: Token, start: int) -> list[int]:
        """The code points of a text or a class; ``_HYPHEN`` is a hyphen that is not escaped."""
        characters = []
        position = start
        while position < len(token.text) - 1:
            escape = _ESCAPE.match(token.text, position)
            if escape is None:
                if token.text[position] == "\\":
                    raise self.malformed("this escape is not complete", token.start + position)
                character = token.text[position]
                characters.append(_HYPHEN if character == "-" else ord(character))
                position += 1
                continue
            code = escape[1] or escape[2] or escape[3]
            if code is None and escape[4] not in _ESCAPED:
                raise self.malformed(f"the escape {escape[0]} is not known", token.start + position)
            characters.append(int(code, 16) if code else ord(_ESCAPED[escape[4]]))
            if characters[-1] > 0x10FFFF:
                raise self.malformed(f"{escape[0]} is no character", token.start + position)
            position = escape.end()
        return characters


def _leaf(charset: CharSet) -> Leaf:
    return Leaf(f"[{''.join(f'{_code(first)}-{_code(last)}' for first, last in charset.ranges)}]", chars(charset))


def _code(code: int) -> str:
    return f"\\U{code:08x}"


class EbnfWriter:
    """Writes one grammar: all rules that are referred to; each has a text. The leaf ``""`` is the empty text."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        not_only_empty = known_by_steps(rules, writes)
        self._names = {name: f"r{i}" for i, name in enumerate(rules) if name in not_only_empty}
        self._with_empty = known_by_steps(rules, derives_empty)
        self._not_empty_names: dict[str, str] = {}
        self._lines: list[str] = []
        self._small = _small_rules(rules)

    def write(self, root: str) -> str:
        """The grammar, read from this rule."""
        self._lines = [f"root ::= {self._whole(Reference(root, 0))}"]
        for name, written in self._names.items():
            self._lines.append(f"{written} ::= {self._whole(self._rules[name])}")
        return "\n".join(self._lines)

    def _whole(self, expression: Expression) -> str:
        if isinstance(expression, Leaf):
            return expression.written
        if isinstance(expression, Reference):
            return self._names.get(expression.name, _EMPTY)
        if isinstance(expression, Sequence):
            return f"({' '.join(map(self._whole, expression.parts))})" if expression.parts else _EMPTY
        if isinstance(expression, Choice):
            return f"({' | '.join(map(self._whole, expression.parts))})"
        return self._repeat(expression, 0)

    def _repeat(self, repeat: Repeat, minimum: int) -> str:
        """A repetition with a minimum number of bodies that are not empty."""
        low = minimum if self._may_be_empty(repeat.body) else max(repeat.low, minimum)
        if repeat.high == 0:
            return _EMPTY
        if repeat.high is None:
            return self._endless(repeat.body, low)
        body = self._not_empty(repeat.body)
        if body is None:
            return _EMPTY
        if (low, repeat.high) == (0, 1):
            return f"({body})?"
        return f"({body}){{{low},{repeat.high}}}"

    def _endless(self, expression: Expression, low: int) -> str:
        """At least ``low`` texts of an expression that are not empty.

        Branches are rendered once, and those written more than once become rules, unless they are short: otherwise,
        nested repetitions would take exponential time, or their text would be exponentially long.
        """
        branches = list(filter(None, map(self._not_empty, self._branches(expression))))
        if not branches:
            return _EMPTY
        if len(branches) == 1:
            again = f"({branches[0]}){'+' if low else '*'}"
        else:
            name = f"s{len(self._lines)}"
            steps = " | ".join(f"{branch} {name}" for branch in branches)
            self._rule(f"{_EMPTY} | {steps}")
            again = self._rule(steps) if low else name
        if low < 2:
            return f"({again})"
        body = f"({' | '.join(branches)})"
        counted = f"{body}{{{low - 1}}}" if low > 2 else body
        written = f"{counted} {again}"
        return f"({written})" if len(written) <= _MAX_IN_PLACE else self._rule(written)

    def _may_be_empty(self, expression: Expression) -> bool:
        return derives_empty(expression, self._with_empty)

    def _branches(self, expression: Expression) -> list[Expression]:
        if isinstance(expression, Reference) and expression.name in self._small:
            return self._branches(self._rules[expression.name])
        if isinstance(expression, Choice):
            return [part for branch in expression.parts for part in self._branches(branch)]
        return [expression]

    def _not_empty(self, expression: Expression) -> str | None:
        """An expression without the empty text; None if that was its only text."""
        if not self._may_be_empty(expression):
            return self._whole(expression)
        if isinstance(expression, Leaf):
            return None
        if isinstance(expression, Reference):
            return self._not_empty_rule(expression.name) if expression.name in self._names else None
        if isinstance(expression, Choice):
            branches = [branch for branch in map(self._not_empty, expression.parts) if branch is not None]
            return f"({' | '.join(branches)})" if branches else None
        if isinstance(expression, Repeat):
            written = self._repeat(expression, 1)
            return None if written == _EMPTY else written
        # Every part may be empty: the first one is not, and any may come after it, or one after the first is not.
        rest: str | None = None
        for part in map(self._not_empty, reversed(expression.parts)):
            if part is not None:
                rest = part if rest is None else self._rule(f"{part} ({rest} | {_EMPTY}) | {rest}")
        return rest

    def _not_empty_rule(self, name: str) -> str:
        if name not in self._not_empty_names:  # it may lead to itself
            self._not_empty_names[name] = f"n{len(self._not_empty_names)}"
            self._lines.append(f"{self._not_empty_names[name]} ::= {self._not_empty(self._rules[name])}")
        return self._not_empty_names[name]

    def _rule(self, body: str) -> str:
        name = f"s{len(self._lines)}"
        self._lines.append(f"{name} ::= {body}")
        return name


def _small_rules(rules: Rules) -> set[str]:
    """The rules that have few leaves when references are replaced by what they refer to."""
    sizes: dict[str, int] = {}

    def size(expression: Expression) -> int:
        if isinstance(expression, Leaf):
            return 1
        if isinstance(expression, Reference):
            return sizes.get(expression.name, _MAX_LEAVES + 1)
        if isinstance(expression, Repeat):
            return size(expression.body)
        return sum(map(size, expression.parts)) or 1  # else a small rule could have any number of empty branches

    def is_small(expression: Expression, known: set[str]) -> bool:
        sizes.update({name: size(rules[name]) for name in known - set(sizes)})
        return size(expression) <= _MAX_LEAVES

    return known_by_steps(rules, is_small)
