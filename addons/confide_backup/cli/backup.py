"""`confided backup`: take, list, verify and remove snapshots of the data folder, by the running
daemon if there is one.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_backup.daemon import sealed_keys
from confide_backup.daemon.backup_service import BackupRequest, Backups, target_of
from confide_backup.daemon.offline_spaces import OfflineSpaces
from confide_backup.daemon.target import SnapshotHistory, signers_of
from confide_backup.settings import BackupConfig
from confide_crypto.errors import EXIT_OK, EXIT_OTHER, EXIT_STORAGE, ConfideError
from confide_daemon.cli.console import CommandContext, Output, command, remark, say
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir.control_client import ask
from confide_daemon.datadir.instance import DaemonLock
from confide_daemon.errors import EXIT_UNPROVEN, DataFolderError
from confide_memory.commands.progress import Progress

POLL_S: Final = 0.1

To = Annotated[str | None, typer.Option("--to", help="The folder for backups.", show_default="of daemon.toml")]


@command
def take(
    here: CommandContext,
    to: To = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Take none: remove the snapshots that keep_daily and others no longer keep."),
    ] = False,
) -> Output:
    """Take a snapshot now, also while the daemon serves."""
    if prune:
        return _prune(here, to)
    done = work(here, BackupRequest("take", to or ""))
    notes = []
    if done["behind"]:
        with here.open_state() as state:
            names = [name for name, space_id in state.registry.spaces().items() if space_id in done["behind"]]
        notes = [
            f"another node has the keys of {', '.join(sorted(names))}: the snapshot has only the state that this node last had, if any"
        ]
    return Output(done, [f"{done['snapshot']}: {done['spaces']} spaces, in {done['folder']}"], notes)


@command
def init(
    here: CommandContext,
    to: Annotated[str, typer.Option("--to", help="A new or empty folder, on another disk than the data.")],
    new_code: Annotated[
        bool, typer.Option("--new-code", help="Make a new recovery code for later snapshots; earlier ones keep theirs.")
    ] = False,
) -> Output:
    """Prepare a folder for backups, and make their key and its recovery code.

    The recovery code is shown once.
    """
    settings = here.config().table(BackupConfig)
    with here.open_state(as_it_is=True) as state:
        target = target_of(settings, to).prepare(signers_of(state), data=state.folder.root)
        is_new = new_code or not state.folder.backup_key.exists()
        code = sealed_keys.make(state.folder).to_string() if is_new else None

    def print_text() -> None:
        say(f"ready: {target.folder}")
        if code is not None:
            say(f"recovery code: {code}")
            remark("Write it down, and keep it apart from this machine and from the backups. It is not shown again.")
            remark("With this code and a snapshot, anyone can read all that the daemon can read.")
        else:
            remark("The existing recovery code opens the backups in this folder too.")
        if settings.to != to:
            remark(
                f'Next: write to = "{target.folder}" under [backup] in {here.paths.config}, and run: confided backup'
            )

    return Output({"folder": str(target.folder), "recoveryCode": code}, print_text)


@command
def list_(here: CommandContext, to: To = None) -> Output:
    """List the snapshots, oldest first."""
    with here.open_state() as state:
        history = SnapshotHistory.read(target_of(here.config().table(BackupConfig), to or ""), state)
    rows: list[dict[str, Any]] = [
        {
            "snapshot": one.id,
            "at": one.manifest.at,
            "spaces": len(one.manifest.spaces),
            "sizeBytes": one.manifest.size_bytes,
            "verdict": None if one.proof is None else one.proof.verdict,
            "said": one.status_text,
        }
        for one in history.whole
    ]
    nothing = {"at": None, "spaces": None, "sizeBytes": None, "verdict": None}
    rows += [{"snapshot": name, **nothing, "said": error.problem} for name, error in history.strange.items()]

    def print_text() -> None:
        if not rows:
            remark("there are no snapshots yet")
        for row in rows:
            size = "" if row["spaces"] is None else f"{row['spaces']} spaces, {row['sizeBytes'] / 1e6:.1f} MB, "
            say(f"{row['snapshot']}  {size}{row['said']}")

    return Output(rows, print_text)


@command
def verify_(
    here: CommandContext,
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="The snapshot, as `confided backup ls` shows it.", show_default="the newest"),
    ] = "",
    to: To = None,
) -> Output:
    """Verify a snapshot: every file, every page and a known text of each space.

    Ends with 10 if some spaces are locked.
    """
    done = work(here, BackupRequest("verify", to or "", name))
    with here.open_state() as state:
        names = {space_id: space for space, space_id in state.registry.spaces().items()}
    spaces = {names.get(space_id, space_id): verdict for space_id, verdict in done["spaces"].items()}
    problems = [_name_space(problem, names) for problem in done["problems"]]
    fields = {**done, "spaces": spaces, "problems": problems}

    def print_text() -> None:
        say(f"{done['snapshot']}: {_VERDICTS[done['verdict']]}")
        for space, verdict in spaces.items():
            say(f"  {space}: {_VERDICTS[verdict]}")
        for problem in problems:
            say(f"  {problem}")

    return Output(fields, print_text, exit_code=_EXITS[done["verdict"]])


def _prune(here: CommandContext, to: str | None) -> Output:
    removed = work(here, BackupRequest("prune", to or ""))["removed"]
    return Output({"removed": removed}, [f"removed: {name}" for name in removed] or ["nothing to remove"])


_VERDICTS: Final = {
    "proven": "verified",
    "unproven": "copied, not verified: its key is not here now",
    "differs": "it differs from what was saved",
    "unreadable": "it cannot be read",
}
_EXITS: Final = {"proven": EXIT_OK, "differs": EXIT_OTHER, "unreadable": EXIT_STORAGE, "unproven": EXIT_UNPROVEN}


def _name_space(problem: str, names: dict[str, str]) -> str:
    """Replace the id of a space, after the word `space`, by its name."""
    for space_id, name in names.items():
        problem = problem.replace(f"space {space_id}", name)
    return problem


def work(here: CommandContext, asked: BackupRequest) -> dict[str, Any]:
    """Run a request in the running daemon, or in this process if no daemon runs. Raise ConfideError
    if it fails.
    """
    try:
        lock = DaemonLock.take(here.paths.data.lock)
    except OSError as error:
        raise DataFolderError(here.paths.data.root, f"cannot be written: {(error.strerror or '').lower()}") from error
    with here.progress() as bar:
        if lock is None:
            return _ask(here, asked, bar)
        try:
            return _do(here, asked, bar)
        finally:
            lock.release()


def _do(here: CommandContext, asked: BackupRequest, bar: Progress) -> dict[str, object]:
    async def wait_for_end() -> dict[str, Any]:
        store = here.store()
        leases = None if store is None else store.leases(here.paths.data)
        try:
            chunks = ChunkSettings.parse(here.config().index.chunks)
            spaces = OfflineSpaces(state, leases=leases, chunks=chunks)
            return await Backups(state, spaces, here.config().table(BackupConfig), here.paths.config).do(
                asked, bar.step
            )
        finally:
            if leases is not None:
                await leases.close()

    with here.open_state() as state:
        return asyncio.run(wait_for_end())


def _ask(here: CommandContext, asked: BackupRequest, bar: Progress) -> dict[str, Any]:
    socket = here.paths.data.control
    # A relative path counts from here, not from the folder of the daemon.
    to = str(Path(asked.to).expanduser().absolute()) if asked.to else ""
    task = ask(socket, "backup", what=asked.what, to=to, name=asked.name)["task"]
    while not (told := ask(socket, "backup task", task=task))["outcome"]:
        bar.step(told["step"], told["done"], told["total"])
        time.sleep(POLL_S)
    outcome: dict[str, Any] = told["outcome"]
    if "ok" in outcome:
        return dict(outcome["ok"])
    error = ConfideError(outcome["error"], hint=outcome["hint"])
    error.exit_code = int(outcome["exit"])
    raise error
