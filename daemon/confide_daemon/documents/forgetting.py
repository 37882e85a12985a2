"""What is forgotten: documents with all their revisions go at once, and nothing of their names is taken again until that is undone.

A deletion travels to every machine, and can be taken back for a while. To forget is neither: no machine's file is touched, and no text
stays here. So that the next comparison of a machine that has the file does not bring it back, the names are kept, as they were named: a
file, a folder or a glob, or a whole project. Backups hold what was in them (docs/history.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confide_daemon.errors import BadNameError, ForgottenError
from confide_daemon.store.rows import DocumentRow
from confide_daemon.store.store import Store
from confide_memory.globs import matches, normal

EVERYTHING: Final = ""
"""In the place of a name: the whole project."""
MOST_NAMES: Final = 1000
"""Of one project: each is compared with the path of each write."""
AT_ONCE: Final = 64
"""Documents of one transaction: other writes of the space wait for no more than that."""
MOST_LISTED: Final = 500
_MARK: Final = "forgotten "


@dataclass(frozen=True, slots=True)
class Forgotten:
    """One step. `documents`: which went (of a look: which would go), `total`: all that these names mean, `is_complete`: none are left."""

    documents: tuple[str, ...]
    total: int
    is_complete: bool


def names(store: Store, project: str) -> list[str]:
    """The names of a project of which nothing is taken."""
    return [json.loads(mark.removeprefix(_MARK))[1] for mark in store.marks.named(_of(project))]


def is_forgotten(store: Store, project: str, path: str) -> bool:
    """Whether nothing is taken under this name."""
    return any(matches(path, name) for name in names(store, project))


def check_taken(store: Store, project: str, path: str) -> None:
    """Raise ForgottenError where nothing is taken under this name."""
    if is_forgotten(store, project, path):
        raise ForgottenError


def note(store: Store, project: str, asked: Sequence[str]) -> None:
    """Keep the names, in the caller's transaction. Raises BadNameError: they are too many."""
    known = {*names(store, project), *map(normal, asked)}
    if len(known) > MOST_NAMES:
        raise BadNameError(
            f"a project has at most {MOST_NAMES:,} names that are forgotten", hint="name a folder, or a glob"
        )
    for name in asked:
        store.marks.put(_of(project, normal(name)), time.time())


def undo(store: Store, project: str, asked: Sequence[str]) -> tuple[str, ...]:
    """Take what has these names again; of a whole project all. The names that were forgotten."""
    wanted = set(map(normal, asked))
    with store.writing():
        found = [name for name in names(store, project) if EVERYTHING in wanted or name in wanted]
        for name in found:
            store.marks.remove(_of(project, name))
    return tuple(found)


def meant(store: Store, project: str, asked: Sequence[str], *, reaches: Callable[[str], bool]) -> list[DocumentRow]:
    """The documents of memory that these names mean and of which a text is here, deleted ones too; `reaches`: what the caller may see."""
    rows = [row for row in store.documents.listed(frozenset((project,))) if row.source != "sessions"]
    found = [row for row in rows if reaches(row.path) and any(matches(row.path, name) for name in asked)]
    return [row for row in found if not row.deleted or store.documents.revisions(row.id, limit=1)]


def _of(project: str, *name: str) -> str:
    """The name of a mark, or what the marks of all names of a project begin with."""
    listed = json.dumps([project, *name], ensure_ascii=False)
    return _MARK + (listed if name else f"{listed[:-1]}, ")
