"""The daemon that a space is moved to, or was moved from: one that an invite names, or this machine's own; and what is noted of a move
that is under way, so that it goes on after a crash.

The note is written before an invite is used up, since the machine is known there from then on; and before this machine goes over, so
that the daemon that it left is told in any case.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
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


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """A daemon; `joined` is None for this machine's own."""

    joined: KnownDaemon | None

    @property
    def name(self) -> str:
        """As a person is told."""
        return "this machine" if self.joined is None else shown_url(self.joined.url)

    def is_same(self, other: MoveEnd) -> bool:
        """Whether both are one daemon, by their keys."""
        keys = [None if one.joined is None else one.joined.daemon_static for one in (self, other)]
        return keys[0] == keys[1]


@dataclass(frozen=True, slots=True)
class MoveNote:
    """A move that is under way.

    Attributes:
        is_over: this machine has gone over, or is about to; the daemon that it left is not told yet.
        changes: that the space had seen then.
    """

    source: MoveEnd
    target: MoveEnd
    is_over: bool = False
    changes: int = 0


def load(path: Path) -> MoveNote | None:
    """The move that is under way. Raises KeyFileError: the file is open to others, or damaged."""
    if not path.exists():
        return None
    data = read_private_file(path)
    try:
        said = json.loads(data)
        return MoveNote(_place(said["from"]), _place(said["to"]), said["over"] is True, int(said["changes"]))
    except (ValueError, KeyError, TypeError, IndexError, KeyTextError) as error:
        raise KeyFileError(path, "is damaged", hint="delete it, and begin the move again") from error


def save(path: Path, note: MoveNote) -> None:
    """Note a move, in place of any other. Raises KeyFileError."""
    said = {"from": _said(note.source), "to": _said(note.target), "over": note.is_over, "changes": note.changes}
    write_private_file(path, json.dumps(said).encode(), replace=True)


def forget(path: Path) -> None:
    """The move has ended."""
    remove_private_file(path)


def present(paths: ProxyPaths) -> MoveEnd:
    """The daemon that has this machine's memory now. Raises KeyFileError."""
    return MoveEnd(daemon.load_pin(paths.link))


@asynccontextmanager
async def connected(
    place: MoveEnd, paths: ProxyPaths, config: ProxyConfig, machine: MachineKeys, invite: Invite | None = None
) -> AsyncIterator[Connection]:
    """A connection to a place, which attaches nothing. An invite is used up only where the daemon does not know this machine yet.

    Raises what `open_connection` raises.
    """
    dial = partial(_dial, place, paths, config)
    try:
        connection = await machine.connect(partial(dial, None))
    except DeniedError as error:
        if error.reason != "unknown" or invite is None:
            raise
        connection = await machine.connect(partial(dial, invite))
    serving = asyncio.create_task(connection.serve(on_request=_told))
    try:
        yield connection
    finally:
        await end(connection, serving)


async def _told(op: str, _body: dict[str, object]) -> dict[str, object]:
    if op != "roster":
        raise RequestError("unavailable", "this connection carries a memory to another daemon")
    return {}


async def _dial(
    place: MoveEnd, paths: ProxyPaths, config: ProxyConfig, invite: Invite | None, identity: Identity, is_settled: bool
) -> Connection:
    joined = place.joined
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


def as_shown(place: MoveEnd, connection: Connection) -> MoveEnd:
    """The place, with the keys that its daemon has shown."""
    if place.joined is None:
        return place
    new = connection.successor
    static, key = (new.new_static, new.new_key) if new else (place.joined.daemon_static, connection.peer_key)
    return MoveEnd(KnownDaemon(place.joined.url, static, key))


async def set_aside(paths: ProxyPaths) -> Path:
    """End the daemon of this machine, and give its data folder another name; which. Raises DaemonStopError, StateError."""
    await local_process.stop(paths)
    data = paths.daemon_data
    aside = data.with_name(f"{data.name}-moved-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        await asyncio.to_thread(data.rename, aside)
    except OSError as error:
        raise StateError(data, error) from error
    return aside


def _said(place: MoveEnd) -> dict[str, str | list[str]] | None:
    return None if place.joined is None else replace(place.joined, pair=None).as_record()


def _place(said: Any) -> MoveEnd:
    return MoveEnd(None if said is None else KnownDaemon.read(said))
