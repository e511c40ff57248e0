"""Automata, compared with ``re``, partial matches of ``regex``, automata of outlines-core, and brute force."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import regex as partial
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton import products
from hf_guided.automaton.byte_dfa import ByteDfa, finished
from hf_guided.automaton.direct_dfas import dawg_dfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import NfaBuilder, regex_dfa, utf8
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice, Regex
from hf_guided.errors import UnwritableConstraint
from hf_guided.regex import NOTHING, UnsupportedRegex, complement, parse_fullmatch
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.automata import OutlinesDfa, same_language, unmarked, without_markers
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.test_regex import TEXTS, edge_patterns, plain_patterns

INVALID = [b"\xff", b"a\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"]
few = settings(max_examples=repeats(15, 40), suppress_health_check=[HealthCheck.too_slow])


def automaton(pattern: str) -> ByteDfa:
    return regex_dfa(parse_fullmatch(pattern), WorkMeter())


@given(plain_patterns)
def test_accepted_texts_equal_re(pattern):
    compiled, dfa = re.compile(pattern), automaton(pattern)
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == bool(compiled.fullmatch(text)), repr(text)
    assert not any(dfa.accepts(data) for data in INVALID)


@given(plain_patterns)
def test_live_states_equal_partial_matches(pattern):
    compiled, dfa = partial.compile(pattern), automaton(pattern)
    for text in TEXTS[::3]:
        is_live = dfa.advance(dfa.start, text.encode()) != 0
        assert is_live == bool(compiled.fullmatch(text, partial=True)), repr(text)


@given(plain_patterns, plain_patterns, plain_patterns)
def test_combined_parts_equal_the_combined_pattern(first, again, last):
    """Deterministic parts in sequence, in parallel and in cycles, also if their texts overlap."""
    builder = NfaBuilder(WorkMeter(), in_pieces=True)
    start, middle, end = builder.state(), builder.state(), builder.state()
    for pattern, source, target in ((first, start, middle), (again, middle, middle), (last, middle, end)):
        builder.add(parse_fullmatch(pattern), source, target)
    builder.add(parse_fullmatch(again), start, end)
    builder.add_words([b"ab", b"abba", b"b"], middle, end)
    builder.add_words([b"ba"], start, middle)
    dfa = builder.dfa(start, end)
    compiled = re.compile(f"(?:{again})|(?:(?:{first})|ba)(?:{again})*(?:(?:{last})|ab|abba|b)")
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == bool(compiled.fullmatch(text)), repr(text)
    assert not any(dfa.accepts(data) for data in INVALID)
    if dfa.states < 60:
        check_minimal(dfa)


@given(plain_patterns, st.integers(0, 3), st.permutations(["({0})*", "({0})", "({0}){{1,2}}", "a({0}|b)?"]))
def test_parts_that_come_again_equal_re(pattern, count, places):
    """The same branches, in a loop, once, counted, and among others."""
    whole = "".join(places[: 1 + count]).format(f"{pattern}|ab")
    compiled, dfa = re.compile(whole), automaton(whole)
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == bool(compiled.fullmatch(text)), repr(text)


@given(plain_patterns, st.integers(0, 8), st.integers(8, 9))
def test_large_repetitions_equal_re(pattern, low, high):
    compiled, dfa = re.compile(f"(?:{pattern}){{{low},{high}}}"), automaton(f"(?:{pattern}){{{low},{high}}}")
    for text in TEXTS[::2]:
        assert dfa.accepts(text.encode()) == bool(compiled.fullmatch(text)), repr(text)


@few
@given(plain_patterns)
def test_outlines_core_builds_the_same_automaton(pattern):
    node = unmarked(parse_fullmatch(pattern))
    assert same_language(regex_dfa(node, WorkMeter()), OutlinesDfa(node))


@given(edge_patterns, st.booleans())
def test_look_around_and_complements_are_compiled_through_automata(pattern, negated):
    try:
        re.compile(pattern)
        node = parse_fullmatch(pattern)
    except (re.error, UnsupportedRegex):
        assume(False)
    node = complement(node) if negated else node
    dfa = regex_dfa(node, WorkMeter())
    compiled = re.compile(pattern)
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == (bool(compiled.fullmatch(text)) != negated), repr(text)
    assert not any(dfa.accepts(data) for data in INVALID)


@given(plain_patterns, plain_patterns)
def test_products_equal_set_operations(first, second):
    a, b = automaton(first), automaton(second)
    first_re, second_re = re.compile(first), re.compile(second)
    both = products.intersection(a, b, WorkMeter())
    without = products.difference(a, b, WorkMeter())
    others = products.difference(utf8(), a, WorkMeter())
    for text in TEXTS:
        data, x, y = text.encode(), bool(first_re.fullmatch(text)), bool(second_re.fullmatch(text))
        accepted = both.accepts(data), without.accepts(data), others.accepts(data)
        assert accepted == (x and y, x and not y, not x), repr(text)
    assert not any(others.accepts(data) for data in INVALID)
    for dfa in (both, without, others):
        if dfa.states < 60:  # the check compares all pairs of states
            check_minimal(dfa)


def check_trim(dfa: ByteDfa) -> None:
    """All states are reachable, and all except state 0 reach an accepting state."""
    table = dfa.table.astype(int)
    assert (table[0] == 0).all() and not dfa.accepting[0]
    reached, stack = {dfa.start}, [dfa.start]
    while stack:
        for state in set(table[stack.pop()].tolist()) - reached:
            reached.add(state)
            stack.append(state)
    assert reached | {0} == set(range(dfa.states))
    ends = dfa.accepting
    while (more := ends | ends[table].any(1)).sum() > ends.sum():
        ends = more
    assert ends[1:].all()


def check_minimal(dfa: ByteDfa) -> None:
    """Myhill-Nerode: no state is superfluous, and some text distinguishes any two states."""
    check_trim(dfa)
    table = dfa.table.astype(int)
    # The table-filling algorithm: add pairs that one more byte distinguishes, until there are no more.
    apart = dfa.accepting[:, None] != dfa.accepting[None, :]
    while True:
        more = apart.copy()
        for column in range(table.shape[1]):
            more |= apart[np.ix_(table[:, column], table[:, column])]
        if (more == apart).all():
            break
        apart = more
    assert (apart | np.eye(dfa.states, dtype=bool)).all()


@given(plain_patterns)
def test_automata_are_minimal(pattern):
    check_minimal(automaton(pattern))


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 4))
def test_minimal_automata_have_the_states_of_moores_algorithm(seed, states, classes):
    """The oracle is the plain algorithm. Tables with few different rows make many states equivalent."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, states, (max(2, states // 4), classes))
    table = rows[rng.integers(0, len(rows), states)]
    table[0] = 0
    accepting = rng.integers(0, 2, states) == 1
    accepting[0] = False
    expected = np.where(np.arange(states) == 0, 0, accepting + 1)
    for _ in range(states):
        expected = np.unique(np.column_stack((expected, expected[table])), axis=0, return_inverse=True)[1].reshape(-1)
    dfa = finished(table, np.arange(256) % classes, accepting, 1, WorkMeter())
    assert dfa.states == len({*expected.tolist()})
    reached = {1: dfa.start, 0: 0}  # states of the table that bytes lead to, and those of the automaton there
    for state in (todo := [1]):  # grows meanwhile
        for column, target in enumerate(table[state].tolist()):
            after = dfa.advance(reached[state], bytes([column]))
            if target not in reached:
                todo.append(target)
            assert reached.setdefault(target, after) == after
    assert all(dfa.accepting[there] == accepting[state] for state, there in reached.items())
    kinds = {(expected[state], there) for state, there in reached.items()}
    assert len(kinds) == len({kind for kind, _ in kinds}) == len({there for _, there in kinds})


