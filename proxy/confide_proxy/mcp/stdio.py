"""`confide mcp`: the MCP server on stdin and stdout.

The main thread reads stdin, and answers what it can before slow modules are imported; the event
loop with the link runs in another thread. When stdin ends, the process exits within a second,
whatever the link is doing. stdout carries MCP messages only; logs go to stderr.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError, where
from confide_proxy import config as configs
from confide_proxy import paths as places
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks import session_marks
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.jsonrpc import MAX_LINE_BYTES
from confide_proxy.mcp.tunnel import Tunnel

if TYPE_CHECKING:
    import asyncio


USAGE = "usage: confide mcp [--project DIR] [--config FILE]"
SPEECHLESS_S = 0.25
"""Seconds of silence from the client after which the link is made without waiting for its first
message.
"""
SETTLE_S = 0.15
"""Seconds of silence after a message that the link waits for, unless a call or a prompt comes. A
client that has the list of tools continues its own start, and the link needs a tenth of a second of
a processor: with two processors, a session of Claude Code took 50 ms longer
(`tests/clients/cost.py`).
"""
MOST_SETTLE_S = 0.5
"""Longest delay of the link in seconds since the start, however many messages the client sends."""
LOOK_S = 0.02
"""Interval in seconds of the check for a waiting prompt during that delay."""
EXIT_DEADLINE_S = 0.7
_PARENT_LOOK_S = 2.0
_SETTLED_S = 3.0
"""Seconds after the start within which a change of the parent process is due to a launcher that has
ended; a later change means that the client has ended.
"""
_READ_BYTES = 256 * 1024
_LINES_IN = 256
_LINES_OUT = 4096
_BYTES_OUT = 256 * 1024 * 1024
_WORKERS = 2


def run(arguments: list[str]) -> int:
    """Serve an agent's client until stdin ends; the process then exits here.

    Returns an exit code if it cannot serve: 2 for a usage error, 3 or 4 for an invalid
    configuration.
    """
    options = _options(arguments)
    if isinstance(options, str):
        _print(f"confide: {options}\n{USAGE}")
        return 2
    project, config_file = options
    here = places.find(config_file)
    try:
        config = configs.load(here.config)
    except ConfideError as error:
        _print(f"confide: {error.with_hint}")
        return error.exit_code
    if unknown := catalogues.unknown_toolsets(config.toolsets):
        # A warning only: an agent without its memory would be worse.
        said = ", ".join(repr(name[:40]) for name in unknown)
        _print(f"confide: toolsets in {here.config} has {said}, which is not a group of tools; it is ignored")
        _print(f"hint: the groups are {', '.join(catalogues.TOOLSETS)}, and all")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Clients end a session with SIGINT. As an exception it would wait for threads, and get lost
        # in the moment before a read of stdin.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if config.hooks:
        session_marks.note(os.fspath(here.state))
    outlet = Outlet(1)
    serve(0, outlet, here, config, project)
    outlet.close(EXIT_DEADLINE_S / 2)
    # Not sys.exit: threads that wait in a system call must not keep the process alive when its
    # client has ended.
    os._exit(0)


def serve(stdin: int, outlet: Outlet, here: places.ProxyPaths, config: ProxyConfig, project: Path) -> None:
    """Pass lines from the descriptor `stdin` to the session, until stdin ends or the client stops
    reading.
    """
    tunnel = Tunnel(outlet.put, catalogues.load(here.catalogue, config.toolsets), is_crowded=outlet.is_crowded)
    lines = Lines(stdin)
    engine: SessionThread | None = None
    settling = Settling(os.fspath(here.state))
    while outlet.is_open:
        if engine is None and settling.is_over(lines):
            engine = SessionThread(tunnel, outlet, here, config, project)
            continue
        batch = lines.read()
        if batch is None:
            break
        for line in batch:
            if engine is None and tunnel.answer_locally(line):
                settling.go_on()
                continue
            engine = engine or SessionThread(tunnel, outlet, here, config, project)
            engine.receive(line)
    if engine is not None:
        engine.stop(EXIT_DEADLINE_S / 2)


class Settling:
    """A delay before the link is opened, so that opening it does not slow the client's own start."""

    def __init__(self, state: str) -> None:
        """`state`: the state folder, where the hook of a prompt notes that it waits."""
        self._state = state
        self._began = time.time()
        self._last = time.monotonic() + MOST_SETTLE_S
        self._end = time.monotonic() + SPEECHLESS_S

    def go_on(self) -> None:
        """Extend the delay, since the client is still starting: it has just got a response."""
        self._end = min(time.monotonic() + SETTLE_S, self._last)

    def is_over(self, lines: Lines) -> bool:
        """Wait for the client's next lines. Return True if the delay is over: no line came in time,
        or a prompt's hook waits for the session.
        """
        while not lines.wait(max(0.0, min(LOOK_S, self._end - time.monotonic()))):
            if time.monotonic() >= self._end or session_marks.is_hurried(self._state, self._began):
                return True
        return time.monotonic() >= self._last


