"""List the files below a folder without following symlinks, and read the project's `.confide.toml`,
which excludes files.

Nothing in `.confide.toml` can extend what is watched or sent: it excludes files, and claims a name,
which `sync/project_names.py` grants or refuses. An invalid file excludes everything until it is
corrected, since a typing error must not send a file that its author meant to exclude.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from confide_crypto import portable
from confide_memory.documents import MAX_DEPTH, TOOL_FOLDERS, to_nfc
from confide_memory.globs import leaves_out
from confide_proxy import folder_access
from confide_proxy.clients.own_notes import OwnNotes
from confide_proxy.folder_access import OpenFolder

FILE = ".confide.toml"
MAX_BYTES = 64 * 1024
MAX_GLOBS = 256
MAX_DOTS = 2048
"""Most dots in the file: the TOML parser's work grows with the square of a key's parts, and 30,000
parts take it a quarter of a minute.
"""
NOT_PLAIN = frozenset({errno.EINVAL, errno.ELOOP, errno.ENXIO})
"""Errors for files that are not regular: a pipe, folder or device; a symlink; a socket."""
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})

Unread = dict[str, str]
"""Folders that could not be listed and files that could not be looked at, with the reasons. What is
in them is not known, which is not the same as nothing.
"""


def list_entries(
    root: Path, folder: str, *, only: str | None = None, unread: Unread | None = None
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the entries of the folder `folder` below `root`, sorted by name, each with its path.
    Yields nothing if the folder cannot be listed; `unread` then receives it, unless it does not
    exist.
    """
    try:
        with os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if only is None or entry.name == only:
                    yield (f"{folder}/{entry.name}" if folder else entry.name), entry
    except OSError as error:
        if unread is not None and error.errno not in _ABSENT:
            unread[folder or "."] = f"cannot be listed: {error.strerror}"


