"""Rotation: a device or a daemon replaces its key. Both the old and the new key sign each rotation,
so no one can present another's key as their new one.

A device sends its new key in the request `rotate` (PROTOCOL.md 7.10). Both signatures name the
session, so a recorded request is of no use in another session. A daemon puts a statement into its
welcome, and its clients then pin the new key, but only if the pinned daemon signed the statement.
The old key stays valid for some time (7.11).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from confide_crypto.errors import RequestError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, from_hex, verify

log = logging.getLogger(__name__)

_OLD_LABEL: Final = b"confide/rotate-old/1"
_NEW_LABEL: Final = b"confide/rotate-new/1"
_DAEMON_LABEL: Final = b"confide/daemon-rotation/1"
_SESSION_ID_LENGTH: Final = 16
_LATEST: Final = 2**64 - 1


def sign_rotation(old: Identity, new: Identity, session_id: str) -> dict[str, str]:
    """Return the parameters of the request `rotate`, in hex: `key` (the new public key), `old` and
    `new` (the signatures of both keys).

    Args:
        old: the identity that opened the session.
        new: the identity that replaces it.
        session_id: `Connection.session_id`, 32 hex digits.
    """
    session = bytes.fromhex(session_id)
    return {
        "key": new.public_key.hex(),
        "old": old.sign(_OLD_LABEL, session + new.public_key).hex(),
        "new": new.sign(_NEW_LABEL, session + old.public_key).hex(),
    }


def verify_rotation(body: Mapping[str, object], old_key: bytes, session_id: str) -> bytes:
    """Return the new Ed25519 public key, 32 bytes, if both keys have signed in this session that it
    replaces `old_key`.

    Raises RequestError with the code `invalid` if `body` is malformed or a signature does not
    verify; the error does not say which.
    """
    session = bytes.fromhex(session_id)
    if len(session) != _SESSION_ID_LENGTH:
        raise ValueError("a session id has 16 bytes")
    try:
        key = from_hex(body["key"], KEY_LENGTH)
        by_old, by_new = (from_hex(body[name], SIGNATURE_LENGTH) for name in ("old", "new"))
    except (KeyError, TypeError, ValueError):  # missing, not a string, or not valid hex
        key = by_old = by_new = b""
    if (
        key == old_key
        or not verify(old_key, _OLD_LABEL, session + key, by_old)
        or not verify(key, _NEW_LABEL, session + old_key, by_new)
    ):
        raise RequestError("invalid", "the new key is not vouched for by both keys, in this session")
    return key


@dataclass(frozen=True, slots=True)
class KeySuccession:
    """A daemon's statement that new keys replace its old ones. The old keys are valid until
    `until`.

    Create it by `make` or `parse`; trust it only if `verify` returns True.
    """

    old_static: bytes  # the X25519 static key that clients have pinned, 32 bytes
    old_key: bytes  # the daemon's old Ed25519 public key, 32 bytes
    new_static: bytes  # the X25519 static key to pin from now on, 32 bytes
    new_key: bytes  # the new Ed25519 public key, 32 bytes
    until: int  # when the old keys end, seconds since 1970
    by_old: bytes  # the old key's signature, 64 bytes
    by_new: bytes  # the new key's signature, 64 bytes

    @classmethod
    def make(cls, old: Identity, new: Identity, until: int) -> Self:
        """Create the statement that `new` replaces `old`, which is valid until `until` (seconds
        since 1970).
        """
        signed = _signed_bytes(old.static_key, new.static_key, new.public_key, until)
        by_old, by_new = old.sign(_DAEMON_LABEL, signed), new.sign(_DAEMON_LABEL, signed)
        return cls(old.static_key, old.public_key, new.static_key, new.public_key, until, by_old, by_new)

    @classmethod
    def parse(cls, body: Any, *, old_static: bytes, old_key: bytes) -> Self:
        """Parse a statement from the field `rotation` of a daemon's welcome.

        The field does not contain the old keys, so pass the keys of the connection that received
        the welcome. Raises ValueError if the field is malformed.
        """
        match body:
            case {"static": str(static), "key": str(key), "until": int(until), "old": str(by_old), "new": str(by_new)}:
                if isinstance(until, bool) or not 0 <= until <= _LATEST:
                    raise ValueError("not a rotation statement")
                new_static, new_key = from_hex(static, KEY_LENGTH), from_hex(key, KEY_LENGTH)
                signatures = from_hex(by_old, SIGNATURE_LENGTH), from_hex(by_new, SIGNATURE_LENGTH)
                return cls(old_static, old_key, new_static, new_key, until, *signatures)
        raise ValueError("not a rotation statement")

    def to_json(self) -> dict[str, object]:
        """Return the statement as it is sent in the welcome: `static`, `key`, `old` and `new` in
        hex, `until` as a number.
        """
        return {
            "static": self.new_static.hex(),
            "key": self.new_key.hex(),
            "until": self.until,
            "old": self.by_old.hex(),
            "new": self.by_new.hex(),
        }

    def verify(self) -> bool:
        """Return True if the old and the new key both signed this statement."""
        lengths = [len(key) for key in (self.old_static, self.new_static, self.new_key)]
        if lengths != [KEY_LENGTH] * 3 or not 0 <= self.until <= _LATEST:
            return False
        signed = _signed_bytes(self.old_static, self.new_static, self.new_key, self.until)
        by_old = verify(self.old_key, _DAEMON_LABEL, signed, self.by_old)
        return verify(self.new_key, _DAEMON_LABEL, signed, self.by_new) and by_old


class KeyRotation(NamedTuple):
    """A daemon's rotation in progress: its old secret key, and the statement to send to clients
    that still use the old key.
    """

    old: Identity  # the identity that is being replaced
    statement: KeySuccession  # signed by the old and by the new identity

    @property
    def until(self) -> int:
        """The time at which the old key expires, in seconds since 1970."""
        return self.statement.until

    def is_over(self, now: float) -> bool:
        """Return True if the old key has expired at `now` (seconds since 1970) and must be refused."""
        return now >= self.until


def successor_in(welcome: dict[str, object], daemon_static: bytes, daemon_key: bytes) -> KeySuccession | None:
    """Return the daemon's new keys, or None if its welcome names none or the pinned daemon did not
    sign them.

    Args:
        welcome: the welcome that the connection received.
        daemon_static: the X25519 key that the connection was opened with, 32 bytes.
        daemon_key: the Ed25519 key that the daemon proved on it, 32 bytes.
    """
    body = welcome.get("rotation")
    if body is None:
        return None
    try:
        named = KeySuccession.parse(body, old_static=daemon_static, old_key=daemon_key)
    except ValueError:
        named = None
    if named is None or not named.verify():
        log.warning("the daemon names a new key, but its statement is not good; the pin stays")
        return None
    return named


def _signed_bytes(old_static: bytes, new_static: bytes, new_key: bytes, until: int) -> bytes:
    return old_static + new_static + new_key + struct.pack(">Q", until)
