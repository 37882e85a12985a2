"""The client of one token at the gateway: an MCP server for its space, with the rights of the
token. It is the same server as for a device's connection.

All sessions and requests of the token share it. Since it has no device, it writes no local files
and asks for none. If another node holds the space, it forwards requests to that node
(`forwarding`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from confide_crypto.errors import ConfideError, RequestError
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.addons import DaemonHost
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.document_results import PutResult
from confide_daemon.errors import FencedError, LockedError
from confide_daemon.server.mcp.agent_server import AgentServer, nobody
from confide_daemon.server.mcp.tool_calls import CallOrigin, catalogue, definitions
from confide_daemon.server.rates import RECORD_BYTES, TokenBucket, price_of
from confide_daemon.server.server import OPENED_AT_ONCE
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import ConnectionFacts, SealingFacts, ToolContext, WrittenBack
from confide_http.door.refusals import RefusalError
from confide_http.door.request_limits import MAX_BODY_BYTES, MAX_STREAMS_EACH, replay_body
from confide_http.server.answering.forwarding import Forwarder
from confide_http.server.answering.served import Served
from confide_memory.classes import AGENT, UNTRUSTED

TOOLSETS: Final = ("core",)
OF_MACHINES: Final = frozenset({"memory_import", "memory_sync", "secret_get", "memory_forget"})
"""Tools for a device's files, keys and user, which do not exist here."""
REQUESTS_PER_S: Final = 20.0
BURST: Final = 200.0
MAX_WAIT_S: Final = 1.0
"""Longest delay of a request over the rate; beyond it, the request is refused."""
MAX_SESSIONS_EACH: Final = 16
"""Most sessions of the older era; each has a task of its own."""
SESSION_IDLE_S: Final = 1800.0
FINISH_S: Final = 20.0
"""Time for changes in progress when the gateway ends, or the space moves to another node."""

T = TypeVar("T")


