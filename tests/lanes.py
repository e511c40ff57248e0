"""Random automata, vocabularies and batches, and the same batch on the host lane, whose matchers are the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import torch
from torch import Tensor

from hf_guided.automaton.byte_dfa import ByteDfa, trimmed
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.token_trie import token_trie
from hf_guided.automaton.token_walk import TokenWalk
from hf_guided.backends.automaton import AutomatonEngine, Language
from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Choice
from hf_guided.errors import InvalidConstraint, UnwritableConstraint
from hf_guided.hf.device.lane import DEAD, STOPPED, Lane
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.hf.device.thinking import ThinkingLanguage
from hf_guided.session.reasoning import Opening, Reasoning, ReasoningGate
from hf_guided.session.reasoning_gate import ReasoningEngine, gate_constraint
from hf_guided.session.row import Row, RowState
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.toy import LetterTokenizer

LETTERS = bytes([0, 97, 98, 99, 127, 128, 254, 255])
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_AS_INT = {2: torch.int16, 4: torch.int32}
Step = Callable[[Lane, Tensor, Tensor | None], None]


class _NamesOnly(LetterTokenizer):
    """One that tokenizes nothing: the vocabulary finds the tokens of a text itself."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": []}


def random_vocabulary(
    random: Random, tokens: int, *, padding: int = 0, stops: int = 1, longest: int = 19
) -> Vocabulary:
    """Tokens over a few bytes, most of them short, some special; stop tokens anywhere, in the padding too."""
    data: list[bytes | None] = []
    for _ in range(tokens):
        length = random.randint(1, 3) if random.random() < 0.8 else random.randint(1, longest)
        data.append(bytes(random.choices(LETTERS, k=length)) if random.random() < 0.95 else None)
    if random.random() < 0.7:
        for place, letter in zip(random.sample(range(tokens), min(tokens, len(LETTERS))), LETTERS, strict=False):
            data[place] = bytes([letter])
    ends = tuple(sorted(random.sample(range(tokens + padding), min(stops, tokens + padding))))
    for end in ends:
        if end < tokens:
            data[end] = None
    marks = [random.choice(("ab", "ba", "aab", "c")) if random.random() < 0.5 else "<special>" for _ in data]
    names = _NamesOnly([mark if one is None else repr(one) for one, mark in zip(data, marks, strict=True)])
    return Vocabulary(tuple(data), ends, tokens + padding, names)


def random_dfa(random: Random, states: int) -> ByteDfa:
    """A language of about so many states, often none at all."""
    classes = random.randint(1, len(LETTERS))
    table = np.zeros((states + 1, classes), np.int64)
    for state in range(1, states + 1):
        for one in range(classes):
            if random.random() < 0.6:
                table[state, one] = random.randint(1, states)
    byte_class = np.array(random.choices(range(classes), k=256))
    accepting = np.array([False, *(random.random() < 0.3 for _ in range(states))])
    return trimmed(table, byte_class, accepting, 1, WorkMeter())


def language_of(dfa: ByteDfa, vocabulary: Vocabulary) -> Language:
    """What engines of the host lane share."""
    return Language(TokenWalk(dfa, token_trie(vocabulary)), vocabulary, WorkMeter())


def random_language(random: Random, vocabulary: Vocabulary, states: int) -> Language | None:
    """One that has texts which this vocabulary can write; None if none was found."""
    for _ in range(20):
        dfa = random_dfa(random, states)
        if dfa.start:
            language = language_of(dfa, vocabulary)
            if language.can_end[dfa.start]:
                return language
    return None


def compiled_from(language: Language, vocabulary: Vocabulary, state: int) -> CompiledConstraint:
    """A constraint that begins in a state of an automaton."""
    return CompiledConstraint(
        constraint=Choice(["stands in for an automaton"]),
        backend="automaton",
        vocabulary=vocabulary,
        new_engine=lambda: AutomatonEngine(language, [state]),
        nbytes=0,
        keeps_budget=True,
        keeps_masks=True,
    )


@dataclass
class Thinking:
    """A constraint after thinking, as the lanes take it."""

    gate: ReasoningGate
    answer: Language

    def row(self, opening: Opening) -> Row:
        """A row of the host lane before its first token."""
        compiled = compiled_from(self.answer, self.gate._base, self.answer.walk.dfa.start)
        return Row(gate_constraint(compiled, self.gate, opening).matcher())

    @property
    def language(self) -> ThinkingLanguage:
        """Its states on the device."""
        return ThinkingLanguage.of(self.engine_of(self.row(Opening.START)))

    @staticmethod
    def engine_of(row: Row) -> ReasoningEngine:
        assert row.matcher is not None and isinstance(row.matcher.engine, ReasoningEngine)
        return row.matcher.engine


