"""The daemon's process: its data folder opened, its parts put together, and the event loop around them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confide_daemon import models
from confide_daemon.config import DaemonConfig, parse_listen
from confide_daemon.descriptors import make_room
from confide_daemon.errors import BadNameError
from confide_daemon.paths import DataFolder
from confide_daemon.server import Daemon, Listen
from confide_daemon.spaces import Spaces
from confide_daemon.state import State, create, open_state

LOOPBACK = "127.0.0.1"


def run(
    folder: DataFolder, config: DaemonConfig, *, listen: str | None, idle_exit_s: int | None, on_demand: bool
) -> None:
    """Serve until told to stop; on demand, on a free port of this machine and until nobody is connected.

    Raises:
        ConfideError: what keeps the daemon from serving.
    """
    if on_demand:
        create(folder)
        where = Listen(LOOPBACK, 0, float(idle_exit_s or config.server.idle_exit_s))
    else:
        where = Listen(*_listen(listen or config.server.listen), idle_exit_s=idle_exit_s)
    asyncio.run(_serve(folder, config, where))


def reindex(
    folder: DataFolder, config: DaemonConfig, *, reembed: bool, progress: Callable[[str], None] | None
) -> list[dict[str, Any]]:
    """Rebuild the index of every space; what changed in each.

    Raises:
        ConfideError: a space cannot be opened or written.
    """
    return asyncio.run(_reindex(folder, config, reembed, progress))


async def _serve(folder: DataFolder, config: DaemonConfig, where: Listen) -> None:
    state = open_state(folder)
    try:
        room = make_room(config.server.max_sessions, spaces=len(state.registry.spaces()))
        config = replace(config, server=replace(config.server, max_sessions=room))
        spaces = _spaces(state, config)
        # What is loaded by now stays. Looked at again in every full collection, it would stop all calls for 100 ms, and a flood of
        # connections leaves enough garbage for one every few seconds.
        gc.freeze()
        await Daemon(state, config, spaces).run(where)
    finally:
        state.close()


async def _reindex(
    folder: DataFolder, config: DaemonConfig, reembed: bool, progress: Callable[[str], None] | None
) -> list[dict[str, Any]]:
    state = open_state(folder)
    spaces = _spaces(state, config)
    done = []
    try:
        for name, space_id in state.registry.spaces().items():
            if progress:
                progress(f"rebuilding {name}")
            space = await spaces.get(space_id)
            result = await space.rebuild(reembed=reembed)
            done.append(
                {
                    "space": name,
                    "chunksAdded": result.chunks_added,
                    "chunksUpdated": result.chunks_updated,
                    "chunksRemoved": result.chunks_removed,
                }
            )
    finally:
        await spaces.close()
        state.close()
    return done


def _spaces(state: State, config: DaemonConfig) -> Spaces:
    embedders = models.start(config.embedding)
    return Spaces(state, models.index_settings(config), embedders, deleted_days=config.history.deleted_days)


def _listen(text: str) -> tuple[str, int]:
    try:
        return parse_listen(text)
    except ValueError as error:
        raise BadNameError(f"'{text[:80]}' is no address to listen on", hint=str(error)) from None
