"""Real processes of `confide` and `confided` without the second that an interpreter takes to load them.

A test that starts a program pays mostly for imports. `Program` is `subprocess.Popen` whose process is forked from one that has loaded the
program's modules already (`zygote.py`: one for each program and test run, however many processes run the tests). All else is as always:
a process of its own that runs the console script, with its arguments, environment, working directory, descriptors, signals, exit code and
end of the interpreter. What differs: its parent, /proc/*/cmdline, that everything is imported, and that modules are not taken apart at the
end; and so it is for a daemon that it starts on demand. Where that is the matter, use `subprocess` itself.

A start that is not plain (a terminal, other options, an environment that differs in a variable that was read while the modules were
loaded, a system other than Linux, or a Python whose `subprocess` is made otherwise) is an ordinary one.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.programs.zygote import MAX_REQUEST_BYTES, ask, number, own_umask

BIN: Final = Path(sys.executable).parent
LOADED: Final[dict[str, tuple[str, ...]]] = {
    "confide": (
        "confide_proxy",
        "concurrent.futures.thread",
        "cryptography.hazmat.backends.openssl.backend",
        "cryptography.hazmat.primitives.asymmetric.x25519",
        "cryptography.hazmat.primitives.hpke",
        "encodings.ascii",
        "getpass",
        "http.client",
        "pydantic.plugin._loader",
        "pydantic.type_adapter",
        "resource",
        "rich._emoji_codes",
        "typer._adapters",
        "typer._click._textwrap",
        "typer._click.decorators",
        "typer.rich_utils",
        "urllib.request",
        "websockets.asyncio.client",
        "websockets.extensions.permessage_deflate",
        "websockets.proxy",
        "zoneinfo",
    ),
    "confided": (
        "confide_daemon",
        "anyio._backends._asyncio",
        "concurrent.futures.thread",
        "cryptography.hazmat.backends.openssl.backend",
        "cryptography.hazmat.primitives.asymmetric.x25519",
        "cryptography.hazmat.primitives.hpke",
        "encodings.ascii",
        "numpy.ma",
        "rich.progress",
        "tokenizers",
        "typer._adapters",
        "typer._click._textwrap",
        "typer._click.decorators",
        "websockets.asyncio.server",
        "websockets.extensions.permessage_deflate",
    ),
}
"""For each program its package, and what that imports only when it is needed."""
SURROUNDINGS: Final = {"COLUMNS": "200", "LINES": "24", "NO_COLOR": "1"}
"""What tests set for a program, and a library reads when it is loaded. (`readline` sets LINES for the processes of whoever has it.)"""
SINGLE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""As `confided` sets them itself before it loads anything."""
OWN: Final = ("CONFIDE", "PYTEST")
"""How the variables begin that are no program's."""
FOR_NATIVE_CODE: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_")
"""How the variables begin that the interpreter and native libraries read."""
HARMLESS: Final = {"HOME", "PYTHONPATH", "PYTHON_KEYRING_BACKEND", "OMP_WAIT_POLICY", *SINGLE_THREAD}
"""May differ: of HOME `sysconfig` makes the folder of a user's own packages, which a virtual environment leaves out, and OMP_WAIT_POLICY is
read by a library that no zygote loads; whoever has loaded it has it set."""
PLAIN: Final[dict[str, Any]] = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "process_group": -1,
}
"""The options of `subprocess.Popen` that a fork leaves alone."""
PIPES: Final = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def is_known(popen: type[subprocess.Popen[Any]]) -> bool:
    """Whether `Popen` has the private parts that `Program` takes the place of, as CPython 3.11 to 3.13 have them."""
    if not all(
        callable(getattr(popen, name, None))
        for name in ("_execute_child", "_internal_poll", "_wait", "_close_pipe_fds")
    ):
        return False
    options = inspect.signature(popen._execute_child).parameters  # type: ignore[attr-defined]
    return {"args", "cwd", "env", "umask", "start_new_session", *PIPES, *PLAIN} <= options.keys()


IS_SUPPORTED: Final = hasattr(os, "pidfd_open") and Path("/proc/self/task").exists() and is_known(subprocess.Popen)


@dataclass(frozen=True)
class Zygote:
    """The process that forks one program."""

    pid: int
    address: str
    """Where starts are asked for: an abstract Unix socket's, in hexadecimal."""
    read: tuple[str, ...]
    """The variables that were read while the modules were loaded,"""
    env: dict[str, str]
    """and what it was started with."""

    def suits(self, env: Mapping[str, str]) -> bool:
        """Whether the modules would have been loaded the same in `env`."""
        native = (name for name in self.env.keys() | env.keys() if name.startswith(FOR_NATIVE_CODE))
        # What stands there is searched by a fork as well, but a module of this name would have changed the interpreter's start.
        if any((Path(folder) / "sitecustomize.py").exists() for folder in env.get("PYTHONPATH", "").split(os.pathsep)):
            return False
        return all(self.env.get(name) == env.get(name) for name in {*self.read, *native} - HARMLESS)

    def fork(self, start: Mapping[str, Any], descriptors: Sequence[int]) -> tuple[int, socket.socket]:
        """The id of a new process, and the socket that says how it ended."""
        ours = ask(bytes.fromhex(self.address), start, descriptors)
        return number(ours), ours


