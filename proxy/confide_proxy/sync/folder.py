"""A folder of memory on this machine, and the only code that reads or writes in one.

Every path is walked component by component with directory descriptors and `O_NOFOLLOW`, so that no symlink, however it got there,
leads a read or a write outside. Writes are accepted for memory files alone: `MEMORY.md`, `memory.md` and `memory/**/*.md`;
further globs from the user's configuration are read only. What the project's own file excludes is neither read nor written.

Paths are those of documents: composed (NFC), as `documents` allows them. A file that its disk spells decomposed (NFD) is found by them,
and keeps its spelling. Where a folder has both, the composed one is the document, and the other is told of and left alone.

A file gets its place at once, and never over what somebody has just written there.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from confide_crypto.errors import printable
from confide_memory import documents
from confide_memory.documents import MAX_TEXT_BYTES, MEMORY_FILES, MEMORY_FOLDER, composed, text_hash
from confide_memory.globs import fixed_part, matches
from confide_proxy.errors import ChangedMeanwhileError, DiskRefusalError, FolderError
from confide_proxy.sync.walk import FILE, Narrowing, descended, listed, tree

if TYPE_CHECKING:
    from confide_proxy.sealing.context import FileSealer
    from confide_proxy.sealing.sealer import Secret

_PART = "confide-part"
_SYMLINK = "is a symlink"
_NO_FILE = "is not a regular file"
_TWIN = "has the name of another file, spelled otherwise in Unicode, or spelled in a mixture: rename it"
_SAVING_S = 0.1
"""How long a file may be in the middle of being saved; one that is longer is read as it is, and again at the next event."""
_LOOK_S = 0.01
MAX_FILES = 50_000
"""More files than this in one folder are not memory but a mistake; the rest is reported, not sent."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""How a file system without hard links (FAT, some network mounts) refuses one."""


