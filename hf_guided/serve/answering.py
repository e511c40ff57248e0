"""The routes that generate: a request's body in, JSON or a stream of events out.

A client that leaves ends its request, streaming or not; so does the time limit. While a stream waits for its constraint
or for its turn, it gets a comment every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .admission import Admission
from .answers.shape import new_request_id
from .answers.sse import HEARTBEAT
from .auth import key_of
from .bodies import Defaults
from .call import Call
from .error_responses import RequestRefused, as_refused, log, shuts_down
from .limits import ServeLimits
from .live_request import Backstage, LiveRequest
from .request_body import body_of, parsed

_HEARTBEAT_S = 3.0
_LONGEST_ID = 128
Read = Callable[[object, Defaults, ServeLimits], Call]


class Answering:
    """Answers the requests of the routes that generate.

    Args:
        backstage: what all requests share.
        defaults: for reading bodies.
        admission: counts the requests.
        has_keys: whether each request has given a valid API key.
    """

    def __init__(self, backstage: Backstage, defaults: Defaults, admission: Admission, *, has_keys: bool):
        self._backstage, self._defaults, self._admission = backstage, defaults, admission
        self._has_keys = has_keys

    async def answer(self, request: Request, read: Read) -> Response:
        """The response to one request.

        Args:
            request: with a JSON body.
            read: makes a ``Call`` of the body.

        Raises:
            RequestRefused, HFGuidedError: no answer can be given.
        """
        with ExitStack() as held:
            held.enter_context(self._admission.request())
            deadline = _Deadline(self._backstage.limits.request_timeout_s)
            body = await body_of(request, deadline.left_s, self._admission.closed)
            call = await self._backstage.pool.run(
                lambda: read(parsed(request, body), self._defaults, self._backstage.limits)
            )
            live = LiveRequest(self._backstage, call, _id_of(request), self._client_of(request))
            held.callback(live.end, "cancelled")
            if not call.stream:
                return await self._whole(request, live, deadline)
            begun = asyncio.ensure_future(live.begin())
            held.callback(begun.cancel)
            await asyncio.wait({begun}, timeout=min(_HEARTBEAT_S, deadline.left_s))
            if begun.done():
                begun.result()  # what is refused by now is refused with its own status
            return _EventStream(self._events(live, begun, deadline), held.pop_all())

    def _client_of(self, request: Request) -> str:
        """Who asks: by the key, where keys are needed; or else by the address."""
        if self._has_keys:
            return key_of(request.headers)
        return request.client.host if request.client else ""

    async def _whole(self, request: Request, live: LiveRequest, deadline: _Deadline) -> Response:
        async def run() -> Response:
            await live.begin()
            while not live.is_over:
                await live.deltas(_HEARTBEAT_S)
            return JSONResponse(live.shape().whole(live.shown(), live.answers))

        answer = asyncio.ensure_future(run())
        left = asyncio.ensure_future(_disconnected(request))
        closed = asyncio.ensure_future(self._admission.closed.wait())
        try:
            await asyncio.wait({answer, left, closed}, timeout=deadline.left_s, return_when=asyncio.FIRST_COMPLETED)
            if closed.done() and live.has_begun:  # its engine ends it
                await asyncio.wait({answer, left}, timeout=deadline.left_s, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not left.done():
                raise _late_answer() if live.has_begun or not closed.done() else shuts_down()
            if not answer.done():
                return Response(status_code=499)  # nobody reads it
            response = answer.result()
            live.end("finished")
            return response
        except Exception:
            live.end("failed")
            raise
        finally:
            for task in (answer, left, closed):
                task.cancel()

    async def _events(self, live: LiveRequest, begun: asyncio.Future[None], deadline: _Deadline) -> AsyncIterator[str]:
        shape = None
        try:
            while not begun.done():
                yield HEARTBEAT
                await asyncio.wait({begun}, timeout=min(_HEARTBEAT_S, deadline.left_s))
                deadline.check()
                if self._admission.closed.is_set() and not begun.done():
                    raise shuts_down()
            begun.result()
            shape = live.shape()
            yield "".join(shape.begin())
            while not live.is_over:
                events: list[str] = []
                deltas = await live.deltas(min(_HEARTBEAT_S, deadline.left_s))
                for answer, delta in deltas:
                    events += shape.add(answer, delta)
                for answer in dict.fromkeys(answer for answer, _ in deltas):  # one that has ended gets no more deltas
                    if answer.finish_reason is not None:
                        events += shape.end(answer)
                deadline.check()
                if events or not deltas:
                    yield "".join(events) or HEARTBEAT
            live.end("finished")
            yield "".join(shape.finish(live.answers))
        except Exception as error:
            live.end("failed")
            refused = as_refused(error)
            if refused.status == 500:
                log.error("a request failed", exc_info=error)
            if shape is None:
                shape = live.shape()
                yield "".join(shape.begin())
            yield "".join(shape.fail(refused))


class _EventStream(StreamingResponse):
    """A stream that ends its request when it ends, for any reason, even before its first event.

    Args:
        events: of the stream.
        held: closed at the end.
    """

    def __init__(self, events: AsyncIterator[str], held: ExitStack):
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


class _Deadline:
    """The time limit of one request.

    Args:
        seconds: from now.
    """

    def __init__(self, seconds: float):
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; never below 0."""
        return max(0.0, self._at - self._loop.time())

    def check(self) -> None:
        """Raise RequestRefused after it."""
        if not self.left_s:
            raise _late_answer()


def _id_of(request: Request) -> str:
    """The request's own id, or a new one."""
    given = request.headers.get("x-request-id", "")
    return given if given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID else new_request_id()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _late_answer() -> RequestRefused:
    return RequestRefused(
        "no answer within the server's time limit; ask for less, or raise --request-timeout",
        status=504,
        code="request_timeout",
    )
