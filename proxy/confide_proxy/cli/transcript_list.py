"""The command `confide learn transcripts`: list this device's sent sessions, or delete one
(docs/learning.md).
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer

from confide_memory.wire.files import TRANSCRIPT, TranscriptRequest
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    Output,
    ProjectDir,
    Yes,
    asking,
    command,
    project_of,
    remark,
    require_consent,
    row,
)
from confide_proxy.config import TRANSCRIPT_SOURCES
from confide_proxy.errors import SessionError
from confide_proxy.sync.transcripts.source import TranscriptSource
from confide_proxy.sync.transcripts.transcript_streamer import sources

_DOCUMENT = re.compile(rf"sessions/\d{{4}}-\d\d-\d\d-({'|'.join(TRANSCRIPT_SOURCES)})-([A-Za-z0-9_-]+)\.md")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


@command
async def transcripts(
    here: CommandContext,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="With --forget: its id, or a path as a search shows it."),
    ] = None,
    is_forgotten: Annotated[bool, typer.Option("--forget", help="Delete its transcript, and send it no more.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", help="With --forget: claude-code or codex.")] = None,
    yes: Yes = False,
    project: ProjectDir = Path(),
) -> Output:
    """List the sessions on this device whose transcripts are sent, newest first, or delete one for
    good.
    """
    if is_forgotten != (session is not None):
        raise typer.BadParameter("to delete a session's transcript: confide learn transcripts --forget SESSION")
    if session is not None:
        return await _forget(here, session, agent, project, is_sure=yes)
    read: list[TranscriptSource] = []
    if here.config.transcripts:
        async with asking(here, project) as (client, _):
            space = client.space
        read = await asyncio.to_thread(sources, here.paths, here.config, space)
    found = []
    for source in read:
        for file in (await asyncio.to_thread(source.find_files))[0]:
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
            remark(f"no transcripts are sent; to switch them on, set transcripts in {here.paths.config}")
        for each in found:
            pending = f"{each['pendingBytes']:,} bytes to send" if each["pendingBytes"] else "sent"
            state = "forgotten" if each["forgotten"] else pending
            row(f"{each['session']}  {each['agent']}  {each['project'] or '(not sent yet)'}  {state}")

    return Output({"sources": list(here.config.transcripts), "sessions": found}, tell)


async def _forget(here: CommandContext, session: str, agent: str | None, project: Path, *, is_sure: bool) -> Output:
    """Delete a session's transcript and all its text from the daemon, and never send it again."""
    if document := _DOCUMENT.fullmatch(session):
        agent, session = document[1], document[2]
    if not _SESSION.fullmatch(session):
        raise SessionError
    await require_consent(f"delete the transcript of session {session} for good?", is_sure=is_sure)
    this = await project_of(here, project)
    async with here.client(this) as client:
        # A session sent by this device belongs to the project where it began; any other to this
        # folder's.
        asked = [
            (known.project, source.parser.agent, session)
            for source in await asyncio.to_thread(sources, here.paths, here.config, client.space)
            if (known := source.progress.get(session)).project and agent in (None, source.parser.agent)
        ]
        agents = [agent] if agent else list(TRANSCRIPT_SOURCES)
        # A session's second document ends in -2, its third in -3.
        names = dict.fromkeys((session, re.sub(r"-\d{1,4}$", "", session)))
        asked += [(this.name, each, name) for name in names if name for each in agents]
        for of_project, whose, name in asked:
            body: TranscriptRequest = {"project": of_project, "agent": whose, "session": name}
            state = await TRANSCRIPT.ask(client.connection, body, timeout_s=DEADLINE_S)
            if state["version"]:
                await TRANSCRIPT.ask(client.connection, {**body, "forget": True}, timeout_s=DEADLINE_S)
                return Output(body, f"forgotten: session {name} of {whose} in {of_project}")
    raise SessionError
