"""Seals the daemon's keys in a snapshot to a public key whose private half is a recovery code on
paper.

The daemon has only the public half (`backup.key` in the data folder), so a thief of the backups or
of the daemon's disk cannot open older snapshots with it. A fresh key encrypts the daemon's keys;
HPKE with X-Wing wraps that key, as for space keys (PROTOCOL.md 10.5), and the code is that of 10.8.

    keys.sealed = "confide-backup-keys-1\\n" || wrap (1168) || nonce (24) || XChaCha20-Poly1305
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt as encrypt
from nacl.exceptions import CryptoError

from confide_backup.errors import SnapshotError
from confide_crypto.errors import ConfideError, KeyFileError, WrapError
from confide_crypto.keys.identity import KEY_LENGTH
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.space_keys import SPACE_ID_LENGTH, WRAP_LENGTH, WrapKey, check_wrap_key, seal_wrap
from confide_daemon.datadir.credentials import KEY_BYTES, MASTER, credential
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError

MAGIC: Final = b"confide-backup-keys-1\n"
_EPOCH: Final = 1
_NONCE: Final = 24
_PERSON: Final = b"confide-backup-1"
MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class BackupKey:
    """The public half of the backup key. Only the recovery code can open what is sealed to it."""

    device: bytes  # the code's Ed25519 key, 32 bytes
    wrap_key: bytes  # 1216 bytes

    @classmethod
    def of(cls, code: RecoveryCode) -> Self:
        own = WrapKey(code.identity)
        return cls(own.device, own.public)

    @classmethod
    def load(cls, folder: DataFolder) -> Self:
        """Read the key of a data folder.

        Raise DataFolderError if it does not exist, and KeyFileError if it is damaged or other users
        can write it.
        """
        if not folder.backup_key.exists():
            raise DataFolderError(
                folder.root, "has no key for backups", hint="make one with: confided backup init --to DIR"
            )
        try:
            found = json.loads(read_private_file(folder.backup_key))
            made = cls(bytes.fromhex(found["device"]), bytes.fromhex(found["wrap"]))
            check_wrap_key(made.wrap_key)
            if len(made.device) != KEY_LENGTH:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError, WrapError):
            hint = "move it away, and make another with: confided backup init --to DIR"
            raise KeyFileError(folder.backup_key, "is damaged", hint=hint) from None
        return made

    def save(self, folder: DataFolder) -> None:
        """Write the public half to the data folder. Raise KeyFileError if that fails."""
        said = {"device": self.device.hex(), "wrap": self.wrap_key.hex()}
        write_private_file(folder.backup_key, json.dumps(said).encode() + b"\n", replace=True)

    def seal(self, keys: DaemonKeys, *, daemon: bytes, snapshot: str) -> bytes:
        """Encrypt the daemon's keys for one snapshot. `daemon` is the daemon's public key. The
        result differs at each call.
        """
        space, head = _place(daemon, snapshot)
        key, nonce = secrets.token_bytes(KEY_LENGTH), secrets.token_bytes(_NONCE)
        wrap = seal_wrap(key, self.wrap_key, space=space, epoch=_EPOCH, device=self.device, head=head)
        sealed = encrypt(keys.to_bytes(), MAGIC + head, nonce, key)
        return MAGIC + wrap + nonce + bytes(sealed)


@dataclass(frozen=True, slots=True)
class DaemonKeys:
    """The daemon's private keys, which can open everything in its data folder. Its repr does not
    show them.
    """

    identity: bytes = field(repr=False)  # the content of `identity.key`
    master: bytes = field(repr=False)  # 32 bytes
    # Content of `identity.previous.key`, while a rotation is under way.
    previous: bytes | None = field(default=None, repr=False)
    rotation: bytes | None = field(default=None, repr=False)  # of `rotation.json`

    @classmethod
    def read(cls, folder: DataFolder) -> Self:
        """Read the keys from a data folder, or from systemd's credential. Raise KeyFileError if
        they cannot be read.
        """
        handed = credential(MASTER)
        try:
            master = read_private_file(folder.master) if handed is None else handed.read_bytes()
        except OSError as error:
            raise KeyFileError(folder.master, f"cannot be read: {(error.strerror or '').lower()}") from None
        if len(master) != KEY_BYTES:
            raise KeyFileError(folder.master, f"does not hold {KEY_BYTES} bytes", hint="restore it from a backup")
        has_both = folder.rotation.exists() and folder.previous.exists()
        previous, rotation = (
            (read_private_file(folder.previous), read_private_file(folder.rotation)) if has_both else (None, None)
        )
        return cls(read_private_file(folder.identity), master, previous, rotation)

    def to_bytes(self) -> bytes:
        said: dict[str, object] = {"identity": self.identity.hex(), "master": self.master.hex()}
        said |= {"previous": self.previous and self.previous.hex(), "rotation": self.rotation and self.rotation.hex()}
        return json.dumps(said, sort_keys=True).encode()


def unseal(data: bytes, code: RecoveryCode, *, daemon: bytes, snapshot: str) -> DaemonKeys:
    """Decrypt the file `keys.sealed` of a snapshot. `daemon` is the daemon's public key.

    Raise SnapshotError if the file is damaged or of another snapshot, or the code is wrong.
    """
    space, head = _place(daemon, snapshot)
    own = WrapKey(code.identity)
    body = data.removeprefix(MAGIC)
    wrap, nonce, sealed = body[:WRAP_LENGTH], body[WRAP_LENGTH:][:_NONCE], body[WRAP_LENGTH + _NONCE :]
    try:
        if not data.startswith(MAGIC) or len(wrap) != WRAP_LENGTH or len(nonce) != _NONCE:
            raise ValueError
        key = own.open(wrap, space=space, epoch=_EPOCH, head=head)
        found = json.loads(decrypt(sealed, MAGIC + head, nonce, key))
        previous, rotation = (
            None if found[name] is None else bytes.fromhex(found[name]) for name in ("previous", "rotation")
        )
        return DaemonKeys(bytes.fromhex(found["identity"]), bytes.fromhex(found["master"]), previous, rotation)
    except (ConfideError, CryptoError, ValueError, KeyError, TypeError):
        raise SnapshotError(
            snapshot, "has keys that this code does not open", hint="is it the code of this daemon's backups?"
        ) from None


def _place(daemon: bytes, snapshot: str) -> tuple[bytes, bytes]:
    """Return the context that binds the wrap to one snapshot of one daemon, as space id and roster
    head.
    """
    space = hashlib.blake2b(daemon, person=_PERSON, digest_size=SPACE_ID_LENGTH).digest()
    return space, hashlib.blake2b(snapshot.encode(), key=daemon, person=_PERSON, digest_size=32).digest()


def make(folder: DataFolder) -> RecoveryCode:
    """Create a backup key, write its public half, and return its recovery code, which is not
    stored. Raise KeyFileError if the file cannot be written.
    """
    code = RecoveryCode.generate()
    BackupKey.of(code).save(folder)
    return code
