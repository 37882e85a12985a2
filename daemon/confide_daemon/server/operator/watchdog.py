"""What systemd is told of the service (sd_notify(3)): that it is ready, how it is, that it lives, that it ends. One datagram each.

Life is said only while it means something: the event loop turns, since this runs on it, and the writer's thread of every open space has
come to a question of ours in time. Whether the disk has room is no part of that: a daemon on a full disk still answers, and is not to be
killed for it.
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
"""In the time that systemd waits; with WatchdogSec=60 every 15 s."""
SLOWEST: Final = 2
"""The part of that time in which a writer has to come: of 60 s half, which with the pulse before it leaves a quarter to spare."""
STATUS_S: Final = 15.0
"""Where there is no watchdog."""
_MOST_STATUS: Final = 200

Writers = Callable[[], Mapping[str, Callable[[], Awaitable[None]]]]
"""By an id of ours, what returns once the writer has come to it."""


class WatchdogService:
    """The service as systemd sees it; where systemd has not started it, nobody is told."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """`watchdog_s`: after so long without a sign of life systemd ends it; 0: it never does."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._status = ""
        self._asked: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def of_environment(cls) -> Self:
        """As the environment says, from which it is taken: a command that this process starts is not the service."""
        address, within, who = (os.environ.pop(name, "") for name in (ADDRESS, WITHIN, WHO))
        is_ours = within.isdecimal() and who in ("", str(os.getpid()))
        return cls(address if address[:1] in ("/", "@") else "", int(within) / 1e6 if is_ours else 0.0)

    def ready(self) -> None:
        """It listens."""
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    async def run(self, status: Callable[[], str], writers: Writers) -> None:
        """Say how it is and that it lives, until cancelled; `status` is one line."""
        if not self._address:
            return
        try:
            while True:
                self._say(status())
                if self._watchdog_s and await self._all_answer(writers()):
                    self._tell("WATCHDOG=1")
                await asyncio.sleep(self._watchdog_s / PULSES if self._watchdog_s else STATUS_S)
        finally:
            for task in self._asked.values():
                task.cancel()

    async def _all_answer(self, writers: Mapping[str, Callable[[], Awaitable[None]]]) -> bool:
        for name, answer in writers.items():
            # One that has not come to the last question is not asked more of them, which would pile up.
            if name not in self._asked:
                self._asked[name] = asyncio.ensure_future(_asked(answer))
        if not self._asked:
            return True
        done, late = await asyncio.wait(self._asked.values(), timeout=self._watchdog_s / SLOWEST)
        self._asked = {name: task for name, task in self._asked.items() if task not in done}
        if late:
            log.error(
                "%d of %d writers have not come to anything for %.1f s",
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
            log.warning("systemd was not told %s: %s", said.partition("=")[0], error.strerror)


async def _asked(answer: Callable[[], Awaitable[None]]) -> None:
    """What a writer fails with is not that it does not live."""
    try:
        await answer()
    except Exception as error:
        log.warning("a writer could not be asked: %s", type(error).__name__)
