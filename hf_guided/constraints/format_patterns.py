"""The formats of JSON Schema as patterns. Names are those of the grammars of the RFCs.

- dates, times, durations: RFC 3339, section 5.6 and appendix A. The lengths of months and leap years are in the
  patterns. Year 0000 and leap seconds are not: checkers know neither.
- addresses of machines and of people: IP, host names (RFC 1123, 5890), mailboxes (RFC 5321, 6531);
- URIs (RFC 3986), IRIs (RFC 3987), URI templates (RFC 6570), JSON pointers (RFC 6901).
"""

from __future__ import annotations

# date: 0001 .. 9999, every month at its length, 29 February in leap years only
_01_TO_99 = r"(?:0[1-9]|[1-9][0-9])"
_FOURS = r"(?:0[48]|[2468][048]|[13579][26])"  # the multiples of four, 04 .. 96
_DATE_FULLYEAR = rf"(?:[0-9]{{2}}{_01_TO_99}|{_01_TO_99}00)"
_LEAP_YEAR = rf"(?:[0-9]{{2}}{_FOURS}|{_FOURS}00)"
_MONTH_AND_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
FULL_DATE = f"(?:{_DATE_FULLYEAR}-{_MONTH_AND_DAY}|{_LEAP_YEAR}-02-29)"

# time: any number of digits after the point, letters in either case
_TIME_HOUR = "(?:[01][0-9]|2[0-3])"
_PARTIAL_TIME = rf"{_TIME_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_TIME_OFFSET = f"(?:[Zz]|[+-]{_TIME_HOUR}:[0-5][0-9])"
FULL_TIME = f"{_PARTIAL_TIME}{_TIME_OFFSET}"

DATE_TIME = f"{FULL_DATE}[Tt]{FULL_TIME}"

# what datetime.isoformat() writes of them, and RFC 3339 recommends; fractions down to nanoseconds
SECONDS, USUAL_OFFSET = f"{_TIME_HOUR}:[0-5][0-9]:[0-5][0-9]", f"(?:Z|[+-]{_TIME_HOUR}:[0-5][0-9])"
USUAL_TIME = rf"{SECONDS}(?:\.[0-9]{{1,9}})?{USUAL_OFFSET}"
USUAL_DATE_TIME = f"{FULL_DATE}T{USUAL_TIME}"

# duration: a unit may be followed by the next smaller one only
_DUR_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DUR_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
DURATION = f"P(?:{_DUR_DATE}(?:{_DUR_TIME})?|{_DUR_TIME}|[0-9]+W)"

# IP: decimal and hexadecimal; no zones
DEC_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"(?:{DEC_OCTET}\.){{3}}{DEC_OCTET}"
H16 = "[0-9A-Fa-f]{1,4}"
IPV6_IN_FULL = f"(?:{H16}:){{6}}(?:{H16}:{H16}|{IPV4})"


def _ipv6(most: int) -> str:
    """RFC 4291: in full, or with ``::`` and a limited number of groups; an IPv4 address at the end is two; no zone."""
    written = [IPV6_IN_FULL]
    for left in range(most + 1):
        right = most - left  # how many groups may follow `::`
        head = f"{H16}(?::{H16}){{{left - 1}}}" if left else ""
        tails = [f"{H16}(?::{H16}){{0,{right - 1}}}"] if right else []
        tails += [f"(?:{H16}:){{0,{right - 2}}}{IPV4}"] if right >= 2 else []
        written.append(f"{head}::" + (f"(?:{'|'.join(tails)})?" if tails else ""))
    return f"(?:{'|'.join(written)})"


IPV6 = _ipv6(7)


def label(letters: str, most: int) -> str:
    """A label of these letters (the inside of a class): no hyphen first, last, or both third and fourth."""
    first, inside = f"[{letters}]", f"[{letters}-]"
    longer = f"{inside}(?:{first}{inside}|-{first}){inside}{{0,{most - 5}}}{first}"
    return f"{first}(?:{inside}{{0,2}}{first}|{longer})?"


_LDH_LABEL = label("A-Za-z0-9", 63)
HOSTNAME = rf"{_LDH_LABEL}(?:\.{_LDH_LABEL})*"

