"""The compiled loops read what Python reads by a network, and find the same masks, whatever they have forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton import component_walk, frame_machine
from hf_guided.automaton.core import CORE
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import BackendError, CompileLimitExceeded
from hf_guided.schema import scalars
from hf_guided.session.row import Row, advance
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property.schema_examples import DRAFTS, Writer
from tests.property.strategies import allowed
from tests.property.test_network import compiled_or_none, pieces
from tests.toy import mask_of

STYLES: list[dict[str, Any]] = [
    *({}, {"spelling": "any"}, {"whitespace": "minified"}, {"key_order": "any"}),
    {"spelling": "any", "key_order": "any"},
]


def engines(compiled: CompiledConstraint, backend: NetworkBackend) -> tuple[FrameEngine, FrameEngine]:
    """Of two machines; the second one is never asked for a mask, so it reads the text itself."""
    again = NetworkBackend(backend.vocabulary).compile(compiled.constraint)
    return cast(FrameEngine, compiled.new_engine()), cast(FrameEngine, again.new_engine())


@settings(max_examples=repeats(25, 500))
@given(
    random=st.randoms(use_true_random=False),
    draft=st.sampled_from(sorted(DRAFTS)),
    options=st.sampled_from(STYLES),
    counted=st.sampled_from([0, 2, 16]),
    few=st.sampled_from([0, 30, 2_000]),
    most_bytes=st.sampled_from([0, 30_000, 10 * 2**20]),
)
def test_masks_are_what_a_machine_reads_that_finds_none(
    random: Random, draft: int, options: dict[str, Any], counted: int, few: int, most_bytes: int
):
    """With tables or without, where strings are counted, and where the machine forgets at each token, or now and then.

    Args:
        counted: characters of a string, from which a register counts them.
    """
    backend = NetworkBackend(pieces())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalars, "_FEW_CHARACTERS", counted)
        compiled = compiled_or_none(backend, Writer(random, draft).document(), extra="allow", **options)
        if compiled is None:
            return
        patch.setattr(component_walk, "FEW", few)
        patch.setattr(frame_machine, "FEW", few)
        patch.setattr(frame_machine, "_BYTES", most_bytes)
        check_same(*engines(compiled, backend), backend.vocabulary, random)


def check_same(ours: FrameEngine, theirs: FrameEngine, vocabulary: Vocabulary, random: Random) -> None:
    """Walk at random, back too, and compare the masks with what the other machine reads."""
    kept: list[tuple[FrameEngine, FrameEngine]] = []
    texts = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if data]
    taken = 0
    for _ in range(40):
        mask, may_stop = mask_of(ours, vocabulary)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        assert allowed == [token_id for token_id in texts if theirs.validate([token_id])]
        assert may_stop == ours.is_completed() == theirs.is_completed()
        check_forced(ours.jump_forward_bytes(), theirs.fork(), vocabulary)
        draft = [random.choice(allowed or [0]) for _ in range(3)]
        assert ours.validate(draft) == theirs.validate(draft)
        what = random.random()
        if what < 0.1:
            kept.append((ours.fork(), theirs.fork()))
        elif what < 0.2 and taken:
            back = random.randint(1, taken)
            ours.rollback(back), theirs.rollback(back)
            taken -= back
        elif what < 0.25 and kept:
            ours, theirs = kept.pop()
            taken = len(ours._taken)
        else:
            token_id = random.choice(allowed) if allowed and what < 0.95 else random.choice(texts)
            accepted = ours.accept(token_id)
            assert accepted == theirs.accept(token_id)
            taken += accepted


def check_forced(forced: bytes, theirs: FrameEngine, vocabulary: Vocabulary) -> None:
    """Each byte is the only one that may come."""
    tokens = {data: token_id for token_id, data in enumerate(vocabulary.token_bytes) if data and len(data) == 1}
    for byte in forced:
        assert not theirs.is_completed()
        assert [data for data, token_id in tokens.items() if theirs.validate([token_id])] == [bytes([byte])]
        assert theirs.accept(tokens[bytes([byte])])


TREE = {
    "$defs": {"node": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "integer"}]}}},
    "$ref": "#/$defs/node",
}


def test_threads_that_share_a_machine(monkeypatch):
    """Each forgets what the others have found."""
    monkeypatch.setattr(frame_machine, "_BYTES", 20_000)
    backend = NetworkBackend(pieces())
    compiled = backend.compile(JsonSchema(TREE))
    start = engines(compiled, backend)
    errors: list[BaseException] = []

    def walk(seed: int) -> None:
        try:
            check_same(cast(FrameEngine, compiled.new_engine()), start[1].fork(), pieces(), Random(seed))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_deep_texts_are_read_and_forgotten():
    backend = NetworkBackend(pieces())
    engine = cast(FrameEngine, backend.compile(JsonSchema(TREE)).new_engine())
    first = engine._machine.generation
    bracket, close = (pieces().token_bytes.index(text) for text in (b"[", b"]"))
    for _ in range(30_000):
        assert engine.accept(bracket)
    assert engine._machine.generation is not first
    assert not engine.is_completed()
    for _ in range(30_000):
        assert engine.accept(close)
    assert engine.is_completed() and not engine.accept(close)


def test_memory_grows_with_what_rows_have_read_and_not_with_what_masks_have_tried(monkeypatch):
    monkeypatch.setattr(frame_machine, "_BYTES", 100_000)
    engine = cast(FrameEngine, NetworkBackend(pieces()).compile(JsonSchema(TREE)).new_engine())
    bracket = pieces().token_bytes.index(b"[")
    for _ in range(4_000):
        mask_of(engine, pieces())
        assert engine.accept(bracket)
    machine = engine._machine
    machine._begin()
    machine.read_again([bracket] * 4_000)
    assert machine._most * 100_000 <= 4 * CORE.machine_bytes(machine._now.handle)


def test_memory_does_not_grow_with_drafts_that_are_not_accepted(monkeypatch):
    monkeypatch.setattr(frame_machine, "_BYTES", 100_000)
    nested = {"type": "array", "prefixItems": [{"$ref": "#"}, {"$ref": "#"}], "items": {"$ref": "#"}}
    engine = cast(FrameEngine, NetworkBackend(pieces()).compile(JsonSchema(nested)).new_engine())
    machine, random = engine._machine, Random(0)
    for _ in range(100):
        draft = "".join("[" + "[]," * random.randrange(3) for _ in range(100)).encode()
        token_ids = [pieces().token_bytes.index(bytes([byte])) for byte in draft]
        assert engine.validate(token_ids) == len(token_ids)
    assert CORE.machine_bytes(machine._now.handle) < 1_000_000


def test_the_states_along_a_declared_name_need_no_walk(monkeypatch):
    """Their tables are derived from that of all other names, in the compiled loops."""
    monkeypatch.setattr(frame_machine, "FEW", 0)
    monkeypatch.setattr(component_walk, "FEW", 0)
    name, made = "a_long_declared_name", []
    schema = {"type": "object", "properties": {name: {"type": "integer"}}, "additionalProperties": {"type": "integer"}}
    matcher = NetworkBackend(pieces()).compile(JsonSchema(schema)).matcher()
    machine, stop = cast(FrameEngine, matcher.engine)._machine, pieces().stop_token_ids[0]
    make = machine._table
    monkeypatch.setattr(machine, "_table", lambda *place: made.append(place) or make(*place))
    for byte in f'{{"{name}'.encode():
        fitting = [token_id for token_id in allowed(matcher) if token_id != stop]
        assert fitting == [token_id for token_id in range(stop) if matcher.validate_tokens([token_id])]
        assert matcher.accept_token(byte)
    assert 0 < len(made) <= 4


def test_a_machine_that_cannot_begin_again_is_as_it_was(monkeypatch):
    monkeypatch.setattr(frame_machine, "_BYTES", 0)
    engine = cast(FrameEngine, NetworkBackend(pieces()).compile(JsonSchema(TREE)).new_engine())
    bracket = pieces().token_bytes.index(b"[")
    assert engine.accept(bracket)
    with monkeypatch.context() as patch:
        patch.setattr(CORE, "machine_new", lambda *arguments: None)
        with pytest.raises(BackendError, match="more memory"):
            engine.accept(bracket)
    assert engine.accept(bracket)
    assert engine._taken == [bracket] * 2


_AT_EXIT = """
from hf_guided.automaton.core import CORE
ended = CORE.machine_end
CORE.machine_end = lambda handle: (print("ended", flush=True), ended(handle))
from tests.property.test_frame_machine import TREE, JsonSchema, NetworkBackend, pieces
backend = NetworkBackend(pieces())
kept, dropped = (backend.compile(JsonSchema(TREE)) for _ in range(2))
del dropped
"""


@pytest.mark.slow
def test_no_machine_ends_with_the_interpreter():
    """Daemon threads may still read then."""
    result = subprocess.run([sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=True)
    assert result.stdout == "ended\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("few", [frame_machine.FEW, 0], ids=["one by one", "by tables"])
def test_a_forked_child_reads_on_while_a_thread_of_its_parent_reads(few, monkeypatch):
    monkeypatch.setattr(frame_machine, "FEW", few)
    backend = NetworkBackend(pieces())
    engine = cast(FrameEngine, backend.compile(JsonSchema(TREE)).new_engine())
    machine, bracket = engine._machine, pieces().token_bytes.index(b"[")
    assert engine.accept(bracket)
    expected, _ = mask_of(engine, pieces())
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        network = machine._network
        with machine.lock, cast(Any, network.components)._lock, machine._values._lock, network._lock:
            holds.set()
            ends.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(20)
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os._exit(0 if (mask_of(engine, pieces())[0] == expected).all() and engine.accept(bracket) else 1)
        finally:
            os._exit(2)
    ends.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_too_many_ways_to_read_a_text_end_the_row():
    engine = NetworkBackend(pieces()).compile(JsonSchema(TREE)).new_engine()
    machine = cast(FrameEngine, engine)._machine
    with pytest.raises(CompileLimitExceeded, match="1024 ways"):
        machine._supply(machine._now, frame_machine._TOO_MANY)


def test_a_token_that_takes_too_much_work_is_refused_with_what_to_do(monkeypatch):
    """Its row alone ends: the others of the step are read one by one."""
    compiled = NetworkBackend(pieces()).compile(JsonSchema(TREE))
    rows = [Row(compiled.matcher()) for _ in range(3)]
    bracket = pieces().token_bytes.index(b"[")
    monkeypatch.setattr(frame_machine, "_QUICK", 0)
    assert advance(rows, [bracket] * 3) == [], "it is read with more work"
    monkeypatch.setattr(frame_machine, "_MOST", 0)
    assert advance(rows, [pieces().token_bytes.index(b"]")] * 3) == []
    assert all("make the constraint less ambiguous" in str(row.dead_end) for row in rows)
