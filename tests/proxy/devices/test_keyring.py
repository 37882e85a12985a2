"""The keys of a space on the machines that share it, with a real daemon between them."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.devices import Device
from tests.support.sealing.rosters import STRANGER

from confide_crypto.errors import (
    ConfideError,
    ConnectionLost,
    RequestError,
    RosterError,
    SealingError,
    WithheldRosterError,
)
from confide_crypto.handshake.rotation import sign_rotation
from confide_crypto.keys.identity import Identity, fingerprint_words
from confide_crypto.sealing import roster_entry
from confide_crypto.sealing.pairing import DeviceInvite
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.roster_entry import RosterEntry
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_crypto.transport.open_channel import Connection
from confide_daemon.access.job_queue import Jobs
from confide_memory.documents import RequestChannel
from confide_proxy.cli import status
from confide_proxy.devices import device_rotation, roster_client
from confide_proxy.devices.device_pairing import Invitation, Invitations
from confide_proxy.devices.duties import KeyChange
from confide_proxy.devices.members import remover
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.errors import NotADeviceError, UnconfirmedError
from confide_proxy.link.daemon import KnownDaemon, save_pin

OLD = bytes([1]) * 32
"""A daemon's static key."""


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


async def approve(device: Device, newcomer: Device) -> None:
    """Add a machine whose words somebody has compared."""
    keyring = device.keyring()
    async with device.connected() as link:
        await keyring.refresh(link)
        assert keyring.daemon_roster is not None
        card = next(one.card for one in keyring.daemon_roster.waiting if one.key == newcomer.identity.public_key)
        assert card is not None

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            assert keys is not None
            return roster.add(device.identity, roster_entry.Device(card, newcomer.name), keys, now=int(time.time()))

        await keyring.extend(link, make)


async def test_the_first_machine_founds_the_space_and_keeps_its_keys(daemon: Serving, tmp_path: Path) -> None:
    """A second start has the same keys, without a question to the daemon, and without the daemon too."""
    ann = Device(tmp_path, daemon, "ann")
    first = await ann.visit()
    assert first.problem is None
    assert first.keys is not None
    asked: list[str] = []
    again = ann.keyring()
    async with ann.connected() as link:
        attached = await ann.attach(link)

        class Counting:
            async def request(
                self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False
            ) -> dict[str, Any]:
                asked.append(op)
                return await link.request(op, body, timeout_s=timeout_s)

        await again.open(Counting(), attached)
    assert again.keys == first.keys
    assert asked == []
    away = ann.keyring()
    away.load()
    assert away.keys == first.keys


async def test_a_machine_that_joins_waits_for_approval_and_for_the_words_of_the_space(
    daemon: Serving, tmp_path: Path
) -> None:
    """Neither the daemon's word that it is a device, nor that of a person about another space, gives it keys."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    assert space.roster is not None
    assert isinstance((await bob.visit()).problem, NotADeviceError)
    await approve(ann, bob)
    keyring = await bob.visit()
    assert isinstance(keyring.problem, UnconfirmedError)
    assert keyring.keys is None
    async with bob.connected() as link:
        with pytest.raises(RosterError):
            await keyring.confirm(link, Pin(space.roster.space, 0, bytes(32)))
        assert keyring.keys is None
        await keyring.confirm(link, space.roster.pin)
        assert keyring.keys == space.keys
    assert (await bob.visit()).keys == space.keys


async def test_a_pair_secret_needs_no_person(daemon: Serving, tmp_path: Path) -> None:
    """The machine that made the invite was away; when it connects it adds the other, which has the keys at once."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    keyring = bob.keyring()
    async with bob.connected() as link:
        await keyring.open(link, await bob.attach(link))
        assert isinstance(keyring.problem, NotADeviceError)
        assert keyring.keys is None
        await ann.visit()
        async with asyncio.timeout(20):
            while keyring.keys is None:
                await bob.news.wait()
                bob.news.clear()
                await keyring.refresh(link)
    assert keyring.keys == space.keys
    assert keyring.roster is not None
    assert [device.name for device in keyring.roster.devices.values()][1:] == ["bob"]
    assert Invitations(ann.paths.rosters).of(space.space, time.time()) == []
    assert (await bob.visit()).keys == space.keys


