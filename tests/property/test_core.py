"""The compiled loops touch nothing outside their arrays, and have to be there."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_guided.automaton import core
from hf_guided.automaton.component_walk import ComponentWalk
from hf_guided.automaton.core import Core
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.rtn import Component
from hf_guided.automaton.token_trie import NodeSets, trie_of
from hf_guided.errors import BackendUnavailable
from hf_guided.regex import parse_fullmatch
from scripts.build_core import NoCompiler, compile_core

ROOT = Path(__file__).parents[2]
SOURCES = core.LIBRARY.with_name("c")


def test_what_is_found_twice_needs_more_room_than_there_are_nodes():
    tokens = trie_of([b"a" * 9], [0], 64)
    dfa = regex_dfa(parse_fullmatch("a*"), WorkMeter())
    nodes, _ = ComponentWalk(Component.without_calls(dfa), NodeSets(tokens)).below(
        np.arange(10), np.full(10, dfa.start)
    )
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


_STRICT = ["-g", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
_INSTEAD = """
import sys
from pathlib import Path
import pytest
from hf_guided.automaton.core import CORE
CORE.__init__(Path(sys.argv[1]))
sys.exit(pytest.main(["-xsv", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""
_FILES = ("call_codes", "component_tables", "frame_machine", "products", "registers", "subsets")
_MORE_FILES = ("counted_languages", "counted_strings", "network", "regex_network", "tag_network")
_WALKS = "masks_are or products_mean or is_left or any_network or calls_are"
_ALL = "not thread and not fork and not memory and not interpreter and not deep and not digits"


@pytest.mark.parametrize(
    ("files", "tests"), [(_FILES, _WALKS), pytest.param(_FILES + _MORE_FILES, _ALL, marks=pytest.mark.slow)]
)
def test_the_loops_stay_within_their_arrays(files: tuple[str, ...], tests: str, sanitized: Path) -> None:
    """In a process in which gcc's sanitizers watch the library, the tests of its callers pass."""
    find = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(find, capture_output=True, text=True).stdout.strip()
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _INSTEAD, sanitized, *(f"tests/property/test_{name}.py" for name in files)]
    ran = subprocess.run([*command, "-k", tests], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert not ran.returncode and " passed" in ran.stdout, ran.stdout[-3000:] + ran.stderr[-3000:]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built with gcc's sanitizers."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("the sanitizers are those of gcc, which is not installed")
    library = tmp_path_factory.mktemp("core") / "sanitized.so"
    files = sorted(SOURCES.glob("*.c"))
    built = subprocess.run([compiler, *_STRICT, "-shared", "-fPIC", "-o", library, *files], capture_output=True)
    if b"cannot find" in built.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert not built.returncode, built.stderr
    return library
