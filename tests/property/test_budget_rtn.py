"""Token budgets for engines that cannot count the tokens to the end: schemas, regexes, grammars and structural tags."""

from __future__ import annotations

import itertools
import json
import re
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton import pushdown as pushdown_module
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.pushdown import Pushdown
from hf_guided.automaton.rtn import build_rtn
from hf_guided.automaton.token_trie import token_trie
from hf_guided.backends import automaton, registry
from hf_guided.backends import budget_search as searched_module
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.budget_rtn import with_budget
from hf_guided.backends.compiler import Compiler
from hf_guided.backends.completion_search import CompletionSearch
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.json_style import JsonStyle
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import SEARCH_WORK
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.to_rtn import Positions
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property.strategies import single_bytes, tiny

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "name": {"type": "string", "minLength": 3},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "children"],
        }
    },
    "$ref": "#/$defs/node",
}
OPEN = {
    "type": "object",
    "properties": {"a": {}, "b": {"enum": ["x", "a long value"]}, "c": {"type": "number"}},
    "required": ["a", "b"],
}
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 6},
        "paid": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "é", "null"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["id", "tags"],
}
CONSTRAINTS: dict[str, Constraint] = {
    "tree": JsonSchema(TREE),
    "compact tree": JsonSchema(TREE, whitespace="compact"),
    "open": JsonSchema(OPEN),
    "extra": JsonSchema({"type": "object", "required": ["k"]}, extra="allow"),
    "record": JsonSchema(ORDER),
    "object": JsonObject(),
    "regex": Regex("(a|bc){2,}(-[0-9]{1,4}){2,}[^\\W\\d]*"),
    "choice": Choice(["a", "abc", "naïve café", 'say "yes"\n', "東京東京東京"]),
    "lark": Grammar('start: "<" start ">" | NAME "," start | NAME\nNAME: /[a-z]{2,}/'),
    "gbnf": Grammar('root ::= "(" root ("+" root)* ")" | [0-9]+ | "\\"" [^"]+ "\\""'),
    "tag": StructuralTag(
        {
            "type": "structural_tag",
            "format": {"type": "json_schema", "json_schema": {**ORDER, "additionalProperties": False}},
        }
    ),
}
TAKEN = {
    "llguidance": ["tree", "compact tree", "open", "extra", "record", "object", "regex", "choice", "lark"],
    "xgrammar": ["tree", "compact tree", "open", "record", "object", "regex", "choice", "gbnf", "tag"],
    "lm_format_enforcer": ["tree", "open", "record", "object", "regex", "choice"],
    "network": ["tree", "tag"],
}
CASES = [(backend, name) for backend, names in TAKEN.items() for name in names]
CLOSING = frozenset(b'"]})>')


@lru_cache
def compiled(backend: str, name: str) -> CompiledConstraint:
    return with_budget(registry.create(backend, tiny()).compile(CONSTRAINTS[name]))


def allowed(matcher: Matcher, tokens_left: int | None = None) -> list[int]:
    width = matcher.compiled.vocabulary.padded_size
    bitmask = allocate_bitmask(1, width)
    matcher.fill_next_token_bitmask(bitmask, tokens_left=tokens_left)
    return torch.nonzero(unpack(bitmask, width)[0]).flatten().tolist()


def is_valid(constraint: Constraint, text: str) -> bool:
    if isinstance(constraint, JsonObject):
        return isinstance(json.loads(text), dict)
    if isinstance(constraint, JsonSchema):
        jsonschema.validate(json.loads(text), TREE if "$defs" in str(constraint.schema) else constraint.schema)
    if isinstance(constraint, Regex):
        return re.fullmatch(constraint.pattern, text) is not None
    if isinstance(constraint, Choice):
        return text in constraint.options
    if isinstance(constraint, StructuralTag):
        jsonschema.validate(json.loads(text), ORDER)
    if isinstance(constraint, Grammar) and constraint.syntax == "lark":
        return re.fullmatch(r"<*([a-z]{2,}|[a-z]{2,},<*)+>*", text) is not None and text.count("<") == text.count(">")
    if isinstance(constraint, Grammar):
        bare = re.sub('"[^"]+"', "0", text)
        return re.fullmatch(r"[0-9()+]+", bare) is not None and bare.count("(") == bare.count(")")
    return True


