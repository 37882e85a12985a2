"""Sends responses as JSON, or as a stream of events if the client asked for progress or the
response is slow or endless.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from confide_http.door.refusals import RefusalError
from confide_http.local.daemon_failures import refusal_of
from confide_http.local.gateway_app import SSE
from confide_http.local.streamable import framing
from confide_http.local.streamable.framing import Problem
from confide_http.local.streamable.notifications import NotificationStream
from confide_http.local.streamable.sessions import HttpSession
from confide_http.local.upstream import Message, Params, ToolResponse
from confide_http.local.upstream import News as Follower
from confide_proxy.mcp.jsonrpc import INVALID_PARAMS, UNAVAILABLE, key

COMMENT_S: Final = 20.0
"""Seconds between comments on a silent stream."""
COMMIT_S: Final = 15.0
"""Seconds after which a pending response becomes a stream, which comments keep open."""
LEFT: Final = 499
"""Status for a client that has left; it is never read."""

Work = Callable[[Follower | None], Awaitable[ToolResponse]]
"""Returns the outcome of a request; its argument receives the progress."""


async def respond(request: Request, message: Params, work: Work, session: HttpSession | None) -> Response:
    """Return the response to a request; `session` is that of a client with a protocol version
    before 2026-07-28, else None.

    Without a session a disconnect cancels the request. With one the request continues, since
    connections may break, and `notifications/cancelled` cancels it.
    """
    identifier, token, is_later = message["id"], _token(message), session is None
    can_stream = framing.accepts(request.headers, SSE)
    told: asyncio.Queue[bytes | None] = asyncio.Queue()

    def follow(method: str, params: Message) -> None:
        news = {"jsonrpc": "2.0", "method": method, "params": {**params, "progressToken": token}}
        told.put_nowait(framing.event(news))

    task = asyncio.ensure_future(work(follow if token is not None and can_stream else None))
    task.add_done_callback(lambda _task: told.put_nowait(None))
    if session is not None:
        session.calls[key(identifier)] = task
        task.add_done_callback(lambda _task: session.calls.pop(key(identifier), None))
    gone, first = asyncio.ensure_future(_wait_for_disconnect(request)), asyncio.ensure_future(told.get())
    try:
        both: set[asyncio.Future[Any]] = {gone, first}
        await asyncio.wait(both, timeout=COMMIT_S if can_stream else None, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return _answer(identifier, task, is_later=is_later)
        if gone.done():
            if is_later:
                task.cancel()
            return Response(status_code=LEFT)
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        gone.cancel()
        if not first.done():
            first.cancel()
    begun = first.result() if first.done() else framing.COMMENT
    events = _follow(identifier, task, told, begun or framing.COMMENT, is_later=is_later)
    return StreamingResponse(events, media_type=SSE, headers={"X-Accel-Buffering": "no"})


async def listening(
    listener: NotificationStream, *, first: bytes = framing.COMMENT, more: Params | None = None
) -> AsyncIterator[bytes]:
    """Yield a listener's notifications until it ends. `more` is added to the parameters of each."""
    yield first
    while True:
        try:
            async with asyncio.timeout(COMMENT_S):
                told = await listener.news.get()
        except TimeoutError:
            yield framing.COMMENT
            continue
        if told is None:
            return
        method, params = told
        params = {**params, **(more or {})}
        yield framing.event({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})


def refusal_response(identifier: Any, error: RefusalError) -> Response:
    """Return a refusal as a JSON-RPC error, with its status and headers."""
    return framing.json_response(_error(identifier, error), status=error.status, headers=error.headers)


async def _follow(
    identifier: Any,
    task: asyncio.Future[ToolResponse],
    told: asyncio.Queue[bytes | None],
    begun: bytes,
    *,
    is_later: bool,
) -> AsyncIterator[bytes]:
    """Yield the progress of a call, comments in between, and its response."""
    try:
        yield begun
        while True:
            try:
                async with asyncio.timeout(COMMENT_S):
                    news = await told.get()
            except TimeoutError:
                yield framing.COMMENT
                continue
            if news is None:
                break
            yield news
        yield framing.event(_message(identifier, task))
    finally:
        if is_later:
            task.cancel()


def _answer(identifier: Any, task: asyncio.Future[ToolResponse], *, is_later: bool) -> Response:
    if not task.cancelled() and (error := task.exception()) is not None:
        return refusal_response(identifier, refusal_of(error))
    return framing.json_response(_message(identifier, task), is_later=is_later)


def _message(identifier: Any, task: asyncio.Future[ToolResponse]) -> Message:
    if task.cancelled():  # its client has taken it back
        return framing.error_message(identifier, Problem(UNAVAILABLE, "the request was cancelled"))
    error = task.exception()
    if error is not None:
        return _error(identifier, refusal_of(error))
    return framing.response_message(identifier, task.result())


def _error(identifier: Any, error: RefusalError) -> Message:
    code = INVALID_PARAMS if error.status in (400, 404) else UNAVAILABLE
    return framing.error_message(identifier, Problem(code, error.in_one_line))


def _token(message: Params) -> Any:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


async def _wait_for_disconnect(request: Request) -> None:
    """Return once the client has disconnected."""
    with suppress(RuntimeError):
        while (await request.receive())["type"] != "http.disconnect":
            pass
