"""A removal signed by a device that may write ends the other's access at once: its sessions, its invites, and whoever came in by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Machine, Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.devices import SPACE, Device

from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.roster_entry import Card
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_crypto.transport.open_channel import connect
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.enrollment import Rights, grant
from confide_proxy.cli.doctor import _removals
from confide_proxy.devices import roster_client
from confide_proxy.devices.device_rotation import prepare_roster
from confide_proxy.devices.duties import LostDevices
from confide_proxy.devices.members import find, remove, require_keys, roster_json
from confide_proxy.hooks.server.forgetting.waiting_removals import waiting_removals


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


async def space_of(daemon: Serving, root: Path, *names: str, **rights: object) -> list[Device]:
    """Devices of one space, the first of which has let in the others; `rights` are those of the others."""
    first, *others = Device(root, daemon, names[0]), *(Device(root, daemon, name, **rights) for name in names[1:])
    space = await first.visit()
    for other in others:
        other.take(first.invite(space.space, other.name, time.time() + 60))
        for each in (other, first, other):
            await each.visit()
        require_keys(await other.visit())
    return [first, *others]


async def invite_by(daemon: Serving, by: Device, name: str) -> DeviceInvite:
    """A string that a device makes."""
    made = DeviceInvite.new(daemon.state.identity.static_key, daemon.url)
    async with by.connected() as link:
        await roster_client.invite(link, made.invite, name=name, ttl_s=900, scope="write")
    return made


async def test_a_lost_device_can_do_nothing_any_more(daemon: Serving, tmp_path: Path) -> None:
    """One removal: its open session ends, and neither its key, its invites, those who used them, nor its apps have access."""
    ann, laptop = await space_of(daemon, tmp_path, "ann", "laptop")
    static, stolen = daemon.state.identity.static_key, laptop.identity.public_key
    used, unused = [await invite_by(daemon, laptop, name) for name in ("ghost", "later")]
    ghost = Identity.generate()
    await (await connect(daemon.url, ghost, static, invite=used.invite)).close()
    app = daemon.state.registry.add_gateway_client(
        bytes(32), Grants("chat"), space=SPACE, gateway="untrusted", expires_at=time.time() + 900
    )
    with daemon.state.registry.transaction() as database:  # as a sign-in that the laptop has approved does
        database.execute("UPDATE callers SET invited_by = ? WHERE public_key = ?", (stolen, app.public_key))
    async with Machine(await daemon.connect(laptop.identity)) as session, ann.connected() as link:
        keyring = ann.keyring()
        await keyring.refresh(link)
        ended = await remove(keyring, link, stolen)
        assert {(one["name"], one["isApp"]) for one in ended or ()} == {
            ("laptop", False),
            ("ghost", False),
            ("chat", True),
        }
        assert await session.ended_within(DEADLINE_S) is None
        assert session.connection.close_code == "revoked"
        # Its answer was lost, so it is brought again: it says the same, and changes nothing.
        assert keyring.roster is not None
        assert await roster_client.extend(link, keyring.roster.entries[-1]) == []
    for identity, invite in ((laptop.identity, None), (ghost, None), (Identity.generate(), unused.invite)):
        with pytest.raises(DeniedError):
            await connect(daemon.url, identity, static, invite=invite)
    assert daemon.state.registry.gateway_clients() == []
    assert [one.alias for one in daemon.state.registry.callers()] == ["ann"]


async def test_the_devices_that_it_has_let_in_stay(daemon: Serving, tmp_path: Path) -> None:
    """The founder is lost, by whose invites all others came: the one that removes it and the third keep what they have."""
    ann, bob, eve = await space_of(daemon, tmp_path, "ann", "bob", "eve")
    with daemon.state.registry.transaction() as database:
        database.execute("UPDATE callers SET invited_by = ? WHERE alias IN ('bob', 'eve')", (ann.identity.public_key,))
    async with bob.connected() as link:
        keyring = bob.keyring()
        await keyring.refresh(link)
        ended = await remove(keyring, link, ann.identity.public_key)
    assert [one["name"] for one in ended or ()] == ["ann"]
    for device in (bob, eve):
        require_keys(await device.visit())


async def test_who_does_not_reach_all_ends_no_access(daemon: Serving, tmp_path: Path) -> None:
    """A device that is limited to some projects takes the keys from another, as before, and is told that it may still connect."""
    ann, limited = await space_of(daemon, tmp_path, "ann", "limited", projects=frozenset({"p"}))
    async with limited.connected() as link:
        keyring = limited.keyring()
        await keyring.refresh(link)
        assert await remove(keyring, link, ann.identity.public_key) is None
    async with ann.connected():
        pass


async def test_of_two_that_declare_each_other_lost_one_is_heard(daemon: Serving, tmp_path: Path) -> None:
    """The other is told that it is out, and is."""
    ann, bob = await space_of(daemon, tmp_path, "ann", "bob")

    async def declare(by: Device, lost: Device) -> str:
        try:
            async with by.connected() as link:
                keyring = by.keyring()
                await keyring.refresh(link)
                await remove(keyring, link, lost.identity.public_key)
                return by.name
        except (ConfideError, TimeoutError):
            return ""

    won = [name for name in await asyncio.gather(declare(ann, bob), declare(bob, ann)) if name]
    assert [one.alias for one in daemon.state.registry.callers()] == won
    (loser,) = [each for each in (ann, bob) if each.name not in won]
    with pytest.raises(DeniedError):
        await connect(daemon.url, loser.identity, daemon.state.identity.static_key)


async def test_a_key_that_the_operator_takes_in_again_is_not_ended_by_an_old_removal(
    daemon: Serving, tmp_path: Path
) -> None:
    """Whoever brings the entry once more is told that the device may connect."""
    ann, laptop = await space_of(daemon, tmp_path, "ann", "laptop")
    async with ann.connected() as link:
        keyring = ann.keyring()
        await keyring.refresh(link)
        await remove(keyring, link, laptop.identity.public_key)
        laptop.take_in_again()
        assert keyring.roster is not None
        assert await roster_client.extend(link, keyring.roster.entries[-1]) is None
    async with laptop.connected() as link:
        with pytest.raises(RequestError, match="was removed"):
            await roster_client.pair(link, card=Card.of(laptop.identity))


async def test_what_was_declared_lost_while_the_daemon_was_away_is_removed_first(
    daemon: Serving, tmp_path: Path
) -> None:
    """By the next connection, whatever it is for; and once."""
    ann, laptop = await space_of(daemon, tmp_path, "ann", "laptop")
    keyring = ann.keyring()
    await keyring.recall()
    assert keyring.roster is not None
    LostDevices(ann.paths.rosters).add(keyring.roster.space, laptop.identity.public_key)
    keyring = await ann.visit()
    assert keyring.roster is not None
    assert list(keyring.roster.devices) == [ann.identity.public_key]
    assert [one.alias for one in daemon.state.registry.callers()] == ["ann"]
    assert LostDevices(ann.paths.rosters).of(keyring.roster.space) == []


async def renew(daemon: Serving, device: Device) -> Identity:
    """Change a device's key as `confide device key rotate` does; return the old one."""
    old, new, now = device.identity, Identity.generate(), int(time.time())

    def drop(roster: Roster, keys: SpaceKeys | None) -> Roster:
        assert keys is not None
        return roster.remove(new, old.public_key, keys, now=now)[0]

    async with device.connected() as link:
        await prepare_roster(device.paths.rosters, device.keyring(), link, old, new, now=now)
        daemon.state.registry.name_successor(old.public_key, new.public_key, session="s")
    device.paths.identity.unlink()
    new.save(device.paths.identity)
    async with device.connected() as link:
        await device.keyring().extend(link, drop)
    return old


