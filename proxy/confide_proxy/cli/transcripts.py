"""`confide transcripts …`: which sessions of this machine are sent, and how one is forgotten (docs/transcripts.md)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_proxy import projects as of_folders
from confide_proxy.config import TRANSCRIPT_SOURCES
from confide_proxy.errors import SessionError
from confide_proxy.options import AsJson, ProjectDir, err, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here

transcript_app = typer.Typer(help="The transcripts of your sessions.", no_args_is_help=True)

_DEADLINE_S = 30.0
_DOCUMENT = re.compile(rf"sessions/\d{{4}}-\d\d-\d\d-({'|'.join(TRANSCRIPT_SOURCES)})-([A-Za-z0-9_-]+)\.md")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")


@transcript_app.command("list")
def list_sessions(context: typer.Context, project: ProjectDir = Path(), as_json: AsJson = False) -> None:
    """The sessions on this machine's disk that are sent, the last first, and how far each one is."""
    here: Here = context.obj
    found = asyncio.run(_sessions(here, project))
    if as_json:
        print_json({"sources": list(here.config.transcripts), "sessions": found})
        return
    if not here.config.transcripts:
        err.print(f"none are sent; to switch them on, set transcripts in {here.paths.config}", markup=False)
    for each in found:
        state = (
            "forgotten"
            if each["forgotten"]
            else f"{each['pendingBytes']} bytes to send"
            if each["pendingBytes"]
            else "sent"
        )
        out.print(f"{each['session']}  {each['agent']}  {each['project'] or '(not sent yet)'}  {state}", markup=False)


@transcript_app.command("forget")
def forget(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="Its id, or a path as a search shows it.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Whose session: claude-code or codex.")] = None,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Delete a session's transcript from the daemon, with all its text, and take nothing of it again."""
    forgotten = asyncio.run(_forget(context.obj, project, session, agent))
    if as_json:
        print_json(forgotten)
    else:
        out.print(
            f"forgotten: session {forgotten['session']} of {forgotten['agent']} in {forgotten['project']}", markup=False
        )


async def _sessions(here: Here, folder: Path) -> list[dict[str, Any]]:
    from confide_proxy.client import Client
    from confide_proxy.transcripts.stream import sources

    if not here.config.transcripts:
        return []
    async with Client(here.paths, here.config, _identified(folder)) as client:
        space = client.space
    found = []
    for source in await asyncio.to_thread(sources, here.paths, here.config, space):
        for file in (await asyncio.to_thread(source.found))[0]:
            known = source.known(file.session)
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
    return found


async def _forget(here: Here, folder: Path, session: str, agent: str | None) -> dict[str, str]:
    from confide_proxy.client import Client
    from confide_proxy.transcripts.stream import sources

    if document := _DOCUMENT.fullmatch(session):
        agent, session = document[1], document[2]
    if not _SESSION.fullmatch(session):
        raise SessionError
    identity = _identified(folder)
    async with Client(here.paths, here.config, identity) as client:
        # A session that this machine has sent is in the project it was begun in; another one is looked for in this folder's.
        asked = [
            (known.project, source.parser.agent, session)
            for source in await asyncio.to_thread(sources, here.paths, here.config, client.space)
            if (known := source.known(session)).project and agent in (None, source.parser.agent)
        ]
        agents = [agent] if agent else list(TRANSCRIPT_SOURCES)
        # The second document of a session ends in -2, a third one in -3.
        names = dict.fromkeys((session, re.sub(r"-\d{1,4}$", "", session)))
        asked += [(identity.name, each, name) for name in names if name for each in agents]
        for project, whose, name in asked:
            body = {"project": project, "agent": whose, "session": name}
            state = await client.connection.request("transcript", body, timeout_s=_DEADLINE_S)
            if state.get("version"):
                await client.connection.request("transcript", {**body, "forget": True}, timeout_s=_DEADLINE_S)
                return body
    raise SessionError


def _identified(folder: Path) -> of_folders.Project:
    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a folder", param_hint="--project")
    return of_folders.identify(folder.absolute())
