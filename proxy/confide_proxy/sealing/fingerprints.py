"""Names for credentials, so that one can be allowed by the configuration without standing in it.

A fingerprint is BLAKE2b-96 of kind and value, keyed with 32 random bytes that this machine keeps to itself. A plain hash of a short
password can be guessed by whoever reads the configuration, and those are shared as dotfiles; a keyed one tells nothing without the key.
The price: on another machine the same credential has another fingerprint, and is not allowed there until it is allowed there too.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import read_private_file, write_private_file

KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 12
_PERSON: Final = b"confide-finding"


class Fingerprints:
    """The fingerprints of this machine. `key`: 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, value: str) -> str:
        """24 hex digits."""
        data = kind.encode() + b"\0" + value.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, key=self._key, person=_PERSON).hexdigest()


def load(path: Path) -> Fingerprints:
    """Those of the key in a file of mode 0600, which is made where it is not there.

    Raises:
        KeyFileError: the file is open to others, damaged, or cannot be read or made.
    """
    if not path.exists():
        with suppress(FileExistsError):  # another process was first
            write_private_file(path, os.urandom(KEY_BYTES))
    key = read_private_file(path)
    if len(key) != KEY_BYTES:
        raise KeyFileError(path, "is damaged", hint="delete it, and allow again what confide scan shows")
    return Fingerprints(key)
