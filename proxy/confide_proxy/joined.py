"""Which daemon this machine has joined: its address and the static key that it is pinned to.

There is no trust on first use: a pin comes from an invite, from `confide pin`, or from the address file of a daemon of the same user
(PROTOCOL.md 2.6).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyFileError, KeyTextError
from confide_crypto.keys import Identity, format_daemon_key, parse_daemon_key, read_private_file, write_private_file


@dataclass(frozen=True, slots=True)
class Joined:
    """A pinned daemon: `url` is its websocket address, `daemon_static` its X25519 key (32 bytes)."""

    url: str
    daemon_static: bytes


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
        return Joined(str(record["url"]), parse_daemon_key(record["daemonKey"]))
    except (ValueError, KeyError, TypeError, KeyTextError) as error:
        raise KeyFileError(path, "is damaged", hint="join again, or restore the file") from error


def save(path: Path, joined: Joined) -> None:
    """Pin a daemon, in place of any other."""
    record = {"url": joined.url, "daemonKey": format_daemon_key(joined.daemon_static)}
    write_private_file(path, json.dumps(record).encode(), replace=True)


def identity(path: Path) -> Identity:
    """This machine's key, made at the first need.

    Raises:
        KeyFileError: others can read it, it is not ours, or it is damaged.
    """
    if path.exists():
        return Identity.load(path)
    made = Identity.generate()
    try:
        made.save(path)
    except FileExistsError:
        return Identity.load(path)  # another session was first
    return made
