"""Who answers the hooks of this machine: one process of it, which holds the seat `hooks` for as long as it runs.

Sessions and `confide sync --watch` all try to get it; when its holder ends, for any reason, another gets it and listens. A holder
that is frozen (a client that a person has stopped with Ctrl-Z) would cost every turn of the others a hook's whole time: another listens
in its place, and the frozen one lets go when it goes on.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from pathlib import Path
from typing import Final

from confide_proxy.hooks.server.prompt_listener import PromptListener
from confide_proxy.hooks.server.recall import PromptRecall
from confide_proxy.link.daemon_link import Link
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing

log = logging.getLogger(__name__)

NAME: Final = "hooks"
AGAIN_S: Final = 1.0
PULSE_S: Final = 1.0
SILENT_S: Final = 5.0
"""A holder that has shown no life for so long is frozen."""


class Hooks:
    """Answers hooks while it has the seat."""

    def __init__(self, paths: ProxyPaths, link: Link, sealing: SessionSealing, folders: list[Path]) -> None:
        self._paths = paths
        self._link = link
        self._sealing = sealing
        self._folders = folders

    async def run(self) -> None:
        """Answer hooks until cancelled. Raises OSError: the seat or the socket cannot be had."""
        while True:
            seat = Seat(self._paths.seats, NAME)
            try:
                await _wait_for(seat)
                await self._hold(seat)
            finally:
                seat.leave()
            await asyncio.sleep(SILENT_S)

    async def _hold(self, seat: Seat) -> None:
        """Listen for as long as hooks find this process."""
        # Imported late: all sessions look for the seat, and one of them needs what answers, with a megabyte of Unicode's tables.
        answers = await asyncio.to_thread(importlib.import_module, "confide_proxy.hooks.server.recall")
        sockets = await asyncio.to_thread(importlib.import_module, "confide_proxy.hooks.server.prompt_listener")
        recall: PromptRecall = answers.PromptRecall(self._paths, self._link, self._sealing, self._folders)
        listener: PromptListener = sockets.PromptListener(str(self._paths.state), recall.answer)
        await recall.begin()
        await listener.open()
        was_up = False
        try:
            while listener.is_in_place():
                if seat.try_take():
                    seat.show_life()
                is_up = bool(self._link.is_up)
                if is_up and not was_up:
                    recall.on_up()
                was_up = is_up
                await asyncio.sleep(PULSE_S)
        finally:
            recall.end()
            listener.close()


async def _wait_for(seat: Seat) -> None:
    """Until the seat is ours, or its holder is frozen. Raises OSError: there can be no seats here."""
    looks = 0
    while not seat.try_take():
        # Seen twice, since a holder that has just sat down shows its first life a moment later.
        looks = looks + 1 if seat.silent_s() > SILENT_S else 0
        if looks > 1:
            return
        await asyncio.sleep(AGAIN_S)
