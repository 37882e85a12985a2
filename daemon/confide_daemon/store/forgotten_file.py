"""The file beside a space's database with the records of its forgotten texts, one a line
(docs/decisions/0041).

The hashes in a record match nothing without their key. Each line also has that key, encrypted with
the database's key. So a database that is restored from before the record was made can still apply
it. Since a database changes its key in time, each line keeps one encrypted copy per key.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as unsealed
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as sealed
from nacl.exceptions import CryptoError

from confide_crypto import atomic
from confide_daemon.errors import StorageError
from confide_daemon.store.tables.forget_table import ForgetRow
from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import SignedRecord, key_id

log = logging.getLogger(__name__)

_MOST_BYTES: Final = 256 << 20
MOST_KEYS: Final = 64
"""Encrypted keys of one line: each change of the database's key adds one."""
_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class FiledRecord:
    """A record of forgotten texts, as one line of the file has it.

    Attributes:
        keys: the key of the record's hashes, encrypted once with each key that the database has
            had.
    """

    row: ForgetRow
    keys: tuple[bytes, ...] = ()

    def key(self, database_key: bytes) -> bytes | None:
        """Return the key of the record's hashes, or None if no copy is encrypted with this database
        key.
        """
        name = self.row.signed.record.key_id
        for one in self.keys:
            try:
                found = unsealed(one[_NONCE_BYTES:], name, one[:_NONCE_BYTES], _box(database_key))
            except (CryptoError, ValueError):
                continue
            return found if key_id(found) == name else None
        return None


def encrypted_key(key: bytes, database_key: bytes) -> bytes:
    """Encrypt a key of hashes for a line of the file. The same input gives the same output, so that
    the file changes only with its content.
    """
    box = _box(database_key)
    nonce = blake2b(key, key=box, person=b"confide-nonce", digest_size=_NONCE_BYTES).digest()
    return nonce + sealed(key, key_id(key), nonce, box)


def write(file: Path, rows: Iterable[ForgetRow], keys: Mapping[bytes, bytes], database_key: bytes) -> None:
    """Write the file with these records, unless it is the same already.

    Args:
        keys: the keys of the records' hashes, by key id.
        database_key: the present key of the database.

    Raises StorageError if the file cannot be read or written.
    """
    kept = {one.row.id: one.keys for one in read(file)}
    data = b"".join(
        _line(row, _keys(kept.get(row.id, ()), keys.get(row.signed.record.key_id), database_key)) for row in rows
    )
    try:
        if not file.exists() or file.read_bytes() != data:
            atomic.write(file, data)
    except OSError as error:
        raise StorageError(f"cannot note what was forgotten: {error.strerror}", hint="is the disk full?") from None


def read(file: Path) -> list[FiledRecord]:
    """Return the records in the file; empty if there is no file. Lines without a valid signature
    are skipped. Raises StorageError if the file cannot be read.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read what was forgotten: {error.strerror}", hint=f"look at {file.name}") from None
    found = []
    for line in data.splitlines():
        try:
            told = json.loads(line)
            signed = SignedRecord(base64.b64decode(told["record"], validate=True), bytes.fromhex(told["signature"]))
            lifted = frozenset(map(bytes.fromhex, told["lifted"]))
            keys = tuple(map(bytes.fromhex, told.get("keys", [])))
            if signed.is_signed:
                row = ForgetRow(signed.record.id, signed, lifted, str(told["author"]), float(told["at"]), None)
                found.append(FiledRecord(row, keys))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UnfitAnswerError):
            log.warning("a line of %s is damaged, and is left out", file.name)
    return found


def _keys(before: tuple[bytes, ...], key: bytes | None, database_key: bytes) -> tuple[bytes, ...]:
    added = () if key is None else (encrypted_key(key, database_key),)
    return tuple(dict.fromkeys([*before, *added]))[-MOST_KEYS:]


def _line(row: ForgetRow, keys: tuple[bytes, ...]) -> bytes:
    line = {
        "record": base64.b64encode(row.signed.data).decode(),
        "signature": row.signed.signature.hex(),
        "author": row.author,
        "at": row.taken_at,
        "lifted": sorted(each.hex() for each in row.lifted),
        "keys": [each.hex() for each in keys],
    }
    return json.dumps(line).encode() + b"\n"


def _box(database_key: bytes) -> bytes:
    return blake2b(key=database_key, person=b"confide-forgot-1", digest_size=32).digest()
