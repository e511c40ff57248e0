"""The automaton step as the decode loop takes it: every row has one token more, and its mask is there or is not.

Rows are at states of the demo package's first schema, over Tekken's tokens: the first of them for a smaller vocabulary,
pairs of them after the last for a larger one. Each call has its own rows. All calls share the tables of the constraint
and the tokens, and the pool of masks, as in a decode loop; the logits, by far the largest, are not shared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.device_timing import NODES, buffers_needed
from hf_guided import demo
from hf_guided.backends.automaton import AutomatonBackend, AutomatonEngine, Language
from hf_guided.constraints.values import JsonSchema
from hf_guided.hf.device.kernels import Kernels
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.vocabulary.bitmask import unpack
from hf_guided.vocabulary.tokens import Vocabulary

HOT, COLD, SHARED = "hot", "cold", "cold, all rows in one state"
KINDS = HOT, COLD, SHARED
_POOL_BYTES = 64 * 2**20


def resized(vocabulary: Vocabulary, tokens: int) -> Vocabulary:
    """The first tokens of a vocabulary, or all of them and pairs of them."""
    data = list(vocabulary.token_bytes[:tokens])
    texts, chosen = [one for one in data if one], random.Random(0)
    data += [chosen.choice(texts) + chosen.choice(texts) for _ in range(tokens - len(data))]
    return Vocabulary(tuple(data), vocabulary.stop_token_ids, tokens, vocabulary.tokenizer)


@dataclass(frozen=True, eq=False)
class Constrained:
    """A vocabulary and a constraint, and where rows may be.

    Args:
        vocabulary: the tokens.
        language: the constraint on the host.
        moves: (state, token) pairs that lead to different states.
        tokens: the vocabulary on the device.
        tables: the constraint on the device.
    """

    vocabulary: Vocabulary
    language: Language
    moves: Sequence[tuple[int, int]]
    tokens: VocabularyTables
    tables: LanguageTables

    @classmethod
    def of(cls, vocabulary: Vocabulary, most_rows: int, device: torch.device) -> Constrained:
        compiled = AutomatonBackend(vocabulary).compile(JsonSchema(demo.EXAMPLES[0].schema, whitespace="compact"))
        engine = compiled.new_engine()
        assert isinstance(engine, AutomatonEngine)
        language = engine.language
        return cls(
            vocabulary,
            language,
            moves_of(language, vocabulary.padded_size, most_rows),
            VocabularyTables.of(vocabulary, device=device),
            LanguageTables.of(language, device=device),
        )

    def allowed(self, state: int) -> Tensor:
        """(vocab,) bool, as the host lane has it."""
        may = unpack(torch.tensor(self.language.masks.of(state)).unsqueeze(0), self.vocabulary.padded_size)[0]
        may[list(self.vocabulary.stop_token_ids)] = bool(self.language.accepting[state])
        return may


def moves_of(language: Language, vocab: int, most: int) -> list[tuple[int, int]]:
    """Up to so many states with a token each, all leading to different ones."""
    chosen = random.Random(0)
    states = np.flatnonzero(language.can_end).tolist()
    chosen.shuffle(states)
    found: dict[int, tuple[int, int]] = {}
    for state in states:
        bits = unpack(torch.tensor(language.masks.of(state)).unsqueeze(0), vocab)[0]
        allowed = torch.nonzero(bits).flatten().tolist()
        if allowed:
            token = chosen.choice(allowed)
            found.setdefault(language.after(state, token), (state, token))
        if len(found) == most:
            break
    return list(found.values())


@dataclass(frozen=True, eq=False)
class Steps:
    """Lanes that are ready for a step each.

    Args:
        lanes: in the order of the calls; tables, masks and pool are shared.
        logits: (buffers, rows, vocab); the calls take them in turn.
        moves: for each lane the rows' moves.
        known: (lanes, rows) int32, all lanes' own.
        claims: (lanes or 1, slots) int32, all lanes' own.
        cold: whether the pool is to be empty at each step.
    """

    lanes: list[Lane]
    logits: Tensor
    moves: list[list[tuple[int, int]]]
    known: Tensor
    claims: Tensor
    cold: bool

    @classmethod
    def of(
        cls,
        where: Constrained,
        kernels: Kernels,
        kind: str,
        rows: int,
        *,
        dtype: torch.dtype,
        rotated: int,
        least: int = NODES,
    ) -> Steps:
        """Enough of them to rotate so many bytes.

        Args:
            where: constraint and vocabulary.
            kernels: fills the pool where it is to be full.
            kind: of ``KINDS``.
            rows: of each.
            dtype: of the logits.
            rotated: bytes of logits.
            least: calls at least.
        """
        device, vocab = where.tables.flags.device, where.vocabulary.padded_size
        buffers = buffers_needed(rows * vocab * dtype.itemsize, rotated)
        count = max(least, buffers)
        one = Lane.allocate(where.tokens, [where.tables], rows, 1, pool_bytes=_POOL_BYTES)
        one.language_of.zero_()
        one.length.fill_(1)
        if kind == HOT:
            kernels.fill_pool_(one)
        each = [rows * i for i in range(count)]
        moves = [
            [where.moves[(first + (0 if kind == SHARED else row)) % len(where.moves)] for row in range(rows)]
            for first in each
        ]
        numbers = torch.tensor(moves)  # (lanes, rows, 2)
        start = numbers[..., 0].to(torch.int32).contiguous().to(device)
        tokens = numbers[..., 1:].contiguous().to(device)

        def own(like: Tensor) -> Tensor:
            return torch.zeros(count, *like.shape, dtype=like.dtype, device=device)

        fresh = {name: own(getattr(one, name)) for name in ("shadow", "history", "known", "state_of", "slot_of")}
        fresh |= {"work": own(one.work), "work_count": own(one.work_count), "start": start, "tokens": tokens}
        claims = one.claims.unsqueeze(0) if kind == HOT else own(one.claims)
        lanes = [
            replace(one, claims=claims[i % len(claims)], **{name: tensor[i] for name, tensor in fresh.items()})
            for i in range(count)
        ]
        generator = torch.Generator(device).manual_seed(0)
        logits = torch.empty(buffers, rows, vocab, dtype=dtype, device=device)
        for buffer in logits:
            buffer.copy_(torch.randn(rows, vocab, generator=generator, device=device))
        return cls(lanes, logits, moves, fresh["known"], claims, kind != HOT)

    def reset(self) -> None:
        """Let every step have its token in front of it again, and find what masks it should."""
        self.known.zero_()
        if self.cold:
            self.claims.zero_()

    def calls(self, kernels: Kernels) -> list[Any]:
        """One for each lane."""

        def call(number: int) -> Any:
            lane, logits = self.lanes[number], self.logits[number % len(self.logits)]
            return lambda: kernels.step_(lane, logits)

        return [call(number) for number in range(len(self.lanes))]

    def check(self, where: Constrained, kernels: Kernels, most: int = 16) -> None:
        """Take the first step and compare some of its rows with the host lane."""
        self.reset()
        logits = self.logits[0].clone()
        kernels.step_(self.lanes[0], logits)
        for row, (state, token) in enumerate(self.moves[0][:most]):
            may = where.allowed(where.language.after(state, token)).to(logits.device)
            expected = self.logits[0][row].masked_fill(~may, float("-inf"))
            assert torch.equal(logits[row], expected), f"row {row} in state {state}, token {token}"

    @property
    def distinct(self) -> int:
        """States of a step's rows, at most."""
        return max(len(set(moves)) for moves in self.moves)
