"""Choose the one process of this device that answers all hooks. It holds the seat `hooks`, which is
a lock file, while it runs.

All sessions and `confide sync --watch` try to take the lock; when its holder ends, another takes it
and listens. If the holder is suspended (its client was stopped with Ctrl-Z), every hook would wait
until its timeout. So another process listens instead, and the suspended one gives up when it
continues.

A client's own process may ask about a tool call itself, without starting `confide hook`, as
Confide's plugin for OpenCode does. Its request contains the client's event under `event`, and the
answer is what `confide hook` would write to stdout.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confide_proxy.hooks import counts, events, hook_paths
from confide_proxy.hooks.hook_process import call_request
from confide_proxy.link.daemon_link import Link
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing

if TYPE_CHECKING:
    from confide_proxy.hooks.server.prompt_listener import PromptListener
    from confide_proxy.hooks.server.recall import PromptRecall

log = logging.getLogger(__name__)

NAME: Final = "hooks"
AGAIN_S: Final = 1.0
PULSE_S: Final = 1.0
FIRST_LOOK_S: Final = 0.05
"""Interval until the first attempt to connect has ended. A session of one prompt is over within a
second, and the next one needs its briefing.
"""
SILENT_S: Final = 5.0
"""A holder that has shown no sign of life for this long is suspended."""
_MOST_PID: Final = 2**31
_KINDS: Final = frozenset({events.BEFORE, events.AFTER})


class Hooks:
    """Answers hooks whenever this process holds the lock that allows it to."""

    def __init__(self, paths: ProxyPaths, link: Link, sealing: SessionSealing, folders: list[Path]) -> None:
        self._paths = paths
        self._link = link
        self._sealing = sealing
        self._folders = folders

    async def run(self) -> None:
        """Wait for the lock, then answer hooks; repeat until cancelled. Raises OSError if the lock
        or the socket is unavailable.
        """
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
        received = ClientEvents(self._paths, recall)
        listener: PromptListener = sockets.PromptListener(str(self._paths.state), received.answer)
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
                is_connecting = self._link.is_up is None and self._link.reason is None
                await asyncio.sleep(FIRST_LOOK_S if is_connecting else PULSE_S)
        finally:
            recall.end()
            listener.close()


class ClientEvents:
    """Answers requests at the hook socket: from `confide hook` processes, and from clients that
    send their events directly.
    """

    def __init__(self, paths: ProxyPaths, recall: PromptRecall) -> None:
        self._state, self._config = os.fspath(paths.state), os.fspath(paths.config)
        self._recall = recall

    async def answer(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Return the answer to a hook's or a client's request; {} if there is nothing to say.

        In a client's request, `event` is its event, `pid` its process ID, `ms` the milliseconds
        that it waits, and `is_logged` asks for a line in the log of hooks.
        """
        told = asked.get("event")
        if not isinstance(told, dict):
            return await self._recall.answer(asked)
        event = events.parse_event(told)
        if event is None or event.kind not in _KINDS:
            return {}
        began = time.monotonic()
        # On a thread, since it reads files of the project.
        request = await asyncio.to_thread(self._request, event, asked)
        if request is None:
            return {}
        found = await self._recall.answer({**request, "ms": asked.get("ms")}) if request else {}
        context = found.get("context")
        said = events.answer(event, context, "") if isinstance(context, str) and context else {}
        counts.note(
            self._state,
            event=event.name,
            client=event.client,
            outcome=counts.ANSWERED if said else counts.SILENT,
            ms=int((time.monotonic() - began) * 1000),
            is_logged=asked.get("is_logged") is True,
        )
        return said

    def _request(self, event: events.HookEvent, asked: Mapping[str, object]) -> dict[str, object] | None:
        if hook_paths.is_off(self._config, event.cwd):
            return None
        pid = asked.get("pid")
        client_pid = pid if isinstance(pid, int) and 0 < pid < _MOST_PID else 0
        return call_request(event, self._state, self._config, client_pid=client_pid)


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
