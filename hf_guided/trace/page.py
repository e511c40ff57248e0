"""Writes a recording into page.html: data as JSON, which page.js draws and does not interpret."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .events import Span, TokenRecord, TokenText

if TYPE_CHECKING:
    from .trace import Trace

_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}  # HTML could read the script's end there
_PLACES = 6  # significant digits of a probability
_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"}  # categories of characters


def page(trace: Trace) -> str:
    """One HTML file without references to others."""
    data = {
        "constraint": trace.constraint,
        "vocabSize": trace.vocab_size,
        "tokens": [_token(token, trace.texts) for token in trace.tokens],
        "numbers": _numbers(trace),
        "spans": _spans(trace.spans),
    }
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    whole = _asset("page.html")
    # The data is inserted last: it may contain any text, also one of the marks.
    for mark, part in ("/*CSS*/", _asset("page.css")), ("/*JS*/", _asset("page.js")), ("/*DATA*/", text):
        whole = whole.replace(mark, part, 1)
    return whole


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _numbers(trace: Trace) -> dict[str, Any]:
    tokens, looked = len(trace.tokens), [token.look for token in trace.tokens if token.look is not None]
    return {
        "tokens": tokens,
        "forwards": trace.forwards,
        "perForward": _rounded(tokens / trace.forwards) if trace.forwards else None,
        "forced": _rounded(trace.forced / tokens) if tokens else 0.0,
        "removed": _rounded(trace.removed),
        "asked": len(looked),
        "overruled": sum(look.overruled for look in looked),
        "thinkingCut": trace.thinking_cut,
        "logMass": None if trace.log_mass is None else _rounded(trace.log_mass),
    }


def _token(token: TokenRecord, texts: Mapping[int, TokenText]) -> dict[str, Any]:
    data = _text(token.token_id, texts) | {"id": token.token_id, "kind": token.kind}
    raw = texts[token.token_id].data
    if raw is not None:
        data["bytes"] = raw.hex(" ")
    if (look := token.look) is not None:
        data["allowed"], data["removed"], data["overruled"] = look.allowed, _rounded(look.removed), look.overruled
        if (limit := look.limit) is not None:
            preferred = _text(limit.preferred, texts)
            data["limit"] = {"left": _rounded(math.exp(limit.log_mass)), "overruled": limit.overruled, **preferred}
            data["limit"]["of"] = "limit of the thinking" if limit.thinking else "token limit"
        data["best"] = [
            _text(alternative.token_id, texts)
            | {"id": alternative.token_id, "p": _rounded(alternative.probability), "ok": alternative.allowed}
            for alternative in look.best
        ]
    for name in "before", "after":
        if (value := getattr(token, name)) is not None:
            data[name] = _rounded(value)
    if token.log_mass is not None:
        data["left"] = _rounded(math.exp(token.log_mass))
    if token.span is not None:
        data["span"] = token.span
    return data


def _text(token_id: int, texts: Mapping[int, TokenText]) -> dict[str, Any]:
    data, name = texts[token_id]
    return {"text": shown(name.encode("utf-8", "replace")), "special": True} if data is None else {"text": shown(data)}


def _spans(spans: Sequence[Span]) -> list[dict[str, Any]]:
    begin = min((span.start_ns for span in spans), default=0)
    return [
        {
            "what": span.what,
            "start": _milliseconds(span.start_ns - begin),
            "ms": _milliseconds(span.end_ns - span.start_ns),
            "worker": span.on_worker,
        }
        for span in spans
    ]


def _rounded(value: float) -> float:
    rounded = float(f"{value:.{_PLACES}g}")
    return 1 - 10**-_PLACES if value < 1 <= rounded else rounded  # nearly all is not all


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 4)


def shown(data: bytes) -> str:
    r"""Bytes as text in which everything is visible; spaces stay as they are.

    Control characters become their pictures (``\n`` becomes ``↵``), other invisible characters, such as those that
    change the direction of writing, become their numbers. Incomplete characters, because a token ends in the middle of
    one, become their bytes: ``⟨F0 9F⟩``. A combining mark without a letter is put on a circle.
    """
    parts: list[str] = []
    loose: list[str] = []  # bytes without a character
    for character in data.decode("utf-8", "surrogateescape"):
        code = ord(character)
        if 0xDC80 <= code <= 0xDCFF:
            loose.append(f"{code - 0xDC00:02X}")
            continue
        if loose:
            parts.append(f"⟨{' '.join(loose)}⟩")
            loose = []
        parts.append(_character(character, first=not parts))
    if loose:
        parts.append(f"⟨{' '.join(loose)}⟩")
    return "".join(parts)


def _character(character: str, *, first: bool) -> str:
    code, category = ord(character), unicodedata.category(character)
    if character == " ":
        return character
    if character in "\n\t":
        return {"\n": "↵", "\t": "⇥"}[character]
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if category in _INVISIBLE:
        return f"⟨U+{code:04X}⟩"
    return f"◌{character}" if first and category in ("Mn", "Me") else character