@given(plain_patterns, st.integers(1, 20), st.integers(0, 2**32))
def test_automaton_with_duplicated_states_has_the_same_language(pattern, count, seed):
    """Some states are duplicated, and transitions lead to any of the copies."""
    whole, rng = automaton(pattern), np.random.default_rng(seed)
    assume(whole.start)
    original = np.concatenate((np.arange(whole.states), rng.integers(1, whole.states, count)))
    table = whole.table[original].astype(np.int64)
    for twin, state in enumerate(original[whole.states :].tolist(), whole.states):
        table[(table == state) & (rng.random(table.shape) < 0.5)] = twin
    made = finished(table, whole.byte_class, whole.accepting[original], whole.start, WorkMeter())
    assert made.states == whole.states
    compiled = re.compile(f"(?s:{pattern})")
    for text in ("".join(letters) for length in range(4) for letters in product("ab1 é", repeat=length)):
        assert made.accepts(text.encode()) == bool(compiled.fullmatch(text))


words = st.lists(st.text("abcé", max_size=5), min_size=1, max_size=30)


@given(words)
def test_word_lists_accept_exactly_their_words(options):
    encoded = {option.encode() for option in options}
    listed = dawg_dfa([option.encode() for option in options], WorkMeter())
    check_minimal(listed)
    assert sorted(strings(listed)) == sorted(encoded)
    alternation = automaton("|".join(map(re.escape, options)) + "|x[ab]")
    assert sorted(strings(alternation)) == sorted({*encoded, b"xa", b"xb"})
    check_minimal(alternation)


