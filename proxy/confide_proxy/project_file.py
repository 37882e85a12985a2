"""`.confide.toml` in a project: what its name is, and which files are left out. Nothing in it can widen what is watched or sent.

A file that cannot be understood leaves everything out until it is right: what somebody meant to keep back must not go out by a typing
mistake.
"""

from __future__ import annotations

import fnmatch
import stat
from dataclasses import dataclass
from pathlib import Path

FILE = ".confide.toml"
MAX_BYTES = 64 * 1024
MAX_GLOBS = 256


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """What a project says of itself.

    Attributes:
        name: None where it gives none.
        exclude: globs of files that are left out, in lower case; None leaves out all.
        notices: what of it has no effect, and why.
    """

    name: str | None = None
    exclude: tuple[str, ...] | None = ()
    notices: tuple[str, ...] = ()


class Narrowing:
    """What a project's file leaves out, as the file is at each moment."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self._stamp: tuple[int, ...] | None = None
        self._file = ProjectFile()

    def excludes(self, path: str) -> bool:
        """Whether the file at `path`, or a folder that it is in, is left out."""
        globs = self._now().exclude
        if not globs:
            return globs is None
        # In lower case: on some file systems the same file has another case.
        parts = path.lower().split("/")
        names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs for name in names)

    def notices(self) -> tuple[str, ...]:
        """What of the file has no effect, for a person."""
        return self._now().notices

    def _now(self) -> ProjectFile:
        try:
            status = self._path.stat()
            stamp: tuple[int, ...] | None = (status.st_ino, status.st_size, status.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            stamp = None
        except OSError:
            stamp = ()
        if stamp != self._stamp:
            self._file = load(self._path.parent)
            self._stamp = stamp
        return self._file


def load(root: Path) -> ProjectFile:
    """What the project's file says; what it is not there for is what the notices are about."""
    try:
        if not stat.S_ISREG((root / FILE).stat().st_mode):  # opening a pipe would wait for ever
            return _broken("is no regular file")
        with (root / FILE).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ProjectFile()
    except OSError as error:
        return _broken(f"cannot be read ({error.strerror})")
    if len(data) > MAX_BYTES:
        return _broken(f"is larger than {MAX_BYTES // 1024} KiB")
    import tomllib  # few folders have such a file

    try:
        table = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return _broken(f"is not TOML ({error})")
    name = table.pop("name", None)
    notices = [
        f"has a '{_shown(key)}', which is ignored: a project can only name itself and exclude files"
        for key in table
        if key != "exclude"
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
    kept = (glob.removeprefix("./").rstrip("/").lower() for glob in globs if glob not in idle)
    return ProjectFile(name, tuple(glob for glob in kept if glob), tuple(notices))


def _broken(problem: str) -> ProjectFile:
    return ProjectFile(None, None, (f"{problem}; nothing of this project is sent or received until it is right",))


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:64])
