r"""Terminals that may repeat one text for ever, like ``/a+/``.

Where nothing else may follow, as in ``/a+/ /a+/``, a lexer that takes the longest text forces ``a`` without an end, and
llguidance never returns from the question which text is forced.
"""

from __future__ import annotations

import re

# A string or a pattern inside a terminal, or one character that is neither.
_LARK = re.compile(r'"(?:\\.|[^"\\])*"i?|/(?P<pattern>(?:\\.|[^/\\])+)/[a-z]*|.', re.DOTALL)
_PATTERN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[0-9]*,\}|.", re.DOTALL)
_SEVERAL = re.compile(r"\.|\\[dDwWsS]|\[(?:\\[dDwWsS]|\^|(?:\\.|[^\\])(?!\])).*", re.DOTALL)


def may_repeat_one_text(terminal: str) -> bool:
    """Whether a terminal may force text without an end; True also where that is hard to tell.

    Args:
        terminal: its definition, as it is written in the grammar.
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
