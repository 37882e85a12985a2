"""The master key: from it the key of every database in the data folder is derived.

One file to guard and to back up apart from the data. Each database gets a key of its own, so that handing one space to somebody
(or opening it with a tool) says nothing about another.
"""

from __future__ import annotations

import os
import secrets
from hashlib import blake2b
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import read_private_file, write_private_file

KEY_BYTES = 32
_CREDENTIALS = "CREDENTIALS_DIRECTORY"
# BLAKE2b's `person` keeps derivations apart; it is at most 16 bytes.
_REGISTRY = b"confide-registry"
_SPACE = b"confide-space-1"
_LATER_SPACE = b"confide-space-2"
CREDENTIAL = "confide-master-key"
"""The name of the systemd credential that may hold the key in place of the file (systemd.exec(5), LoadCredential=)."""


class MasterKey:
    """32 random bytes that never leave this object; their derivations do."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "MasterKey(hidden)"

    @classmethod
    def load(cls, path: Path) -> MasterKey:
        """The key that systemd hands to the service, or else the one in `path`.

        Raises:
            KeyFileError: missing, readable by others, of a foreign owner, or not 32 bytes long.
        """
        found = credential()
        if found is None:
            found, key = path, read_private_file(path)
        else:
            key = _read_credential(found)
        if len(key) != KEY_BYTES:
            raise KeyFileError(found, f"holds {len(key)} bytes, not {KEY_BYTES}", hint="restore it from a backup")
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

    def space_key(self, space_id: str, generation: int = 0) -> bytes:
        """The key of the database of one space; each generation is another one, for `confided rekey`."""
        if not generation:
            return blake2b(space_id.encode(), key=self._key, person=_SPACE, digest_size=KEY_BYTES).digest()
        about = generation.to_bytes(4, "big") + space_id.encode()
        return blake2b(about, key=self._key, person=_LATER_SPACE, digest_size=KEY_BYTES).digest()


def credential() -> Path | None:
    """Where systemd has put the key, if it has."""
    folder = os.environ.get(_CREDENTIALS)
    path = Path(folder) / CREDENTIAL if folder else None
    return path if path is not None and path.exists() else None


def _read_credential(path: Path) -> bytes:
    """systemd gives the folder to the service alone and makes its files 0400; their owner may be root."""
    try:
        with path.open("rb") as file:
            return file.read(KEY_BYTES + 1)
    except OSError as error:
        raise KeyFileError(path, f"cannot be read: {error.strerror or type(error).__name__}") from None
