r"""The syntax of patterns, Python's and ECMA-262's in one: from text to a tree that says nothing of meaning yet.

A small LALR grammar of Lark does it: a pattern of 50 characters takes a fraction of a millisecond. Building the grammar
takes a tenth of a second and waits for the first pattern. A class ``[...]`` is one token here, and so is each escape,
and so are characters side by side that nothing repeats; ``dialect.py`` reads them. What does not compile anywhere is
not searched for: ``re.compile`` does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Union

from .caches import tree_cache

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.common import LexerConf

_HEX = "[0-9a-fA-F]"
ESCAPE = (
    rf"\\(?:u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|u\{{{_HEX}+\}}|x{_HEX}{{2}}|U{_HEX}{{8}}|c[A-Za-z]"
    r"|[pP]\{[^{}]*\}|N\{[^{}]*\}|k<[^<>]*>|0[0-7]{0,2}|[1-3][0-7]{2}|[1-9][0-9]?|(?s:.))"
)
"""One escape; of digits, as outside of classes."""

_GRAMMAR = rf"""
start: alternatives
alternatives: sequence ("|" sequence)*
sequence: (item | repeated | TEXT)*
repeated: item TIMES
?item: CHARACTER | ESC | DOT | START | END | CLASS | group | look | OTHER
group: OPEN alternatives ")"
look: LOOK alternatives ")"

TIMES.3: /(?:[*+?]|\{{(?:%(times)s)\}})[?+]?/
LOOK.3: /\(\?<?[=!]/
OTHER.3: /\(\?P=\w+\)/
OPEN.2: /\((?:\?(?:>|\(\w+\)|P<\w+>|<(?![=!])[^<>]*>|[aiLmsux]*(?:-[imsx]+)?:))?(?!\?)/
CLASS: /%(class)s/
ESC: /{ESCAPE}/
DOT: "."
START: "^"
END: "$"
CHARACTER: /[^\\\[|()*+?^$.{{]|\{{(?!(?:%(times)s)\}})/s
TEXT.1: /[^\\\[|()*+?^$.{{]{{2,}}(?![*+?{{(])/s
IGNORED.3: /\(\?#[^)]*\)|\(\?[aiLmsux]+\)/
%%ignore IGNORED
"""
# The text between the braces of a repetition; ``{,3}`` is text in Annex B, and an error in unicode mode.
_TIMES = {"python": "[0-9]+(?:,[0-9]*)?|,[0-9]*", "annex_b": "[0-9]+(?:,[0-9]*)?"}
# A class that begins with "]" is empty in ECMA-262, or all characters after "^"; in Python the "]" is one of its items.
_CLASS = {"python": r"\[\^?\]?(?:\\.|[^\]\\])*\]", "ecma": r"\[\^?(?:\\.|[^\]\\])*\]"}


@dataclass(frozen=True)
class Repeated:
    """An item and how often."""

    item: Item
    times: Token


@dataclass(frozen=True)
class Group:
    """Any group, look-around too; ``opening`` is how it begins."""

    opening: Token
    alternatives: tuple[tuple[Item, ...], ...]


Item = Union["Token", Repeated, Group]
Alternatives = tuple[tuple[Item, ...], ...]


class PatternSyntaxError(ValueError):
    """The pattern does not follow the grammar."""

    def __init__(self, pattern: str, position: int):
        super().__init__(f"the regular expression {pattern!r} is malformed at position {position}")
        self.position = position


def parse(pattern: str, dialect: str) -> Alternatives:
    """The tree of a pattern.

    Raises:
        PatternSyntaxError: it has none.
    """
    # Only these forms read differently, so one grammar does for nearly all patterns.
    brackets = "ecma" if dialect != "python" and ("[]" in pattern or "[^]" in pattern) else "python"
    braces = "annex_b" if dialect == "annex_b" and "{," in pattern else "python"
    return _parsed(pattern, brackets, braces)


@tree_cache(maxsize=512)
def _parsed(pattern: str, brackets: str, braces: str) -> Alternatives:
    import lark

    try:
        found: Alternatives = _parser(brackets, braces).parse(pattern)  # type: ignore[assignment]
    except lark.UnexpectedInput as error:
        at = error.pos_in_stream
        raise PatternSyntaxError(pattern, len(pattern) if at is None or at < 0 else at) from None
    return found


@lru_cache(maxsize=4)
def _parser(brackets: str, braces: str) -> Lark:
    from lark import Lark, Transformer, v_args
    from lark.lexer import ContextualLexer

    def lexer(conf: LexerConf, *args: Any, **kwargs: Any) -> ContextualLexer:
        # These terminals are sound. To compare each with each, as is done where interegular is installed, would take
        # longer than all else.
        conf.skip_validation = True
        return ContextualLexer(conf, *args, **kwargs)

    @v_args(inline=True)
    class Tree(Transformer):  # type: ignore[type-arg]
        def start(self, alternatives: Alternatives) -> Alternatives:
            return alternatives

        def alternatives(self, *sequences: tuple[Item, ...]) -> Alternatives:
            return sequences

        def sequence(self, *items: Item) -> tuple[Item, ...]:
            return items

        def repeated(self, item: Item, times: Token) -> Repeated:
            return Repeated(item, times)

        def group(self, opening: Token, alternatives: Alternatives) -> Group:
            return Group(opening, alternatives)

        look = group

    forms = {"class": _CLASS[brackets].replace("/", r"\/"), "times": _TIMES[braces]}
    return Lark(_GRAMMAR % forms, parser="lalr", transformer=Tree(), _plugins={"ContextualLexer": lexer})
