"""Transfer one file of a folder to the daemon or from it: its text, or its deletion.

If an edit is based on an old revision, the daemon merges it; this device never overwrites a text
that the daemon has not seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_memory.classes import OWNER, UNTRUSTED
from confide_memory.documents import REMOVED, is_in_memory, text_hash
from confide_memory.errors import InvalidTextError
from confide_memory.wire.files import MAX_OTHERS, PULL, PUT, REMOVE, PullRequest, PutRequest, RemoveRequest, Upon
from confide_proxy.errors import ChangedMeanwhileError, FolderError
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.sealing.context import Deposit
from confide_proxy.sync.absence.checkout import forms_of
from confide_proxy.sync.absence.rule import GitChange, ReportedDeletion
from confide_proxy.sync.commits import Commits, Lines, is_whole
from confide_proxy.sync.folder import Content
from confide_proxy.sync.ledger import (
    UNREAD,
    Confirmed,
    SyncReport,
    check_sendable,
    is_confirmed,
    is_in_clear,
    is_less,
    note_touched,
    readable,
)
from confide_proxy.sync.project import is_tracked
from confide_proxy.sync.replication.local_files import LocalFiles
from confide_proxy.sync.steps import through

_PUT_DEADLINE_S = 60.0
_PUT_BYTES_S = 30_000
"""Bytes per second by which the deadline of a large file grows: the daemon indexes it before it
responds, possibly after others.
"""
_JUST_S: Final = 60.0
"""Seconds after which a saved note no longer confirms its text."""
_SET_BACK = "is older here, since git has another commit checked out: it is neither sent nor written until that changes"
_STASHED = "is older here, since git has its text in the stash: it is neither sent nor written until that is taken back"
_JUST_PUT_BACK = "is older here, since git has just put back the committed text: the newest comes back in two minutes"
_IN_CONFLICT = "has a merge conflict of git: it is neither sent nor written until you have resolved that"
_PUT_BACK = "git had put back the committed one"
_LINE_ENDS = "git had written it with other line ends"
_EMPTIED = "many files were empty at once"
_WAITING = {
    GitChange.SET_BACK: _SET_BACK,
    GitChange.STASHED: _STASHED,
    GitChange.JUST_PUT_BACK: _JUST_PUT_BACK,
    GitChange.CONFLICT: _IN_CONFLICT,
}
_TRIES = 16
"""Attempts to read a file that keeps changing; then it is left to the next comparison."""

DENIED: Final = "is not sent: this device has no right to write it"
ELSEWHERE: Final = "is not a memory file on this device"
FORGOTTEN: Final = "was forgotten, and is not sent"
"""Reason for skipping a forgotten file, the same each time: commands report all such files together.
"""


Seen = Callable[[str, str], Mapping[str, str] | None]
"""Returns the field `seen` for a file of this path and text; None to leave it as it is. Blocks."""


class FileTransfer:
    """Sends and fetches single files of one folder.

    Attributes:
        is_compared: True if the whole folder was compared over this connection. Before that, the
            daemon may have lost texts that it once confirmed.
    """

    def __init__(
        self,
        files: LocalFiles,
        link: RetryingLink,
        records: Deposit | None = None,
        own_addresses: Sequence[str] = (),
        seen: Seen | None = None,
    ) -> None:
        """`records` uploads the records of sealed credentials, `own_addresses` are those that the
        user commits with, `seen` returns the field `seen` for a saved note.
        """
        self.is_compared = False
        self._files = files
        self._folder = files.folder
        self._ledger = files.ledger
        self._paths = files.paths
        self._absence = files.absence
        self._link = link
        self._records = records
        self._seen_parts = seen
        self._commits = Commits(own_addresses)

    async def apply(self, body: dict[str, Any]) -> dict[str, object]:
        """Write a revision that the daemon sends (`apply` request). If the local file has a text
        that the daemon has not seen, return that text instead.

        Raises FolderError if the path may not be written here, or if the disk fails.
        """
        path, text, revision = str(body["path"]), body["text"], int(body["revision"])
        if not self._folder.is_memory(path):
            raise FolderError("the daemon's path", self._folder.why_not(path))
        async with self._paths.hold(path):
            for _ in range(_TRIES):
                # Read once for all decisions: a comparison may end in between, and a superseded
                # revision would count as older.
                is_compared = self.is_compared
                local = await self._files.whole(path, partial(self._folder.read, path))
                known = await through(self._files.confirmed_state, path)
                if await asyncio.to_thread(self._ledger.writing, path) is not None:
                    # Finding the base of this edit takes a request, which the next comparison or
                    # file event makes.
                    raise FolderError(path, "is one that a process wrote when it ended, and was changed since")
                if await asyncio.to_thread(self._is_passed, body, local, known, is_compared=is_compared):
                    return {"applied": True}
                is_agreed = known.matches(local.hash) if known and local else known is None and local is None
                by_git = GitChange.NONE if is_agreed else await asyncio.to_thread(self._absence.change_by_git, path)
                if by_git in _WAITING or by_git is GitChange.PUT_BACK:
                    # The next comparison, or the file's own event, asks if its text went missing.
                    raise FolderError(path, _WAITING.get(by_git, _JUST_PUT_BACK))
                sent = await asyncio.to_thread(self._ledger.sent_hashes, path)
                if local is not None and not _may_replace(body, local, known, sent, is_compared=is_compared):
                    check_sendable(self._folder, path, known, local)
                    await self._deposit(path, local)
                    said = await asyncio.to_thread(self._files.base_with_sent, path, known)
                    if not is_confirmed(known, local, sent):  # a confirmed text is no news to the daemon
                        await through(self._ledger.note_sent, path, local.hash)
                    return {"applied": False, "hash": local.hash, "text": local.text, **said}
                try:
                    await self._files.write(path, text, revision, local)
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
            return self._ledger.removed_at(path) > revision or is_had or body["hash"] in self._ledger.sent_hashes(path)
        return is_compared and known is not None and known.revision > revision and known.matches(local.hash)

    async def send(self, path: str, report: SyncReport, *, is_asked: bool = False, is_deleted: bool = False) -> None:
        """Send a file if it has changed.

        With `is_asked`, send it also if it is unchanged, since the daemon lacks it after a restore
        or damage. With `is_deleted`, a missing file counts as deleted by a user; otherwise the rule
        for missing files decides.
        """
        if path in await asyncio.to_thread(self._ledger.forgotten_files):
            return
        async with self._paths.hold(path):
            skipped = len(report.skipped)
            for _ in range(_TRIES):
                content = await self._files.whole(path, partial(readable, self._folder, path, report))
                known = await self._confirmed_state(path, content)
                sent = await asyncio.to_thread(self._ledger.sent_hashes, path)
                is_due = content is not None and not is_confirmed(known, content, sent)
                if content is None or not is_due:
                    break
                check_sendable(self._folder, path, known, content)
                why = await self._unmeant(path, content, known, report)
                if why and await self._fetch_over(path, content, report):
                    self._absence.note_agreed(path)
                    if why != _LINE_ENDS:
                        self._absence.note_came_back(why)
                    return
                if await asyncio.to_thread(self._has_tied, path, content):
                    continue  # it is read again
                # Git's facts may be about another text than was read, since a checkout replaces
                # files in between.
                if await asyncio.to_thread(self._folder.is_still, path, content):
                    break
            if content is not None and (is_due or (is_asked and not is_less(known, content))):
                if not is_due:
                    check_sendable(self._folder, path, known, content)
                await self._put(path, content, known)
                self._absence.note_agreed(path)
                report.sent += 1
            elif content is not None and known is not None:
                self._absence.note_agreed(path)
                if is_in_clear(self._folder, path, content):
                    await self._deposit(path, content)
                    await self._files.confirm(path, content, known.revision)
                else:
                    await through(note_touched, self._ledger, path, known, content)
            elif (known is not None or sent) and len(report.skipped) == skipped and self._folder.is_missing(path):
                if not is_deleted:
                    judged = await asyncio.to_thread(self._absence.judge, [path], is_patient=True)
                    is_deleted = path in judged.deleted
                if is_deleted:
                    await self._remove(path, known, report)
                else:
                    report.is_held = True

    def _has_tied(self, path: str, content: Content) -> bool:
        """Write into a note that its user has just saved what it has seen; return True if the file is
        another one now.
        """
        if self._seen_parts is None or not 0 <= time.time() - content.mtime_ns / 1e9 < _JUST_S:
            return False
        found = self._seen_parts(path, content.text)
        # A clone was just written too, and in a tracked file the change would be its user's.
        if not found or is_tracked(self._place(path)):
            return False
        from confide_memory import front_matter  # YAML, which few files need
        from confide_memory.note import SEEN

        try:
            text = front_matter.edit(content.text, {SEEN: dict(found)})
            self._folder.write(path, text, over=content)
        except ChangedMeanwhileError:
            return True
        except (front_matter.FrontMatterError, InvalidTextError, FolderError):
            return False  # the note matters more
        return True

    async def send_asked(self, path: str, report: SyncReport) -> None:
        """Send a file that the daemon requested in a comparison. If the file was removed since, for
        example by a rename, and has no confirmed state, fetch the daemon's text instead.
        """
        await self.send(path, report, is_asked=True)
        known = await asyncio.to_thread(self._ledger.get, path)
        if known is None and await asyncio.to_thread(self._folder.is_missing, path):
            try:
                await self.pull(path, report, before=None, told=None)
            except RequestError as error:
                if error.code != "not_found":
                    raise

    async def pull(self, path: str, report: SyncReport, *, before: Confirmed | None, told: str | None) -> None:
        """Fetch the daemon's text of a file. If the local file has a text that the daemon lacks,
        send that instead.

        Args:
            before: the file's confirmed state when the comparison began; None if it had none.
            told: the hash of the file that was sent in the comparison; None if the file was not
                part of it.
        """
        if self._folder.narrowing.excludes(path):
            return  # excluded by the project: the daemon's copy stays as it is
        if not self._folder.is_memory(path):
            # In a memory folder, only the name can be invalid, which the user should know.
            why = self._folder.why_not(path) if is_in_memory(path) else ELSEWHERE
            report.skipped.append({"path": path, "reason": why})
            return
        async with self._paths.hold(path):
            answer = await PULL.ask(
                self._link, {"project": self._folder.project, "path": path}, timeout_s=_PUT_DEADLINE_S, bulk=True
            )
            known = await through(self._files.confirmed_state, path)
            local = await asyncio.to_thread(self._folder.read, path)
            # Sent after the comparison began, so not part of it, and deleted since: the deletion is
            # still to be reported.
            is_deleted = known is not None and known != before and known.revision >= answer["revision"]
            sent = await asyncio.to_thread(self._ledger.sent_hashes, path)
            is_had = (
                local is not None and is_confirmed(known, local, sent) and _is_the_daemons(local, known, before, told)
            )
            is_known = local is not None and (local.hash == answer["hash"] or is_had)
            if is_known or (local is None and not is_deleted):
                await self._files.write(path, answer["text"], answer["revision"], local)
                report.pulled += 1
                return
        await self.send(path, report, is_asked=local is not None)

    async def drop(
        self, path: str, report: SyncReport, *, revision: int, before: Confirmed | None, told: str | None
    ) -> None:
        """Delete a file that the daemon deleted in `revision`. If the local file has a text that
        the daemon lacks, send that instead. `before` and `told` are as for `pull`.
        """
        if not self._folder.is_memory(path):
            return
        async with self._paths.hold(path):
            known = await through(self._files.confirmed_state, path)
            local = await asyncio.to_thread(self._folder.read, path)
            # A state confirmed after the response is newer than the deletion.
            sent = await asyncio.to_thread(self._ledger.sent_hashes, path)
            is_had = (
                local is not None and is_confirmed(known, local, sent) and _is_the_daemons(local, known, before, told)
            )
            if known and is_had and known.revision < revision:
                await self._files.write(path, None, revision, local)
                report.remove(path)
                return
        if self._folder.is_watched(path):
            # A file that exists although the comparison did not see it may be the only copy.
            await self.send(path, report, is_asked=local is not None and not is_had)

    async def _unmeant(self, path: str, content: Content, known: Confirmed | None, report: SyncReport) -> str:
        """Return why no user meant a text, so that the daemon's is to be fetched over it; "" for an
        edit, such as the text of another branch that no revision has.

        Raises FolderError: git will give the file its text back, or its user has a conflict to resolve.
        """
        by_git = await asyncio.to_thread(self._absence.change_by_git, path)
        is_gits = by_git not in (GitChange.NONE, GitChange.CONFLICT) and known is not None
        before = await self._text_of(path, known.revision, known.hash) if is_gits and known else None
        if before is not None and content.text in forms_of(before):
            return _LINE_ENDS  # `core.autocrlf` here is no reason to change the file on other devices
        if by_git is GitChange.SET_BACK:
            found, _digest = await self._revision_like(path, content.text)
            if not found or (known is not None and found >= known.revision):
                return ""
        elif is_gits and (before is None or await asyncio.to_thread(self._absence.is_committed, path, before)):
            return ""
        report.is_held |= by_git is GitChange.JUST_PUT_BACK
        if by_git in _WAITING:
            raise FolderError(path, _WAITING[by_git])
        if known is None:
            return ""
        if by_git is GitChange.PUT_BACK:
            return _PUT_BACK
        return _EMPTIED if not content.text and await asyncio.to_thread(self._absence.is_emptied, path) else ""

    async def _fetch_over(self, path: str, content: Content, report: SyncReport) -> bool:
        """Write the daemon's text over this one; return False if the daemon has deleted the file."""
        body: PullRequest = {"project": self._folder.project, "path": path}
        try:
            answer = await PULL.ask(self._link, body, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return False
        await self._files.write(path, answer["text"], answer["revision"], content)
        report.pulled += 1
        return True

    async def _put(self, path: str, content: Content, known: Confirmed | None) -> None:
        said = await asyncio.to_thread(self._files.base_with_sent, path, known)
        if (base := await self._base_by_git(path, known)) is not None:
            said = {**said, **base}
        class_, others = await asyncio.to_thread(self._authors, path, content)
        params: PutRequest = {
            "project": self._folder.project,
            "path": path,
            "text": content.text,
            "hash": content.hash,
            **said,
            "class": class_,
            "others": others,
        }
        deadline_s = _PUT_DEADLINE_S + content.size / _PUT_BYTES_S
        await self._deposit(path, content)
        await through(self._ledger.note_sent, path, content.hash)
        answer = await PUT.ask(self._link, params, timeout_s=deadline_s)
        merged = answer["text"]
        if merged is not None:
            if not self._folder.is_memory(path):
                return  # read only here: the next edit is merged again, with this text as its base
            local = await asyncio.to_thread(self._folder.read, path)
            if local is None or local.hash == content.hash:
                await self._files.write(path, merged, answer["revision"], local)
            # Otherwise it was edited again meanwhile: the base of that edit is the sent text, as
            # the ledger records, and the next event sends it to be merged.
            return
        await self._files.confirm(path, content, answer["revision"])

    def _authors(self, path: str, content: Content) -> tuple[str, list[Lines]]:
        """Return the class of a file's text, and its lines that are another person's."""
        if self._folder.narrowing.own_notes.has(path):
            return UNTRUSTED, []  # an agent's own note may repeat a web page
        # Other files are untrusted anyway.
        others = self._commits.by_others(self._place(path), content) if is_in_memory(path) else []
        is_untrusted = len(others) > MAX_OTHERS or is_whole(content, others)
        return UNTRUSTED if is_untrusted else OWNER, others[:MAX_OTHERS]

    async def _base_by_git(self, path: str, known: Confirmed | None) -> Upon | None:
        """Return the base of an edit that a user made to a text which git had set back; None if the
        confirmed state is the base.
        """
        text = await asyncio.to_thread(self._absence.made_from, path)
        if text is None or (known and known.hash in map(text_hash, forms_of(text))):
            return None
        found, digest = await self._revision_like(path, text)
        return {"base": found, "baseHash": digest} if found else None

    def _place(self, path: str) -> Path:
        return self._folder.root / self._folder.spelling_of(path)

    async def _deposit(self, path: str, content: Content) -> None:
        """Upload the records of the credentials in a text, before the text itself.

        Raises FolderError if they cannot be sealed now; RequestError, ConnectionLost, TimeoutError.
        """
        if self._records is not None and content.secrets:
            await self._records.keep_of_file(self._link, path, content.secrets)

    async def _remove(self, path: str, known: Confirmed | None, report: SyncReport) -> None:
        said = await asyncio.to_thread(self._files.base_with_sent, path, known)
        params: RemoveRequest = {"project": self._folder.project, "path": path, **said}
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
        if newer is not None and self._folder.is_memory(path):
            await self._files.write(path, newer, answer["revision"], None)
            report.pulled += 1
            return
        await through(self._ledger.forget, path, answer["revision"])
        if known is not None:
            self._absence.note_told(path, known, answer["revision"])
        report.remove(path)

    async def restore(self, told: ReportedDeletion) -> None:
        """Make the daemon restore a document whose deletion this device has reported, unless it was
        created again since. The caller must hold the lock of the path.
        """
        text = await self._text_of(told.path, told.known.revision, told.known.hash)
        if text is None or await self._is_alive(told.path):
            return
        body: PutRequest = {
            "project": self._folder.project,
            "path": told.path,
            "text": text,
            "hash": told.known.hash,
            "base": told.revision,
            "baseHash": REMOVED,
        }
        answer = await PUT.ask(self._link, body, timeout_s=_PUT_DEADLINE_S)
        if answer["text"] is None:
            await through(self._ledger.set, told.path, told.known._replace(revision=answer["revision"]))

    async def _confirmed_state(self, path: str, content: Content | None) -> Confirmed | None:
        """Return `_known`, also for a file that was saved by a rename since: only its text shows
        which revision it is based on.
        """
        known = await through(self._files.confirmed_state, path)
        writing = await asyncio.to_thread(self._ledger.writing, path)
        if writing is None or content is None:
            return known
        written = await self._text_of(path, writing.revision, writing.hash)
        sent = await asyncio.to_thread(self._ledger.sent_hashes, path)
        # The replaced text was sent but not confirmed, so it has no revision number.
        before = await self._text_of(path, known.revision, known.hash) if known and not sent else None
        # The inode is the old file's: either that file was edited in place, or a later one was
        # saved by a rename and ext4 reused the number. Then only a text with all lines of the write
        # counts as based on it, so that no line of other devices is deleted.
        may_be_before = await asyncio.to_thread(self._folder.inode, path) == writing.over
        is_whole = not may_be_before or (written is not None and _has_all(content.text, written))
        if written is not None and is_whole and _comes_from(content.text, written, before):
            await through(self._ledger.set, path, Confirmed(writing.hash, writing.revision, UNREAD, 0))
        else:
            await through(self._ledger.note_writing, path, None)
        return await asyncio.to_thread(self._ledger.get, path)

    async def _text_of(self, path: str, revision: int, digest: str) -> str | None:
        """Return the text of a revision, or None if the daemon does not have it any more."""
        body: PullRequest = {"project": self._folder.project, "path": path, "revision": revision}
        try:
            answer = await PULL.ask(self._link, body, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return None
        return answer["text"] if answer["hash"] == digest else None

    async def _revision_with(self, path: str, digest: str) -> int:
        """Return the newest revision of a document with this text; 0 if none has it, or the daemon
        does not support the query.
        """
        body: PullRequest = {"project": self._folder.project, "path": path, "hash": digest}
        try:
            answer = await PULL.ask(self._link, body, timeout_s=_PUT_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "not_found":
                raise
            return 0
        return answer["revision"] if answer["hash"] == digest else 0

    async def _revision_like(self, path: str, text: str) -> tuple[int, str]:
        """Return the newest revision of a document with this text, whatever its line ends, and the
        hash that it has there; (0, "") if there is none.
        """
        digests = [text_hash(form) for form in forms_of(text)]
        return max([(await self._revision_with(path, digest), digest) for digest in digests] + [(0, "")])

    async def _is_alive(self, path: str) -> bool:
        try:
            await PULL.ask(
                self._link, {"project": self._folder.project, "path": path}, timeout_s=_PUT_DEADLINE_S, bulk=True
            )
        except RequestError as error:
            if error.code != "not_found":
                raise
            return False
        return True


def _may_replace(
    body: Mapping[str, Any], local: Content, known: Confirmed | None, sent: tuple[str, ...], *, is_compared: bool
) -> bool:
    """Return True if a revision from the daemon (`apply`) may replace this text, which the daemon
    has.
    """
    # A late revision, whose base text a newer one has again, would pass for its successor.
    is_late = known is not None and known.revision > int(body["revision"]) and not sent
    if local.hash == body["hash"]:
        return True
    if local.hash == body["baseHash"] and (not sent or local.hash == sent[-1]) and not is_late:
        return True
    # A confirmed text is in the daemon's history, so it may be replaced even if the daemon used
    # another base. Unless the daemon was restored from an older copy since: then this file may be
    # the only copy.
    is_ours = known is not None and known.hash in (body["hash"], body["baseHash"]) and not is_late
    return is_confirmed(known, local, sent) and (is_compared or is_ours)


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
