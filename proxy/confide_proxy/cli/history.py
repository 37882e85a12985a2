"""`confide history` and `deleted`: what a memory file was, and what can come back (docs/history.md).

`projects`, `link` and `unlink`: the projects of the space, and which are searched together. And `transcripts`: which sessions of this
machine are sent, and how one is forgotten (docs/transcripts.md).
"""

from __future__ import annotations

import asyncio
import difflib
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.commands.group import parsed_by
from confide_memory.documents import GLOBAL_PROJECT, local_time
from confide_memory.forms import MAX_REVISIONS
from confide_memory.wire.files import PULL, TRANSCRIPT, PullRequest, TranscriptRequest
from confide_memory.wire.revisions import (
    DELETED,
    HISTORY,
    LINK,
    LINKS,
    PROJECTS,
    UNLINK,
    HistoryRequest,
    Linked,
    LinkRequest,
)
from confide_proxy.cli.completion import PathOf, project_names
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    TakesRevision,
    Yes,
    agreed,
    asking,
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
from confide_proxy.sync.transcripts.source import TranscriptSource
from confide_proxy.sync.transcripts.transcript_streamer import sources

transcript_app = typer.Typer()
_OTHER = typer.Argument(help="The project, as `confide projects` names it.", autocompletion=project_names)

_DOCUMENT = re.compile(rf"sessions/\d{{4}}-\d\d-\d\d-({'|'.join(TRANSCRIPT_SOURCES)})-([A-Za-z0-9_-]+)\.md")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


@parsed_by(TakesRevision)
@command
async def history(
    here: CommandContext,
    path: PathOf,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="At most so many revisions.")] = 20,
    diff: Annotated[bool, typer.Option("--diff", "-d", help="What a revision changed, line by line.")] = False,
    revision: Annotated[
        int | None, typer.Option("--revision", "-r", min=1, help="Which one, with --diff; the newest if left out.")
    ] = None,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """The newest comes first; with --diff, what one of them changed is shown line by line."""
    if revision is not None and not diff:
        raise typer.BadParameter(
            "goes with --diff; confide read --revision prints a whole text", param_hint="--revision"
        )
    if diff:
        return await _difference(here, project, path, revision, is_global=is_global)
    async with asking(here, project, is_global=is_global) as (client, name):
        name, path = await document_of(client, path, name)
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


async def _difference(
    here: CommandContext, folder: Path, path: str, revision: int | None, *, is_global: bool
) -> Output:
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

    def print_text() -> None:
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
    return Output(data, print_text)


_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


@command
async def deleted(here: CommandContext, is_global: IsGlobal = False, project: ProjectDir = Path()) -> Output:
    """List the files that were deleted and can be restored."""
    async with asking(here, project, is_global=is_global) as (client, name):
        answer = await DELETED.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S)
    lines = (
        f"{entry['path']}  deleted {local_time(entry['time'])} by {entry['author']}, "
        f"restorable until {local_time(entry['restorableUntil'])}"
        for entry in answer["documents"]
    )
    empty = f"nothing that was deleted in {name} can be restored"
    return Output({"project": name, "documents": answer["documents"]}, lines, empty=empty)


@command
async def projects(here: CommandContext, project: ProjectDir = Path()) -> Output:
    """List the projects of the memory, the last changed first, and which one this folder's is."""
    async with asking(here, project) as (client, name):
        answer = await PROJECTS.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S)
    found = answer["projects"]

    def print_text() -> None:
        width = max((len(entry["name"]) for entry in found), default=0)
        for entry in found:
            about = "  this folder" if entry["name"] == name else "  linked" if entry["linked"] else ""
            count = counted(entry["files"], "file")
            row(f"{entry['name']:<{width}}  {count:>10}  {local_time(entry['updated'])}{about}")
        if name not in (entry["name"] for entry in found):
            remark(f"this folder's is {name}, which holds no file yet")

    return Output({"project": name, "projects": found, "complete": answer["complete"]}, print_text)


@command
async def link(
    here: CommandContext, other: Annotated[str | None, _OTHER] = None, project: ProjectDir = Path()
) -> Output:
    """Let searches in this folder's project look in another one too, and the other way round; without a name, list the links."""
    async with asking(here, project) as (client, name):
        if other is None:
            return _links(name, await LINKS.ask(client.connection, {"project": name}, timeout_s=DEADLINE_S))
        return _links(name, await LINK.ask(client.connection, {"project": name, "other": other}, timeout_s=DEADLINE_S))


@command
async def unlink(here: CommandContext, other: Annotated[str, _OTHER], project: ProjectDir = Path()) -> Output:
    """Search another project with this one no more."""
    async with asking(here, project) as (client, name):
        body: LinkRequest = {"project": name, "other": other}
        return _links(name, await UNLINK.ask(client.connection, body, timeout_s=DEADLINE_S))


def _links(name: str, answer: Linked) -> Output:
    told = f"{name} is linked with {', '.join(answer['linked']) or 'no other project'}"
    return Output({"project": name, "linked": answer["linked"]}, told)


@transcript_app.command("list")
@command
async def list_sessions(here: CommandContext, project: ProjectDir = Path()) -> Output:
    """The sessions on this machine's disk that are sent, the last first, and how far each one is."""
    read: list[TranscriptSource] = []
    if here.config.transcripts:
        async with asking(here, project) as (client, _):
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

    def print_text() -> None:
        if not here.config.transcripts:
            remark(f"none are sent; to switch them on, set transcripts in {here.paths.config}")
        for each in found:
            pending = f"{each['pendingBytes']:,} bytes to send" if each["pendingBytes"] else "sent"
            state = "forgotten" if each["forgotten"] else pending
            row(f"{each['session']}  {each['agent']}  {each['project'] or '(not sent yet)'}  {state}")

    return Output({"sources": list(here.config.transcripts), "sessions": found}, print_text)


@transcript_app.command("forget", epilog="confide transcripts forget 0199c2f4")
@command
async def forget(
    here: CommandContext,
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
