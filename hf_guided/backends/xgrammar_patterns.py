"""Patterns inside xgrammar's schemas, written out as grammar rules.

Its own reading of a ``pattern`` merges states that are not the same: ``[ab]|[ab]{0,2}`` takes ``aaaa`` there, and
``(x[0-9]+)?`` may leave out the ``x`` alone. Its grammars are right, and it prints a schema as a grammar: so a schema
is compiled with numbers for patterns, and in the printed grammar each number is replaced by its rule.
"""

from __future__ import annotations

import re

from ..errors import UnsupportedConstraint
from ..regex import Alt, Chars, CharSet, Concat, Node, Repeat
from ..regex.write import times

_PLACEHOLDER = re.compile(r'Regex\("\^(\d+)\$", json_string=true\)')


class Patterns:
    """The patterns of one schema or tag, in the order in which they were met."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def __bool__(self) -> bool:
        return bool(self._nodes)

    def add(self, node: Node) -> str:
        """The pattern to write for now; ``node`` holds no And, Not or Nothing, and no character that JSON escapes."""
        self._nodes.append(node)
        return f"^{len(self._nodes) - 1}$"

    def into(self, grammar: str) -> str:
        """A printed grammar with a rule instead of each number.

        Raises:
            UnsupportedConstraint: this release of xgrammar prints patterns in another format.
        """
        text = _PLACEHOLDER.sub(lambda match: _rule(self._nodes[int(match[1])]), grammar)
        if 'Regex("^' in text:
            raise UnsupportedConstraint(
                "xgrammar's patterns cannot be corrected: this release prints grammars in an unknown format; "
                'use backend="llguidance"'
            )
        return text


def _rule(node: Node) -> str:
    if isinstance(node, Chars):
        return _class(node.charset)
    if isinstance(node, Concat):
        return f"({' '.join(map(_rule, node.parts))})"
    if isinstance(node, Alt):
        return f"({' | '.join(map(_rule, node.parts))})"
    if isinstance(node, Repeat):
        return f"({_rule(node.body)}){times(node.low, node.high)}"
    return '""'


def _class(charset: CharSet) -> str:
    return f"[{''.join(f'{_code(first)}-{_code(last)}' for first, last in charset.ranges)}]"


def _code(code: int) -> str:
    return f"\\U{code:08x}"
