"""The sync ledger: for each file of a folder, the hash and revision that the daemon has confirmed,
with the file's size and time. It also scans a folder for files that differ from it.

The ledger makes comparisons cheap and gives each edit its base revision. It is derived data: losing
it, or a line of it, costs one comparison. So it is an append-only file of JSON lines instead of a
database: several `confide mcp` processes share it by appending whole lines and reading on from
their last position, and each saves the 1.7 MB of resident memory that SQLite took here.

It also records the identity of its folder (`absence.folder_identity`), and starts again if another
folder has the path now. Other modules decide if missing files were deleted (`absence.rule`).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confide_crypto import atomic, portable
from confide_memory.documents import MAX_SENT, REMOVED
from confide_proxy.errors import DiskRefusalError, FolderError
from confide_proxy.locks import LOOK_AGAIN_S, lock_file
from confide_proxy.sync.folder import Content, Folder, ScannedFile

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Secret

COMPACT_AFTER = 1000
"""Superseded lines after which the file is written again at the next start."""
LONGEST_STEP_S: Final = 300.0
"""Longest time in seconds to hold a path: more than sending and indexing a file of the largest size
takes.
"""
_SENT: Final = "sent"
_WRITING: Final = "writing"
_GONE: Final = "gone"
_FOLDER: Final = "folder"
_FORGOTTEN: Final = "forgotten"
_GONE_KEPT: Final = 1000
"""Most deleted files that are remembered, to detect that a restored daemon brings them back."""
_TAIL_BYTES: Final = 64
"""Bytes of the last read line that identify the file: a line ends with a hash, a revision, a size
and a time, or their equivalents.
"""
_OFFSETS: Final = 2**62
UNREAD: Final = -1
"""Size of a file that has to be read again even if it looks unchanged."""


_Line = Sequence[str | int | dict[str, str]]
"""Contents of a line of the file."""


class Confirmed(NamedTuple):
    """The last state of a file in which this device and the daemon had the same text.

    Attributes:
        hash: the hash of the daemon's text.
        mark: the mark under which the file was sealed (`FileSealer.mark`).
        own: the hash of the file as it is sealed now, if that differs from `hash` but must not be
            sent; "" otherwise.
    """

    hash: str
    revision: int
    size: int
    mtime_ns: int
    mark: str = ""
    own: str = ""

    def matches(self, digest: str) -> bool:
        """Return True if `digest` is the hash of the confirmed text, as it is sent."""
        return digest == self.hash or (bool(self.own) and digest == self.own)

    def looks_like(self, size: int, mtime_ns: int, mark: str) -> bool:
        """Return True if a file's size, time and mark of sealing are unchanged, so that the file
        need not be read.
        """
        return (self.size, self.mtime_ns, self.mark) == (size, mtime_ns, mark)


class Writing(NamedTuple):
    """A record that a text from the daemon is about to be written to a file.

    Attributes:
        inode: the inode number of the new file. A file that a program saves in place keeps its
            inode.
        over: the inode number of the file to replace, 0 if there is none. A file that a program
            saves by renaming gets another inode; on ext4 this may be the same number again once the
            old file was deleted.
    """

    hash: str
    revision: int
    inode: int
    over: int


class SyncLedger:
    """The confirmed states of the files of one folder in one space, stored in a file in `folder`.
    Methods access the disk briefly.
    """

    def __init__(self, folder: Path, space: str, root: Path, own: str = "") -> None:
        """`own`: the project's name if it is not the one that the folder claims: states confirmed
        for the claimed project do not apply.
        """
        name = _name(space, root, own)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / f"{name}.jsonl"
        self.locks = folder / f"{name}.lock"
        self._comparison_file = folder / f"{name}.compared"
        self.notice = notice_file(folder, root)
        self._entries: dict[str, Confirmed] = {}
        self._removals: dict[str, int] = {}
        self._sent_hashes: dict[str, tuple[str, ...]] = {}
        self._writing: dict[str, Writing] = {}
        self._deletions: dict[str, int] = {}
        self._folder: dict[str, str] = {}
        self._forgotten_files: frozenset[str] = frozenset()
        self._inode = -1
        self._offset = 0
        self._tail = b""
        self._lines = 0
        # Threads share this object: two that read on from the same position would advance it twice.
        self._own = threading.Lock()
        self._catch_up()
        # Only for changes that cross each other in transit. Earlier deletions are handled by the
        # first comparison, since the daemon may have been restored from an older copy and reuse
        # revision numbers.
        self._removals.clear()
        if self._lines > len(self._entries) + len(self._deletions) + COMPACT_AFTER:
            self._compact()

    def all(self) -> dict[str, Confirmed]:
        """Return the confirmed states of all files of the folder, by path."""
        with self._own:
            self._catch_up()
            return dict(self._entries)

    def folder(self) -> dict[str, str]:
        """Return the recorded identities of the folder and of its subfolders, by path; {} if none
        are recorded.
        """
        with self._own:
            self._catch_up()
            return dict(self._folder)

    def note_folder(self, identities: dict[str, str]) -> None:
        """Record the identities of the folder and of its subfolders, by path."""
        if self.folder() != identities:
            self._append(["", _FOLDER, identities])

    def written_ns(self) -> int:
        """Return the time of the last record in nanoseconds since 1970, or 0 if there is no record."""
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0

    def restart(self, identities: dict[str, str]) -> None:
        """Delete all records, because another folder has the path now; `identities` are recorded
        for that folder.
        """
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | portable.CLOSED, 0o600)
        try:
            _lock(fd)
            atomic.write(self._file, _encode(["", _FOLDER, identities]), is_kept=False)
        finally:
            os.close(fd)
        with self._own:
            self._catch_up()
            self._removals.clear()

    def note_comparison(self) -> None:
        """Record that all files of the folder were just compared with the daemon's."""
        with suppress(OSError):  # a full disk: only `confide status` shows an older time
            self._comparison_file.touch(mode=0o600)

    def compared_at(self) -> float | None:
        """Return the time of the last comparison in seconds since 1970; None if it is unknown."""
        try:
            return self._comparison_file.stat().st_mtime
        except OSError:
            return None

    def count(self) -> int:
        with self._own:
            self._catch_up()
            return len(self._entries)

    def get(self, path: str) -> Confirmed | None:
        """Return the confirmed state of a file, or None if it has none."""
        with self._own:
            self._catch_up()
            return self._entries.get(path)

    def removed_at(self, path: str) -> int:
        """Return the revision by which a file was deleted both here and at the daemon since this
        ledger was opened. 0 if that is unknown, or if the file exists again.
        """
        with self._own:
            self._catch_up()
            return self._removals.get(path, 0)

    def gone_at(self, path: str) -> int | None:
        """Return the revision by which a file was deleted both here and at the daemon at any time;
        0 if the revision is unknown. None if the file exists, never existed, or if its deletion is
        no longer recorded.

        Do not decide by this alone: a restored daemon uses revision numbers again.
        """
        with self._own:
            self._catch_up()
            return self._deletions.get(path)

    def sent_hashes(self, path: str) -> tuple[str, ...]:
        """Return the hashes of a file's texts that were sent since its last confirmation, oldest
        first. The daemon may have any of them. `REMOVED` represents a deletion that was reported.
        """
        with self._own:
            self._catch_up()
            return self._sent_hashes.get(path, ())

    def sent_with_deletion(self, path: str) -> tuple[str, ...]:
        """Return `sent_hashes`, preceded by `REMOVED` if the file was deleted on both sides by an
        unknown revision: texts that were sent before may then still be on their way.
        """
        with self._own:
            self._catch_up()
            sent = self._sent_hashes.get(path, ())
            return (REMOVED, *sent)[-MAX_SENT:] if self._deletions.get(path) == 0 and REMOVED not in sent else sent

    def unanswered_files(self) -> frozenset[str]:
        """Return the files whose texts were sent, but not confirmed by the daemon yet."""
        with self._own:
            self._catch_up()
            return frozenset(self._sent_hashes)

    def note_sent(self, path: str, digest: str) -> None:
        """Record the hash of a text that is about to be sent, since the response may never come."""
        if self.sent_hashes(path)[-1:] != (digest,):
            self._append([path, _SENT, digest])

    def note_forgotten(self, paths: frozenset[str]) -> None:
        """Record the files that the daemon refuses because a user had them permanently erased, as
        the last comparison listed them.
        """
        if paths != self.forgotten_files():
            self._append(["", _FORGOTTEN, *sorted(paths)])

    def forgotten_files(self) -> frozenset[str]:
        """Return the files that the daemon refuses because a user had them permanently erased."""
        with self._own:
            self._catch_up()
            return self._forgotten_files

    def note_writing(self, path: str, writing: Writing | None) -> None:
        """Record that a text from the daemon is about to be written to a file, since this process
        may end before it records the result. With None, cancel the record because nothing was
        written.
        """
        self._append(
            [path, _WRITING, *((writing.hash, writing.revision, writing.inode, writing.over) if writing else ())]
        )

    def writing(self, path: str) -> Writing | None:
        """Return the recorded write of a file whose result was not recorded; None if there is none."""
        with self._own:
            self._catch_up()
            return self._writing.get(path)

    def unfinished_files(self) -> frozenset[str]:
        """Return the files with a recorded write whose result was not recorded."""
        with self._own:
            self._catch_up()
            return frozenset(self._writing)

    def set(self, path: str, state: Confirmed) -> None:
        self._append(_line(path, state))

    def touch(self, path: str, was: Confirmed, state: Confirmed) -> None:
        """Replace the confirmed state `was` of a file by `state`, unless another process has
        confirmed or sent the file in the meantime.
        """
        self._append(_line(path, state), unless=lambda: self.get(path) != was or bool(self.sent_hashes(path)))

    def forget(self, path: str, revision: int = 0) -> None:
        """Record that a file was deleted both here and at the daemon, by `revision`, or by an
        unknown revision (0).
        """
        self._append([path, revision] if revision else [path])

    def _append(self, line: _Line, *, unless: Callable[[], bool] | None = None) -> None:
        while True:
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | portable.CLOSED, 0o600)
            try:
                _lock(fd, is_shared=not unless)
                size = os.fstat(fd).st_size
                if not _is_at(fd, self._file):
                    continue  # another process has just compacted it
                if unless is not None and unless():
                    return
                # Terminate a line that a crash or a full disk cut short, so that it damages no
                # other.
                torn = size > 0 and portable.read_at(fd, 1, size - 1) != b"\n"
                # A single write per line: O_APPEND keeps the lines of several processes apart.
                os.write(fd, (b"\n" if torn else b"") + _encode(line))
                return
            finally:
                os.close(fd)

    def _catch_up(self) -> None:
        try:
            with self._file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                # A new file may get the inode number of a deleted one: check the last bytes that
                # were read as well.
                file.seek(self._offset - len(self._tail))
                if inode != self._inode or file.read(len(self._tail)) != self._tail:
                    # The first read, or another process has compacted the file: read it from the
                    # start. `_removals` stays, since compaction leaves it out.
                    self._inode, self._offset, self._lines, self._tail = inode, 0, 0, b""
                    self._entries.clear()
                    self._sent_hashes.clear()
                    self._writing.clear()
                    self._deletions.clear()
                    self._folder.clear()
                    self._forgotten_files = frozenset()
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]  # a line being written, or cut by a crash, is not read yet
        self._offset += len(whole)
        self._tail = (self._tail + whole)[-_TAIL_BYTES:]
        for line in whole.splitlines():
            self._lines += 1
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            match json.loads(line):
                case ["", "folder", dict(identities)]:
                    self._folder = {str(path): str(identity) for path, identity in identities.items()}
                    return
                case [str(path), "sent", str(digest)]:
                    others = (known for known in self._sent_hashes.get(path, ()) if known != digest)
                    self._sent_hashes[path] = (*others, digest)[-MAX_SENT:]
                    return
                case ["", "forgotten", *paths]:
                    self._forgotten_files = frozenset(map(str, paths))
                    return
                case [str(path), "writing", str(digest), int(revision), int(inode), int(over)]:
                    self._writing[path] = Writing(digest, revision, inode, over)
                    return
                case [str(path), "writing"]:
                    self._writing.pop(path, None)
                    return
                case [str(path), "gone", int(revision)]:
                    self._deletions[path] = revision
                    return
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns)
                    self._removals.pop(path, None)
                    self._deletions.pop(path, None)
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns), str(mark), str(own)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns, mark, own)
                    self._removals.pop(path, None)
                    self._deletions.pop(path, None)
                case [str(path), int(revision)]:
                    self._entries.pop(path, None)
                    self._deletions[path] = self._removals[path] = revision
                case [str(path)]:
                    self._entries.pop(path, None)
                    self._deletions[path] = 0
                case _:
                    return
            self._sent_hashes.pop(path, None)
            self._writing.pop(path, None)
        except ValueError:
            return  # damaged: the file is compared as if it had never been confirmed

    def _compact(self) -> None:
        fd = os.open(self._file, os.O_RDWR | portable.CLOSED)
        try:
            _lock(fd)  # no process may append to the file that is replaced
            if not _is_at(fd, self._file):
                return
            self._catch_up()
            with atomic.replacing(self._file, is_kept=False) as file:
                if self._folder:
                    file.write(_encode(["", _FOLDER, self._folder]))
                for path, state in self._entries.items():
                    file.write(_encode(_line(path, state)))
                for path, revision in list(self._deletions.items())[-_GONE_KEPT:]:
                    file.write(_encode([path, _GONE, revision]))
                if self._forgotten_files:
                    file.write(_encode(["", _FORGOTTEN, *sorted(self._forgotten_files)]))
                for path, sent in self._sent_hashes.items():
                    file.writelines(_encode([path, _SENT, digest]) for digest in sent)
                for path, one in self._writing.items():
                    file.write(_encode([path, _WRITING, one.hash, one.revision, one.inode, one.over]))
        except OSError:
            return  # a full disk: it stays as long as it is
        finally:
            os.close(fd)


