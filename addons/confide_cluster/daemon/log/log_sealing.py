"""Encrypts what this node uploads to the log of a space: entries, each a SQLite patchset, and the
manifests of snapshots.

    body = nonce (24) || XChaCha20-Poly1305(key, pad(length (4) || zlib(content)), about)
    key  = BLAKE2b-256(id of the log; key = key of the database, person = confide-log-1)

`about` binds an entry to its log, its number, the lease that it was written under, the schema, and
the tag of the entry before it. So not even the operator of PostgreSQL can forge, move or omit an
entry. The tag of an entry is the last 16 bytes of its body. The functions do no I/O.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Final

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt
from nacl.exceptions import CryptoError

from confide_cluster.errors import LogError

TAG_BYTES: Final = 16
GENESIS: Final = bytes(TAG_BYTES)
"""The tag before the first entry."""
MOST_BYTES: Final = 256 * 2**20
"""Most bytes of an entry before compression: an import writes a few hundred documents of at most a
few megabytes in one transaction.
"""
_PERSON: Final = b"confide-log-1"
_NONCE_BYTES: Final = 24
_LENGTH_BYTES: Final = 4
_LEAST: Final = 256
"""Least bytes of a body. A longer one is padded to a power of two: an attacker who reads the log
and can have text stored beside a note must not learn from the length how well the two compress
together (CRIME, 2012).
"""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of an entry in its log.

    Attributes:
        number: the entry's number, counted from 1 without a gap.
        lease: the number of the lease that it was written under.
        schema: the newest migration that the writer knows.
        before: the tag of the entry before.
    """

    number: int
    lease: int
    schema: int
    before: bytes


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """The description of a snapshot. It is encrypted and stored beside the snapshot's parts, so
    that parts of two snapshots are never mixed.

    Attributes:
        base: the number of the last entry that the snapshot contains.
        tag: the tag of that entry.
        size: the size of the file in bytes.
        digest: the BLAKE2b-256 hash of the file, in hexadecimal.
    """

    base: int
    tag: str
    size: int
    digest: str


class LogSealing:
    """Encrypts and decrypts the content of one log, with one key of its database."""

    def __init__(self, log: str, key: bytes) -> None:
        """`key`: of the database, 32 bytes."""
        self._log = log
        self._key = blake2b(log.encode(), key=key, person=_PERSON, digest_size=32).digest()

    def __repr__(self) -> str:
        return "Sealing(hidden)"

    def seal(self, place: LogPosition, patchset: bytes) -> bytes:
        """Return the encrypted body of an entry. Raises LogError if it is too large."""
        return self._encrypt(patchset, self._about("entry", place))

    def open(self, place: LogPosition, body: bytes) -> bytes:
        """Return the patchset of an entry. Raises LogError if the body belongs to another place or
        log, or was changed.
        """
        return self._decrypt(body, self._about("entry", place), f"entry {place.number}")

    def seal_manifest(self, manifest: SnapshotManifest) -> bytes:
        return self._encrypt(json.dumps(asdict(manifest)).encode(), self._about("snapshot", None))

    def open_manifest(self, body: bytes) -> SnapshotManifest:
        """Return the decrypted manifest of a snapshot. Raises LogError if it belongs to another log
        or was changed.
        """
        found = json.loads(self._decrypt(body, self._about("snapshot", None), "the snapshot"))
        return SnapshotManifest(**found)

    def _about(self, kind: str, place: LogPosition | None) -> bytes:
        said = [kind, self._log]
        if place is not None:
            said += [str(place.number), str(place.lease), str(place.schema), place.before.hex()]
        return "\n".join(said).encode()

    def _encrypt(self, content: bytes, about: bytes) -> bytes:
        if len(content) > MOST_BYTES:
            raise LogError(f"cannot write to the log: one change has {len(content) >> 20} MiB", hint="make it in parts")
        packed = zlib.compress(content)
        plain = len(packed).to_bytes(_LENGTH_BYTES) + packed
        plain = plain.ljust(max(_LEAST, 1 << (len(plain) - 1).bit_length()), b"\0")
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + encrypt(plain, about, nonce, self._key)

    def _decrypt(self, body: bytes, about: bytes, what: str) -> bytes:
        try:
            plain = decrypt(body[_NONCE_BYTES:], about, body[:_NONCE_BYTES], self._key)
        except (CryptoError, ValueError):
            raise LogError(
                f"cannot use the log of the space: {what} is not what was written there",
                hint="rows were changed, left out or put back in the engine: restore its database from a backup",
            ) from None
        length = int.from_bytes(plain[:_LENGTH_BYTES])
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(plain[_LENGTH_BYTES : _LENGTH_BYTES + length], MOST_BYTES)
        if not unpacking.eof:
            raise LogError(f"cannot use the log of the space: {what} is larger than entries may be")
        return content


def tag_of(body: bytes) -> bytes:
    """Return the tag of an entry, which the next entry is bound to."""
    return body[-TAG_BYTES:]
