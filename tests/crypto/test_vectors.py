"""Every frozen case of our own protocol: what it gives, or the class of what it raises (tests/vectors/README.md)."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from tests.support.crypto import freeze
from tests.support.crypto.frozen.scripts import channel, perform, plaintext, shown, told
from tests.support.crypto.snapshots import again, handshake

from confide_crypto import errors
from confide_crypto.channel.protocol import FrameType, KeepAlive
from confide_crypto.channel.request_codec import decode_answer, decode_request
from confide_crypto.handshake.handshake import ClientHandshake, DaemonHandshake, derive_psk, transcript
from confide_crypto.handshake.invite import Invite
from confide_crypto.handshake.noise import KeyPair
from confide_crypto.handshake.rotation import successor_in, verify_rotation
from confide_crypto.keys.identity import (
    Identity,
    fingerprint_words,
    format_daemon_key,
    parse_daemon_key,
    parse_public_key,
    verify,
)
from confide_crypto.transport.open_channel import _read_welcome

Case = dict[str, Any]
SESSIONS = {case["name"]: case for case in freeze.frozen("handshakes") if "message1" in case}


def unhex(case: Case, *keys: str) -> list[bytes]:
    return [bytes.fromhex(case[key]) for key in keys]


def key(case: Case) -> None:
    if case["reads"] == "key line":
        found = parse_public_key(case["text"])
        assert (found[0].hex(), found[1]) == (case["key"], case["is"])
    elif case["reads"] == "pin":
        pin = parse_daemon_key(case["text"])
        assert pin.hex() == case["key"]
        assert format_daemon_key(pin) == case["text"].strip().lower()
    else:
        assert fingerprint_words(*unhex(case, "key")) == case["is"]


def invite(case: Case) -> None:
    read = Invite.parse(case["text"])
    assert (read.host, read.port, read.is_secure) == (case["host"], case["port"], case["tls"])
    assert (read.websocket_url, read.to_string()) == (case["websocket_url"], case["written"])
    assert [read.daemon_static, read.token] == unhex(case, "daemon_static", "token")
    assert [read.invite_id, read.invite_psk] == unhex(case, "invite_id", "invite_psk")


def ends(case: Case) -> tuple[ClientHandshake, DaemonHandshake, Any]:
    """Both sides of a frozen handshake, and all of it played through."""
    client, daemon, ours, theirs, kem_seed, *kem = unhex(
        case, "client_seed", "daemon_seed", "client_ephemeral", "daemon_ephemeral", "kem_seed", "kem_secret", "kem_ciphertext"
    )  # fmt: skip
    token = case["token"]
    static = Identity(daemon).static_key
    made = handshake(
        Identity(client),
        Identity(daemon),
        invite=Invite("h", 1, "", False, static, bytes.fromhex(token)) if token else None,
        hello=case["hello"],
        client_ephemeral=KeyPair.from_secret(ours),
        daemon_ephemeral=KeyPair.from_secret(theirs),
        kem_key=MLKEM768PrivateKey.from_seed_bytes(kem_seed),
        kem_answer=(kem[0], kem[1]),
    )
    return made.client_after, made.daemon_after, made


def whole_handshake(case: Case) -> None:
    client, daemon, made = ends(case)
    assert [made.message1, made.message2, made.message3] == unhex(case, "message1", "message2", "message3")
    caller = again(made.daemon_before3).read_message3(made.message3)
    assert caller.hello == case["hello"]
    identity, host = Identity(*unhex(case, "client_seed")), Identity(*unhex(case, "daemon_seed"))
    assert caller.public_key == identity.public_key
    t, psk, signature, secret = unhex(case, "t", "psk", "signature", "kem_secret")
    assert transcript(host.static_key, made.message1, made.message2) == t
    token = bytes.fromhex(case["token"] or "")
    person = b"confide-inv-psk1"
    invite_psk = hashlib.blake2b(token, person=person, digest_size=32).digest() if token else bytes(32)
    assert derive_psk(secret, case["mode"], invite_psk, t) == psk
    assert verify(caller.public_key, b"confide/handshake-id/1", t + identity.static_key, signature)
    up, down = client.finish(), daemon.finish()
    assert up.session_id == down.session_id == case["session_id"]
    assert up.sending.encrypt(b"first").hex() == case["first_client_record"]
    assert down.sending.encrypt(b"first").hex() == case["first_daemon_record"]


def handshake_case(case: Case) -> None:
    if "message1" in case:
        whole_handshake(case)
    elif "first" in case:
        _, welcome = _read_welcome(case["first"].encode(), unhex(case, "daemon_static")[0], "six-words")
        assert welcome == json.loads(case["first"])["ok"]["welcome"]
    else:
        made = ends(SESSIONS[case["setup"]])[2]
        message = bytes.fromhex(case["message"])
        if case["number"] == 1:
            again(made.daemon_before1).read_message1(message)
        elif case["number"] == 2:
            again(made.client_before2).read_message2(message)
        else:
            again(made.daemon_before3).read_message3(message)


def frame(case: Case) -> None:
    """Sealed and opened with the standard's AEAD and a counter, so that nothing of ours makes what ours has to read."""
    end, peer = channel(case["end"])
    aead, number = ChaCha20Poly1305(peer._key), 0
    for place, step in enumerate(case["steps"]):
        if "do" in step:
            done = perform(end, step["do"])
            assert not isinstance(done, bytes) or shown(done) == step["record"]
            continue
        is_last = place == len(case["steps"]) - 1
        given = plaintext(step["get"])
        for _ in range(step.get("times", 1)):
            record = aead.encrypt(struct.pack("<4xQ", number), given, None)
            number += 1
            try:
                event = told(end.receive(record))
            except errors.ProtocolViolation:
                assert is_last, "refused too early"
                raise
        assert not (is_last and case["error"]), "it was taken"
        assert event == step["events"][-1]


