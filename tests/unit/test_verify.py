"""The acceptance rules of draft tokens, compared with hand-computed distributions by chi-square tests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
from torch import Tensor

from hf_guided.hf.drafts import verify as acceptance
from hf_guided.hf.drafts.verify import Accepted, accept_greedy, accept_sampling
from tests.chi_square import NEVER_BY_CHANCE, p_value, tail_of_chi_square
from tests.effort import repeats

SAMPLES = repeats(6_000, 24_000)

P = {
    "level": [0.25, 0.25, 0.25, 0.25],
    "steep": [0.7, 0.2, 0.08, 0.02],
    "masked": [0.0, 0.6, 0.0, 0.4],
}
Q = {
    "the same": None,  # filled in: p itself
    "certain": "one-hot",
    "reversed": [0.02, 0.08, 0.2, 0.7],
    "where p has none": [0.5, 0.1, 0.4, 0.0],
    "disjoint": [0.5, 0.0, 0.5, 0.0],
}


def scores_of(p: Sequence[float]) -> Tensor:
    return torch.tensor(p).log()


def q_of(name: str, p: Sequence[float]) -> list[float] | None:
    return {"the same": list(p), "certain": None}.get(name, Q[name])  # type: ignore[return-value]


def draw(q: Sequence[float] | None, count: int, generator: torch.Generator) -> list[int]:
    """Draw draft tokens from q. If q is None, the source is certain of token 1."""
    if q is None:
        return [1] * count
    return torch.multinomial(torch.tensor(q), count, replacement=True, generator=generator).tolist()


def first_tokens(p: Sequence[float], q: Sequence[float] | None, samples: int = SAMPLES) -> Counter[tuple[int, ...]]:
    """Count the first tokens of many rows, each with one draft token."""
    generator = torch.Generator().manual_seed(7)
    drafts = [[token_id] for token_id in draw(q, samples, generator)]
    scores = torch.stack([scores_of(p), scores_of([0.1, 0.2, 0.3, 0.4])]).repeat(samples, 1)
    given = None if q is None else [torch.tensor([q])] * samples
    return Counter(
        (draft[0] if taken.num_drafted else taken.bonus_token,)
        for draft, taken in zip(drafts, accept_sampling(scores, drafts, given, generator), strict=True)
    )


def single_token_shares(p: Sequence[float]) -> dict[tuple[int, ...], float]:
    return {(token_id,): share for token_id, share in enumerate(p)}


def test_tail_of_chi_square() -> None:
    for x, freedom, tail in (3.841, 1, 0.05), (11.345, 3, 0.01), (24.996, 15, 0.05):  # from any table
        assert math.isclose(tail_of_chi_square(x, freedom), tail, rel_tol=1e-3)


@pytest.mark.parametrize("q", Q)
@pytest.mark.parametrize("p", P)
def test_first_token_is_a_sample_of_p(p: str, q: str) -> None:
    assert p_value(first_tokens(P[p], q_of(q, P[p])), single_token_shares(P[p])) > NEVER_BY_CHANCE


@pytest.mark.parametrize("q", ["certain", "reversed"])
def test_two_tokens_are_samples_of_the_joint_distribution(q: str) -> None:
    """The model's second token depends on the first, the draft's too."""
    generator = torch.Generator().manual_seed(11)
    after = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.85, 0.05, 0.05, 0.05], [0.25] * 4, [0.0, 0.5, 0.5, 0.0]])
    first = P["steep"]
    q_first = q_of(q, first)
    q_after = None if q_first is None else after[[3, 2, 1, 0]]
    drafts, scores, given = [], [], []
    for token_id in draw(q_first, SAMPLES, generator):
        q_second = None if q_after is None else q_after[token_id].tolist()
        drafts.append([token_id, *draw(q_second, 1, generator)])
        scores += [scores_of(first), after[token_id].log(), torch.zeros(4)]
        given.append(None if q_first is None else torch.tensor([q_first, q_second]))
    seen: Counter[tuple[int, ...]] = Counter()
    for draft, taken in zip(drafts, accept_sampling(torch.stack(scores), drafts, given, generator), strict=True):
        tokens = [*draft[: taken.num_drafted], taken.bonus_token]
        if len(tokens) == 1:  # the draft was rejected, so the model draws the second token
            tokens += torch.multinomial(after[tokens[0]], 1, generator=generator).tolist()
        seen[tokens[0], tokens[1]] += 1
    joint = {(a, b): first[a] * float(after[a, b]) for a in range(4) for b in range(4)}
    assert p_value(seen, joint) > NEVER_BY_CHANCE


def test_token_after_an_accepted_draft_is_a_sample_of_the_last_position() -> None:
    """Also in a batch with drafts of no, one and two tokens, and with different kinds of draft distributions."""
    generator = torch.Generator().manual_seed(3)
    sure = torch.tensor([0.0, float("-inf"), float("-inf"), float("-inf")])
    wanted = scores_of(P["steep"])
    rows = [
        ([], [wanted], None),
        ([0], [sure, wanted], torch.tensor([P["level"]])),
        ([0, 0], [sure, sure, wanted], None),
    ]
    count = SAMPLES // 2
    taken = accept_sampling(
        torch.stack([position for _, positions, _ in rows for position in positions]).repeat(count, 1),
        [draft for draft, _, _ in rows] * count,
        [q for _, _, q in rows] * count,
        generator,
    )
    for kind, (draft, _, _) in enumerate(rows):
        of_kind = taken[kind :: len(rows)]
        assert {single_token_shares.num_drafted for single_token_shares in of_kind} == {len(draft)}
        assert (
            p_value(
                Counter((single_token_shares.bonus_token,) for single_token_shares in of_kind),
                single_token_shares(P["steep"]),
            )
            > NEVER_BY_CHANCE
        )


def _always(*args: object, **kwargs: object) -> list[int]:
    return [len(draft) for draft in args[2]]  # type: ignore[attr-defined]


def _never(*args: object, **kwargs: object) -> list[int]:
    return [0 for _ in args[2]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "mutant", "p", "q"),
    [
        ("_num_agreed", _always, "level", "reversed"),
        ("_num_agreed", _always, "steep", "certain"),
        ("_num_agreed", _never, "steep", "reversed"),
        ("_residual", lambda p, q: p, "level", "reversed"),
        ("_residual", lambda p, q: p, "steep", "certain"),
        ("_residual", lambda p, q: q, "level", "reversed"),
    ],
)
def test_broken_rules_are_detected(
    name: str, mutant: Callable[..., object], p: str, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, name, mutant)
    assert p_value(first_tokens(P[p], q_of(q, P[p])), single_token_shares(P[p])) < NEVER_BY_CHANCE


def test_draft_from_another_distribution_is_detected() -> None:
    """The given probabilities matter: with those of another source, the result is not a sample of p."""
    generator = torch.Generator().manual_seed(7)
    drafts = [[token_id] for token_id in draw([0.02, 0.08, 0.2, 0.7], SAMPLES, generator)]
    scores = torch.stack([scores_of(P["level"])] * 2).repeat(SAMPLES, 1)
    taken = accept_sampling(scores, drafts, [torch.tensor([P["level"]])] * SAMPLES, generator)
    seen = Counter((d[0] if t.num_drafted else t.bonus_token,) for d, t in zip(drafts, taken, strict=True))
    assert p_value(seen, single_token_shares(P["level"])) < NEVER_BY_CHANCE


def test_residual_falls_back_if_rounding_makes_it_zero() -> None:
    p = torch.tensor([[0.3, 0.7], [0.0, 1 - 6e-8], [0.2, 0.8]])
    q = torch.tensor([[0.3 + 1e-7, 0.7], [0.0, 1.0], [0.8, 0.2]])
    torch.testing.assert_close(acceptance._residual(p, q), torch.tensor([[0.3, 0.7], [0.0, 1.0], [0.0, 0.6]]))


def test_draft_of_the_only_possible_token_is_always_accepted() -> None:
    scores = torch.full((2, 5), float("-inf"))
    scores[:, 3] = 0.5
    for taken in accept_sampling(scores.repeat(5_000, 1), [[3]] * 5_000):
        assert taken == Accepted(1, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_without_drafts_it_equals_multinomial(dtype: torch.dtype) -> None:
    scores = torch.randn(64, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    wide = scores.double() if dtype is torch.float64 else scores.float()
    plain = torch.multinomial(wide.softmax(-1), 1, generator=torch.Generator().manual_seed(1)).flatten()
    taken = accept_sampling(scores, [[]] * 64, generator=torch.Generator().manual_seed(1))
    assert taken == [Accepted(0, token_id) for token_id in plain.tolist()]


def greedy_by_hand(scores: Tensor, drafts: Iterable[Sequence[int]]) -> list[Accepted]:
    """Decode token by token, as a loop without drafts does."""
    positions = iter(scores.tolist())
    expected = []
    for draft in drafts:
        of_row = [next(positions) for _ in range(len(draft) + 1)]
        taken: list[int] = []
        while True:
            row_scores = of_row[len(taken)]
            best = min(range(len(row_scores)), key=lambda token_id: (-row_scores[token_id], token_id))
            if len(taken) < len(draft) and draft[len(taken)] == best:
                taken.append(best)
                continue
            expected.append(Accepted(len(taken), best))
            break
    return expected


@pytest.mark.parametrize("seed", range(20))
def test_greedy_equals_decoding_token_by_token(seed: int) -> None:
    """Few tokens and few values, so that many drafts are right and many scores are equal."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(5, (6,), generator=generator).tolist()
    drafts = [torch.randint(3, (length,), generator=generator).tolist() for length in lengths]
    scores = torch.randint(3, (sum(lengths) + 6, 3), generator=generator).float()
    assert accept_greedy(scores, drafts) == greedy_by_hand(scores, drafts)


@pytest.mark.parametrize("accept", [accept_greedy, accept_sampling])
def test_number_of_positions_is_checked(accept: Callable[..., list[Accepted]]) -> None:
    with pytest.raises(ValueError, match="expected scores for 3 positions"):
        accept(torch.zeros(2, 4), [[1], []])
