"""Sealed records: each holds one secret, which the space's devices can decrypt and the daemon only
stores (PROTOCOL.md 10.3).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final, Self

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt, crypto_aead_xchacha20poly1305_ietf_encrypt
from nacl.exceptions import CryptoError

from confide_crypto.errors import RecordError, WrongKeyError
from confide_crypto.sealing.encoding import Cursor, join_labelled, u32
from confide_crypto.sealing.placeholder import SECRET_ID_LENGTH, is_kind
from confide_crypto.sealing.space_keys import SpaceKeys

_VERSION: Final = 1
_LABEL: Final = b"confide-secret/1"
_COMMITMENT_PERSON: Final = b"confide-commit-1"
_COMMITMENT_LENGTH: Final = 32
_NONCE_LENGTH: Final = 24
_TAG_LENGTH: Final = 16
_BLOCK: Final = 64
"""Plaintexts are padded to a multiple of this many bytes, so that the length does not distinguish a
password from a token of similar size.
"""
_LENGTH_BYTES: Final = 4
MAX_VALUE: Final = 4 * 1024 * 1024
"""Bytes of a value; the limit of a document, since a whole note may be sealed."""
_HEADER_LENGTH: Final = 1 + 4 + 1
MAX_RECORD: Final = (
    _HEADER_LENGTH + 32 + SECRET_ID_LENGTH + _COMMITMENT_LENGTH + _NONCE_LENGTH + MAX_VALUE + _BLOCK + _TAG_LENGTH
)


@dataclass(frozen=True, slots=True)
class SealedRecord:
    """An encrypted secret. No field of it needs to be hidden from the daemon."""

    epoch: int  # epoch of the key that sealed it
    kind: str  # kind of secret (`github-token`), as the detection names it
    secret_id: bytes  # id of the secret, 16 bytes
    commitment: bytes  # commitment to the key, the nonce and all of the above, 32 bytes
    nonce: bytes  # 24 bytes
    ciphertext: bytes  # length, value and padding, with a tag of 16 bytes

    @classmethod
    def seal(cls, keys: SpaceKeys, kind: str, value: bytes, *, nonce: bytes | None = None) -> Self:
        """Encrypt `value` under the key of the current epoch. `nonce` is for fixed test vectors
        only.

        Raises ValueError if the kind is not valid, or the value is empty or longer than
        `MAX_VALUE`.
        """
        if not is_kind(kind):
            raise ValueError("a kind is small letters, digits and hyphens, 32 at most")
        if not 1 <= len(value) <= MAX_VALUE:
            raise ValueError(f"a secret has 1 to {MAX_VALUE} bytes")
        epoch, secret_id = keys.epoch, keys.secret_id(kind, value)
        nonce = nonce or secrets.token_bytes(_NONCE_LENGTH)
        about = _about(keys.space, epoch, secret_id, kind)
        plaintext = u32(len(value)) + value
        plaintext += bytes(-len(plaintext) % _BLOCK)
        key = keys.record_key(epoch, secret_id)
        ciphertext = crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, about, nonce, key)
        return cls(epoch, kind, secret_id, _commitment(keys.key(epoch), nonce, about), nonce, ciphertext)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse a record without decrypting it. A daemon uses this to check the records that it
        stores.

        Raises RecordError if the data is malformed.
        """
        if len(data) > MAX_RECORD:
            raise RecordError("a sealed record is larger than any can be")
        cursor = Cursor(data)
        try:
            version, epoch = cursor.number(1), cursor.number(4)
            if version != _VERSION:
                raise RecordError(
                    "a sealed record is of a kind this version does not know", hint="is confide up to date?"
                )
            kind = cursor.take(cursor.number(1)).decode("ascii")
            secret_id, commitment = cursor.take(SECRET_ID_LENGTH), cursor.take(_COMMITMENT_LENGTH)
            nonce, ciphertext = cursor.take(_NONCE_LENGTH), cursor.rest()
        except ValueError:
            raise _damage_error() from None
        sealed = len(ciphertext) - _TAG_LENGTH
        if epoch == 0 or not is_kind(kind) or sealed < _BLOCK or sealed % _BLOCK:
            raise _damage_error()
        return cls(epoch, kind, secret_id, commitment, nonce, ciphertext)

    def encode(self) -> bytes:
        kind = self.kind.encode()
        header = bytes([_VERSION]) + u32(self.epoch) + bytes([len(kind)]) + kind
        return header + self.secret_id + self.commitment + self.nonce + self.ciphertext

    def open(self, keys: SpaceKeys) -> bytes:
        """Decrypt the value.

        Any record of the space can be decrypted, so compare `secret_id` first if you requested a
        certain secret from a daemon.

        Raises:
            UnknownEpochError: `keys` has no key of the record's epoch.
            WrongKeyError: the record was sealed under another key, for another space, or was
                changed outside of its ciphertext.
            RecordError: the ciphertext was changed, or was sealed under the id of another secret.
        """
        about = _about(keys.space, self.epoch, self.secret_id, self.kind)
        # An attacker can make a Poly1305 tag valid under two keys; the commitment is valid under
        # one, so that a record opens to the same value on all devices.
        if not hmac.compare_digest(self.commitment, _commitment(keys.key(self.epoch), self.nonce, about)):
            raise WrongKeyError("a sealed record is not of this space's key, or was changed")
        key = keys.record_key(self.epoch, self.secret_id)
        try:
            plaintext = crypto_aead_xchacha20poly1305_ietf_decrypt(self.ciphertext, about, self.nonce, key)
        except CryptoError:
            raise _damage_error() from None
        value = _unpad(plaintext)
        if not hmac.compare_digest(self.secret_id, keys.secret_id(self.kind, value)):
            raise _damage_error()
        return value

    def reseal(self, keys: SpaceKeys) -> Self:
        """Return the record encrypted again under the current epoch's key, or the record itself if
        it already uses that key.

        Raises UnknownEpochError if `keys` lacks the key of the record's epoch; WrongKeyError or
        RecordError if the record was changed, or belongs to another space or secret.
        """
        return self if self.epoch == keys.epoch else self.seal(keys, self.kind, self.open(keys))


def _about(space: bytes, epoch: int, secret_id: bytes, kind: str) -> bytes:
    return join_labelled(_LABEL, space, u32(epoch), secret_id, kind.encode())


def _commitment(key: bytes, nonce: bytes, about: bytes) -> bytes:
    return hashlib.blake2b(nonce + about, key=key, person=_COMMITMENT_PERSON, digest_size=_COMMITMENT_LENGTH).digest()


def _unpad(plaintext: bytes) -> bytes:
    length = int.from_bytes(plaintext[:_LENGTH_BYTES], "big")
    end = _LENGTH_BYTES + length
    padding = plaintext[end:]
    if length == 0 or length > MAX_VALUE or end > len(plaintext) or len(padding) >= _BLOCK or any(padding):
        raise _damage_error()
    return plaintext[_LENGTH_BYTES:end]


def _damage_error() -> RecordError:
    return RecordError("a sealed record is damaged", hint="seal the secret again from the file that holds it")