# Letters that IDNA allows in any position: written from left to right, in lower case where there is one, none of
# which combines with the one before it. Up to U+0586, and up to U+D7A3:
_EUROPEAN = (
    "a-z0-9ß-öø-ÿāăąćĉċčďđēĕėęěĝğġģĥħĩīĭįıĵķĸĺļľłńņňŋōŏőœŕŗřśŝşšţťŧũūŭůűųŵŷźżž"  # Latin
    "ΐά-ώа-џґա-ֆ"  # Greek, Cyrillic, Armenian
)
_ANY_SCRIPT = f"{_EUROPEAN}ა-ჺ々〆ぁ-ゖゝゞァ-ヺー-ヾ㐀-䶵一-龥가-힣"  # Georgian, Japanese, Chinese, Korean
# A name may have 253 octets as it is sent, in Punycode. This many letters never take more than 62 octets, whichever
# they are (the most expensive ones were searched for), and four such labels fit with their dots.
_U_LABEL = f"(?:{label(_EUROPEAN, 20)}|{label(_ANY_SCRIPT, 14)})"
_IDN_LABEL = f"(?:{label('A-Za-z0-9', 62)}|{_U_LABEL})"
IDN_HOSTNAME = rf"(?:{HOSTNAME}|{_IDN_LABEL}(?:\.{_IDN_LABEL}){{0,3}})"

# RFC 5321, section 4.1.2: Mailbox. RFC 6531 adds non-ASCII characters.
ATEXT = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_QTEXT_SMTP = r" !#-\[\]-~"
_QUOTED_PAIR_SMTP = r"\\[ -~]"
_UTF8_NON_ASCII = "\x80-\ud7ff\ue000-\U0010ffff"
_ADDRESS_LITERAL = rf"\[(?:{IPV4}|[Ii][Pp][Vv]6:{_ipv6(6)})\]"


def _mailbox(non_ascii: str, domain: str) -> str:
    atom = f"[{non_ascii}{ATEXT}]+"
    quoted_string = f'"(?:[{non_ascii}{_QTEXT_SMTP}]|{_QUOTED_PAIR_SMTP})*"'
    return rf"(?:{atom}(?:\.{atom})*|{quoted_string})@(?:{domain}|{_ADDRESS_LITERAL})"


EMAIL = _mailbox("", HOSTNAME)
IDN_EMAIL = _mailbox(_UTF8_NON_ASCII, rf"(?:{_LDH_LABEL}|{_U_LABEL})(?:\.(?:{_LDH_LABEL}|{_U_LABEL}))*")

UNRESERVED = "A-Za-z0-9._~-"  # the hyphen last: the classes below put nothing after it
SUB_DELIMS = "!$&'()*+,;="
PCT_ENCODED = "%[0-9A-Fa-f]{2}"
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"
# What IRIs add. Checkers know the basic plane only.
_UCSCHAR = "\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
_IPRIVATE = "\ue000-\uf8ff"
# The same and what lies beyond: templates may hold them all.
_UCSCHAR_ALL = _UCSCHAR + "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
_UCSCHAR_ALL += "\U000e1000-\U000efffd"
_IPRIVATE_ALL = f"{_IPRIVATE}\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _reference(ipv6address: str, ucschar: str = "", iprivate: str = "") -> tuple[str, str]:
    """``URI`` and ``URI-reference``, or, with more characters, ``IRI`` and ``IRI-reference``."""

    def some(more: str = "") -> str:
        return f"(?:[{more}{ucschar}{SUB_DELIMS}{UNRESERVED}]|{PCT_ENCODED})"

    pchar = some(":@")
    ip_literal = rf"\[(?:{ipv6address}|v[0-9A-Fa-f]+\.[:{SUB_DELIMS}{UNRESERVED}]+)\]"
    host = f"(?:{ip_literal}|{some()}*)"  # an IPv4 address is a reg-name too
    authority = f"(?:{some(':')}*@)?{host}(?::[0-9]*)?"
    path_abempty = f"(?:/{pchar}*)*"
    rooted = f"//{authority}{path_abempty}|/(?:{pchar}+{path_abempty})?"
    ending = rf"(?:\?{some(':@/?' + iprivate)}*)?(?:#{some(':@/?')}*)?"
    uri = f"{_SCHEME}:(?:{rooted}|{pchar}+{path_abempty})?{ending}"
    relative_ref = f"(?:{rooted}|{some('@')}+{path_abempty})?{ending}"
    return uri, f"(?:{uri}|{relative_ref})"


URI, URI_REFERENCE = _reference(IPV6)
IRI, IRI_REFERENCE = _reference(IPV6_IN_FULL, _UCSCHAR, _IPRIVATE)

_LITERALS = rf"(?:[!#$&-;=?-\[\]_a-z~{_UCSCHAR_ALL}{_IPRIVATE_ALL}]|{PCT_ENCODED})"
_VARNAME = rf"[A-Za-z0-9_](?:\.?(?:[A-Za-z0-9_]|{PCT_ENCODED}))*"
_VARSPEC = rf"{_VARNAME}(?::[1-9][0-9]{{0,2}}|\*)?"
URI_TEMPLATE = rf"(?:{_LITERALS}|\{{[+#./;?&]?{_VARSPEC}(?:,{_VARSPEC})*\}})*"

JSON_POINTER = "(?:/(?:[^/~]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9]+0?)(?:#|{JSON_POINTER})"
