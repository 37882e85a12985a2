"""Makes `tests/vectors/confide/frozen.json`. Was run once; run again only for a new version of the protocol.

    .venv/bin/python -m tests.support.freeze > tests/vectors/confide/frozen.json

The KEM ciphertext is random (the library offers no seed), so a second run gives another, equally valid file.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from confide_crypto.bech32m import encode
from confide_crypto.channel import BUCKETS, MAX_PAYLOAD, Channel, FrameType
from confide_crypto.enroll import Invite
from confide_crypto.handshake import ClientHandshake, DaemonHandshake, TransportKeys, derive_psk, transcript
from confide_crypto.keys import Identity, fingerprint_words, format_daemon_key, format_public_key
from confide_crypto.limits import REKEY_RECORDS
from confide_crypto.noise import CipherState, KeyPair

CLIENT_SEED, DAEMON_SEED, TOKEN = bytes(range(32)), bytes(range(64, 96)), bytes(range(200, 216))
CLIENT_EPHEMERAL, DAEMON_EPHEMERAL, KEM_SEED = bytes(range(96, 128)), bytes(range(128, 160)), bytes(range(64))
KEY = bytes(range(160, 192))
URL = "confides://notes.example:443/memory"
HELLO = {"machine": "laptop", "version": "1"}


def identity(seed: bytes) -> dict[str, str]:
    made = Identity(seed)
    return {
        "seed": seed.hex(),
        "file": encode("confide-secret-key-", seed).upper(),
        "ed25519_public": made.public_key.hex(),
        "static_secret": made.static_secret.hex(),
        "static_public": made.static_key.hex(),
        "fingerprint": fingerprint_words(made.public_key),
        "key_line": format_public_key(made.public_key, "laptop"),
        "daemon_key": format_daemon_key(made.static_key),
    }


def invite() -> dict[str, str]:
    made = Invite("notes.example", 443, "/memory", True, Identity(DAEMON_SEED).static_key, TOKEN)
    return {
        "url": URL,
        "daemon_static": made.daemon_static.hex(),
        "token": TOKEN.hex(),
        "text": made.to_string(),
        "invite_id": made.invite_id.hex(),
        "invite_psk": made.invite_psk.hex(),
        "websocket_url": made.websocket_url,
    }


def handshake(with_invite: Invite | None) -> dict[str, Any]:
    client, daemon = Identity(CLIENT_SEED), Identity(DAEMON_SEED)
    kem_key = MLKEM768PrivateKey.from_seed_bytes(KEM_SEED)
    ours = ClientHandshake(
        client,
        daemon.static_key,
        invite=with_invite,
        hello=HELLO,
        ephemeral=KeyPair.from_secret(CLIENT_EPHEMERAL),
        kem_key=kem_key,
    )
    theirs = DaemonHandshake(daemon, ephemeral=KeyPair.from_secret(DAEMON_EPHEMERAL))
    message1 = ours.write_message1()
    theirs.read_message1(message1)
    secret, ciphertext = kem_key.public_key().encapsulate()
    theirs._kem_public = Encapsulated(secret, ciphertext)  # type: ignore[assignment]
    message2 = theirs.write_message2(with_invite.invite_psk if with_invite else None)
    ours.read_message2(message2)
    message3 = ours.write_message3()
    caller = theirs.read_message3(message3)
    t = transcript(daemon.static_key, message1, message2)
    mode, invite_psk = (1, with_invite.invite_psk) if with_invite else (0, bytes(32))
    keys, peers = ours.finish(), theirs.finish()
    return {
        "mode": mode,
        "invite": with_invite.to_string() if with_invite else None,
        "client_seed": CLIENT_SEED.hex(),
        "daemon_seed": DAEMON_SEED.hex(),
        "client_ephemeral": CLIENT_EPHEMERAL.hex(),
        "daemon_ephemeral": DAEMON_EPHEMERAL.hex(),
        "kem_seed": KEM_SEED.hex(),
        "kem_ciphertext": ciphertext.hex(),
        "kem_secret": secret.hex(),
        "hello": HELLO,
        "message1": message1.hex(),
        "message2": message2.hex(),
        "message3": message3.hex(),
        "t": t.hex(),
        "psk": derive_psk(secret, mode, invite_psk, t).hex(),
        "signature": client.sign(b"confide/handshake-id/1", t + client.static_key).hex(),
        "caller": caller.public_key.hex(),
        "session_id": keys.session_id,
        "first_client_record": keys.sending.encrypt(b"first").hex(),
        "first_daemon_record": peers.sending.encrypt(b"first").hex(),
    }


class Encapsulated:
    """An ML-KEM public key whose encapsulation is already known."""

    def __init__(self, secret: bytes, ciphertext: bytes) -> None:
        self._answer = secret, ciphertext

    def encapsulate(self) -> tuple[bytes, bytes]:
        return self._answer


def channel(*, initiator: bool = True) -> Channel:
    """A channel with one known key both ways."""
    return Channel(TransportKeys(CipherState(KEY), CipherState(KEY), "00" * 16), initiator=initiator)


def records() -> list[dict[str, Any]]:
    made = channel()
    rows = []
    for kind, stream, payload, more, bucket in (
        (FrameType.MSG, 0, b'{"jsonrpc":"2.0","method":"ping","id":1}', False, BUCKETS[0]),
        (FrameType.REQ, 1, b'{"op":"pull"}', False, BUCKETS[0]),
        (FrameType.REQ, 3, bytes(248), False, BUCKETS[0]),
        (FrameType.REQ, 5, bytes(249), False, BUCKETS[0]),
        (FrameType.RES, 2, b'{"ok":{}}', False, BUCKETS[1]),
        (FrameType.KEEPALIVE, 0, b"", False, BUCKETS[0]),
        (FrameType.MSG, 0, bytes(MAX_PAYLOAD), True, BUCKETS[0]),
        (FrameType.MSG, 0, b"end", False, BUCKETS[0]),
        (FrameType.GOAWAY, 0, b"restart", False, BUCKETS[0]),
        (FrameType.CLOSE, 0, b"done", False, BUCKETS[0]),
    ):
        record = made.seal(kind, stream, payload, more=more, bucket=bucket)
        row = {"kind": kind.name, "stream": stream, "payload": payload.hex(), "more": more, "bucket": bucket}
        rows.append({**row, "record": record.hex()})
    return rows


def rekey() -> dict[str, str]:
    made = channel()
    sealed = [made.seal(FrameType.KEEPALIVE, 0, b"") for _ in range(REKEY_RECORDS + 1)]
    return {"record_16383": sealed[-2].hex(), "record_16384": sealed[-1].hex()}


def bad_frames() -> list[dict[str, str]]:
    def frame(
        kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None, size: int = 256
    ) -> bytes:
        header = struct.pack(">BBIH", kind, flags, stream, len(payload) if length is None else length)
        return (header + payload).ljust(size, b"\0")

    full = bytes(MAX_PAYLOAD)
    cases = {
        "type 0": frame(0),
        "unknown type": frame(12),
        "last type": frame(255),
        **{f"{kind.name} of a later version": frame(kind, stream=1) for kind in list(FrameType)[:5]},
        "unknown flag": frame(11, flags=2, payload=b"{}"),
        "all flags": frame(11, flags=255, payload=b"{}"),
        "length over the record": frame(11, length=249),
        "greatest length": frame(11, length=65535),
        "padding not zero at its end": frame(11, payload=b"{}")[:-1] + b"\1",
        "padding not zero at its start": frame(11, payload=b"{}", length=1),
        "message on a stream": frame(11, stream=1, payload=b"{}"),
        "continued message not full": frame(11, flags=1, payload=b"{}"),
        "continued message empty": frame(11, flags=1),
        "request on stream 0": frame(6, payload=b"{}"),
        "request on a stream of our own parity": frame(6, stream=1, payload=b"{}"),
        "answer that nobody asked for": frame(7, stream=1, payload=b"{}"),
        "answer on the peer's stream": frame(7, stream=2, payload=b"{}"),
        "keepalive with content": frame(8, payload=b"x"),
        "keepalive on a stream": frame(8, stream=1),
        "continued keepalive": frame(8, flags=1, payload=full, size=16384),
        "continued close": frame(10, flags=1, payload=full, size=16384),
        "close on a stream": frame(10, stream=2),
        "close with a long word": frame(10, payload=b"x" * 65),
        "close with more than ASCII": frame(10, payload=b"\xff"),
        "plaintext of no bucket": frame(8, size=255),
        "plaintext longer than a bucket": frame(8, size=257),
        "plaintext shorter than a header": frame(8)[:7],
        "empty plaintext": b"",
        "plaintext of the greatest Noise message": frame(8, size=65519),
    }
    return [
        {"what": what, "plaintext": plaintext.hex(), "error": "ProtocolViolation"} for what, plaintext in cases.items()
    ]


def main() -> None:
    token = Invite("notes.example", 443, "/memory", True, Identity(DAEMON_SEED).static_key, TOKEN)
    frozen = {
        "identities": [identity(CLIENT_SEED), identity(DAEMON_SEED)],
        "invite": invite(),
        "handshakes": [handshake(None), handshake(token)],
        "record_key": KEY.hex(),
        "records": records(),
        "rekey": rekey(),
        "bad_frames": bad_frames(),
    }
    print(json.dumps(frozen, indent=1))


if __name__ == "__main__":
    main()