async def test_a_pair_secret_brings_one_machine_and_only_in_time(daemon: Serving, tmp_path: Path) -> None:
    """A second machine with the same string waits like any other, and so does one that comes too late."""
    ann, bob, eve, late = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "eve", "late"))
    space = await ann.visit()
    invite = ann.invite(space.space, "bob", time.time() + 60)
    for machine, held in ((bob, invite), (eve, invite), (late, ann.invite(space.space, "late", time.time() - 1))):
        machine.take(held)
        await machine.visit()
        await ann.visit()
    assert (await bob.visit()).keys == space.keys
    assert (await eve.visit()).keys is None
    waiting = await late.visit()
    assert waiting.keys is None
    assert waiting.problem is not None
    # Its invite adds it no more: what does is named.
    assert (
        f"confide device approve NAME on a device of the space, and type these words: {fingerprint_words(late.identity.public_key)}"
        in str(waiting.problem.hint)
    )
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
    assert keyring.daemon_roster is not None
    assert keyring.roster is not None
    assert [joiner.name for joiner in keyring.daemon_roster.waiting] == ["eve", "late"]
    assert len(keyring.roster.devices) == 2


def test_of_two_sessions_that_are_shown_two_machines_one_takes_one(tmp_path: Path) -> None:
    """All sessions of a machine hear of news at once, and a daemon may show each another machine that holds the string."""
    kept = Invitations(tmp_path / "rosters")
    made = DeviceInvite.new(bytes(32), "confide://h:1").pair
    kept.keep(Invitation("s", "bob", made, time.time() + 60))
    (here,), (there,) = kept.of("s", time.time()), kept.of("s", time.time())
    bob, eve = Identity.generate().public_key, Identity.generate().public_key
    assert kept.used_for(here, bob) == bob
    assert kept.used_for(there, eve) == bob
    assert [one.card_key for one in kept.of("s", time.time())] == [bob]
    kept.forget(here)
    assert kept.used_for(there, eve) is None
    assert kept.of("s", time.time()) == []
    assert list((tmp_path / "rosters").iterdir()) == []


async def test_a_secret_that_another_session_has_bound_to_one_machine_brings_no_second(
    daemon: Serving, tmp_path: Path
) -> None:
    """A daemon shows each of two sessions another holder of one string, while the second has read of it and not yet used it."""
    ann, bob, carl, eve = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "carl", "eve"))
    space = await ann.visit()
    # The session that is held up works on the first of them meanwhile.
    first, second = sorted(
        (ann.invite(space.space, "x", time.time() + 60) for _ in "12"), key=lambda it: it.pair.invite_id
    )
    for machine, invite in ((carl, first), (bob, second), (eve, second)):
        machine.take(invite)
        await machine.visit()
    here, there = ann.keyring(), ann.keyring()
    async with ann.connected() as link, ann.connected() as other:

        class Showing:
            """A daemon that keeps machines from this session; before it takes an entry, `meanwhile` is run."""

            def __init__(
                self, link: RequestChannel, hidden: set[Device], meanwhile: Callable[[], Awaitable[None]] | None = None
            ) -> None:
                self._link = link
                self._hidden = {machine.identity.public_key.hex() for machine in hidden}
                self._meanwhile = meanwhile

            async def request(
                self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False
            ) -> dict[str, Any]:
                if op == "extend" and self._meanwhile is not None:
                    meanwhile, self._meanwhile = self._meanwhile, None
                    await meanwhile()
                answer: dict[str, Any] = await self._link.request(op, body, timeout_s=timeout_s)
                if op == "roster":
                    answer["waiting"] = [one for one in answer["waiting"] if one["key"] not in self._hidden]
                return answer

        async def bound() -> None:
            """The other session takes bob, and dies before it has answered him."""
            with pytest.raises(ConnectionLost):
                await there.refresh(Showing(Cut(other, "pair-answer"), {carl, eve}))

        await here.refresh(Showing(link, {bob}, bound))
    assert here.roster is not None
    known = {machine.name: machine.identity.public_key in here.roster.devices for machine in (bob, carl, eve)}
    assert known == {"bob": True, "carl": True, "eve": False}
    assert (await bob.visit()).keys == space.keys
    assert (await eve.visit()).keys is None


