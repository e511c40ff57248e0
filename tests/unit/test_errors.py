"""Errors cross into other processes and come back as they were."""

from __future__ import annotations

import pickle

import pytest

from hf_guided import errors

MADE = [
    errors.TokenRejected("left", row=1, position=2, token_id=3),
    errors.BudgetTooSmall("few", minimum=7),
    errors.UnsupportedConstraint("lost", [errors.Loss("/a", "uniqueItems", "why")]),
    errors.InvalidConstraint("bad", pointers=["/a"]),
    errors.BackendUnavailable("gone"),
    errors.InternalError("ours"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_a_pickle(error: errors.HFGuidedError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args and vars(back) == vars(error)
