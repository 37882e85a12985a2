"""One client of the gateway: the MCP server that its token has, which is a channel's, and what of its space it may use.

All of its sessions and requests share it. It has no machine: nothing is written to a disk, and no file is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from confide_crypto.errors import ConfideError, RequestError
from confide_daemon.access.callers import Caller, Grants
from confide_daemon.documents.results import PutResult
from confide_daemon.gateway.limits import MAX_SESSIONS_EACH
from confide_daemon.server.mcp.agent_server import AgentServer, nobody
from confide_daemon.server.mcp.tool_calls import Origin, definitions
from confide_daemon.server.rates import TokenBucket, price_of
from confide_daemon.server.replicas import Change
from confide_daemon.server.server import Daemon
from confide_daemon.spaces.space import Space
from confide_daemon.tools.context import ConnectionFacts, SealingFacts, ToolContext, WrittenBack
from confide_door.limits import MAX_BODY_BYTES, MAX_STREAMS_EACH
from confide_door.refusals import RefusalError
from confide_memory.classes import AGENT, UNTRUSTED

TOOLSETS: Final = ("core",)
OF_MACHINES: Final = frozenset({"memory_import", "memory_sync", "secret_get"})
"""Tools about a machine's files and keys, of which there are none here."""
REQUESTS_PER_S: Final = 20.0
BURST: Final = 200.0
MAX_WAIT_S: Final = 1.0
"""A request over the rate waits so long at most; else it is told to come again."""
SESSION_IDLE_S: Final = 1800.0
FINISH_S: Final = 20.0
"""For changes that were begun when the gateway ends, or the space moves away."""

T = TypeVar("T")


