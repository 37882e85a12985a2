"""Control groups that limit the memory and number of all processes of a run. If none is available,
only the limits of time and disk apply.

Uses the first available of three ways: a group below the runner's own, which systemd delegated to
the service (cgroup v2); one in each hierarchy of cgroup v1, for root; a scope of the user's
systemd.
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
"""Group that the runner itself moves to under v2, since a group with child groups may not contain
processes.
"""
_EMPTY_S: Final = 2.0
_ENTER: Final = (
    'for each in $CONFIDE_GROUPS; do echo $$ > "$each/cgroup.procs" || exit 125; done; '
    'unset CONFIDE_GROUPS; ulimit -c 0; exec "$@"'
)
"""Shell script that joins the groups before it executes the sandbox, so that no process of a run is
ever outside of them.
"""
_SYSTEMD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The control group of one run.

    Attributes:
        prefix: arguments to put before the command.
        environment: variables that the prefix needs.
        folders: folders of the group, to be removed after the run.
    """

    prefix: tuple[str, ...]
    environment: dict[str, str]
    folders: tuple[Path, ...] = ()

    def close(self) -> None:
        """Remove the group after its processes have ended. Blocks until the kernel has noticed, for
        up to `_EMPTY_S`.
        """
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
    """Create a group for a run, whose name has letters and digits only. Without control groups, the
    `prefix` still disables core dumps.

    Blocks briefly.
    """
    way = available()
    if way == "systemd":
        scope = ("systemd-run", "--user", "--scope", "--quiet", "--collect", f"--unit={_OURS}{run}")
        held = (f"-pMemoryMax={limits.memory_mib}M", "-pMemorySwapMax=0", f"-pTasksMax={limits.processes}")
        return ProcessGroup((*scope, *held, "--", *_shell(())), _systemd_environment())
    folders: list[Path] = []
    if way == "v2":
        folders = _v2(run, limits)
    elif way == "v1":
        folders = _v1(run, limits)
    return ProcessGroup(_shell(folders), {"CONFIDE_GROUPS": " ".join(map(str, folders))}, tuple(folders))


@functools.cache
def available() -> str:
    """Return which of the three ways this device has: `v2`, `v1`, `systemd`; "" for none."""
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
            if (
                subprocess.run(trial, env=_systemd_environment(), capture_output=True, timeout=_SYSTEMD_S).returncode
                == 0
            ):
                return "systemd"
    return ""


def sweep() -> None:
    """Remove the groups that a killed runner left behind, except those in use."""
    own = _own_v2()
    tops = [_ROOT / "memory", _ROOT / "pids", *([own, own.parent] if own is not None else [])]
    for top in tops:
        with contextlib.suppress(OSError):
            for folder in top.glob(f"{_OURS}*"):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _shell(folders: Sequence[Path]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _ENTER if folders else 'ulimit -c 0; exec "$@"', "sh")


def _systemd_environment() -> dict[str, str]:
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
    """Enable the controllers in child groups. Raises OSError if they were not delegated."""
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
    with contextlib.suppress(OSError):  # fails without swap
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
