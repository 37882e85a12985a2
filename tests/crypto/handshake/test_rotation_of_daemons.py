"""A daemon's new key: what its statement must say to be believed, and what a client that uses the old one meets (PROTOCOL.md 7.11)."""

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import pytest
from tests.support.crypto.channels import HOST, LAPTOP, Door, Host, echo, hosting
from websockets.asyncio.client import connect as dial_websocket
from websockets.exceptions import ConnectionClosed

from confide_crypto.errors import DeniedError, HandshakeError, WrongDaemonKey
from confide_crypto.handshake.handshake import ClientHandshake
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.rotation import KeyRotation, KeySuccession
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import connect, websocket_options

OLD, NEW = HOST, Identity(bytes(range(64, 96)))
UNTIL = 1_800_000_000
STATEMENT = KeySuccession.make(OLD, NEW, UNTIL)
ROTATION = KeyRotation(OLD, STATEMENT)


def parse(body: Any) -> KeySuccession:
    return KeySuccession.parse(body, old_static=OLD.static_key, old_key=OLD.public_key)


# -- the statement ------------------------------------------------------------------------------------------------


def test_a_statement_survives_the_wire_and_verifies() -> None:
    body = json.loads(json.dumps(STATEMENT.to_json()))
    assert set(body) == {"static", "key", "until", "old", "new"}
    assert parse(body) == STATEMENT
    assert parse(body).verify()


def test_both_sign_the_bytes_of_the_protocol() -> None:
    """The label, a zero byte, old static, new static, new key, until as u64: built here by hand."""
    from nacl.signing import VerifyKey

    signed = (
        b"confide/daemon-rotation/1\0" + OLD.static_key + NEW.static_key + NEW.public_key + UNTIL.to_bytes(8, "big")
    )
    VerifyKey(OLD.public_key).verify(signed, STATEMENT.by_old)
    VerifyKey(NEW.public_key).verify(signed, STATEMENT.by_new)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(KeySuccession)])
def test_a_statement_with_any_field_changed_is_refused(field: str) -> None:
    value = getattr(STATEMENT, field)
    others = (
        [value + 1, value - 1, -1, 2**64] if field == "until" else [value[:-1] + bytes([value[-1] ^ 1]), b"", value * 2]
    )
    for other in others:
        assert not dataclasses.replace(STATEMENT, **{field: other}).verify()


def test_nobody_names_anothers_key_as_its_own_successor() -> None:
    """One signature is not enough, whichever it is."""
    forged = KeySuccession.make(Identity.generate(), NEW, UNTIL)
    assert not dataclasses.replace(forged, old_static=OLD.static_key, old_key=OLD.public_key).verify()
    stolen = KeySuccession.make(OLD, Identity.generate(), UNTIL)
    assert not dataclasses.replace(stolen, new_static=NEW.static_key, new_key=NEW.public_key).verify()


GOOD = STATEMENT.to_json()


@pytest.mark.parametrize(
    "body",
    [
        [],
        "x",
        1,
        {},
        *({key: value for key, value in GOOD.items() if key != gone} for gone in GOOD),
        {**GOOD, "until": str(UNTIL)},
        {**GOOD, "until": True},
        {**GOOD, "until": 1.5},
        {**GOOD, "until": -1},
        {**GOOD, "until": 2**64},
        {**GOOD, "static": "zz" * 32},
        {**GOOD, "static": GOOD["static"].upper()},
        {**GOOD, "new": GOOD["new"].upper()},
        {**GOOD, "key": GOOD["key"][:-2]},
        {**GOOD, "old": GOOD["old"] + "00"},
        {**GOOD, "new": None},
    ],
)
def test_a_statement_of_another_form_is_none(body: Any) -> None:
    with pytest.raises(ValueError, match=r"rotation statement|hex"):
        parse(body)


def test_the_old_secret_shows_nowhere() -> None:
    assert OLD.seed.hex() not in repr(ROTATION)
    assert repr(OLD.seed)[2:-1] not in repr(ROTATION)


# -- the two keys of a daemon that rotates ------------------------------------------------------------------------


async def test_a_client_of_the_old_key_gets_in_and_learns_the_new_one() -> None:
    async with hosting(Door(LAPTOP.public_key), echo, identity=NEW, previous=ROTATION) as host:
        connection = await connect(host.url, LAPTOP, OLD.static_key, daemon_key=OLD.public_key)
        assert connection.peer_key == OLD.public_key
        assert connection.successor == STATEMENT
        assert connection.welcome["space"] == "notes"
        await connection.close()
        follower = await connect(host.url, LAPTOP, NEW.static_key, daemon_key=NEW.public_key)
        assert follower.peer_key == NEW.public_key
        assert follower.successor is None
        assert "rotation" not in follower.welcome
        await follower.close()


async def test_an_invite_of_the_old_key_still_lets_a_machine_in() -> None:
    door = Door()
    async with hosting(door, echo, identity=NEW, previous=ROTATION) as host:
        invite = Invite.new(OLD.static_key, host.url)
        door.offer(invite)
        joined = await connect(host.url, LAPTOP, invite.daemon_static, invite=invite)
        assert joined.successor == STATEMENT
        await joined.close()
        with pytest.raises(DeniedError, match="invite"):
            await connect(host.url, Identity.generate(), invite.daemon_static, invite=invite)


