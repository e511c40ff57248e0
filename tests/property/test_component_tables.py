"""Tables of components are what following every token byte by byte finds, however they were made.

The oracle knows neither tries nor sets of nodes: it moves along the automaton by the bytes of one token at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hf_guided.automaton import component_walk
from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.component_tables import ComponentTables
from hf_guided.automaton.component_walk import ComponentWalk, Table
from hf_guided.automaton.counted_string import CountedString
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.rtn import Component
from hf_guided.automaton.token_trie import NodeSets, TokenTrie, trie_of
from hf_guided.regex import ANYTHING, json_spelling, json_spellings, parse_fullmatch
from hf_guided.regex.ast import EMPTY, Node, alt, both, complement, concat, repeat, text
from tests.effort import repeats

# -- components: the names of an open object, the declared ones and any others

SPELLINGS = (json_spellings, json_spelling)
NAMES = ["a", "ab", "abc", "ba", "aé", "aè", "é", "日", "日本", 'a"', "a\\", "\n", "a\n", "😀", ""]
QUOTE = text('"')
ANY = {spell: concat(QUOTE, spell(ANYTHING), QUOTE) for spell in SPELLINGS}


def tails(spell) -> list[Node]:
    """What may come after a name."""
    return [
        EMPTY,
        text(":"),
        alt(text(": 1"), text(":"), EMPTY),
        concat(text(": "), ANY[spell]),
        repeat(concat(text(","), ANY[spell])),
        concat(repeat(text(" ")), text(":")),
        repeat(ANY[spell]),
    ]


@st.composite
def components(draw) -> Component:
    spell = draw(st.sampled_from(SPELLINGS))
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    tail = st.sampled_from(tails(spell))
    others = both(ANYTHING, complement(alt(*map(text, names)))) if names else ANYTHING
    members = [concat(QUOTE, spell(name), QUOTE, draw(tail)) for name in (*map(text, names), others)]
    dfa = regex_dfa(concat(draw(st.sampled_from([EMPTY, text("{")])), alt(*members)), WorkMeter())
    after = np.zeros(dfa.states, np.int64)
    state = st.integers(1, dfa.states - 1)
    quoted = np.flatnonzero(dfa.table[:, dfa.byte_class[ord('"')]])
    for calling in draw(st.lists(st.one_of(st.sampled_from(quoted.tolist()), state), max_size=3)):
        after[int(dfa.table[calling, dfa.byte_class[ord('"')]])] = draw(state)
    if draw(st.integers(0, 9)) == 0:
        after[draw(state)] = draw(state)
    after[0] = 0
    return _calling(dfa, 1, after) if after.any() else Component.without_calls(dfa)


def _calling(dfa: ByteDfa, callee: int, after: NDArray[np.int64]) -> Component:
    return Component(dfa, after.reshape(1, -1).copy(), (callee,))


# -- vocabularies

PIECES = [
    '"', '":', '": ', '": 1', '",', '", "', '","', '""', '"""', '"a', '"a"', '"a":', '{"', '{"a', ":", ": ", " ", "  ",
    "a", "b", "ab", "abc", "abcd", 'a"', 'ab"', 'abc":', 'abd"', 'ba":', "é", "éa", 'aé"', 'é":', "日", "日本", '本"',
    "\\", "\\u", "\\u0", "\\u00", "00", "0061", "e9", "\\u00e9", '\\u00e9"', "\\n", '\\n"', '\\"', "\\\\", '\\\\"',
    "n", "\\ud83d", "\\ude00", "\\ud83d\\ude00", '\\ude00"', "ud83d", '": "', '": "a', '": "a"', '","a","', "é\\", "1",
    "x",
]  # fmt: skip
DATA = [
    *(piece.encode() for piece in PIECES),
    *(
        b"\xc3",
        b"\xa9",
        b'\xa9"',
        b"\xa9a",
        b"\xe6",
        b"\xe6\x97",
        b"\x97\xa5",
        b'\x97\xa5"',
        b"\xa5",
        b'\xa5":',
        b"a\xc3",
    ),
    *(b"\xf0\x9f", b"\x98\x80", b'\x98\x80"', b"\xff", b"\x00", b"\x80", b"a\x1f"),
]
vocabularies = st.one_of(
    st.just(DATA),
    st.lists(st.one_of(st.sampled_from(DATA), st.lists(st.sampled_from(DATA), max_size=4).map(b"".join)), max_size=60),
).map(lambda texts: [*filter(None, texts), b'a"b'])


