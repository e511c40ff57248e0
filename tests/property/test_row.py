"""A row stores whether it is open. After any moves, this must equal the state of a new row after the same tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hf_guided.session.row import Row, RowState
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.toy import compiled_set, letters

LANGUAGE = compiled_set(letters("ab"), "ab", "abb", "b")
TOKENS = range(len(LANGUAGE.vocabulary.token_bytes))
MOVES = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from(TOKENS)),
    st.tuples(st.just("rewind"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["fill", "fork", "try a token and return"]), st.sampled_from(TOKENS)),
)


def state_after(tokens: list[int]) -> RowState:
    """The state of a new row, computed only from its matcher and tail."""
    row = Row(LANGUAGE.matcher())
    for token_id in tokens:
        row.advance(token_id)
    assert row.matcher is not None
    if row.matcher.is_terminated():
        return RowState.STOPPED
    return RowState.CLOSED if row.tail else RowState.OPEN


@given(st.lists(MOVES, max_size=25))
def test_state_of_a_row_equals_that_of_a_new_row(moves: list[tuple[str, int]]) -> None:
    row, tokens = Row(LANGUAGE.matcher()), list[int]()
    bitmask = allocate_bitmask(1, LANGUAGE.vocabulary.padded_size)
    for move, number in moves:
        if move == "advance":
            row.advance(number)
            tokens.append(number)
        elif move == "rewind":
            number = min(number, len(tokens))
            row.rewind(number)
            del tokens[len(tokens) - number :]
        elif move == "fill":
            assert row.fill(bitmask, 0) == (state_after(tokens) is RowState.OPEN)
        elif move == "fork":
            before, row = row, row.fork()
            before.advance(number)
        else:
            mark = row.mark()
            row.advance(number)
            row.return_to(mark)
        assert row.state is state_after(tokens)
        assert row.is_open == (row.state is RowState.OPEN)
