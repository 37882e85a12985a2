"""The daemon at one end of a move, and the note of a move under way, by which the move continues
after a crash.

An end is a daemon that an invite names, or this device's own daemon. The note is written before the
invite is used, because the target knows the device from then on; and before this device switches,
so that the source always gets the request to close.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from confide_crypto.errors import DeniedError, KeyFileError, KeyTextError, RequestError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import read_private_file, remove_private_file, write_private_file
from confide_crypto.limits import Timers
from confide_crypto.transport.dial import shown_url
from confide_crypto.transport.open_channel import Connection, connect
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import StateError
from confide_proxy.link import daemon, local_process
from confide_proxy.link.daemon import KnownDaemon
from confide_proxy.link.daemon_link import CONNECT_DEADLINE_S, end
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_transfer.move.shared.moved import MOVE_STATE


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """A daemon at one end of a move. Without `known_daemon` it is this device's own daemon."""

    known_daemon: KnownDaemon | None

    @property
    def name(self) -> str:
        """The name of the daemon for users."""
        return "this machine" if self.known_daemon is None else shown_url(self.known_daemon.url)

    def is_same(self, other: MoveEnd) -> bool:
        """Return True if both ends are the same daemon, by their static keys."""
        keys = [None if one.known_daemon is None else one.known_daemon.daemon_static for one in (self, other)]
        return keys[0] == keys[1]


@dataclass(frozen=True, slots=True)
class MoveNote:
    """The file that records a move under way, by which it continues after a crash.

    Attributes:
        is_over: True if this device has switched, or is about to; the source may not be closed yet.
        changes: number of changes of the space at that time.
    """

    source: MoveEnd
    target: MoveEnd
    is_over: bool = False
    changes: int = 0


def load(path: Path) -> MoveNote | None:
    """Read the record of the move under way; return None if there is no move.

    Raise KeyFileError if other users can read the file, or it is damaged.
    """
    if not path.exists():
        return None
    data = read_private_file(path)
    try:
        said = json.loads(data)
        return MoveNote(_place(said["from"]), _place(said["to"]), said["over"] is True, int(said["changes"]))
    except (ValueError, KeyError, TypeError, IndexError, KeyTextError) as error:
        raise KeyFileError(path, "is damaged", hint="delete it, and begin the move again") from error


def save(path: Path, note: MoveNote) -> None:
    """Write the record of a move, replacing any other. Raise KeyFileError if that fails."""
    said = {"from": _end_json(note.source), "to": _end_json(note.target), "over": note.is_over, "changes": note.changes}
    write_private_file(path, json.dumps(said).encode(), replace=True)


def forget(path: Path) -> None:
    """Delete the record of a move that has ended."""
    remove_private_file(path)


def present(paths: ProxyPaths) -> MoveEnd:
    """Return the daemon that has this device's memory now. Raise KeyFileError if a key file cannot
    be read.
    """
    return MoveEnd(daemon.load_pin(paths.link))


@asynccontextmanager
async def connect_to_daemon(
    place: MoveEnd, paths: ProxyPaths, config: ProxyConfig, machine: MachineKeys, invite: Invite | None = None
) -> AsyncIterator[Connection]:
    """Connect to a daemon without opening a space.

    The invite is not used if a move of this device has begun there, which then goes on. A device
    that the daemon knows otherwise, as by an invite into another space, or that was removed, uses
    it. Raise the errors of `open_connection`.
    """
    dial = partial(_dial, place, paths, config)
    if invite is not None and await _has_begun(machine, partial(dial, None)):
        invite = None
    connection = await machine.connect(partial(dial, invite))
    serving = asyncio.create_task(connection.serve(on_request=_answer_daemon))
    try:
        yield connection
    finally:
        await end(connection, serving)


async def _has_begun(machine: MachineKeys, dial: Callable[[Identity, bool], Awaitable[Connection]]) -> bool:
    """Return True if the daemon knows this device, and its space there waits for the rest of a move."""
    try:
        connection = await machine.connect(dial)
    except DeniedError:
        return False
    serving = asyncio.create_task(connection.serve(on_request=_answer_daemon))
    try:
        return (await MOVE_STATE.ask(connection, {}, timeout_s=CONNECT_DEADLINE_S))["state"] == "arriving"
    except RequestError:  # a locked space has begun long ago
        return False
    finally:
        await end(connection, serving)


async def _answer_daemon(op: str, _body: dict[str, object]) -> dict[str, object]:
    if op != "roster":
        raise RequestError("unavailable", "this connection carries a memory to another daemon")
    return {}


async def _dial(
    place: MoveEnd, paths: ProxyPaths, config: ProxyConfig, invite: Invite | None, identity: Identity, is_settled: bool
) -> Connection:
    joined = place.known_daemon
    if joined is None:
        if is_settled:
            await asyncio.to_thread(daemon.authorize, paths.daemon_data, identity)
        joined = await daemon.ensure(paths.daemon_data, idle_exit_s=config.idle_exit_s)
    return await connect(
        joined.url,
        identity,
        joined.daemon_static,
        daemon_key=joined.daemon_key,
        invite=invite,
        timeout_s=CONNECT_DEADLINE_S,
        timers=Timers.every(config.keepalive_s),
    )


def with_shown_keys(place: MoveEnd, connection: Connection) -> MoveEnd:
    """Return this end of the move with the keys that the daemon has shown on this connection, since
    they may have been rotated.
    """
    if place.known_daemon is None:
        return place
    new = connection.successor
    static, key = (new.new_static, new.new_key) if new else (place.known_daemon.daemon_static, connection.peer_key)
    return MoveEnd(KnownDaemon(place.known_daemon.url, static, key))


async def set_aside(paths: ProxyPaths) -> Path:
    """Stop this device's daemon, rename its data folder and return the new path.

    Raise DaemonStopError if the daemon does not stop, or StateError if the folder cannot be
    renamed.
    """
    await local_process.stop(paths)
    data = paths.daemon_data
    aside = data.with_name(f"{data.name}-moved-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        await asyncio.to_thread(data.rename, aside)
    except OSError as error:
        raise StateError(data, error) from error
    return aside


def _end_json(place: MoveEnd) -> dict[str, str | list[str]] | None:
    return None if place.known_daemon is None else replace(place.known_daemon, pair=None).as_record()


def _place(said: Any) -> MoveEnd:
    return MoveEnd(None if said is None else KnownDaemon.read(said))
