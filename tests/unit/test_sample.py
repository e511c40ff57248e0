"""Weighted samples are unbiased: a toy model on toy formats, against an enumeration of all texts in float64.

Each check must be able to fail: at the end, samplers with one error each fail them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Choice, Constraint, Regex
from hf_guided.generation import sample as module
from hf_guided.generation.sample import Particles, keep
from hf_guided.generation.samples import Samples
from hf_guided.session.mask_table import MaskTables
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from tests import toy
from tests.effort import repeats
from tests.property.strategies import backend

VOCABULARY = toy.letters("ab", stop=2, padded_size=40)  # a, b, and all pairs of them; two stop tokens
STOPS = VOCABULARY.stop_token_ids
RUNS = repeats(160, 3000)
STANDARD_ERRORS = 4.0
MOST_HEAVY = 20.0  # the greatest w / Z of a format: with more, a mean over few runs shows nothing
MOST_TEXTS = 5000


@dataclass
class Format:
    """A constraint, all its texts, and the token limit."""

    constraint: Constraint
    texts: set[str]
    limit: int = 100
    temperature: float = 1.0
    seed: int = 0

    @property
    def longest(self) -> int:
        return max(map(len, self.texts))


def words(pattern: str, longest: int) -> set[str]:
    every = ("".join(letters) for length in range(longest + 1) for letters in product("ab", repeat=length))
    return {text for text in every if re.fullmatch(pattern, text)}


OPTIONS = ["a", "ab", "abb", "abba", "baab", "bb"]
FORMATS = {
    "a choice": Format(Choice(OPTIONS), set(OPTIONS)),
    "few of many": Format(Regex("(aa|bba)b{0,3}a?"), words("(aa|bba)b{0,3}a?", 7), seed=1),
    "any text": Format(Regex("[ab]{0,6}"), words("[ab]{0,6}", 6), temperature=1.7),
    "with a limit": Format(Regex("(a|bb)*a"), words("(a|bb)*a", 10), limit=5, temperature=0.8, seed=3),
}


@cache
def compiled(name: str) -> CompiledConstraint:
    return backend("native", VOCABULARY).compile(FORMATS[name].constraint)


class Model:
    """Logits that depend on all tokens before them, and only on these."""

    def __init__(self, seed: int):
        self.seed, self._known = seed, {}

    def __call__(self, token_ids: Sequence[int]) -> Tensor:
        key = tuple(token_ids)
        if key not in self._known:
            generator = torch.Generator().manual_seed(hash((self.seed, *key)) % 2**31)
            self._known[key] = torch.randn(VOCABULARY.padded_size, generator=generator, dtype=torch.float64)
            self._known[key][[*STOPS]] += 1.0
        return self._known[key]


@cache
def model_of(name: str) -> Model:
    return Model(FORMATS[name].seed)


@dataclass
class Exact:
    """What an enumeration of all token sequences finds."""

    probabilities: dict[str, float] = field(default_factory=Counter)  # the probability of each text
    paths: list[tuple[float, float]] = field(default_factory=list)  # p / w of each sequence, which is q; and its w
    live: Counter[int] = field(default_factory=Counter)  # unfinished sequences by their number of tokens

    @property
    def evidence(self) -> float:
        return math.fsum(self.probabilities.values())

    @property
    def variance(self) -> float:
        """The variance of the weight of one masked sample."""
        return math.fsum(q * w * w for q, w in self.paths) - self.evidence**2


@cache
def exact(name: str) -> Exact:
    """The texts within the limit are found by brute force, but for the limit's own rule, which only the masks know."""
    case, model, found = FORMATS[name], model_of(name), Exact()
    near_limit = case.limit <= case.longest
    prefixes = {text[:end] for text in case.texts for end in range(len(text) + 1)}
    pieces = {i: data.decode() for i, data in enumerate(VOCABULARY.token_bytes) if data is not None}

    def follow(tokens: list[int], text: str, p: float, w: float) -> None:
        allowed = [i for i, piece in pieces.items() if text + piece in prefixes]
        allowed += STOPS if text in case.texts else ()
        if near_limit:  # the masks may forbid some of these, and allow no others
            row = Row(compiled(name).matcher(STOPS))
            assert all(map(row.advance, tokens))
            masks = MaskFiller(VOCABULARY, STOPS).fill([row], [case.limit - len(tokens)])
            bits = masks.bitmask[0].tolist()
            allowed = [i for i in allowed if bits[i // 32] >> i % 32 & 1]
        log_p = (model(tokens) / case.temperature).log_softmax(-1).exp()
        w *= float(log_p[allowed].sum())
        for token_id in allowed:
            share = p * float(log_p[token_id])
            if token_id in STOPS:
                found.probabilities[text] += share
                found.paths.append((share / w, w))
            else:
                found.live[len(tokens)] += 1
                follow([*tokens, token_id], text + pieces[token_id], share, w)

    follow([], "", 1.0, 1.0)
    assert len(found.probabilities) <= MOST_TEXTS
    assert math.fsum(q for q, _ in found.paths) == pytest.approx(1.0)  # p / w is the distribution of masked samples
    assert max(w for _, w in found.paths) / found.evidence <= MOST_HEAVY
    return found


TABLES = MaskTables(VOCABULARY.padded_size)


def run(name: str, most: int, seed: int, method: str = "expand", kind: type[Particles] = Particles) -> Samples:
    case, model = FORMATS[name], model_of(name)
    particles = kind(
        Row(compiled(name).matcher(STOPS)),
        MaskFiller(VOCABULARY, STOPS, tables=TABLES),
        STOPS,
        lambda taken: case.limit - taken,
        most,
        case.temperature,
        method,
        torch.Generator().manual_seed(seed),
    )
    sequences: list[list[int]] = [[]]

    def forward(parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        sequences[:] = [[*sequences[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        assert len(sequences) <= most and len(set(map(tuple, sequences))) == len(sequences)  # no duplicates
        assert list(parents) == sorted(parents)
        return torch.stack([model(tokens) for tokens in sequences])

    particles.run(model([])[None], forward)
    return Samples.of(particles.finished, particles.cut, str)


def failures(name: str, runs: Sequence[Samples]) -> list[str]:
    """What is farther from the enumeration than 4 standard errors."""
    found, truth = [], exact(name)
    estimates = [math.exp(one.log_evidence) for one in runs]
    error = math.sqrt(truth.variance / len(runs))  # that of N = 1, which no N exceeds
    if abs(math.fsum(estimates) / len(runs) - truth.evidence) > STANDARD_ERRORS * error + 1e-12:
        found.append("evidence")
    weights: dict[str, list[float]] = {text: [] for text in truth.probabilities}
    for one, estimate in zip(runs, estimates, strict=True):
        for text, weight in zip(one.texts, one.weights, strict=True):
            weights.setdefault(text, []).append(estimate * weight)
    common = {text for text, values in weights.items() if len(values) >= 50}
    pooled = [
        estimate * math.fsum(weight for text, weight in zip(one.texts, one.weights, strict=True) if text not in common)
        for one, estimate in zip(runs, estimates, strict=True)
    ]
    cases = {text: (weights[text], truth.probabilities.get(text, 0.0)) for text in common}
    cases["the rare ones"] = pooled, truth.evidence - math.fsum(p for _, p in cases.values())
    alpha = 2 * NormalDist().cdf(-STANDARD_ERRORS)
    most = -NormalDist().inv_cdf(alpha / 2 / len(cases))  # Bonferroni
    for text, (values, p) in cases.items():
        mean = math.fsum(values) / len(runs)
        variance = max(math.fsum(value * value for value in values) / len(runs) - mean * mean, 0.0)
        if abs(mean - p) > most * math.sqrt(variance / len(runs)) + 1e-9:
            found.append(text)
    return found


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("method", "most"),
    [("expand", 1), ("expand", 4), pytest.param("expand", 16, marks=pytest.mark.slow), ("importance", 4)],
)
def test_weights_are_unbiased(name: str, method: str, most: int) -> None:
    assert failures(name, [run(name, most, seed, method) for seed in range(RUNS)]) == []


@pytest.mark.parametrize("name", FORMATS)
def test_all_prefixes_give_the_enumeration(name: str) -> None:
    truth = exact(name)
    most = max(truth.live.values())  # unfinished sequences of one length
    samples = run(name, most, 0)
    assert dict(zip(samples.texts, samples.weights, strict=True)) == pytest.approx(
        {text: p / truth.evidence for text, p in truth.probabilities.items()}, abs=1e-9
    )
    assert math.exp(samples.log_evidence) == pytest.approx(truth.evidence, abs=1e-9) and samples.unfinished == 0.0
    assert samples.weights == sorted(samples.weights, reverse=True)
    assert run(name, most + 7, 5) == samples  # nothing is drawn


def distance(name: str, samples: Samples) -> float:
    """Total variation to the target."""
    truth = exact(name)
    weights = dict(zip(samples.texts, samples.weights, strict=True))
    return sum(abs(weights.get(text, 0.0) - p / truth.evidence) for text, p in truth.probabilities.items()) / 2


@pytest.mark.parametrize("method", ["expand", "importance"])
@pytest.mark.parametrize("name", ["any text", "few of many"])
def test_more_particles_come_nearer(name: str, method: str) -> None:
    runs = repeats(20, 400)
    means = [sum(distance(name, run(name, n, seed, method)) for seed in range(runs)) / runs for n in (1, 4, 32, 256)]
    assert means == sorted(means, reverse=True) and (means[-1] < 1e-9 or len(set(means)) == len(means)), means


def test_thinned_texts_are_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_TEXTS", 5)
    runs = [run("any text", 4, seed) for seed in range(RUNS)]
    assert max(len(one.texts) for one in runs) == 5 and failures("any text", runs) == []


def test_light_prefixes_end_before_the_limit() -> None:
    """A text may go on for ever, but its weight is gone: few particles need few steps."""
    steps: list[int] = []

    class Counted(Particles):
        def step(self, logits: Tensor) -> tuple[list[int], list[int]]:
            steps.append(len(logits))
            return super().step(logits)

    FORMATS["endless"] = Format(Regex("[ab]*"), {"a"}, limit=1000)
    try:
        samples = run("endless", 8, 0, kind=Counted)
    finally:
        del FORMATS["endless"]
        model_of.cache_clear()
    assert len(steps) < 200 and samples.unfinished == 0.0 and len(samples.texts) > 8


# -- checks that can fail ----------------------------------------------------------------------------------------------


class WithoutWeights(Particles):
    """Plain masked sampling: each sample counts the same."""

    def _children(self, logits: Tensor) -> Tensor:
        masked = super()._children(logits)
        self._logs = -masked.logsumexp(-1)
        return masked


class WithoutStops(Particles):
    """A stop token costs nothing."""

    def _expand(self, logs: Tensor) -> Tensor:
        stops = torch.tensor(STOPS)
        logs[:, stops] = torch.where(logs[:, stops] > -torch.inf, -self._logs[:, None], -torch.inf)
        return super()._expand(logs)


class OneTokenization(Particles):
    """Of equal texts the last one counts."""

    def _finish(self, prefixes: Sequence[int], logs: Tensor) -> None:
        for i, log in zip(prefixes, logs.tolist(), strict=True):
            if log > -math.inf:
                self.finished.pop(self.prefixes[i].text, None)
        super()._finish(prefixes, logs)


def keep_as_they_are(logs: Tensor, offsets: Tensor, others: Tensor, most: int, draw: float) -> Any:
    """Drawn items keep their own weights."""
    own = (logs + offsets[:, None]).flatten()
    items, _, changed = keep(logs, offsets, others, most, draw)
    return items, own[items], changed


def keep_the_heaviest(logs: Tensor, offsets: Tensor, others: Tensor, most: int, draw: float) -> Any:
    """A beam."""
    own = (logs + offsets[:, None]).flatten()
    items = own.topk(min(most, len(own))).indices.sort().values
    items = items[own[items] > -torch.inf]
    return items, own[items], others


@pytest.mark.parametrize("name", ["few of many", "any text"])
@pytest.mark.parametrize(
    ("kind", "method"),
    [(WithoutWeights, "importance"), (WithoutStops, "expand"), (OneTokenization, "expand")],
)
def test_wrong_samplers_are_noticed(name: str, kind: type[Particles], method: str) -> None:
    assert failures(name, [run(name, 32, seed, method, kind) for seed in range(40)])


@pytest.mark.parametrize("wrong", [keep_as_they_are, keep_the_heaviest])
def test_wrong_weights_of_kept_items_are_noticed(monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, "keep", wrong)
    assert failures("any text", [run("any text", 4, seed) for seed in range(RUNS)])


# -- keep --------------------------------------------------------------------------------------------------------------

LINES = [
    ([0.5, 0.3, 0.1, 0.05, 0.05, 0.0], []),
    ([0.5, 0.3, 0.1, 0.05, 0.05, 0.0], [0.2, 0.01, 0.7]),
    ([0.0, 1.0, 0.0, 1.0, 1.0, 1.0], [1.0]),
    ([1e-30, 1e-3, 1.0, 2.0, 1e-30, 0.0], [1e-12]),
    ([0.25] * 4, []),
    ([1.0, 1.0, 1e-20, 0.0], []),
    ([3.0, 1e-200, 0.0, 1e-9], [5.0] * 6),
    ([0.0] * 4, [1.0]),
]


def kept(
    weights: Sequence[float], others: Sequence[float], most: int, draw: float, rows: int = 1
) -> tuple[list[int], list[float], list[float]]:
    """Call ``keep`` with plain numbers, in rows with offsets that mean nothing."""
    offsets = torch.arange(rows, dtype=torch.float64) * 3.5
    logs = torch.tensor(weights, dtype=torch.float64).log().view(rows, -1) - offsets[:, None]
    items, new, changed = keep(logs, offsets, torch.tensor(others, dtype=torch.float64).log(), most, draw)
    return items.tolist(), new.exp().tolist(), changed.exp().tolist()


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("weights", "others"), LINES)
def test_the_mean_of_a_kept_weight_is_the_weight(
    weights: list[float], others: list[float], most: int, rows: int
) -> None:
    """The mean over a fine grid of draws, in place of a random one."""
    points, total = 300, sum(weights) + sum(others)
    mean, beside = [0.0] * len(weights), [0.0] * len(others)
    for i in range(points):
        items, new, changed = kept(weights, others, most, (i + 0.5) / points, rows)
        assert items == sorted(set(items)) and len(items) <= most and all(weights[item] > 0 for item in items)
        assert sum(new) + sum(changed) == pytest.approx(total, rel=1e-9)
        for item, weight in zip(items, new, strict=True):
            mean[item] += weight / points
        beside = [sum_ + weight / points for sum_, weight in zip(beside, changed, strict=True)]
    step = 2 * total / points  # what one point of the grid may be off by
    assert mean == pytest.approx(weights, abs=step) and beside == pytest.approx(others, abs=step)
    if sum(weight > 0 for weight in weights) <= most:
        assert mean == pytest.approx(weights, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("most", [1, 3, 10, 31])
def test_the_threshold_solves_its_equation(most: int) -> None:
    weights = [x**4 for x in torch.rand(40, generator=torch.Generator().manual_seed(most)).tolist()]
    items, new, _ = kept(weights, [], most, 0.3, rows=4)
    drawn = {round(weight, 12) for item, weight in zip(items, new, strict=True) if weight > weights[item] * (1 + 1e-9)}
    assert len(items) == most and len(drawn) == 1
    (limit,) = drawn
    assert sum(min(weight / limit, 1) for weight in weights) == pytest.approx(most, rel=1e-9)
    assert all(weight >= limit * (1 - 1e-9) for weight in new)