def strings(dfa: ByteDfa, state: int | None = None, before: bytes = b"") -> Iterator[bytes]:
    """All strings of a finite language."""
    state = dfa.start if state is None else state
    if dfa.accepting[state]:
        yield before
    row = dfa.table[state][dfa.byte_class].tolist()
    for byte, to in enumerate(row):
        if to:
            yield from strings(dfa, to, before + bytes([byte]))


def pieces() -> Vocabulary:
    """Few single letters, many groups of letters, and half of a character that no other token completes."""
    tokens = [b"a", b"ab", b"ba", b"bbb", b"1", b" ", "é".encode(), "é".encode()[:1], b"A1", b"\n\n", b"ab", b"1b"]
    return Vocabulary((None, *tokens), (0,), 40, toy.LetterTokenizer(["</s>", *map(repr, tokens)]))


def brute_force_masks(node, vocabulary):
    """The masks and the least numbers of tokens by brute force, from the automaton of outlines-core."""
    dfa = OutlinesDfa(node)
    tokens = [(token_id, data) for token_id, data in enumerate(vocabulary.token_bytes) if data]
    moves, stack = {}, [dfa.start]
    while stack:
        state = stack.pop()
        if state in moves:
            continue
        moves[state] = {token_id: after for token_id, data in tokens if (after := dfa.steps(state, data)) is not None}
        stack += moves[state].values()
    needed = {state: 1 for state in moves if dfa.accepts(state)}
    while True:
        candidates = {
            state: 1 + min(needed[after] for after in targets.values() if after in needed)
            for state, targets in moves.items()
            if any(after in needed for after in targets.values())
        }
        better = {state: count for state, count in candidates.items() if count < needed.get(state, 10**9)}
        if not better:
            return dfa.start, moves, needed
        needed.update(better)


@pytest.mark.parametrize("make", [draw.tiny, draw.without_bytes, pieces, toy.all_bytes])
@settings(max_examples=repeats(15, 40), suppress_health_check=[HealthCheck.too_slow])
@given(pattern=plain_patterns, seed=st.integers(0, 10_000))
def test_masks_and_budgets_equal_brute_force(make, pattern, seed):
    """Where characters are only in pieces of several tokens, the native engine may leave out texts (`pieces`)."""
    vocabulary = without_markers(make())
    node = parse_fullmatch(pattern)
    assume(node != NOTHING)
    state, moves, needed = brute_force_masks(node, vocabulary)
    try:
        matcher = NetworkBackend(vocabulary).compile(Regex(pattern)).matcher()
    except UnwritableConstraint as error:
        assert state not in needed or make is pieces
        assert "this vocabulary" in str(error)
        return
    assert state in needed
    rng = random.Random(seed)
    for _ in range(8):
        expected = {token_id for token_id, after in moves[state].items() if after in needed}
        stops = set(vocabulary.stop_token_ids) if needed[state] == 1 else set()
        allowed = set(draw.allowed(matcher))
        assert allowed == expected | stops or (make is pieces and allowed <= expected | stops), "another mask"
        assert allowed, "a dead end"
        stated = matcher.min_tokens_to_finish()
        assert stated is not None and stated >= needed[state], "enough is stated, and seldom more than that"
        if not allowed - stops:
            return
        token_id = rng.choice(sorted(allowed - stops))
        assert matcher.accept_token(token_id)
        state = moves[state][token_id]


@given(words.filter(any))
def test_choice_accepts_exactly_its_options(options):
    matcher = NetworkBackend(draw.single_bytes()).compile(Choice(options)).matcher()
    for text in {*options, *TEXTS[:60]}:
        matcher.reset()
        taken = all(map(matcher.accept_token, text.encode()))
        assert (taken and matcher.is_completed()) == (text in options)
        assert taken == any(option.encode().startswith(text.encode()) for option in options)
