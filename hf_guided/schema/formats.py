"""Formats that have exact patterns: a strict format checker accepts what the pattern matches.

All formats that JSON Schema specifies (drafts 4 to 2020-12) are here. A valid spelling may be missing: ``NARROWER``
lists which. Patterns hold nothing but groups, explicit classes, ``|`` and repetition, so that Python's ``re`` and
ECMA-262 (with the flag ``u``) read them alike.
"""

from __future__ import annotations

from typing import Any

from ..constraints import date_time_patterns as date_time_patterns
from ..constraints import host_patterns as host_patterns
from ..constraints import uri_patterns
from . import formats_regex
from .subschemas import iter_subschemas

FORMATS: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{date_time_patterns.FULL_DATE}$"},
    "time": {"pattern": f"^{date_time_patterns.FULL_TIME}$"},
    "date-time": {"pattern": f"^{date_time_patterns.DATE_TIME}$"},
    "duration": {"pattern": f"^{date_time_patterns.DURATION}$"},
    "uuid": {"pattern": "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    "ipv4": {"pattern": f"^{host_patterns.IPV4}$"},
    "ipv6": {"pattern": f"^{host_patterns.IPV6}$"},
    "hostname": {"pattern": f"^{host_patterns.HOSTNAME}$", "maxLength": 253},
    "idn-hostname": {"pattern": f"^{host_patterns.IDN_HOSTNAME}$", "maxLength": 253},
    "email": {"pattern": f"^{host_patterns.EMAIL}$"},
    "idn-email": {"pattern": f"^{host_patterns.IDN_EMAIL}$"},
    "uri": {"pattern": f"^{uri_patterns.URI}$"},
    "uri-reference": {"pattern": f"^{uri_patterns.URI_REFERENCE}$"},
    "iri": {"pattern": f"^{uri_patterns.IRI}$"},
    "iri-reference": {"pattern": f"^{uri_patterns.IRI_REFERENCE}$"},
    "uri-template": {"pattern": f"^{uri_patterns.URI_TEMPLATE}$"},
    "json-pointer": {"pattern": f"^{uri_patterns.JSON_POINTER}$"},
    "relative-json-pointer": {"pattern": f"^{uri_patterns.RELATIVE_JSON_POINTER}$"},
    "regex": {"pattern": f"^{formats_regex.REGEX}$"},
}
"""Each format as a schema for strings."""

_A_LABELS = "labels in Punycode (xn--...), which no pattern can prove valid, and others with -- third and fourth"
_IRI = "IPv6 hosts with ::, an upper-case V before a future kind of address, and characters beyond U+FFFF in IRIs: "
_IRI += "checkers refuse them"

USUAL: dict[str, str] = {
    "time": f"^{date_time_patterns.USUAL_TIME}$",
    "date-time": f"^{date_time_patterns.USUAL_DATE_TIME}$",
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


def spell_out(schema: dict[str, Any] | bool) -> None:
    """Replace every ``format`` of the table by its pattern, in place; other formats stay.

    Keywords already there stay: conflicting ones go into an ``allOf``. Formats bind strings only, and so
    do the keywords that spell them out.
    """
    for subschema in list(iter_subschemas(schema)):
        here = subschema.schema
        name = here.get("format") if isinstance(here, dict) else None
        if not isinstance(here, dict) or not isinstance(name, str) or name not in FORMATS:
            continue
        del here["format"]
        if FORMATS[name].keys() & here.keys():
            here["allOf"] = [*here.get("allOf", ()), dict(FORMATS[name])]
        else:
            here.update(FORMATS[name])
