"""Regular expressions that ECMA-262 (with the flag ``u`` and without) and Python's ``re`` both compile."""

from __future__ import annotations

_DEPTH = 3  # of groups in groups


def _ordered(symbols: str) -> str:
    """``first-last`` of an alphabet, in order."""
    return "|".join(f"{first}-[{first}-{symbols[-1]}]" for first in symbols)


def _class() -> str:
    r"""``[...]``: not empty, ranges of digits or of letters only.

    Doubled, ``&``, ``~`` and ``|`` mean something to newer engines, and ``^`` does at the start: none of them is
    beside another one.
    """
    ranges = "|".join(map(_ordered, ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")))
    item = rf"[^{_CONTROLS}\\\]\[&~|^-]|{_ESCAPE}|{ranges}"
    return rf"\[\^?-?(?:[&~|^]?(?:{item}))+[&~|^]?-?\]"


def _quantifier() -> str:
    """``* + ? {2} {2,} {2,5}``, greedy or lazy; bounds in order, of at most three digits."""
    digits = "0123456789"
    pairs = [f"{low},[{low}-9]" for low in digits]  # {2,5}
    pairs += [f"{low}[0-9],[{int(low) + 1}-9][0-9]" for low in digits[1:-1]]  # {20,50}
    pairs += ["[0-9],[1-9][0-9]{1,2}", "[1-9][0-9],[1-9][0-9]{2}"]  # {2,50} {20,500}
    number = "(?:0|[1-9][0-9]{0,2})"
    return rf"(?:[*+?]|\{{(?:{number},?|{'|'.join(pairs)})\}})\??"


# Patterns that people read hold none; and llguidance takes a class of all of them, but without the backslash, for one
# that has it when it is written as JSON.
_CONTROLS = r"\x00-\x1f\x7f"
_ESCAPE = r"\\(?:[dDwWsStnrfv\^$\\.*+?()\[\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
_ATOM = rf"[^{_CONTROLS}\\^$.*+?()\[\]{{}}|]|\.|{_ESCAPE}|{_class()}"
_ASSERTION = r"[\^$]|\\[bB]"


def _disjunction(depth: int) -> str:
    group = rf"|\((?:\?:)?{_disjunction(depth - 1)}\)" if depth else ""
    return rf"(?:(?:{_ATOM}{group})(?:{_quantifier()})?|{_ASSERTION}|\|)*"


REGEX = _disjunction(_DEPTH)
