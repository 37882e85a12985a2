"""A session on one connection: the MCP server for the agent, and the answers to its device's
requests.

The channel carries JSON-RPC messages (MSG) both ways, which the agent's MCP server answers
(`mcp.agent_server`). The rights are those of the key that completed the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.handshake.rotation import verify_rotation
from confide_crypto.limits import MAX_MESSAGE, PARSED_ASIDE
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection
from confide_crypto.transport.task_group import TaskGroup
from confide_daemon import __version__
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.access.registry import Registry
from confide_daemon.addons import Addon
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.daemon_keys import Keys
from confide_daemon.documents import transcripts
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.restore_receipts import Receipts
from confide_daemon.errors import GrantError, LockedError, StorageError
from confide_daemon.sealing.rosters import RosterDesk
from confide_daemon.server.addon_services import AddonServices
from confide_daemon.server.mcp import mcp_protocol
from confide_daemon.server.mcp.agent_server import AgentServer, nobody
from confide_daemon.server.mcp.tool_calls import (
    CallOrigin,
    call_again,
    catalogue,
    catalogue_digest,
    definitions,
    look_up,
    may_be_asked_again,
    unknown_toolsets,
)
from confide_daemon.server.rates import Rate
from confide_daemon.server.replicas import ConnectedMachine, Copies
from confide_daemon.server.requests.classes import ClassRequests
from confide_daemon.server.requests.devices import RosterRequests
from confide_daemon.server.requests.forget_requests import ForgetRequests
from confide_daemon.server.requests.overview import OverviewRequests
from confide_daemon.server.requests.projects import ProjectRequests
from confide_daemon.server.requests.sealing_requests import SealedRequests
from confide_daemon.server.requests.sync import SyncRequests
from confide_daemon.spaces.part import run_safely
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import Space
from confide_daemon.tools.tool_context import ConnectionFacts, ToolContext
from confide_memory.documents import GLOBAL_PROJECT, MAX_TEXT_BYTES, iso, receive_text
from confide_memory.forms import Carried
from confide_memory.forms import project as project_of
from confide_memory.versions import UNKNOWN, parse_version
from confide_memory.wire.operation import Answerer, Nothing, Operation
from confide_memory.wire.session import ATTACH, CATALOGUE, LOOKUP, ROTATE, Attached, AttachRequest, RotationStatement

log = logging.getLogger(__name__)

MAX_CALLS_AT_ONCE = 32
MAX_LEFT = 32
"""Limit on the changes of a connection that still run after their caller stopped waiting; at the
limit, new ones are refused.
"""
MAX_PROJECTS = 8
DRAIN_DEADLINE_S = 5.0
FINISH_DEADLINE_S = 60.0
"""Limit for changes that outlive their connection. After it, other devices learn of them at their
next comparison.
"""
CHANGING = frozenset({"compare", "put", "remove", "restore", "forget-take"})
"""Requests that change documents and so are announced to other devices; a change of a text's class
(`trust`, `lower`) is not.
"""
_OF_TOOLS = frozenset({"call", "lookup"})
_CHANGING_DEVICES = frozenset({"extend", "pair", "pair-answer", "invite"})
"""Requests that change a space's devices, refused while the space moves to another daemon: the list
of devices would fork.
"""
# Time to send CLOSE to a caller that loses its access; a caller that does not read is disconnected.
GOODBYE_S = 0.5

_Result = TypeVar("_Result")


class SessionsHost(Protocol):
    """The daemon's attributes that its sessions use."""

    @property
    def config(self) -> DaemonConfig:
        """The settings from daemon.toml."""

    @property
    def desk(self) -> RosterDesk:
        """The device rosters of all spaces."""

    @property
    def spaces(self) -> Spaces:
        """All spaces of this daemon."""

    @property
    def registry(self) -> Registry:
        """The registry of keys that may connect."""

    @property
    def sessions(self) -> Iterable[Session]:
        """All current sessions."""

    def keys(self) -> Keys:
        """Return the daemon keys that are valid now."""

    @property
    def services(self) -> AddonServices:
        """The add-ons' services, which are notified of changes like the devices."""

    @property
    def addons(self) -> Sequence[Addon]:
        """The installed add-ons, which may answer more requests in a session."""


