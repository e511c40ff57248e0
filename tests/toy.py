"""A toy vocabulary and a toy engine whose language anyone can check: a set of strings, walked letter by letter.

The engine knows nothing but that set, so it is an oracle for everything built on top of engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hf_guided.automaton.rtn import Component
from hf_guided.backends.base import CompiledConstraint, Engine, MaskedEngine
from hf_guided.constraints.values import Choice
from hf_guided.vocabulary.bitmask import words
from hf_guided.vocabulary.tokens import Vocabulary


class LetterTokenizer:
    """Stands in for a transformers tokenizer where only error texts need one."""

    def __init__(self, tokens: Sequence[str]):
        self.tokens = list(tokens)

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return self.tokens[token_id]

    def __len__(self) -> int:
        return len(self.tokens)


class GreedyTokenizer(LetterTokenizer):
    """One that writes too: the longest token that fits, again and again."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        ids = []
        while text:
            piece = max((token for token in self.tokens if text.startswith(token)), key=len)
            ids.append(self.tokens.index(piece))
            text = text[len(piece) :]
        return {"input_ids": ids}


def letters(alphabet: str = "abcd", *, stop: int = 1, padded_size: int | None = None) -> Vocabulary:
    """Vocabulary: a pad token, ``stop`` stop tokens, one token for each letter, one for each pair of letters."""
    texts = [*alphabet, *(a + b for a in alphabet for b in alphabet)]
    token_bytes = (None,) * (1 + stop) + tuple(text.encode() for text in texts)
    names = ["<pad>", *(f"<stop{i}>" for i in range(stop)), *texts]
    return Vocabulary(
        token_bytes=token_bytes,
        stop_token_ids=tuple(range(1, 1 + stop)),
        padded_size=padded_size or len(token_bytes),
        tokenizer=LetterTokenizer(names),  # type: ignore[arg-type]
    )


def all_bytes() -> Vocabulary:
    """Vocabulary: the 256 bytes, then a stop token; it can write anything."""
    token_bytes = (*(bytes([byte]) for byte in range(256)), None)
    return Vocabulary(
        token_bytes=token_bytes,
        stop_token_ids=(256,),
        padded_size=257,
        tokenizer=LetterTokenizer([*map(chr, range(256)), "<stop>"]),  # type: ignore[arg-type]
    )


def pieces(*texts: str) -> Vocabulary:
    """Vocabulary: a stop token, then every piece of these texts that there is."""
    found = sorted({text[i:j] for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)})
    return Vocabulary(
        token_bytes=(None, *(piece.encode() for piece in found)),
        stop_token_ids=(0,),
        padded_size=1 + len(found),
        tokenizer=GreedyTokenizer(["<stop>", *found]),  # type: ignore[arg-type]
    )


class SetEngine(Engine):
    """Engine whose language is a finite set of strings."""

    def __init__(self, vocabulary: Vocabulary, language: frozenset[bytes], taken: tuple[bytes, ...] = ()):
        self.vocabulary, self.language, self.taken = vocabulary, language, taken

    @property
    def text(self) -> bytes:
        return b"".join(self.taken)

    def _fits(self, text: bytes) -> bool:
        return any(word.startswith(text) for word in self.language)

    def accept(self, token_id: int) -> bool:
        data = self.vocabulary.token_bytes[token_id]
        if data is None or not self._fits(self.text + data):
            return False
        self.taken += (data,)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        ahead = self.fork()
        return next((i for i, token_id in enumerate(token_ids) if not ahead.accept(token_id)), len(token_ids))

    def rollback(self, num_tokens: int) -> None:
        self.taken = self.taken[: len(self.taken) - num_tokens]

    def fork(self) -> SetEngine:
        return SetEngine(self.vocabulary, self.language, self.taken)

    def fill(self, bitmask: Tensor, row: int) -> None:
        bitmask[row] = 0
        for token_id, data in enumerate(self.vocabulary.token_bytes):
            if data is not None and self._fits(self.text + data):
                word, bit = divmod(token_id, 32)
                bitmask[row, word] |= (1 << bit) - (1 << 32 if bit == 31 else 0)

    def is_completed(self) -> bool:
        return self.text in self.language

    def jump_forward_bytes(self) -> bytes:
        return b""


class ForcingSetEngine(SetEngine):
    """As its base, and knows what all the texts that it may still become have in common."""

    def jump_forward_bytes(self) -> bytes:
        rests = [word[len(self.text) :] for word in self.language if word.startswith(self.text)]
        shortest = min(rests, key=len)
        while not all(rest.startswith(shortest) for rest in rests):
            shortest = shortest[:-1]
        return shortest

    def fork(self) -> ForcingSetEngine:
        return ForcingSetEngine(self.vocabulary, self.language, self.taken)


def compiled_set(vocabulary: Vocabulary, *options: str, engine: type[SetEngine] = SetEngine) -> CompiledConstraint:
    """A finite language over ``letters()``."""
    language = frozenset(option.encode() for option in options)
    return CompiledConstraint(
        constraint=Choice(list(options)),
        backend="toy",
        vocabulary=vocabulary,
        new_engine=lambda: engine(vocabulary, language),
        nbytes=words(vocabulary.padded_size) * 4,
    )


def mask_of(
    engine: MaskedEngine, vocabulary: Vocabulary, tokens_left: int | None = None
) -> tuple[NDArray[np.int32], bool]:
    """(words,) int32: what an engine writes; and whether the text may stop."""
    mask = np.full(len(vocabulary.text_words), -1, np.int32)
    return mask, engine.write_mask(mask, tokens_left)


def components_of(engine: Any) -> list[Component]:
    """All components of the network that an engine of the native backend reads, built if they were not needed."""
    network, components = engine.network, []
    while len(components) < len(network.components):
        network.reach(len(components))
        components.append(network.components[len(components)])
    return components
