"""Hostile clients of a server in a process of its own: each is answered or closed, and nobody else notices."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import threading
import time

import pytest

from tests.integration.serve_attacks import ATTACKS, LONG, Attack, messages
from tests.serve_process import Target, started

MOST_BYTES = int(1.5 * 2**30)
_LIMIT_S = 60.0  # of one attack, on a busy machine; the limits of the server are given below
LIMITS = ["--header-timeout", "5", "--request-timeout", "30"]
CHOICES = ["apple", "pear", "plum"]
IN_EVERY_RUN = {"two lengths", "a prompt of 200 KB", "a template", "another model", "tokens below zero", "five periods"}


class Health:
    """Asks for /health all the time."""

    def __init__(self, target: Target):
        self._target = target
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            began = time.monotonic()
            connection = http.client.HTTPConnection(self._target.host, self._target.port, timeout=60)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status != 200:
                    self.failures.append("status")
            except OSError as error:
                self.failures.append(repr(error))
            finally:
                connection.close()
            self.seconds.append(time.monotonic() - began)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def check(attack: Attack, target: Target) -> None:
    """Run an attack; then a benign request has to be answered."""
    began = time.monotonic()
    status, body = attack.run(target)
    seconds = time.monotonic() - began
    assert status in attack.right, (attack.name, status, body[:500])
    assert seconds < _LIMIT_S, (attack.name, seconds)
    text = body.partition(b"\r\n\r\n")[2] if body.startswith(b"HTTP/") else body
    assert b"Traceback" not in text and b"site-packages" not in text and b"hf_guided/" not in text, text[:500]
    assert LONG[:201].encode() not in text, attack.name
    if status >= 400 and text.startswith(b"{"):
        error = json.JSONDecoder().raw_decode(text.decode())[0]["error"]
        assert error.keys() >= {"message", "type", "param", "code"}, attack.name
        assert 0 < len(error["message"]) <= 600, (attack.name, error)
    elif status >= 400:
        assert attack.name.startswith(("TRACE", "a preflight", "an upgrade")), (attack.name, text[:200])
    status, body = target.post(messages("A fruit: ", response_format={"type": "choice", "choice": CHOICES}))
    assert status == 200, (attack.name, body)
    assert json.loads(body)["choices"][0]["message"]["content"] in CHOICES, attack.name


def survives(attacks: list[Attack], *arguments: str) -> None:
    """The server answers each attack, and its health, within its memory."""
    with started(*LIMITS, *arguments) as (target, process):
        health, most = Health(target), 0
        try:
            for attack in attacks:
                check(attack, target)
                most = max(most, process.memory_info().rss)
        finally:
            health.end()
        assert process.is_running()
        assert most < MOST_BYTES, most
        assert not health.failures, health.failures[:3]
        p99 = statistics.quantiles(health.seconds, n=100)[98]
        load = os.getloadavg()[0]
        print(
            f"{len(attacks)} attacks {arguments}: health p50 {statistics.median(health.seconds):.3f} s, "
            f"p99 {p99:.3f} s, most {max(health.seconds):.3f} s of {len(health.seconds)}, "
            f"{most / 2**20:.0f} MiB, load {load:.1f}"
        )
        assert max(health.seconds) < 2.0 * max(1.0, load), "a blocked event loop shows in seconds"


def test_a_few_attacks() -> None:
    survives([attack for attack in ATTACKS if attack.name in IN_EVERY_RUN])


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--continuous-batching",)], ids=["one by one", "shared batches"])
def test_all_attacks(arguments: tuple[str, ...]) -> None:
    assert len(ATTACKS) == 112, "SECURITY.md and docs/measured.md say how many there are"
    survives(ATTACKS, *arguments)
