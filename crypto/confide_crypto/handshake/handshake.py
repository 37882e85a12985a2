"""The handshake: Noise XKpsk3 carrying an ML-KEM-768 exchange and an Ed25519 signature (PROTOCOL.md
4). No I/O.

    client                                   daemon
    write_message1()  ───── 1256 bytes ────▶ read_message1()
    read_message2()   ◀──── 1136 bytes ───── write_message2(invite_psk)
    write_message3()  ─────  512 bytes ────▶ read_message3()
    finish()                                 finish()

Every failure raises the same `HandshakeError`; do not use the object afterwards.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from confide_crypto.errors import HandshakeError
from confide_crypto.handshake.invite import INVITE_ID_LENGTH, Invite
from confide_crypto.handshake.noise import XKPSK3, CipherState, HandshakeState, KeyPair, NoiseError
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, verify

PROLOGUE: Final = b"confide-channel/1 mlkem768\0"
HASH: Final = "BLAKE2b"
_PSK_PERSON: Final = b"confide-psk-1"
_SIGNATURE_LABEL: Final = b"confide/handshake-id/1"

MODE_SESSION: Final = 0
MODE_ENROLL: Final = 1

_RESERVED: Final = bytes(7)
_NO_INVITE: Final = bytes(INVITE_ID_LENGTH)
_NO_PSK: Final = bytes(32)
_PAYLOAD3_LENGTH: Final = 448
MAX_HELLO: Final = _PAYLOAD3_LENGTH - KEY_LENGTH - SIGNATURE_LENGTH
"""Most bytes of JSON in the hello: 352."""

MESSAGE1_LENGTH: Final = 1256
MESSAGE2_LENGTH: Final = 1136
MESSAGE3_LENGTH: Final = 512
SESSION_ID_LENGTH: Final = 16


class TransportKeys(NamedTuple):
    """The result of a finished handshake: one cipher for each direction, and the session id in hex,
    which is safe to log.
    """

    sending: CipherState
    receiving: CipherState
    session_id: str


class ProvenPeer(NamedTuple):
    """The authenticated client: its key, and what it says about itself (its hello). Message 3
    proved the key.
    """

    public_key: bytes
    hello: dict[str, Any]


def transcript(daemon_static: bytes, message1: bytes, message2: bytes) -> bytes:
    """Return the transcript hash T of PROTOCOL.md 4.4, 64 bytes. It covers only bytes sent over the
    wire, so any peer can compute it.
    """
    return hashlib.blake2b(PROLOGUE + daemon_static + message1 + message2).digest()


def derive_psk(shared_secret: bytes, mode: int, invite_psk: bytes, t: bytes) -> bytes:
    """Return the pre-shared key of PROTOCOL.md 4.4.

    Args:
        shared_secret: the secret that the KEM produced.
        mode: the mode of the handshake.
        invite_psk: the invite's secret, or 32 zero bytes without an invite.
        t: the transcript hash T.
    """
    return hashlib.blake2b(
        bytes([mode]) + invite_psk + t, key=shared_secret, person=_PSK_PERSON, digest_size=32
    ).digest()


class ClientHandshake:
    """The client's side of a handshake; the client is the initiator."""

    def __init__(
        self,
        identity: Identity,
        daemon_static: bytes,
        *,
        invite: Invite | None = None,
        hello: dict[str, object] | None = None,
        ephemeral: KeyPair | None = None,
        kem_key: MLKEM768PrivateKey | None = None,
    ) -> None:
        """Prepare a handshake; `ephemeral` and `kem_key` are for frozen test vectors only.

        Raises ValueError if the hello has more than `MAX_HELLO` bytes of JSON.
        """
        self._hello = _encode_hello(hello or {})
        self._identity = identity
        self._daemon_static = daemon_static
        self._invite = invite
        self._static = KeyPair.from_secret(identity.static_secret)
        self._noise = HandshakeState(
            XKPSK3,
            HASH,
            initiator=True,
            prologue=PROLOGUE,
            static=self._static,
            remote_static=daemon_static,
            ephemeral=ephemeral,
        )
        self._kem_key = kem_key or MLKEM768PrivateKey.generate()
        self._message1 = b""
        self._t = b""

    def write_message1(self) -> bytes:
        """Return message 1.

        Raises HandshakeError if the daemon's pinned key has a low order, since anyone could
        impersonate such a key.
        """
        mode, invite_id = (MODE_SESSION, _NO_INVITE) if self._invite is None else (MODE_ENROLL, self._invite.invite_id)
        payload = bytes([mode]) + _RESERVED + invite_id + self._kem_key.public_key().public_bytes_raw()
        try:
            self._message1 = self._noise.write_message(payload)
        except NoiseError:
            raise _failure() from None
        return self._message1

    def read_message2(self, message: bytes) -> None:
        """Read message 2. Raises HandshakeError if the sender does not hold the pinned key, or the
        message was changed.
        """
        if len(message) != MESSAGE2_LENGTH:
            raise _failure()
        try:
            shared_secret = self._kem_key.decapsulate(self._noise.read_message(message))
        except NoiseError:
            raise _failure() from None
        self._t = transcript(self._daemon_static, self._message1, message)
        mode, invite_psk = (MODE_SESSION, _NO_PSK) if self._invite is None else (MODE_ENROLL, self._invite.invite_psk)
        self._noise.set_psk(derive_psk(shared_secret, mode, invite_psk, self._t))

    def write_message3(self) -> bytes:
        """Return message 3, which carries this device's key, its signature and its description of
        itself.
        """
        signature = self._identity.sign(_SIGNATURE_LABEL, self._t + self._static.public)
        payload = self._identity.public_key + signature + self._hello.ljust(MAX_HELLO, b"\0")
        return self._noise.write_message(payload)

    def finish(self) -> TransportKeys:
        return _finish(self._noise)


