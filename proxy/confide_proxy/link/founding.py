"""Setup state of this device. Only a deliberate act sets it up; commands that only show something
create no key, daemon, space or folder.

A device is set up once it has joined a daemon (`link.json` exists), or once its own daemon may run
(that daemon's data folder exists). `confide quickstart` and `confide join` set it up. So does
`confide mcp`: a user who configured an agent's client to start it wants it to remember.

In two cases `confide mcp` does not set up a daemon of this device. If an attempt to join a daemon
failed, a record of the attempt prevents it until a join works, or until `confide quickstart`
confirms that this device uses its own daemon. And if this user already has a memory elsewhere that
the environment variables do not lead to, a second one would be an accident.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, KeyFileError, printable
from confide_crypto.keys.private_files import (
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotJoinedError, NotSetUpError
from confide_proxy.paths import ProxyPaths, is_chosen_place, other_memories, remember_place

_MOST_REASON: Final = 300


def is_set_up(paths: ProxyPaths) -> bool:
    """Return True if this device has joined a daemon, or may start its own."""
    return paths.link.exists() or paths.link.is_symlink() or paths.daemon_data.exists()


def require(paths: ProxyPaths, config: ProxyConfig) -> None:
    """Check that this device is set up.

    Raises NotSetUpError if it is not; NotJoinedError if it has not joined a daemon, and the
    configuration forbids a daemon of its own.
    """
    if is_set_up(paths):
        _remember()
        return
    tried = why_failed(paths)
    if tried is None and not config.on_demand:
        raise NotJoinedError
    elsewhere = () if is_chosen_place() else other_memories()
    raise NotSetUpError(tried, elsewhere, None if tried else _unwritable(paths.daemon_data))


def allow_own_daemon(paths: ProxyPaths) -> None:
    """Allow this device to run its own daemon from now on.

    Raises KeyFileError if the daemon's folder cannot be created, or if others can write there.
    """
    if not is_set_up(paths):
        make_private_dir(paths.daemon_data)
    settle(paths)


def found_for_agent(paths: ProxyPaths, config: ProxyConfig) -> None:
    """Make the folder for a daemon of this device, so that an agent's session can start that daemon.

    Does nothing if an attempt to join a daemon failed, if the configuration forbids a daemon of
    this device, or if this user's memory is in another folder. Nothing is raised if the disk is
    full or read-only: each call of the session then fails with an error that names the folder
    (`require`).
    """
    if other_memories() and not is_chosen_place():
        return
    if config.on_demand and not is_set_up(paths) and not _is_noted(paths.failed_join):
        with suppress(KeyFileError):
            make_private_dir(paths.daemon_data)


def note_failure(paths: ProxyPaths, error: ConfideError | TimeoutError) -> None:
    """Record why an attempt to join a daemon failed. Does nothing on a device that is set up."""
    if is_set_up(paths):
        return
    told = str(error) if isinstance(error, ConfideError) else "the daemon did not answer in time"
    with suppress(KeyFileError):  # a full disk, say: that nothing is set up is seen without it
        make_private_dir(paths.state)
        data = json.dumps({"why": printable(told)[:_MOST_REASON]}).encode()
        write_private_file(paths.failed_join, data, replace=True)


def settle(paths: ProxyPaths) -> None:
    """Delete the record of a failed join. Raises KeyFileError if it cannot be deleted."""
    if _is_noted(paths.failed_join):
        remove_private_file(paths.failed_join)
    _remember()


def _unwritable(folder: Path) -> str | None:
    """Return the folder that exists above one to be made if this user cannot write there."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return None if os.access(there, os.W_OK) else str(there)


def _remember() -> None:
    with suppress(OSError):  # a full or read-only disk: it is noted the next time
        remember_place()


def why_failed(paths: ProxyPaths) -> str | None:
    """Return why the last attempt to join a daemon failed; None if no failure is recorded."""
    if not _is_noted(paths.failed_join):
        return None
    try:
        return printable(str(json.loads(read_private_file(paths.failed_join))["why"]))[:_MOST_REASON]
    except (ConfideError, OSError, ValueError, KeyError, TypeError):
        return "its note cannot be read"


def _is_noted(file: Path) -> bool:
    return file.exists() or file.is_symlink()
