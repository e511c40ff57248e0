r"""GBNF, the grammars of llama.cpp, read into rules.

All of llama.cpp's syntax is read, with empty alternatives and ``.`` for any character. Beyond it, ``{,2}`` is
``{0,2}``, and a rule may continue on the next line without parentheses. Where llama.cpp takes the last of two
definitions, or a class without characters, this is an error. Tokens (``<[5]>``, ``<name>``, ``!<name>``) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import CompileLimitExceeded, Loss, UnsupportedConstraint, shown
from ..regex import ALL, EMPTY, CharSet, Node, chars, text
from ..regex.write import times
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
)

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|\#[^\r\n]*)+) | (?P<define>::=) | (?P<name>[a-zA-Z0-9_-]+)
      | (?P<text>"(?:[^"\\]|\\.)*") | (?P<set>\[(?:[^\]\\]|\\.)*\]) | (?P<token>!?<[^>]*>) | (?P<any>\.)
      | (?P<times>[*+?] | \{\s*[0-9]*\s*(?:,\s*[0-9]*\s*)?\}) | (?P<sign>[|()])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n", **{sign: sign for sign in "\\\"[]-'/^"}}
_MOST_RULES = 10_000  # rules; ten times as many that all lead into each other take 11 seconds of the CPU
MAX_REPEAT = 100_000  # xgrammar counts every one: some megabytes for this many
_MOST_OPERATORS = 4  # maximum number of operators in a row
_MOST_SHOWN = 60  # characters of a part of a grammar in a message
_HYPHEN = -1


class Gbnf(Reader):
    """Reads one grammar, which starts at the rule ``root``; its errors have line and column."""

    def __init__(self, text: str, root: str) -> None:
        super().__init__(text)
        self.root = root
        if text.count("::=") > _MOST_RULES:
            raise CompileLimitExceeded(f"a GBNF grammar may have {_MOST_RULES} rules; write fewer, with alternatives")
        self.tokens = self._lex()
        self.rules = self._read()
        check_rules(self, self.rules, root)

    def to_ebnf(self, leaf: Callable[[Node], str]) -> str:
        """The grammar as xgrammar reads it, leaves as ``leaf`` writes them.

        Raises UnsupportedConstraint where the library would take minutes, or end the process.
        """
        with_empty = known_by_steps(self.rules, derives_empty)
        if any(_counts_empty(rule, with_empty) for rule in self.rules.values()):
            reason = "xgrammar cannot count repetitions of what may be empty, as in (x?){2,3}; repeat x, or write (x?)*"
            raise UnsupportedConstraint("xgrammar does not take this grammar", [Loss("", "grammar", reason)])
        names = {name: f"r{i}" for i, name in enumerate(self.rules)}

        def written(expression: Expression) -> str:
            if isinstance(expression, Leaf):
                return leaf(expression.language)
            if isinstance(expression, Reference):
                return names[expression.name]
            if isinstance(expression, Repeat):
                return f"({written(expression.body)}){times(expression.low, expression.high)}"
            sign = " | " if isinstance(expression, Choice) else " "
            return f"({sign.join(map(written, expression.parts)) or leaf(EMPTY)})"

        rules = (f"{names[name]} ::= {written(rule)}" for name, rule in self.rules.items())
        return "\n".join([f"root ::= {names[self.root]}", *rules])

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
                raise self.malformed(f"the rule {shown(head.text)} is defined twice; rename one of them", head.start)
            rules[head.text] = self._choice()
        if self.take("end") is None:
            raise self.malformed(f"expected a rule, got {shown(self.here.text)}", self.here.start)
        if self.root not in rules:
            raise self.malformed(f"there is no rule {shown(self.root)} to start at; name it, or pass root=", 0)
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
            return Leaf(chars(ALL))
        if token.kind == "token":
            raise self.unsupported(_short(token.text), "no token can be named in GBNF; use Lark", token.start)
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
            raise self.malformed(
                f"half of a character in {_short(token.text)}; write it whole, as in \\U0001f600", token.start
            )
        return Leaf(text("".join(map(chr, codes))))

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
                problem = f"the range {chr(first)!r} to {chr(last)!r} is empty; write the lower character first"
                raise self.malformed(problem, token.start)
            ranges.append((first, last))
        charset = CharSet(ranges)
        charset = ALL - charset if negated else charset
        if not characters or not charset:
            problem = f"no character is in {_short(token.text)}; put one into it, or leave it out"
            raise self.malformed(problem, token.start)
        return Leaf(chars(charset))

    def _characters(self, token: Token, start: int) -> list[int]:
        """The code points of a text or a class; ``_HYPHEN`` is a hyphen that is not escaped."""
        characters = []
        position = start
        while position < len(token.text) - 1:
            escape = _ESCAPE.match(token.text, position)
            if escape is None:
                if token.text[position] == "\\":
                    raise self.malformed(
                        "this escape is not complete; for a backslash write \\\\", token.start + position
                    )
                character = token.text[position]
                characters.append(_HYPHEN if character == "-" else ord(character))
                position += 1
                continue
            code = escape[1] or escape[2] or escape[3]
            if code is None and escape[4] not in _ESCAPED:
                problem = (
                    f"the escape {escape[0]} is not known; for a backslash write \\\\, or give the character's hex"
                )
                raise self.malformed(f"{problem} digits: \\xHH, \\uHHHH, \\UHHHHHHHH", token.start + position)
            characters.append(int(code, 16) if code else ord(_ESCAPED[escape[4]]))
            if characters[-1] > 0x10FFFF:
                raise self.malformed(
                    f"{escape[0]} is no character; the last one is \\U0010FFFF", token.start + position
                )
            position = escape.end()
        return characters


def _short(text: str) -> str:
    """A part of a grammar for a message, as it is written."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN // 2]}...{text[-_MOST_SHOWN // 2 :]}"


def _counts_empty(expression: Expression, with_empty: set[str]) -> bool:
    """Whether a repetition of what may be empty has a count; ``with_empty`` are the rules that may be empty."""
    if isinstance(expression, Repeat):
        counted = expression.low > 1 or expression.high not in (None, 0, 1)
        return counted and derives_empty(expression.body, with_empty) or _counts_empty(expression.body, with_empty)
    parts = expression.parts if isinstance(expression, (Sequence, Choice)) else ()
    return any(_counts_empty(part, with_empty) for part in parts)
