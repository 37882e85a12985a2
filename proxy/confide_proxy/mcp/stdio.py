"""`confide mcp`: an MCP server on stdin and stdout, as the agent's client sees it.

The main thread reads stdin, and answers what it can before anything heavy is imported; the event loop with the link runs beside it in a
thread. When stdin ends the process is gone within a second, whatever the link is doing. stdout is the MCP wire; logs go to stderr.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confide_crypto.errors import ConfideError, where
from confide_proxy import config as configs
from confide_proxy import paths as places
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks import startup_marks
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.mcp.jsonrpc import MAX_LINE_BYTES
from confide_proxy.mcp.tunnel import Tunnel

if TYPE_CHECKING:
    import asyncio


USAGE = "usage: confide mcp [--project DIR] [--config FILE]"
SPEECHLESS_S = 0.25
"""If the client says nothing for so long, the link is made without waiting for its first word."""
SETTLE_S = 0.15
"""A client that has got the list of tools goes on with its own start, and the link needs a tenth of a second of a processor: on two of them
a session of Claude Code took 50 ms longer for it (`tests/clients/cost.py`). So the link waits for so much silence, a call or a prompt."""
MOST_SETTLE_S = 0.5
"""From the start, however much the client says."""
LOOK_S = 0.02
"""Meanwhile so often for a prompt."""
EXIT_DEADLINE_S = 0.7
_PARENT_LOOK_S = 2.0
_SETTLED_S = 3.0
"""A launcher that starts this and ends does so within this time; whose parent ends later has lost its client."""
_READ_BYTES = 256 * 1024
_LINES_IN = 256
_LINES_OUT = 4096
_BYTES_OUT = 256 * 1024 * 1024
_WORKERS = 2


def run(arguments: list[str]) -> int:
    """Serve until stdin ends. Returns the exit code: 2 for a usage error, 3 or 4 for a broken configuration; 0 does not return."""
    options = _options(arguments)
    if isinstance(options, str):
        _say(f"confide: {options}\n{USAGE}")
        return 2
    project, config_file = options
    here = places.find(config_file)
    try:
        config = configs.load(here.config)
    except ConfideError as error:
        _say(f"confide: {error.with_hint}")
        return error.exit_code
    if unknown := catalogues.unknown_toolsets(config.toolsets):
        # No reason to leave an agent without its memory.
        said = ", ".join(repr(name[:40]) for name in unknown)
        _say(f"confide: toolsets in {here.config} has {said}, which is not a group of tools; it is ignored")
        _say(f"hint: the groups are {', '.join(catalogues.TOOLSETS)}, and all")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # How clients end a session. As an exception it would wait for threads, and get lost in the moment before a read of stdin.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if config.hooks:
        startup_marks.note(os.fspath(here.state))
    outlet = Outlet(1)
    serve(0, outlet, here, config, project)
    outlet.close(EXIT_DEADLINE_S / 2)
    # Not sys.exit: threads that wait in a system call must not keep a process whose client is gone.
    os._exit(0)


def serve(stdin: int, outlet: Outlet, here: places.ProxyPaths, config: ProxyConfig, project: Path) -> None:
    """Pass lines from the descriptor `stdin` on until it ends or the client stops reading."""
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
    """The time at a start in which the client is spared the work of the link."""

    def __init__(self, state: str) -> None:
        """`state`: the folder where a prompt's hook says that it waits."""
        self._state = state
        self._began = time.time()
        self._last = time.monotonic() + MOST_SETTLE_S
        self._end = time.monotonic() + SPEECHLESS_S

    def go_on(self) -> None:
        """The client has just got an answer."""
        self._end = min(time.monotonic() + SETTLE_S, self._last)

    def is_over(self, lines: Lines) -> bool:
        """Waits for the next lines, and is over if there are none in time, or a prompt waits."""
        while not lines.wait(max(0.0, min(LOOK_S, self._end - time.monotonic()))):
            if time.monotonic() >= self._end or startup_marks.is_hurried(self._state, self._began):
                return True
        return time.monotonic() >= self._last


