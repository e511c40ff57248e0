"""Writes a recording into page.html: data as JSON, which page.js draws and does not interpret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from .events import Look, RowRecord, TokenRecord
from .token_labels import shown

_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}  # HTML could read the script's end there
_PLACES = 6  # significant digits of a probability


class TokenText(NamedTuple):
    """The text of a token.

    Args:
        data: its bytes; None if it is not text.
        name: its name in messages.
    """

    data: bytes | None
    name: str


def page(
    record: RowRecord,
    texts: Mapping[int, TokenText],
    *,
    constraint: str,
    vocab_size: int,
) -> str:
    """One HTML file without references to others; see ``Trace`` for the arguments."""
    data = {
        "constraint": constraint,
        "vocabSize": vocab_size,
        "tokens": [_token(token, texts) for token in record.tokens],
        "numbers": _numbers(record),
        "spans": _spans(record),
    }
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    whole = _asset("page.html")
    # The data is inserted last: it may contain any text, also one of the marks.
    for mark, part in ("/*CSS*/", _asset("page.css")), ("/*JS*/", _asset("page.js")), ("/*DATA*/", text):
        whole = whole.replace(mark, part, 1)
    return whole


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _numbers(record: RowRecord) -> dict[str, Any]:
    tokens, looked = len(record.tokens), [token.look for token in record.tokens if token.look is not None]
    return {
        "tokens": tokens,
        "forwards": record.forwards,
        "perForward": _rounded(tokens / record.forwards) if record.forwards else None,
        "forced": _rounded(record.forced / tokens) if tokens else 0.0,
        "removed": _rounded(record.removed),
        "asked": len(looked),
        "overruled": sum(look.overruled for look in looked),
    }


def _token(token: TokenRecord, texts: Mapping[int, TokenText]) -> dict[str, Any]:
    data = _text(token.token_id, texts) | {"id": token.token_id, "kind": token.kind}
    raw = texts[token.token_id].data
    if raw is not None:
        data["bytes"] = raw.hex(" ")
    if token.look is not None:
        data |= _look(token.look, texts)
    for name in "before", "after":
        if (value := getattr(token, name)) is not None:
            data[name] = _rounded(value)
    if token.span is not None:
        data["span"] = token.span
    return data


def _look(look: Look, texts: Mapping[int, TokenText]) -> dict[str, Any]:
    return {
        "allowed": look.allowed,
        "removed": _rounded(look.removed),
        "overruled": look.overruled,
        "best": [
            _text(alternative.token_id, texts)
            | {"id": alternative.token_id, "p": _rounded(alternative.probability), "ok": alternative.allowed}
            for alternative in look.best
        ],
    }


def _text(token_id: int, texts: Mapping[int, TokenText]) -> dict[str, Any]:
    data, name = texts[token_id]
    return {"text": shown(name.encode("utf-8", "replace")), "special": True} if data is None else {"text": shown(data)}


def _spans(record: RowRecord) -> list[dict[str, Any]]:
    begin = min((span.start_ns for span in record.spans), default=0)
    return [
        {
            "what": span.what,
            "start": _milliseconds(span.start_ns - begin),
            "ms": _milliseconds(span.end_ns - span.start_ns),
            "worker": span.on_worker,
        }
        for span in record.spans
    ]


def _rounded(value: float) -> float:
    rounded = float(f"{value:.{_PLACES}g}")
    return 1 - 10**-_PLACES if value < 1 <= rounded else rounded  # nearly all is not all


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 4)
