"""The cache of token masks, the token trie, and token budgets computed with too little work."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from hf_guided.automaton.budget import NEVER, token_budget
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.reach import reach
from hf_guided.automaton.state_equivalence import StateEquivalence
from hf_guided.automaton.token_masks import TokenMasks
from hf_guided.automaton.token_trie import token_trie
from hf_guided.automaton.token_walk import TokenWalk
from hf_guided.backends import automaton
from hf_guided.backends.automaton import AutomatonBackend
from hf_guided.constraints.values import Choice, JsonObject, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, UnsupportedConstraint, UnwritableConstraint
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy, vocabularies
from tests.property.strategies import allowed, single_bytes, tiny


def masks_of(pattern: str, vocabulary: Vocabulary, **kwargs) -> tuple[TokenMasks, TokenWalk]:
    walk = TokenWalk(regex_dfa(parse_fullmatch(pattern), WorkMeter()), token_trie(vocabulary))
    return TokenMasks(walk, reach(walk, WorkMeter()).can_end, **kwargs), walk


def allowed_by_advance(walk: TokenWalk, state: int, vocabulary: Vocabulary) -> list[int]:
    return [i for i, data in enumerate(vocabulary.token_bytes) if data and walk.dfa.advance(state, data)]


def bit_ids(words) -> list[int]:
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()


def test_states_far_from_the_end_share_one_mask(monkeypatch):
    masks, walk = masks_of(r"[^\n]{1,1000}", tiny())
    walked_states = []
    below = walk.below
    monkeypatch.setattr(walk, "below", lambda nodes, states: walked_states.append(states) or below(nodes, states))
    states = range(1, walk.dfa.states)
    assert len({masks.of(state).tobytes() for state in states}) < 30
    assert 8 <= len(walked_states) < walk.dfa.states / 20  # far fewer than one per state
    assert masks._nbytes == sum(mask.words.nbytes for mask in masks._by_content.values())
    for state in (1, 2, 500, 997, 998, 999, 1000, 1001):
        assert bit_ids(masks.of(state)) == allowed_by_advance(walk, state, tiny())


@pytest.mark.parametrize("pattern", [r"[a-zé]{1,9}x", r"(\d{2,4}|[^\W\d]+ ?)*é?", "(Anna|Schmidt|東京){2}", "[^a]{3}"])
def test_masks_of_all_states_equal_brute_force(pattern):
    masks, walk = masks_of(pattern, tiny())
    for state in range(1, walk.dfa.states):
        assert bit_ids(masks.of(state)) == allowed_by_advance(walk, state, tiny())


def string_vocabulary() -> Vocabulary:
    """All bytes, and tokens that lie inside, around and across the ends of JSON strings."""
    texts = ["ab", "abc", "abcdefgh", "a b c", "é", "日本", "😀", '"', '",', '", "', '"]', 'a"', 'ab",', 'abc"]', "\\n"]
    texts += ["\\u00e9", "\\ud83d\\ude00", "x\\", '\\"', 'a\\"b"', "a\n", "a\nb", '"\n', '", "x', 'x"]', "xx", "a" * 40]
    return Vocabulary(
        token_bytes=(*(bytes([byte]) for byte in range(256)), *(text.encode() for text in texts), None),
        stop_token_ids=(256 + len(texts),),
        padded_size=257 + len(texts),
        tokenizer=toy.all_bytes().tokenizer,
    )


IN_STRINGS = [
    JsonSchema({"type": "string"}),
    JsonSchema({"type": "string", "maxLength": 6}),
    JsonSchema({"type": "string", "minLength": 3}),
    JsonSchema({"type": "string", "minLength": 2, "maxLength": 45}),
    JsonSchema({"type": "string", "pattern": "^a..b"}),
    JsonSchema({"type": "string", "pattern": "b$"}),
    JsonSchema(
        {
            "type": "array",
            "prefixItems": [{"type": "string", "maxLength": 3}, {"const": "x"}],
            "items": False,
            "minItems": 2,
        }
    ),
    Regex(r"a[^\n]*"),  # up to the end of the line, a quote is an ordinary character
    Regex(r"[^a]*a\n?"),
    Regex(r'([^"\\\x00-\x1f\x7f-\xff]|\\["\\/bfnrt])*(",? )?'),
]


@pytest.mark.parametrize("constraint", IN_STRINGS, ids=str)
def test_masks_in_strings_equal_brute_force(constraint):
    vocabulary = string_vocabulary()
    language = AutomatonBackend(vocabulary).compile(constraint).new_engine()._language
    for state in range(1, language.walk.dfa.states):
        assert bit_ids(language.masks.of(state)) == allowed_by_advance(language.walk, state, vocabulary)


def test_masks_in_strings_need_no_walk_of_the_trie(monkeypatch):
    """In unbounded strings, and in bounded strings whose end is far or near."""
    for constraint in IN_STRINGS[:4]:
        language = AutomatonBackend(string_vocabulary()).compile(constraint).new_engine()._language
        monkeypatch.setattr(language.masks, "_walked", None)
        inside = language.walk.dfa.advance(language.walk.dfa.start, b'"ab')
        assert language.masks.of(inside).any()


@pytest.mark.parametrize("pattern", ["[a-z]{1,40}x?", "(ab|cd|e{3,9}f){1,3}", "([ab]{2,30}|c)-"])
def test_equivalent_states_allow_the_same_tokens(pattern):
    """Brute force is the oracle. Equivalence is checked up to the length of the longest possible token prefix."""
    _, walk = masks_of(pattern, tiny())
    states = range(1, walk.dfa.states)
    expected = {state: allowed_by_advance(walk, state, tiny()) for state in states}
    prefixes = {data[:n] for data in tiny().token_bytes if data for n in range(1, len(data) + 1)}
    num_pairs = 0
    for first in states:
        equivalence = StateEquivalence(walk.dfa, np.arange(walk.dfa.states) > 0)
        equivalence.add(first, max((len(data) for data in prefixes if walk.dfa.advance(first, data)), default=0))
        for second in states:
            if equivalence.find(second) == first:
                num_pairs += second != first
                assert expected[first] == expected[second]
    assert num_pairs


def test_evicted_masks_are_computed_again():
    size = 4 * len(tiny().text_words)
    masks, walk = masks_of("abcdefghijk", tiny(), max_bytes=3 * size)
    first = [masks.of(state).copy() for state in range(1, walk.dfa.states)]
    assert masks.made == len(first)
    assert masks.nbytes >= 3 * size
    masks.of(walk.dfa.states - 1)
    assert masks.made == len(first), "the last mask is still in the cache"
    again = [masks.of(state) for state in range(1, walk.dfa.states)]
    assert masks.made == 2 * len(first) - (masks.of(walk.dfa.states - 1) is None)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert masks._nbytes <= 3 * size
    assert len(masks._kept) == len(masks._by_content) == 3


def test_equal_masks_are_stored_once():
    masks, walk = masks_of("(a|b[0-9]{2})x{40}", single_bytes())
    stored = {id(masks.of(state)) for state in range(1, walk.dfa.states)}
    assert len(stored) == len({masks.of(state).tobytes() for state in range(1, walk.dfa.states)}) == 4


def test_masks_are_read_only():
    masks, walk = masks_of("ab", tiny())
    with pytest.raises(ValueError, match="read-only"):
        masks.of(walk.dfa.start)[0] = 0


def test_threads_get_the_same_masks():
    masks, walk = masks_of(r"(\w{1,8} )*", tiny(), max_bytes=20 * len(tiny().text_words))
    expected, _ = masks_of(r"(\w{1,8} )*", tiny())
    wrong_states = []

    def compare_masks(seed: int) -> None:
        for state in np.random.default_rng(seed).integers(1, walk.dfa.states, 300).tolist():
            if not (masks.of(state) == expected.of(state)).all():
                wrong_states.append(state)

    threads = [threading.Thread(target=compare_masks, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong_states
    assert masks._nbytes <= 20 * len(tiny().text_words)


def test_trie_is_built_once_and_freed_with_its_vocabulary():
    vocabulary = toy.letters("abc")
    assert token_trie(vocabulary) is token_trie(vocabulary)
    trie = weakref.ref(token_trie(vocabulary))
    del vocabulary
    gc.collect()
    assert trie() is None


def test_trie_contains_every_token():
    tokens = token_trie(tiny())
    trie = tokens.trie
    for node, (begin, end) in enumerate(zip(tokens.token_start[:-1], tokens.token_start[1:], strict=True)):
        data, ancestor = b"", node
        while ancestor:
            data, ancestor = bytes([trie.byte[ancestor]]) + data, int(trie.parent[ancestor])
        for token_id in tokens.token_ids[begin:end]:
            assert tiny().token_bytes[token_id] == data
    assert sorted(tokens.token_ids) == [i for i, data in enumerate(tiny().token_bytes) if data]


def test_tokens_that_the_vocabulary_cannot_complete_are_forbidden():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.tiny_unigram())  # no "{" and no byte of é
    backend = AutomatonBackend(vocabulary)
    matcher = backend.compile(Regex(r"[a-z]{3}\{|[0-9]{2}x?|naïve|é{3}")).matcher()
    texts = {vocabulary.token_bytes[token_id] for token_id in allowed(matcher)}
    assert b"a" not in texts, "a brace has to follow the letters, and the vocabulary has none"
    assert {b"1", b"12"} & texts
    assert any(text.startswith("é".encode()) for text in texts)
    with pytest.raises(UnwritableConstraint, match="no text of"):
        backend.compile(Regex(r"\{[a-z]*\}"))


def test_token_budget_with_little_work_is_an_upper_bound():
    walk = TokenWalk(regex_dfa(parse_fullmatch("(ab|ba|[a-d]b){8}[a-d]{3,9}x"), WorkMeter()), token_trie(tiny()))
    reached = reach(walk, WorkMeter())
    exact = token_budget(walk, reached, WorkMeter())
    assert exact.exact
    approximate = token_budget(walk, reached, WorkMeter(), walk_steps=0)
    assert not approximate.exact
    assert (approximate.needed >= exact.needed).all()
    for budget in (exact, approximate):
        for state in range(1, walk.dfa.states):
            needed = budget.needed[state]
            if walk.dfa.accepting[state]:
                assert needed == 1
            else:  # some token reduces the distance to the end by one
                assert needed - 1 == budget.needed[walk.nodes(state)[1]].min() or budget is approximate
                assert needed - 1 in budget.needed[walk.nodes(state)[1]]
    assert exact.needed[0] == NEVER


def test_row_within_its_budget_can_always_end():
    """In every state, an allowed token reduces the number of tokens needed by one."""
    backend = AutomatonBackend(tiny())
    matcher = backend.compile(Regex('{"name": "[a-z]{3,20}", "paid": (true|false)}')).matcher()
    left = matcher._engine.min_tokens_to_finish()
    while not matcher.is_completed():
        for token_id in allowed(matcher):
            assert matcher.accept_token(token_id)
            if matcher._engine.min_tokens_to_finish() < left:
                break
            matcher.rollback(1)
        left -= 1
        assert matcher._engine.min_tokens_to_finish() == left
    assert left == 1


@pytest.mark.parametrize(
    ("constraint", "pointer", "why"),
    [
        (JsonObject(), "", "anything is allowed in it"),
        (JsonSchema({"type": "array", "items": {}}), "", "any value is allowed here"),
        (JsonSchema({"properties": {"a": {}}, "type": "object"}), "", "any value is allowed here"),
        (JsonSchema({"items": {"$ref": "#"}, "type": "array"}), "/items", "the schema refers to itself"),
    ],
)
def test_non_regular_schemas_are_losses(constraint, pointer, why):
    (loss,) = AutomatonBackend(tiny()).losses(constraint)
    assert loss.pointer == pointer
    assert loss.reason == f"{why}; hg.JsonSchema(..., max_depth=...) bounds it"


def test_limit_error_does_not_affect_later_compiles():
    backend = AutomatonBackend(tiny(), CompileLimits(max_states=10))
    with pytest.raises(CompileLimitExceeded, match="grew past 10 states"):
        backend.compile(Regex("[a-z]{1,20}"))
    assert allowed(backend.compile(Choice(["ab", "a"])).matcher())


def test_empty_intersection_is_refused():
    with pytest.raises(UnsupportedConstraint, match="matches nothing"):
        AutomatonBackend(tiny()).compile(Regex("(?=a*b)(?!.*b)[ab]{3}"))


def test_vocabulary_without_text_tokens_can_write_only_the_empty_text():
    vocabulary = Vocabulary((None,), (0,), 1, toy.LetterTokenizer(["</s>"]))
    backend = AutomatonBackend(vocabulary)
    with pytest.raises(UnwritableConstraint, match="no text of"):
        backend.compile(Regex("a"))
    assert allowed(backend.compile(Regex("a?")).matcher()) == [0]


def test_cached_moves_are_bounded_and_counted_in_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_MOST_MOVES", 5)
    compiled = AutomatonBackend(single_bytes()).compile(Regex("[a-z]{1,20}"))
    engine = compiled.new_engine()
    for letter in "abcdefghij":
        assert engine.accept(ord(letter)) and not engine.accept(ord("0"))
    assert len(engine.language.moves) == 5
    twin = compiled.new_engine()  # cached and uncached moves lead to the same states
    assert all(twin.accept(ord(letter)) for letter in "abcdefghij") and twin.state == engine.state
    monkeypatch.setattr(automaton, "_MOST_MOVES", 0)
    assert compiled.nbytes == engine.language.nbytes + 5 * automaton._MOVE_BYTES
