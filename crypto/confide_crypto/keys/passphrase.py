"""An identity under a passphrase: Argon2id makes the key, XChaCha20-Poly1305 seals the seed (PROTOCOL.md 2.5).

The public key stands beside it in the clear, so that a machine whose key is locked can still say who it is.
"""

from __future__ import annotations

import secrets
import struct
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confide_crypto.errors import KeyFileError, PassphraseError
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import KEY_LENGTH, SEALED_PREFIX, Identity

_VERSION: Final = 1
_LABEL: Final = b"confide/sealed-key/1\0"
_HEADER: Final = struct.Struct(">BII16s24s32s")
_CIPHERTEXT_LENGTH: Final = KEY_LENGTH + 16
OPSLIMIT: Final = 3
MEMLIMIT_KIB: Final = 256 * 1024
"""libsodium's MODERATE: half a second and 256 MiB for each guess."""
MOST_OPSLIMIT: Final = 10
MOST_MEMLIMIT_KIB: Final = 1024 * 1024
"""Whoever can put a file in place of ours must not make us ask for 100 GB; libsodium's SENSITIVE fits."""
SHORTEST_PASSPHRASE: Final = 8
LONGEST_PASSPHRASE: Final = 1024


@dataclass(frozen=True, slots=True)
class SealedKey:
    """A seed that only a passphrase opens.

    Attributes:
        public_key: the Ed25519 key, 32 bytes, of the identity inside.
        opslimit: Argon2id's passes.
        memlimit_kib: Argon2id's memory.
        salt: 16 bytes.
        nonce: 24 bytes.
        ciphertext: the sealed seed with its tag, 48 bytes.
    """

    public_key: bytes
    opslimit: int
    memlimit_kib: int
    salt: bytes
    nonce: bytes
    ciphertext: bytes

    @classmethod
    def seal(
        cls, identity: Identity, passphrase: str, *, opslimit: int = OPSLIMIT, memlimit_kib: int = MEMLIMIT_KIB
    ) -> Self:
        """`identity` under `passphrase`.

        Raises:
            PassphraseError: the passphrase is too short or too long, or there is not enough memory.
        """
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt

        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise PassphraseError(
                f"a passphrase has at least {SHORTEST_PASSPHRASE} characters", hint="four or five random words are good"
            )
        salt, nonce = secrets.token_bytes(16), secrets.token_bytes(24)
        bare = cls(identity.public_key, opslimit, memlimit_kib, salt, nonce, b"")
        key = bare._key(passphrase)
        ciphertext = crypto_aead_xchacha20poly1305_ietf_encrypt(identity.seed, _LABEL + bare._header(), nonce, key)
        return cls(bare.public_key, opslimit, memlimit_kib, salt, nonce, ciphertext)

    @classmethod
    def parse(cls, path: Path, payload: bytes) -> Self:
        """What a sealed line of the file `path` holds.

        Raises:
            KeyFileError: it is of another length or version, or its costs are out of bounds.
        """
        damaged = KeyFileError(path, "is damaged", hint="restore it from a copy, or move it away and join again")
        if payload[:1] and payload[0] != _VERSION:
            raise KeyFileError(
                path, "is sealed in a way that this version does not know", hint="is confide up to date?"
            )
        if len(payload) != _HEADER.size + _CIPHERTEXT_LENGTH:
            raise damaged
        _, opslimit, memlimit_kib, salt, nonce, public_key = _HEADER.unpack_from(payload)
        if not (1 <= opslimit <= MOST_OPSLIMIT and 8 <= memlimit_kib <= MOST_MEMLIMIT_KIB):
            raise KeyFileError(path, "asks for more memory or time than a passphrase may cost", hint=damaged.hint)
        return cls(public_key, opslimit, memlimit_kib, salt, nonce, payload[_HEADER.size :])

    def open(self, passphrase: str) -> Identity:
        """The identity inside; takes half a second and 256 MiB.

        Raises:
            PassphraseError: it is another passphrase (or the file was changed), or there is not enough memory.
        """
        from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt
        from nacl.exceptions import CryptoError

        key = self._key(passphrase)
        try:
            seed = crypto_aead_xchacha20poly1305_ietf_decrypt(self.ciphertext, _LABEL + self._header(), self.nonce, key)
        except CryptoError:
            raise PassphraseError("this passphrase does not open the key", hint="try again; mind capitals") from None
        return Identity(seed)

    def to_line(self) -> str:
        """The line of an identity file."""
        return bech32m.encode(SEALED_PREFIX, self._header() + self.ciphertext).upper()

    def _header(self) -> bytes:
        return _HEADER.pack(_VERSION, self.opslimit, self.memlimit_kib, self.salt, self.nonce, self.public_key)

    def _key(self, passphrase: str) -> bytes:
        from nacl.exceptions import CryptoError
        from nacl.pwhash import argon2id

        # The same word typed on two machines may come as different code points.
        data = unicodedata.normalize("NFC", passphrase).encode("utf-8", "backslashreplace")
        if len(data) > LONGEST_PASSPHRASE:
            raise PassphraseError(f"a passphrase has at most {LONGEST_PASSPHRASE} bytes")
        try:
            return bytes(argon2id.kdf(32, data, self.salt, opslimit=self.opslimit, memlimit=self.memlimit_kib * 1024))
        except (CryptoError, MemoryError):
            raise PassphraseError(
                f"there is not enough memory to try a passphrase: it takes {self.memlimit_kib // 1024} MiB",
                hint="close something, and try again",
            ) from None
