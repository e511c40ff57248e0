"""A structural tag in llguidance's Lark, its schemas read by this package's own front end.

The lexer is greedy, so every regular part is a terminal of its own, and there is nothing to guess. What has no such end
before a schema is refused, and left to an engine without a lexer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, starmap

from ..constraints.structural_tag_checks import inside_tag
from ..constraints.tool_xml import STYLES
from ..errors import Loss
from ..regex import Alt, And, Chars, CharSet, Concat, Node, Repeat, both, concat, to_lark
from ..regex.write import times
from ..schema.grammar import contents
from ..schema.normalize import Normalizer
from ..schema.to_lark import SchemaWriter
from ..schema.xml_to_lark import xml_rules
from .tag_pieces import NOT_EMPTY, Choice, Format, Piece, TagPieces, TagSchema, Times, impossible, unsupported

_MAX_PAIRED = 64  # alternatives that are compared with each other


class TagLark(TagPieces):
    """Writes one structural tag.

    Args:
        tag: in either form that ``StructuralTag`` takes.
    """

    def __init__(self, tag: Format):
        super().__init__(tag)
        self.losses: list[Loss] = []
        self._lines: list[str] = []
        self._terminals: dict[Node, str] = {}
        self._schemas: dict[str, str] = {}
        start = self._expression(self.read())
        lines = [f"start: {start}", *self._lines]
        lines += [f"{name}: {to_lark(node)}" for node, name in self._terminals.items()]
        self.grammar = "\n".join(lines)

    def _values(self, schema: TagSchema) -> str:
        """The expression for the values, after writing the rules."""
        if schema.key not in self._schemas:
            prefix = f"g{len(self._schemas)}_"
            with inside_tag(schema.pointer):
                n = Normalizer.of(schema.constraint)
                if schema.style == "json":
                    contents_of = contents(n, closed=True, spelling=schema.layout.spelling)
                    rules = SchemaWriter(n, contents_of, schema.layout, prefix, schema.excludes).write()
                else:
                    rules = xml_rules(n, STYLES[schema.style], schema.layout, closed=True, prefix=prefix)
            self.losses += [loss._replace(pointer=f"{schema.pointer}{loss.pointer}") for loss in n.losses]
            self._lines += rules.lines
            self._schemas[schema.key] = rules.start
        return self._schemas[schema.key]

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
                whole = both(part, NOT_EMPTY) if part.nullable else part  # an empty terminal would match anywhere
                if self._is_empty(whole, ""):
                    if not part.nullable:
                        raise impossible("a part", "")
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
        raise unsupported("", "structural_tag", "the text does not determine where a part of this tag ends")


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
