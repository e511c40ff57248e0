"""For any changes of input_ids, the state of each row's matcher equals that of a new matcher after the row's tokens.

A state machine imitates generate(): steps, permuted and repeated beams (some of them dead), rejected drafts, prompts.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hf_guided.session.row import Row, RowState
from hf_guided.session.tracker import LookaheadStep, RowTracker
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.effort import repeats
from tests.toy import compiled_set, letters

VOCABULARY = letters("ab", stop=2)
LANGUAGES = [
    compiled_set(VOCABULARY, "abab", "ab", "bbbbbb", "a"),
    compiled_set(VOCABULARY, "ba", "bab", "aaaaaaa"),
    None,
]
TOKENS = range(len(VOCABULARY.token_bytes))


class Generation(RuleBasedStateMachine):
    @initialize(groups=st.lists(st.integers(0, 2), min_size=1, max_size=3), copies=st.integers(1, 4), data=st.data())
    def begin(self, groups: list[int], copies: int, data: st.DataObject) -> None:
        self.languages = [LANGUAGES[g] for g in groups]
        self.copies = copies
        self.reported: list[int] = []
        self.tracker = RowTracker(self.new_rows, lambda i, row, token_id: self.reported.append(i))
        self.new_prompt(data)

    def new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        assert num_rows == self.copies * len(self.languages)
        rows = [self.language(i) for i in range(num_rows)]
        return [Row(None if compiled is None else compiled.matcher()) for compiled in rows], self.copies

    def language(self, row: int):
        return self.languages[row // self.copies]

    @rule(data=st.data())
    def new_prompt(self, data: st.DataObject) -> None:
        """A new prompt, which starts with a token that is not used elsewhere."""
        length = data.draw(st.integers(1, 3))
        self.fresh = getattr(self, "fresh", 1000) + 1
        row = [self.fresh, *data.draw(st.lists(st.sampled_from(TOKENS), min_size=length, max_size=length))]
        self.prompt_length = len(row)
        self.call(np.array([row] * self.copies * len(self.languages), dtype=np.int64))

    def call(self, ids: np.ndarray) -> None:
        self.reported.clear()
        self.ids = ids
        self.rows = self.tracker.update(ids)

    def replay(self, row: int) -> Row:
        """The oracle: a new matcher after the tokens of the row."""
        language = self.language(row)
        expected = Row(None if language is None else language.matcher())
        for token_id in self.ids[row, self.prompt_length :].tolist():
            expected.advance(token_id)
        return expected

    def draw_token(self, data: st.DataObject, row: int) -> int:
        """Usually an allowed token, sometimes any token: a dead beam, a forced token, padding."""
        matcher = self.rows[row].matcher
        allowed = [] if matcher is None else [t for t in TOKENS if matcher.fork().accept_token(t)]
        return data.draw(st.sampled_from(allowed if allowed and data.draw(st.integers(0, 5)) else list(TOKENS)))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Every row gets one more token."""
        new = [[self.draw_token(data, i)] for i in range(len(self.ids))]
        self.call(np.hstack([self.ids, np.array(new)]))

    @rule(data=st.data())
    def beams(self, data: st.DataObject) -> None:
        """Rows are permuted, repeated and dropped within their prompt, and get one more token."""
        parents = [
            i // self.copies * self.copies + data.draw(st.integers(0, self.copies - 1)) for i in range(len(self.ids))
        ]
        new = [[self.draw_token(data, parent)] for parent in parents]
        self.call(np.hstack([self.ids[parents], np.array(new)]))

    @rule(data=st.data())
    def reject_drafts(self, data: st.DataObject) -> None:
        """Remove some tokens, and continue with a token that the grammar allows."""
        length = data.draw(st.integers(self.prompt_length, self.ids.shape[1]))
        if length == self.prompt_length:
            self.call(self.ids[:, :length].copy())
            return
        kept = self.ids[:, :length].copy()
        rows = [self.replay_to(i, length - 1) for i in range(len(kept))]
        for i, row in enumerate(rows):
            allowed = [t for t in TOKENS if row.fork().advance(t)]
            if allowed:
                kept[i, -1] = data.draw(st.sampled_from(allowed))
        self.call(kept)

    def replay_to(self, row: int, length: int) -> Row:
        whole, self.ids = self.ids, self.ids[:, :length]
        try:
            return self.replay(row)
        finally:
            self.ids = whole

    @rule()
    def repeat_call(self) -> None:
        """The same input_ids again, as when the main model runs after its assistant."""
        self.call(self.ids.copy())

    @rule()
    def other_prompt_in_between(self) -> None:
        """An assistant with other token ids uses the same tracker, then this prompt continues."""
        ours, other = self.ids, np.full((len(self.ids), 2), 7_000_000)
        self.tracker.update(other)
        self.call(ours)

    def take_ahead(self, new: list[list[int]]) -> LookaheadStep:
        """Take a lookahead step, and fill the masks after it."""
        self.reported.clear()
        step = self.tracker.next_step(np.hstack([self.ids, np.array(new)]))
        assert step is not None
        bitmask = allocate_bitmask(len(new), VOCABULARY.padded_size)
        for i, row in enumerate(step.take()):
            row.fill(bitmask, i)
        return step

    @rule(data=st.data())
    def wrong_lookahead(self, data: st.DataObject) -> None:
        """The call gets other ids, so the state must be as without a lookahead."""
        self.take_ahead([[self.draw_token(data, i)] for i in range(len(self.ids))]).undo()
        self.reported.clear()

    @rule(data=st.data())
    def look_ahead(self, data: st.DataObject) -> None:
        """The call gets these ids, and sometimes gets them twice."""
        new = [[self.draw_token(data, i)] for i in range(len(self.ids))]
        self.take_ahead(new)
        self.ids = np.hstack([self.ids, np.array(new)])
        if data.draw(st.booleans()):
            self.call(self.ids)

    @invariant()
    def every_row_is_in_the_state_after_its_tokens(self) -> None:
        for i, row in enumerate(self.rows):
            expected = self.replay(i)
            assert row.state is expected.state, (i, self.ids[i])
            assert row.tail == expected.tail
            if row.matcher is not None:
                assert row.matcher._engine.taken == expected.matcher._engine.taken  # type: ignore[union-attr]

    @invariant()
    def violations_are_reported_once_each(self) -> None:
        for i in self.reported:
            assert self.rows[i].state is RowState.CLOSED


Generation.TestCase.settings = settings(max_examples=repeats(50, 150), stateful_step_count=12)
TestGeneration = Generation.TestCase
