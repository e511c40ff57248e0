"""Members in any order: masks are those of brute force, and every way out is one, whatever tokens a vocabulary has."""

from __future__ import annotations

import json
from collections.abc import Hashable
from random import Random
from typing import Any, cast

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hf_guided.automaton import component_walk, frame_machine
from hf_guided.backends.network import FrameEngine, NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import HFGuidedError
from hf_guided.session.mask_table import MaskTables
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from tests import toy
from tests.effort import repeats

# Tokens with several names, with one twice, and with parts of them.
VOCABULARY = toy.pieces(
    '{"a":1,"ab":"x","b":[1]}',
    '{"a": 1, "ab": {"a": 2, "b": "ab"}}',
    '"a":"a","b":1,"a":2,"abc":',
    '{"abcd": true, "x": null}',
    '"b":1,"a","',
    '":1,"a":1,"a',
    '{"":"",""',
)
TOKEN_BYTES = VOCABULARY.token_bytes
TEXTS = [token_id for token_id, data in enumerate(TOKEN_BYTES) if data]
NAMES = ["a", "ab", "abc", "b", "abcd", "x"]
LEAVES: list[Any] = [
    {"type": "integer", "minimum": 0, "maximum": 2},
    {"type": "string", "maxLength": 2},
    {"const": 1},
    {"enum": ["a", "ab"]},
    {"type": "boolean"},
    {"type": "null"},
]
OPTIONS: list[Any] = [{}, {"whitespace": "minified"}, {"spelling": "any"}]


