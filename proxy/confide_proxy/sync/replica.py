"""Sync of one folder with the daemon's documents.

Sync compares states: both sides compare (path, hash, revision) and exchange what differs; file
events only make it prompt. Every step is idempotent, so a lost event, a crash or a replay costs
nothing. The daemon decides what becomes of an edit of an old revision, since it has the base
revision; this side never overwrites a text that the daemon has not seen.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_memory.classes import OWNER, UNTRUSTED
from confide_memory.documents import REMOVED, RequestChannel, bucket_of, digests, is_in_memory, text_hash
from confide_memory.wire.files import (
    COMPARE,
    DIGEST,
    PULL,
    PUT,
    REMOVE,
    CompareAnswer,
    CompareRequest,
    DigestRequest,
    PullRequest,
    PutRequest,
    RemoveRequest,
    Upon,
)
from confide_proxy.errors import ChangedMeanwhileError, FolderError
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.sealing.context import Deposit
from confide_proxy.sync.absence.rule import Absence, Verdict
from confide_proxy.sync.commits import Commits
from confide_proxy.sync.folder import MAX_FILES, Content, Folder, ScannedFile
from confide_proxy.sync.ledger import (
    UNREAD,
    Confirmed,
    SyncLedger,
    SyncReport,
    Writing,
    check_sendable,
    confirmed_as,
    is_confirmed,
    is_in_clear,
    is_less,
    note_touched,
    path_locks,
    readable,
    scan,
)
from confide_proxy.sync.steps import Step, Steps, through
from confide_proxy.sync.walk import FILE

_PUT_DEADLINE_S = 60.0
_PUT_BYTES_S = 30_000
"""Bytes per second by which the deadline of a large file grows: the daemon indexes it before it
responds, possibly after others.
"""
_COMPARE_DEADLINE_S = 60.0
_DIGEST_FROM = 50
"""Number of files from which a comparison starts with digests; fewer files fit into one record."""
_SET_BACK = "is older here, since git has another commit checked out: it is neither sent nor written until that changes"
_BUSY_S = 5.0
"""Longest time in seconds to wait for git while it changes the folder."""
_TRIES = 16
"""Attempts to read a file that keeps changing; then it is left to the next comparison."""

_BEING_SAVED_S = 0.06
"""Seconds without a change after which a file counts as completely saved; a program that saves in
parts is faster.
"""
_LONGEST_SAVE_S = 0.5

ELSEWHERE: Final = "is not a memory file on this device"
FORGOTTEN: Final = "was erased, and is not sent"
"""Reason for skipping an erased file, the same each time: commands report all such files together.
"""


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
    """Sync of one folder with one daemon. `before_write` is called with the folder before each
    write of a text from the daemon.
    """

    def __init__(
        self,
        folder: Folder,
        ledger: SyncLedger,
        link: RequestChannel,
        *,
        before_write: Callable[[Folder], Awaitable[None]] | None = None,
        records: Deposit | None = None,
    ) -> None:
        """`records` uploads the records of sealed credentials."""
        self.folder = folder
        self._records = records
        self._ledger = ledger
        self._link = RetryingLink(link)
        self._before_write = before_write
        self._paths = path_locks(ledger.locks)
        self._steps = Steps()
        self.absence = Absence(folder, ledger)
        self._commits = Commits()
        self._compared_as: str | None = None
        self._is_compared = False  # over this connection: until then the daemon may not have what it once confirmed

    async def compare(
        self,
        *,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
        is_patient: bool = False,
        is_meant: bool = False,
    ) -> SyncReport:
        """Bring folder and daemon to the same state.

        Args:
            force: read every file, even if it looks unchanged.
            is_patient: the caller watches the folder: a possible loss is only checked again later
                (`SyncReport.is_held`).
            is_meant: a user confirmed that all files which are missing, or went missing and came
                back, are deleted.

        Raises FolderError: the folder does not exist, or has too many files; RequestError,
        ConnectionLost, TimeoutError: from the link.
        """
        report = SyncReport()
        await self._git_is_done()
        others = await self._restart_if_replaced()
        if is_meant:
            await self._delete_again()
        comparison = await self._scan(report, force=force, is_patient=is_patient, is_meant=is_meant)
        await self._digest(comparison)
        answer = await self._ask(comparison)
        await self._adopt(comparison, answer, report)
        await self._exchange(comparison, answer, report, progress)
        report.is_held |= is_patient and bool(comparison.verdict.waiting)
        await through(self._note_looked, comparison.verdict, others)
        return report

    async def _scan(self, report: SyncReport, *, force: bool, is_patient: bool, is_meant: bool) -> _Comparison:
        """Read the files of the folder, compare them with the ledger, and decide about missing
        ones.
        """
        self._compared_as = self.folder.mark
        for path in await asyncio.to_thread(self._ledger.unfinished):
            async with self._paths.held(path):
                await through(self._known, path)
        await self._remove_unanswered(report, is_patient=is_patient, is_meant=is_meant)
        # The ledger first: a file that another session writes and confirms in between must not look
        # deleted.
        confirmed, found = await asyncio.to_thread(lambda: (self._ledger.all(), list(self.folder.walk())))
        passed_by = await asyncio.to_thread(self.folder.passed_by)
        report.skipped += [{"path": path, "reason": why} for path, why in passed_by]
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
        verdict = await self._judged(missing, is_patient, is_meant)
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
                await self._forget(path, comparison.confirmed[path])
        comparison.deleted = [path for path in comparison.deleted if bucket_of(path) in buckets]
        comparison.entries = [entry for entry in comparison.entries if bucket_of(entry[0]) in buckets]

    async def _ask(self, comparison: _Comparison) -> CompareAnswer:
        """Send the comparison request for the remaining files; return an empty response if no
        bucket differs.
        """
        buckets, deleted, confirmed = comparison.buckets, comparison.deleted, comparison.confirmed
        if buckets is not None and not buckets:
            return {"send": [], "adopt": [], "pull": [], "drop": [], "forgotten": []}
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

    async def _adopt(self, comparison: _Comparison, answer: CompareAnswer, report: SyncReport) -> None:
        """Record in the ledger the files that the response confirms, and report those that the
        daemon lost or brings back.
        """
        confirmed, deleted = comparison.confirmed, set(comparison.deleted)
        forgotten = frozenset(answer["forgotten"]) & comparison.present
        report.skipped += [{"path": path, "reason": FORGOTTEN} for path in sorted(forgotten)]
        for path in forgotten & confirmed.keys():
            await self._forget(path, confirmed[path])
        await through(self._ledger.note_forgotten, forgotten)
        hashes = comparison.hashes
        lost = [path for path in answer["send"] if path in hashes and path in confirmed]
        report.again += [path for path in lost if confirmed[path].matches(hashes[path])]
        report.came_back += await asyncio.to_thread(self._come_back, answer["pull"], comparison.present)
        await self._adopt_all(answer["adopt"], comparison.entries)
        await self._agree(comparison.sealed, answer)
        pulled, gone = {path for path, *_ in answer["pull"]}, dict(answer["drop"])
        for path in deleted - pulled:
            await self._forget(path, confirmed[path], gone.get(path, 0))
            report.remove(path)
        for path in deleted & pulled:
            await self._keep(path, confirmed[path])

    async def _git_is_done(self) -> None:
        """Wait while git changes the folder: it writes the files first and `HEAD` last."""
        end = asyncio.get_running_loop().time() + _BUSY_S
        while await asyncio.to_thread(self.absence.is_busy) and asyncio.get_running_loop().time() < end:
            await _moment()

    async def _restart_if_replaced(self) -> dict[str, str]:
        """Clear the ledger if another folder has the path now. Return the confirmed hashes, by
        path, of the files that the new one lacks.
        """
        if not await asyncio.to_thread(self.absence.is_another):
            return {}
        await self._take_back()
        self._is_compared = False
        return await through(self.absence.restart)

    async def _judged(self, missing: Collection[str], is_patient: bool, is_meant: bool = False) -> Verdict:
        """Decide about missing files; undo reported deletions after a loss. Raises FolderError: the
        folder does not exist.
        """
        if not missing:
            return Verdict()
        try:
            verdict = await asyncio.to_thread(self.absence.judge, missing, is_patient=is_patient, is_meant=is_meant)
        except FolderError:
            await self._take_back()
            raise
        if verdict.is_loss:
            await self._take_back()
        return verdict

    def _note_looked(self, verdict: Verdict, others: dict[str, str]) -> None:
        confirmed, notice = self._ledger.all(), self.absence.notice
        kept = {path: confirmed[path].hash for path in verdict.kept if path in confirmed}
        back = {path: digest for path, digest in others.items() if path in confirmed}
        why = verdict.why or "the folder is another one than before, such as a new clone"
        if kept and verdict.why:
            notice.note_missing(kept, of=len(confirmed), why=why, is_waiting=bool(verdict.waiting))
        elif back:
            notice.note_missing(back, of=len(confirmed), why=why, is_waiting=False)
        elif not verdict.waiting:
            notice.note_found()
        self.absence.note_looked(verdict.waiting)

    async def _delete_again(self) -> None:
        """Delete the files that went missing and came back, unless they were changed since."""
        for path, digest in (await asyncio.to_thread(self.absence.notice.missing)).items():
            if not self.folder.is_memory(path):
                continue
            async with self._paths.held(path):
                local = await asyncio.to_thread(readable, self.folder, path, SyncReport())
                known = await asyncio.to_thread(self._ledger.get, path)
                if local is not None and known is not None and known.matches(local.hash) and known.hash == digest:
                    with suppress(FolderError):
                        await through(partial(self.folder.delete, path, over=local))
        await asyncio.to_thread(self.absence.notice.clear)

    async def take_back(self) -> None:
        """Undo the deletions that were reported just before the folder disappeared, since they are
        part of that.
        """
        if not await asyncio.to_thread(self.folder.root.is_dir):
            await self._take_back()

    async def _take_back(self) -> None:
        """Make the daemon restore documents whose deletion was reported shortly before a loss,
        unless they were created again since.
        """
        for told in self.absence.take_reported_deletions():
            async with self._paths.held(told.path):
                text = await self._text_of(told.path, told.known.revision, told.known.hash)
                is_there = await asyncio.to_thread(self._ledger.get, told.path) or await self._is_alive(told.path)
                if text is None or is_there:
                    continue
                body: PutRequest = {
                    "project": self.folder.project,
                    "path": told.path,
                    "text": text,
                    "hash": told.known.hash,
                    "base": told.revision,
                    "baseHash": REMOVED,
                }
                answer = await PUT.ask(self._link, body, timeout_s=_PUT_DEADLINE_S)
                if answer["text"] is None:
                    await through(self._ledger.set, told.path, told.known._replace(revision=answer["revision"]))

    async def _is_alive(self, path: str) -> bool:
        try:
            await PULL.ask(
                self._link, {"project": self.folder.project, "path": path}, timeout_s=_PUT_DEADLINE_S, bulk=True
            )
        except RequestError as error:
            if error.code != "not_found":
                raise
            return False
        return True

    async def _remove_unanswered(self, report: SyncReport, *, is_patient: bool, is_meant: bool) -> None:
        """Report files that were deleted after a text of theirs was sent without a response: the
        field `gone` cannot express these.
        """
        unanswered = await asyncio.to_thread(self._ledger.unanswered)
        missing = [path for path in unanswered if self.folder.is_watched(path)]
        deleted = (await self._judged(missing, is_patient, is_meant)).deleted
        await self._steps.run([(path, partial(self._send, is_deleted=True)) for path in sorted(deleted)], report)

    def _come_back(self, pulled: list[tuple[str, int, str]], present: set[str]) -> list[str]:
        """Return the paths that were deleted on both sides, but that the daemon has with a revision
        not newer than the deletion.
        """
        removed = [(path, self._ledger.gone_at(path), revision) for path, revision, _ in pulled if path not in present]
        return [path for path, at, revision in removed if at is not None and (at >= revision or not at)]

    @property
    def ledger(self) -> SyncLedger:
        """Return the ledger of the folder."""
        return self._ledger

    @property
    def is_sealed_otherwise(self) -> bool:
        """Return True if some files may be sealed differently now than at the last comparison."""
        return self._compared_as not in (None, self.folder.mark)

    async def _agree(self, entries: list[tuple[str, str, int]], answer: CompareAnswer) -> None:
        """Record the entries that the response does not mention: the daemon has them with the same
        text.
        """
        named = {path for path, *_ in (*answer["adopt"], *answer["pull"], *answer["drop"])}
        named.update(answer["send"])
        same = [entry for entry in entries if entry[0] not in named]
        await self._adopt_all([(path, base) for path, _, base in same], same)

    def _note_gone(self, paths: list[str]) -> None:
        for path in paths:
            self._ledger.note_sent(path, REMOVED)

    async def _forget(self, path: str, was: Confirmed, revision: int = 0) -> None:
        async with self._paths.held(path):
            # Unless another process has written and confirmed it meanwhile.
            if await asyncio.to_thread(self._ledger.get, path) == was:
                await through(self._ledger.forget, path, revision)

    async def _keep(self, path: str, was: Confirmed) -> None:
        """Record that the daemon keeps a document whose deletion was reported, unless a text was
        sent since.
        """
        async with self._paths.held(path):
            if await asyncio.to_thread(lambda: (self._ledger.get(path), self._ledger.sent(path)) == (was, (REMOVED,))):
                await through(self._ledger.set, path, was)

    def pending(self) -> int:
        """Return the number of files whose text the daemon has not confirmed. Blocks briefly; reads
        those that look changed.
        """
        return len(self.waiting())

    def waiting(self) -> list[str]:
        """Return the paths of files whose text the daemon has not confirmed. Blocks; reads those
        that look changed. Raises FolderError: the folder has too many files.
        """
        confirmed, forgotten = self._ledger.all(), self._ledger.forgotten()
        return [
            file.path
            for file in self.folder.walk()
            if file.path not in forgotten and self._is_pending(file, confirmed.get(file.path))
        ]

    def _is_pending(self, file: ScannedFile, known: Confirmed | None) -> bool:
        """Return True if the daemon has not confirmed the file's text, and git has not set it back."""
        if known is None or self._ledger.sent(file.path):
            return True
        if known.looks_like(file.size, file.mtime_ns, self.folder.mark):
            return False
        content = readable(self.folder, file.path, SyncReport())
        if content is None or not known.matches(content.hash):
            return not self.absence.is_set_back(file.path)
        note_touched(self._ledger, file.path, known, content)
        return False

    async def flush(self, path: str) -> None:
        """Send one file if it has changed. A missing file is left to the watcher: an editor may be
        about to replace it.
        """
        if self.folder.is_watched(path) and not await asyncio.to_thread(self.folder.is_missing, path):
            await self._steps.run([(path, self._send)], SyncReport())

    async def changed(self, paths: Iterable[str]) -> SyncReport:
        """Send the changes that a watcher saw: a comparison of these paths only."""
        await self._git_is_done()
        if await asyncio.to_thread(self.absence.is_another):
            return await self.compare(is_patient=True)
        report = SyncReport()
        watched = [path for path in sorted(set(paths)) if self.folder.is_watched(path)]
        report.files_scanned = len(watched)
        missing = await asyncio.to_thread(lambda: list(filter(self.folder.is_missing, watched)))
        verdict = await self._judged(missing, is_patient=True)
        report.is_held = bool(verdict.kept)
        watched = [path for path in watched if path not in verdict.kept]
        spelled = Counter(path.casefold() for path in watched)
        twins = [path for path in watched if spelled[path.casefold()] > 1]
        for path in sorted(twins, key=lambda path: not self.folder.is_missing(path)):
            # The old name of a case-only rename first: a device with a case-insensitive disk has
            # room for one of them.
            await self._steps.run([(path, partial(self._send, is_deleted=path in verdict.deleted))], report)
        others = [path for path in watched if path not in twins]
        await self._steps.run(
            [(path, partial(self._send, is_deleted=path in verdict.deleted)) for path in others], report
        )
        if not report.is_held:
            await through(self.absence.note_commits)
        return report

    async def apply(self, body: dict[str, Any]) -> dict[str, object]:
        """Write a revision from the daemon (`apply`), unless the file has a text that the daemon
        has not seen.

        Raises FolderError: the path may not be written here, or the disk fails.
        """
        path, text, revision = str(body["path"]), body["text"], int(body["revision"])
        if not self.folder.is_memory(path):
            raise FolderError("the daemon's path", self.folder.why_not(path))
        async with self._paths.held(path):
            for _ in range(_TRIES):
                # Read once for all decisions: a comparison may end in between, and a superseded
                # revision would count as older.
                is_compared = self._is_compared
                local = await self._whole(path, partial(self.folder.read, path))
                known = await through(self._known, path)
                if await asyncio.to_thread(self._ledger.writing, path) is not None:
                    # Finding the base of this edit takes a request, which the next comparison or
                    # file event makes.
                    raise FolderError(path, "is one that a process wrote when it ended, and was changed since")
                if await asyncio.to_thread(self._is_passed, body, local, known, is_compared=is_compared):
                    return {"applied": True}
                is_agreed = known.matches(local.hash) if known and local else known is None and local is None
                if not is_agreed and await asyncio.to_thread(self.absence.is_set_back, path):
                    raise FolderError(path, _SET_BACK)
                sent = await asyncio.to_thread(self._ledger.sent, path)
                # A confirmed text is in the daemon's history, so it may be replaced even if the
                # daemon used another base. Unless the daemon was restored from an older copy since:
                # then this file may be the only copy.
                ours = (body["hash"], body["baseHash"])
                # A late revision, whose base text a newer one has again, would pass for its
                # successor.
                is_late = known is not None and known.revision > revision and not sent
                if local is not None and not (
                    local.hash == body["hash"]
                    or (local.hash == body["baseHash"] and (not sent or local.hash == sent[-1]) and not is_late)
                    or (
                        is_confirmed(known, local, sent)
                        and (is_compared or (known is not None and known.hash in ours and not is_late))
                    )
                ):
                    check_sendable(self.folder, path, known, local)
                    await self._deposit(path, local)
                    said = await asyncio.to_thread(self._said, path, known)
                    if not is_confirmed(known, local, sent):  # a confirmed text is no news to the daemon
                        await through(self._ledger.note_sent, path, local.hash)
                    return {"applied": False, "hash": local.hash, "text": local.text, **said}
                try:
                    await self._write(path, text, revision, local)
                except ChangedMeanwhileError:
                    continue  # a user has just saved it: decide again by its new text
                return {"applied": True}
            raise ChangedMeanwhileError(path)

    def _is_passed(
        self, body: dict[str, Any], local: Content | None, known: Confirmed | None, *, is_compared: bool
    ) -> bool:
        """Return True if this device has confirmed a newer revision already, over another
        connection or earlier.
        """
        revision = int(body["revision"])
        path = str(body["path"])
        if local is None:
            # A confirmed file that does not exist was deleted by a user, which is still to be
            # reported.
            is_had = known is not None and (known.revision > revision or known.hash == body["hash"])
            return self._ledger.removed_at(path) > revision or is_had or body["hash"] in self._ledger.sent(path)
        return is_compared and known is not None and known.revision > revision and known.matches(local.hash)

    async def _exchange(
        self,
        comparison: _Comparison,
        answer: CompareAnswer,
        report: SyncReport,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        """Send, fetch and delete the files in the response, then send the unsettled ones."""
        confirmed, told = comparison.confirmed, comparison.hashes
        steps: list[tuple[str, Step]] = [(path, self._send_asked) for path in answer["send"]]
        for path, *_ in answer["pull"]:
            steps.append((path, partial(self._pull, before=confirmed.get(path), told=told.get(path))))
        for path, revision in answer["drop"]:
            drop = partial(self._drop, revision=revision, before=confirmed.get(path), told=told.get(path))
            steps.append((path, drop))
        if len(steps) > 2 * MAX_FILES:
            raise FolderError("the daemon's answer", f"names more than {2 * MAX_FILES:,} files")
        await self._steps.run(steps, report, progress)
        self._is_compared = True
        unsettled = [path for path in comparison.unsettled if path not in answer["send"]]
        await self._steps.run([(path, self._send) for path in unsettled], report)

    async def _adopt_all(self, adopted: list[tuple[str, int]], entries: list[tuple[str, str, int]]) -> None:
        """Record the revisions under which the daemon has files, as they were when they were
        compared.
        """
        were = {path: (digest, base) for path, digest, base in entries}
        for path, revision in {path: revision for path, revision in adopted if path in were}.items():
            async with self._paths.held(path):
                await through(self._adopt_one, path, revision, *were[path])

    def _adopt_one(self, path: str, revision: int, digest: str, base: int) -> None:
        content = readable(self.folder, path, SyncReport())
        known = self._known(path)
        if (known.revision if known else 0) != base:
            return  # confirmed with another revision since
        if content and content.hash == digest:
            self._ledger.set(path, confirmed_as(content, content.hash, revision))
        elif content and known and known.hash == digest and known.matches(content.hash):
            self._ledger.set(path, known._replace(revision=revision))

    async def _send(self, path: str, report: SyncReport, *, is_asked: bool = False, is_deleted: bool = False) -> None:
        """Send a file if it has changed, or with `is_asked` also if the daemon lacks it, as after a
        restore or damage.

        `is_deleted`: if it is missing, a user deleted it; otherwise this is decided here.
        """
        if path in await asyncio.to_thread(self._ledger.forgotten):
            return
        async with self._paths.held(path):
            skipped = len(report.skipped)
            for _ in range(_TRIES):
                content = await self._whole(path, partial(readable, self.folder, path, report))
                known = await self._settled(path, content)
                sent = await asyncio.to_thread(self._ledger.sent, path)
                is_due = content is not None and not is_confirmed(known, content, sent)
                if content is None or not is_due:
                    break
                check_sendable(self.folder, path, known, content)
                if await self._waits_for_git(path, content, known):
                    raise FolderError(path, _SET_BACK)
                # Git's facts may be about another text than was read, since a checkout replaces
                # files in between.
                if await asyncio.to_thread(self.folder.is_still, path, content):
                    break
            if content is not None and (is_due or (is_asked and not is_less(known, content))):
                if not is_due:
                    check_sendable(self.folder, path, known, content)
                await self._put(path, content, known)
                report.sent += 1
            elif content is not None and known is not None:
                if is_in_clear(self.folder, path, content):
                    await self._deposit(path, content)
                    await self._confirm(path, content, known.revision)
                else:
                    await through(note_touched, self._ledger, path, known, content)
            elif (known is not None or sent) and len(report.skipped) == skipped and self.folder.is_missing(path):
                if not is_deleted:
                    judged = await asyncio.to_thread(self.absence.judge, [path], is_patient=True)
                    is_deleted = path in judged.deleted
                if is_deleted:
                    await self._remove(path, known, report)
                else:
                    report.is_held = True

    async def _waits_for_git(self, path: str, content: Content, known: Confirmed | None) -> bool:
        """Return True if git has set the file back to an earlier revision of the document; any
        other text, such as a branch's own, is an edit.
        """
        if not await asyncio.to_thread(self.absence.is_set_back, path):
            return False
        found = await self._revision_with(path, content.hash)
        return found > 0 and (known is None or found < known.revision)

    async def _revision_with(self, path: str, digest: str) -> int:
        """Return the newest revision of a document with this text; 0 if none has it, or the daemon
        does not support the query.
        """
        body: PullRequest = {"project": self.folder.project, "path": path, "hash": digest}
        try:
            answer = await PULL.ask(self._link, body, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return 0
        return answer["revision"] if answer["hash"] == digest else 0

    async def _send_asked(self, path: str, report: SyncReport) -> None:
        """Send a file that a comparison requested. If it was removed since (as by a rename) and is
        not confirmed, fetch the daemon's.
        """
        await self._send(path, report, is_asked=True)
        known = await asyncio.to_thread(self._ledger.get, path)
        if known is None and await asyncio.to_thread(self.folder.is_missing, path):
            try:
                await self._pull(path, report, before=None, told=None)
            except RequestError as error:
                if error.code != "not_found":
                    raise

    async def _put(self, path: str, content: Content, known: Confirmed | None) -> None:
        said = await asyncio.to_thread(self._said, path, known)
        if (base := await self._base_by_git(path, known)) is not None:
            said = {**said, **base}
        params: PutRequest = {
            "project": self.folder.project,
            "path": path,
            "text": content.text,
            "hash": content.hash,
            **said,
            "class": OWNER,
        }
        if await asyncio.to_thread(self.folder.narrowing.own_notes.has, path):
            params["class"] = UNTRUSTED  # an agent's own note may repeat a web page
        elif await asyncio.to_thread(self._commits.has_a_strangers, self._place(path), content):
            params["class"] = UNTRUSTED  # it came with a clone and was not changed here
        deadline_s = _PUT_DEADLINE_S + content.size / _PUT_BYTES_S
        await self._deposit(path, content)
        await through(self._ledger.note_sent, path, content.hash)
        answer = await PUT.ask(self._link, params, timeout_s=deadline_s)
        merged = answer["text"]
        if merged is not None:
            if not self.folder.is_memory(path):
                return  # read only here: the next edit is merged again, with this text as its base
            local = await asyncio.to_thread(self.folder.read, path)
            if local is None or local.hash == content.hash:
                await self._write(path, merged, answer["revision"], local)
            # Otherwise it was edited again meanwhile: the base of that edit is the sent text, as
            # the ledger records, and the next event sends it to be merged.
            return
        await self._confirm(path, content, answer["revision"])

    async def _base_by_git(self, path: str, known: Confirmed | None) -> Upon | None:
        """Return the base of an edit that a user made to a text which git had set back; None if the
        confirmed state is the base.
        """
        text = await asyncio.to_thread(self.absence.made_from, path)
        digest = text_hash(text) if text is not None else ""
        if not digest or (known and known.hash == digest):
            return None
        found = await self._revision_with(path, digest)
        return {"base": found, "baseHash": digest} if found else None

    def _place(self, path: str) -> Path:
        return self.folder.root / self.folder.spelled(path)

    async def _confirm(self, path: str, content: Content, revision: int) -> None:
        """Record that the daemon has the file's text, and replace credentials in the file by
        placeholders if the user has configured that.
        """
        stored = content
        if is_in_clear(self.folder, path, content):
            with suppress(ChangedMeanwhileError):  # an edit, sent like every other one
                stored = await through(partial(self.folder.write, path, content.text, over=content))
        await through(self._ledger.set, path, confirmed_as(stored, content.hash, revision))

    async def _deposit(self, path: str, content: Content) -> None:
        """Upload the records of the credentials in a text, before the text itself. Raises as
        `Deposit.keep_of_file`.
        """
        if self._records is not None and content.secrets:
            await self._records.keep_of_file(self._link, path, content.secrets)

    async def _remove(self, path: str, known: Confirmed | None, report: SyncReport) -> None:
        said = await asyncio.to_thread(self._said, path, known)
        params: RemoveRequest = {"project": self.folder.project, "path": path, **said}
        # If the file is created again before the response, with its old text, that is an edit of a
        # document that may be deleted.
        await through(self._ledger.note_sent, path, REMOVED)
        try:
            answer = await REMOVE.ask(self._link, params, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found" or known is not None:
                raise
            await through(self._ledger.forget, path)  # the daemon never had it
            return
        newer = answer["text"]
        if newer is not None and self.folder.is_memory(path):
            await self._write(path, newer, answer["revision"], None)
            report.pulled += 1
            return
        await through(self._ledger.forget, path, answer["revision"])
        if known is not None:
            self.absence.note_told(path, known, answer["revision"])
        report.remove(path)

    async def _pull(self, path: str, report: SyncReport, *, before: Confirmed | None, told: str | None) -> None:
        if self.folder.narrowing.excludes(path):
            return  # excluded by the project: the daemon's copy stays as it is
        if not self.folder.is_memory(path):
            # In a memory folder, only the name can be invalid, which the user should know.
            why = self.folder.why_not(path) if is_in_memory(path) else ELSEWHERE
            report.skipped.append({"path": path, "reason": why})
            return
        async with self._paths.held(path):
            answer = await PULL.ask(
                self._link, {"project": self.folder.project, "path": path}, timeout_s=_PUT_DEADLINE_S, bulk=True
            )
            known = await through(self._known, path)
            local = await asyncio.to_thread(self.folder.read, path)
            # Sent after the comparison began, so not part of it, and deleted since: the deletion is
            # still to be reported.
            is_deleted = known is not None and known != before and known.revision >= answer["revision"]
            sent = await asyncio.to_thread(self._ledger.sent, path)
            is_had = (
                local is not None and is_confirmed(known, local, sent) and _is_the_daemons(local, known, before, told)
            )
            is_known = local is not None and (local.hash == answer["hash"] or is_had)
            if is_known or (local is None and not is_deleted):
                await self._write(path, answer["text"], answer["revision"], local)
                report.pulled += 1
                return
        await self._send(path, report, is_asked=local is not None)

    async def _drop(
        self, path: str, report: SyncReport, *, revision: int, before: Confirmed | None, told: str | None
    ) -> None:
        if not self.folder.is_memory(path):
            return
        async with self._paths.held(path):
            known = await through(self._known, path)
            local = await asyncio.to_thread(self.folder.read, path)
            # A state confirmed after the response is newer than the deletion.
            sent = await asyncio.to_thread(self._ledger.sent, path)
            is_had = (
                local is not None and is_confirmed(known, local, sent) and _is_the_daemons(local, known, before, told)
            )
            if known and is_had and known.revision < revision:
                await self._write(path, None, revision, local)
                report.remove(path)
                return
        if self.folder.is_watched(path):
            # A file that exists although the comparison did not see it may be the only copy.
            await self._send(path, report, is_asked=local is not None and not is_had)

    async def _write(self, path: str, text: str | None, revision: int, local: Content | None) -> None:
        if self._before_write:
            await self._before_write(self.folder)
        if local is None and text is not None and await asyncio.to_thread(self._ledger.count) >= MAX_FILES:
            raise FolderError(path, f"would be one of more than {MAX_FILES:,} files")
        await through(self._write_and_confirm, path, text, revision, local)

    def _write_and_confirm(self, path: str, text: str | None, revision: int, local: Content | None) -> None:
        if text is None:
            if local is not None:
                self.folder.delete(path, over=local)
                self.absence.note_dropped()
            self._ledger.forget(path, revision)
            return
        digest = text_hash(text)
        if local is None or local.text != text:

            def note(inode: int, over: int) -> None:
                self._ledger.note_writing(path, Writing(digest, revision, inode, over))

            try:
                local = self.folder.write(path, text, over=local, before=note)
            except FolderError:
                self._ledger.note_writing(path, None)
                raise
        self._ledger.set(path, confirmed_as(local, digest, revision))

    async def _whole(self, path: str, read: Callable[[], Content | None]) -> Content | None:
        """Return a file's text once no program seems to be writing it, or after `_LONGEST_SAVE_S`.

        A program that saves in place keeps the file open; if a text from the daemon replaces the
        file in the middle, the rest that the program writes is lost. A confirmed text counts as
        complete.
        """
        end = asyncio.get_running_loop().time() + _LONGEST_SAVE_S
        while True:
            content = await asyncio.to_thread(read)
            if content is None or not 0 <= time.time() - content.mtime_ns / 1e9 < _BEING_SAVED_S:
                return content
            known, sent = await asyncio.to_thread(lambda: (self._ledger.get(path), self._ledger.sent(path)))
            if is_confirmed(known, content, sent) or asyncio.get_running_loop().time() > end:
                return content
            await _moment()

    def _known(self, path: str) -> Confirmed | None:
        """Return the confirmed state of a file. The caller holds the path.

        A process may have ended after it wrote a text from the daemon and before it confirmed that.
        If that text counted as an edit of the previous one, lines of other devices would count as
        this device's, and appear twice once a user changes the lines next to them.
        """
        writing = self._ledger.writing(path)
        if writing is not None:
            inode = self.folder.inode(path)
            if inode == writing.inode:
                self._ledger.set(path, Confirmed(writing.hash, writing.revision, UNREAD, 0))
            elif inode == 0:
                self._ledger.note_writing(path, None)
        return self._ledger.get(path)

    async def _settled(self, path: str, content: Content | None) -> Confirmed | None:
        """Return `_known`, also for a file that was saved by a rename since: only its text shows
        which revision it is based on.
        """
        known = await through(self._known, path)
        writing = await asyncio.to_thread(self._ledger.writing, path)
        if writing is None or content is None:
            return known
        written = await self._text_of(path, writing.revision, writing.hash)
        sent = await asyncio.to_thread(self._ledger.sent, path)
        # The replaced text was sent but not confirmed, so it has no revision number.
        before = await self._text_of(path, known.revision, known.hash) if known and not sent else None
        # The inode is the old file's: either that file was edited in place, or a later one was
        # saved by a rename and ext4 reused the number. Then only a text with all lines of the write
        # counts as based on it, so that no line of other devices is deleted.
        may_be_before = await asyncio.to_thread(self.folder.inode, path) == writing.over
        is_whole = not may_be_before or (written is not None and _has_all(content.text, written))
        if written is not None and is_whole and _comes_from(content.text, written, before):
            await through(self._ledger.set, path, Confirmed(writing.hash, writing.revision, UNREAD, 0))
        else:
            await through(self._ledger.note_writing, path, None)
        return await asyncio.to_thread(self._ledger.get, path)

    def _base_of(self, path: str, known: Confirmed | None) -> Upon:
        """Return the base of a file for the daemon: the revision, and the hash of the text, or the
        deletion, by which it can be checked.
        """
        if known:
            return {"base": known.revision, "baseHash": known.hash}
        gone = self._ledger.gone_at(path)
        return {"base": gone, "baseHash": REMOVED} if gone else {"base": 0}

    def _said(self, path: str, known: Confirmed | None) -> Upon:
        """Return the base of a file, with the hashes of the texts sent since."""
        told = self._ledger.told(path)
        said: Upon = {**self._base_of(path, known)}
        if told:
            said["sent"] = list(told)
        return said

    async def _text_of(self, path: str, revision: int, digest: str) -> str | None:
        """Return the text of a revision, or None if the daemon does not have it any more."""
        body: PullRequest = {"project": self.folder.project, "path": path, "revision": revision}
        try:
            answer = await PULL.ask(self._link, body, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return None
        return answer["text"] if answer["hash"] == digest else None


def _is_the_daemons(local: Content, known: Confirmed | None, before: Confirmed | None, told: str | None) -> bool:
    """Return True if the daemon has the confirmed text of a file; a restored daemon may have lost
    it. True if the text was part of this comparison, or was confirmed since; a file that was
    missing at that moment was not part of it.
    """
    return local.hash == told or (known and known[:2]) != (before and before[:2])


def _comes_from(text: str, written: str, before: str | None) -> bool:
    """Return True if a text is based on `written` rather than on `before` (None if unknown). False
    in doubt, so that no lines of other devices count as deleted.
    """
    lines, new = set(text.splitlines()), set(written.splitlines())
    if before is None:
        return _has_all(text, written)
    old = set(before.splitlines())
    return bool(lines & (new - old)) if new - old else not lines & (old - new)


def _has_all(text: str, written: str) -> bool:
    """Return True if `text` contains each line of `written`."""
    return set(written.splitlines()) <= set(text.splitlines())


async def _moment() -> None:
    await asyncio.sleep(_BEING_SAVED_S)
