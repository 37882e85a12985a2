"""The command `confide search`, and the tool calls of all commands.

Tool calls also work without the daemon, as an agent's do (docs/history.md).
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from confide_crypto.errors import ConfideError, RequestError, printable
from confide_memory.classes import OWNER
from confide_memory.documents import GLOBAL_PROJECT, has_clash, local_time, to_nfc
from confide_memory.note_names import is_id
from confide_memory.tools import call as call_keys
from confide_memory.tools.search_text import ResultHit, wanted_words
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    command,
    note,
    one_line,
    project_of,
    remark,
    row,
    say,
    styled,
    terminal,
    wrap_line,
)
from confide_proxy.errors import (
    BlockedError,
    DaemonStartingError,
    FolderError,
    InputError,
    StateError,
    ToolError,
    UnfitAnswerError,
    UnsealableError,
    is_for_now,
)
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.link import daemon
from confide_proxy.link.connection_terms import RELINK_DEADLINE_S
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.mcp import catalogue as catalogues
from confide_proxy.offline.operations import is_empty, new_id
from confide_proxy.offline.outage import Outage
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import Files

if TYPE_CHECKING:
    from rich.table import Table

    from confide_proxy.mcp.client import CommandClient
    from confide_proxy.sealing.sealed_calls import SealedCalls


SEND_DEADLINE_S = 60.0
"""Seconds for sending the queue before a command's own request; the next command sends the rest."""
SEARCH: Final = "memory_search"
WEAKEST: Final = 0.001
"""A score that any match reaches. 0 would also return notes that are superseded or done."""
MOST_WEAK: Final = 3
"""Matches that `--explain` shows of a search whose results all score too low."""
HERE_S: Final = 1.0
"""Seconds for searching the local files that the daemon does not have."""
START_PATIENCE_S = 1.5
"""Seconds that a search waits for a daemon that it starts. With the command's own time, a keyword
search of the local files then answers within 2.5 s.
"""


