"""A daemon that calls the space by another name: what this machine has pinned of it counts as before."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.sealing.devices import Device

from confide_crypto.errors import ForeignEntryError, WithheldRosterError
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import RosterEntry
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import remover
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.errors import AnotherSpaceError, UnconfirmedError

LABEL = "0000000000000000"
DAEMON = bytes([1]) * 32


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


class Relabelling:
    """What a daemon's operator could do with two strings changed: another id of the space, and a list of devices of his choice."""

    def __init__(self, space: str, entries: tuple[RosterEntry, ...], custody: str = "caller") -> None:
        self._space = space
        self.entries = list(entries)
        self._custody = custody
        self.told: list[str] = []

    @property
    def attached(self) -> dict[str, Any]:
        head = self.entries[-1].hash().hex() if self.entries else ""
        sealing = {"number": len(self.entries) - 1, "head": head, "epoch": 1, "custody": self._custody, "needs": [1]}
        return {"space": self._space, "sealing": sealing}

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        assert timeout_s > 0
        self.told.append(op)
        if op == "extend":
            self.entries.append(RosterEntry.parse(b64decode(body["entry"])))
            return {"number": len(self.entries) - 1}
        if op != "roster":
            return {"isLocked": False} if op == "unlock" else {"answer": None}
        return {
            "space": self._space,
            "entries": [b64encode(entry.encode()).decode() for entry in self.entries[body["from"] :]],
            "number": len(self.entries) - 1,
            "head": self.attached["sealing"]["head"],
            "custody": self._custody,
            "isLocked": False,
            "needs": [1],
            "waiting": [],
        }


async def robbed(tmp_path: Path, daemon: Serving) -> tuple[Device, Device, tuple[RosterEntry, ...], Keyring]:
    """Ann has founded the space, Bob is a device, and a stolen one was removed: with the list from before that, and Ann's keyring."""
    ann, bob, thief = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "thief"))
    space = await ann.visit()
    for guest in (thief, bob):
        guest.take(ann.invite(space.space, guest.name, time.time() + 60))
        for device in (guest, ann, guest):
            await device.visit()
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
        assert keyring.roster is not None
        before = keyring.roster.entries
        await keyring.extend(link, remover(ann.identity, thief.identity.public_key))
    assert (await bob.visit()).roster == keyring.roster
    return ann, bob, before, keyring


@pytest.mark.parametrize("who", ["founder", "other device"])
async def test_a_removed_device_does_not_come_back_under_another_name_of_the_space(
    daemon: Serving, tmp_path: Path, who: str
) -> None:
    """The founder would have believed it without a word; another device, after comparing words that are right."""
    ann, bob, before, space = await robbed(tmp_path, daemon)
    machine = ann if who == "founder" else bob
    for label in (space.space, LABEL):
        evil = Relabelling(label, before)
        evil.entries = list(before)
        keyring = machine.keyring()
        keyring.load()
        await keyring.open(evil, evil.attached)
        assert keyring.keys is None or keyring.keys == space.keys, label
        assert "unlock" not in evil.told or label == space.space
        if label == LABEL:
            assert isinstance(keyring.problem, WithheldRosterError)
            assert keyring.unconfirmed is None
            with pytest.raises(WithheldRosterError):
                await keyring.move(evil)
            assert keyring.keys is None
            assert "unlock" not in evil.told
    # Nor is the pin anywhere but where it was.
    RosterCache(machine.paths.rosters).record_daemon_change(DAEMON, DAEMON)
    assert (await machine.visit()).keys == space.keys


@pytest.mark.parametrize("shown", ["all of the list", "nothing", "a space of another's making"])
async def test_another_name_from_the_daemon_is_no_new_space(daemon: Serving, tmp_path: Path, shown: str) -> None:
    """Nothing is begun, handed over or sealed there before a person has said that the machine was moved."""
    ann, _, _, space = await robbed(tmp_path, daemon)
    assert space.roster is not None
    stranger = Roster.create(Device(tmp_path, daemon, "eve").identity, "eve", now=1)[0]
    entries = {"all of the list": space.roster.entries, "nothing": (), "a space of another's making": stranger.entries}
    evil = Relabelling(LABEL, entries[shown])
    for _ in range(2):
        keyring = ann.keyring()
        await keyring.open(evil, evil.attached)
        assert isinstance(keyring.problem, AnotherSpaceError)
        assert "confide device confirm" in str(keyring.problem.hint)
        assert keyring.keys is None
        assert set(evil.told) <= {"roster", "pair"}
    # What it says afterwards, in the same session, is believed as little.
    await keyring.refresh(evil)
    assert keyring.keys is None
    # While the daemon is away, the space is the one that a person knows.
    away = ann.keyring()
    away.load()
    assert away.keys == space.keys
    assert (await ann.visit()).keys == space.keys

    await keyring.refresh(evil)
    await keyring.move(evil)
    if shown == "a space of another's making":
        assert keyring.keys is None
    else:
        assert keyring.keys is not None
        assert (keyring.keys == space.keys) == (shown == "all of the list")


async def test_a_machine_that_joins_again_is_in_the_space_that_the_daemon_names_next(
    daemon: Serving, tmp_path: Path
) -> None:
    """`confide join` into another space of the same daemon: a person has said so."""
    ann = Device(tmp_path, daemon, "ann")
    before = await ann.visit()
    RosterCache(ann.paths.rosters).record_daemon_change(DAEMON, DAEMON)
    other = Relabelling(LABEL, ())
    keyring = ann.keyring()
    await keyring.open(other, other.attached)
    assert keyring.problem is None
    assert keyring.keys is not None
    assert keyring.keys != before.keys
    # And not in a third one, or back in the first, without a word.
    assert isinstance((await ann.visit()).problem, AnotherSpaceError)


async def test_a_list_of_devices_that_nothing_is_pinned_of_is_believed_only_while_it_begins(
    daemon: Serving, tmp_path: Path
) -> None:
    """A founder who has lost its pins cannot know how old a list is that it began itself."""
    ann, _, before, space = await robbed(tmp_path, daemon)
    for path in ann.paths.rosters.iterdir():
        path.unlink()
    evil = Relabelling(space.space, before)
    keyring = ann.keyring()
    await keyring.open(evil, evil.attached)
    assert isinstance(keyring.problem, UnconfirmedError)
    assert keyring.keys is None
    assert space.roster is not None
    with pytest.raises(WithheldRosterError):  # the person has seen the newest change on another machine
        await keyring.confirm(evil, space.roster.pin)
    assert keyring.keys is None


async def test_the_name_of_a_space_stands_for_one_list_of_devices(daemon: Serving, tmp_path: Path) -> None:
    """Neither is another list taken under a known name, nor a known one kept twice in different states."""
    ann, _, before, space = await robbed(tmp_path, daemon)
    assert space.roster is not None
    cache = RosterCache(ann.paths.rosters)
    with pytest.raises(ForeignEntryError):
        cache.keep(space.space, Roster.create(ann.identity, "ann", now=1)[0])
    old = Roster.read([entry.encode() for entry in before])
    assert cache.keep(LABEL, old) == space.roster
    assert cache.read(LABEL) == cache.read(space.space) == cache.of(space.roster.space)


async def test_another_name_does_not_hide_that_the_machines_kept_the_key(daemon: Serving, tmp_path: Path) -> None:
    ann, _, _, space = await robbed(tmp_path, daemon)
    assert space.roster is not None
    cache = RosterCache(ann.paths.rosters)
    cache.note_custody(space.space, "caller")
    cache.keep(LABEL, space.roster)
    assert cache.note_custody(LABEL, "server") == (True, True)