def random_thinking(random: Random, vocabulary: Vocabulary, answer: Language) -> Thinking | None:
    """Markers of few letters, which overlap with themselves and with the answers; None if they cannot be written."""
    start, end = ("".join(random.choices("abc", k=random.randint(least, 4))) for least in (0, 1))
    most = random.choice((None, None, 0, 1, 5))
    try:
        return Thinking(ReasoningGate(vocabulary, Reasoning(start, end, most)), answer)
    except (UnwritableConstraint, InvalidConstraint):  # not writable, or it contains a stop token
        return None


@dataclass
class HostRow:
    """One row as the host lane has it."""

    row: Row
    language: int | None
    start: int
    limit: int | None
    tokens: list[int]
    thinking: ThinkingLanguage | None = None

    def write(self, tokens: list[int]) -> None:
        """Other tokens: go back to where they differ, and on from there."""
        same = 0
        while same < min(len(tokens), len(self.tokens)) and tokens[same] == self.tokens[same]:
            same += 1
        self.row.rewind(len(self.tokens) - same)
        for token in tokens[same:]:
            self.row.advance(token)
        self.tokens = list(tokens)

    @property
    def state(self) -> int:
        """As the device lane counts them."""
        if self.row.matcher is None or self.row.state is RowState.CLOSED:
            return DEAD
        if self.row.state is RowState.STOPPED:
            return STOPPED
        engine = self.row.matcher.engine
        if isinstance(engine, ReasoningEngine):
            assert self.thinking is not None
            return self.thinking.state_of(engine)
        assert isinstance(engine, AutomatonEngine)
        return engine._states[-1]

    def allowed(self, width: int) -> Tensor | None:
        """(width,) bool; None if the row is not masked."""
        bitmask = allocate_bitmask(1, width)
        left = None if self.limit is None else self.limit - len(self.tokens)
        return unpack(bitmask, width)[0] if self.row.fill(bitmask, 0, left) else None


