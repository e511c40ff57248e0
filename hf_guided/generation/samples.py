"""The results of ``hg.sample``: texts with weights, their values, and the estimated probability of the format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from pydantic_core import to_jsonable_python

from ..constraints.argument_checks import Rule, check, is_int, whole
from ..errors import NoValue, cause
from ..session.result_html import shares_html

_SEED = Rule("an int", is_int)


@dataclass(frozen=True)
class Samples:
    """Weighted texts after one prompt, the heaviest first; all of them differ.

    Sums over them estimate the model's distribution, given that the text is in the format.

    Args:
        texts: finished texts.
        values: the value of each text, as in ``GuidedResult``; None where ``errors`` says why there is none.
        weights: probability of each text given the format; they sum to 1. Over runs, the mean of
            ``exp(log_evidence)`` times a weight is the model's probability of the text. The weight alone, a ratio, has
            a small bias, which vanishes as the number of particles grows.
        log_evidence: natural logarithm of the estimated probability that the model, without masks, writes a text of the
            format within the token limit. ``exp(log_evidence)`` has no bias, its logarithm has: on average it is too
            small. -inf if no text was finished.
        unfinished: share of all weight that belongs to texts cut by the token limit, or ended by an engine that failed;
            no weight above includes it. 0.0 for engines that know the way to the end of each text.
        errors: for each text why it could not be read as a value; None where it was.
    """

    texts: list[str]
    values: list[Any]
    weights: list[float]
    log_evidence: float
    unfinished: float = 0.0
    errors: list[str | None] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, finished: Mapping[bytes, float], cut: Sequence[float], parse: Callable[[str], Any]) -> Samples:
        """The samples of a run.

        Args:
            finished: log weights of texts.
            cut: log weights of texts that could not be finished.
            parse: makes a value of a text, and may raise any error.
        """
        evidence, whole_weight = log_sum([*finished.values()]), log_sum([*finished.values(), *cut])
        logs = dict(sorted(finished.items(), key=lambda item: -item[1]))
        texts = [text.decode(errors="replace") for text in logs]
        values: list[Any] = []
        errors: list[str | None] = []
        for text in texts:
            try:
                values.append(parse(text))
                errors.append(None)
            except Exception as error:  # a caller's validator may raise any error
                values.append(None)
                errors.append(cause(error))
        weights = [math.exp(log - evidence) for log in logs.values()]
        unfinished = -math.expm1(evidence - whole_weight) if whole_weight > evidence else 0.0
        return cls(texts, values, weights, evidence, unfinished, errors)

    @property
    def answers(self) -> list[tuple[Any, float]]:
        """Each value with its probability, that of all texts that have it; the most probable first.

        Values are equal if they are the same JSON: the order of members and the way to write a number do not count.
        Values that are no JSON, such as matches, are equal if their texts are. Texts without a value are left out.
        """
        values: dict[str, Any] = {}
        probabilities: dict[str, float] = {}
        for text, value, weight, error in zip(self.texts, self.values, self.weights, self.errors, strict=True):
            if error is None:
                key = _canonical(value, text)
                values.setdefault(key, value)
                probabilities[key] = probabilities.get(key, 0.0) + weight
        return sorted(((values[key], share) for key, share in probabilities.items()), key=lambda answer: -answer[1])

    def best(self) -> Any:
        """The most probable value, over all texts that have it: the first of ``answers``.

        Raises:
            NoValue: no text was finished, or none could be read.
        """
        return self._found()[0][0]

    def draw(self, k: int = 1, seed: int | None = None) -> list[Any]:
        """Draw values by their probabilities, with replacement.

        They are not independent samples of the model: all come from the same run, so its error is in all of them. For
        samples that depend less on each other, run ``hg.sample`` again, or with more particles.

        Args:
            k: how many.
            seed: None draws differently each time.

        Raises:
            NoValue: as for ``best``.
        """
        check("k", k, whole(0))
        if seed is not None:
            check("seed", seed, _SEED)
        values, shares = zip(*self._found(), strict=True)
        return Random(None if seed is None else int(seed)).choices(values, shares, k=k)

    def _found(self) -> list[tuple[Any, float]]:
        if answers := self.answers:
            return answers
        why = next(filter(None, self.errors), "no text was finished; allow more tokens, or more particles")
        raise NoValue(f"expected samples with a value, got none: {why}", result=self)

    def _repr_html_(self) -> str:
        notes = [f"log evidence {self.log_evidence:.3f}", f"{len(self.texts):,} texts"]
        if self.unfinished:
            notes.append(f"{self.unfinished:.1%} of the weight in unfinished texts")
        return shares_html(self.answers, ", ".join(notes))


def log_sum(logs: Sequence[float]) -> float:
    """The logarithm of the sum of numbers with these logarithms; -inf for none."""
    return float(torch.tensor([-math.inf, *logs], dtype=torch.float64).logsumexp(0))


def _canonical(value: Any, text: str) -> str:
    try:
        return "json " + json.dumps(_plain(to_jsonable_python(value)), sort_keys=True)
    except Exception:  # no JSON, or a class of the caller's
        return "text " + text


def _plain(value: Any) -> Any:
    """A JSON value in which equal numbers have the same type."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [*map(_plain, value)] if isinstance(value, list) else value
