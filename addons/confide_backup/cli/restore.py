"""`confided restore`: restore the data folder from a snapshot, on this machine or on a new one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from confide_backup.daemon.snapshot_restore import ByCode, ByFiles, Keys, RestorePreview, RestoreResult, require_there
from confide_backup.daemon.snapshot_restore import restore as make
from confide_backup.daemon.target import is_id
from confide_backup.settings import BackupConfig
from confide_crypto.errors import ConfideError
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_daemon.addons import Check
from confide_daemon.cli.console import CommandContext, Output, clock, command, remark, say
from confide_daemon.cli.health import examine
from confide_daemon.cli.status import check_json, check_lines
from confide_memory.commands.console import unseen


@command
def restore(
    here: CommandContext,
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="Its folder, or its name in the configured target.")
    ],
    code: Annotated[
        bool,
        typer.Option("--code", help="Take the keys from the recovery code: asks for it, or reads it from stdin."),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", help="Take them from a folder with identity.key and master.key (or its systemd credential)."
        ),
    ] = None,
) -> Output:
    """Restore the data folder from a snapshot.

    The data folder must be empty, and no daemon may serve it.
    """
    folder = _folder(snapshot, here.config().table(BackupConfig).to)
    if code and keys is not None:
        raise typer.BadParameter("use --code or --keys, not both", param_hint="--keys")
    require_there(folder)
    source = _keys(code=code, keys=keys)

    def tell(outlook: RestorePreview) -> None:
        if not here.is_quiet:
            for line in _lines(outlook):
                remark(line)

    with here.progress() as bar:
        done = make(folder, here.paths.data, source, config_file=here.paths.config, tell=tell, follow=bar.step)
        checks = examine(here.paths, must_have_config=here.must_have_config, follow=bar.step)
    return _output(here, done, checks)


def _output(here: CommandContext, done: RestoreResult, checks: list[Check]) -> Output:
    fields = {
        "snapshot": done.outlook.manifest.id,
        "data": str(here.paths.data.root),
        "opens": done.outlook.opens,
        "waits": done.outlook.waits,
        "revoked": done.revoked_names,
        "invitesDropped": done.invites,
        "configuration": str(here.paths.config) if done.has_config else None,
        "checks": [check_json(check) for check in checks],
    }

    def tell_all() -> None:
        say(f"restored: {here.paths.data.root}")
        for name in done.revoked_names:
            say(f"removed since the snapshot, and removed again: {name}")
        if done.invites:
            say(f"open invites withdrawn: {done.invites}")
        if done.has_config:
            say(f"configuration: written to {here.paths.config}")
        check_lines(checks)
        remark("Next: confided serve. What devices see then: docs/backup.md")

    # Other problems, such as of a model or a disk, do not come from the snapshot.
    is_well = all(check.is_ok for check in checks if check.name.startswith(("data folder", "database of")))
    return Output(fields, tell_all, exit_code=0 if is_well else 1)


def _folder(snapshot: str, target: str) -> Path:

    path = Path(snapshot).expanduser().absolute()
    if is_id(snapshot) and not path.exists() and target:
        return Path(target).expanduser().absolute() / snapshot
    return path


def _keys(*, code: bool, keys: Path | None) -> Keys:

    if keys is not None:
        return ByFiles(keys.expanduser().absolute())
    if not code and not sys.stdin.isatty():
        hint = "--code reads the recovery code from stdin, --keys DIR takes identity.key and master.key from a folder"
        raise ConfideError("the keys of the snapshot are sealed: name a source for the daemon's keys", hint=hint)
    return ByCode(RecoveryCode.parse(unseen("recovery code of the backups")))


def _lines(outlook: RestorePreview) -> list[str]:
    made = outlook.manifest
    lines = [
        f"snapshot {made.id}, of {clock(made.at)} by confided {made.version}: {made.size_bytes / 1e6:,.1f} MB",
        f"spaces that open at once: {', '.join(outlook.opens) or 'none'}",
    ]
    if outlook.waits:
        lines.append(f"spaces that open when one of their devices connects: {', '.join(outlook.waits)}")
    return lines
