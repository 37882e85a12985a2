"""What a snapshot says of itself: every file with its size and hash, what each database holds, and who vouches for it.

One form only, byte for byte: JSON with sorted keys and no blanks, numbers whole, bytes as lower-case hex. So a changed bit anywhere in the
file is noticed, also one that no parser would mind. The daemon's identity signs it; a snapshot is believed by that and by nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Self

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, verify
from confide_daemon.errors import SnapshotError

FORMAT: Final = 1
MOST_BYTES: Final = 64 << 20
"""Of a manifest: some 100,000 spaces."""
HASH_BYTES: Final = 32
_LABEL: Final = b"confide backup manifest 1"
_HEX: Final = re.compile(r"([0-9a-f]{2})+")
_SPACE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# As a name on any disk, and nothing that leads out of the snapshot.
_NAME: Final = re.compile(r"[A-Za-z0-9_@+=~,%-][^/\\\x00-\x1f]{0,199}")
REGISTRY: Final = "registry.db"
CONFIG: Final = "daemon.toml"
SEALED_KEYS: Final = "keys.sealed"
LOG: Final = "-wal"


def database_of(space_id: str) -> str:
    """Where a space's database is in a snapshot."""
    return f"spaces/{space_id}.db"


def custody_of(space_id: str) -> str:
    """Where it stands who keeps the key of that database."""
    return f"spaces/{space_id}.custody"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a snapshot."""

    size: int  # bytes
    hash: bytes  # BLAKE2b-256


@dataclass(frozen=True, slots=True)
class Database:
    """What a database held when it was copied; all None where nobody had its key then."""

    change: int | None = None  # the newest change of the space
    schema: int | None = None  # the newest migration
    canaries: bytes | None = None  # a hash of the answers, keyed by the database's key
    questions: int | None = None  # how many were asked
    asked_at: int | None = None  # to which moment their ranking counts days, seconds since 1970


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a snapshot says of itself."""

    id: str  # its folder's name
    number: int  # of this daemon's snapshots in this target, rising, whatever the clock says
    at: int  # seconds since 1970
    daemon: bytes  # the Ed25519 key of who made it
    version: str  # of the program
    files: Mapping[str, File]  # by their names in the snapshot, with slashes
    spaces: Mapping[str, Database]  # by their ids
    registry: Database
    digest: bytes = field(default=b"", compare=False)  # the hash of the file that it was read from

    def to_bytes(self, identity: Identity) -> bytes:
        """The file, signed."""
        body = self._body()
        return _canonical({**body, "signature": identity.sign(_LABEL, _canonical(body)).hex()})

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "id": self.id,
            "number": self.number,
            "at": self.at,
            "daemon": self.daemon.hex(),
            "version": self.version,
            "files": {name: {"size": file.size, "hash": file.hash.hex()} for name, file in self.files.items()},
            "spaces": {space_id: said(held) for space_id, held in self.spaces.items()},
            "registry": said(self.registry),
        }

    @classmethod
    def parse(cls, data: bytes, *, name: str, signers: Collection[bytes]) -> Self:
        """The manifest in `data`, of the snapshot with that name.

        `signers`: the keys that are believed. Raises SnapshotError: it is not whole, of a newer version, another snapshot's or another
        daemon's.
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
                files={_file_name(each): _file(file) for each, file in found["files"].items()},
                spaces={_space_id(each): database(held) for each, held in found["spaces"].items()},
                registry=database(found["registry"]),
                digest=hash_of(data),
            )
            body = made._body()
            if _canonical({**body, "signature": signature.hex()}) != data:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SnapshotError(name, "has a damaged manifest") from None
        if made.daemon not in signers:
            raise SnapshotError(name, "is of another daemon, or of before this one's last new key")
        if not verify(made.daemon, _LABEL, _canonical(body), signature):
            raise SnapshotError(name, "has a manifest that was changed: its signature is not good")
        if made.id != name:
            raise SnapshotError(name, f"has the manifest of another snapshot, {made.id}")
        return made


def hash_of(data: bytes) -> bytes:
    """As `File.hash`."""
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one form in which something is signed."""
    return _canonical(value)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def said(held: Database) -> dict[str, Any]:
    """As it stands in a manifest."""
    canaries = None if held.canaries is None else held.canaries.hex()
    return {
        "change": held.change,
        "schema": held.schema,
        "canaries": canaries,
        "questions": held.questions,
        "askedAt": held.asked_at,
    }


def database(found: Mapping[str, Any]) -> Database:
    """What `said` has said. Raises ValueError, KeyError."""
    canaries = None if found["canaries"] is None else _hex(found["canaries"], HASH_BYTES)
    change, schema, questions, asked_at = (
        None if found[name] is None else _number(found[name]) for name in ("change", "schema", "questions", "askedAt")
    )
    return Database(change, schema, canaries, questions, asked_at)


def _file(found: dict[str, Any]) -> File:
    return File(_number(found["size"]), _hex(found["hash"], HASH_BYTES))


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


def _file_name(found: str) -> str:
    parts = PurePosixPath(found).parts
    if len(parts) > 2 or "/".join(parts) != found or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError
    return found
