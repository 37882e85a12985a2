"""Secret keys that the daemon reads from files or from systemd credentials: the master key, and the
API keys of embedding providers.

The key of every database in the data folder is derived from the master key, so there is one file to
guard, and to back up apart from the data. Each database has a key of its own, so revealing the key
of one space reveals nothing about other spaces.

A provider's API key is read for each request, so a new one takes effect at once. No key is printed
or logged anywhere.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_daemon.errors import QuotaError

KEY_BYTES = 32
# BLAKE2b's `person` separates derivations; it has at most 16 bytes.
_REGISTRY = b"confide-registry"
_SPACE = b"confide-space-1"
_LATER_SPACE = b"confide-space-2"
MASTER = "confide-master-key"
"""The name of the credential that may hold the master key instead of the file."""
# Longer than any provider's key; a longer file is something else.
MAX_KEY = 1024


def credential(name: str) -> Path | None:
    """Return the path of the systemd credential of that name (systemd.exec(5), LoadCredential=), or
    None if there is none.

    systemd gives the folder to the service alone and sets the mode of its files to 0400; they may
    belong to root.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / name if folder and name else None
    return path if path is not None and path.exists() else None


@dataclass(frozen=True, slots=True)
class SecretKey:
    """An API key, which is looked up in this order: a file of mode 0600, a systemd credential, an
    environment variable.
    """

    provider: str  # its name for people, as in "OpenAI"
    file: str  # a path, "" for none
    credential: str  # the name of a systemd credential
    variable: str  # of the environment
    is_needed: bool = True  # whether the provider cannot be asked without one

    def read(self) -> str | None:
        """Return the key, or None if there is none and the provider works without one.

        Raises QuotaError if a required key is missing, its file is accessible to others or cannot
        be read, or the content is not a key. The error never contains the key.
        """
        found = self._from_file() or self._from_credential() or os.environ.get(self.variable, "")
        key = found.strip()
        if not key:
            if not self.is_needed:
                return None
            raise QuotaError(
                f"there is no key for {self.provider}",
                hint="write it into a file of mode 0600 and name that file as key_file in daemon.toml"
                + (f", or set {self.variable} where the daemon starts" if self.variable else ""),
            )
        if len(key) > MAX_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise QuotaError(
                f"what was found as the key for {self.provider} is not one", hint="it is one word, alone in its file"
            )
        return key

    def _from_file(self) -> str:
        if not self.file:
            return ""
        try:
            return read_private_file(Path(self.file).expanduser()).decode("ascii", errors="replace")
        except KeyFileError as error:
            raise QuotaError(f"cannot use the key for {self.provider}: {error}", hint=error.hint) from None

    def _from_credential(self) -> str:
        try:
            path = credential(self.credential)
            if path is None:
                return ""
            with path.open("rb") as file:
                return file.read(MAX_KEY + 1).decode("ascii", errors="replace")
        except OSError as error:
            raise QuotaError(
                f"cannot read the credential {self.credential}: {error.strerror or type(error).__name__}"
            ) from None


class MasterKey:
    """The daemon's master key: 32 random bytes from which all database keys are derived. The bytes
    themselves never leave this object.
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "MasterKey(hidden)"

    @classmethod
    def load(cls, path: Path) -> MasterKey:
        """Read the master key from the systemd credential if there is one, otherwise from `path`.

        Raises KeyFileError if the file is missing, readable by others, owned by another user, or
        not 32 bytes long.
        """
        handed = credential(MASTER)
        if handed is None:
            key = read_private_file(path)
        else:
            try:
                with handed.open("rb") as file:
                    key = file.read(KEY_BYTES + 1)
            except OSError as error:
                raise KeyFileError(handed, f"cannot be read: {error.strerror or type(error).__name__}") from None
        if len(key) != KEY_BYTES:
            raise KeyFileError(
                handed or path, f"holds {len(key)} bytes, not {KEY_BYTES}", hint="restore it from a backup"
            )
        return cls(key)

    @classmethod
    def create(cls, path: Path) -> MasterKey:
        """Create a master key and write it to `path` with mode 0600. An existing file is never
        overwritten.

        Raises FileExistsError if the file exists; KeyFileError if it cannot be written.
        """
        key = secrets.token_bytes(KEY_BYTES)
        write_private_file(path, key)
        return cls(key)

    def registry_key(self) -> bytes:
        return blake2b(key=self._key, person=_REGISTRY, digest_size=KEY_BYTES).digest()

    def space_key(self, space_id: str, generation: int = 0) -> bytes:
        """Derive the key of a space's database. Each `generation` (a counter that `confided space
        key --new` increases) has a different key.
        """
        if not generation:
            return blake2b(space_id.encode(), key=self._key, person=_SPACE, digest_size=KEY_BYTES).digest()
        about = generation.to_bytes(4, "big") + space_id.encode()
        return blake2b(about, key=self._key, person=_LATER_SPACE, digest_size=KEY_BYTES).digest()
