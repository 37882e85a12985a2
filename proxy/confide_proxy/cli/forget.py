"""The command `confide forget`: remove documents or a text everywhere, with a receipt
(docs/forgetting.md).

The files on the devices stay as they are, unless `--file` is given.
"""

from __future__ import annotations

import asyncio
import difflib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.forgetting import SignedRecord, canonical, receipt_of
from confide_memory.globs import normal
from confide_memory.note_names import is_id
from confide_memory.wire.forgotten import FORGET_UNDO, ForgetPlanned, ForgetUndoRequest
from confide_memory.wire.revisions import FORGET, PROJECTS
from confide_proxy.cli.console import (
    DEADLINE_S,
    QUESTION_S,
    CommandContext,
    IsGlobal,
    Output,
    Yes,
    command,
    count_noun,
    input_text,
    note,
    project_of,
    require_consent,
    row,
)
from confide_proxy.cli.search import document_of
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import InputError
from confide_proxy.hooks.server.forgetting.forget_everywhere import (
    LEVELS,
    ForgetPlace,
    ForgetTargets,
    KeptReceipt,
    Removal,
    drop_from_backups,
    parts_of,
    plan_forgetting,
    receipt_for,
    run_forgetting,
)
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync.project import Project

_SHOWN: Final = 8

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH|ID", help="Files, folders, globs or ids of notes.", show_default=False),
]


@command
async def forget(
    here: CommandContext,
    names: Names = None,
    text: Annotated[
        str, typer.Option("--text", metavar="TEXT", help="Forget this text in all of memory; - reads it from stdin.")
    ] = "",
    of: Annotated[
        str,
        typer.Option(
            "--project",
            "-p",
            metavar="NAME",
            help="The project's name or folder; without a path all of it.",
            show_default="here",
        ),
    ] = "",
    is_global: IsGlobal = False,
    with_files: Annotated[bool, typer.Option("--file", help="Change or delete the files on your devices too.")] = False,
    with_backups: Annotated[
        bool, typer.Option("--backups", help="Remove this memory from the server's older snapshots too.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let these be stored again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be forgotten.")] = False,
    receipt: Annotated[
        Path | None, typer.Option("--verify", metavar="RECEIPT", help="Check a receipt, and print it.")
    ] = None,
    yes: Yes = False,
) -> Output:
    """Remove files, notes or a text everywhere, for good, and get a receipt."""
    if receipt is not None:
        return await _check_receipt(here, receipt)
    if text == "-" and not (undo or dry_run):
        await require_consent("", is_sure=yes)  # stdin has the text, and no answer
    said = input_text() if text == "-" else text
    return await forget_names(
        here,
        names or (),
        of,
        text=said,
        is_global=is_global,
        with_files=with_files,
        with_backups=with_backups,
        undo=undo,
        dry_run=dry_run,
        yes=yes,
    )


