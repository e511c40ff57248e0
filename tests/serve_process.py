"""A server in a process of its own, and a client of it that may send anything."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

CHAT = "/v1/chat/completions"
CLOSED = 0  # in place of a status: the connection was closed without an answer
WAIT_S = 60.0  # for an answer


class Target(NamedTuple):
    """Where the server listens."""

    host: str
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=WAIT_S)

    def post(self, body: Any, path: str = CHAT, method: str = "POST", **headers: str) -> tuple[int, bytes]:
        """The status and the body of the answer; what is no bytes is sent as JSON."""
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, data, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (ConnectionError, http.client.HTTPException):
            return CLOSED, b""
        finally:
            connection.close()

    def raw(self, *pieces: bytes, pause_s: float = 0.0) -> tuple[int, bytes]:
        """The status and the bytes of the first answer to what is sent as it is."""
        received = b""
        with self.connect() as connection, suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)  # a slow client; nothing waits for it
            while not _is_answer(received) and (chunk := connection.recv(65536)):
                received += chunk
        head = received.split(b" ", 2)
        return (int(head[1]) if len(head) > 1 and head[1].isdigit() else CLOSED), received


def _is_answer(received: bytes) -> bool:
    """Whether it begins with a whole HTTP response; the server's responses to malformed requests have a length."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


@contextmanager
def started(*arguments: str, model: str | Path = "demo") -> Iterator[tuple[Target, psutil.Process]]:
    """A server with these arguments."""
    command = [sys.executable, "-m", "hf_guided", "serve", "--model", str(model), "--host", "127.0.0.1", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().split()[-1].removeprefix("http://").split(":")
            yield Target(host, int(port)), psutil.Process(process.pid)
        finally:
            process.kill()
