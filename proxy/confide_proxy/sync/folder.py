"""Read and write the memory files in a folder on this device. No other code does so.

Every path is walked component by component with directory descriptors and `O_NOFOLLOW`, so that no
symlink, however it got there, leads a read or a write outside. Only memory files are written:
`MEMORY.md`, `memory.md` and `memory/**/*.md`; files that match further globs from the user's
configuration are only read. Files that the project's own configuration excludes are neither read
nor written.

Paths are those of documents: composed (NFC), as `documents` allows them. They also find a file
whose name is decomposed (NFD) on the disk, and it keeps its spelling. If a folder has both, the
composed one is the document, and the other is reported and left alone.

A file is replaced atomically, and never if it was changed after it was read.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from confide_crypto import portable
from confide_crypto.errors import printable
from confide_memory import documents
from confide_memory.documents import MAX_TEXT_BYTES, MEMORY_FILES, MEMORY_FOLDER, text_hash, to_nfc
from confide_memory.globs import fixed_part, matches
from confide_proxy import folder_access
from confide_proxy.errors import ChangedMeanwhileError, DiskRefusalError, FolderError
from confide_proxy.folder_access import OpenFolder
from confide_proxy.sync.walk import (
    FILE,
    Narrowing,
    Unread,
    is_folder,
    is_link,
    is_project,
    list_entries,
    open_descending,
    tree,
)

if TYPE_CHECKING:
    from confide_proxy.sealing.context import FileSealer
    from confide_proxy.sealing.sealer import Secret

_PART = "confide-part"
_SYMLINK = "is a symlink"
_NO_FILE = "is not a regular file"
_NO_FOLDER = "is not a folder"
_TWIN = "has the name of another file, spelled otherwise in Unicode, or spelled in a mixture: rename it"
_SUFFIX = "does not end in .md: rename it"
_SPELLING = f"is not spelled {MEMORY_FOLDER} or {MEMORY_FILES[0]}, so it is no memory: rename it"
OWN_PROJECT = "is a project of its own"
"""The reason why a folder is left out that `extra` would cover: a yes to the files of one project
does not hold for another's, which may exclude files itself.
"""
_POINTER = re.compile(
    r"(?P<lfs>version https://(?:git-lfs|hawser)\.github\.com/spec/v1\r?\n(?:[a-z0-9.-]+ [^\n]*\n)+)\Z|/annex/objects/[^\n]*\n?\Z"
)
"""The whole of a file that a tool puts in place of a text that it has not fetched."""
_FETCH = {"Git LFS": "git lfs pull", "git-annex": "git annex get"}
_SAVING_S = 0.1
"""Longest time in seconds to wait for a program that is saving a file; after that it is read as it
is, and again at the next event.
"""
_LOOK_S = 0.01
MAX_FILES = 50_000
"""Most files of one folder: more are a mistake, not memory, and raise FolderError."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
"""Errors of file systems without hard links (FAT, some network mounts)."""


class ScannedFile(NamedTuple):
    """A file found in a folder, whose content has not been read yet."""

    path: str
    size: int
    mtime_ns: int


class FolderRules(NamedTuple):
    """Rules that decide if a path is watched, loaded once for a walk through the folder.

    Attributes:
        excludes: returns True for a path that the project excludes.
        is_project: returns True for the path of a subfolder that is a project of its own.
    """

    excludes: Callable[[str], bool]
    is_project: Callable[[str], bool]


