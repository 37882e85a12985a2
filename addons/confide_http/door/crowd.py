"""Keeps all open connections by client address, and chooses the one to close when the limit is
reached.

A scan of all 512 connections for each new one kept the daemon's event loop busy for seconds, and
devices had to wait. With this structure the choice takes a fraction of a millisecond.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from itertools import groupby
from typing import Final, Protocol

_NETWORK_BYTES: Final = 8
"""Bytes of an IPv6 address that identify a client: a client usually has 2^64 addresses."""

Address = str | bytes


def holder_of(host: str) -> Address:
    """Return the key under which a client's connections are counted together. `host` is the
    client's address as ASGI states it.

    An IPv6 client has a whole network of addresses, so its key is the network. On a dual-stack
    socket an IPv4 address appears as an IPv6 one (RFC 4291, 2.5.5.2) and is converted back.
    """
    address = ip_address(host) if host else ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:_NETWORK_BYTES] if isinstance(address, IPv6Address) else str(address)


class OpenConnection(Protocol):
    """The interface of a connection in `Crowd`. uvicorn does not know a connection before its TLS
    handshake ends, but `Crowd` counts it already.
    """

    @property
    def address(self) -> Address:
        """The address key under which the connections of one client are counted together (see
        `holder_of`).
        """

    @property
    def last_heard(self) -> float:
        """The event loop's time at which the client last sent data."""

    @property
    def waits(self) -> bool:
        """True while the server waits for the client, either for a request or for it to read its
        response.
        """

    def cut(self) -> None:
        """Close the connection without an answer."""


class Crowd:
    """The open connections of a server, by client; those of a client are ordered by the time since
    they last sent data.
    """

    def __init__(self, most: int) -> None:
        """`most`: limit of connections; reaching it closes one."""
        self._most = most
        self._by_address: dict[Address, dict[OpenConnection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, one: OpenConnection) -> None:
        """Add a connection. If the limit is reached, close one connection, which may be the new one
        (see `least`).
        """
        self.note_heard(one)
        if self._count >= self._most:
            least = self.least() or one
            self.remove(least)
            least.cut()

    def note_heard(self, one: OpenConnection) -> None:
        """Record that the client of this connection has just sent data."""
        self.remove(one)
        self._by_address.setdefault(one.address, {})[one] = None
        self._count += 1

    def remove(self, one: OpenConnection) -> None:
        """Remove a connection that has ended."""
        of_one = self._by_address.get(one.address, {})
        if one in of_one:
            del of_one[one]
            self._count -= 1
        if not of_one:
            self._by_address.pop(one.address, None)

    def least(self) -> OpenConnection | None:
        """Return the connection to close, or None if the server works on a request of every one.

        Of the connections whose client must send or read next, it is one of the client with the
        most connections, and the one that has sent nothing for the longest time.
        """
        for _, holders in groupby(sorted(self._by_address.values(), key=len, reverse=True), key=len):
            waiting = [first for each in holders if (first := next((one for one in each if one.waits), None))]
            if waiting:
                return min(waiting, key=lambda one: one.last_heard)
        return None
