"""The probability of an option is that of all token sequences that write it; decided by trying every one of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from hf_guided.generation.option_search import OptionSearch
from hf_guided.hf.drafts.forced_text import ForcedText
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
    """Logits that depend on every token before them, and on nothing else."""

    def logits(token_ids: Sequence[int]) -> Tensor:
        number = hash((seed, *token_ids)) % 2**31
        return torch.randn(VOCABULARY.padded_size, generator=torch.Generator().manual_seed(number)) * 2

    return logits


def enumerated(options: Sequence[str], logits: Callable[[Sequence[int]], Tensor], most: int) -> dict[str, float]:
    """Every token sequence that writes an option and stops, with its probability under brute-force masks."""
    texts = {i: data.decode() for i, data in enumerate(VOCABULARY.token_bytes) if data is not None}
    found = dict.fromkeys(options, 0.0)

    def follow(token_ids: list[int], text: str, mass: float) -> None:
        allowed = {i: text + piece for i, piece in texts.items() if any(o.startswith(text + piece) for o in options)}
        stops = VOCABULARY.stop_token_ids if text in options else ()
        scores = logits(token_ids).double()
        total = scores[[*allowed, *stops]].logsumexp(0)
        for stop in stops:
            found[text] += mass * math.exp(scores[stop] - total)
        for token_id, longer in allowed.items():
            assert len(token_ids) < most
            follow([*token_ids, token_id], longer, mass * math.exp(scores[token_id] - total))

    follow([], "", 1.0)
    return found


def search(options: Sequence[str], max_prefixes: int, vocabulary: Vocabulary = VOCABULARY) -> OptionSearch:
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


def run(found: OptionSearch, logits: Callable[[Sequence[int]], Tensor]) -> None:
    while (node := found.next_node()) is not None:
        assert found.expand(node, logits(node.token_ids))


@pytest.mark.parametrize(("options", "seed"), list(itertools.product(OPTIONS, range(3))))
def test_all_paths_are_counted(options: list[str], seed: int) -> None:
    found = search(options, max_prefixes=1000)
    run(found, model(seed))
    expected = list(enumerated(options, model(seed), most=8).values())
    low, middle, high = found.bounds()
    assert low == middle == high == pytest.approx(expected, abs=1e-12)
    assert found.unresolved == 0.0 and math.fsum(low) == pytest.approx(1.0)


@pytest.mark.parametrize(("options", "seed"), list(itertools.product(OPTIONS[1:], range(3))))
def test_a_search_that_is_cut_short_knows_how_little_it_knows(options: list[str], seed: int) -> None:
    expected = list(enumerated(options, model(seed), most=8).values())
    widths = []
    for max_prefixes in itertools.count(1):
        found = search(options, max_prefixes)
        run(found, model(seed))
        low, middle, high = found.bounds()
        for bounds in zip(low, expected, high, strict=True):
            assert bounds[0] - 1e-12 <= bounds[1] <= bounds[2] + 1e-12
        assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))
        assert math.fsum(middle) == pytest.approx(1.0)
        assert math.fsum(low) + found.unresolved == pytest.approx(1.0)
        widths.append(found.unresolved)
        if not found.unresolved:
            break
        assert found.num_prefixes == max_prefixes
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(widths)) and len(widths) > 1


def test_one_option_needs_no_model() -> None:
    found = search(["abcd"], max_prefixes=10)
    assert found.next_node() is None and found.bounds() == ([1.0], [1.0], [1.0])


def test_logits_that_are_no_numbers_are_not_shared_out() -> None:
    found = search(["a", "b"], max_prefixes=10)
    node = found.next_node()
    assert node is not None
    assert not found.expand(node, torch.full((VOCABULARY.padded_size,), math.nan))
