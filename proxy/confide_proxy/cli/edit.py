"""The commands `confide edit` and `confide rm`: edit a file or note in an editor, or delete it
recoverably (docs/history.md).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import typer

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.documents import GLOBAL_PROJECT, is_in_memory, local_time, to_nfc
from confide_memory.globs import is_glob, matches
from confide_memory.tools import call as call_keys
from confide_memory.wire.files import REMOVE
from confide_memory.wire.revisions import DELETED, HISTORY, HistoryRequest
from confide_proxy.cli import forget as forgetting
from confide_proxy.cli.completion import Meant, PathOf
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    Yes,
    command,
    count_noun,
    note,
    project_of,
    require_consent,
    row,
)
from confide_proxy.cli.past_memory import current_paths
from confide_proxy.cli.search import CalledTool, outage, send_queue, without_daemon
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import DeclinedError, EditorError, FolderError, ToolError, is_for_now
from confide_proxy.hooks.server import usage
from confide_proxy.mcp.client import CommandClient
from confide_proxy.offline import local_notes
from confide_proxy.offline.operations import new_id, new_meta
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import folders_of

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class EditTarget:
    """A document that the user has named.

    Attributes:
        note: the document's id, if the user named it by its id; otherwise "".
    """

    project: str
    path: str
    note: str = ""
    title: str = ""

    @property
    def label(self) -> str:
        return f"{self.title} ({self.path})" if self.title else self.path


@command
async def rm(
    here: CommandContext,
    names: Meant = None,
    is_erased: Annotated[bool, typer.Option("--erase", hidden=True)] = False,
    undo: Annotated[bool, typer.Option("--undo", hidden=True)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", hidden=True)] = False,
    yes: Yes = False,
    is_global: IsGlobal = False,
    of: Annotated[
        str,
        typer.Option(
            "--project",
            "-p",
            metavar="DIR",
            help="The project's folder.",
            show_default="here",
        ),
    ] = "",
) -> Output:
    """Delete files or notes on every device; confide restore brings them back for a while."""
    if is_erased:
        note("hint: this is confide forget now")
        return await forgetting.forget_names(
            here, names or (), of, undo=undo, dry_run=dry_run, yes=yes, is_global=is_global
        )
    if undo or dry_run:
        raise typer.BadParameter("goes with confide forget", param_hint="--undo" if undo else "--dry-run")
    if not names:
        raise typer.BadParameter("name a file or a note, as confide ls shows it", param_hint="PATH|ID")
    project = Path(of or ".")
    if not sys.stdin.isatty():
        await require_consent("", is_sure=yes)  # fails before any search
    this = await project_of(here, project)
    names = [to_project_path(here, project, name) for name in names]
    began = time.time()
    try:
        async with here.client(this) as client:
            await send_queue(client, here)
            await client.files.compare()
            named = [one for name in names for one in await _expand(client, this, name, is_global=is_global)]
            targets = [await _find_target(client, this, name, is_global=is_global) for name in dict.fromkeys(named)]
            await require_consent(_question(targets), is_sure=yes)
            done = [await _delete(client, target) for target in targets]
    except (ToolError, FolderError, DeclinedError):
        raise
    except (ConfideError, TimeoutError) as error:
        outage(error, began)
        targets = await asyncio.to_thread(_found_here, here, this, list(dict.fromkeys(names)), is_global)
        await require_consent(_question(targets), is_sure=yes)
        done = [await _delete_later(here, this, target, error, began) for target in targets]
    for target in targets:
        await asyncio.to_thread(usage.forget, here.paths.state, target.project, [target.path])
    warnings = [warning for each in done for warning in each["warnings"]]
    is_done = all(each["deleted"] or each["queued"] for each in done)

    def print_text() -> None:
        for each in done:
            row(_sentence(each))

    return Output({"project": this.name, "deleted": done}, print_text, warnings, exit_code=0 if is_done else 1)


async def _delete_later(
    here: CommandContext, this: Project, target: EditTarget, error: Exception, began: float
) -> DeleteOutcome:
    """Queue the deletion of a file that was found here, for when the daemon is there again."""
    call = _tool_call("memory_delete", _arguments(target))
    return _outcome(target, await without_daemon(here, this, call, error, began))


@command
def edit(
    here: CommandContext,
    name: PathOf,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """Open a file in $VISUAL or $EDITOR, send the changes, and print the result."""
    editor = _editor()
    this = asyncio.run(project_of(here, project))
    opened = asyncio.run(_open(here, this, to_project_path(here, project, name), is_global=is_global))
    code = _run(editor, opened.file)
    if code:
        note(f"the editor ended with {code}; what it saved is kept")
    try:
        after = opened.folder.read(opened.path)
    except FolderError as error:
        note(f"what was saved stays on this device: {error}", *([f"hint: {error.hint}"] if error.hint else []))
        return _edit_output(opened, "not sent", f"{opened.path} is not sent", code=error.exit_code)
    if after is not None and after.text == opened.text:
        return _edit_output(opened, "unchanged", f"{opened.path} is unchanged", code=1 if code else 0)
    return asyncio.run(_send(here, this, opened, is_there=after is not None, code=1 if code else 0))


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file as it was before the user edited it.

    Attributes:
        revision: its revision on the daemon; 0 if the daemon was not asked.
    """

    folder: Folder
    path: str
    file: Path
    text: str
    revision: int


