"""The command `confided stop`, and the log lines that `confided status --log` shows."""

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
"""The name under which configs/confided.service is installed."""
STOP_S: Final = 30.0
"""Seconds for running calls to end and databases to close."""
_LOOK_S: Final = 0.1
_FOLLOW_S: Final = 0.5
MOST_LINES: Final = 100_000


@command
def stop(
    here: CommandContext,
    wait: Annotated[float, typer.Option("--wait", min=0, max=600, help="Seconds to wait until it has ended.")] = STOP_S,
) -> Output:
    """Stop the daemon of this data folder.

    It finishes the calls that run.
    """
    lock = here.paths.data.lock
    found = instance.read(here.paths.data.address)
    if found is None or not _is_held(lock):
        return Output({"stopped": False, "pid": None}, ["confided is not running"])
    with contextlib.suppress(ProcessLookupError):
        if not _may_be_ours(found.pid):
            # A killed daemon leaves its address file, and another program may have its process id
            # by now.
            raise ConfideError(
                "a process that is not a daemon uses the folder",
                hint="another confided command may be running; try again",
            )
        os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + wait
    while _is_held(lock):
        if time.monotonic() >= deadline:
            raise ConfideError(
                f"confided (process {found.pid}) has not ended within {wait:g} s",
                hint="it finishes the calls that run; wait longer with --wait, or see confided status --log",
            )
        time.sleep(_LOOK_S)
    notes = []
    if shutil.which("systemctl") and _is_of_unit():
        notes = [f"note: systemd may start it again; to prevent that: systemctl --user disable --now {UNIT}"]
    return Output({"stopped": True, "pid": found.pid}, [f"stopped: process {found.pid}"], notes)


def log_lines(here: CommandContext, lines: int, *, follow: bool) -> Output | None:
    """Return the last lines of the log of a daemon that was started on demand. For another daemon,
    run `journalctl` for its systemd unit.

    At a terminal, the lines are printed here and None is returned. Raises ConfideError if there is
    no log.
    """
    log = here.paths.data.log
    if not log.exists():
        if (journal := shutil.which("journalctl")) and _is_of_unit():
            if here.is_quiet:
                return Output({"unit": UNIT, "path": None, "lines": []})
            options = ["-f"] if follow else ["--no-pager"]
            os.execv(journal, [journal, "--user-unit", UNIT, "-n", str(lines), *options])  # noqa: S606 - no shell
        error = ConfideError(
            "there is no log: this folder has no daemon that was started on demand, and no systemd unit",
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
    """Return whether a process has the lock of the folder."""
    if not lock.exists():
        return False
    taken = DaemonLock.take(lock)
    if taken is None:
        return True
    taken.release()
    return False


def _may_be_ours(pid: int) -> bool:
    """Return whether the process with this number can be the daemon; True if the system does not
    show its command line.
    """
    try:
        return b"confide" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self").exists()


def _is_of_unit() -> bool:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return any((folder / UNIT).exists() for folder in (config / "systemd/user", Path("/etc/systemd/user")))


def _last(log: Path, count: int) -> tuple[list[str], int]:
    """Return the last lines, also from the file before the last rotation, and the position of their
    end.

    Control characters are replaced: libraries write there too.
    """
    kept: deque[str] = deque(maxlen=count)
    end = 0
    for path in (log.with_name(f"{log.name}.1"), log):
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
            kept.extend(printable(line.rstrip("\n")) for line in file)
            end = file.tell()
    return list(kept), end


def _follow(log: Path, end: int) -> None:
    """Print what is appended after `end` until Ctrl-C; after a rotation, print the new file."""
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
