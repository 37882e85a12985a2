"""The rosters that this device has seen, on its own disk. The daemon's rosters must continue them
(PROTOCOL.md 10.6).

    <name>.roster   the entries, each preceded by its length
    <name>.pin      the newest entry that the daemon is known to have, or that came from it
    last            the name of the space used last, for use while the daemon is unreachable
    <name>.custody  who kept the key of the space's database, as this device last heard
    <space>.left    the static key of the daemon of a space that this device has left

<name> is a hash of the id that the daemon gives the space, and <space> is the id in the roster.
Since the daemon chooses the first one, pins are looked up by the id in the roster too, and a daemon
that names another space than before isn't trusted. The space's keys in the entries are encrypted;
only this device's private key decrypts its copies.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_crypto.errors import KeyFileError, RosterError, SealingError
from confide_crypto.keys.private_files import (
    cannot,
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_crypto.sealing.encoding import Cursor, u32
from confide_crypto.sealing.roster import MAX_ENTRIES, MAX_ROSTER_BYTES, Pin, Roster
from confide_proxy.locks import lock_file, try_lock

_NAME: Final = re.compile(r"[0-9a-f]{32}")
_LAST: Final = "last"
_LOCK: Final = "lock"
_LOCK_DEADLINE_S: Final = 5.0
_CALLER: Final = b"caller"
_SERVER_NOW: Final = b"server, after caller"


@dataclass(frozen=True, slots=True)
class Seen:
    """The stored state of a space's roster.

    Attributes:
        roster: the roster as this device saw it last; None if its file is missing or damaged.
        pin: the entry that every later roster of the space must contain.
    """

    roster: Roster | None
    pin: Pin


class RosterCache:
    """The folder with the rosters that this device has seen. All processes of the device share it.
    Methods block.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, space: str) -> Seen | None:
        """Return the stored state of a space, by the id that the daemon gives it; None if the space
        is unknown.

        Raises KeyFileError if others can read a file, if it has another owner, or if the pin is
        damaged: without a pin any roster would be trusted.
        """
        return self._read(_name(space))

    def pin(self, space: str) -> Pin | None:
        """Return the entry that every roster of a space must contain; None if the space is unknown.

        Raises KeyFileError if others can read the file, or if it is damaged.
        """
        return self._pin(_name(space))

    def of(self, space: bytes) -> Seen | None:
        """Return the newest stored state of a space, by the id in its roster, whatever id a daemon
        gives it; None if the space is unknown.

        Raises KeyFileError if others can read a file, or if the pin is damaged.
        """
        found = [seen for name in self._names(space) if (seen := self._read(name)) is not None]
        return max(found, key=lambda seen: seen.pin.number, default=None)

    def is_another(self, space: str) -> bool:
        """Return True if the daemon names another space than before, although this device has not
        left the former one.

        A device is in one space per daemon, and changes only when the user joins or confirms
        another. If a new name were enough, a daemon could make the device start over, or return to
        a roster from before a device was removed.

        Raises KeyFileError if others can read a file, or if the pin is damaged.
        """
        path = self._folder / _LAST
        if not path.exists():
            return False
        name = read_private_file(path).decode(errors="replace").strip()
        if name == _name(space) or not _NAME.fullmatch(name):
            return False
        pin = self._pin(name)
        return pin is not None and not self.is_left(pin.space)

    def last(self) -> Seen | None:
        """Return the stored state of the space that was used last; None if there is none.

        Raises KeyFileError if others can read a file, or if the pin is damaged.
        """
        path = self._folder / _LAST
        if not path.exists():
            return None
        name = read_private_file(path).decode(errors="replace").strip()
        return self._read(name) if _NAME.fullmatch(name) else None

    def keep(self, space: str, roster: Roster) -> Roster:
        """Store and pin a roster that the daemon has. Return it, or the longer one that another
        process of this device has stored.

        Raises RosterError if it does not continue what was seen of the space before, under this id
        or another; KeyFileError if it cannot be written.
        """
        name = _name(space)
        with self._lock():
            known = self._read(name)
            for seen in (known, self.of(roster.space)):
                if seen is None:
                    continue
                if seen.roster is not None and len(seen.roster.entries) > len(roster.entries):
                    seen.roster.check(roster.pin)
                    roster = seen.roster
                else:
                    roster.check(seen.pin)
            if known is None or known.pin != roster.pin or known.roster is None:
                # Entries first: after a crash in between they contain more than is pinned, never
                # less.
                write_private_file(self._folder / f"{name}.roster", _encode_entries(roster), replace=True)
                write_private_file(self._folder / f"{name}.pin", f"{roster.pin.to_line()}\n".encode(), replace=True)
        return roster

    def replace(self, space: str, before: Pin, roster: Roster) -> None:
        """Store another branch of a forked roster, which the user has chosen. Only this method may
        store a roster that does not contain the pin.

        Args:
            before: the pin that the user's choice was based on.

        Raises SealingError if another process has changed the pin since; KeyFileError if the roster
        cannot be written.
        """
        name = _name(space)
        with self._lock():
            if self._pin(name) != before:
                raise SealingError(
                    "another confide has changed what this device knows of its devices", hint="try again"
                )
            # Other names of the space first. The pin before the entries: entries that don't fit are
            # fetched again.
            for each in [*(other for other in self._names(roster.space) if other != name), name]:
                write_private_file(self._folder / f"{each}.pin", f"{roster.pin.to_line()}\n".encode(), replace=True)
                write_private_file(self._folder / f"{each}.roster", _encode_entries(roster), replace=True)

    def use(self, space: str) -> None:
        """Record which space was used last; "" if its id is not known yet. Raises KeyFileError if
        that cannot be written.
        """
        path, line = self._folder / _LAST, f"{_name(space)}\n".encode()
        if not path.exists() or read_private_file(path) != line:
            write_private_file(path, line, replace=True)

    def note_custody(self, space: str, custody: str) -> tuple[bool, bool]:
        """Record who keeps the key of the space's database. Return True if the daemon keeps it now
        and the devices kept it before; and as a second value True if this device did not know that
        yet.

        Only the daemon says so, without proof. But users who relied on a stolen disk being useless
        should know that the operator has changed that (PROTOCOL.md 10.9).

        Args:
            custody: the daemon's answer, `server`, or `caller` for the devices.

        Raises KeyFileError if the file cannot be read or written.
        """
        name = _name(space)
        path = self._folder / f"{name}.custody"
        pin = self._pin(name)
        # All names of the space: a new name must not hide that the devices kept the key.
        noted = [path, *(self._folder / f"{other}.custody" for other in (self._names(pin.space) if pin else ()))]
        known = next((read_private_file(each) for each in noted if each.exists()), b"")
        if custody == "caller":
            now = _CALLER
        elif known in (_CALLER, _SERVER_NOW):
            now = _SERVER_NOW
        else:
            return False, False
        if now != known:
            make_private_dir(self._folder)
            write_private_file(path, now, replace=True)
        return now == _SERVER_NOW, now == _SERVER_NOW != known

    def _read(self, name: str) -> Seen | None:
        pin = self._pin(name)
        return None if pin is None else Seen(self._roster(name, pin), pin)

    def _names(self, space: bytes) -> list[str]:
        """Return the names under which a space is pinned, by the id in its roster."""
        paths = sorted(self._folder.glob("*.pin"))
        return [path.stem for path in paths if (pin := self._pin(path.stem)) is not None and pin.space == space]

    def _pin(self, name: str) -> Pin | None:
        path = self._folder / f"{name}.pin"
        if not path.exists() and not path.is_symlink():
            return None
        try:
            return Pin.parse(read_private_file(path).decode(errors="replace"))
        except ValueError as error:
            hint = f"compare the words of the space with another device, delete {path}, and confide device confirm"
            raise KeyFileError(path, "is damaged", hint=hint) from error

    def _roster(self, name: str, pin: Pin) -> Roster | None:
        path = self._folder / f"{name}.roster"
        if not path.exists():
            return None
        data = read_private_file(path, most_bytes=MAX_ROSTER_BYTES + 4 * MAX_ENTRIES)
        try:
            return Roster.read(_split(data), pin=pin)
        except (RosterError, ValueError):
            return None  # it is fetched again, and checked against the pin

    def record_daemon_change(self, before: bytes, now: bytes) -> None:
        """Record that this device joins another daemon, so that the new daemon cannot pose as the
        one that has the spaces known here.

        The next space that the new daemon names is accepted, since the user chose to join it. The
        spaces known so far are no longer trusted: a roster isn't secret among its devices, so a
        daemon that shows one need not be the one that stores the space, and the one that stores it
        gets keys (PROTOCOL.md 10.9).

        Args:
            before: the static key of the daemon joined before, 32 bytes; b"" if there was none.
            now: the static key of the new daemon. Spaces that this device left with that daemon
                earlier are trusted again.

        Raises KeyFileError if it cannot be recorded.
        """
        if not self._folder.is_dir():
            return
        if before == now:
            self.use("")
            return
        pins = [seen.pin for path in sorted(self._folder.glob("*.pin")) if (seen := self._read(path.stem)) is not None]
        for space in {pin.space for pin in pins}:
            if not self.is_left(space):
                write_private_file(self._move_marker(space), f"{before.hex()}\n".encode(), replace=True)
            elif read_private_file(self._move_marker(space)).strip() == now.hex().encode():
                self.come_back(space)
        self.use("")

    def record_move(self, space: bytes, before: bytes) -> None:
        """Record that this device has moved a space to another daemon, which it joins. The space's
        pin stays valid there (PROTOCOL.md 9.8).

        All other known spaces stay with the daemon whose static key is `before`. Raises
        KeyFileError if it cannot be recorded.
        """
        if self._folder.is_dir():
            pins = [pin for path in sorted(self._folder.glob("*.pin")) if (pin := self._pin(path.stem)) is not None]
            for other in {pin.space for pin in pins} - {space}:
                if not self.is_left(other):
                    write_private_file(self._move_marker(other), f"{before.hex()}\n".encode(), replace=True)
        self.come_back(space)
        self.use("")

    def come_back(self, space: bytes) -> None:
        """Trust a space that this device had left at the present daemon, after a user or one of the
        space's devices has confirmed it. Raises KeyFileError if that cannot be recorded.
        """
        remove_private_file(self._move_marker(space))

    def is_left(self, space: bytes) -> bool:
        """Return True if this device left a space behind when it joined the present daemon: the
        space belongs to another one. `space` is the id in its roster.
        """
        return os.path.lexists(self._move_marker(space))

    def _move_marker(self, space: bytes) -> Path:
        return self._folder / f"{space.hex()}.left"

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the cache for compare and write, so that the pin never goes back."""
        make_private_dir(self._folder)
        path = self._folder / _LOCK
        try:
            descriptor = lock_file(path)
        except OSError as error:
            raise cannot(path, "be opened", error) from error
        try:
            with suppress(
                OSError
            ):  # without locks: renames are whole, and a pin that went back is found by the next one
                if not try_lock(descriptor, wait_s=_LOCK_DEADLINE_S):
                    raise SealingError("another confide holds the list of devices", hint="try again")
            yield
        finally:
            os.close(descriptor)


def _name(space: str) -> str:
    return hashlib.sha256(space.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _encode_entries(roster: Roster) -> bytes:
    return b"".join(u32(len(entry)) + entry for entry in (each.encode() for each in roster.entries))


def _split(data: bytes) -> Iterator[bytes]:
    cursor = Cursor(data)
    rest = len(data)
    while rest:
        length = cursor.number(4)
        yield cursor.take(length)
        rest -= 4 + length
