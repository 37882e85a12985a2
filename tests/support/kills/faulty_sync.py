"""A machine's sync that is killed, or told that the disk is full, at its n-th step on the disk.

    python -m tests.support.kills.faulty_sync HOME PROJECT

Reads lines `kill N`, `full N` or `whole 0` from stdin, forks for each, and answers with one line: how the sync ended (`killed`, `done N`
where N is how many steps there were, `failed CLASS`) . Real files, a real daemon, and a process that dies as by `kill -9`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confide_proxy import paths
from confide_proxy.config import ProxyConfig
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync import project as projects

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "replace", "mkdir", "rmdir")
"""The functions of `os` by which anything gets onto the disk."""


class Disk:
    """Counts steps that change the disk below some folders' names, and fails at one of them."""

    def __init__(self, kind: str, at: int) -> None:
        self.count = 0
        self._kind = kind
        self._at = at
        for name in STEPS:
            setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            flags = arguments[1] if name == "open" and len(arguments) > 1 else os.O_CREAT
            path = str(arguments[0])
            is_on_disk = path.startswith("/dev/shm/") or not path.startswith(("/proc/", "/dev/"))
            if flags & os.O_CREAT and is_on_disk:
                self.count += 1
                if self.count == self._at:
                    if self._kind == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if name not in ("unlink", "rmdir"):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return step


async def sync(home: Path, project: Path) -> None:
    os.environ["CONFIDE_HOME"] = str(home)
    async with CommandClient(paths.find(), ProxyConfig(), projects.identify(project).grant()) as client:
        await client.files.compare()


def run(home: Path, project: Path, kind: str, at: int, answer: int) -> None:
    disk = Disk(kind, at)
    try:
        asyncio.run(sync(home, project))
    except BaseException as error:
        if not isinstance(error, OSError) and kind == "whole":
            traceback.print_exc()
        os.write(answer, f"failed {type(error).__name__}\n".encode())
        os._exit(0)
    text = f"done {disk.count}\n".encode()
    disk._at = 0
    os.write(answer, text)
    os._exit(0)


def main() -> None:
    home, project = map(Path, sys.argv[1:])
    for line in sys.stdin:
        kind, at = line.split()
        pid = os.fork()
        if pid == 0:
            run(home, project, kind, int(at), 1)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)


if __name__ == "__main__":
    main()
