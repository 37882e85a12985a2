"""Handle missing files: apply the rule (`absence`) that decides which were deleted, and undo
deletions that were reported just before a loss was noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from functools import partial

from confide_proxy.errors import FolderError
from confide_proxy.sync.absence.rule import Meant, Verdict
from confide_proxy.sync.ledger import SyncReport, readable
from confide_proxy.sync.replication.file_transfer import FileTransfer
from confide_proxy.sync.replication.local_files import LocalFiles
from confide_proxy.sync.steps import through


class MissingFiles:
    """Applies the rule for missing files to one folder, and undoes wrong deletions at the daemon."""

    def __init__(self, files: LocalFiles, transfer: FileTransfer) -> None:
        self._folder = files.folder
        self._ledger = files.ledger
        self._paths = files.paths
        self._absence = files.absence
        self._transfer = transfer

    async def judge(self, missing: Collection[str], is_patient: bool, meant: Meant = ()) -> Verdict:
        """Decide if missing files were deleted or lost. After a loss, undo the deletions that were
        reported just before. The parameters are those of `Absence.judge`.

        Raises FolderError if the folder does not exist.
        """
        if not missing:
            return Verdict()
        try:
            verdict = await asyncio.to_thread(self._absence.judge, missing, is_patient=is_patient, meant=meant)
        except FolderError:
            await self._take_back()
            raise
        if verdict.is_loss:
            await self._take_back()
        return verdict

    async def restart_if_replaced(self) -> dict[str, str]:
        """Clear the ledger if another folder has taken the path. Return the files that the new
        folder lacks: their paths, with the hashes of the texts that the daemon last confirmed.
        """
        if not await asyncio.to_thread(self._absence.is_another):
            return {}
        await self._take_back()
        self._transfer.is_compared = False
        return await through(self._absence.restart)

    def note_looked(self, verdict: Verdict, others: dict[str, str]) -> None:
        """Record the decision about missing files, and write or update the notice for the user
        (`absence.notice`).

        `others` are the files of the folder that was at the path before, as `restart_if_replaced`
        returns them.
        """
        confirmed, notice = self._ledger.all(), self._absence.notice
        kept = {path: confirmed[path].hash for path in verdict.kept_files if path in confirmed}
        back = {path: digest for path, digest in others.items() if path in confirmed}
        why = verdict.why or "the folder is another one than before, such as a new clone"
        if kept and verdict.why:
            notice.note_missing(kept, of=len(confirmed), why=why, is_waiting=bool(verdict.waiting))
        elif back:
            notice.note_missing(back, of=len(confirmed), why=why, is_waiting=False)
        elif not verdict.waiting:
            notice.note_found()
        self._absence.note_looked(verdict.waiting)

    async def delete_again(self, meant: Meant) -> None:
        """Delete those of the `meant` files that went missing and were restored, unless they were
        changed since. Called when a user confirms that they are to be deleted.
        """
        missing = await asyncio.to_thread(self._absence.notice.missing)
        for path, digest in missing.items():
            if not self._folder.is_memory(path) or (meant is not None and path not in meant):
                continue
            async with self._paths.hold(path):
                local = await asyncio.to_thread(readable, self._folder, path, SyncReport())
                known = await asyncio.to_thread(self._ledger.get, path)
                if local is not None and known is not None and known.matches(local.hash) and known.hash == digest:
                    with suppress(FolderError):
                        await through(partial(self._folder.delete, path, over=local))
        if meant is None or missing.keys() <= set(meant):
            await asyncio.to_thread(self._absence.notice.clear)

    async def take_back(self) -> None:
        """If the folder has disappeared, undo the deletions that were reported just before: the
        files were lost with it.
        """
        if not await asyncio.to_thread(self._folder.root.is_dir):
            await self._take_back()

    async def _take_back(self) -> None:
        """Make the daemon restore documents whose deletion was reported shortly before a loss,
        unless they were created again since.
        """
        for told in self._absence.take_reported_deletions():
            async with self._paths.hold(told.path):
                if await asyncio.to_thread(self._ledger.get, told.path) is None:
                    await self._transfer.restore(told)

    def come_back(self, pulled: list[tuple[str, int, str]], present: set[str]) -> list[str]:
        """Return the paths of files that were deleted both here and at the daemon, but that the
        daemon now has in a revision that is not newer than the deletion.

        `pulled` are the files to fetch, as (path, revision, hash); `present` are the paths that
        exist here.
        """
        removed = [(path, self._ledger.gone_at(path), revision) for path, revision, _ in pulled if path not in present]
        return [path for path, at, revision in removed if at is not None and (at >= revision or not at)]
