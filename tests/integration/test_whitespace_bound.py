"""Models that want nothing but white space, digits or an open string: they finish or are cut, and nothing runs away.

The bound on white space between two tokens of JSON, with ``whitespace="flexible"``: a space, or a line break with at
most 40 spaces or 10 tabs of indent; with xgrammar too. With "compact": a space.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import hf_guided as hg
from benchmarks.bench_soundness import allowed_tokens
from benchmarks.oracle import Oracle
from hf_guided import demo
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary
from tests.pairs import once_each
from tests.vocabularies import VOCABULARIES

MOST_TOKENS = 250
BOUNDS = {
    "auto": re.compile(r" |\n(?: {0,40}|\t{0,10})"),
    "xgrammar": re.compile(r" |\n(?: {0,40}|\t{0,10})"),
    "compact": re.compile(" "),
}
SCHEMAS = {
    "record": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "object", "properties": {"x": {"type": "number"}, "n": {"type": "integer"}}},
        },
        "required": ["name", "tags", "at"],
    },
    "number": {"type": "number"},
    "bounded": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 3},
    "anything": {"type": "object"},
    "tree": {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
}
WANTS: dict[str, Callable[[bytes], bool]] = {
    "white space": lambda data: not data.strip(b" \t\r\n"),
    "digits": lambda data: data.isdigit(),
    "open strings": lambda data: not set(data) & set(b'"}]'),
}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)', re.DOTALL)


class Model:
    """Takes what it wants wherever the mask allows it, the longest first; anything elsewhere."""

    def __init__(self, vocabulary: Vocabulary):
        self.compiler = Compiler(vocabulary)
        self._vocabulary = vocabulary
        self._bitmask = allocate_bitmask(1, vocabulary.padded_size)
        known = [vocabulary.decode_bytes([i]) for i in range(vocabulary.padded_size)]
        self._lengths = np.array([len(data) for data in known])
        self._wanted = {
            what: np.array([data != b"" and wants(data) for data in known]) for what, wants in WANTS.items()
        }

    def write(self, compiled: CompiledConstraint, what: str, seed: int) -> tuple[bytes, bool]:
        """A text, and whether it ended before it was cut."""
        chosen, matcher = random.Random(seed), compiled.matcher()
        taken: list[int] = []
        while len(taken) < MOST_TOKENS:
            allowed = allowed_tokens(matcher, self._bitmask)
            assert len(allowed), f"dead end behind {self._vocabulary.decode_bytes(taken)!r}"
            wanted = allowed[self._wanted[what][allowed]]
            if len(wanted):
                lengths = self._lengths[wanted]
                allowed = wanted[lengths == lengths.max()]
            assert matcher.accept_token(token_id := int(allowed[chosen.randrange(len(allowed))]))
            if matcher.is_terminated():
                return self._vocabulary.decode_bytes(taken), True
            taken.append(token_id)
        return self._vocabulary.decode_bytes(taken), False


@cache
def model_of(vocabulary: str) -> Model:
    return Model(Vocabulary.from_tokenizer(VOCABULARIES[vocabulary]()))


@pytest.fixture(params=["demo", "tekken"])
def model(request: pytest.FixtureRequest) -> Model:
    return model_of(request.param)


def gaps(text: bytes) -> list[str]:
    """The white space between the tokens of a JSON text, finished or cut."""
    return re.findall(r"[ \t\r\n]+", _STRING.sub('""', text.decode(errors="ignore")))


@pytest.mark.parametrize(
    ("vocabulary", "name", "bound"),
    once_each(["demo", "tekken"], SCHEMAS, BOUNDS, cost=lambda cell: 3 if cell[0] == "tekken" else 1),
)
def test_nothing_runs_away(vocabulary: str, name: str, bound: str) -> None:
    model = model_of(vocabulary)
    constraint = hg.JsonSchema(SCHEMAS[name], whitespace="compact" if bound == "compact" else "flexible")
    compiled = model.compiler.compile(constraint, "xgrammar" if bound == "xgrammar" else "auto")
    oracle = Oracle(SCHEMAS[name])
    for what in WANTS:
        for seed in range(2):
            text, finished = model.write(compiled, what, seed)
            assert [gap for gap in gaps(text) if not BOUNDS[bound].fullmatch(gap)] == [], (what, text)
            assert not finished or oracle.problem(text) == "", (what, text)


def test_what_is_bounded_ends(model: Model) -> None:
    compiled = model.compiler.compile(hg.JsonSchema(SCHEMAS["bounded"]))
    for what in WANTS:
        text, finished = model.write(compiled, what, seed=0)
        assert finished, (what, text)


def test_a_model_that_wants_white_space_gets_it(model: Model) -> None:
    """Otherwise the tests above would say nothing."""
    compiled = model.compiler.compile(hg.JsonSchema(SCHEMAS["record"]))
    text, _ = model.write(compiled, "white space", seed=0)
    assert any(len(gap) > 1 for gap in gaps(text)), text


def test_gaps_are_outside_of_strings() -> None:
    assert gaps(b'{"a  b": [1,\n  2],\t"c\\"  ":["d   ') == [" ", "\n  ", "\t"]


class Wants:
    """A logits processor: a model that wants these tokens more than anything else."""

    def __init__(self, token_ids: list[int]):
        self._token_ids = token_ids

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, self._token_ids] += 1000.0
        return scores


@pytest.mark.parametrize("what", WANTS)
def test_generate_cuts_such_a_model_cleanly(what: str) -> None:
    language_model, tokenizer = demo.load()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    wanted = [i for i, data in enumerate(vocabulary.token_bytes) if data is not None and WANTS[what](data)]
    torch.manual_seed(0)
    results = hg.generate(
        language_model,
        tokenizer,
        ["Anna", "Ben"],
        hg.JsonSchema(SCHEMAS["record"]),
        max_new_tokens=80,
        logits_processor=[Wants(wanted)],
    )
    for result in results:
        assert result.finish_reason in ("stop", "length")
        assert (result.value is None) == (result.finish_reason == "length")
        assert [gap for gap in gaps(result.text.encode()) if not BOUNDS["auto"].fullmatch(gap)] == []
