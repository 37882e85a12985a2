"""Run steps for the files of a folder concurrently: a few at once, none interrupted halfway. If one
fails, the others continue.
"""

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
"""Error codes that concern one file: it is skipped and reported, and the others continue."""
_UNAVAILABLE: Final = "unavailable"
"""Error code for a missing dependency of a file, such as the store of its sealed records: the
others continue, and the file is compared again.
"""
_MOST_UNAVAILABLE: Final = 64
"""Number of files with that error after which the rest is given up."""

Step = Callable[[str, SyncReport], Awaitable[None]]
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


async def through(
    work: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs
) -> _Result:
    """Run a function in a thread, and wait until it ends even if this task is cancelled, so that no
    other task interferes. Cancellation is raised afterwards.

    The task may be cancelled several times, because a connection that breaks cancels its handlers
    more than once.
    """
    running = asyncio.create_task(asyncio.to_thread(work, *arguments, **named))
    is_cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        if not running.cancelled():
            running.exception()  # retrieve it, since no caller is left to get it
        raise asyncio.CancelledError
    return running.result()


class Steps:
    """Runs steps that transfer the files of a folder, one step per file. At most `AT_ONCE` run at a
    time, even if several comparisons overlap.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, steps: list[tuple[str, Step]], report: SyncReport, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Run each step with its path. `progress` is called with (steps done, steps in total).

        Raises RequestError or ConnectionLost if the daemon cannot be reached. A RequestError with
        the code `unavailable` is raised only after the other steps.
        """
        unavailable: list[RequestError] = []
        waiting = iter(steps)
        done = 0

        async def work() -> None:
            nonlocal done
            for path, run in waiting:
                async with self._slots:
                    try:
                        await _run_step(path, run, report)
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


async def _run_step(path: str, run: Step, report: SyncReport) -> None:
    try:
        await run(path, report)
    except FolderError as error:
        report.skip(path, error)
    except TimeoutError:
        report.skipped.append({"path": path, "reason": "was not answered in time; it is compared again"})
        report.failed += 1
        report.is_unsettled = True
    except OSError as error:
        # The ledger cannot be written, most often on a full disk; the file is compared again.
        report.refuse(path, f"cannot be recorded: {error.strerror}")
        report.is_unsettled = True
    except RequestError as error:
        if error.code not in _FILE_CODES:
            raise
        report.skipped.append({"path": path, "reason": str(error)})
