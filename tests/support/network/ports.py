"""Ports of this machine for programs that have to be told one, and for addresses where nobody answers."""

from __future__ import annotations

import socket
from collections import deque
from typing import Final

MOST: Final = 256
"""Ports that a process keeps at a time."""

_kept: Final[deque[socket.socket]] = deque()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of this host, which may be `[::1]` too, that the system gives to nobody else while this process runs.

    A socket stays bound to it, without listening: connections are refused until a program, which was told the port, listens there. The
    program must set SO_REUSEADDR, as servers do.
    """
    kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host.strip("[]"), 0))
    _kept.append(kept)
    if len(_kept) > MOST:
        _kept.popleft().close()
    port: int = kept.getsockname()[1]
    return port
