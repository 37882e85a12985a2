"""`confide history` and `deleted`: what a memory file was, and what can come back (docs/history.md).

`projects`, `link` and `unlink`: the projects of the space, and which are searched together. And `transcripts`: which sessions of this
machine are sent, and how one is forgotten (docs/transcripts.md).
"""

from __future__ import annotations

import asyncio
import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.commands.group import parsed_by
from confide_memory.documents import GLOBAL_PROJECT, local_time
from confide_memory.forms import MAX_REVISIONS
from confide_memory.wire.files import PULL, TRANSCRIPT, PullRequest, TranscriptRequest
from confide_memory.wire.history import HISTORY, HistoryRequest
from confide_memory.wire.operation import ask
from confide_proxy.cli.completion import PathOf, project_names
from confide_proxy.cli.console import (
    DEADLINE_S,
    QUESTION_S,
    Here,
    IsGlobal,
    Output,
    ProjectDir,
    TakesRevision,
    Yes,
    agreed,
    command,
    counted,
    identified,
    one_line,
    remark,
    row,
    say,
    styled,
)
from confide_proxy.cli.search import document_of
from confide_proxy.config import TRANSCRIPT_SOURCES
from confide_proxy.errors import SessionError
from confide_proxy.sync.transcripts.source import Source
from confide_proxy.sync.transcripts.streamer import sources

transcript_app = typer.Typer()

_DOCUMENT = re.compile(rf"sessions/\d{{4}}-\d\d-\d\d-({'|'.join(TRANSCRIPT_SOURCES)})-([A-Za-z0-9_-]+)\.md")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


@parsed_by(TakesRevision)
@command
async def history(
    here: Here,
    path: PathOf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many revisions.")] = 20,
    diff: Annotated[bool, typer.Option("--diff", "-d", help="What a revision changed, line by line.")] = False,
    revision: Annotated[
        int | None, typer.Option("--revision", "-r", min=1, help="Which one, with --diff; the newest if left out.")
    ] = None,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """List the revisions of a memory file, newest first; with --diff, show what one of them changed."""
    if revision is not None and not diff:
        raise typer.BadParameter(
            "goes with --diff; confide read --revision prints a whole text", param_hint="--revision"
        )
    if diff:
        return await _difference(here, project, path, revision, is_global=is_global)
    this = await identified(here, project)
    async with here.client(this, patience_s=QUESTION_S) as client:
        name, path = await document_of(client, path, GLOBAL_PROJECT if is_global else this.name)
        body: HistoryRequest = {"project": name, "path": path, "limit": limit}
        answer = await HISTORY.ask(client.connection, body, timeout_s=DEADLINE_S)
    revisions = answer["revisions"]

    width = max((len(entry["author"]) for entry in revisions), default=0)
    lines = []
    for entry in revisions:
        size = "deleted" if entry["deleted"] else counted(entry["bytes"], "byte")
        clash = "  two versions of some lines" if entry["clash"] else ""
        clash += "  untrusted" if entry["class"] == UNTRUSTED else ""
        lines.append(f"{entry['revision']:>4}  {local_time(entry['time'])}  {entry['author']:<{width}}  {size}{clash}")
    return Output({"project": name, "path": path, "revisions": revisions}, lines)


async def _difference(here: Here, folder: Path, path: str, revision: int | None, *, is_global: bool) -> Output:
    this = await identified(here, folder)
    async with here.client(this) as client:
        name, path = await document_of(client, path, GLOBAL_PROJECT if is_global else this.name)
        answer = await HISTORY.ask(
            client.connection, {"project": name, "path": path, "limit": MAX_REVISIONS}, timeout_s=DEADLINE_S
        )
        known = answer["revisions"]
        chosen = next((each for each in known if revision in (None, each["revision"])), None)
        if chosen is None:
            hint = f"confide history {path} lists them, from {known[-1]['revision']} to {known[0]['revision']}"
            raise RequestError("not_found", f"{path} has no revision {revision} among its last {MAX_REVISIONS}", hint)
        before = next((each for each in known if each["revision"] < chosen["revision"]), None)
        texts = []
        for each in (before, chosen):
            if each is None or each["deleted"]:
                texts.append("")
                continue
            wanted: PullRequest = {"project": name, "path": path, "revision": each["revision"]}
            texts.append((await PULL.ask(client.connection, wanted, timeout_s=DEADLINE_S))["text"])
    heads = [
        f"{path}  revision {each['revision']}  {local_time(each['time'])}  {each['author']}" if each else "(nothing)"
        for each in (before, chosen)
    ]
    lines = list(difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), heads[0], heads[1], lineterm=""))

    def tell() -> None:
        for number, line in enumerate(lines):
            style = "bold" if number < len(heads) else _DIFF_STYLES.get(line[:1], "")
            say(styled((one_line(line), style)))
        if not lines:
            remark(f"revision {chosen['revision']} changed no line")

    data = {
        "project": name,
        "path": path,
        "from": before and before["revision"],
        "to": chosen["revision"],
        "diff": "\n".join(lines),
    }
    return Output(data, tell)


_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


@command
async def deleted(here: Here, is_global: IsGlobal = False, project: ProjectDir = Path()) -> Output:
    """List the files that were deleted and can be restored."""
    answer, name = await _ask(here, project, "deleted", {}, is_global=is_global)
    lines = (
        f"{entry['path']}  deleted {local_time(entry['time'])} by {entry['author']}, "
        f"restorable until {local_time(entry['restorableUntil'])}"
        for entry in answer["documents"]
    )
    empty = f"nothing that was deleted in {name} can be restored"
    return Output({"project": name, "documents": answer["documents"]}, lines, empty=empty)