async def test_a_machine_that_knows_the_space_comes_back_by_an_invite(daemon: Serving, tmp_path: Path) -> None:
    """It was removed, has a new key, and joins again: what it has seen of the space is no hindrance."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    for device in (bob, ann, bob):
        await device.visit()
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
        await keyring.extend(link, remover(ann.identity, bob.identity.public_key))
    bob.paths.identity.unlink()
    daemon.enroll("bob-again", space="home").save(bob.paths.identity)
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    assert (await bob.visit()).keys is None
    await ann.visit()
    assert (await bob.visit()).keys == keyring.keys


async def test_an_answer_that_a_crash_held_back_is_given_later(daemon: Serving, tmp_path: Path) -> None:
    """The device was added, and the machine that added it died before it had answered."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()

    keyring = ann.keyring()
    async with ann.connected() as link:
        with pytest.raises(ConnectionLost):
            await keyring.open(Cut(link, "pair-answer"), await ann.attach(link))
    assert (await bob.visit()).keys is None
    await ann.visit()
    assert (await bob.visit()).keys == space.keys


async def test_a_crash_before_the_pin_loses_nothing(daemon: Serving, tmp_path: Path) -> None:
    """A machine whose genesis the daemon took, and that died before it noted so, has its space at the next start."""
    ann = Device(tmp_path, daemon, "ann")
    keyring = ann.keyring()
    async with ann.connected() as link:
        with pytest.raises(ConnectionLost):
            await keyring.open(Cut(link, "extend", is_heard=True), await ann.attach(link))
    assert not list(ann.paths.rosters.glob("*.pin"))
    space = await ann.visit()
    assert space.keys is not None
    assert space.roster is not None
    assert len(space.roster.entries) == 1


async def test_of_two_machines_that_begin_at_once_one_does(daemon: Serving, tmp_path: Path) -> None:
    """The other one waits to be approved, and has no keys of its own making."""
    devices = [Device(tmp_path, daemon, name) for name in ("ann", "bob")]
    rings = await asyncio.gather(*(device.visit() for device in devices))
    assert sorted(ring.keys is None for ring in rings) == [False, True]
    assert isinstance(next(ring for ring in rings if ring.keys is None).problem, NotADeviceError)


async def test_changes_that_meet_are_made_one_after_the_other(daemon: Serving, tmp_path: Path) -> None:
    """Two machines add a third at the same time each; all four are devices in the end, of one history."""
    ann, bob, carl, dora = (Device(tmp_path, daemon, name) for name in ("ann", "bob", "carl", "dora"))
    space = await ann.visit()
    for host, guest in ((ann, bob), (ann, carl), (bob, dora)):
        guest.take(host.invite(space.space, guest.name, time.time() + 60))
    await bob.visit()
    await ann.visit()
    await bob.visit()
    await asyncio.gather(carl.visit(), dora.visit())
    await asyncio.gather(ann.visit(), bob.visit())
    rings = [await device.visit() for device in (ann, bob, carl, dora)]
    assert {ring.roster.head if ring.roster else None for ring in rings} == {rings[0].roster and rings[0].roster.head}
    assert all(ring.keys == space.keys for ring in rings)


