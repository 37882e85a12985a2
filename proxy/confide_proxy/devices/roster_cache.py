"""The rosters that this machine has seen, on its own disk: what a daemon shows has to go on from there (PROTOCOL.md 10.6).

    <name>.roster   the entries, each behind its length
    <name>.pin      the newest of them that the daemon is known to have, or that came from there
    last            the name of the space that was used last, for when the daemon is away
    <name>.custody  who kept the key of the space's database when this machine last heard of it
    <space>.left    the space, by its own id, was another daemon's, whose static key is in it

A name is a hash of the id that the daemon gives the space, which is the daemon's to choose: what is pinned of a space is looked for by
the id in its roster too, and a daemon that names another space than before is not believed. The wraps in the entries open with this
machine's identity alone.
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
from confide_proxy.locks import lock_file, taken

_NAME: Final = re.compile(r"[0-9a-f]{32}")
_LAST: Final = "last"
_LOCK: Final = "lock"
_LOCK_DEADLINE_S: Final = 5.0
_CALLER: Final = b"caller"
_SERVER_NOW: Final = b"server, after caller"


@dataclass(frozen=True, slots=True)
class Seen:
    """What this machine knows of a space's roster.

    Attributes:
        roster: as it was when it was last seen; None where the file is gone or damaged.
        pin: what every roster that is shown must contain.
    """

    roster: Roster | None
    pin: Pin


class RosterCache:
    """The folder of them. Blocks; a machine's processes share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, space: str) -> Seen | None:
        """What is known of a space, by the id that the daemon gives it; None: nothing.

        Raises KeyFileError: a file is open to others, not ours, or the pin is damaged: without it any roster would be believed.
        """
        return self._read(_name(space))

    def pin(self, space: str) -> Pin | None:
        """What every roster of a space must contain that is shown; None: nothing is known. Raises as `read`."""
        return self._pin(_name(space))

    def of(self, space: bytes) -> Seen | None:
        """The newest that is known of a space, by the id in its roster, whatever a daemon calls it; None: nothing. Raises as `read`."""
        found = [seen for name in self._names(space) if (seen := self._read(name)) is not None]
        return max(found, key=lambda seen: seen.pin.number, default=None)

    def is_another(self, space: str) -> bool:
        """Whether the daemon names another space than it did, while that one is pinned. Raises as `read`.

        A machine is in one space of its daemon, and goes to another when a person lets it join, or says so. Were another name enough, a
        daemon could have the machine begin anew, or go back to a list of devices from before one was removed.
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
        """What is known of the space that was used last. Raises as `read`."""
        path = self._folder / _LAST
        if not path.exists():
            return None
        name = read_private_file(path).decode(errors="replace").strip()
        return self._read(name) if _NAME.fullmatch(name) else None

    def keep(self, space: str, roster: Roster) -> Roster:
        """Pin a roster that the daemon has, and keep it. Where another process of this machine has kept a longer one, that is returned.

        Raises RosterError: what was seen before, under this name or another, does not fit; KeyFileError: it cannot be written.
        """
        name = _name(space)
        with self._locked():
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
                # The entries first: a crash in between leaves more than is pinned, and never less.
                write_private_file(self._folder / f"{name}.roster", _joined(roster), replace=True)
                write_private_file(self._folder / f"{name}.pin", f"{roster.pin.to_line()}\n".encode(), replace=True)
        return roster

    def replace(self, space: str, before: Pin, roster: Roster) -> None:
        """Go on from another branch: a person has said so. Nothing else writes what does not contain the pin.

        Raises SealingError: another process has seen more than `before` since the person was asked; KeyFileError: it cannot be written.
        """
        name = _name(space)
        with self._locked():
            if self._pin(name) != before:
                raise SealingError(
                    "another confide has changed what this device knows of its devices", hint="try again"
                )
            # Under its other names first. Pin before entries: without entries that fit, they are fetched again.
            for each in [*(other for other in self._names(roster.space) if other != name), name]:
                write_private_file(self._folder / f"{each}.pin", f"{roster.pin.to_line()}\n".encode(), replace=True)
                write_private_file(self._folder / f"{each}.roster", _joined(roster), replace=True)

    def use(self, space: str) -> None:
        """Remember that this space was used last; "" for one whose id is not known yet. Raises KeyFileError."""
        path, line = self._folder / _LAST, f"{_name(space)}\n".encode()
        if not path.exists() or read_private_file(path) != line:
            write_private_file(path, line, replace=True)

    def note_custody(self, space: str, custody: str) -> tuple[bool, bool]:
        """Whether the daemon keeps a key now that the space's machines kept before, and whether that is news to this machine.

        Nobody but the daemon says so, and nothing can prove it. But whoever relied on a stolen disk being worth nothing should know that
        its operator has changed that (PROTOCOL.md 10.9).

        `custody`: what it has said, `server` or `caller`.

        Raises KeyFileError: the file cannot be read or written.
        """
        name = _name(space)
        path = self._folder / f"{name}.custody"
        pin = self._pin(name)
        # Under whatever name: another one must not hide that the machines kept the key.
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
        """Those under which there is a pin of a space, by the id in its roster."""
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
            return None  # it is fetched again; the pin says which is the right one

    def moved(self, before: bytes, now: bytes) -> None:
        """This machine joins a daemon. Another one shall not pass for that which had the spaces that are known here.

        Whichever it is, the next space that it names is the one that this machine is in: a person has said so.

        A roster is no secret of its machines, so who shows it need not be who keeps it; and who keeps it gets keys (PROTOCOL.md 10.9).

        Args:
            before: the static key of the daemon that it had joined, 32 bytes; b"" where it had joined none.
            now: of the one that it joins. What was left with that one is believed again.

        Raises KeyFileError: it cannot be noted.
        """
        if not self._folder.is_dir():
            return
        if before == now:
            self.use("")
            return
        pins = [seen.pin for path in sorted(self._folder.glob("*.pin")) if (seen := self._read(path.stem)) is not None]
        for space in {pin.space for pin in pins}:
            if not self.is_left(space):
                write_private_file(self._left(space), f"{before.hex()}\n".encode(), replace=True)
            elif read_private_file(self._left(space)).strip() == now.hex().encode():
                self.come_back(space)
        self.use("")

    def carried(self, space: bytes, before: bytes) -> None:
        """This machine has carried a space to another daemon, which it joins: what is pinned of it goes on there (PROTOCOL.md 9.8).

        All others that it knows stay with the daemon of this static key. Raises KeyFileError: it cannot be noted.
        """
        if self._folder.is_dir():
            pins = [pin for path in sorted(self._folder.glob("*.pin")) if (pin := self._pin(path.stem)) is not None]
            for other in {pin.space for pin in pins} - {space}:
                if not self.is_left(other):
                    write_private_file(self._left(other), f"{before.hex()}\n".encode(), replace=True)
        self.come_back(space)
        self.use("")

    def come_back(self, space: bytes) -> None:
        """A person, or a device of the space, says that this daemon has it now. Raises KeyFileError."""
        remove_private_file(self._left(space))

    def is_left(self, space: bytes) -> bool:
        """Whether a space, by the id in its roster, was another daemon's when this machine joined this one."""
        return os.path.lexists(self._left(space))

    def _left(self, space: bytes) -> Path:
        return self._folder / f"{space.hex()}.left"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time compares and writes: the pin never goes back."""
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
                if not taken(descriptor, wait_s=_LOCK_DEADLINE_S):
                    raise SealingError("another confide holds the list of devices", hint="try again")
            yield
        finally:
            os.close(descriptor)


def _name(space: str) -> str:
    return hashlib.sha256(space.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _joined(roster: Roster) -> bytes:
    return b"".join(u32(len(entry)) + entry for entry in (each.encode() for each in roster.entries))


def _split(data: bytes) -> Iterator[bytes]:
    cursor = Cursor(data)
    rest = len(data)
    while rest:
        length = cursor.number(4)
        yield cursor.take(length)
        rest -= 4 + length
