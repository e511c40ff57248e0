"""URLs, addresses of machines and of people, as Pydantic reads them: plain patterns.

Pydantic's URLs are those of the WHATWG: for some schemes it decodes and checks the host. The patterns keep to hosts on
which all agree.
"""

from __future__ import annotations

from typing import Any

from ..host_patterns import IPV4, IPV6, label
from .digits import literal
from .notes import narrower

Core = dict[str, Any]

_SPECIAL = ("file", "ftp", "http", "https", "ws", "wss")  # schemes whose hosts are checked
_UNRESERVED = "A-Za-z0-9._~-"
_SUB_DELIMS = "!$&'()*+,;="
_PCT = "%[0-9A-Fa-f]{2}"
_PORT = "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}))?"
_PATH_CHARACTER = f"(?:[{_SUB_DELIMS}:@{_UNRESERVED}]|{_PCT})"
_QUERY_CHARACTER = f"(?:[{_SUB_DELIMS}:@/?{_UNRESERVED}]|{_PCT})"
_ENDING = f"(?:\\?{_QUERY_CHARACTER}*)?(?:#{_QUERY_CHARACTER}*)?"
_PATH = f"(?:{_PATH_CHARACTER}|/)*"
_USER = f"(?:[{_UNRESERVED}]|{_PCT})"
_LOGIN = f"(?:{_USER}+(?::{_USER}*)?@)?"


def _not_words(words: tuple[str, ...], first: str, others: str) -> str:
    """Names of these characters (insides of classes) that are none of the words."""
    alternatives = []
    prefixes = sorted({word[:end] for word in words for end in range(len(word))})
    for prefix in prefixes:
        taken = {word[len(prefix)] for word in words if word.startswith(prefix) and len(word) > len(prefix)}
        free = "".join(c for c in _members(others if prefix else first) if c not in taken)
        alternatives.append(f"{prefix}[{_in_class(free)}][{others}]*")
        if prefix and prefix not in words:
            alternatives.append(prefix)
    alternatives += [f"{word}[{others}]+" for word in words if not any(o != word and o.startswith(word) for o in words)]
    return f"(?:{'|'.join(alternatives)})"


def _members(inside: str) -> str:
    """The characters of a class whose only ranges are a-z and 0-9."""
    letters, numbers = "abcdefghijklmnopqrstuvwxyz", "0123456789"
    return inside.replace("a-z", letters).replace("0-9", numbers)


def _in_class(characters: str) -> str:
    return "".join(sorted(characters, key=lambda c: c == "-"))


def _name(labels: str, most: int) -> str:
    """Host names in ASCII; the last label begins with a letter, for a number would be part of an IPv4 address."""
    return f"(?:{label('a-z0-9', most)}\\.){labels}[a-z][a-z0-9]{{0,{most - 1}}}"


_HOST = f"(?:{_name('*', 63)}|{IPV4}|\\[{IPV6}\\])"


def _sized(core: Core) -> dict[str, Any]:
    """A URL with bounds on the length of Pydantic's result: of characters that Pydantic does not rewrite."""
    low, high = core.get("value_min_length") or 0, core.get("value_max_length")
    defaults = {name: len(str(core.get(f"default_{name}") or "")) for name in ("host", "port", "path")}
    added = defaults["port"] + bool(defaults["port"])
    if not low and high is not None and high >= _ROOMY + sum(defaults.values()):
        # Pydantic adds a slash or the default path, and writes a `::` for one group of an IPv6 address as `:0:`.
        room = high - defaults["host"] - added - max(1, defaults["path"]) - 1
        return url({**core, "value_max_length": None, "max_length": min(room, core.get("max_length") or room)})
    schemes: list[str] | None = core.get("allowed_schemes")
    limit, hosted = core.get("max_length"), [scheme for scheme in schemes or () if scheme != "file"]
    alternatives = []
    if schemes is None or hosted:
        written = "|".join(map(literal, hosted)) or _SCHEME
        start, least = f"(?:{written})://{_PLAIN_HOST}", len("://b") + min(map(len, hosted), default=1)
        instead = max(0, defaults["path"] - 1)  # a lone slash also means the default path
        alternatives.append(_of_length(f"{start}(?:/{_PLAIN}*)+", least + 1, low, high, added + instead, limit))
        alternatives.append(_of_length(start, least, low, high, added + max(1, defaults["path"]), limit))
    if schemes is not None and _takes_hostless_files(core) and "file" in schemes:
        alternatives.append(_of_length(f"file://(?:/{_PLAIN}*)+", len("file:///"), low, high, defaults["host"], limit))
    alternatives_left = [alternative for alternative in alternatives if alternative is not None]
    if not alternatives_left:
        raise ValueError(f"max_length={high} leaves no room for a URL")
    return narrower({"type": "string", "anyOf": alternatives_left}, "url")