async def test_a_machine_that_was_removed_has_no_key_of_the_new_epoch(daemon: Serving, tmp_path: Path) -> None:
    """It is told so, and what it kept opens old epochs only."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    await ann.visit()
    assert (await bob.visit()).keys == space.keys
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
        await keyring.extend(link, remover(ann.identity, bob.identity.public_key))
    assert keyring.keys is not None
    assert keyring.keys.epoch == 2
    bob.take_in_again()
    removed = await bob.visit()
    assert removed.keys is None
    assert "removed" in str(removed.problem)
    assert removed.roster is not None
    with pytest.raises(SealingError):
        removed.roster.open(WrapKey(bob.identity))


async def test_a_daemon_that_says_it_has_taken_what_it_lost_and_shows_less_is_not_believed(
    daemon: Serving, tmp_path: Path
) -> None:
    """It lies twice: it shows the list from before a removal, and thanks for the rest."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    await ann.visit()
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
        old = list(keyring.roster.entries) if keyring.roster else []
        await keyring.extend(link, remover(ann.identity, bob.identity.public_key))
        again = ann.keyring()
        evil = Lying(link, old, thanks=True)
        with pytest.raises(WithheldRosterError):
            await again.refresh(evil)
        assert evil.taken > 0
        assert again.keys is None
        assert isinstance(again.problem, WithheldRosterError)


@pytest.mark.parametrize("lie", ["shorter", "nothing", "forked", "other space", "garbage"])
async def test_a_daemon_that_lies_about_the_devices_gets_nothing_sealed(
    daemon: Serving, tmp_path: Path, lie: str
) -> None:
    """A machine that has seen the truth refuses less, another history and nonsense; with the truth it goes on."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    await ann.visit()
    evil, _ = Roster.create(STRANGER, "evil", now=1)
    fork, _ = Roster.create(STRANGER, "evil", now=1, keys=space.keys)
    shown: dict[str, list[RosterEntry]] = {
        "shorter": list(space.roster.entries[:1]) if space.roster else [],
        "nothing": [],
        "forked": list(fork.entries),
        "other space": list(evil.entries),
        "garbage": [],
    }
    keyring = ann.keyring()
    async with ann.connected() as link:
        told = await ann.attach(link)
        told["sealing"] |= {"number": 7, "head": "00" * 32}
        await keyring.open(Lying(link, shown[lie], is_garbage=lie == "garbage"), told)
        assert keyring.keys is None
        assert keyring.problem is not None
        assert keyring.problem.hint
        await keyring.refresh(link)
        assert keyring.keys == space.keys


async def test_what_one_session_of_a_machine_has_seen_no_other_is_shown_less_of(
    daemon: Serving, tmp_path: Path
) -> None:
    """A daemon that keeps a removal from a session that began before, and has shown it to another: neither seals to who was removed."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    old = await ann.visit()
    assert old.roster is not None
    there = ann.keyring()
    async with ann.connected() as link:
        await there.refresh(link)
        await there.extend(link, remover(ann.identity, bob.identity.public_key))
        told = await ann.attach(link)
        told["sealing"] |= {"number": 1, "head": old.roster.head.hex(), "needs": []}
        await old.open(Lying(link, list(old.roster.entries)), told)
        assert old.keys in (None, there.keys)
        assert old.problem is not None or old.keys == there.keys


async def test_a_session_without_news_hears_of_what_another_has_seen(daemon: Serving, tmp_path: Path) -> None:
    ann = Device(tmp_path, daemon, "ann")
    quiet, there = await ann.visit(), ann.keyring()
    async with ann.connected() as link:
        await there.extend(link, rotator(ann.identity))
    assert quiet.keys != there.keys
    await quiet.catch_up()
    assert quiet.keys == there.keys


