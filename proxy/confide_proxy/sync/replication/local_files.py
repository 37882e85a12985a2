"""Read and write the files of a folder, and update their records in the ledger. A file is read only
once its program has finished saving it. Nothing is sent from here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from confide_memory.documents import REMOVED, text_hash
from confide_memory.wire.files import Upon
from confide_proxy.errors import ChangedMeanwhileError, FolderError
from confide_proxy.sync.absence.rule import Absence
from confide_proxy.sync.folder import MAX_FILES, Content, Folder, ScannedFile
from confide_proxy.sync.ledger import (
    UNREAD,
    Confirmed,
    SyncLedger,
    SyncReport,
    Writing,
    confirmed_as,
    is_confirmed,
    is_in_clear,
    note_touched,
    path_locks,
    readable,
)
from confide_proxy.sync.steps import through

_BUSY_S = 5.0
"""Longest time in seconds to wait for git while it changes the folder."""
_BEING_SAVED_S = 0.06
"""Seconds without a change after which a file counts as completely saved; a program that saves in
parts is faster.
"""
_LONGEST_SAVE_S = 0.5


class Lacking(NamedTuple):
    """Files of a folder that the daemon lacks.

    Attributes:
        waiting: paths of the files whose text the daemon has not confirmed.
        passed_by: (path, reason) of the files that cannot be watched (`Folder.passed_by`), and of
            the memory that cannot be read.
    """

    waiting: list[str]
    passed_by: list[tuple[str, str]]


class WriteObserver(Protocol):
    """The interface of an object that prepares a folder before the first text from the daemon is
    written to it.
    """

    async def before_write(self, folder: Folder) -> None:
        """Prepare a folder, since a text from the daemon is written to it next."""
        ...


class LocalFiles:
    """The files of one folder, with their records in the ledger.

    Attributes:
        absence: the rule that decides if missing files were deleted or lost.
        paths: locks for single files, also against other processes.
    """

    def __init__(
        self,
        folder: Folder,
        ledger: SyncLedger,
        absence: Absence,
        *,
        observer: WriteObserver | None = None,
    ) -> None:
        """`observer` is called before each write of a text from the daemon."""
        self.folder = folder
        self.ledger = ledger
        self.absence = absence
        self.paths = path_locks(ledger.locks)
        self._observer = observer

    async def git_is_done(self) -> None:
        """Wait while git changes the folder, at most `_BUSY_S` seconds: git writes the files first
        and `HEAD` last.
        """
        end = asyncio.get_running_loop().time() + _BUSY_S
        while await asyncio.to_thread(self.absence.is_busy) and asyncio.get_running_loop().time() < end:
            await _moment()

    async def whole(self, path: str, read: Callable[[], Content | None]) -> Content | None:
        """Read a file with `read` once no program seems to be saving it, or after `_LONGEST_SAVE_S`
        seconds.

        A program that saves in place keeps the file open. If a text from the daemon replaced the
        file in the middle, the rest that the program writes would be lost. A text that the daemon
        has confirmed counts as complete.
        """
        end = asyncio.get_running_loop().time() + _LONGEST_SAVE_S
        while True:
            content = await asyncio.to_thread(read)
            if content is None or not 0 <= time.time() - content.mtime_ns / 1e9 < _BEING_SAVED_S:
                return content
            known, sent = await asyncio.to_thread(lambda: (self.ledger.get(path), self.ledger.sent_hashes(path)))
            if is_confirmed(known, content, sent) or asyncio.get_running_loop().time() > end:
                return content
            await _moment()

    def lacking(self) -> Lacking:
        """Return the files whose text the daemon has not confirmed, and those that cannot be
        watched. Blocks; reads files that may have changed. Raises FolderError if the folder
        contains too many files.
        """
        confirmed, forgotten, mark = self.ledger.all(), self.ledger.forgotten_files(), self.folder.mark
        unanswered = self.ledger.unanswered_files()

        def is_known(path: str, size: int, mtime_ns: int) -> bool:
            known = confirmed.get(path)
            return known is not None and path not in unanswered and known.looks_like(size, mtime_ns, mark)

        found, passed_by, _ = listing = self.folder.look(is_known)
        waiting = [
            file.path
            for file in found
            if file.path not in forgotten and self._is_pending(file, confirmed.get(file.path), unanswered)
        ]
        return Lacking(waiting, [*passed_by, *listing.unread_memory().items()])

    def _is_pending(self, file: ScannedFile, known: Confirmed | None, unanswered: Collection[str]) -> bool:
        """Return True if the daemon has not confirmed the file's text, and git has not set it back."""
        if known is None or file.path in unanswered:
            return True
        if known.looks_like(file.size, file.mtime_ns, self.folder.mark):
            return False
        content = readable(self.folder, file.path, SyncReport())
        if content is None or not known.matches(content.hash):
            return not self.absence.is_set_back(file.path)
        note_touched(self.ledger, file.path, known, content)
        return False

    def confirmed_state(self, path: str) -> Confirmed | None:
        """Return the confirmed state of a file; None if it has none. The caller must hold the lock
        of the path.

        If a process ended after it wrote a text from the daemon and before it recorded that, the
        record is completed here. Otherwise that text would count as an edit of the previous one.
        Lines of other devices would count as this device's, and appear twice once a user changes
        the lines next to them.
        """
        writing = self.ledger.writing(path)
        if writing is not None:
            inode = self.folder.inode(path)
            if inode == writing.inode:
                self.ledger.set(path, Confirmed(writing.hash, writing.revision, UNREAD, 0))
            elif inode == 0:
                self.ledger.note_writing(path, None)
        return self.ledger.get(path)

    def base_with_sent(self, path: str, known: Confirmed | None) -> Upon:
        """Return the request fields with the revision that an edit of a file is based on, and the
        hashes of the texts sent since.
        """
        told = self.ledger.sent_with_deletion(path)
        said: Upon = {**self._base_of(path, known)}
        if told:
            said["sent"] = list(told)
        return said

    def _base_of(self, path: str, known: Confirmed | None) -> Upon:
        """Return the base of a file for the daemon: the revision, and the hash of the text, or the
        deletion, by which it can be checked.
        """
        if known:
            return {"base": known.revision, "baseHash": known.hash}
        gone = self.ledger.gone_at(path)
        return {"base": gone, "baseHash": REMOVED} if gone else {"base": 0}

    async def write(self, path: str, text: str | None, revision: int, local: Content | None) -> None:
        """Write a text from the daemon to a file, or delete the file if there is no `text`, and
        record the revision.

        `local` is the content that is replaced; None if there is no file.

        Raises ChangedMeanwhileError if the file has another text now, and FolderError if it cannot
        be written or the folder contains too many files.
        """
        if self._observer:
            await self._observer.before_write(self.folder)
        if local is None and text is not None and await asyncio.to_thread(self.ledger.count) >= MAX_FILES:
            raise FolderError(path, f"would be one of more than {MAX_FILES:,} files")
        await through(self._write_and_confirm, path, text, revision, local)

    def _write_and_confirm(self, path: str, text: str | None, revision: int, local: Content | None) -> None:
        if text is None:
            if local is not None:
                self.folder.delete(path, over=local)
                self.absence.note_dropped()
            self.ledger.forget(path, revision)
            return
        digest = text_hash(text)
        if local is None or local.text != text:

            def note(inode: int, over: int) -> None:
                self.ledger.note_writing(path, Writing(digest, revision, inode, over))

            try:
                local = self.folder.write(path, text, over=local, before=note)
            except FolderError:
                self.ledger.note_writing(path, None)
                raise
        self.ledger.set(path, confirmed_as(local, digest, revision))

    async def confirm(self, path: str, content: Content, revision: int) -> None:
        """Record that the daemon has the file's text as `revision`. If the user has configured
        that, also replace the credentials in the file by placeholders.
        """
        stored = content
        if is_in_clear(self.folder, path, content):
            with suppress(ChangedMeanwhileError):  # an edit, sent like every other one
                stored = await through(partial(self.folder.write, path, content.text, over=content))
        await through(self.ledger.set, path, confirmed_as(stored, content.hash, revision))

    async def adopt(self, adopted: list[tuple[str, int]], entries: list[tuple[str, str, int]]) -> None:
        """Record the revisions under which the daemon has files. `entries` are (path, hash, base
        revision) of the files in the comparison; a file that has changed since is skipped.
        """
        were = {path: (digest, base) for path, digest, base in entries}
        for path, revision in {path: revision for path, revision in adopted if path in were}.items():
            async with self.paths.hold(path):
                await through(self._adopt_one, path, revision, *were[path])

    def _adopt_one(self, path: str, revision: int, digest: str, base: int) -> None:
        content = readable(self.folder, path, SyncReport())
        known = self.confirmed_state(path)
        if (known.revision if known else 0) != base:
            return  # confirmed with another revision since
        if content and content.hash == digest:
            self.ledger.set(path, confirmed_as(content, content.hash, revision))
        elif content and known and known.hash == digest and known.matches(content.hash):
            self.ledger.set(path, known._replace(revision=revision))

    async def forget(self, path: str, was: Confirmed, revision: int = 0) -> None:
        """Record that a file is deleted here and, as `revision`, at the daemon; 0 if the revision
        is unknown. Does nothing if the file's confirmed state is no longer `was`.
        """
        async with self.paths.hold(path):
            # Unless another process has written and confirmed it meanwhile.
            if await asyncio.to_thread(self.ledger.get, path) == was:
                await through(self.ledger.forget, path, revision)

    async def keep(self, path: str, was: Confirmed) -> None:
        """Record that the daemon has kept a document although this device reported its deletion.
        Does nothing if another text was sent since.
        """
        async with self.paths.hold(path):
            if await asyncio.to_thread(
                lambda: (self.ledger.get(path), self.ledger.sent_hashes(path)) == (was, (REMOVED,))
            ):
                await through(self.ledger.set, path, was)


async def _moment() -> None:
    await asyncio.sleep(_BEING_SAVED_S)
