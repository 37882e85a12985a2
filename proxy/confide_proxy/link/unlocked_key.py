"""A seed that was unlocked for a while: a file in the user's runtime folder, which is memory and is emptied when they log out.

`confide mcp` has no terminal to ask for a passphrase, so `confide key unlock` leaves the seed here, with the time when it ends.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys.files import (
    check_private_dir,
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_crypto.keys.identity import Identity
from confide_proxy.errors import KeyChangeError
from confide_proxy.paths import runtime_folders

LONGEST_S: Final = 7 * 24 * 3600.0
_FOLDER: Final = "confide"
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class Unlocked:
    """A seed, and when it ends (seconds since the epoch)."""

    identity: Identity
    until: float


def keep(identity: Identity, until: float) -> None:
    """Keep a seed unlocked.

    Raises:
        KeyChangeError: there is no place for it that goes away by itself.
        KeyFileError: it cannot be written.
    """
    record = {"key": identity.to_line(), "from": time.time(), "until": until}
    path = _place() / _name(identity.public_key)
    write_private_file(path, json.dumps(record).encode(), replace=True)


def find(public_key: bytes) -> Unlocked | None:
    """The seed of this public key, if it is unlocked; one whose time is over is deleted."""
    for runtime in runtime_folders():
        path = runtime / _FOLDER / _name(public_key)
        try:
            if not os.path.lexists(path):
                continue
            _check(runtime)
            check_private_dir(path.parent)
            found = _read(path)
            if found is not None and found.identity.public_key == public_key:
                return found
            remove_private_file(path)
        except (ConfideError, OSError):
            continue  # locked, then: `confide key unlock` says what is wrong with the place
    return None


def forget(public_key: bytes) -> bool:
    """Lock again; whether it was unlocked.

    Raises:
        KeyFileError: the file cannot be deleted.
    """
    there = [path for runtime in runtime_folders() if os.path.lexists(path := runtime / _FOLDER / _name(public_key))]
    for path in there:
        remove_private_file(path)
    return bool(there)


def _read(path: Path) -> Unlocked | None:
    try:
        record = json.loads(read_private_file(path))
        since, until = float(record["from"]), float(record["until"])
        identity = Identity.parse(path, str(record["key"]).encode())
    except (KeyFileError, ValueError, KeyError, TypeError):
        return None  # damaged, or open to others: not to be left lying either
    # A clock that was set back must not prolong it.
    return Unlocked(identity, until) if since <= time.time() < until else None


def _name(public_key: bytes) -> str:
    return f"{public_key.hex()[:32]}.unlocked"


def _place() -> Path:
    problems = []
    for runtime in runtime_folders():
        try:
            _check(runtime)
            make_private_dir(runtime / _FOLDER)
        except ConfideError as error:
            problems.append(str(error))
            continue
        return runtime / _FOLDER
    raise KeyChangeError(
        f"there is no safe place to keep the key unlocked: {'; '.join(problems)}",
        hint="log in so that XDG_RUNTIME_DIR is a folder in memory of your own (loginctl enable-linger makes one), "
        "or use the keyring: confide key move keyring",
    )


def _check(runtime: Path) -> None:
    """Raises KeyFileError if this is not a folder in memory that is ours alone."""
    if not runtime.is_absolute():
        raise KeyFileError(runtime, "is not an absolute path")
    check_private_dir(runtime)
    if _filesystem(runtime) not in _IN_MEMORY:
        raise KeyFileError(runtime, "is not in memory (tmpfs), so a key would stay on the disk")


def _filesystem(path: Path) -> str:
    """The type of the file system that holds `path`, "" where the system does not tell."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        # proc_pid_mountinfo(5): the third field is the device; the type follows a lone hyphen.
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return ""