_ROOMY = 300  # characters in which user names, ports and queries have their shares
_PLAIN = "[A-Za-z0-9_~-]"
_PLAIN_HOST = r"[a-z][a-z0-9]{0,62}(?:\.[a-z][a-z0-9]{0,30}){0,3}"


def _of_length(
    pattern: str, least: int, low: int, high: int | None, more: int, limit: int | None
) -> dict[str, Any] | None:
    """Texts of a pattern, whose length with Pydantic's additions is in the bounds; None where there are none.

    Args:
        pattern: without anchors.
        least: characters of its shortest text.
        low: characters of the result, at least.
        high: characters of the result, at most.
        more: characters that Pydantic adds, at most.
        limit: characters of the text, at most.
    """
    json_schema: dict[str, Any] = {"pattern": f"^{pattern}$", "minLength": low}
    most = [bound for bound in (limit, None if high is None else high - more) if bound is not None]
    if most:
        json_schema["maxLength"] = min(most)
    return None if most and min(most) < max(low, least) else json_schema


def _takes_hostless_files(core: Core) -> bool:
    return not core.get("host_required") and core.get("default_port") is None


def url(core: Core) -> dict[str, Any]:
    """A URL with one host."""
    if core.get("value_min_length") is not None or core.get("value_max_length") is not None:
        return _sized(core)
    schemes: list[str] | None = core.get("allowed_schemes")
    limit: int | None = core.get("max_length")
    alternatives = []
    if schemes is None:
        # A default host or port is set on the URL, and only those with // have room for one.
        set_later = core.get("default_host") is not None or core.get("default_port") is not None
        others = limit is None and not core.get("host_required") and not set_later
        written = _SCHEME if limit is None else _SHORT_SCHEME
        alternatives.append(written + _behind_scheme(limit, 16))
        if others:
            alternatives.append(f"file:///{_PATH}")
            alternatives.append(f"{_not_words(_SPECIAL, 'a-z', 'a-z0-9+.-')}:{_PATH_CHARACTER}{_PATH}{_ENDING}")
    else:
        for scheme in schemes:
            if scheme == "file" and _takes_hostless_files(core):
                alternatives.append(
                    "file:///" + (_PATH if limit is None else f"[/{_UNRESERVED}]{{0,{max(0, limit - 8)}}}")
                )
        if hosted := [scheme for scheme in schemes if scheme != "file"]:
            written = "|".join(map(literal, hosted))
            alternatives.append(f"(?:{written}){_behind_scheme(limit, max(map(len, hosted)))}")
            if core.get("default_host") and not set(hosted) & set(_SPECIAL):
                alternatives.append(f"(?:{written})://")
    return narrower({"type": "string", "pattern": f"^(?:{'|'.join(alternatives)})$"}, "url")


def multi_host_url(core: Core) -> dict[str, Any]:
    """A URL with one host or several."""
    if any(core.get(name) is not None for name in ("max_length", "value_min_length", "value_max_length")):
        return url(core)
    schemes: list[str] | None = core.get("allowed_schemes")
    written = f"(?:{'|'.join(map(literal, schemes))})" if schemes else _SCHEME
    # Where hosts are checked, a list of hosts is no valid host.
    more = "" if schemes is None or set(schemes) & set(_SPECIAL) else f"(?:,{_HOST}{_PORT})*"
    pattern = f"^{written}://{_LOGIN}{_HOST}{_PORT}{more}(?:/{_PATH})?{_ENDING}$"
    return narrower({"type": "string", "pattern": pattern}, "url")


_SCHEME = f"(?:{_not_words(('file',), 'a-z', 'a-z0-9+.-')})"
_SHORT_SCHEME = "(?:[a-eg-z][a-z0-9+.-]{0,14}|ftp)"


