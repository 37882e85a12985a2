"""The machines of a drawn night: whose keys change, who are removed and come again, and what each does for the space by itself, over a
link that loses messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

from tests.support.sealing.rosters import DESKTOP, LAPTOP, PHONE, device, founded

from confide_crypto.errors import ConnectionLost
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_night.daemon.claims import SlotId
from confide_night.order.order import Order

NAMES: Final = ("laptop", "desktop", "phone")
START: Final = 1_800_000_000
T = TypeVar("T")


@cache
def _founded() -> tuple[Roster, SpaceKeys]:
    roster, keys = founded()
    for identity, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
        roster = roster.add(LAPTOP, device(identity, name), keys, now=START)
    return roster, keys


class Machines:
    """The devices of a space by name. One that changes its key has two on the list until the old one's orders are signed anew."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.roster, self.keys = _founded()
        self.identity = dict(zip(NAMES, (LAPTOP, DESKTOP, PHONE), strict=True))
        self.leaving: dict[str, Identity] = {}
        self.earlier: dict[str, set[str]] = {name: set() for name in NAMES}
        """In hex, of keys that were changed; a machine that comes again is another one."""

    def are_on(self, *names: str) -> bool:
        return all(self.identity[name].public_key in self.roster.devices for name in names)

    def named(self, key: bytes) -> str:
        """Whose key that is now; "": nobody's."""
        return next((name for name, one in self.identity.items() if one.public_key == key), "")

    def change_key(self, name: str) -> None:
        """A machine has a new key, and its old one has still to leave (PROTOCOL.md 7.10)."""
        old, new = self.identity[name], Identity(self._draw.randbytes(32))
        self.roster = self.roster.add(old, device(new, name), self.keys, now=START)
        self.identity[name], self.leaving[name] = new, old
        self.earlier[name].add(old.public_key.hex())

    def finish(self, name: str) -> None:
        """The old key has left."""
        old = self.leaving.pop(name)
        if old.public_key in self.roster.devices:
            removed = self.roster.remove(self.identity[name], old.public_key, self.keys, now=START)
            self.roster, self.keys = removed

    def remove(self, name: str) -> None:
        """A person takes a machine out of the space, with all its keys."""
        for identity in (self.leaving.pop(name, None), self.identity[name]):
            if identity is not None and identity.public_key in self.roster.devices:
                by = self.identity["laptop"]
                self.roster, self.keys = self.roster.remove(by, identity.public_key, self.keys, now=START)

    def invite(self, name: str) -> None:
        """One that was removed comes again: it is a new device."""
        self.identity[name] = Identity(self._draw.randbytes(32))
        self.earlier[name].clear()
        by = self.identity["laptop"]
        self.roster = self.roster.add(by, device(self.identity[name], name), self.keys, now=START)

    def change_space_key(self, name: str) -> None:
        """The space has a new key, for the same devices."""
        self.roster, self.keys = self.roster.rotate(self.identity[name], self.keys, now=START)


@dataclass
class Run:
    """What a runner does now. `deadline` and `renew_at` are by its own monotonic clock."""

    name: SlotId
    order: Order
    ends_at: float
    deadline: float
    renew_at: float
    outcome: str
    has_spawned: bool = False
    has_told: bool = False


@dataclass
class PlayedRunner:
    """A runner of one of the machines, whose key it has."""

    machines: Machines
    label: str
    is_up: bool = True
    is_cut_off: bool = False
    is_broken: bool = False
    """Its ledger is damaged: it does not begin until a person has looked, which nobody does at night."""
    place: int = 0
    """Which of the daemons it knows, of those that the space has been at."""
    has_heard: bool = False
    """That one has said to it that the memory was moved away."""
    run: Run | None = None
    ledger: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """Outlives its kills: what was begun, and how it ended; "" while it has not."""
    names: dict[tuple[str, int, int], SlotId] = field(default_factory=dict)
    again: set[tuple[str, int, int]] = field(default_factory=set)
    unreported: list[tuple[str, int, int]] = field(default_factory=list)
    next_claim: float = 0.0

    @property
    def identity(self) -> Identity:
        return self.machines.identity[self.label]

    @property
    def key(self) -> bytes:
        return self.identity.public_key


class Wire:
    """A machine's link to a daemon, as `RequestChannel`. `answer` is the daemon; a message may be lost, on its way there or back."""

    def __init__(
        self, draw: random.Random, answer: Callable[[str, dict[str, Any]], dict[str, Any]], *, loses: float
    ) -> None:
        self._draw = draw
        self._answer = answer
        self._loses = loses

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        for is_behind in (False, True):
            if self._draw.random() < self._loses:
                raise ConnectionLost(truncated=True)
            if not is_behind:
                said = self._answer(op, body)
        return said

    async def upload(self, op: str, body: dict[str, Any], data: bytes, *, timeout_s: float) -> dict[str, Any]:
        raise AssertionError("nothing of a task is uploaded")


def done(work: Coroutine[Any, Any, T]) -> T | None:
    """What came of something that a machine does over its link; None: it broke off."""
    try:
        return asyncio.run(work)
    except ConnectionLost:
        return None
