"""How a path of a document is matched: the one meaning of a glob, for `extra`, `exclude` and the `path` of searches and lists.

A glob means what `PurePath.full_match` of Python 3.13 makes of it: `*` and `?` stay within one folder, and `**` between two slashes
stands for any number of folders, also for none. So `docs/**/*.md` takes `docs/a.md`, and `**/*.md` what lies at the top. Without any
of `*?[` it names a file, or a folder with all that is in it.

No regular expression is made of a whole glob, since an agent may send any. Each name is compared by `fnmatch`, whose expressions do not
backtrack, and of several `**` only the last is tried again, so that the work is at most the product of both lengths.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Final

from confide_memory.documents import composed

MARKS: Final = "*?["
_FOLDERS: Final = None
"""Stands for `**`."""


def is_glob(text: str) -> bool:
    """Whether a path has a wildcard in it, and so does not name one file or folder."""
    return any(mark in text for mark in MARKS)


def normal(text: str) -> str:
    """A path or glob as it is compared: composed, without `./`, empty parts, or a slash at its end; "" for the whole folder.

    One that begins with a slash keeps it, and matches no document.
    """
    parts = (part for part in text.split("/") if part not in ("", "."))
    return ("/" if text.startswith("/") else "") + composed("/".join(parts))


def matches(path: str, glob: str) -> bool:
    """Whether the document at `path`, which is composed, is one that a path, a folder or a glob names."""
    glob = normal(glob)
    if not glob or path == glob:  # a file whose own name has a bracket in it is found by it
        return True
    if not is_glob(glob):
        return path.startswith(f"{glob}/")
    return _fits(path.split("/"), _parts(glob))


def leaves_out(path: str, glob: str) -> bool:
    """The same for what is to be kept back: there `*` stands for folders too, and a folder is matched with all that is in it.

    In doubt more is kept back: whoever writes `memory/*-draft.md` does not mean that `memory/old/a-draft.md` is sent.
    """
    glob = normal(glob)
    parts = path.split("/")
    names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return bool(glob) and any(matches(name, glob) or fnmatch.fnmatchcase(name, glob) for name in names)


def fixed_part(glob: str) -> str:
    """The folder above the first wildcard, so that a walk starts as deep as it can; of a path without any, what holds it or is it."""
    parts = normal(glob).split("/")
    fixed: list[str] = []
    for part in parts if not is_glob(glob) and not parts[-1].endswith(".md") else parts[:-1]:
        if is_glob(part) or part == "..":
            break
        fixed.append(part)
    return "/".join(fixed)


def is_deep(glob: str) -> bool:
    """Whether it can match below its fixed part, and not only what lies there."""
    glob = normal(glob)
    rest = glob.removeprefix(fixed_part(glob)).removeprefix("/")
    return "/" in rest or "**" in rest or not is_glob(glob)


@functools.lru_cache(maxsize=512)
def _parts(glob: str) -> tuple[re.Pattern[str] | None, ...]:
    parts: list[re.Pattern[str] | None] = []
    for part in glob.split("/"):
        if part == "**":
            if parts[-1:] != [_FOLDERS]:
                parts.append(_FOLDERS)
        else:
            parts.append(re.compile(fnmatch.translate(part)))
    if parts[-1] is _FOLDERS:  # `memory/**` is what is in the folder
        parts.append(re.compile(fnmatch.translate("*")))
    return tuple(parts)


def _fits(names: list[str], parts: tuple[re.Pattern[str] | None, ...]) -> bool:
    name = part = 0
    again: tuple[int, int] | None = None  # after the last `**`, and the first name that it has not taken
    while name < len(names):
        now = parts[part] if part < len(parts) else None
        if part < len(parts) and now is _FOLDERS:
            part += 1
            again = (part, name)
        elif now is not None and now.match(names[name]):
            name, part = name + 1, part + 1
        elif again is not None:
            part, name = again[0], again[1] + 1
            again = (part, name)
        else:
            return False
    return part == len(parts)
