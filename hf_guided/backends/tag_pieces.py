"""A structural tag as pieces: regular languages, values of schemas, and what joins them.

Every regular part is put into one language with the part after it: text that ends in the tag's beginning, and has no
trigger before that, is one language.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from ..automaton.emptiness import Emptiness
from ..constraints.json_style import JsonStyle
from ..constraints.tool_xml import STYLES
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..regex import (
    ALL,
    ANYTHING,
    EMPTY,
    Node,
    UnsupportedRegex,
    alt,
    both,
    chars,
    complement,
    concat,
    parse_fullmatch,
    repeat,
    text,
)
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


# A sequence: regular languages, no two adjacent, and other parts: names of schemas' values, choices, repetitions.
Piece = tuple["Node | str | Choice | Times", ...]
_NOT_EMPTY = repeat(chars(ALL), 1)
_OUTSIDE_STRINGS = frozenset('{}[],:"+-.0123456789eEtrufalsn \t\n\r')  # in JSON
_ONLY_XGRAMMAR = "only xgrammar has this"


class TagSchema(NamedTuple):
    """A schema inside a tag.

    Args:
        constraint: the schema.
        pointer: where it stands in the tag.
        style: "json", or one of the ``STYLES`` of arguments as elements.
        layout: of the JSON.
        excludes: what its strings must not hold.
    """

    constraint: JsonSchema
    pointer: str
    style: str
    layout: JsonStyle
    excludes: tuple[str, ...]

    @property
    def marks(self) -> tuple[str, ...]:
        """What no string of its JSON holds."""
        return self.excludes if self.style == "json" else STYLES[self.style].marks

    @property
    def key(self) -> str:
        """Equal for schemas that are written alike."""
        return f"{self.style} {self.layout} {self.excludes} {self.constraint.schema_json}"


class TagPieces(ABC):
    """Reads one structural tag; ``TagNetwork`` names the values of a schema.

    Args:
        tag: in either form that ``StructuralTag`` takes.

    Raises:
        InvalidConstraint: a part of it matches nothing.
        UnsupportedConstraint: it has a part that pieces cannot say.
    """

    def __init__(self, tag: Format):
        self._emptiness = Emptiness()
        self._is_older = "format" not in tag
        self._tag_format: Format = _triggered(tag) if self._is_older else tag["format"]

    def read(self) -> Piece:
        """The whole tag."""
        return self._piece(self._tag_format, "" if self._is_older else "/format")

    def _piece(self, part: Format, pointer: str) -> Piece:
        write = self._WRITERS.get(part["type"])
        if write is None:
            raise unsupported(pointer, part["type"], _ONLY_XGRAMMAR)
        return write(self, part, pointer)

    def _const(self, node_format: Format, pointer: str) -> Piece:
        return (text(node_format["value"]),)

    def _regex(self, node_format: Format, pointer: str) -> Piece:
        try:
            node = parse_fullmatch(node_format["pattern"])
        except UnsupportedRegex as error:
            raise unsupported(pointer, "pattern", str(error)) from None
        if self._is_empty(node, pointer):
            raise impossible(f"the pattern at {pointer}/pattern", pointer)
        return (node,)

    def _is_empty(self, node: Node, pointer: str) -> bool:
        """Whether a language has no text; UnsupportedConstraint if it takes too long to tell."""
        empty = self._emptiness.verdict(node)
        if empty is None:
            raise unsupported(pointer, "pattern", "takes too long to tell whether it matches any text")
        return empty

    def _any_text(self, node_format: Format, pointer: str) -> Piece:
        return (self._free(node_format, pointer),)

    def _free(self, node_format: Format, pointer: str) -> Node:
        if node_format.get("max_tokens") is not None:
            raise unsupported(pointer, "max_tokens", "a grammar of characters cannot count tokens; use max_chars")
        limit = node_format.get("max_chars")
        free = ANYTHING if limit is None else repeat(chars(ALL), 0, limit)
        return both(free, _without(node_format.get("excludes", ())))

    def _schema(self, node_format: Format, pointer: str) -> Piece:
        style = "qwen_xml" if node_format["type"] == "qwen_xml_parameter" else node_format.get("style") or "json"
        excludes = tuple(node_format.get("excludes") or ())
        # Some elements leave these out anyway; and in JSON only its strings can contain them.
        left_out = STYLES[style].marks if style in STYLES else filter(_is_inside_strings, excludes)
        if not set(excludes) <= set(left_out):
            raise unsupported(pointer, "excludes", _ONLY_XGRAMMAR)
        if node_format.get("any_order"):
            raise unsupported(pointer, "any_order", "members come in the order of the schema; leave it out")
        at = f"{pointer}/json_schema"
        if self._is_older:
            at = re.sub(r"^/tags/(\d+)/content/json_schema$", r"/structures/\1/schema", at)
        schema = TagSchema(
            JsonSchema(node_format["json_schema"]),
            at,
            style,
            JsonStyle(max_space=node_format.get("max_whitespace_cnt")),
            excludes,
        )
        return (self._values(schema),)

    @abstractmethod
    def _values(self, schema: TagSchema) -> str:
        """The name of a part that is the values of a schema."""

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
            raise unsupported(pointer, "begin", _ONLY_XGRAMMAR)
        ends = [node_format["end"]] if isinstance(node_format["end"], str) else node_format["end"]
        if not isinstance(ends, list):
            raise unsupported(pointer, "end", _ONLY_XGRAMMAR)
        content, inside = node_format["content"], f"{pointer}/content"
        end = alt(*map(text, ends))
        if content["type"] == "any_text" and "" not in ends:
            last: Piece = (both(concat(self._free(content, inside), end), _nothing_after(ends)),)
        elif runs_on(content) and ends != [""]:
            raise unsupported(inside, content["type"], f"free text in it ends at the tag's end; {_ONLY_XGRAMMAR}")
        else:
            last = _joined(self._piece(content, inside), (end,))
        return _joined((before,), (text(begin),), last)

    def _triggered(self, structure: Format, pointer: str) -> Piece:
        """Free text, and tags where it comes to a trigger."""
        triggers, excludes = structure["triggers"], structure.get("excludes", [])
        free = _without([*triggers, *excludes])
        tags = [(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(structure["tags"])]
        later = _any_of([self._after_text(tag, at, triggers, excludes) for tag, at in tags])
        once = structure.get("stop_after_first")
        if structure.get("at_least_one"):
            alone = _any_of([self._tag(*tag) for tag in tags])
            return alone if once else _joined(alone, _times(later, 0, None), (free,))
        if once:
            return _any_of([(free,), later])
        return _joined(_times(later, 0, None), (free,))

    def _after_text(self, tag: Format, pointer: str, triggers: Sequence[str], excludes: Sequence[str]) -> Piece:
        trigger = next(trigger for trigger in triggers if tag["begin"].startswith(trigger))
        # Up to the first trigger of all: it must not contain the end of any other one.
        first = both(concat(ANYTHING, text(trigger)), _nothing_after(triggers), _without(excludes))
        return self._tag_after(tag, pointer, tag["begin"][len(trigger) :], first)

    def _separated(self, node_format: Format, pointer: str) -> Piece:
        tags = [self._tag(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(node_format["tags"])]
        piece = _any_of(tags)
        if not node_format.get("stop_after_first"):
            later = _any_of([_joined((text(node_format["separator"]),), tag) for tag in tags])
            piece = _joined(piece, _times(later, 0, None))
        return piece if node_format.get("at_least_one") else _times(piece, 0, 1)

    _WRITERS: dict[str, Callable[[TagPieces, Format, str], Piece]] = {
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


def _is_inside_strings(mark: str) -> bool:
    """Whether JSON can hold this only inside one of its strings."""
    return '"' not in mark and not _OUTSIDE_STRINGS.issuperset(mark)


def _without(texts: Sequence[str]) -> Node:
    return complement(concat(ANYTHING, alt(*map(text, texts)), ANYTHING)) if texts else ANYTHING


def _nothing_after(texts: Sequence[str]) -> Node:
    """Text that ends where the first of these ends, or has none of them."""
    return complement(concat(ANYTHING, alt(*map(text, texts)), _NOT_EMPTY))


def impossible(what: str, pointer: str) -> InvalidConstraint:
    """The error for a part of a tag that has no text."""
    return InvalidConstraint(f"{what} of the structural tag matches nothing", pointers=[pointer])


def unsupported(pointer: str, keyword: str, reason: str) -> UnsupportedConstraint:
    """The error for a part of a tag that cannot be written."""
    return UnsupportedConstraint("the engine cannot write this structural tag", (Loss(pointer, keyword, reason),))
