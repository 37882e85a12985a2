"""The manifest of a snapshot, and the record of its verification: two files that the daemon's
identity key signs.

The manifest lists every file with its size and hash, and the state of each database. A snapshot is
trusted only if this signature is valid, and counts as verified only if the record is there.

Each file has exactly one form: JSON with sorted keys and without blanks, whole numbers, bytes as
lower-case hex. So a changed bit anywhere in the file is detected, even one that a parser would
ignore.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, Self, get_args

from confide_backup.errors import SnapshotError
from confide_crypto.errors import printable
from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, verify
from confide_daemon.datadir.key_state import Custody, KeyName
from confide_daemon.errors import StorageError

FORMAT: Final = 1
MOST_BYTES: Final = 64 << 20
"""Limit of a manifest: some 100,000 spaces."""
HASH_BYTES: Final = 32
_LABEL: Final = b"confide backup manifest 1"
_PROOF_LABEL: Final = b"confide backup proof 1"
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors that parsing a changed file may raise."""
_HEX: Final = re.compile(r"([0-9a-f]{2})+")
_SPACE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A valid name on any file system, which cannot lead out of the snapshot.
_NAME: Final = re.compile(r"[A-Za-z0-9_@+=~,%-][^/\\\x00-\x1f]{0,199}")
REGISTRY: Final = "registry.db"
CONFIG: Final = "daemon.toml"
SEALED_KEYS: Final = "keys.sealed"
LOG: Final = "-wal"
MANIFEST: Final = "manifest.json"
VERIFIED: Final = "verified.json"
FOLDERS: Final = ("spaces", "authorized")

Verdict = Literal["proven", "unproven", "differs", "unreadable"]
"""The result for a part of a snapshot.

- `proven`: it was opened and has the same content as when it was copied.
- `unproven`: it is whole, but its key was not available.
- `differs`: it has changed.
- `unreadable`: it cannot be read.
"""


def database_of(space_id: str) -> str:
    """Return the path of a space's database in a snapshot."""
    return f"spaces/{space_id}.db"


def custody_of(space_id: str) -> str:
    """Return the path in a snapshot of the file that names who keeps the key of a space's database."""
    return f"spaces/{space_id}.custody"


def files_of(space_id: str) -> tuple[str, ...]:
    """Return the paths that a snapshot may have for a space: its database, the database's log, and
    the file that names who keeps its key.
    """
    return database_of(space_id), database_of(space_id) + LOG, custody_of(space_id)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a snapshot, with its size and hash."""

    size: int  # bytes
    hash: bytes  # BLAKE2b-256

    @classmethod
    def parse(cls, found: Mapping[str, object]) -> Self:
        """Parse a file's entry from the worker or a manifest. Raise ValueError or KeyError."""
        return cls(_number(found["size"]), _hex(found["hash"], HASH_BYTES))


