"""Our own protocol, byte by byte, as it was when it was frozen (tests/vectors/README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from tests.support.crypto.snapshots import Encapsulated

from confide_crypto import errors
from confide_crypto.channel.protocol import Channel, FrameType
from confide_crypto.handshake.handshake import (
    ClientHandshake,
    DaemonHandshake,
    TransportKeys,
    derive_psk,
    transcript,
)
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import CipherState, KeyPair
from confide_crypto.keys.bech32m import decode
from confide_crypto.keys.identity import (
    Identity,
    fingerprint_words,
    format_daemon_key,
    format_public_key,
    verify,
)
from confide_crypto.limits import REKEY_RECORDS

FROZEN = json.loads((Path(__file__).parents[1] / "vectors" / "confide" / "frozen.json").read_text())


def unhex(case: dict[str, Any], *keys: str) -> list[bytes]:
    return [bytes.fromhex(case[key]) for key in keys]


@pytest.mark.parametrize("case", FROZEN["identities"], ids=["client", "daemon"])
def test_keys_and_their_text_forms(case: dict[str, Any]) -> None:
    identity = Identity(*unhex(case, "seed"))
    assert decode(case["file"]) == ("confide-secret-key-", identity.seed)
    assert identity.public_key.hex() == case["ed25519_public"]
    assert identity.static_secret.hex() == case["static_secret"]
    assert identity.static_key.hex() == case["static_public"]
    assert fingerprint_words(identity.public_key) == case["fingerprint"]
    assert format_public_key(identity.public_key, "laptop") == case["key_line"]
    assert format_daemon_key(identity.static_key) == case["daemon_key"]


def test_the_invite() -> None:
    case = FROZEN["invite"]
    invite = Invite.parse(case["text"])
    assert [invite.daemon_static, invite.token] == unhex(case, "daemon_static", "token")
    assert [invite.invite_id, invite.invite_psk] == unhex(case, "invite_id", "invite_psk")
    assert invite.websocket_url == case["websocket_url"]
    assert invite.to_string() == case["text"]


def client(case: dict[str, Any]) -> ClientHandshake:
    seed, ephemeral, kem_seed, daemon_seed = unhex(case, "client_seed", "client_ephemeral", "kem_seed", "daemon_seed")
    return ClientHandshake(
        Identity(seed),
        Identity(daemon_seed).static_key,
        invite=Invite.parse(case["invite"]) if case["invite"] else None,
        hello=case["hello"],
        ephemeral=KeyPair.from_secret(ephemeral),
        kem_key=MLKEM768PrivateKey.from_seed_bytes(kem_seed),
    )


@pytest.mark.parametrize("case", FROZEN["handshakes"], ids=["session", "enroll"])
def test_the_clients_side(case: dict[str, Any]) -> None:
    message1, message2, message3 = unhex(case, "message1", "message2", "message3")
    ours = client(case)
    assert ours.write_message1() == message1
    ours.read_message2(message2)
    assert ours.write_message3() == message3
    keys = ours.finish()
    assert keys.session_id == case["session_id"]
    assert keys.sending.encrypt(b"first").hex() == case["first_client_record"]
    assert keys.receiving.decrypt(*unhex(case, "first_daemon_record")) == b"first"


@pytest.mark.parametrize("case", FROZEN["handshakes"], ids=["session", "enroll"])
def test_the_daemons_side(case: dict[str, Any]) -> None:
    message1, message2, message3 = unhex(case, "message1", "message2", "message3")
    seed, ephemeral, secret, ciphertext = unhex(case, "daemon_seed", "daemon_ephemeral", "kem_secret", "kem_ciphertext")
    invite = Invite.parse(case["invite"]) if case["invite"] else None
    theirs = DaemonHandshake(Identity(seed), ephemeral=KeyPair.from_secret(ephemeral))
    theirs.read_message1(message1)
    assert theirs.invite_id == (invite.invite_id if invite else None)
    theirs._kem_public = Encapsulated(secret, ciphertext)  # type: ignore[assignment]
    assert theirs.write_message2(invite.invite_psk if invite else None) == message2
    caller = theirs.read_message3(message3)
    assert caller.public_key.hex() == case["caller"]
    assert caller.hello == case["hello"]
    assert theirs.finish().session_id == case["session_id"]


@pytest.mark.parametrize("case", FROZEN["handshakes"], ids=["session", "enroll"])
def test_transcript_psk_and_signature(case: dict[str, Any]) -> None:
    """PROTOCOL.md 4.4, computed from wire bytes alone, as any other implementation would."""
    message1, message2, secret, t, signature = unhex(case, "message1", "message2", "kem_secret", "t", "signature")
    daemon, caller = Identity(*unhex(case, "daemon_seed")), Identity(*unhex(case, "client_seed"))
    invite_psk = Invite.parse(case["invite"]).invite_psk if case["invite"] else bytes(32)
    assert transcript(daemon.static_key, message1, message2) == t
    assert derive_psk(secret, case["mode"], invite_psk, t).hex() == case["psk"]
    assert verify(caller.public_key, b"confide/handshake-id/1", t + caller.static_key, signature)


def channel(*, initiator: bool) -> Channel:
    key = bytes.fromhex(FROZEN["record_key"])
    return Channel(TransportKeys(CipherState(key), CipherState(key), ""), initiator=initiator)


def test_records() -> None:
    made = channel(initiator=True)
    for row in FROZEN["records"]:
        record = made.seal(
            FrameType[row["kind"]], row["stream"], *unhex(row, "payload"), more=row["more"], bucket=row["bucket"]
        )
        assert record.hex() == row["record"]


def test_the_key_changes_after_16384_records() -> None:
    """The last record under the first key and the first under the next one, with the counter going on (PROTOCOL.md 6.4)."""
    made, theirs = channel(initiator=True), channel(initiator=False)
    for number in range(REKEY_RECORDS + 1):
        record = made.seal(FrameType.KEEPALIVE, 0, b"")
        theirs.receive(record)
        if number >= REKEY_RECORDS - 1:
            assert record.hex() == FROZEN["rekey"][f"record_{number}"]


@pytest.mark.parametrize("case", FROZEN["bad_frames"], ids=[case["what"] for case in FROZEN["bad_frames"]])
def test_a_frame_against_the_rules_is_fatal(case: dict[str, Any]) -> None:
    """Even from a peer that holds the keys: nothing comes out, and nothing after it either."""
    made = channel(initiator=True)
    peer = CipherState(bytes.fromhex(FROZEN["record_key"]))
    made.receive(peer.encrypt(b"\7\0\0\0\0\0\0\2{}".ljust(256, b"\0")))  # the welcome
    with pytest.raises(getattr(errors, case["error"])):
        made.receive(peer.encrypt(*unhex(case, "plaintext")))
    with pytest.raises(errors.ProtocolViolation):
        made.receive(peer.encrypt(b"\x0b\0\0\0\0\0\0\2{}".ljust(256, b"\0")))
    with pytest.raises(errors.ConnectionLost):
        made.seal(FrameType.KEEPALIVE, 0, b"")
