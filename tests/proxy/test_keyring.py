"""The keys of a space on the machines that share it, with a real daemon between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devices import Device
from tests.support.serving import Serving, serving

from confide_crypto.keys import fingerprint_words
from confide_crypto.sealing import entries
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.errors import NotADeviceError, UnconfirmedError
from confide_proxy.sealing.invitations import Invitations


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


async def approve(device: Device, newcomer: Device) -> None:
    """Add a machine whose words somebody has compared."""
    keyring = device.keyring()
    async with device.connected() as link:
        await keyring.refresh(link)
        assert keyring.shown is not None
        card = next(one.card for one in keyring.shown.waiting if one.key == newcomer.identity.public_key)
        assert card is not None

        def make(roster: Roster, keys: SpaceKeys | None) -> Roster | None:
            assert keys is not None
            return roster.add(device.identity, entries.Device(card, newcomer.name), keys, now=int(time.time()))

        await keyring.extend(link, make)


async def test_the_first_machine_founds_the_space_and_keeps_its_keys(daemon: Serving, tmp_path: Path) -> None:
    """A second start has the same keys, without a question to the daemon, and without the daemon too."""
    ann = Device(tmp_path, daemon, "ann")
    first = await ann.visit()
    assert first.problem is None and first.keys is not None
    asked: list[str] = []
    again = ann.keyring()
    async with ann.connected() as link:
        attached = await ann.attach(link)

        class Counting:
            async def request(self, op: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
                asked.append(op)
                return await link.request(op, body, timeout_s=timeout_s)

        await again.open(Counting(), attached)
    assert again.keys == first.keys and asked == []
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
    assert isinstance(keyring.problem, UnconfirmedError) and keyring.keys is None
    async with bob.connected() as link:
        await keyring.confirm(link, fingerprint_words(bytes(32)))
        assert keyring.keys is None
        await keyring.confirm(link, space.roster.words)
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
        assert isinstance(keyring.problem, NotADeviceError) and keyring.keys is None
        await ann.visit()
        async with asyncio.timeout(20):
            while keyring.keys is None:
                await bob.news.wait()
                bob.news.clear()
                await keyring.refresh(link)
    assert keyring.keys == space.keys and keyring.roster is not None
    assert [device.name for device in keyring.roster.devices.values()][1:] == ["bob"]
    assert Invitations(ann.paths.rosters).of(space.space, time.time()) == []
    assert (await bob.visit()).keys == space.keys
