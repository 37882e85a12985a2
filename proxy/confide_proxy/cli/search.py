"""`confide search`, `read` and `store`: calls of tools, which go on without the daemon as an agent's do (docs/offline.md)."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from confide_crypto.errors import ConfideError, RequestError, printable
from confide_memory.commands.group import parsed_by
from confide_memory.tools import call as call_keys
from confide_proxy.cli.console import (
    Here,
    Output,
    ProjectDir,
    TakesRevision,
    command,
    identified,
    note,
    one_line,
    remark,
    row,
    say,
    styled,
    terminal,
)
from confide_proxy.errors import BlockedError, FolderError, StateError, ToolError, UnfitAnswerError, UnsealableError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.offline.journal import Journal, is_empty, new_id
from confide_proxy.sync.project import Project

if TYPE_CHECKING:
    from rich.table import Table

    from confide_proxy.mcp.client import Client


SEND_DEADLINE_S = 60.0
"""How long a command sends what waits before it does what it was asked; the rest goes with the next one."""


class TakesListItems(TyperCommand):
    """A command whose text may be a markdown list item: "- " begins no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        items = [argument for argument in args if argument.startswith("- ")]
        others = [argument for argument in args if not argument.startswith("- ")]
        return super().parse_args(ctx, [*others, "--", *items] if items else others)


@command
async def search(
    here: Here,
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="At most so many results.")] = 8,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=0, max=1, help="Leave out what scores less.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all-projects", help="Search every project of the space.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what was looked for, and why each hit stands where it does.")
    ] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Find the right lines."""
    arguments: dict[str, Any] = {"query": query, "maxResults": limit}
    if explain:
        arguments["explain"] = True
    if min_score is not None:
        arguments["minScore"] = min_score
    if everywhere:
        arguments["project"] = "*"
    result = await call(here, await identified(here, project), "memory_search", arguments)
    return Output(result, partial(_tell_hits, result, explain=explain))


def _tell_hits(result: dict[str, Any], *, explain: bool) -> None:
    note(*result["warnings"])
    for hit in result["results"]:
        place = f"{hit['path']}:{hit['startLine']}-{hit['endLine']}"
        where = one_line(f"{hit['heading']} {hit['project']}")
        say(styled((one_line(place), "bold"), f"  {hit['score']:.2f}  ", (where, "dim")))
        for newer in hit.get("supersededBy", ()):
            row(f"    superseded by {newer['title']} ({newer['path']})")
        for line in hit["snippet"].splitlines():
            say(f"    {line}")
    if not result["results"]:
        remark("nothing found")
    if explain:
        show(result)


@parsed_by(TakesRevision)
@command
async def read(
    here: Here,
    path: Annotated[str, typer.Argument(help="As a search shows it, e.g. memory/2026-11-20.md.")],
    start: Annotated[int, typer.Option("--from", min=1, help="The first line.")] = 1,
    lines: Annotated[int, typer.Option("--lines", min=1, max=2000, help="How many lines.")] = 2000,
    revision: Annotated[int | None, typer.Option("--revision", "-r", min=1, help="An older one.")] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Print a memory file."""
    arguments = {"path": path, "fromLine": start, "lines": lines} | ({"revision": revision} if revision else {})
    result = await call(here, await identified(here, project), "memory_read", arguments)

    def tell() -> None:
        note(*result.get("warnings", []))
        say(result["content"])
        if result["toLine"] < result["totalLines"]:
            remark(f"lines {result['fromLine']}-{result['toLine']} of {result['totalLines']}")

    return Output(result, tell)


