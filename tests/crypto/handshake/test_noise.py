"""Known answers of four Noise implementations, in both roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confide_crypto.handshake.noise import XK, XKPSK3, HandshakePattern, HandshakeState, KeyPair, NoiseError, NoiseToken

VECTORS = Path(__file__).parents[2] / "vectors" / "noise"
E, S, EE, ES, SE, SS, PSK = (
    NoiseToken.E,
    NoiseToken.S,
    NoiseToken.EE,
    NoiseToken.ES,
    NoiseToken.SE,
    NoiseToken.SS,
    NoiseToken.PSK,
)

PATTERNS = {
    pattern.name: pattern
    for pattern in (
        XK,
        XKPSK3,
        # Not used by Confide: they show that the core follows Noise and not our one pattern.
        HandshakePattern("IK", ((E, ES, S, SS), (E, EE, SE)), responder_static_known=True),
        HandshakePattern("IKpsk1", ((E, ES, S, SS, PSK), (E, EE, SE)), responder_static_known=True),
        HandshakePattern("IKpsk2", ((E, ES, S, SS), (E, EE, SE, PSK)), responder_static_known=True),
        HandshakePattern("XX", ((E,), (E, EE, S, ES), (S, SE))),
        HandshakePattern("XXpsk3", ((E,), (E, EE, S, ES), (S, SE, PSK))),
        HandshakePattern("NK", ((E, ES), (E, EE)), responder_static_known=True),
        HandshakePattern("NKpsk0", ((PSK, E, ES), (E, EE)), responder_static_known=True),
        HandshakePattern("NKpsk2", ((E, ES), (E, EE, PSK)), responder_static_known=True),
        HandshakePattern("KK", ((E, ES, SS), (E, EE, SE)), initiator_static_known=True, responder_static_known=True),
        HandshakePattern(
            "KKpsk2", ((E, ES, SS), (E, EE, SE, PSK)), initiator_static_known=True, responder_static_known=True
        ),
    )
}


def load(name: str) -> list[Any]:
    return [
        pytest.param(vector, id=f"{name}-{vector['protocol_name'].removeprefix('Noise_')}-{number}")
        for number, vector in enumerate(json.loads((VECTORS / f"{name}.json").read_text())["vectors"])
    ]


FILES = ("cacophony-xk-xkpsk3", "flynn-noise-xk-xkpsk3", "snow-xk", "noise-c-xk", "cacophony-other-25519-chachapoly")
ALL = [vector for name in FILES for vector in load(name)]


def test_the_vectors_are_all_there() -> None:
    """28 XK and 20 XKpsk3 vectors over four hashes, 5 of them for exactly our protocol."""
    names = [case.values[0]["protocol_name"] for case in ALL]
    assert sum(name.startswith("Noise_XK_") for name in names) == 28
    assert sum(name.startswith("Noise_XKpsk3_") for name in names) == 20
    assert names.count("Noise_XKpsk3_25519_ChaChaPoly_BLAKE2b") == 5
    assert len(names) == 88


def unhex(vector: dict[str, Any], key: str) -> bytes | None:
    return bytes.fromhex(vector[key]) if vector.get(key) else None


def side(vector: dict[str, Any], role: str) -> HandshakeState:
    _, pattern, _, _, hash_name = vector["protocol_name"].split("_")
    static, ephemeral = unhex(vector, f"{role}_static"), unhex(vector, f"{role}_ephemeral")
    return HandshakeState(
        PATTERNS[pattern],
        hash_name,
        initiator=role == "init",
        prologue=unhex(vector, f"{role}_prologue") or b"",
        static=KeyPair.from_secret(static) if static else None,
        ephemeral=KeyPair.from_secret(ephemeral) if ephemeral else None,
        remote_static=unhex(vector, f"{role}_remote_static"),
        psks=tuple(bytes.fromhex(psk) for psk in vector.get(f"{role}_psks", ())),
    )


@pytest.mark.parametrize("vector", ALL)
def test_known_answers_in_both_roles(vector: dict[str, Any]) -> None:
    """Every handshake and transport message is written and read as the other implementations do, with the same handshake hash."""
    sides = {"init": side(vector, "init"), "resp": side(vector, "resp")}
    ciphers: dict[str, Any] = {}
    for number, message in enumerate(vector["messages"]):
        writer = message.get("sender") or ("init", "resp")[number % 2]
        reader = "resp" if writer == "init" else "init"
        payload, ciphertext = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
        if not ciphers and sides["init"].is_finished:
            ciphers = {role: state.split() for role, state in sides.items()}
        if ciphers:
            assert ciphers[writer][0].encrypt(payload) == ciphertext
            assert ciphers[reader][1].decrypt(ciphertext) == payload
        else:
            assert sides[writer].write_message(payload) == ciphertext
            assert sides[reader].read_message(ciphertext) == payload
    assert ciphers, "the vector has transport messages"
    assert sides["init"].handshake_hash == sides["resp"].handshake_hash
    if "handshake_hash" in vector:
        assert sides["init"].handshake_hash.hex() == vector["handshake_hash"]


def pair() -> tuple[HandshakeState, HandshakeState]:
    ours, theirs = KeyPair.generate(), KeyPair.generate()
    return (
        HandshakeState(XK, "BLAKE2b", initiator=True, static=ours, remote_static=theirs.public),
        HandshakeState(XK, "BLAKE2b", initiator=False, static=theirs),
    )


def test_a_side_speaks_only_in_its_turn() -> None:
    client, daemon = pair()
    with pytest.raises(NoiseError):
        daemon.write_message()
    message = client.write_message()
    with pytest.raises(NoiseError):
        client.write_message()
    daemon.read_message(message)
    with pytest.raises(NoiseError):
        daemon.read_message(message)
    with pytest.raises(NoiseError, match="not finished"):
        client.split()


def test_a_failed_handshake_stays_failed() -> None:
    """After one bad message even the right one is refused."""
    client, daemon = pair()
    message = client.write_message()
    with pytest.raises(NoiseError):
        daemon.read_message(message[:-1] + bytes([message[-1] ^ 1]))
    with pytest.raises(NoiseError):
        daemon.read_message(message)


def test_a_cipher_that_failed_once_opens_nothing_more() -> None:
    client, daemon = pair()
    daemon.read_message(client.write_message())
    client.read_message(daemon.write_message())
    daemon.read_message(client.write_message())
    sending, receiving = client.split()[0], daemon.split()[1]
    record = sending.encrypt(b"text")
    with pytest.raises(NoiseError):
        receiving.decrypt(record[:-1] + bytes([record[-1] ^ 1]))
    with pytest.raises(NoiseError):
        receiving.decrypt(record)


def test_the_last_nonce_is_never_used_for_a_message() -> None:
    """2^64-1 belongs to Rekey (Noise 5.1)."""
    client, daemon = pair()
    daemon.read_message(client.write_message())
    client.read_message(daemon.write_message())
    daemon.read_message(client.write_message())
    sending = client.split()[0]
    sending.nonce = 2**64 - 1
    with pytest.raises(NoiseError):
        sending.encrypt(b"")


def test_a_key_pair_shows_no_secret() -> None:
    pair = KeyPair.generate()
    assert pair.secret.hex() not in repr(pair)
    assert repr(pair.secret) not in f"{pair!r}{pair}"


def test_a_dead_cipher_is_not_rekeyed() -> None:
    client, daemon = pair()
    daemon.read_message(client.write_message())
    client.read_message(daemon.write_message())
    daemon.read_message(client.write_message())
    sending = client.split()[0]
    sending.kill()
    with pytest.raises(NoiseError, match="used up"):
        sending.rekey()


def test_a_message_over_65535_bytes_is_refused_by_both() -> None:
    """Noise 3. The side that tried is of no more use: what it has hashed is on no wire."""
    client, daemon = pair()
    with pytest.raises(NoiseError, match="too long"):
        client.write_message(bytes(65535 - 48 + 1))
    with pytest.raises(NoiseError):
        client.write_message()
    client, daemon = pair()
    assert daemon.read_message(client.write_message(bytes(65535 - 48))) == bytes(65535 - 48)


@pytest.mark.parametrize("length", [0, 31, 47])
def test_a_message_shorter_than_its_keys_and_tags_is_refused(length: int) -> None:
    client, daemon = pair()
    with pytest.raises(NoiseError):
        daemon.read_message(client.write_message()[:length])


def test_a_pattern_gets_the_keys_it_needs() -> None:
    """No key is made up where one is missing: neither a static one nor a psk."""
    ours, theirs = KeyPair.generate(), KeyPair.generate()
    with pytest.raises(NoiseError, match="missing"):
        HandshakeState(XK, "BLAKE2b", initiator=True, static=ours)
    without = HandshakeState(XK, "BLAKE2b", initiator=True, remote_static=theirs.public)
    daemon = HandshakeState(XK, "BLAKE2b", initiator=False, static=theirs)
    daemon.read_message(without.write_message())
    without.read_message(daemon.write_message())
    with pytest.raises(NoiseError, match="missing"):
        without.write_message()
    client = HandshakeState(XKPSK3, "BLAKE2b", initiator=True, static=ours, remote_static=theirs.public)
    daemon = HandshakeState(XKPSK3, "BLAKE2b", initiator=False, static=theirs)
    daemon.read_message(client.write_message())
    client.read_message(daemon.write_message())
    with pytest.raises(NoiseError, match="psk is missing"):
        client.write_message()