async def test_the_old_key_alone_is_a_wrong_key_and_rotation_is_named_as_a_cause() -> None:
    async with hosting(Door(LAPTOP.public_key), echo, identity=NEW) as host:
        with pytest.raises(WrongDaemonKey, match="this endpoint does not hold the pinned key") as caught:
            await connect(host.url, LAPTOP, OLD.static_key)
    assert "its key was rotated" in (caught.value.hint or "")
    assert "join again" in (caught.value.hint or "")


async def refusal(host: Host, first: bytes) -> tuple[int, str]:
    """How the daemon closes on this first message."""
    async with dial_websocket(host.url, **websocket_options()) as ws:
        await ws.send(first)
        with pytest.raises(ConnectionClosed) as caught:
            await ws.recv()
    assert caught.value.rcvd is not None
    assert isinstance(await host.refused.get(), HandshakeError)
    return caught.value.rcvd.code, caught.value.rcvd.reason


async def test_a_stranger_cannot_tell_a_daemon_that_rotates() -> None:
    """A wrong key, garbage, and a changed message for either key end the same, with two keys as with one."""
    messages = [ClientHandshake(LAPTOP, key.static_key).write_message1() for key in (OLD, NEW)]
    strangers = [
        ClientHandshake(LAPTOP, Identity.generate().static_key).write_message1(),
        bytes(1256),
        bytes(1255),
        b"",
    ]
    strangers += [message[:-1] + bytes([message[-1] ^ 1]) for message in messages]
    for previous in (None, ROTATION):
        async with hosting(Door(), echo, identity=NEW, previous=previous) as host:
            assert {await refusal(host, first) for first in strangers} == {(4400, "")}


async def test_the_welcome_of_either_key_is_as_long_on_the_wire() -> None:
    """So that nobody in between learns which machines are behind."""
    sizes = set()
    async with hosting(Door(LAPTOP.public_key), echo, identity=NEW, previous=ROTATION) as host:
        for key in (OLD, NEW):
            async with dial_websocket(host.url, **websocket_options()) as ws:
                handshake = ClientHandshake(LAPTOP, key.static_key)
                await ws.send(handshake.write_message1())
                handshake.read_message2(await ws.recv(decode=False))
                await ws.send(handshake.write_message3())
                sizes.add(len(await ws.recv(decode=False)))
    assert sizes == {1040}


# -- statements that must not move a pin --------------------------------------------------------------------------


class Naming(Door):
    """A daemon that puts whatever it likes into its welcome."""

    def __init__(self, rotation: Any) -> None:
        super().__init__(LAPTOP.public_key)
        self.welcome = {"rotation": rotation}


class StolenStatic(Identity):
    """Holds the static key of `OLD`, and an Ed25519 key of its own."""

    @property
    def static_secret(self) -> bytes:
        return OLD.static_secret


THIEF = StolenStatic(bytes(range(32, 64)))


@pytest.mark.parametrize(
    "rotation",
    [
        7,
        {},
        {**GOOD, "until": UNTIL + 1},
        {**GOOD, "static": Identity(bytes(32)).static_key.hex()},
        {**GOOD, "old": GOOD["new"], "new": GOOD["old"]},
        KeySuccession.make(NEW, OLD, UNTIL).to_json(),
        KeySuccession.make(Identity.generate(), NEW, UNTIL).to_json(),
    ],
)
async def test_a_bad_statement_is_ignored_and_logged_without_its_bytes(
    rotation: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with hosting(Naming(rotation), echo, identity=OLD) as host:
            connection = await connect(host.url, LAPTOP, OLD.static_key)
            assert connection.successor is None
            await connection.close()
    said = [record.getMessage() for record in caplog.records if record.name.endswith("handshake.rotation")]
    assert len(said) == 1
    assert "the pin stays" in said[0]
    assert not any(part[:12] in said[0] for part in (GOOD["static"], GOOD["key"], GOOD["old"], GOOD["new"]))


async def test_who_stole_the_static_key_alone_is_refused_by_a_pin_that_knows_the_daemon() -> None:
    """Its statement is whole and signed by the Ed25519 key that it shows; only, that is not the one pinned."""
    forged = KeyRotation(THIEF, KeySuccession.make(THIEF, NEW, UNTIL))
    assert forged.statement.verify()
    assert THIEF.static_key == OLD.static_key
    async with hosting(Door(LAPTOP.public_key), echo, identity=NEW, previous=forged) as host:
        with pytest.raises(WrongDaemonKey):
            await connect(host.url, LAPTOP, OLD.static_key, daemon_key=OLD.public_key)
        unknowing = await connect(host.url, LAPTOP, OLD.static_key)
        assert unknowing.peer_key == THIEF.public_key
        await unknowing.close()


async def test_a_recorded_statement_moves_no_pin_of_another_key() -> None:
    """A daemon whose client has moved on long since repeats what its predecessor once signed."""
    later = Identity(bytes(range(7, 39)))
    async with hosting(Naming(STATEMENT.to_json()), echo, identity=later) as host:
        connection = await connect(host.url, LAPTOP, later.static_key, daemon_key=later.public_key)
        assert connection.successor is None
        await connection.close()


def test_the_old_key_ends_at_the_second_that_was_signed() -> None:
    assert ROTATION.until == UNTIL
    assert not ROTATION.is_over(UNTIL - 0.001)
    assert ROTATION.is_over(UNTIL)
