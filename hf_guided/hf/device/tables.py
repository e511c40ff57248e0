"""Tensors that do not change during generation: a vocabulary's bytes and a constraint's automaton."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...automaton.budget import NEVER
from ...vocabulary.bitmask import words
from .thinking import AnyLanguage, ThinkingLanguage

if TYPE_CHECKING:
    from ...vocabulary.tokens import Vocabulary

ACCEPTING, CAN_END = 1, 2  # flags of a state: the text may stop here; tokens may lead here
MAX_MOVES = (1 << 32) - 1  # of an automaton: the maximum of 32-bit indices
_BYTES = 8  # to a word


@dataclass(frozen=True, eq=False)
class VocabularyTables:
    """Bytes of every text token; immutable.

    Args:
        token_bytes: (words,) int64, 8 bytes to a word, the first in its lowest bits; each token begins a word.
        token_start: (tokens,) int32, the first word of each.
        token_length: (tokens,) int32, in bytes; 0 for special tokens, stop tokens and tokens without bytes, which are
            never walked.
        stops: (stops,) int32, tokens that end a row.
        mask_words: how many words a mask has.
    """

    token_bytes: Tensor
    token_start: Tensor
    token_length: Tensor
    stops: Tensor
    mask_words: int

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        stop_token_ids: Iterable[int] | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> VocabularyTables:
        """Make the tables of a vocabulary.

        Args:
            vocabulary: the tokens.
            stop_token_ids: tokens that end a row; None means the vocabulary's.
            device: of the tensors.
        """
        stops = vocabulary.stop_token_ids if stop_token_ids is None else tuple(stop_token_ids)
        texts = [data or b"" for data in vocabulary.token_bytes]
        for token_id in stops:
            if token_id < len(texts):  # a stop token may be a column of the logits that the tokenizer does not know
                texts[token_id] = b""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.concatenate(([0], np.cumsum(-(-lengths // _BYTES))))
        padded = b"".join(data.ljust(-(-len(data) // _BYTES) * _BYTES, b"\0") for data in texts)
        packed = np.frombuffer(padded or bytes(_BYTES), "<i8").astype(np.int64)  # never empty: kernels need an address
        return cls(
            token_bytes=torch.from_numpy(packed).to(device),
            token_start=torch.from_numpy(starts[:-1].astype(np.int32)).to(device),
            token_length=torch.from_numpy(lengths.astype(np.int32)).to(device),
            stops=torch.tensor(stops, dtype=torch.int32, device=device),
            mask_words=words(vocabulary.padded_size),
        )


@dataclass(frozen=True, eq=False)
class LanguageTables:
    """One constraint's automaton over bytes, and the states of thinking before it; immutable.

    Args:
        table: (states of the automaton, classes) uint16 or uint32, where a class of bytes leads; state 0 is dead.
        byte_class: (256,) uint8, the class of each byte.
        flags: (states,) uint8, ``ACCEPTING`` and ``CAN_END``; longer than ``table`` by the states of thinking.
        needed: (states,) int32, tokens to the end, the stop token included; None without budgets.
        worst: the largest number of tokens that a state needs.
        start: the state before the first token.
        can_end: (states,) bool on the host: which flags have ``CAN_END``.
        free_moves: (matched, tokens) int32, where tokens lead from the free states of thinking (see thinking.py), 0 for
            refused ones; None without thinking.
        forced_moves: (matched + start tokens, 2) int32, the only token of the ending and opening states, and where it
            leads; None without thinking.
        forced_within: with this number of tokens left, or fewer, thinking has to end.
    """

    table: Tensor
    byte_class: Tensor
    flags: Tensor
    needed: Tensor | None
    worst: int
    start: int
    can_end: NDArray[np.bool_]
    free_moves: Tensor | None = None
    forced_moves: Tensor | None = None
    forced_within: int = 0

    @classmethod
    def of(cls, language: AnyLanguage, *, budget: bool = False, device: torch.device | str = "cpu") -> LanguageTables:
        """Make the tables of a compiled constraint.

        Args:
            language: the data that the host's engines share; after thinking, or without.
            budget: whether rows may have a token budget; counting the needed tokens takes time once.
            device: of the tensors.

        Raises:
            ValueError: the automaton has more than ``MAX_MOVES`` moves.
        """
        thinking, answer = (language, language.language) if isinstance(language, ThinkingLanguage) else (None, language)
        dfa = answer.walk.dfa
        if dfa.table.size > MAX_MOVES:
            raise ValueError(f"the automaton has {dfa.table.size} moves, the device lane supports at most {MAX_MOVES}")
        can_end = np.asarray(language.can_end)
        flags = np.where(can_end, CAN_END, 0)
        flags[: dfa.states] |= np.where(dfa.accepting, ACCEPTING, 0)
        counted = None
        if budget:
            counted = answer.budget[0].needed if thinking is None else thinking.needed
        return cls(
            table=torch.from_numpy(np.array(dfa.table)).to(device),  # a copy: the automaton's own may be read-only
            byte_class=torch.from_numpy(dfa.byte_class.astype(np.uint8)).to(device),
            flags=torch.from_numpy(flags.astype(np.uint8)).to(device),
            needed=None if counted is None else torch.from_numpy(counted.astype(np.int32)).to(device),
            worst=0 if counted is None else int(counted[counted < NEVER].max(initial=0)),
            start=dfa.start,
            can_end=can_end,
            free_moves=None if thinking is None else torch.from_numpy(thinking.free_moves()).to(device),
            forced_moves=None if thinking is None else torch.from_numpy(thinking.forced_moves).to(device),
            forced_within=0 if thinking is None or not budget else thinking.forced_within,
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All that the kernels read."""
        found = self.table, self.byte_class, self.flags, self.needed, self.free_moves, self.forced_moves
        return [tensor for tensor in found if tensor is not None]

    @property
    def states(self) -> int:
        """The number of states, the dead one and those of thinking included."""
        return len(self.flags)
