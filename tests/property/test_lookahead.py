"""A session with lookahead gives the same scores, errors and warnings as a session without.

The plain session is the oracle. The ids for the lookahead may be those of the next call, others, or no step at all.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.errors import HFGuidedError
from hf_guided.session.options import OnViolation
from hf_guided.session.session import Session
from tests.effort import repeats
from tests.sessions import session_of
from tests.toy import compiled_set, letters

VOCABULARY = letters("ab", stop=2)
LANGUAGES = [
    compiled_set(VOCABULARY, "abab", "ab", "bbbbbb", "a"),
    compiled_set(VOCABULARY, "az", "abz", "b"),  # dead ends: no token writes the "z"
    None,
]
TOKENS = st.integers(0, len(VOCABULARY.token_bytes) - 1)
PROMPT = 7_000_000  # a token without text


def outcome(session: Session, ids: np.ndarray) -> tuple[str, list[str]]:
    """The result or the error of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            masked = session.mask(torch.from_numpy(ids), torch.zeros(len(ids), VOCABULARY.padded_size))
            result = str(masked.tolist())
        except HFGuidedError as error:
            result = repr(error)
    return result, [str(warning.message) for warning in warned]


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[int], list[tuple[np.ndarray | None, np.ndarray]]]:
    """The languages of the rows, and calls: ids for the lookahead, if any, and the ids of the call."""
    rows = draw(st.integers(1, 3))
    languages = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    ids = np.full((rows, draw(st.integers(1, 2))), PROMPT, dtype=np.int64)
    prompt_length = ids.shape[1]
    steps: list[tuple[np.ndarray | None, np.ndarray]] = [(None, ids)]

    def next_step() -> np.ndarray:
        return np.hstack([ids, np.array(draw(st.lists(TOKENS, min_size=rows, max_size=rows)))[:, None]])

    for _ in range(draw(st.integers(1, 8))):
        step = next_step()
        kind = draw(st.sampled_from(["right", "right", "other", "none", "rewind", "again"]))
        if kind == "rewind":
            back = ids[:, : draw(st.integers(prompt_length, ids.shape[1]))]
            steps.append((step, back.copy()))
            ids = back
        elif kind == "again":
            steps.append((step, ids))
        else:
            ahead = {"right": step, "none": None}.get(kind) if kind != "other" else next_step()
            steps.append((ahead, step))
            ids = step
    return languages, steps


@settings(max_examples=repeats(100, 300))
@given(calls=calls(), on_violation=st.sampled_from(["close", "raise"]), twice=st.booleans(), is_done=st.booleans())
def test_lookahead_does_not_change_the_outcome(
    calls: tuple[list[int], list[tuple[np.ndarray | None, np.ndarray]]],
    on_violation: OnViolation,
    twice: bool,
    is_done: bool,
) -> None:
    languages, steps = calls
    plain, with_lookahead = (
        session_of(VOCABULARY, [LANGUAGES[i] for i in languages], on_violation=on_violation, overlap=overlap)
        for overlap in (False, True)
    )
    for ahead, ids in steps:
        if ahead is not None:
            with_lookahead.look_ahead(torch.from_numpy(ahead))
            if twice:  # as if the stopping criterion was called twice
                with_lookahead.look_ahead(torch.from_numpy(ahead))
            if is_done and with_lookahead._job is not None:
                with_lookahead._job.wait()
        assert outcome(plain, ids) == outcome(with_lookahead, ids)
