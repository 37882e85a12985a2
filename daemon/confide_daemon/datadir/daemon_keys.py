"""The daemon's own identity key and its rotation (PROTOCOL.md 7.11). The module contains the
operations on the files, and how a running daemon follows changes of them.

    identity.key           the current key
    rotation.json          the signed statement that the current key follows the previous one, and
                           until when both are valid
    identity.previous.key  the previous key

The previous key is valid as long as the three files agree and that time has not ended. `rotate`
copies the old key, writes the statement, and finally replaces the old key by the new one. Each step
is atomic. If the process is killed in between, the old key alone is valid, or both are. `retire`
deletes the statement first. Files left by a killed process are ignored, and deleted later.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.handshake.rotation import KeyRotation, KeySuccession
from confide_crypto.keys.identity import Identity, format_daemon_key
from confide_crypto.keys.private_files import read_private_file, remove_private_file, write_private_file
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import RotationError

Stamp = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The daemon's current identity key and, during a rotation, the previous one, which is still
    accepted.
    """

    current: Identity
    rotation: KeyRotation | None = None


def load(folder: DataFolder, *, now: float | None = None) -> Keys:
    """Return the identity keys that are valid at `now` (seconds since 1970; None for the current
    time).

    Raises KeyFileError if a file is accessible to others, has another owner, or is damaged.
    """
    # Read the current key first: a process that sees the new one also sees what was written before
    # it.
    current = Identity.load(folder.identity)
    try:
        statement = read_private_file(folder.rotation) if folder.rotation.exists() else None
        old = Identity.load(folder.previous) if statement is not None else None
    except KeyFileError:
        if folder.rotation.exists() and folder.previous.exists():
            raise
        return Keys(current)  # it was ended between two looks at it
    if statement is None or old is None:
        return Keys(current)
    try:
        succession = KeySuccession.parse(json.loads(statement), old_static=old.static_key, old_key=old.public_key)
    except (ValueError, RecursionError) as error:
        hint = "end the old key with: confided key --end-old"
        raise KeyFileError(folder.rotation, "is damaged", hint=hint) from error
    rotation = KeyRotation(old, succession)
    fits = (succession.new_static, succession.new_key) == (current.static_key, current.public_key)
    is_over = rotation.is_over(time.time() if now is None else now)
    return Keys(current, rotation if fits and not is_over and succession.verify() else None)


def rotate(folder: DataFolder, *, keep_s: float) -> Keys:
    """Create a new identity key and store it durably. The previous one remains valid for `keep_s`
    seconds.

    Raises RotationError if a rotation is already in progress; KeyFileError if a key cannot be read
    or written.
    """
    with _alone(folder):
        keys = load(folder)
        if keys.rotation is not None:
            raise RotationError(
                f"a rotation is under way: the old key answers until {clock(keys.rotation.until)}",
                hint="devices that have not connected since it began know the old key only; to end that now: confided key --end-old",
            )
        old, new, until = keys.current, Identity.generate(), int(time.time() + keep_s)
        _clear(folder)
        write_private_file(folder.previous, read_private_file(folder.identity))
        statement = KeySuccession.make(old, new, until)
        write_private_file(folder.rotation, json.dumps(statement.to_json()).encode())
        new.save(folder.following)
        write_private_file(folder.identity, read_private_file(folder.following), replace=True)
        remove_private_file(folder.following)
        return Keys(new, KeyRotation(old, statement))


def retire(folder: DataFolder) -> str | None:
    """End the previous identity key now and delete its file. Return its text form, or None if the
    file was damaged.

    Raises RotationError if there is no previous key; KeyFileError if a file cannot be deleted.
    """
    with _alone(folder):
        if not folder.rotation.exists():
            raise RotationError(
                "there is no old key to end: no rotation is under way", hint="one begins with: confided key --new"
            )
        old = None
        with contextlib.suppress(KeyFileError):
            old = format_daemon_key(Identity.load(folder.previous).static_key)
        _clear(folder)
        return old


def clock(moment: float) -> str:
    """Format a time (seconds since 1970) to the minute, for users."""
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))


class LiveKeys:
    """The identity keys of a running daemon. It follows changes that commands make to the files."""

    def __init__(self, folder: DataFolder, keys: Keys) -> None:
        self._folder = folder
        self._keys = keys
        self._last_stamp: Stamp | None = None

    def in_force(self) -> Keys:
        """Return the identity keys that are valid now. Returns the same object until a rotation
        ends or `refresh` finds other keys.
        """
        keys = self._keys
        return Keys(keys.current) if keys.rotation is not None and keys.rotation.is_over(time.time()) else keys

    def is_stale(self) -> bool:
        """True if the files have changed or a key has expired, so that `refresh` must be called.
        Costs four stat calls, and reads no file.
        """
        return self._last_stamp != self._stamp() or self.in_force() is not self._keys

    def refresh(self) -> bool:
        """Read the files again and delete an expired key. Return True if the valid keys have
        changed.

        Raises KeyFileError if the files cannot be used. The keys then stay as before, and
        `is_stale` remains True.
        """
        before = self._keys
        seen: Stamp | None = self._stamp()
        # Not settled until all of this has succeeded: an obstacle may disappear without a change of
        # the files.
        self._last_stamp, self._keys = None, self.in_force()
        keys = load(self._folder)
        if keys.rotation is None:
            try:
                with _alone(self._folder):
                    keys = load(self._folder)
                    if keys.rotation is None:
                        _clear(self._folder)
            except RotationError:
                # A command is changing the files; the change is read once it has finished or died.
                seen = None
        self._keys, self._last_stamp = keys, seen
        return keys != before

    def _stamp(self) -> Stamp:
        folder = self._folder
        return tuple(_stamp(path) for path in (folder.identity, folder.rotation, folder.previous, folder.following))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that differs after every change of the file, also of its mode and owner."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _clear(folder: DataFolder) -> None:
    """End the rotation: delete the statement first, then the remaining files."""
    for path in (folder.rotation, folder.previous, folder.following):
        remove_private_file(path)


@contextlib.contextmanager
def _alone(folder: DataFolder) -> Iterator[None]:
    """Hold the lock for changes of the files. Raises RotationError if another process holds it."""
    try:
        lock = DaemonLock.take(folder.rotation_lock)
    except OSError as error:
        raise KeyFileError(folder.rotation_lock, f"cannot be written: {(error.strerror or '').lower()}") from error
    if lock is None:
        raise RotationError("another command is at work on the daemon's key", hint="try again when it has ended")
    try:
        yield
    finally:
        lock.release()
