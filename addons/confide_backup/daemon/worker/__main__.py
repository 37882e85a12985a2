"""The worker process that copies and verifies snapshots: `python -m confide_backup.daemon.worker`.

It is a process of its own for three reasons. POSIX drops SQLite's locks when the process that holds
them closes a descriptor of the file (`held_view`). Hashing, reading every page and running test
searches would slow down searches in the daemon's interpreter. And it can run at a lower priority.
Keys arrive through the pipe, and are in no argument, file or log. The process ends when the pipe
closes, and so with the daemon.

Requests are lines of JSON on stdin, answers on stdout: `{"read": N}` for progress, then `{"ok":
{…}}` or `{"error": {…}}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from confide_backup.daemon.manifest import LOG, ManifestDatabase, database_json
from confide_backup.daemon.worker import canaries, copying
from confide_backup.daemon.worker.held_view import held_view
from confide_crypto.errors import ConfideError
from confide_daemon.store.database import close, connect, storage_errors
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep.integrity import PAGES

NICE: Final = 10
REST: Final = 2.0
"""Pause after each step, as a multiple of its processor time. Two processors may share a core, its
caches and the memory bus: there a search takes 1.4 times as long beside a copy without pauses, at
any priority.
"""
LONGEST_REST_S: Final = 0.5
"""Limit of a pause, since the daemon treats a worker as hanging after a long silence."""
TELL_EVERY_S: Final = 0.5
_Told = dict[str, Any]
"""The answer of a step, as JSON."""


def main() -> None:
    """Run the requests on stdin until it ends."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICE)
    os.umask(0o077)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        try:
            fields = {"ok": _DO[asked.pop("do")](_Progress(), **asked)}
        except ConfideError as error:
            fields = {"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}}
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            fields = {"error": {"kind": "OSError", "message": why, "errno": error.errno, "hint": None}}
        _say(fields)


class _Progress:
    """Pauses after each step, reports progress at intervals, and ends the process if the daemon has
    ended.
    """

    def __init__(self) -> None:
        self._read_bytes = 0
        self._told_at = time.monotonic()
        self._rested_at = time.thread_time()

    def __call__(self, read: int = 0) -> None:
        self._read_bytes += read
        time.sleep(min(REST * (time.thread_time() - self._rested_at), LONGEST_REST_S))
        self._rested_at = time.thread_time()
        if time.monotonic() - self._told_at >= TELL_EVERY_S:
            self._told_at = time.monotonic()
            poll = select.poll()
            poll.register(sys.stdin.fileno(), 0)
            if poll.poll(0):  # POLLHUP: the daemon has ended
                os._exit(1)
            _say({"read": self._read_bytes})


def _say(told: _Told) -> None:
    try:
        sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)


def _copy_file(follow: _Progress, *, source: str, target: str, previous: str | None) -> _Told:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _copy_bytes(descriptor, Path(target), None, _path(previous), follow)
    finally:
        os.close(descriptor)


def _copy_database(
    follow: _Progress,
    *,
    kind: str,
    source: str,
    target: str,
    previous: str | None,
    key: str | None,
    known: _Told | None,
    at: int,
) -> _Told:
    """Copy a database and its log.

    With the key, the copy has one held state, whose change number, schema and, for a space,
    canaries are returned.
    """
    copy, before = Path(target), _path(previous)

    def describe_copy(file: int, log: int | None, log_bytes: int | None) -> _Told:
        files = {"": _copy_bytes(file, copy, None, before, follow)}
        if log is not None and log_bytes != 0 and os.fstat(log).st_size:
            files[LOG] = _copy_bytes(log, _log_path(copy), log_bytes, before and _log_path(before), follow)
        return files

    if key is None:
        with copying.open_closed(Path(source)) as (file, log):
            return {"files": describe_copy(file, log, None)}

    with held_view(Path(source), bytes.fromhex(key)) as held:
        files = describe_copy(held.file, held.log, held.log_bytes)
        is_same = before is not None and _log_path(before).exists() == (LOG in files)
        if known is not None and is_same and all(file["linked"] for file in files.values()):
            return {"files": files, "held": known}  # the same bytes as then
        return {"files": files, "held": database_json(_read_state(held.store, kind, bytes.fromhex(key), at, follow))}


def _read_state(store: Store, kind: str, key: bytes, at: int, follow: _Progress) -> ManifestDatabase:
    """Return the state of a database, in the caller's transaction."""
    if kind == "registry":
        return ManifestDatabase(schema=int(store.one("PRAGMA user_version")))

    schema = store.schema_version()
    change = int(store.one("SELECT max(change) FROM revision") or 0)
    if schema != migrations()[-1][0]:  # not yet opened by this version: it has other tables
        return ManifestDatabase(change, schema)
    answered, asked = canaries.answers(store, key, now=at, follow=follow)
    return ManifestDatabase(change, schema, answered, asked, at)


def _hash_file(follow: _Progress, *, source: str, target: str | None) -> _Told:
    size, digest = copying.hash_file(Path(source), follow, target=_path(target))
    return {"size": size, "hash": digest.hex()}


def _prove(follow: _Progress, *, kind: str, source: str, key: str, at: int) -> _Told:
    """Open a private copy, read all of it and ask its canaries; return its state and its problems."""
    path, secret = Path(source), bytes.fromhex(key)
    if kind == "registry":
        connection = connect(path, secret, writer=False)
        try:
            with storage_errors("read the registry"):
                damaged = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
                schema = int(connection.pragma("user_version"))
        finally:
            close(connection)
        return {
            "wrong": {PAGES: len(damaged)} if damaged else {},
            "held": database_json(ManifestDatabase(schema=schema)),
        }
    with closing(Store.open(path, secret, writer=False, now=0.0)) as store:
        is_old = store.schema_version() < migrations()[-1][0]
        schema, change = store.schema_version(), int(store.one("SELECT max(change) FROM revision") or 0)
    wrong: dict[str, int] = {}
    with closing(Store.open(path, secret, writer=is_old, now=time.time())) as store:
        for found in store.integrity.examine():
            follow()
            for breach in found:
                wrong[breach.what] = max(wrong.get(breach.what, 0), breach.rows)
        with store.reading():
            held = _read_state(store, "space", secret, at, follow)
    return {"wrong": wrong, "held": database_json(replace(held, schema=schema, change=change))}


def _copy_bytes(source: int, target: Path, size: int | None, previous: Path | None, follow: _Progress) -> _Told:
    copied = copying.copy(source, target, size=size, previous=previous, follow=follow)
    return {"size": copied.size, "hash": copied.hash.hex(), "linked": copied.is_linked}


def _path(found: str | None) -> Path | None:
    return None if found is None else Path(found)


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + LOG)


_DO: Final[dict[str, Callable[..., _Told]]] = {
    "copy": _copy_file,
    "copy database": _copy_database,
    "hash": _hash_file,
    "prove": _prove,
}

if __name__ == "__main__":
    main()
