"""What the daemon has confirmed of each file on this machine (its hash, its revision, and the stat that goes with them), and what a folder
holds against it: which files there are, and which differ.

The ledger is what makes a comparison of states cheap and an edit's base known. It is derived: losing it, or a line of it, costs one
comparison. So it is an append-only file of JSON lines and no database: several `confide mcp` processes share it by appending whole lines
and reading on from where they were, and it spares each of them the 1.7 MB of resident memory that SQLite took here.

It knows which folder it is of, too (`absence.folder_identity`): another one that has the path now is begun
anew. What it means that files are
missing is no business of its own (`absence.rule`).
"""

from __future__ import annotations

import asyncio
import fcntl
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

from confide_crypto import atomic
from confide_memory.documents import MAX_SENT, REMOVED
from confide_proxy.errors import DiskRefusalError, FolderError
from confide_proxy.locks import LOOK_AGAIN_S, lock_file
from confide_proxy.sync.folder import Content, Folder, ScannedFile

if TYPE_CHECKING:
    from confide_proxy.sealing.sealer import Secret

COMPACT_AFTER = 1000
"""Superseded lines before the file is written anew, at the next start."""
LONGEST_STEP_S: Final = 300.0
"""More than a file of the largest size has for being sent and indexed."""
_SENT: Final = "sent"
_WRITING: Final = "writing"
_GONE: Final = "gone"
_FOLDER: Final = "folder"
_FORGOTTEN: Final = "forgotten"
_GONE_KEPT: Final = 1000
"""Removed files that are remembered, to tell when a daemon that was put back brings them back."""
_TAIL_BYTES: Final = 64
"""Of what was read last: a line ends with a hash, a revision, a size and a time, or with what stands for them."""
_OFFSETS: Final = 2**62
UNREAD: Final = -1
"""The size of a file that is to be read again, whatever it looks like."""


_Line = Sequence[str | int | dict[str, str]]
"""What stands in a line of the file."""


class Confirmed(NamedTuple):
    """A file as both ends last agreed on it.

    Attributes:
        hash: of the text that the daemon has.
        mark: with what the file was sealed (`FileSealer.mark`).
        own: of the file as it is sealed, where that is another text and yet not to be sent; "" else.
    """

    hash: str
    revision: int
    size: int
    mtime_ns: int
    mark: str = ""
    own: str = ""

    def matches(self, digest: str) -> bool:
        """Whether a file whose text has this hash as it goes out is as it was agreed on."""
        return digest == self.hash or (bool(self.own) and digest == self.own)

    def looks_like(self, size: int, mtime_ns: int, mark: str) -> bool:
        """Whether the file need not be read."""
        return (self.size, self.mtime_ns, self.mark) == (size, mtime_ns, mark)


class Writing(NamedTuple):
    """A text of the daemon's that was about to be put in place.

    Attributes:
        inode, over: of the file with the text, and of the one in whose place it was to come (0: none). One that is saved in place keeps
            its inode. One that is saved by a rename has another, which on ext4 may be that of `over` once that file is gone.
    """

    hash: str
    revision: int
    inode: int
    over: int


