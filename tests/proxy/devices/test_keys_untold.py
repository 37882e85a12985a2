"""Keys, pair secrets and recovery codes in the life of a space: no log, error, listing or file of a machine has them, but their own."""

from __future__ import annotations

import logging
import resource
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire
from tests.support.sealing.devices import Device

from confide_crypto.sealing import roster_entry
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.roster import Roster
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_proxy.devices.keyring import Keyring
from confide_proxy.devices.members import remover, roster_json


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon", keeper="caller") as running:
        yield running


def forms(secret: bytes) -> list[bytes]:
    """A secret as it would be met: as it is, as text, and as Python shows it."""
    return [secret, secret.hex().encode(), b64encode(secret).rstrip(b"="), repr(secret)[2:-1].encode()]


def below(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def opened(device: Device) -> Keyring:
    """Connect to a space that its devices unlock, have the keys, and leave again."""
    keyring = device.keyring()
    async with device.connected() as link:
        await keyring.unlock(link)
    return keyring


async def test_a_space_lives_and_tells_nothing(
    daemon: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ann, bob = Device(tmp_path, daemon, "ann"), Device(tmp_path, daemon, "bob")
    first = await opened(ann)
    invite = ann.invite(first.space, "bob", time.time() + 60)
    bob.take(invite)
    assert any(form in below(bob.paths.state) for form in forms(invite.pair_secret)), "it looks where it could be found"
    for device in (bob, ann, bob):
        last = await opened(device)
    code = RecoveryCode.generate()
    keyring, told = ann.keyring(), []
    async with ann.connected() as link:
        await keyring.refresh(link)

        def paper(roster: Roster, keys: SpaceKeys | None) -> Roster:
            assert keys is not None
            device = roster_entry.Device(roster_entry.Card.of(code.identity), "paper", is_paper=True)
            return roster.add(ann.identity, device, keys, now=1)

        await keyring.extend(link, paper)
        roster = await keyring.extend(link, remover(ann.identity, bob.identity.public_key))
        told += [repr(vars(keyring)), repr(roster_json(keyring, ann.identity.public_key))]
        told += [repr(roster.open(WrapKey(ann.identity)))]
    bob.take_in_again()
    gone = await opened(bob)
    assert last.keys is not None
    assert gone.keys is None
    assert keyring.keys is not None
    assert keyring.keys.epoch == 2
    told += [repr(vars(gone)), str(gone.problem), repr(invite), str(invite), repr(code), str(code), caplog.text]
    secrets = [*keyring.keys.epochs, *map(keyring.keys.database_key, (1, 2)), invite.pair_secret, code.secret]
    seeds = [device.identity.seed for device in (ann, bob)] + [code.identity.seed]
    texts = [invite.to_string().partition("#")[2].encode(), code.to_string().encode()]
    said = "\n".join(told).encode()
    kept = below(ann.paths.rosters) + below(bob.paths.rosters) + bob.paths.link.read_bytes()
    for secret in [*secrets, *seeds]:
        assert not any(form in said + kept for form in forms(secret))
    assert not any(text in said + kept for text in texts)
    for path in [*ann.paths.rosters.rglob("*"), *bob.paths.rosters.rglob("*"), bob.paths.link]:
        assert path.stat().st_mode & 0o077 == 0, path
    assert ann.paths.rosters.stat().st_mode & 0o077 == 0


def test_a_session_that_crashes_leaves_no_dump_of_its_memory(tmp_path: Path) -> None:
    """It holds the space's keys and this machine's seed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # as where dumps are wanted; what it starts has the same
    try:
        wire = Wire(Machine(tmp_path, "ann"))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    with wire:
        wire.open()
        assert psutil.Process(wire.process.pid).rlimit(resource.RLIMIT_CORE)[0] == 0
