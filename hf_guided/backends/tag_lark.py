"""A structural tag in llguidance's Lark, its schemas read by this package's own front end.

The lexer is greedy, so every regular part is put into one terminal with the part after it: text that ends in the
tag's beginning, and has no trigger before that, is one terminal, and there is nothing to guess. What has no such end
before a schema is refused, and left to an engine without a lexer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain, combinations, groupby, starmap
from typing import Any, NamedTuple

from ..constraints.json_style import JsonStyle
from ..constraints.structural_tag_checks import inside_tag
from ..constraints.tool_xml import STYLES
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import (
    ALL,
    ANYTHING,
    EMPTY,
    Alt,
    And,
    Chars,
    CharSet,
    Concat,
    Emptiness,
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
from .tag_marks import runs_on

Format = dict[str, Any]


class Choice(NamedTuple):
    """Any of some pieces, not all of them languages."""

    pieces: tuple[Piece, ...]


class Times(NamedTuple):
    """A repeated piece that is not a regular language."""

    piece: Piece
    low: int
    high: int | None


# A sequence: regular languages, no two adjacent, and other parts: names of rules, choices, repetitions.
Piece = tuple["Node | str | Choice | Times", ...]
_NOT_EMPTY = repeat(chars(ALL), 1)
_OUTSIDE_STRINGS = frozenset('{}[],:"+-.0123456789eEtrufalsn \t\n\r')  # in JSON
_MAX_PAIRED = 64  # alternatives that are compared with each other
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
        self._is_empty = Emptiness()
        self._schemas: dict[str, str] = {}
        root, pointer = (tag["format"], "/format") if "format" in tag else (_triggered(tag), "")
        start = self._expression(self._piece(root, pointer))
        if "format" not in tag:
            self.losses = [loss._replace(pointer=_older(loss.pointer)) for loss in self.losses]
        lines = [f"start: {start}", *self._lines]
        lines += [f"{name}: {to_lark(node)}" for node, name in self._terminals.items()]
        self.grammar = "\n".join(lines)

    def _piece(self, part: Format, pointer: str) -> Piece:
        write = self._WRITERS.get(part["type"])
        if write is None:
            raise _unsupported(pointer, part["type"], _OTHER_ENGINES)
        return write(self, part, pointer)

    def _const(self, node_format: Format, pointer: str) -> Piece:
        return (text(node_format["value"]),)

    def _regex(self, node_format: Format, pointer: str) -> Piece:
        try:
            node = parse_fullmatch(node_format["pattern"])
        except UnsupportedRegex as error:
            raise _unsupported(pointer, "pattern", str(error)) from None
        if self._is_empty(node):
            raise _impossible(f"the pattern at {pointer}/pattern", pointer)
        return (node,)

    def _any_text(self, node_format: Format, pointer: str) -> Piece:
        return (self._free(node_format, pointer),)

    def _free(self, node_format: Format, pointer: str) -> Node:
        if node_format.get("max_tokens") is not None:
            raise _unsupported(pointer, "max_tokens", "a grammar of characters cannot count tokens; use max_chars")
        limit = node_format.get("max_chars")
        free = ANYTHING if limit is None else repeat(chars(ALL), 0, limit)
        return both(free, _without(node_format.get("excludes", ())))

    def _schema(self, node_format: Format, pointer: str) -> Piece:
        style = "qwen_xml" if node_format["type"] == "qwen_xml_parameter" else node_format.get("style") or "json"
        excludes = tuple(node_format.get("excludes") or ())
        # Some elements leave these out anyway; and in JSON only its strings can contain them.
        left_out = STYLES[style].marks if style in STYLES else filter(_is_inside_strings, excludes)
        if not set(excludes) <= set(left_out):
            raise _unsupported(pointer, "excludes", _OTHER_ENGINES)
        if node_format.get("any_order"):
            raise _unsupported(pointer, "any_order", "members come in the order of the schema; leave it out")
        constraint = JsonSchema(node_format["json_schema"])
        layout = JsonStyle(max_space=node_format.get("max_whitespace_cnt"))
        known = f"{style} {layout} {excludes} {constraint.schema_json}"
        if known not in self._schemas:
            prefix = f"g{len(self._schemas)}_"
            with inside_tag(f"{pointer}/json_schema"):
                n = Normalizer.of(constraint)
                if style == "json":
                    contents_of = contents(n, closed=True, spelling=layout.spelling)
                    rules = SchemaWriter(n, contents_of, layout, prefix, excludes).write()
                else:
                    rules = xml_rules(n, STYLES[style], layout, closed=True, prefix=prefix)
            self.losses += [loss._replace(pointer=f"{pointer}/json_schema{loss.pointer}") for loss in n.losses]
            self._lines += rules.lines
            self._schemas[known] = rules.start
        return (self._schemas[known],)

    def _sequence(self, part: Format, pointer: str) -> Piece:
        return _joined(*(self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(part["elements"])))

    def _or(self, part: Format, pointer: str) -> Piece:
        return _any_of([self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(part["elements"])])

    def _repeated(self, node_format: Format, pointer: str) -> Piece:
        low, high = {"optional": (0, 1), "plus": (1, None), "star": (0, None)}.get(node_format["type"], (0, None))
        if node_format["type"] == "repeat":
            low, high = node_format["min"], None if node_format["max"] < 0 else node_format["max"]
        return _times(self._piece(node_format["content"], f"{pointer}/content"), low, high)

    def _tag(self, node_format: Format, pointer: str) -> Piece:
        return self._tag_after(node_format, pointer, node_format["begin"])

    def _tag_after(self, node_format: Format, pointer: str, begin: Any, before: Node = EMPTY) -> Piece:
        """A tag, of whose beginning this much is left, after some text."""
        if not isinstance(begin, str):
            raise _unsupported(pointer, "begin", _OTHER_ENGINES)
        ends = [node_format["end"]] if isinstance(node_format["end"], str) else node_format["end"]
        if not isinstance(ends, list):
            raise _unsupported(pointer, "end", _OTHER_ENGINES)
        content, inside = node_format["content"], f"{pointer}/content"
        end = alt(*map(text, ends))
        if content["type"] == "any_text" and "" not in ends:
            last: Piece = (self._ending(both(concat(self._free(content, inside), end), _nothing_behind(ends))),)
        elif runs_on(content) and ends != [""]:
            raise _unsupported(inside, content["type"], f"free text in it ends at the tag's end; {_OTHER_ENGINES}")
        else:
            last = _joined(self._piece(content, inside), (end,))
        return _joined((before,), (text(begin),), last)

    def _triggered(self, structure: Format, pointer: str) -> Piece:
        """Free text, and tags where it comes to a trigger."""
        triggers, excludes = structure["triggers"], structure.get("excludes", [])
        free = _without([*triggers, *excludes])
        tags = [(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(structure["tags"])]
        alone = _any_of([self._tag(*tag) for tag in tags])
        later = _any_of([self._after_text(tag, at, triggers, excludes) for tag, at in tags])
        once = structure.get("stop_after_first")
        if structure.get("at_least_one"):
            return alone if once else _joined(alone, _times(later, 0, None), (free,))
        if once:
            return _any_of([(free,), later])
        return _joined(_times(later, 0, None), (free,))

    def _after_text(self, tag: Format, pointer: str, triggers: Sequence[str], excludes: Sequence[str]) -> Piece:
        trigger = next(trigger for trigger in triggers if tag["begin"].startswith(trigger))
        # Up to the first trigger of all: it must not contain the end of any other one.
        first = self._ending(both(concat(ANYTHING, text(trigger)), _nothing_behind(triggers), _without(excludes)))
        return self._tag_after(tag, pointer, tag["begin"][len(trigger) :], first)

    def _separated(self, node_format: Format, pointer: str) -> Piece:
        tags = [self._tag(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(node_format["tags"])]
        piece = _any_of(tags)
        if not node_format.get("stop_after_first"):
            later = _any_of([_joined((text(node_format["separator"]),), tag) for tag in tags])
            piece = _joined(piece, _times(later, 0, None))
        return piece if node_format.get("at_least_one") else _times(piece, 0, 1)

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
            followed: whether something may come after it.
        """
        written = []
        for i, part in enumerate(piece):
            more = followed or i + 1 < len(piece)
            if isinstance(part, str):
                written.append(part)
            elif isinstance(part, Choice):
                written.append(f"({' | '.join(self._expression(node, more) for node in part.pieces)})")
            elif isinstance(part, Times):
                inside = self._expression(part.piece, more or part.high != 1)
                written.append(f"({inside}){times(part.low, part.high)}")
            elif more and not self._ends(part):
                written.append(self._expression(self._without_end(part), more))
            else:
                whole = both(part, _NOT_EMPTY) if part.nullable else part  # an empty terminal would match anywhere
                if self._is_empty(whole):
                    if not part.nullable:
                        raise _impossible("a part", "")
                    continue
                name = self._terminals.setdefault(whole, f"TEXT{len(self._terminals)}")
                written.append(f"{name}?" if part.nullable else name)
        return " ".join(written) or '""'

    def _ends(self, node: Node) -> bool:
        """Whether no text of it is the beginning of another, where a greedy lexer would continue to the longer one."""
        if node in self._ended or isinstance(node, Chars):
            return True
        if isinstance(node, Alt):
            return all(map(self._ends, node.branches)) and _begin_apart(node.branches)
        if isinstance(node, And):
            return any(map(self._ends, node.parts))
        if isinstance(node, Concat):
            following = [*node.parts[1:], None]
            return all(
                self._ends(part) or self._stops_at(part, then) for part, then in zip(node.parts, following, strict=True)
            )
        return False

    def _stops_at(self, node: Node, following: Node | None) -> bool:
        """Whether what follows a repeated part begins with another character than that part."""
        if isinstance(node, Repeat) and isinstance(following, Chars):
            return self._ends(node.body) and _begin_apart((node.body, following))
        return False

    def _without_end(self, node: Node) -> Piece:
        """A language whose texts may repeat, as its first part and the part that may repeat after it."""
        if isinstance(node, Concat) and isinstance(again := node.parts[-1], Repeat):
            first = concat(*node.parts[:-1])
            if self._ends(first) and self._ends(again.body):
                return first, Times((again.body,), again.low, again.high)
        raise _unsupported("", "structural_tag", "the text does not determine where a part of this tag ends")

    def _ending(self, node: Node) -> Node:
        """Record that a language ends where the first of its marks ends."""
        self._ended.add(node)
        return node


