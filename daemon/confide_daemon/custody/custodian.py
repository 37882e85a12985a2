"""What the daemon knows of one space's key: who keeps it, whether it is at hand, and what it is to be changed to."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from confide_daemon.custody.custody import Custody, Keeper, KeyName
from confide_daemon.errors import LockedError, WrongKeyError
from confide_daemon.master import KEY_BYTES, MasterKey
from confide_daemon.paths import DataFolder
from confide_daemon.store.connection import connect


class Custodian:
    """One for each space. Keys that its machines have handed over are here, in memory only, until they are forgotten.

    What touches the disk says so; it is called by one at a time.
    """

    def __init__(self, space_id: str, folder: DataFolder, master: MasterKey, *, new: Keeper = "server") -> None:
        """Reads who keeps the key.

        Args:
            new: who keeps the key of a space of which there is nothing yet.

        Raises:
            KeyFileError, StorageError: as `Custody.read`.
        """
        self._space_id = space_id
        self._database = folder.space(space_id)
        self._file = folder.custody(space_id)
        self._master = master
        self._held: dict[int, bytes] = {}
        is_new = not self._file.exists() and not self._database.exists()
        # Epochs begin with 1: 0 is one that is not known before there is a roster.
        self._custody = Custody.read(self._file) or Custody(KeyName(new if is_new else "server", 0))

    @property
    def custody(self) -> Custody:
        """Who keeps it."""
        return self._custody

    @property
    def is_locked(self) -> bool:
        """Whether no key is at hand that could open the database."""
        return not any(self.key(name) for name in self._custody.names)

    def key(self, name: KeyName) -> bytes | None:
        """The key of that name, 32 bytes; None where a machine has to bring it."""
        if name.keeper == "server":
            return self._master.space_key(self._space_id, name.number)
        return self._held.get(name.number)

    def needs(self, epoch: int) -> list[int]:
        """The epochs whose database keys a machine should hand over now; `epoch` is the roster's newest, 0 where there is no roster."""
        named = {name.number for name in self._custody.names if name.keeper == "caller"}
        return sorted(number for number in {*named, self._following(epoch)} - {0} if number not in self._held)

    def take(self, keys: Mapping[int, bytes], epoch: int, *, may_change: bool, is_open: bool) -> None:
        """Holds those keys of a machine that are needed. Disk.

        Args:
            keys: by their epochs.
            epoch: the roster's newest.
            may_change: whether the machine may say what is encrypted from now on, which nothing here can prove to be right.
            is_open: whether the database is in use, so that it need not be tried whether they open it.

        Raises:
            WrongKeyError: they do not open the database, as they should; none of them is held then.
            StorageError: the database cannot be looked at.
            KeyFileError: a new space cannot be written down.
        """
        needed = {number: keys[number] for number in self.needs(epoch) if number in keys}
        if any(len(key) != KEY_BYTES for key in needed.values()):
            raise WrongKeyError("a key of a database has 32 bytes")
        exists = self._database.exists()
        if not may_change:
            offered = needed
            needed = {number: key for number, key in offered.items() if exists and _opens(self._database, key)}
            if exists and offered and not needed and not is_open:
                raise _wrong()
        if is_open or not exists:
            self._held = {**self._held, **needed}
            if not exists and epoch in needed and self._custody.key.keeper == "caller":
                self._write(replace(self._custody, key=KeyName("caller", epoch), following=None))
            return
        before, self._held = self._held, {**self._held, **needed}
        names = self._custody.names
        known = [key for name in names if (key := self.key(name)) is not None]
        if any(_opens(self._database, key) for key in known):
            return
        # What opens nothing is not held: it would never be asked for again.
        self._held = before
        if len(known) == len(names):
            raise _wrong()

    def opening_key(self) -> tuple[KeyName, bytes]:
        """The key that opens the database, or that a new one is made with, and its name. Disk.

        Raises:
            LockedError: a machine has to bring it.
            StorageError: the database cannot be looked at.
        """
        names = self._custody.names
        known = [(name, key) for name in names if (key := self.key(name)) is not None]
        if len(names) > 1 and self._database.exists():
            # A change of the key is under way, or was when the daemon ended.
            opening = next(((name, key) for name, key in known if _opens(self._database, key)), None)
            if opening is None and len(known) == len(names):
                raise WrongKeyError("neither of its two keys opens the space's database", hint="was the file replaced?")
            known = [opening] if opening is not None else []
        if not known:
            raise LockedError
        return known[0]

    def target(self, epoch: int) -> KeyName | None:
        """What the database is to be encrypted with in place of its present key, if that is at hand; `epoch` is the roster's newest."""
        if self._custody.wanted == "server":
            return self.next_generation()
        following = self._following(epoch)
        return KeyName("caller", following) if following in self._held else None

    def next_generation(self) -> KeyName:
        """A key of the server's that was never used."""
        return KeyName("server", self._custody.generation + 1)

    def want(self, keeper: Keeper) -> None:
        """Who is to keep it from the next opportunity on. Disk. Raises KeyFileError."""
        generation = self._custody.generation
        if not self._database.exists():
            number = 0 if keeper == "caller" else generation
            self._write(Custody(KeyName(keeper, number), generation=generation))
            return
        wanted = None if keeper == self._custody.key.keeper else keeper
        self._write(replace(self._custody, wanted=wanted))

    def changing(self, name: KeyName) -> None:
        """The database is about to be encrypted with that key. Disk. Raises KeyFileError."""
        generation = max(self._custody.generation, name.number if name.keeper == "server" else 0)
        self._write(replace(self._custody, following=name, generation=generation))

    def changed(self, name: KeyName) -> None:
        """The database is encrypted with that key, and nothing else. Disk. Raises KeyFileError."""
        wanted = self._custody.wanted if self._custody.wanted != name.keeper else None
        self._write(replace(self._custody, key=name, following=None, wanted=wanted))
        kept = self._held.items() if name.keeper == "caller" else ()
        self._held = {number: key for number, key in kept if number >= name.number}

    def forget(self) -> None:
        """The keys that machines have handed over."""
        self._held = {}

    def _following(self, epoch: int) -> int:
        """The epoch under whose key the database should be and is not; 0 if there is none."""
        key, wanted = self._custody.key, self._custody.wanted
        if wanted == "server" or (key.keeper == "server" and wanted is None):
            return 0
        # A registry that was restored from an old copy knows of fewer epochs than there were.
        return epoch if key.keeper == "server" or epoch > key.number else 0

    def _write(self, custody: Custody) -> None:
        if custody != self._custody:
            custody.write(self._file)
            self._custody = custody


def sweep(folder: Path) -> None:
    """Removes what writes of such files have left that were cut off."""
    for part in folder.glob(".*.custody.*.tmp"):
        with suppress(OSError):
            part.unlink()


def _opens(database: Path, key: bytes) -> bool:
    try:
        connect(database, key, writer=False).close()
    except WrongKeyError:
        return False
    return True


def _wrong() -> WrongKeyError:
    return WrongKeyError(
        "this is not the key of the space's database",
        hint="another machine of the space may have the right one; or the file was damaged or replaced",
    )
