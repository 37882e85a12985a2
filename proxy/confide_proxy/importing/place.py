"""What a file is called on every machine that has it, so that its memories are known again whichever path was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from confide_proxy import projects
from confide_proxy.importing.record import NOTE_ID, Record


def placed(records: Iterator[Record], place: str) -> Iterator[Record]:
    """The records of a store whose names for them other stores of the system have as well, such as `index` or `user`."""
    for record in records:
        named = ((kind, other if NOTE_ID.fullmatch(other) else f"{place}#{other}") for kind, other in record.relations)
        yield replace(record, origin=f"{place}#{record.origin}", relations=tuple(named))


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
