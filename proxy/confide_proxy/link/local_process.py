"""The local daemon that Confide starts when it is needed: check that it runs, and stop it.

Before a signal is sent, the daemon proves its identity: its process id and its key are in one file,
which only it wrote, and the program at its address has shown in a handshake that it holds the key.
Without that proof, the process id in the file could by now belong to another program, after a
crash.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import Identity
from confide_crypto.keys.private_files import read_private_file
from confide_crypto.transport.open_channel import Connection, connect
from confide_proxy.errors import DaemonStopError, NotHereError
from confide_proxy.link import daemon
from confide_proxy.link.daemon import KnownDaemon
from confide_proxy.link.key_rotation import Dial, MachineKeys
from confide_proxy.paths import ProxyPaths

STOP_DEADLINE_S: Final = 15.0
"""Seconds for the daemon to stop: it answers pending requests, checkpoints its log and closes its
databases; a second or two is usual.
"""
_CONNECT_S: Final = 5.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A running local daemon: its address, its process id, and the version that it reports."""

    joined: KnownDaemon
    pid: int
    version: str


def require_own(paths: ProxyPaths) -> None:
    """Check that this device uses its own daemon.

    Raises NotHereError if it has joined a daemon, which is started and stopped elsewhere;
    KeyFileError if the pin cannot be read.
    """
    pinned = daemon.load_pin(paths.link)
    if pinned is not None:
        raise NotHereError(pinned.url)


async def running(paths: ProxyPaths) -> RunningDaemon | None:
    """Return the local daemon if it runs and has proven its key; otherwise None. Never starts it.

    Raises DaemonStopError if the program at its address does not prove the key; KeyFileError or
    KeyLockedError if this device's key, or the address file, cannot be used.
    """
    joined = await asyncio.to_thread(daemon.read_address, paths.daemon_data)
    if joined is None or await daemon.answering(paths.daemon_data) is None:
        return None
    pid, version = await asyncio.to_thread(_process, paths)
    if not paths.identity.exists():
        raise DaemonStopError(pid, "this device has no key to ask it with")
    try:
        async with asyncio.timeout(_CONNECT_S):
            connection = await MachineKeys(paths).connect(_dial(joined))
    except TimeoutError:
        raise DaemonStopError(pid, "it does not answer") from None
    except ConfideError as error:
        raise DaemonStopError(pid, str(error)) from error
    await connection.close()
    return RunningDaemon(joined, pid, version)


async def stop(paths: ProxyPaths, *, deadline_s: float = STOP_DEADLINE_S) -> RunningDaemon | None:
    """Stop the local daemon and wait for its end; return it, or None if it did not run.

    Raises DaemonStopError if it does not end in time.
    """
    found = await running(paths)
    if found is None:
        return None
    try:
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return found
    except PermissionError as error:
        raise DaemonStopError(found.pid, "it is another user's") from error
    end = time.monotonic() + deadline_s
    while daemon.is_alive(found.pid):
        if time.monotonic() > end:
            raise DaemonStopError(found.pid, f"it did not stop within {deadline_s:.0f} s")
        await asyncio.sleep(_POLL_S)
    return found


def _dial(joined: KnownDaemon) -> Dial:
    async def dial(identity: Identity, _is_settled: bool) -> Connection:
        return await connect(joined.url, identity, joined.daemon_static, timeout_s=_CONNECT_S)

    return dial


def _process(paths: ProxyPaths) -> tuple[int, str]:
    try:
        record = json.loads(read_private_file(paths.daemon_data / daemon.ADDRESS_FILE))
        return int(record["pid"]), str(record.get("version", ""))
    except (ConfideError, ValueError, KeyError, TypeError) as error:
        raise DaemonStopError(0, "its address file cannot be read") from error