class Owner:
    """Whoever has started a zygote, which ends with it; what it has forked goes on."""

    def __init__(self, program: str) -> None:
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(OWN)} | SURROUNDINGS
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program = program
        package, *modules = LOADED[program]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("zygote.py"), str(theirs.fileno()), package, *modules],
                env=self._env | SINGLE_THREAD,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.wait()

    def zygote(self) -> Zygote:
        """Once it has loaded everything."""
        said = self._control.recv(MAX_REQUEST_BYTES)
        assert said, f"the zygote of {self._program} has ended with {self._process.wait()}"
        return Zygote(pid=self._process.pid, env=self._env, **json.loads(said))


class Program(subprocess.Popen[Any]):
    """A process of one of our programs; `args` begins with the path of its console script."""

    _link: socket.socket | None = None

    def _execute_child(self, args: Any, *options: Any, **named: Any) -> None:
        if not IS_SUPPORTED or named:
            super()._execute_child(args, *options, **named)  # type: ignore[misc]
            return
        names = list(inspect.signature(super()._execute_child).parameters)[1:]  # type: ignore[misc]
        said = dict(zip(names, options, strict=True))
        env = {os.fsdecode(k): os.fsdecode(v) for k, v in (said["env"] or os.environ).items()}
        pipes = [said[name] for name in PIPES]
        descriptors = [number if given == -1 else given for number, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        is_plain = all(said[name] == value for name, value in PLAIN.items())
        zygote = zygote_of(args) if is_plain and not any(map(os.isatty, descriptors)) else None
        if zygote is None or not zygote.suits(env):
            super()._execute_child(args, *options)  # type: ignore[misc]
            return
        daemons = zygote_of([BIN / "confided"])
        start = {
            "argv": [os.fspath(each) for each in args],
            "env": env,
            "cwd": os.fspath(said["cwd"] or Path.cwd()),
            "umask": said["umask"] if said["umask"] >= 0 else own_umask(),
            "session": said["start_new_session"],
            "daemons": daemons.address if daemons is not None and daemons.suits(env) else None,
        }
        self.pid, self._link = zygote.fork(start, descriptors)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None, *defaults: Any) -> int | None:
        if self._link is None:
            return super()._internal_poll(_deadstate, *defaults)  # type: ignore[misc, no-any-return]
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if self._link is None:
            return super()._wait(timeout)  # type: ignore[misc, no-any-return]
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        """The exit code, within `timeout` seconds. It stays to be read, since several threads may wait."""
        assert self._link is not None
        if self.returncode is None and select.select([self._link], [], [], timeout)[0]:
            self.returncode = number(self._link, socket.MSG_PEEK)
        return self.returncode

    def __del__(self, *defaults: Any) -> None:
        super().__del__(*defaults)
        if self._link is not None:
            self._link.close()


def run(
    args: Sequence[str], *, env: Mapping[str, str], timeout: float, cwd: Path | None = None, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with text that is captured, and no check of the exit code."""
    stdin = None if input is None else subprocess.PIPE
    pipe = subprocess.PIPE
    with Program(args, env=env, cwd=cwd, stdin=stdin, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


_zygotes: dict[str, Zygote] = {}
_lock = threading.Lock()


def shared() -> dict[str, dict[str, Any]]:
    """Zygotes of this process for others that run the same tests, which `share` them: one for each program and test run is enough."""
    if not IS_SUPPORTED:
        return {}
    with _lock:
        if not _zygotes:
            owners = {program: Owner(program) for program in LOADED}  # both load at once
            _zygotes.update({program: owner.zygote() for program, owner in owners.items()})
        return {program: asdict(zygote) for program, zygote in _zygotes.items()}


def share(zygotes: Mapping[str, Mapping[str, Any]]) -> None:
    """Ask these, of another process."""
    _zygotes.update({program: Zygote(**zygote) for program, zygote in zygotes.items()})


def zygote_of(args: Any) -> Zygote | None:
    """What forks this command; None where it has to be started as any other."""
    path = Path(args[0])
    if not IS_SUPPORTED or path.parent != BIN or path.name not in LOADED:
        return None
    with _lock:
        if path.name not in _zygotes:
            _zygotes[path.name] = Owner(path.name).zygote()
        return _zygotes[path.name]