def still_open(matcher: Matcher, token_ids: list[int]) -> list[int]:
    """The tokens that a sampler which avoids ending the text prefers."""
    token_bytes = matcher.compiled.vocabulary.token_bytes
    text = [token_id for token_id in token_ids if token_id not in matcher.stop_token_ids]
    return [token_id for token_id in text if not CLOSING & set(token_bytes[token_id] or b"")] or text or token_ids


@pytest.mark.parametrize(("backend", "name"), CASES)
@settings(max_examples=repeats(4, 25))
@given(never_stops=st.booleans(), data=st.data())
def test_any_sampling_closes_the_text_within_the_budget(backend, name, never_stops, data):
    matcher = compiled(backend, name).matcher()
    minimum = matcher.min_tokens_to_finish()
    assert minimum is not None
    random = data.draw(st.randoms(use_true_random=False))
    left = random.randint(minimum, 4 * minimum)
    taken: list[int] = []
    while not matcher.is_terminated():
        assert left > 0, "the budget ended before the text"
        permitted = allowed(matcher, left)
        token_id = random.choice(still_open(matcher, permitted) if never_stops else permitted)
        assert matcher.accept_token(token_id)
        taken.append(token_id)
        left -= 1
    assert is_valid(CONSTRAINTS[name], matcher.compiled.vocabulary.decode_bytes(taken).decode())


@pytest.mark.parametrize(("backend", "name"), CASES)
@settings(max_examples=repeats(8, 25))
@given(data=st.data())
def test_masks_do_not_depend_on_rollback_fork_and_reset(backend, name, data):
    """Masks depend on the text and on the remaining budget, not on the history of the matcher."""
    matcher = compiled(backend, name).matcher()
    minimum = matcher.min_tokens_to_finish()
    assert minimum is not None
    random = data.draw(st.randoms(use_true_random=False))
    left = minimum + random.randint(0, 8)
    taken: list[int] = []
    for _ in range(random.randint(1, minimum)):
        permitted = [token_id for token_id in allowed(matcher, left) if token_id not in matcher.stop_token_ids]
        if not permitted:
            break
        taken.append(random.choice(permitted))
        assert matcher.accept_token(taken[-1])
        left -= 1
    back = random.randint(0, len(taken))
    twin = matcher.fork()
    before = allowed(matcher, left)
    matcher.rollback(back)
    for token_id in taken[len(taken) - back :]:
        assert matcher.accept_token(token_id)
    if name in ("lark", "gbnf"):  # here the known completion depends on where the search started
        needed = matcher.min_tokens_to_finish()
        assert needed is not None
        assert needed <= left
    else:
        assert allowed(matcher, left) == before
        assert allowed(twin, left) == before
        assert matcher.min_tokens_to_finish() == twin.min_tokens_to_finish()
    matcher.reset()
    assert matcher.min_tokens_to_finish() == minimum


@pytest.mark.parametrize(("backend", "name"), [case for case in CASES if case[0] != "lm_format_enforcer"])
def test_large_budget_masks_nothing(backend, name):
    matcher = compiled(backend, name).matcher()
    assert allowed(matcher, 10**6) == allowed(matcher)
    assert matcher.accept_token(allowed(matcher)[0])
    assert allowed(matcher, 10**6) == allowed(matcher)


def pushdown(schema: Any) -> Pushdown:
    n = Normalizer.of(JsonSchema(schema))
    positions = Positions(n, JsonStyle(spelling="any"), closed=True)
    vocabulary = tiny()
    meter = WorkMeter()
    components = list(build_rtn(positions.root, positions.build, meter).values())
    return Pushdown(components, token_trie(vocabulary), vocabulary, meter)


RTNS = {"tree": pushdown(TREE), "open": pushdown(OPEN), "any": pushdown({})}


