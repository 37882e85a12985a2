"""All connections by who holds them, and which of them goes where a full house makes room.

What looked at each of 512 connections whenever one came kept the loop of a daemon, which machines wait for, busy for seconds: here the one
that goes is found in a fraction of a millisecond.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from itertools import groupby
from typing import Final, Protocol

_NETWORK_BYTES: Final = 8
"""Of an IPv6 address, which whoever has one has 2^64 of."""

Address = str | bytes


def holder_of(host: str) -> Address:
    """Whoever is at an address, as far as one of them can have many; `host`: as ASGI has it of a client.

    On a socket of both families an IPv4 address comes as one of IPv6 (RFC 4291, 2.5.5.2).
    """
    address = ip_address(host) if host else ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:_NETWORK_BYTES] if isinstance(address, IPv6Address) else str(address)


class OpenConnection(Protocol):
    """A connection, as far as a crowd knows it; one on which TLS is being agreed on is none of uvicorn's yet."""

    @property
    def address(self) -> Address:
        """Of whoever is at the other end (`holder_of`)."""

    @property
    def used(self) -> float:
        """When its client last said something, as the loop tells the time."""

    @property
    def waits(self) -> bool:
        """Whether nothing is done here but wait for its client."""

    def cut(self) -> None:
        """End it, and that without a word."""


class Crowd:
    """Those who are there, who was silent longest first."""

    def __init__(self, most: int) -> None:
        """`most`: connections; the one that would be the last of so many makes room."""
        self._most = most
        self._of: dict[Address, dict[OpenConnection, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, one: OpenConnection) -> None:
        """It is there. Where there is no room, the connection that is missed least ends, which may be this one."""
        self.heard(one)
        if self._count >= self._most:
            least = self.least() or one
            self.left(least)
            least.cut()

    def heard(self, one: OpenConnection) -> None:
        """It has said something."""
        self.left(one)
        self._of.setdefault(one.address, {})[one] = None
        self._count += 1

    def left(self, one: OpenConnection) -> None:
        """It has ended."""
        of_one = self._of.get(one.address, {})
        if one in of_one:
            del of_one[one]
            self._count -= 1
        if not of_one:
            self._of.pop(one.address, None)

    def least(self) -> OpenConnection | None:
        """The one that is missed least: of what waits for its client, the longest silent of whoever holds most. None: all are at work."""
        for _, holders in groupby(sorted(self._of.values(), key=len, reverse=True), key=len):
            waiting = [first for each in holders if (first := next((one for one in each if one.waits), None))]
            if waiting:
                return min(waiting, key=lambda one: one.used)
        return None
