"""A session that is shown ids before they are asked for gives what one that is not gives: scores, errors and warnings.

The plain session is the oracle. Ids shown may be those asked for next, others, or no step at all.
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
    compiled_set(VOCABULARY, "az", "abz", "b"),  # dead ends: nothing writes the "z"
    None,
]
TOKENS = st.integers(0, len(VOCABULARY.token_bytes) - 1)
PROMPT = 7_000_000  # a token of no text


def outcome(session: Session, ids: np.ndarray) -> tuple[str, list[str]]:
    """What a call gives, and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            masked = session.mask(torch.from_numpy(ids), torch.zeros(len(ids), VOCABULARY.padded_size))
            found = str(masked.tolist())
        except HFGuidedError as error:
            found = repr(error)
    return found, [str(one.message) for one in warned]


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[int], list[tuple[np.ndarray | None, np.ndarray]]]:
    """Languages of the rows, and calls: ids that are shown before, if any, and ids that are asked for."""
    rows = draw(st.integers(1, 3))
    languages = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    ids = np.full((rows, draw(st.integers(1, 2))), PROMPT, dtype=np.int64)
    prompt_length = ids.shape[1]
    asked: list[tuple[np.ndarray | None, np.ndarray]] = [(None, ids)]

    def longer() -> np.ndarray:
        return np.hstack([ids, np.array(draw(st.lists(TOKENS, min_size=rows, max_size=rows)))[:, None]])

    for _ in range(draw(st.integers(1, 8))):
        step = longer()
        way = draw(st.sampled_from(["right", "right", "other", "none", "rewind", "again"]))
        if way == "rewind":
            back = ids[:, : draw(st.integers(prompt_length, ids.shape[1]))]
            asked.append((step, back.copy()))
            ids = back
        elif way == "again":
            asked.append((step, ids))
        else:
            shown = {"right": step, "none": None}.get(way) if way != "other" else longer()
            asked.append((shown, step))
            ids = step
    return languages, asked


@settings(max_examples=repeats(100, 300))
@given(calls=calls(), on_violation=st.sampled_from(["close", "raise"]), twice=st.booleans())
def test_foreseen_or_not(
    calls: tuple[list[int], list[tuple[np.ndarray | None, np.ndarray]]], on_violation: OnViolation, twice: bool
) -> None:
    languages, asked = calls
    plain, shown_before = (
        session_of(VOCABULARY, [LANGUAGES[i] for i in languages], on_violation=on_violation, overlap=overlap)
        for overlap in (False, True)
    )
    for shown, ids in asked:
        if shown is not None:
            shown_before.look_ahead(torch.from_numpy(shown))
            if twice:  # and once more, as a criterion that is called twice
                shown_before.look_ahead(torch.from_numpy(shown))
        assert outcome(plain, ids) == outcome(shown_before, ids)
