"""Puts a copy of the database in its place while the space is open: out of a damaged one, under another key, or without remains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confide_daemon.errors import StorageError
from confide_daemon.store.connection import create_private, migrate, storage_errors
from confide_daemon.store.database import Database
from confide_daemon.store.upkeep import copies, rekey, salvage

_CLEANING: Final = "clean the database"


class Replacement:
    """Used by the thread that writes. What swaps needs every other connection closed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rekeying: rekey.Rekeying | None = None

    # ---------------------------------------------------------------- out of a damaged one

    def copy_readable(self) -> int:
        """Copies what can be read of a damaged database; how many rows that are not derived are lost."""
        with storage_errors(salvage.DOING):
            return salvage.copy(self._database.path, self._database.key)

    def swap_readable(self) -> None:
        """Goes on with that copy, which nobody has written to since."""
        self.abandon_rekeying()
        with self._database.replacing(salvage.DOING):
            salvage.swap(self._database.path, self._database.key)
        migrate(self._database.connection, now=time.time())

    def damaged_copies(self) -> int:
        """How many former files of this database are kept, which were damaged."""
        return salvage.damaged_copies(self._database.path)

    def forget_damaged(self, before: float) -> bool:
        """Removes what was kept of a damaged database, if it is from before then (seconds since 1970); whether it was."""
        return salvage.forget_damaged(self._database.path, before)

    # ---------------------------------------------------------------- under another key

    def begin_rekeying(self, key: bytes) -> Callable[[], None]:
        """Begins to copy the database under another key (32 bytes). Raises StorageError where there is no room for it.

        What it returns brings to the disk what is copied so far; any thread may call it.
        """
        self.abandon_rekeying()
        self._rekeying = rekey.Rekeying(self._database.connection, self._database.path, key)
        return self._rekeying.sync

    def step_rekeying(self, *, leave: int) -> tuple[int, int]:
        """Copies some pages, about 1 MiB: how many are left, at least `leave`, and of how many. Others may write between two steps."""
        return self._copying().step(leave=leave)

    def finish_rekeying(self) -> None:
        """Copies the rest, and brings the copy to the disk. Nothing may be written between this and the swap."""
        self._copying().finish()

    def swap_rekeyed(self) -> None:
        """Goes on with the copy, under the new key."""
        copying = self._copying()
        self._rekeying = None
        with self._database.replacing(rekey.DOING):
            try:
                copying.swap(self._database.key)
            finally:
                if copying.is_swapped:
                    self._database.key = copying.key
                else:
                    copying.abandon()

    def abandon_rekeying(self) -> None:
        """Ends a change of the key that is under way, if one is; the old key stays."""
        if self._rekeying is not None:
            self._rekeying.abandon()
            self._rekeying = None

    def _copying(self) -> rekey.Rekeying:
        if self._rekeying is None:
            raise StorageError(
                "cannot change the key of the database: it was rebuilt meanwhile", hint="it is tried again"
            )
        return self._rekeying

    # ---------------------------------------------------------------- without remains

    def copy_clean(self) -> None:
        """Writes all that is in the database, and nothing that was, into a file beside it, encrypted as it is.

        Takes no memory to speak of. What is written afterwards would not be there.

        Raises:
            StorageError: there is no room for it.
        """
        self.abandon_rekeying()
        path = self._database.path
        copy = rekey.copy_of(path)
        rekey.sweep(path)
        problem = f"cannot {_CLEANING}: the disk has no room for a second copy of it"
        then = " and run it again; what was sealed stays sealed"
        copies.check_room(path, path.stat().st_size, problem, then)
        create_private(copy)
        try:
            with storage_errors(_CLEANING):
                self._database.connection.execute("VACUUM INTO ?", (str(copy),))
            copies.sync(copy)
        except BaseException:
            rekey.sweep(path)
            raise

    def swap_clean(self) -> None:
        """Goes on with that copy.

        Raises:
            StorageError: another process has the database open.
        """
        path = self._database.path
        with self._database.replacing(_CLEANING):
            try:
                copies.empty_log(path, self._database.key, _CLEANING)
            except StorageError as error:
                rekey.sweep(path)
                hint = "end confided doctor, and others like it, and run it again; what was sealed stays sealed"
                raise StorageError(error.message, hint=hint) from None
            copies.put_in_place(rekey.copy_of(path), path)
