"""Drafts: their length, the rules that truncate them, and engines that give up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded
from hf_guided.hf.drafts.base import DraftLength, DraftRequest
from hf_guided.hf.drafts.grammar import GrammarDraft, compact_twin
from hf_guided.hf.drafts.sources import DraftChain, PromptLookup
from hf_guided.session.row import Row
from tests.toy import ForcingSetEngine, compiled_set, letters

STOP, A, B, C = 1, 2, 3, 4
VOCABULARY = letters("abc")
LANGUAGE = compiled_set(VOCABULARY, "ab", "abb", "cab")


def request(row: Row, ids: Sequence[int] = (), limit: int = 9) -> DraftRequest:
    return DraftRequest(0, row, ids, 0, limit, VOCABULARY.stop_token_ids)


# -- truncation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "limit", "expected"),
    [
        ([A, B, B, STOP], 9, [A, B, B, STOP]),
        ([A, B, STOP, STOP], 9, [A, B, STOP]),
        ([A, B, C, B], 9, [A, B]),
        ([A, STOP, B], 9, [A]),
        ([B], 9, []),
        ([A, B, B], 2, [A, B]),
        ([A, B, B], 0, []),
        ([A, B, B], -1, []),
        ([], 9, []),
    ],
)
def test_draft_is_truncated_at_the_limit_the_stop_token_and_the_grammar(
    tokens: list[int], limit: int, expected: list[int]
):
    row = Row(LANGUAGE.matcher())
    assert request(row, limit=limit).legal(tokens) == expected
    assert row.advance(A), "the row has not moved"


def test_draft_of_an_unconstrained_row_ends_after_a_stop_token():
    assert request(Row(None)).legal([C, C, STOP, C]) == [C, C, STOP]


@pytest.mark.parametrize("end", [[A, B, STOP], [A, A]], ids=["stopped", "closed"])
def test_ended_row_gets_no_draft(end: list[int]):
    row = Row(LANGUAGE.matcher())
    for token_id in end:
        row.advance(token_id)
    assert request(row).legal([B, STOP]) == []
    assert not PromptLookup().propose([request(row, [STOP, A, STOP, A, STOP])])[0].tokens


# -- length ----------------------------------------------------------------------------------------------------------


def test_length_grows_after_whole_drafts_and_shrinks_after_rejections():
    length = DraftLength()
    seen = []
    for drafted, accepted in [
        (5, 5),
        (10, 10),
        (16, 16),
        (16, 3),
        (9, 0),
        (4, 0),
        (2, 0),
        (1, 0),
        (1, 1),
        (2, 2),
        (3, 3),
    ]:
        length.observe(7, drafted, accepted)
        seen.append(length.wanted(7))
    assert seen == [10, 16, 16, 9, 4, 2, 1, 1, 2, 4, 4]
    assert length.wanted(8) == 5, "each row has its own length"


def test_empty_draft_does_not_change_the_length():
    length = DraftLength()
    length.observe(0, 0, 0)
    assert length.wanted(0) == DraftLength().wanted(0)


@pytest.mark.parametrize("name", ["max_ngram", "num_tokens"])
def test_prompt_lookup_refuses_sizes_below_one(name: str):
    with pytest.raises(ValueError, match=f"{name}: expected an int of 1 or more, got 0"):
        PromptLookup(**{name: 0})


# -- twins -----------------------------------------------------------------------------------------------------------


def test_twin_differs_only_in_whitespace():
    schema = {"$ref": "https://x.test/a"}
    options: dict[str, Any] = {
        "extra": "allow",
        "max_depth": 3,
        "registry": {"https://x.test/a": {"type": "object"}},
        "on_unsupported": "warn",
    }
    assert compact_twin(JsonSchema(schema, **options)) == JsonSchema(schema, whitespace="compact", **options)
    assert compact_twin(JsonObject()) == JsonObject(whitespace="compact")


def test_twin_of_a_python_type_is_built_from_the_type():
    """With spelling="any", a type is stricter about 1.0 than its schema, so their grammars differ."""
    twin = compact_twin(JsonSchema(list[int], spelling="any"))
    assert twin is not None and twin.key == JsonSchema(list[int], whitespace="compact", spelling="any").key
    schema = {"type": "array", "items": {"type": "integer"}}
    assert twin.key != JsonSchema(schema, whitespace="compact", spelling="any").key


@pytest.mark.parametrize(
    "constraint", [Regex("a"), Choice(["a", "b"]), JsonObject("compact"), JsonSchema(True, whitespace="compact")]
)
def test_no_twin_if_the_constraint_fixes_the_layout(constraint: Constraint):
    assert compact_twin(constraint) is None


# -- grammar drafts --------------------------------------------------------------------------------------------------


def forcing(*options: str) -> CompiledConstraint:
    return compiled_set(VOCABULARY, *options, engine=ForcingSetEngine)


def proposed(source: GrammarDraft, ids: Sequence[int], row: Row | None = None, index: int = 0) -> list[int]:
    """Return the draft after these output tokens. There is no prompt."""
    if row is None:
        row = Row(LANGUAGE.matcher())
        assert all(map(row.advance, ids))
    (draft,) = source.propose([DraftRequest(index, row, ids, 0, 9, VOCABULARY.stop_token_ids)])
    return list(draft.tokens)


def encode(token_ids: Sequence[int], data: bytes) -> list[int]:
    return [*VOCABULARY.encode_bytes(data[:1]), *VOCABULARY.encode_bytes(data[1:])]


AB, BB = VOCABULARY.encode_bytes(b"ab")[0], VOCABULARY.encode_bytes(b"bb")[0]


def test_forced_text_of_the_twin_is_tokenized_after_the_row():
    seen = []

    def tokenize(token_ids: Sequence[int], data: bytes) -> list[int]:
        seen.append((list(token_ids), data))
        return encode(token_ids, data)

    source = GrammarDraft(lambda compiled: forcing("abb", "cab"), tokenize)
    assert proposed(source, []) == []
    assert proposed(source, [A]) == [B, B]
    assert proposed(source, [C]) == [A, B]
    assert seen == [([A], b"bb"), ([C], b"ab")]


def test_twin_reads_the_prefix_in_the_prompt():
    row = Row(LANGUAGE.matcher())
    assert row.advance(C)
    source = GrammarDraft(lambda compiled: forcing("abb", "cab"), encode)
    (draft,) = source.propose([DraftRequest(0, row, [B, C], 2, 9, VOCABULARY.stop_token_ids, prefix=b"c")])
    assert list(draft.tokens) == [A, B]


def test_draft_is_truncated_where_the_row_refuses_a_token_of_the_twin():
    assert proposed(GrammarDraft(lambda compiled: forcing("aba"), encode), [A]) == [B]


def test_twin_that_refuses_a_text_proposes_again_for_another_text():
    source = GrammarDraft(lambda compiled: forcing("abb"), encode)
    assert proposed(source, [C]) == []
    assert proposed(source, [C, A]) == []
    assert proposed(source, [A]) == [B, B]


def test_each_row_has_its_own_twin():
    source = GrammarDraft(lambda compiled: forcing("abb", "cab"), encode)
    assert [proposed(source, [A], index=0), proposed(source, [C], index=1)] == [[B, B], [A, B]]
    assert [proposed(source, [A, B], index=0), proposed(source, [C, A], index=1)] == [[B], [B]]


def test_twin_follows_a_rollback_of_the_text():
    source = GrammarDraft(lambda compiled: forcing("abb", "cab"), encode)
    assert [proposed(source, ids) for ids in ([A, B], [A], [C, AB], [A, BB])] == [[B], [B, B], [], []]


def test_twin_is_requested_until_it_is_compiled():
    answers = iter([None, None, forcing("abb")])
    source = GrammarDraft(lambda compiled: next(answers), encode)
    assert [proposed(source, [A]) for _ in range(4)] == [[], [], [B, B], [B, B]]


def test_no_draft_without_a_grammar_or_a_twin():
    nothing = GrammarDraft(lambda compiled: None, encode)
    assert proposed(nothing, [A]) == []
    assert proposed(GrammarDraft(lambda compiled: forcing("abb"), encode), [A], Row(None)) == []


@pytest.mark.parametrize("method", ["accept", "jump_forward_bytes"])
def test_twin_whose_engine_gives_up_is_dropped(method: str, monkeypatch: pytest.MonkeyPatch):
    source = GrammarDraft(lambda compiled: forcing("abb"), encode)
    row = Row(LANGUAGE.matcher())
    assert row.advance(A)

    def give_up(*args: object) -> None:
        raise CompileLimitExceeded("too big")

    with monkeypatch.context() as broken:
        broken.setattr(ForcingSetEngine, method, give_up)
        assert proposed(source, [A], row) == []
    assert proposed(source, [A], row) == [], "the engine has not read all of the text"
    source.reset()
    assert proposed(source, [A], row) == [B, B]


def test_draft_chain_resets_its_sources():
    source = GrammarDraft(lambda compiled: forcing("abb"), encode)
    assert proposed(source, [C]) == []
    DraftChain([PromptLookup(), source]).reset()
    assert proposed(source, [A]) == [B, B]