def trie_for(texts: Sequence[bytes]) -> TokenTrie:
    return trie_of(texts, range(len(texts)), 32 * (len(texts) // 32 + 1))


# -- what tables say, as sets of tokens and of texts


class Plain(NamedTuple):
    """Token ids that stay, and states with the texts of the nodes that leave there."""

    token_ids: frozenset[int]
    leaving: frozenset[tuple[int, bytes]]


def plain(table: Table, tokens: TokenTrie) -> Plain:
    bits = np.unpackbits(table.mask(tokens).view(np.uint8), bitorder="little")
    assert [state for state, _ in table.leaving] == sorted({state for state, _ in table.leaving})
    leaving = []
    for state, left in table.leaving:
        assert left.nodes.tolist() == sorted(left.nodes.tolist()) != []
        leaving += [(state, tokens.path_to(node)) for node in left.nodes.tolist()]
    return Plain(frozenset(np.flatnonzero(bits).tolist()), frozenset(leaving))


def followed(component: Component, state: int, texts: Sequence[bytes], begun: frozenset[bytes]) -> Plain:
    """Each token byte by byte, from the ends of the beginnings that it has."""
    table = component.dfa.table[:, component.dfa.byte_class].tolist()
    leaves = component.dfa.accepting.copy()
    for _, after in component.calls:
        leaves |= after != 0
    token_ids, leaving = set(), set()
    for token_id, data in enumerate(texts):
        for start in range(len(data)):
            if data[:start] not in begun:
                continue
            here = state
            for end in range(start, len(data)):
                here = table[here][data[end]]
                if here and end + 1 == len(data):
                    token_ids.add(token_id)
                elif here and leaves[here]:
                    leaving.add((here, data[: end + 1]))
    return Plain(frozenset(token_ids), frozenset(leaving))


@contextmanager
def settings_of(few: int, different: int) -> Iterator[None]:
    """From how many nodes on there are masks; and how many nodes may differ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_walk, "FEW", few)
        patch.setattr(component_walk, "MOST_DIFFERENT", different)
        yield


@settings(max_examples=repeats(25, 1_000), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(components(), vocabularies, st.data())
def test_tables_are_what_following_every_token_finds(component, texts, data):
    tokens = trie_for(texts)
    made = ComponentTables(tokens)
    few, different = data.draw(st.sampled_from([(0, 10_000), (3, 10_000), (0, 4), (10_000, 10_000)]))
    prefixes = sorted({data[:end] for data in texts for end in range(len(data))})
    begun = frozenset(data.draw(st.lists(st.sampled_from(prefixes), max_size=6)))
    at = np.array(sorted(node for node in range(len(tokens.trie.byte)) if tokens.path_to(node) in begun), np.int32)
    for state in data.draw(st.permutations(range(1, component.dfa.states))):
        expected = followed(component, state, texts, frozenset([b""]))
        expected_below = followed(component, state, texts, begun)
        with settings_of(few, different):
            table = made.table(component, state)
            assert plain(table, tokens) == expected
            assert all((np.diff(left.nodes) > 0).all() for _, left in table.leaving)
            assert plain(made.table(component, state, made.nodes.of(at)), tokens) == expected_below


SETS = [
    r"[a-z :]*", r"[^\"]*", r"\w*", r"[^\n,é]*", r"[ -~日]*", r"[a-z\u0400-\u04ff\u00e8-\U0001f600]*",
    r"[^\x80-\uffff]*", r".*",
]  # fmt: skip


@settings(max_examples=repeats(40, 1_000), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(SETS), vocabularies, st.sampled_from([None, b'"', b':1"', b"a", "é".encode()]))
def test_tables_of_repeated_characters_are_what_following_every_token_finds(pattern, texts, following):
    tokens = trie_for(texts)
    made = ComponentTables(tokens)
    component = Component.without_calls(regex_dfa(parse_fullmatch(pattern), WorkMeter()))
    state = component.dfa.start
    string = None if following is None else CountedString.of_characters(component.dfa, state, following)
    for begun in {b"", *(data[:1] for data in texts)}:
        node = next(node for node in range(len(tokens.trie.byte)) if tokens.path_to(node) == begun)
        at = made.nodes.of(np.array([node])) if begun else None
        table = made.table(component, state, at, string)
        token_ids, leaving = followed(component, state, texts, frozenset([begun]))
        if following is not None:
            ends = [bytes([byte]) for byte in following]
            leaving = {(to, left) for to, left in leaving if any(t.startswith(left + e) for t in texts for e in ends)}
        left = [(to, tokens.path_to(node)) for to, nodes in table.leaving for node in nodes.nodes.tolist()]
        bits = np.unpackbits(table.mask(tokens).view(np.uint8), bitorder="little")
        assert (set(np.flatnonzero(bits).tolist()), set(left)) == (token_ids, leaving)
        assert len(left) == len(leaving) and all((np.diff(nodes.nodes) > 0).all() for _, nodes in table.leaving)


def test_nodes_found_from_several_levels_are_ascending():
    texts = [b"xabab", b"yyab"]
    tokens = trie_for(texts)
    tables = ComponentTables(tokens)
    component = Component.without_calls(regex_dfa(repeat(alt(text("a"), text("b"))), WorkMeter()))
    begun = [node for node in range(len(tokens.trie.byte)) if tokens.path_to(node) in (b"x", b"yy")]
    with settings_of(10_000, 10_000):
        table = tables.table(component, component.dfa.start, tables.nodes.of(np.array(begun)))
        expected = followed(component, component.dfa.start, texts, frozenset([b"x", b"yy"]))
        assert plain(table, tokens) == expected and len(expected.leaving) == 4


@settings(max_examples=repeats(30, 500), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(components(), vocabularies, st.data())
def test_the_table_of_a_state_is_derived_from_that_of_any_other(component, texts, data):
    tokens = trie_for(texts)
    walk = ComponentWalk(component, NodeSets(tokens))
    state = st.integers(1, component.dfa.states - 1)
    ours, theirs, different = data.draw(state), data.draw(state), data.draw(st.sampled_from([0, 1, 5, 10_000]))
    base = walk.table(theirs, np.zeros(1, np.int32))
    base = base._replace(nodes=base.nodes[:0], words=base.mask(tokens))
    with settings_of(10_000, different):
        table = walk.differing(ours, base, theirs)
    assert different < 10_000 or table is not None
    if table is not None:
        assert plain(table, tokens) == followed(component, ours, texts, frozenset([b""]))
        assert all((np.diff(left.nodes) > 0).all() for _, left in table.leaving)
        assert all(left.nodes.dtype == np.int32 for _, left in table.leaving)


# -- that little is walked, and much is shared


def object_names(*names: str, tail: str = ":") -> Component:
    """The names of an object with some declared members."""
    others = both(ANYTHING, complement(alt(*map(text, names))))
    declared = [concat(QUOTE, json_spelling(text(name)), QUOTE, text(f"{tail}{i}")) for i, name in enumerate(names)]
    node = alt(*declared, concat(QUOTE, json_spelling(others), QUOTE, text(tail)))
    return Component.without_calls(regex_dfa(node, WorkMeter()))


@pytest.fixture
def walked(monkeypatch) -> list[tuple[Component, int]]:
    """The states from which the whole vocabulary was walked, where it is large."""
    found = []

    def table(self, state, begun):
        made = whole(self, state, begun)
        if made.words is not None and begun.tolist() == [0]:
            found.append((self.dfa, state))
        return made

    whole = ComponentWalk.table
    monkeypatch.setattr(component_walk, "FEW", 8)
    monkeypatch.setattr(ComponentWalk, "table", table)
    return found


def test_names_of_all_objects_share_one_walk(walked):
    tables = ComponentTables(trie_for(DATA))
    for component in (object_names("abc", "abd"), object_names("ba", "é", tail=": "), object_names("日本")):
        state = component.dfa.advance(component.dfa.start, b'"')
        for byte in b"abd":
            tables.table(component, state)
            state = component.dfa.advance(state, bytes([byte]))
    assert len(walked) == 1  # the string alone


def test_sets_of_nodes_that_are_equal_are_one(walked):
    tables = ComponentTables(trie_for(DATA))
    sets = {}
    for component in (object_names("abc", "abd"), object_names("ba", "é", tail=": "), object_names("a", tail=",")):
        for state in range(1, component.dfa.states):
            for _, left in tables.table(component, state).leaving:
                assert sets.setdefault(left.nodes.tobytes(), left) is left
    assert len(sets) > 5


def test_components_that_call_others_share_tables():
    tables = ComponentTables(trie_for(DATA))
    one, other = object_names("abc"), object_names("abc")
    after = np.arange(one.dfa.states)
    one, other = _calling(one.dfa, 1, after), _calling(other.dfa, 2, after[::-1])
    assert (after[::-1] != 0).tolist() != (after != 0).tolist()
    assert tables.table(one, 2) is not tables.table(other, 2)  # they are left in other states
    assert tables.table(one, 2) is tables.table(_calling(one.dfa, 7, after), 2)
    assert tables.table(one, 2) is tables.table(Component(one.dfa, one.after_calls, (9,)), 2)
