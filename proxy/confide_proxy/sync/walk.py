"""What lies below a folder, as its disk spells it, the way down to it on which no symlink is followed, and what its project's own file
leaves out: the one file that is opened here.

Nothing in `.confide.toml` can widen what is watched or sent: it leaves files out, and claims a name, which `sync/project_names.py` gives
or not. One that cannot be understood
leaves everything out until it is right: what somebody meant to keep back must not go out by a typing mistake.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from confide_memory.documents import MAX_DEPTH, TOOL_FOLDERS, composed
from confide_memory.globs import leaves_out
from confide_proxy.clients.own_notes import OwnNotes

FILE = ".confide.toml"
MAX_BYTES = 64 * 1024
MAX_GLOBS = 256
MAX_DOTS = 2048
"""A key of 30,000 parts takes a parser of TOML, whose work grows with their square, a quarter of a minute."""
NOT_PLAIN = frozenset({errno.EINVAL, errno.ELOOP, errno.ENXIO})
"""Of a pipe, a folder or a device; of a link; of a socket."""


def listed(root: Path, folder: str, *, only: str | None = None) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is in a folder of `root`, by path; nothing where it cannot be listed."""
    try:
        with os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if only is None or entry.name == only:
                    yield (f"{folder}/{entry.name}" if folder else entry.name), entry
    except OSError:
        return  # not there, or not ours to list: nothing to walk


def tree(root: Path, folder: str, depth: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is below it but folders, hidden folders and what tools make left out. Symlinks are not followed."""
    if depth > MAX_DEPTH or (folder and (root / folder).is_symlink()):
        return
    for path, entry in listed(root, folder):
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in TOOL_FOLDERS:
                yield from tree(root, path, depth + 1)
        else:
            yield path, entry


@contextmanager
def descended(root: Path, folders: Iterable[str], *, create: bool = False, flags: int = 0) -> Iterator[int]:
    """A descriptor of the folder that is reached from `root` by these names, one after the other.

    Args:
        create: make what is not there; the root is never made.
        flags: for the root alone, which may be a link otherwise.

    Raises OSError: one is not there, no folder, or a symlink.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        for folder in folders:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=fd)
            deeper = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


def plain_file(file: Path, most: int) -> tuple[bytes, os.stat_result]:
    """At most so many bytes of a file, and what it is; of a link, a pipe or a device nothing is read, for one might wait without end.

    Raises OSError: it is not there, or cannot be read; with one of `NOT_PLAIN` where it is no plain file.
    """
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(fd, "rb") as opened:
        return opened.read(most), status


class ProjectFile(NamedTuple):
    """What a project says of itself.

    Attributes:
        name: None where it gives none.
        exclude: globs of files that are left out, in lower case and composed; None leaves out all.
        notices: what of it has no effect, and why.
    """

    name: str | None = None
    exclude: tuple[str, ...] | None = ()
    notices: tuple[str, ...] = ()


class Narrowing:
    """What a project's file leaves out, as the file is at each moment."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self.own_notes = OwnNotes(root)
        self._stamp: tuple[int, ...] | None = None
        self._file = ProjectFile()

    def excludes(self, path: str) -> bool:
        """Whether the file at `path`, or a folder that it is in, is left out; or what Claude Code takes for orders is in it."""
        if self.own_notes.is_index(path):
            return True
        globs = self._now().exclude
        if not globs:
            return globs is None
        # On some file systems the same file has another case, or another spelling in Unicode.
        name = _folded(path)
        return any(leaves_out(name, glob) for glob in globs)

    def notices(self) -> tuple[str, ...]:
        """What of the file has no effect, for a person."""
        return self._now().notices

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
    """What the project's file says; what it is not there for is what the notices are about."""
    try:
        # Behind a link there is a file outside, whose name would be sent.
        data, _status = plain_file(root / FILE, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ProjectFile()
    except OSError as error:
        return _broken("is no regular file" if error.errno in NOT_PLAIN else f"cannot be read ({error.strerror})")
    if len(data) > MAX_BYTES:
        return _broken(f"is larger than {MAX_BYTES // 1024} KiB")
    if data.count(b".") > MAX_DOTS:
        return _broken(f"has more than {MAX_DOTS:,} dots")
    import tomllib  # few folders have such a file

    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return _broken(f"is not TOML ({error})")
    name = table.pop("name", None)
    notices = [
        f"has a '{_shown(key)}', which is ignored: a project can only name itself, exclude files and switch hooks off"
        for key in table
        if key != "exclude" and not (key == "hooks" and table[key] is False)
    ]
    if name is not None and not isinstance(name, str):
        notices.append("has a name that is not a string, which is ignored")
        name = None
    globs = table.get("exclude", [])
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs) or len(globs) > MAX_GLOBS:
        said = f'takes a list of at most {MAX_GLOBS} globs as in exclude = ["memory/private/*.md"]'
        broken = _broken(said)
        return ProjectFile(name, None, (*notices, *broken.notices))
    # "!" would take something back in other programs' files.
    idle = [glob for glob in globs if glob.startswith(("!", "/")) or ".." in glob.split("/")]
    notices += [f"excludes nothing by '{_shown(glob)}': globs are relative to the project's folder" for glob in idle]
    relative = (glob.removeprefix("./").rstrip("/") for glob in globs if glob not in idle)
    return ProjectFile(name, tuple(_folded(glob) for glob in relative if glob), tuple(notices))


def _folded(name: str) -> str:
    return composed(name.lower())


def _broken(problem: str) -> ProjectFile:
    return ProjectFile(None, None, (f"{problem}; nothing of this project is sent or received until it is right",))


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:64])
