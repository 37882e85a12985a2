"""The runner's main loop: connects to the daemon and executes one slot after the other, or a single
one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from confide_crypto import heaps
from confide_crypto.errors import ConfideError, KeyFileError, LinkError, RequestError
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.wire.session import Attached
from confide_night.errors import RunnerError
from confide_night.order.wire import NEWS
from confide_night.runner import trial
from confide_night.runner.books import Begun, MovedSpaces, RunLedger
from confide_night.runner.run import Result
from confide_night.runner.sandbox import bubblewrap, disk_use, groups
from confide_night.runner.settings.recipes import Recipe, RunnerSettings
from confide_night.runner.supervisor import Supervisor
from confide_proxy.config import ProxyConfig
from confide_proxy.link.connection_terms import attach_body
from confide_proxy.link.daemon_link import Callbacks, Link
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing

log = logging.getLogger(__name__)

FOLDER: Final = "runner"
"""The runner's folder below the proxy's state folder."""
UP_S: Final = 30.0
"""Seconds to wait for the daemon if the runner executes a single slot."""
_PAUSE_S: Final = 30.0
"""Seconds to wait after something prevented a claim."""
_GOODBYE_S: Final = 1.0


def folder_of(paths: ProxyPaths) -> Path:
    """Return the folder of a runner's own files."""
    return paths.state / FOLDER


