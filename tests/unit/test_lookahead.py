"""A session whose masks are filled ahead: who raises what and when, and what is left behind. Toy languages."""

from __future__ import annotations

import signal
import threading
import warnings
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
from hf_guided.session.background_worker import Pending, submit
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import RowState
from hf_guided.session.session import Session
from hf_guided.vocabulary.bitmask import unpack
from tests import sessions
from tests.late import LateTransfers
from tests.toy import SetEngine, compiled_set, letters

PATIENCE = 120.0  # seconds until a test that hangs fails instead
VOCABULARY = letters("abc", stop=1)
WIDTH = VOCABULARY.padded_size
PAD, STOP, A, B, C = range(5)


def session_of(*languages: CompiledConstraint | None, **kwargs: Any) -> Session:
    return sessions.session_of(VOCABULARY, languages, **kwargs)


def words(*texts: str) -> CompiledConstraint:
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


def watched(watch: Callable[[str], None], *texts: str) -> CompiledConstraint:
    def new_engine() -> Watched:
        engine = Watched(VOCABULARY, frozenset(text.encode() for text in texts))
        engine.watch = watch
        return engine

    return CompiledConstraint(Choice(list(texts)), "toy", VOCABULARY, new_engine, nbytes=0)


def ids(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows)


def alive(session: Session, input_ids: Tensor) -> list[set[int]]:
    masked = session.mask(input_ids, torch.zeros(len(input_ids), WIDTH))
    return [set(torch.nonzero(row > float("-inf")).flatten().tolist()) for row in masked]


def foreseen(session: Session, input_ids: Tensor) -> None:
    """Shown, and the job has ended."""
    session.look_ahead(input_ids)
    assert session._lookahead.pending is not None
    session._lookahead.pending.wait()


# -- loops that keep their rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [True, False])
def test_fill_ahead_fills_what_is_filled_here(overlap: bool) -> None:
    session = session_of(words("abc", "ab"), None, words("cc"), overlap=overlap)
    rows = session.begin(3)
    drafts = [[[A], [B]], [[C], [C]], []]
    expected = MaskFiller(VOCABULARY, (STOP,)).fill(rows, [None] * 3, drafts)
    found = session.fill_ahead(rows, [None] * 3, drafts).result()
    assert (found.rows, found.governed, found.ended) == (expected.rows, expected.governed, expected.ended)
    governed = list(found.governed)
    assert torch.equal(found.bitmask[governed], expected.bitmask[governed])
    scores = torch.randn(7, WIDTH)
    assert torch.equal(session.apply(scores, found), session.apply(scores, expected))
    bits = unpack(found.bitmask, WIDTH)
    assert [set(bits[line].nonzero().flatten().tolist()) for line in (2, 6)] == [
        {C, STOP},
        {C, VOCABULARY.token_bytes.index(b"cc")},
    ]


def test_without_overlap_everything_is_done_at_once_and_here() -> None:
    names: list[str] = []
    session = session_of(watched(lambda _: names.append(threading.current_thread().name), "ab"), overlap=False)
    pending = session.fill_ahead(session.begin(1), [None])
    assert pending.done() and names == [threading.current_thread().name]
    session.mask(ids([C]), torch.zeros(1, WIDTH))
    session.look_ahead(ids([C, A]))
    assert len(names) == 2, "nothing is foreseen"


def test_an_engine_that_raises_is_heard_of_with_its_row() -> None:
    def fail(text: str) -> None:
        if text == "a":
            raise ZeroDivisionError("of the engine")

    session = session_of(None, words("ab"), watched(fail, "ab"))
    rows = session.begin(3)
    assert rows[2].advance(A)
    pending = session.fill_ahead(rows, [None] * 3)
    with pytest.raises(ZeroDivisionError, match="of the engine") as caught:
        pending.result()
    if hasattr(caught.value, "__notes__"):
        assert caught.value.__notes__ == ["while serving row 2 of the batch"]
    rows = session.begin(3)
    assert session.fill_ahead(rows, [None] * 3).result().governed == (1, 2), "the next one works"


def test_waiting_for_a_mask_is_counted_apart() -> None:
    begun, let_go = threading.Event(), threading.Event()

    def hold(text: str) -> None:
        begun.set()
        assert let_go.wait(PATIENCE)

    session = session_of(watched(hold, "ab"))
    pending = session.fill_ahead(session.begin(1), [None])
    assert begun.wait(PATIENCE)
    compiling = session.stats.wait_ns
    assert session.stats.wait_mask_ns == 0
    say_when_waited_for(pending, let_go)
    pending.result()
    assert session.stats.wait_mask_ns > 0 and session.stats.wait_ns == compiling


# -- ids that are shown before they are asked for --------------------------------------------------------------------


