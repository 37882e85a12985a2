"""The worker's process, as whoever has something copied or proven sees it."""

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
"""Without a word from it: a disk that hangs, as a network's does. The longest that says nothing is SQLite's check of one large table."""
END_S: Final = 5.0
_MOST_LINE: Final = 1 << 20
_KNOWN: Final = {kind.__name__: kind for kind in (errors.StorageError, errors.DamagedError, errors.WrongKeyError)}

Follow = Callable[[int], None]
"""Told how many bytes are read."""


class RefusedError(Exception):
    """The system refused something at a file; `errno` as it says, `why` in words."""

    def __init__(self, number: int | None, why: str) -> None:
        super().__init__(why)
        self.number = number
        self.why = why


class Worker:
    """Does one thing after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, what: str, *, follow: Follow = lambda _read: None, **asked: Any) -> dict[str, Any]:
        """Has it do something; what came of it.

        Raises StorageError, DamagedError, WrongKeyError: as it met them, or it has ended, or hangs; RefusedError.
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
                told = json.loads(line)
                if "read" in told:
                    follow(int(told["read"]))
                    continue
                break
        except TimeoutError:
            raise StorageError("the process that makes backups hangs", hint="does the disk answer?") from None
        except OSError:
            raise StorageError("the process that makes backups has ended", hint="it is tried again") from None
        if "ok" in told:
            return dict(told["ok"])
        error = told["error"]
        if error["kind"] == "OSError":
            raise RefusedError(error["errno"], error["message"])
        raise _KNOWN.get(error["kind"], ConfideError)(error["message"], hint=error["hint"])


@asynccontextmanager
async def working() -> AsyncIterator[Worker]:
    """A worker, until the end of this; cut off, it stops in the middle of what it does."""
    process = await _started()
    is_done = False
    try:
        yield Worker(process)
        is_done = True
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        # Not `asyncio.timeout`, which does not work in a task that is being cancelled (Python 3.11.2).
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait([ended], timeout=END_S if is_done else 0)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await ended


async def _started() -> asyncio.subprocess.Process:
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
        # asyncio would forget one that is half started, and it would be nobody's.
        process = await starting
        process.kill()
        await process.wait()
        raise
