"""What is done with the files of a folder: a few at once, none half done, and none that fails keeps another back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, TypeVar

from confide_crypto.errors import RequestError
from confide_crypto.transport.task_group import TaskGroup
from confide_proxy.errors import FolderError
from confide_proxy.sync.ledger import SyncReport

AT_ONCE: Final = 4
_FILE_CODES: Final = frozenset({"invalid", "too_large", "not_found", "denied"})
"""Answers that are about one file: it is skipped and reported, and the others go on."""
_UNAVAILABLE: Final = "unavailable"
"""What a file needs is away, such as the place of its sealed records: the others go on, and it is compared again."""
_MOST_UNAVAILABLE: Final = 64
"""Files that are not taken now; then it is left, since nothing may be there."""

Step = Callable[[str, SyncReport], Awaitable[None]]
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


async def through(
    work: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
) -> _Result:
    """Run in a thread what is not to be left half done: whoever is cancelled, however often, waits for it, so that nobody else comes in
    between. A connection that breaks cancels its handlers more than once."""
    running = asyncio.create_task(asyncio.to_thread(work, *arguments, **named))
    is_cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not running.cancelled():
            running.exception()  # looked at: nobody is left to be told
        raise asyncio.CancelledError
    return running.result()


class Steps:
    """Those of one folder, a file each, of which none keeps another back: however many comparisons there are, `AT_ONCE` run at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, steps: list[tuple[str, Step]], report: SyncReport, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Run each with its path; `progress` is told (steps done, steps in all).

        Raises RequestError, ConnectionLost: from the link; `unavailable`, once the others are done.
        """
        unavailable: list[RequestError] = []
        waiting = iter(steps)
        done = 0

        async def work() -> None:
            nonlocal done
            for path, run in waiting:
                async with self._slots:
                    try:
                        await _guarded(path, run, report)
                    except RequestError as error:
                        unavailable.append(error)
                        if error.code != _UNAVAILABLE or len(unavailable) == _MOST_UNAVAILABLE:
                            raise
                done += 1
                if progress:
                    progress(done, len(steps))

        async with TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(steps))):
                group.create_task(work())
        if unavailable:
            raise unavailable[0]


async def _guarded(path: str, run: Step, report: SyncReport) -> None:
    try:
        await run(path, report)
    except FolderError as error:
        report.skip(path, error)
    except TimeoutError:
        report.skipped.append({"path": path, "reason": "was not answered in time; it is compared again"})
        report.failed += 1
        report.is_unsettled = True
    except OSError as error:
        # This machine's own notes, most often on a full disk; the file is compared again.
        report.skipped.append({"path": path, "reason": f"cannot be recorded: {error.strerror}"})
        report.failed += 1
        report.is_unsettled = True
    except RequestError as error:
        if error.code not in _FILE_CODES:
            raise
        report.skipped.append({"path": path, "reason": str(error)})
