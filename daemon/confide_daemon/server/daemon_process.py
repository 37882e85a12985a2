"""The daemon's process: opens the data folder, creates all parts of the daemon and runs the event
loop.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import resource
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from confide_crypto import heaps
from confide_daemon.access.job_queue import Kind
from confide_daemon.access.registry import RegistryState, create, open_state
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import installed, revocation_folders
from confide_daemon.config import FEWEST_OPEN, DaemonConfig, parse_listen
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import BadNameError, DataFolderError, DescriptorsError, LockedError
from confide_daemon.sealing.vault import Vault
from confide_daemon.server.listening.strangers import MAX_STRANGERS
from confide_daemon.server.operator.exposition import Exposition
from confide_daemon.server.operator.job_runner import carry_out
from confide_daemon.server.operator.upgrading import upgrade
from confide_daemon.server.server import Daemon, Listen
from confide_daemon.spaces import models
from confide_daemon.spaces.open_limit import SPARE
from confide_daemon.spaces.pool import Spaces
from confide_daemon.spaces.space import SpaceShared
from confide_daemon.store.logs import log_store
from confide_daemon.store.page_budget import PageBudget
from confide_daemon.store.quota import Quota

log = logging.getLogger(__name__)

RESERVE: Final = 128
"""Open files for the registry, the model, the log and short-lived uses by Python."""
PER_SPACE: Final = 10
"""Open files of an open space: a writer and two readers, each with the database, its log and the
log's index; one more while a change is merged in.
"""
FEWEST_SESSIONS: Final = 16
LOOPBACK: Final = "127.0.0.1"
COLLECTED_AFTER: Final = (10_000, 3, 2)
"""Thresholds of the garbage collector: net new objects before a young collection, and young
collections before an older generation's.

