"""Control groups: what all processes of a run may take together. Where this machine gives us none, a run has its time and its disk alone.

Three ways, the first that works: a group below our own, which systemd has delegated to the service (cgroup v2); one in each hierarchy of
cgroup v1, for root; a scope that the user's systemd makes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_night.runner.settings.recipes import RunLimits

_ROOT: Final = Path("/sys/fs/cgroup")
_OURS: Final = "confide-run-"
_LEAF: Final = "confide-runner"
"""Where the runner itself goes in a tree of v2: a group with groups below it may hold no processes."""
_EMPTY_S: Final = 2.0
_ENTER: Final = (
    'for each in $CONFIDE_GROUPS; do echo $$ > "$each/cgroup.procs" || exit 125; done; '
    'unset CONFIDE_GROUPS; ulimit -c 0; exec "$@"'
)
"""Goes into the groups before it becomes the sandbox, so that no process of a run is ever outside of them."""
_SYSTEMD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The group of one run.

    Attributes:
        prefix: what is put before the command that is to be in it.
        environment: what that takes.
        folders: of the group, to be removed behind the run.
    """

    prefix: tuple[str, ...]
    environment: dict[str, str]
    folders: tuple[Path, ...] = ()

    def close(self) -> None:
        """Remove it. Its processes have ended; the kernel may take a moment to notice. Blocks for that."""
        end = time.monotonic() + _EMPTY_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > end:
                        break
                    time.sleep(0.005)
                else:
                    break


def make(run: str, limits: RunLimits) -> ProcessGroup:
    """A group for a run of that name, of letters and digits. Its `prefix` is of use even where there is no group: it allows no core dumps.

    Blocks briefly.
    """
    way = available()
    if way == "systemd":
        scope = ("systemd-run", "--user", "--scope", "--quiet", "--collect", f"--unit={_OURS}{run}")
        held = (f"-pMemoryMax={limits.memory_mib}M", "-pMemorySwapMax=0", f"-pTasksMax={limits.processes}")
        return ProcessGroup((*scope, *held, "--", *_shell(())), _of_systemd())
    folders: list[Path] = []
    if way == "v2":
        folders = _v2(run, limits)
    elif way == "v1":
        folders = _v1(run, limits)
    return ProcessGroup(_shell(folders), {"CONFIDE_GROUPS": " ".join(map(str, folders))}, tuple(folders))


@functools.cache
def available() -> str:
    """Which way there is: `v2`, `v1`, `systemd`; "" for none."""
    if (own := _own_v2()) is not None and os.access(own / "cgroup.procs", os.W_OK) and os.access(own, os.W_OK):
        with contextlib.suppress(OSError):
            _delegate(own)
            return "v2"
    if all(
        os.access(_ROOT / each, os.W_OK) and (_ROOT / each / "cgroup.procs").exists() for each in ("memory", "pids")
    ):
        return "v1"
    if shutil.which("systemd-run"):
        trial = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "true")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if subprocess.run(trial, env=_of_systemd(), capture_output=True, timeout=_SYSTEMD_S).returncode == 0:
                return "systemd"
    return ""


def sweep() -> None:
    """Remove the groups that a runner which was killed has left; what is in use stays."""
    own = _own_v2()
    tops = [_ROOT / "memory", _ROOT / "pids", *([own, own.parent] if own is not None else [])]
    for top in tops:
        with contextlib.suppress(OSError):
            for folder in top.glob(f"{_OURS}*"):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _shell(folders: Sequence[Path]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _ENTER if folders else 'ulimit -c 0; exec "$@"', "sh")


def _of_systemd() -> dict[str, str]:
    named = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "PATH")
    return {name: os.environ[name] for name in named if name in os.environ}


def _own_v2() -> Path | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            number, _, rest = line.partition(":")
            if number == "0" and (_ROOT / "cgroup.controllers").exists():
                return _ROOT / rest.partition(":")[2].lstrip("/")
    return None


def _delegate(own: Path) -> None:
    """Have the controllers in groups below ours. Raises OSError: they were not delegated."""
    if own.name == _LEAF:
        return
    leaf = own / _LEAF
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text(str(os.getpid()))
    (own / "cgroup.subtree_control").write_text("+memory +pids")


def _v2(run: str, limits: RunLimits) -> list[Path]:
    own = _own_v2()
    assert own is not None
    folder = (own.parent if own.name == _LEAF else own) / f"{_OURS}{run}"
    folder.mkdir()
    (folder / "memory.max").write_text(str(limits.memory_mib * 2**20))
    with contextlib.suppress(OSError):  # where there is no swap
        (folder / "memory.swap.max").write_text("0")
    (folder / "pids.max").write_text(str(limits.processes))
    return [folder]


def _v1(run: str, limits: RunLimits) -> list[Path]:
    folders = [_ROOT / kind / f"{_OURS}{run}" for kind in ("memory", "pids")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "memory.limit_in_bytes").write_text(str(limits.memory_mib * 2**20))
    with contextlib.suppress(OSError):
        (folders[0] / "memory.memsw.limit_in_bytes").write_text(str(limits.memory_mib * 2**20))
    (folders[1] / "pids.max").write_text(str(limits.processes))
    return folders