class SyncLedger:
    """The confirmed state of one folder in one space, in a file of its own below `folder`. Methods touch the disk briefly."""

    def __init__(self, folder: Path, space: str, root: Path, own: str = "") -> None:
        """`own`: the project's name, where it is not the one that the folder claims: what was confirmed of the other says nothing of it."""
        name = _name(space, root, own)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / f"{name}.jsonl"
        self.locks = folder / f"{name}.lock"
        self._compared = folder / f"{name}.compared"
        self.notice = notice_file(folder, root)
        self._entries: dict[str, Confirmed] = {}
        self._removed: dict[str, int] = {}
        self._sent: dict[str, tuple[str, ...]] = {}
        self._writing: dict[str, Writing] = {}
        self._gone: dict[str, int] = {}
        self._folder: dict[str, str] = {}
        self._forgotten: frozenset[str] = frozenset()
        self._inode = -1
        self._offset = 0
        self._tail = b""
        self._lines = 0
        # Of this object, whose methods several threads call: two that read on from one place would take it for twice as far.
        self._own = threading.Lock()
        self._catch_up()
        # Only for what crosses on its way: what was removed before this connection is for its first comparison, and the daemon may have
        # gone back to an older copy of itself, and number anew.
        self._removed.clear()
        if self._lines > len(self._entries) + len(self._gone) + COMPACT_AFTER:
            self._compact()

    def all(self) -> dict[str, Confirmed]:
        """Every confirmed file of the folder, by path."""
        with self._own:
            self._catch_up()
            return dict(self._entries)

    def folder(self) -> dict[str, str]:
        """The identities of the folder and of what lies in it, by path, as they were noted last; empty where they never were."""
        with self._own:
            self._catch_up()
            return dict(self._folder)

    def note_folder(self, identities: dict[str, str]) -> None:
        """Note which folder it is."""
        if self.folder() != identities:
            self._append(["", _FOLDER, identities])

    def written_ns(self) -> int:
        """When something was noted last, in nanoseconds since 1970; 0 where nothing ever was."""
        try:
            return self._file.stat().st_mtime_ns
        except OSError:
            return 0

    def restart(self, identities: dict[str, str]) -> None:
        """Another folder has the path: nothing that was confirmed of the one before says anything of it."""
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(fd, fcntl.LOCK_EX)
            atomic.write(self._file, _encoded(["", _FOLDER, identities]), is_kept=False)
        finally:
            os.close(fd)
        with self._own:
            self._catch_up()
            self._removed.clear()

    def note_comparison(self) -> None:
        """All files of the folder were compared with the daemon's just now."""
        with suppress(OSError):  # a full disk: only `confide status` tells of it
            self._compared.touch(mode=0o600)

    def compared_at(self) -> float | None:
        """When that was, in seconds since 1970; None where it never was, or nobody knows."""
        try:
            return self._compared.stat().st_mtime
        except OSError:
            return None

    def count(self) -> int:
        with self._own:
            self._catch_up()
            return len(self._entries)

    def get(self, path: str) -> Confirmed | None:
        """The confirmed state of one file, or None."""
        with self._own:
            self._catch_up()
            return self._entries.get(path)

    def removed_at(self, path: str) -> int:
        """The revision that removed a file at both ends, as far as it is remembered; 0 if it is not, or the file is there again."""
        with self._own:
            self._catch_up()
            return self._removed.get(path, 0)

    def gone_at(self, path: str) -> int | None:
        """The revision that removed a file at both ends, however long ago, 0 where it is not known; None: it is there, or never was, or
        that is forgotten. Nothing is decided by it here: the daemon may count anew."""
        with self._own:
            self._catch_up()
            return self._gone.get(path)

    def sent(self, path: str) -> tuple[str, ...]:
        """The hashes of the texts of a file that were sent since it was last confirmed, oldest first: the daemon may have any of them.
        `REMOVED` where it was told that the file is deleted."""
        with self._own:
            self._catch_up()
            return self._sent.get(path, ())

    def told(self, path: str) -> tuple[str, ...]:
        """As `sent`, with a deletion before them that was answered and has no revision: what was sent before it may still be on its way."""
        with self._own:
            self._catch_up()
            sent = self._sent.get(path, ())
            return (REMOVED, *sent)[-MAX_SENT:] if self._gone.get(path) == 0 and REMOVED not in sent else sent

    def unanswered(self) -> frozenset[str]:
        """The files of which that is so."""
        with self._own:
            self._catch_up()
            return frozenset(self._sent)

    def note_sent(self, path: str, digest: str) -> None:
        """A text is about to be sent: noted before, since its answer may never come."""
        if self.sent(path)[-1:] != (digest,):
            self._append([path, _SENT, digest])

    def note_forgotten(self, paths: frozenset[str]) -> None:
        """The files of which the daemon takes nothing, since a person had them forgotten: all of them, as the last comparison told."""
        if paths != self.forgotten():
            self._append(["", _FORGOTTEN, *sorted(paths)])

    def forgotten(self) -> frozenset[str]:
        """The files of which that is so."""
        with self._own:
            self._catch_up()
            return self._forgotten

    def note_writing(self, path: str, writing: Writing | None) -> None:
        """A text is about to be put in place: noted before, since this process may not live to confirm it. None: it was not."""
        self._append(
            [path, _WRITING, *((writing.hash, writing.revision, writing.inode, writing.over) if writing else ())]
        )

    def writing(self, path: str) -> Writing | None:
        """What was about to be put in place and was not confirmed since."""
        with self._own:
            self._catch_up()
            return self._writing.get(path)

    def unfinished(self) -> frozenset[str]:
        """The files of which that is so."""
        with self._own:
            self._catch_up()
            return frozenset(self._writing)

    def set(self, path: str, state: Confirmed) -> None:
        self._append(_line(path, state))

    def touch(self, path: str, was: Confirmed, state: Confirmed) -> None:
        """Note how a file looks that nothing else has become of: neither confirmed otherwise, nor sent, meanwhile."""
        self._append(_line(path, state), unless=lambda: self.get(path) != was or bool(self.sent(path)))

    def forget(self, path: str, revision: int = 0) -> None:
        """The file is deleted on both ends, with `revision` where that is known."""
        self._append([path, revision] if revision else [path])

    def _append(self, line: _Line, *, unless: Callable[[], bool] | None = None) -> None:
        while True:
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(fd, fcntl.LOCK_EX if unless else fcntl.LOCK_SH)
                size = os.fstat(fd).st_size
                if not _is_at(fd, self._file):
                    continue  # another process has just compacted it
                if unless is not None and unless():
                    return
                # A line that a crash or a full disk cut short is ended, so that it spoils none but itself.
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                # One write of one whole line: O_APPEND keeps the lines of several processes apart.
                os.write(fd, (b"\n" if torn else b"") + _encoded(line))
                return
            finally:
                os.close(fd)

    def _catch_up(self) -> None:
        try:
            with self._file.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                # A file system gives a new file the number of one that was just removed: it is told by what was read of it last.
                file.seek(self._offset - len(self._tail))
                if inode != self._inode or file.read(len(self._tail)) != self._tail:
                    # The first time, or another process has compacted it: which leaves out when what was removed here was.
                    self._inode, self._offset, self._lines, self._tail = inode, 0, 0, b""
                    self._entries.clear()
                    self._sent.clear()
                    self._writing.clear()
                    self._gone.clear()
                    self._folder.clear()
                    self._forgotten = frozenset()
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
                    others = (known for known in self._sent.get(path, ()) if known != digest)
                    self._sent[path] = (*others, digest)[-MAX_SENT:]
                    return
                case ["", "forgotten", *paths]:
                    self._forgotten = frozenset(map(str, paths))
                    return
                case [str(path), "writing", str(digest), int(revision), int(inode), int(over)]:
                    self._writing[path] = Writing(digest, revision, inode, over)
                    return
                case [str(path), "writing"]:
                    self._writing.pop(path, None)
                    return
                case [str(path), "gone", int(revision)]:
                    self._gone[path] = revision
                    return
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns)
                    self._removed.pop(path, None)
                    self._gone.pop(path, None)
                case [str(path), str(digest), int(revision), int(size), int(mtime_ns), str(mark), str(own)]:
                    self._entries[path] = Confirmed(digest, revision, size, mtime_ns, mark, own)
                    self._removed.pop(path, None)
                    self._gone.pop(path, None)
                case [str(path), int(revision)]:
                    self._entries.pop(path, None)
                    self._gone[path] = self._removed[path] = revision
                case [str(path)]:
                    self._entries.pop(path, None)
                    self._gone[path] = 0
                case _:
                    return
            self._sent.pop(path, None)
            self._writing.pop(path, None)
        except ValueError:
            return  # damaged: the file is compared as if it had never been confirmed

    def _compact(self) -> None:
        fd = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock(fd, fcntl.LOCK_EX)  # nobody appends to what is about to go
            if not _is_at(fd, self._file):
                return
            self._catch_up()
            with atomic.replacing(self._file, is_kept=False) as file:
                if self._folder:
                    file.write(_encoded(["", _FOLDER, self._folder]))
                for path, state in self._entries.items():
                    file.write(_encoded(_line(path, state)))
                for path, revision in list(self._gone.items())[-_GONE_KEPT:]:
                    file.write(_encoded([path, _GONE, revision]))
                if self._forgotten:
                    file.write(_encoded(["", _FORGOTTEN, *sorted(self._forgotten)]))
                for path, sent in self._sent.items():
                    file.writelines(_encoded([path, _SENT, digest]) for digest in sent)
                for path, one in self._writing.items():
                    file.write(_encoded([path, _WRITING, one.hash, one.revision, one.inode, one.over]))
        except OSError:
            return  # a full disk: it stays as long as it is
        finally:
            os.close(fd)


