"""The command `confide ls`, and the list of changes of `confide history` (docs/history.md)."""

from __future__ import annotations

import asyncio
import difflib
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from datetime import time as dt_time
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from confide_crypto.errors import ConfideError, RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.documents import GLOBAL_PROJECT, has_clash, iso, local_time, to_nfc
from confide_memory.front_matter import split
from confide_memory.globs import fixed_part, is_glob, matches
from confide_memory.markdown_blocks import lines_of
from confide_memory.note_names import title_of
from confide_memory.wire.revisions import (
    CHANGES,
    DOCUMENTS,
    PROJECTS,
    ChangeItem,
    ChangesRequest,
    DocumentItem,
    DocumentsRequest,
)
from confide_proxy.cli.completion import memory_paths, project_names
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    command,
    count_noun,
    note,
    project_of,
    remark,
    row,
    seconds,
)
from confide_proxy.cli.search import call, outage, send_queue
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import FolderError, ToolError
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import folders_of

Found = TypeVar("Found")


class ProjectChange(ChangeItem):
    """A change of a document, with the name of its project."""

    project: str


MOST: Final = 500
"""The most files or changes that one command lists."""
_MOST_NOTES: Final = 100
"""The most notes in one response of `memory_list`."""
_TITLE: Final = 72
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-?W\d{2}(-?\d)?")
"""A date without a time, as `datetime.fromisoformat` reads it."""
Below = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="This file, or the files of this folder.",
        show_default=False,
        autocompletion=memory_paths,
    ),
]
Project_ = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="PROJECT",
        help="Another project, as confide project ls names it.",
        autocompletion=project_names,
    ),
]


@command
async def ls(
    here: CommandContext,
    path: Below = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="Notes with it.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Notes of this type.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", "-a", help="Every project of the space.")] = False,
    only: Project_ = None,
    is_global: IsGlobal = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many.")] = 30,
    project: ProjectDir = Path(),
) -> Output:
    """List the files and notes, last changed first."""
    this = await project_of(here, project)
    below = _below(to_project_path(here, project, path))
    one = GLOBAL_PROJECT if is_global else only
    where = "any project" if everywhere else one or this.name
    if tag or kind:
        arguments = {"tags": tag or [], "limit": min(limit, _MOST_NOTES)} | ({"type": [kind]} if kind else {})
        arguments |= {"project": "*" if everywhere else one} if everywhere or one else {}
        result = await call(here, this, "memory_list", arguments | ({"path": below} if below else {}))
        found = [_of_note(entry) for entry in result["memories"]]
        return _listing_output(this, found, result["total"], limit, where=where)

    async def asked(client: CommandClient) -> tuple[list[dict[str, Any]], int]:
        if everywhere:
            known = await PROJECTS.ask(client.connection, {"project": this.name}, timeout_s=DEADLINE_S)
            names = [each["name"] for each in known["projects"]]
        else:
            names = (
                [await _require_project(client, this, one)] if one else list(dict.fromkeys((this.name, GLOBAL_PROJECT)))
            )
        found, total = [], 0
        for name in names:
            documents, count = await _list_documents(client, name, below, limit)
            found += [{"project": name, **entry} for entry in documents]
            total += count
        return found, total

    answered = await _ask_daemon(here, this, asked, may_do_without=not (everywhere or only))
    if answered is None:
        wanted = {GLOBAL_PROJECT} if is_global else {this.name, GLOBAL_PROJECT}
        found = await asyncio.to_thread(_on_disk, here, this, wanted, below)
        return _listing_output(this, found, len(found), limit, where=where, is_local=True)
    return _listing_output(this, *answered, limit, where=where)


async def _require_project(client: CommandClient, this: Project, name: str) -> str:
    """Return the name of a project. Raises RequestError if the space has none of that name."""
    answer = await PROJECTS.ask(client.connection, {"project": this.name}, timeout_s=DEADLINE_S)
    known = [each["name"] for each in answer["projects"]]
    if name not in (GLOBAL_PROJECT, this.name, *known):
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "confide project ls lists them"
        raise RequestError("not_found", f"there is no project {name}", hint)
    return name


