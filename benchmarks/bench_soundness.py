"""Is what comes out valid, whatever the model wants? Hot random walks over the masks of real schemas.

    python -m benchmarks.bench_soundness [--rounds 8] [--limit N] [--only NAME ...] [--vocabulary NAME ...]
                                         [--key-order declared|any ...]

A walk takes random tokens among those that the mask allows, until it takes a stop token or is cut. It is hotter than
any model: every token is as likely as any other, or every first byte. After a random number of steps it begins to
prefer what closes strings, arrays and objects, so that texts end. Every second walk has a token limit, between the
stated minimum and 60 tokens more, and must end within it. ``jsonschema`` judges every text that ended, with formats and
with decimals (oracle.py).

Other rows are those of ``hg.generate`` with a tiny random model at a high temperature, each with such a limit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

import hf_guided as hg
from benchmarks.bench_schemas import Sample, load_samples
from benchmarks.common import finish, parser, table_of
from benchmarks.modes import tiny_llama
from benchmarks.oracle import Oracle, Undecided
from hf_guided.backends.compile import Compiler
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.json_style import KeyOrder
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import VOCABULARIES

_GENERATED = "demo, hg.generate"
_CLOSING = frozenset(b'"}]')
MOST_TOKENS = 400
MORE_TOKENS = (0, 0, 1, 2, 5, 20, 60)  # than the stated minimum


Walkable = Any  # what has fill_next_token_bitmask, accept_token and is_terminated; only ours know a token limit


class Walked(NamedTuple):
    """How a walk ended: "finished", "cut", "over" where a token limit was used up before the end, "dead end" where the
    mask was empty, "refused" where the matcher did not take a token that the mask allowed, or "gave up".
    """

    text: bytes
    ending: str


def allowed_tokens(matcher: Walkable, bitmask: Tensor, **options: Any) -> NDArray[np.int64]:
    """The ids that may come next; ``bitmask`` is (1, words) int32 and is overwritten."""
    matcher.fill_next_token_bitmask(bitmask, **options)
    return np.flatnonzero(np.unpackbits(bitmask[0].numpy().view(np.uint8), bitorder="little"))


class HotWalker:
    """Random walks over one vocabulary; the same seed walks the same way."""

    def __init__(self, vocabulary: Vocabulary, seed: int = 0):
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._bitmask = allocate_bitmask(1, vocabulary.padded_size)
        known = [vocabulary.decode_bytes([i]) for i in range(vocabulary.padded_size)]
        self._first = np.array([data[0] if data else 256 for data in known])  # of each token; 256: a stop token
        self._closes = np.array([data[:1] != b"" and _CLOSING.issuperset(data) for data in known])

    def walk_within(self, matcher: Matcher) -> Walked:
        """A walk with a token limit that is enough: at most 60 tokens more than the stated minimum."""
        minimum = matcher.min_tokens_to_finish()
        assert minimum is not None, "the native engine always knows a way to the end"
        return self.walk(matcher, minimum + self._random.choice(MORE_TOKENS), is_limit=True)

    def walk(self, matcher: Walkable, most_tokens: int = MOST_TOKENS, *, is_limit: bool = False) -> Walked:
        """Walk from the start of the grammar to its end, or until the walk is cut; ``is_limit``: the matcher gets
        ``most_tokens`` as the request's token limit. The stop token counts as one of them.
        """
        closing = self._random.choice([0.0, 0.1, 0.4])  # how often it closes before it is tired
        patience = self._random.randrange(MOST_TOKENS // 8)
        taken: list[int] = []
        while len(taken) < most_tokens:
            limit = {"tokens_left": most_tokens - len(taken)} if is_limit else {}
            try:
                allowed = allowed_tokens(matcher, self._bitmask, **limit)
            except hg.CompileLimitExceeded:
                return Walked(self._vocabulary.decode_bytes(taken), "gave up")
            if not len(allowed):
                return Walked(self._vocabulary.decode_bytes(taken), "dead end")
            tired = len(taken) > patience
            token_id = self._choose(allowed, 0.9 if tired else closing, tired)
            if not matcher.accept_token(token_id):
                return Walked(self._vocabulary.decode_bytes([*taken, token_id]), "refused")
            if matcher.is_terminated():
                return Walked(self._vocabulary.decode_bytes(taken), "finished")
            taken.append(token_id)
        return Walked(self._vocabulary.decode_bytes(taken), "over" if is_limit else "cut")

    def _choose(self, allowed: NDArray[np.int64], closing: float, tired: bool) -> int:
        first = self._first[allowed]
        if tired and (first == 256).any():
            return self._any(allowed[first == 256])
        closes = allowed[self._closes[allowed]]
        if len(closes) and self._random.random() < closing:
            return self._any(closes)
        if self._random.random() < 0.5:  # else a comma would never be heard among 100,000 words
            return self._any(allowed[first == self._any(np.unique(first))])
        return self._any(allowed)

    def _any(self, values: NDArray[Any]) -> int:
        return int(values[self._random.randrange(len(values))])


@dataclass
class Report:
    schemas: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    valid: int = 0
    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def judge(self, name: str, oracle: Oracle, text: bytes, ending: str) -> None:
        self.endings[ending] += 1
        if ending in ("dead end", "refused", "over"):
            self.failures.append(f"{name}: {ending} after {text[-100:]!r}")
        if ending != "finished":
            return
        try:
            problem = oracle.problem(text)
        except Undecided as why:
            self.undecided.append(f"{name}: {why}")
            return
        self.valid += not problem
        if problem:
            self.failures.append(f"{name}: {problem[:200]} in {text[:300]!r}")

    def row(self, vocabulary: str, key_order: str) -> dict[str, Any]:
        return {
            "vocabulary": vocabulary,
            "key_order": key_order,
            "schemas": self.schemas,
            "generations": self.endings.total(),
            "finished": self.endings["finished"],
            "cut": self.endings["cut"],
            "over_the_limit": self.endings["over"],
            "dead_ends": self.endings["dead end"],
            "refused": self.endings["refused"],
            "gave_up": self.endings["gave up"],
            "valid": self.valid,
            "invalid": len(self.failures),
            "undecided": len(self.undecided),
        }


def soundness(
    vocabulary: Vocabulary,
    samples: Sequence[Sample],
    rounds: int,
    seed: int = 0,
    key_order: KeyOrder = "declared",
) -> Report:
    walker, report, compiler = HotWalker(vocabulary, seed), Report(), Compiler(vocabulary)
    for sample in samples:
        try:
            compiled = compiler.compile(hg.JsonSchema(sample.schema, extra="allow", key_order=key_order))
        except (hg.ConstraintError, hg.CompileLimitExceeded):
            continue
        report.schemas += 1
        oracle = Oracle(sample.schema)
        for number in range(rounds):
            walk = walker.walk_within if number % 2 else walker.walk
            report.judge(sample.name, oracle, *walk(compiled.matcher()))
    return report


def generated(samples: Sequence[Sample], rows: int, seed: int = 0, key_order: KeyOrder = "declared") -> Report:
    """Generate ``rows`` texts for every sample by a hot random model and the demo vocabulary, and judge them."""
    tokenizer = VOCABULARIES["demo"]()
    model, report = tiny_llama(len(tokenizer), seed, max_position_embeddings=16384), Report()
    guide = hg.Guide(model, tokenizer)
    chance = random.Random(seed)
    for sample in samples:
        constraint = hg.JsonSchema(sample.schema, extra="allow", key_order=key_order)
        try:
            minimum = guide.compile(constraint).matcher().min_tokens_to_finish()
        except (hg.ConstraintError, hg.CompileLimitExceeded):
            continue
        assert minimum is not None
        report.schemas += 1
        oracle = Oracle(sample.schema)
        limit = minimum + chance.choice(MORE_TOKENS)
        settings: dict[str, Any] = {"max_new_tokens": limit, "seed": chance.randrange(10**6), "temperature": 1.5}
        prompts = ["An answer:"] * rows
        for result in hg.generate(model, tokenizer, prompts, constraint, guide=guide, do_sample=True, **settings):
            ending = {"stop": "finished", "length": "over", "dead_end": "dead end"}[result.finish_reason]
            report.judge(sample.name, oracle, result.text.encode(), ending)
    return report


def main() -> None:
    made = parser(__doc__, "soundness.csv")
    made.add_argument("--rounds", type=int, default=8, help="walks for each schema and vocabulary")
    made.add_argument("--limit", type=int, help="the first N schemas")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of schemas")
    made.add_argument("--vocabulary", nargs="+", choices=VOCABULARIES, default=["tekken", "demo"])
    made.add_argument("--key-order", nargs="+", choices=get_args(KeyOrder), default=list(get_args(KeyOrder)))
    made.add_argument("--seed", type=int, default=0)
    arguments = made.parse_args()
    samples = load_samples(arguments.only, arguments.limit)
    rows = []
    for name, key_order in product([*arguments.vocabulary, _GENERATED], arguments.key_order):
        how = arguments.rounds, arguments.seed, key_order
        if name == _GENERATED:
            report = generated(samples, *how)
        else:
            report = soundness(Vocabulary.from_tokenizer(VOCABULARIES[name]()), samples, *how)
        rows.append(report.row(name, key_order))
        for line in (*report.failures, *(f"undecided: {one}" for one in report.undecided)):
            print(f"{name}, {key_order}: {line}", flush=True)
    finish(arguments, rows, table_of(rows), whole=not (arguments.only or arguments.limit))


if __name__ == "__main__":
    main()
