"""The command `confide read`: print a document's text, as it is now or as it was earlier."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from confide_crypto.errors import RequestError
from confide_memory.commands.group import parsed_by
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.cli.completion import PathOf
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    TakesRevision,
    command,
    note,
    project_of,
    remark,
    say,
)
from confide_proxy.cli.listing import moment_of
from confide_proxy.cli.past_memory import revision_at
from confide_proxy.cli.search import call, document_of, mark_stale
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.sync.project import Project


@parsed_by(TakesRevision)
@command
async def read(
    here: CommandContext,
    path: PathOf,
    start: Annotated[int, typer.Option("--from", min=1, help="The first line.")] = 1,
    lines: Annotated[int, typer.Option("--lines", min=1, max=2000, help="How many lines.")] = 2000,
    revision: Annotated[int | None, typer.Option("--revision", "-r", min=1, help="An older one.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="As it was then: 2d, 12h, or a date, meaning its end.")
    ] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Print a file of the memory."""
    this = await project_of(here, project)
    path = to_project_path(here, project, path)
    arguments: dict[str, Any] = {"path": path, "fromLine": start, "lines": lines}
    if at is not None:
        if revision is not None:
            raise typer.BadParameter("goes without --revision", param_hint="--at")
        arguments |= await _past_of(here, this, path, at)
    elif revision:
        arguments["revision"] = revision
    result = await call(here, this, "memory_read", arguments)
    if at is None and revision is None:
        await asyncio.to_thread(mark_stale, here, this, [result])

    def print_text() -> None:
        note(*result.get("warnings", []), *([result["stale"]] if "stale" in result else []))
        say(result["content"])
        if result["toLine"] < result["totalLines"]:
            remark(f"lines {result['fromLine']}-{result['toLine']} of {result['totalLines']}")

    return Output(result, print_text)


async def _past_of(here: CommandContext, this: Project, path: str, at: str) -> dict[str, object]:
    """Return the arguments of `memory_read` for the text that a document had at a time."""
    moment = moment_of(at, option="--at", is_end=True)
    async with here.client(this) as client:
        project, name = await document_of(client, path, this.name)
        try:
            return {"path": name, "project": project, "revision": await revision_at(client, project, name, moment)}
        except RequestError as error:
            if error.code != "not_found" or project == GLOBAL_PROJECT:
                raise
            with suppress(RequestError):  # as the tool looks there after the project
                revision = await revision_at(client, GLOBAL_PROJECT, name, moment)
                return {"path": name, "project": GLOBAL_PROJECT, "revision": revision}
            raise