async def test_a_lost_device_that_changed_its_key_before_the_daemon_was_back_is_removed(
    daemon: Serving, tmp_path: Path
) -> None:
    """It was declared lost by the key that this device knew."""
    ann, laptop = await space_of(daemon, tmp_path, "ann", "laptop")
    old = await renew(daemon, laptop)
    keyring = ann.keyring()
    await keyring.recall()
    assert keyring.roster is not None
    LostDevices(ann.paths.rosters).add(keyring.roster.space, old.public_key)
    keyring = await ann.visit()
    assert keyring.roster is not None
    assert list(keyring.roster.devices) == [ann.identity.public_key]
    assert [one.alias for one in daemon.state.registry.callers()] == ["ann"]


async def test_a_device_is_found_by_the_words_of_a_key_that_it_had(daemon: Serving, tmp_path: Path) -> None:
    """And removed with the key that it has; whom it had added, a device that is still there has added."""
    ann, laptop, desk = await space_of(daemon, tmp_path, "ann", "laptop", "desk")
    words = [fingerprint_words((await renew(daemon, device)).public_key) for device in (ann, laptop)]
    async with ann.connected() as link:
        keyring = ann.keyring()
        await keyring.refresh(link)
        assert keyring.roster is not None
        listed = roster_json(keyring, ann.identity.public_key)["devices"]
        assert isinstance(listed, list)
        for one in listed:
            if not one["isThis"]:
                assert not one["isAdderRemoved"]
                assert one["addedByWords"] == fingerprint_words(ann.identity.public_key) != words[0]
        found = find(keyring.roster, words[1])
        assert found.key == laptop.identity.public_key
        await remove(keyring, link, Card.of(desk.identity).key)
        # A thief changed the key after the device was found.
        old = await renew(daemon, laptop)
        ended = await remove(keyring, link, old.public_key)
        assert [one["name"] for one in ended or ()] == ["laptop"]
        # Again, by any key that it had: its access has ended, and the daemon says so.
        assert await remove(keyring, link, found.key) == await remove(keyring, link, old.public_key) == []
    assert [one.alias for one in daemon.state.registry.callers()] == ["ann"]


async def test_a_removal_that_this_device_may_not_make_is_not_said_to_wait_for_the_daemon(
    daemon: Serving, tmp_path: Path
) -> None:
    """It was declared lost while the daemon was away; where it is there, nothing goes on by itself."""
    ann, laptop = await space_of(daemon, tmp_path, "ann", "laptop")
    keyring = ann.keyring()
    await keyring.recall()
    assert keyring.roster is not None
    LostDevices(ann.paths.rosters).add(keyring.roster.space, laptop.identity.public_key)
    (told,) = await waiting_removals(ann.paths, keyring, None)
    assert told == "laptop is declared lost, and has access until this device reaches the daemon"
    (found,) = _removals([told])
    assert found.state == "hint"
    grant(daemon.state.registry, "ann", Rights(scope="read"))
    async with ann.connected() as link:
        await keyring.refresh(link)
        (told,) = await waiting_removals(ann.paths, keyring, link)
    assert told.startswith("laptop is declared lost, and still has access")
    assert told.endswith("confide device lost laptop says why")
    (found,) = _removals([told])
    assert (found.state, found.hint) == ("problem", "")
