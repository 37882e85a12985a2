"""Changes of the keys of spaces: for a new epoch of the roster, for another keeper, or because the operator wants a new one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from confide_crypto.errors import ConfideError
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.errors import JobError
from confide_daemon.spaces.entry import Entry
from confide_daemon.spaces.space import Space

log = logging.getLogger(__name__)

# After a change that could not be made, as on a full disk.
RETRY_S = 60.0

Follow = Callable[[int, int], None]
"""Told how many pages are encrypted anew, and of how many."""


class KeyChanges:
    """For all spaces of a daemon; each changes one key at a time."""

    def __init__(
        self, epoch: Callable[[str], int], opened: Callable[[str], Awaitable[Space]], tell: Callable[[], None]
    ) -> None:
        """What it needs of the spaces.

        Args:
            epoch: the newest of a space's roster, 0 where there is none; waits for the disk.
            opened: the open space.
            tell: is told of every change.
        """
        self._epoch = epoch
        self._opened = opened
        self._tell = tell

    def begin(self, space_id: str, entry: Entry) -> None:
        """Changes the key beside everything else, if there is something to change and the new one is at hand."""
        if entry.changing is None or entry.changing.done():
            entry.changing = asyncio.create_task(self._change_until_done(space_id, entry), name="confide-rekeying")

    async def give_to(self, space_id: str, entry: Entry, keeper: Keeper, follow: Follow) -> Custody:
        """Has the server or the machines keep the key from now on, as soon as that can be: how it is at the end of this.

        Raises:
            StorageError, KeyFileError: it could not be done or written down; the key that is there stays.
        """
        async with entry.unlocking, entry.rekeying:
            await asyncio.to_thread(entry.custodian.want, keeper)
        await self._change(space_id, entry, follow)
        self._tell()
        return entry.custodian.custody

    async def renew(self, space_id: str, entry: Entry, follow: Follow) -> Custody:
        """Encrypts a database whose key the server keeps under its next one. Raises as `give_to`.

        Raises:
            JobError: its machines keep the key.
        """
        if entry.custodian.custody.key.keeper == "caller":
            hint = "a device that leaves gives it a new one: confide device rm, or confide key rotate on one of them"
            raise JobError("the machines of this space keep its key", hint=hint)
        space = await self._opened(space_id)
        async with entry.rekeying:
            await self._rekey(space_id, entry, space, entry.custodian.next_generation(), follow)
        return entry.custodian.custody

    async def _change_until_done(self, space_id: str, entry: Entry) -> None:
        while True:
            try:
                # Meanwhile another epoch may have begun.
                while await self._change(space_id, entry, lambda _done, _total: None):
                    pass
                return
            except ConfideError as error:
                log.warning("the key of space %s could not be changed: %s", space_id, error)
            except Exception as error:
                # A bug must not leave a removed device's key in use, untold; its text may quote anything.
                log.error("changing the key of space %s broke: %s", space_id, type(error).__name__)
            await asyncio.sleep(RETRY_S)

    async def _change(self, space_id: str, entry: Entry, follow: Follow) -> bool:
        """One change, if one is due; whether it was."""
        async with entry.rekeying:
            epoch = await asyncio.to_thread(self._epoch, space_id)
            target = entry.custodian.target(epoch)
            if target is None or entry.custodian.is_locked:
                return False
            await self._rekey(space_id, entry, await self._opened(space_id), target, follow)
            return True

    async def _rekey(self, space_id: str, entry: Entry, space: Space, target: KeyName, follow: Follow) -> None:
        custodian = entry.custodian
        key = custodian.key(target)
        assert key is not None
        # Both names are written down before there are two keys, so that whatever ends this leaves none unknown.
        await asyncio.to_thread(custodian.changing, target)
        await space.rekey(key, follow=follow)
        await asyncio.to_thread(custodian.changed, target)
        self._tell()
        log.info("space %s has a new key: %s %d", space_id, target.keeper, target.number)
