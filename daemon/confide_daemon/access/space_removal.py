"""Removes a space. Its data is deleted, and its name may then be used for a new, empty space.

The removal writes a marker beside the database, then changes the registry, then deletes the files.
The process may be killed between any two of these steps. The next process that opens the spaces
completes the removal (`finish`): if the registry still contains the space it deletes the marker,
otherwise the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confide_crypto import atomic
from confide_daemon.access.audit import record
from confide_daemon.access.enrolled_callers import new_space_id
from confide_daemon.access.registry import RegistryState
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import BadNameError, TakenError

_MARK: Final = ".removed"
_KEPT_OF: Final = ("roster_entries", "pairings", "unsealed")
"""Tables of the registry with rows of a space, by its id."""


def remove(state: RegistryState, name: str) -> int:
    """Remove a space that no device may use. Return the number of bytes that were freed.

    A daemon that serves the space keeps its open files until it closes them; no device can use them
    any more.

    Raises BadNameError if there is no such space; TakenError if devices may still connect to it or
    are invited to it; StorageError if the registry or the files cannot be changed.
    """
    finish(state)
    space_id = state.registry.spaces().get(name)
    if space_id is None:
        raise BadNameError(f"there is no space '{name[:80]}'", hint="confided space ls lists them")
    there = [*state.registry.callers(), *state.registry.gateway_clients()]
    inside = [caller.alias for caller in there if caller.space == name]
    if inside:
        raise TakenError(
            f"devices may connect to it: {', '.join(inside[:5])}",
            hint=f"shut them out first: confided device rm {inside[0]}",
        )
    mark = state.folder.spaces / f"{space_id}{_MARK}"
    mark.touch(mode=0o600)
    atomic.sync(state.folder.spaces)
    registry = state.registry
    with registry.transaction() as database:
        for table in _KEPT_OF:
            database.execute(f"DELETE FROM {table} WHERE space = ?", (space_id,))  # noqa: S608 - ours
        database.execute("DELETE FROM jobs WHERE space = ?", (space_id,))
        database.execute("DELETE FROM invites WHERE space = ?", (name,))
        for table in ("sign_ins", "codes"):
            mine = f"DELETE FROM {table} WHERE application IN (SELECT id FROM applications WHERE space = ?)"  # noqa: S608 - ours
            database.execute(mine, (name,))
        for table in ("applications", "registration"):
            database.execute(f"DELETE FROM {table} WHERE space = ?", (name,))  # noqa: S608 - ours
        database.execute("UPDATE spaces SET id = ? WHERE name = ?", (new_space_id(), name))
        if registry.shared is not None:
            database.execute("INSERT OR IGNORE INTO removed_spaces VALUES (?, ?)", (space_id, registry.clock()))
        record(database, registry.clock(), "removed", detail=f"space {name}")
    return _finish(state.folder, mark)


def finish(state: RegistryState) -> None:
    """Complete removals that were interrupted. Raises StorageError if the registry cannot be read."""
    marks = sorted(state.folder.spaces.glob(f"*{_MARK}"))
    if not marks:
        return
    known = set(state.registry.spaces().values())
    for mark in marks:
        if mark.name.removesuffix(_MARK) in known:
            mark.unlink(missing_ok=True)  # the registry was not reached: nothing was removed
        else:
            _finish(state.folder, mark)


def finish_elsewhere(state: RegistryState) -> None:
    """Delete this node's files of spaces that were removed by another node. Raises StorageError if
    the registry cannot be read.

    The files of a space that is merely missing from the registry are kept, because a store that has
    lost data may have returned an older registry.
    """
    with state.registry.reading() as database:
        removed = {str(space_id) for (space_id,) in database.execute("SELECT id FROM removed_spaces")}
    for space_id in {path.name.partition(".")[0] for path in state.folder.spaces.iterdir()} & removed:
        (state.folder.spaces / f"{space_id}{_MARK}").touch(mode=0o600)
    finish(state)


def files(folder: DataFolder, space_id: str) -> list[Path]:
    """Return the paths of all files of a space: its database, the additional files of SQLite, and
    the file that says which key encrypts it.
    """
    return sorted(path for path in folder.spaces.glob(f"{space_id}.*") if path.suffix != _MARK)


def _finish(folder: DataFolder, mark: Path) -> int:
    freed = 0
    for path in files(folder, mark.name.removesuffix(_MARK)):
        freed += path.stat().st_size
        path.unlink()
    atomic.sync(folder.spaces)  # a mark that went first would leave them for good
    mark.unlink(missing_ok=True)
    return freed
