"""`confided stop` and `logs`: the running daemon of the data folder, ended and listened to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections import deque
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import EXIT_UNREACHABLE, ConfideError, printable
from confide_daemon.cli.console import CommandContext, Output, command, remark, say
from confide_daemon.datadir import instance
from confide_daemon.datadir.instance import DaemonLock

UNIT: Final = "confided.service"
"""As configs/confided.service is installed."""
STOP_S: Final = 30.0
"""Running calls get some seconds, and databases are closed."""
_LOOK_S: Final = 0.1
_FOLLOW_S: Final = 0.5
_MOST_LINES: Final = 100_000


@command
def stop(
    here: CommandContext,
    wait: Annotated[float, typer.Option("--wait", min=0, max=600, help="Seconds to wait for its end.")] = STOP_S,
) -> Output:
    """Stop the daemon of this data folder: what runs is finished, then it ends."""
    lock = here.paths.data.lock
    found = instance.read(here.paths.data.address)
    if found is None or not _is_held(lock):
        return Output({"stopped": False, "pid": None}, ["confided is not running"])
    with contextlib.suppress(ProcessLookupError):
        if not _may_be_ours(found.pid):
            # A killed daemon leaves its address behind, and its number may be another program's by now.
            raise ConfideError(
                "the folder is in use by a process that has written no address",
                hint="another confided command may be at work; try again",
            )
        os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + wait
    while _is_held(lock):
        if time.monotonic() >= deadline:
            raise ConfideError(
                f"confided (process {found.pid}) has not ended within {wait:g} s",
                hint="it is told to stop, and finishes what runs; wait longer with --wait, or see confided logs",
            )
        time.sleep(_LOOK_S)
    notes = []
    if shutil.which("systemctl") and _is_of_unit():
        notes = [f"note: systemd may start it again; to keep it stopped: systemctl --user disable --now {UNIT}"]
    return Output({"stopped": True, "pid": found.pid}, [f"stopped: process {found.pid}"], notes)


@command
def logs(
    here: CommandContext,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, max=_MOST_LINES, help="How many of the last lines.")
    ] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes.")] = False,
) -> Output | None:
    """Show the daemon's last log lines: of the one that was started on demand, else of its systemd unit."""
    log = here.paths.data.log
    if not log.exists():
        if (journal := shutil.which("journalctl")) and _is_of_unit():
            if here.is_quiet:
                return Output({"unit": UNIT, "path": None, "lines": []})
            options = ["-f"] if follow else ["--no-pager"]
            os.execv(journal, [journal, "--user-unit", UNIT, "-n", str(lines), *options])  # noqa: S606 - no shell
        error = ConfideError(
            "there is no log here: no daemon was started on demand in this folder, and none by systemd",
            hint="confided serve writes its log to its own terminal",
        )
        error.exit_code = EXIT_UNREACHABLE
        raise error
    found, end = _last(log, lines)
    if here.is_quiet:
        return Output({"unit": None, "path": str(log), "lines": found})
    remark(f"{log}:")
    for line in found:
        say(line)
    if follow:
        _follow(log, end)
    return None


def _is_held(lock: Path) -> bool:
    """Whether a process has the lock of the folder."""
    if not lock.exists():
        return False
    taken = DaemonLock.take(lock)
    if taken is None:
        return True
    taken.release()
    return False


def _may_be_ours(pid: int) -> bool:
    """Whether a process of that number can be the daemon, as far as the system tells."""
    try:
        return b"confide" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


def _is_of_unit() -> bool:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return any((folder / UNIT).exists() for folder in (config / "systemd/user", Path("/etc/systemd/user")))


def _last(log: Path, count: int) -> tuple[list[str], int]:
    """The last lines, of the file before it too where it was turned over a moment ago, and where they end in the file. What a library or
    a native error has written there steers no terminal."""
    kept: deque[str] = deque(maxlen=count)
    end = 0
    for path in (log.with_name(f"{log.name}.1"), log):
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
            kept.extend(printable(line.rstrip("\n")) for line in file)
            end = file.tell()
    return list(kept), end


def _follow(log: Path, end: int) -> None:
    """Until Ctrl-C, from there on: nothing that is written meanwhile is left out. A file that is turned over is followed by the new one."""
    file = log.open(encoding="utf-8", errors="replace")
    file.seek(end)
    while True:
        if text := file.read():
            typer.echo("\n".join(map(printable, text.split("\n"))), nl=False)
            continue
        time.sleep(_FOLLOW_S)
        with contextlib.suppress(FileNotFoundError):
            if log.stat().st_ino != os.fstat(file.fileno()).st_ino:
                file.close()
                file = log.open(encoding="utf-8", errors="replace")