async def forget_names(
    here: CommandContext,
    names: Sequence[str],
    of: str,
    *,
    text: str = "",
    is_global: bool,
    with_files: bool = False,
    with_backups: bool = False,
    undo: bool,
    dry_run: bool,
    yes: bool,
) -> Output:
    """Remove documents or a text for good, or, with `undo`, let them be stored again.

    Args:
        of: a project's name or folder; without names and text, the whole project is meant.
        with_files: change the files on the devices too.
        with_backups: remove the texts from the server's older snapshots too.

    Raises typer.BadParameter if nothing is named, a name is empty or a text is too short;
    RequestError if nothing is stored under these names.
    """
    asked = list(dict.fromkeys(names))
    if bool(text.strip()) == bool(asked or of or is_global):
        raise typer.BadParameter("name a file, a folder, a glob or --text, or --project NAME for all of a project")
    if any(not normal(name) for name in asked):
        raise typer.BadParameter("a name is empty; to forget everything: --project NAME, without a path")
    if not (undo or dry_run or sys.stdin.isatty()):
        await require_consent("", is_sure=yes)  # fails before any search
    folder = Path(of) if of and Path(of).is_dir() else Path()
    this = await project_of(here, folder)
    asked = [to_project_path(here, folder, name) for name in asked]
    async with here.client(this) as client:
        place = _place(here, client)
        if text.strip():
            try:
                targets = ForgetTargets("", [], await parts_of(place, text))
            except InputError as error:
                raise typer.BadParameter(str(error), param_hint="--text") from None
        else:
            project = GLOBAL_PROJECT if is_global else await _project(client, this, of)
            targets = ForgetTargets(project, [await _path(client, name, project) for name in asked], [])
        if undo:
            return await _undone(client, targets)
        plan = await plan_forgetting(place, targets)
        if dry_run:
            return _plan_output(plan, targets.project)
        await require_consent(_question(plan, targets.project, with_files=with_files), is_sure=yes)
        done = await run_forgetting(place, targets, plan, with_files=with_files)
        if with_files:
            await _change_own_files(client, done)
        if with_backups and not done.warnings:
            await drop_from_backups(place, done)
        receipt = await receipt_for(place, done.signed)
    return _output(plan, targets.project, done, receipt)


async def _change_own_files(client: CommandClient, done: Removal) -> None:
    """Change the files of this folder now, since the user may look at them next."""
    try:
        await client.call("memory_sync", {}, is_long=True)
    except (ConfideError, TimeoutError) as error:
        done.warnings.append(f"the files here still have it, until the next confide sync: {error}")


def _place(here: CommandContext, client: CommandClient) -> ForgetPlace:
    return ForgetPlace(here.paths, client.connection, client.sealing, client.files)


async def _project(client: CommandClient, this: Project, of: str) -> str:
    """Return the project that the user gave by name or by folder."""
    if not of:
        return this.name
    answer = await PROJECTS.ask(client.connection, {"project": this.name}, timeout_s=DEADLINE_S)
    known = [entry["name"] for entry in answer["projects"]]
    is_folder = Path(of).is_dir()
    if is_folder and (this.name == of or of not in known):
        return this.name
    if is_folder:
        raise typer.BadParameter(
            f"{of} is a project and a folder here; for the folder's project, {this.name}: ./{of}",
            param_hint="--project",
        )
    if of not in known:
        near = difflib.get_close_matches(of, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "confide project ls lists them"
        raise RequestError("not_found", f"there is no project {of}", hint)
    return of


async def _path(client: CommandClient, name: str, project: str) -> str:
    """Return the daemon's path for a name: relative to the project's folder; for a note's id, the
    path of its file.
    """
    if is_id(name):
        return (await document_of(client, name, project))[1]
    return normal(name)


def _question(plan: ForgetPlanned, project: str, *, with_files: bool) -> str:
    what = f"forget {_files(plan)} of {project}" if project else f"forget this text in {_files(plan)}"
    named = ", ".join(each["path"] for each in plan["documents"][:_SHOWN])
    more = f" and {plan['total'] - _SHOWN:,} more" if plan["total"] > _SHOWN else ""
    files = (
        "The files on your devices change or disappear too."
        if with_files
        else "The files on your devices stay, and are not sent again."
    )
    return f"{what}: {named}{more}?\nThis removes it for good, with all revisions. {files}"


def _files(plan: ForgetPlanned) -> str:
    return count_noun(plan["total"], "file")


async def _undone(client: CommandClient, targets: ForgetTargets) -> Output:
    project, paths, parts = targets
    body: ForgetUndoRequest = {"project": project, "paths": paths, "parts": targets.packed_parts}
    count = (await FORGET_UNDO.ask(client.connection, body, timeout_s=DEADLINE_S))["count"]
    kept: list[str] = []
    if project:
        answer = await FORGET.ask(
            client.connection, {"project": project, "paths": paths, "undo": True}, timeout_s=DEADLINE_S
        )
        kept = answer["documents"]

    def print_text() -> None:
        shown = list(dict.fromkeys([*kept, *(paths or [""])])) if count else kept
        for name in shown if project else ():
            row(f"{name or 'all of it'} of {project} can be sent again")
        if parts and count:
            row("this text can be stored again")
        if count or kept:
            note("confide sync sends what this device has of it")
        else:
            row(f"nothing of {project} was forgotten under that name" if project else "this text was not forgotten")

    return Output({"project": project, "takenAgain": count + len(kept)}, print_text)


async def _check_receipt(here: CommandContext, file: Path) -> Output:
    """Check a receipt, and print it; one that this device keeps is replaced by one of the present
    state, if the daemon answers. Raises ReceiptError: it was changed, or is another file.
    """
    body = await asyncio.to_thread(lambda: receipt_of(_content(file)))
    notes: list[str] = []
    if await asyncio.to_thread(lambda: file.resolve().parent == here.paths.forget_receipts.resolve()):
        try:
            this = await project_of(here, Path())
            async with here.client(this, patience_s=QUESTION_S) as client:
                signed = SignedRecord(canonical(body["record"]), bytes.fromhex(body["recordSignature"]))
                body = (await receipt_for(_place(here, client), signed)).body
        except (ConfideError, TimeoutError) as error:
            notes.append(f"this is the state of when it was made: {error}")

    def print_text() -> None:
        _print(body)

    return Output({"verified": True, **body}, print_text, notes)


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(8 << 20)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="--verify") from None