async def _list_documents(
    client: CommandClient, project: str, below: str, limit: int
) -> tuple[list[DocumentItem], int]:
    """Return a project's latest documents at or below a path, or of a glob, and how many there are.

    The daemon knows no globs here, so all documents of the glob's folder are looked at.
    """
    found: list[DocumentItem] = []
    seen = 0
    while True:
        body: DocumentsRequest = {"project": project, "path": below, "limit": limit}
        if is_glob(below):
            body = {"project": project, "path": fixed_part(below), "limit": MOST, "offset": seen}
        answer = await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S)
        if not is_glob(below):
            return answer["documents"], answer["total"]
        found += [each for each in answer["documents"] if matches(each["path"], below)]
        seen += len(answer["documents"])
        if not answer["documents"] or seen >= answer["total"] or answer["offset"] is None:
            return found[:limit], len(found)


async def changes(
    here: CommandContext,
    path: str,
    *,
    limit: int,
    since: str | None,
    until: str | None,
    only: str | None,
    is_global: bool,
    project: Path,
) -> Output:
    """List the latest changes of a project's memory below `path`, newest first, each with the
    device that made it.

    Raises typer.BadParameter if `since` or `until` is not a time; RequestError if the daemon is too
    old for `until`.
    """
    moment = None if since is None else moment_of(since)
    end = None if until is None else moment_of(until, option="--until", is_end=True)
    this = await project_of(here, project)
    below = _below(to_project_path(here, project, path))
    one = GLOBAL_PROJECT if is_global else only
    names = [one] if one else list(dict.fromkeys((this.name, GLOBAL_PROJECT)))

    async def asked(client: CommandClient) -> list[ProjectChange]:
        found: list[ProjectChange] = []
        if one:
            await _require_project(client, this, one)
        for name in names:
            body: ChangesRequest = {"project": name, "path": below, "since": moment, "limit": limit}
            body |= {"until": end} if end else {}
            answer = await CHANGES.ask(client.connection, body, timeout_s=DEADLINE_S)
            if end and any(
                datetime.fromisoformat(entry["time"]) > datetime.fromisoformat(end) for entry in answer["changes"]
            ):
                raise too_old("--until")
            found += [ProjectChange(project=name, **entry) for entry in answer["changes"]]
        return found

    found = await _ask_daemon(here, this, asked, may_do_without=False) or []
    found = sorted(found, key=lambda entry: datetime.fromisoformat(entry["time"]), reverse=True)[:limit]

    width = max((len(entry["author"]) for entry in found), default=0)
    lines = []
    for entry in found:
        what = "deleted" if entry["deleted"] else entry["words"][:_TITLE]
        clash = "  conflict" if entry["clash"] else ""
        place = f"{entry['path']}{_of(entry, this)}  revision {entry['revision']}"
        lines.append(f"{local_time(entry['time'])}  {entry['author']:<{width}}  {place}  {what}{clash}".rstrip())
    span = (f" since {since}" if since else "") + (f" until {until}" if until else "")
    empty = "nothing has changed" + (span or " yet")
    return Output({"project": this.name, "changes": found}, lines, empty=empty)


async def _ask_daemon(
    here: CommandContext,
    this: Project,
    ask_all: Callable[[CommandClient], Coroutine[Any, Any, Found]],
    *,
    may_do_without: bool,
) -> Found | None:
    """Run `ask_all` on the daemon, after sending the queue and the changed files.

    Returns None if the daemon is unreachable and `may_do_without` is set.
    """
    began = time.time()
    try:
        async with here.client(this) as client:
            await send_queue(client, here)
            await client.files.compare()
            return await ask_all(client)
    except (RequestError, ToolError, FolderError):
        raise
    except (ConfideError, TimeoutError) as error:
        if not may_do_without:
            raise
        trouble = outage(error, began)
        note(f"{trouble.sentence}: these are the files on this device", *trouble.hints)
        return None


