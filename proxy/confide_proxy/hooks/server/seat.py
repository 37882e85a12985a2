"""The seat `hooks`: one process of this device holds it while it runs, and answers all hooks.

Sessions and `confide sync --watch` all try to get it; when the holder ends, another gets it and
listens. A suspended holder (a client stopped with Ctrl-Z) would cost the others a hook's timeout in
every turn, so another process listens instead, and the suspended one gives up when it continues.
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
"""A holder that has shown no sign of life for this long is suspended."""


class Hooks:
    """Answers hooks while this process holds the seat."""

    def __init__(self, paths: ProxyPaths, link: Link, sealing: SessionSealing, folders: list[Path]) -> None:
        self._paths = paths
        self._link = link
        self._sealing = sealing
        self._folders = folders

    async def run(self) -> None:
        """Answer hooks until cancelled. Raises OSError if the seat or the socket is unavailable."""
        while True:
            seat = Seat(self._paths.seats, NAME)
            try:
                await _wait_for(seat)
                await self._hold(seat)
            finally:
                seat.leave()
            await asyncio.sleep(SILENT_S)

    async def _hold(self, seat: Seat) -> None:
        """Listen as long as the socket is this process's."""
        # Imported late: all sessions try to get the seat, but only one needs these modules, with a
        # megabyte of Unicode tables.
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
    """Wait until this process gets the seat, or its holder is suspended. Raises OSError if seats
    are unavailable.
    """
    looks = 0
    while not seat.try_take():
        # Checked twice, since a new holder shows its first sign of life a moment later.
        looks = looks + 1 if seat.silent_s() > SILENT_S else 0
        if looks > 1:
            return
        await asyncio.sleep(AGAIN_S)