def _name(space: str, root: Path, own: str) -> str:
    what = "\0".join([space, os.fspath(root), *([own] if own else [])])
    return hashlib.blake2b(what.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def notice_file(folder: Path, root: Path) -> Path:
    """Return the path of the notice about a folder's missing files (`absence.notice`). It is the
    same for all spaces.
    """
    return folder / f"{_name('', root, '')}.notice"


def carry(folder: Path, before: str, after: str, root: Path, own: str = "") -> None:
    """Copy the ledger of a folder after its space was moved and has another name, `after` instead
    of `before`. `own` is the same as for `SyncLedger`.

    Without the copy, all files of the folder would be compared once as unconfirmed; nothing would
    be lost.
    """
    source, target = (folder / f"{_name(space, root, own)}.jsonl" for space in (before, after))
    with suppress(OSError):
        if source.exists() and before != after:
            atomic.write(target, source.read_bytes(), is_kept=False)


def _lock(fd: int, *, is_shared: bool = False) -> None:
    with suppress(OSError):  # a file system without locks
        portable.lock(fd, is_shared=is_shared, waits=True)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _line(path: str, state: Confirmed) -> list[str | int]:
    seal = [state.mark, state.own] if state.mark or state.own else []
    return [path, state.hash, state.revision, state.size, state.mtime_ns, *seal]


def _encode(line: _Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class _Turns:
    """The lock of a path within this process, kept while any task holds it or waits for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


@functools.cache
def path_locks(file: Path) -> PathLocks:
    """Return the locks in `file`. There is only one object per file in a process, because closing a
    file releases all record locks that the process has in it.
    """
    return PathLocks(file)


class PathLocks:
    """Locks by path, all in one file that is created when first needed: with a file per path there
    would be thousands.

    Only one step at a time handles a path, across all processes, so that sending an edit and
    receiving a revision never overlap. Within a process the lock is an asyncio lock, between
    processes a record lock on one byte.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd: int | None = None
        self._steps: dict[str, _Turns] = {}

    @property
    def count(self) -> int:
        """Return the number of paths whose locks are held or waited for in this process."""
        return len(self._steps)

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncIterator[None]:
        """Wait for the lock of the path, and hold it.

        Raises FolderError if another process holds the lock for longer than any step takes. That
        process must be suspended.
        """
        async with self._turn(path):
            offset = int.from_bytes(hashlib.blake2b(path.encode(errors="surrogateescape"), digest_size=8).digest())
            offset %= _OFFSETS
            try:
                async with asyncio.timeout(LONGEST_STEP_S):
                    while not self._try(offset):  # noqa: ASYNC110 - no event reports that another process releases it
                        await asyncio.sleep(LOOK_AGAIN_S)
            except TimeoutError:
                raise FolderError(path, "is held by another confide process that is stopped") from None
            try:
                yield
            finally:
                self._let_go(offset)

    @asynccontextmanager
    async def _turn(self, path: str) -> AsyncIterator[None]:
        turns = self._steps.setdefault(path, _Turns())
        turns.wanted += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.wanted -= 1
            if not turns.wanted:
                del self._steps[path]

    def _try(self, offset: int) -> bool:
        try:
            if self._fd is None:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fd = lock_file(self._file)
            portable.lock_byte(self._fd, offset)
        except (BlockingIOError, PermissionError):  # as POSIX lets a system say that it is taken
            return False
        except OSError:
            return True  # a file system without locks, or a full disk: the daemon merges what crosses
        return True

    def _let_go(self, offset: int) -> None:
        if self._fd is not None:
            try:
                portable.unlock_byte(self._fd, offset)
            except OSError:
                return


@dataclass(slots=True)
class FolderScan:
    """The result of a scan of a folder.

    Attributes:
        entries: (path, hash, base revision) of each file.
        unsettled: paths of files whose credentials must be replaced by placeholders, and of files
            that were sent without a response.
        secrets: the credentials in the files that were read.
    """

    entries: list[tuple[str, str, int]] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    secrets: dict[Secret, None] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class SyncReport:
    """The result of comparing a folder with the daemon: numbers of files, and the files that were
    skipped.
    """

    files_scanned: int = 0
    sent: int = 0
    removed: int = 0
    pulled: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """Files that were sent although they were confirmed and unchanged: the daemon had lost them."""
    came_back: list[str] = field(default_factory=list)
    """Files that were deleted on both sides, and received again with a revision not newer than the
    deletion.
    """
    failed: int = 0
    """Number of skipped files that this device's disk or the daemon refused, though the files are
    valid.
    """
    refusals: list[str] = field(default_factory=list)
    """The reasons for which this device's disk refused files and folders, one for each."""
    is_unsettled: bool = False
    """Files were skipped for a temporary reason, and have to be compared again soon."""
    is_held: bool = False
    """Files are missing, and are checked again before their deletion is reported (`absence`)."""
    removed_paths: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the report in the form of the response to the daemon's `scan` request."""
        return {
            "filesScanned": self.files_scanned,
            "sent": self.sent,
            "removed": self.removed,
            "pulled": self.pulled,
            "skipped": list({tuple(item.items()): item for item in self.skipped}.values()),
        }

    def skip(self, path: str, error: FolderError) -> None:
        """Add a skipped file, with the reason in the error."""
        if isinstance(error, DiskRefusalError):
            self.refuse(path, error.problem)
        else:
            self.skipped.append({"path": path, "reason": error.problem})

    def refuse(self, path: str, why: str) -> None:
        """Add a file or folder that this device's disk refused."""
        self.skipped.append({"path": path, "reason": why})
        self.refusals.append(why)
        self.failed += 1

    def remove(self, path: str) -> None:
        """Add a file that was deleted here or at the daemon."""
        self.removed += 1
        self.removed_paths.append(path)

    def add(self, other: SyncReport) -> None:
        """Add the report about another folder to this one."""
        self.files_scanned += other.files_scanned
        self.sent += other.sent
        self.removed += other.removed
        self.removed_paths += other.removed_paths
        self.pulled += other.pulled
        self.skipped += other.skipped
        self.failed += other.failed
        self.refusals += other.refusals
        self.again += other.again
        self.came_back += other.came_back
        self.is_unsettled = self.is_unsettled or other.is_unsettled
        self.is_held = self.is_held or other.is_held


def scan(
    folder: Folder,
    found: list[ScannedFile],
    ledger: SyncLedger,
    confirmed: dict[str, Confirmed],
    force: bool,
    report: SyncReport,
) -> FolderScan:
    """Read the files that a walk through the folder found. Files that cannot be read are added to
    the report.

    Files that look unchanged, and would be sealed as before, are not read unless `force` is set.
    The ledger gets the new size and time of a file that was saved with unchanged text.
    """
    scanned = FolderScan()
    mark = folder.mark
    unanswered = ledger.unanswered_files()
    for file in found:
        known = confirmed.get(file.path)
        base = known.revision if known else 0
        is_unanswered = file.path in unanswered
        if known and not force and not is_unanswered and known.looks_like(file.size, file.mtime_ns, mark):
            scanned.entries.append((file.path, known.hash, base))
            continue
        content = readable(folder, file.path, report)
        if content is None:
            continue
        is_waiting = is_withheld(folder, known, content)
        if folder.sealer is not None and is_waiting:
            report.skipped.append({"path": file.path, "reason": folder.sealer.why_withheld()})
        if known and (known.matches(content.hash) or is_waiting):
            scanned.entries.append((file.path, known.hash, base))
        else:
            scanned.entries.append((file.path, content.hash, base))
        scanned.secrets.update(dict.fromkeys(content.secrets))
        note_touched(ledger, file.path, known, content)
        if is_unanswered or is_in_clear(folder, file.path, content):
            scanned.unsettled.append(file.path)
    return scanned


def is_withheld(folder: Folder, known: Confirmed | None, content: Content) -> bool:
    """Return True if a file must not be sent before this device has keys: other devices have its
    credentials sealed or in clear, and sending it now would redact them.
    """
    if folder.sealer is None or known is None or not content.is_waiting or known.matches(content.hash):
        return False
    # It was confirmed with the present sealing, so the daemon has it redacted already.
    return known.mark != content.mark or bool(known.own)


def check_sendable(folder: Folder, path: str, known: Confirmed | None, content: Content) -> None:
    """Raise FolderError if a file must not be sent before this device has keys (`is_withheld`)."""
    if folder.sealer is not None and is_withheld(folder, known, content):
        raise FolderError(path, folder.sealer.why_withheld())


def is_in_clear(folder: Folder, path: str, content: Content) -> bool:
    """Return True if a file contains credentials in clear that the configuration replaces by
    placeholders.
    """
    return folder.sealer is not None and folder.sealer.is_replaced(content.values) and folder.is_memory(path)


def is_confirmed(known: Confirmed | None, content: Content, sent: tuple[str, ...]) -> bool:
    """Return True if a file has the text that the daemon last confirmed, and no other text was sent
    since. Otherwise that text is an edit that undoes the one that was sent.

    `sent` are the hashes of texts that the daemon has not confirmed yet.
    """
    return known is not None and not sent and known.matches(content.hash)


def is_less(known: Confirmed | None, content: Content) -> bool:
    """Return True if sending a file now, without keys, would redact more than the text that the
    daemon last confirmed.
    """
    return known is not None and content.is_waiting and known.hash != content.hash


def confirmed_as(content: Content, digest: str, revision: int) -> Confirmed:
    """Return the state to record for a file after the daemon has stored a text with the hash
    `digest` for it.
    """
    if content.is_to_be_sent:
        return Confirmed(digest, revision, UNREAD, content.mtime_ns, content.mark)
    own = content.hash if content.hash != digest else ""
    return Confirmed(digest, revision, content.size, content.mtime_ns, content.mark, own)


def note_touched(ledger: SyncLedger, path: str, known: Confirmed | None, content: Content) -> None:
    """Record the new size and time of a file that was saved with unchanged text, so that it is
    neither read again nor counted as unsent.
    """
    is_touched = known is not None and not known.looks_like(content.size, content.mtime_ns, content.mark)
    if known and is_touched and is_confirmed(known, content, ledger.sent_hashes(path)):
        touched = known._replace(size=content.size, mtime_ns=content.mtime_ns, mark=content.mark)
        ledger.touch(path, known, touched)


def readable(folder: Folder, path: str, report: SyncReport) -> Content | None:
    """Return the file's content; None if the file does not exist. If it cannot be read, add it to
    the report and return None.
    """
    try:
        return folder.read(path)
    except FolderError as error:
        report.skip(path, error)
        return None