def _on_disk(here: CommandContext, this: Project, wanted: set[str], below: str) -> list[dict[str, Any]]:
    found = []
    for folder in folders_of(here.paths, here.config, this):
        if folder.project not in wanted:
            continue
        for file in folder.walk():
            if not matches(file.path, below):
                continue
            try:
                content = folder.read(file.path)
            except FolderError as error:
                note(str(error))
                continue
            text = content.text if content else ""
            found.append(
                {
                    "project": folder.project,
                    "path": file.path,
                    "revision": None,
                    "author": None,
                    "time": iso(file.mtime_ns / 1e9),
                    "bytes": file.size,
                    "lines": len(lines_of(text)),
                    "title": title_of(split(text)[1]),
                    "id": None,
                    "clash": has_clash(text),
                    "class": None,
                }
            )
    return found


def _of_note(entry: dict[str, object]) -> dict[str, object]:
    known = {name: entry[name] for name in ("project", "path", "revision", "author", "title", "id", "tags", "type")}
    class_ = entry.get("class", UNTRUSTED)
    return {**known, "time": entry["updated"], "bytes": None, "lines": None, "clash": False, "class": class_}


def _listing_output(
    this: Project, found: list[dict[str, Any]], total: int, limit: int, *, where: str, is_local: bool = False
) -> Output:
    # The sort is stable: changes of the same second keep their order.
    ordered = sorted(found, key=lambda entry: datetime.fromisoformat(entry["time"]), reverse=True)
    shown = ordered[:limit]

    def print_text() -> None:
        width = max((len(f"{entry['path']}{_of(entry, this)}") for entry in shown), default=0)
        for entry in shown:
            size = "" if entry["lines"] is None else count_noun(entry["lines"], "line")
            clash = "  conflict" if entry["clash"] else ""
            clash += "  untrusted" if entry["class"] == UNTRUSTED else ""
            place = f"{entry['path']}{_of(entry, this)}"
            title = entry["title"][:_TITLE]
            row(f"{local_time(entry['time'])}  {place:<{width}}  {size:>9}  {title}{clash}".rstrip())
        if total > len(shown):
            remark(f"{len(shown)} of {total:,}; more with -n {min(total, MOST)}")
        if not shown:
            remark(f"there is no such memory in {where}")

    return Output({"project": this.name, "documents": shown, "total": total, "offline": is_local}, print_text)


def _of(entry: Mapping[str, object], this: Project) -> str:
    return "" if entry["project"] == this.name else f" [{entry['project']}]"


def too_old(option: str) -> RequestError:
    """Make the error for a daemon that is too old to know an option."""
    return RequestError("unavailable", f"this daemon does not know {option}", "update confided on its server")


def _below(path: str) -> str:
    below = to_nfc(path).removeprefix("./").rstrip("/")
    return "" if below == "." else below


def moment_of(said: str, *, option: str = "--since", is_end: bool = False) -> str:
    """Convert an age (`2d`) or a date to a time in ISO 8601, in this device's time zone.

    Args:
        said: the age or the date, as the user has typed it.
        option: the command's option, for the error message.
        is_end: True if a date means the end of its day, or now if that is earlier; otherwise a date
            means its beginning.

    Raises typer.BadParameter if it is neither an age nor a date, or if `is_end` is True and the
    time is in the future.
    """
    now = datetime.now().astimezone()
    try:
        moment = datetime.fromisoformat(said.strip()).astimezone()
        if is_end and _DAY.fullmatch(said.strip()) and moment <= now:
            following = datetime.combine(moment.date() + timedelta(days=1), dt_time.min).astimezone()
            moment = min(following - timedelta(microseconds=1), now)
    except (ValueError, OverflowError):
        ago = seconds(said, "mhd", most_days=3650, option=option, examples="2d, 12h or 2026-11-20")
        return iso(now.timestamp() - ago)
    if is_end and moment > now:
        raise typer.BadParameter("that time is still to come", param_hint=option)
    return moment.isoformat()
