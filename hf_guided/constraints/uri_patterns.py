"""URIs (RFC 3986), IRIs (RFC 3987), URI templates (RFC 6570), JSON pointers (RFC 6901). Names are those of the RFCs."""

from __future__ import annotations

from .host_patterns import IPV6, IPV6_IN_FULL

_UNRESERVED = "A-Za-z0-9._~-"  # the hyphen last: the classes below put nothing after it
_SUB_DELIMS = "!$&'()*+,;="
_PCT_ENCODED = "%[0-9A-Fa-f]{2}"
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
        return f"(?:[{more}{ucschar}{_SUB_DELIMS}{_UNRESERVED}]|{_PCT_ENCODED})"

    pchar = some(":@")
    ip_literal = rf"\[(?:{ipv6address}|v[0-9A-Fa-f]+\.[:{_SUB_DELIMS}{_UNRESERVED}]+)\]"
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

_LITERALS = rf"(?:[!#$&-;=?-\[\]_a-z~{_UCSCHAR_ALL}{_IPRIVATE_ALL}]|{_PCT_ENCODED})"
_VARNAME = rf"[A-Za-z0-9_](?:\.?(?:[A-Za-z0-9_]|{_PCT_ENCODED}))*"
_VARSPEC = rf"{_VARNAME}(?::[1-9][0-9]{{0,2}}|\*)?"
URI_TEMPLATE = rf"(?:{_LITERALS}|\{{[+#./;?&]?{_VARSPEC}(?:,{_VARSPEC})*\}})*"

JSON_POINTER = "(?:/(?:[^/~]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9]+0?)(?:#|{JSON_POINTER})"
