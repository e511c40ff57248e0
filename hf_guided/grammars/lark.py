"""A Lark grammar in llguidance's dialect: its rules, and the parts that need more than llguidance's own reading.

llguidance judges the text as well, so what is odd here and harmless is left to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .rules import REPEATS, Expression, Leaf, Reader, Reference, Repeat, Token, check_rules, choice, sequence

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+ | (?:\#|//)[^\n]*) | (?P<newline>(?:\r?\n)+[ \t]*)
      | (?P<json>%(?:json|regex|llguidance)) | (?P<keyword>%(?:ignore|import|override|declare|lark|if))
      | (?P<rule>!?[_?]?[a-z][_a-z0-9-]*) | (?P<terminal>_?[A-Z][_A-Z0-9-]*)
      | (?P<text>"(?:\\(?:["\\/bfnrt]|u[a-fA-F0-9]{4}|x[a-fA-F0-9]{2})|[^"\\\x00-\x1f\x7f])*"i?)
      | (?P<pattern>/(?:\\.|[^/\\])+/[imslux]*) | (?P<special><[^<>\s]+>) | (?P<grammar>@[a-zA-Z0-9_-]+)
      | (?P<number>0[xX][0-9a-fA-F]+|[+-]?[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<operator>[+*?]) | (?P<sign>->|::|\.\.|[:.,=(){}\[\]~|&_])""",
    re.VERBOSE,
)
_ENDS = ("newline", "|", "->", ")", "]", "}", "%if", "&", "end")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# A string or a pattern inside a terminal, or one character that is neither.
_LARK = re.compile(r'"(?:\\.|[^"\\])*"i?|/(?P<pattern>(?:\\.|[^/\\])+)/[a-z]*|.', re.DOTALL)
_PATTERN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[0-9]*,\}|.", re.DOTALL)
_SEVERAL = re.compile(r"\.|\\[dDwWsS]|\[(?:\\[dDwWsS]|\^|(?:\\.|[^\\])(?!\])).*", re.DOTALL)


class Attribute(NamedTuple):
    """A word in brackets after the name of a rule, as in ``x[lazy, max_tokens=5]: /.*/``; "" where it has no value."""

    name: str
    value: str
    position: int


@dataclass
class Scope:
    """The rules of one grammar: of the whole text, or of a nested ``%lark {...}``.

    ``terminals`` are the names of terminals, patterns, and bodies of rules with attributes that the lexer looks for.
    """

    rules: dict[str, Expression] = field(default_factory=dict)  # rules by name, without the marks ``!`` and ``?``
    heads: dict[str, int] = field(default_factory=dict)  # where the names of the rules begin
    definitions: list[str] = field(default_factory=list)  # terminals and imports: texts that any grammar may begin with
    terminals: dict[str, tuple[int, str]] = field(default_factory=dict)  # where each stands, and its text
    lazy: set[str] = field(default_factory=set)  # terminals that end as soon as they can