def _joined(*pieces: Piece) -> Piece:
    parts: list[Node | str | Choice | Times] = []
    for is_language, run in groupby(chain(*pieces), lambda part: isinstance(part, Node)):
        adjacent: list[Any] = list(run)
        parts += [concat(*adjacent)] if is_language else adjacent
    return tuple(part for part in parts if part != EMPTY)


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


def _begin_apart(nodes: Sequence[Node]) -> bool:
    """Whether the first characters distinguish these."""
    firsts = [node.parts[0] if isinstance(node, Concat) else node for node in nodes]
    seen = CharSet()
    for first in firsts:
        if not isinstance(first, Chars) or first.charset & seen:
            return len(nodes) <= _MAX_PAIRED and all(starmap(_differ, combinations(nodes, 2)))
        seen |= first.charset
    return True


def _differ(one: Node, other: Node) -> bool:
    """Whether two languages have different characters at some place, with nothing but single characters before it."""
    for left, right in zip(_parts(one), _parts(other), strict=False):
        if not isinstance(left, Chars) or not isinstance(right, Chars):
            return False
        if not left.charset & right.charset:
            return True
    return False


def _parts(node: Node) -> tuple[Node, ...]:
    return node.parts if isinstance(node, Concat) else (node,)


def _triggered(tag: Format) -> Format:
    """The older form of a tag, in the words of the newer one."""
    tags = [
        {
            "type": "tag",
            "begin": structure["begin"],
            "content": {"type": "json_schema", "json_schema": structure["schema"]},
            "end": structure["end"],
        }
        for structure in tag["structures"]
    ]
    return {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}


def _older(pointer: str) -> str:
    return re.sub(r"^/tags/(\d+)/content/json_schema", r"/structures/\1/schema", pointer)


def _is_inside_strings(mark: str) -> bool:
    """Whether JSON can hold this only inside one of its strings."""
    return '"' not in mark and not _OUTSIDE_STRINGS.issuperset(mark)


def _without(texts: Sequence[str]) -> Node:
    return complement(concat(ANYTHING, alt(*map(text, texts)), ANYTHING)) if texts else ANYTHING


def _nothing_behind(texts: Sequence[str]) -> Node:
    """Text that ends where the first of these ends, or has none of them."""
    return complement(concat(ANYTHING, alt(*map(text, texts)), _NOT_EMPTY))


def _impossible(what: str, pointer: str) -> InvalidConstraint:
    return InvalidConstraint(f"{what} of the structural tag matches nothing", pointers=[pointer])


def _unsupported(pointer: str, keyword: str, reason: str) -> UnsupportedConstraint:
    return UnsupportedConstraint("llguidance cannot write this structural tag", (Loss(pointer, keyword, reason),))