def schema_of(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.4:
        return random.choice(LEAVES)
    if random.random() < 0.15:
        return {"type": "array", "items": schema_of(random, depth - 1)}
    return object_of(random, depth)


def object_of(random: Random, depth: int) -> dict[str, Any]:
    chosen = random.sample(NAMES, random.randint(0, 4))
    schema: dict[str, Any] = {"type": "object", "properties": {name: schema_of(random, depth - 1) for name in chosen}}
    for keyword, share, make in (
        ("required", 0.6, lambda: random.sample(NAMES, random.randint(1, 3))),
        ("additionalProperties", 0.5, lambda: random.choice([False, False, schema_of(random, 0)])),
        ("patternProperties", 0.2, lambda: {random.choice(["^a", "b$", "^ab?$"]): schema_of(random, 0)}),
        ("propertyNames", 0.2, lambda: {"pattern": random.choice(["^[ab]{1,3}$", "^a", "^(a|ab|b)$"])}),
        ("minProperties", 0.3, lambda: random.randint(1, 4)),
        ("maxProperties", 0.3, lambda: random.randint(1, 4)),
        ("dependentRequired", 0.2, lambda: {random.choice(NAMES): [random.choice(NAMES)]}),
    ):
        if random.random() < share:
            schema[keyword] = make()
    return schema


def engines(schema: Any, **options: Any) -> tuple[FrameEngine, FrameEngine] | None:
    """Of two machines; the second one is never asked for a mask, so it reads the text itself."""
    constraint = JsonSchema(schema, key_order="any", extra="allow", **options)
    try:
        first, second = (NetworkBackend(VOCABULARY).compile(constraint).new_engine() for _ in range(2))
    except HFGuidedError:
        return None
    return cast(FrameEngine, first), cast(FrameEngine, second)


def tokens_of(words: NDArray[np.int32]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def accepted(engine: FrameEngine) -> set[int]:
    return {token_id for token_id in TEXTS if engine.validate([token_id])}


def needed_after(engine: FrameEngine, token_id: int) -> int:
    twin = engine.fork()
    assert twin.accept(token_id)
    return twin.min_tokens_to_finish()


@settings(max_examples=repeats(12, 300), deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(OPTIONS), st.sampled_from([0, 3, 50, 2_000]))
def test_masks_are_those_of_brute_force_and_ways_out_hold(random: Random, options: Any, few: int) -> None:
    """A token may come where both readers take it; with a limit, where what is left after it is enough."""
    schema = object_of(random, 3)
    valid, both = jsonschema.Draft202012Validator(schema), engines(schema, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_walk, "FEW", few)
        patch.setattr(frame_machine, "FEW", few)
        patch.setattr(frame_machine, "_BYTES", random.choice([30_000, 10 << 20]))
        if both is None:
            return
        ours, theirs = both[0].fork(), both[1].fork()
        text, known = b"", dict[Hashable, set[int]]()
        for _ in range(random.randrange(25)):
            words, may_stop = toy.mask_of(ours, VOCABULARY)
            fitting = tokens_of(words)
            assert fitting == accepted(theirs), text
            key = ours.mask_key()  # that from before may be another: a mask shows what it depends on
            assert key is None or known.setdefault(key, fitting) == fitting, text
            assert may_stop == ours.is_completed() == theirs.is_completed()
            least = ours.min_tokens_to_finish()
            left = random.choice([least, least + 1, least + random.randrange(12)])
            within = tokens_of(toy.mask_of(ours, VOCABULARY, left)[0])
            assert within == {token_id for token_id in fitting if needed_after(ours, token_id) < left}, (text, left)
            if not fitting:
                break
            token_id = random.choice(sorted(fitting))
            assert ours.accept(token_id) and theirs.accept(token_id)
            text += TOKEN_BYTES[token_id] or b""
        left = ours.min_tokens_to_finish()
        while left > 1:  # the stop token is the last
            within = tokens_of(toy.mask_of(ours, VOCABULARY, left)[0])
            if not within:
                break
            token_id = random.choice(sorted(within))
            assert ours.accept(token_id)
            text, left = text + (TOKEN_BYTES[token_id] or b""), left - 1
        assert ours.is_completed(), text
        assert valid.is_valid(json.loads(text)), text
        members = json.loads(text, object_pairs_hook=list)  # inside values that the schema leaves free they may repeat
        assert len(dict(members)) == len(members), text


def test_the_same_names_in_another_order_are_one_state() -> None:
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in ("a", "b", "x")}}
    both = engines(schema, whitespace="minified")
    assert both is not None
    first, second = both[0].fork(), both[0].fork()
    for engine, text in ((first, b'{"a":null,"abcde":1,"b":null,'), (second, b'{"b":null,"a":null,"abcde":1,')):
        for byte in text:
            assert engine.accept(TOKEN_BYTES.index(bytes([byte])))
    assert first.here() == second.here()
    assert first.mask_key() == second.mask_key() is not None
    assert not first.validate([TOKEN_BYTES.index(b'"a"')]) and first.validate([TOKEN_BYTES.index(b'"x"')])


@pytest.mark.parametrize("few", [0, 2_000])
def test_rows_with_other_open_names_share_no_mask_that_is_not_theirs(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that ends a name, and has another one, may repeat it: then the mask is that of one open name alone."""
    monkeypatch.setattr(frame_machine, "FEW", few)
    monkeypatch.setattr(component_walk, "FEW", few)
    compiled = NetworkBackend(VOCABULARY).compile(
        JsonSchema({"type": "object", "minProperties": 2}, "minified", key_order="any", extra="allow")
    )
    rows = [Row(compiled.matcher()) for _ in range(3)]
    for row, text in zip(rows, (b'{"a', b'{"bb', b'{"cd'), strict=True):
        for byte in text:
            assert row.advance(TOKEN_BYTES.index(bytes([byte])))
    tables = MaskTables(VOCABULARY.padded_size)
    for filler in (MaskFiller(VOCABULARY, (0,), tables=tables), MaskFiller(VOCABULARY, (0,), tables=tables)):
        masks = filler.fill(rows, [None] * 3)
        for i, row in enumerate(rows):
            assert tokens_of(masks.words(i)) == accepted(cast(FrameEngine, row.engine))
    repeated = TOKEN_BYTES.index(b'":1,"a"') if b'":1,"a"' in TOKEN_BYTES else TOKEN_BYTES.index(b'":1,"a":')
    assert [row.num_taken([repeated]) for row in rows] == [0, 1, 1]