class Lark(Reader):
    """Reads one grammar, which starts at the rule ``root``; its errors have line and column."""

    def __init__(self, text: str, root: str) -> None:
        super().__init__(text)
        self.tokens = self._lex()
        self._in_terminal = False
        self.attributes: list[Attribute] = []
        self.negated: list[tuple[int, int]] = []  # where ~ and its operand begin and end
        self.scopes: list[Scope] = []
        self.main = self._scope("end", root)

    def _lex(self) -> list[Token]:
        """The tokens of the text, without spaces and comments, and one of kind "end"."""
        position = 0
        tokens: list[Token] = []
        while position < len(self.text):
            match = self.match(_TOKEN, position)
            kind, end, value = str(match.lastgroup), match.end(), None
            if kind == "json":
                value, end = self._json(match[0], end)
            if kind != "space":
                kind = match[0] if kind in ("json", "keyword", "sign") else kind
                tokens.append(Token(kind, self.text[position:end], position, end, value))
            position = end
        return [*tokens, Token("newline", "", position, position), Token("end", "", position, position)]

    def _json(self, keyword: str, position: int) -> tuple[Any, int]:
        start = position
        while self.text[start : start + 1].isspace():
            start += 1
        try:
            return json.JSONDecoder().raw_decode(self.text, start)
        except ValueError as error:
            raise self.malformed(f"{keyword} must be followed by JSON: {error}", position) from None
        except RecursionError:
            raise self.malformed(f"the JSON after {keyword} is nested too deeply", position) from None

    def _expect(self, what: str, *kinds: str) -> Token:
        token = self.take(*kinds)
        if token is None:
            found = self.here.text.strip() or "the end of the line"
            raise self.malformed(f"expected {what}, got {found!r}", self.here.start)
        return token

    def _scope(self, end: str, root: str) -> Scope:
        scope, begins = Scope(), self.here.start
        self.scopes.append(scope)
        while self.take(end) is None:
            if self.take("newline") is None:
                self._statement(scope)
        if root not in scope.rules:
            raise self.malformed(f"there is no rule {root!r} to start at; name it, or pass root=", begins)
        check_rules(self, scope.rules, root)
        return scope

    def _statement(self, scope: Scope) -> None:
        first = self._expect(
            "a rule or a statement", "rule", "terminal", "%ignore", "%import", "%declare", "%override", "%llguidance"
        )
        if first.kind == "rule":
            self._rule(scope, first)
        elif first.kind == "terminal":
            self._colon()
            self._terminal(scope)
            definition = self.text[first.start : self.here.start]
            scope.definitions.append(definition)
            scope.terminals[first.text] = first.start, definition
        elif first.kind == "%ignore":
            begins = self.here.start
            self._terminal(scope)
            if not self.text[begins : self.here.start].strip():
                raise self.malformed("expected a pattern after %ignore", first.start)
        elif first.kind == "%import":
            while self.here.kind != "newline":
                self._next += 1
            scope.definitions.append(self.text[first.start : self.here.start])
        elif first.kind != "%llguidance":
            raise self.unsupported(first.kind, "write the rules of both grammars into one", first.start)

    def _rule(self, scope: Scope, head: Token) -> None:
        name = head.text.lstrip("!?")
        if name in scope.rules:
            raise self.malformed(f"the rule {name!r} is defined twice", head.start)
        if self.take("::"):
            self._expect("_", "_")
        words = self._attributes()
        self._colon()
        body_begins = self._next
        begins = self.tokens[body_begins].start
        scope.heads[name] = head.end - len(name)
        scope.rules[name] = self._terminal(scope) if words - {"capture"} else self._expressions(scope)
        kinds = {token.kind for token in self.tokens[body_begins : self._next]}
        if "max_tokens" in words and kinds & {"%json", "%lark"}:
            raise self.unsupported("max_tokens", "only the tokens of a terminal are counted", head.start)
        if words - {"capture", "max_tokens", "temperature"}:
            body = f"({self.text[begins : self.here.start].strip()})"
            scope.terminals[body] = begins, body
            if "lazy" in words:
                scope.lazy.add(body)

    def _terminal(self, scope: Scope) -> Expression:
        self._in_terminal = True
        try:
            return self._expressions(scope)
        finally:
            self._in_terminal = False

    def _colon(self) -> None:
        token = self.here
        if token.kind in ".{":
            if token.kind == "{":
                raise self.unsupported("template", "write each use as a rule of its own", token.start)
            why = "it decides how a text is read, not which texts there are; leave it out"
            raise self.unsupported("priority", why, token.start)
        self._expect("a colon", ":")

    def _attributes(self) -> set[str]:
        first = len(self.attributes)
        if self.take("[") is None:
            return set()
        while self.take("]") is None:
            word = self._expect("an attribute", "rule")
            value = ""
            if self.take("="):
                begins = self.here
                while self.here.kind not in (",", "]", "newline", "end"):
                    self._next += 1
                value = self.text[begins.start : self.tokens[self._next - 1].end]
            self.attributes.append(Attribute(word.text, value, word.start))
            self.take(",")
            if word.text == "max_tokens" and not (value.isdecimal() and value.strip("0")):
                raise self.malformed(f"max_tokens: expected a number of at least 1, got {value!r}", word.start)
            if word.text == "suffix" and value in ("", '""'):
                raise self.malformed("suffix: expected a text with characters, or a terminal", word.start)
        return {attribute.name for attribute in self.attributes[first:]}

    def _expressions(self, scope: Scope) -> Expression:
        branches = [self._expression(scope)]
        while self._follows_sign():
            branches.append(self._expression(scope))
        return choice(branches)

    def _follows_sign(self) -> bool:
        """Take a sign between expressions, which may stand on the next line."""
        begins = self._next
        self.take("newline")
        if self.take("|", "&"):
            return True
        self._next = begins
        return False

    def _expression(self, scope: Scope) -> Expression:
        parts: list[Expression] = []
        while self.here.kind not in _ENDS:
            negation = self.take("~")
            part = self._part(scope)
            if negation is not None:
                if not self._in_terminal:
                    reason = "only terminals can be negated; give it a name in capitals"
                    raise self.unsupported("~", reason, negation.start)
                self.negated.append((negation.start, self.tokens[self._next - 1].end))
            parts.append(self._repeated(part))
        if self.take("->"):
            self._expect("a name", "rule")
        if self.take("%if"):
            while self.here.kind not in _ENDS:
                self._next += 1
                self._skip_brackets()
        return sequence(parts)

    def _part(self, scope: Scope) -> Expression:
        token = self._expect(
            "a part of a rule",
            *("(", "[", "text", "pattern", "special", "grammar", "%json", "%regex", "%lark", "terminal", "rule"),
        )
        if token.kind in "([":
            self.open(token.start)
            inside = self._expressions(scope)
            closing = _CLOSING[token.kind]
            if self.take(closing) is None:
                raise self.malformed(f"this bracket is not closed on its line; expected {closing}", token.start)
            self.close()
            return Repeat(inside, 0, 1) if token.kind == "[" else inside
        if token.kind == "%lark":
            self.open(token.start)
            self._expect("{", "{")
            surroundings, self._in_terminal = self._in_terminal, False
            self._scope("}", "start")
            self._in_terminal = surroundings
            self.close()
        if token.kind == "rule":
            if self.take("::"):
                self._next += 1
                self._skip_brackets()
            if self.here.kind == "{" and self.tokens[self._next + 1].kind not in ("number", ","):
                raise self.unsupported("template", "write each use as a rule of its own", token.start)
            return Reference(token.text, token.start)
        if token.kind == "text" and self.take(".."):
            self._expect("a text", "text")
        if token.kind == "pattern":
            scope.terminals.setdefault(token.text, (token.start, token.text))
        return Leaf()

    def _repeated(self, part: Expression) -> Expression:
        if operator := self.take("operator"):
            return Repeat(part, *REPEATS[operator.text])
        if self.here.kind == "~" and self.tokens[self._next + 1].kind == "number":
            self._next += 1
            low = self._number()
            if self.take(".."):
                self._number()
            return Repeat(part, low, None)
        if self.take("{"):
            low = 0 if self.here.kind == "," else self._number()
            if self.take(",") and self.here.kind != "}":
                self._number()
            self._expect("}", "}")
            return Repeat(part, low, None)
        return part

    def _number(self) -> int:
        token = self._expect("a number", "number")
        try:
            return int(token.text)
        except ValueError:
            raise self.malformed(f"expected a whole number, got {token.text[:20]}", token.start) from None

    def _skip_brackets(self) -> None:
        closing: list[str] = []
        while (kind := self.here.kind) in _CLOSING or closing:
            if kind in ("newline", "end"):
                raise self.malformed(f"expected {closing[-1]}", self.here.start)
            if kind in _CLOSING:
                closing.append(_CLOSING[kind])
            elif kind == closing[-1]:
                closing.pop()
            self._next += 1
            if not closing:
                return


def may_repeat_one_text(terminal: str) -> bool:
    """Whether a terminal may repeat one text for ever, like ``/a+/``; True also where that is hard to tell.

    Where nothing else may follow, as in ``/a+/ /a+/``, a lexer that takes the longest text forces ``a`` without an end,
    and llguidance never returns from the question which text is forced. The argument is the definition, as written.
    """
    pieces = list(_LARK.finditer(terminal))
    outside = {piece[0] for piece in pieces if len(piece[0]) == 1}
    return bool(outside & set("+*~&{")) or any(_repeats_one_text(piece["pattern"] or "") for piece in pieces)


def _repeats_one_text(pattern: str) -> bool:
    pieces = _PATTERN.findall(pattern)
    return "&" in pieces or any(
        after in ("+", "*") or after.startswith("{") and after.endswith(",}")
        for piece, after in zip(pieces, pieces[1:], strict=False)
        if not _SEVERAL.fullmatch(piece)
    )
