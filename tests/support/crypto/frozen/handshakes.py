"""Whole handshakes with all that is derived in them, and messages that are to be refused (PROTOCOL.md 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.crypto.frozen.fixed import CLIENT, DAEMON, OTHER, TOKEN, Case
from tests.support.crypto.snapshots import (
    CLIENT_EPHEMERAL,
    DAEMON_EPHEMERAL,
    KEM_ANSWER,
    KEM_KEY,
    Handshake,
    again,
    handshake,
)

from confide_crypto.handshake.handshake import MAX_HELLO, derive_psk, transcript
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import Identity
from confide_crypto.transport.open_channel import _DAEMON_LABEL

_LABEL = b"confide/handshake-id/1"
INVITE = Invite("notes.example", 443, "/memory", True, DAEMON.static_key, TOKEN)
_SETUPS: dict[str, dict[str, Any]] = {
    "session": {"hello": {"machine": "laptop"}},
    "enrollment": {"hello": {"machine": "laptop"}, "invite": INVITE},
    "fresh": {"hello": {"machine": "löptop", "replaces": "00" * 16}},
    "without a hello": {"hello": {}},
    "longest hello": {"hello": {"m": "x" * 344}},
}
SMALL_ORDER = bytes([1]) + bytes(31)


def handshakes() -> Iterator[Case]:
    """The good ones first: the others name one of them as their setup, and change one message of it."""
    for name, parties in _SETUPS.items():
        yield _whole(name, parties)
    made = {name: handshake(CLIENT, DAEMON, **_SETUPS[name]) for name in ("session", "enrollment")}
    for setup, fixed in made.items():
        for number, section, name, message in _refused(setup, fixed):
            yield {
                "name": f"{setup}: {name}",
                "section": section,
                "setup": setup,
                "number": number,
                "message": message.hex(),
                "error": "HandshakeError",
            }
    yield from _first_records()


def _whole(name: str, parties: dict[str, Any]) -> Case:
    made = handshake(CLIENT, DAEMON, **parties)
    invite = parties.get("invite")
    mode, invite_psk = (1, invite.invite_psk) if invite else (0, bytes(32))
    t = transcript(DAEMON.static_key, made.message1, made.message2)
    client, daemon = again(made.client_after).finish(), again(made.daemon_after).finish()
    return {
        "name": name,
        "section": "4",
        "client_seed": CLIENT.seed.hex(),
        "daemon_seed": DAEMON.seed.hex(),
        "client_ephemeral": CLIENT_EPHEMERAL.secret.hex(),
        "daemon_ephemeral": DAEMON_EPHEMERAL.secret.hex(),
        "kem_seed": KEM_KEY.private_bytes_raw().hex(),
        "kem_secret": KEM_ANSWER[0].hex(),
        "kem_ciphertext": KEM_ANSWER[1].hex(),
        "mode": mode,
        "token": invite.token.hex() if invite else None,
        "hello": parties["hello"],
        "message1": made.message1.hex(),
        "message2": made.message2.hex(),
        "message3": made.message3.hex(),
        "t": t.hex(),
        "psk": derive_psk(KEM_ANSWER[0], mode, invite_psk, t).hex(),
        "signature": CLIENT.sign(_LABEL, t + CLIENT.static_key).hex(),
        "session_id": client.session_id,
        "first_client_record": client.sending.encrypt(b"first").hex(),
        "first_daemon_record": daemon.sending.encrypt(b"first").hex(),
        "error": None,
    }


def _refused(setup: str, made: Handshake) -> Iterator[tuple[int, str, str, bytes]]:
    """Number of the message, section, what is wrong, bytes."""
    head = b"\1" + bytes(7) + INVITE.invite_id if setup == "enrollment" else bytes(24)
    ek = KEM_KEY.public_key().public_bytes_raw()

    def sealed1(payload: bytes) -> bytes:
        ours = again(made.client_before2)._noise
        fresh = type(ours)(
            ours._pattern, "BLAKE2b", initiator=True, prologue=b"confide-channel/1 mlkem768\0",
            static=ours._static, remote_static=DAEMON.static_key, ephemeral=CLIENT_EPHEMERAL,
        )  # fmt: skip
        return fresh.write_message(payload)

    one = made.message1
    yield 1, "4.2", "message 1 one byte short", one[:-1]
    yield 1, "4.2", "message 1 one byte long", one + b"\0"
    yield 1, "4.6", "message 1 with its first bit changed", bytes([one[0] ^ 1]) + one[1:]
    yield 1, "4.6", "message 1 with the ephemeral's unused bit changed", one[:31] + bytes([one[31] ^ 128]) + one[32:]
    yield 1, "4.6", "message 1 with its last bit changed", one[:-1] + bytes([one[-1] ^ 1])
    yield 1, "4.6", "message 1 with an ephemeral of small order", SMALL_ORDER + one[32:]
    yield 1, "4.6", "message 1 with an ephemeral of zeros", bytes(32) + one[32:]
    yield 1, "4.1", "message 1 to another daemon", handshake(CLIENT, OTHER, **_SETUPS[setup]).message1
    yield 1, "4.3", "message 1 of mode 2", sealed1(b"\2" + head[1:] + ek)
    yield 1, "4.3", "message 1 of mode 255", sealed1(b"\xff" + head[1:] + ek)
    yield 1, "4.3", "message 1 with the first reserved byte set", sealed1(head[:1] + b"\1" + head[2:] + ek)
    yield 1, "4.3", "message 1 with the last reserved byte set", sealed1(head[:7] + b"\1" + head[8:] + ek)
    yield 1, "4.3", "message 1 with a KEM key over the modulus", sealed1(head + b"\xff\xff\xff" + ek[3:])
    if setup == "session":
        yield 1, "4.3", "message 1 of mode 0 with an invite id", sealed1(bytes(23) + b"\1" + ek)
    two = made.message2
    yield 2, "4.2", "message 2 one byte short", two[:-1]
    yield 2, "4.2", "message 2 one byte long", two + b"\0"
    yield 2, "4.6", "message 2 with its first bit changed", bytes([two[0] ^ 1]) + two[1:]
    yield 2, "4.6", "message 2 with its last bit changed", two[:-1] + bytes([two[-1] ^ 1])
    yield 2, "4.6", "message 2 with an ephemeral of small order", SMALL_ORDER + two[32:]
    yield 2, "4.1", "message 2 of another daemon", handshake(CLIENT, OTHER, **_SETUPS[setup]).message2
    yield 2, "4.1", "message 2 reflected from message 1", one[: len(two)]
    yield from _refused3(setup, made)


def _refused3(setup: str, made: Handshake) -> Iterator[tuple[int, str, str, bytes]]:
    t = transcript(DAEMON.static_key, made.message1, made.message2)
    static = CLIENT.static_key

    def sealed3(payload: bytes, psk: bytes | None = None) -> bytes:
        ours = again(made.client_before2)
        ours.read_message2(made.message2)
        if psk is not None:
            ours._noise.set_psk(psk)
        return ours._noise.write_message(payload)

    def payload(
        hello: bytes = b"{}",
        *,
        signer: Identity = CLIENT,
        key: bytes = CLIENT.public_key,
        label: bytes = _LABEL,
        signed: bytes = t + static,
    ) -> bytes:
        return key + signer.sign(label, signed) + hello.ljust(MAX_HELLO, b"\0")

    three = made.message3
    mode = 0 if setup == "session" else 1
    right = INVITE.invite_psk if mode else bytes(32)
    psk: Callable[..., bytes] = lambda *given: derive_psk(*given)  # noqa: E731 - a short name for a long row
    yield 3, "4.2", "message 3 one byte short", three[:-1]
    yield 3, "4.2", "message 3 one byte long", three + b"\0"
    yield 3, "4.6", "message 3 with its first bit changed", bytes([three[0] ^ 1]) + three[1:]
    yield 3, "4.6", "message 3 with its last bit changed", three[:-1] + bytes([three[-1] ^ 1])
    yield (
        3,
        "4.4",
        "message 3 under the psk of another secret",
        sealed3(payload(), psk(KEM_ANSWER[0], mode, b"\7" * 32, t)),
    )
    yield (
        3,
        "4.4",
        "message 3 under the psk of the other mode",
        sealed3(payload(), psk(KEM_ANSWER[0], 1 - mode, right, t)),
    )
    yield 3, "4.4", "message 3 under the psk of another KEM secret", sealed3(payload(), psk(bytes(32), mode, right, t))
    yield (
        3,
        "4.4",
        "message 3 under the psk of another T",
        sealed3(payload(), psk(KEM_ANSWER[0], mode, right, bytes(64))),
    )
    yield 3, "4.4", "message 3 signed by another key", sealed3(payload(signer=OTHER))
    yield 3, "4.4", "message 3 with another's key", sealed3(payload(key=OTHER.public_key))
    yield 3, "4.4", "message 3 signed under another label", sealed3(payload(label=b"confide/daemon-static/1"))
    yield 3, "4.4", "message 3 signed over another T", sealed3(payload(signed=bytes(64) + static))
    yield 3, "4.4", "message 3 signed over another static key", sealed3(payload(signed=t + OTHER.static_key))
    small = SMALL_ORDER + SMALL_ORDER + bytes(32)
    yield 3, "4.5", "message 3 with a key of small order", sealed3(small + b"{}".ljust(MAX_HELLO, b"\0"))
    above = (2**255 - 19 + 1).to_bytes(32, "little")
    yield (
        3,
        "4.5",
        "message 3 with a key in a non-canonical form",
        sealed3(above + small[32:] + b"{}".ljust(MAX_HELLO, b"\0")),
    )
    for name, hello in (
        ("no hello", b""),
        ("a hello that is a list", b"[]"),
        ("a hello that is a number", b"1"),
        ("a hello that is cut", b'{"machine":'),
        ("a hello that is not UTF-8", b'{"m":"\xff"}'),
        ("text behind the hello", b"{}\0{}"),
        ("a hello nested beyond all measure", b"[" * MAX_HELLO),
    ):
        yield 3, "4.3", f"message 3 with {name}", sealed3(payload(hello))


def _first_records() -> Iterator[Case]:
    """What a daemon's first RES carries: the welcome and the denials of 4.7."""
    statement = {"key": DAEMON.public_key.hex(), "signature": DAEMON.sign(_DAEMON_LABEL, DAEMON.static_key).hex()}
    forged = DAEMON.sign(_LABEL, DAEMON.static_key).hex()

    def case(name: str, body: Any, error: str | None) -> Case:
        text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
        given = {"daemon_static": DAEMON.static_key.hex(), "first": text}
        return {"name": f"first record: {name}", "section": "4.7", **given, "error": error}

    yield case("welcome", {"ok": {"daemon": statement, "welcome": {"space": "notes"}}}, None)
    for reason in ("unknown", "revoked", "disabled", "invite", "busy", "of-tomorrow"):
        yield case(reason, {"error": {"code": "denied", "reason": reason, "hint": None}}, "DeniedError")
    for name, body in (
        ("signed by another", {"ok": {"daemon": {**statement, "key": OTHER.public_key.hex()}, "welcome": {}}}),
        ("signed under another label", {"ok": {"daemon": {**statement, "signature": forged}, "welcome": {}}}),
        ("a signature that is not hex", {"ok": {"daemon": {**statement, "signature": "zz"}, "welcome": {}}}),
        ("without a welcome", {"ok": {"daemon": statement}}),
        ("without a statement", {"ok": {"welcome": {}}}),
        ("another error", {"error": {"code": "internal", "message": "x", "hint": None}}),
        ("a list", []),
        ("no JSON", "{"),
    ):
        yield case(name, body, "HandshakeError")
