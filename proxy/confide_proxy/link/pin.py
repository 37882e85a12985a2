"""Which daemon this machine has joined: its address and the keys that it is pinned to.

There is no trust on first use: a pin comes from an invite, from `confide pin`, or from the address file of a daemon of the same user
(PROTOCOL.md 2.6). It moves only where the pinned daemon vouches for its new key (7.11).
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from confide_crypto.errors import KeyFileError, KeyTextError
from confide_crypto.keys.identity import (
    KEY_LENGTH,
    format_daemon_key,
    parse_daemon_key,
    read_private_file,
    write_private_file,
)

if TYPE_CHECKING:
    from confide_crypto.transport.open import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Joined:
    """A pinned daemon.

    Attributes:
        url: its websocket address.
        daemon_static: its X25519 key, 32 bytes.
        daemon_key: its Ed25519 key, 32 bytes; None until a connection has shown it.
        pair: id and pair secret of the device's invite that this machine joined with (PROTOCOL.md 10.7), until that device has answered.
    """

    url: str
    daemon_static: bytes
    daemon_key: bytes | None = None
    pair: tuple[bytes, bytes] | None = field(default=None, repr=False)


def load(path: Path) -> Joined | None:
    """The daemon joined, or None where this machine has joined none.

    Raises:
        KeyFileError: the file can be written by others, or is not ours.
    """
    if not path.exists():
        return None
    data = read_private_file(path)
    try:
        record = json.loads(data)
        daemon_key = bytes.fromhex(record["daemonEd25519"]) if "daemonEd25519" in record else None
        if daemon_key is not None and len(daemon_key) != KEY_LENGTH:
            raise ValueError("a key has 32 bytes")
        pair = (bytes.fromhex(record["pair"][0]), bytes.fromhex(record["pair"][1])) if "pair" in record else None
        return Joined(str(record["url"]), parse_daemon_key(str(record["daemonKey"])), daemon_key, pair)
    except (ValueError, KeyError, TypeError, IndexError, KeyTextError) as error:
        raise KeyFileError(path, "is damaged", hint="join again, or restore the file") from error


def save(path: Path, joined: Joined) -> None:
    """Pin a daemon, in place of any other."""
    record: dict[str, str | list[str]] = {"url": joined.url, "daemonKey": format_daemon_key(joined.daemon_static)}
    if joined.daemon_key is not None:
        record["daemonEd25519"] = joined.daemon_key.hex()
    if joined.pair is not None:
        record["pair"] = [part.hex() for part in joined.pair]
    write_private_file(path, json.dumps(record).encode(), replace=True)


def follow(path: Path, pinned: Joined, connection: Connection) -> None:
    """Have the pin as this connection showed the daemon's keys, on the disk: its successor's, or the Ed25519 key where it was not known.

    Raises:
        KeyFileError: a new pin cannot be written.
    """
    successor = connection.successor
    if successor is None and pinned.daemon_key is not None:
        return
    if load(path) != pinned:
        return  # another session has followed already, or a person has joined another daemon meanwhile
    if successor is not None:
        save(path, Joined(pinned.url, successor.new_static, successor.new_key, pinned.pair))
        log.info("the daemon has a new key, and vouched for it with its old one: the pin follows")
        return
    with contextlib.suppress(KeyFileError):  # an old pin on a disk that is full, or read-only, is as good as it was
        save(path, replace(pinned, daemon_key=connection.peer_key))
