"""The segments of a draft join to the draft up to its first wrong token, with forced text after each choice."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.session.row import Row
from tests.property.test_continuation import vocabulary
from tests.property.test_forced import TEXTS, automaton, forced_text

VOCABULARIES = ["byte_level", "demo"]  # the third vocabulary has 131k tokens and takes half a minute
OPTIONS = st.lists(TEXTS, min_size=1, max_size=4, unique=True)


plain = cache(forced_text)


def tokens(name: str, text: str) -> list[int]:
    return vocabulary(name).tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=40)
@given(options=OPTIONS, spare=st.none() | st.integers(0, 2))
def test_right_draft_is_kept_completely(name: str, options: list[str], spare: int | None) -> None:
    """For any budget that is large enough for the text."""
    stop = vocabulary(name).stop_token_ids[0]
    whole = tokens(name, options[0])
    row = Row(automaton(name).compile(hg.Choice(options)).matcher())
    before = row.mark()
    left = None if spare is None else len(whole) + 1 + spare
    segments = plain(name).segments(row, [], whole, left)
    written = [token_id for segment in segments for token_id in segment]
    assert written in (whole, [*whole, stop])
    assert row.mark() == before and row.takes(whole)
    # A segment is a choice and the text that it forces: nothing is forced before its first token.
    for i, segment in enumerate(segments):
        row.advance(segment[0])
        forced = plain(name).advance(row, [t for s in segments[:i] for t in s] + segment[:1], None, loose=False)
        if left is None:
            assert list(forced.token_ids) == segment[1:]
        assert segment[1:] == list(forced.token_ids)[: len(segment) - 1]


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=40)
@given(options=OPTIONS, at=st.integers(0, 5), wrong=st.sampled_from(["a", "z", '"', "7", "names"]))
def test_wrong_draft_ends_at_its_first_wrong_token(name: str, options: list[str], at: int, wrong: str) -> None:
    whole = tokens(name, options[0])
    draft = [*whole[:at], tokens(name, wrong)[0], *whole[at:]]
    row = Row(automaton(name).compile(hg.Choice(options)).matcher())
    segments = plain(name).segments(row, [], draft, None)
    written = [token_id for segment in segments for token_id in segment]
    agreed = next((i for i, (a, b) in enumerate(zip(written, draft, strict=False)) if a != b), len(written))
    assert agreed >= min(len(whole[:at]), len(written))
    assert row.takes([token_id for token_id in written if token_id != vocabulary(name).stop_token_ids[0]])
    drafted = 0  # each segment begins with the next token of the draft
    for segment in segments:
        assert segment[0] == draft[drafted]
        drafted += len(segment)
    if agreed == len(written) < len(draft):
        assert not row.takes(draft[: agreed + 1]), "the draft is truncated although the row accepts more"


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=40)
@given(options=OPTIONS)
def test_tight_budget_does_not_split_a_draft_that_fits(name: str, options: list[str]) -> None:
    """The tokens of the draft, of the forced text and of the end are each counted once."""
    whole = tokens(name, options[0])
    row = Row(automaton(name).compile(hg.Choice([options[0]])).matcher())
    assert row.matcher is not None
    fewest = row.matcher.min_tokens_to_finish()
    forced = forced_text(name, may_stop=False)
    if fewest == len(whole) + 1:  # with the stop token
        assert forced.segments(row, [], whole, fewest) == forced.segments(row, [], whole, None)


@pytest.mark.parametrize("spare", range(5))
def test_each_segment_has_the_budget_left_by_the_segments_before(spare: int) -> None:
    """The tokenizer writes more than the least number of tokens here, so each token of the budget counts."""
    row = Row(automaton("demo").compile(hg.Regex("(?:name){3}[0-9](?:name){3}[0-9]")).matcher())
    assert row.matcher is not None
    fewest = row.matcher.min_tokens_to_finish()
    assert fewest is not None
    draft = tokens("demo", "namenamename7namenamename7")
    assert len(draft) + 1 > fewest
    segments = forced_text("demo").segments(row, [], draft, fewest + spare)
    written: list[int] = []
    for segment in segments:
        assert row.advance(segment[0])
        written.append(segment[0])
        forced = forced_text("demo").advance(row, written, fewest + spare - len(written), loose=False)
        assert segment == [segment[0], *forced.token_ids]
        written += forced.token_ids
    assert written
