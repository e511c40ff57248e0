"""Strings and bytes as Pydantic reads them: patterns, base64, UUIDs, URLs, addresses of machines and of people.

Pydantic's URLs are those of the WHATWG: for some schemes it decodes and checks the host. The patterns keep to hosts on
which all agree.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase, digits

from pydantic.errors import PydanticInvalidForJsonSchema

from ..base import with_flags
from ..format_patterns import ATEXT, DEC_OCTET, H16, IPV4, IPV6, PCT_ENCODED, SUB_DELIMS, UNRESERVED, label
from .digits import literal
from .notes import Core, JsonSchemaDict, anchored, narrower, shown

_ASCII = r"^[\u0000-\u007f]*$"
# What engines call white space, all of them taken together.
_SPACES = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACE_AT_EITHER_END = rf"^(?:[^{_SPACES}](?:[\s\S]*[^{_SPACES}])?)?$"
_BASIC_PLANE = r"^[\u0000-\uffff]*$"
_CLASS = re.compile(r"\[\^?\]?((?:\\.|[^\]\\])*)\]")
_FLAGS = {"a": re.A, "u": re.U, "i": re.I, "s": re.S, "x": re.X}
_AMBIGUOUS = ("[", "&&", "~~", "--")  # in a class: to some engines the beginning or the joining of another one


def text(core: Core, json_schema: JsonSchemaDict, *, strips: bool, engine: str) -> JsonSchemaDict:
    """A ``str``.

    Args:
        core: of the type.
        json_schema: what Pydantic says of lengths.
        strips: whether white space is taken off before anything is checked.
        engine: reads patterns that are not compiled: "rust-regex" or "python-re".
    """
    pattern = core.get("pattern")
    more: list[JsonSchemaDict] = []
    if isinstance(pattern, re.Pattern) or (pattern is not None and engine == "python-re"):
        # By the flag u or a it is read by Python's rules alone. MULTILINE lets it match more, and cannot be enforced.
        json_schema = {**json_schema, "pattern": with_flags(re.compile(pattern), _FLAGS)}
    elif pattern is not None:
        json_schema = {**json_schema, "pattern": _pattern(pattern)}
        if alphabet := _alphabet(json_schema["pattern"]):
            json_schema = narrower(json_schema, "pattern")
            more.append({"pattern": alphabet})
    if core.get("ascii_only"):
        more.append({"pattern": _ASCII})
    if strips and (pattern is not None or json_schema.get("minLength")):
        json_schema = narrower(json_schema, "strip_whitespace")
        more.append({"pattern": _NO_SPACE_AT_EITHER_END})
    return {**json_schema, "allOf": more} if more else json_schema


def _pattern(pattern: str) -> str:
    bodies = [re.sub(r"\\.", "", match[1]) for match in _CLASS.finditer(pattern)]
    if any(sign in body for sign in _AMBIGUOUS for body in bodies):
        raise PydanticInvalidForJsonSchema(
            f"the pattern {pattern!r} joins classes or names one ([[:alpha:]], &&, --), which means different things "
            "to different engines; write the class out"
        )
    return pattern


def displayed(pattern: str) -> str:
    """A pattern of a schema without the flags that only say whose rules hold."""
    return re.sub(r"\A\(\?[au]([isx]*)\)", lambda match: f"(?{match[1]})" if match[1] else "", pattern)


def _alphabet(pattern: str) -> str | None:
    r"""Characters that all engines classify equally; others are letters only to some engines, or to a later Unicode."""
    if r"\W" in pattern or (r"\w" in pattern and "[^" in pattern):
        return _ASCII
    if r"\D" in pattern or r"\S" in pattern or (re.search(r"\\[dsp]", pattern) and "[^" in pattern):
        return _BASIC_PLANE
    return None


def raw_bytes(core: Core, mode: str) -> JsonSchemaDict:
    """A ``bytes``, written as text of its own (UTF-8), as base64 or in hexadecimal digits."""
    low, high = core.get("min_length") or 0, core.get("max_length")
    if mode == "base64":
        return anchored(base64("url", low, high), "bytes in base64")
    if mode == "hex":
        return anchored(f"(?:[0-9a-f]{{2}}){{{low},{'' if high is None else high}}}")
    json_schema: JsonSchemaDict = {"type": "string"}
    if low:
        json_schema["minLength"] = low  # a character takes a byte at least
    if high is None:
        return json_schema
    return narrower({**json_schema, "maxLength": high, "pattern": _ASCII}, "bytes")


_SYMBOLS = {
    kind: ascii_uppercase + ascii_lowercase + digits + last for kind, last in (("standard", "+/"), ("url", "-_"))
}


def base64(alphabet: str, low: int = 0, high: int | None = None, *, is_ascii: bool = False) -> str:
    """Base64 of ``low`` to ``high`` bytes with padding, as a pattern without anchors.

    Args:
        alphabet: "standard" or "url".
        low: the fewest bytes.
        high: the most bytes; None is no limit.
        is_ascii: whether all bytes are below 128: the first bit of each is 0.
    """

    def sextet(padding: int, first_bit: int) -> str:
        """The symbols that have a 0 where the arguments have a 1."""
        zeros = padding | (first_bit if is_ascii else 0)
        free = (symbol for value, symbol in enumerate(_SYMBOLS[alphabet]) if not value & zeros)
        written = "".join(sorted(free, key=lambda symbol: symbol == "-"))  # a hyphen elsewhere forms a range
        return f"[{written if zeros else 'A-Za-z0-9' + written[-2:]}]"

    first, second, third = sextet(0, 0b100000), sextet(0, 0b001000), sextet(0, 0b000010)
    group = f"{first}{second}{third}{sextet(0, 0)}"
    endings = "", f"{first}{sextet(0b001111, 0)}==", f"{first}{second}{sextet(0b000011, 0)}="
    alternatives = []
    for left, ending in enumerate(endings):  # the bytes after the last group of three
        least, most = max(0, -((left - low) // 3)), None if high is None else (high - left) // 3
        if most is None or least <= most:
            alternatives.append(f"(?:{group}){{{least},{'' if most is None else most}}}{ending}")
    return f"(?:{'|'.join(alternatives)})"


def uuid(core: Core) -> JsonSchemaDict:
    """A ``UUID``; with a version, of the variant that has versions."""
    version = core.get("version")
    digit = "[0-9a-fA-F]"
    middle = f"{digit}{{4}}-{digit}{{4}}" if version is None else f"{version}{digit}{{3}}-[89abAB]{digit}{{3}}"
    return anchored(f"{digit}{{8}}-{digit}{{4}}-{middle}-{digit}{{12}}")


_SPECIAL = ("file", "ftp", "http", "https", "ws", "wss")  # schemes whose hosts are checked
_PORT = "(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}))?"
_PATH_CHARACTER = f"(?:[{SUB_DELIMS}:@{UNRESERVED}]|{PCT_ENCODED})"
_QUERY_CHARACTER = f"(?:[{SUB_DELIMS}:@/?{UNRESERVED}]|{PCT_ENCODED})"
_ENDING = f"(?:\\?{_QUERY_CHARACTER}*)?(?:#{_QUERY_CHARACTER}*)?"
_PATH = f"(?:{_PATH_CHARACTER}|/)*"
_USER = f"(?:[{UNRESERVED}]|{PCT_ENCODED})"
_LOGIN = f"(?:{_USER}+(?::{_USER}*)?@)?"


def _not_words(words: tuple[str, ...], others: str) -> str:
    """Names of a letter and these characters (the inside of a class) that are none of the words."""
    alternatives = []
    for prefix in sorted({word[:end] for word in words for end in range(len(word))}):
        taken = {word[len(prefix)] for word in words if word.startswith(prefix) and len(word) > len(prefix)}
        inside = (others if prefix else "a-z").replace("a-z", ascii_lowercase).replace("0-9", digits)
        free = sorted(set(inside) - taken, key=lambda symbol: (symbol == "-", inside.index(symbol)))
        alternatives.append(f"{prefix}[{''.join(free)}][{others}]*")
        if prefix and prefix not in words:
            alternatives.append(prefix)
    alternatives += [f"{word}[{others}]+" for word in words if not any(o != word and o.startswith(word) for o in words)]
    return f"(?:{'|'.join(alternatives)})"


def _name(labels: str, most: int) -> str:
    """Host names in ASCII; the last label begins with a letter, for a number would be part of an IPv4 address."""
    return f"(?:{label('a-z0-9', most)}\\.){labels}[a-z][a-z0-9]{{0,{most - 1}}}"


_HOST = f"(?:{_name('*', 63)}|{IPV4}|\\[{IPV6}\\])"


def _sized(core: Core) -> JsonSchemaDict:
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

    def add(pattern: str, least: int, more: int) -> None:
        """Texts of a pattern whose shortest has ``least`` characters, and to which Pydantic adds ``more`` at most."""
        json_schema: JsonSchemaDict = {"pattern": f"^{pattern}$", "minLength": low}
        most = [bound for bound in (limit, None if high is None else high - more) if bound is not None]
        if most:
            json_schema["maxLength"] = min(most)
        if not most or min(most) >= max(low, least):
            alternatives.append(json_schema)

    if schemes is None or hosted:
        written = "|".join(map(literal, hosted)) or _SCHEME
        start, least = f"(?:{written})://{_PLAIN_HOST}", len("://b") + min(map(len, hosted), default=1)
        instead = max(0, defaults["path"] - 1)  # a lone slash also means the default path
        add(f"{start}(?:/{_PLAIN}*)+", least + 1, added + instead)
        add(start, least, added + max(1, defaults["path"]))
    if schemes is not None and _takes_hostless_files(core) and "file" in schemes:
        add(f"file://(?:/{_PLAIN}*)+", len("file:///"), defaults["host"])
    if not alternatives:
        raise ValueError(f"max_length={high} leaves no room for a URL")
    return narrower({"type": "string", "anyOf": alternatives}, "url")


_ROOMY = 300  # characters in which user names, ports and queries have their shares
_PLAIN = "[A-Za-z0-9_~-]"
_PLAIN_HOST = r"[a-z][a-z0-9]{0,62}(?:\.[a-z][a-z0-9]{0,30}){0,3}"


def _takes_hostless_files(core: Core) -> bool:
    return not core.get("host_required") and core.get("default_port") is None


def url(core: Core) -> JsonSchemaDict:
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
            alternatives.append(f"{_not_words(_SPECIAL, 'a-z0-9+.-')}:{_PATH_CHARACTER}{_PATH}{_ENDING}")
    else:
        if "file" in schemes and _takes_hostless_files(core):
            path = _PATH if limit is None else f"[/{UNRESERVED}]{{0,{max(0, limit - len('file:///'))}}}"
            alternatives.append(f"file:///{path}")
        if hosted := [scheme for scheme in schemes if scheme != "file"]:
            written = "|".join(map(literal, hosted))
            alternatives.append(f"(?:{written}){_behind_scheme(limit, max(map(len, hosted)))}")
            if core.get("default_host") and not set(hosted) & set(_SPECIAL):
                alternatives.append(f"(?:{written})://")
    return anchored(f"(?:{'|'.join(alternatives)})", "url")


def multi_host_url(core: Core) -> JsonSchemaDict:
    """A URL with one host or several."""
    if any(core.get(name) is not None for name in ("max_length", "value_min_length", "value_max_length")):
        return url(core)
    schemes: list[str] | None = core.get("allowed_schemes")
    written = f"(?:{'|'.join(map(literal, schemes))})" if schemes else _SCHEME
    # Where hosts are checked, a list of hosts is no valid host.
    more = "" if schemes is None or set(schemes) & set(_SPECIAL) else f"(?:,{_HOST}{_PORT})*"
    return anchored(f"{written}://{_LOGIN}{_HOST}{_PORT}{more}(?:/{_PATH})?{_ENDING}", "url")


_SCHEME = f"(?:{_not_words(('file',), 'a-z0-9+.-')})"
_SHORT_SCHEME = "(?:[a-eg-z][a-z0-9+.-]{0,14}|ftp)"
_MOST = 400  # characters of path and query where there is a max_length


def _behind_scheme(limit: int | None, scheme: int) -> str:
    """Everything from :// on, for a scheme with a bounded number of characters."""
    if limit is None:
        return f"://{_LOGIN}{_HOST}{_PORT}(?:/{_PATH})?{_ENDING}"
    room = limit - scheme - len("://")
    if room < 1:
        raise ValueError(f"max_length={limit} leaves no room for a URL")
    if room < 200:
        rest = room // 2
        path = f"(?:/[/{UNRESERVED}]{{0,{rest - 1}}})?" if rest else ""
        return f"://[a-z][a-z0-9]{{0,{room - rest - 1}}}{path}"
    # Each part has a share, so that nothing has to count the whole: four labels of 31, and a character of the path or
    # the query may take three.
    login = f"(?:[{UNRESERVED}]{{1,16}}(?::[{UNRESERVED}]{{0,16}})?@)?" if room >= 400 else ""
    left = room - 128 - len(":65535") - 34 * bool(login) - len("/#")
    host = f"(?:{_name('{0,3}', 31)}|{IPV4}|\\[{IPV6}\\])"
    units, fragment = min(left // 4, _MOST), min(left // 4, 64)
    tail = f"(?:[/?]{_QUERY_CHARACTER}{{0,{units}}}(?:#[{UNRESERVED}]{{0,{fragment}}})?)?"
    return f"://{login}{host}{_PORT}{tail}"


def _v4_network() -> str:
    """Addresses whose bits after the prefix are zero: the octet that the prefix splits is one that fits any prefix."""
    alternatives = [IPV4 + "(?:/32)?"]
    for bits in range(32):
        whole, part = divmod(bits, 8)
        step = 256 >> part
        split = [str(value) for value in range(0, 256, step)]
        octets = [DEC_OCTET] * whole + [f"(?:{'|'.join(split)})"] + ["0"] * (3 - whole)
        alternatives.append("\\.".join(octets) + f"/{bits}")
    return f"(?:{'|'.join(alternatives)})"


def _v6_network() -> str:
    """Addresses whose bits after the prefix are zero: in the group that the prefix splits, and ``::`` after it."""
    alternatives = [f"{IPV6}(?:/128)?"]
    for bits in range(113):
        whole, part = divmod(bits, 16)
        shorter = f"(?:{H16}(?::{H16}){{0,{whole - 1}}})?" if whole else ""
        alternatives.append(f"{shorter}::/{bits}")
        if part:
            alternatives.append(f"(?:{H16}:){{{whole}}}{_split_group(part)}::/{bits}")
    # `::` replaces at least one group, so that the last one is written out.
    alternatives += [f"(?:{H16}:){{7}}{_split_group(part)}/{112 + part}" for part in range(1, 16)]
    return f"(?:{'|'.join(alternatives)})"


def _split_group(bits: int) -> str:
    """A group of four digits with this number of free bits; the others are zero."""
    whole, part = divmod(bits, 4)
    if not part:
        return f"[0-9A-Fa-f]{{1,{whole}}}0{{{4 - whole}}}"
    split = "".join(f"{value:x}{value:X}" if value > 9 else f"{value}" for value in range(0, 16, 16 >> part))
    free = f"[0-9A-Fa-f]{{0,{whole}}}" if whole else ""
    return f"{free}[{split}]0{{{3 - whole}}}"


def _named(pattern: str, *notes: str, **format: str) -> JsonSchemaDict:
    """The strings of a pattern; people and models read the name of their format instead."""
    json_schema = anchored(pattern, *notes)
    return shown(json_schema, type="string", **format) if format else json_schema


_V4_INTERFACE = f"{IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
_V6_INTERFACE = f"{IPV6}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
_V4_NETWORK, _V6_NETWORK = _v4_network(), _v6_network()
IP: dict[str, JsonSchemaDict] = {
    "IPv4Address": {"type": "string", "format": "ipv4"},
    "IPv6Address": narrower({"type": "string", "format": "ipv6"}, "IPv6"),
    "IPvAnyAddress": _named(f"(?:{IPV4}|{IPV6})", "IPv6", format="ipvanyaddress"),
    "IPv4Interface": _named(_V4_INTERFACE, "IP interface", format="ipv4interface"),
    "IPv6Interface": _named(_V6_INTERFACE, "IP interface", "IPv6", format="ipv6interface"),
    "IPvAnyInterface": _named(f"(?:{_V4_INTERFACE}|{_V6_INTERFACE})", "IP interface", "IPv6", format="ipvanyinterface"),
    "IPv4Network": _named(_V4_NETWORK, "IPv4Network", format="ipv4network"),
    "IPv6Network": _named(_V6_NETWORK, "IPv6Network", format="ipv6network"),
    "IPvAnyNetwork": _named(f"(?:{_V4_NETWORK}|{_V6_NETWORK})", "IPv4Network", "IPv6Network", format="ipvanynetwork"),
}
"""The types of Python's ``ipaddress`` and Pydantic's IPvAny..., by their names."""

_RESERVED = ("arpa", "invalid", "local", "localhost", "onion", "test", "example")
_TOP_LEVEL = _not_words(_RESERVED, "a-z").replace("*", "{0,15}").replace("+", "{1,15}")
_LOCAL = f"(?:[{ATEXT}]{{1,62}}|[{ATEXT}](?:\\.?[{ATEXT}]){{0,30}})"
_EMAIL = f"{_LOCAL}@(?:{label('a-z0-9', 24)}\\.){{1,4}}{_TOP_LEVEL}"
_NAME = r"[A-Za-z0-9_.-]{1,24}(?: [A-Za-z0-9_.-]{1,24}){0,3}"
_COLORS = "#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|black|blue|gray|green|orange|pink|purple|red|white|yellow"
EMAIL = _named(_EMAIL, "EmailStr", format="email")
NAME_EMAIL = _named(f"(?:{_EMAIL}|{_NAME} <{_EMAIL}>)", "NameEmail", format="name <email>")
COLOR = _named(f"(?:{_COLORS})", "Color")
MAC_ADDRESS = _named("[0-9a-f]{2}(?::[0-9a-f]{2}){5}", "MacAddress")
ULID = _named("[0-7][0-9A-HJKMNP-TV-Z]{25}", "ULID")