@command
async def search(
    here: CommandContext,
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
    """Print the search results, best first, with file, lines and date; in a terminal with bold
    matches.
    """
    if not query.strip():
        raise InputError("the question is empty", hint='write what you look for: confide search "why postgres"')
    arguments: dict[str, Any] = {"query": query, "maxResults": limit}
    if explain:
        arguments["explain"] = True
    if min_score is not None:
        arguments["minScore"] = min_score
    if everywhere:
        arguments["project"] = "*"
    has_words = not everywhere and not explain
    this = await project_of(here, project)
    result = await call(here, this, "memory_search", arguments, has_words=has_words)
    if explain and not result["results"] and "explain" in result:
        weak = await call(here, this, "memory_search", {**arguments, "minScore": WEAKEST, "maxResults": MOST_WEAK})
        if weak["results"] and "explain" in weak:
            result = {**result, "explain": weak["explain"], "tooWeak": weak["results"]}
    await asyncio.to_thread(mark_stale, here, this, result["results"])
    return Output(result, partial(_print_hits, result, query, explain=explain))


def mark_stale(here: CommandContext, project: Project, hits: list[dict[str, Any]]) -> None:
    """Add the field `stale`, a sentence for users, to the search results that are notes about files
    which have changed in this checkout, or could not be checked. Blocks.
    """
    own = [hit for hit in hits if hit["project"] == project.name != GLOBAL_PROJECT]
    marks = ties_of(here, project).marks_for_answer(hit["path"] for hit in own) if own else {}
    for hit in own:
        if mark := marks.get(hit["path"]):
            hit["stale"] = mark


def ties_of(here: CommandContext, project: Project) -> LateTies:
    """Return the ties between a project's notes and its files, checked with the keys that this
    device had last. Blocks.
    """
    sealing = SessionSealing(here.paths, here.config, MachineKeys(here.paths))
    sealing.keyring.load()
    return LateTies(project.root, project.name, sealing)


def _print_hits(result: dict[str, Any], query: str, *, explain: bool) -> None:
    note(*result["warnings"])
    hits = result["results"]
    scores = [f"{hit['score']:.2f}" for hit in hits]
    # Print ranks if the scores are not in order: users would take them for an error.
    marks = scores if scores == sorted(scores, reverse=True) else [f"#{place}" for place in range(1, len(hits) + 1)]
    words = wanted_words(query)
    for place, (mark, hit) in enumerate(zip(marks, hits, strict=True)):
        if place:
            say("")
        _print_hit(hit, mark, words)
    if not hits:
        remark("nothing found")
    for place, hit in enumerate(result.get("tooWeak", ())):
        if not place:
            say("\nthe best of what scores too low:")
        _print_hit(hit, f"{hit['score']:.2f}", words)
    if explain:
        show(result)


def _print_hit(hit: ResultHit, mark: str, words: re.Pattern[str] | None) -> None:
    where = f"{hit['path']}:{hit['startLine']}-{hit['endLine']}"
    about = [mark, _when(hit), f"[{hit['project']}]", str(hit.get("shortId", "")), str(hit["heading"])]
    facts = "  ".join(one_line(part) for part in about if part.strip())
    lines = wrap_line(f"{one_line(where)}  {facts}", 4)
    head = lines[0][: len(where)]
    say(styled((head, "bold"), ("\n".join([lines[0][len(head) :], *lines[1:]]), "dim")))
    if stale := hit.get("stale"):
        row(f"    {stale}")
    for newer in hit.get("supersededBy", ()):
        row(f"    superseded by {newer['title']} ({newer.get('shortId') or newer['path']})")
    for older in hit.get("supersedes", ()):
        row(f"    supersedes {older['title']} ({older.get('shortId') or older['path']})")
    if has_clash(hit["snippet"]):
        row(f"    conflict: keep what is right, and delete the marks: confide edit {hit['path']}")
    for line in hit["snippet"].splitlines():
        for part in wrap_line(f"    {line.rstrip()}"):
            say(styled(*_mark_words(part, words)) if part.strip() else "")


def _mark_words(line: str, words: re.Pattern[str] | None) -> Iterator[str | tuple[str, str]]:
    """Split a line into parts, with the words of the query in bold."""
    at = 0
    for found in words.finditer(line) if words is not None else ():
        yield line[at : found.start()]
        yield found.group(), "bold"
        at = found.end()
    yield line[at:]


def _when(hit: ResultHit) -> str:
    """Return the local time of the last change, or "" if an older daemon sends none."""
    return local_time(hit["updatedAt"]) if hit.get("updatedAt") else ""


class CalledTool(NamedTuple):
    """A tool call of a command.

    Attributes:
        operation: the id by which the daemon recognizes a repeated call; None if the call cannot be
            queued.
        said: the time of the call, in ISO 8601; None if the call cannot be queued.
    """

    tool: str
    arguments: dict[str, Any]
    operation: str | None
    said: str | None


async def call(
    here: CommandContext,
    project: Project,
    tool: str,
    arguments: dict[str, Any],
    *,
    is_compared: bool = True,
    has_words: bool = False,
) -> dict[str, Any]:
    """Call a tool, and return its structured result. If the daemon is unreachable, this device
    answers or queues the call.

    Args:
        is_compared: sync the files first, so that the latest edits count.
        has_words: if the call has to start the daemon, answer with a local keyword search after
            `START_PATIENCE_S`; the result then contains `daemon: starting`.

    Raises RequestError or ToolError if the call fails; ConfideError or TimeoutError if the daemon
    is unreachable and this device cannot answer without it.
    """
    offline = catalogues.packaged_catalogue().offline.get(tool, "fail")
    is_queued = offline == "queue"
    said = datetime.now().astimezone().isoformat(timespec="seconds")
    asked = CalledTool(tool, arguments, new_id() if is_queued else None, said if is_queued else None)
    meta = {call_keys.OPERATION: asked.operation, call_keys.SAID: said} if asked.operation else None
    if meta is not None and sys.stdin.isatty():
        meta[call_keys.CLASS] = OWNER  # a terminal means the user; scripts and agents have none
    began = time.time()
    has_joined = here.paths.link.exists()
    is_starting = has_words and not has_joined and await daemon.answering(here.paths.daemon_data) is None
    try:
        async with asyncio.timeout(START_PATIENCE_S if is_starting else None), AsyncExitStack() as stack:
            # Starting a daemon on this device takes time, and changes wait for it.
            is_hasty = offline != "fail" and has_joined
            async with asyncio.timeout(RELINK_DEADLINE_S if is_hasty else None):
                client = await stack.enter_async_context(here.client(project))
            is_behind = not await send_queue(client, here)
            if is_behind and is_queued:
                return await without_daemon(here, project, asked, None, began, is_behind=True)
            if is_compared:
                await _compare(client)
            answer = await client.call(tool, arguments, more_meta=meta)
            note(*ignored_notes(client))
            if tool == SEARCH and not answer["results"]:
                return await complete_search(here, project, client.files, asked, answer)
            return answer
    except (ToolError, BlockedError, UnsealableError):
        raise
    except RequestError as error:
        if offline == "fail" or not is_for_now(error):
            raise
        return await without_daemon(here, project, asked, error, began)
    except (ConfideError, TimeoutError) as error:
        if offline == "fail":
            raise
        if is_starting and isinstance(error, TimeoutError):
            found = await without_daemon(here, project, asked, DaemonStartingError(), began)
            return {**found, "daemon": "starting"}
        return await without_daemon(here, project, asked, error, began)


async def _compare(client: CommandClient) -> None:
    """Send edited files to the daemon; if none changed, that costs one small request. Raises
    TimeoutError.
    """
    try:
        await client.files.compare()
    except TimeoutError:
        raise
    except (RequestError, FolderError, StateError) as error:
        note(f"the files here could not be compared: {error}")
    except OSError as error:  # this device's own files; the daemon answers regardless
        note(f"the files here could not be compared: {error.strerror or type(error).__name__}")


def ignored_notes(client: CommandClient) -> list[str]:
    """Return messages for the user about memory folders that the sync has just excluded from git."""
    return client.files.ignored_messages


async def document_of(client: CommandClient, name: str, project: str) -> tuple[str, str]:
    """Return the project and the path of a document that is named by its path in `project`, or by
    the id of a note.

    A note is found in any project, even if it was deleted. Raises ToolError if no note has that id,
    or if several match a short id.
    """
    if not is_id(name):
        return project, to_nfc(name)
    found = await client.call("memory_history", {"id": name, "limit": 1})
    return found["project"], found["path"]


async def send_queue(client: CommandClient, here: CommandContext) -> bool:
    """Send the calls that are queued on this device, as far as possible. Return True if the queue
    is empty then.

    Raises ConnectionLost if the link breaks; StateError, JournalError or KeyFileError if the
    queue's file cannot be used.
    """
    if is_empty(here.paths.journal):
        return True
    from confide_proxy.offline.journal import Journal
    from confide_proxy.offline.queued_writes import QueueReplay

    try:
        async with asyncio.timeout(SEND_DEADLINE_S):
            outcome = await QueueReplay(Journal(here.paths.journal), here.paths.seats, client.sealed_calls).run(
                client.connection
            )
    except TimeoutError:
        note("not everything that waits on this device could be sent in time")
        return False
    if outcome.sent:
        note(f"sent what waited on this device: {outcome.sent} {'store' if outcome.sent == 1 else 'stores'}")
    if outcome.refused:
        note(f"the daemon refused {outcome.refused} of what waited on this device; they are kept: confide sync --queue")
    if outcome.why:
        note(f"what waits on this device could not all be sent: {outcome.why}")
    return outcome.why is None


async def complete_search(
    here: CommandContext, project: Project, files: Files, asked: CalledTool, answer: dict[str, Any]
) -> dict[str, object]:
    """Search the local files that the daemon does not have yet, after a search on the daemon that
    found nothing. Return its result with the hits from these files.

    Warnings in the result name the files that could not be searched.
    """
    from confide_proxy.offline import behind, unindexed
    from confide_proxy.offline.offline_calls import Offline

    try:
        lacking = await asyncio.to_thread(behind.behind, files.replicas)
        offline = Offline(here.paths, here.config, project, sealed_calls(here, project))
        waiting = await asyncio.to_thread(offline.waiting_places)
        lacking = lacking._replace(pending=tuple(dict.fromkeys((*lacking.pending, *waiting))))
        lacking = lacking.of(unindexed.projects_of(asked.arguments, project.name))
        hits: list[Any] = []
        if lacking.pending:
            reason = unindexed.Reason(unindexed.sentence(lacking, project.name))
            names = frozenset(lacking.pending[: unindexed.MOST_SEARCHED])
            entry = catalogues.packaged_catalogue().tools[asked.tool]
            found = await offline.answer_from(entry, asked.arguments, names, reason, within_s=HERE_S)
            hits = found.structured["results"] if found.structured else []
    except (ConfideError, OSError) as error:
        return {**answer, "warnings": [*answer["warnings"], f"the files here could not be looked at: {error}"]}
    said = unindexed.notes(lacking, project.name)
    made = {"results": hits, "searchMode": "offline"} if hits else {}
    return {**answer, **made, "warnings": [*answer["warnings"], *said]}


def sealed_calls(here: CommandContext, project: Project) -> SealedCalls:
    """Return the object that seals credentials in a command's calls, with what this device can do
    without the daemon.
    """
    from confide_proxy.sealing.sealed_calls import SealedCalls

    sealing = SessionSealing(here.paths, here.config, MachineKeys(here.paths))
    return SealedCalls(sealing, project.name, seen=LateTies(project.root, project.name, sealing).of_call)


def outage(error: ConfideError | TimeoutError, began: float) -> Outage:
    """Describe why the daemon is unreachable, for a command that goes on without it.

    Raises `error` itself if the command may not go on: this device is not set up, or the daemon has
    refused for good.
    """
    trouble = Outage(error if isinstance(error, ConfideError) else None, began)
    if trouble.is_told or (isinstance(error, RequestError) and not is_for_now(error)):
        raise error
    return trouble


async def without_daemon(
    here: CommandContext,
    project: Project,
    asked: CalledTool,
    error: BaseException | None,
    began: float,
    *,
    is_behind: bool = False,
) -> dict[str, object]:
    """Answer a tool call on this device, or queue it, instead of sending it to the daemon.

    Args:
        error: why the daemon is not used; None if the call only has to wait behind queued calls.
        is_behind: True if earlier calls are still queued.

    Raises `error` if this device may not answer instead, and the errors of `call`.
    """
    from confide_proxy.offline.offline_calls import Offline, OfflineCall

    trouble = Outage(error if isinstance(error, ConfideError) else None, began, is_behind)
    if error is not None and (trouble.is_told or (trouble.is_final and asked.operation)):
        raise error
    sealed = sealed_calls(here, project)
    call = OfflineCall(catalogues.packaged_catalogue().tools[asked.tool], asked.arguments, asked.operation, asked.said)
    answer = await Offline(here.paths, here.config, project, sealed).ask(call, trouble)
    if answer.structured is None:
        raise error or ToolError(answer.text)
    return answer.structured


# What each column of an explanation says, as in daemon/ranking.md: of the rank, which orders the hits,
# and of the score, which says how likely a hit answers.
RANK: Final = {
    "relevance": "how well it fits by words and by meaning, each beside the best of the search",
    "votes": "a share of the relevance of its neighbours in the file",
    "dated": "times this: it is of the days that you named",
    "source": "times this: transcripts count less than notes",
    "exact": "it has a name or a quoted phrase of yours as it stands",
    "page": "its file has the name that you asked for, and scores 0.8 at least",
    "rank": "(relevance + votes) × dated × source + exact + page",
}
SCORE: Final = {
    "keyword": "how well the words match, from 0 to 1",
    "terms": "the share of your words in it and beside it",
    "stated": "the share of your words in it, where rare ones count more",
    "held": "the same as a sum: the more and the rarer these words, up to 1",
    "missing": "lowers it: how rare the rarest word is that it and its neighbours lack",
    "unnamed": "lowers it: a name is among the words that they lack",
    "vector": "how near its meaning is to the question's (cosine)",
    "deviation": "how far nearer than unrelated notes are",
    "few": "raises it where few chunks are searched",
    "lacking": "keeps it at 0.6, 0.45 or 0.18 at most: it has another name, number or day than yours",
    "ownScore": "the score by itself",
    "score": "as shown: never higher than that of the hit above",
}
NEUTRAL: Final = {
    "dated": 1.0,
    "source": 1.0,
    **dict.fromkeys(("votes", "exact", "page", "missing", "unnamed", "few", "lacking"), 0.0),
}
"""Values that change nothing. A column of which all have this value is left out."""
BY_WORDS: Final = frozenset({"keyword", "terms"})
BY_MEANING: Final = frozenset({"stated", "held", "missing", "unnamed", "vector", "deviation", "few"})


def show(result: dict[str, Any]) -> None:
    """Print the tables that explain the scores of a search; an offline result has no explanation.

    Raises UnfitAnswerError if the explanation has another form.
    """
    explanation = result.get("explain")
    if explanation is None:
        remark("no explanation: this was answered from the files on this device")
        return
    try:
        _print(explanation, result.get("tooWeak") or result["results"], result["searchMode"])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UnfitAnswerError from None


def _print(explanation: dict[str, Any], results: list[ResultHit], mode: str) -> None:
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
        say("\nhow the hits got their order (keywords, vectors: place and value in each way of looking)")
        # Words and meaning have a formula each; a chunk without a vector has that of the words.
        unused = BY_MEANING if all(hit["vector"] is None for hit in scores) else BY_WORDS
        if all(_number(hit["score"]) == _number(hit.get("ownScore")) for hit in scores):
            unused |= {"score"}
        _print_table(scores, RANK, legs=True)
        say("and their score, from 0 to 1")
        _print_table(scores, {name: said for name, said in SCORE.items() if name not in unused}, legs=False)
    say(f"milliseconds {printable(timings)}")


def _print_table(hits: list[dict[str, float | None]], columns: Mapping[str, str], *, legs: bool) -> None:
    """Print the columns that differ from `NEUTRAL` for some hit, and what each of them says."""
    shown = {name: said for name, said in columns.items() if any(_is_telling(name, hit.get(name)) for hit in hits)}
    terminal().print(_table(hits, tuple(shown), legs=legs))
    for name, said in shown.items():
        row(f"    {name}: {said}")


def _is_telling(name: str, value: float | None) -> bool:
    return value is not None and value != NEUTRAL.get(name)


def _table(hits: list[dict[str, float | None]], names: tuple[str, ...], *, legs: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("hit")
    for name in (*(("keywords", "vectors") if legs else ()), *names):
        table.add_column(name, justify="right")
    for number, hit in enumerate(hits, 1):
        places = [_place(hit["keywordRank"], hit["bm25"]), _place(hit["vectorRank"], hit["cosine"])] if legs else []
        table.add_row(str(number), *places, *(_number(hit.get(name)) for name in names))
    return table


def _place(rank: float | None, value: float | None) -> str:
    """Format a hit's rank in one retrieval method with that method's own score: `#3 7.2`."""
    return " ".join(part for part in (f"#{rank}" if rank else "", _number(value)) if part != "-") or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
