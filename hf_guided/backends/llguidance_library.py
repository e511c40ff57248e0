"""What llguidance is given and what it says: a tokenizer, a grammar of one terminal, the messages of its errors."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import (
    BackendError,
    CompileLimitExceeded,
    InvalidConstraint,
    Loss,
    UnsupportedConstraint,
    UnwritableConstraint,
)
from ..vocabulary.layout import words
from ..vocabulary.tokens import single_bytes

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

# What its messages about limits have in common.
_LIMIT = re.compile(r"too (many|large|big|complex|long|deep)|fuel|limit|exceed|max_(?!tokens)|max is", re.IGNORECASE)
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')  # parts of the grammar in a message
_REST = re.compile(r"\n +\d+ \| |\n<backtrace>")  # the rest after a message: lines of the grammar, or of the library
_DEAD_END = "NoExtensionBias"  # no token fits and the text may not stop: not an error here, the row just ends


def tokenizer(vocabulary: Vocabulary) -> Any:
    """A vocabulary as the library reads it."""
    import llguidance

    size, known = vocabulary.padded_size, len(vocabulary.token_bytes)
    texts = [*vocabulary.token_bytes, *[None] * (size - known)]
    special = [token_id for token_id, data in enumerate(texts) if data is None]

    class Tokens:
        """The attributes that TokenizerWrapper reads."""

        # Engines never see a stop token: any id that is no text will do, the vocabulary has at least its stop tokens.
        eos_token_id = vocabulary.stop_token_ids[0]
        bos_token_id = None
        special_token_ids = special
        # The first byte marks a special token for the library; a name keeps them apart.
        tokens = [b"\xff<|%d|>" % token_id if data is None else data for token_id, data in enumerate(texts)]

        def __call__(self, text: bytes | str) -> list[int]:
            try:
                return vocabulary.encode_bytes(text if isinstance(text, bytes) else text.encode())
            except UnwritableConstraint:
                return []  # raising here would break the library; that nothing writes the text is found out elsewhere

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens()), n_vocab=size)


@cache
def _byte_tokenizer() -> Any:
    return tokenizer(single_bytes())


def probe(limits: Any, grammar: str) -> tuple[bool, bool]:
    """Whether a grammar of an x and one terminal takes no text after the x, and whether it takes no text at all."""
    import llguidance

    matcher = llguidance.LLMatcher(_byte_tokenizer(), grammar, log_level=0, limits=limits)
    mask = np.zeros(words(257), np.int32)
    nullable = False
    if not matcher.is_error():
        if not matcher.consume_token(ord("x")):
            return False, True
        nullable = bool(matcher.is_accepting())
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error() and not is_dead_end(matcher):
        error = refusal(matcher.get_error())
        if isinstance(error, CompileLimitExceeded):
            raise error
        return False, False  # malformed, as the whole grammar will be
    return nullable, not nullable and not mask[: words(256)].any()


def is_dead_end(matcher: Any) -> bool:
    """Whether a matcher is in its error state only because no token continues the text."""
    # At the very first token the library takes it for a failure of its own.
    return bool(matcher.stop_reason() == _DEAD_END or matcher.get_error().startswith(_DEAD_END))


def refusal(message: str) -> Exception:
    """The error for a message of the library."""
    text = _REST.split(message.replace("<non-verbose/>", ""))[0].strip()
    said = _QUOTED.sub("", text.rpartition("\nerror: ")[2])  # the library's own words: names in a grammar may be any
    if _LIMIT.search(said):
        return CompileLimitExceeded(f"llguidance gave up: {text}; make the constraint smaller")
    if "InternalError" in said or "panic" in said:
        return BackendError(f"llguidance failed: {text}")
    if "supported" in said:
        return UnsupportedConstraint("llguidance cannot enforce this", [Loss("", "grammar", text)])
    return InvalidConstraint(f"llguidance cannot compile this: {text}")
