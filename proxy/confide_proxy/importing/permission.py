"""Which paths an agent may have imported: what a person can name in a terminal goes further."""

from __future__ import annotations

import os
from pathlib import Path

from confide_proxy.errors import FolderError
from confide_proxy.importing.reader import Places
from confide_proxy.importing.readers import readers
from confide_proxy.projects import Project

_HINT = "a person can import it in a terminal: confide import PATH"
_SHOWN_FOLDERS = frozenset({".claude"})


def allowed(text: str, base: Path, project: Project, home: Path) -> Path:
    """The path that an agent has named, relative to `base` where it is not absolute.

    Raises:
        FolderError: it is outside of the project and of the home folder, leads through a symlink, or is hidden and no known store.
    """
    if "\0" in text:
        raise FolderError("the path", "holds NUL characters")
    try:
        named = Path(os.path.normpath(base / Path(text).expanduser()))
    except RuntimeError:
        raise FolderError(text, "is in the home folder of nobody") from None
    for root in (project.root, home):
        for spelling in dict.fromkeys((root, root.resolve())):
            if named == spelling and root == home and project.root != home:
                raise FolderError(text, "is the whole home folder", hint="name a folder or a file in it")
            if named == spelling or spelling in named.parents:
                return _plain(text, spelling, named, home)
    raise FolderError(text, "is neither below this project nor below the home folder", hint=_HINT)


def _plain(text: str, root: Path, named: Path, home: Path) -> Path:
    parts = named.relative_to(root).parts
    if any(part.startswith(".") and part not in _SHOWN_FOLDERS for part in parts) and not _is_store(named, home):
        raise FolderError(text, "is hidden, and not where a known system keeps its memories", hint=_HINT)
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise FolderError(text, "leads through a symlink", hint=_HINT)
    if not path.exists():
        raise FolderError(text, "is not there")
    return path


def _is_store(path: Path, home: Path) -> bool:
    known = [place for reader in readers().values() if isinstance(reader, Places) for place in reader.places(home)]
    return any(path == place or place in path.parents for place in known)
