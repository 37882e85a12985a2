"""The pin of a joined daemon: what it holds, when it follows a new key, and when it stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, echo, hosting
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.handshake.rotation import KeyRotation, KeySuccession
from confide_crypto.keys.identity import Identity, format_daemon_key, parse_public_key
from confide_crypto.transport.open_channel import Connection, connect
from confide_proxy.link.daemon import KnownDaemon, follow, load_pin, save_pin

NEW = Identity(bytes(range(64, 96)))
ATTACHED = {"space": "s", "project": "p", "daemonVersion": "0", "limits": {}, "catalogue": "x"}


class StolenStatic(Identity):
    """Holds the static key of `HOST`, and an Ed25519 key of its own."""

    @property
    def static_secret(self) -> bytes:
        return HOST.static_secret


THIEF = StolenStatic(bytes(range(32, 64)))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "laptop")


def pin_of(machine: Machine) -> KnownDaemon:
    pinned = load_pin(machine.home / "proxy/link.json")
    assert pinned is not None
    return pinned


@asynccontextmanager
async def answering(machine: Machine, **options: Any) -> AsyncIterator[tuple[str, asyncio.Queue[KnownDaemon]]]:
    """A daemon on loopback: its address, and the machine's pin as it is on the disk at the first request of each connection."""
    line = (await asyncio.to_thread(machine.run, "key", "show")).splitlines()[0]
    pins: asyncio.Queue[KnownDaemon] = asyncio.Queue()

    async def handle(connection: Connection) -> None:
        async def answer(op: str, _body: dict[str, Any]) -> dict[str, Any]:
            if op == "attach":
                pins.put_nowait(pin_of(machine))
                return ATTACHED
            return {"send": [], "adopt": [], "pull": [], "drop": []} if op == "compare" else {}

        async def ignore(_data: bytes) -> None:
            return

        with suppress(ConfideError):
            await connection.serve(on_message=ignore, on_request=answer)

    async with hosting(Door(parse_public_key(line)[0]), handle, **options) as host:
        yield host.url, pins


async def pin_at_attach(machine: Machine, pins: asyncio.Queue[KnownDaemon]) -> KnownDaemon:
    """Run a session of an agent until it attaches; the pin at that moment."""
    wire = await asyncio.to_thread(Wire, machine)
    try:
        await asyncio.to_thread(wire.open)
        async with asyncio.timeout(DEADLINE_S):
            return await pins.get()
    finally:
        await asyncio.to_thread(wire.__exit__, None, None, None)


async def test_a_pin_made_by_hand_learns_the_daemons_identity_at_the_first_connection(machine: Machine) -> None:
    async with answering(machine) as (url, pins):
        await asyncio.to_thread(machine.run, "pin", url, format_daemon_key(HOST.static_key))
        assert pin_of(machine) == KnownDaemon(url, HOST.static_key)
        assert await pin_at_attach(machine, pins) == KnownDaemon(url, HOST.static_key, HOST.public_key)


@pytest.mark.parametrize("knows_identity", [True, False])
async def test_the_new_pin_is_on_the_disk_before_the_connection_is_used(machine: Machine, knows_identity: bool) -> None:
    rotation = KeyRotation(HOST, KeySuccession.make(HOST, NEW, 2**40))
    async with answering(machine, identity=NEW, previous=rotation) as (url, pins):
        known = HOST.public_key if knows_identity else None
        save_pin(machine.home / "proxy/link.json", KnownDaemon(url, HOST.static_key, known))
        followed = KnownDaemon(url, NEW.static_key, NEW.public_key)
        assert await pin_at_attach(machine, pins) == followed
        assert await pin_at_attach(machine, pins) == followed


async def test_half_a_stolen_key_is_refused_and_moves_no_pin(machine: Machine) -> None:
    """Whoever answers holds the pinned static key and another Ed25519 key, with which it names a successor."""
    forged = KeyRotation(THIEF, KeySuccession.make(THIEF, NEW, 2**40))
    assert THIEF.static_key == HOST.static_key
    async with answering(machine, identity=NEW, previous=forged) as (url, pins):
        link = machine.home / "proxy/link.json"
        save_pin(link, KnownDaemon(url, HOST.static_key, HOST.public_key))
        before = link.read_bytes(), link.stat().st_mtime_ns
        refused = await asyncio.to_thread(machine.run, "status", code=6)
        assert "does not hold the pinned key" in refused
        assert pins.empty()
        assert (link.read_bytes(), link.stat().st_mtime_ns) == before


async def test_who_joined_another_daemon_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    """A session that follows a rotation looks at the pin again before it writes."""
    link, other = tmp_path / "proxy/link.json", KnownDaemon("ws://elsewhere:7733/", Identity.generate().static_key)
    rotation = KeyRotation(HOST, KeySuccession.make(HOST, NEW, 2**40))
    async with hosting(Door(LAPTOP.public_key), echo, identity=NEW, previous=rotation) as host:
        pinned = KnownDaemon(host.url, HOST.static_key, HOST.public_key)
        connection = await connect(host.url, LAPTOP, HOST.static_key, daemon_key=HOST.public_key)
        save_pin(link, other)
        follow(link, pinned, connection)
        assert load_pin(link) == other
        save_pin(link, pinned)
        follow(link, pinned, connection)
        assert load_pin(link) == KnownDaemon(host.url, NEW.static_key, NEW.public_key)
        await connection.close()


def test_a_pin_of_an_older_version_loads_and_a_damaged_one_does_not(tmp_path: Path) -> None:
    link, pinned = tmp_path / "proxy/link.json", KnownDaemon("ws://host:7733/", HOST.static_key)
    save_pin(link, pinned)
    assert set(json.loads(link.read_bytes())) == {"url", "daemonKey"}
    assert load_pin(link) == pinned
    save_pin(link, replace(pinned, daemon_key=HOST.public_key))
    assert load_pin(link) == replace(pinned, daemon_key=HOST.public_key)
    record = json.loads(link.read_bytes())
    for damage in ("", "00", "zz" * 32, 7, None):
        link.write_text(json.dumps({**record, "daemonEd25519": damage}))
        with pytest.raises(KeyFileError, match="damaged"):
            load_pin(link)
    link.write_text(json.dumps({**record, "daemonKey": 7}))
    with pytest.raises(KeyFileError, match="damaged"):
        load_pin(link)