class FolderListing(NamedTuple):
    """The files that one walk through a folder found.

    Attributes:
        found: the watched files, without those that the caller already knows.
        passed_by: (path, reason) of files that are not watched, for the user; hidden files are not
            listed.
        unread: watched files that could not be looked at, and folders that could not be listed and
            may contain watched files.
    """

    found: list[ScannedFile]
    passed_by: list[tuple[str, str]]
    unread: Unread

    def unread_memory(self) -> Unread:
        """Return what could not be read in the memory itself. Other folders, which `extra` only
        passes through, may belong to another user for good reason, such as a database's.
        """
        return {path: why for path, why in self.unread.items() if is_of_memory(path)}


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file in the form in which it is sent, and facts about the file.

    Attributes:
        text, hash: the text with placeholders for credentials if the folder has a sealer, otherwise
            as in the file; and its hash.
        size, mtime_ns: size and modification time of the file, to recognize that it is unchanged.
        secrets: the credentials whose encrypted records the daemon must get before the text.
        values: the values of the placeholders in the text.
        mark: the mark of the sealing (`FileSealer.mark`).
        is_waiting: True if a credential is redacted only because this device has no keys yet.
        is_to_be_sent: True if the file was just written from a text of the daemon, and must be sent
            back as it is sealed now.
        own_hash: the hash of the file's unsealed text; "" if it is unknown.
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
    """The memory files below `root`, and the files that match the user's `extra` globs.

    Attributes:
        project: the project of these files.
        root: the folder that contains `MEMORY.md` and `memory/`.
        extra: globs relative to `root`; matching `*.md` files are read, never written. A glob does not
            reach into another project, unless it names that project's folder without wildcards.
        max_bytes: larger files are not read.
        is_tree: files that match `extra` may be written too: the folder belongs to no project and
            contains copies only.
        sealer: seals texts that are read, and restores credentials in texts that are written.
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
        """Return True if `path` is a memory path of this folder, so that Confide may write a
        document there.
        """
        if self.is_tree:
            return self.is_watched(path)
        return documents.is_memory(path) and not self.narrowing.excludes(path)

    def is_watched(self, path: str) -> bool:
        """Return True if a file at `path` is sent to the daemon: its name is allowed, and no
        setting of the folder excludes it.
        """
        # A tree contains copies of stored documents: transcripts, and paths that an earlier version
        # allowed.
        return self._is_watched(path, self._rules(self.narrowing.excludes))

    def _rules(self, excludes: Callable[[str], bool]) -> FolderRules:
        return FolderRules(excludes, functools.cache(lambda below: is_project(self.root / self.spelling_of(below))))

    def _is_watched(self, path: str, rules: FolderRules) -> bool:
        why = documents.unsafe(path) if self.is_tree else documents.path_problem(path)
        return why is None and self._could_be(path, rules)

    def why_not(self, path: str) -> str:
        """Return the reason why `path` is not a memory path of this folder."""
        if self.narrowing.own_notes.is_index(path):
            return "is the index of Claude Code's own notes, which stays on this device"
        if self.narrowing.excludes(path):
            return f"is excluded by {FILE}"
        rules = self._rules(self.narrowing.excludes)
        # Outside the memory folders the place is the better reason than the name.
        why = documents.path_problem(path) if self._could_be(path, rules) else None
        if (
            why is None
            and not documents.is_in_memory(path)
            and any(glob and matches(path, glob) for glob in self.extra)
        ):
            other = next(filter(rules.is_project, _above(path)), None)
            return f"is in {other}, which {OWN_PROJECT}" if other else "is outside the memory folders"
        return f"has a name that is not allowed: {why}" if why else "is outside the memory folders"

    def _could_be(self, path: str, rules: FolderRules) -> bool:
        """Return True if a file at this place is watched, whatever its name."""
        is_here = documents.is_in_memory(path) or self._is_extra(path, rules)
        return is_here and not rules.excludes(path)

    def _is_extra(self, path: str, rules: FolderRules) -> bool:
        globs = [glob for glob in self.extra if glob and matches(path, glob)]
        if not globs or self.is_tree:
            return bool(globs)
        others = [folder for folder in _above(path) if rules.is_project(folder)]
        return any(not any(_is_below(other, fixed_part(glob)) for other in others) for glob in globs)

    def walk(self, *, below: str = "") -> Iterator[ScannedFile]:
        """Yield every watched file that is no symlink. If `below` is given, only that subfolder is
        searched. Use `look` where it matters that all could be read.

        Raises FolderError if there are more than `MAX_FILES`.
        """
        seen = 0
        linked: set[str] = set()
        rules = self._rules(self.narrowing.now())
        for spelled, entry in tree(self.root, below, below.count("/") + 1) if below else self._entries(rules, {}):
            if (file := self._file_at(to_nfc(spelled), spelled, entry, rules, linked, {})) is not None:
                self._check_count(seen := seen + 1)
                yield file

    def look(self, is_known: Callable[[str, int, int], bool] = lambda *_file: False) -> FolderListing:
        """Return the watched files, and the files that are not watched with the reasons, in one
        walk through the folder.

        `is_known` is called with the path, size and modification time (in nanoseconds) of a file.
        If it returns True, the caller knows the file as a watched one; the file is then left out,
        at little more cost than reading its status.

        Raises FolderError if there are more than `MAX_FILES` watched files.
        """
        seen = 0
        linked: set[str] = set()
        rules = self._rules(self.narrowing.now())
        found: list[ScannedFile] = []
        passed_by = [(MEMORY_FOLDER, problem)] if (problem := self.memory_problem()) else []
        others: list[str] = []
        unread: Unread = {}
        for spelled, entry in self._entries(rules, unread, others):
            path = to_nfc(spelled)
            # Composed on the disk as well: no other file is that document.
            if path == spelled and (plain := _plain(path, entry)) is not None and is_known(*plain):
                self._check_count(seen := seen + 1)
                if not path.isascii():
                    linked.add(path)
            elif (file := self._file_at(path, spelled, entry, rules, linked, unread)) is not None:
                self._check_count(seen := seen + 1)
                found.append(file)
            elif path not in unread and (why := self._why_passed_by(path, spelled, entry, rules)) is not None:
                passed_by.append((printable(spelled), why))
        passed_by += [(printable(spelled), OWN_PROJECT) for spelled in others]
        passed_by += [(spelled, _SPELLING) for spelled in self._misspelled()]
        unread = {path: why for path, why in unread.items() if path == "." or self._could_hold(path, rules)}
        return FolderListing(found, passed_by, unread)

    def memory_problem(self) -> str:
        """Return why `memory` is not a folder of memory files, as a part of a sentence; "" if it is
        one, or does not exist.
        """
        place = self.root / MEMORY_FOLDER
        if is_link(place):
            return _SYMLINK
        return _NO_FOLDER if os.path.lexists(place) and not is_folder(place) else ""

    def _misspelled(self) -> Iterator[str]:
        """Yield files and folders with a name of memory in another case, where the disk distinguishes
        it from the right one: `Memory.md`, or `Memory/` with notes in it.
        """
        for name, entry in list_entries(self.root, ""):
            plain = documents.with_plain_suffix(name.lower())
            if plain not in (MEMORY_FOLDER, MEMORY_FILES[1]) or name in (MEMORY_FOLDER, *MEMORY_FILES):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder is (plain != MEMORY_FOLDER) or any(
                _is_same(entry.path, self.root / one) for one in (MEMORY_FOLDER, *MEMORY_FILES)
            ):
                continue
            if not is_folder or any(one.endswith(".md") for one, _ in list_entries(self.root, name)):
                yield name

    def passed_by(self) -> list[tuple[str, str]]:
        """Return (path, reason) of the files that are not watched, for the user; hidden files are
        not listed. Raises FolderError if there are more than `MAX_FILES` watched files.
        """
        return self.look().passed_by

    def _check_count(self, seen: int) -> None:
        if seen > MAX_FILES:
            raise FolderError(str(self.root), f"holds more than {MAX_FILES:,} markdown files")

    def _file_at(
        self,
        path: str,
        spelled: str,
        entry: os.DirEntry[str],
        rules: FolderRules,
        linked: set[str],
        unread: Unread,
    ) -> ScannedFile | None:
        """Return the watched file at a walk's entry, or None. `linked`: paths with several
        spellings on the disk, of this walk. `unread` receives the file if it cannot be looked at.
        """
        if not self._is_watched(path, rules) or documents.unkept(path) or path in linked:
            return None
        if not entry.is_file(follow_symlinks=False) or not self._is_document(path, spelled):
            return None
        if not path.isascii():
            linked.add(path)
        return _plain(path, entry, unread)

    def _why_passed_by(self, path: str, spelled: str, entry: os.DirEntry[str], rules: FolderRules) -> str | None:
        if entry.is_symlink():
            is_here = self._is_watched(path, rules) or self._is_watched(f"{path}/x.md", rules)
            return _SYMLINK if is_here else None
        plain = documents.with_plain_suffix(path)
        if not plain.endswith(".md") or documents.is_hidden(path) or not self._could_be(plain, rules):
            return None  # not markdown, an editor's file, or outside the memory
        if path != plain:  # *.md as a glob means no .markdown, but a folder of memory is for both
            return _SUFFIX if documents.is_in_memory(path) or path.lower().endswith(".md") else None
        if documents.path_problem(path) is not None:
            return self.why_not(path)
        if not entry.is_file(follow_symlinks=False):
            return _NO_FILE
        return None if self._is_document(path, spelled) else _TWIN

    def spelling_of(self, path: str) -> str:
        """Return the path of a document as its file is spelled on the disk, which may use another
        Unicode normalization. Parts that do not exist yet keep their spelling.
        """
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
        """Return True if `path` leads to the file with that spelling, and not to another one."""
        leading = path if path == spelled else self.spelling_of(path)
        if leading == spelled:
            return True
        try:  # a disk that treats all spellings as the same
            return os.path.samestat(os.lstat(self.root / leading), os.lstat(self.root / spelled))
        except OSError:
            return False

    @property
    def mark(self) -> str:
        """Return the present mark of the sealing (`FileSealer.mark`), or "" if the folder has no
        sealer.
        """
        return self.sealer.mark if self.sealer else ""

    def read(self, path: str) -> Content | None:
        """Return the file's text in the form in which it is sent, or None if the file does not
        exist.

        Raises FolderError if a part of the path is a symlink, or if the file is too large, not
        UTF-8, not readable, or blocked by the policy.
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
        """Return the file's unsealed text, its size and its modification time in nanoseconds."""
        if not self.is_watched(path):
            raise FolderError(path, self.why_not(path))
        try:
            with self._parent(path) as (parent, name):
                try:
                    fd = folder_access.open_file(parent, name, os.O_RDONLY | portable.NO_WAIT)
                except FileNotFoundError:
                    if _is_evicted(name, parent):
                        raise FolderError(path, "is in iCloud alone: open it once, and it comes back") from None
                    raise
                if not is_spelled_so(name, parent, fd):
                    os.close(fd)
                    return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _explain(path, error) from error
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            if stat.S_ISDIR(status.st_mode):
                return None  # a folder has this name, so the file does not exist
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
        if (of := _POINTER.match(text)) is not None:
            tool = "Git LFS" if of["lfs"] else "git-annex"
            raise FolderError(path, f"is a pointer of {tool}, not its text, which {_FETCH[tool]} fetches")
        return text, len(data), mtime_ns

    def own_text(self, path: str) -> str | None:
        """Return the file's text without sealing, or None if the file does not exist.

        Raises FolderError if a part of the path is a symlink, or if the file is too large, not
        UTF-8, not readable, or blocked by the policy.
        """
        found = self._read(path)
        return found[0] if found else None

    def is_missing(self, path: str) -> bool:
        """Return True only if it is certain that the file does not exist: the root folder exists,
        and the file's own folder is readable and does not contain it.
        """
        try:
            return self.root.is_dir() and self._read(path) is None
        except FolderError:
            return False

    def write(
        self, path: str, text: str, *, over: Content | None, before: Callable[[int, int], None] = lambda *_inodes: None
    ) -> Content:
        """Write `text` to `path`, durably and atomically (temporary file, fsync, rename).

        Placeholders in `text` become the credentials that `over` has in clear.

        Args:
            over: the content that is replaced, as it was read; None if no file may exist.
            before: called right before the replacement with the inode numbers of the new file and
                of the replaced one, 0 if there is none.

        Raises:
            ChangedMeanwhileError: the file was changed after it was read, so a user's edit would be
                lost.
            FolderError: the path is not a memory path or contains a symlink, the disk is full, or
                the file is not writable.
        """
        if not self.is_memory(path):
            raise FolderError(path, self.why_not(path))
        restored = self.sealer.restore(path, text, over.text, over.values) if self.sealer and over else text
        data = restored.encode("utf-8")
        if len(data) > MAX_TEXT_BYTES:
            raise FolderError(path, f"would be larger than {MAX_TEXT_BYTES // 1024:,} KiB")
        try:
            with self._parent(path, create=True) as (parent, name):
                # By hash, since the name itself may have the greatest length of a name.
                part = f".{text_hash(name)[:16]}.{os.getpid()}.{_PART}"
                mode = _mode_of(name, parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                try:
                    with open(folder_access.open_file(parent, part, flags, mode), "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                        status = os.fstat(file.fileno())
                    before(status.st_ino, self.inode(path))
                    _put_in_place(part, name, parent, path, over)
                finally:
                    with suppress(FileNotFoundError):
                        folder_access.unlink(parent, part)
                folder_access.sync(parent)
        except OSError as error:
            raise _explain(path, error) from error
        return self._content_written(path, text, restored, len(data), status.st_mtime_ns)

    def _content_written(self, path: str, text: str, restored: str, size: int, mtime_ns: int) -> Content:
        try:
            content = self._content(path, restored, size, mtime_ns)
        except FolderError:
            # The daemon sent it like this; a file that the policy blocks is not sent back, and is
            # reported when it is read.
            return Content(text, text_hash(text), size, mtime_ns)
        if self.sealer is None or content.text == text:
            return content
        # Without keys, the credential would be redacted for all devices.
        is_to_be_sent = not content.is_waiting and self.sealer.is_to_be_sent(path, text, restored)
        return replace(content, is_to_be_sent=is_to_be_sent)

    def inode(self, path: str) -> int:
        """Return the inode number of the file at `path`; 0 if it does not exist or cannot be
        accessed.
        """
        try:
            with self._parent(path) as (parent, name):
                return folder_access.status(parent, name).st_ino
        except OSError:
            return 0

    def is_still(self, path: str, content: Content) -> bool:
        """Return True if a file still has the size and modification time that it had when `content`
        was read.
        """
        try:
            with self._parent(path) as (parent, name):
                now = folder_access.status(parent, name)
        except (OSError, FolderError):
            return False
        return (now.st_size, now.st_mtime_ns) == (content.size, content.mtime_ns)

    def sweep(self) -> None:
        """Remove temporary files that a crash has left behind. Blocks as long as a walk."""
        with suppress(OSError):
            names = [
                *(entry.name for entry in os.scandir(self.root)),
                *(path for path, _ in tree(self.root, MEMORY_FOLDER, 1)),
            ]
            for name in names:
                if name.endswith(_PART) and not _is_alive(name.split(".")[-2]):
                    (self.root / name).unlink()

    def delete(self, path: str, *, over: Content) -> None:
        """Delete a file that was read as `over`; do nothing if it does not exist.

        Raises:
            ChangedMeanwhileError: the file was changed after it was read.
            FolderError: the path is not a memory path or contains a symlink, the file is not
                writable, or it contains a credential that is stored nowhere else.
        """
        if not self.is_memory(path):
            raise FolderError(path, self.why_not(path))
        if self.sealer is not None:
            self.sealer.check_removable(path, over.values)
        try:
            with self._parent(path) as (parent, name):
                _check_unchanged(name, parent, path, over)
                folder_access.unlink(parent, name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _explain(path, error) from error

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[OpenFolder, str]]:
        *folders, name = PurePosixPath(self.spelling_of(path)).parts
        # The root is never created here: an empty one in place of an unmounted disk would look as
        # if all files were deleted. A project's folder may be a symlink of its owner; Confide
        # itself creates that of a tree.
        links = portable.NO_LINK if self.is_tree else 0
        with open_descending(self.root, folders, create=create, flags=links) as parent:
            yield parent, name

    def _entries(
        self, rules: FolderRules, unread: Unread, others: list[str] | None = None
    ) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the entries that may be watched. `unread` receives the folders that cannot be
        listed, `others` those of other projects, which are not entered.
        """
        for name in MEMORY_FILES:
            yield from list_entries(self.root, "", only=name, unread=unread)
        yield from tree(self.root, MEMORY_FOLDER, 1, unread=unread)
        memory = f"{MEMORY_FOLDER}/"
        tops = {fixed_part(glob) for glob in self.extra}

        def is_apart(spelled: str) -> bool:
            path = to_nfc(spelled)
            is_named = any(f"{top}/".startswith(f"{path}/") for top in tops)
            if is_named or path == MEMORY_FOLDER or path.startswith(memory):
                return False
            is_other = rules.is_project(path)
            if is_other and others is not None:
                others.append(spelled)
            return is_other

        for top in sorted(top for top in tops if not _is_below_another(top, tops)):
            spelled = self.spelling_of(top)
            for path, entry in tree(self.root, spelled, 1, is_apart=None if self.is_tree else is_apart, unread=unread):
                if not path.startswith(memory) and path not in MEMORY_FILES:
                    yield path, entry

    def could_hold(self, path: str) -> bool:
        """Return True if `path` is watched as a file, or if it is a folder that may contain watched
        files.
        """
        return self._could_hold(path, self._rules(self.narrowing.excludes))

    def _could_hold(self, path: str, rules: FolderRules) -> bool:
        return self._is_watched(path, rules) or self._is_watched(f"{path}/x.md", rules)


def is_of_memory(path: str) -> bool:
    """Return True if the path is at a location of memory files, or a folder that contains some."""
    return documents.is_in_memory(path) or path in (MEMORY_FOLDER, ".")


def _is_same(one: str, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _plain(path: str, entry: os.DirEntry[str], unread: Unread | None = None) -> ScannedFile | None:
    """Return the size and time of an entry; None if it is no regular file, or gone. `unread`
    receives a file that cannot be looked at, as in a folder without the right to enter it.
    """
    try:
        if not entry.is_file(follow_symlinks=False):
            return None
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # deleted since the folder was listed
    except OSError as error:
        if unread is not None:
            unread[path] = f"cannot be opened: {error.strerror}"
        return None
    return ScannedFile(path, status.st_size, status.st_mtime_ns)


def _above(path: str) -> Iterator[str]:
    """Yield the folders that contain a path, the outermost first."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _is_below(folder: str, top: str) -> bool:
    return folder.startswith(f"{top}/") if top else True


def _is_below_another(top: str, tops: set[str]) -> bool:
    """Return True if a walk of another of these folders includes this one."""
    return any(top != other and (not other or top.startswith(f"{other}/")) for other in tops)


def _whole(file: BinaryIO, most: int) -> tuple[bytes, int]:
    """Return the contents of a file and its modification time; wait up to `_SAVING_S` while a
    program is saving it.
    """
    until = time.monotonic() + _SAVING_S
    while True:
        before = os.fstat(file.fileno())
        file.seek(0)
        data = file.read(most)
        after = os.fstat(file.fileno())
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        # Most programs truncate a file before they write it.
        is_emptied = not data and 0 <= time.time() - after.st_mtime < _SAVING_S
        if (is_same and not is_emptied) or time.monotonic() > until:
            return data, before.st_mtime_ns
        time.sleep(_LOOK_S)


def _explain(path: str, error: OSError) -> FolderError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return FolderError(path, "leads through a symlink or a file", hint="memory folders hold plain files only")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskRefusalError(path, "cannot be written: the disk is full", hint="free some space; nothing was lost")
    if error.errno in (errno.EBUSY, errno.EXDEV):  # a file of its own in a container, say
        return DiskRefusalError(path, "cannot be replaced: the file alone is mounted", hint="mount its folder instead")
    return DiskRefusalError(path, f"cannot be opened: {error.strerror}")


def _put_in_place(part: str, name: str, parent: OpenFolder, path: str, over: Content | None) -> None:
    """Rename the file `part` in the folder `parent` to `name`, replacing `over`; None if no file
    may exist.

    Raises ChangedMeanwhileError: the file was changed after it was read, or exists now; OSError:
    the disk fails.
    """
    try:
        if over is None:
            # Unlike a rename, a link fails if the file was just created.
            folder_access.name_new(parent, part, name)
            return
        # Only microseconds pass between this check and the rename, not the milliseconds of the
        # write and its fsync.
        _check_unchanged(name, parent, path, over)
    except (FileExistsError, FileNotFoundError):
        raise ChangedMeanwhileError(path) from None
    except OSError as error:
        if over is not None or error.errno not in _NO_LINKS:
            raise
    folder_access.replace(parent, part, name)


def _check_unchanged(name: str, parent: OpenFolder, path: str, over: Content) -> None:
    """Check that a file is as it was read, by its contents too: a program may restore the
    modification time.

    Raises ChangedMeanwhileError, OSError.
    """
    fd = folder_access.open_file(parent, name, os.O_RDONLY | portable.NO_WAIT)
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


def _is_evicted(name: str, parent: OpenFolder) -> bool:
    """Return True if macOS has taken a file from the disk and left a hidden one in its place."""
    try:
        return stat.S_ISREG(folder_access.status(parent, f".{name}.icloud").st_mode)
    except OSError:
        return False


def is_spelled_so(name: str, parent: OpenFolder, fd: int) -> bool:
    """Return True if the open file `fd` has exactly this name. A case-insensitive disk opens it
    under other spellings too.
    """
    try:
        other = folder_access.status(parent, name.swapcase())
    except OSError:
        return True
    if not os.path.samestat(other, os.fstat(fd)):
        return True
    with folder_access.entries(parent) as entries:
        # Such a disk may not distinguish Unicode spellings either.
        return any(to_nfc(entry.name) == to_nfc(name) for entry in entries)


def _is_alive(pid: str) -> bool:
    """Return True if a process with this id exists on this device."""
    try:
        return portable.is_alive(int(pid))
    except (ValueError, OverflowError):
        return False


def _mode_of(name: str, parent: OpenFolder) -> int:
    """Return the permissions of a file, or those of a new one."""
    try:
        return stat.S_IMODE(folder_access.status(parent, name).st_mode)
    except FileNotFoundError:
        return 0o644
