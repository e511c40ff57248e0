"""The masks of ended rows, of positions after drafts and of dead ends, and the token lists in messages."""

from __future__ import annotations

import pytest
import torch

import hf_guided as hg
from hf_guided.backends.network import NetworkBackend
from hf_guided.errors import CompileLimitExceeded, EmptyIntersection, StopTokenError
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import pack, unpack
from tests.toy import SetEngine, compiled_set, letters

VOCABULARY = letters("abc", stop=2)  # <pad>, two stop tokens, three letters, nine pairs
FIRST_STOP, SECOND_STOP, A = 1, 2, 3
COMPILED = compiled_set(VOCABULARY, "a")


def row_after(*tokens: int) -> Row:
    row = Row(COMPILED.matcher())
    for token_id in tokens:
        row.advance(token_id)
    return row


def allowed(rows: list[Row], stops: tuple[int, ...] = (FIRST_STOP, SECOND_STOP)) -> list[list[int]]:
    """The tokens that each row's mask allows."""
    masks = MaskFiller(VOCABULARY, stops).fill(rows, [None] * len(rows))
    return [torch.nonzero(mask).flatten().tolist() for mask in unpack(masks.bitmask, VOCABULARY.padded_size)]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((A,), [FIRST_STOP, SECOND_STOP]),  # open: its grammar allows only the end
        ((A, FIRST_STOP), [FIRST_STOP, SECOND_STOP]),
        ((A, FIRST_STOP, 0), [FIRST_STOP, SECOND_STOP]),
        ((A, SECOND_STOP, SECOND_STOP), [FIRST_STOP]),  # generate() does not know this stop token
        ((A, SECOND_STOP, FIRST_STOP), [SECOND_STOP]),
        ((A, A), [FIRST_STOP, SECOND_STOP]),  # closed
        ((A, A, FIRST_STOP, SECOND_STOP), [FIRST_STOP, SECOND_STOP]),  # closed: it never stopped
    ],
)
@pytest.mark.parametrize("neighbours", [0, 1])
def test_mask_of_an_ended_row_allows_the_stop_tokens_not_yet_taken(
    tokens: tuple[int, ...], expected: list[int], neighbours: int
) -> None:
    rows = [row_after(*tokens), *(row_after() for _ in range(neighbours))]
    assert allowed(rows) == [expected, *([[A]] * neighbours)]


def test_single_row_that_continues_after_its_stop_token_is_an_error() -> None:
    """In a batch it is no error, because the tokens may be padding."""
    once = row_after(A, FIRST_STOP, FIRST_STOP)
    twice = row_after(A, FIRST_STOP, FIRST_STOP, FIRST_STOP)
    assert allowed([once], (FIRST_STOP,)) == [[FIRST_STOP]]
    with pytest.raises(StopTokenError, match="row 0 has ended"):
        allowed([twice], (FIRST_STOP,))
    assert allowed([twice, row_after()], (FIRST_STOP,)) == [[FIRST_STOP], [A]]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 15])
def test_message_names_eight_tokens_and_counts_the_others(count: int) -> None:
    mask = torch.arange(VOCABULARY.padded_size)[None] < count
    listed = MaskFiller(VOCABULARY, [FIRST_STOP]).token_names(pack(mask))
    named, _, more = listed.partition(" and ")
    names = [VOCABULARY.token_text(token_id) for token_id in range(min(count, 8))]
    assert named == (", ".join(names) or "none")
    assert more == (f"{count - 8} more" if count > 8 else "")


def test_error_for_an_empty_intersection_names_the_row() -> None:
    """Not the position: the first row has two positions."""
    filler = MaskFiller(VOCABULARY, [FIRST_STOP])
    masks = filler.fill([row_after(), row_after()], [None, None], [[[A]], []])
    assert masks.rows == (0, 0, 1)
    scores = torch.zeros(3, VOCABULARY.padded_size)
    scores[2, A] = -torch.inf
    emptied: dict[int, EmptyIntersection] = {}
    masked, alive = filler.apply(scores, masks)
    filler.report(masks, emptied.__setitem__, alive)
    assert emptied.keys() == {2} and emptied[2].row == 1 and str(emptied[2]).startswith("row 1:")
    assert torch.nonzero(masked[2] > -torch.inf).flatten().tolist() == [FIRST_STOP]


@pytest.mark.parametrize("left", [None, 2, 3, 4, 5, 6, 7])
def test_mask_after_drafts_equals_that_of_a_row_that_took_them(left: int | None) -> None:
    """Also with a token budget, of which the drafts use a part."""
    compiled = NetworkBackend(VOCABULARY).compile(hg.Choice(["abc", "abca", "abcabcabc", "b"]))
    a, b, c = 3, 4, 5
    segments = [[[a], [b, c], [a]], [], [[b]]]
    filler = MaskFiller(VOCABULARY, [FIRST_STOP])
    rows = [Row(compiled.matcher()) for _ in segments]
    masks = filler.fill(rows, [left] * len(rows), segments)
    bitmask = masks.bitmask.clone()
    expected = []
    for drafts in segments:
        for taken in range(len(drafts) + 1):
            row = Row(compiled.matcher())
            tokens = [token_id for segment in drafts[:taken] for token_id in segment]
            assert row.takes(tokens)
            for token_id in tokens:
                row.advance(token_id)
            expected.append(filler.fill([row], [None if left is None else left - len(tokens)]).bitmask.clone())
    assert torch.equal(bitmask, torch.cat(expected))
    assert [row.mark().taken for row in rows] == [0, 0, 0]


def test_ended_row_may_stop_even_if_a_processor_forbids_its_stop_tokens() -> None:
    """generate() still needs a distribution for this row. A softmax over only -inf would fail for the whole batch."""
    filler = MaskFiller(VOCABULARY, [FIRST_STOP, SECOND_STOP])
    masks = filler.fill([row_after(), row_after(A, FIRST_STOP), row_after(A, A)], [None] * 3)
    assert masks.ended == {1: None, 2: None}
    scores = torch.ones(3, VOCABULARY.padded_size)
    scores[:, [FIRST_STOP, SECOND_STOP]] = -torch.inf
    masked, alive = filler.apply(scores, masks)
    filler.report(masks, pytest.fail, alive)
    assert torch.nonzero(masked > -torch.inf).tolist() == [[0, A]] + [[i, stop] for i in (1, 2) for stop in (1, 2)]
    assert masked.softmax(1).isfinite().all()


class LimitedEngine(SetEngine):
    """Raises a limit error at its first mask."""

    def fill(self, bitmask: torch.Tensor, row: int) -> None:
        raise CompileLimitExceeded("too many states")


def test_warning_about_a_dead_end_gives_the_reason() -> None:
    """There are two reasons: a limit of the engine, or a text that this vocabulary cannot continue."""
    unwritable, over_limit = compiled_set(VOCABULARY, "z"), compiled_set(VOCABULARY, "a", engine=LimitedEngine)
    rows = [Row(unwritable.matcher()), row_after(), Row(over_limit.matcher())]
    masks = MaskFiller(VOCABULARY, [FIRST_STOP]).fill(rows, [None] * 3)
    assert masks.ended == {0: "no token of this vocabulary continues the text", 2: "too many states"}
    assert [(message[:6], cause) for message, cause in masks.warnings] == [
        ("row 0 ", "no token of this vocabulary continues the text"),
        ("row 2 ", "too many states"),
    ]
    assert all(cause in message for message, cause in masks.warnings)
