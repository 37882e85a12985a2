"""The encryption key of a space's database: who keeps it (the server or the devices), if it is
available, and the key that is to replace it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from confide_daemon.datadir.credentials import KEY_BYTES, MasterKey
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DamagedError, LockedError, WrongKeyError
from confide_daemon.store.database import connect

log = logging.getLogger(__name__)

# Server keys that are tried after the last recorded generation.
_TRIED: Final = 16


class Custodian:
    """Manages the key of one space's database. Keys that devices have handed over exist in memory
    only, until `forget`.

    A small file beside the database names its key. If that key does not open the database, every
    present and past key is tried, and the one that works is recorded. This happens after one of the
    two files was lost or restored from a backup.
    """

    def __init__(self, space_id: str, folder: DataFolder, master: MasterKey, *, new: Keeper = "server") -> None:
        """Read the keeper of the key.

        `new`: the keeper for a space that does not exist yet. Raises KeyFileError, StorageError: as
        `Custody.read`.
        """
        self._space_id = space_id
        self._database = folder.space(space_id)
        self._file = folder.custody(space_id)
        self._master = master
        self._device_keys: dict[int, bytes] = {}
        self._turn = threading.RLock()
        self.is_lost = False
        """True if no key that the file names opens the database, so that the devices are asked for
        all of their keys.
        """
        is_new = not self._file.exists() and not self._is_there
        # Epochs begin with 1: 0 is one that is not known before there is a roster.
        written = Custody.read(self._file)
        self._custody = written or Custody(KeyName(new if is_new else "server", 0))
        self._is_written = written is not None
        self._may_be_theirs = False
        self._is_in_log = False

    @property
    def custody(self) -> Custody:
        """The recorded keeper and key name. If nothing is recorded and no server key opens the
        database, the devices count as its keepers until their keys fail as well.
        """
        is_theirs = self.is_lost and self._may_be_theirs
        return replace(self._custody, key=KeyName("caller", 0)) if is_theirs else self._custody

    @property
    def is_holding(self) -> bool:
        """True if keys that devices have handed over are in memory."""
        return bool(self._device_keys)

    @property
    def is_locked(self) -> bool:
        """True if no key is available that might open the database."""
        return not any(self.key(name) for name in self._custody.names)

    def key(self, name: KeyName) -> bytes | None:
        """Return the key with this name (32 bytes), or None if a device has to hand it over first."""
        if name.keeper == "server":
            return self._master.space_key(self._space_id, name.number)
        return self._device_keys.get(name.number)

    def missing_epochs(self, epoch: int) -> list[int]:
        """Return the numbers (epochs) of the database keys that a device should hand over now.
        `epoch`: the newest key number on the roster, the space's list of devices; 0 without a
        roster.
        """
        if self.is_lost:
            return [number for number in range(1, epoch + 1) if number not in self._device_keys]
        named = {name.number for name in self._custody.names if name.keeper == "caller"}
        return sorted(number for number in {*named, self._following(epoch)} - {0} if number not in self._device_keys)

    def add_keys(self, keys: Mapping[int, bytes], epoch: int, *, may_change: bool, is_open: bool) -> None:
        """Keep those keys from a device that are needed now. Blocks on the disk.

        Args:
            keys: the keys, by their number (epoch).
            epoch: the newest key number on the roster, the space's list of devices.
            may_change: True if the device may choose the key for future encryption; nothing here
                can verify that key.
            is_open: True if the database is in use, so that the keys need not be tested on it.

        Raises:
            WrongKeyError: the keys do not open the database; none is kept.
            StorageError: the database cannot be read.
            KeyFileError: the keeper of a new space cannot be recorded.
        """
        with self._turn:
            needed = {number: keys[number] for number in self.missing_epochs(epoch) if number in keys}
            if any(len(key) != KEY_BYTES for key in needed.values()):
                raise WrongKeyError("a key of a database has 32 bytes")
            if is_open or not self._is_there:
                self._take_untried(needed, epoch, may_change=may_change)
            else:
                self._take_opening(needed, may_change=may_change)

    def _take_untried(self, needed: Mapping[int, bytes], epoch: int, *, may_change: bool) -> None:
        """Keep keys of a database that is in use or does not exist yet."""
        exists = self._is_there
        taken = needed if may_change else {n: key for n, key in needed.items() if exists and self._opens(key)}
        self._device_keys = {**self._device_keys, **taken}
        if not exists and not self._is_in_log and epoch in taken and self._custody.key.keeper == "caller":
            self._write(replace(self._custody, key=KeyName("caller", epoch), following=None))

    def _take_opening(self, needed: Mapping[int, bytes], *, may_change: bool) -> None:
        """Keep keys of a closed database if they open it. Raises WrongKeyError, StorageError."""
        names = self._custody.names
        if any((key := self.key(name)) is not None and self._opens(key) for name in names):
            self._device_keys = {**self._device_keys, **(needed if may_change else {})}
            self.is_lost = False
            return
        opening = {number for number, key in needed.items() if self._opens(key)}
        if not opening:
            # A key that opens nothing is not kept: otherwise it would never be requested again.
            brought = {name.number for name in names if name.keeper == "caller"} <= {*needed, *self._device_keys}
            if needed and (brought or not may_change):
                self.is_lost = self.is_lost or brought
                self._may_be_theirs = self._may_be_theirs and not brought
                raise _wrong()
            return
        taken = needed if may_change else {number: needed[number] for number in opening}
        self._device_keys = {**self._device_keys, **taken}
        if not any(KeyName("caller", number) in names for number in opening):
            self._record_found(KeyName("caller", max(opening)))
        self.is_lost = False

    def opening_key(self) -> tuple[KeyName, bytes]:
        """Return the name and value of the key that opens the database, or with which a new one is
        created. Blocks on the disk.

        Raises LockedError if a device has to hand over the key, StorageError if the database cannot
        be read, WrongKeyError if a key change was interrupted and neither key opens the database.
        """
        with self._turn:
            names = self._custody.names
            known = [(name, key) for name in names if (key := self.key(name)) is not None]
            if len(names) > 1 and self._is_there:
                # A change of the key is running, or was when the daemon ended.
                opening = next(((name, key) for name, key in known if self._opens(key)), None)
                if opening is None and len(known) == len(names):
                    raise _wrong()
                known = [opening] if opening is not None else []
            if not known:
                raise LockedError
            return known[0]

    def search(self, epoch: int) -> tuple[KeyName, bytes]:
        """Try every other key after the recorded one has failed; return the name and value of the
        key that opens the database. Blocks on the disk.

        `epoch`: the newest key number on the roster, the space's list of devices; 0 without a
        roster.

        Raises:
            LockedError: no known key opens it, but the devices may have the right one.
            WrongKeyError: no key opens it, and there is no roster whose devices could have one.
            StorageError: the database cannot be read.
            KeyFileError: the key that was found cannot be recorded.
        """
        with self._turn:
            for name in (*(KeyName("caller", number) for number in self._device_keys), *self._generations):
                key = self.key(name)
                if key is not None and self._opens(key):
                    self._record_found(name)
                    return name, key
            if not self.is_lost:
                self._may_be_theirs = epoch > 0 and not self._is_written
            self.is_lost = True
            if epoch:
                log.error("none of the keys of space %s opens it: its devices are asked for theirs", self._space_id)
                raise LockedError
            raise _wrong()

    def is_of_machines(self, epoch: int) -> bool:
        """Return True if the devices seem to keep the key: no keeper is recorded, and no server key
        opens the database. Records nothing. Blocks on the disk.

        `epoch`: the newest key number on the roster, the space's list of devices; 0 without a
        roster. Raises StorageError if the database cannot be read.
        """
        if self._is_written or not epoch or not self._is_there:
            return False
        return not any(self._opens(self._master.space_key(self._space_id, name.number)) for name in self._generations)

    def target(self, epoch: int) -> KeyName | None:
        """Return the name of the key that should replace the present one now, or None if no change
        is due or the new key is not available yet. `epoch`: the newest key number on the roster,
        the space's list of devices.
        """
        if self._custody.wanted_keeper == "server":
            return self.next_generation()
        following = self._following(epoch)
        return KeyName("caller", following) if following in self._device_keys else None

    def next_generation(self) -> KeyName:
        """Return the name of the next server key, which was never used before."""
        return KeyName("server", self._custody.generation + 1)

    def want(self, keeper: Keeper) -> None:
        """Record who is to keep the key after its next change: the server or the devices. Blocks on
        the disk. Raises KeyFileError if it cannot be recorded.
        """
        with self._turn:
            generation = self._custody.generation
            if not self._is_there:
                number = 0 if keeper == "caller" else generation
                self._write(Custody(KeyName(keeper, number), generation=generation))
                return
            wanted = None if keeper == self._custody.key.keeper else keeper
            self._write(replace(self._custody, wanted_keeper=wanted))

    def install(self, custody: Custody) -> None:
        """Record who keeps the key, and which key it is, as the space's log in the shared store
        says, if the log names another key than the local record. Blocks on the disk. Raises
        KeyFileError if it cannot be recorded.
        """
        with self._turn:
            self._is_in_log = True
            if custody.key != self._custody.key:
                self._write(replace(custody, wanted_keeper=self._custody.wanted_keeper))

    def after(self, name: KeyName) -> Custody:
        """Return the record of the key and its keeper as it will be once only this key encrypts the
        database.
        """
        generation = max(self._custody.generation, name.number if name.keeper == "server" else 0)
        wanted = self._custody.wanted_keeper if self._custody.wanted_keeper != name.keeper else None
        return replace(self._custody, key=name, following=None, wanted_keeper=wanted, generation=generation)

    def changing(self, name: KeyName) -> None:
        """Record that a change of the database to this key begins. Blocks on the disk. Raises
        KeyFileError if it cannot be recorded.
        """
        with self._turn:
            generation = max(self._custody.generation, name.number if name.keeper == "server" else 0)
            self._write(replace(self._custody, following=name, generation=generation))

    def record_change(self, name: KeyName) -> None:
        """Record that the database is now encrypted with this key only. Blocks on the disk. Raises
        KeyFileError if it cannot be recorded.
        """
        with self._turn:
            self._write(self.after(name))
            kept = self._device_keys.items() if name.keeper == "caller" else ()
            self._device_keys = {number: key for number, key in kept if number >= name.number}

    def forget(self) -> None:
        """Drop from memory all keys that devices have handed over."""
        self._device_keys = {}

    def _following(self, epoch: int) -> int:
        """Return the epoch whose key the database should have and does not have, or 0."""
        key, wanted = self._custody.key, self._custody.wanted_keeper
        if wanted == "server" or (key.keeper == "server" and wanted is None):
            return 0
        # A registry restored from an old copy knows fewer epochs than there were.
        return epoch if key.keeper == "server" or epoch > key.number else 0

    @property
    def _is_there(self) -> bool:
        """True if the database exists and has a key: a file that was never written to has none.
        Blocks on the disk.
        """
        try:
            return self._database.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _opens(self, key: bytes) -> bool:
        try:
            connect(self._database, key, writer=False).close()
        except WrongKeyError:
            return False
        except DamagedError:
            return True  # its first page is authentic
        return True

    @property
    def _generations(self) -> list[KeyName]:
        """The server keys that the database could have."""
        return [KeyName("server", number) for number in range(self._custody.generation + _TRIED)]

    def _record_found(self, name: KeyName) -> None:
        log.warning("space %s has another key than was written down: %s %d", self._space_id, name.keeper, name.number)
        generation = max(self._custody.generation, name.number if name.keeper == "server" else 0)
        self._write(replace(self._custody, key=name, following=None, generation=generation))
        self.is_lost = False

    def _write(self, custody: Custody) -> None:
        if custody != self._custody:
            custody.write(self._file)
            self._custody, self._is_written = custody, True


def sweep(folder: Path) -> None:
    """Remove temporary files from interrupted writes of the files that record the keys' keepers."""
    for part in folder.glob(".*.custody.*.tmp"):
        with suppress(OSError):
            part.unlink()


def _wrong() -> WrongKeyError:
    return WrongKeyError(
        "cannot open the database of the space: this is not its key, or the file is no database",
        hint="another device of the space may have the right one; or the file was damaged or replaced: restore it from a backup",
    )
