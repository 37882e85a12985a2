"""The command `confide forget`: remove documents or a text everywhere, with a receipt
(docs/forgetting.md).

The files on the devices stay as they are, unless `--file` is given.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from confide_crypto import atomic
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import verify
from confide_crypto.sealing.roster import Roster
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.errors import UnfitAnswerError
from confide_memory.forgetting import (
    MOST_PARTS,
    RECEIPT_LABEL,
    ForgetPart,
    ForgetRecord,
    Hashes,
    SignedRecord,
    canonical,
    hashes_of,
    key_id,
    receipt_of,
    unpacked_parts,
)
from confide_memory.globs import is_glob, normal
from confide_memory.note_names import is_id
from confide_memory.wire.forgotten import (
    FORGET_BACKUPS,
    FORGET_PLAN,
    FORGET_RECEIPT,
    FORGET_UNDO,
    ForgetPlanned,
    ForgetUndoRequest,
)
from confide_memory.wire.revisions import FORGET, PROJECTS
from confide_proxy.cli.console import (
    DEADLINE_S,
    QUESTION_S,
    CommandContext,
    IsGlobal,
    Output,
    Yes,
    agreed,
    command,
    counted,
    identified,
    input_text,
    note,
    row,
)
from confide_proxy.cli.search import document_of
from confide_proxy.errors import SpaceKeysError
from confide_proxy.hooks.server import forgotten_texts
from confide_proxy.hooks.server.forgotten_texts import ForgetRecords, KnownRecord
from confide_proxy.sync.project import Project

if TYPE_CHECKING:
    from confide_proxy.mcp.client import CommandClient
_SHOWN: Final = 8
_PLAN_DEADLINE_S: Final = 300.0
_MOST_STEPS: Final = 20_000
_LEVELS: Final = {
    "gone": "gone",
    "gone when it connects": "goes when it connects",
    "pending": "not removed yet",
    "kept": "kept",
    "not known": "not known",
}

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
        return await _checked(here, receipt)
    if text == "-" and not (undo or dry_run):
        await agreed("", is_sure=yes)  # stdin has the text, and no answer
    said = input_text() if text == "-" else text
    return await forgotten(
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


async def forgotten(
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
    """Forget documents or a text, or let them be stored again.

    Args:
        of: a project's name or folder; without names and text, the whole project is meant.

    Raises typer.BadParameter: nothing is named, or a name is empty or a text too short; RequestError:
    nothing is stored under these names.
    """
    asked = list(dict.fromkeys(names))
    if bool(text.strip()) == bool(asked or of or is_global):
        raise typer.BadParameter("name a file, a folder, a glob or --text, or --project NAME for all of a project")
    if any(not normal(name) for name in asked):
        raise typer.BadParameter("a name is empty; to forget everything: --project NAME, without a path")
    if not (undo or dry_run or sys.stdin.isatty()):
        await agreed("", is_sure=yes)  # fails before any search
    this = await identified(here, Path(of) if of and Path(of).is_dir() else Path())
    async with here.client(this) as client:
        roster = client.sealing.keyring.roster
        if roster is None:
            raise client.sealing.keyring.problem or SpaceKeysError("this device has no keys of the space yet")
        if text.strip():
            targets = _Targets("", [], await _parts(client, text))
        else:
            project = GLOBAL_PROJECT if is_global else await _project(client, this, of)
            targets = _Targets(project, [await _path(client, this, name, project) for name in asked], [])
        if undo:
            return await _undone(client, targets)
        plan = await _plan(client, targets)
        if dry_run:
            return _planned(plan, targets.project)
        await agreed(_question(plan, targets.project, with_files=with_files), is_sure=yes)
        done = await _removed(here, client, roster, plan, with_files=with_files)
        await _refuse_globs(client, targets)
        local = [each["path"] for each in plan["documents"] if each["project"] == this.name]
        await asyncio.to_thread(client.files.note_forgotten, this.name, local)
        if with_backups and not done.warnings:
            dropped = await FORGET_BACKUPS.ask(client.connection, {"id": done.id}, timeout_s=_PLAN_DEADLINE_S)
            done.dropped += dropped["dropped"]
        file, body = await _receipt(here, client, done.signed)
    return _output(plan, targets.project, done, file, body)


class _Targets(NamedTuple):
    """Documents of a project, all of them if no path is given; or parts of a text, with an empty
    project, since they are meant in all of them.
    """

    project: str
    paths: list[str]
    parts: list[ForgetPart]

    @property
    def packed_parts(self) -> bytes:
        return b"".join(part.pack() for part in self.parts)


class _Done:
    def __init__(self, signed: SignedRecord) -> None:
        self.signed = signed
        self.id = signed.record.id
        self.documents = 0
        self.dropped: list[str] = []
        self.warnings: list[str] = []


async def _parts(client: CommandClient, text: str) -> list[ForgetPart]:
    """Return the parts of a text, as it was given and as it is sealed. Raises typer.BadParameter: it
    is too short.
    """
    answer = await FORGET_PLAN.ask(client.connection, {}, timeout_s=DEADLINE_S)
    hashes = Hashes(answer["key"])
    sealed = await asyncio.to_thread(client.sealing.sealer.seal, text, "files")
    parts = list(dict.fromkeys([*hashes.of_text(text), *hashes.of_text(sealed.text)]))
    if not parts:
        raise typer.BadParameter("the text is too short: it needs twelve letters or digits in a line")
    if len(parts) > MOST_PARTS:
        raise typer.BadParameter("the text is too long; name the files instead")
    return parts


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


async def _path(client: CommandClient, this: Project, name: str, project: str) -> str:
    """Return the daemon's path for a name: relative to the project's folder; for a note's id, the
    path of its file.
    """
    if is_id(name):
        return (await document_of(client, name, project))[1]
    if Path(name).is_absolute():
        try:
            name = Path(name).relative_to(this.root).as_posix()
        except ValueError:
            raise typer.BadParameter(f"{name} is not in {this.root}") from None
    return normal(name)


async def _plan(client: CommandClient, targets: _Targets) -> ForgetPlanned:
    """Return what the daemon would remove. Raises RequestError: nothing is stored under the paths."""
    plan = await FORGET_PLAN.ask(
        client.connection,
        {"project": targets.project, "paths": targets.paths, "parts": targets.packed_parts},
        timeout_s=_PLAN_DEADLINE_S,
    )
    if not plan["total"] and targets.paths:
        named = ", ".join(targets.paths[:_SHOWN])
        hint = "confide ls --all lists it"
        raise RequestError("not_found", f"nothing of {targets.project} is stored under {named}", hint)
    return plan


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
    return counted(plan["total"], "file")


async def _removed(
    here: CommandContext, client: CommandClient, roster: Roster, plan: ForgetPlanned, *, with_files: bool
) -> _Done:
    """Sign the record, keep it here, and have the daemon and this device remove the texts."""
    identity = await client.sealing.keyring.identity()
    record = ForgetRecord(
        os.urandom(16),
        roster.space.hex(),
        int(time.time()),
        identity.public_key,
        key_id(plan["key"]),
        hashes_of(plan["names"]),
        hashes_of(plan["texts"]),
        tuple(unpacked_parts(plan["parts"])),
        plan["ofParts"],
        hashes_of(plan["sealed"]),
        with_files,
    )
    one = KnownRecord(record.sign(identity), plan["key"])
    # Kept before it is sent, so that an interrupted command is finished at the next connection.
    await asyncio.to_thread(ForgetRecords(here.paths).add, record.space, one)
    done = _Done(one.signed)
    try:
        done.documents = await forgotten_texts.give(client.connection, one)
    except (ConfideError, TimeoutError) as error:
        done.warnings += [
            f"not everything is removed yet: {error}",
            "hint: it goes on by itself; confide forget --verify RECEIPT shows how far it is",
        ]
    try:
        await forgotten_texts.apply(here.paths, client.connection, roster)
    except (ConfideError, TimeoutError) as error:
        done.warnings.append(f"files of this device may still have it, until the next connection: {error}")
    return done


async def _refuse_globs(client: CommandClient, targets: _Targets) -> None:
    """Refuse later documents that a glob names, too."""
    globs = [path for path in targets.paths if is_glob(path)]
    if not globs:
        return
    for _ in range(_MOST_STEPS):
        step = await FORGET.ask(client.connection, {"project": targets.project, "paths": globs}, timeout_s=DEADLINE_S)
        if step["complete"]:
            break


async def _undone(client: CommandClient, targets: _Targets) -> Output:
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


async def _receipt(here: CommandContext, client: CommandClient, signed: SignedRecord) -> tuple[Path, dict[str, Any]]:
    """Fetch the receipt of a record, sign it, and keep it; return its file and content. Raises
    UnfitAnswerError: it is not of this very record, or the daemon has not signed it.
    """
    identity = signed.record.id
    answer = await FORGET_RECEIPT.ask(client.connection, {"id": identity}, timeout_s=DEADLINE_S)
    try:
        body: dict[str, Any] = json.loads(answer["receipt"])
        is_fit = (
            canonical(body) == answer["receipt"]
            # All of it: with its id alone the daemon could have another record signed here.
            and body["record"] == signed.body
            and body["recordSignature"] == signed.signature.hex()
            and verify(bytes.fromhex(body["daemon"]), RECEIPT_LABEL, answer["receipt"], answer["signature"])
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_fit = False
    if not is_fit:
        raise UnfitAnswerError
    own = await client.sealing.keyring.identity()
    whole = {
        "receipt": body,
        "device": own.public_key.hex(),
        "daemonSignature": answer["signature"].hex(),
        "deviceSignature": own.sign(RECEIPT_LABEL, answer["receipt"]).hex(),
    }
    file = here.paths.forget_receipts / f"{identity.hex()}.json"

    def write() -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(file, canonical(whole))

    await asyncio.to_thread(write)
    return file, body


async def _checked(here: CommandContext, file: Path) -> Output:
    """Check a receipt, and print it; one that this device keeps is replaced by one of the present
    state, if the daemon answers. Raises ReceiptError: it was changed, or is another file.
    """
    body = await asyncio.to_thread(lambda: receipt_of(_content(file)))
    notes: list[str] = []
    if await asyncio.to_thread(lambda: file.resolve().parent == here.paths.forget_receipts.resolve()):
        try:
            this = await identified(here, Path())
            async with here.client(this, patience_s=QUESTION_S) as client:
                _, body = await _receipt(
                    here, client, SignedRecord(canonical(body["record"]), bytes.fromhex(body["recordSignature"]))
                )
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
        row(f"  {place['place']}{named}: {_LEVELS.get(place['level'], place['level'])}")
    row("out of scope:")
    for each in body["outOfScope"]:
        row(f"  {each}")


def _planned(plan: ForgetPlanned, project: str) -> Output:
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


def _output(plan: ForgetPlanned, project: str, done: _Done, file: Path, body: dict[str, Any]) -> Output:
    held = [place["name"] for place in body["places"] if place["place"] == "snapshot"]

    def print_text() -> None:
        row(f"{_files(plan)} {f'of {project} ' if project else ''}forgotten")
        _tell_shared(plan)
        for name in done.dropped:
            row(f"removed from snapshot {name}")
        if held:
            note(
                f"{counted(len(held), 'snapshot')} of the server still hold it; confide forget --backups removes it there"
            )
        waiting = [place["name"] for place in body["places"] if place["level"] == "gone when it connects"]
        if waiting:
            note(f"gone on {', '.join(waiting)} when it next connects")
        note(f"receipt: {file}")

    data = {
        "project": project,
        "documents": [each["path"] for each in plan["documents"]],
        "total": plan["total"],
        "shared": [each["path"] for each in plan["shared"]],
        "forgotten": not done.warnings,
        "receipt": str(file),
        "places": body["places"],
        "dropped": done.dropped,
    }
    return Output(data, print_text, done.warnings, exit_code=1 if done.warnings else 0)