def test_what_was_foreseen_is_used() -> None:
    names: list[str] = []
    session = session_of(watched(lambda _: names.append(threading.current_thread().name), "abc"))
    assert alive(session, ids([C])) == [{A, VOCABULARY.token_bytes.index(b"ab")}]
    assert session.stats.foreseen == 0
    begun = threading.Event()
    session.look_ahead(ids([C, A]))
    submit(Pending(begun.set))
    assert begun.wait(PATIENCE), "the worker has done what came before this"
    assert alive(session, ids([C, A])) == [{B, VOCABULARY.token_bytes.index(b"bc")}]
    assert session.stats.foreseen == 1
    assert names == [threading.current_thread().name, "hf-guided-prefetch"]


def test_ids_that_others_overwrite_were_copied() -> None:
    session = session_of(words("abc", "acb"))
    alive(session, ids([C]))
    shown = ids([C, A])
    session.look_ahead(shown)
    shown[0, 1] = B
    assert session._lookahead.pending is not None
    assert alive(session, ids([C, A])) == [{B, C, *map(VOCABULARY.token_bytes.index, (b"bc", b"cb"))}]
    assert session.stats.foreseen == 1


def test_other_ids_than_foreseen_are_served_as_if_nothing_had_been() -> None:
    session = session_of(words("ab", "ba"), words("cc"))
    alive(session, ids([C], [C]))
    foreseen(session, ids([C, A], [C, C]))
    assert alive(session, ids([C, B], [C, C])) == [{A}, {C}]
    assert session.stats.foreseen == 0


def test_errors_are_for_who_asks() -> None:
    for asked, refused in ((A, False), (B, True)):
        session = session_of(words("ab"), on_violation="raise")
        alive(session, ids([C]))
        foreseen(session, ids([C, B]))
        if refused:
            with pytest.raises(
                TokenRejected, match=r"row 0 .* position 0: after '' came 'b' \(3\), allowed were 'a', 'ab'"
            ):
                alive(session, ids([C, asked]))
        else:
            assert alive(session, ids([C, asked])) == [{B}]


def test_engine_errors_are_for_who_asks_and_the_next_prompt_works() -> None:
    def fail(text: str) -> None:
        if text == "b":
            raise ZeroDivisionError("of the engine")

    session = session_of(watched(fail, "ab", "ba"), words("ab", "ba"))
    alive(session, ids([C], [C]))
    foreseen(session, ids([C, B], [C, A]))
    assert alive(session, ids([C, A], [C, A])) == [{B}, {B}]
    session.reset()
    alive(session, ids([C], [C]))
    foreseen(session, ids([C, B], [C, A]))
    with pytest.raises(ZeroDivisionError):
        alive(session, ids([C, B], [C, A]))
    after = {A, B, *map(VOCABULARY.token_bytes.index, (b"ab", b"ba"))}
    assert alive(session, ids([C, B, C], [C, A, C])) == [after, after], "a new prompt, whatever stood there"


