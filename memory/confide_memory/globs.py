"""Globs: the shared matching rule of paths for `extra`, `exclude` and the `path` of searches and
lists.

A glob works like `PurePath.full_match` of Python 3.13: `*` and `?` match within one folder, and
`**` between two slashes matches any number of folders, also none. So `docs/**/*.md` matches
`docs/a.md`, and `**/*.md` also matches files at the top. A text without any of `*?[` names a file,
or a folder with everything in it.

No regular expression is made of a whole glob, since an agent may send any. Each name is matched by
`fnmatch`, whose expressions do not backtrack, and of several `**` only the last is retried, so the
work is at most the product of both lengths.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import Final

from confide_memory.documents import to_nfc

MARKS: Final = "*?["
_FOLDERS: Final = None
"""Represents `**`."""


def is_glob(text: str) -> bool:
    """Return True if a path contains a wildcard, and so does not name a single file or folder."""
    return any(mark in text for mark in MARKS)


def normal(text: str) -> str:
    """Return a path or glob in a normalized form for comparison: Unicode-composed, without `./`,
    empty parts, or a final slash; "" for the whole folder.

    A leading slash stays, and then no document matches.
    """
    parts = (part for part in text.split("/") if part not in ("", "."))
    return ("/" if text.startswith("/") else "") + to_nfc("/".join(parts))


def matches(path: str, glob: str) -> bool:
    """Return True if `glob`, which is a path, a folder or a glob, matches the document at `path`
    (in Unicode's composed form).
    """
    glob = normal(glob)
    if not glob or path == glob:  # also matches a file with a bracket in its name
        return True
    if not is_glob(glob):
        return path.startswith(f"{glob}/")
    return _fits(path.split("/"), _parts(glob))


def leaves_out(path: str, glob: str) -> bool:
    """Return True if an exclusion applies to the document. Unlike in other globs, `*` also matches
    across folders, and a folder excludes everything in it.

    In doubt more is excluded: a user who writes `memory/*-draft.md` does not expect
    `memory/old/a-draft.md` to be sent.
    """
    glob = normal(glob)
    parts = path.split("/")
    names = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return bool(glob) and any(matches(name, glob) or fnmatch.fnmatchcase(name, glob) for name in names)


def fixed_part(glob: str) -> str:
    """Return the folder above the first wildcard of a glob, where a scan can begin. For a path
    without wildcards, return the folder that it names or is in.
    """
    parts = normal(glob).split("/")
    fixed: list[str] = []
    for part in parts if not is_glob(glob) and not parts[-1].endswith(".md") else parts[:-1]:
        if is_glob(part) or part == "..":
            break
        fixed.append(part)
    return "/".join(fixed)


def is_deep(glob: str) -> bool:
    """Return True if the glob can match files in subfolders of its fixed part, not only files
    directly in it.
    """
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
    if parts[-1] is _FOLDERS:  # `memory/**` matches what is in the folder
        parts.append(re.compile(fnmatch.translate("*")))
    return tuple(parts)


def _fits(names: list[str], parts: tuple[re.Pattern[str] | None, ...]) -> bool:
    name = part = 0
    again: tuple[int, int] | None = None  # index after the last `**`, and of the next name to retry
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
