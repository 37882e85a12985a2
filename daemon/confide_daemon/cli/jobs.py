"""The commands `confided space key` and `confided vault move`, and the jobs that they and others
run (`access.job_queue`). If a daemon is running, it runs the job, otherwise this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any

import typer

from confide_crypto.errors import ConfideError
from confide_daemon.access.job_queue import Job, Jobs, Kind
from confide_daemon.access.registry import open_state
from confide_daemon.cli.console import CommandContext, Output, command, remark, say, spaces_of
from confide_daemon.cli.health import answers, facts_of
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.datadir.key_state import KEEPERS
from confide_daemon.datadir.paths import DaemonPaths
from confide_daemon.errors import BadNameError, DataFolderError, LockedError

POLL_S = 0.2
# The daemon sees a job within a moment, and starts it after the jobs before it.
SEEN_S = 30.0
# Seconds between two checks that the daemon lives, by its lock.
LIVES_S = 2.0

Space = Annotated[str | None, typer.Option("--space", help="Only this space.", show_default="all")]


def work(here: CommandContext, kind: Kind, space: str | None) -> dict[str, dict[str, Any]]:
    """Run a job in one space or all, and return the outcomes by the names of the spaces. If a
    daemon is running, it runs the job, otherwise this process.

    Without `space`, locked spaces are skipped, with a printed line for each. Raises LockedError if
    the given space is locked; ConfideError if the job failed.
    """
    done = _work(here, kind, space)
    locked = [name for name, outcome in done.items() if outcome.get("locked")]
    if locked and space is not None:
        raise LockedError
    for name in locked:
        remark(f"{name}: skipped: {LockedError()}")
        del done[name]
    return done


def _work(here: CommandContext, kind: Kind, space: str | None) -> dict[str, dict[str, object]]:
    found, settings = here.paths, here.config()
    spaces = spaces_of(found, space)
    try:
        lock = DaemonLock.take(found.data.lock)
    except OSError as error:
        raise DataFolderError(found.data.root, f"cannot be written: {(error.strerror or '').lower()}") from error
    with here.progress() as bar:

        def follow(name: str, step: str, done: int, total: int) -> None:
            bar.step(f"{name}: {step}", done, total)

        if lock is None:
            return {name: _ask(found, kind, name, space_id, follow) for name, space_id in spaces.items()}
        try:
            from confide_daemon.server import daemon_process

            return asyncio.run(daemon_process.work(found.data, settings, kind, spaces, follow))
        finally:
            lock.release()


def _ask(
    found: DaemonPaths, kind: Kind, name: str, space_id: str, follow: Callable[[str, str, int, int], None]
) -> dict[str, Any]:
    """Ask the running daemon, and wait until it is done; an interrupt cancels the job."""
    with closing(open_state(found.data)) as state:
        jobs = Jobs(state.registry)
        identity = jobs.ask(kind, space_id)
        try:
            job = _wait(found, jobs, identity, lambda step, done, total: follow(name, step, done, total))
        except BaseException:
            jobs.cancel(identity)
            raise
    if job.outcome.get("locked"):
        return job.outcome
    if job.state != "done":
        raise ConfideError(str(job.outcome.get("error", job.state)), hint=job.outcome.get("hint"))
    return job.outcome


def _wait(found: DaemonPaths, jobs: Jobs, identity: int, follow: Callable[[str, int, int], None]) -> Job:
    asked_at = looked_at = time.monotonic()
    while True:
        job = jobs.get(identity)
        if job is None:
            raise ConfideError("the job was removed from the daemon's queue", hint="run the command again")
        if job.has_ended:
            return job
        if time.monotonic() - looked_at > LIVES_S:
            looked_at = time.monotonic()
            if (lock := DaemonLock.take(found.data.lock)) is not None:
                lock.release()
                raise ConfideError(
                    "the daemon ended before the job was done", hint="finished parts stay; run the command again"
                )
        is_first = jobs.first_open() == identity
        if job.state == "asked" and is_first and time.monotonic() - asked_at > SEEN_S:
            raise ConfideError(
                "the running daemon does not start the job", hint="restart it; an older version may not know this job"
            )
        follow(job.step or "waiting for the daemon", job.done, job.total)
        time.sleep(POLL_S)


Name = Annotated[str, typer.Argument(metavar="SPACE", help="The space, as `confided space ls` shows it.")]


@command
def space_key(
    here: CommandContext,
    space: Name,
    keeper: Annotated[str | None, typer.Argument(metavar="caller|server", help="The new keeper.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Encrypt the database under a new key of the server.")] = False,
) -> Output:
    """Show or change who keeps the key of a space's database, or make a new one.

    `caller`: the devices of the space keep the key, and the server has it only while one of them is
    connected. `server`: the server keeps it. The space stays in use meanwhile.
    """
    if new:
        if keeper is not None:
            raise typer.BadParameter("name a new keeper, or use --new")
        return _rekey(here, space)
    if keeper is not None:
        if keeper not in KEEPERS:
            raise BadNameError(f"'{keeper[:40]}' cannot keep keys", hint=f"choose one of {', '.join(KEEPERS)}")
        _require(here, space)
        work(here, "to-caller" if keeper == "caller" else "to-server", space)
    with here.open_state() as state:
        spaces = state.registry.spaces()
        if space not in spaces:
            raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(spaces) or 'none'}")
        facts = facts_of(state, is_served=answers(here.paths.data.address))[space]

    def print_text() -> None:
        say(f"{space}: {facts}")
        if facts.wanted_keeper is not None:
            remark(_WAITS[facts.wanted_keeper])

    return Output({"space": space, **facts.to_json()}, print_text)


_WAITS: dict[str, str] = {
    "caller": "The key changes hands when one of the devices of the space next connects.",
    "server": "The key changes hands when one of the devices of the space has unlocked it.",
}


def _rekey(here: CommandContext, space: str) -> Output:
    _require(here, space)
    outcome = work(here, "rekey", space)[space]
    data = {"space": space, "custody": outcome["custody"], "generation": outcome["number"]}
    return Output(data, [f"{space}: encrypted under a new key, generation {outcome['number']}"])


def _require(here: CommandContext, space: str) -> None:
    if space not in spaces_of(here.paths, space):
        raise BadNameError(f"the space {space} is empty", hint="connect one of its devices first")


vault_app = typer.Typer()


@vault_app.command(epilog="confided vault move --back")
@command
def move(
    here: CommandContext,
    space: Space = None,
    back: Annotated[bool, typer.Option("--back", help="Move them from the vault into the databases.")] = False,
) -> Output:
    """Move sealed records from the databases into the vault, or back. After an interrupt, run it
    again: it continues.
    """
    kind: Kind = "from-vault" if back else "to-vault"
    done = work(here, kind, space)
    rows = [{"space": name, **outcome} for name, outcome in done.items()]
    lines = [
        f"{row['space']}: {row['moved']} moved; {row['inVault']} in the vault, {row['inDatabase']} in the database"
        for row in rows
    ]
    notes = []
    if spaces_of(here.paths, space).keys() - done.keys():
        notes.append(
            "hint: start the daemon, connect a device of each skipped space (confide status), and run the command again"
        )
    if lost := sum(row["lost"] for row in rows):
        notes.append(f"{lost} records that should be in the vault are missing there; they stay listed.")
        notes.append("hint: restore them from the vault's own backup")
    return Output(rows, lines, notes, exit_code=1 if notes else 0)
