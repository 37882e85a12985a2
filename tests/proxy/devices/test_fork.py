"""A daemon was put back, and its list of devices went on otherwise than a machine knows it: what a person's word mends, and whom it never
brings back. A real daemon in between, and the keys of real machines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.sealing import rosters
from tests.support.sealing.devices import Device
from tests.support.sealing.rosters import DESKTOP, LAPTOP, PHONE, STRANGER, device

from confide_crypto.errors import (
    ConfideError,
    ConnectionLost,
    DeniedError,
    ForkedRosterError,
    RequestError,
    SealingError,
    WrapError,
    WrongDeviceError,
)
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing import roster_entry
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_memory.documents import RequestChannel
from confide_proxy.devices.fork import Fork
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import remover
from confide_proxy.devices.roster_cache import RosterCache

GHOST = Identity(bytes(range(132, 164)))
NOW = rosters.NOW


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


def parted() -> Fork:
    """Laptop, desktop and phone; the laptop then removes the phone and adds a stranger, and in the other list the phone adds a ghost."""
    both, keys = rosters.shared()
    both = both.add(LAPTOP, device(PHONE, "phone"), keys, now=NOW + 3)
    known, newer = both.remove(LAPTOP, PHONE.public_key, keys, now=NOW + 4)
    known = known.add(LAPTOP, device(STRANGER, "stranger"), newer, now=NOW + 5)
    shown = both.add(PHONE, device(GHOST, "ghost"), keys, now=NOW + 4)
    fork = Fork.between(known, shown)
    assert fork is not None
    return fork


def names(devices: Any) -> list[str]:
    return [each.name for each in devices]


def test_who_was_removed_comes_back_by_no_list_nor_whom_they_bring() -> None:
    fork = parted()
    assert names(fork.returning) == ["phone", "ghost"]
    assert (names(fork.missing), names(fork.removed_devices)) == (["stranger"], [])
    made = fork.repair(LAPTOP, (), now=NOW + 6)
    assert names(made.devices.values()) == ["laptop", "desktop"]
    assert made.epoch == fork.shown.epoch + 2
    for gone in (PHONE, GHOST):
        with pytest.raises(WrapError):
            made.open(WrapKey(gone))


def test_a_list_that_has_parted_gets_back_whom_a_person_wants() -> None:
    fork = parted()
    made = fork.repair(LAPTOP, {STRANGER.public_key}, now=NOW + 6)
    assert names(made.devices.values()) == ["laptop", "desktop", "stranger"]
    assert made.open(WrapKey(STRANGER)) == made.open(WrapKey(LAPTOP))


def test_a_removed_device_that_has_changed_its_key_in_the_other_list_goes_by_its_new_one() -> None:
    """It is on that list as a stranger, and its own key has left it."""
    fork = parted()
    keys = fork.shown.open(WrapKey(GHOST))
    shown, keys = fork.shown.remove(GHOST, PHONE.public_key, keys, now=NOW + 7)
    shown = shown.add(GHOST, device(Identity(bytes(range(3, 35))), "third"), keys, now=NOW + 8)
    assert names(Fork(fork.known, shown, fork.shared).returning) == ["ghost", "third"]


def test_whom_the_known_list_trusts_stays_though_one_that_was_removed_has_added_it() -> None:
    """And whom such a device has added: a person approved it in either list."""
    fork = parted()
    shown = fork.shown.add(PHONE, device(STRANGER, "stranger"), fork.shown.open(WrapKey(PHONE)), now=NOW + 7)
    fifth = Identity(bytes(range(5, 37)))
    shown = shown.add(STRANGER, device(fifth, "fifth"), shown.open(WrapKey(STRANGER)), now=NOW + 8)
    found = Fork(fork.known, shown, fork.shared)
    assert names(found.returning) == ["phone", "ghost"]
    assert names(found.repair(LAPTOP, (), now=NOW + 9).devices.values()) == ["laptop", "desktop", "stranger", "fifth"]


def test_a_device_that_the_other_list_has_removed_can_neither_mend_it_nor_come_back() -> None:
    fork = parted()
    shown, _ = fork.shown.remove(PHONE, LAPTOP.public_key, fork.shown.open(WrapKey(PHONE)), now=NOW + 7)
    found = Fork(fork.known, shown, fork.shared)
    assert names(found.removed_devices) == ["laptop"]
    assert names(found.missing) == ["stranger"]
    with pytest.raises(WrapError):
        found.repair(LAPTOP, (), now=NOW + 8)


def test_a_removed_device_does_not_mend_for_itself() -> None:
    with pytest.raises(WrongDeviceError):
        parted().repair(PHONE, (), now=NOW + 6)


def test_lists_that_go_on_from_each_other_have_not_parted_and_of_two_beginnings_none_is_offered() -> None:
    fork = parted()
    earlier = Roster.read(rosters.encoded(fork.known)[:2])
    assert Fork.between(fork.known, earlier) is None
    assert Fork.between(earlier, fork.known) is None
    again, _ = Roster.create(LAPTOP, "again", now=NOW + 9, keys=rosters.KEYS)
    elsewhere, _ = Roster.create(LAPTOP, "elsewhere", now=NOW)
    for other in (again, elsewhere):
        with pytest.raises(ForkedRosterError):
            Fork.between(fork.known, other)


def adder(by: Identity, newcomer: Device) -> Any:
    def make(roster: Roster, keys: SpaceKeys | None) -> Roster:
        assert keys is not None
        return roster.add(
            by, roster_entry.Device(Card.of(newcomer.identity), newcomer.name), keys, now=int(time.time())
        )

    return make


async def changed(by: Device, make: Any) -> Roster:
    keyring = by.keyring()
    async with by.connected() as link:
        await keyring.refresh(link)
        return await keyring.extend(link, make)


class Refusing:
    """A daemon that does not take changes of the list, or breaks off there."""

    def __init__(self, link: RequestChannel, error: ConfideError) -> None:
        self._link = link
        self._error = error

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op == "extend":
            raise self._error
        answer: dict[str, Any] = await self._link.request(op, body, timeout_s=timeout_s)
        return answer


async def refused(machine: Device) -> Keyring:
    keyring = await machine.visit()
    assert isinstance(keyring.problem, ForkedRosterError)
    assert "confide device confirm" in str(keyring.problem.hint)
    assert keyring.keys is None
    return keyring


async def test_a_machine_goes_on_from_the_list_of_a_daemon_that_was_put_back(daemon: Serving, tmp_path: Path) -> None:
    """Not by itself, nor by other words, nor while the daemon takes no removal. Then all its processes do, and who was added again."""
    ann, bob, eve, carl, ghost = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "eve", "carl", "ghost"))
    running = await ann.visit()
    for newcomer in (bob, eve):
        newcomer.take(ann.invite(running.space, newcomer.name, time.time() + 60))
        await newcomer.visit()
    await ann.visit()
    for newcomer in (bob, eve):
        assert (await newcomer.visit()).keys == running.keys
    carl.take(ann.invite(running.space, "carl", time.time() + 60))
    await carl.visit()
    await changed(ann, remover(ann.identity, eve.identity.public_key))
    assert (await carl.visit()).keys is not None
    running = await ann.visit()
    assert running.roster is not None
    pin = running.roster.pin
    assert pin.number == 4

    with daemon.state.registry.transaction() as database:  # as it was before both
        database.execute("DELETE FROM roster_entries WHERE number > 2")
    eve.take_in_again()
    await changed(eve, adder(eve.identity, ghost))
    shown = await changed(bob, lambda roster, keys: roster.rotate(bob.identity, keys, now=int(time.time()))[0])

    keyring = await refused(ann)
    cache = RosterCache(ann.paths.rosters)
    async with ann.connected() as link:
        fork = await keyring.find_fork(link)
        assert fork is not None
        assert (names(fork.returning), names(fork.missing)) == (["eve", "ghost"], ["carl"])
        again = frozenset([carl.identity.public_key])
        with pytest.raises(ForkedRosterError):
            await keyring.resolve_fork(link, Pin(shown.space, shown.pin.number, bytes(32)), again)
        for error in (RequestError("denied", "no"), ConnectionLost(truncated=True)):
            with pytest.raises(type(error)):
                await keyring.resolve_fork(Refusing(link, error), shown.pin, again)
            assert keyring.keys is None
            assert cache.pin(keyring.space) == pin
        await keyring.resolve_fork(link, shown.pin, again)
        assert keyring.keys is not None
        assert keyring.roster is not None
        assert names(keyring.roster.devices.values())[1:] == ["bob", "carl"]
    assert (await bob.visit()).keys == keyring.keys
    with pytest.raises(DeniedError):
        await eve.visit()
    await running.catch_up()
    assert running.keys == keyring.keys
    assert (await ann.visit()).keys == keyring.keys

    other = await refused(carl)
    async with carl.connected() as link:
        await other.resolve_fork(link, keyring.roster.pin, frozenset())
    assert (await carl.visit()).keys == keyring.keys


def test_another_branch_is_written_only_over_the_one_that_a_person_was_asked_about(tmp_path: Path) -> None:
    """Another process has seen more meanwhile; and under no name of the space the old branch is left."""
    fork = parted()
    cache = RosterCache(tmp_path / "rosters")
    for label in ("home", "as it was called before"):
        cache.keep(label, fork.known)
    made = fork.repair(LAPTOP, (), now=NOW + 6)
    with pytest.raises(ForkedRosterError):
        cache.keep("home", made)
    with pytest.raises(SealingError):
        cache.replace("home", fork.shown.pin, made)
    assert cache.pin("home") == fork.known.pin
    cache.replace("home", fork.known.pin, made)
    for label in ("home", "as it was called before"):
        seen = cache.read(label)
        assert seen is not None
        assert seen.pin == made.pin
        assert seen.roster is not None
        assert seen.roster.head == made.head
    assert cache.keep("home", made).head == made.head
    assert DESKTOP.public_key in made.devices
