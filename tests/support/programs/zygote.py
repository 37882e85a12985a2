"""A process that has loaded what a program imports, and forks one for every start that is asked for. `forked.py` runs it.

    python zygote.py DESCRIPTOR PACKAGE MODULE...

It loads every module of `PACKAGE`, and the `MODULE`s, which the package imports only when it needs them. On the socket DESCRIPTOR it
says which variables were read while loading, and its address (JSON). There it takes starts: JSON with `argv`, `env`, `cwd`, `umask`,
`session` and `daemons` beside four descriptors: standard input, output and error, and a socket of this start's own, on which it says the
process id, and the wait status once that has ended (four bytes each). `daemons` is the address of the zygote that forks the daemon which
the program starts on demand, or null. It ends when nobody holds the other end of DESCRIPTOR any more.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 160_000
NUMBER_BYTES = 4
LARGEST_HOLE = 65_536
MOST_HOLES = 10_000
"""Of a size."""
PATIENCE = runpy.run_path(
    str(Path(__file__).parents[1] / "patience.py")
)  # this is a script, which cannot import `tests`
COPIES = ("wsgiref.handlers",)
"""Modules that copy the whole environment for somebody who never asks for it here: a part of WSGI, which `prometheus_client` loads."""


def load(package: str, modules: Sequence[str]) -> list[str]:
    """Import all of it; the environment variables that were read meanwhile."""
    read: set[str] = set()
    for module in COPIES:
        importlib.import_module(module)
    mapping = type(os.environ)
    plain = mapping.__getitem__

    def recorded(environ: os._Environ[str], name: str) -> str:
        read.add(name)
        return plain(environ, name)

    mapping.__getitem__ = recorded  # type: ignore[method-assign]
    try:
        walked: list[str] = []
        for name in (package, "confide_crypto", "confide_memory"):
            root = importlib.import_module(name)
            walked += [found.name for found in pkgutil.walk_packages(root.__path__, f"{name}.", onerror=lambda _: None)]
        for module in (*walked, *modules):
            if not module.endswith("__main__"):
                # A program that needs a module which cannot be imported says so itself.
                with contextlib.suppress(Exception):
                    importlib.import_module(module)
        make(package)
    finally:
        mapping.__getitem__ = plain  # type: ignore[method-assign]
    return sorted(read)


def make(package: str) -> None:
    """What every start would make again, and alike: the commands with their parameters, a parser, a table of tokens."""
    import typer.main
    from typer.core import TyperGroup

    typer.main.get_command = functools.cache(typer.main.get_command)
    commands = [(typer.main.get_command(importlib.import_module(f"{package}.cli.app").app), None)]
    while commands:
        command, parent = commands.pop()
        # As the program makes it: a command keeps the option for its help that its first context asks for.
        context = typer.Context(command, parent, **command.context_settings)
        for parameter in command.get_params(context):
            parameter.get_runtime_param()  # type: ignore[attr-defined]
        if isinstance(command, TyperGroup):
            found = (command.get_command(context, name) for name in command.list_commands(context))
            commands += [(each, context) for each in found if each is not None]
    if package == "confide_daemon":
        from confide_daemon.embedding.token_counts import token_ends
        from confide_memory.markdown_blocks import structure

        structure("# A text\n")
        token_ends("A text.")  # a third of a second of a processor


def serve(owner: socket.socket, asked: socket.socket) -> list[str] | None:
    """Fork on request. In a fork: the arguments of its program; in this process, None at the end."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(owner, selectors.EVENT_READ)
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is owner:
                    return None
                if not isinstance(key.fileobj, socket.socket):
                    selector.unregister(key.fileobj)
                    _report(*running.pop(key.fd))
                    os.close(key.fd)
                    continue
                request, descriptors, _, _ = socket.recv_fds(key.fileobj, MAX_REQUEST_BYTES, 4)
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    for pidfd, (_, theirs) in running.items():
                        os.close(pidfd)
                        theirs.close()
                    owner.close()
                    asked.close()
                    return _become(json.loads(request), descriptors)
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
                link = socket.socket(fileno=descriptors[3])
                _say(link, pid)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = (pid, link)
                selector.register(pidfd, selectors.EVENT_READ)


def _report(pid: int, link: socket.socket) -> None:
    # The process id is free for another process only when its owner can know that the process has ended.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    is_exit = ended.si_code == os.CLD_EXITED
    _say(link, ended.si_status if is_exit else -ended.si_status)
    link.close()
    os.waitpid(pid, 0)


def _say(link: socket.socket, number: int) -> None:
    try:
        link.sendall(number.to_bytes(NUMBER_BYTES, "big", signed=True))
    except OSError:
        return  # whoever asked for it has lost interest