def _editor() -> list[str]:
    said = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(said)
    except ValueError as error:
        raise EditorError(f"$VISUAL or $EDITOR cannot be read: {error}", hint="export EDITOR=nano") from None
    if not words:
        raise EditorError("no editor is set", hint="export EDITOR=nano, or the one that you like")
    return words


def _run(editor: list[str], file: Path) -> int:
    """Run the editor, and return its exit code. Raises EditorError if no such program exists."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's
    try:
        return subprocess.call([*editor, str(file)])
    except OSError as error:
        hint = "set $VISUAL or $EDITOR to one that is installed"
        raise EditorError(f"the editor {editor[0]} cannot be run: {error.strerror}", hint=hint) from None
    finally:
        signal.signal(signal.SIGINT, before)


async def _open(here: CommandContext, this: Project, name: str, *, is_global: bool) -> EditedFile:
    began = time.time()
    try:
        async with here.client(this) as client:
            await send_queue(client, here)
            report = await client.files.compare()
            target = await _find_target(client, this, name, is_global=is_global)
            body: HistoryRequest = {"project": target.project, "path": target.path, "limit": 1}
            answer = await HISTORY.ask(client.connection, body, timeout_s=DEADLINE_S)
            why = next((item["reason"] for item in report.skipped if item["path"] == target.path), "")
            return await asyncio.to_thread(
                _open_target, this, target, client.files.folders, answer["revisions"][0]["revision"], why
            )
    except (ToolError, FolderError):
        raise
    except (ConfideError, TimeoutError) as error:
        trouble = outage(error, began)
        (target,) = await asyncio.to_thread(_found_here, here, this, [name], is_global)
        note(f"{trouble.sentence}: this is the file as it is on this device", *trouble.hints)
        folders = folders_of(here.paths, here.config, this)
        return await asyncio.to_thread(_open_target, this, target, folders, 0, "")


def _open_target(this: Project, target: EditTarget, folders: list[Folder], revision: int, why: str) -> EditedFile:
    folder = next((one for one in folders if one.project == target.project), None)
    if folder is None:
        hint = "run it in that project's folder, or with --project"
        raise FolderError(target.path, f"is of the project {target.project}, not of {this.name}", hint=hint)
    if not folder.is_memory(target.path):
        raise FolderError(target.path, folder.why_not(target.path), hint="edit it where it is")
    content = folder.read(target.path)
    if content is None:
        raise FolderError(target.path, why or "is not on this device", hint="confide ls lists what there is")
    return EditedFile(folder, target.path, folder.root / folder.spelling_of(target.path), content.text, revision)


async def _send(here: CommandContext, this: Project, opened: EditedFile, *, is_there: bool, code: int) -> Output:
    path = opened.path
    try:
        async with here.client(this) as client:
            report = await client.files.compare()
            answer = await HISTORY.ask(
                client.connection,
                {"project": opened.folder.project, "path": path, "limit": 20},
                timeout_s=DEADLINE_S,
            )
    except ToolError:
        raise
    except (ConfideError, TimeoutError) as error:
        if isinstance(error, RequestError) and not is_for_now(error):
            raise
        return _edit_output(
            opened, "waiting", f"saved {path}; it is sent once the daemon can be reached: confide sync", code=code
        )
    newest = answer["revisions"][0]
    if why := next((item["reason"] for item in report.skipped if item["path"] == path), ""):
        return _edit_output(opened, "not sent", f"{path} is saved here, and not sent: {why}", code=7)
    others = dict.fromkeys(
        each["author"]
        for each in answer["revisions"]
        if opened.revision and each["revision"] > opened.revision and each["author"] != newest["author"]
    )
    if others:
        note(
            f"{', '.join(others)} changed it meanwhile: confide history {shlex.quote(path)} --diff --revision N shows what"
        )
    number = newest["revision"]
    if newest["clash"]:
        note(f"conflict: keep the lines that are right, and delete the markers: confide edit {shlex.quote(path)}")
    if not is_there:
        return _edit_output(
            opened, "deleted", f"deleted {path}; it comes back with: confide restore {shlex.quote(path)}", number, code
        )
    state = "clash" if newest["clash"] else "sent"
    return _edit_output(opened, state, f"sent {path} as revision {number}", number, code)


def _edit_output(opened: EditedFile, state: str, told: str, revision: int | None = None, code: int = 0) -> Output:
    data = {"project": opened.folder.project, "path": opened.path, "state": state, "revision": revision}
    return Output(data, lambda: row(told), exit_code=code)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(".md")


def _path(name: str) -> str:
    return to_nfc(name).removeprefix("./")


async def _find_target(client: CommandClient, this: Project, name: str, *, is_global: bool) -> EditTarget:
    """Find the living document with this path or note id. Raises RequestError if there is none."""
    if not _is_path(name):
        found = await client.call("memory_get", {"id": name})
        return EditTarget(found["project"], found["path"], found["id"], found["title"])
    project, path = GLOBAL_PROJECT if is_global else this.name, _path(name)
    if not is_in_memory(path) and any(
        each.project == project and each.is_watched(path) and not each.is_missing(path) for each in client.files.folders
    ):
        hint = f"delete the file itself: rm; from the daemon alone: confide forget {shlex.quote(path)}"
        raise FolderError(path, "is outside of memory, and indexed where it is", hint=hint)
    answer = await HISTORY.ask(client.connection, {"project": project, "path": path, "limit": 1}, timeout_s=DEADLINE_S)
    if answer["revisions"][0]["deleted"]:
        raise RequestError(
            "not_found", f"{path} is deleted already", f"it comes back with: confide restore {shlex.quote(path)}"
        )
    return EditTarget(project, path)


def _is_one(name: str) -> bool:
    """Return True if a name is an id, or the path of one file."""
    return not is_glob(name) and (name.endswith(".md") or not _is_path(name))


async def _expand(client: CommandClient, this: Project, name: str, *, is_global: bool) -> list[str]:
    """Return the name, or the memory files in the folder or of the glob that it is. Raises
    RequestError if there are none.
    """
    if _is_one(name):
        return [name]
    project = GLOBAL_PROJECT if is_global else this.name
    found = [path for path in await current_paths(client, project) if is_in_memory(path) and matches(path, name)]
    if not found:
        raise RequestError("not_found", f"no memory file of {project} matches {name}", "confide ls lists them")
    return found


def _found_here(here: CommandContext, this: Project, names: list[str], is_global: bool) -> list[EditTarget]:
    """Find the documents in the files of this device.

    Raises FolderError if one is missing, and ToolError if a short id matches several notes.
    """
    folders = folders_of(here.paths, here.config, this)
    own = next(one for one in folders if one.project == (GLOBAL_PROJECT if is_global else this.name))
    targets = []
    inside = [file.path for file in own.walk()] if not all(map(_is_one, names)) else []
    wanted: list[str] = []
    for name in names:
        within = [path for path in inside if is_in_memory(path) and matches(path, name)]
        wanted += [name] if _is_one(name) or not within else within
    for name in dict.fromkeys(wanted):
        if _is_path(name):
            path = _path(name)
            if not is_in_memory(path):
                hint = "delete other files with rm"
                raise FolderError(name, "is outside of memory, which is MEMORY.md and the folder memory/", hint=hint)
            if own.read(path) is None:
                raise FolderError(path, "is not on this device", hint="confide ls lists what there is")
            targets.append(EditTarget(own.project, path))
        elif found := local_notes.note_by_id(folders, name):
            targets.append(EditTarget(found.project, found.path, found.id))
        else:
            raise FolderError(name, "is no note on this device", hint="confide ls lists what there is")
    return targets


def _question(targets: list[EditTarget]) -> str:
    named = ", ".join(target.label for target in targets[:_SHOWN])
    more = f" and {len(targets) - _SHOWN} more" if len(targets) > _SHOWN else ""
    return f"delete {count_noun(len(targets), 'file')}: {named}{more}?"


class DeleteOutcome(TypedDict):
    """The result of deleting one document; the fields of `--json`."""

    path: str
    project: str
    id: str | None
    deleted: bool
    queued: bool
    warnings: list[str]
    restorableUntil: str | None


async def _delete(client: CommandClient, target: EditTarget) -> DeleteOutcome:
    if not is_in_memory(target.path):
        return await _delete_absent_file(client, target)
    return _outcome(target, await client.call("memory_delete", _arguments(target), more_meta=new_meta()))


def _sentence(done: DeleteOutcome) -> str:
    """Say what became of a document, and how its deletion is undone."""
    path, of_all = done["path"], " --global" if done["project"] == GLOBAL_PROJECT else ""
    if until := done["restorableUntil"]:
        again = f"confide restore {shlex.quote(path)}{of_all}"
        return f"deleted {path}; until {local_time(until)} it comes back with: {again}"
    if done["queued"]:
        return f"the deletion of {path} is queued until the server is reachable: confide sync --queue"
    return f"{path} is not deleted"


async def _delete_absent_file(client: CommandClient, target: EditTarget) -> DeleteOutcome:
    """Delete a document that is no memory file on this device any more, as a device that has it
    does.
    """
    project, path = target.project, target.path
    answer = await HISTORY.ask(client.connection, {"project": project, "path": path, "limit": 1}, timeout_s=DEADLINE_S)
    newest = answer["revisions"][0]["revision"]
    await REMOVE.ask(client.connection, {"project": project, "path": path, "base": newest}, timeout_s=DEADLINE_S)
    found = await DELETED.ask(client.connection, {"project": project}, timeout_s=DEADLINE_S)
    gone = next((each for each in found["documents"] if each["path"] == target.path), None)
    until = gone and gone["restorableUntil"]
    return _outcome(target, {"deleted": gone is not None, "queued": False, "warnings": [], "restorableUntil": until})


def _outcome(target: EditTarget, answer: Mapping[str, Any]) -> DeleteOutcome:
    return DeleteOutcome(
        path=target.path,
        project=target.project,
        id=target.note or None,
        deleted=answer["deleted"],
        queued=answer["queued"],
        warnings=answer["warnings"],
        restorableUntil=answer["restorableUntil"] if answer["deleted"] else None,
    )


def _arguments(target: EditTarget) -> dict[str, object]:
    return {"id": target.note} if target.note else {"path": target.path, "project": target.project}


def _tool_call(tool: str, arguments: dict[str, object]) -> CalledTool:
    return CalledTool(tool, arguments, new_id(), call_keys.said_now())
