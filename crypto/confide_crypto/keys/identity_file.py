"""The outer form of an identity file: one line of text, or PEM (PROTOCOL.md 2.3). `keys.identity`
interprets the content of the line.

This module is separate so that `confide run`, which needs only the seed, starts quickly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys import bech32m

SEED_PREFIX: Final = "confide-secret-key-"
SEALED_PREFIX: Final = "confide-sealed-key-"
_PEM_START: Final = b"-----BEGIN "


def is_pem(data: bytes) -> bool:
    """Return True if the content of an identity file is PEM and not Confide's one-line form."""
    return data.lstrip().startswith(_PEM_START)


def identity_line(path: Path, data: bytes) -> tuple[str, bytes]:
    """Return the prefix and the bytes of the only line of an identity file that is not a comment
    (PROTOCOL.md 2.3).

    Raises KeyFileError if there is no such line or more than one, or the line is damaged.
    """
    written = (line.strip() for line in data.decode("ascii", "replace").splitlines())
    lines = [line for line in written if line and not line.startswith("#")]
    try:
        if len(lines) == 1:
            return bech32m.decode(lines[0])
    except ValueError:
        pass
    raise no_identity(path)


def no_identity(path: Path) -> KeyFileError:
    """Return the error to raise for a file that holds no key."""
    hint = "restore it from a copy, or move it away and join again"
    return KeyFileError(path, "is not an identity file, or is damaged", hint=hint)
