"""What a file is called on every machine that has it, so that its memories are known again whichever path was given."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from confide_proxy import projects


def name_of(path: Path) -> str:
    """Where a file or folder is: below its repository's project, or below the home folder, or from the root."""
    file = path.parent.resolve() / path.name
    for folder in file.parents:
        if (folder / ".git").exists():
            return f"{_project_name(folder)}/{file.relative_to(folder).as_posix()}"
    home = Path.home().resolve()
    return f"~/{file.relative_to(home).as_posix()}" if home in file.parents else file.as_posix()


@cache
def _project_name(folder: Path) -> str:
    return projects.identify(folder).name
