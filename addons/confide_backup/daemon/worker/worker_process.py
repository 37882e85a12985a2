"""Starts the worker process for copying and verifying, and sends it requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_daemon import errors
from confide_daemon.errors import StorageError

STALL_S: Final = 900.0
"""Seconds without an answer after which a worker counts as hanging, such as on a network disk.
SQLite's check of one large table is the longest silent step.
"""
END_S: Final = 5.0
_MOST_LINE: Final = 1 << 20
_KNOWN: Final = {kind.__name__: kind for kind in (errors.StorageError, errors.DamagedError, errors.WrongKeyError)}

Follow = Callable[[int], None]
"""Called with the number of bytes read."""


class RefusedError(Exception):
    """An error of the operating system on a file, with its `number` (errno) and its message `why`."""

    def __init__(self, number: int | None, why: str) -> None:
        super().__init__(why)
        self.number = number
        self.why = why


class Worker:
    """A worker process, which runs one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, what: str, *, follow: Follow = lambda _read: None, **asked: Any) -> dict[str, Any]:
        """Run a request in the worker process and return its result.

        Raise StorageError, DamagedError or WrongKeyError if the request fails with it, StorageError
        if the process has ended or does not answer, and RefusedError if the operating system
        refuses access to a file.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": what, **asked}).encode() + b"\n")
            await stdin.drain()
            while True:
                async with asyncio.timeout(STALL_S):
                    line = await stdout.readline()
                if not line:
                    raise StorageError("the process that makes backups has ended", hint="it is tried again")
                data = json.loads(line)
                if "read" in data:
                    follow(int(data["read"]))
                    continue
                break
        except TimeoutError:
            raise StorageError("the process that makes backups hangs", hint="does the disk answer?") from None
        except OSError:
            raise StorageError("the process that makes backups has ended", hint="it is tried again") from None
        if "ok" in data:
            return dict(data["ok"])
        error = data["error"]
        if error["kind"] == "OSError":
            raise RefusedError(error["errno"], error["message"])
        raise _KNOWN.get(error["kind"], ConfideError)(error["message"], hint=error["hint"])


@asynccontextmanager
async def working() -> AsyncIterator[Worker]:
    """Start a worker process, and end it after the context. On an error, kill it at once."""
    process = await _start()
    is_done = False
    try:
        yield Worker(process)
        is_done = True
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        # `asyncio.timeout` does not work in a task that is being cancelled (Python 3.11.2).
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait([ended], timeout=END_S if is_done else 0)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await ended


async def _start() -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "confide_backup.daemon.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MOST_LINE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would lose a process that is still starting, and it would keep running.
        process = await starting
        process.kill()
        await process.wait()
        raise
