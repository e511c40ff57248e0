"""A structural tag as a network: the root component is the tag, and the values of its schemas are calls.

The tag is read as pieces: regular languages, values of schemas, rules of grammars, and what joins them. Text that ends
in the tag's beginning, and has no trigger before that, is one language. A text may be read in several ways at once, so
it need not show where a part ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..automaton.emptiness import Emptiness
from ..automaton.limits import WorkMeter, count
from ..automaton.rtn import ComponentBuilder
from ..constraints.structural_tag_checks import inside_tag
from ..constraints.tool_xml import STYLES
from ..constraints.values import DEFAULT_ROOT, JsonSchema
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..grammars.components import RuleComponents
from ..grammars.gbnf import Gbnf
from ..grammars.pieces import Call, Piece, PieceWriter, any_of, joined, language, parts_in, times
from ..grammars.rule_pieces import Rule
from ..options import NETWORK
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
from ..schema.normalize import Normalizer
from ..schema.to_network import Positions
from ..schema.xml_to_network import ElementPositions
from .network_of_schema import NetworkPlan, SchemaPart
from .tag_marks import have_escapes, is_inside_strings, runs_on

Format = dict[str, Any]


_NOT_EMPTY = repeat(chars(ALL), 1)
_ONLY_XGRAMMAR = 'only xgrammar has this: pass backend="xgrammar"'
_TOKENS = "no engine takes tokens by name or id; write the texts of special tokens in const_string, begin and end"


class TagNetwork:
    """Reads one structural tag, in either form that ``StructuralTag`` takes, exactly but for its ``losses``."""

    root = "tag"  # the name of the component of the whole tag

    def __init__(self, tag: Format):
        self._emptiness = Emptiness()
        self._is_older = "format" not in tag
        self.losses: list[Loss] = []
        self._parts: dict[str, SchemaPart] = {}
        self._grammars: dict[str, RuleComponents] = {}  # by their texts
        self._meter = WorkMeter(NETWORK)  # the work of all grammars together
        self._schemas: dict[str, Positions | ElementPositions] = {}  # by name, which is also their key
        self._whole = self._piece(_triggered(tag), "") if self._is_older else self._piece(tag["format"], "/format")
        self.plan = NetworkPlan(self.root, self.build, self._parts)

    def build(self, name: Any, builder: ComponentBuilder) -> tuple[int, int]:
        """Build the component of a name: see ``Rtn``."""
        if name == self.root:
            self._check_texts(builder)
            start = builder.state()

            def call(callee: Any, begin: int, end: int) -> None:
                if isinstance(callee, Rule):
                    self._grammars[callee.grammar].add(builder, callee, begin, end)
                else:
                    builder.call(callee, begin, end)

            return start, PieceWriter(builder, call).after(self._whole, start)
        if isinstance(name, Rule):
            return self._grammars[name.grammar].build(name, builder)
        with inside_tag(self._parts[name.schema].pointer):
            return self._schemas[name.schema].build(name, builder)

    def _check_texts(self, builder: ComponentBuilder) -> None:
        """Raise InvalidConstraint where a regular language has no text: automata would just leave it out."""
        for part in parts_in(self._whole):
            if isinstance(part, Node) and not part.nullable:
                empty = self._emptiness.verdict(part)
                if builder.is_empty(part) if empty is None else empty:
                    raise _impossible("a part", "")

    def _piece(self, part: Format, pointer: str) -> Piece:
        write = self._WRITERS.get(part["type"])
        if write is None:
            reason = _ONLY_XGRAMMAR if part["type"] == "dispatch" else _TOKENS
            raise _unsupported(Loss(pointer, part["type"], reason))
        return write(self, part, pointer)

    def _regex(self, node_format: Format, pointer: str) -> Piece:
        try:
            node = parse_fullmatch(node_format["pattern"])
        except UnsupportedRegex as error:
            raise _unsupported(Loss.within(pointer, "pattern", str(error))) from None
        empty = self._emptiness.verdict(node)
        if empty is None:
            raise _unsupported(Loss.within(pointer, "pattern", "takes too long to tell whether it matches any text"))
        if empty:
            raise _impossible(f"the pattern at {pointer}/pattern", pointer)
        return (node,)

    def _free(self, node_format: Format, pointer: str) -> Node:
        if node_format.get("max_tokens") is not None:
            raise _unsupported(
                Loss.within(pointer, "max_tokens", "a grammar of characters cannot count tokens; use max_chars")
            )
        limit = node_format.get("max_chars")
        free = ANYTHING if limit is None else repeat(chars(ALL), 0, limit)
        return both(free, _without(node_format.get("excludes", ())))

    def _schema(self, node_format: Format, pointer: str) -> Piece:
        style = "qwen_xml" if node_format["type"] == "qwen_xml_parameter" else node_format.get("style") or "json"
        excludes = tuple(node_format.get("excludes") or ())
        # Some elements leave these out anyway; and in JSON only its strings can contain them.
        left_out = STYLES[style].marks if style in STYLES else filter(is_inside_strings, excludes)
        if not set(excludes) <= set(left_out):
            raise _unsupported(Loss.within(pointer, "excludes", "its JSON may hold a mark outside of strings"))
        if node_format.get("any_order"):
            raise _unsupported(
                Loss.within(pointer, "any_order", "members come in the order of the schema; leave it out")
            )
        at = f"{pointer}/json_schema"
        if self._is_older:
            at = re.sub(r"^/tags/(\d+)/content/json_schema$", r"/structures/\1/schema", at)
        options = node_format.get("options") or {}
        constraint = JsonSchema(node_format["json_schema"], **options)
        layout = constraint.style._replace(max_space=node_format.get("max_whitespace_cnt"))
        # Equal for schemas that are written alike.
        name = f"{style} {layout} {options} {excludes} {constraint.schema_json}"
        if name not in self._schemas:
            marks = excludes if style == "json" else STYLES[style].marks  # no string of its JSON holds them
            if not have_escapes(marks):
                reason = (
                    "a mark that is, or holds, a part of an escape or of another mark cannot be kept out of all strings"
                )
                raise _unsupported(Loss.within(pointer, "excludes", reason))
            with inside_tag(at):
                n = Normalizer.of(constraint)
                positions = Positions(
                    n,
                    layout,
                    closed=constraint.extra == "forbid",
                    key_order=constraint.key_order,
                    schema=name,
                    marks=marks,
                    max_depth=constraint.max_depth,
                    as_elements=style != "json" and STYLES[style].item is not None,
                )
                self.losses += [loss._replace(pointer=at + loss.pointer) for loss in n.losses]
                elements = None if style == "json" else ElementPositions(positions, STYLES[style])
                starts = (positions.whole,) if elements is None else tuple(elements.json_inside())
                self._schemas[name] = positions if elements is None else elements
                self._parts[name] = SchemaPart(positions, starts, at)
        return (Call(self._schemas[name].root),)

    def _grammar(self, node_format: Format, pointer: str) -> Piece:
        at = f"{pointer}/grammar"
        with inside_tag(at):
            grammar = Gbnf(node_format["grammar"], DEFAULT_ROOT["gbnf"])
        if grammar.text not in self._grammars:
            self._grammars[grammar.text] = RuleComponents(grammar, self._meter)
        return self._grammars[grammar.text].whole

    def _sequence(self, part: Format, pointer: str) -> Piece:
        return joined(*(self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(part["elements"])))

    def _or(self, part: Format, pointer: str) -> Piece:
        return any_of([self._piece(each, f"{pointer}/elements/{i}") for i, each in enumerate(part["elements"])])

    def _repeated(self, node_format: Format, pointer: str) -> Piece:
        low, high = {"optional": (0, 1), "plus": (1, None), "star": (0, None)}.get(node_format["type"], (0, None))
        if node_format["type"] == "repeat":
            low, high = node_format["min"], None if node_format["max"] < 0 else node_format["max"]
        return times(self._piece(node_format["content"], f"{pointer}/content"), low, high)

    def _tag(self, node_format: Format, pointer: str, begun: int = 0, before: Node = EMPTY) -> Piece:
        """A tag after some text, which has ``begun`` characters of its beginning already."""
        begin = node_format["begin"]
        if not isinstance(begin, str):
            raise _unsupported(Loss.within(pointer, "begin", _TOKENS))
        ends = [node_format["end"]] if isinstance(node_format["end"], str) else node_format["end"]
        if not isinstance(ends, list):
            raise _unsupported(Loss.within(pointer, "end", _TOKENS))
        content, inside = node_format["content"], f"{pointer}/content"
        end = alt(*map(text, ends))
        if content["type"] == "any_text" and "" not in ends:
            last: Piece = (both(concat(self._free(content, inside), end), _nothing_after(ends)),)
        elif runs_on(content) and ends != [""]:
            regular = language(self._piece(content, inside))
            if regular is None or "" in ends:
                reason = f"free text in it ends at the tag's end; {_ONLY_XGRAMMAR}"
                raise _unsupported(Loss(inside, content["type"], reason))
            last = (both(concat(regular, end), _nothing_after(ends)),)
        else:
            last = joined(self._piece(content, inside), (end,))
        return joined((before,), (text(begin[begun:]),), last)

    def _triggered(self, structure: Format, pointer: str) -> Piece:
        """Free text, and tags where it comes to a trigger."""
        triggers, excludes = structure["triggers"], structure.get("excludes", [])
        free = _without([*triggers, *excludes])
        tags = [(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(structure["tags"])]
        later = any_of([self._after_text(tag, at, triggers, excludes) for tag, at in tags])
        once = structure.get("stop_after_first")
        if structure.get("at_least_one"):
            alone = any_of([self._tag(*tag) for tag in tags])
            return alone if once else joined(alone, times(later, 0, None), (free,))
        if once:
            return any_of([(free,), later])
        return joined(times(later, 0, None), (free,))

    def _after_text(self, tag: Format, pointer: str, triggers: Sequence[str], excludes: Sequence[str]) -> Piece:
        count(8 * len(triggers))  # a part of the triggers is written for each tag
        trigger = next(trigger for trigger in triggers if tag["begin"].startswith(trigger))
        # Up to the first trigger of all: it must not contain the end of any other one.
        first = both(concat(ANYTHING, text(trigger)), _nothing_after(triggers), _without(excludes))
        return self._tag(tag, pointer, len(trigger), first)

    def _separated(self, node_format: Format, pointer: str) -> Piece:
        tags = [self._tag(tag, f"{pointer}/tags/{i}") for i, tag in enumerate(node_format["tags"])]
        piece = any_of(tags)
        if not node_format.get("stop_after_first"):
            later = any_of([joined((text(node_format["separator"]),), tag) for tag in tags])
            piece = joined(piece, times(later, 0, None))
        return piece if node_format.get("at_least_one") else times(piece, 0, 1)

    _WRITERS: dict[str, Callable[[TagNetwork, Format, str], Piece]] = {
        "const_string": lambda self, node_format, pointer: (text(node_format["value"]),),
        "regex": _regex,
        "grammar": _grammar,
        "any_text": lambda self, node_format, pointer: (self._free(node_format, pointer),),
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


def _without(texts: Sequence[str]) -> Node:
    return complement(concat(ANYTHING, alt(*map(text, texts)), ANYTHING)) if texts else ANYTHING


def _nothing_after(texts: Sequence[str]) -> Node:
    """Text that ends where the first of these ends, or has none of them."""
    return complement(concat(ANYTHING, alt(*map(text, texts)), _NOT_EMPTY))


def _impossible(what: str, pointer: str) -> InvalidConstraint:
    return InvalidConstraint(f"{what} of the structural tag matches nothing", pointers=[pointer])


def _unsupported(loss: Loss) -> UnsupportedConstraint:
    return UnsupportedConstraint("the engine cannot write this structural tag", (loss,))
