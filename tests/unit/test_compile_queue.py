"""Which constraint is compiled next: no client holds all threads, each keeps its order, and waiting has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from hf_guided.serve import guidance
from hf_guided.serve.error_responses import RequestRefused
from hf_guided.serve.guidance import CompileQueue


class Compiles:
    """Compiles that end when the test says so."""

    def __init__(self, queue: CompileQueue):
        self.queue = queue
        self.begun: list[str] = []
        self.futures: dict[str, Future[Any]] = {}

    def ask(self, name: str) -> asyncio.Task[Future[Any]]:
        """The client is the first letter of the name."""
        return asyncio.ensure_future(self.queue.begin(name[0], self._submit(name)))

    def _submit(self, name: str) -> Callable[[], Future[Any]]:
        def submit() -> Future[Any]:
            self.begun.append(name)
            self.futures[name] = Future()
            return self.futures[name]

        return submit

    async def end(self, name: str) -> None:
        """The compile is done."""
        self.futures[name].set_result(None)
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(check: Callable[[Compiles], Any]) -> None:
    async def main() -> None:
        await check(Compiles(CompileQueue(2)))

    asyncio.run(main())


def test_one_client_leaves_a_thread_to_the_others():
    async def check(compiles: Compiles) -> None:
        for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
            compiles.ask(name)
        await settle()
        assert compiles.begun == ["a1", "b1"] and compiles.queue.num_waiting == 4
        await compiles.end("b1")
        assert compiles.begun[2:] == ["c1"]
        await compiles.end("c1")
        assert compiles.begun[3:] == ["b2"]
        await compiles.end("a1")
        await compiles.end("b2")
        await compiles.end("a2")
        assert compiles.begun == ["a1", "b1", "c1", "b2", "a2", "a3"] and compiles.queue.num_waiting == 0

    run(check)


def test_a_client_that_leaves_gives_its_turn_up():
    async def check(compiles: Compiles) -> None:
        compiles.ask("a1")
        gone, stays = compiles.ask("a2"), compiles.ask("a3")
        await settle()
        gone.cancel()
        await settle()
        await compiles.end("a1")
        assert compiles.begun == ["a1", "a3"] and stays.done() and compiles.queue.num_waiting == 0

    run(check)


def test_waiting_has_an_end(monkeypatch):
    async def check(compiles: Compiles) -> None:
        compiles.ask("a1")
        late = compiles.ask("a2")
        with pytest.raises(RequestRefused) as caught:
            await late
        assert (caught.value.status, caught.value.code) == (503, "compiler_busy")
        assert caught.value.headers["Retry-After"]
        await compiles.end("a1")
        compiles.ask("a3")
        await settle()
        assert compiles.begun == ["a1", "a3"]

    monkeypatch.setattr(guidance, "_WAIT_S", 0.05)
    run(check)


def test_a_submit_that_raises_frees_its_thread():
    async def check(compiles: Compiles) -> None:
        def fails() -> Future[Any]:
            raise ValueError("no")

        for _ in range(3):
            with pytest.raises(ValueError):
                await compiles.queue.begin("a", fails)
        compiles.ask("a1")
        await settle()
        assert compiles.begun == ["a1"]

    run(check)