class RunnerService:
    """The runner; executes slots until cancelled, or until it has executed one."""

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, settings: RunnerSettings) -> None:
        """Raises RunnerError if another runner is active on this device; StateError or KeyFileError
        if its files are unusable.
        """
        self._settings = settings
        self._folder = folder_of(paths)
        self._ledger = RunLedger(self._folder)
        self._moved_spaces = MovedSpaces(paths)
        machine = MachineKeys(paths)
        self._sealing = SessionSealing(paths, config, machine)
        callbacks = Callbacks(
            on_up=self._on_up,
            on_request=self._on_request,
            on_stream=_refuse_stream,
            on_down=self._on_down,
            on_renewed=self._on_up,
            on_locked=self._sealing.keyring.unlock,
        )
        # Tasks need no project, but the link requires one; no copy of it is kept here.
        self._link = Link(paths, config, [attach_body(GLOBAL_PROJECT, config)], callbacks, machine)
        self.supervisor = Supervisor(self._link, self._sealing, settings, self._ledger, self._folder)
        self._is_up = asyncio.Event()
        self._news = asyncio.Event()
        self._attached: Attached | None = None
        self.tell: Callable[[str], None] = lambda _line: None
        """Callback for messages to the user about what prevents work."""
        self._last_report = ""
        self._looking: asyncio.Task[None] | None = None
        self._is_ending = False

    async def run(self, *, once: bool = False) -> str | None:
        """Execute due slots. With `once`, return the final state of the first slot, or None if none
        was due.

        Raises RunnerError if no sandbox or no recipe works here, or a library is missing; with
        `once` also any error of the connection.
        """
        trial.check_libraries()
        heaps.share(1)
        await asyncio.to_thread(self._clear)
        works = await trial.sandbox_works(self._folder)
        if works is not None:
            raise works
        recipes = [each for each in self._settings.recipes.values() if trial.why_not(each, self._settings) is None]
        if not recipes:
            raise RunnerError("none of the recipes works on this device", hint="confide task runner --check says why")
        keeping = [asyncio.create_task(self._link.run()), asyncio.create_task(self._sealing.attend(self._look_again))]
        working = asyncio.create_task(self._work(recipes, once=once))
        try:
            await asyncio.wait({working, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (working, *keeping):
                if task.done():
                    found = task.result()
                    return found if isinstance(found, str) else None
            raise AssertionError("one of them has ended")
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            with suppress(TimeoutError, ConfideError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._link.close()
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            await asyncio.to_thread(self._ledger.close)

    def stop(self) -> None:
        """Claim no further slot, stop the current run and report it to the daemon as lost."""
        self._is_ending = True
        self.supervisor.stop("its runner was stopped")
        self._is_up.set()
        self._news.set()

    async def _work(self, recipes: list[Recipe], *, once: bool) -> str | None:
        if once:
            await self._on_connected()
        has_recovered = is_resting = False
        while True:
            await self._is_up.wait()
            if self._is_ending:
                return None
            self._news.clear()
            try:
                if not has_recovered:
                    lost = await self.supervisor.recover()
                    has_recovered = True
                    for begun in lost:
                        self.tell(f"{begun.slot} was begun here and did not end: lost")
                wait_s = _PAUSE_S
                if (problem := await asyncio.to_thread(self._in_the_way)) is None:
                    slot, wait_s = await self.supervisor.claim(recipes)
                    self._last_report = ""
                    if slot is not None:
                        state = await self.supervisor.work(slot)
                        is_resting = False
                        if once:
                            return state
                        continue
                elif problem != self._last_report:
                    self._last_report = problem
                    self.tell(f"nothing is claimed: {problem}")
                if once:
                    return None
            except (LinkError, TimeoutError) as error:
                if once:
                    raise
                log.info("the daemon did not answer: %s", type(error).__name__)
                wait_s = 1.0
            except ConfideError as error:
                # For example a full disk or a locked space; the ledger has every started run.
                self._hear(error)
                if once:
                    raise
                wait_s = _PAUSE_S
                if str(error) != self._last_report:
                    self._last_report = str(error)
                    self.tell(f"nothing is claimed: {error}")
            if not is_resting:
                await asyncio.to_thread(_rest)
                is_resting = True
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    def _in_the_way(self) -> str | None:
        """Return the reason that prevents this runner from claiming now; None if it may claim."""
        keyring = self._sealing.keyring
        if keyring.keys is None:
            return str(keyring.problem)
        if (why := self._moved_spaces.why()) is not None:
            return why
        free = disk_use.free_mib(self._folder)
        if free < self._settings.limits.free_mib:
            return f"the disk has {free:,} MiB left, and free_mib is {self._settings.limits.free_mib:,}"
        return None

    async def _on_connected(self) -> None:
        try:
            async with asyncio.timeout(UP_S):
                await self._is_up.wait()
        except TimeoutError:
            raise self._link.reason or LinkError("the daemon did not answer in time") from None

    def _clear(self) -> None:
        """Remove what a killed runner left behind. Safe, since only one runner at a time has this
        folder (`RunLedger`).
        """
        bubblewrap.sweep(self._folder / "work")
        groups.sweep()
        disk_use.remove(self._folder / "work")

    # The link

    async def _on_up(self, attached: Attached) -> None:
        self._attached = attached
        await self._sealing.open(self._link, attached)
        self._is_up.set()
        self._news.set()
        self.supervisor.on_connected()

    def _on_down(self, reason: ConfideError) -> None:
        self._is_up.clear()
        self._hear(reason)
        if str(reason) != self._last_report:
            self._last_report = str(reason)
            self.tell(f"no daemon: {reason}")

    def _hear(self, reason: ConfideError) -> None:
        # If the disk fails now, the next attempt can record it: the daemon repeats its answer each
        # time.
        with suppress(KeyFileError):
            self._moved_spaces.hear(reason, self._link.daemon_static, now=time.time())

    async def _look_again(self) -> None:
        await self._sealing.look_again(self._link)
        self._news.set()

    async def _on_request(self, op: str, body: dict[str, object]) -> dict[str, object]:
        if op == NEWS.name:
            news = NEWS.read(body)
            self.supervisor.cancel(news["cancelled"])
            if news["ready"]:
                self._news.set()
            return {}
        if op == "roster":
            self._looking = asyncio.create_task(self._look_again())
            return {}
        raise RequestError("invalid", "a runner does not do that")


def _rest() -> None:
    """Release memory after a run: a runner waits for weeks, and its runs are other processes."""
    gc.collect()
    heaps.give_back()
    heaps.give_back_files()


async def _refuse_stream(_op: str, _params: dict[str, object], _body: Any) -> dict[str, object]:
    raise RequestError("invalid", "a runner does not do that")


def end_message(begun: Begun, state: str, result: Result) -> str:
    """Return a line for the user about a run that ended."""
    cost = f", ${result.usd:.2f}" if result.usd else ""
    why = f": {result.reason}" if result.reason else ""
    return f"{begun.slot} {state}{why} ({result.took_s:.0f} s{cost})"
