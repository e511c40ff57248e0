"""The token before forced text may be replaced: then the row is where its new tokens are."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.hf.drafts.forced_text import ForcedText
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
def test_a_single_text_is_written_as_the_tokenizer_writes_it(name: str, text: str, left: int | None) -> None:
    """Whichever token of its beginning was generated first."""
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
def test_the_row_is_where_its_tokens_are(name: str, options: list[str], spare: int | None) -> None:
    compiled = automaton(name).compile(hg.Choice(options))
    for first in first_tokens(name, options[0]):
        row = Row(compiled.matcher())
        row.advance(first)
        assert row.matcher is not None
        left = None if spare is None else (row.matcher.min_tokens_to_finish() or 0) + spare
        found = retokenizing(name).advance(row, [first], left, loose=True)
        written = [first][found.taken_back :] + list(found.token_ids)
        again = Row(compiled.matcher())
        for token_id in written:
            assert again.advance(token_id)
        assert row.mark() == again.mark() and mask(row, name) == mask(again, name)


def test_a_budget_that_is_too_small_anyway_bounds_nothing() -> None:
    compiled = automaton("demo").compile(hg.Regex("(?:name){3}[0-9]"))
    fewest = compiled.matcher().min_tokens_to_finish()
    assert fewest is not None and fewest > 2
    written = [
        list(forced_text("demo").advance(Row(compiled.matcher()), [], left, loose=False).token_ids)
        for left in (None, fewest - 1, 1, 0)
    ]
    assert written[0] and all(token_ids == written[0] for token_ids in written)


def test_within_a_budget_the_row_is_where_its_tokens_are() -> None:
    """Where the tokenizer writes more tokens than the fewest, a token is taken back, or none is forced at all."""
    compiled = automaton("demo").compile(hg.Regex("(?:name){3}[0-9]"))
    nothing_forced = 0
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
            again = Row(compiled.matcher())
            for token_id in written:
                assert again.advance(token_id)
            assert row.mark() == again.mark() and mask(row, "demo") == mask(again, "demo")
            nothing_forced += written == before
    assert nothing_forced