def _print(body: dict[str, Any]) -> None:
    record = body["record"]
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["at"]))
    row(f"receipt {record['id'][:8]} of {at}: both signatures are good")
    for place in body["places"]:
        named = f", {place['name']}" if place["name"] else ""
        row(f"  {place['place']}{named}: {LEVELS.get(place['level'], place['level'])}")
    row("out of scope:")
    for each in body["outOfScope"]:
        row(f"  {each}")


def _plan_output(plan: ForgetPlanned, project: str) -> Output:
    def print_text() -> None:
        for each in plan["documents"]:
            row(each["path"] if project else f"{each['project']}: {each['path']}")
        row(f"{_files(plan)} {f'of {project} ' if project else ''}would be forgotten")
        _tell_shared(plan)

    data = {
        "project": project,
        "documents": [each["path"] for each in plan["documents"]],
        "total": plan["total"],
        "shared": [each["path"] for each in plan["shared"]],
        "forgotten": False,
    }
    return Output(data, print_text)


def _tell_shared(plan: ForgetPlanned) -> None:
    if plan["shared"]:
        named = ", ".join(f"{each['project']}: {each['path']}" for each in plan["shared"][:_SHOWN])
        note(f"words of it that also stand in {named} stay there")


def _output(plan: ForgetPlanned, project: str, done: Removal, receipt: KeptReceipt) -> Output:
    held = receipt.names(place="snapshot")

    def print_text() -> None:
        row(f"{_files(plan)} {f'of {project} ' if project else ''}forgotten")
        _tell_shared(plan)
        for name in done.dropped:
            row(f"removed from snapshot {name}")
        if held:
            note(
                f"it is still in {count_noun(len(held), 'snapshot')} of the server; confide forget --backups removes it there"
            )
        if waiting := receipt.names(place="device", level="gone when it connects"):
            note(f"gone on {', '.join(waiting)} when it next connects")
        note(f"receipt: {receipt.file}")

    data = {
        "project": project,
        "documents": [each["path"] for each in plan["documents"]],
        "total": plan["total"],
        "shared": [each["path"] for each in plan["shared"]],
        "forgotten": not done.warnings,
        "receipt": str(receipt.file),
        "places": receipt.body["places"],
        "dropped": done.dropped,
    }
    return Output(data, print_text, done.warnings, exit_code=1 if done.warnings else 0)
