"""Whatever generate() does to its rows, the masks of each are those of its own tokens, replayed from the start.

Steps, beams, rejected drafts, several tokens at once, lookahead that is right or wrong, other prompts; and engines that
fail: a row whose text reaches a *poisoned* one ends alone, with the reason, and continues after a rewind.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Choice
from hf_guided.errors import StopTokenError
from tests.effort import repeats
from tests.sessions import session_of
from tests.toy import SetEngine, letters

VOCABULARY = letters("ab", stop=2)
STOPS = set(VOCABULARY.stop_token_ids)
TOKENS = range(len(VOCABULARY.token_bytes))
WIDTH = VOCABULARY.padded_size


class PoisonedEngine(SetEngine):
    """Fails wherever its text is a poisoned one; what it does then is undefined, so that nobody may call it again."""

    poison: frozenset[bytes]

    def accept(self, token_id: int) -> bool:
        accepted = super().accept(token_id)
        if self.text in self.poison:
            self.language = frozenset()
            raise RuntimeError("poison")
        return accepted

    def fork(self) -> PoisonedEngine:
        twin = PoisonedEngine(self.vocabulary, self.language, self.taken)
        twin.poison = self.poison
        return twin


class Language(NamedTuple):
    """All texts of a constraint, and those where its engine fails."""

    texts: frozenset[bytes]
    poison: frozenset[bytes]

    def compiled(self) -> CompiledConstraint:
        def new_engine() -> PoisonedEngine:
            engine = PoisonedEngine(VOCABULARY, self.texts)
            engine.poison = self.poison
            return engine

        options = [text.decode() for text in self.texts]
        return CompiledConstraint(Choice(options), "toy", VOCABULARY, new_engine, nbytes=100)

    def next_tokens(self, tokens: Sequence[int]) -> tuple[set[int], str]:
        """The tokens that may come after these, or the stop tokens and "stopped", "closed" or "failed"."""
        text = b""
        for token_id in tokens:
            if token_id in STOPS:
                return STOPS, "stopped" if text in self.texts else "closed"
            data = VOCABULARY.token_bytes[token_id]
            if data is None or not any(other.startswith(text + data) for other in self.texts):
                return STOPS, "closed"
            text += data
            if text in self.poison:
                return STOPS, "failed"
        allowed = {
            token_id
            for token_id, data in enumerate(VOCABULARY.token_bytes)
            if data is not None and any(other.startswith(text + data) for other in self.texts)
        }
        return allowed | (STOPS if text in self.texts else set()), "open"


LANGUAGES: list[Language | None] = [
    Language(frozenset([b"abab", b"ab", b"bbbbbb", b"a"]), frozenset([b"aba", b"bbb"])),
    Language(frozenset([b"ba", b"bab", b"aaaaaaa"]), frozenset([b"aaaa"])),
    Language(frozenset([b"babab", b"abba"]), frozenset()),
    None,
]


class Generation(RuleBasedStateMachine):
    @initialize(
        groups=st.lists(st.sampled_from(range(len(LANGUAGES))), min_size=1, max_size=3),
        copies=st.integers(1, 3),
        overlap=st.booleans(),
        data=st.data(),
    )
    def begin(self, groups: list[int], copies: int, overlap: bool, data: st.DataObject) -> None:
        self.languages = [LANGUAGES[group] for group in groups for _ in range(copies)]
        self.copies, self.fresh = copies, 1000
        compiled = [None if (language := LANGUAGES[group]) is None else language.compiled() for group in groups]
        self.session = session_of(VOCABULARY, compiled, overlap=overlap)
        self.new_prompt(data)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.session.reset()

    def after(self, row: int) -> tuple[set[int], str]:
        """The oracle of a row: see ``Language.next_tokens``."""
        language = self.languages[row]
        return (set(), "free") if language is None else language.next_tokens(self.ids[row, self.prompt :].tolist())

    def call(self, ids: np.ndarray) -> None:
        """One step of generate(), and what every row must get."""
        self.ids = ids
        scores = torch.randn(len(ids), WIDTH, generator=torch.Generator().manual_seed(ids.shape[1]))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*reached a dead end")
            try:
                masked = self.session.mask(torch.from_numpy(ids.copy()), scores)
            except StopTokenError:  # a lone row has no padding: generate() stops at other tokens
                assert len(ids) == 1 and self.after(0)[1] == "stopped"
                self.session.reset()
                self.prompt = ids.shape[1]
                return self.call(ids)
        for row in range(len(ids)):
            allowed, state = self.after(row)
            finite = set(masked[row].isfinite().nonzero().flatten().tolist())
            if state == "free":
                assert torch.equal(masked[row], scores[row])
            elif state == "open":
                assert finite == allowed, (row, ids[row])
                assert torch.equal(masked[row, list(allowed)], scores[row, list(allowed)])
            else:
                assert finite and finite <= STOPS, (row, ids[row], state)
                assert state != "failed" or "poison" in self.session.dead_ends[row]

    def grown(self, parents: Sequence[int], data: st.DataObject, number: int = 1) -> np.ndarray:
        """Rows of these parents with more tokens each: usually allowed ones, sometimes any."""
        rows = []
        for row, parent in enumerate(parents):
            tokens = self.ids[parent].tolist()
            for _ in range(number):
                language = self.languages[row]
                allowed = set() if language is None else language.next_tokens(tokens[self.prompt :])[0]
                any_token = number == 1 and not data.draw(st.integers(0, 5))
                tokens.append(data.draw(st.sampled_from(sorted(allowed) if allowed and not any_token else TOKENS)))
            rows.append(tokens)
        return np.array(rows, dtype=np.int64)

    @rule(data=st.data())
    def new_prompt(self, data: st.DataObject) -> None:
        self.fresh += 1  # a token that is not used elsewhere
        row = [self.fresh, *data.draw(st.lists(st.sampled_from(TOKENS), max_size=2))]
        self.prompt = len(row)
        self.call(np.array([row] * len(self.languages), dtype=np.int64))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.call(self.grown(range(len(self.ids)), data))

    @rule(data=st.data())
    def beams(self, data: st.DataObject) -> None:
        """Rows are permuted, repeated and dropped within their prompt."""
        first = [row // self.copies * self.copies for row in range(len(self.ids))]
        self.call(self.grown([row + data.draw(st.integers(0, self.copies - 1)) for row in first], data))

    @rule(data=st.data())
    def reject_drafts(self, data: st.DataObject) -> None:
        """Some tokens go, and the last one that remains is replaced by one that the grammar allows."""
        whole, length = self.ids, data.draw(st.integers(self.prompt, self.ids.shape[1]))
        if length > self.prompt:
            self.ids = whole[:, : length - 1]
            kept = self.grown(range(len(whole)), data, number=2)[:, :length]
            self.ids = whole
            self.call(kept)
        else:
            self.call(whole[:, :length].copy())

    @rule(data=st.data(), number=st.integers(2, 4))
    def several_tokens(self, data: st.DataObject, number: int) -> None:
        """Allowed, or after a failure: else the ids would be those of another prompt.

        An engine that fails on one of them fails where all of them are tried: before the first.
        """
        states = [self.after(row)[1] for row in range(len(self.ids))]
        if {*states} <= {"open", "free", "failed"}:
            ids = self.grown(range(len(self.ids)), data, number)
            before, self.ids = self.ids, ids
            later = [self.after(row)[1] for row in range(len(ids))]
            self.ids = before
            if "closed" not in later and states.count("failed") == later.count("failed"):
                self.call(ids)

    @rule(data=st.data(), comes=st.booleans())
    def look_ahead(self, data: st.DataObject, comes: bool) -> None:
        """The masks of the next ids are filled before these come, or others."""
        ids = self.grown(range(len(self.ids)), data)
        self.session.look_ahead(torch.from_numpy(ids.copy()))
        if comes:
            self.call(ids)
        else:
            self.step(data)

    @rule()
    def same_ids(self) -> None:
        self.call(self.ids)

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        self.session.reset()
        assert not self.session.dead_ends
        self.new_prompt(data)


Generation.TestCase.settings = settings(max_examples=repeats(60, 500), stateful_step_count=15)
TestGeneration = Generation.TestCase
