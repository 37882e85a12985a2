"""Notifications to systemd (sd_notify(3)): ready, status, alive, stopping. Each is one datagram.

The daemon reports itself alive only if its event loop runs, as this code does on it, and the writer
thread of every open space answered in time. Free disk space is not required: a daemon on a full
disk still answers, and must not be killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Self

log = logging.getLogger(__name__)

ADDRESS: Final = "NOTIFY_SOCKET"
WITHIN: Final = "WATCHDOG_USEC"
WHO: Final = "WATCHDOG_PID"
PULSES: Final = 4
"""Notifications within systemd's timeout; with WatchdogSec=60 one every 15 s."""
SLOWEST: Final = 2
"""Divisor of the timeout for a writer's answer: with 60 s half, which after the previous
notification leaves a quarter to spare.
"""
STATUS_S: Final = 15.0
"""Interval of status notifications without a watchdog."""
_MOST_STATUS: Final = 200

Writers = Callable[[], Mapping[str, Callable[[], Awaitable[None]]]]
"""Functions by space id, each of which returns once that space's writer thread has answered."""


class WatchdogService:
    """Sends notifications to systemd; does nothing if systemd has not started the daemon."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """Create the service. After `watchdog_s` without a sign of life systemd kills it; 0
        disables this.
        """
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._status = ""
        self._questions: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def of_environment(cls) -> Self:
        """Create the service from the environment variables that systemd sets, and remove these
        variables: child processes are not the service.
        """
        address, within, who = (os.environ.pop(name, "") for name in (ADDRESS, WITHIN, WHO))
        is_ours = within.isdecimal() and who in ("", str(os.getpid()))
        return cls(address if address[:1] in ("/", "@") else "", int(within) / 1e6 if is_ours else 0.0)

    def ready(self) -> None:
        """Notify systemd that the daemon is ready."""
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    async def run(self, status: Callable[[], str], writers: Writers) -> None:
        """Send a status line to systemd, and report regularly that the daemon is alive, until
        cancelled.

        `writers`: returns, for each open space, a function that returns once the space's writer
        thread has answered.
        """
        if not self._address:
            return
        try:
            while True:
                self._say(status())
                if self._watchdog_s and await self._all_answer(writers()):
                    self._tell("WATCHDOG=1")
                await asyncio.sleep(self._watchdog_s / PULSES if self._watchdog_s else STATUS_S)
        finally:
            for task in self._questions.values():
                task.cancel()

    async def _all_answer(self, writers: Mapping[str, Callable[[], Awaitable[None]]]) -> bool:
        for name, answer in writers.items():
            # A writer that has not answered the last probe gets no further one, or probes would
            # pile up.
            if name not in self._questions:
                self._questions[name] = asyncio.ensure_future(_wait_for_answer(answer))
        if not self._questions:
            return True
        done, late = await asyncio.wait(self._questions.values(), timeout=self._watchdog_s / SLOWEST)
        self._questions = {name: task for name, task in self._questions.items() if task not in done}
        if late:
            log.error(
                "%d of %d writers have finished nothing for %.1f s",
                len(late),
                len(late) + len(done),
                self._watchdog_s / SLOWEST,
            )
        return not late

    def _say(self, status: str) -> None:
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status.splitlines()[0][:_MOST_STATUS]}")

    def _tell(self, said: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.setblocking(False)
                sending.sendto(said.encode(), self._address)
        except OSError as error:
            log.warning("systemd was not notified: %s: %s", said.partition("=")[0], error.strerror)


async def _wait_for_answer(answer: Callable[[], Awaitable[None]]) -> None:
    """Await a writer's answer; an error counts as an answer too."""
    try:
        await answer()
    except Exception as error:
        log.warning("a writer could not be asked: %s", type(error).__name__)
