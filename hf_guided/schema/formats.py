"""Formats that have exact patterns: a strict format checker accepts what the pattern matches.

All formats that JSON Schema specifies (drafts 4 to 2020-12) are here. A valid spelling may be missing: ``NARROWER``
lists which. Patterns hold nothing but groups, explicit classes, ``|`` and repetition, so that Python's ``re`` and
ECMA-262 (with the flag ``u``) read them alike.
"""

from __future__ import annotations

from typing import Any

from ..constraints import format_patterns

# -- regular expressions that ECMA-262 (with the flag ``u`` and without) and Python's ``re`` both compile

_DEPTH = 3  # maximum depth of groups in groups


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


FORMATS: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{format_patterns.FULL_DATE}$"},
    "time": {"pattern": f"^{format_patterns.FULL_TIME}$"},
    "date-time": {"pattern": f"^{format_patterns.DATE_TIME}$"},
    "duration": {"pattern": f"^{format_patterns.DURATION}$"},
    "uuid": {"pattern": "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    "ipv4": {"pattern": f"^{format_patterns.IPV4}$"},
    "ipv6": {"pattern": f"^{format_patterns.IPV6}$"},
    "hostname": {"pattern": f"^{format_patterns.HOSTNAME}$", "maxLength": 253},
    "idn-hostname": {"pattern": f"^{format_patterns.IDN_HOSTNAME}$", "maxLength": 253},
    "email": {"pattern": f"^{format_patterns.EMAIL}$"},
    "idn-email": {"pattern": f"^{format_patterns.IDN_EMAIL}$"},
    "uri": {"pattern": f"^{format_patterns.URI}$"},
    "uri-reference": {"pattern": f"^{format_patterns.URI_REFERENCE}$"},
    "iri": {"pattern": f"^{format_patterns.IRI}$"},
    "iri-reference": {"pattern": f"^{format_patterns.IRI_REFERENCE}$"},
    "uri-template": {"pattern": f"^{format_patterns.URI_TEMPLATE}$"},
    "json-pointer": {"pattern": f"^{format_patterns.JSON_POINTER}$"},
    "relative-json-pointer": {"pattern": f"^{format_patterns.RELATIVE_JSON_POINTER}$"},
    "regex": {"pattern": f"^{_disjunction(_DEPTH)}$"},
}
"""Each format as a schema for strings."""

_A_LABELS = "labels in Punycode (xn--...), which no pattern can prove valid, and others with -- third and fourth"
_IRI = "IPv6 hosts with ::, an upper-case V before a future kind of address, and characters beyond U+FFFF in IRIs: "
_IRI += "checkers refuse them"

USUAL: dict[str, str] = {
    "time": f"^{format_patterns.USUAL_TIME}$",
    "date-time": f"^{format_patterns.USUAL_DATE_TIME}$",
}
"""Patterns for the canonical spelling of a format; the other formats have one spelling as strings."""

NARROWER: dict[str, str] = {
    "date": "the year 0000: checkers refuse it",
    "time": "leap seconds (23:59:60Z): checkers refuse them",
    "date-time": "leap seconds and the year 0000: checkers refuse them",
    "hostname": _A_LABELS,
    "idn-hostname": (
        f"{_A_LABELS}; letters written from right to left, with combining marks, or allowed in some contexts only; "
        "rare scripts; dots other than U+002E; labels of more than 14 letters (20 in European scripts), and more than "
        "four labels, unless all is ASCII: they may be too long in Punycode"
    ),
    "email": f"address literals other than IPv4 without leading zeros and IPv6; in the domain {_A_LABELS}",
    "idn-email": "what email leaves out; in the domain also the letters and lengths that idn-hostname leaves out",
    "uri": "an upper-case V before a future kind of address ([V1.a]): checkers refuse it",
    "uri-reference": "an upper-case V before a future kind of address ([V1.a]): checkers refuse it",
    "iri": _IRI,
    "iri-reference": _IRI,
    "uri-template": (
        "variables that begin with %, prefixes of four digits, and the operators = , ! @ | that are reserved: checkers "
        "refuse them"
    ),
    "relative-json-pointer": "numbers with a zero before the last digit (100), and 0+1: checkers refuse them",
    "regex": (
        "look-around, back-references, named groups, flags, \\p, \\c, \\0, quantified assertions and raw control "
        "characters; in classes, ranges of other than digits or letters, [] and [^]; groups deeper than three; {m,n} "
        "of two digits each that begin alike, or of three each, and longer numbers: either Python or ECMA-262 refuses "
        "them, or only a huge pattern could check them"
    ),
}
"""Which valid spellings a format leaves out, and why; the other formats leave out none."""
