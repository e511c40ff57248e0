"""With a token budget, every text is closed in time. The oracle searches all completions."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice, Constraint, JsonSchema, Regex
from tests import toy
from tests.property.strategies import allowed, single_bytes, tiny

RECORD = JsonSchema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 9},
            "tags": {"type": "array", "items": {"enum": ["a", "longer", "é"]}, "minItems": 1, "maxItems": 3},
            "paid": {"type": "boolean"},
        },
        "required": ["name", "tags"],
    },
    whitespace="compact",
)
CONSTRAINTS: list[Constraint] = [
    Regex("(ab|ba|[a-d]b){3}[a-d]{3,9}x?"),
    Regex(r"\d+(,\d{3})*|none|[^\W\d]{20}"),
    Choice(["a", "abc", "abcabcabcabc", "Anna Schmidt", "東京"]),
    RECORD,
]
VOCABULARIES = {"tiny": tiny, "single_bytes": single_bytes}


@lru_cache
def compiled(which: int, vocabulary: str) -> CompiledConstraint:
    return NetworkBackend(VOCABULARIES[vocabulary]()).compile(CONSTRAINTS[which])


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("which", range(len(CONSTRAINTS)))
@given(data=st.data())
def test_any_sampling_closes_the_text_within_the_budget(which, vocabulary, data):
    matcher = compiled(which, vocabulary).matcher()
    minimum = matcher.min_tokens_to_finish()
    assert minimum is not None
    left = data.draw(st.integers(minimum, 4 * minimum))
    while not matcher.is_terminated():
        permitted = allowed(matcher, left)
        assert set(permitted) <= set(allowed(matcher))
        text = [token_id for token_id in permitted if token_id not in matcher.stop_token_ids]
        # A sampler that avoids stop tokens, and one that takes any token.
        assert matcher.accept_token(data.draw(st.sampled_from(text or permitted)))
        left -= 1
        needed = matcher.min_tokens_to_finish()
        assert needed is not None
        assert needed <= left
    assert left >= 0


@given(
    st.frozensets(st.text("abcd", min_size=1, max_size=9), min_size=1, max_size=6),
    st.integers(1, 12),
    st.data(),
)
def test_budget_forbids_only_tokens_that_cannot_close(options, left, data):
    """The oracle counts the letters and pairs of letters to the end of each option."""
    vocabulary = toy.letters()
    compiled_choice = NetworkBackend(vocabulary).compile(Choice(sorted(options)))
    matcher, taken = compiled_choice.matcher(), ""

    def needed(start: str) -> int:  # tokens have up to two letters
        remaining = (len(option) - len(start) for option in options if option.startswith(start))
        return min((1 + (letters + 1) // 2 for letters in remaining), default=10**6)

    while not matcher.is_terminated():
        assert matcher.min_tokens_to_finish() == needed(taken)
        texts = {i: text.decode() for i, text in enumerate(vocabulary.token_bytes) if text is not None}
        fits = left if needed(taken) <= left else 10**5  # if the budget is too small, the masks ignore it
        expected = [i for i, text in texts.items() if needed(taken + text) <= fits - 1]
        expected += [stop for stop in vocabulary.stop_token_ids if taken in options]
        assert sorted(expected) == allowed(matcher, left)
        token_id = data.draw(st.sampled_from(expected))
        assert matcher.accept_token(token_id)
        taken += texts.get(token_id, "")
        left = max(left - 1, 1)


def test_last_token_of_the_budget_is_a_stop_token():
    matcher = compiled(2, "tiny").matcher()
    matcher.accept_token(allowed(matcher, 2)[0])
    assert matcher.min_tokens_to_finish() == 1
    assert allowed(matcher, 1) == list(matcher.stop_token_ids)
    assert matcher.accept_token(matcher.stop_token_ids[0])
    assert matcher.min_tokens_to_finish() == 0
