"""The MCP client of the command line: one connection, a few tool calls, and the sync of the files
that the calls concern.

It uses the 2026-07-28 version of MCP, in which every request carries its own capabilities. So one
call takes one message.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from confide_crypto.errors import ConfideError, ConnectionLost
from confide_crypto.transport.open_channel import Connection
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools import result as results
from confide_memory.tools.call import DATED, NOTED, NOTES, OPERATION, SAID, SEEN_PARTS, STRUCTURED, said_now
from confide_memory.wire.session import RECEIPT, Attached, AttachRequest
from confide_proxy import VERSION, addons
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import ToolError, UnfitAnswerError
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.link.connection_terms import CALL_DEADLINE_S, LONG_JOB_DEADLINE_S, attach_body
from confide_proxy.link.daemon_link import ATTACH_DEADLINE_S, CONNECT_DEADLINE_S, attach, end, open_connection
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.link.restore_detection import DaemonReceipts
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp import incoming
from confide_proxy.mcp.incoming import PROGRESS, NotificationMessage, ResponseMessage
from confide_proxy.offline.outage import backlog
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import Files

log = logging.getLogger(__name__)

_PROTOCOL = "2026-07-28"
_META = "io.modelcontextprotocol/"
_MOST_STEPS = 2**53
Progress = Callable[[float, float | None, str], None]


class CommandClient:
    """A connection to the daemon for one command, attached to a project; use it with `async with`.

    Raises, on entry, what `open_connection` raises.

    Attributes:
        connection: the open connection.
        since: when the connection was made, in seconds since 1970.
        space: the id of the space that the connection leads to.
        gives_receipts: True if the daemon gives receipts for its writes (PROTOCOL.md 9.2).
        round_trip_s: the shortest round trip of its attach requests, in seconds. These take the
            daemon next to no time.
    """

    def __init__(
        self,
        paths: ProxyPaths,
        config: ProxyConfig,
        project: Project,
        *,
        tell: Callable[[str], None] | None = None,
        patience_s: float | None = None,
    ) -> None:
        """Args:
        tell: prints the progress of the connection attempt for the user.
        patience_s: seconds to wait for a daemon that is reachable.
        """
        self._report = tell
        self._patience_s = patience_s or CONNECT_DEADLINE_S
        self._paths = paths
        self._config = config
        self._project = project
        self.connection: Connection
        self._serving: asyncio.Task[None]
        self._answers: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._progress: dict[int, Progress] = {}
        self._machine = MachineKeys(paths)
        self._receipts = DaemonReceipts(paths)
        self.sealing = SessionSealing(paths, config, self._machine)
        self.ties = LateTies(project.root, project.name, self.sealing)
        self.sealed_calls = SealedCalls(self.sealing, project.name, seen=self.ties.of_call)
        self.files = Files(paths, config, project, sealing=self.sealing, backlog=backlog)
        self.files.seen_functions[project.name] = self.ties.of_file
        self.since = 0.0
        self.round_trip_s = 0.0
        self.space = ""
        self.gives_receipts = False

    async def __aenter__(self) -> Self:
        connection = self.connection = await open_connection(
            self._paths, self._config, keys=self._machine, tell=self._report, patience_s=self._patience_s
        )
        self.since = time.time()
        self._serving = asyncio.create_task(
            connection.serve(on_message=self._receive, on_request=self.files.on_request, on_stream=self.files.on_stream)
        )
        self._serving.add_done_callback(self._on_end)
        try:
            names = dict.fromkeys((self._project.name, GLOBAL_PROJECT))
            shown = await asyncio.to_thread(self._receipts.newest)
            bodies = [attach_body(name, self._config) for name in names]
            for body in bodies:
                body["toolsets"] = ["all"]  # a user may use every tool, unlike an agent
                body["receipt"] = shown
            answers = [await self._attach(body) for body in bodies]
            await asyncio.to_thread(self._receipts.take, answers[0])
            self.space = answers[0]["space"]
            self.gives_receipts = bool(answers[0]["receipt"])
            await self.sealing.open(connection, answers[0])
            await self.files.open(connection, self.space)
            await self._exchange_forgotten(answers[0])
        except BaseException:
            await end(connection, self._serving)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self.connection, self._serving)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        progress: Progress | None = None,
        is_long: bool = False,
        more_meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return the structured content of its result.

        Args:
            progress: reports the progress of the call.
            more_meta: fields that are added to the call's `_meta`.

        Raises:
            BlockedError, UnsealableError: the arguments may not leave this device, or cannot be
                sealed.
            RequestError, ToolError: the tool returned an error, with a known code or without.
            UnfitAnswerError: the response is not a result of this tool.
            ConnectionLost, TimeoutError: the link failed.
        """
        said = (more_meta or {}).get(SAID)
        is_lookup = tool in catalogues.packaged_catalogue().read_only
        operation = str((more_meta or {}).get(OPERATION, ""))
        asked = ToolCall(tool, arguments, self._project.name, said, operation)
        given = await self.sealed_calls.arguments(self.connection, asked, is_lookup=is_lookup)
        identifier = len(self._answers) + 1
        meta: dict[str, object] = {
            f"{_META}protocolVersion": _PROTOCOL,
            f"{_META}clientInfo": {"name": "confide", "version": VERSION},
            f"{_META}clientCapabilities": {},
            STRUCTURED: True,
            **({SAID: said_now()} if tool in DATED else {}),
            **(more_meta or {}),
        }
        if (seen := await self.sealed_calls.seen_parts(asked)) is not None:
            meta[SEEN_PARTS] = seen
        if tool in NOTED and (notes := await asyncio.to_thread(self.files.notices)):
            meta[NOTES] = notes
        if progress:
            meta["progressToken"] = identifier
            self._progress[identifier] = progress
        message = {
            "jsonrpc": "2.0",
            "id": identifier,
            "method": "tools/call",
            "params": {"name": tool, "arguments": given, "_meta": meta},
        }
        answer = self._answers[identifier] = asyncio.get_running_loop().create_future()
        await self.connection.send_message(json.dumps(message, ensure_ascii=False).encode())
        async with asyncio.timeout(LONG_JOB_DEADLINE_S if is_long else CALL_DEADLINE_S):
            reply = await answer
        return _content_of(tool, reply)

    async def keep_receipt(self) -> None:
        """Request and store a receipt of the writes over this connection.

        Raises RequestError, ConnectionLost or TimeoutError if the request fails.
        """
        answer = await RECEIPT.ask(self.connection, {}, timeout_s=ATTACH_DEADLINE_S)
        await asyncio.to_thread(self._receipts.keep, self.space, answer["receipt"])

    async def _exchange_forgotten(self, attached: Attached) -> None:
        """Compare what was forgotten, before a queued call or a file is sent."""
        if not attached["forgotten"] and not await asyncio.to_thread(self._paths.forgotten.exists):
            return
        from confide_proxy.hooks.server.forgetting.forgotten_texts import exchange  # only where something was forgotten

        try:
            await exchange(self._paths, self.connection, self.sealing.keyring, attached)
        except (ConfideError, TimeoutError) as error:
            log.warning("what was forgotten elsewhere is not applied here yet: %s", error)

    async def _attach(self, body: AttachRequest) -> Attached:
        began = time.perf_counter()
        answer = await attach(self.connection, body, self.sealing.keyring.unlock)
        took_s = time.perf_counter() - began
        self.round_trip_s = min(self.round_trip_s or took_s, took_s)
        return answer

    async def _receive(self, data: bytes) -> None:
        match incoming.read(data):
            case NotificationMessage(method, params) if method == PROGRESS:
                self._follow(params)
            case ResponseMessage(int(identifier), outcome):
                if (answer := self._answers.get(identifier)) and not answer.done():
                    answer.set_result(outcome or {})

    def _follow(self, told: dict[str, Any]) -> None:
        token, done, total = told.get("progressToken"), told.get("progress"), told.get("total")
        follower = self._progress.get(token) if type(token) is int else None
        is_number = type(done) in (int, float) and (total is None or type(total) in (int, float))
        if follower is None or not is_number or max(abs(done or 0), abs(total or 0)) >= _MOST_STEPS:
            return
        message = told.get("message")
        follower(float(done or 0), None if total is None else float(total), message if isinstance(message, str) else "")

    def _on_end(self, serving: asyncio.Task[None]) -> None:
        lost: BaseException = ConnectionLost(truncated=False)
        if not serving.cancelled() and (error := serving.exception()):
            lost = error
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)


def _content_of(tool: str, reply: Mapping[str, object]) -> dict[str, object]:
    """Return the structured content of a response to a call of this tool, or raise its error."""
    match reply:
        case {"error": {"message": str(text)}}:
            raise ToolError(text)
        case {"result": dict(result)} if (refusal := incoming.refusal_of(result)) is not None:
            raise refusal
        case {"result": {"isError": True, "content": [{"text": str(text)}, *_]}}:
            raise ToolError(text)
        case {"result": {"structuredContent": dict(content)}}:
            found: dict[str, object] = results.read(catalogues.packaged_catalogue().outputs.get(tool, {}), content)
            return found
    raise UnfitAnswerError


def background_services(paths: ProxyPaths, config: ProxyConfig) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the add-ons' background services by name; a report of their errors starts with that
    name. Blocks.

    Each service uses a connection of its own while it has work, since its projects are seldom the
    session's.
    """

    def connect(project: Project) -> CommandClient:
        return CommandClient(paths, config, project)

    found: dict[str, Callable[[], Awaitable[None]]] = {}
    for begin in addons.each("beside"):
        found |= begin(paths, config, connect)
    return found