def test_warnings_are_for_who_asks() -> None:
    session = session_of(words("az", "b"))  # no token goes on behind "a"
    alive(session, ids([C]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        foreseen(session, ids([C, A]))
        assert alive(session, ids([C, B])) == [{STOP}]
    session.reset()
    alive(session, ids([C]))
    foreseen(session, ids([C, A]))
    with pytest.warns(UserWarning, match="row 0 reached a dead end"):
        assert alive(session, ids([C, A])) == [{STOP}]


def test_a_row_at_a_dead_end_stays_there_when_a_step_is_taken_back() -> None:
    session = session_of(words("az", "b"), on_violation="raise")
    alive(session, ids([C]))
    with pytest.warns(UserWarning, match="dead end"):
        alive(session, ids([C, A]))
    foreseen(session, ids([C, A, STOP]))
    assert alive(session, ids([C, A, PAD])) == [{STOP}], "the row was closed before: this token is no violation"
    assert session._tracker._streams[0].rows[0].state is RowState.CLOSED


@pytest.mark.parametrize(
    "shown",
    [ids([C], [C]), ids([C, A, B], [C, A, B]), ids([C, A]), ids([A, A], [C, A]), torch.tensor([C, A])],
    ids=["no longer", "two tokens", "fewer rows", "another prompt", "one dimension"],
)
def test_only_a_step_in_place_is_foreseen(shown: Tensor) -> None:
    session = session_of(words("ab"), words("ab"))
    session.look_ahead(shown)
    alive(session, ids([C], [C]))
    session.look_ahead(shown)
    assert alive(session, ids([C, A], [C, A])) == [{B}, {B}]
    assert session.stats.foreseen == 0


def test_reset_forgets_what_was_foreseen() -> None:
    session = session_of(words("ab"))
    start = alive(session, ids([C]))
    foreseen(session, ids([C, A]))
    session.reset()
    assert alive(session, ids([C, A])) == start, "a prompt, as after any reset"


def test_the_companion_stops_nothing() -> None:
    session = session_of(words("ab"), words("ab"))
    processor = GuidedLogitsProcessor(session)
    alive(session, ids([C], [C]))
    stops = processor.companion(ids([C, A], [C, A]), None)
    assert torch.equal(stops, torch.zeros(2, dtype=torch.bool))
    assert processor.companion is processor.companion
    alive(session, ids([C, A], [C, A]))
    assert session.stats.foreseen == 1


# -- interrupted -----------------------------------------------------------------------------------------------------


def say_when_waited_for(pending: Pending[Any] | None, waiting: threading.Event) -> None:
    """Set the event when somebody has begun to wait."""
    assert pending is not None
    real = pending._done.wait
    pending._done.wait = lambda timeout=None: (waiting.set(), real(timeout))[1]  # type: ignore[method-assign]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals sent to a thread")
@pytest.mark.usefixtures("control_c")
@pytest.mark.parametrize("way", ["look_ahead", "fill_ahead"])
def test_after_control_c_the_next_call_works_whatever_the_job_does(way: str) -> None:
    """The engine is still busy, with the rows and slots of the call that was interrupted."""
    begun, waiting, let_go, ended = (threading.Event() for _ in range(4))

    def hold(text: str) -> None:
        if text == "a" and not ended.is_set():
            begun.set()
            assert waiting.wait(PATIENCE)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert let_go.wait(PATIENCE)
            ended.set()

    session = session_of(watched(hold, "ab", "ba"))
    try:
        if way == "look_ahead":
            alive(session, ids([C]))
            session.look_ahead(ids([C, A]))
            assert begun.wait(PATIENCE)
            say_when_waited_for(session._lookahead.pending, waiting)
            with pytest.raises(KeyboardInterrupt):
                alive(session, ids([C, A]))
        else:
            rows = session.begin(1)
            assert rows[0].advance(A)
            pending = session.fill_ahead(rows, [None])
            assert begun.wait(PATIENCE)
            say_when_waited_for(pending, waiting)
            with pytest.raises(KeyboardInterrupt):
                pending.result()
        assert not ended.is_set()
        assert alive(session, ids([B]))[0] == {A, B, *map(VOCABULARY.token_bytes.index, (b"ab", b"ba"))}
        session.look_ahead(ids([B, B]))
        assert alive(session, ids([B, B])) == [{A}]
        both = [session.fill_ahead(session.begin(1), [None]).result().bitmask for _ in range(2)]  # one in each slot
        before = [bitmask.clone() for bitmask in both]
        assert not ended.is_set(), "nobody waited for the job"
    finally:
        let_go.set()
    assert ended.wait(PATIENCE)
    behind = threading.Event()
    submit(Pending(behind.set))
    assert behind.wait(PATIENCE)
    assert all(map(torch.equal, both, before)), "it wrote into a slot that is not its own any more"
    assert alive(session, ids([B, B, A])) == [{STOP}]


# -- ids and masks on their way ----------------------------------------------------------------------------------------


def test_copies_that_are_late_change_nothing() -> None:
    """Ids to the host and masks to the device through transfers that are done when somebody waits for them."""
    transfers = LateTransfers()
    session = session_of(words("abc", "acb"), None, words("ccc"))
    session._filler._buffers.transfers = transfers
    alive(session, ids([C], [C], [C]))
    steps = [ids([C, A], [C, A], [C, C]), ids([C, A, B], [C, A, A], [C, C, C])]
    found = []
    for step in steps:
        session.look_ahead(step)
        found.append(alive(session, step))
    pairs = [VOCABULARY.token_bytes.index(pair) for pair in (b"bc", b"cb", b"cc")]
    everything = set(range(WIDTH))
    assert found == [[{B, C, *pairs[:2]}, everything, {C, pairs[2]}], [{C}, everything, {C}]]
    assert session.stats.foreseen == 2
    assert len(transfers.to_host_started) == 2 and all(one.done for one in transfers.to_host_started)
    assert [len(one.tensor) for one in transfers.to_device_started] == [2, 2, 2], "a free row costs no copy"


# -- options ---------------------------------------------------------------------------------------------------------


def test_overlap_is_read_from_the_environment() -> None:
    for text in ({}, {"HF_GUIDED_OVERLAP": ""}, {"HF_GUIDED_OVERLAP": "auto"}):
        assert LoopOptions.from_env(text).overlap == "auto"
    assert LoopOptions.from_env({"HF_GUIDED_OVERLAP": "1"}).overlap is True
    assert not LoopOptions.from_env({"HF_GUIDED_OVERLAP": "0"}).overlap
    with pytest.raises(ValueError, match="HF_GUIDED_OVERLAP='off'"):
        LoopOptions.from_env({"HF_GUIDED_OVERLAP": "off"})
