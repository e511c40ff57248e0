"""The compiled loops find what a walk node by node finds, touch nothing outside their arrays, and have to be there."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton import core
from hf_guided.automaton.component_walk import ComponentWalk
from hf_guided.automaton.core import Core
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.rtn import Component
from hf_guided.automaton.token_trie import NodeSets, TokenTrie, trie_of
from hf_guided.errors import BackendUnavailable
from hf_guided.regex import parse_fullmatch
from scripts.build_core import NoCompiler, compile_core
from tests.compiled_core import SOURCES, run_under_sanitizers
from tests.reference import walks as reference

PATTERNS = ["[ab]*", "(ab|ba)*c?", "a{3,70}b", "[^c]{2,}|c", "(a|é|日)+", "x"]
TEXTS = st.lists(st.text("abcé日", min_size=1, max_size=12).map(str.encode), max_size=40)


def walks(pattern: str, texts: list[bytes]) -> tuple[ComponentWalk, TokenTrie]:
    tokens = trie_of(texts, range(len(texts)), 64)  # several tokens may have the same text
    dfa = regex_dfa(parse_fullmatch(pattern), WorkMeter())
    return ComponentWalk(Component.without_calls(dfa), NodeSets(tokens)), tokens


@given(st.sampled_from(PATTERNS), TEXTS, st.data())
def test_the_core_finds_what_a_walk_node_by_node_finds(pattern, texts, data):
    walk, tokens = walks(pattern, texts)
    nodes = st.integers(0, len(tokens.trie.byte) - 1)
    states = st.integers(0, walk.dfa.states - 1)
    begin = data.draw(st.lists(st.tuples(nodes, states), max_size=6))  # some may be below others
    begun, begun_states = np.array(begin, np.int64).reshape(-1, 2).T
    found, found_states = walk.below(begun, begun_states)
    assert found.dtype == found_states.dtype == np.int32
    assert (found.tolist(), found_states.tolist()) == reference.below(walk, begun, begun_states)
    assert tokens.mask_of(found).tolist() == reference.mask_of(tokens, found.tolist())


def test_what_is_found_twice_needs_more_room_than_there_are_nodes():
    walk, tokens = walks("a*", [b"a" * 9])
    nodes, _ = walk.below(np.arange(10), np.full(10, walk.dfa.start))
    assert len(nodes) == sum(range(1, 11)) > len(tokens.trie.byte)


def test_a_library_of_another_version_is_not_called(tmp_path):
    """It may be left from an earlier installation: its functions would read what they are not given."""
    (tmp_path / "old.c").write_text("int hf_guided_minimize(void) { return 0; }")
    try:
        compile_core(tmp_path, tmp_path / "library")
    except NoCompiler as error:
        pytest.skip(f"no C compiler: {error}")
    (tmp_path / "text").write_text("no library")
    found = {"library": f"expected version {core.VERSION} of the compiled core, got version 0", "text": "got OSError"}
    for name, said in (found | {"nothing": "got OSError"}).items():
        with pytest.raises(BackendUnavailable, match=f"{said}.* install hf-guided again, .*with a C compiler") as error:
            Core(tmp_path / name)
        assert isinstance(error.value, ImportError) and str(tmp_path / name) in str(error.value)


def test_python_calls_functions_as_c_declares_them():
    """Another reader of C: gcc compiles a call of each function with the types that Python gives it."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is the other reader, and is not installed")
    given = {ctypes.c_void_p: "pointer", ctypes.c_int64: "number", ctypes.c_int32: "version"}
    names = set()
    for file in SOURCES.glob("*.c"):
        lines = [f'#include "{file}"', '#pragma GCC diagnostic error "-Wconversion"']
        lines.append("void calls_of_python(void *pointer, int64_t number, int32_t version) {")
        for name, (result, arguments) in core.signatures(file.read_text()).items():
            to = "" if result is None else f"{given[result]} = "
            lines.append(f"{to}hf_guided_{name}({', '.join(given[argument] for argument in arguments)});")
            names.add(name)
        command = [gcc, "-fsyntax-only", "-Werror", "-x", "c", "-"]
        done = subprocess.run(command, input="\n".join([*lines, "}"]), capture_output=True, text=True)
        assert not done.returncode, done.stderr
    assert names == {*vars(core.CORE)}
    assert len(names) == sum(file.read_text().count("\nPUBLIC ") for file in SOURCES.glob("*.c"))


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