async def test_a_newcomer_is_not_taken_in_by_a_space_of_the_daemons_making(daemon: Serving, tmp_path: Path) -> None:
    """The daemon adds the newcomer's own card to a roster of its own: without the answer of its device there are no keys."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    evil, keys = Roster.create(STRANGER, "evil", now=1)
    evil = evil.add(STRANGER, roster_entry.Device(roster_entry.Card.of(bob.identity), "bob"), keys, now=2)
    keyring = bob.keyring()
    async with bob.connected() as link:
        await keyring.open(Lying(link, list(evil.entries)), await bob.attach(link))
    assert keyring.keys is None
    assert isinstance(keyring.problem, UnconfirmedError)


@pytest.mark.parametrize("answer", [7, "!", ["AA=="], {}, "AA==", "AAAA" * 100_000])
async def test_an_answer_to_who_joins_that_is_none_brings_no_keys_and_ends_nothing(
    daemon: Serving, tmp_path: Path, answer: object
) -> None:
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    keyring = bob.keyring()
    async with bob.connected() as link:

        class Answering:
            async def request(
                self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False
            ) -> dict[str, Any]:
                return {"answer": answer} if op == "pair" else await link.request(op, body, timeout_s=timeout_s)

        await keyring.open(Answering(), await bob.attach(link))
        with pytest.raises(ConfideError):
            await keyring.refresh(Answering())
    assert keyring.keys is None
    assert keyring.problem is not None


async def test_a_daemon_restored_from_an_old_copy_is_told_what_it_lost(daemon: Serving, tmp_path: Path) -> None:
    """The first machine that knows more sends it up again, and nobody notices."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    await ann.visit()
    before = await bob.visit()
    for number in (1, 0):
        with daemon.state.registry.transaction() as database:
            database.execute("DELETE FROM roster_entries WHERE number >= ?", (number,))
        # Only who began a space may begin it again.
        assert (await (bob if number else ann).visit()).keys == before.keys
        assert (await bob.visit()).keys == before.keys


async def test_a_key_that_changes_stays_one_device(daemon: Serving, tmp_path: Path) -> None:
    """The roster has the new key alone once the machine has connected with it; one that never came into force is taken off again."""
    ann = Device(tmp_path, daemon, "ann")
    space = await ann.visit()
    for is_in_force in (False, True):
        old, new = ann.identity, Identity.generate()
        keyring = ann.keyring()
        new.save(ann.paths.next_identity)
        async with ann.connected() as link:
            await device_rotation.prepare_roster(ann.paths.rosters, keyring, link, old, new, now=int(time.time()))
            assert keyring.roster is not None
            assert new.public_key in keyring.roster.devices
            if is_in_force:
                session_id = link.session_id
                await link.request("rotate", sign_rotation(old, new, session_id), timeout_s=DEADLINE_S)
        if is_in_force:
            ann.paths.next_identity.rename(ann.paths.identity)
        else:
            ann.paths.next_identity.unlink()
        after = await ann.visit()
        assert after.roster is not None
        assert list(after.roster.devices) == [ann.identity.public_key]
        assert after.keys is not None
        assert after.keys.key(1) == (space.keys and space.keys.key(1))
        assert KeyChange.read(ann.paths.rosters, space.space) is None


async def test_a_space_that_is_full_goes_on_without_the_one_too_many(daemon: Serving, tmp_path: Path) -> None:
    """The machine that invited it seals as before."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    keyring = ann.keyring()
    async with ann.connected() as link:
        await keyring.refresh(link)
        roster, keys = keyring.roster, keyring.keys
        assert roster is not None
        assert keys is not None
        for number in range(1, roster_entry.MAX_DEVICES):
            card = roster_entry.Card.of(Identity(bytes([number]) * 32))
            roster = roster.add(ann.identity, roster_entry.Device(card, f"d{number}"), keys, now=1)
            await roster_client.extend(link, roster.entries[-1])
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    await bob.visit()
    again = await ann.visit()
    assert again.keys == space.keys
    assert again.problem is None
    assert (await bob.visit()).keys is None


async def test_a_lock_in_another_space_than_the_last_one_is_no_hindrance(daemon: Serving, tmp_path: Path) -> None:
    """What was loaded while the daemon was away is of the space that the machine has left."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    space = await ann.visit()
    bob.take(ann.invite(space.space, "bob", time.time() + 60))
    for device in (bob, ann, bob):
        await device.visit()
    bob.paths.identity.unlink()
    daemon.enroll("bob-elsewhere", space="elsewhere").save(bob.paths.identity)
    save_pin(bob.paths.link, KnownDaemon(daemon.url, bytes(32)))
    keyring = bob.keyring()
    keyring.load()
    RosterCache(bob.paths.rosters).record_daemon_change(OLD, OLD)
    async with bob.connected() as link:
        await keyring.unlock(link)
    assert keyring.keys is not None
    assert keyring.roster is not None
    assert keyring.roster.space != (space.roster and space.roster.space)