def _become(start: dict[str, Any], descriptors: Sequence[int]) -> list[str]:
    """Make this fork what a process of its own would be: its surroundings, and no trace of the others."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A run of tests behind `nohup` has it ignored, and a daemon heeds that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if start["session"]:
        os.setsid()
    os.umask(start["umask"])
    os.chdir(start["cwd"])
    known = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(start["env"])
    if hasattr(time, "tzset"):
        time.tzset()  # which a program does as it starts
    if known != os.environ.get("PYTHONPATH", ""):
        # Behind the script's own folder, as the interpreter has it.
        others = [folder for folder in sys.path[1:] if folder not in known.split(os.pathsep)]
        sys.path[1:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *others]
    if PATIENCE["IS_PATIENT"] in os.environ:
        PATIENCE["be_patient"](is_program=True)
    if start["daemons"] is not None:
        _fork_daemons(bytes.fromhex(start["daemons"]))
    return list(start["argv"])


def _fork_daemons(address: bytes) -> None:
    """From here on the zygote at `address` forks the daemon that this process starts on demand: an interpreter takes a second for it."""
    plain = subprocess.run
    program = Path(sys.executable).with_name("confided")

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        # As `link/daemon.py` has it: a shell that says the id of the process which it leaves behind.
        if command[3:7] != ["sh", sys.executable, "-m", "confide_daemon"]:
            return plain(command, **options)
        start = {
            "argv": [str(program), *command[7:]],
            "env": dict(os.environ),
            "cwd": str(options["cwd"]),
            "umask": own_umask(),
            "session": options["start_new_session"],
            "daemons": None,
        }
        with (
            open(os.devnull) as nothing,
            ask(address, start, [nothing.fileno(), options["stderr"], options["stderr"]]) as ours,
        ):
            return subprocess.CompletedProcess(command, 0, b"%d" % number(ours))

    subprocess.run = run  # type: ignore[assignment]


def ask(address: bytes, start: Mapping[str, Any], descriptors: Sequence[int]) -> socket.socket:
    """Ask the zygote at `address` for a start with these standard streams; the socket on which it says the rest."""
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        asking.connect(address)
        socket.send_fds(asking, [json.dumps(start).encode()], [*descriptors, theirs.fileno()])
    return ours


def own_umask() -> int:
    """Read without setting it, which other threads would notice."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


def number(link: socket.socket, flags: int = 0) -> int:
    """What the zygote says next.

    Raises:
        ChildProcessError: it has ended.
    """
    data = link.recv(NUMBER_BYTES, socket.MSG_WAITALL | flags)
    if len(data) < NUMBER_BYTES:
        raise ChildProcessError("the zygote has ended")
    return int.from_bytes(data, "big", signed=True)


def main() -> list[str] | None:
    """Load and serve, as `serve`."""
    owner = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read = load(sys.argv[2], sys.argv[3:])
    # A fork has only the thread that forked; a lock that another one held would stay locked.
    assert threading.active_count() == 1, threading.enumerate()
    assert len(os.listdir("/proc/self/task")) == 1, "a library has started a thread"
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    asked.bind("")
    gc.collect()
    gc.freeze()
    fill_holes()
    owner.sendall(json.dumps({"read": read, "address": asked.getsockname().hex()}).encode())
    return serve(owner, asked)


def fill_holes() -> None:
    """Take the memory of the C library that is free between what is used, which is on pages that are shared by all forks.

    Else a fork would be given it piece by piece, and the system would copy a page for nearly each: of 4,400 pages of a command 900 less so.
    """
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    behind_all = library.malloc(LARGEST_HOLE)
    for size in range(LARGEST_HOLE, 0, -16):
        for _ in range(MOST_HOLES):
            found = library.malloc(size)
            if found > behind_all:
                library.free(found)
                break


def become_program(arguments: Sequence[str]) -> None:
    """Run the console script, and end as an interpreter does."""
    sys.argv[:] = arguments
    if "confide_proxy" in sys.modules:
        # `end` does it, with the complaint of a task that was never awaited.
        importlib.import_module("confide_proxy.__main__").leave = sys.exit
    sys.path[0] = os.path.dirname(arguments[0])  # noqa: PTH120 - as the interpreter has it
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = None
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        code = error.code
    end(code or 0)


def end(code: int) -> None:
    """The end of the interpreter, but for taking its modules apart: half of what a short command costs goes into that.

    The modules were loaded before the fork, and are in memory that is shared for as long as nobody writes to it. All that the program
    has made itself ends as always: its threads, what it has registered for the end, its files, and what nobody refers to any more,
    with the complaint of a task that was never awaited.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            sys.exit(code)  # the interpreter has words and a code of its own for it
    gc.collect()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    arguments = main()
    if arguments is not None:
        become_program(arguments)
