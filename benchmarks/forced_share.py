"""Which tokens of a text lie wholly in forced text? Decided byte by byte by llguidance, over single bytes.

A byte is forced where the grammar allows that one byte and no end. No token, no automaton and no forced text of ours
has a part in it; only the grammar is the one that hf-guided writes, so that both speak of the same language.
"""

from __future__ import annotations

from collections.abc import Sequence

import llguidance
import numpy as np
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from hf_guided.constraints.values import JsonSchema
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.to_lark import lark_grammar

_END = 256


class _Bytes:
    """A vocabulary of the 256 bytes and an end, as llguidance wants to see one."""

    eos_token_id, bos_token_id = _END, None
    tokens = [*(bytes([byte]) for byte in range(256)), b"<|end|>"]
    special_token_ids = [_END]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


class ForcedBytes:
    """Finds forced bytes of texts that satisfy one schema.

    Args:
        constraint: the schema and its white space.
    """

    def __init__(self, constraint: JsonSchema):
        tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
        closed = constraint.extra == "forbid"
        grammar = lark_grammar(Normalizer.of(constraint), constraint.style, closed=closed)
        self._start = llguidance.LLMatcher(tokenizer, grammar + '\n%llguidance {"no_forcing": true}')
        self._bitmask = allocate_token_bitmask(1, _END + 1)

    def share(self, tokens: Sequence[bytes]) -> tuple[int, int]:
        """How many of the tokens lie in forced text, and how many there are; the end counts as one that does.

        Raises:
            ValueError: the text is not in the language.
        """
        matcher = self._start.deep_copy()
        forced: list[bool] = []
        for byte in b"".join(tokens):
            fill_next_token_bitmask(matcher, self._bitmask)
            allowed = np.flatnonzero(np.unpackbits(self._bitmask[0].view(np.uint8), bitorder="little"))
            forced.append(len(allowed) == 1)
            if byte not in allowed or not matcher.consume_token(byte):
                raise ValueError(f"byte {len(forced) - 1} of {b''.join(tokens)!r} is not allowed")
        if not matcher.is_accepting():
            raise ValueError(f"{b''.join(tokens)!r} is not finished")
        ends = np.cumsum([len(token) for token in tokens]).tolist()
        starts = [0, *ends[:-1]]
        return 1 + sum(all(forced[a:b]) for a, b in zip(starts, ends, strict=True)), len(tokens) + 1
