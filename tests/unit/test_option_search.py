"""The probability of an option is the sum over all token sequences that write it. The oracle enumerates them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from hf_guided.generation.score import OptionSearch
from hf_guided.hf.decode.forced_text import ForcedText
from hf_guided.session.row import Row
from hf_guided.vocabulary.retokenize import Continuation
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy

OPTIONS = [
    ["a", "b"],
    ["a", "ab", "abc", "abcd"],
    ["ab", "ac", "ad", "bd", "dddd"],
    ["abab", "abba", "aabb", "baba", "abab" + "c", "bbbb"],
    ["", "a", "aa"],
    ["aaaa", "aaaaaaa"],
]
VOCABULARY = toy.letters(stop=2, padded_size=40)


def model(seed: int) -> Callable[[Sequence[int]], Tensor]:
    """Return a function whose logits depend on all tokens before them, and only on these."""

    def logits(token_ids: Sequence[int]) -> Tensor:
        number = hash((seed, *token_ids)) % 2**31
        return torch.randn(VOCABULARY.padded_size, generator=torch.Generator().manual_seed(number)) * 2

    return logits


def enumerate_probabilities(
    options: Sequence[str], logits: Callable[[Sequence[int]], Tensor], most: int
) -> dict[str, float]:
    """Sum the probabilities of all token sequences that write an option and stop, under brute-force masks."""
    texts = {i: data.decode() for i, data in enumerate(VOCABULARY.token_bytes) if data is not None}
    probabilities = dict.fromkeys(options, 0.0)

    def follow(token_ids: list[int], text: str, mass: float) -> None:
        allowed = {i: text + piece for i, piece in texts.items() if any(o.startswith(text + piece) for o in options)}
        stops = VOCABULARY.stop_token_ids if text in options else ()
        scores = logits(token_ids).double()
        total = scores[[*allowed, *stops]].logsumexp(0)
        for stop in stops:
            probabilities[text] += mass * math.exp(scores[stop] - total)
        for token_id, longer in allowed.items():
            assert len(token_ids) < most
            follow([*token_ids, token_id], longer, mass * math.exp(scores[token_id] - total))

    follow([], "", 1.0)
    return probabilities


def new_search(options: Sequence[str], max_prefixes: int, vocabulary: Vocabulary = VOCABULARY) -> OptionSearch:
    compiled = toy.compiled_set(vocabulary, *options)
    stops = vocabulary.stop_token_ids
    forced = ForcedText(vocabulary, Continuation(vocabulary), stops, retokenize=False, may_stop=True)
    return OptionSearch(
        [option.encode() for option in options],
        Row(compiled.matcher()),
        [],
        forced=forced,  # this engine forces no text
        vocabulary=vocabulary,
        stop_token_ids=stops,
        tokens_left=lambda _: None,
        max_prefixes=max_prefixes,
    )


def run_search(search: OptionSearch, logits: Callable[[Sequence[int]], Tensor]) -> None:
    while (node := search.next_node()) is not None:
        assert search.expand(node, logits(node.token_ids))


@pytest.mark.parametrize(("options", "seed"), list(itertools.product(OPTIONS, range(3))))
def test_finished_search_equals_the_enumeration(options: list[str], seed: int) -> None:
    search = new_search(options, max_prefixes=1000)
    run_search(search, model(seed))
    expected = list(enumerate_probabilities(options, model(seed), most=8).values())
    low, middle, high = search.bounds()
    assert low == middle == high == pytest.approx(expected, abs=1e-12)
    assert search.unresolved == 0.0 and math.fsum(low) == pytest.approx(1.0)


@pytest.mark.parametrize(("options", "seed"), list(itertools.product(OPTIONS[1:], range(3))))
def test_bounds_of_an_unfinished_search_contain_the_probability(options: list[str], seed: int) -> None:
    expected = list(enumerate_probabilities(options, model(seed), most=8).values())
    widths = []
    for max_prefixes in itertools.count(1):
        search = new_search(options, max_prefixes)
        run_search(search, model(seed))
        low, middle, high = search.bounds()
        for bounds in zip(low, expected, high, strict=True):
            assert bounds[0] - 1e-12 <= bounds[1] <= bounds[2] + 1e-12
        assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))
        assert math.fsum(middle) == pytest.approx(1.0)
        assert math.fsum(low) + search.unresolved == pytest.approx(1.0)
        widths.append(search.unresolved)
        if not search.unresolved:
            break
        assert search.num_prefixes == max_prefixes
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(widths)) and len(widths) > 1


def test_one_option_needs_no_model() -> None:
    search = new_search(["abcd"], max_prefixes=10)
    assert search.next_node() is None and search.bounds() == ([1.0], [1.0], [1.0])


def test_nan_logits_are_refused() -> None:
    search = new_search(["a", "b"], max_prefixes=10)
    node = search.next_node()
    assert node is not None
    assert not search.expand(node, torch.full((VOCABULARY.padded_size,), math.nan))
