"""What hostile clients send to a server: raw bytes and JSON, each with the statuses that are right for it."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from tests.serve_process import CHAT, CLOSED, Target


class Attack(NamedTuple):
    """One attack.

    Args:
        name: of it.
        run: sends it, and returns the status and the body.
        right: the statuses that are right; CLOSED for a connection that is closed.
    """

    name: str
    run: Callable[[Target], tuple[int, bytes]]
    right: frozenset[int]


def messages(content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4, **more}


def _schema(schema: Any) -> dict[str, Any]:
    return messages(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def _regex(pattern: str) -> dict[str, Any]:
    return messages(response_format={"type": "regex", "regex": pattern})


def _posts(name: str, body: Any, *right: int, path: str = CHAT, method: str = "POST", **headers: str) -> Attack:
    return Attack(name, lambda target: target.post(body, path, method, **headers), frozenset(right or (400,)))


def _raw(name: str, *pieces: bytes, right: Sequence[int] = (400, CLOSED), pause_s: float = 0.0) -> Attack:
    return Attack(name, lambda target: target.raw(*pieces, pause_s=pause_s), frozenset(right))


def _head(*lines: bytes, method: bytes = b"POST", path: bytes = CHAT.encode()) -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: x", *lines, b"", b""])


_BODY = json.dumps(messages()).encode()
_JSON_TYPE = b"Content-Type: application/json"
_LENGTH = b"Content-Length: %d" % len(_BODY)
_NESTED = b"[" * 100_000 + b"]" * 100_000
_TWO_PERIODS = r"(?=(?:.{7})*\Z)(?=(?:.{11})*\Z)(?=(?:.{13})*\Z)(?=(?:.{17})*\Z)(?=(?:.{19})*\Z).*"
_PERIODS = r"(?=(?:.{23})*\Z)(?=(?:.{29})*\Z)(?=(?:.{31})*\Z)(?=(?:.{37})*\Z)(?=(?:.{41})*\Z).*"


def _bomb() -> str:
    """A PNG of 50,000 x 50,000 pixels in a few kilobytes, as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"\0" * 1_000_000, 9)
    picture = struct.pack(">IIBBBBB", 50_000, 50_000, 1, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", picture) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _idle(target: Target) -> tuple[int, bytes]:
    """A thousand connections that send nothing, and a request beside them."""
    with ExitStack() as held:
        for _ in range(1000):
            with suppress(OSError):
                held.enter_context(target.connect())
        return target.post(messages())


def _leaves(stream: bool, read: int) -> Callable[[Target], tuple[int, bytes]]:
    """Clients that close their connection: at once, or after some bytes of the answer."""

    def run(target: Target) -> tuple[int, bytes]:
        body = json.dumps({**messages(), "stream": stream, "max_tokens": 400}).encode()
        for _ in range(10):
            with target.connect() as connection:
                connection.sendall(_head(_JSON_TYPE, b"Content-Length: %d" % len(body)) + body)
                if read:
                    connection.recv(read)
        return CLOSED, b""

    return run


def _slow_reader(target: Target) -> tuple[int, bytes]:
    """Reads one byte, and a little later the next; then leaves."""
    body = json.dumps({**messages(), "stream": True, "max_tokens": 400}).encode()
    with target.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(_head(_JSON_TYPE, b"Content-Length: %d" % len(body)) + body)
        for _ in range(20):
            connection.recv(1)
            time.sleep(0.05)  # the client is slow; nothing waits for it
    return CLOSED, b""


def _keys(name: str, value: str) -> Attack:
    return _posts(f"a key of {name}", messages(), 200, 400, authorization=value)


WIRE = [
    _raw("two lengths", _head(_JSON_TYPE, _LENGTH, b"Content-Length: 3") + _BODY),
    _raw(
        "length and chunks",
        _head(_JSON_TYPE, _LENGTH, b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + _BODY,
        right=(400, CLOSED),
    ),
    _raw("chunks of a negative size", _head(_JSON_TYPE, b"Transfer-Encoding: chunked") + b"-1\r\nx\r\n0\r\n\r\n"),
    _raw(
        "a chunk without an end",
        _head(_JSON_TYPE, b"Transfer-Encoding: chunked") + b"5\r\nab",
        right=(400, 408, CLOSED),
    ),
    _raw(
        "an unknown transfer encoding",
        _head(_JSON_TYPE, b"Transfer-Encoding: gzip, chunked") + _BODY,
        right=(400, 501, CLOSED),
    ),
    _raw("a negative length", _head(_JSON_TYPE, b"Content-Length: -5") + _BODY),
    _raw("a length that is no number", _head(_JSON_TYPE, b"Content-Length: 0x10") + _BODY),
    _raw("a huge length", _head(_JSON_TYPE, b"Content-Length: 99999999999999999999"), right=(400, 413, CLOSED)),
    _raw("half a body", _head(_JSON_TYPE, b"Content-Length: 5000") + _BODY, right=(400, 408, CLOSED)),
    _raw("a header without a name", _head(b": x", _JSON_TYPE, _LENGTH) + _BODY),
    _raw("a header with a line break", _head(b"X: a\nY: b", _JSON_TYPE, _LENGTH) + _BODY, right=(200, 400, CLOSED)),
    _raw("a header with NUL", _head(b"X: a\0b", _JSON_TYPE, _LENGTH) + _BODY),
    _raw(
        "a megabyte of headers",
        _head(*[b"X-%d: %s" % (i, b"y" * 100) for i in range(10_000)]),
        right=(400, 431, CLOSED),
    ),
    _raw("a header of a megabyte", _head(b"X: " + b"y" * 2**20), right=(400, 431, CLOSED)),
    _raw("a path of a megabyte", _head(path=b"/" + b"a" * 2**20, method=b"GET"), right=(400, 414, 431, CLOSED)),
    _raw("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 300),
    _raw("the beginning of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", right=(400, 404, 405, 505, CLOSED)),
    _raw("HTTP/9.9", b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", right=(200, 400, 505, CLOSED)),
    _raw("no host", b"POST " + CHAT.encode() + b" HTTP/1.1\r\n\r\n", right=(400, 415, CLOSED)),
    _raw(
        "headers in pieces",
        b"POST /v1/cha",
        b"t/completions HTTP/1.1\r\nHo",
        b"st: x\r\n",
        pause_s=0.05,
        right=(400, 408, CLOSED),
    ),
    _raw(
        "a hundred requests at once",
        _head(_JSON_TYPE, b"Content-Length: 2") * 1 + b"{}" + (_head(_JSON_TYPE, b"Content-Length: 2") + b"{}") * 99,
        right=(400,),
    ),
    _raw(
        "an upgrade to a websocket",
        _head(
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            b"Sec-WebSocket-Version: 13",
            method=b"GET",
        ),
        right=(400, 403, 404, 405, 426, CLOSED),
    ),
    _raw(
        "a request smuggled in a body",
        _head(_JSON_TYPE, b"Content-Length: 2") + b"{}GET /metrics HTTP/1.1\r\n\r\n",
        right=(400,),
    ),
    _raw(
        "an absolute path of another host",
        _head(_JSON_TYPE, _LENGTH, path=b"http://other/v1/models", method=b"GET"),
        right=(200, 400, 404, 405, CLOSED),
    ),
    _posts("a compressed body", b"\x1f\x8b" + b"\0" * 50, 400, 415, **{"content-encoding": "gzip"}),
    _posts("an absurd accept", messages(), 200, 406, accept="x/" + "y" * 5000),
    _posts("an absurd range", messages(), 200, range="bytes=0-1,5-9" * 100),
    _posts("an id with spaces", messages(), 200, **{"x-request-id": "a b\tc"}),
    _posts("a form", b"messages=x", 415, **{"content-type": "application/x-www-form-urlencoded"}),
    _keys("odd bytes", "Bearer \xff\xfe"),
    _keys("a hundred thousand letters", "Bearer " + "k" * 60_000),
    _posts(
        "a preflight of a foreign page",
        None,
        400,
        405,
        method="OPTIONS",
        origin="https://evil.example",
        **{"access-control-request-method": "POST"},
    ),
    Attack("a thousand idle connections", _idle, frozenset({200})),
    Attack("clients that leave a stream at once", _leaves(True, 0), frozenset({CLOSED})),
    Attack("clients that leave a stream", _leaves(True, 50), frozenset({CLOSED})),
    Attack("clients that leave before the answer", _leaves(False, 0), frozenset({CLOSED})),
    Attack("a client that reads a byte at a time", _slow_reader, frozenset({CLOSED})),
]

ROUTES = [
    _posts(f"{method} {path}", {} if method == "POST" else None, 404, 405, path=path, method=method)
    for method, path in (
        ("POST", "/load_model"),
        ("POST", "/reset"),
        ("POST", "/v1/audio/transcriptions"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd"),
        ("GET", "/v1/models//etc/passwd"),
        ("DELETE", "/v1/models/demo"),
        ("GET", CHAT),
        ("TRACE", CHAT),
        ("POST", "/v1/systemone"),
    )
]

BODIES = [
    _posts("100,000 brackets", _NESTED),
    _posts("brackets in a message", b'{"messages": ' + _NESTED + b"}"),
    _posts("an integer of 100,000 digits", b'{"messages": [], "max_tokens": ' + b"9" * 100_000 + b"}"),
    _posts("numbers that are none", b'{"messages": [{"role":"user","content":"x"}], "temperature": NaN}'),
    _posts("infinity", b'{"messages": [{"role":"user","content":"x"}], "top_p": -Infinity}'),
    _posts(
        "the same key twice", b'{"messages": 1, "messages": [{"role":"user","content":"x"}], "max_tokens": 3}', 200, 400
    ),
    _posts("100,000 unknown keys", {**messages(), **{f"k{i}": i for i in range(100_000)}}),
    _posts("half a character", b'{"messages": [{"role":"user","content":"\\ud800"}], "max_tokens": 3}'),
    _posts("bytes that are no text", b'{"messages": [{"role":"user","content":"\xff\xfe"}]}'),
    _posts("NUL in a message", messages("a\0b"), 200, 400),
    _posts("characters that turn the text", messages("‮" * 50 + "🏴‍☠️" * 20), 200, 400),
    _posts("a prompt of 200 KB", messages("word " * 40_000)),
    _posts("a body of 5 MB", messages("x" * 5_000_000), 413),
    _posts("no messages", messages() | {"messages": []}),
    _posts("10,000 messages", {"messages": [{"role": "user", "content": "x"}] * 10_000, "max_tokens": 2}),
    _posts("an empty message", messages(""), 200, 400),
    _posts("an unknown role", {"messages": [{"role": "root", "content": "x"}]}),
    _posts("n of a million", messages(n=1_000_000)),
    _posts("a million tokens", messages() | {"max_tokens": 1_000_000}),
    _posts("no tokens", messages() | {"max_tokens": 0}),
    _posts("tokens below zero", messages() | {"max_tokens": -1}),
    _posts("a bias of all tokens", messages(logit_bias={str(i): 1 for i in range(100_000)})),
    _posts("a bias outside of the vocabulary", messages(logit_bias={"999999999": 1})),
    _posts("a bias of infinity", messages(logit_bias={"5": 1e400})),
    _posts("integers as OpenAI sends them", messages(logit_bias={"5": 100}), 200),
    _posts("a seed of 71 bits", messages(seed=2**70)),
    _posts("a seed that is a text", messages(seed="x")),
    _posts("top_p of 5", messages(top_p=5)),
    _posts("10,000 stop strings", messages(stop=["x"] * 10_000)),
    _posts("a stop string of a megabyte", messages(stop="x" * 10**6)),
    _posts("a template", messages(chat_template_kwargs={"chat_template": "{% for i in range(10**9) %}x{% endfor %}"})),
    _posts("arguments of the template's function", messages(chat_template_kwargs={"tokenize": False, "padding": True})),
    _posts("another model", messages(model="/etc/passwd"), 404),
    _posts("a model that breaks a header", messages(model="demo\r\nX: y"), 404),
    _posts("an image that is a bomb", messages([{"type": "image_url", "image_url": {"url": _bomb()}}])),
    _posts("an image of a file", messages([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}])),
    _posts(
        "an image of another machine",
        messages([{"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}]),
    ),
    _posts("tokens that do not exist", {"prompt": [10**9], "max_tokens": 2}, path="/v1/completions"),
    _posts("10,000 prompts", {"prompt": ["x"] * 10_000, "max_tokens": 2}, path="/v1/completions"),
    _posts("a text of a megabyte to tokenize", {"prompt": "x" * 10**6}, 200, 400, path="/tokenize"),
    _posts("a text that is no list of ids", {"tokens": "x"}, path="/detokenize"),
]

CONSTRAINTS = [
    _posts("five periods", _regex(_PERIODS)),
    _posts("other five periods", _regex(_TWO_PERIODS)),
    _posts("nested repetitions", _regex(r"((a{1,300}){1,300}){1,300}"), 200, 400),
    _posts("a regex that is none", _regex("(((")),
    _posts("a back reference", _regex(r"(a)\1"), 200, 400),
    _posts("a schema that refers to itself", _schema({"$ref": "#"})),
    _posts("a schema without any value", _schema({"type": "string", "minLength": 5, "maxLength": 2})),
    _posts("bounds of 4,000 digits", _schema({"type": "integer", "minimum": int("9" * 4000)}), 200, 400),
    _posts("a schema of 100 KB", _schema({"enum": ["x" * 100] * 1000})),
    _posts("a schema of another machine", _schema({"$ref": "http://169.254.169.254/schema.json"})),
    _posts("a schema of a file", _schema({"$ref": "file:///etc/passwd"})),
    _posts("500 branches", _schema({"oneOf": [{"const": i} for i in range(500)]}), 200, 400),
    _posts(
        "a malformed structural tag", messages(response_format={"type": "structural_tag", "format": {"type": "tag"}})
    ),
    _posts("a grammar that is none", messages(response_format={"type": "grammar", "grammar": "::= ::="})),
    _posts(
        "10,000 tools", messages(tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(10_000)])
    ),
    _posts("two constraints at once", messages(response_format={"type": "regex", "regex": "a"}, guided_regex="b")),
]

LONG = "y" * 5000  # no answer repeats more than 200 characters of it
NAMES = [
    _posts("a long reference", _schema({"$ref": f"#/$defs/{LONG}"})),
    _posts("a long property", _schema({"type": "object", "properties": {LONG: {"type": LONG}}})),
    _posts("a long pattern", _schema({"type": "string", "pattern": f"({LONG}"})),
    _posts("a long rule", messages(ebnf=f"root ::= {LONG}")),
    _posts("a long field", messages(**{LONG: 1})),
    _posts("a long tag", messages(response_format={"type": "structural_tag", "format": {"type": LONG}})),
    _posts("a long model", messages(model=LONG), 404),
]

ATTACKS = [*WIRE, *ROUTES, *BODIES, *CONSTRAINTS, *NAMES]
