"""A process that keeps calls in a journal and is killed at a chosen system call: its n-th write, fsync, rename, unlink or truncate.

Each line of its standard input is one such life, in a fork: (append | replay) STEP FOLDER. When it is over it says `over CODE`.
`append` keeps calls and says `kept ID` after each; `replay` takes each one out, having noted its id in FOLDER/../made first, as a
daemon does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.offline.operations import new_id

CALLS = 6


def die_at(step: int) -> None:
    """Count the steps that touch the disk; kill -9 before the given one."""
    left = step

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return counting

    for name in ("write", "fsync", "replace", "rename", "unlink", "ftruncate", "link"):
        setattr(os, name, counted(getattr(os, name)))


def append(journal: Journal) -> None:
    for number in range(CALLS):
        entry = call(number)
        journal.append(entry)
        print(f"kept {entry.id} {number}", flush=True)


def replay(journal: Journal, made: Path) -> None:
    while entry := journal.first():
        if entry.arguments["content"].endswith("3"):
            journal.refuse(entry, "denied", "no")
            continue
        known = made.read_text().split() if made.exists() else []
        if entry.id not in known:  # once by its id
            with made.open("a") as file:
                file.write(entry.id + "\n")
        journal.remove_applied(entry.id)


def call(number: int) -> QueuedCall:
    return QueuedCall(
        new_id(), time.time(), "2026-11-21T10:00:00+00:00", "p", "memory_store", "a.md", "p", {"content": f"- {number}"}
    )


def live(what: str, step: int, folder: Path) -> None:
    journal = Journal(folder)
    die_at(step)
    if what == "append":
        append(journal)
    else:
        replay(journal, folder.parent / "made")
    print("finished", flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        what, step, folder = line.rstrip("\n").split(" ", 2)
        pid = os.fork()
        if pid == 0:
            try:
                live(what, int(step), Path(folder))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print("over", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