class ScannedFile(NamedTuple):
    """A file as a walk saw it, unread."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Content:
    """A file's text as it goes out, and what identifies both.

    Attributes:
        text, hash: with a placeholder for each credential where the folder has a sealer; as the file holds it where it has none.
        size, mtime_ns: of the file, by which it is mostly known as the one that was read.
        secrets: the daemon has to have their records before it has the text.
        values: what each placeholder stands for in the file.
        mark: with what it was sealed.
        is_waiting: something is redacted only because this machine has no keys.
        is_to_be_sent: it was written in the place of a text of the daemon's, and is to be sent as it seals now.
        own_hash: of what the file itself holds; "" where that was not looked at.
    """

    text: str = field(repr=False)
    hash: str
    size: int
    mtime_ns: int
    secrets: tuple[Secret, ...] = field(default=(), repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    mark: str = ""
    is_waiting: bool = False
    is_to_be_sent: bool = False
    own_hash: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """The memory files below `root`, and the user's `extra` globs.

    Attributes:
        project: the project these files belong to.
        root: the folder that holds `MEMORY.md` and `memory/`.
        extra: globs relative to `root`; matching `*.md` files are read, never written.
        max_bytes: a larger file is not read.
        is_tree: all that matches `extra` may be written as well: the folder is no project's, but holds copies alone.
        sealer: seals what is read, and puts back what is written.
    """

    project: str
    root: Path
    extra: tuple[str, ...] = ()
    max_bytes: int = 4 * 1024 * 1024
    is_tree: bool = False
    sealer: FileSealer | None = field(default=None, repr=False, compare=False)
    narrowing: Narrowing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "narrowing", Narrowing(self.root))

    def is_memory(self, path: str) -> bool:
        """Whether `path` is one that may be written here."""
        if self.is_tree:
            return self.is_watched(path)
        return documents.is_memory(path) and not self.narrowing.excludes(path)

    def is_watched(self, path: str) -> bool:
        """Whether `path` is one that is sent from here."""
        # A tree holds copies of what is stored: transcripts, and what an earlier version took.
        why = documents.unsafe(path) if self.is_tree else documents.path_problem(path)
        return why is None and self._could_be(path)

    def why_not(self, path: str) -> str:
        """Why a path that is not a memory file here is none."""
        if self.narrowing.own_notes.is_index(path):
            return "is the index of Claude Code's own notes, which stays on this device"
        if self.narrowing.excludes(path):
            return f"is excluded by {FILE}"
        # Where it is none of ours in any case, its place says more than its name.
        why = documents.path_problem(path) if self._could_be(path) else None
        return f"has a name that is not allowed: {why}" if why else "is outside the memory folders"

    def _could_be(self, path: str) -> bool:
        """Whether a file at this place is watched, whatever it is called."""
        is_here = documents.is_in_memory(path) or any(glob and matches(path, glob) for glob in self.extra)
        return is_here and not self.narrowing.excludes(path)

    def walk(self, *, below: str = "") -> Iterator[ScannedFile]:
        """Every watched file (of one folder, where it is named), symlinks left out.

        Raises FolderError: there are more than `MAX_FILES`.
        """
        seen = 0
        linked: set[str] = set()  # by two names that compose to one
        for spelled, entry in tree(self.root, below, below.count("/") + 1) if below else self._entries():
            path = composed(spelled)
            if not self.is_watched(path) or documents.unkept(path) or path in linked:
                continue
            if entry.is_file(follow_symlinks=False) and self._is_document(path, spelled):
                if not path.isascii():
                    linked.add(path)
                seen += 1
                if seen > MAX_FILES:
                    raise FolderError(str(self.root), f"holds more than {MAX_FILES:,} markdown files")
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone since the folder was listed
                yield ScannedFile(path, status.st_size, status.st_mtime_ns)

    def passed_by(self) -> list[tuple[str, str]]:
        """(path, why) of what a walk leaves out, so that a person can be told; of what is hidden, nothing is."""
        found = [(MEMORY_FOLDER, _SYMLINK)] if (self.root / MEMORY_FOLDER).is_symlink() else []
        for spelled, entry in self._entries():
            path = composed(spelled)
            if entry.is_symlink():
                why = _SYMLINK if self.could_hold(path) else None
            elif not path.endswith(".md") or documents.is_hidden(path) or not self._could_be(path):
                why = None  # no markdown, an editor's, or none of ours
            elif documents.path_problem(path) is not None:
                why = self.why_not(path)
            elif not entry.is_file(follow_symlinks=False):
                why = _NO_FILE
            else:
                why = None if self._is_document(path, spelled) else _TWIN
            if why is not None:
                found.append((printable(spelled), why))
        return found

    def spelled(self, path: str) -> str:
        """A path as the disk spells it; what is not there yet, as it is to be spelled."""
        if path.isascii():
            return path
        parts = path.split("/")
        found = [""]
        for depth, part in enumerate(parts):
            deeper = [f"{above}/{name}" if above else name for above in found for name in documents.spellings(part)]
            deeper = [one for one in deeper if os.path.lexists(self.root / one)]
            if not deeper:
                return "/".join([*filter(None, found[:1]), *parts[depth:]])
            found = deeper
        return found[0]

    def _is_document(self, path: str, spelled: str) -> bool:
        """Whether `path` leads to the file with that spelling, and not to another one."""
        leading = path if path == spelled else self.spelled(path)
        if leading == spelled:
            return True
        try:  # a disk that takes all spellings for the same
            return os.path.samestat(os.lstat(self.root / leading), os.lstat(self.root / spelled))
        except OSError:
            return False

    @property
    def mark(self) -> str:
        """With what a file is sealed now."""
        return self.sealer.mark if self.sealer else ""

    def read(self, path: str) -> Content | None:
        """The file's text as it goes out, or None if there is none.

        Raises FolderError: a symlink on the way, too large, not UTF-8, not readable, or not let out by the policy.
        """
        found = self._read(path)
        return self._content(path, *found) if found else None

    def _content(self, path: str, text: str, size: int, mtime_ns: int) -> Content:
        if self.sealer is None:
            digest = text_hash(text)
            return Content(text, digest, size, mtime_ns, own_hash=digest)
        sealed, mark, is_waiting = self.sealer.seal(path, text)
        if sealed.values and len(sealed.text.encode("utf-8")) > MAX_TEXT_BYTES:
            problem = f"would be larger than {MAX_TEXT_BYTES // 1024:,} KiB with placeholders for its {len(sealed.values):,} credentials"
            raise FolderError(path, problem, hint="split it")
        digest = text_hash(sealed.text)
        return Content(
            sealed.text,
            digest,
            size,
            mtime_ns,
            sealed.secrets,
            sealed.values,
            mark,
            is_waiting,
            own_hash=text_hash(text),
        )

    def _read(self, path: str) -> tuple[str, int, int] | None:
        """The file's text as it is, its size and its time."""
        if not self.is_watched(path):
            raise FolderError(path, self.why_not(path))
        try:
            with self._parent(path) as (parent, name):
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
                if not is_spelled_so(name, parent, fd):
                    os.close(fd)
                    return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explained(path, error) from error
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            if stat.S_ISDIR(status.st_mode):
                return None  # a folder has taken its name: there surely is no such file
            raise FolderError(path, _NO_FILE)
        with open(fd, "rb") as file:
            data, mtime_ns = _whole(file, self.max_bytes + 1)
        if len(data) > self.max_bytes:
            raise FolderError(
                path, f"is larger than {self.max_bytes // 1024:,} KiB", hint="split it, or raise max_file_kib"
            )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FolderError(path, f"is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
        if "\0" in text:
            raise FolderError(path, "holds NUL bytes, so it is not markdown")
        return text, len(data), mtime_ns

    def own_text(self, path: str) -> str | None:
        """The file's text as it is, or None if there is none. Raises as `read`."""
        found = self._read(path)
        return found[0] if found else None

    def is_missing(self, path: str) -> bool:
        """Whether there surely is no such file: its folder can be looked into, down from a root that is there, and it is not in it."""
        try:
            return self.root.is_dir() and self._read(path) is None
        except FolderError:
            return False

    def write(
        self, path: str, text: str, *, over: Content | None, before: Callable[[int, int], None] = lambda *_inodes: None
    ) -> Content:
        """Put `text` at `path`, durably and at once (temporary file, fsync, rename), in place of `over`; None where no file may be.

        What `over` holds in clear the new file has in clear as well, where `text` has its placeholder. `before` is told of the inode that
        the file is about to be, and of the one in whose place it comes, 0 for none.

        Raises:
            ChangedMeanwhileError: the file is no longer as it was read, so a person's edit would be lost.
            FolderError: not a memory path, a symlink on the way, disk full, not writable.
        """
        if not self.is_memory(path):
            raise FolderError(path, self.why_not(path))
        restored = self.sealer.restore(path, text, over.text, over.values) if self.sealer and over else text
        data = restored.encode("utf-8")
        if len(data) > MAX_TEXT_BYTES:
            raise FolderError(path, f"would be larger than {MAX_TEXT_BYTES // 1024:,} KiB")
        try:
            with self._parent(path, create=True) as (parent, name):
                # By hash: the name itself may be as long as a name can be.
                part = f".{text_hash(name)[:16]}.{os.getpid()}.{_PART}"
                mode = _mode_of(name, parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    with open(os.open(part, flags, mode, dir_fd=parent), "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                        status = os.fstat(file.fileno())
                    before(status.st_ino, self.inode(path))
                    _put_in_place(part, name, parent, path, over)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(part, dir_fd=parent)
                os.fsync(parent)
        except OSError as error:
            raise _explained(path, error) from error
        return self._written(path, text, restored, len(data), status.st_mtime_ns)

    def _written(self, path: str, text: str, restored: str, size: int, mtime_ns: int) -> Content:
        try:
            content = self._content(path, restored, size, mtime_ns)
        except FolderError:
            # It came so, and a file that is not let out is not sent: it is told of when it is read.
            return Content(text, text_hash(text), size, mtime_ns)
        if self.sealer is None or content.text == text:
            return content
        # Without keys it would only be redacted, for all.
        is_to_be_sent = not content.is_waiting and self.sealer.is_to_be_sent(path, text, restored)
        return replace(content, is_to_be_sent=is_to_be_sent)

    def inode(self, path: str) -> int:
        """Which file it is that has this name now; 0 where there is none, or none to be read."""
        try:
            with self._parent(path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False).st_ino
        except OSError:
            return 0

    def is_still(self, path: str, content: Content) -> bool:
        """Return whether a file is as it was read, by its size and time."""
        try:
            with self._parent(path) as (parent, name):
                now = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (OSError, FolderError):
            return False
        return (now.st_size, now.st_mtime_ns) == (content.size, content.mtime_ns)

    def sweep(self) -> None:
        """Remove what a crash in the middle of a write has left behind. Blocks for as long as a walk does."""
        with suppress(OSError):
            names = [
                *(entry.name for entry in os.scandir(self.root)),
                *(path for path, _ in tree(self.root, MEMORY_FOLDER, 1)),
            ]
            for name in names:
                if name.endswith(_PART) and not _is_alive(name.split(".")[-2]):
                    (self.root / name).unlink()

    def delete(self, path: str, *, over: Content) -> None:
        """Remove the file that was read as `over`; nothing happens if it is not there.

        Raises:
            ChangedMeanwhileError: the file is no longer as it was read.
            FolderError: not a memory path, a symlink on the way, not writable, or it holds what is nowhere else.
        """
        if not self.is_memory(path):
            raise FolderError(path, self.why_not(path))
        if self.sealer is not None:
            self.sealer.check_removable(path, over.values)
        try:
            with self._parent(path) as (parent, name):
                _check_unchanged(name, parent, path, over)
                os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _explained(path, error) from error

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        *folders, name = PurePosixPath(self.spelled(path)).parts
        # The root is never made here: in the place of a disk that is not mounted, an empty one would look like everything deleted.
        # A project's folder may be a link that its owner made; that of a tree is made by us.
        links = os.O_NOFOLLOW if self.is_tree else 0
        with descended(self.root, folders, create=create, flags=links) as parent:
            yield parent, name

    def _entries(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        for name in MEMORY_FILES:
            yield from listed(self.root, "", only=name)
        yield from tree(self.root, MEMORY_FOLDER, 1)
        memory = f"{MEMORY_FOLDER}/"
        tops = {fixed_part(glob) for glob in self.extra}
        for top in sorted(top for top in tops if not _is_below_another(top, tops)):
            for path, entry in tree(self.root, self.spelled(top), 1):
                if not path.startswith(memory) and path not in MEMORY_FILES:
                    yield path, entry

    def could_hold(self, path: str) -> bool:
        """Whether `path` is watched, as a file or as a folder."""
        return self.is_watched(path) or self.is_watched(f"{path}/x.md")


def _is_below_another(top: str, tops: set[str]) -> bool:
    """Whether a walk from another of these folders comes by this one."""
    return any(top != other and (not other or top.startswith(f"{other}/")) for other in tops)


def _whole(file: BinaryIO, most: int) -> tuple[bytes, int]:
    """What a file holds, and its time; where somebody is just saving it, once that is done, or goes on for too long."""
    until = time.monotonic() + _SAVING_S
    while True:
        before = os.fstat(file.fileno())
        file.seek(0)
        data = file.read(most)
        after = os.fstat(file.fileno())
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        # Most programs cut a file to nothing before they write it anew.
        is_emptied = not data and 0 <= time.time() - after.st_mtime < _SAVING_S
        if (is_same and not is_emptied) or time.monotonic() > until:
            return data, before.st_mtime_ns
        time.sleep(_LOOK_S)


def _explained(path: str, error: OSError) -> FolderError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return FolderError(path, "leads through a symlink or a file", hint="memory folders hold plain files only")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskRefusalError(path, "cannot be written: the disk is full", hint="free some space; nothing was lost")
    return DiskRefusalError(path, f"cannot be opened: {error.strerror}")


def _put_in_place(part: str, name: str, parent: int, path: str, over: Content | None) -> None:
    """Give the file `part` of the folder `parent` the name `name`, in place of `over`; None where no file may be.

    Raises ChangedMeanwhileError: the file is no longer as it was read, or there is one; OSError: the disk refuses.
    """
    try:
        if over is None:
            # Unlike a rename, it fails where somebody has just made the file.
            os.link(part, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            return
        # Between this look and the rename lie microseconds, not the milliseconds that the write and its fsync took.
        _check_unchanged(name, parent, path, over)
    except (FileExistsError, FileNotFoundError):
        raise ChangedMeanwhileError(path) from None
    except OSError as error:
        if over is not None or error.errno not in _NO_LINKS:
            raise
    os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)


def _check_unchanged(name: str, parent: int, path: str, over: Content) -> None:
    """Look whether a file is as it was read, also by what it holds: a program may give it the time that it had.

    Raises ChangedMeanwhileError, OSError.
    """
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) != (over.size, over.mtime_ns):
            raise ChangedMeanwhileError(path)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(over.size + 1)
    finally:
        os.close(fd)
    if over.own_hash and hashlib.blake2b(data, digest_size=32).hexdigest() != over.own_hash:
        raise ChangedMeanwhileError(path)


def is_spelled_so(name: str, parent: int, fd: int) -> bool:
    """Whether an open file has this very name: a disk that does not tell upper from lower case finds it by others as well."""
    try:
        other = os.stat(name.swapcase(), dir_fd=parent, follow_symlinks=False)
    except OSError:
        return True
    if not os.path.samestat(other, os.fstat(fd)):
        return True
    with os.scandir(parent) as entries:
        # Such a disk may tell its spellings in Unicode as little.
        return any(composed(entry.name) == composed(name) for entry in entries)


def _is_alive(pid: str) -> bool:
    """Whether a process of this machine has that number."""
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _mode_of(name: str, parent: int) -> int:
    """The permissions that a file has, or a new one gets."""
    try:
        return stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return 0o644
