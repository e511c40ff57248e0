"""Drafts are always legal, and equal those of brute force or of ``json.dumps``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Constraint, JsonSchema
from hf_guided.hf.drafts import Draft, DraftRequest
from hf_guided.hf.drafts.grammar import GrammarDraft, Layout, compact_twin
from hf_guided.hf.drafts.sources import DraftChain, PromptLookup
from hf_guided.session.row import Row, RowState
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.strategies import Case

TRIES = 4  # matches that prompt lookup tries
ENGINES = ("llguidance", "native")
cases = st.deferred(lambda: st.sampled_from(draw.cases(draw.tiny())))
law = settings(max_examples=repeats(50, 150), suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


def request_for(row: Row, ids: Sequence[int], prompt_length: int, limit: int) -> DraftRequest:
    return DraftRequest(0, row, list(ids), prompt_length, limit, draw.tiny().stop_token_ids)


def brute_force_prefix(row: Row, tokens: Sequence[int]) -> list[int]:
    """The longest prefix that a plain matcher accepts token by token, up to the first stop token."""
    kept: list[int] = []
    matcher = None if row.matcher is None else row.matcher.fork()
    for token_id in tokens:
        if matcher is not None and (row.state is not RowState.OPEN or not matcher.accept_token(token_id)):
            break
        kept.append(token_id)
        if token_id in draw.tiny().stop_token_ids:
            break
    return kept


# -- prompt lookup ---------------------------------------------------------------------------------------------------


def brute_force_positions(ids: Sequence[int], max_ngram: int) -> list[int]:
    """The positions where continuations begin, in the order in which prompt lookup tries them."""
    positions = []
    for n in range(max_ngram, 0, -1):
        for position in range(len(ids) - 1, n - 1, -1):
            if list(ids[position - n : position]) == list(ids[len(ids) - n :]) and position not in positions:
                positions.append(position)
    return positions


@law
@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4), st.integers(1, 6), st.integers(-1, 8))
def test_prompt_lookup_in_an_unconstrained_row(ids: list[int], max_ngram: int, num_tokens: int, limit: int):
    """Token 3 is the stop token: the text after it in the prompt is another text."""
    request = DraftRequest(0, Row(None), ids, len(ids) // 2, limit, [3])
    (draft,) = PromptLookup(max_ngram, num_tokens).propose([request])
    positions = brute_force_positions(ids, max_ngram)
    expected = ids[positions[0] : positions[0] + max(min(num_tokens, limit), 0)] if positions else []
    if 3 in expected:
        expected = expected[: expected.index(3) + 1]
    assert (list(draft.tokens), draft.probabilities) == (expected, None)


@law
@given(cases, draw.picks, st.lists(st.tuples(draw.picks, st.integers(0, 3)), max_size=4), st.integers(1, 12))
def test_prompt_lookup_is_truncated_by_the_grammar(
    case: Case, picks: list[int], others: list[tuple[list[int], int]], limit: int
):
    """The prompt contains other texts of the language, and parts of this text."""
    prompt: list[int] = []
    for other, start in others:
        prompt += draw.walk(case.compiled.matcher(), other)[start:]
    row = Row(case.compiled.matcher())
    assert row.matcher is not None
    ids = [*prompt, *draw.walk(row.matcher, picks)]
    (draft,) = PromptLookup(num_tokens=8).propose([request_for(row, ids, len(prompt), limit)])
    by_hand = (
        brute_force_prefix(row, ids[position : position + min(8, limit)])
        for position in brute_force_positions(ids, 3)[:TRIES]
    )
    assert list(draft.tokens) == next(filter(None, by_hand), [])


# -- layout ----------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab é"\\{}[],: \n\t', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a é"\\,: ', max_size=3), inner, max_size=3),
    max_leaves=8,
)
STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"separators": (" , ", " : ")},
    {"indent": 2},
    {"indent": "\t", "separators": (",", ":")},
    {"indent": 0},
)
styles = st.sampled_from(STYLES)


def dumps(value: Any, **style: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **style)


@law
@given(values, styles, st.lists(st.integers(1, 5), max_size=20))
def test_layout_equals_json_dumps_for_any_split_of_the_text(value: Any, style: dict[str, Any], sizes: list[int]):
    data, canonical = dumps(value, **style).encode(), dumps(value).encode()
    layout, out = Layout(), b""
    for size in [*sizes, len(data)]:
        out += layout.take(data[:size])
        data = data[size:]
        assert canonical.startswith(out)
    assert out == canonical


@law
@given(values)
def test_canonical_text_is_not_changed_at_any_byte(value: Any):
    layout = Layout()
    for byte in dumps(value).encode():
        assert layout.take(bytes([byte])) == bytes([byte])


@law
@given(values, styles)
def test_text_continues_in_the_layout_seen_so_far(value: Any, style: dict[str, Any]):
    """All gaps of the third value occurred before. The text may break anywhere, also inside a gap."""
    text, canonical = dumps([value] * 3, **style).encode(), dumps([value] * 3).encode()
    third = len(text) - len(dumps([value], **style).encode())
    layout = Layout()
    taken = layout.take(text[:third])
    for position in range(third, len(text)):
        assert layout.write(canonical[len(taken) :]) == text[position:]
        taken += layout.take(text[position : position + 1])


# -- grammar drafts --------------------------------------------------------------------------------------------------


@cache
def compiled(constraint: Constraint, engine: str) -> CompiledConstraint:
    return draw.backend(engine, draw.tiny()).compile(constraint)


def twin_of(compiled_: CompiledConstraint, engine: str = "llguidance") -> CompiledConstraint | None:
    twin = compact_twin(compiled_.constraint)
    return None if twin is None else compiled(twin, engine)


def encode(token_ids: Sequence[int], data: bytes) -> list[int]:
    return draw.tiny().encode_bytes(data)


@st.composite
def documents(draw_: st.DrawFn, depth: int = 2) -> tuple[dict[str, Any], Any]:
    """A schema and a valid value, with the properties in order."""
    kinds = ["string", "integer", "boolean", "enum", "const"] + ["object", "object", "array"] * (depth > 0)
    kind = "object" if depth == 2 else draw_(st.sampled_from(kinds))
    if kind == "string":
        return {"type": "string"}, draw_(st.text('ab é"\\{},: \n', max_size=4))
    if kind == "integer":
        return {"type": "integer"}, draw_(st.integers(-99, 99))
    if kind == "boolean":
        return {"type": "boolean"}, draw_(st.booleans())
    if kind == "enum":
        return {"enum": ["red", "reddish", "blue, or: so"]}, draw_(st.sampled_from(["red", "reddish", "blue, or: so"]))
    if kind == "const":
        const = draw_(st.sampled_from(["fixed, as: such", 12, None, True]))
        return {"const": const}, const
    if kind == "array":
        schema, first = draw_(documents(depth=0))
        items = [first] * draw_(st.integers(0, 3))
        return {"type": "array", "items": schema, "minItems": min(len(items), 1), "maxItems": 3}, items
    names = draw_(st.lists(st.sampled_from(["a", "name", "é", "x, y: z", "b"]), min_size=1, max_size=4, unique=True))
    properties, value, required = {}, {}, []
    for name in names:
        properties[name], member = draw_(documents(depth=depth - 1))
        if draw_(st.integers(0, 3)):
            value[name] = member
            if draw_(st.integers(0, 3)):
                required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}, value


def remove_layout(text: str) -> str:
    """The text without whitespace outside of strings. It may end inside a string."""
    return "".join(re.findall(r'"(?:[^"\\]|\\.)*(?:"|\\?$)|[^ \t\n]', text, re.DOTALL))


@settings(law, max_examples=repeats(83, 250))
@given(documents(), styles, st.sampled_from(ENGINES), st.lists(st.integers(1, 4), max_size=30))
def test_grammar_drafts_equal_the_next_text_of_json_dumps(
    document: tuple[dict[str, Any], Any], style: dict[str, Any], engine: str, sizes: list[int]
):
    """At every token of a text in any layout and tokenization. The row accepts these drafts."""
    schema, value = document
    text, canonical = dumps(value, **style), dumps(value)
    flexible = compiled(JsonSchema(schema), "llguidance")
    source = GrammarDraft(lambda compiled_: twin_of(compiled_, engine), encode)
    pieces, left = [], text
    for size in sizes:
        pieces.append(left[:size])
        left = left[size:]
    row, ids, written = Row(flexible.matcher()), [5, 6, 7], b""
    for token_id in [token for piece in [*pieces, left] for token in encode([], piece.encode())]:
        assert row.advance(token_id)
        ids.append(token_id)
        written += draw.tiny().token_bytes[token_id] or b""
        (draft,) = source.propose([request_for(row, ids, 3, 100)])
        assert brute_force_prefix(row, draft.tokens) == list(draft.tokens)
        drafted = draw.tiny().decode_bytes(draft.tokens)
        if style:  # the text equals ``canonical``, except for its whitespace
            text_so_far = (written + drafted).decode(errors="ignore")  # it may end inside a character
            assert remove_layout(canonical).startswith(remove_layout(text_so_far))
        else:
            assert canonical.encode().startswith(written + drafted)


PERSON = JsonSchema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "address": {
                "type": "object",
                "properties": {"street": {"type": "string"}, "tags": {"type": "array", "items": {"const": "a: b"}}},
                "required": ["street", "tags"],
            },
            "paid": {"type": "boolean"},
        },
        "required": ["name", "address", "paid"],
    }
)
BETWEEN_VALUES = [
    ("", '{"name": "'),
    ('{"name": "A, b: c"', ', "address": {"street": "'),
    ('{"name": "A, b: c", "address": {"street": ""', ', "tags": ['),
    ('{"name": "A, b: c", "address": {"street": "", "tags": []', '}, "paid": '),
    ('{"name": "A, b: c", "address": {"street": "", "tags": ["', 'a: b"'),
    ('{"name": "A, b: c", "address": {"street": "", "tags": []}, "paid": t', "rue}"),
    ('{"name":"A, b: c","address":{"street":""', ',"tags":['),
    ('{\n  "name": "A, b: c",\n  "address"', ': {\n    "street": "'),
    ('{\n  "name": "A, b: c",\n  "address": {\n    "street": "",\n  ', '  "tags": ['),
    ('{\n\t"name": "", "address": {"street": "x", "tags": ["a: b"]}', ', "paid": '),
    ('{\n  "name":', ' "'),
    ("{\n ", '"name": "'),
    ('{"name" ', ': "'),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("text", "expected"), BETWEEN_VALUES)
def test_all_text_between_two_values_is_drafted(text: str, expected: str, engine: str):
    row = Row(compiled(PERSON, "llguidance").matcher())
    ids = encode([], text.encode())
    assert all(map(row.advance, ids))
    (draft,) = GrammarDraft(lambda compiled_: twin_of(compiled_, engine), encode).propose(
        [request_for(row, ids, 0, 100)]
    )
    assert draw.tiny().decode_bytes(draft.tokens).decode() == expected


# -- every source ----------------------------------------------------------------------------------------------------


@law
@given(cases, draw.picks, st.integers(0, 12))
def test_drafts_are_legal_and_change_nothing(case: Case, picks: list[int], limit: int):
    row = Row(case.compiled.matcher())
    assert row.matcher is not None
    ids = draw.walk(row.matcher, picks)
    before = draw.view(row.matcher)
    first = GrammarDraft(twin_of, lambda ids, data: [*encode(ids, data), *draw.tiny().stop_token_ids, 5])
    for source in first, DraftChain([first, PromptLookup()]):
        (draft,) = source.propose([request_for(row, ids, 0, limit)])
        assert len(draft.tokens) <= limit
        assert brute_force_prefix(row, draft.tokens) == list(draft.tokens)
    assert draw.view(row.matcher) == before


class FixedSource:
    """A source that proposes fixed drafts, and records the rows for which it was called."""

    def __init__(self, *tokens: Sequence[int]):
        self.tokens, self.calls = tokens, []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.calls.append([request.index for request in requests])
        return [Draft(self.tokens[request.index]) for request in requests]

    def reset(self) -> None:
        self.calls.clear()


@given(st.lists(st.tuples(*[st.lists(st.integers(0, 9), max_size=2)] * 3), max_size=5))
def test_draft_chain_takes_the_first_draft_of_each_row(proposals: list[tuple[list[int], list[int], list[int]]]):
    sources = [FixedSource(*(proposal[i] for proposal in proposals)) for i in range(3)]
    requests = [DraftRequest(i, Row(None), [], 0, 5, []) for i in range(len(proposals))]
    drafts = DraftChain(sources).propose(requests)
    assert [draft.tokens for draft in drafts] == [next(filter(None, proposal), []) for proposal in proposals]
    for rank, source in enumerate(sources):
        empty = [i for i, proposal in enumerate(proposals) if not any(proposal[:rank])]
        assert source.calls == ([empty] if empty else [])