async def test_keys_of_another_space_are_not_taken_for_this_one_while_the_daemon_is_away(
    daemon: Serving, tmp_path: Path
) -> None:
    """A machine moved to a space where it waits: offline it has no keys, rather than those of the space it left."""
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    await ann.visit()
    bob.paths.identity.unlink()
    daemon.enroll("bob-elsewhere", space="elsewhere").save(bob.paths.identity)
    assert (await bob.visit()).keys is not None
    bob.paths.identity.unlink()
    RosterCache(bob.paths.rosters).record_daemon_change(OLD, OLD)
    daemon.enroll("bob-here", space="home").save(bob.paths.identity)
    assert (await bob.visit()).keys is None
    away = bob.keyring()
    away.load()
    assert away.keys is None
    assert away.problem is not None


async def test_a_space_whose_key_its_devices_keep_is_unlocked_and_gets_the_next_epochs_key(tmp_path: Path) -> None:
    """The key of a new epoch is handed over at the next connection, if the machine that began the epoch died before it could."""
    async with serving(tmp_path / "daemon", keeper="caller") as daemon:
        ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
        keyring = ann.keyring()
        async with ann.connected() as link:
            with pytest.raises(RequestError, match="locked"):
                await ann.attach(link)
            await keyring.unlock(link)
            told = (await ann.attach(link))["sealing"]
            assert (told["custody"], told["needs"]) == ("caller", [])
            # Not a device, so it can hand over nothing; it does not have to, now.
            async with bob.connected() as other:
                await bob.keyring().unlock(other)
            with pytest.raises(ConnectionLost):
                await keyring.extend(Cut(link, "unlock"), rotator(ann.identity))
            told = (await ann.attach(link))["sealing"]
            assert (told["epoch"], told["needs"]) == (2, [2])
        again = await ann.visit()
        assert again.keys is not None
        async with ann.connected() as link:
            async with asyncio.timeout(20):
                while (await ann.attach(link))["sealing"]["needs"]:  # noqa: ASYNC110 - the database changes its key meanwhile
                    await asyncio.sleep(0.05)


async def test_an_operator_gives_the_key_of_a_space_to_its_devices(daemon: Serving, tmp_path: Path) -> None:
    """The daemon has it until then; the next connection of a device brings the new one, with nobody doing anything."""
    ann = Device(tmp_path, daemon, "ann")
    await ann.visit()
    (space_id,) = daemon.state.registry.spaces().values()
    async with asyncio.timeout(20):
        jobs = Jobs(daemon.state.registry)
        asked = jobs.ask("to-caller", space_id)
        while not (job := jobs.get(asked)) or not job.has_ended:  # noqa: ASYNC110 - the daemon looks at what it is asked
            await asyncio.sleep(0.05)
    assert (await ann.visit()).problem is None
    async with ann.connected() as link, asyncio.timeout(20):
        while (await ann.attach(link))["sealing"]["custody"] != "caller":  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)


async def test_a_file_that_cannot_be_used_is_told_of_as_that(daemon: Serving, tmp_path: Path) -> None:
    """Nothing is wrong with what the daemon shows, so nobody is sent to look for it there."""
    ann = Device(tmp_path, daemon, "ann")
    (ann.paths.rosters / "lock").mkdir(parents=True, mode=0o700)
    ann.paths.rosters.chmod(0o700)
    problem = (await ann.visit()).problem
    assert problem is not None
    assert "lock cannot be opened" in str(problem)
    assert "until that file can be used" in str(problem.hint)