class Client:
    """What stands behind one token while it is good; `run` for as long as it is used."""

    def __init__(self, caller: Caller, daemon: Daemon) -> None:
        self.caller = caller
        self.used = time.monotonic()
        self.ended = asyncio.Event()
        """Set when the token is good no more, or the gateway ends: streams end with it."""
        self._is_over = False
        self._daemon = daemon
        self._space: Space | None = None
        self._bucket = TokenBucket(REQUESTS_PER_S, BURST)
        self._running: set[asyncio.Task[Any]] = set()
        self._ready = asyncio.Event()
        self._agent = AgentServer(
            self._held,
            self._refusal,
            self._tracked,
            self._surroundings,
            lambda: TOOLSETS,
            withheld=self._withheld,
            origin=self._origin,
            streams=MAX_STREAMS_EACH,
        )
        served: Any = self._agent.served()  # what the SDK asks of its own, without the rest of it
        self._manager = StreamableHTTPSessionManager(
            served,
            session_idle_timeout=SESSION_IDLE_S,
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_SESSIONS_EACH,
        )

    @property
    def grants(self) -> Grants:
        """What it may do, as it is now; nothing once its access has ended."""
        return self.caller.grants.without_any() if self._is_over else self.caller.grants

    async def run(self) -> None:
        """Keep its sessions until `ended`."""
        async with self._manager.run():
            telling = asyncio.create_task(self._agent.tell())
            self._ready.set()
            try:
                await self.ended.wait()
            finally:
                self._agent.close()
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    def end(self, *, is_revoked: bool) -> None:
        """No more requests; those that wait for an answer get none. What was begun is finished, unless its access is gone."""
        self._is_over = self._is_over or is_revoked
        self.ended.set()

    async def pay(self, body: bytes) -> None:
        """Return when a request may be parsed. Raises RefusalError: 429, it comes too fast; RequestError: it holds too many values."""
        wait_s = self._bucket.borrow(MAX_WAIT_S, 1.0 + await price_of(body))
        if wait_s is None:
            raise RefusalError(429, "busy", "this client asks faster than the daemon answers")
        await asyncio.sleep(wait_s)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of HTTP. Raises RefusalError: the space cannot be used now."""
        self._require_space()
        await self._ready.wait()
        await self._manager.handle_request(scope, receive, send)

    def changed(self, change: Change) -> None:
        """Somebody has made this revision in its space."""
        if self._space is not None:
            self._agent.changed(change)

    async def settle(self) -> None:
        """Wait for the changes that were begun, `FINISH_S` at most."""
        if self._running:
            await asyncio.wait(self._running, timeout=FINISH_S)

    # What the server of MCP asks

    def _require_space(self) -> None:
        """Nothing is unlocked by HTTP. Raises RefusalError, 503."""
        if self._daemon.spaces.is_locked(self.caller.space_id):
            hint = "it opens when one of its machines connects"
            raise RefusalError(503, "locked", "the space is locked: its machines keep its key", hint=hint)

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncIterator[Space]:
        async with contextlib.AsyncExitStack() as holding:
            try:
                space = await holding.enter_async_context(self._daemon.spaces.held(self.caller.space_id))
            except ConfideError as error:
                raise RequestError.of(error) from error
            self._space = space
            yield space

    def _refusal(self) -> RequestError | None:
        if self.ended.is_set():
            return RequestError("denied", "this client's access has ended")
        return self._space.moving.why_closed("") if self._space is not None else None

    def _withheld(self) -> frozenset[str]:
        if self.grants.may_write:
            return OF_MACHINES
        return OF_MACHINES | {one.name for one in definitions(TOOLSETS) if not one.read_only}

    def _origin(self, _meta: Mapping[str, Any] | None) -> Origin:
        # Nothing that it says of a call is believed: neither whose word it is, nor that it was made before.
        return Origin(class_=AGENT if self.caller.gateway == "trusted" else UNTRUSTED)

    def _surroundings(self, report: Callable[..., Any] = nobody) -> ToolContext:
        assert self._space is not None
        projects = self.grants.projects
        # A client of several projects, or of all, names the one that it means.
        project = next(iter(projects)) if projects is not None and len(projects) == 1 else None
        return ToolContext(
            space=self._space,
            machine=NoMachine(self._publish, report),
            rights=lambda: self.grants,
            project=project,
            attached=projects or frozenset(),
            facts=ConnectionFacts("", "", self.caller.space, self.caller.scope, None),
            min_score=self._daemon.config.search.min_score,
            sealing=self._sealing,
            finished=self._finished,
            tools=frozenset(one.name for one in definitions(TOOLSETS)) - self._withheld(),
            has_machine=False,
        )

    async def _sealing(self) -> SealingFacts:
        spaces, space_id = self._daemon.spaces, self.caller.space_id
        roster = await asyncio.to_thread(spaces.rosters.current, space_id)
        custody = spaces.custody(space_id)
        return SealingFacts(len(roster.devices), roster.epoch, custody) if roster else SealingFacts(0, 0, custody)

    async def _tracked(self, work: Awaitable[T]) -> T:
        return await work

    async def _finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something that changes documents to its end, whoever still waits for it: the thread that writes makes the change in any
        case, and the machines are to hear of it. There are no more of them than requests have places."""
        task = asyncio.create_task(self._holding(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _holding(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with self._held():
                return await work
        finally:
            work.close()

    def _publish(self, change: Change) -> None:
        self._daemon.announce(self.caller.space_id, change)


@dataclass(frozen=True, slots=True)
class NoMachine:
    """The machine of a client that has none; others' machines are told of what it changes."""

    publish: Callable[[Change], None]
    progress: Callable[..., Any]  # tells the client how far the call is

    async def write_back(self, project: str, path: str, result: PutResult, before: str | None) -> WrittenBack:
        if result.changed:
            self.publish(Change.of(project, path, result, before))
        return WrittenBack(False, result)

    async def take_away(self, project: str, path: str, revision: int, before: str | None) -> WrittenBack:
        self.publish(Change(project, path, revision, "", before, None))
        return WrittenBack(False, PutResult(revision, "", "", changed=True, merged=False, clash=False, queued=0))

    async def flush(self, project: str, path: str) -> None:
        """There is no file that a person could have edited."""

    async def backlog(self) -> Mapping[str, Any] | None:
        return None

    async def workplace(self, project: str) -> Mapping[str, Any] | None:  # noqa: ARG002
        return None

    async def scan(self, *, force: bool) -> Mapping[str, Any] | None:  # noqa: ARG002
        return None
