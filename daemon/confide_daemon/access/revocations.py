"""A record of revoked keys outside the data folder. With it, a data folder that is restored from an
older copy does not accept these keys again.

The record is a file of JSON lines, to which the daemon and commands beside it only append. Each
line contains a public key, the time when it ended, and the key that replaced it, if any. The daemon
signs each line with its identity key. Nothing in the file is secret.

A line can only take access away. So a line with a foreign signature is ignored if its key has ended
anyway; such lines exist from before a rotation of the daemon's own key. If the key has not ended,
the line was written by an attacker, or by the daemon itself after the restored copy was made. The
daemon cannot know which, and does not start.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto.keys.identity import KEY_LENGTH, Identity, fingerprint_words, verify
from confide_daemon.access.enrolled_callers import EndedKey
from confide_daemon.access.registry import Registry, RegistryState
from confide_daemon.errors import StorageError

log = logging.getLogger(__name__)

FILE: Final = "revoked"
MAX_BYTES: Final = 16 << 20
"""Size limit of the file: about 60,000 keys."""
_LABEL: Final = b"confide revoked 1"


@dataclass(frozen=True, slots=True)
class _RevocationLine:
    key: EndedKey
    signature: bytes


class Revocations:
    """The files in which a daemon records revoked keys: in a folder of their own, in the folder of
    its backups, or both.
    """

    def __init__(self, files: Iterable[_RevocationFile]) -> None:
        self._files = tuple(files)

    @classmethod
    def from_folders(cls, places: Mapping[str, str], state: RegistryState) -> Revocations | None:
        """Return the revocation files that the options name, or None if no option is set. Raises
        StorageError if a folder is within the data folder.

        `places`: the folders, by the options that name them (`Addon.revocation_folders`).
        """
        previous = () if state.keys.rotation is None else (state.keys.rotation.old,)
        identities = (state.identity, *previous)
        found: dict[Path, _RevocationFile] = {}
        for option, name in places.items():
            if not name:
                continue
            folder = Path(name).expanduser().absolute()
            if state.folder.root.resolve() in (folder.resolve(), *folder.resolve().parents):
                hint = f"{option} is to name a folder that does not go back with the data folder"
                raise StorageError(f"the revocations cannot be kept in {folder}: it is in the data folder", hint=hint)
            # The backup disk may be detached; the daemon runs without it, and records the
            # revocations once it is back.
            found.setdefault(folder, _RevocationFile(folder, identities, may_be_away=option.endswith(" to")))
        return cls(found.values()) if found else None

    @classmethod
    def from_backup_folder(cls, folder: Path, state: RegistryState) -> Revocations:
        """Return the revocation file in a folder of backups, for restoring one of them."""
        previous = () if state.keys.rotation is None else (state.keys.rotation.old,)
        return cls([_RevocationFile(folder, (state.identity, *previous), may_be_away=True)])

    def apply(self, registry: Registry) -> list[str]:
        """Synchronize the registry and the files in both directions. Return the names of the
        clients that lost their access.

        Raises StorageError if a file cannot be read or written, or if a line that matters was not
        signed by this daemon.
        """
        gone = self.take(registry)
        self.keep(registry)
        return gone

    def take(self, registry: Registry) -> list[str]:
        """Revoke the keys that the files list in the registry. Return the names of the clients that
        lost their access.

        Raises StorageError if a file cannot be read, or if a line that matters was not signed by
        this daemon.
        """
        return [name for file in self._files for name in file.take(registry)]

    def keep(self, registry: Registry) -> list[Path]:
        """Append revocations from the registry that the files lack. Return the files that were
        changed. Raises StorageError if a file cannot be read or written.
        """
        return [path for file in self._files if (path := file.keep(registry)) is not None]


class _RevocationFile:
    """A revocation file as one daemon reads and writes it."""

    def __init__(self, folder: Path, identities: tuple[Identity, ...], *, may_be_away: bool) -> None:
        """`identities`: the daemon's, the current one first; `may_be_away`: if the folder is
        missing, skip it without an error.
        """
        self._file = folder / FILE
        self._identities = identities
        self._may_be_away = may_be_away

    def take(self, registry: Registry) -> list[str]:
        """Revoke in the registry what the file lists; return the names that lost their access."""
        lines = self._read()
        # A line signed by the old key and one by the current key mean the same: during a rotation a
        # running daemon signs with the old key.
        known = {ended.key for ended in registry.ended_keys()} | {line.key.key for line in lines if self._is_ours(line)}
        for line in lines:
            if line.key.key not in known:
                raise StorageError(
                    f"{self._file} names a revoked key that this daemon has not signed: {fingerprint_words(line.key.key)}",
                    hint="revoke that device here, or see that the data folder is not older than the daemon's last new key; then move the "
                    "file away",
                )
        return registry.take_ended([line.key for line in lines if self._is_ours(line)])

    def keep(self, registry: Registry) -> Path | None:
        """Append revocations that the file lacks; return the file if it changed."""
        if self._may_be_away and not self._is_there:
            log.warning("the revocations are not noted in %s: it is not there", self._file.parent)
            return None
        noted = {(line.key.key, line.key.at) for line in self._read() if _is_by(line, self._identities[0])}
        missing = [ended for ended in registry.ended_keys() if (ended.key, ended.at) not in noted]
        if not missing:
            return None
        self._append(b"".join(self._line(ended) for ended in missing))
        return self._file

    @property
    def _is_there(self) -> bool:
        """True if the folder's disk is present; an empty folder may be an unused mount point."""
        folder = self._file.parent
        return folder.is_dir() and any(folder.iterdir())

    def _line(self, ended: EndedKey) -> bytes:
        signature = self._identities[0].sign(_LABEL, _signed_bytes(ended))
        line = {
            "key": ended.key.hex(),
            "at": ended.at,
            "successor": ended.successor.hex() if ended.successor else None,
            "signature": base64.b64encode(signature).decode(),
        }
        return json.dumps(line).encode() + b"\n"

    def _is_ours(self, line: _RevocationLine) -> bool:
        return any(_is_by(line, identity) for identity in self._identities)

    def _read(self) -> list[_RevocationLine]:
        try:
            fd = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            if self._may_be_away or self._file.parent.is_dir():
                return []
            raise self._unusable("read", "its folder is not there") from None
        except OSError as error:
            raise self._unusable("read", error.strerror or type(error).__name__) from error
        if len(data) > MAX_BYTES:
            raise self._unusable("read", "it is too large")
        # A line that a crash has cut short is ignored, and is written again with the next change.
        return [line for line in map(_parse, data.splitlines()) if line is not None]

    def _append(self, data: bytes) -> None:
        try:
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                os.write(fd, (b"\n" if torn else b"") + data)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unusable("written", error.strerror or type(error).__name__) from error

    def _unusable(self, verb: str, why: str) -> StorageError:
        hint = "without it, a data folder that is put back lets revoked devices in again; repair it, or change [backup] revoked"
        return StorageError(f"the revocations in {self._file} cannot be {verb}: {why.lower()}", hint=hint)


def _is_by(line: _RevocationLine, identity: Identity) -> bool:
    return verify(identity.public_key, _LABEL, _signed_bytes(line.key), line.signature)


def _signed_bytes(ended: EndedKey) -> bytes:
    return ended.key + math.floor(ended.at * 1000).to_bytes(8) + (ended.successor or b"")


def _parse(line: bytes) -> _RevocationLine | None:
    """Parse a line; return None if it is malformed."""
    try:
        match json.loads(line):
            case {"key": str(key), "at": float(at), "successor": (str() | None) as successor, "signature": str(signed)}:
                ended = EndedKey(bytes.fromhex(key), at, bytes.fromhex(successor) if successor else None)
                if len(ended.key) == KEY_LENGTH and 0 <= at < 2**40:
                    return _RevocationLine(ended, base64.b64decode(signed))
    except (ValueError, RecursionError):
        return None
    return None
