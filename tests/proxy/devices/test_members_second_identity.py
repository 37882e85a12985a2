"""A thief who makes himself a second machine out of a stolen one: it is shown who brought in whom, and both go."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.sealing.devices import Device

from confide_crypto.errors import DeniedError, SealingError
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing import roster_entry
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_crypto.transport.open_channel import connect
from confide_proxy.cli.device_removal import remove_brought_in
from confide_proxy.devices import roster_client
from confide_proxy.devices.members import remover, roster_json


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


async def brought_in(daemon: Serving, by: Device, name: str) -> Identity:
    """A second identity, which joins by an invite of a machine and is signed into the roster by it, as its holder can do."""
    ghost, keyring = Identity.generate(), by.keyring()
    static = daemon.state.identity.static_key

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        assert keys is not None
        return roster.add(by.identity, roster_entry.Device(Card.of(ghost), name), keys, now=int(time.time()))

    async with by.connected() as link:
        await keyring.refresh(link)
        made = DeviceInvite.new(static, daemon.url)
        await roster_client.invite(link, made.invite, name=name, ttl_s=900, scope="write")
        await (await connect(daemon.url, ghost, static, invite=made.invite)).close()
        await keyring.extend(link, make)
    return ghost


async def test_a_second_identity_goes_with_the_machine_that_made_it(daemon: Serving, tmp_path: Path) -> None:
    """Removed with it, it neither opens the epoch that is begun to shut it out nor connects."""
    ann, laptop = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "laptop")
    space = await ann.visit()
    laptop.take(ann.invite(space.space, "laptop", time.time() + 60))
    for device in (laptop, ann, laptop):
        await device.visit()
    ghost = await brought_in(daemon, laptop, "desk-2")
    registry, mine = daemon.state.registry, ann.identity
    stolen = laptop.identity.public_key
    keyring, asked = ann.keyring(), []

    async def is_wanted(device: roster_entry.Device) -> bool:
        asked.append(device.name)
        return True

    async with ann.connected() as link:
        await keyring.refresh(link)
        first, second, third = roster_json(keyring, mine.public_key)["devices"]
        assert [one["addedBy"] for one in (first, second, third)] == [None, first["name"], "laptop"]
        assert (third["name"], third["addedByWords"]) == ("desk-2", fingerprint_words(stolen))
        await keyring.extend(link, remover(mine, stolen))
        (left,) = [one for one in roster_json(keyring, mine.public_key)["devices"] if one["name"] == "desk-2"]
        assert left["isAdderRemoved"]
        gone, staying, _ = await remove_brought_in(keyring, link, stolen, is_wanted)
    assert ([one.key for one in gone], staying, asked) == ([ghost.public_key], [], ["desk-2"])
    assert keyring.roster is not None
    assert list(keyring.roster.devices) == [mine.public_key]
    with pytest.raises(SealingError):
        keyring.roster.open(WrapKey(ghost))

    assert [one.alias for one in registry.callers()] == ["ann"]
    with pytest.raises(DeniedError):
        await connect(daemon.url, ghost, daemon.state.identity.static_key)


async def test_who_was_brought_in_is_known_through_new_keys_and_either_way_of_coming(
    daemon: Serving, tmp_path: Path
) -> None:
    """By an invite, by a signature, or by one after the other; a machine that changes its key stays whose it was."""
    ann, laptop, desk = (Device(tmp_path, daemon, name) for name in ("ann", "laptop", "desk"))
    space = await ann.visit()
    laptop.take(ann.invite(space.space, "laptop", time.time() + 60))
    for device in (laptop, ann, laptop):
        await device.visit()
    ghost = await brought_in(daemon, laptop, "ghost")
    registry = daemon.state.registry
    renewed = Identity.generate().public_key
    registry.name_successor(ghost.public_key, renewed, session="s")
    registry.succeed(renewed)
    old, new = laptop.identity.public_key, Identity.generate().public_key
    registry.name_successor(old, new, session="s")
    registry.succeed(new)
    assert [one.public_key for one in registry.brought_in_by([new], {})] == [renewed]
    # The operator let the desk in, and the ghost has approved it.
    added_by = {desk.identity.public_key: renewed}
    assert {one.alias for one in registry.brought_in_by([new], added_by)} == {"ghost", "desk"}
    assert registry.brought_in_by([desk.identity.public_key], added_by) == []


async def test_one_that_stays_is_asked_about_once(daemon: Serving, tmp_path: Path) -> None:
    """And this machine is never taken for one that goes, also where the stolen one has added it."""
    ann, bob, carl = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "carl"))
    space = await ann.visit()
    for guest in (bob, carl):
        guest.take(ann.invite(space.space, guest.name, time.time() + 60))
        for device in (guest, ann, guest):
            await device.visit()
    keyring, asked = bob.keyring(), []

    async def is_wanted(device: roster_entry.Device) -> bool:
        asked.append(device.name)
        return False

    async with bob.connected() as link:
        await keyring.refresh(link)
        await keyring.extend(link, remover(bob.identity, ann.identity.public_key))
        gone, staying, _ = await remove_brought_in(keyring, link, ann.identity.public_key, is_wanted)
    assert (gone, [one.name for one in staying], asked) == ([], ["carl"], ["carl"])