def _name(space: str, root: Path, own: str) -> str:
    what = "\0".join([space, os.fspath(root), *([own] if own else [])])
    return hashlib.blake2b(what.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def notice_file(folder: Path, root: Path) -> Path:
    """Where it is kept what is to be told of a folder (`absence.notice`), whatever space it is in."""
    return folder / f"{_name('', root, '')}.notice"


def carry(folder: Path, before: str, after: str, root: Path, own: str = "") -> None:
    """What was confirmed of a folder in a space holds for another name of that space, as it has after a move; `own` as of a ledger.

    Without it nothing is lost: the folder's files are compared once as if nobody had confirmed them.
    """
    source, target = (folder / f"{_name(space, root, own)}.jsonl" for space in (before, after))
    with suppress(OSError):
        if source.exists() and before != after:
            atomic.write(target, source.read_bytes(), is_kept=False)


def _lock(fd: int, kind: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(fd, kind)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _line(path: str, state: Confirmed) -> list[str | int]:
    seal = [state.mark, state.own] if state.mark or state.own else []
    return [path, state.hash, state.revision, state.size, state.mtime_ns, *seal]


def _encoded(line: _Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


@dataclass(slots=True)
class _Turns:
    """A path's lock within this process, kept for as long as somebody wants it: one that was let go of may be waited for."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


@functools.cache
def path_locks(file: Path) -> PathLocks:
    """The locks in `file`: one object in a process, since to close a file lets go of every record lock that the process has in it."""
    return PathLocks(file)


class PathLocks:
    """Locks by path, in one file that is made when it is first needed: a file for each path would be thousands.

    One path of a folder is handled by one step at a time, in all processes: an edit on its way up and a revision on its way down must not
    cross, whichever of them each is in. Within a process that is a lock of asyncio's, between processes a record lock on one byte.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd: int | None = None
        self._steps: dict[str, _Turns] = {}

    @property
    def count(self) -> int:
        """How many paths are held or waited for in this process."""
        return len(self._steps)

    @asynccontextmanager
    async def held(self, path: str) -> AsyncIterator[None]:
        """Wait for the path, and hold it.

        Raises FolderError: another process of this machine has held it for longer than any step takes: it stands still.
        """
        async with self._turn(path):
            offset = int.from_bytes(hashlib.blake2b(path.encode(errors="surrogateescape"), digest_size=8).digest())
            offset %= _OFFSETS
            try:
                async with asyncio.timeout(LONGEST_STEP_S):
                    while not self._try(offset):  # noqa: ASYNC110 - another process lets go of it, which no event tells
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
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):  # as POSIX lets a system say that it is taken
            return False
        except OSError:
            return True  # a file system without locks, or a full disk: the daemon merges what crosses
        return True

    def _let_go(self, offset: int) -> None:
        if self._fd is not None:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, offset)
            except OSError:
                return


@dataclass(slots=True)
class FolderScan:
    """The files of a folder, as a scan found them.

    Attributes:
        entries: (path, hash, base) of each file that was found.
        unsettled: the paths of those that are to get placeholders in the place of what they hold in clear, and of those that were sent
            and whose answer did not come.
        secrets: what was sealed in those that were read.
    """

    entries: list[tuple[str, str, int]] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    secrets: dict[Secret, None] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class SyncReport:
    """What a comparison of a folder with the daemon did, counted in files."""

    files_scanned: int = 0
    sent: int = 0
    removed: int = 0
    pulled: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """Sent though they are as they were confirmed: the daemon has them no more."""
    came_back: list[str] = field(default_factory=list)
    """Received though they were deleted at both ends, with a revision that is not newer than the deletion."""
    failed: int = 0
    """Of the skipped ones, those which this machine's disk or the daemon did not take or give: nothing is wrong with the files."""
    is_unsettled: bool = False
    """Some were skipped for what passes by itself: they are to be compared again, soon."""
    is_held: bool = False
    """Some are missing, and it is looked at again before that is told (`absence`)."""
    removed_paths: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The wire form, as the daemon's `scan` request expects it."""
        return {
            "filesScanned": self.files_scanned,
            "sent": self.sent,
            "removed": self.removed,
            "pulled": self.pulled,
            "skipped": list({tuple(item.items()): item for item in self.skipped}.values()),
        }

    def skip(self, path: str, error: FolderError) -> None:
        """A file was passed over."""
        self.skipped.append({"path": path, "reason": error.problem})
        self.failed += isinstance(error, DiskRefusalError)

    def remove(self, path: str) -> None:
        """A file was deleted at the other end, or here."""
        self.removed += 1
        self.removed_paths.append(path)

    def add(self, other: SyncReport) -> None:
        """Count another folder's work in."""
        self.files_scanned += other.files_scanned
        self.sent += other.sent
        self.removed += other.removed
        self.removed_paths += other.removed_paths
        self.pulled += other.pulled
        self.skipped += other.skipped
        self.failed += other.failed
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
    """What the files that were found hold.

    Files that look unchanged, and were sealed as they would be now, are not read unless `force` says so. One that was touched and holds
    what it had is noted in the ledger as it looks now.
    """
    scanned = FolderScan()
    mark = folder.mark
    unanswered = ledger.unanswered()
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
    """Whether a file waits for keys: others of the space have it sealed, or in clear as it once was, and would have it redacted."""
    if folder.sealer is None or known is None or not content.is_waiting or known.matches(content.hash):
        return False
    # Confirmed as it would be sealed now, it is redacted there already.
    return known.mark != content.mark or bool(known.own)


def check_sendable(folder: Folder, path: str, known: Confirmed | None, content: Content) -> None:
    """Raise FolderError for such a file."""
    if folder.sealer is not None and is_withheld(folder, known, content):
        raise FolderError(path, folder.sealer.why_withheld())


def is_in_clear(folder: Folder, path: str, content: Content) -> bool:
    """Whether a file is to get placeholders in the place of what it holds in clear."""
    return folder.sealer is not None and folder.sealer.is_replaced(content.values) and folder.is_memory(path)


def is_confirmed(known: Confirmed | None, content: Content, sent: tuple[str, ...]) -> bool:
    """Whether a file is as it was confirmed. Where others of its texts were `sent` since, that is an edit: one that takes them back."""
    return known is not None and not sent and known.matches(content.hash)


def is_less(known: Confirmed | None, content: Content) -> bool:
    """Whether what can go out of a file now, without keys, is less than what was confirmed of it."""
    return known is not None and content.is_waiting and known.hash != content.hash


def confirmed_as(content: Content, digest: str, revision: int) -> Confirmed:
    """What is known of a file once the daemon has a text with the hash `digest` for it."""
    if content.is_to_be_sent:
        return Confirmed(digest, revision, UNREAD, content.mtime_ns, content.mark)
    own = content.hash if content.hash != digest else ""
    return Confirmed(digest, revision, content.size, content.mtime_ns, content.mark, own)


def note_touched(ledger: SyncLedger, path: str, known: Confirmed | None, content: Content) -> None:
    """Have the looks of a file that was saved with the text that it had, so that it is neither read again nor counted as unsent."""
    is_touched = known is not None and not known.looks_like(content.size, content.mtime_ns, content.mark)
    if known and is_touched and is_confirmed(known, content, ledger.sent(path)):
        touched = known._replace(size=content.size, mtime_ns=content.mtime_ns, mark=content.mark)
        ledger.touch(path, known, touched)


def readable(folder: Folder, path: str, report: SyncReport) -> Content | None:
    """The file's text; None where there is none, or none that can be read, which the report then says."""
    try:
        return folder.read(path)
    except FolderError as error:
        report.skip(path, error)
        return None
