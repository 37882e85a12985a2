"""New keys of a caller and of a daemon: the statements of PROTOCOL.md 7.10 and 7.11."""

from __future__ import annotations

from typing import Any

from tests.interop.handshake import HandshakeError, verify
from tests.interop.texts import Identity


def rotation_request(session_id: bytes, old: Identity, new: Identity) -> dict[str, Any]:
    """The parameters of `rotate`, all in hex (7.10)."""
    return {
        "key": new.key.hex(),
        "old": old.signing.sign(b"confide/rotate-old/1\x00" + session_id + new.key).hex(),
        "new": new.signing.sign(b"confide/rotate-new/1\x00" + session_id + old.key).hex(),
    }


def successor(welcome: dict[str, Any], static: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """The daemon's new static and Ed25519 key, if the welcome names one that both keys signed (7.11)."""
    match welcome.get("rotation"):
        case {"static": str(new_static), "key": str(new_key), "until": int(until), "old": str(old), "new": str(new)}:
            pass
        case _:
            return None
    try:
        named = bytes.fromhex(new_static), bytes.fromhex(new_key)
        signed = b"confide/daemon-rotation/1\x00" + static + b"".join(named) + until.to_bytes(8, "big")
        verify(key, bytes.fromhex(old), signed)
        verify(named[1], bytes.fromhex(new), signed)
    except (ValueError, OverflowError, HandshakeError):
        return None
    return named