class Lines:
    """Reads lines from a descriptor, in batches."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = bytearray()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for input, and return True if there is some to read."""
        return bool(select.select([self._fd], [], [], seconds)[0])

    def read(self) -> list[bytes] | None:
        """Read what is available, and return the complete lines, possibly none; None at the end of
        the input.
        """
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            return None
        self._rest += data
        if b"\n" not in data and len(self._rest) <= MAX_LINE_BYTES:
            return []  # a large line comes in hundreds of parts, each of which would copy all before it
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in data else (bytes(self._rest),)
        if len(rest) > MAX_LINE_BYTES:
            # Passed on to be refused because of its size; the rest of the line is refused as
            # invalid JSON.
            whole.append(rest)
            rest = b""
        self._rest = bytearray(rest)
        return [line for line in whole if line.strip()]


class Outlet:
    """Writes lines to a descriptor from a thread of its own, so that a client that does not read
    cannot block the event loop.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(_LINES_OUT)
        self._thread: threading.Thread | None = None
        # Counts of bytes; each is changed by one thread only.
        self._bytes_in = self._bytes_out = 0
        self.is_open = True

    def is_crowded(self) -> bool:
        """Return True if the client has not read more than half of what the buffer can hold, so
        that less urgent messages should wait.
        """
        return self._lines.qsize() > _LINES_OUT // 2 or self._bytes_in - self._bytes_out > _BYTES_OUT // 2

    def put(self, line: bytes) -> None:
        """Queue a line for the client. If the client leaves more than `_LINES_OUT` lines or
        `_BYTES_OUT` bytes unread, the process exits.
        """
        if self._thread is None:
            # A thread would only cost start-up time before the loop runs; but a client that does
            # not read must not prevent the exit at the end of stdin.
            line = self._write_at_once(line)
            if not line:
                return
            self.start()
        self._bytes_in += len(line)
        is_full = self._bytes_in - self._bytes_out > _BYTES_OUT
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            is_full = True
        if is_full:
            _print("confide: the client does not read what it asked for; ending")
            os._exit(1)

    def start(self) -> None:
        """Start the writer thread; from now on lines are written in the background."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._drain, name="stdout", daemon=True)
        self._thread.start()

    def close(self, deadline_s: float) -> None:
        """Write the remaining lines, within `deadline_s` seconds."""
        if self._thread is not None:
            try:
                self._lines.put(None, timeout=deadline_s)
            except queue.Full:
                return
            self._thread.join(deadline_s)

    def _drain(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            self._bytes_out += len(line)

    def _write_at_once(self, line: bytes) -> bytes:
        """Write as much as possible without blocking; return the rest."""
        view = memoryview(line)
        try:
            while view and select.select([], [self._fd], [], 0)[1]:
                # A writable pipe takes this many bytes without blocking.
                view = view[os.write(self._fd, view[: select.PIPE_BUF]) :]
        except OSError:
            self.is_open = False
            return b""
        return bytes(view)

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self.is_open = False  # the client has ended; stdin will end too


class SessionThread:
    """The thread with the event loop, in which the link, the tunnel and the sync of files run."""

    def __init__(
        self, tunnel: Tunnel, outlet: Outlet, here: places.ProxyPaths, config: ProxyConfig, project: Path
    ) -> None:
        outlet.start()  # from here on the loop writes, and must not wait for the client
        self._tunnel = tunnel
        self._ready = threading.Event()
        self._opening = threading.Lock()
        self._is_open = False  # once True, only the loop uses the tunnel
        self._slots = threading.Semaphore(_LINES_IN)
        # Set by the loop before it sets `_ready`.
        self._loop: asyncio.AbstractEventLoop
        self._waiting: asyncio.Queue[bytes]
        self._ending: asyncio.Event
        self._is_orphaned = False
        self._arguments = (here, config, project)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def receive(self, line: bytes) -> None:
        """Pass a line from the client to the event loop. Blocks while `_LINES_IN` lines wait there,
        so that the client writes no faster.

        Before the event loop accepts lines, it needs the project's name, which the daemon may be
        slow to give. Until then, requests that need no daemon are answered here.
        """
        with self._opening:
            if not self._is_open and self._tunnel.answer_locally(line):
                return
        self._ready.wait()
        self._slots.acquire()
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, line)

    def stop(self, deadline_s: float) -> None:
        """End the session. Calls that wait for a response still have `deadline_s` seconds to get
        one.
        """
        if self._ready.wait(deadline_s):
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(deadline_s)

    def _run(self) -> None:
        # Slow imports happen here, while the main thread continues to answer.
        import asyncio

        from confide_crypto import heaps

        heaps.share(1)  # 3 MB of resident memory, in every session of every user
        try:
            asyncio.run(self._serve())
            if self._is_orphaned:
                os._exit(0)  # the main thread still waits for a line from stdin
        except ConfideError as error:
            _print(f"confide: {error.with_hint}")
            os._exit(error.exit_code)
        except BaseException as error:
            # Only a bug gets here. The client restarts a server that exits, but waits forever for
            # one that does not respond.
            _print(f"confide: internal error: {where(error)}")
            os._exit(1)

    async def _serve(self) -> None:
        import asyncio
        import logging
        from concurrent.futures import ThreadPoolExecutor

        from confide_crypto.transport.task_group import TaskGroup
        from confide_proxy.link.founding import found_for_agent
        from confide_proxy.mcp.agent_session import AgentSession
        from confide_proxy.sync import project as projects
        from confide_proxy.sync.project_names import resolve_project

        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="confide: %(levelname)s: %(message)s")
        here, config, folder = self._arguments
        self._loop = asyncio.get_running_loop()
        # Files are mostly read and written one at a time; each further thread costs memory in every
        # session of every user.
        self._loop.set_default_executor(ThreadPoolExecutor(_WORKERS))
        self._waiting = asyncio.Queue()  # bounded by _slots
        self._ending = asyncio.Event()
        self._ready.set()
        # A user who configured a client to start this wants it to remember.
        await asyncio.to_thread(found_for_agent, here, config)
        for notice in await asyncio.to_thread(places.memory_notices):
            _print(f"confide: {notice}")
        claim = await asyncio.to_thread(projects.identify, folder)
        if claim.is_project:
            found = await resolve_project(here, config, claim)
            project = found.project
            if found.is_new or project.claim:
                _print(f"confide: {found.notice}")
        else:  # such as the folder in which desktop programs start others
            project = projects.global_project(here.global_folder)
            _print(f"confide: {claim.root} is no project, so this session has only the memory that all projects share")
        with self._opening:
            self._is_open = True
        session = AgentSession(here, config, project, self._tunnel)
        self._tunnel.has_read_foreign = partial(session_marks.has_read_foreign, os.fspath(here.state))
        if config.questions and not os.environ.get("CONFIDE_LEARNING"):  # otherwise no person is in front of the client
            self._tunnel.responses.open_questions()
        async with TaskGroup() as group:
            work = (session.run(), self._pump(), self._attend())
            tasks = [group.create_task(each) for each in work]
            await self._ending.wait()
            await self._waiting.join()
            await self._tunnel.wait_for_calls()
            await session.link.close()
            for task in tasks:
                task.cancel()

    async def _attend(self) -> None:
        """End the session when the parent process ends: another program may keep the other end of
        stdin open, which then never ends.
        """
        import asyncio

        parent, settled = os.getppid(), time.monotonic() + _SETTLED_S
        while True:
            await asyncio.sleep(_PARENT_LOOK_S)
            if (now := os.getppid()) == parent:
                continue
            if time.monotonic() > settled:
                self._is_orphaned = True
                self._ending.set()
                return
            parent = now  # the former parent was a launcher, which ends after the start

    async def _pump(self) -> None:
        while True:
            line = await self._waiting.get()
            self._slots.release()
            self._tunnel.receive(line)
            self._waiting.task_done()


def _options(arguments: list[str]) -> tuple[Path, Path | None] | str:
    try:
        project, config = Path.cwd(), None
    except FileNotFoundError:
        return "the working directory is not there any more; start in another, or name one with --project"
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in ("--project", "-p", "--config"):
            return f"unknown argument '{argument}'"
        value = value if equals else next(rest, "")
        if not value:
            return f"{name} needs a value"
        if name in ("--project", "-p"):
            project = Path(value).expanduser()
        else:
            config = Path(value).expanduser()
    return (project.absolute(), config) if project.is_dir() else f"--project {project} is not a folder"


def _print(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - for the person; stdout is the MCP wire