@command
async def projects(here: Here, project: ProjectDir = Path()) -> Output:
    """List the projects of the space, the last changed first, and which one this folder's is."""
    answer, name = await _ask(here, project, "projects", {})
    found = answer["projects"]

    def tell() -> None:
        width = max((len(entry["name"]) for entry in found), default=0)
        for entry in found:
            about = "  this folder" if entry["name"] == name else "  linked" if entry["linked"] else ""
            count = counted(entry["files"], "file")
            row(f"{entry['name']:<{width}}  {count:>10}  {local_time(entry['updated'])}{about}")
        if name not in (entry["name"] for entry in found):
            remark(f"this folder's is {name}, which holds no file yet")

    return Output({"project": name, "projects": found, "complete": answer["complete"]}, tell)


@command
async def link(
    here: Here,
    other: Annotated[
        str | None, typer.Argument(help="The project, as `confide projects` names it.", autocompletion=project_names)
    ] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Let searches in this folder's project look in another one too, and the other way round; without a name, list the links."""
    return _links(*await _ask(here, project, "link" if other else "links", {"other": other} if other else {}))


@command
async def unlink(
    here: Here,
    other: Annotated[
        str, typer.Argument(help="The project, as `confide projects` names it.", autocompletion=project_names)
    ],
    project: ProjectDir = Path(),
) -> Output:
    """End a link."""
    return _links(*await _ask(here, project, "unlink", {"other": other}))


def _links(answer: dict[str, Any], name: str) -> Output:
    linked = answer["linked"]
    return Output(
        {"project": name, "linked": linked}, f"{name} is linked with {', '.join(linked) or 'no other project'}"
    )


async def _ask(
    here: Here, folder: Path, op: str, body: dict[str, Any], *, is_global: bool = False
) -> tuple[dict[str, Any], str]:
    """The daemon's answer about this folder's project or the global one, and the name of that."""
    project = await identified(here, folder)
    name = GLOBAL_PROJECT if is_global else project.name
    async with here.client(project, patience_s=QUESTION_S) as client:
        return await ask(client.connection, op, {"project": name, **body}, timeout_s=DEADLINE_S), name


@transcript_app.command("list")
@command
async def list_sessions(here: Here, project: ProjectDir = Path()) -> Output:
    """The sessions on this machine's disk that are sent, the last first, and how far each one is."""
    read: list[Source] = []
    if here.config.transcripts:
        async with here.client(await identified(here, project), patience_s=QUESTION_S) as client:
            space = client.space
        read = await asyncio.to_thread(sources, here.paths, here.config, space)
    found = []
    for source in read:
        for file in (await asyncio.to_thread(source.found))[0]:
            known = source.progress.get(file.session)
            found.append(
                {
                    "session": file.session,
                    "agent": source.parser.agent,
                    "project": known.project or None,
                    "bytes": file.size,
                    "pendingBytes": source.pending_bytes([file]),
                    "forgotten": known.is_forgotten,
                }
            )

    def tell() -> None:
        if not here.config.transcripts:
            remark(f"none are sent; to switch them on, set transcripts in {here.paths.config}")
        for each in found:
            pending = f"{each['pendingBytes']:,} bytes to send" if each["pendingBytes"] else "sent"
            state = "forgotten" if each["forgotten"] else pending
            row(f"{each['session']}  {each['agent']}  {each['project'] or '(not sent yet)'}  {state}")

    return Output({"sources": list(here.config.transcripts), "sessions": found}, tell)


@transcript_app.command("forget", epilog="confide transcripts forget 0199c2f4")
@command
async def forget(
    here: Here,
    session: Annotated[str, typer.Argument(help="Its id, or a path as a search shows it.")],
    yes: Yes = False,
    agent: Annotated[str | None, typer.Option("--agent", help="Whose session: claude-code or codex.")] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Delete a session's transcript from the daemon, with all its text, and take nothing of it again."""
    if document := _DOCUMENT.fullmatch(session):
        agent, session = document[1], document[2]
    if not _SESSION.fullmatch(session):
        raise SessionError
    await agreed(f"forget all of session {session}, for good?", is_sure=yes)
    this = await identified(here, project)
    async with here.client(this) as client:
        # A session that this machine has sent is in the project it was begun in; another one is looked for in this folder's.
        asked = [
            (known.project, source.parser.agent, session)
            for source in await asyncio.to_thread(sources, here.paths, here.config, client.space)
            if (known := source.progress.get(session)).project and agent in (None, source.parser.agent)
        ]
        agents = [agent] if agent else list(TRANSCRIPT_SOURCES)
        # The second document of a session ends in -2, a third one in -3.
        names = dict.fromkeys((session, re.sub(r"-\d{1,4}$", "", session)))
        asked += [(this.name, each, name) for name in names if name for each in agents]
        for of_project, whose, name in asked:
            body: TranscriptRequest = {"project": of_project, "agent": whose, "session": name}
            state = await TRANSCRIPT.ask(client.connection, body, timeout_s=DEADLINE_S)
            if state["version"]:
                await TRANSCRIPT.ask(client.connection, {**body, "forget": True}, timeout_s=DEADLINE_S)
                return Output(body, f"forgotten: session {name} of {whose} in {of_project}")
    raise SessionError