class DaemonHandshake:
    """The daemon's side of a handshake; the daemon is the responder. It does not rely on message 1
    before message 3 has authenticated the client.
    """

    def __init__(
        self, identity: Identity, *, previous: Identity | None = None, ephemeral: KeyPair | None = None
    ) -> None:
        """Prepare a handshake; `ephemeral` is for frozen test vectors only.

        With `previous`, message 1 may be encrypted to either of the two keys (PROTOCOL.md 7.11).
        """
        self._previous = previous
        self._ephemeral = ephemeral
        self._use(identity)
        self._message1 = b""
        self._kem_public: MLKEM768PublicKey | None = None
        self._t = b""
        self._mode = MODE_SESSION
        self.invite_id: bytes | None = None
        """The invite that the client names in mode 1; not proven before message 3."""

    def read_message1(self, message: bytes) -> None:
        """Read message 1 and set `invite_id`. Raises HandshakeError if it is malformed."""
        if len(message) != MESSAGE1_LENGTH:
            raise _failure()
        try:
            payload = self._open_message1(message)
            self._kem_public = MLKEM768PublicKey.from_public_bytes(payload[8 + INVITE_ID_LENGTH :])
        except (NoiseError, ValueError):
            raise _failure() from None
        self._mode, invite_id = payload[0], payload[8 : 8 + INVITE_ID_LENGTH]
        fits_mode = self._mode == MODE_ENROLL or (self._mode == MODE_SESSION and invite_id == _NO_INVITE)
        if not fits_mode or payload[1:8] != _RESERVED:
            raise _failure()
        self.invite_id = invite_id if self._mode == MODE_ENROLL else None
        self._message1 = message

    def write_message2(self, invite_psk: bytes | None = None) -> bytes:
        """Return message 2.

        Args:
            invite_psk: the secret of the invite that the client names, or None if there is no such
                invite. Then a random secret is used instead, so that the client fails at message 3,
                as with any wrong secret. It is ignored if the client uses no invite.
        """
        if self._kem_public is None:
            raise _failure()
        shared_secret, ciphertext = self._kem_public.encapsulate()
        message = self._noise.write_message(ciphertext)
        self._t = transcript(self._daemon_static, self._message1, message)
        secret = _NO_PSK if self._mode == MODE_SESSION else invite_psk or secrets.token_bytes(32)
        self._noise.set_psk(derive_psk(shared_secret, self._mode, secret, self._t))
        return message

    def read_message3(self, message: bytes) -> ProvenPeer:
        """Return the client that message 3 authenticates. Raises HandshakeError if any check fails."""
        if len(message) != MESSAGE3_LENGTH:
            raise _failure()
        try:
            payload = self._noise.read_message(message)
        except NoiseError:
            raise _failure() from None
        public_key, signature = payload[:KEY_LENGTH], payload[KEY_LENGTH : KEY_LENGTH + SIGNATURE_LENGTH]
        signed = self._t + (self._noise.remote_static or b"")
        if not verify(public_key, _SIGNATURE_LABEL, signed, signature):
            raise _failure()
        return ProvenPeer(public_key, _decode_hello(payload[KEY_LENGTH + SIGNATURE_LENGTH :]))

    def finish(self) -> TransportKeys:
        return _finish(self._noise)

    def _use(self, identity: Identity) -> None:
        static = KeyPair.from_secret(identity.static_secret)
        self.identity = identity
        """The identity that the client's message 1 was encrypted to, once that has been read."""
        self._daemon_static = static.public
        self._noise = HandshakeState(
            XKPSK3, HASH, initiator=False, prologue=PROLOGUE, static=static, ephemeral=self._ephemeral
        )

    def _open_message1(self, message: bytes) -> bytes:
        try:
            return self._noise.read_message(message)
        except NoiseError:
            if self._previous is None:
                raise
        self._use(self._previous)
        return self._noise.read_message(message)


def _finish(noise: HandshakeState) -> TransportKeys:
    try:
        sending, receiving = noise.split()
    except NoiseError:
        raise _failure() from None
    return TransportKeys(sending, receiving, noise.handshake_hash[:SESSION_ID_LENGTH].hex())


def _encode_hello(hello: dict[str, object]) -> bytes:
    encoded = json.dumps(hello, separators=(",", ":"), ensure_ascii=False).encode()
    if len(encoded) > MAX_HELLO:
        raise ValueError(f"the hello has {len(encoded)} bytes, {MAX_HELLO} fit")
    return encoded


def _decode_hello(padded: bytes) -> dict[str, object]:
    try:
        hello = json.loads(padded.rstrip(b"\0").decode())
    except (ValueError, RecursionError):
        raise _failure() from None
    if not isinstance(hello, dict):
        raise _failure()
    return hello


def _failure() -> HandshakeError:
    return HandshakeError("handshake failed")