def tree(
    root: Path,
    folder: str,
    depth: int,
    *,
    is_apart: Callable[[str], bool] | None = None,
    unread: Unread | None = None,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all files in a folder and its subfolders. Hidden folders and folders that tools create
    are skipped; symlinks are not followed.

    `is_apart` is called with the path of each other subfolder; if it returns True, the subfolder is
    skipped. `unread` receives the folders that cannot be listed.
    """
    if depth > MAX_DEPTH or (folder and is_link(root / folder)):
        return
    for path, entry in list_entries(root, folder, unread=unread):
        if entry.is_dir(follow_symlinks=False):
            if entry.name.startswith(".") or entry.name in TOOL_FOLDERS or (is_apart is not None and is_apart(path)):
                continue
            yield from tree(root, path, depth + 1, is_apart=is_apart, unread=unread)
        else:
            yield path, entry


def is_link(path: Path) -> bool:
    """Return True if the path is a symlink; False if that cannot be found out."""
    try:
        return path.is_symlink()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Return True if the path leads to a folder; False if that cannot be found out."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_project(folder: Path) -> bool:
    """Return True if a folder is a project by itself: a git repository, submodule or worktree, or a
    folder with a `.confide.toml`.
    """
    return os.path.lexists(folder / ".git") or os.path.lexists(folder / FILE)


@contextmanager
def open_descending(
    root: Path, folders: Iterable[str], *, create: bool = False, flags: int = 0
) -> Iterator[OpenFolder]:
    """Open `root`, and then one folder inside the other by these names; yield the last one.

    Args:
        create: True to create missing folders, except the root.
        flags: further flags for opening the root, such as one that refuses a symlink.

    Raises OSError if a folder does not exist, is not a folder, or is a symlink.
    """
    opened = folder_access.open_root(root, flags)
    try:
        for folder in folders:
            if create:
                with suppress(FileExistsError):
                    folder_access.make(opened, folder)
            opened = folder_access.enter(opened, folder)
        yield opened
    finally:
        folder_access.close(opened)


def plain_file(file: Path, most: int) -> tuple[bytes, os.stat_result]:
    """Read at most `most` bytes of a regular file; return them and the file's status. Symlinks,
    pipes and devices are not read, since reading could block forever.

    Raises OSError if the file does not exist or cannot be read; with an errno in `NOT_PLAIN` if it
    is not a regular file.
    """
    fd = os.open(file, os.O_RDONLY | portable.NO_LINK | portable.NO_WAIT | portable.CLOSED)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(fd, "rb") as opened:
        return opened.read(most), status


class ProjectFile(NamedTuple):
    """The contents of a project's `.confide.toml`.

    Attributes:
        name: the project name that the file claims; None if it claims none.
        exclude: globs of excluded files, in lower case and composed (NFC); None excludes
            everything.
        notices: entries without effect, with the reasons, for users.
    """

    name: str | None = None
    exclude: tuple[str, ...] | None = ()
    notices: tuple[str, ...] = ()


class Narrowing:
    """The exclusions in a project's `.confide.toml`. The file is read again whenever it changes."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self.own_notes = OwnNotes(root)
        self._stamp: tuple[int, ...] | None = None
        self._file = ProjectFile()

    def excludes(self, path: str) -> bool:
        """Return True if the file at `path` or one of its folders is excluded. The index of Claude
        Code's own notes is always excluded, since Claude Code follows it as instructions.
        """
        return self.now()(path)

    def now(self) -> Callable[[str], bool]:
        """Return a function like `excludes` for the file's present content, to be used in one walk.
        It looks at the file only once for any number of paths.
        """
        globs = self._now().exclude

        def excludes(path: str) -> bool:
            if self.own_notes.is_index(path):
                return True
            if not globs:
                return globs is None
            # On some file systems the same file is found under another case, or another Unicode
            # spelling.
            name = _fold_name(path)
            return any(leaves_out(name, glob) for glob in globs)

        return excludes

    def notices(self) -> tuple[str, ...]:
        """Return messages for users about the entries of the file that have no effect."""
        return self._now().notices

    def problem(self) -> str:
        """Return why the file excludes everything until it is corrected, as a part of a sentence;
        "" if it can be read.
        """
        file = self._now()
        return file.notices[-1] if file.exclude is None else ""

    def _now(self) -> ProjectFile:
        try:
            status = self._path.lstat()
            stamp: tuple[int, ...] | None = (status.st_ino, status.st_size, status.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            stamp = None
        except OSError:
            stamp = ()
        if stamp != self._stamp:
            self._file = load_project_file(self._path.parent)
            self._stamp = stamp
        return self._file


def load_project_file(root: Path) -> ProjectFile:
    """Read a project's `.confide.toml`. Problems are reported in its `notices`, and never raised."""
    try:
        # A symlink may lead to a file outside, whose name would be sent.
        data, _status = plain_file(root / FILE, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ProjectFile()
    except OSError as error:
        return _broken_project(
            "is no regular file" if error.errno in NOT_PLAIN else f"cannot be read ({error.strerror})"
        )
    if len(data) > MAX_BYTES:
        return _broken_project(f"is larger than {MAX_BYTES // 1024} KiB")
    if data.count(b".") > MAX_DOTS:
        return _broken_project(f"has more than {MAX_DOTS:,} dots")
    import tomllib  # few folders have such a file

    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return _broken_project(f"is not TOML ({error})")
    return _read_table(table)


def _read_table(table: dict[str, Any]) -> ProjectFile:
    name = table.pop("name", None)
    notices = [
        f"has a '{_printable(key)}', which is ignored: a project can only name itself, exclude files and switch hooks off"
        for key in table
        if key != "exclude" and not (key == "hooks" and table[key] is False)
    ]
    if name is not None and not isinstance(name, str):
        notices.append("has a name that is not a string, which is ignored")
        name = None
    globs = table.get("exclude", [])
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs) or len(globs) > MAX_GLOBS:
        said = f'takes a list of at most {MAX_GLOBS} globs as in exclude = ["memory/private/*.md"]'
        broken = _broken_project(said)
        return ProjectFile(name, None, (*notices, *broken.notices))
    # No file of memory has these characters in its name, and what its author excludes must not go out.
    globs = [glob.strip().replace("\\", "/") for glob in globs]
    # "!" includes files again in other programs' files.
    idle = [glob for glob in globs if glob.startswith(("!", "/")) or ".." in glob.split("/")]
    notices += [
        f"excludes nothing by '{_printable(glob)}': globs are relative to the project's folder" for glob in idle
    ]
    relative = (glob.removeprefix("./").rstrip("/") for glob in globs if glob not in idle)
    return ProjectFile(name, tuple(_fold_name(glob) for glob in relative if glob), tuple(notices))


def _fold_name(name: str) -> str:
    return to_nfc(name.lower())


def _broken_project(problem: str) -> ProjectFile:
    return ProjectFile(None, None, (f"{problem}; nothing of this project is sent or received until it is right",))


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:64])
