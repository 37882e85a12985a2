"""The keys that ended, kept beside the data folder, so that a folder that is put back from an older copy lets none of them in again.

One file of JSON lines that is only appended to, so that the daemon and a command beside it both may: a public key, when it ended, and the
key that took its place where one did, signed by the daemon's identity. Nothing in it is secret.

A line can take access away only, so one that is not this daemon's is passed over where its key has ended anyway: lines from before a
rotation of the daemon's own key are such. Where it has not, nobody can tell here whether a stranger wrote it or this daemon did, later
than the copy; then the daemon does not start.
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
"""About 60,000 keys."""
_LABEL: Final = b"confide revoked 1"


@dataclass(frozen=True, slots=True)
class _RevocationLine:
    ended: EndedKey
    signature: bytes


class Revocations:
    """The places that a daemon keeps them in: a folder of their own, the target of its backups, or both."""

    def __init__(self, files: Iterable[_RevocationFile]) -> None:
        self._files = tuple(files)

    @classmethod
    def configured(cls, places: Mapping[str, str], state: RegistryState) -> Revocations | None:
        """Those of a data folder; None where no place for them is configured. Raises StorageError: a place is in the data folder.

        `places`: folders, by the options that name them (`Addon.beside_the_data`).
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
            # The disk of backups may be taken away; the daemon serves without it, and notes them when it is there again.
            found.setdefault(folder, _RevocationFile(folder, identities, may_be_away=option.endswith(" to")))
        return cls(found.values()) if found else None

    @classmethod
    def beside(cls, folder: Path, state: RegistryState) -> Revocations:
        """Those in a folder of backups, for whoever restores one of them."""
        previous = () if state.keys.rotation is None else (state.keys.rotation.old,)
        return cls([_RevocationFile(folder, (state.identity, *previous), may_be_away=True)])

    def apply(self, registry: Registry) -> list[str]:
        """Have the registry know what the files know, and them what the registry knows; the names that lost their access by it.

        Raises StorageError: a file cannot be read or written, or a line that counts is not this daemon's.
        """
        gone = self.take(registry)
        self.keep(registry)
        return gone

    def take(self, registry: Registry) -> list[str]:
        """Have the registry know what the files know; the names that lost their access by it. Raises StorageError: as `apply`."""
        return [name for file in self._files for name in file.take(registry)]

    def keep(self, registry: Registry) -> list[Path]:
        """Note what the registry knows and the files do not; which files have changed. Raises StorageError: as `apply`."""
        return [path for file in self._files if (path := file.keep(registry)) is not None]


class _RevocationFile:
    """One file, as one daemon reads and writes it."""

    def __init__(self, folder: Path, identities: tuple[Identity, ...], *, may_be_away: bool) -> None:
        """`identities`: the daemon's, the present one first; `may_be_away`: without its folder nothing is read or written."""
        self._file = folder / FILE
        self._identities = identities
        self._may_be_away = may_be_away

    def take(self, registry: Registry) -> list[str]:
        """Have the registry know what the file knows; the names that lost their access by it."""
        lines = self._read()
        # One line by the key of then and one by the present one say the same: a daemon that runs through a rotation signs with the old key.
        known = {ended.key for ended in registry.ended()} | {line.ended.key for line in lines if self._is_ours(line)}
        for line in lines:
            if line.ended.key not in known:
                raise StorageError(
                    f"{self._file} names a revoked key that this daemon has not signed: {fingerprint_words(line.ended.key)}",
                    hint="revoke that machine here, or see that the data folder is not older than the daemon's last new key; then move the "
                    "file away",
                )
        return registry.take_ended([line.ended for line in lines if self._is_ours(line)])

    def keep(self, registry: Registry) -> Path | None:
        """Note what the registry knows and the file does not; the file, where it has changed."""
        if self._may_be_away and not self._is_there:
            log.warning("the revocations are not noted in %s: it is not there", self._file.parent)
            return None
        noted = {(line.ended.key, line.ended.at) for line in self._read() if _is_by(line, self._identities[0])}
        missing = [ended for ended in registry.ended() if (ended.key, ended.at) not in noted]
        if not missing:
            return None
        self._append(b"".join(self._line(ended) for ended in missing))
        return self._file

    @property
    def _is_there(self) -> bool:
        """Whether a disk is where the folder is: an empty one may be the place where it is mounted."""
        folder = self._file.parent
        return folder.is_dir() and any(folder.iterdir())

    def _line(self, ended: EndedKey) -> bytes:
        signature = self._identities[0].sign(_LABEL, _signed(ended))
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
        # One that a crash has cut is none, and is written again with the next change.
        return [line for line in map(_parsed, data.splitlines()) if line is not None]

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
        hint = "without it, a data folder that is put back lets revoked machines in again; mend it, or change [backup] revoked"
        return StorageError(f"the revocations in {self._file} cannot be {verb}: {why.lower()}", hint=hint)


def _is_by(line: _RevocationLine, identity: Identity) -> bool:
    return verify(identity.public_key, _LABEL, _signed(line.ended), line.signature)


def _signed(ended: EndedKey) -> bytes:
    return ended.key + math.floor(ended.at * 1000).to_bytes(8) + (ended.successor or b"")


def _parsed(line: bytes) -> _RevocationLine | None:
    """A line; None where it is none."""
    try:
        match json.loads(line):
            case {"key": str(key), "at": float(at), "successor": (str() | None) as successor, "signature": str(signed)}:
                ended = EndedKey(bytes.fromhex(key), at, bytes.fromhex(successor) if successor else None)
                if len(ended.key) == KEY_LENGTH and 0 <= at < 2**40:
                    return _RevocationLine(ended, base64.b64decode(signed))
    except (ValueError, RecursionError):
        return None
    return None
