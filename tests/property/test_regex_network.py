"""Regular expressions and choices: the masks of one large automaton, and texts that Python matches."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.bench_regexes import load_patterns
from hf_guided.automaton import regex_network
from hf_guided.automaton.class_tables import ClassTables
from hf_guided.automaton.component_walk import ComponentWalk
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.rtn import Component
from hf_guided.automaton.token_trie import NodeSets, TokenTrie, token_trie
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice, Regex
from hf_guided.errors import CompileLimitExceeded, UnsupportedConstraint, UnwritableConstraint
from hf_guided.options import CompileLimits
from hf_guided.regex import CharSet, alt, chars, parse_fullmatch, repeat
from hf_guided.regex import text as only
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.test_regex import ALPHABET, edge_patterns, plain_patterns
from tests.reference.one_automaton import OneAutomaton

COUNTS = ["{2,5}", "{3}", "{,4}", "{2,}", "+", "*", "{0,2}", "{7}"]
counted_patterns = st.recursive(
    st.builds(lambda body, times: f"(?:{body}){times}", plain_patterns, st.sampled_from(COUNTS)),
    lambda inner: st.one_of(
        st.lists(st.one_of(inner, plain_patterns), min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds(lambda body, times: f"(?:{body}){times}", inner, st.sampled_from(COUNTS)),
    ),
    max_leaves=4,
)
# States of an automaton that is one component, and of one without what is counted: the last two split all they can.
SIZES = [(1_000, 5_000), (12, 5_000), (1, 5_000), (12, 1), (1, 1)]
few = settings(max_examples=repeats(40, 600), suppress_health_check=list(HealthCheck), deadline=None)


@cache
def letters() -> Vocabulary:
    """Single bytes, and tokens of several characters of the patterns, some of which end inside of one."""
    texts = ["".join(each) for length in (2, 3) for each in product(ALPHABET, repeat=length)]
    data = (*(bytes((byte,)) for byte in range(256)), *(text.encode() for text in texts), b"a\xc3", b"\xa9b", b"bb\xc3")
    return Vocabulary((*data, None), (len(data),), len(data) + 7, tokenizer=None)


@cache
def backend(vocabulary: Vocabulary) -> NetworkBackend:
    return NetworkBackend(vocabulary)


def split(patch: pytest.MonkeyPatch, one: int, counted: int) -> None:
    """Have nearly everything counted and split."""
    for name, value in ("_WIDE", 2), ("_FEW", 2), ("_MANY", 3), ("_LARGE", 3):
        patch.setattr(regex_network, name, value)
    patch.setattr(regex_network, "_SMALL", CompileLimits(max_states=one, max_work=100_000))
    patch.setattr(regex_network, "_COUNTED", CompileLimits(max_states=counted, max_work=100_000))
    for cached in (regex_network._has_wide, regex_network._has_parts):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _known_sizes():
    yield
    for cached in (regex_network._has_wide, regex_network._has_parts):
        cached.cache_clear()


def check_same(
    constraint: Regex | Choice, vocabulary: Vocabulary, random: Random, steps: int = 12, most_judged: int = 10_000
) -> None:
    """Walk at random, back too, and compare the masks, the ends and the forced bytes; ``re`` judges the text.

    Texts of more than ``most_judged`` bytes are not judged: for some patterns each byte doubles the time that ``re``
    takes.
    """
    try:
        ours = backend(vocabulary).compile(constraint).matcher()
        if isinstance(constraint, Regex):
            node = parse_fullmatch(constraint.pattern)
        else:
            node = alt(*map(only, constraint.options))
        theirs = OneAutomaton(regex_dfa(node, WorkMeter()), vocabulary)
    except (UnsupportedConstraint, CompileLimitExceeded):
        assume(False)
    token_bytes = vocabulary.token_bytes
    taken: list[int] = []
    for _ in range(steps):
        allowed = draw.allowed(ours)
        assert allowed == theirs.allowed(), (constraint, taken)
        written = b"".join(token_bytes[token] or b"" for token in taken)
        assert ours.is_completed() == theirs.is_completed(), (constraint, written)
        assert ours.jump_forward_bytes() == theirs.jump_forward_bytes(), (constraint, written)
        if isinstance(constraint, Regex) and len(written) <= most_judged and is_utf8(written):
            assert ours.is_completed() == bool(re.fullmatch(constraint.pattern, written.decode())), written
        texts = [token for token in allowed if token_bytes[token] is not None]
        if taken and random.random() < 0.2:
            back = random.randint(1, len(taken))
            ours.rollback(back)
            theirs.rollback(back)
            del taken[len(taken) - back :]
            continue
        if not texts:
            break
        token = random.choice(texts)
        assert ours.accept_token(token) and theirs.accept_token(token)
        taken.append(token)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@few
@given(
    pattern=st.one_of(counted_patterns, plain_patterns, edge_patterns),
    sizes=st.sampled_from(SIZES),
    random=st.randoms(use_true_random=False),
)
def test_masks_are_those_of_one_automaton(pattern: str, sizes: tuple[int, int], random: Random):
    """However the network is split: into one component, into what is counted and the rest, or into all its parts."""
    try:
        re.compile(pattern)
    except re.error:
        assume(False)
    with pytest.MonkeyPatch.context() as patch:
        split(patch, *sizes)
        check_same(Regex(pattern), letters(), random)


@few
@given(
    pattern=st.one_of(counted_patterns, plain_patterns),
    sizes=st.sampled_from(SIZES),
    more=st.integers(0, 4),
    random=st.randoms(use_true_random=False),
)
def test_texts_end_within_a_limit_of_tokens(pattern: str, sizes: tuple[int, int], more: int, random: Random):
    """Chosen at random from masks that know how many tokens are left; ``re`` judges the texts."""
    with pytest.MonkeyPatch.context() as patch:
        split(patch, *sizes)
        try:
            matcher = backend(letters()).compile(Regex(pattern)).matcher()
        except CompileLimitExceeded:
            assume(False)
        least = matcher.min_tokens_to_finish()
        assert least is not None
        text = b""
        for left in range(least + more, 0, -1):
            allowed = draw.allowed(matcher, left)
            assert set(allowed) <= set(draw.allowed(matcher))
            token = random.choice(allowed)
            assert matcher.accept_token(token)
            text += letters().token_bytes[token] or b""
            if matcher.is_terminated():
                break
        assert matcher.is_terminated() and re.fullmatch(pattern, text.decode())


@pytest.mark.parametrize("pattern", ["[à-ü]+é", "b(a)?[à-ü]{4,}x?", "é{20,30}a", "[一-龥]{1,40}。", "[à-ü]{0,30}é"])
def test_sets_without_a_character_of_one_byte_end_within_a_limit(pattern: str):
    compiled = NetworkBackend(draw.single_bytes()).compile(Regex(pattern))
    for seed in range(repeats(5, 50)):
        choose, matcher, text = Random(seed), compiled.matcher(), b""
        least = matcher.min_tokens_to_finish()
        assert least is not None
        for left in range(least + choose.randrange(5), 0, -1):
            token = choose.choice(draw.allowed(matcher, left))
            assert matcher.accept_token(token)
            text += draw.single_bytes().token_bytes[token] or b""
            if matcher.is_terminated():
                break
        assert matcher.is_terminated() and re.fullmatch(pattern, text.decode())


ENTRIES = [
    *("[a-z]{1,9}", r"\w+", ".{2,70}", "[^,]{0,40}", "[A-Z][a-z]*", r"\d{1,20}", "(?:ab|cd ?){4,9}"),
    "(?!.*the)[a-z ]{3,30}",
]
SIGNS = [" ", ", ", ": ", "", "\n", ' "', "|", ". "]


@settings(max_examples=repeats(12, 150), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    entries=st.lists(st.tuples(st.sampled_from(SIGNS), st.sampled_from(ENTRIES)), min_size=2, max_size=4),
    is_again=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_masks_of_a_large_vocabulary(entries: list[tuple[str, str]], is_again: bool, random: Random):
    """Thousands of tokens begin with a blank and go on in the next component."""
    pattern = "".join(re.escape(sign) + entry for sign, entry in entries)
    constraint = Regex(f"(?:{pattern})*" if is_again else pattern)
    check_same(constraint, draw.sentencepiece(), random)


@pytest.mark.parametrize(
    "pattern", [r"(\w+\s*)*\.", r"(\w{1,64} ?)+", "([a-z]{1,30}[a-z0-9]{1,30}){1,12}", r".*[^,]+\w*", "([^`]|`[^`])*`"]
)
def test_masks_where_repetitions_touch(pattern: str):
    """Nearly every token may be read in many ways, each of which ends a repetition somewhere else."""
    constraint = Regex(pattern)
    check_same(constraint, draw.sentencepiece(), Random(pattern), repeats(6, 40), most_judged=24)


@few
@given(
    options=st.lists(st.text(ALPHABET, max_size=6), min_size=1, max_size=12), random=st.randoms(use_true_random=False)
)
def test_choices_are_those_of_one_automaton(options: list[str], random: Random):
    assume(any(options))
    constraint = Choice(options)
    check_same(constraint, letters(), random)


SAMPLES = {sample.name: sample for sample in load_patterns()}
TOO_LARGE = {"the 19th letter from the end", "key: value lines"}  # for one automaton


@pytest.mark.parametrize("name", SAMPLES)
def test_patterns_of_the_benchmark(name: str):
    """Walked along their texts, and at random, over 32,768 tokens."""
    constraint, vocabulary = Regex(SAMPLES[name].schema), draw.sentencepiece()
    ours = backend(vocabulary).compile(constraint)
    for sample in SAMPLES[name].texts:
        matcher = ours.matcher()
        reads = all(matcher.accept_token(token) for token in vocabulary.encode_bytes(sample.text.encode()))
        assert (reads and matcher.is_completed()) == sample.valid
    if name not in TOO_LARGE:
        check_same(constraint, vocabulary, Random(name), repeats(6, 25))


@pytest.mark.parametrize("name", sorted(TOO_LARGE))
def test_patterns_too_large_for_one_automaton_are_those_of_llguidance(name: str):
    """It has its own opinion of tokens where the text is forced, so only what ours allows is compared there."""
    constraint, vocabulary = Regex(SAMPLES[name].schema), draw.sentencepiece()
    with pytest.raises(CompileLimitExceeded):
        regex_dfa(parse_fullmatch(constraint.pattern), WorkMeter())
    both = [engine.compile(constraint).matcher() for engine in (backend(vocabulary), LLGuidanceBackend(vocabulary))]
    text = next(text.text for text in SAMPLES[name].texts if text.valid)
    for token in vocabulary.encode_bytes(text.encode()):
        assert draw.allowed(both[0]) == draw.allowed(both[1])
        assert all(matcher.accept_token(token) for matcher in both)


def walked(matcher: Matcher, text: str) -> bool:
    return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.is_completed()


def test_letter_from_the_end_is_read_in_few_ways():
    """As one automaton it has 2^19 states."""
    matcher = NetworkBackend(draw.single_bytes()).compile(Regex("(a|b)*a(a|b){18}")).matcher()
    for text in ("abab" * 5, "b" * 40 + "a" + "ab" * 9, "bab" * 30):
        matcher.reset()
        assert walked(matcher, text) == bool(re.fullmatch("(a|b)*a(a|b){18}", text))


@pytest.mark.parametrize(
    "pattern", [".{0,2000}</think>(yes|no)", "([^\n]{0,1500}\n){1,50}", "(x[^x]{1,3000})*", "#.{5,90000}"]
)
def test_long_repetitions_of_any_characters_take_one_component(pattern: str):
    compiled = NetworkBackend(draw.single_bytes()).compile(Regex(pattern))
    network = compiled.new_engine().network  # type: ignore[attr-defined]
    assert sum(component.dfa.states for component in network.components) < 400


@pytest.mark.parametrize(
    "pattern", [".*x.{2000}", "(a|b)*a(a|b){1500}", "(.{1000,1200}.?)*", r"((;[a-z]{4,9})?(,\d{5,9})?){400}"]
)
def test_too_many_ways_to_read_a_text_are_refused_before_it_is_read(pattern: str):
    with pytest.raises(CompileLimitExceeded, match=r'more ways to read.*backend="llguidance"'):
        NetworkBackend(draw.single_bytes()).compile(Regex(pattern))


def test_too_large_an_automaton_is_refused_with_the_way_out():
    with pytest.raises(CompileLimitExceeded, match=r'too large an automaton.*backend="llguidance"'):
        NetworkBackend(draw.single_bytes()).compile(Regex("(((((a{1,50}){1,50}){1,50}b?){1,50}c){1,50}d){1,50}"))


def test_a_pattern_without_texts_is_refused():
    for pattern in ("(?=a)b", "a(?!.*)b{20}"):
        with pytest.raises(UnsupportedConstraint, match="matches nothing"):
            NetworkBackend(draw.single_bytes()).compile(Regex(pattern))


@pytest.mark.parametrize(
    "pattern", [".*", ".{3,40}", "[a-zé]{20,30}!?", r"(\w+, ){2,30}\w+", "(a|b)*a(a|b){18}", "é|x"]
)
def test_a_vocabulary_without_all_bytes_writes_what_it_has_tokens_for(pattern):
    compiled = NetworkBackend(draw.without_bytes()).compile(Regex(pattern))
    for seed in range(repeats(5, 40)):
        choose, matcher, taken = Random(seed), compiled.matcher(), []
        for left in range((matcher.min_tokens_to_finish() or 0) + choose.randrange(20), 0, -1):
            taken.append(choose.choice(draw.allowed(matcher, left)))
            assert matcher.accept_token(taken[-1])
            if matcher.is_terminated():
                break
        assert matcher.is_terminated()
        assert re.fullmatch(pattern, compiled.vocabulary.decode_bytes(taken).decode())


def test_a_pattern_that_no_token_writes_is_refused():
    with pytest.raises(UnwritableConstraint, match=r"needs one of the bytes '\{'"):
        NetworkBackend(draw.without_bytes()).compile(Regex(r"a\{b"))


# -- tables of repeated characters


@cache
def trie(make: str) -> TokenTrie:
    return token_trie(getattr(draw, make)() if make != "letters" else letters())


@settings(max_examples=repeats(30, 200), deadline=None)
@given(
    ranges=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 0x7F), st.integers(0, 0x7F)),
            st.just((0x80, 0x10FFFF)),
            st.tuples(st.integers(0x80, 0x900), st.integers(0x80, 0x10FFFF)),
        ),
        min_size=1,
        max_size=4,
    ),
    name=st.sampled_from(["letters", "tiny", "sentencepiece"]),
    following=st.sampled_from([None, b"a", b" ,", b"ehnx\xc3"]),
    first=st.integers(0, 0x7F),
)
def test_tables_of_a_set_are_those_of_a_walk(
    ranges: list[tuple[int, int]], name: str, following: bytes | None, first: int
):
    characters = CharSet([(min(pair), max(pair)) for pair in ranges])
    dfa = regex_dfa(repeat(chars(characters)), WorkMeter())
    walk = ComponentWalk(Component.without_calls(dfa), sets := NodeSets(trie(name)))
    tables = ClassTables(sets)
    for node in {0, trie(name).trie.child_by(0, first)}:
        begun = sets.of(np.array([node]))
        made, expected = tables.table(walk, dfa.start, begun, following), walk.table(dfa.start, begun.nodes)
        assert (made is not None) == (len(characters & ASCII) >= 20)
        if made is not None:
            assert (made.mask(trie(name)) == expected.mask(trie(name))).all()
            leaving = [
                (state, left if following is None else left.before(following)) for state, left in expected.leaving
            ]
            assert [(state, left.nodes.tolist()) for state, left in made.leaving] == [
                (state, left.nodes.tolist()) for state, left in leaving if len(left.nodes)
            ]


ASCII = CharSet([(0, 0x7F)])
