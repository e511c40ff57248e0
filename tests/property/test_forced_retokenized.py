"""The token before forced text may be replaced. Then the row is in the state after its new tokens."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.hf.decode.forced_text import ForcedText
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.property.test_continuation import vocabulary
from tests.property.test_forced import TEXTS, automaton, forced_text
from tests.property.test_forced_segments import OPTIONS, VOCABULARIES, tokens


def first_tokens(name: str, text: str) -> list[int]:
    """Single tokens that write a beginning of the text."""
    written = [tokens(name, text[:end]) for end in range(1, len(text) + 1)]
    return [token_ids[0] for token_ids in written if len(token_ids) == 1]


@cache
def retokenizing(name: str) -> ForcedText:
    return forced_text(name, retokenize=True)


def mask(row: Row, name: str) -> list[int]:
    bitmask = allocate_bitmask(1, vocabulary(name).padded_size).zero_()
    row.fill(bitmask, 0)
    return bitmask[0].tolist()


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=30)
@given(text=TEXTS, left=st.none() | st.integers(40, 60))
def test_only_text_gets_the_tokens_of_the_tokenizer(name: str, text: str, left: int | None) -> None:
    """For any first token that was generated."""
    whole = [*tokens(name, text), vocabulary(name).stop_token_ids[0]]
    compiled = automaton(name).compile(hg.Choice([text]))
    for first in first_tokens(name, text):
        row = Row(compiled.matcher())
        assert row.advance(first)
        taken_back, token_ids, _ = retokenizing(name).advance(row, [first], left, loose=True)
        assert [first][taken_back:] + list(token_ids) == whole
        assert taken_back == (first != whole[0])
        kept = Row(compiled.matcher())
        kept.advance(first)
        assert not retokenizing(name).advance(kept, [first], left, loose=False).taken_back


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=30)
@given(options=OPTIONS, spare=st.none() | st.integers(-2, 3))
def test_row_is_in_the_state_after_its_tokens(name: str, options: list[str], spare: int | None) -> None:
    compiled = automaton(name).compile(hg.Choice(options))
    for first in first_tokens(name, options[0]):
        row = Row(compiled.matcher())
        row.advance(first)
        assert row.matcher is not None
        left = None if spare is None else (row.matcher.min_tokens_to_finish() or 0) + spare
        forced = retokenizing(name).advance(row, [first], left, loose=True)
        written = [first][forced.taken_back :] + list(forced.token_ids)
        expected = Row(compiled.matcher())
        for token_id in written:
            assert expected.advance(token_id)
        assert row.mark() == expected.mark() and mask(row, name) == mask(expected, name)


def test_budget_below_the_minimum_is_ignored() -> None:
    compiled = automaton("demo").compile(hg.Regex("(?:name){3}[0-9]"))
    fewest = compiled.matcher().min_tokens_to_finish()
    assert fewest is not None and fewest > 2
    written = [
        list(forced_text("demo").advance(Row(compiled.matcher()), [], left, loose=False).token_ids)
        for left in (None, fewest - 1, 1, 0)
    ]
    assert written[0] and all(token_ids == written[0] for token_ids in written)


def test_row_within_a_budget_is_in_the_state_after_its_tokens() -> None:
    """If the tokenizer writes more than the least number of tokens, a token is replaced, or no text is forced."""
    compiled = automaton("demo").compile(hg.Regex("(?:name){3}[0-9]"))
    num_not_forced = 0
    for first in [None, *first_tokens("demo", "namename")]:
        for spare in range(6):
            row = Row(compiled.matcher())
            before = [] if first is None else [first]
            assert row.takes(before) and row.matcher is not None
            for token_id in before:
                row.advance(token_id)
            fewest = row.matcher.min_tokens_to_finish()
            assert fewest is not None
            forced = retokenizing("demo").advance(row, before, fewest + spare, loose=bool(before))
            written = before[: len(before) - forced.taken_back] + list(forced.token_ids)
            expected = Row(compiled.matcher())
            for token_id in written:
                assert expected.advance(token_id)
            assert row.mark() == expected.mark() and mask(row, "demo") == mask(expected, "demo")
            num_not_forced += written == before
    assert num_not_forced
