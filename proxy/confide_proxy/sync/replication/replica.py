"""Synchronize one folder with the daemon's documents.

Both sides compare their states (path, hash, revision) and exchange the files that differ; file
events only make it prompt. Every step is idempotent, so a lost event, a crash or a replay costs
nothing. If an edit is based on an old revision, the daemon merges it, since it has the base
revision.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confide_memory.documents import REMOVED, RequestChannel, bucket_of, digests
from confide_memory.wire.files import COMPARE, DIGEST, CompareAnswer, CompareRequest, DigestRequest
from confide_proxy.errors import FolderError
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.sealing.context import Deposit
from confide_proxy.sync.absence.rule import Absence, Meant, Verdict
from confide_proxy.sync.folder import MAX_FILES, Folder, is_of_memory
from confide_proxy.sync.ledger import Confirmed, SyncLedger, SyncReport, scan
from confide_proxy.sync.replication.file_transfer import DENIED, FORGOTTEN, FileTransfer, Seen
from confide_proxy.sync.replication.local_files import Lacking, LocalFiles, WriteObserver
from confide_proxy.sync.replication.missing_files import MissingFiles
from confide_proxy.sync.steps import Step, Steps, through
from confide_proxy.sync.walk import FILE

_COMPARE_DEADLINE_S = 60.0
_DIGEST_FROM = 50
"""Number of files from which a comparison starts with digests; fewer files fit into one record."""


@dataclass(slots=True)
class _Comparison:
    """A comparison in progress: the files of the folder, and the request to the daemon about them.

    Attributes:
        confirmed: the confirmed states when it began.
        unsettled: paths that are sent whatever the daemon responds (`FolderScan.unsettled`).
        present: the paths of all files that were found.
        sealed: entries with a confirmed revision, but another text than was confirmed.
        entries: (path, hash, base revision) of the files that are compared.
        deleted: the paths of deleted files that are reported to the daemon.
        buckets: the buckets that differ between both sides; None: the files are compared without
            digests.
    """

    confirmed: dict[str, Confirmed]
    verdict: Verdict
    unsettled: list[str]
    present: set[str]
    sealed: list[tuple[str, str, int]]
    entries: list[tuple[str, str, int]]
    deleted: list[str]
    buckets: frozenset[int] | None = None

    @property
    def hashes(self) -> dict[str, str]:
        """Return the hashes of the files in the request, by path."""
        return {path: digest for path, digest, _ in self.entries}


class Replica:
    """Synchronizes one folder with one daemon. `observer` is called before each write of a text
    from the daemon.
    """

    def __init__(
        self,
        folder: Folder,
        ledger: SyncLedger,
        link: RequestChannel,
        *,
        absence: Absence | None = None,
        observer: WriteObserver | None = None,
        records: Deposit | None = None,
        own_addresses: Sequence[str] = (),
        seen: Seen | None = None,
    ) -> None:
        """`absence` is the rule for missing files, `records` uploads the records of sealed
        credentials, `own_addresses` are those that the user commits with (`Commits`), `seen` is
        asked about each note that a user saves.
        """
        self.folder = folder
        self.absence = absence or Absence(folder, ledger)
        self._records = records
        self._ledger = ledger
        self._link = RetryingLink(link)
        self._files = LocalFiles(folder, ledger, self.absence, observer=observer)
        self._transfer = FileTransfer(self._files, self._link, records, own_addresses, seen)
        self._missing = MissingFiles(self._files, self._transfer)
        self._steps = Steps()
        self._compared_as: str | None = None

    @property
    def ledger(self) -> SyncLedger:
        """Return the folder's ledger, which records the files that the daemon has confirmed."""
        return self._ledger

    @property
    def is_sealed_otherwise(self) -> bool:
        """Return True if some files may have to be sealed in another way than at the last
        comparison.
        """
        return self._compared_as not in (None, self.folder.mark)

    async def compare(
        self,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
        is_patient: bool = False,
        meant: Meant = (),
    ) -> SyncReport:
        """Compare all files of the folder with the daemon's documents, and exchange those that
        differ.

        Args:
            force: True to read every file, even if it looks unchanged.
            progress: called with (files done, files in total).
            is_patient: True if the caller watches the folder. A possible loss is then only checked
                again later (`SyncReport.is_held`).
            meant: the files whose deletion a user has confirmed, because they are missing, or went
                missing and were restored.

        Raises FolderError if the folder does not exist or contains too many files, and
        RequestError, ConnectionLost or TimeoutError if the daemon cannot be reached.
        """
        report = SyncReport()
        await self._files.git_is_done()
        others = await self._missing.restart_if_replaced()
        if meant is None or meant:
            await self._missing.delete_again(meant)
        comparison = await self._scan(report, force=force, is_patient=is_patient, meant=meant)
        await self._digest(comparison)
        answer = await self._compare(comparison)
        await self._adopt(comparison, answer, report)
        await self._exchange(comparison, answer, report, progress)
        report.is_held |= is_patient and bool(comparison.verdict.waiting)
        await through(self._missing.note_looked, comparison.verdict, others)
        await through(self.absence.notice.note_refused, report.refusals)
        return report

    async def _scan(self, report: SyncReport, *, force: bool, is_patient: bool, meant: Meant) -> _Comparison:
        """Read the files of the folder, compare them with the ledger, and decide about missing
        ones.
        """
        self._compared_as = self.folder.mark
        for path in await asyncio.to_thread(self._ledger.unfinished_files):
            async with self._files.paths.hold(path):
                await through(self._files.confirmed_state, path)
        await self._remove_unanswered(report, is_patient=is_patient, meant=meant)
        # The ledger first: a file that another session writes and confirms in between must not look
        # deleted.
        confirmed, listing = await asyncio.to_thread(lambda: (self._ledger.all(), self.folder.look()))
        found = listing.found
        report.skipped += [{"path": path, "reason": why} for path, why in listing.passed_by]
        for path, why in listing.unread.items():
            if is_of_memory(path):
                report.refuse(path, why)
            else:
                report.skipped.append({"path": path, "reason": why})
        report.skipped += [{"path": FILE, "reason": notice} for notice in self.folder.narrowing.notices()]
        report.files_scanned = len(found)
        scanned = await asyncio.to_thread(scan, self.folder, found, self._ledger, confirmed, force, report)
        if force and scanned.secrets and self._records is not None:
            # Even if the texts are equal: the daemon may have lost the records only, with the vault
            # that stored them.
            await self._records.keep_of_file(self._link, str(self.folder.root), scanned.secrets)
        present = {path for path, _, _ in scanned.entries}
        skipped = {item["path"] for item in report.skipped}
        missing = [path for path in confirmed if path not in present and path not in skipped]
        verdict = await self._missing.judge(missing, is_patient, meant)
        return _Comparison(
            confirmed,
            verdict,
            scanned.unsettled,
            present,
            # A text stored in clear may have been sealed in place: the same revision with another
            # text than was confirmed.
            [entry for entry in scanned.entries if entry[2] and not confirmed[entry[0]].matches(entry[1])],
            scanned.entries,
            [path for path in missing if path in verdict.deleted],
        )

    async def _remove_unanswered(self, report: SyncReport, *, is_patient: bool, meant: Meant) -> None:
        """Report files that were deleted after a text of theirs was sent without a response: the
        field `gone` cannot express these.
        """
        unanswered = await asyncio.to_thread(self._ledger.unanswered_files)
        missing = [path for path in unanswered if self.folder.is_watched(path)]
        deleted = (await self._missing.judge(missing, is_patient, meant)).deleted
        await self._steps.run(
            [(path, partial(self._transfer.send, is_deleted=True)) for path in sorted(deleted)], report
        )

    async def _digest(self, comparison: _Comparison) -> None:
        """Reduce a comparison of many files to the buckets that differ between both sides."""
        if len(comparison.entries) < _DIGEST_FROM:
            return
        body: DigestRequest = {
            "project": self.folder.project,
            "digests": await asyncio.to_thread(digests, comparison.entries),
        }
        answer = await DIGEST.ask(self._link, body, timeout_s=_COMPARE_DEADLINE_S, bulk=True)
        buckets = comparison.buckets = answer["differ"]
        for path in comparison.deleted:
            if bucket_of(path) not in buckets:  # the daemon has it deleted as well
                await self._files.forget(path, comparison.confirmed[path])
        comparison.deleted = [path for path in comparison.deleted if bucket_of(path) in buckets]
        comparison.entries = [entry for entry in comparison.entries if bucket_of(entry[0]) in buckets]

    async def _compare(self, comparison: _Comparison) -> CompareAnswer:
        """Send the comparison request for the remaining files; return an empty response if no
        bucket differs.
        """
        buckets, deleted, confirmed = comparison.buckets, comparison.deleted, comparison.confirmed
        if buckets is not None and not buckets:
            return {"send": [], "adopt": [], "pull": [], "drop": [], "forgotten": [], "denied": []}
        body: CompareRequest = {
            "project": self.folder.project,
            "entries": comparison.entries,
            "gone": [(path, confirmed[path].revision) for path in deleted],
            "goneHashes": [confirmed[path].hash for path in deleted],
        }
        if buckets is not None:
            body["buckets"] = buckets
        # If a file is created again before the response, that is an edit, as in `_remove`.
        await through(self._note_gone, deleted)
        answer = await COMPARE.ask(self._link, body, timeout_s=_COMPARE_DEADLINE_S, bulk=True)
        waiting = comparison.verdict.waiting
        return {**answer, "pull": [item for item in answer["pull"] if item[0] not in waiting]}

    def _note_gone(self, paths: list[str]) -> None:
        for path in paths:
            self._ledger.note_sent(path, REMOVED)

    async def _adopt(self, comparison: _Comparison, answer: CompareAnswer, report: SyncReport) -> None:
        """Record in the ledger the files that the response confirms, and report those that the
        daemon lost or brings back.
        """
        confirmed, deleted = comparison.confirmed, set(comparison.deleted)
        forgotten = frozenset(answer["forgotten"]) & comparison.present
        report.skipped += [{"path": path, "reason": FORGOTTEN} for path in sorted(forgotten)]
        denied = frozenset(answer["denied"]) & comparison.present
        report.skipped += [{"path": path, "reason": DENIED} for path in sorted(denied)]
        for path in forgotten & confirmed.keys():
            await self._files.forget(path, confirmed[path])
        await through(self._ledger.note_forgotten, forgotten)
        hashes = comparison.hashes
        lost = [path for path in answer["send"] if path in hashes and path in confirmed]
        report.again += [path for path in lost if confirmed[path].matches(hashes[path])]
        report.came_back += await asyncio.to_thread(self._missing.come_back, answer["pull"], comparison.present)
        await self._files.adopt(answer["adopt"], comparison.entries)
        await self._agree(comparison.sealed, answer)
        pulled, gone = {path for path, *_ in answer["pull"]}, dict(answer["drop"])
        for path in deleted - pulled:
            await self._files.forget(path, confirmed[path], gone.get(path, 0))
            report.remove(path)
        for path in deleted & pulled:
            await self._files.keep(path, confirmed[path])

    async def _agree(self, entries: list[tuple[str, str, int]], answer: CompareAnswer) -> None:
        """Record the entries that the response does not mention: the daemon has them with the same
        text.
        """
        named = {path for path, *_ in (*answer["adopt"], *answer["pull"], *answer["drop"])}
        named.update(answer["send"], answer["denied"])
        same = [entry for entry in entries if entry[0] not in named]
        await self._files.adopt([(path, base) for path, _, base in same], same)

    async def _exchange(
        self,
        comparison: _Comparison,
        answer: CompareAnswer,
        report: SyncReport,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Send, fetch and delete the files in the response, then send the unsettled ones."""
        confirmed, told = comparison.confirmed, comparison.hashes
        steps: list[tuple[str, Step]] = [(path, self._transfer.send_asked) for path in answer["send"]]
        for path, *_ in answer["pull"]:
            steps.append((path, partial(self._transfer.pull, before=confirmed.get(path), told=told.get(path))))
        for path, revision in answer["drop"]:
            drop = partial(self._transfer.drop, revision=revision, before=confirmed.get(path), told=told.get(path))
            steps.append((path, drop))
        if len(steps) > 2 * MAX_FILES:
            raise FolderError("the daemon's answer", f"names more than {2 * MAX_FILES:,} files")
        await self._steps.run(steps, report, progress)
        self._transfer.is_compared = True
        settled = {*answer["send"], *answer["denied"]}
        unsettled = [path for path in comparison.unsettled if path not in settled]
        await self._steps.run([(path, self._transfer.send) for path in unsettled], report)

    async def send_changes(self, paths: Iterable[str]) -> SyncReport:
        """Compare only these paths with the daemon, after a watcher has reported that they changed."""
        await self._files.git_is_done()
        if await asyncio.to_thread(self.absence.is_another):
            return await self.compare(is_patient=True)
        report = SyncReport()
        watched = [path for path in sorted(set(paths)) if self.folder.is_watched(path)]
        report.files_scanned = len(watched)
        missing = await asyncio.to_thread(lambda: list(filter(self.folder.is_missing, watched)))
        verdict = await self._missing.judge(missing, is_patient=True)
        report.is_held = bool(verdict.kept_files)
        watched = [path for path in watched if path not in verdict.kept_files]
        spelled = Counter(path.casefold() for path in watched)
        twins = [path for path in watched if spelled[path.casefold()] > 1]
        for path in sorted(twins, key=lambda path: not self.folder.is_missing(path)):
            # The old name of a case-only rename first: a device with a case-insensitive disk has
            # room for one of them.
            await self._steps.run([(path, partial(self._transfer.send, is_deleted=path in verdict.deleted))], report)
        others = [path for path in watched if path not in twins]
        await self._steps.run(
            [(path, partial(self._transfer.send, is_deleted=path in verdict.deleted)) for path in others], report
        )
        if not report.is_held:
            await through(self.absence.note_commits)
        return report

    async def flush(self, path: str) -> None:
        """Send one file if it has changed. If it is missing, do nothing: an editor may be about to
        replace it, and the watcher will report it.
        """
        if self.folder.is_watched(path) and not await asyncio.to_thread(self.folder.is_missing, path):
            await self._steps.run([(path, self._transfer.send)], SyncReport())

    async def apply(self, body: dict[str, Any]) -> dict[str, object]:
        """Write a revision that the daemon sends, as `FileTransfer.apply` does."""
        return await self._transfer.apply(body)

    async def take_back(self) -> None:
        """Undo deletions that were reported just before a loss, as `MissingFiles.take_back` does."""
        await self._missing.take_back()

    def lacking(self) -> Lacking:
        """Return the files that the daemon lacks, as `LocalFiles.lacking` does."""
        return self._files.lacking()

    def pending(self) -> int:
        """Return the number of files whose text the daemon has not confirmed. Blocks briefly; reads
        files that may have changed.
        """
        return len(self.lacking().waiting)