class Lines:
    """Lines from a descriptor, in batches as they come."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = bytearray()

    def wait(self, seconds: float) -> bool:
        """Whether something can be read within `seconds`."""
        return bool(select.select([self._fd], [], [], seconds)[0])

    def read(self) -> list[bytes] | None:
        """The next complete lines, possibly none; None at the end of the input."""
        data = os.read(self._fd, _READ_BYTES)
        if not data:
            return None
        self._rest += data
        if b"\n" not in data and len(self._rest) <= MAX_LINE_BYTES:
            return []  # a large line comes in hundreds of parts, each of which would copy all before it
        *whole, rest = bytes(self._rest).split(b"\n") if b"\n" in data else (bytes(self._rest),)
        if len(rest) > MAX_LINE_BYTES:
            # Handed on as it is, to be refused by its size; what follows up to the line's end is refused as no JSON.
            whole.append(rest)
            rest = b""
        self._rest = bytearray(rest)
        return [line for line in whole if line.strip()]


class Outlet:
    """Lines to a descriptor, written by a thread of their own: a client that does not read must not stop the loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(_LINES_OUT)
        self._thread: threading.Thread | None = None
        # Bytes taken and bytes written, each counted by one thread alone.
        self._taken = self._written = 0
        self.is_open = True

    def is_crowded(self) -> bool:
        """Whether the client is so far behind that what can wait should."""
        return self._lines.qsize() > _LINES_OUT // 2 or self._taken - self._written > _BYTES_OUT // 2

    def put(self, line: bytes) -> None:
        """Write a line soon. A client that leaves `_LINES_OUT` lines or `_BYTES_OUT` unread is given up: the process ends."""
        if self._thread is None:
            # Until the loop runs a thread would only cost start-up time; but a client that does not read must not stop its own goodbye.
            line = self._write_at_once(line)
            if not line:
                return
            self.start()
        self._taken += len(line)
        is_full = self._taken - self._written > _BYTES_OUT
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            is_full = True
        if is_full:
            _say("confide: the client does not read what it asked for; ending")
            os._exit(1)

    def start(self) -> None:
        """From now on write in the background."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._drain, name="stdout", daemon=True)
        self._thread.start()

    def close(self, deadline_s: float) -> None:
        """Write what is left, within the deadline."""
        if self._thread is not None:
            try:
                self._lines.put(None, timeout=deadline_s)
            except queue.Full:
                return
            self._thread.join(deadline_s)

    def _drain(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            self._written += len(line)

    def _write_at_once(self, line: bytes) -> bytes:
        """What the client has no room for yet."""
        view = memoryview(line)
        try:
            while view and select.select([], [self._fd], [], 0)[1]:
                # So much goes into a pipe that can be written to at all without waiting.
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
            self.is_open = False  # the client is gone; stdin will end too


class SessionThread:
    """The event loop in its thread: link, tunnel and files."""

    def __init__(
        self, tunnel: Tunnel, outlet: Outlet, here: places.ProxyPaths, config: ProxyConfig, project: Path
    ) -> None:
        outlet.start()  # from here on it is the loop that writes, and must not wait for the client
        self._tunnel = tunnel
        self._ready = threading.Event()
        self._opening = threading.Lock()
        self._is_open = False  # from then on it is the loop alone that uses the tunnel
        self._slots = threading.Semaphore(_LINES_IN)
        # The loop makes these three before it says that it is ready.
        self._loop: asyncio.AbstractEventLoop
        self._waiting: asyncio.Queue[bytes]
        self._ending: asyncio.Event
        self._is_orphaned = False
        self._arguments = (here, config, project)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def receive(self, line: bytes) -> None:
        """Hand a line to the loop; waits while `_LINES_IN` are not taken yet, which is the client's back-pressure.

        Until the loop takes lines, which it does once it knows what project this is, what needs no daemon is answered here: a daemon that
        is to be asked about the folder's name may be mute.
        """
        with self._opening:
            if not self._is_open and self._tunnel.answer_locally(line):
                return
        self._ready.wait()
        self._slots.acquire()
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, line)

    def stop(self, deadline_s: float) -> None:
        """End the session: calls that are on their way get this long to be answered."""
        if self._ready.wait(deadline_s):
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(deadline_s)

    def _run(self) -> None:
        # The heavy imports happen here, while the main thread goes on answering.
        import asyncio

        from confide_crypto import heaps

        heaps.share(1)  # 3 MB of resident memory, in every session of every user
        try:
            asyncio.run(self._serve())
            if self._is_orphaned:
                os._exit(0)  # the main thread still waits for a line that nobody sends
        except ConfideError as error:
            _say(f"confide: {error.with_hint}")
            os._exit(error.exit_code)
        except BaseException as error:
            # Only a fault of ours gets here. The client restarts a server that ended, but waits for ever on one that is mute.
            _say(f"confide: internal error: {where(error)}")
            os._exit(1)

    async def _serve(self) -> None:
        import asyncio
        import logging
        from concurrent.futures import ThreadPoolExecutor

        from confide_crypto.transport.task_group import TaskGroup
        from confide_proxy.link.founding import found_for_agent
        from confide_proxy.mcp.agent_session import AgentSession
        from confide_proxy.sync import project as projects
        from confide_proxy.sync.project_names import named

        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="confide: %(levelname)s: %(message)s")
        here, config, folder = self._arguments
        self._loop = asyncio.get_running_loop()
        # Files are read and written one at a time in the main; each further thread costs memory in every session of every user.
        self._loop.set_default_executor(ThreadPoolExecutor(_WORKERS))
        self._waiting = asyncio.Queue()  # bounded by _slots
        self._ending = asyncio.Event()
        self._ready.set()
        # Whoever told a client to start this wants it to remember.
        await asyncio.to_thread(found_for_agent, here, config)
        for notice in await asyncio.to_thread(places.memory_notices):
            _say(f"confide: {notice}")
        claim = await asyncio.to_thread(projects.identify, folder)
        if claim.is_project:
            found = await named(here, config, claim)
            project = found.project
            if found.is_new or project.claim:
                _say(f"confide: {found.notice}")
        else:  # where desktop programs start what they start
            project = projects.shared(here.global_folder)
            _say(f"confide: {claim.root} is no project, so this session has only the memory that all projects share")
        with self._opening:
            self._is_open = True
        session = AgentSession(here, config, project, self._tunnel)
        async with TaskGroup() as group:
            work = (session.run(), self._pump(), self._attend())
            tasks = [group.create_task(each) for each in work]
            await self._ending.wait()
            await self._waiting.join()
            await self._tunnel.drained()
            await session.link.close()
            for task in tasks:
                task.cancel()

    async def _attend(self) -> None:
        """End with whoever has started this: another program may hold the other end of stdin, which then never ends."""
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
            parent = now  # a launcher, which is done once it has started this

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


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - for the person; stdout is the MCP wire