@pytest.mark.parametrize("name", RTNS)
@given(data=st.data())
def test_after_equals_reading_each_token(name, data):
    rtn, vocabulary = RTNS[name], tiny()
    configurations = rtn.start
    for _ in range(data.draw(st.integers(0, 12))):
        after = rtn.after(configurations)
        if not len(after.token_ids):
            break
        token_id = data.draw(st.sampled_from(after.token_ids.tolist()))
        configurations = rtn.read(configurations, vocabulary.token_bytes[token_id])
    after = rtn.after(configurations)
    needed_after = dict(zip(after.token_ids.tolist(), after.needed.tolist(), strict=True))
    expected = {}
    for token_id, text in enumerate(vocabulary.token_bytes):
        if vocabulary.is_text(token_id) and (target := rtn.read(configurations, text)):
            expected[token_id] = target[0].needed
    assert needed_after == expected
    if configurations[0].needed:
        assert after.needed[0] <= configurations[0].needed - 1, "no token reduces the number of tokens needed"
    growth = max(needed_after.values(), default=0) - configurations[0].apart
    assert growth <= 0 or not rtn.max_budget_growth.is_at_most(growth - 1)


@pytest.mark.parametrize(
    ("constraint", "shortest"),
    [
        (JsonSchema(TREE), '{"value":0,"children":[]}'),
        (JsonSchema(TREE, whitespace="compact"), '{"value": 0, "children": []}'),
        (JsonSchema(OPEN), '{"a":0,"b":"x"}'),
        (JsonSchema({"type": "array", "items": {}, "minItems": 3}), "[0,0,0]"),
        (JsonSchema({"anyOf": [{"const": "a long one"}, {"type": "string", "minLength": 4}]}), '"abcd"'),
        (JsonObject(), "{}"),
        (Regex("(abc|de){2,}f?"), "dede"),
    ],
)
def test_minimum_over_single_bytes_is_the_length_of_the_shortest_text(constraint, shortest):
    compiled_ = with_budget(registry.create("llguidance", single_bytes()).compile(constraint))
    assert compiled_.matcher().min_tokens_to_finish() == len(shortest.encode()) + 1


def test_closing_brackets_count_in_tokens_of_several_brackets():
    """`}]}]}` takes one token per pair of brackets if the vocabulary has a token for the pair."""
    matcher = compiled("llguidance", "compact tree").matcher()
    vocabulary = matcher.compiled.vocabulary
    text = '{"value": 1, "children": [{"value": 2, "children": [{"value": 3, "children": ['
    for token_id in vocabulary.encode_bytes(text.encode()):
        assert matcher.accept_token(token_id)
    assert matcher.min_tokens_to_finish() == len(vocabulary.encode_bytes(b"]}]}]}")) + 1


@pytest.mark.parametrize(
    ("backend", "constraint", "answered_by"),
    [
        ("auto", JsonSchema(TREE), "llguidance"),
        ("auto", JsonObject(), "llguidance"),
        ("xgrammar", Regex("[a-z]+"), "xgrammar"),
        ("auto", CONSTRAINTS["tag"], "network"),
        ("xgrammar", CONSTRAINTS["tag"], "xgrammar"),
    ],
)
def test_compile_with_a_budget_gives_engines_that_keep_it(backend, constraint, answered_by):
    with_budget = Compiler(tiny()).compile(constraint, backend, budget=True)
    assert (with_budget.backend, with_budget.keeps_budget) == (answered_by, True)
    assert with_budget.matcher().min_tokens_to_finish() is not None


def test_automaton_over_its_limit_falls_back_to_the_next_engine(monkeypatch):
    def give_up(*_):
        raise CompileLimitExceeded("the tokens to the end were not counted in time")

    monkeypatch.setattr(automaton, "token_budget", give_up)
    compiler = Compiler(tiny())
    compiled_ = compiler.compile(Regex("[a-c]{3}"), budget=True)
    assert (compiled_.backend, compiled_.keeps_budget) == ("llguidance", True)
    assert compiled_.matcher().min_tokens_to_finish() <= 4
    with pytest.raises(CompileLimitExceeded, match="not counted in time"):
        compiler.compile(Regex("[a-c]{3}"), "automaton", budget=True)


def test_budget_is_ignored_if_no_completion_is_found():
    plain = registry.create("llguidance", tiny()).compile(Grammar("start: /[a-z]{900}/"))
    assert with_budget(plain) is plain
    matcher = plain.matcher()
    assert matcher.min_tokens_to_finish() is None
    assert allowed(matcher, 3) == allowed(matcher)