@parsed_by(TakesListItems)
@command
def store(
    here: Here,
    content: Annotated[str, typer.Argument(help="The text; - reads it from stdin.")],
    path: Annotated[str | None, typer.Option("--path", help="The file; today's log if left out.")] = None,
    heading: Annotated[str | None, typer.Option("--heading", help="Append below this heading.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file, or the heading's section.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Remember something."""
    text = sys.stdin.read() if content == "-" else content
    arguments: dict[str, Any] = {"content": text, "mode": "replace" if replace else "append"}
    arguments |= {"path": path} if path else {}
    arguments |= {"heading": heading} if heading else {}

    async def stored() -> dict[str, Any]:
        return await call(here, await identified(here, project, is_written=True), "memory_store", arguments)

    result = asyncio.run(stored())
    told = "queued for" if result["queued"] else "stored in"
    revision = f" (revision {result['revision']})" if result["revision"] else ""  # none while it waits
    return Output(result, one_line(f"{told} {result['path']}{revision}"), notes=result["warnings"])


class _Asked(NamedTuple):
    """A call as it was made. Those that can be queued have an operation's id, and when they were made."""

    tool: str
    arguments: dict[str, Any]
    operation: str | None
    said: str | None


async def call(
    here: Here, project: Project, tool: str, arguments: dict[str, Any], *, is_compared: bool = True
) -> dict[str, Any]:
    """The structured result of a tool, from the daemon, or from this machine while it cannot be reached. The files are compared first,
    unless not `is_compared`: what was edited a moment ago counts too.

    Raises RequestError, ToolError: the call cannot be done; ConfideError, TimeoutError: the daemon cannot be reached, and this machine
    does not answer in its place.
    """
    from confide_proxy.mcp.tunnel import RELINK_DEADLINE_S

    offline = catalogues.packaged().offline.get(tool, "fail")
    is_queued = offline == "queue"
    said = datetime.now().astimezone().isoformat(timespec="seconds")
    asked = _Asked(tool, arguments, new_id() if is_queued else None, said if is_queued else None)
    meta = {call_keys.OPERATION: asked.operation, call_keys.SAID: said} if asked.operation else None
    began = time.time()
    try:
        async with AsyncExitStack() as stack:
            # A daemon that is started on this machine takes its time, and there is no other way to it.
            is_hasty = offline != "fail" and here.paths.link.exists()
            async with asyncio.timeout(RELINK_DEADLINE_S if is_hasty else None):
                client = await stack.enter_async_context(here.client(project))
            is_behind = not await send_queue(client, here)
            if is_behind and is_queued:
                return await _without(here, project, asked, None, began, is_behind=True)
            if is_compared:
                # Unchanged files cost one small comparison.
                try:
                    await client.files.compare()
                except TimeoutError:
                    raise
                except (RequestError, FolderError, StateError) as error:
                    note(f"the files here could not be compared: {error}")
                except OSError as error:  # this machine's state, and the daemon answers all the same
                    note(f"the files here could not be compared: {error.strerror or type(error).__name__}")
            answer = await client.call(tool, arguments, more_meta=meta)
            note(*ignored_notes(client))
            return answer
    except (RequestError, ToolError, BlockedError, UnsealableError):
        raise
    except (ConfideError, TimeoutError) as error:
        if offline == "fail":
            raise
        return await _without(here, project, asked, error, began)


def ignored_notes(client: Client) -> list[str]:
    """What a person should know of a file of theirs that was changed by the way."""
    return [f"added memory/ to {file}: memory is not for the repository" for file in client.files.ignored]


async def send_queue(client: Client, here: Here) -> bool:
    """Send what waits on this machine, as far as it can be sent now; whether nothing waits any more.

    Raises ConnectionLost: the link went down; StateError, JournalError, KeyFileError: the journal cannot be used.
    """
    if is_empty(here.paths.journal):
        return True
    from confide_proxy.offline.queued_writes import Replay

    try:
        async with asyncio.timeout(SEND_DEADLINE_S):
            outcome = await Replay(Journal(here.paths.journal), here.paths.seats, client.sealed).run(client.connection)
    except TimeoutError:
        note("not everything that waits on this machine could be sent in time")
        return False
    if outcome.sent:
        note(f"sent what waited on this machine: {outcome.sent} {'store' if outcome.sent == 1 else 'stores'}")
    if outcome.refused:
        note(f"the daemon refused {outcome.refused} of what waited on this machine; they are kept: confide queue")
    if outcome.why:
        note(f"what waits on this machine could not all be sent: {outcome.why}")
    return outcome.why is None


async def _without(
    here: Here, project: Project, asked: _Asked, error: BaseException | None, began: float, *, is_behind: bool = False
) -> dict[str, Any]:
    # Imported here: while the daemon answers nothing of it is needed.
    from confide_proxy.offline.answers import Offline, Said
    from confide_proxy.offline.outage import Trouble
    from confide_proxy.sealing.context import Sealing
    from confide_proxy.sealing.tool_calls import SealedCalls

    trouble = Trouble(error if isinstance(error, ConfideError) else None, began, is_behind)
    if error is not None and (trouble.is_told or (trouble.is_final and asked.operation)):
        raise error
    sealed = SealedCalls(Sealing(here.paths, here.config, MachineKeys(here.paths)), project.name)
    call = Said(catalogues.packaged().tools[asked.tool], asked.arguments, asked.operation, asked.said)
    answer = await Offline(here.paths, here.config, project, sealed).ask(call, trouble)
    if answer.structured is None:
        raise error or ToolError(answer.text)
    return answer.structured


# The factors of the rank, then the evidence of the score, as docs/search.md names them.
RANK = ("relevance", "votes", "dated", "source", "exact", "rank")
SCORE = ("keyword", "terms", "vector", "best", "ownScore", "score")


def show(result: dict[str, Any]) -> None:
    """Print the tables for the answer of `memory_search`; an offline answer has none.

    Raises UnfitAnswerError: the explanation has another form.
    """
    explanation = result.get("explain")
    if explanation is None:
        remark("no explanation: this was answered from the files on this machine")
        return
    try:
        _print(explanation, result["results"], result["searchMode"])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UnfitAnswerError from None


def _print(explanation: dict[str, Any], results: list[dict[str, Any]], mode: str) -> None:
    scores = [{**hit, "score": found["score"]} for hit, found in zip(explanation["hits"], results, strict=True)]
    timings = ", ".join(f"{name} {value:.1f}" for name, value in explanation["timingsMs"].items())
    lines = {
        "looked for  ": explanation["matched"] or "-",
        "as it stands": explanation["exact"],
        "days        ": explanation["days"],
        "candidates  ": f"{explanation['keywordCandidates']} by keywords, {explanation['vectorCandidates']} by vectors ({mode})",
    }
    say("")
    for name, text in lines.items():
        if text:
            say(f"{name} {printable(text)}")
    if scores:
        terminal().print(_table(scores, RANK, legs=True))
        terminal().print(_table(scores, SCORE, legs=False))
    say(f"milliseconds {printable(timings)}")


def _table(hits: list[dict[str, Any]], names: tuple[str, ...], *, legs: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("hit")
    for name in (*(("keywords", "vectors") if legs else ()), *names):
        table.add_column(name, justify="right")
    for number, hit in enumerate(hits, 1):
        places = [_place(hit["keywordRank"], hit["bm25"]), _place(hit["vectorRank"], hit["cosine"])] if legs else []
        table.add_row(str(number), *places, *(_number(hit.get(name)) for name in names))
    return table


def _place(rank: int | None, value: float | None) -> str:
    """The place in a leg and the leg's own figure: `#3 7.2`."""
    return " ".join(part for part in (f"#{rank}" if rank else "", _number(value)) if part != "-") or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
