"""A machine that has joined another daemon: what it knows of the spaces that it left is not that daemon's to claim."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.sealing.devices import Device

from confide_crypto.sealing.roster_entry import RosterEntry
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.errors import AnotherSpaceError, UnconfirmedError

OLD, NEW = bytes([1]) * 32, bytes([2]) * 32


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


class Claiming:
    """A daemon that says that it has a space, whose roster it has come by, and asks for the key of its database."""

    def __init__(self, space: str, entries: tuple[RosterEntry, ...]) -> None:
        self._space = space
        self._entries = entries
        self.told: list[str] = []

    @property
    def attached(self) -> dict[str, Any]:
        newest = self._entries[-1].hash().hex() if self._entries else ""
        number = len(self._entries) - 1
        sealing = {"number": number, "head": newest, "epoch": 1, "custody": "caller", "needs": [1]}
        return {"space": self._space, "sealing": sealing}

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        assert timeout_s > 0
        self.told.append(op)
        if op != "roster":
            return {"isLocked": False} if op == "unlock" else {}
        return {
            "space": self._space,
            "entries": [b64encode(entry.encode()).decode() for entry in self._entries[body["from"] :]],
            "number": len(self._entries) - 1,
            "head": self.attached["sealing"]["head"],
            "custody": "caller",
            "isLocked": True,
            "needs": [1],
            "waiting": [],
        }


async def founder(tmp_path: Path, daemon: Serving) -> tuple[Device, Keyring]:
    ann = Device(tmp_path, daemon, "ann")
    return ann, await ann.visit()


@pytest.mark.parametrize("claims", ["its id", "its roster", "both"])
async def test_a_space_of_another_daemon_is_not_believed_before_a_person_has_said_so(
    daemon: Serving, tmp_path: Path, claims: str
) -> None:
    """Neither by its id nor by its roster: it would be handed the key of a database that it may have stolen."""
    ann, space = await founder(tmp_path, daemon)
    assert space.roster is not None
    RosterCache(ann.paths.rosters).record_daemon_change(OLD, NEW)
    entries = () if claims == "its id" else space.roster.entries
    evil = Claiming("a name of its own" if claims == "its roster" else space.space, entries)
    keyring = ann.keyring()
    await keyring.open(evil, evil.attached)
    assert keyring.keys is None
    assert set(evil.told) <= {"roster", "pair"}
    if entries:
        assert isinstance(keyring.problem, UnconfirmedError)
        await keyring.confirm(evil, space.roster.pin)
        assert keyring.keys == space.keys
        assert "unlock" in evil.told
        back = await ann.visit()
        assert back.keys == (space.keys if claims == "both" else None)
        assert claims == "both" or isinstance(back.problem, AnotherSpaceError)


async def test_a_machine_that_comes_back_finds_its_space_as_it_was(daemon: Serving, tmp_path: Path) -> None:
    ann, space = await founder(tmp_path, daemon)
    cache = RosterCache(ann.paths.rosters)
    cache.record_daemon_change(OLD, OLD)
    assert (await ann.visit()).keys == space.keys
    cache.record_daemon_change(OLD, NEW)
    assert (await ann.visit()).keys is None
    cache.record_daemon_change(NEW, OLD)
    assert (await ann.visit()).keys == space.keys


async def test_an_invite_of_a_device_vouches_for_the_daemon_too(daemon: Serving, tmp_path: Path) -> None:
    """As where a daemon has lost its own key, and its machines join it anew."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    await bob.visit()
    RosterCache(bob.paths.rosters).record_daemon_change(OLD, NEW)
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    for device in (bob, ann):
        await device.visit()
    assert (await bob.visit()).keys == space.keys
