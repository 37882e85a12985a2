"""What there is to import that nobody has named: notes and decisions of a project, and the stores of other systems in the home folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from confide_proxy.sync.project import Project
from confide_proxy.transfer import files
from confide_proxy.transfer.files import is_folder
from confide_proxy.transfer.formats.adr import is_decision, is_template
from confide_proxy.transfer.plan import Store
from confide_proxy.transfer.readers import readers

NOTES: Final = ("NOTES.md", "notes.md", "CLAUDE.md")
FOLDERS: Final = (".", "docs", "doc")
DECISION_FOLDERS: Final = ("adr", "adrs", "decisions", "architecture/decisions")
MOST_FILES: Final = 500
"""Of one folder that are looked at."""


def in_project(project: Project) -> list[Store]:
    """The notes and decisions that people keep in a repository; what is living memory already is not among them."""
    root, reader = project.root, readers()["markdown"]
    paths = [root / name for name in NOTES if _is_file(root / name)]
    paths += [root / ".claude" / name for name in _names(root / ".claude") if name.lower().endswith(".md")]
    for folder in FOLDERS:
        # By name alone: a folder of documents may hold a thousand, and this is asked while somebody waits.
        names = [name for name in _names(root / folder) if is_decision(name, []) and not is_template(name)]
        paths += [root / folder / name for name in names]
        paths += [root / folder / inner for inner in DECISION_FOLDERS if _holds_markdown(root / folder / inner)]
    # NOTES.md and notes.md are one file where the file system takes no notice of case.
    return [Store(path, reader) for path in _distinct(paths) if not files.is_excluded(path)]


def in_home(home: Path, name: str | None = None) -> list[Store]:
    """The stores of other systems where these usually are; those of one system, if it is named."""
    found: list[Store] = []
    for reader in readers().values():
        if name in (None, reader.name):
            found += [
                Store(path, reader) for path in reader.places(home) if os.path.lexists(path) and reader.recognises(path)
            ]
    return found


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _names(folder: Path) -> list[str]:
    if not is_folder(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            found = (entry.name for entry in entries if entry.is_file(follow_symlinks=False))
            return sorted(name for _, name in zip(range(MOST_FILES), found, strict=False))
    except OSError:
        return []


def _holds_markdown(folder: Path) -> bool:
    return any(name.lower().endswith(".md") for name in _names(folder))


def _distinct(paths: list[Path]) -> list[Path]:
    by_file: dict[tuple[int, int], Path] = {}
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError:
            continue
        by_file.setdefault((status.st_dev, status.st_ino), path)
    return list(by_file.values())
