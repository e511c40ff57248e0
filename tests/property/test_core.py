"""The compiled loops find what numpy finds, and touch nothing outside their arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton import core
from hf_guided.automaton.core import Core
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.token_trie import TokenTrie, trie_of
from hf_guided.automaton.token_walk import TokenWalk
from hf_guided.regex import parse_fullmatch
from scripts.build_core import NoCompiler, compile_core
from tests import compiled_core
from tests.compiled_core import run_under_sanitizers

PATTERNS = ["[ab]*", "(ab|ba)*c?", "a{3,70}b", "[^c]{2,}|c", "(a|é|日)+", "x"]
TEXTS = st.lists(st.text("abcé日", min_size=1, max_size=12).map(str.encode), max_size=40)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Core:
    return compiled_core.core(tmp_path_factory.mktemp("core"))


def walks(pattern: str, texts: list[bytes]) -> tuple[TokenWalk, TokenTrie]:
    tokens = trie_of(texts, range(len(texts)), 64)  # several tokens may have the same text
    return TokenWalk(regex_dfa(parse_fullmatch(pattern), WorkMeter()), tokens), tokens


@given(st.sampled_from(PATTERNS), TEXTS, st.data())
def test_the_core_finds_what_numpy_finds(compiled, pattern, texts, data):
    walk, tokens = walks(pattern, texts)
    nodes = st.integers(0, len(tokens.trie.byte) - 1)
    states = st.integers(0, walk.dfa.states - 1)
    begin = data.draw(st.lists(st.tuples(nodes, states), max_size=6))  # some may be below others
    begun, begun_states = np.array(begin, np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "CORE", None)
        expected, expected_states = walk.below(begun, begun_states)
        mask = tokens.mask_of(expected)
        patch.setattr(core, "CORE", compiled)
        found, found_states = walk.below(begun, begun_states)
        assert found.dtype == expected.dtype == found_states.dtype == expected_states.dtype
        assert found.tolist() == expected.tolist()
        assert found_states.tolist() == expected_states.tolist()
        assert tokens.mask_of(found).tolist() == mask.tolist()
        for state in range(walk.dfa.states):
            few = walk.few(state)
            assert few is None or few.tolist() == walk.nodes(state)[0].tolist()


def test_what_is_found_twice_needs_more_room_than_there_are_nodes(compiled, monkeypatch):
    walk, tokens = walks("a*", [b"a" * 9])
    monkeypatch.setattr(core, "CORE", compiled)
    nodes, _ = walk.below(np.arange(10), np.full(10, walk.dfa.start))
    assert len(nodes) == sum(range(1, 11)) > len(tokens.trie.byte)


def test_a_library_of_another_version_is_not_called(tmp_path):
    """It may be left from an earlier installation: its functions would read what they are not given."""
    (tmp_path / "old.c").write_text("int hf_guided_minimize(void) { return 0; }")
    try:
        compile_core(tmp_path, tmp_path / "library")
    except NoCompiler as error:
        pytest.skip(f"no C compiler: {error}")
    with pytest.warns(RuntimeWarning, match="of version 0, expected .* install hf-guided again"):
        assert core.found(tmp_path / "library") is None
    (tmp_path / "text").write_text("no library")
    with pytest.warns(RuntimeWarning, match="install hf-guided again"):
        assert core.found(tmp_path / "text") is None
    assert core.found(tmp_path / "nothing") is None


_UNDER_SANITIZERS = """
import ctypes, json, sys
import numpy as np
library = ctypes.CDLL(sys.argv[1])
case = json.loads(sys.argv[2])
number = ctypes.c_int64
arrays = {name: np.array(values, dtype) for name, (values, dtype) in case["arrays"].items()}
at = lambda name: ctypes.c_void_p(arrays[name].ctypes.data)
descend = library.hf_guided_descend
descend.restype = number
for room in range(1, 12):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    nodes, states = (libc.malloc(ctypes.c_size_t(4 * room)) for _ in range(2))  # the sanitizer knows their ends
    ctypes.memset(nodes, 0, 4 * room)
    (ctypes.c_int32 * 1).from_address(states)[0] = case["start"]
    found = descend(at("child"), at("byte"), at("class_of"), at("table"), number(case["classes"]), number(1),
                    number(room), ctypes.c_void_p(nodes), ctypes.c_void_p(states))
    assert found == (10 if room >= 10 else -1), (room, found)
    words = libc.malloc(ctypes.c_size_t(8))
    ctypes.memset(words, 0, 8)
    library.hf_guided_add_tokens(at("token_start"), at("token_ids"), ctypes.c_void_p(nodes), number(max(found, 1)),
                                 ctypes.c_void_p(words))
    assert bytes((ctypes.c_uint8 * 8).from_address(words))[:1] == (b"\\x01" if room >= 10 else b"\\x00")
print("clean")
"""


def test_the_core_stays_within_its_arrays(tmp_path):
    walk, tokens = walks("a*", [b"a" * 9])
    arrays = {
        "child": (tokens.trie.child, "int64"),
        "byte": (tokens.trie.byte, "uint8"),
        "class_of": (walk.dfa.byte_class, "uint8"),
        "table": (walk.dfa.table.ravel(), "int32"),
        "token_start": (tokens.token_start, "int64"),
        "token_ids": (tokens.token_ids, "int64"),
    }
    case = {
        "arrays": {name: (values.tolist(), dtype) for name, (values, dtype) in arrays.items()},
        "start": walk.dfa.start,
        "classes": walk.dfa.table.shape[1],
    }
    assert run_under_sanitizers(tmp_path, _UNDER_SANITIZERS, json.dumps(case)) == "clean\n"