@dataclass(slots=True)
class _Machine:
    """Facts that the device reported with `attach`: groups of tools, first project named, device
    name and version.
    """

    toolsets: tuple[str, ...] = ("core",)
    project: str | None = None
    machine: str = ""
    proxy_version: str = ""


class UnderWay:
    """The running tasks of one connection."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        """Tasks that a shutdown waits for."""
        self.finishing: set[asyncio.Task[Any]] = set()
        """Changes, which run to completion."""
        self.orphans: set[asyncio.Task[Any]] = set()
        """The members of `finishing` whose caller no longer waits: its deadline passed, or it
        disconnected.
        """


class Session:
    """An authenticated connection, from its first message to its end.

    Attributes:
        ended: set once no task of the session runs any more.
        end_reason: why the caller's access has ended; None while it has access. Afterwards the
            session has no rights.
    """

    def __init__(
        self, connection: Connection, caller: Caller, space: Space | None, daemon: SessionsHost, rate: Rate
    ) -> None:
        """Begin a session. `space` is empty while the space is locked: requests that need it are
        refused until a device unlocks it.
        """
        self.connection = connection
        self.caller = caller
        self.desk, self.registry = daemon.desk, daemon.registry
        self._daemon = daemon
        self._spaces = daemon.spaces
        self._rate = rate
        self._space: Space | None = None
        self._client = _Machine()
        self._under = UnderWay()
        self._wrong_operations: set[str] = set()
        """Operations for which a malformed answer of the device was logged already."""
        self._is_closing = False
        self._goes_elsewhere = False
        """True once the caller is asked to reconnect: it repeats later calls there, where they are
        served at once.
        """
        self.ended = asyncio.Event()
        self.end_reason: str | None = None
        # Devices get their keys through these requests, so they are answered while the space is
        # locked.
        self._rosters = RosterRequests(self, daemon.spaces)
        self._parts = [part for addon in daemon.addons for part in addon.session(self)]
        self._early = {op: answer for part in self._parts for op, answer in part.early.items()}
        self._changing = CHANGING.union(*(part.changing for part in self._parts))
        self._copies = Copies(self)
        self._requests: dict[str, Answerer] = {}
        if space is not None:
            self._use(space)
        self._agent = AgentServer(self)
        self._conversation = self._agent.conversation(self._send)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[Space]:
        """Yield the space and keep it open while the context is active. If it was closed, it is
        opened again.

        Raises RequestError if it is locked or cannot be opened.
        """
        if self._is_locked:
            raise RequestError.of(LockedError())
        async with contextlib.AsyncExitStack() as holding:
            try:
                space = await holding.enter_async_context(self._spaces.hold(self.caller.space_id))
            except ConfideError as error:
                raise RequestError.of(error) from error
            if space is not self._space:
                self._use(space)
            yield space

    def _use(self, space: Space) -> None:
        """Answer all requests from this space from now on."""
        self._space = space
        self._sync = SyncRequests(space, self._copies, self)
        projects = ProjectRequests(space, self)
        overview = OverviewRequests(space, self)
        sealed = SealedRequests(space, self)
        classes = ClassRequests(space, self)
        forgetting = ForgetRequests(space, self, self._daemon.keys, self._daemon.services)
        core: dict[str, Answerer] = {}
        for family in (self._sync, projects, overview, sealed, classes, forgetting):
            core |= family.operations
        of_addons: dict[str, Answerer] = {}
        for part in self._parts:
            part.use(space)
            # An add-on cannot replace a core operation, nor skip the checks before it.
            of_addons |= {op: answer for op, answer in part.operations.items() if op not in core}
        self._requests = core | of_addons
        # Operations on projects that need not be attached, or on the space as a whole.
        operations = {*overview.operations, *sealed.operations, *classes.operations, *forgetting.operations, *of_addons}
        self._unattached = {"transcript", "receipt", "documents", "changes", "forget", *operations}

    async def epoch_for(self, key: bytes) -> int | None:
        """Return the number of the space's newest key (its epoch) if `key` belongs to one of the
        space's devices, otherwise None. Raises StorageError if the roster cannot be read.
        """
        return await self._rosters.epoch_for(key)

    @property
    def grants(self) -> Grants:
        """The caller's current rights; empty once its access has ended."""
        return self.caller.grants.without_any() if self.end_reason else self.caller.grants

    def _facts(self, **more: Any) -> dict[str, object]:
        """Return the fields of a structured log line; with `event` given, that replaces the text,
        which may contain a device's name.
        """
        return {"session": self.connection.session_id, "space": self.caller.space_id, **more}

    def caller_now(self) -> Caller:
        """Return the caller with its current rights. Raises GrantError if its access has ended."""
        if self.end_reason:
            raise GrantError("this device's access has ended")
        return self.caller

    async def shut_out(self, code: str) -> None:
        """Close the session because the caller's access has ended. This takes at most a second,
        even if calls are running.
        """
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.connection.close(code)
        except TimeoutError:
            self.connection.abort()

    async def run(self) -> None:
        """Serve the connection until its peer closes it. Raises ConnectionLost if the link broke,
        ProtocolViolation if the peer broke the protocol.
        """
        started = time.monotonic()
        connected = self._facts(event="session connected")
        log.info("session %s: %s connected", self.connection.session_id, self.caller.alias, extra=connected)
        try:
            async with TaskGroup() as group:
                beside = [
                    group.create_task(self._agent.run(self._conversation)),
                    group.create_task(self._serve_space()),
                    group.create_task(self._rosters.run()),
                    *(group.create_task(run_safely(part.run(), "a part of the session")) for part in self._parts),
                    group.create_task(self._expire()),
                ]
                await self.connection.serve(
                    on_message=self._on_message,
                    on_request=self._on_request,
                    on_stream=self._on_stream,
                    toll=self._rate,
                )
                for task in beside:
                    task.cancel()
        finally:
            lasted_s = time.monotonic() - started
            ended = self._facts(event="session ended", duration=lasted_s)
            log.info("session %s: ended after %.1f s", self.connection.session_id, lasted_s, extra=ended)
            await self._finish()
            if self._space is not None:
                self._space.on_session_end(self.connection.session_id)
            self.ended.set()

    async def _serve_space(self) -> None:
        if self._space is None:
            space = await self._spaces.wait_unlocked(self.caller.space_id)
            if self._space is None:
                self._use(space)
            log.info("session %s: its space is unlocked", self.connection.session_id, extra=self._facts())
        await self._copies.run()

    async def close(self, code: str) -> None:
        """Wait up to `DRAIN_DEADLINE_S` for running calls to finish, then close the channel."""
        self._is_closing, self._goes_elsewhere = True, code == "restart"
        self._agent.close()
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(DRAIN_DEADLINE_S):
                await self.connection.go_away(code)
                while self._under.running:
                    await asyncio.wait(self._under.running)
        await self.connection.close(code)

    async def _expire(self) -> None:
        # A client rekeys long before this limit (PROTOCOL.md 7.9); any other must reconnect.
        await asyncio.sleep(self._daemon.config.server.max_session_s)
        await self.close("expired")

    def announce(self, change: DocumentChange) -> None:
        """Pass a revision that another connection of the space made on to this session's device and
        agent.
        """
        if self._space is None:
            return
        self._copies.announce(change)
        self._agent.on_change(change)

    async def _on_message(self, data: bytes) -> None:
        try:
            await self._rate.pass_message(data)
            if self.end_reason:
                return
            if self._goes_elsewhere and may_be_asked_again(data):
                return
            message = await mcp_protocol.parse(data)
        except RequestError as refusal:
            await self.connection.send_message(_error_line(refusal))
            return
        except ValueError:
            error = {"code": mcp_protocol.PARSE_ERROR, "message": "not a JSON-RPC message"}
            answer = {"jsonrpc": "2.0", "id": _id_in(data) if len(data) <= PARSED_ASIDE else None, "error": error}
            await self.connection.send_message(json.dumps(answer).encode())
            return
        await self._conversation.receive(message)

    async def _send(self, message: mcp_protocol.Message) -> None:
        if self.end_reason:
            # Unanswered calls are made again with the new key of a device that has just changed it;
            # a removed device learns why at its next connection.
            return
        data = mcp_protocol.encode(message)
        if len(data) > MAX_MESSAGE:
            log.warning("session %s: an answer of %d bytes is too large", self.connection.session_id, len(data))
            data = _too_large(message)
        if data:
            # Charged to the caller's rate like the answer to a request: its next request waits for
            # it.
            self._rate.charge(len(data))
            # The reading task sees the same end, and reports if it came with a CLOSE.
            with contextlib.suppress(ConnectionLost):
                await self.connection.send_message(data)

    async def _on_request(self, op: str, body: Carried) -> dict[str, object]:
        if op == "catalogue":
            return catalogue(CATALOGUE.read(body)["toolsets"])
        if op == "ping":
            return {}
        if op == "rotate":
            return await ROTATE.answer_request(body, self._rotate)
        if op in _CHANGING_DEVICES and not self._is_locked:
            async with self.hold():
                self._require_settled()
        if op in self._rosters.operations:
            answered = await self.track(_answer(self._rosters.operations, op, body))
            if op == "unlock" and self._space is None and not answered["isLocked"]:
                # The caller may use the space as soon as it has read this answer.
                async with self._spaces.hold(self.caller.space_id) as space:
                    if self._space is None:
                        self._use(space)
            return answered
        if op in self._early:
            return await self.track(_answer(self._early, op, body))
        async with self.hold():
            return await self._on_request_of_space(op, body)

    async def _on_request_of_space(self, op: str, body: Carried) -> dict[str, object]:
        self._require_settled(op)
        if op == "attach":
            return await ATTACH.answer_request(body, self._attach)
        if op not in self._requests and op not in _OF_TOOLS:
            raise _unknown_request_error()
        if op not in self._unattached:
            project = project_of(body)
            if op == "call":
                return await self.track(call_again(body, self._surroundings, project))
            if op == "lookup":
                return await self.track(look_up(self._surroundings, LOOKUP.read(body)))
            if project not in self._copies.projects:
                raise RequestError("invalid", "the project is not attached to this connection", "attach comes first")
        answer = _answer(self._requests, op, body)
        return await self.track(self._run_to_end(answer) if op in self._changing else answer)

    @property
    def _is_locked(self) -> bool:
        # Another connection may have brought the key; then the space is open, or about to be.
        return self._space is None and self._spaces.is_locked(self.caller.space_id)

    def _require_settled(self, op: str = "") -> None:
        """Raise the refusal of an add-on that blocks the space, for instance while it moves to
        another daemon (PROTOCOL.md 9.8).
        """
        if self._space is not None and (refusal := self._space.refusal(self.connection.session_id, op)) is not None:
            raise refusal

    async def close_others(self) -> None:
        """Close the other sessions of the space and wait until their tasks have ended. Raises
        RequestError if that takes too long.
        """
        space_id = self.caller.space_id
        others = [one for one in self._daemon.sessions if one is not self and one.caller.space_id == space_id]
        try:
            async with asyncio.timeout(FINISH_DEADLINE_S + 2 * DRAIN_DEADLINE_S):
                await asyncio.gather(*(one.close("restart") for one in others))
                await asyncio.gather(*(one.ended.wait() for one in others))
                await self._daemon.services.settle(space_id)
        except TimeoutError:
            raise RequestError("busy", "another device of this space is still busy", "try again") from None

    async def _on_stream(self, op: str, params: Carried, body: Body) -> dict[str, object]:
        async with self.hold():
            self._require_settled(op)
        if op == "transcript":
            self._sync.check_transcript(params)
            listed = await body.read(transcripts.MAX_BATCH_BYTES)
            await self._rate.pass_message(listed)
            messages = await asyncio.to_thread(transcripts.messages_in, listed)
            return await self._on_request(op, {**params, "messages": messages})
        if op != "put":
            raise RequestError("invalid", "this request takes no body", "do the versions of confide and confided fit?")
        self._sync.check_put(params)  # before megabytes are taken in for nothing; all of it is checked again below
        return await self._on_request(op, {**params, "text": await receive_text(body)})

    async def _attach(self, asked: AttachRequest) -> Attached:
        assert self._space is not None
        project, toolsets = asked["project"], tuple(asked["toolsets"])
        try:
            sealing = await self._rosters.summary()
            standing = await Receipts(self._space.threads).standing(asked["receipt"])
        except ConfideError as error:
            raise RequestError.of(error) from error
        if len(self._copies.projects | {project}) > MAX_PROJECTS:
            raise RequestError("invalid", f"a connection attaches at most {MAX_PROJECTS} projects")
        digest = catalogue_digest(toolsets)
        try:
            if project != GLOBAL_PROJECT:  # which every machine attaches unasked; without a grant it only stays empty
                self.grants.require_project(project)
        except GrantError as error:
            raise RequestError.of(error) from error
        self._client.toolsets = toolsets
        self._client.machine, self._client.proxy_version = asked["machine"], asked["proxyVersion"]
        await self._note_version(asked["proxyVersion"])
        self._copies.projects.add(project)
        (self._copies.watched_projects.add if asked["watches"] else self._copies.watched_projects.discard)(project)
        if self._client.project is None or self._client.project == GLOBAL_PROJECT:
            self._client.project = project
        return {
            "space": self.caller.space_id,
            "project": project,
            "daemonVersion": __version__,
            "limits": {"documentBytes": MAX_TEXT_BYTES},
            "catalogue": digest,
            "sealing": sealing,
            "receipt": standing.receipt,
            "restores": standing.restores,
            "bounds": True,
            "forgotten": await self._space.forgetting.digest(),
            "backTo": None if standing.back_to is None else iso(standing.back_to),
        }

    async def _note_version(self, version: str) -> None:
        """Record the device's version of confide, for the operator who upgrades. A failed write is
        repeated at the next `attach`.
        """
        if parse_version(version) is None or version == self.caller.proxy_version:
            return
        with contextlib.suppress(StorageError):
            await asyncio.to_thread(self.registry.note_proxy_version, self.connection.peer_key, version)

    async def _rotate(self, asked: RotationStatement) -> Nothing:
        """Record the caller's new key, which is valid from its first handshake on (PROTOCOL.md
        7.10).
        """
        old_key, session_id = self.connection.peer_key, self.connection.session_id
        new_key = verify_rotation(asked, old_key, session_id)
        try:
            await asyncio.to_thread(self.registry.name_successor, old_key, new_key, session=session_id)
        except ConfideError as error:
            raise RequestError.of(error) from error
        extra = self._facts(event="device will have a new key")
        log.info("session %s: %s will have a new key", session_id, self.caller.alias, extra=extra)
        return {}

    async def ask(self, operation: Operation[Any, Any], body: Carried, timeout_s: float) -> Any:
        """Send a request to the device and return its answer. Call it through
        `Operation.ask_machine`, which gives the answer its type.

        Raises RequestError if the answer does not have the agreed form.
        """
        answer = await operation.send_raw(self.connection, body, timeout_s=timeout_s)
        try:
            return operation.read_answer(answer)
        except RequestError:
            if operation.name not in self._wrong_operations:
                self._wrong_operations.add(operation.name)
                name = self.connection.session_id
                log.info("session %s: the device's answer to %s is not of the agreed form", name, operation.name)
            problem = "the device's answer is not of the agreed form"
            raise RequestError("invalid", problem, "update confide on that device") from None

    @property
    def toolsets(self) -> tuple[str, ...]:
        """The names of the tool groups that the agent sees."""
        return self._client.toolsets

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of tools that the agent must not see: none, since it runs on a device."""
        return ()

    def origin(self, meta: Mapping[str, object] | None) -> CallOrigin:
        """Return the facts that the device states about a call in its `_meta`. Raises RequestError
        if they are malformed.
        """
        return CallOrigin.of_meta(meta)

    def surroundings(self, report: Callable[..., Any]) -> ToolContext:
        """Return the context of a tool call in the first project that the device named with
        `attach`. `report` receives the call's progress. Raises LockedError if the space is locked.
        """
        return self._surroundings(self._client.project, report)

    def refusal(self) -> RequestError | None:
        """Return the reason why the agent's calls are refused now, or None if they are accepted."""
        if self._is_closing and not self._goes_elsewhere:
            return RequestError("unavailable", "the daemon is stopping; this call was not run", "try again in a moment")
        if self._space is None:
            return RequestError.of(LockedError())
        if (refusal := self._space.refusal(self.connection.session_id)) is not None:
            return refusal
        if len(self._under.running) >= MAX_CALLS_AT_ONCE:
            problem = f"{MAX_CALLS_AT_ONCE} calls of this connection are running already"
            return RequestError("busy", problem, "wait for one of them")
        return None

    def _surroundings(self, project: str | None, report: Callable[..., Any] = nobody) -> ToolContext:
        if self._space is None:
            raise LockedError
        return ToolContext(
            space=self._space,
            machine=ConnectedMachine(self._copies, self.publish, report, self.connection.session_id),
            rights=lambda: self.grants,
            project=project,
            attached_projects=frozenset(self._copies.projects | ({project} if project else set())),
            facts=ConnectionFacts(
                machine=self._client.machine,
                proxy_version=self._client.proxy_version,
                space=self.caller.space,
                scope=self.caller.scope,
                last_sync=self._copies.compared_at,
            ),
            min_score=self._daemon.config.search.min_score,
            sealing=self._rosters.facts,
            run_to_end=self._run_to_end,
            tools=frozenset(one.name for one in definitions(self._client.toolsets)),
            unknown_toolsets=unknown_toolsets(self._client.toolsets),
            key=self.caller.public_key,
        )

    async def track(self, work: Awaitable[_Result]) -> _Result:
        """Await `work`, and make a shutdown of the daemon wait for it too."""
        task = asyncio.current_task()
        assert task is not None
        self._under.running.add(task)
        try:
            return await work
        finally:
            self._under.running.discard(task)

    async def _run_to_end(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a change of documents to completion, even if the connection or its deadline ends
        first.

        The writer thread makes the change in any case, and other devices must learn of it:
        repeated, the request would find nothing to change and announce nothing.

        Raises RequestError if `MAX_LEFT` changes already run without a waiting caller.
        """
        if len(self._under.orphans) >= MAX_LEFT:
            work.close()
            problem = f"{MAX_LEFT} changes of this connection that did not end in time are under way still"
            raise RequestError("unavailable", problem, "try again in a moment")
        task = asyncio.create_task(self._holding(work))
        self._under.finishing.add(task)
        task.add_done_callback(self._under.finishing.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._under.orphans.add(task)
                task.add_done_callback(self._under.orphans.discard)
            raise

    async def _holding(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Await `work` with the space open until it ends, even if the caller disconnects."""
        try:
            async with self.hold():
                return await work
        finally:
            work.close()

    async def _finish(self) -> None:
        """Wait for the changes under way. They end soon, since requests to the device fail once it
        is disconnected.
        """
        try:
            async with asyncio.timeout(FINISH_DEADLINE_S):
                while self._under.finishing:
                    await asyncio.wait(self._under.finishing)
        except TimeoutError:
            log.warning("session %s: changes did not end; the other devices see them later", self.connection.session_id)
        finally:
            for task in self._under.finishing:
                task.cancel()

    def publish(self, change: DocumentChange) -> None:
        """Announce a revision that this session made to all other sessions of the space and to all
        services.
        """
        self._agent.on_change(change)
        for session in self._daemon.sessions:
            if session is not self and session.caller.space_id == self.caller.space_id:
                session.announce(change)
        self._daemon.services.on_change(self.caller.space_id, change)

    def publish_here_too(self, change: DocumentChange) -> None:
        """Announce a revision to all devices of the space, including this session's own, which
        asked for the change but does not have the new file.
        """
        self.publish(change)
        self._copies.announce(change)


async def _answer(operations: Mapping[str, Answerer], op: str, body: Carried) -> dict[str, object]:
    try:
        return await operations[op](body)
    except ConfideError as error:
        raise RequestError.of(error) from error


def _unknown_request_error() -> RequestError:
    return RequestError("unavailable", f"confided {__version__} {UNKNOWN}", "a later version may: upgrade confided")


def _id_in(data: bytes) -> str | int | None:
    """Return the id of a malformed message (such as one with half a surrogate pair), so that its
    sender gets the error.
    """
    try:
        message = json.loads(data)
        found = message["id"]
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _error_line(error: RequestError) -> bytes:
    """Return the error for a message that was refused before its id was read."""
    text = f"{error.message}: {error.hint}"
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}).encode()


def _too_large(message: mcp_protocol.Message) -> bytes:
    """Return the error to send instead of an answer that exceeds the channel's limit; empty for a
    notification.
    """
    identifier = message.get("id")
    if identifier is None:
        return b""
    text = f"the answer is larger than {MAX_MESSAGE // 2**20} MiB; ask for fewer lines or results"
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "error": {"code": -32000, "message": text}}).encode()
