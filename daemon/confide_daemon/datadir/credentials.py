"""Keys that the daemon receives in files, or from systemd as credentials: the master key, and those
of embedding providers.

The key of every database in the data folder is derived from the master key: one file to guard and
to back up apart from the data. Each database has a key of its own, so giving one space's key to
another person (or a tool) reveals nothing about other spaces.

A provider's key is read for each request, so that a new one applies at once. No key is printed or
logged anywhere.
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
    """Return the file of the systemd credential with that name (systemd.exec(5), LoadCredential=),
    or None.

    systemd gives the folder to the service alone and makes its files 0400; their owner may be root.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / name if folder and name else None
    return path if path is not None and path.exists() else None


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The places where a key may be, in this order: a file of mode 0600, a systemd credential, an
    environment variable.
    """

    provider: str  # its name for people, as in "OpenAI"
    file: str  # a path, "" for none
    credential: str  # the name of a systemd credential
    variable: str  # of the environment
    is_needed: bool = True  # whether the provider cannot be asked without one

    def read(self) -> str | None:
        """Return the key, or None if there is no key and none is needed.

        Raises QuotaError if a needed key is missing, its file is open to others or cannot be read,
        or it is not a key. The error never contains the key.
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
    """32 random bytes that never leave this object; only keys derived from them do."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "MasterKey(hidden)"

    @classmethod
    def load(cls, path: Path) -> MasterKey:
        """Read the key from the systemd credential, or else from `path`.

        Raises KeyFileError: missing, readable by others, of another owner, or not 32 bytes long.
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
        """Create a key and write it to `path` with mode 0600; an existing file is never
        overwritten.

        Raises FileExistsError if the file exists; KeyFileError if it cannot be written.
        """
        key = secrets.token_bytes(KEY_BYTES)
        write_private_file(path, key)
        return cls(key)

    def registry_key(self) -> bytes:
        return blake2b(key=self._key, person=_REGISTRY, digest_size=KEY_BYTES).digest()

    def space_key(self, space_id: str, generation: int = 0) -> bytes:
        """Return the key of a space's database; each generation has another key, for `confided
        space key --new`.
        """
        if not generation:
            return blake2b(space_id.encode(), key=self._key, person=_SPACE, digest_size=KEY_BYTES).digest()
        about = generation.to_bytes(4, "big") + space_id.encode()
        return blake2b(about, key=self._key, person=_LATER_SPACE, digest_size=KEY_BYTES).digest()
