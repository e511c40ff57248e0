"""A session that fills masks ahead of time in the worker: results, errors, interrupts. Uses toy languages."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.backends.base import CompiledConstraint
from hf_guided.constraints.values import Choice
from hf_guided.errors import TokenRejected
from hf_guided.hf.logits_processor import GuidedLogitsProcessor
from hf_guided.options import LoopOptions
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import RowState
from hf_guided.session.run_ahead import Pending, submit
from hf_guided.session.session import Session
from hf_guided.vocabulary.bitmask import unpack
from tests import sessions
from tests.late import LateTransfers
from tests.toy import SetEngine, compiled_set, letters

TIMEOUT_S = 120.0  # seconds until a test that hangs fails instead
VOCABULARY = letters("abc", stop=1)
WIDTH = VOCABULARY.padded_size
PAD, STOP, A, B, C = range(5)


def session_of(*languages: CompiledConstraint | None, **kwargs: Any) -> Session:
    return sessions.session_of(VOCABULARY, languages, **kwargs)


def texts_constraint(*texts: str) -> CompiledConstraint:
    return compiled_set(VOCABULARY, *texts)


class Watched(SetEngine):
    """Calls ``watch`` before it fills a row."""

    watch: Callable[[str], None]

    def fork(self) -> SetEngine:
        twin = Watched(self.vocabulary, self.language, self.taken)
        twin.watch = self.watch
        return twin

    def fill(self, bitmask: Tensor, row: int) -> None:
        self.watch(self.text.decode())
        super().fill(bitmask, row)


def watched_constraint(watch: Callable[[str], None], *texts: str) -> CompiledConstraint:
    def new_engine() -> Watched:
        engine = Watched(VOCABULARY, frozenset(text.encode() for text in texts))
        engine.watch = watch
        return engine

    return CompiledConstraint(Choice(list(texts)), "toy", VOCABULARY, new_engine, nbytes=0)


def ids(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows)


def allowed_tokens(session: Session, input_ids: Tensor) -> list[set[int]]:
    masked = session.mask(input_ids, torch.zeros(len(input_ids), WIDTH))
    return [set(torch.nonzero(row > float("-inf")).flatten().tolist()) for row in masked]


def look_ahead_and_wait(session: Session, input_ids: Tensor) -> None:
    """Start the lookahead for these ids, and wait until its job has ended."""
    session.look_ahead(input_ids)
    assert session._job is not None
    session._job.wait()


# -- fill_ahead: loops that own their rows ---------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [True, False])
def test_fill_ahead_gives_the_same_masks_as_fill(overlap: bool) -> None:
    session = session_of(texts_constraint("abc", "ab"), None, texts_constraint("cc"), overlap=overlap)
    rows = session.begin(3)
    drafts = [[[A], [B]], [[C], [C]], []]
    expected = MaskFiller(VOCABULARY, (STOP,)).fill(rows, [None] * 3, drafts)
    actual = session.fill_ahead(rows, [None] * 3, drafts)()
    assert (actual.rows, actual.governed, actual.ended) == (expected.rows, expected.governed, expected.ended)
    governed = list(actual.governed)
    assert torch.equal(actual.bitmask[governed], expected.bitmask[governed])
    scores = torch.randn(7, WIDTH)
    assert torch.equal(session.apply(scores, actual), session.apply(scores, expected))
    bits = unpack(actual.bitmask, WIDTH)
    assert [set(bits[mask_row].nonzero().flatten().tolist()) for mask_row in (2, 6)] == [
        {C, STOP},
        {C, VOCABULARY.token_bytes.index(b"cc")},
    ]


def test_without_overlap_masks_are_filled_in_the_calling_thread() -> None:
    names: list[str] = []
    session = session_of(
        watched_constraint(lambda _: names.append(threading.current_thread().name), "ab"), overlap=False
    )
    session.fill_ahead(session.begin(1), [None])
    assert names == [threading.current_thread().name]
    session.mask(ids([C]), torch.zeros(1, WIDTH))
    session.look_ahead(ids([C, A]))
    assert len(names) == 2, "look_ahead fills no mask"


def test_error_of_an_engine_ends_its_row_alone() -> None:
    def fail(text: str) -> None:
        if text == "a":
            raise ZeroDivisionError("of the engine")

    session = session_of(None, texts_constraint("ab"), watched_constraint(fail, "ab"))
    rows = session.begin(3)
    assert rows[2].advance(A)
    masks = session.fill_ahead(rows, [None] * 3)()
    assert masks.ended == {2: "the engine toy failed: ZeroDivisionError: of the engine"}
    assert [message[:6] for message, _ in masks.warnings] == ["row 2 "]
    assert unpack(masks.bitmask, WIDTH)[2].nonzero().flatten().tolist() == [STOP]
    rows = session.begin(3)
    assert session.fill_ahead(rows, [None] * 3)().governed == (1, 2), "the next call works"


def test_time_waiting_for_a_mask_is_counted_separately() -> None:
    started, release = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        started.set()
        assert release.wait(TIMEOUT_S)

    session = session_of(watched_constraint(hold, "ab"))
    masks = session.fill_ahead(session.begin(1), [None])
    assert started.wait(TIMEOUT_S)
    compiling = session.stats.wait_ns
    assert session.stats.wait_mask_ns == 0
    set_event_on_wait(session._job, release)
    masks()
    assert session.stats.wait_mask_ns > 0 and session.stats.wait_ns == compiling


# -- look_ahead: ids that the session gets before the call that needs their mask -------------------------------------


def test_mask_filled_ahead_is_used() -> None:
    names: list[str] = []
    session = session_of(watched_constraint(lambda _: names.append(threading.current_thread().name), "abc"))
    assert allowed_tokens(session, ids([C])) == [{A, VOCABULARY.token_bytes.index(b"ab")}]
    assert session.stats.foreseen == 0
    worker_is_idle = threading.Event()
    session.look_ahead(ids([C, A]))
    submit(Pending(worker_is_idle.set))
    assert worker_is_idle.wait(TIMEOUT_S), "the worker has not finished the earlier jobs"
    assert allowed_tokens(session, ids([C, A])) == [{B, VOCABULARY.token_bytes.index(b"bc")}]
    assert session.stats.foreseen == 1
    assert names == [threading.current_thread().name, "hf-guided-prefetch"]


def test_look_ahead_copies_the_ids() -> None:
    session = session_of(texts_constraint("abc", "acb"))
    allowed_tokens(session, ids([C]))
    next_ids = ids([C, A])
    session.look_ahead(next_ids)
    next_ids[0, 1] = B
    assert session._job is not None
    assert allowed_tokens(session, ids([C, A])) == [{B, C, *map(VOCABULARY.token_bytes.index, (b"bc", b"cb"))}]
    assert session.stats.foreseen == 1


def test_rejected_token_is_reported_only_when_it_is_used() -> None:
    for used, refused in ((A, False), (B, True)):
        session = session_of(texts_constraint("ab"), on_violation="raise")
        allowed_tokens(session, ids([C]))
        look_ahead_and_wait(session, ids([C, B]))
        if refused:
            with pytest.raises(
                TokenRejected, match=r"row 0 .* position 0: after '' came 'b' \(3\), allowed were 'a', 'ab'"
            ):
                allowed_tokens(session, ids([C, used]))
        else:
            assert allowed_tokens(session, ids([C, used])) == [{B}]


def test_engine_error_counts_only_for_the_ids_that_cause_it() -> None:
    def fail(text: str) -> None:
        if text == "b":
            raise ZeroDivisionError("of the engine")

    session = session_of(watched_constraint(fail, "ab", "ba"), texts_constraint("ab", "ba"))
    allowed_tokens(session, ids([C], [C]))
    look_ahead_and_wait(session, ids([C, B], [C, A]))
    assert allowed_tokens(session, ids([C, A], [C, A])) == [{B}, {B}]
    assert not session.dead_ends
    session.reset()
    allowed_tokens(session, ids([C], [C]))
    look_ahead_and_wait(session, ids([C, B], [C, A]))
    with pytest.warns(UserWarning, match="row 0 reached a dead end of its toy grammar: .*ZeroDivisionError: of the"):
        assert allowed_tokens(session, ids([C, B], [C, A])) == [{STOP}, {B}]
    assert session.dead_ends == {0: "the engine toy failed: ZeroDivisionError: of the engine"}
    assert allowed_tokens(session, ids([C, B, STOP], [C, A, B])) == [{STOP}, {STOP}]
    after = {A, B, *map(VOCABULARY.token_bytes.index, (b"ab", b"ba"))}
    assert allowed_tokens(session, ids([A], [A])) == [after, after], "this is a new prompt"
    assert not session.dead_ends


def test_row_at_a_dead_end_stays_closed_after_a_rollback() -> None:
    session = session_of(texts_constraint("az", "b"), on_violation="raise")
    allowed_tokens(session, ids([C]))
    with pytest.warns(UserWarning, match="dead end"):
        allowed_tokens(session, ids([C, A]))
    look_ahead_and_wait(session, ids([C, A, STOP]))
    assert allowed_tokens(session, ids([C, A, PAD])) == [{STOP}], (
        "the row was already closed, so this token is no violation"
    )
    assert session._tracker._streams[0].rows[0].state is RowState.CLOSED


@pytest.mark.parametrize(
    "shown",
    [ids([C], [C]), ids([C, A, B], [C, A, B]), ids([C, A]), ids([A, A], [C, A]), torch.tensor([C, A])],
    ids=["no longer", "two tokens", "fewer rows", "another prompt", "one dimension"],
)
def test_look_ahead_ignores_ids_that_are_not_the_next_step(shown: Tensor) -> None:
    session = session_of(texts_constraint("ab"), texts_constraint("ab"))
    session.look_ahead(shown)
    allowed_tokens(session, ids([C], [C]))
    session.look_ahead(shown)
    assert allowed_tokens(session, ids([C, A], [C, A])) == [{B}, {B}]
    assert session.stats.foreseen == 0


def test_reset_discards_the_lookahead() -> None:
    session = session_of(texts_constraint("ab"))
    start = allowed_tokens(session, ids([C]))
    look_ahead_and_wait(session, ids([C, A]))
    session.reset()
    assert allowed_tokens(session, ids([C, A])) == start, "after a reset the ids are a prompt"


def test_companion_stopping_criterion_never_stops() -> None:
    session = session_of(texts_constraint("ab"), texts_constraint("ab"))
    processor = GuidedLogitsProcessor(session)
    allowed_tokens(session, ids([C], [C]))
    stops = processor.companion(ids([C, A], [C, A]), None)
    assert torch.equal(stops, torch.zeros(2, dtype=torch.bool))
    assert processor.companion is processor.companion
    allowed_tokens(session, ids([C, A], [C, A]))
    assert session.stats.foreseen == 1


# -- interrupted -----------------------------------------------------------------------------------------------------


def set_event_on_wait(pending: Pending[Any] | None, waiting: threading.Event) -> None:
    """Set the event as soon as a thread waits for the job."""
    assert pending is not None
    real = pending._done.wait
    pending._done.wait = lambda timeout=None: (waiting.set(), real(timeout))[1]  # type: ignore[method-assign]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals sent to a thread")
@pytest.mark.usefixtures("control_c")
@pytest.mark.parametrize("way", ["look_ahead", "fill_ahead"])
def test_next_call_works_after_control_c(way: str) -> None:
    """Even while the engine still fills the rows and buffers of the interrupted call."""
    started, waiting, release, ended = (threading.Event() for _ in range(4))

    def hold(text: str) -> None:
        if text == "a" and not ended.is_set():
            started.set()
            assert waiting.wait(TIMEOUT_S)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert release.wait(TIMEOUT_S)
            ended.set()

    session = session_of(watched_constraint(hold, "ab", "ba"))
    try:
        if way == "look_ahead":
            allowed_tokens(session, ids([C]))
            session.look_ahead(ids([C, A]))
            assert started.wait(TIMEOUT_S)
            set_event_on_wait(session._job, waiting)
            with pytest.raises(KeyboardInterrupt):
                allowed_tokens(session, ids([C, A]))
        else:
            rows = session.begin(1)
            assert rows[0].advance(A)
            masks = session.fill_ahead(rows, [None])
            assert started.wait(TIMEOUT_S)
            set_event_on_wait(session._job, waiting)
            with pytest.raises(KeyboardInterrupt):
                masks()
        assert not ended.is_set()
        assert allowed_tokens(session, ids([B]))[0] == {A, B, *map(VOCABULARY.token_bytes.index, (b"ab", b"ba"))}
        session.look_ahead(ids([B, B]))
        assert allowed_tokens(session, ids([B, B])) == [{A}]
        both = [session.fill_ahead(session.begin(1), [None])().bitmask for _ in range(2)]  # one in each buffer
        before = [bitmask.clone() for bitmask in both]
        assert not ended.is_set(), "the calls do not wait for the job"
    finally:
        release.set()
    assert ended.wait(TIMEOUT_S)
    worker_is_idle = threading.Event()
    submit(Pending(worker_is_idle.set))
    assert worker_is_idle.wait(TIMEOUT_S)
    assert all(map(torch.equal, both, before)), "the job wrote into a buffer that it no longer owns"
    assert allowed_tokens(session, ids([B, B, A])) == [{STOP}]


# -- asynchronous copies of ids and masks ----------------------------------------------------------------------------


def test_late_copies_do_not_change_the_masks() -> None:
    """The copies of ids to the host and of masks to the device happen only when they are waited for."""
    transfers = LateTransfers()
    session = session_of(texts_constraint("abc", "acb"), None, texts_constraint("ccc"))
    session._filler._buffers.transfers = transfers
    allowed_tokens(session, ids([C], [C], [C]))
    steps = [ids([C, A], [C, A], [C, C]), ids([C, A, B], [C, A, A], [C, C, C])]
    actual = []
    for step in steps:
        session.look_ahead(step)
        actual.append(allowed_tokens(session, step))
    pairs = [VOCABULARY.token_bytes.index(pair) for pair in (b"bc", b"cb", b"cc")]
    everything = set(range(WIDTH))
    assert actual == [[{B, C, *pairs[:2]}, everything, {C, pairs[2]}], [{C}, everything, {C}]]
    assert session.stats.foreseen == 2
    assert len(transfers.to_host_started) == 2 and all(transfer.done for transfer in transfers.to_host_started)
    assert [len(transfer.tensor) for transfer in transfers.to_device_started] == [2, 2, 2], "a free row costs no copy"


# -- options ---------------------------------------------------------------------------------------------------------


def test_overlap_is_read_from_the_environment() -> None:
    for text in ({}, {"HF_GUIDED_OVERLAP": ""}, {"HF_GUIDED_OVERLAP": "auto"}):
        assert LoopOptions.from_env(text).overlap == "auto"
    assert LoopOptions.from_env({"HF_GUIDED_OVERLAP": "1"}).overlap is True
    assert not LoopOptions.from_env({"HF_GUIDED_OVERLAP": "0"}).overlap
    assert LoopOptions.from_env({"HF_GUIDED_MASK_TABLE_BYTES": "4096"}).mask_table_bytes == 4096
    for text in ("-1", "many"):
        with pytest.raises(ValueError, match="HF_GUIDED_MASK_TABLE_BYTES"):
            LoopOptions.from_env({"HF_GUIDED_MASK_TABLE_BYTES": text})
    with pytest.raises(ValueError, match="HF_GUIDED_OVERLAP='off'"):
        LoopOptions.from_env({"HF_GUIDED_OVERLAP": "off"})
