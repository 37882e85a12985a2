"""A caller's new key: the two signatures that tie it to the old one and to one session (PROTOCOL.md 7.10).

The old key vouches for the new one, and the new one signs too, so that nobody can enter another's key as their own. Both name the
session: a `rotate` that is recorded is of no use in another.
"""

from __future__ import annotations

from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, from_hex, verify

_OLD_LABEL: Final = b"confide/rotate-old/1"
_NEW_LABEL: Final = b"confide/rotate-new/1"
_SESSION_ID_LENGTH: Final = 16


def sign_rotation(old: Identity, new: Identity, session_id: str) -> dict[str, str]:
    """The body of the request `rotate`, without its `op`: `key` (the new public key), `old` and `new` (the signatures), in hex.

    Args:
        old: who the session belongs to.
        new: who this caller will be.
        session_id: `Connection.session_id`, 32 hex digits.
    """
    session = bytes.fromhex(session_id)
    return {
        "key": new.public_key.hex(),
        "old": old.sign(_OLD_LABEL, session + new.public_key).hex(),
        "new": new.sign(_NEW_LABEL, session + old.public_key).hex(),
    }


def verify_rotation(body: dict[str, Any], old_key: bytes, session_id: str) -> bytes:
    """The new Ed25519 public key, 32 bytes, if both keys have signed that it follows `old_key`, in this session.

    Raises:
        RequestError: `invalid`: the body has another form, or a signature is not good. It does not say which.
    """
    session = bytes.fromhex(session_id)
    if len(session) != _SESSION_ID_LENGTH:
        raise ValueError("a session id has 16 bytes")
    key, by_old, by_new = (
        _bytes_of(body, "key", KEY_LENGTH),
        _bytes_of(body, "old", SIGNATURE_LENGTH),
        _bytes_of(body, "new", SIGNATURE_LENGTH),
    )
    if (
        key == old_key
        or not verify(old_key, _OLD_LABEL, session + key, by_old)
        or not verify(key, _NEW_LABEL, session + old_key, by_new)
    ):
        raise _invalid()
    return key


def _bytes_of(body: dict[str, Any], name: str, length: int) -> bytes:
    value = body.get(name)
    if not isinstance(value, str):
        raise _invalid()
    try:
        return from_hex(value, length)
    except ValueError:
        raise _invalid() from None


def _invalid() -> RequestError:
    return RequestError("invalid", "the new key is not vouched for by both keys, in this session")
