"""Fills a node's data folder from PostgreSQL: it fetches the registry, which contains the daemon's
own keys. The node itself needs only the master key.

The registry decides which keys are valid, and the key files are copies. So a change of the daemon's
key is made to a copy of the files first, then in the registry, then in the files of this node. A
node that is killed in between finds the files to write in its registry.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import apsw

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import (
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_daemon.access.registry import Registry, open_state
from confide_daemon.datadir import daemon_keys
from confide_daemon.datadir.credentials import MASTER, MasterKey, credential
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.errors import DataFolderError, EngineError, RotationError, StorageError
from confide_daemon.store.logs import LogStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_SET_UP: Final = "run: confided init; or is url of [store] the one of the daemon that this is to be a node of?"


def join(folder: DataFolder, store: LogStore) -> None:
    """Synchronize the folder with PostgreSQL before it is served: fetch or update the registry, or
    upload it if this is the first node.

    Raises DataFolderError if the folder is not set up and PostgreSQL is empty; StorageError or
    LogError if they do not match; EngineError if PostgreSQL is unavailable, and there is no local
    copy to read meanwhile.
    """
    is_new = not folder.identity.exists()
    if is_new:
        if not folder.master.exists() and credential(MASTER) is None:
            return  # opening the folder reports what is missing
        for place in (folder.root, folder.spaces, folder.authorized):
            make_private_dir(place)
    master = MasterKey.load(folder.master)
    with closing(Registry.open(folder.registry, master.registry_key(), store=store)) as registry:
        assert registry.shared is not None
        if is_new and not registry.shared.exists():
            registry.close()
            folder.registry.unlink(missing_ok=True)
            raise DataFolderError(folder.root, "is not set up, and the store has no registry", hint=_NOT_SET_UP)
        try:
            done = registry.join_store()
        except EngineError:
            if is_new or not registry.is_copy():
                raise
            log.warning("the store cannot be asked: the registry is as it was known last")
            return
        if not follow_keys(registry, folder):
            if is_new:
                raise DataFolderError(folder.root, "is not set up, and the store has no key", hint=_NOT_SET_UP)
            _keep(registry, _files(folder))
        if done != "followed":
            log.info("the registry was %s", "brought to the store" if done == "brought" else "fetched from the store")


def leave(folder: DataFolder, store: LogStore) -> None:
    """Make the folder's registry independent of PostgreSQL and delete its log, while no node
    serves. Raises StorageError if a file cannot be written, and EngineError if PostgreSQL is
    unavailable.
    """
    with closing(open_state(folder, store=store)) as state:
        state.registry.leave_store()
        with state.registry.transaction() as database:
            database.execute("DELETE FROM daemon_keys")


def rotate(folder: DataFolder, store: LogStore, *, keep_s: float) -> daemon_keys.Keys:
    """Give the daemon a new identity on all nodes; the previous one stays accepted for `keep_s`
    seconds.

    Raises RotationError if a rotation is in progress, KeyFileError if a key file cannot be used,
    and EngineError if PostgreSQL is unavailable.
    """
    return _change(folder, store, lambda copy: daemon_keys.rotate(copy, keep_s=keep_s))


def retire(folder: DataFolder, store: LogStore) -> str | None:
    """End the daemon's previous identity on all nodes.

    Raises RotationError if there is none, KeyFileError if a key file cannot be used, and
    EngineError if PostgreSQL is unavailable.
    """
    return _change(folder, store, daemon_keys.retire)


def follow_keys(registry: Registry, folder: DataFolder) -> bool:
    """Write the keys in the registry to the key files; return True if the registry has any. Raises
    KeyFileError or StorageError if they cannot be written.
    """
    wanted = _rows(registry)
    if folder.identity.name not in wanted:
        return False
    if _is_over(wanted.get(folder.rotation.name)):
        wanted = {folder.identity.name: wanted[folder.identity.name]}
    here = _files(folder)
    if here == wanted:
        return True
    # In the order of a rotation: a process that sees the new key also sees what was written before
    # it. Deletions go in reverse order.
    for path in (folder.rotation, folder.previous):
        if path.name not in wanted and path.name in here:
            remove_private_file(path)
    for path in (folder.previous, folder.rotation, folder.identity):
        if path.name in wanted and here.get(path.name) != wanted[path.name]:
            write_private_file(path, wanted[path.name], replace=True)
    return True


def _change(folder: DataFolder, store: LogStore, work: Callable[[DataFolder], T]) -> T:
    with closing(open_state(folder, store=store)) as state:
        registry = state.registry
        registry.follow()
        before = _rows(registry)
        with TemporaryDirectory(prefix=".keys-", dir=folder.root) as place:
            copy = DataFolder(Path(place))
            for name, content in before.items():
                write_private_file(copy.root / name, content)
            done = work(copy)
            _keep(registry, _files(copy), before=before)
        follow_keys(registry, folder)
        return done


def _keep(registry: Registry, files: dict[str, bytes], *, before: dict[str, bytes] | None = None) -> None:
    with registry.transaction() as database:
        if before is not None and _read(database) != before:
            raise RotationError(
                "the daemon's key is changed on another node just now", hint="try again when that has ended"
            )
        database.execute("DELETE FROM daemon_keys")
        database.executemany("INSERT INTO daemon_keys VALUES (?, ?)", files.items())


def _rows(registry: Registry) -> dict[str, bytes]:
    with registry.reading() as database:
        return _read(database)


def _read(database: apsw.Connection) -> dict[str, bytes]:
    rows: list[Any] = database.execute("SELECT name, content FROM daemon_keys").fetchall()
    return {str(name): bytes(content) for name, content in rows}


def _files(folder: DataFolder) -> dict[str, bytes]:
    found = {}
    for path in (folder.identity, folder.rotation, folder.previous):
        if path.exists():
            with contextlib.suppress(KeyFileError):  # ended between the two
                found[path.name] = read_private_file(path)
    return found


def _is_over(statement: bytes | None) -> bool:
    if statement is None:
        return False
    try:
        return float(json.loads(statement)["until"]) <= time.time()
    except (ValueError, KeyError, TypeError):
        raise StorageError("cannot use the registry: the daemon's key in it is damaged") from None
