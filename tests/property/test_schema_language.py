"""The law of JSON Schema: if no losses are reported, the grammar accepts exactly the valid values.

`jsonschema` decides which values are valid. A grammar fixes the order of members, so a valid object has to be accepted
in one of its orders, and an invalid object in none. Other spellings of a value may be refused, but are never accepted
if the value is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice, product
from random import Random
from typing import Any, NamedTuple

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, ConstraintError, UnsupportedConstraint
from tests.effort import repeats
from tests.property.schema_examples import DRAFTS, Writer, constants, instance, orders, parsed, spellings
from tests.toy import all_bytes

MOST_ORDERS = 60


class Wrong(NamedTuple):
    """A text on which the grammar and `jsonschema` disagree."""

    what: str
    text: str


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    """Whether the grammar accepts this text."""
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


def compile_exactly(backend: LLGuidanceBackend, schema: Any) -> CompiledConstraint | None:
    """The grammar of a schema; None if the backend reports losses, or that no value is valid."""
    constraint = JsonSchema(schema, extra="allow", spelling="any")
    try:
        return backend.compile(constraint)
    except (ConstraintError, CompileLimitExceeded) as error:
        if isinstance(error, UnsupportedConstraint):
            assert error.losses
        return None


def validator(schema: dict[str, Any], draft: int) -> Any:
    """The validator of `jsonschema`, with exact numbers."""
    cls = jsonschema.validators.validator_for(schema)
    return cls(parsed(json.dumps(schema), draft), format_checker=cls.FORMAT_CHECKER)


def compact(text: str) -> str:
    """The same JSON without white space."""
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def mistakes(
    compiled: CompiledConstraint, valid: Any, draft: int, values: list[Any], random: Random, every: bool = True
) -> Iterator[Wrong]:
    """Yield the disagreements on these values and on unusual spellings of them.

    Args:
        compiled: the grammar.
        valid: the validator.
        draft: of the schema.
        values: what to try.
        random: for the unusual spellings.
        every: whether the engine writes all spellings: integers as 1.0, listed values with spaces.
    """
    for value in values:
        texts = [json.dumps(ordered, ensure_ascii=False) for ordered in islice(orders(value), MOST_ORDERS + 1)]
        try:
            is_valid = valid.is_valid(parsed(texts[0], draft))
        except RecursionError:  # a reference leads back to itself, beside an alternative that takes any value
            return
        taken = [text for text in texts if accepts(compiled, text)]
        # In draft 4 the number 1.0 is no integer. Our grammars do not write it as another number either.
        doubtful = (draft == 4 or not every) and re.search(r"\.0\b", texts[0])
        if not every:
            taken += [text for text in map(compact, texts) if accepts(compiled, text)]
        if is_valid and not taken and len(texts) <= MOST_ORDERS and not doubtful:
            yield Wrong("valid refused", texts[0])
        if not is_valid and taken:
            yield Wrong("invalid accepted", taken[0])
        odd = spellings(random, value)
        if accepts(compiled, odd) and not valid.is_valid(parsed(odd, draft)):
            yield Wrong("invalid accepted", odd)


BACKEND = LLGuidanceBackend(all_bytes())


@settings(max_examples=repeats(100, 300))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(DRAFTS)))
def test_grammar_accepts_exactly_the_valid_values(random: Random, draft: int) -> None:
    schema = Writer(random, draft).document()
    compiled = compile_exactly(BACKEND, schema)
    if compiled is None:
        return
    listed = list(constants(schema))
    values = [*listed, *(instance(random, listed) for _ in range(12))]
    wrong = list(mistakes(compiled, validator(schema, draft), draft, values, random))
    assert not wrong, json.dumps(schema)


_NEEDS = {
    "begin": {"anyOf": [{"required": ["end"]}, {"required": ["while"]}]},
    "end": ["begin"],
    "while": ["begin"],
    "name": {"anyOf": [{"required": ["begin", "end"]}, {"required": ["begin", "while"]}]},
    "captures": {"oneOf": [{"required": ["end"]}, {"required": ["while"]}]},
    "while captures": ["begin", "while"],
    "end captures": ["begin", "end"],
    "last": ["end"],
}


@pytest.mark.parametrize("undeclared", [(), ("last",), ("begin", "captures")])
def test_many_names_that_need_others_allow_exactly_the_valid_sets_of_names(undeclared: tuple[str, ...]) -> None:
    """Taken apart one by one, so many conditions make more alternatives than are allowed."""
    names = [name for name in _NEEDS if name not in undeclared]
    schema = {
        "$schema": DRAFTS[7],
        "type": "object",
        "properties": {name: {"const": 1} for name in names},
        "dependencies": _NEEDS,
    }
    options = {"extra": "allow", "whitespace": "minified"}
    in_order = LLGuidanceBackend(all_bytes()).compile(JsonSchema(schema, **options))
    in_any_order = NetworkBackend(all_bytes()).compile(JsonSchema(schema, key_order="any", **options))
    for chosen in product((False, True), repeat=len(_NEEDS)):
        value = {name: 1 for name, is_there in zip(_NEEDS, chosen, strict=True) if is_there}
        text = json.dumps(value, separators=(",", ":"))
        is_valid = validator(schema, 7).is_valid(value)
        assert accepts(in_any_order, text) == is_valid, text
        if not value.keys() & undeclared:
            assert accepts(in_order, text) == is_valid, text
