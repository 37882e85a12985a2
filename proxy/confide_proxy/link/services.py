"""Background services of a process. Each restarts after an error, and none of them ends the
process.

A problem is logged once. While it lasts, `memory_status`, `confide status` and `confide doctor`
show it: the process writes it to a file that it keeps locked. If another process finds such a file
unlocked, its writer has ended, and the file is deleted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto import portable
from confide_crypto.errors import ConfideError, printable, where
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_proxy.locks import lock_file, try_lock

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Longest pause in seconds between two starts of a service that keeps failing."""
SETTLED_S: Final = 10.0
"""Seconds after a restart until a running service counts as healthy."""
STEADY_S: Final = 60.0
"""Seconds of running after which the next restart has the shortest pause again."""
LASTING_S: Final = 10.0
"""Age in seconds below which problems of other processes are not shown: most are comparisons under
way.
"""
MOST: Final = 8
"""Most problems of one process that are shown to others."""
MOST_CHARS: Final = 200
_MOST_BYTES: Final = 16 * 1024
_MOST_FILES: Final = 64
_PREFIX: Final = "services-"


class ServiceProblem(NamedTuple):
    """A problem of a background service.

    Attributes:
        what: a sentence for users.
        project: the project whose files it affects; "" for all.
        since: seconds since 1970.
    """

    what: str
    project: str
    since: float


class ServiceRunner:
    """Runs the background services of one process. It records their problems in a file in `folder`,
    where other processes read them. A process without problems has no file there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._troubles: dict[str, ServiceProblem] = {}
        self._logged_problems: dict[str, str] = {}
        self._file: Path | None = None
        self._fd: int | None = None

    @property
    def troubles(self) -> list[ServiceProblem]:
        """Return the present problems of this process's services."""
        return list(self._troubles.values())

    def problems_of(self, projects: Collection[str]) -> list[str]:
        """Return a sentence for each problem of a background service that affects these projects:
        all problems of this process, and the lasting ones of other processes. Blocks briefly.
        """
        others = [each for each in lasting(self._folder) if each.project in {"", *projects}]
        return list(dict.fromkeys(each.what for each in (*self.troubles, *others)))[:MOST]

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a service until it returns, and restart it after each error. `name` begins the
        sentence that reports its problem.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            settling = asyncio.get_running_loop().call_later(SETTLED_S, self.well, name)
            try:
                await work()
            except Exception as error:
                raise_if_cancelled()
                self.note(name, f"{name} stopped ({reason(error)}) and is tried again")
            else:
                self.well(name)
                return
            finally:
                settling.cancel()
            if time.monotonic() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def attempt(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a piece of work once; log its error instead of raising it."""
        try:
            await work()
        except Exception as error:
            raise_if_cancelled()
            log.warning("%s failed: %s", name, reason(error))

    def note(self, name: str, what: str, *, project: str = "", is_logged: bool = True) -> None:
        """Record and log a problem of the service `name`. The same sentence is logged again only
        after the service has worked.
        """
        what = printable(what)[:MOST_CHARS]
        if is_logged and self._logged_problems.get(name) != what:
            self._logged_problems[name] = what
            log.warning("%s", what)
        before = self._troubles.get(name)
        if before is None or before.what != what:
            self._troubles[name] = ServiceProblem(what, project, before.since if before else time.time())
            self._write()

    def well(self, name: str) -> None:
        """Delete the recorded problem of a service that works again."""
        self._logged_problems.pop(name, None)
        if self._troubles.pop(name, None) is not None:
            self._write()

    def close(self) -> None:
        """Delete the file in which this process reports its problems."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()
        if self._fd is not None:
            os.close(self._fd)
        self._file = self._fd = None

    def _write(self) -> None:
        if not self._troubles:
            self.close()
            return
        # The problem may be that the state folder is not writable: then only this process reports
        # it.
        with suppress(OSError):
            if self._fd is not None and not os.fstat(self._fd).st_nlink:
                self.close()  # another process removed it before it was locked
            if self._fd is None:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file = self._folder / f"{_PREFIX}{os.getpid()}-{id(self):x}.lock"
                self._fd = lock_file(self._file)
                try_lock(self._fd)
            said = json.dumps(self.troubles[:MOST]).encode()
            portable.write_over(self._fd, said)


def reason(error: BaseException) -> str:
    """Describe an error for a log without quoting data. For a bug, the description is the error's
    class and the line of code.
    """
    if isinstance(error, ConfideError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return where(error)


def lasting(folder: Path) -> list[ServiceProblem]:
    """Return the problems that other processes of this device have had for a while, without
    duplicates. Blocks briefly.
    """
    found: dict[str, ServiceProblem] = {}
    before = time.time() - LASTING_S
    for file in sorted(folder.glob(f"{_PREFIX}*.lock"))[:_MOST_FILES]:
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            found |= {each.what: each for each in _read(file) if each.since < before}
    return list(found.values())


def _read(file: Path) -> Iterable[ServiceProblem]:
    fd = os.open(file, os.O_RDONLY | portable.CLOSED | portable.NO_LINK)
    try:
        portable.lock(fd, is_shared=True)
    except BlockingIOError:
        said = json.loads(portable.read_at(fd, _MOST_BYTES, 0) or b"[]")
        return [
            ServiceProblem(printable(str(what)), str(project), float(since)) for what, project, since in said[:MOST]
        ]
    else:
        file.unlink()  # its process was killed
        return []
    finally:
        os.close(fd)