def test_pattern_that_only_another_engine_reads_is_searched():
    """A backend of another package may read patterns that ours do not. Then a completion is searched."""
    compiled_ = registry.create("llguidance", single_bytes()).compile(Choice(["aa", "bb"]))
    matcher = with_budget(replace(compiled_, constraint=Regex(r"(a|b)\1"))).matcher()
    assert matcher.min_tokens_to_finish() == 3


def test_search_does_not_depend_on_the_wall_clock(monkeypatch):
    """The clock of this test advances by a minute at each reading, as on a busy machine."""
    clock = itertools.count(step=60)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    compiled_ = with_budget(registry.create("llguidance", tiny()).compile(Grammar('start: "[" (start | /[0-9]+/) "]"')))
    assert compiled_.matcher().min_tokens_to_finish() is not None


@pytest.mark.parametrize(
    ("grammar", "begin", "pattern"),
    [
        ('root ::= ("- " [a-z ]+ "\\n")+', "- xy", r"(- [a-z ]+\n)+"),
        ('root ::= "a" .* "zq"', "abc", r"a.*zq"),
        ('root ::= [0-9]+ "=" [0-9]+', "12", r"[0-9]+=[0-9]+"),
        ('start: (FIELD ("," FIELD)* "\\n")+\nFIELD: /[a-z0-9 ]+/', "x,y", r"([a-z0-9 ]+(,[a-z0-9 ]+)*\n)+"),
        ('start: "SELECT " NAME " FROM " NAME ";"\nNAME: /[a-z_]+/', "SELECT x", r"SELECT [a-z_]+ FROM [a-z_]+;"),
    ],
)
def test_end_after_characters_that_repeat_is_found(grammar, begin, pattern):
    """The end is found at the start, and again after a text that is not on the way found first."""
    compiled_ = Compiler(tiny()).compile(Grammar(grammar), budget=True)
    assert compiled_.keeps_budget
    for written in ("", begin):
        matcher = compiled_.matcher()
        tokens = compiled_.vocabulary.encode_bytes(written.encode())
        assert all(map(matcher.accept_token, tokens))
        for left in range(matcher.min_tokens_to_finish(), 1, -1):
            tokens.append(allowed(matcher, left)[0])
            assert matcher.accept_token(tokens[-1])
        assert re.fullmatch(pattern, compiled_.vocabulary.decode_bytes(tokens).decode())


@pytest.mark.parametrize(
    ("grammar", "fits"),
    [
        ('# an escape like "\\ud83d" is half a pair\nroot ::= "a" | "b"', 2),
        ('root ::= "(" [^"\\ud83d"]{3} ")" # not "\\uDE00"', 6),
        ('// as in "\\ud83d"\nstart: "a" | "b"', 2),
    ],
)
def test_half_of_a_character_in_quotes_is_no_literal(grammar, fits):
    matcher = Compiler(tiny()).compile(Grammar(grammar), budget=True).matcher()
    assert matcher.min_tokens_to_finish() <= fits


class NeverEnds:
    """An engine that allows tokens for ever, and counts its masks."""

    def __init__(self, allows: Sequence[int]):
        self.allows, self.masks = set(allows), 0

    def fork(self) -> NeverEnds:
        return self

    def accept(self, token_id: int) -> bool:
        return token_id in self.allows

    def validate(self, token_ids: Sequence[int]) -> int:
        return len(list(itertools.takewhile(self.accept, token_ids)))

    def fill(self, bitmask: torch.Tensor, row: int) -> None:
        self.masks += 1
        bits = np.zeros(32 * bitmask.shape[1], np.bool_)
        bits[list(self.allows)] = True
        bitmask[row] = torch.from_numpy(np.packbits(bits, bitorder="little").view(np.int32))

    def is_completed(self) -> bool:
        return False

    def jump_forward_bytes(self) -> bytes:
        return b""


def test_search_for_an_end_computes_fewer_masks_where_they_allow_more_tokens(tekken):
    vocabulary = Vocabulary.from_tokenizer(tekken)
    search = CompletionSearch(vocabulary, token_trie(vocabulary))
    texts = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if data]
    masks = []
    for allows in (texts[:10], texts[:10], texts[:20_000], texts):
        engine = NeverEnds(allows)
        assert search.find(engine, SEARCH_WORK) is None
        masks.append(engine.masks)
    assert masks[0] == masks[1] <= SEARCH_WORK / 500
    assert masks[0] > masks[2] > masks[3]
    assert 10 < masks[3] <= 35


