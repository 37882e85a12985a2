"""The master key: from it the key of every database in the data folder is derived.

One file to guard and to back up apart from the data. Each database gets a key of its own, so that handing one space to somebody
(or opening it with a tool) says nothing about another.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys import read_private_file, write_private_file

KEY_BYTES = 32
# BLAKE2b's `person` keeps derivations apart; it is at most 16 bytes.
_REGISTRY = b"confide-registry"
_SPACE = b"confide-space-1"


class MasterKey:
    """32 random bytes that never leave this object; their derivations do."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "MasterKey(hidden)"

    @classmethod
    def load(cls, path: Path) -> MasterKey:
        """The key in `path`.

        Raises:
            KeyFileError: missing, readable by others, of a foreign owner, or not 32 bytes long.
        """
        key = read_private_file(path)
        if len(key) != KEY_BYTES:
            raise KeyFileError(path, f"holds {len(key)} bytes, not {KEY_BYTES}", hint="restore it from a backup")
        return cls(key)

    @classmethod
    def create(cls, path: Path) -> MasterKey:
        """A new key, written to `path` with mode 0600; an existing file is never overwritten.

        Raises:
            FileExistsError: there is one.
            KeyFileError: it cannot be written.
        """
        key = secrets.token_bytes(KEY_BYTES)
        write_private_file(path, key)
        return cls(key)

    def registry_key(self) -> bytes:
        """The key of `registry.db`."""
        return blake2b(key=self._key, person=_REGISTRY, digest_size=KEY_BYTES).digest()

    def space_key(self, space_id: str) -> bytes:
        """The key of the database of one space."""
        return blake2b(space_id.encode(), key=self._key, person=_SPACE, digest_size=KEY_BYTES).digest()
