"""`confide transcripts …`: which sessions of this machine are sent, and how one is forgotten (docs/transcripts.md)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confide_proxy.cli.console import DEADLINE_S, Here, Output, ProjectDir, command, identified, remark, say
from confide_proxy.config import TRANSCRIPT_SOURCES
from confide_proxy.errors import SessionError

if TYPE_CHECKING:
    from confide_proxy.sync.transcripts.source import Source

transcript_app = typer.Typer(help="The transcripts of your sessions.", no_args_is_help=True)

_DOCUMENT = re.compile(rf"sessions/\d{{4}}-\d\d-\d\d-({'|'.join(TRANSCRIPT_SOURCES)})-([A-Za-z0-9_-]+)\.md")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


def add_to(app: typer.Typer) -> None:
    """Make the commands known."""
    app.add_typer(transcript_app, name="transcripts")


@transcript_app.command("list")
@command
async def list_sessions(here: Here, project: ProjectDir = Path()) -> Output:
    """The sessions on this machine's disk that are sent, the last first, and how far each one is."""
    from confide_proxy.sync.transcripts.streamer import sources

    read: list[Source] = []
    if here.config.transcripts:
        async with here.client(identified(project)) as client:
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
            pending = f"{each['pendingBytes']} bytes to send" if each["pendingBytes"] else "sent"
            state = "forgotten" if each["forgotten"] else pending
            say(f"{each['session']}  {each['agent']}  {each['project'] or '(not sent yet)'}  {state}")

    return Output({"sources": list(here.config.transcripts), "sessions": found}, tell)


@transcript_app.command("forget")
@command
async def forget(
    here: Here,
    session: Annotated[str, typer.Argument(help="Its id, or a path as a search shows it.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Whose session: claude-code or codex.")] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Delete a session's transcript from the daemon, with all its text, and take nothing of it again."""
    from confide_proxy.sync.transcripts.streamer import sources

    if document := _DOCUMENT.fullmatch(session):
        agent, session = document[1], document[2]
    if not _SESSION.fullmatch(session):
        raise SessionError
    this = identified(project)
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
            body = {"project": of_project, "agent": whose, "session": name}
            state = await client.connection.request("transcript", body, timeout_s=DEADLINE_S)
            if state.get("version"):
                await client.connection.request("transcript", {**body, "forget": True}, timeout_s=DEADLINE_S)
                return Output(body, f"forgotten: session {name} of {whose} in {of_project}")
    raise SessionError
