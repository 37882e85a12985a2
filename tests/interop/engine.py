"""Noise itself, from the PyPI package `noiseprotocol`; the Go peer has the same shape (`go_engine.py`)."""

from __future__ import annotations

from typing import Protocol

from noise.connection import Keypair, NoiseConnection

NAME = b"Noise_XKpsk3_25519_ChaChaPoly_BLAKE2b"
PROLOGUE = b"confide-channel/1 mlkem768\x00"


class Engine(Protocol):
    """One end of one Noise handshake and of the transport phase after it."""

    def write(self, payload: bytes) -> bytes:
        """The next handshake message."""

    def read(self, message: bytes) -> bytes:
        """The payload of the peer's next handshake message. Raises an Exception if it does not decrypt."""

    def set_psk(self, psk: bytes) -> None:
        """The real psk, before message 3."""

    def handshake_hash(self) -> bytes:
        """Noise's h, after message 3."""

    def seal(self, plaintext: bytes) -> bytes:
        """A transport message."""

    def open(self, record: bytes) -> bytes:
        """The plaintext of the peer's next transport message. Raises an Exception if it does not decrypt."""

    def rekey_sending(self) -> None:
        """Noise's Rekey of the direction that this end seals."""

    def rekey_receiving(self) -> None:
        """Noise's Rekey of the direction that this end opens."""


class PythonEngine:
    """`noiseprotocol`. It wants some psk before message 1; the real one is known after message 2 only."""

    def __init__(
        self, *, static_private: bytes, remote_static: bytes | None = None, ephemeral: bytes | None = None
    ) -> None:
        """An initiator if `remote_static` is given, else a responder. `ephemeral` is for known answers only."""
        self._noise = NoiseConnection.from_name(NAME)
        self._noise.set_prologue(PROLOGUE)
        self._noise.set_psks(psk=bytes(32))
        self._noise.set_keypair_from_private_bytes(Keypair.STATIC, static_private)
        if remote_static is None:
            self._noise.set_as_responder()
        else:
            self._noise.set_as_initiator()
            self._noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, remote_static)
        if ephemeral is not None:
            self._noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
        self._noise.start_handshake()
        self._state = self._noise.noise_protocol.handshake_state

    def write(self, payload: bytes) -> bytes:
        return bytes(self._noise.write_message(payload))

    def read(self, message: bytes) -> bytes:
        return bytes(self._noise.read_message(message))

    @property
    def remote_static(self) -> bytes:
        """The peer's static key, known to a responder from message 3 on."""
        return bytes(self._state.rs.public_bytes)

    def set_psk(self, psk: bytes) -> None:
        self._noise.noise_protocol.psks = [psk]

    def handshake_hash(self) -> bytes:
        return bytes(self._noise.get_handshake_hash())

    def seal(self, plaintext: bytes) -> bytes:
        return bytes(self._noise.encrypt(plaintext))

    def open(self, record: bytes) -> bytes:
        return bytes(self._noise.decrypt(record))

    def rekey_sending(self) -> None:
        self._noise.rekey_outbound_cipher()

    def rekey_receiving(self) -> None:
        self._noise.rekey_inbound_cipher()
