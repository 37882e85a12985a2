"""Finds the running gateway of this device, for commands that need one, without loading the gateway
itself.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file
from confide_proxy.locks import Seat
from confide_proxy.paths import ProxyPaths

RUNNING: Final = "running.json"
PORT: Final = 7734


class RunningGateway(NamedTuple):
    """A gateway that listens on a loopback port."""

    pid: int
    port: int
    version: str


def running(paths: ProxyPaths) -> RunningGateway | None:
    """Return the running gateway of this device, or None if none runs. Blocks briefly."""
    seat = Seat(paths.seats, "gateway")
    try:
        if seat.try_take():  # what a process that was killed has left behind
            return None
        said = json.loads(read_private_file(paths.gateway / RUNNING))
        return RunningGateway(int(said["pid"]), int(said["port"]), str(said["version"]))
    except (KeyFileError, OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        seat.leave()
