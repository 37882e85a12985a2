"""Upkeep of spaces that a command asks for (`access.jobs`): done here, or by the daemon that runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_daemon.cli.console import Bar, Here, say
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.paths import Paths
from confide_daemon.errors import BadNameError, DataFolderError, JobError, LockedError

if TYPE_CHECKING:
    from confide_daemon.access.jobs import Job, Jobs, Kind

POLL_S = 0.2
# A daemon sees what is asked within a moment, and begins when it has done what was asked before.
SEEN_S = 30.0
# How often it is looked whether the daemon still lives, which has the lock then.
LIVES_S = 2.0

Space = Annotated[str | None, typer.Option("--space", help="Only this space.", show_default="all")]


def work(here: Here, kind: Kind, space: str | None) -> dict[str, dict[str, Any]]:
    """Does a job in one space or all: here, or in the daemon that runs; what it came to by the spaces' names.

    Of all spaces, those that are locked are left out, and said to be.

    Raises:
        LockedError: the one that is named is locked.
        ConfideError: what keeps it from being done.
    """
    done = _work(here, kind, space)
    locked = [name for name, outcome in done.items() if outcome.get("locked")]
    if locked and space is not None:
        raise LockedError
    for name in locked:
        say(f"{name}: left out: {LockedError()}")
        del done[name]
    return done


def _work(here: Here, kind: Kind, space: str | None) -> dict[str, dict[str, Any]]:
    found, settings = here.paths, here.config()
    spaces = spaces_of(found, space)
    try:
        lock = DaemonLock.take(found.data.lock)
    except OSError as error:
        raise DataFolderError(found.data.root, f"cannot be written: {(error.strerror or '').lower()}") from error
    with Bar(is_quiet=here.is_quiet) as bar:

        def follow(name: str, step: str, done: int, total: int) -> None:
            bar.follow(f"{name}: {step}", done, total)

        if lock is None:
            return {name: _ask(found, kind, name, space_id, follow) for name, space_id in spaces.items()}
        try:
            from confide_daemon.server import process

            return process.work(found.data, settings, kind, spaces, follow)
        finally:
            lock.release()


def spaces_of(found: Paths, space: str | None) -> dict[str, str]:
    """The ids of the spaces that hold something, by their names; of the one named, if one is.

    Raises:
        BadNameError: there is no such space.
    """
    from confide_daemon.access.bootstrap import open_state

    state = open_state(found.data)
    try:
        known = state.registry.spaces()
    finally:
        state.close()
    if space is not None and space not in known:
        raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(known) or 'none'}")
    named = {name: space_id for name, space_id in known.items() if space in (None, name)}
    return {name: space_id for name, space_id in named.items() if found.data.space(space_id).exists()}


def _ask(
    found: Paths, kind: Kind, name: str, space_id: str, follow: Callable[[str, str, int, int], None]
) -> dict[str, Any]:
    """Asks the running daemon, and waits until it has done it; interrupted, it takes that back."""
    from confide_daemon.access.bootstrap import open_state
    from confide_daemon.access.jobs import Jobs

    state = open_state(found.data)
    jobs = Jobs(state.registry)
    identity = jobs.ask(kind, space_id)
    has_ended = False
    try:
        job = _wait(found, jobs, identity, lambda step, done, total: follow(name, step, done, total))
        has_ended = True
    finally:
        if not has_ended:
            jobs.cancel(identity)
        state.close()
    if job.outcome.get("locked"):
        return job.outcome
    if job.state != "done":
        raise JobError(str(job.outcome.get("error", job.state)), hint=job.outcome.get("hint"))
    return job.outcome


def _wait(found: Paths, jobs: Jobs, identity: int, follow: Callable[[str, int, int], None]) -> Job:
    asked_at = looked_at = time.monotonic()
    while True:
        job = jobs.get(identity)
        if job is None:
            raise JobError("what was asked of the daemon is gone", hint="ask again")
        if job.has_ended:
            return job
        if time.monotonic() - looked_at > LIVES_S:
            looked_at = time.monotonic()
            if (lock := DaemonLock.take(found.data.lock)) is not None:
                lock.release()
                raise JobError("the daemon has ended before it was done", hint="what was done stays; ask again")
        is_first = jobs.first_open() == identity
        if job.state == "asked" and is_first and time.monotonic() - asked_at > SEEN_S:
            raise JobError(
                "the running daemon does not take it up", hint="restart it: an older version does not know of this"
            )
        follow(job.step or "waiting for the daemon", job.done, job.total)
        time.sleep(POLL_S)