Python's default (700, 10, 10) collects the old as rarely, but each collection scans all young
objects, live or dead: connections that come and go caused ten a second, of up to 4 ms.
"""


def run(
    folder: DataFolder,
    config: DaemonConfig,
    *,
    config_file: Path,
    listen: str | None,
    idle_exit_s: int | None,
    on_demand: bool,
    wants_snapshot: bool = True,
) -> None:
    """Run the daemon until it is stopped.

    Args:
        config_file: path of the configuration file, which may not exist.
        listen: the address to listen on; None: the configured one.
        idle_exit_s: seconds without clients after which the daemon ends; None: never, or with
            `on_demand` the configured time.
        on_demand: True to listen on a free loopback port and end when no client is connected.
        wants_snapshot: True to take a snapshot before a data folder of an older version is
            upgraded.

    Raises ConfideError if the daemon cannot serve.
    """
    # A core dump would write the memory of the process to disk, including keys of spaces.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if folder.node.exists() and log_store(config) is None:
        raise DataFolderError(
            folder.root,
            "has copies of spaces whose logs are in a store, and daemon.toml names none",
            hint="set url of [store] again, or take them out of it: confided store --to-files",
        )
    # A new node joins first, as it has nothing to upgrade; any other folder is upgraded before it
    # is compared with the store.
    if not folder.identity.exists():
        _join(folder, config)
    if folder.identity.exists():
        upgrade(folder, config, config_file=config_file, on_demand=on_demand, wants_snapshot=wants_snapshot)
        _join(folder, config)
    heaps.share(2)  # a daemon with its model takes a tenth less
    if on_demand:
        create(folder)
        _join(folder, config)
        where = Listen(LOOPBACK, 0, float(idle_exit_s or config.server.idle_exit_s))
    else:
        where = Listen(*_listen(listen or config.server.listen), idle_exit_s=idle_exit_s)
    asyncio.run(_serve(folder, config, where, config_file=config_file, on_demand=on_demand))


def _join(folder: DataFolder, config: DaemonConfig) -> None:
    if (store := log_store(config)) is not None:
        store.join(folder)


async def _serve(
    folder: DataFolder,
    config: DaemonConfig,
    where: Listen,
    *,
    config_file: Path,
    on_demand: bool,
) -> None:
    with closing(open_state(folder, store=log_store(config))) as state:
        exposition = Exposition.from_config(config.metrics)
        revocations = Revocations.from_folders(revocation_folders(config), state)
        for name in revocations.apply(state.registry) if revocations else ():
            extra = {"event": "device revoked again"}
            log.warning("%s was revoked later than this data folder was copied: revoked again", name, extra=extra)
        per_session = 1 + sum(addon.files_of_session(config) for addon in installed())
        sessions, open_spaces = make_room(
            config.server.max_sessions,
            config.spaces.max_open_spaces,
            per_session=per_session,
            beside=0 if on_demand else sum(addon.files(config) for addon in installed()),
        )
        if not on_demand:
            _grow_table(sessions + PER_SPACE * open_spaces)
        config = replace(
            config,
            server=replace(config.server, max_sessions=sessions),
            spaces=replace(config.spaces, max_open_spaces=open_spaces),
        )
        spaces = _spaces(state, config, on_demand=on_demand)
        # Objects loaded so far live forever. Scanned in every full collection they would stop all
        # calls for 100 ms, and a flood of connections causes one every few seconds.
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        gc.enable()
        daemon = Daemon(
            state,
            config,
            spaces,
            revocations=revocations,
            exposition=exposition,
            config_file=config_file,
            is_on_demand=on_demand,
            addons=installed(),
        )
        await daemon.run(where)


async def work(
    folder: DataFolder,
    config: DaemonConfig,
    kind: Kind,
    names: dict[str, str],
    follow: Callable[[str, str, int, int], None],
) -> dict[str, dict[str, Any]]:
    """Run a maintenance job in spaces while no daemon runs; return each space's result.

    Args:
        kind: the job.
        names: the ids of the spaces, by name.
        follow: receives the progress: the space's name, the step, how much of the step is done, and
            its total.

    Raises ConfideError if a space cannot be opened or written.
    """
    done: dict[str, dict[str, object]] = {}
    with closing(open_state(folder, store=log_store(config))) as state:
        spaces = _spaces(state, config, on_demand=False)
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
    return done


def _spaces(state: RegistryState, config: DaemonConfig, *, on_demand: bool) -> Spaces:
    pages = PageBudget(config.spaces.cache_mib)
    pages.enforce()
    return Spaces(
        state,
        SpaceShared(
            models.index_settings(config),
            models.start(config.embedding),
            deleted_days=config.history.deleted_days,
            quota=Quota(config.quota.space_mib << 20, config.quota.documents),
            pages=pages,
            parts=[partial(addon.space, config=config) for addon in installed()],
            vault=Vault.open(config.vault) if config.vault.url else None,
        ),
        keeper=config.at_rest.keeper(on_demand=on_demand),
        lock_after_s=config.at_rest.lock_after_s,
        close_after_s=config.spaces.close_after_s,
        most_open=config.spaces.max_open_spaces,
        leases=store.leases(state.folder) if (store := log_store(config)) is not None else None,
    )


def _listen(text: str) -> tuple[str, int]:
    try:
        return parse_listen(text)
    except ValueError as error:
        raise BadNameError(f"'{text[:80]}' is no address to listen on", hint=str(error)) from None


def make_room(max_sessions: int, max_open_spaces: int, *, per_session: int = 1, beside: int = 0) -> tuple[int, int]:
    """Return how many sessions and open spaces this process can hold: the configured numbers, or
    fewer if its limit of open files requires that.

    The soft limit of open files is raised as far as needed. Each connection takes one file, and an
    open space takes `PER_SPACE`. A process without a free file can neither accept a connection nor
    open a database. Closed spaces take none, so their number does not matter.

    Args:
        per_session: files that a session may take.
        beside: files reserved for the clients of add-ons, so that these never keep a space from
            opening.

    Raises DescriptorsError if the hard limit is too low for a useful daemon.
    """
    others = MAX_STRANGERS + RESERVE + PER_SPACE * SPARE + beside
    wanted = others + per_session * max_sessions + PER_SPACE * max_open_spaces
    allowed = _raise_to(wanted)
    left = allowed - others
    if allowed >= wanted:
        return max_sessions, max_open_spaces
    # Half of the files each; sessions get those that the spaces leave over.
    open_spaces = min(max_open_spaces, max(FEWEST_OPEN, left // 2 // PER_SPACE))
    sessions = min(max_sessions, (left - PER_SPACE * open_spaces) // per_session)
    if sessions < FEWEST_SESSIONS:
        raise DescriptorsError(allowed, others + PER_SPACE * FEWEST_OPEN + per_session * FEWEST_SESSIONS)
    open_spaces = min(max_open_spaces, (left - per_session * sessions) // PER_SPACE)
    log.warning(
        "%d sessions and %d open spaces at once, not %d and %d: this process may open %d files; raise the hard limit (ulimit -Hn, or "
        "LimitNOFILE in its unit) to %d for more",
        sessions,
        open_spaces,
        max_sessions,
        max_open_spaces,
        allowed,
        wanted,
    )
    return sessions, open_spaces


def _grow_table(files: int) -> None:
    """Grow the kernel's file table of this process to `files` entries in advance.

    Linux doubles the table as files are opened, and makes a multi-threaded process wait for all
    processors each time: an accept took 10 to 20 ms.
    """
    with open(os.devnull, "rb") as nothing:
        os.close(fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, files - 1))


def _raise_to(wanted: int) -> int:
    """Raise the soft limit of open files towards `wanted`; return the limit that results."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    # macOS reports the hard limit as infinite but accepts no more than OPEN_MAX, 10240.
    for target in (wanted, 10240):
        reachable = target if hard == resource.RLIM_INFINITY else min(target, hard)
        if reachable <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        except (OSError, ValueError):
            continue
        return reachable
    return soft
