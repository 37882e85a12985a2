"""Who kept the key of a space's database when this machine last heard of it: what its machines kept once and the daemon keeps now is told.

Nobody but the daemon says so, and nothing can prove it. But whoever relied on a stolen disk being worth nothing should know that its
operator has changed that (PROTOCOL.md 10.9).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from confide_crypto.private import make_private_dir, read_private_file, write_private_file

_OURS: Final = b"caller"
_TAKEN: Final = b"server, after caller"


def hear(folder: Path, space: str, custody: str) -> tuple[bool, bool]:
    """Whether the daemon keeps a key now that the space's machines kept before, and whether that is news to this machine. Blocks.

    Args:
        folder: of the rosters that this machine has seen.
        space: by the id that the daemon gives it.
        custody: what it has said, `server` or `caller`.

    Raises:
        KeyFileError: the file cannot be read or written.
    """
    path = folder / f"{hashlib.sha256(space.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.custody"
    known = read_private_file(path) if path.exists() else b""
    if custody == "caller":
        now = _OURS
    elif known in (_OURS, _TAKEN):
        now = _TAKEN
    else:
        return False, False
    if now != known:
        make_private_dir(folder)
        write_private_file(path, now, replace=True)
    return now == _TAKEN, now == _TAKEN != known
