"""Reading the result of a row from its output tokens."""

from __future__ import annotations

from typing import Any

import pytest

from hf_guided.constraints.values import Choice, Constraint, JsonSchema
from hf_guided.errors import InvalidConstraint
from hf_guided.session.options import SessionOptions
from hf_guided.session.result import GuidedResult, RowReader
from tests.sessions import request_of
from tests.toy import SetEngine, compiled_set, letters

VOCABULARY = letters("ab", stop=2)
STOP, STOP2, A, B = 1, 2, 3, 4
CONSTRAINT = Choice(["ab", "abb"])
COMPILED = compiled_set(VOCABULARY, "ab", "abb")


def read(
    token_ids: list[int],
    constraint: Constraint = CONSTRAINT,
    prefix: bytes = b"",
    stop_token_ids: list[int] | None = None,
    **kwargs: Any,
) -> GuidedResult:
    request = request_of(COMPILED, constraint=constraint, prefix=prefix)
    return RowReader(VOCABULARY, request, SessionOptions(stop_token_ids=stop_token_ids), **kwargs).read(token_ids)


def test_stopped_row_has_a_value_and_no_padding() -> None:
    result = read([A, B, STOP2, 0, 0])
    assert (result.text, result.value, result.finish_reason) == ("ab", "ab", "stop")
    assert result.token_ids == [A, B, STOP2]


def test_row_that_reached_the_token_limit_has_no_value() -> None:
    result = read([A])
    assert (result.text, result.value, result.finish_reason, result.error) == ("a", None, "length", None)


@pytest.mark.parametrize("token_ids", [[A, STOP], [A, A, STOP], [B], [0, A, B]])
def test_row_that_violates_its_constraint_is_a_dead_end(token_ids: list[int]) -> None:
    result = read(token_ids)
    assert (result.value, result.finish_reason) == (None, "dead_end")


def test_prefix_is_part_of_the_text() -> None:
    assert read([B, STOP], prefix=b"a").value == "ab"
    with pytest.raises(InvalidConstraint, match="'ba' is not the beginning"):
        read([STOP], prefix=b"ba")


def test_stop_tokens_of_the_call_replace_the_default() -> None:
    assert read([A, B, STOP, STOP2], stop_token_ids=[STOP]).token_ids == [A, B, STOP]
    assert read([A, B, STOP], stop_token_ids=[STOP2]).finish_reason == "dead_end"


def test_row_without_a_constraint() -> None:
    result = RowReader(VOCABULARY, request_of(), SessionOptions()).read([B, B, STOP, 0])
    assert (result.text, result.value, result.finish_reason) == ("bb", "bb", "stop")
    assert RowReader(VOCABULARY, request_of(), SessionOptions()).read([B, B]).finish_reason == "length"


def test_value_that_cannot_be_parsed_is_an_error_in_the_result() -> None:
    """A validator may be stricter than the grammar. Then the result has the text, but no value."""
    result = read([A, B, STOP], JsonSchema({"type": "integer"}))
    assert (result.text, result.value, result.finish_reason) == ("ab", None, "stop")
    assert result.error is not None and "Expecting value" in result.error


def test_row_ended_by_a_stopping_criterion_is_not_a_dead_end() -> None:
    """A stopping criterion ended this row in the middle, and it was padded while other rows continued."""
    assert read([A, 0, 0], pad_token_id=0).finish_reason == "length"
    assert read([A, 0, A], pad_token_id=0).finish_reason == "dead_end"
    assert read([A, 0, 0]).finish_reason == "dead_end"


def test_row_without_an_allowed_token_is_a_dead_end_even_before_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at a dead end gets a stop token, which is often also the padding token."""
    monkeypatch.setattr(SetEngine, "fill", lambda self, bitmask, row: bitmask[row].zero_())
    assert read([A, STOP, STOP], pad_token_id=STOP).finish_reason == "dead_end"


def test_exception_of_a_validator_becomes_an_error_in_the_result() -> None:
    class Picky(Choice):
        def parse(self, text: str) -> str:
            raise KeyError(text)

    result = read([A, B, STOP], Picky(["ab"]))
    assert (result.finish_reason, result.value, result.error) == ("stop", None, "KeyError: 'ab'")
