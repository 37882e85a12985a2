"""The daemon on this machine, started when it is first needed.

One daemon serves all sessions of a user. It is found by the address file in its data folder; the daemon itself holds a lock, so that two
sessions that start it at once get one. Joining needs no invite: the two programs share a user, so a key line dropped into the
daemon's `authorized/` folder is proof enough, as in ssh's authorized_keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyTextError
from confide_crypto.keys.files import remove_private_file
from confide_crypto.keys.identity import (
    MAX_NAME,
    Identity,
    format_public_key,
    make_private_dir,
    parse_daemon_key,
    write_private_file,
)
from confide_proxy.errors import DaemonMissingError, DaemonStartError

ADDRESS_FILE = "daemon.address"
START_DEADLINE_S = 20.0
"""A cold start loads the MCP SDK and the database from a disk that may be slow; 2-3 s is usual."""
_POLL_S = 0.03
_NOT_INSTALLED = "the daemon's part is not installed here (pip install 'confide[daemon]')"
_MOST_LOG_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon listens and the static key it is pinned to."""

    url: str
    daemon_static: bytes


def read_address(data: Path) -> Address | None:
    """The address that a running local daemon wrote, or None."""
    try:
        record = json.loads((data / ADDRESS_FILE).read_bytes())
        return Address(str(record["url"]), parse_daemon_key(record["key"]))
    except (OSError, ValueError, KeyError, TypeError, KeyTextError):
        return None


def authorize(data: Path, identity: Identity) -> None:
    """Make the local daemon know this identity (file ownership is the proof)."""
    make_private_dir(data)
    file = _line_of(data, identity.public_key)
    if not file.exists():
        line = format_public_key(identity.public_key, (socket.gethostname() or "local")[:MAX_NAME])
        with suppress(FileExistsError):  # another session of this machine was first
            write_private_file(file, f"{line}\n".encode())


def withdraw(data: Path, public_key: bytes) -> None:
    """Take back the line of a key that is no longer this machine's. Raises KeyFileError."""
    remove_private_file(_line_of(data, public_key))


def _line_of(data: Path, public_key: bytes) -> Path:
    return data / "authorized" / f"{public_key.hex()[:16]}.pub"


async def ensure(data: Path, *, idle_exit_s: int, deadline_s: float = START_DEADLINE_S) -> Address:
    """The address of the local daemon, started if none answers.

    Raises:
        DaemonStartError: it ended at once, or did not come up in time; its log is named.
    """
    address = read_address(data)
    if address and await _answers(address):
        return address
    log = data / "confided.log"
    make_private_dir(data)
    told_before = log.stat().st_size if log.exists() else 0
    pid = await asyncio.to_thread(_spawn, data, log, idle_exit_s)
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                address = read_address(data)
                if address and await _answers(address):
                    return address
                # Gone without a word: another session's daemon holds the lock, so its address is about to appear.
                if not _is_alive(pid) and (why := _complaint(log, told_before)):
                    raise (DaemonMissingError if why == _NOT_INSTALLED else DaemonStartError)(why, log=log)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise DaemonStartError(f"no answer within {deadline_s:.0f} s", log=log) from None


def _spawn(data: Path, log: Path, idle_exit_s: int) -> int:
    command = [sys.executable, "-m", "confide_daemon", "serve", "--on-demand", "--data", str(data)]
    command += ["--idle-exit", str(idle_exit_s)]
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # A session of its own, so no terminal's signals reach it; and through a shell that ends at once, so that it is nobody's child:
        # it outlives this process, and counts for no client that looks at what its server has spawned.
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


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _complaint(log: Path, offset: int) -> str | None:
    """What the daemon has said of its end since `offset`, if anything."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            lines = file.read(_MOST_LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    if any("No module named" in line for line in lines):
        return _NOT_INSTALLED
    told = [line for line in lines if line.startswith(("confided: ", "hint: "))]
    return "; ".join(told) or ("it ended with an error" if any("Error" in line for line in lines) else None)


async def _answers(address: Address) -> bool:
    host, port = address.url.split("://", 1)[1].split("/", 1)[0].rsplit(":", 1)
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