def rotator(identity: Identity) -> Any:
    """What begins a new epoch, for `Keyring.extend`."""

    def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
        assert keys is not None
        return roster.rotate(identity, keys, now=int(time.time()))[0]

    return make


class Cut:
    """A link that breaks at a request: before the daemon hears of it, or after."""

    def __init__(self, link: RequestChannel, op: str, *, is_heard: bool = False) -> None:
        self._link = link
        self._op = op
        self._is_heard = is_heard

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        if op == self._op:
            if self._is_heard:
                await self._link.request(op, body, timeout_s=timeout_s)
            raise ConnectionLost(truncated=True)
        answer: dict[str, Any] = await self._link.request(op, body, timeout_s=timeout_s)
        return answer


class Lying:
    """A daemon that shows these entries instead of its own, and takes none; it may say that it does."""

    def __init__(
        self, link: Connection, shown: list[RosterEntry], *, is_garbage: bool = False, thanks: bool = False
    ) -> None:
        self._link = link
        self._shown = shown
        self._is_garbage = is_garbage
        self._thanks = thanks
        self.taken = 0

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if op == "extend":
            if not self._thanks:
                raise RequestError("invalid", "no")
            self.taken += 1
            return {"number": len(self._shown) - 1 + self.taken}
        if op != "pair":
            answer = await self._link.request(op, body, timeout_s=timeout_s)
        if op == "roster":
            newest = self._shown[-1] if self._shown else None
            answer["entries"] = [b64encode(entry.encode()).decode() for entry in self._shown[body["from"] :]]
            answer["number"] = len(self._shown) - 1
            answer["head"] = newest.hash().hex() if newest else ""
            if self._is_garbage:
                answer |= {"number": 3, "head": "ab" * 32, "entries": ["AAAA"] * 9}
        return answer


async def test_a_machine_tells_that_the_daemon_has_taken_the_key_of_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in its log, and in `confide status` until the machines keep it again."""

    def told() -> int:
        return sum("keeps the key of this space's database now" in record.getMessage() for record in caplog.records)

    async with serving(tmp_path / "daemon", keeper="caller") as daemon:
        ann = Device(tmp_path, daemon, "ann")
        jobs, (space_id,) = Jobs(daemon.state.registry), daemon.state.registry.spaces().values()
        keyring = ann.keyring()
        async with ann.connected() as link:
            await keyring.unlock(link)
            await keyring.open(link, await ann.attach(link))
            assert "warning" not in status.sealing(keyring)
            for kind, custody in (("to-server", "server"), ("to-caller", "caller")):
                jobs.ask(kind, space_id)  # type: ignore[arg-type]
                async with asyncio.timeout(30):
                    while (attached := await ann.attach(link))["sealing"]["custody"] != custody:
                        await keyring.open(link, attached)
                for _ in range(2):
                    keyring = ann.keyring()
                    await keyring.open(link, await ann.attach(link))
                    assert ("warning" in status.sealing(keyring)) == (custody == "server")
                    assert told() == 1


class Supposing:
    """A daemon whose own database is damaged, and so looks like one whose machines keep the key."""

    def __init__(self, link: Connection) -> None:
        self._link = link

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        answer: dict[str, Any] = await self._link.request(op, body, timeout_s=timeout_s)
        return answer | ({"custody": "caller", "isLocked": True} if op == "roster" else {})


async def test_what_a_daemon_supposes_of_a_locked_space_is_not_noted(
    daemon: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once its database is put back, nobody has taken a key from anybody."""
    ann = Device(tmp_path, daemon, "ann")
    async with ann.connected() as link:
        keyring = ann.keyring()
        await keyring.refresh(Supposing(link))
        assert keyring.custody == "caller"
        await keyring.open(link, await ann.attach(link))
        assert keyring.custody == "server"
        assert "warning" not in status.sealing(keyring)
        assert "its devices did" not in caplog.text
