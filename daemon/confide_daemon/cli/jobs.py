"""`confided status`, `doctor` and `reindex`: how the daemon and its spaces are, and what puts them right, also while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_daemon import config, paths
from confide_daemon.errors import BadNameError, DataFolderError, JobError, LockedError
from confide_daemon.lock import DaemonLock
from confide_daemon.options import Config, Data, Json, opened, say, show

if TYPE_CHECKING:
    from confide_daemon.health import Check
    from confide_daemon.jobs import Job, Jobs, Kind

POLL_S = 0.2
# A daemon sees what is asked within a moment, and begins when it has done what was asked before.
SEEN_S = 30.0
# How often it is looked whether the daemon still lives, which has the lock then.
LIVES_S = 2.0

Space = Annotated[str | None, typer.Option("--space", help="Only this space.", show_default="all")]


def status(config_file: Config = None, data: Data = None, as_json: Json = False) -> None:
    """Show whether the daemon runs, and what it holds."""
    from confide_daemon import health
    from confide_daemon.custody.facts import facts_of
    from confide_daemon.rotation import clock

    with opened(config_file, data) as state:
        facts = health.facts(state)
        told = facts_of(state, is_served=facts["running"])
    if as_json:
        show(facts)
        return
    typer.echo(f"confided {facts['version']}: {'serves at ' + facts['url'] if facts['running'] else 'is not running'}")
    if facts["health"] not in ("ok", None):
        typer.echo(f"health: {facts['health']}; confided doctor tells more")
    typer.echo(f"data: {facts['data']}  ({facts['sizeBytes'] / 1e6:.1f} MB)")
    typer.echo(f"machines: {facts['callers']}  spaces: {', '.join(facts['spaces']) or 'none'}")
    for name, said in told.items():
        typer.echo(f"  {name}: {said}")
    if facts["oldKeyUntil"]:
        typer.echo(f"key: rotated; the old one answers until {clock(facts['oldKeyUntil'])}")


def doctor(
    config_file: Config = None,
    data: Data = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Put right what can be; what is lost is told of no longer after it.")
    ] = False,
    space: Space = None,
    as_json: Json = False,
) -> None:
    """Check the configuration, the keys, every database and the model; ends with 1 if something is wrong."""
    from confide_daemon import health
    from confide_daemon.bars import Bar

    found = paths.find(config=config_file, data=data)
    if fix:
        for name, outcome in work(found, "fix", space, must_have_config=config_file is not None, quiet=as_json).items():
            for what, count in sorted(outcome["found"].items()):
                say(f"{name}: {count} {what}")
    with Bar(is_quiet=as_json) as bar:
        checks = health.examine(found, must_have_config=config_file is not None, space=space, follow=bar.follow)
    if as_json:
        show([_shown(check) for check in checks])
    for check in [] if as_json else checks:
        said = check.problem or check.detail
        typer.echo(f"{'ok     ' if check.is_ok else 'problem'}  {check.name}{f': {said}' if said else ''}")
        if check.hint:
            say(f"hint: {check.hint}")
    if not all(check.is_ok for check in checks):
        raise typer.Exit(1)


def _shown(check: Check) -> dict[str, Any]:
    return {
        "check": check.name,
        "ok": check.is_ok,
        "detail": check.detail,
        "problem": check.problem,
        "hint": check.hint,
    }


def reindex(
    config_file: Config = None,
    data: Data = None,
    space: Space = None,
    reembed: Annotated[bool, typer.Option("--reembed", help="Compute all vectors anew as well.")] = False,
    as_json: Json = False,
) -> None:
    """Rebuild the index from the documents, while searches go on; interrupted, it is as whole as before."""
    found = paths.find(config=config_file, data=data)
    kind: Kind = "reembed" if reembed else "reindex"
    done = work(found, kind, space, must_have_config=config_file is not None, quiet=as_json)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    if as_json:
        show(rows)
    for row in [] if as_json else rows:
        changes = f"{row['chunksAdded']} added, {row['chunksUpdated']} updated, {row['chunksRemoved']} removed"
        typer.echo(f"{row['space']}: {changes}{'' if row['indexed'] else '; some pieces still wait for their vectors'}")


def work(
    found: paths.Paths, kind: Kind, space: str | None, *, must_have_config: bool, quiet: bool
) -> dict[str, dict[str, Any]]:
    """Does a job in one space or all: here, or in the daemon that runs; what it came to by the spaces' names.

    Of all spaces, those that are locked are left out, and said to be.

    Raises:
        LockedError: the one that is named is locked.
        ConfideError: what keeps it from being done.
    """
    done = _work(found, kind, space, must_have_config=must_have_config, quiet=quiet)
    locked = [name for name, outcome in done.items() if outcome.get("locked")]
    if locked and space is not None:
        raise LockedError
    for name in locked:
        say(f"{name}: left out: {LockedError()}")
        del done[name]
    return done


def _work(
    found: paths.Paths, kind: Kind, space: str | None, *, must_have_config: bool, quiet: bool
) -> dict[str, dict[str, Any]]:
    from confide_daemon.bars import Bar

    settings = config.load(found.config, must_exist=must_have_config)
    spaces = spaces_of(found, space)
    try:
        lock = DaemonLock.take(found.data.lock)
    except OSError as error:
        raise DataFolderError(found.data.root, f"cannot be written: {(error.strerror or '').lower()}") from error
    with Bar(is_quiet=quiet) as bar:

        def follow(name: str, step: str, done: int, total: int) -> None:
            bar.follow(f"{name}: {step}", done, total)

        if lock is None:
            return {name: _ask(found, kind, name, space_id, follow) for name, space_id in spaces.items()}
        try:
            from confide_daemon import service

            return service.work(found.data, settings, kind, spaces, follow)
        finally:
            lock.release()


def spaces_of(found: paths.Paths, space: str | None) -> dict[str, str]:
    """The ids of the spaces that hold something, by their names; of the one named, if one is.

    Raises:
        BadNameError: there is no such space.
    """
    from confide_daemon.state import open_state

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
    found: paths.Paths, kind: Kind, name: str, space_id: str, follow: Callable[[str, str, int, int], None]
) -> dict[str, Any]:
    """Asks the running daemon, and waits until it has done it; interrupted, it takes that back."""
    from confide_daemon.jobs import Jobs
    from confide_daemon.state import open_state

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


def _wait(found: paths.Paths, jobs: Jobs, identity: int, follow: Callable[[str, int, int], None]) -> Job:
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
