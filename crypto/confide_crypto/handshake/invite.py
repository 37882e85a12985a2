"""Invites: a text that a user pastes, which names the daemon's key and lets one device join, once
(PROTOCOL.md 5).

The secret part is in the URL fragment, which no HTTP client sends.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from confide_crypto.errors import InviteError
from confide_crypto.keys import bech32m
from confide_crypto.limits import DEFAULT_PORT

TOKEN_LENGTH: Final = 16
INVITE_ID_LENGTH: Final = 16
_VERSION: Final = 1
_LENGTH: Final = 1 + 32 + TOKEN_LENGTH
INVITE_PREFIX: Final = "invite"
_ID_PERSON: Final = b"confide-inv-id-1"
_PSK_PERSON: Final = b"confide-inv-psk1"
_SCHEMES: Final = {"confide": False, "ws": False, "confides": True, "wss": True}
_AGAIN: Final = "copy the whole line that confided invite or confide device invite printed"


@dataclass(frozen=True, slots=True)
class Invite:
    """An invite: the daemon's address, the key that the daemon must hold, and the one-time secret.

    `str` and `repr` show no secret.
    """

    host: str  # host name or IP address, IPv6 without brackets
    port: int  # TCP port
    path: str  # path of the websocket, "" or beginning with a slash
    is_secure: bool  # TLS around the websocket
    daemon_static: bytes = field(repr=False)  # the daemon's X25519 static key, 32 bytes
    token: bytes = field(repr=False)  # 16 random bytes

    @classmethod
    def new(cls, daemon_static: bytes, url: str) -> Invite:
        """Create an invite to the daemon reachable at `url` (ws, wss, confide or confides).

        Raises InviteError if `url` is not an address with one of these schemes.
        """
        host, port, path, is_secure = _address(url)
        return cls(host, port, path, is_secure, daemon_static, secrets.token_bytes(TOKEN_LENGTH))

    @classmethod
    def parse(cls, text: str) -> Invite:
        """Parse an invite that a user pasted. Raises InviteError if it is damaged, or made for
        another version.
        """
        pasted = text.strip().strip("'\"")
        address, mark, fragment = pasted.partition("#")
        if not pasted:
            raise InviteError("the invite is empty", hint=_AGAIN)
        if not address or (not mark and pasted.lower().startswith(f"{INVITE_PREFIX}1")):
            raise InviteError("this invite lacks its address, the part before #", hint=_AGAIN)
        if not mark:
            raise InviteError("this is not an invite: the part behind # is missing", hint=f"{_AGAIN}, in single quotes")
        host, port, path, is_secure = _address(address)
        try:
            prefix, data = bech32m.decode(fragment)
        except ValueError as error:
            raise InviteError(f"this invite cannot be read: {error}", hint=_AGAIN) from None
        if prefix != INVITE_PREFIX or not data:
            raise InviteError("this is not an invite: the part behind # is something else", hint=_AGAIN)
        if data[0] != _VERSION or len(data) != _LENGTH:
            raise InviteError(
                "this invite is of a kind this version does not know", hint="update confide on this machine"
            )
        return cls(host, port, path, is_secure, data[1:33], data[33:])

    @property
    def invite_id(self) -> bytes:
        """The 16-byte id that the client sends in message 1 and the daemon looks up. It reveals
        nothing about the secret.
        """
        return hashlib.blake2b(self.token, person=_ID_PERSON, digest_size=INVITE_ID_LENGTH).digest()

    @property
    def invite_psk(self) -> bytes:
        """The 32-byte secret of the invite, which both ends mix into the handshake as pre-shared
        key.
        """
        return hashlib.blake2b(self.token, person=_PSK_PERSON, digest_size=32).digest()

    @property
    def websocket_url(self) -> str:
        """The daemon's address with ws:// or wss://, as the `websockets` library needs it."""
        return f"{'wss' if self.is_secure else 'ws'}://{self._authority()}{self.path or '/'}"

    def to_string(self) -> str:
        """Return the invite with its secret. Show it once, to the user who passes it on."""
        secret = bech32m.encode(INVITE_PREFIX, bytes([_VERSION]) + self.daemon_static + self.token)
        path = self.path.rstrip("/")
        return f"{'confides' if self.is_secure else 'confide'}://{self._authority()}{path}/#{secret}"

    def __str__(self) -> str:
        return f"invite to {self._authority()}"

    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _address(url: str) -> tuple[str, int, str, bool]:
    hint = "an address looks like confide://host:7733/"
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InviteError("the address in it is malformed", hint=hint) from None
    if parts.scheme not in _SCHEMES:
        raise InviteError("the address in it must begin with confide:// or confides://", hint=hint)
    if (
        not parts.hostname
        or port == 0
        or parts.username is not None
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
    ):
        raise InviteError("the address in it is malformed", hint=hint)
    if " " in url:
        raise InviteError("the address in it has a space", hint=hint)
    return parts.hostname, port or DEFAULT_PORT, parts.path.rstrip("/"), _SCHEMES[parts.scheme]