def rekey(case: Case) -> None:
    end, peer = channel(case["from"])[0], channel("daemon" if case["from"] == "client" else "client")[0]
    for _ in range(case["number"]):
        peer.receive(end.seal(FrameType.KEEPALIVE, 0, b""))
    assert end.seal(FrameType.KEEPALIVE, 0, b"").hex() == case["record"]
    assert peer.receive(bytes.fromhex(case["record"])) == KeepAlive()


def request(case: Case) -> None:
    text = bytes.fromhex(case["hex"]) if "hex" in case else (case["text"] * case.get("times", 1)).encode()
    if case["reads"] == "REQ":
        assert list(decode_request(text)) == case["is"]
        return
    answer = decode_answer(text)
    if isinstance(answer, errors.RequestError):
        assert [answer.code, answer.message, answer.hint] == case["is error"]
    else:
        assert answer == case["is"]


def rotation(case: Case) -> None:
    old = Identity(*unhex(case, "old_seed"))
    assert verify_rotation(case["body"], old.public_key, case["session_id"]).hex() == case["key"]


def succession(case: Case) -> None:
    old, new = (Identity(seed) for seed in unhex(case, "old_seed", "new_seed"))
    named = successor_in({"rotation": case["rotation"]}, old.static_key, old.public_key)
    assert (named is not None) == case["is_taken"]
    if named is not None:
        assert (named.new_static, named.new_key) == (new.static_key, new.public_key)


READERS: dict[str, Callable[[Case], None]] = {
    "keys": key,
    "invites": invite,
    "handshakes": handshake_case,
    "frames": frame,
    "rekeys": rekey,
    "requests": request,
    "rotations": rotation,
    "successions": succession,
}


def every_case() -> Iterator[Any]:
    for file in READERS:
        for case in freeze.frozen(file):
            # Each goes through 16,384 records and more.
            marks = [pytest.mark.long] if file == "rekeys" else []
            yield pytest.param(file, case, id=f"{file}: {case['name']}", marks=marks)


@pytest.mark.parametrize(("file", "case"), list(every_case()))
def test_frozen(file: str, case: Case) -> None:
    """It is taken and gives what it gave, or is refused with exactly that error."""
    if case["error"] is None:
        READERS[file](case)
        return
    with pytest.raises(errors.ConfideError) as caught:
        READERS[file](case)
    assert type(caught.value).__name__ == case["error"]


@pytest.mark.parametrize("file", READERS)
def test_nothing_is_missing(file: str) -> None:
    """A rule that got a case got it frozen too: `python -m tests.support.crypto.freeze` tells which one has not."""
    assert [case["name"] for case in freeze.missing(file)] == []
    assert len(freeze.frozen(file)) >= 10


def test_every_fatal_rule_of_the_records_has_a_case() -> None:
    """The sections whose rules are fatal, by the number of cases that end with a violation."""
    bad = [case["section"] for case in freeze.frozen("frames") if case["error"]]
    assert set(bad) == {"4.7", "6.2", "6.3", "7.1", "7.2", "7.4", "7.5", "7.6"}
    assert len(bad) >= 120