@dataclass(frozen=True, slots=True)
class ManifestDatabase:
    """The state of a database when it was copied. All fields are None if its key was not available."""

    change: int | None = None  # the newest change of the space
    schema: int | None = None  # the newest migration
    canaries: bytes | None = None  # a hash of the answers, keyed by the database's key
    questions: int | None = None  # number of canaries
    asked_at: int | None = None  # time for the age of notes in their ranking, seconds since 1970


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The list of a snapshot's files and databases."""

    id: str  # its folder's name
    number: int  # counts up in this target, independent of the clock
    at: int  # seconds since 1970
    daemon: bytes  # the Ed25519 key of its daemon
    version: str  # of the program
    files: Mapping[str, File]  # by their names in the snapshot, with slashes
    spaces: Mapping[str, ManifestDatabase]  # by their ids
    registry: ManifestDatabase
    digest: bytes = field(default=b"", compare=False)  # the hash of the file that it was read from

    @property
    def size_bytes(self) -> int:
        """The size of all files of the snapshot in bytes, including those that are hard links to
        files of an earlier one.
        """
        return sum(file.size for file in self.files.values())

    def contents(self) -> dict[str, bytes]:
        """Return a hash for each space, by the space's id, of its files, of its test searches
        (`canaries`) and of the program's version. It is equal in two snapshots if verifying one of
        them also verifies the other.
        """
        found = {}
        for space_id, held in self.spaces.items():
            files = [self.files.get(each) for each in files_of(space_id)]
            parts = b"".join(b"-" if file is None else file.hash for file in files)
            found[space_id] = hash_of(parts + (held.canaries or b"") + self.version.encode())
        return found

    def custody_in(self, folder: Path, space_id: str) -> Custody:
        """Read from the snapshot who keeps the key of a space. Raise StorageError if the file is
        damaged or missing.
        """
        if custody_of(space_id) not in self.files:
            return Custody(KeyName("server", 0))
        try:
            return Custody.parse((folder / custody_of(space_id)).read_bytes())
        except (OSError, ValueError):
            raise StorageError(f"it is not known who keeps the key of space {space_id} in it") from None

    def strays(self, folder: Path) -> tuple[list[str], list[str]]:
        """Compare the manifest with a folder. Return the listed files that the folder lacks, and
        the entries of the folder that are not listed; names of folders end in a slash.
        """
        there, odd = set(), []
        for path in folder.rglob("*"):
            name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
            if stat.S_ISDIR(mode):
                odd += [f"{name}/"] if name not in FOLDERS else []
            elif stat.S_ISREG(mode):
                there.add(name)
            else:
                odd.append(name)
        return sorted(self.files.keys() - there), sorted(there - self.files.keys() - {MANIFEST, VERIFIED}) + sorted(odd)

    def to_bytes(self, identity: Identity) -> bytes:
        """Return the manifest as a signed file."""
        return _sign(self._body(), _LABEL, identity)

    def _body(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "id": self.id,
            "number": self.number,
            "at": self.at,
            "daemon": self.daemon.hex(),
            "version": self.version,
            "files": {name: {"size": file.size, "hash": file.hash.hex()} for name, file in self.files.items()},
            "spaces": {space_id: database_json(held) for space_id, held in self.spaces.items()},
            "registry": database_json(self.registry),
        }

    @classmethod
    def parse(cls, data: bytes, *, name: str, signers: Collection[bytes]) -> Self:
        """Parse the manifest of the snapshot `name`; `signers` are the trusted keys.

        Raise SnapshotError if it is damaged, of a newer version, or of another snapshot or daemon.
        """
        try:
            found = json.loads(data)
            if type(found.get("format")) is int and found["format"] > FORMAT:
                raise SnapshotError(
                    name, "was written by a newer version of confide", hint="upgrade confide here", kind="newer"
                )
            signature = _hex(found.pop("signature"), SIGNATURE_LENGTH)
            made = cls(
                id=_text(found["id"]),
                number=_number(found["number"]),
                at=_number(found["at"]),
                daemon=_hex(found["daemon"], KEY_LENGTH),
                version=_text(found["version"]),
                files={_file_name(each): File.parse(file) for each, file in found["files"].items()},
                spaces={_space_id(each): database(held) for each, held in found["spaces"].items()},
                registry=database(found["registry"]),
                digest=hash_of(data),
            )
            body = canonical(made._body())
            if canonical({**made._body(), "signature": signature.hex()}) != data:
                raise ValueError
        except _DAMAGED:
            raise SnapshotError(name, "has a damaged manifest") from None
        if made.daemon not in signers:
            raise SnapshotError(name, "is of another daemon, or of before this one's last new key")
        if not verify(made.daemon, _LABEL, body, signature):
            raise SnapshotError(name, "has a manifest that was changed: its signature is not good")
        if made.id != name:
            raise renamed_error(name, made.id)
        return made


