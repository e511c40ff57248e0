"""Log probabilities of an answer's tokens, in the three shapes of OpenAI's routes.

They are the model's own: before the mask, penalties and temperature. JSON has no infinities: -inf is -9999.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...session.logprobs import TokenLogprob

_LEAST = -9999.0


class ShownToken(NamedTuple):
    """A token with its bytes as text, its log probability, and its alternatives, the most likely first."""

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]


def shown_token(token: TokenLogprob, name_of: Callable[[int], bytes], num_top: int) -> ShownToken:
    """A token as clients see it.

    Args:
        token: as an engine reports it.
        name_of: the bytes of a token; of a special one, its name.
        num_top: how many alternatives were requested.
    """
    top = tuple((name_of(token_id), finite(logprob)) for token_id, logprob in token.top.raw[:num_top])
    return ShownToken(name_of(token.token_id), finite(token.logprob), top)


def finite(logprob: float) -> float:
    """A log probability that JSON can hold."""
    return logprob if math.isfinite(logprob) else _LEAST


def chat_logprobs(tokens: Sequence[ShownToken]) -> dict[str, Any]:
    """``choices[].logprobs`` of /v1/chat/completions."""
    return {"content": [_with_top(token) for token in tokens], "refusal": None}


def response_logprobs(tokens: Sequence[ShownToken]) -> list[dict[str, Any]]:
    """``logprobs`` of an output text of /v1/responses."""
    return [_with_top(token) for token in tokens]


def completion_logprobs(tokens: Sequence[ShownToken], offset: int) -> dict[str, Any]:
    """``choices[].logprobs`` of /v1/completions.

    Args:
        tokens: of the answer.
        offset: of the first token in the text, in characters.
    """
    offsets = []
    data = b""
    for token in tokens:
        offsets.append(offset + len(data.decode(errors="ignore")))
        data += token.data
    return {
        "tokens": [_name(token.data) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{_name(data): logprob for data, logprob in token.top} for token in tokens],
        "text_offset": offsets,
    }


def _with_top(token: ShownToken) -> dict[str, Any]:
    return {**_plain(token.data, token.logprob), "top_logprobs": [_plain(*alternative) for alternative in token.top]}


def _plain(data: bytes, logprob: float) -> dict[str, Any]:
    return {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": logprob}


def _name(data: bytes) -> str:
    """The token's text; for a part of a character its bytes, as OpenAI writes them: several tokens differ in them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
