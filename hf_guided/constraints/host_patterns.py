"""Addresses of machines and of people, as patterns: IP, host names (RFC 1123, 5890), mailboxes (RFC 5321, 6531)."""

from __future__ import annotations

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
