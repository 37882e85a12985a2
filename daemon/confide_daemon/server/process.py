"""The daemon's process: its data folder opened, its parts put together, and the event loop around them."""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from confide_daemon import models
from confide_daemon.config import DaemonConfig, parse_listen
from confide_daemon.descriptors import make_room
from confide_daemon.errors import BadNameError, LockedError
from confide_daemon.jobs import Kind
from confide_daemon.paths import DataFolder
from confide_daemon.sealing.vault import Vault
from confide_daemon.server import Daemon, Listen
from confide_daemon.spaces import Spaces
from confide_daemon.state import State, create, open_state
from confide_daemon.work import carry_out

LOOPBACK = "127.0.0.1"


def run(
    folder: DataFolder, config: DaemonConfig, *, listen: str | None, idle_exit_s: int | None, on_demand: bool
) -> None:
    """Serve until told to stop; on demand, on a free port of this machine and until nobody is connected.

    Raises:
        ConfideError: what keeps the daemon from serving.
    """
    # A process that crashes would leave on the disk what it holds in memory, keys of spaces among it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if on_demand:
        create(folder)
        where = Listen(LOOPBACK, 0, float(idle_exit_s or config.server.idle_exit_s))
    else:
        where = Listen(*_listen(listen or config.server.listen), idle_exit_s=idle_exit_s)
    asyncio.run(_serve(folder, config, where, on_demand=on_demand))


def work(
    folder: DataFolder,
    config: DaemonConfig,
    kind: Kind,
    spaces: dict[str, str],
    follow: Callable[[str, str, int, int], None],
) -> dict[str, dict[str, Any]]:
    """Do a job in spaces while no daemon runs; what it came to in each.

    Args:
        spaces: their ids by their names.
        follow: told of the space, the step, how much of that is done, and how much there is.

    Raises:
        ConfideError: a space cannot be opened or written.
    """
    return asyncio.run(_work(folder, config, kind, spaces, follow))


async def _serve(folder: DataFolder, config: DaemonConfig, where: Listen, *, on_demand: bool) -> None:
    state = open_state(folder)
    try:
        room = make_room(config.server.max_sessions, spaces=len(state.registry.spaces()))
        config = replace(config, server=replace(config.server, max_sessions=room))
        spaces = _spaces(state, config, on_demand=on_demand)
        # What is loaded by now stays. Looked at again in every full collection, it would stop all calls for 100 ms, and a flood of
        # connections leaves enough garbage for one every few seconds.
        gc.freeze()
        await Daemon(state, config, spaces).run(where)
    finally:
        state.close()


async def _work(
    folder: DataFolder,
    config: DaemonConfig,
    kind: Kind,
    names: dict[str, str],
    follow: Callable[[str, str, int, int], None],
) -> dict[str, dict[str, Any]]:
    state = open_state(folder)
    spaces = _spaces(state, config, on_demand=False)
    done: dict[str, dict[str, Any]] = {}
    try:
        for name, space_id in names.items():
            since = time.time()
            try:
                done[name] = await carry_out(
                    spaces, space_id, kind, partial(follow, name), since=since, is_cancelled=lambda: False
                )
            except LockedError:
                done[name] = {"locked": True}
    finally:
        await spaces.close()
        state.close()
    return done


def _spaces(state: State, config: DaemonConfig, *, on_demand: bool) -> Spaces:
    return Spaces(
        state,
        models.index_settings(config),
        models.start(config.embedding),
        deleted_days=config.history.deleted_days,
        keeper=config.at_rest.keeper(on_demand=on_demand),
        lock_after_s=config.at_rest.lock_after_s,
        vault=Vault.open(config.vault) if config.vault.url else None,
    )


def _listen(text: str) -> tuple[str, int]:
    try:
        return parse_listen(text)
    except ValueError as error:
        raise BadNameError(f"'{text[:80]}' is no address to listen on", hint=str(error)) from None