def record_searches(monkeypatch) -> list[int]:
    """Return a list that receives the work that each search may do."""
    recorded: list[int] = []
    find = CompletionSearch.find

    def recording_find(self, engine, work):
        recorded.append(work)
        return find(self, engine, work)

    monkeypatch.setattr(CompletionSearch, "find", recording_find)
    return recorded


def test_failed_searches_become_rarer(monkeypatch):
    """The start has a short completion, but after a letter sixty more are needed, which ten steps do not find."""
    monkeypatch.setattr(searched_module, "LATER_SEARCH_WORK", 5000)
    searched = record_searches(monkeypatch)
    compiled_ = with_budget(registry.create("llguidance", single_bytes()).compile(Grammar('start: "!" | /[a-z]{61,}/')))
    matcher = compiled_.matcher()
    searches_after: dict[int, int] = {}  # number of letters -> number of searches
    for configuration in range(58):
        known = matcher.min_tokens_to_finish()
        searches_after[configuration] = len(searched)
        assert matcher.accept_token(ord("a") + configuration % 26)
    assert [
        configuration
        for configuration in searches_after
        if searches_after[configuration] > searches_after.get(configuration - 1, 0)
    ] == [
        0,
        1,
        9,
        25,
        57,
    ]
    assert known == 5  # the last search found four letters and the end
    matcher.rollback(58)
    assert matcher.min_tokens_to_finish() == 2


def test_completion_from_the_start_is_searched_once(monkeypatch):
    searched = record_searches(monkeypatch)
    compiled_ = with_budget(registry.create("llguidance", tiny()).compile(Grammar('start: "[" (start | /[0-9]+/) "]"')))
    matchers = [compiled_.matcher() for _ in range(3)]
    assert {matcher.min_tokens_to_finish() for matcher in matchers} == {matchers[0].min_tokens_to_finish()}
    assert len(searched) == 1
    assert matchers[0].accept_token(matchers[0].compiled.vocabulary.encode_bytes(b"[")[0])
    assert matchers[1].num_accepted == 0 and compiled_.matcher().min_tokens_to_finish() is not None


def test_memory_of_cached_walks_is_bounded(monkeypatch):
    """Each walk finds few tokens, but has its own position."""
    most = 2**18
    monkeypatch.setattr(pushdown_module, "_MAX_BYTES", most)
    rtn = pushdown({"type": "array", "prefixItems": [{"const": 0}] * 900})
    configurations = rtn.read(rtn.start, b"[")
    tracemalloc.start()
    try:
        for _ in range(900):
            rtn.after(configurations)
            configurations = rtn.read(configurations, b"0,")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held <= most


@pytest.mark.parametrize("known", [["ab"], ["ab", "c"]])
def test_completion_is_searched_if_engine_and_network_differ(known):
    """The network gets other words than the engine: fewer, or also a shorter word that the engine refuses."""
    compiled_ = registry.create("llguidance", single_bytes()).compile(Choice(["ab", "cdef"]))
    matcher = with_budget(replace(compiled_, constraint=Choice(known))).matcher()
    assert matcher.min_tokens_to_finish() == 3
    for left, letter in zip(range(4, 0, -1), "cdef", strict=True):
        assert matcher.accept_token(ord(letter))
        assert matcher.min_tokens_to_finish() == left
        assert allowed(matcher, left) == ([ord("cdef"[5 - left])] if left > 1 else list(matcher.stop_token_ids))


@pytest.mark.parametrize("count", [5, 40, 300])
def test_frame_may_call_many_others(count):
    schema = {
        "type": "array",
        "prefixItems": [{"const": i} for i in range(count)],
        "minItems": count,
        "items": False,
    }
    rtn = pushdown(schema)
    text = json.dumps(list(range(count)))
    assert rtn.read(rtn.start, text.encode())[0].needed == 0
    assert not rtn.read(rtn.start, text.replace("3", "4").encode())
