"""Programs of the operator's that are run with a snapshot: behind each, and to bring one back. Argv, no shell, with a deadline.

What they print goes to the daemon's stderr: it is the operator's own, and says why one has failed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confide_daemon.errors import HookError

END_S: Final = 5.0
"""Between asking one to end and ending it."""
_STDERR: Final = 2


def filled_in(argv: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """The arguments with `{snapshot}`, `{name}` and `{folder}` replaced; other braces are left alone."""
    found = []
    for argument in argv:
        for name, value in places.items():
            argument = argument.replace("{" + name + "}", value)
        found.append(argument)
    return found


async def run(argv: Sequence[str], places: Mapping[str, str], *, timeout_s: float, folder: Path) -> None:
    """Runs one in a folder, until it ends; where that takes too long, or this is cancelled, it is ended with all that it has started.

    Raises HookError: it cannot be started, fails, or takes too long.
    """
    command = filled_in(argv, places)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            stderr=_STDERR,
            cwd=folder,
            start_new_session=True,  # a group of its own, to be ended as one
        )
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or type(error).__name__).lower()
        raise HookError(command[0], f"cannot be started: {why}") from None
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        raise HookError(command[0], f"has not ended within {timeout_s:g} s, and was ended") from None
    except BaseException:
        await _end(process)
        raise
    if code:
        raise HookError(
            command[0], f"has failed: it ended with {code}" if code > 0 else f"was killed by signal {-code}"
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the group, also what of it outlives its first process."""
    # Not `asyncio.timeout`, which does not work in a task that is being cancelled (Python 3.11.2).
    ended = asyncio.ensure_future(process.wait())
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
            break
        deadline = time.monotonic() + END_S
        await asyncio.wait([ended], timeout=END_S)
        while _has_any(process.pid) and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells of the end of a group
            await asyncio.sleep(0.02)
        if not _has_any(process.pid):  # from here on its number may be another's
            break
    await ended


def _has_any(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
