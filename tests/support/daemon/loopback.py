"""A daemon in this process on a real socket, and a machine that talks to it as the proxy does."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
from mcp.client.client import Client
from mcp.shared.message import SessionMessage
from tests.support.daemon import everywhere
from tests.support.daemon.parts import parts
from tests.support.deadline import DEADLINE_S
from tests.support.structured import StructuredClient

from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity
from confide_crypto.limits import DEFAULT_TIMERS, Timers
from confide_crypto.transport.open_channel import Connection, connect
from confide_daemon.access.enrolled_callers import Grants, Scope
from confide_daemon.access.enrollment import Rights, make_invite
from confide_daemon.access.registry import RegistryState, create, open_state
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import installed, revocation_folders
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.key_state import Keeper
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.sealing.vault import Vault
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.server import Daemon, Listen
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.open_limit import CLOSE_AFTER_S, MOST_OPEN
from confide_daemon.spaces.pool import LOCK_AFTER_S, Spaces
from confide_daemon.spaces.space import SpaceShared
from confide_daemon.store.logs import Leases


def text_hash(text: str) -> str:
    """As the wire has it: BLAKE2b-256 of the UTF-8 bytes, in hex."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


class Serving:
    """A running daemon."""

    def __init__(self, state: RegistryState, daemon: Daemon, url: str) -> None:
        self.state = state
        self.daemon = daemon
        self.url = url

    @property
    def port(self) -> int:
        """Of the one socket."""
        return int(self.url.rsplit(":", 1)[1])

    def invite(
        self,
        name: str,
        *,
        space: str | None = None,
        ttl_s: float = 900.0,
        needs_approval: bool | None = None,
        **rights: str,
    ) -> Invite:
        """A fresh invite; `rights` are the fields of `enrollment.Rights`."""
        said = Rights(**rights)
        return make_invite(
            self.state, name, space=space, rights=said, ttl_s=ttl_s, url=self.url, needs_approval=needs_approval
        ).invite

    def enroll(
        self,
        name: str,
        *,
        space: str | None = None,
        scope: Scope = "write",
        projects: set[str] | None = None,
        sources: set[str] | None = None,
        expires_at: float | None = None,
    ) -> Identity:
        """An identity that is a caller already."""
        identity = Identity.generate()
        grants = Grants(
            name,
            scope,
            None if projects is None else frozenset(projects),
            None if sources is None else frozenset(sources),
        )
        self.state.registry.add_caller(
            identity.public_key, grants, space=space or name, added_by="line", expires_at=expires_at
        )
        return identity

    async def connect(self, identity: Identity, *, invite: Invite | None = None) -> Connection:
        """A bare connection."""
        return await connect(self.url, identity, self.state.identity.static_key, invite=invite)

    async def connect_in_time(self, identity: Identity) -> Connection:
        """The same, for a key whose last connection the daemon may still count."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    return await self.connect(identity)
                except DeniedError as error:
                    if error.reason != "busy":
                        raise
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    config: DaemonConfig | None = None,
    embedder: LoadedModel | Sequence[LoadedModel] | None = None,
    idle_exit_s: float | None = None,
    timers: Timers = DEFAULT_TIMERS,
    keeper: Keeper = "server",
    lock_after_s: float = LOCK_AFTER_S,
    exposition: Exposition | None = None,
    close_after_s: float = CLOSE_AFTER_S,
    most_open: int = MOST_OPEN,
) -> AsyncIterator[Serving]:
    """Serve on a free loopback port until the block ends; `keeper` keeps the keys of spaces that are made."""
    data = DataFolder(folder)
    create(data)
    state = open_state(data)
    handle = embedder or LoadedModel.ready(HashedEmbedder())
    config = config or DaemonConfig()
    vault = Vault.open(config.vault) if config.vault.url else None
    spaces = Spaces(
        state,
        SpaceShared(IndexSettings(), handle, vault=vault, parts=parts(config)),
        keeper=keeper,
        lock_after_s=lock_after_s,
        close_after_s=close_after_s,
        most_open=most_open,
        leases=_leases(data),
    )
    revocations = Revocations.from_folders(revocation_folders(config), state)
    if revocations is not None:
        revocations.apply(state.registry)
    daemon = Daemon(
        state,
        config,
        spaces,
        timers=timers,
        revocations=revocations,
        exposition=exposition,
        addons=installed(),
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    run = asyncio.create_task(daemon.run(Listen("127.0.0.1", 0, idle_exit_s), on_ready=ready.set_result))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([ready, run], return_when=asyncio.FIRST_COMPLETED)
            yielded = Serving(state, daemon, ready.result())
        yield yielded
    finally:
        daemon.stop()
        async with asyncio.timeout(DEADLINE_S):
            await run
        state.close()


def _leases(data: DataFolder) -> Leases | None:
    """Those of the store that all tests run over, where there is one."""
    url = everywhere.url(data)
    if not url:
        return None
    from confide_cluster.daemon.store import Postgres
    from confide_cluster.settings import StoreConfig

    return Postgres(StoreConfig(url=url, lease_s=3)).leases(data)


class Machine:
    """A caller's machine: its connection, its files in memory, and an MCP client's end of the tunnel."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.files: dict[tuple[str, str], str] = {}
        self.applied: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.scans: list[dict[str, Any]] = []
        self.flushed: list[dict[str, Any]] = []
        self.scan_refusal: RequestError | None = None
        self.is_deaf = False  # leaves `apply` and `roster` unanswered, as a machine that sleeps does
        self.apply: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] = self._apply
        self.roster_news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.ended: BaseException | None = None
        self.refusals: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming, self._received = anyio.create_memory_object_stream[SessionMessage | Exception](64)
        self._task = asyncio.create_task(self._serve())

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0)  # the reader's task takes its first step
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.close()
        async with asyncio.timeout(DEADLINE_S):
            await self._task
        self._received.close()

    async def attach(self, *projects: str, toolsets: Sequence[str] = ("core",)) -> dict[str, Any]:
        """Attach the projects in this order; the first answer."""
        answers = [
            await self.request(
                "attach",
                {"project": project, "machine": "box", "proxyVersion": "9.9", "toolsets": list(toolsets)},
            )
            for project in projects or ("proj",)
        ]
        return answers[0]

    async def request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        """A sync request."""
        return await self.connection.request(op, body, timeout_s=DEADLINE_S)

    async def put(self, path: str, text: str, *, base: int = 0, project: str = "proj") -> dict[str, Any]:
        """Send a file up, as the watcher does."""
        body = {"project": project, "path": path, "text": text, "hash": text_hash(text), "base": base}
        answer = await self.request("put", body)
        self.files[project, path] = answer.get("text", text)
        return answer

    async def ended_within(self, seconds: float) -> BaseException | None:
        """Wait for the end of the connection; how it ended (None: with a goodbye)."""
        async with asyncio.timeout(seconds):
            await asyncio.wait([self._task])
        return self.ended

    @asynccontextmanager
    async def mcp(self, mode: Any = "legacy", **options: Any) -> AsyncIterator[Client]:
        """The official MCP client, its messages going through the channel. Once a connection."""
        async with StructuredClient(_Tunnel(self), mode=mode, read_timeout_seconds=DEADLINE_S, **options) as client:
            yield client

    async def _serve(self) -> None:
        try:
            await self.connection.serve(on_message=self._on_message, on_request=self._on_request)
        except ConfideError as error:
            self.ended = error
        finally:
            self._incoming.close()

    async def _on_message(self, data: bytes) -> None:
        plain = json.loads(data)
        if "error" in plain and (plain["id"] is None or plain["error"]["code"] == mcp_types.PARSE_ERROR):
            # An error for what is no message; the SDK's client has no place for it.
            self.refusals.put_nowait({**plain["error"], "id": plain["id"]})
            return
        message = mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
        with contextlib.suppress(anyio.BrokenResourceError):  # an answer after the client has left
            await self._incoming.send(SessionMessage(message))

    async def _on_request(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        if op == "scan":
            self.scans.append(body)
            if self.scan_refusal is not None:
                raise self.scan_refusal
            return {"filesScanned": len(self.files), "sent": 0, "removed": 0, "pulled": 0, "skipped": []}
        if op == "flush":
            self.flushed.append(body)
            return {}  # this machine has sent all that it holds
        if op == "backlog":
            return {"pendingUploads": 0, "queuedOffline": 0, "deadLetters": 0}
        if op == "workplace":
            git = {"repository": "shop", "branch": "main", "remote": "example.org/team/shop"}
            return {"platform": "linux", "directory": "shop", "git": git, "time": "2026-11-21T12:00:00+01:00"}
        if op == "roster":
            self.roster_news.put_nowait(body)
        if self.is_deaf:
            await asyncio.Event().wait()
        if op == "roster":
            return {}
        assert op == "apply"
        return await self.apply(body)

    async def _apply(self, body: dict[str, Any]) -> dict[str, Any]:
        key = (body["project"], body["path"])
        local = self.files.get(key)
        if local is not None and text_hash(local) not in (body["hash"], body["baseHash"]):
            self.applied.put_nowait({**body, "applied": False})
            return {"applied": False, "hash": text_hash(local), "text": local}
        if body["text"] is None:
            self.files.pop(key, None)
        else:
            self.files[key] = body["text"]
        self.applied.put_nowait({**body, "applied": True})
        return {"applied": True}


class _Tunnel:
    """The machine's channel as a transport of the MCP SDK's client."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Any:
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](64)

        async def pump() -> None:
            async for item in outgoing:
                data = item.message.model_dump_json(by_alias=True, exclude_none=True)
                await self._machine.connection.send_message(data.encode())

        self._pump = asyncio.create_task(pump())
        self._streams = (write, outgoing)
        return self._machine._received, write

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._pump is not None
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        for stream in self._streams:
            stream.close()


@asynccontextmanager
async def machine(daemon: Serving, name: str = "laptop", **options: Any) -> AsyncIterator[Machine]:
    """An enrolled machine, connected."""
    async with Machine(await daemon.connect(daemon.enroll(name, **options))) as connected:
        yield connected
