"""New keys of a caller and of a daemon: the statements of PROTOCOL.md 7.10 and 7.11."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.handshake import HandshakeError, verify
from tests.interop.texts import Identity


def _statements(session_id: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """What the old and the new key of a caller sign."""
    return b"confide/rotate-old/1\x00" + session_id + new, b"confide/rotate-new/1\x00" + session_id + old


def rotation_request(session_id: bytes, old: Identity, new: Identity) -> dict[str, Any]:
    """The parameters of `rotate`, all in hex (7.10)."""
    by_old, by_new = _statements(session_id, old.key, new.key)
    return {"key": new.key.hex(), "old": old.signing.sign(by_old).hex(), "new": new.signing.sign(by_new).hex()}


def rotated_to(asked: dict[str, Any], session_id: bytes, old: bytes) -> bytes:
    """The new key out of a `rotate` of this session. Raises HandshakeError where a signature is wrong."""
    new = bytes.fromhex(asked["key"])
    by_old, by_new = _statements(session_id, old, new)
    verify(old, bytes.fromhex(asked["old"]), by_old)
    verify(new, bytes.fromhex(asked["new"]), by_new)
    return new


def _announced(static: bytes, new_static: bytes, new_key: bytes, until: int) -> bytes:
    """What both keys of a daemon sign."""
    return b"confide/daemon-rotation/1\x00" + static + new_static + new_key + until.to_bytes(8, "big")


def announcement(old: Identity, new: Identity, *, signer: Identity) -> dict[str, Any]:
    """The member `rotation` of a welcome (7.11) for the next hour; `signer` signs for the old key."""
    until = int(time.time()) + 3600
    signed = _announced(old.static, new.static, new.key, until)
    signatures = {"old": signer.signing.sign(signed).hex(), "new": new.signing.sign(signed).hex()}
    return {"static": new.static.hex(), "key": new.key.hex(), "until": until, **signatures}


def successor(welcome: dict[str, Any], static: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """The daemon's new static and Ed25519 key, if the welcome names one that both keys signed (7.11)."""
    match welcome.get("rotation"):
        case {"static": str(new_static), "key": str(new_key), "until": int(until), "old": str(old), "new": str(new)}:
            pass
        case _:
            return None
    try:
        named = bytes.fromhex(new_static), bytes.fromhex(new_key)
        signed = _announced(static, *named, until)
        verify(key, bytes.fromhex(old), signed)
        verify(named[1], bytes.fromhex(new), signed)
    except (ValueError, OverflowError, HandshakeError):
        return None
    return named