@dataclass(frozen=True, slots=True)
class Proof:
    """The record of the last verification of a snapshot."""

    snapshot: str
    manifest: bytes  # the manifest's hash, which binds the proof to it
    at: int  # seconds since 1970
    files: Verdict  # whether all are unchanged, and there are no others
    registry: Verdict
    spaces: Mapping[str, Verdict]
    problems: tuple[str, ...] = field(default=(), compare=False)  # sentences for users; not stored

    @property
    def is_sound(self) -> bool:
        """Return True if nothing is wrong and the registry could be opened. Spaces whose keys were
        missing do not count as wrong.
        """
        return self.files == self.registry == "proven" and {*self.spaces.values()} <= {"proven", "unproven"}

    @property
    def verdict(self) -> Verdict:
        """The verdict for the whole snapshot, which is the worst verdict of its parts."""
        found = {self.files, self.registry, *self.spaces.values()}
        return next(one for one in ("differs", "unreadable", "unproven", "proven") if one in found)

    @property
    def proven(self) -> frozenset[str]:
        """The ids of the spaces that were verified; none if the files or the registry were not."""
        is_whole = self.files == self.registry == "proven"
        return frozenset(space_id for space_id, one in self.spaces.items() if is_whole and one == "proven")

    def to_bytes(self, identity: Identity) -> bytes:
        """Return the record as a signed file."""
        return _sign(self._body(), _PROOF_LABEL, identity)

    def _body(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "snapshot": self.snapshot,
            "manifest": self.manifest.hex(),
            "at": self.at,
            "files": self.files,
            "registry": self.registry,
            "spaces": dict(self.spaces),
        }

    @classmethod
    def parse(cls, data: bytes, *, made: BackupManifest, signers: Collection[bytes]) -> Self | None:
        """Parse the record of a verification. Return None unless one of the keys in `signers`
        signed it for this manifest.
        """
        try:
            found = json.loads(data)
            signature = _hex(found.pop("signature"), SIGNATURE_LENGTH)
            proof = cls(
                snapshot=found["snapshot"],
                manifest=_hex(found["manifest"], HASH_BYTES),
                at=_number(found["at"]),
                files=found["files"],
                registry=found["registry"],
                spaces={_space_id(space_id): one for space_id, one in found["spaces"].items()},
            )
            body = proof._body()
            is_one = canonical({**body, "signature": signature.hex()}) == data
            is_known = {proof.files, proof.registry, *proof.spaces.values()} <= {*get_args(Verdict)}
        except _DAMAGED:
            return None
        is_of_this = (proof.snapshot, proof.manifest) == (made.id, made.digest)
        is_ours = any(verify(signer, _PROOF_LABEL, canonical(body), signature) for signer in signers)
        return proof if is_one and is_known and is_of_this and is_ours else None


def hash_of(data: bytes) -> bytes:
    """Return the BLAKE2b-256 hash of the data, the kind of hash in `File.hash`."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def canonical(value: Mapping[str, object]) -> bytes:
    """Return the canonical JSON bytes of a value, which are the bytes to sign."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _sign(body: Mapping[str, object], label: bytes, identity: Identity) -> bytes:
    return canonical({**body, "signature": identity.sign(label, canonical(body)).hex()})


def database_json(held: ManifestDatabase) -> dict[str, object]:
    """Return a database's state as JSON for a manifest."""
    return {
        "change": held.change,
        "schema": held.schema,
        "canaries": None if held.canaries is None else held.canaries.hex(),
        "questions": held.questions,
        "askedAt": held.asked_at,
    }


def database(found: Mapping[str, object]) -> ManifestDatabase:
    """Parse the JSON that `database_json` returns. Raise ValueError or KeyError."""
    change, schema, questions, asked_at = (
        None if found[name] is None else _number(found[name]) for name in ("change", "schema", "questions", "askedAt")
    )
    canaries = None if found["canaries"] is None else _hex(found["canaries"], HASH_BYTES)
    return ManifestDatabase(change, schema, canaries, questions, asked_at)


def _hex(found: Any, length: int) -> bytes:
    if not isinstance(found, str) or not _HEX.fullmatch(found) or len(found) != 2 * length:
        raise ValueError
    return bytes.fromhex(found)


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found < 2**63:
        raise ValueError
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str) or not 0 < len(found) <= 100:
        raise ValueError
    return found


def _space_id(found: str) -> str:
    if not _SPACE_ID.fullmatch(found):
        raise ValueError
    return found


def renamed_error(name: str, own: str) -> SnapshotError:
    """Return the error about a snapshot `name` whose manifest says that it is the snapshot `own`."""
    hint = "if you renamed or copied its folder, give it that name again"
    return SnapshotError(name, f"has the manifest of another snapshot, {printable(own[:64])}", hint=hint)


def _file_name(found: str) -> str:
    parts = PurePosixPath(found).parts
    if len(parts) > 2 or "/".join(parts) != found or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError
    return found
