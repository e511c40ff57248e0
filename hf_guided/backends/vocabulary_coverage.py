"""Whether a vocabulary can write any text of a constraint: T5, for one, has no token with ``{`` in it.

Byte-complete vocabularies, nearly all there are, pass at once, and the native engine refuses such constraints itself.
For the other engines the constraint is compiled a second time, over single bytes, and walked along bytes that some
token holds, those that tend to close a text first. The walk is bounded: where it does not come to a verdict, a dead end
is still detected while generating.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..constraints.values import Choice, JsonObject, JsonSchema, StructuralTag
from ..vocabulary.bitmask import allocate_bitmask, unpack
from ..vocabulary.tokens import Vocabulary, single_bytes
from .adapter import unwritable
from .base import Backend, CompiledConstraint
from .matcher import Matcher
from .tag_marks import depends_on_tokens

_MAX_STEPS = 2000
_CLOSING_FIRST = b'"}]\n' + bytes(b for b in range(256) if b not in b'"}]\n')
_JSON_LAYOUT = frozenset(b"\n\r\t")  # in JSON only between tokens, where it makes no other text possible


def check_writable(compiled: CompiledConstraint, backend: Callable[[Vocabulary], Backend]) -> None:
    """Raise UnwritableConstraint where every text, or an option of a Choice, needs bytes that no token has."""
    vocabulary = compiled.vocabulary
    if len(vocabulary.writable_bytes) == 256:
        return
    from .lark_grammar import names_tokens  # reads schemas and patterns, which takes time to import

    if names_tokens(compiled.constraint):
        return
    if isinstance(compiled.constraint, Choice):
        for option in compiled.constraint.options:
            vocabulary.encode_bytes(option.encode())
        return
    if compiled.backend == "native":  # refuses them itself
        return
    if isinstance(compiled.constraint, StructuralTag) and depends_on_tokens(compiled.constraint.tag):
        return  # single bytes are other tokens
    held = frozenset(b"".join(token for token in vocabulary.token_bytes if token is not None))
    if isinstance(compiled.constraint, (JsonSchema, JsonObject)):
        held -= _JSON_LAYOUT
    missing = _missing(backend(single_bytes()).compile(compiled.constraint).matcher(), held) - _JSON_LAYOUT
    if missing:
        raise unwritable(compiled.constraint, sorted(missing))


def _missing(start: Matcher, held: frozenset[int]) -> set[int]:
    """Bytes at which every path was blocked; empty if a text was found, or the search grew too long to decide."""
    missing: set[int] = set()
    bitmask = allocate_bitmask(1, 257)
    matchers = [start]
    for _ in range(_MAX_STEPS):
        if not matchers:
            return missing
        matcher = matchers.pop()
        if matcher.is_completed():
            return set()
        matcher.fill_next_token_bitmask(bitmask)
        allowed = set(torch.nonzero(unpack(bitmask, 256)[0]).flatten().tolist())
        missing |= allowed - held
        for byte in reversed([byte for byte in _CLOSING_FIRST if byte in allowed & held]):
            fork = matcher.fork()
            fork.accept_token(byte)
            matchers.append(fork)
    return set()