class TokenClient:
    """Answers the requests of one token while the token is valid. The task `run` must run as long
    as it is used.
    """

    def __init__(self, caller: Caller, daemon: DaemonHost) -> None:
        self.caller = caller
        self.used_at = time.monotonic()
        self.ended = asyncio.Event()
        """Set when the token ends, the gateway ends or the space moves to another node: streams end
        with it.
        """
        self.is_over = asyncio.Event()
        """Set when the token ends: requests end with it, too."""
        self._forwarder = Forwarder(daemon.peers.ways, lambda: self.caller) if daemon.peers.ways is not None else None
        self._under_way = 0
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()
        self._daemon = daemon
        self._space: Space | None = None
        self._bucket = TokenBucket(REQUESTS_PER_S, BURST)
        self._running: set[asyncio.Task[Any]] = set()
        self._ready = asyncio.Event()
        self._agent = AgentServer(self, streams=MAX_STREAMS_EACH)
        # The parts of its server that the SDK uses.
        served: Any = Served(catalogue(TOOLSETS), self._agent.handlers())
        self._manager = StreamableHTTPSessionManager(
            served,
            session_idle_timeout=SESSION_IDLE_S,
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_SESSIONS_EACH,
        )

    @property
    def grants(self) -> Grants:
        """The current rights of the client; no rights once its access has ended."""
        return self.caller.grants.without_any() if self.is_over.is_set() else self.caller.grants

    async def run(self) -> None:
        """Keep the client's sessions open until `ended` is set and the requests in progress are
        answered.
        """
        async with self._manager.run():
            telling = asyncio.create_task(self._agent.run_notifications())
            self._ready.set()
            try:
                await self.ended.wait()
                self._agent.close()  # its streams end
                await self._wait_for_requests()
            finally:
                self._agent.close()
                if self._forwarder is not None:
                    await self._forwarder.close()
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    def end(self, *, is_revoked: bool) -> None:
        """End the client's streams and accept no more requests. If `is_revoked`, also end the
        requests in progress.
        """
        if is_revoked:
            self.is_over.set()
        self.ended.set()

    def tidy(self) -> None:
        """Close channels to other nodes that are not used any more."""
        if self._forwarder is not None:
            self._forwarder.tidy()

    def require_credit(self) -> None:
        """Raise RefusalError with status 429 if the client has used up its rate, so that its next
        request need not even be read.
        """
        if self._bucket.wait_s > MAX_WAIT_S:
            raise _too_fast(self._bucket.wait_s)

    async def pay(self, body: bytes) -> None:
        """Wait until the client's rate allows this request to be parsed. Raises RefusalError with
        status 429 if the wait would be too long; RequestError if the request has too many values.
        """
        price = 1.0 + len(body) / RECORD_BYTES + await price_of(body)
        wait_s = self._bucket.borrow(MAX_WAIT_S, price)
        if wait_s is None:
            raise _too_fast(self._bucket.wait_s)
        await asyncio.sleep(wait_s)

    async def handle(self, scope: Scope, body: bytes, receive: Receive, send: Send, *, is_passed_on: bool) -> None:
        """Answer a request, or forward it to the node that holds the space.

        If `is_passed_on`, another node has forwarded it already, so it is not forwarded again.
        Raises RefusalError if the space is locked or moves to another node; EngineError if
        PostgreSQL is unavailable.
        """
        self._under_way += 1
        self._is_quiet.clear()
        try:
            await self._ready.wait()
            if self._daemon.spaces.leases is None:
                self._require_space()
                await self._manager.handle_request(scope, replay_body(body, receive), send)
            else:
                await self._handle_on_nodes(scope, body, receive, send, is_passed_on=is_passed_on)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_quiet.set()

    async def _handle_on_nodes(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, *, is_passed_on: bool
    ) -> None:
        for _ in range(OPENED_AT_ONCE):
            elsewhere = None if is_passed_on else self._forwarder
            if elsewhere is not None and await elsewhere.answer(scope, body, receive, send):
                return
            # Hold the space meanwhile: a listener then receives every change.
            with self._daemon.spaces.staying(self.caller.space_id):
                try:
                    async with self._daemon.spaces.hold(self.caller.space_id) as self._space:
                        pass
                except LockedError:
                    raise _locked_error() from None
                except FencedError:
                    if elsewhere is None:
                        raise restarting() from None
                    continue
                await self._manager.handle_request(scope, replay_body(body, receive), send)
                return
        raise restarting()

    def on_change(self, change: DocumentChange) -> None:
        """Notify the client's subscriptions of a change in its space."""
        if self._space is not None:
            self._agent.on_change(change)

    async def settle(self) -> None:
        """Wait until changes in progress are finished, at most `FINISH_S` seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=FINISH_S)

    async def _wait_for_requests(self) -> None:
        """Wait for running requests, at most `FINISH_S`, unless the access has ended."""
        waits = [asyncio.create_task(each.wait()) for each in (self._is_quiet, self.is_over)]
        try:
            await asyncio.wait(waits, timeout=FINISH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    # Interface for the MCP server

    def _require_space(self) -> None:
        """Raise RefusalError, 503, if the space is locked: it cannot be unlocked by HTTP."""
        if self._daemon.spaces.is_locked(self.caller.space_id):
            raise _locked_error()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[Space]:
        """Keep the space open within the context. Raises RequestError if it cannot be opened."""
        async with contextlib.AsyncExitStack() as holding:
            try:
                space = await holding.enter_async_context(self._daemon.spaces.hold(self.caller.space_id))
            except ConfideError as error:
                raise RequestError.of(error) from error
            self._space = space
            yield space

    def refusal(self) -> RequestError | None:
        """Return the error for all requests at present, or None if requests are accepted."""
        if self.is_over.is_set():
            return RequestError("denied", "this client's access has ended")
        return self._space.refusal("") if self._space is not None else None

    @property
    def toolsets(self) -> tuple[str, ...]:
        """The names of the groups of tools that the client sees."""
        return TOOLSETS

    @property
    def withheld(self) -> frozenset[str]:
        """The names of the tools that the client does not see: those that need a device, and for a
        read-only client those that write.
        """
        if self.grants.may_write:
            return OF_MACHINES
        return OF_MACHINES | {one.name for one in definitions(TOOLSETS) if not one.read_only}

    def origin(self, meta: Mapping[str, object] | None) -> CallOrigin:
        """Return the origin of a call, with the class of what it stores. Raises RequestError if
        `meta` states a malformed time.
        """
        # No other claim of the client is trusted: neither the provenance of a call, nor that it is
        # a repetition.
        return CallOrigin.of_client(meta, AGENT if self.caller.gateway == "trusted" else UNTRUSTED)

    def surroundings(self, report: Callable[..., Any] = nobody) -> ToolContext:
        """Return the context of a tool call; `report` is called with its progress."""
        assert self._space is not None
        projects = self.grants.projects
        # A client with several projects, or all, must name the project in each call.
        project = next(iter(projects)) if projects is not None and len(projects) == 1 else None
        return ToolContext(
            space=self._space,
            machine=NoMachine(self._publish, report),
            rights=lambda: self.grants,
            project=project,
            attached_projects=projects or frozenset(),
            facts=ConnectionFacts("", "", self.caller.space, self.caller.scope, None),
            min_score=self._daemon.config.search.min_score,
            sealing=self._sealing,
            run_to_end=self._run_to_end,
            tools=frozenset(one.name for one in definitions(TOOLSETS)) - self.withheld,
            has_machine=False,
        )

    async def _sealing(self) -> SealingFacts:
        spaces, space_id = self._daemon.spaces, self.caller.space_id
        roster = await asyncio.to_thread(spaces.rosters.current, space_id)
        return SealingFacts.of(roster, spaces.custody(space_id), b"")

    async def track(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. It need not be tracked, since the client tracks whole
        requests.
        """
        return await work

    async def _run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a change of documents to its end even if the client leaves: the writer thread makes
        the change in any case, and devices must be notified. There are no more of them than places
        for requests.
        """
        task = asyncio.create_task(self._holding(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _holding(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with self.hold():
                return await work
        finally:
            work.close()

    def _publish(self, change: DocumentChange) -> None:
        self._daemon.announce(self.caller.space_id, change)


def _too_fast(wait_s: float) -> RefusalError:
    headers = {"Retry-After": str(math.ceil(wait_s))}
    return RefusalError(429, "busy", "this client asks faster than the daemon answers", headers=headers)


def restarting() -> RefusalError:
    """Build the refusal that asks the client to retry, because the daemon is ending or the space is
    moving to another node.
    """
    why, hint = "this daemon ends, or another node takes the space", "ask again in a moment"
    return RefusalError(503, "unavailable", why, hint=hint)


def _locked_error() -> RefusalError:
    hint = "it opens when one of its devices connects"
    return RefusalError(503, "locked", "the space is locked: its devices keep its key", hint=hint)


@dataclass(frozen=True, slots=True)
class NoMachine:
    """Stands for the device of a client that has none. It writes no files, and notifies the other
    devices of the client's changes.
    """

    publish: Callable[[DocumentChange], None]
    progress: Callable[..., Any]  # reports the call's progress to the client

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        if result.changed:
            self.publish(DocumentChange.of(project, path, result, before))
        return WrittenBack(False, result)

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        self.publish(DocumentChange(project, path, revision, "", before, None))
        return WrittenBack(False, PutResult(revision, "", "", changed=True, merged=False, clash=False, queued_pieces=0))

    async def flush(self, project: str, path: str) -> None:
        """Do nothing, since there is no file that a user could have edited."""

    async def backlog(self) -> None:
        """Return None, since there is no device with queued changes."""

    async def workplace(self, project: str) -> None:
        """Return None, since there is no device with a project folder."""

    async def scan(self, *, force: bool) -> None:
        """Do nothing, since there are no local files to compare."""