def _behind_scheme(limit: int | None, scheme: int) -> str:
    """Everything from :// on, for a scheme with a bounded number of characters."""
    if limit is None:
        return f"://{_LOGIN}{_HOST}{_PORT}(?:/{_PATH})?{_ENDING}"
    room = limit - scheme - len("://")
    if room < 1:
        raise ValueError(f"max_length={limit} leaves no room for a URL")
    if room < 200:
        rest = room // 2
        path = f"(?:/[/{_UNRESERVED}]{{0,{rest - 1}}})?" if rest else ""
        return f"://[a-z][a-z0-9]{{0,{room - rest - 1}}}{path}"
    # Each part has a share, so that nothing has to count the whole: four labels of 31, and a character of the path or
    # the query may take three.
    login = f"(?:[{_UNRESERVED}]{{1,16}}(?::[{_UNRESERVED}]{{0,16}})?@)?" if room >= 400 else ""
    left = room - 128 - len(":65535") - 34 * bool(login) - len("/#")
    host = f"(?:{_name('{0,3}', 31)}|{IPV4}|\\[{IPV6}\\])"
    units, fragment = min(left // 4, _MOST), min(left // 4, 64)
    tail = f"(?:[/?]{_QUERY_CHARACTER}{{0,{units}}}(?:#[{_UNRESERVED}]{{0,{fragment}}})?)?"
    return f"://{login}{host}{_PORT}{tail}"


_MOST = 400  # characters of path and query where there is a max_length


_V4_BITS = "(?:3[0-2]|[12]?[0-9])"
_V6_BITS = "(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}"


def _v4_network() -> str:
    """Addresses whose bits after the prefix are zero: the octet that the prefix splits is one that fits any prefix."""
    alternatives = [IPV4 + "(?:/32)?"]
    for bits in range(32):
        whole, part = divmod(bits, 8)
        step = 256 >> part
        split = [str(value) for value in range(0, 256, step)]
        octets = [_OCTET] * whole + [f"(?:{'|'.join(split)})"] + ["0"] * (3 - whole)
        alternatives.append("\\.".join(octets) + f"/{bits}")
    return f"(?:{'|'.join(alternatives)})"


def _v6_network() -> str:
    """Addresses whose bits after the prefix are zero: in the group that the prefix splits, and ``::`` after it."""
    alternatives = [f"{IPV6}(?:/128)?"]
    for bits in range(113):
        whole, part = divmod(bits, 16)
        shorter = f"(?:{_GROUP}(?::{_GROUP}){{0,{whole - 1}}})?" if whole else ""
        alternatives.append(f"{shorter}::/{bits}")
        if part:
            alternatives.append(f"(?:{_GROUP}:){{{whole}}}{_split_group(part)}::/{bits}")
    # `::` replaces at least one group, so that the last one is written out.
    alternatives += [f"(?:{_GROUP}:){{7}}{_split_group(part)}/{112 + part}" for part in range(1, 16)]
    return f"(?:{'|'.join(alternatives)})"


def _split_group(bits: int) -> str:
    """A group of four digits with this number of free bits; the others are zero."""
    digits, part = divmod(bits, 4)
    if not part:
        return f"[0-9A-Fa-f]{{1,{digits}}}0{{{4 - digits}}}"
    split = "".join(f"{value:x}{value:X}" if value > 9 else f"{value}" for value in range(0, 16, 16 >> part))
    free = f"[0-9A-Fa-f]{{0,{digits}}}" if digits else ""
    return f"{free}[{split}]0{{{3 - digits}}}"


IP: dict[str, dict[str, Any]] = {
    "ipv4": {"pattern": f"^{IPV4}$"},
    "ipv6": {"pattern": f"^{IPV6}$"},
    "ipvanyaddress": {"pattern": f"^(?:{IPV4}|{IPV6})$"},
    "ipv4interface": {"pattern": f"^{IPV4}(?:/{_V4_BITS})?$"},
    "ipv6interface": {"pattern": f"^{IPV6}(?:/{_V6_BITS})?$"},
    "ipvanyinterface": {"pattern": f"^(?:{IPV4}(?:/{_V4_BITS})?|{IPV6}(?:/{_V6_BITS})?)$"},
    "ipv4network": {"pattern": f"^{_v4_network()}$"},
    "ipv6network": {"pattern": f"^{_v6_network()}$"},
    "ipvanynetwork": {"pattern": f"^(?:{_v4_network()}|{_v6_network()})$"},
}
"""The types of Python's ``ipaddress`` and Pydantic's IPvAny..., by Pydantic's names for their formats."""

_ATEXT = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_RESERVED = ("arpa", "invalid", "local", "localhost", "onion", "test", "example")
_TOP_LEVEL = _not_words(_RESERVED, "a-z", "a-z").replace("*", "{0,15}").replace("+", "{1,15}")
_LOCAL = f"(?:[{_ATEXT}]{{1,62}}|[{_ATEXT}](?:\\.?[{_ATEXT}]){{0,30}})"
_EMAIL = f"{_LOCAL}@(?:{label('a-z0-9', 24)}\\.){{1,4}}{_TOP_LEVEL}"


def email() -> dict[str, Any]:
    """An ``EmailStr``."""
    return narrower({"type": "string", "pattern": f"^{_EMAIL}$"}, "EmailStr")


def name_email() -> dict[str, Any]:
    """A ``NameEmail``: an address, or a name and the address between < and >."""
    name = r"[A-Za-z0-9_.-]{1,24}(?: [A-Za-z0-9_.-]{1,24}){0,3}"
    return narrower({"type": "string", "pattern": f"^(?:{_EMAIL}|{name} <{_EMAIL}>)$"}, "NameEmail")