@dataclass
class Batch:
    """The same rows on both lanes."""

    vocabulary: Vocabulary
    languages: list[Language | Thinking]
    lane: Lane
    rows: list[HostRow]

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        languages: Sequence[Language | Thinking],
        rows: int,
        capacity: int,
        *,
        pool_bytes: int = 1 << 20,
        budget: bool = True,
        wide: bool = False,
    ) -> Batch:
        """Free rows on both lanes; ``wide``: tables of uint32, as automata of more than 65,536 states have."""
        tables = [
            LanguageTables.of(one.language if isinstance(one, Thinking) else one, budget=budget) for one in languages
        ]
        if wide:
            tables = [replace(one, table=torch.from_numpy(one.table.numpy().astype(np.uint32))) for one in tables]
        lane = Lane.allocate(VocabularyTables.of(vocabulary), tables, rows, capacity, pool_bytes=pool_bytes)
        free = [HostRow(Row(None), None, 0, None, []) for _ in range(rows)]
        return cls(vocabulary, list(languages), lane, free)

    def assign(self, row: int, language: int | None, start: int | None = None, limit: int | None = None) -> None:
        """Reset a row on both lanes; one that thinks begins with the start marker if a start is given."""
        if language is None:
            self.lane.assign(row, None)
            self.rows[row] = HostRow(Row(None), None, 0, None, [])
            return
        shared = self.languages[language]
        if isinstance(shared, Thinking):
            opening = Opening.START if start is None else Opening.NOTHING
            made, known = shared.row(opening), shared.language
            engine = shared.engine_of(made)
            begin, until = known.state_of(engine), known.think_until(engine)
        else:
            begin, until, known = shared.walk.dfa.start if start is None else start, None, None
            made = Row(compiled_from(shared, self.vocabulary, begin).matcher())
        self.lane.assign(row, language, start=begin, limit=limit, think_until=until)
        self.rows[row] = HostRow(made, language, begin, limit, [], known)

    def write(self, row: int, tokens: list[int]) -> None:
        """Set the tokens that a row has generated, on both lanes."""
        self.rows[row].write(tokens)
        # After a row's length the buffer keeps old tokens, which must not be read.
        self.lane.tokens[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        self.lane.length[row] = len(tokens)

    def check(self, step: Step, logits: Tensor) -> None:
        """Take a step on the device lane and compare states, masks and what is alive."""
        width = self.vocabulary.padded_size
        expected, alive = logits.clone(), torch.zeros(len(self.rows), dtype=torch.int32)
        states, lively = [], []
        for line, row in zip(expected, self.rows, strict=True):
            may = row.allowed(width)
            states.append(row.state)
            if may is not None:
                line[:width].masked_fill_(~may[: line.shape[0]], -torch.inf)
                line[width:] = -torch.inf
            lively.append(may is None or bool((line > -torch.inf).any()))
        step(self.lane, logits, alive)
        assert self.lane.state_of.tolist() == states
        assert same_bits(logits, expected)
        assert alive.tolist() == [int(one) for one in lively]
        assert self.lane.work_count.item() == 0


def same_bits(one: Tensor, other: Tensor) -> bool:
    """NaN equals the same NaN, and 0.0 is not -0.0."""
    as_int = _AS_INT[one.element_size()]
    return torch.equal(one.contiguous().view(as_int), other.contiguous().view(as_int))


def random_logits(random: Random, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Numbers of all kinds; a view with any stride and any alignment that its type may have."""
    stride, offset = width + random.randint(0, 9), random.randint(0, 9)
    generator = torch.Generator().manual_seed(random.getrandbits(32))
    flat = torch.randn(offset + rows * stride + random.randint(0, 9), generator=generator).to(dtype)
    for strange in (torch.nan, torch.inf, -torch.inf, 0.0, -0.0):
        flat[torch.rand(flat.shape, generator=generator) < 0.03] = strange
    if random.random() < 0.2:
        flat[:] = -torch.inf
    return flat[offset : offset + rows * stride].view(rows, stride)[:, :width]


def next_tokens(random: Random, batch: Batch, row: int) -> list[int]:
    """What a row may have generated by the next step: mostly a few allowed tokens more, sometimes anything."""
    here = batch.rows[row]
    tokens = list(here.tokens)
    what = random.random()
    if what < 0.15:
        del tokens[random.randint(0, len(tokens)) :]
    if what < 0.1:
        return tokens
    if tokens and what > 0.9:
        tokens[random.randrange(len(tokens))] = 0  # what a buffer holds that nothing was written to
    if what < 0.25:
        others = [one.tokens for one in batch.rows if one.language == here.language]
        return list(random.choice(others))
    for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
        if len(tokens) == batch.lane.capacity:
            break
        here.write(tokens)
        may = here.allowed(batch.vocabulary.padded_size)
        allowed = [] if may is None else torch.nonzero(may).flatten().tolist()
        if allowed and random.random() < 0.9:
            tokens.append(random.choice(allowed))
        else:
            strange = random.choice((-1, 1 << 31, (1 << 32) + 1, -(1 << 40)))
            tokens.append(strange if random.random() < 0.1 else random.randrange(batch.vocabulary.padded_size))
    return tokens


def random_batch(random: Random, *, most_rows: int = 9) -> Batch | None:
    """A batch with a few constraints, free rows, budgets and prefixes; None where no language was found."""
    tokens = random.choice((1, 2, 7, 31, 32, 33, 64, 95, 300))
    vocabulary = random_vocabulary(random, tokens, padding=random.choice((0, 0, 1, 33)), stops=random.randint(1, 3))
    found = [random_language(random, vocabulary, random.randint(1, 9)) for _ in range(random.randint(1, 3))]
    languages: list[Language | Thinking] = [one for one in found if one is not None]
    for place, one in enumerate(languages):
        if random.random() < 0.4 and isinstance(one, Language):
            languages[place] = random_thinking(random, vocabulary, one) or one
    if not languages:
        return None
    batch = Batch.of(
        vocabulary,
        languages,
        random.randint(0, most_rows),
        random.choice((1, 4, 20, 300)),
        pool_bytes=random.choice((0, 24, 200, 1 << 20)),
        budget=random.random() < 0.7,
        wide=random.random() < 0.3,
    )
    for row in range(len(batch.rows)):
        if random.random() < 0.9:
            begin_anew(random, batch, row)
    return batch


def begin_anew(random: Random, batch: Batch, row: int) -> None:
    """Another constraint for a row, with a prefix or a budget now and then."""
    which = random.randrange(len(batch.languages))
    language = batch.languages[which]
    writable = [0] if isinstance(language, Thinking) else np.flatnonzero(language.can_end).tolist()
    start = random.choice(writable) if random.random() < 0.3 else None
    keeps = batch.lane.languages[which].needed is not None and random.random() < 0.5
    batch.assign(row, which, start, random.randint(0, 12) if keeps else None)


def run(random: Random, batch: Batch, step: Step, steps: int) -> None:
    """Let a batch live for some steps, and check every one."""
    for _ in range(steps):
        for row in range(len(batch.rows)):
            if random.random() < 0.05:
                begin_anew(random, batch, row)
            batch.write(row, next_tokens(random, batch, row))
        width = batch.vocabulary.padded_size + random.choice((0, 0, 0, 1, 40))
        if random.random() < 0.1:
            width = max(1, batch.vocabulary.padded_size - random.randint(0, 40))
        batch.check(step, random_logits(random, len(batch.rows), width, random.choice(DTYPES)))
