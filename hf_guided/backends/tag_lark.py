"""A structural tag in llguidance's Lark, its schemas read by this package's own front end.

The lexer is greedy, so whatever is regular is put into one terminal with what stands behind it: text that ends in the
tag's beginning, and has no trigger before that, is one terminal, and there is nothing to guess. What has no such end
in front of a schema is refused, and left to an engine without a lexer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..constraints.json_style import JsonStyle
from ..constraints.tool_xml import STYLES
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import (
    ALL,
    ANYTHING,
    EMPTY,
    NOTHING,
    Alt,
    And,
    Chars,
    CharSet,
    Concat,
    Node,
    Repeat,
    UnsupportedRegex,
    alt,
    both,
    chars,
    complement,
    concat,
    parse_fullmatch,
    repeat,
    text,
    to_lark,
)
from ..regex.write import times
from ..schema.grammar import contents
from ..schema.normalize import Normalizer
from ..schema.to_lark import SchemaWriter
from ..schema.xml_to_lark import xml_rules

Format = dict[str, Any]


class Choice(NamedTuple):
    """Any of some pieces, not all of them languages."""

    pieces: tuple[Piece, ...]


class Times(NamedTuple):
    """A piece, no language, again and again."""

    piece: Piece
    low: int
    high: int | None


# One after another: languages, of which no two meet, and what is none: names of rules, choices, repetitions.
Piece = tuple["Node | str | Choice | Times", ...]
_NOT_EMPTY = repeat(chars(ALL), 1)
MAX_SPACE = 41  # white space in a row, where it is flexible: see schema/layout.py
_OUTSIDE_STRINGS = frozenset('{}[],:"+-.0123456789eEtrufalsn \t\n\r')  # in JSON
# What narrows a region and has no counterpart here.
_OTHER_ENGINES = "only xgrammar has this"


class TagLark:
    """Writes one structural tag.

    Args:
        tag: in either form that ``StructuralTag`` takes.
    """

    def __init__(self, tag: Format):
        self.losses: list[Loss] = []
        self._lines: list[str] = []
        self._terminals: dict[Node, str] = {}
        self._ended: set[Node] = set()
        self._schemas: dict[str, str] = {}
        root, pointer = (tag["format"], "/format") if "format" in tag else (_triggered(tag), "")
        start = self._expression(self._piece(root, pointer))
        if "format" not in tag:
            self.losses = [loss._replace(pointer=_older(loss.pointer)) for loss in self.losses]
        lines = [f"start: {start}", *self._lines]
        lines += [f"{name}: {to_lark(node)}" for node, name in self._terminals.items()]
        self.grammar = "\n".join(lines)

    def _piece(self, one: Any, pointer: str) -> Piece:
        kind = one.get("type") if isinstance(one, dict) else None
        write = self._WRITERS.get(kind) if isinstance(kind, str) else None
        if write is None:
            raise _unsupported(pointer, str(kind), _OTHER_ENGINES)
        return write(self, one, pointer)

    def _const(self, one: Format, pointer: str) -> Piece:
        return (text(one["value"]),)

    def _regex(self, one: Format, pointer: str) -> Piece:
        if one.get("excludes"):
            raise _unsupported(pointer, "excludes", _OTHER_ENGINES)
        try:
            node = parse_fullmatch(one["pattern"])
        except UnsupportedRegex as error:
            raise _unsupported(pointer, "pattern", str(error)) from None
        if node == NOTHING:
            raise InvalidConstraint(f"the pattern at {pointer} of the structural tag matches nothing")
        return (node,)

    def _any_text(self, one: Format, pointer: str) -> Piece:
        return (self._free(one, pointer),)

    def _free(self, one: Format, pointer: str) -> Node:
        if one.get("max_tokens") is not None:
            raise _unsupported(pointer, "max_tokens", _OTHER_ENGINES)
        limit = one.get("max_chars")
        free = ANYTHING if limit is None else repeat(chars(ALL), 0, limit)
        return both(free, _without(one.get("excludes", ())))

    def _schema(self, one: Format, pointer: str) -> Piece:
        style = "qwen_xml" if one["type"] == "qwen_xml_parameter" else one.get("style") or "json"
        excludes = tuple(one.get("excludes") or ())
        # Some elements leave these out anyway; and in JSON they can be told from its strings alone.
        left_out = STYLES[style].marks if style in STYLES else filter(_is_inside_strings, excludes)
        if not set(excludes) <= set(left_out):
            raise _unsupported(pointer, "excludes", _OTHER_ENGINES)
        if one.get("any_order"):
            raise _unsupported(pointer, "any_order", _OTHER_ENGINES)
        constraint = JsonSchema(one["json_schema"])
        known = f"{style} {one.get('max_whitespace_cnt')} {excludes} {constraint.schema_json}"
        if known not in self._schemas:
            n = Normalizer.of(constraint)
            prefix = f"g{len(self._schemas)}_"
            if style == "json":
                layout = _style(one, pointer)
                found = contents(n, closed=True, spelling=layout.spelling)
                rules = SchemaWriter(n, found, layout, prefix, excludes).write()
            elif style in STYLES:
                rules = xml_rules(n, STYLES[style], closed=True, prefix=prefix)
            else:
                raise _unsupported(pointer, "style", f"nothing is known of the style {style!r}")
            self.losses += [loss._replace(pointer=f"{pointer}/json_schema{loss.pointer}") for loss in n.losses]
            self._lines += rules.lines
            self._schemas[known] = rules.start
        return (self._schemas[known],)

    def _sequence(self, one: Format, pointer: str) -> Piece:
        return _joined(*(self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(one["elements"])))

    def _or(self, one: Format, pointer: str) -> Piece:
        return _any_of([self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(one["elements"])])

    def _repeated(self, one: Format, pointer: str) -> Piece:
        low, high = {"optional": (0, 1), "plus": (1, None), "star": (0, None)}.get(one["type"], (0, None))
        if one["type"] == "repeat":
            low, high = one["min"], None if one["max"] < 0 else one["max"]
        return _times(self._piece(one["content"], f"{pointer}/content"), low, high)

    def _tag(self, one: Format, pointer: str) -> Piece:
        return self._tag_after(one, pointer, one["begin"])

    def _tag_after(self, one: Format, pointer: str, begin: Any, before: Node = EMPTY) -> Piece:
        """A tag, of whose beginning this much is left, behind some text."""
        if not isinstance(begin, str):
            raise _unsupported(pointer, "begin", _OTHER_ENGINES)
        ends = [one["end"]] if isinstance(one["end"], str) else one["end"]
        if not isinstance(ends, list) or not all(isinstance(end, str) for end in ends):
            raise _unsupported(pointer, "end", _OTHER_ENGINES)
        content, inside = one["content"], f"{pointer}/content"
        end = alt(*map(text, ends))
        if content.get("type") == "any_text" and "" not in ends:
            last: Piece = (self._ending(both(concat(self._free(content, inside), end), _nothing_behind(ends))),)
        else:
            last = _joined(self._piece(content, inside), (end,))
        return _joined((before,), (text(begin),), last)

    def _triggered(self, one: Format, pointer: str) -> Piece:
        """Free text, and tags where it comes to a trigger."""
        triggers, excludes = one["triggers"], one.get("excludes", [])
        free = _without([*triggers, *excludes])
        tags = [(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(one["tags"])]
        alone = _any_of([self._tag(*tag) for tag in tags])
        later = _any_of([self._after_text(tag, at, triggers, excludes) for tag, at in tags])
        once = one.get("stop_after_first")
        if one.get("at_least_one"):
            return alone if once else _joined(alone, _times(later, 0, None), (free,))
        if once:
            return _any_of([(free,), later])
        return _joined(_times(later, 0, None), (free,))

    def _after_text(self, tag: Format, pointer: str, triggers: Sequence[str], excludes: Sequence[str]) -> Piece:
        if not isinstance(tag["begin"], str):
            raise _unsupported(pointer, "begin", _OTHER_ENGINES)
        trigger = next((one for one in triggers if tag["begin"].startswith(one)), None)
        if trigger is None:
            raise InvalidConstraint(f"no trigger of the structural tag is how its tag at {pointer} begins")
        # Up to the first trigger of all: every other place in it where one ends is forbidden.
        first = self._ending(both(concat(ANYTHING, text(trigger)), _nothing_behind(triggers), _without(excludes)))
        return self._tag_after(tag, pointer, tag["begin"][len(trigger) :], first)

    def _separated(self, one: Format, pointer: str) -> Piece:
        tags = [self._piece(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(one["tags"])]
        piece = _any_of(tags)
        if not one.get("stop_after_first"):
            later = _any_of([_joined((text(one["separator"]),), tag) for tag in tags])
            piece = _joined(piece, _times(later, 0, None))
        return piece if one.get("at_least_one") else _times(piece, 0, 1)

    _WRITERS: dict[str, Callable[[TagLark, Format, str], Piece]] = {
        "const_string": _const,
        "regex": _regex,
        "any_text": _any_text,
        "json_schema": _schema,
        "qwen_xml_parameter": _schema,
        "sequence": _sequence,
        "or": _or,
        "optional": _repeated,
        "plus": _repeated,
        "star": _repeated,
        "repeat": _repeated,
        "tag": _tag,
        "triggered_tags": _triggered,
        "tags_with_separator": _separated,
    }

    def _expression(self, piece: Piece, followed: bool = False) -> str:
        """What the grammar says for a piece.

        Args:
            piece: the piece.
            followed: whether something may come behind it.
        """
        written = []
        for i, part in enumerate(piece):
            more = followed or i + 1 < len(piece)
            if isinstance(part, str):
                written.append(part)
            elif isinstance(part, Choice):
                written.append(f"({' | '.join(self._expression(one, more) for one in part.pieces)})")
            elif isinstance(part, Times):
                inside = self._expression(part.piece, more or part.high != 1)
                written.append(f"({inside}){times(part.low, part.high)}")
            elif more and not self._ends(part):
                written.append(self._expression(self._without_end(part), more))
            else:
                whole = both(part, _NOT_EMPTY) if part.nullable else part  # an empty terminal would match anywhere
                name = self._terminals.setdefault(whole, f"TEXT{len(self._terminals)}")
                written.append(f"{name}?" if part.nullable else name)
        return " ".join(written) or '""'

    def _ends(self, node: Node) -> bool:
        """Whether no text of it is the beginning of another, where a greedy lexer would go on to the longer one."""
        if node in self._ended or isinstance(node, Chars):
            return True
        if isinstance(node, Alt):
            return all(map(self._ends, node.branches)) and _begin_apart(node.branches)
        if isinstance(node, And):
            return any(map(self._ends, node.parts))
        if isinstance(node, Concat):
            following = [*node.parts[1:], None]
            return all(self._ends(one) or _stops_at(one, then) for one, then in zip(node.parts, following, strict=True))
        return False

    def _without_end(self, node: Node) -> Piece:
        """A language that may go on behind any text of it, as its first part and what may come again behind that."""
        if isinstance(node, Concat) and isinstance(again := node.parts[-1], Repeat):
            first = concat(*node.parts[:-1])
            if self._ends(first) and self._ends(again.body):
                return first, Times((again.body,), again.low, again.high)
        raise _unsupported("", "structural_tag", "where a part of this tag ends cannot be told from its text")

    def _ending(self, node: Node) -> Node:
        """Take note that a language ends where the first of its marks does."""
        self._ended.add(node)
        return node


def _joined(*pieces: Piece) -> Piece:
    parts: list[Node | str | Choice | Times] = []
    for part in chain(*pieces):
        if part == EMPTY:
            continue
        if parts and isinstance(part, Node) and isinstance(before := parts[-1], Node):
            parts[-1] = concat(before, part)
        else:
            parts.append(part)
    return tuple(parts)


def _any_of(pieces: Sequence[Piece]) -> Piece:
    languages = [language for piece in pieces if (language := _language(piece)) is not None]
    return (alt(*languages),) if len(languages) == len(pieces) else (Choice(tuple(pieces)),)


def _times(piece: Piece, low: int, high: int | None) -> Piece:
    language = _language(piece)
    return (Times(piece, low, high),) if language is None else (repeat(language, low, high),)


def _language(piece: Piece) -> Node | None:
    if not piece:
        return EMPTY
    return piece[0] if len(piece) == 1 and isinstance(piece[0], Node) else None


def _stops_at(node: Node, following: Node | None) -> bool:
    """Whether what follows a run of characters begins with another one."""
    if isinstance(node, Repeat) and isinstance(node.body, Chars) and isinstance(following, Chars):
        return not node.body.charset & following.charset
    return False


def _begin_apart(nodes: Sequence[Node]) -> bool:
    """Whether the first characters tell these apart."""
    firsts = [node.parts[0] if isinstance(node, Concat) else node for node in nodes]
    found = CharSet()
    for first in firsts:
        if not isinstance(first, Chars) or first.charset & found:
            return False
        found |= first.charset
    return True


def _triggered(tag: Format) -> Format:
    """The older form of a tag, in the words of the newer one."""
    tags = [
        {
            "type": "tag",
            "begin": one["begin"],
            "content": {"type": "json_schema", "json_schema": one["schema"]},
            "end": one["end"],
        }
        for one in tag["structures"]
    ]
    return {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}


def _older(pointer: str) -> str:
    return re.sub(r"^/tags/(\d+)/content/json_schema", r"/structures/\1/schema", pointer)


def _style(one: Format, pointer: str) -> JsonStyle:
    """How JSON is laid out with at most so much white space in a row."""
    most = one.get("max_whitespace_cnt")
    if most == 0:
        raise _unsupported(pointer, "max_whitespace_cnt", "a space behind a comma or colon is the least there is")
    return JsonStyle("flexible" if most is None or most > MAX_SPACE else "compact")


def _is_inside_strings(mark: str) -> bool:
    """Whether JSON can hold this in no other place than inside one of its strings."""
    return mark[:1] not in ("", *_OUTSIDE_STRINGS) and '"' not in mark


def _without(texts: Sequence[str]) -> Node:
    return complement(concat(ANYTHING, alt(*map(text, texts)), ANYTHING)) if texts else ANYTHING


def _nothing_behind(texts: Sequence[str]) -> Node:
    """Text that ends where the first of these ends, or has none of them."""
    return complement(concat(ANYTHING, alt(*map(text, texts)), _NOT_EMPTY))


def _unsupported(pointer: str, keyword: str, reason: str) -> UnsupportedConstraint:
    return UnsupportedConstraint("llguidance cannot write this structural tag", (Loss(pointer, keyword, reason),))
