"""The daemon that this device uses: the one that it has joined, or else its own, which is started
when it is first needed.

A daemon's key is never trusted on first use. The pinned key comes from an invite, from `confide
join --pin`, or from the address file of a daemon of the same user (PROTOCOL.md 2.6). It changes
only if the pinned daemon signs its new key (7.11).

A local daemon serves all sessions of a user. The address file in its data folder says where it
listens. A lock makes two sessions that start it at once share one daemon. Joining it needs no
invite: both programs run as the same user, so a key line in the daemon's `authorized/` folder is
proof enough, as in ssh's authorized_keys.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from confide_crypto import portable
from confide_crypto.errors import KeyFileError, KeyTextError
from confide_crypto.keys.identity import (
    KEY_LENGTH,
    MAX_NAME,
    Identity,
    format_daemon_key,
    format_public_key,
    parse_daemon_key,
)
from confide_crypto.keys.private_files import (
    check_private_dir,
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_crypto.transport.open_channel import Connection
from confide_proxy import locks
from confide_proxy.errors import DaemonMissingError, DaemonStartError
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

ADDRESS_FILE = "daemon.address"
LOCK_FILE = "daemon.lock"
START_DEADLINE_S = 20.0
"""Seconds for a daemon to start: a cold start loads the MCP SDK and the database from a disk that
may be slow; 2-3 s is usual.
"""
_POLL_S = 0.03
_NOT_INSTALLED = "the daemon's part is not installed here"
_MISSING_PART = "the daemon's part is not installed here (no module"
"""The message of `confided`, as it appears in its log."""
_MOST_LOG_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class KnownDaemon:
    """The address and keys of a daemon, from this device's pin or from the address file of a local
    daemon.

    Attributes:
        url: its websocket address.
        daemon_static: its X25519 key, 32 bytes.
        daemon_key: its Ed25519 key, 32 bytes; None until a connection has shown it.
        pair: id and secret of the invite with which this device joined (PROTOCOL.md 10.7); None
            once the inviting device has answered, or if no device made the invite.
    """

    url: str
    daemon_static: bytes
    daemon_key: bytes | None = None
    pair: tuple[bytes, bytes] | None = field(default=None, repr=False)

    @classmethod
    def read(cls, record: Any) -> Self:
        """Parse a record that `as_record` has made.

        Raises ValueError, KeyError, TypeError, IndexError or KeyTextError if it is invalid.
        """
        daemon_key = bytes.fromhex(record["daemonEd25519"]) if "daemonEd25519" in record else None
        if daemon_key is not None and len(daemon_key) != KEY_LENGTH:
            raise ValueError("a key has 32 bytes")
        pair = (bytes.fromhex(record["pair"][0]), bytes.fromhex(record["pair"][1])) if "pair" in record else None
        return cls(str(record["url"]), parse_daemon_key(str(record["daemonKey"])), daemon_key, pair)

    def as_record(self) -> dict[str, str | list[str]]:
        """Return the daemon as a JSON object, for the file in which it is saved."""
        record: dict[str, str | list[str]] = {"url": self.url, "daemonKey": format_daemon_key(self.daemon_static)}
        if self.daemon_key is not None:
            record["daemonEd25519"] = self.daemon_key.hex()
        if self.pair is not None:
            record["pair"] = [part.hex() for part in self.pair]
        return record


def load_pin(path: Path) -> KnownDaemon | None:
    """Return the daemon that this device has joined, or None if it has not joined any.

    Raises KeyFileError if others can write the file, if it belongs to another user, or if it is
    damaged.
    """
    if not path.exists():
        return None
    data = read_private_file(path)
    try:
        return KnownDaemon.read(json.loads(data))
    except (ValueError, KeyError, TypeError, IndexError, KeyTextError) as error:
        raise KeyFileError(path, "is damaged", hint="join again, or restore the file") from error


def save_pin(path: Path, joined: KnownDaemon) -> None:
    """Pin a daemon: store its address and keys in place of those of the daemon that was pinned
    before.
    """
    write_private_file(path, json.dumps(joined.as_record()).encode(), replace=True)


def follow(path: Path, pinned: KnownDaemon, connection: Connection) -> None:
    """Update the pin with what a connection has proven: the new keys of a daemon that has rotated
    them, or an Ed25519 key that was unknown before.

    Raises KeyFileError if the new keys cannot be written.
    """
    successor = connection.successor
    if successor is None and pinned.daemon_key is not None:
        return
    if load_pin(path) != pinned:
        return  # another session has pinned it already, or the user joined another daemon
    if successor is not None:
        save_pin(path, KnownDaemon(pinned.url, successor.new_static, successor.new_key, pinned.pair))
        log.info("the daemon has a new key, signed with its old one; this device pins it")
        return
    with suppress(KeyFileError):  # on a full or read-only disk the old pin stays valid
        save_pin(path, replace(pinned, daemon_key=connection.peer_key))


def read_address(data: Path) -> KnownDaemon | None:
    """Return the address and keys that a running local daemon wrote to its address file, or None
    without such a file.

    The key in it is trusted only because no one else can write the file (PROTOCOL.md 2.6). Raises
    KeyFileError if others can write it, or if it belongs to another user.
    """
    try:
        check_private_dir(data)
        record = json.loads(read_private_file(data / ADDRESS_FILE))
        return KnownDaemon(str(record["url"]), parse_daemon_key(record["key"]))
    except KeyFileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except (ValueError, KeyError, TypeError, KeyTextError):
        return None


def known_daemon(paths: ProxyPaths) -> KnownDaemon | None:
    """Return the daemon that this device has joined, or else its own if that was started; None
    without either.

    Raises KeyFileError if the file that names it is damaged, or others can write it.
    """
    return load_pin(paths.link) or read_address(paths.daemon_data)


def authorize(data: Path, identity: Identity) -> None:
    """Add a device's public key to the local daemon's authorized keys. Writing to the daemon's
    folder proves that the device belongs to the same user.
    """
    make_private_dir(data)
    file = _line_of(data, identity.public_key)
    if not file.exists():
        line = format_public_key(identity.public_key, (socket.gethostname() or "local")[:MAX_NAME])
        with suppress(FileExistsError):  # another session of this device was first
            write_private_file(file, f"{line}\n".encode())


def withdraw(data: Path, public_key: bytes) -> None:
    """Remove a replaced public key of this device from the local daemon's authorized keys.

    Raises KeyFileError if the file cannot be deleted.
    """
    remove_private_file(_line_of(data, public_key))


def _line_of(data: Path, public_key: bytes) -> Path:
    return data / "authorized" / f"{public_key.hex()[:16]}.pub"


def is_served(data: Path) -> bool:
    """Return True if a daemon runs for this data folder, even a suspended one.

    A daemon holds the folder's lock, which the operating system releases when the process ends.
    """
    try:
        descriptor = os.open(data / LOCK_FILE, os.O_RDWR | portable.CLOSED | portable.NO_LINK)
    except OSError:
        return False
    try:
        return not locks.try_lock(descriptor)
    except OSError:
        return True  # unknown on a file system without locks
    finally:
        os.close(descriptor)


async def ensure(
    data: Path, *, idle_exit_s: int, deadline_s: float = START_DEADLINE_S, tell: Callable[[str], None] | None = None
) -> KnownDaemon:
    """Return the address of the local daemon; start it first if none answers.

    Args:
        tell: prints the progress for the user.

    Raises DaemonStartError, which names the daemon's log, if the daemon ended at once or did not
    start in time. Raises KeyFileError if others can write the address file.
    """
    if address := await answering(data):
        return address
    if tell is not None:
        tell("starting the daemon")
    log = data / "confided.log"
    make_private_dir(data)
    told_before = log.stat().st_size if log.exists() else 0
    pid = await asyncio.to_thread(_spawn, data, log, idle_exit_s)
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                if address := await answering(data):
                    return address
                # It ended without an error: another session's daemon holds the lock, so its address
                # will appear soon.
                if not is_alive(pid) and (why := _complaint(log, told_before)):
                    raise (DaemonMissingError if why == _NOT_INSTALLED else DaemonStartError)(why, log=log)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise DaemonStartError(f"no answer within {deadline_s:.0f} s", log=log) from None


def _spawn(data: Path, log: Path, idle_exit_s: int) -> int:
    command = [sys.executable, "-m", "confide_daemon", "serve", "--on-demand", "--data", str(data)]
    command += ["--idle-exit", str(idle_exit_s)]
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | portable.NO_LINK | portable.CLOSED, 0o600)
    try:
        if not portable.HAS_MODES:
            return _spawn_on_windows(command, fd, data)
        # In a new process session, so that no terminal's signals reach it; and through a shell that
        # ends at once, so that it is not a child of this process: it outlives it, and clients that
        # inspect their server's children do not find it.
        shell = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *command]
        done = subprocess.run(
            shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=fd,
            start_new_session=True,
            cwd=data,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DaemonStartError(f"no process could be started ({type(error).__name__})", log=log) from error
    finally:
        os.close(fd)
    return int(done.stdout)


def _spawn_on_windows(command: list[str], log: int, data: Path) -> int:
    """Start a process without a console, which no terminal's Ctrl-C reaches and which outlives this
    one. Raises OSError.
    """
    apart = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP  # type: ignore[attr-defined,unused-ignore]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=data, creationflags=apart, close_fds=True
    )
    return process.pid


def is_alive(pid: int) -> bool:
    """Return True if a process with this id exists."""
    if not portable.HAS_MODES:
        return portable.is_alive(pid)
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _complaint(log: Path, offset: int) -> str | None:
    """Return the reason for the daemon's end that its log has from `offset` on, or None."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            lines = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    if any("No module named" in line or _MISSING_PART in line for line in lines):
        return _NOT_INSTALLED
    told = [line for line in lines if line.startswith(("confided: ", "hint: "))]
    return "; ".join(told) or ("it ended with an error" if any("Error" in line for line in lines) else None)


async def answering(data: Path) -> KnownDaemon | None:
    """Return the local daemon if a program listens at the address that it wrote; otherwise None.

    Raises KeyFileError if others can write the address file, or if it belongs to another user.
    """
    address = read_address(data)
    if address is None:
        return None
    host, port = address.url.split("://", 1)[1].split("/", 1)[0].rsplit(":", 1)
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return None
    writer.close()
    return address
