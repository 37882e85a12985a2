"""The commands `confide sync` and `confide quickstart`: sync a folder with the daemon once
(docs/notes.md).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import (
    EXIT_CONFIG,
    EXIT_STORAGE,
    RequestError,
)
from confide_memory.commands.progress import Progress
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.cli import markdown_offer, setup, trust
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    Yes,
    ask_confirmation,
    can_ask,
    command,
    count_noun,
    doing,
    note,
    project_of,
    remark,
    row,
    say,
)
from confide_proxy.cli.search import call, ignored_notes, send_queue
from confide_proxy.devices import space_connection as space_connection
from confide_proxy.errors import DaemonStartError, NotJoinedError
from confide_proxy.link import founding
from confide_proxy.link.daemon import load_pin
from confide_proxy.mcp.client import CommandClient
from confide_proxy.paths import memory_notices
from confide_proxy.sync.folder import OWN_PROJECT
from confide_proxy.sync.project import Project
from confide_proxy.sync.replication.file_transfer import DENIED, ELSEWHERE, FORGOTTEN
from confide_proxy.sync.walk import Narrowing

_NAMED: Final = 3
_COUNTED: Final = ("filesSent", "filesPulled", "filesRemoved", "chunksUpdated", "duration")
_MOST_CALLS: Final = 144
"""The most further `memory_sync` calls. Each waits up to ten minutes: together a day."""


@command
def sync(
    here: CommandContext,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR|ID]",
            help="With --watch: project folders. With --retry or --drop: the id of a queued call.",
            show_default=False,
        ),
    ] = None,
    watches: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep folders in sync until you stop it; no agent has to run.")
    ] = False,
    queued: Annotated[
        bool, typer.Option("--queue", "-q", help="List what waits to be sent, and what the daemon refused.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="With --queue: show the texts too, without credentials.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="With --queue: send refused calls again; all without ID.")
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="With --queue: delete a call for good; `damaged`: all unreadable ones.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Read every file again, also where it looks unchanged.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Delete everywhere what is missing here, however much it is.")
    ] = False,
    yes: Yes = False,
    project: ProjectDir = Path(),
    as_json: bool = False,
) -> Output | None:
    """Send local changes, receive those of other devices, and wait until all are indexed."""
    if watches:
        from confide_proxy.cli import watch  # its imports take longer than a comparison

        doing.end()
        watch.watch(here, [Path(each) for each in names] if names else [project], as_json=as_json)
        return None
    if queued:
        return _of_queue(here, names or [], show=show, retry=retry, drop=drop, is_sure=yes)
    if names or show or retry or drop:
        needed = "--queue" if show or retry or drop else "--watch"
        raise typer.BadParameter(f"goes with {needed}; another folder: --project DIR", param_hint=(names or ["it"])[0])
    return asyncio.run(_sync(here, project, force=force, is_meant=deleted))


def _of_queue(here: CommandContext, names: list[str], *, show: bool, retry: bool, drop: bool, is_sure: bool) -> Output:
    from confide_proxy.cli import queue  # only this needs the journal

    if not (retry or drop):
        if names:
            raise typer.BadParameter("goes with --retry or --drop", param_hint=names[0])
        return queue.list_calls(here, with_text=show)
    if len(names) > 1 or (drop and not names):
        raise typer.BadParameter("name the id of one call, as confide sync --queue lists it", param_hint="ID")
    identity = names[0] if names else ""
    return asyncio.run(queue.drop(here, identity, is_sure=is_sure)) if drop else queue.retry(here, identity)


async def _sync(here: CommandContext, project: Path, *, force: bool, is_meant: bool) -> Output:
    this = await project_of(here, project)
    result = await _compare(here, this, force=force, is_meant=is_meant)

    def print_text() -> None:
        say(
            f"files: {result['filesScanned']} compared, {result['filesSent']} sent, {result['filesPulled']} received, "
            f"{result['filesRemoved']} removed; chunks embedded: {result['chunksUpdated']}; {result['duration']:.1f} s"
        )
        if sent := result.get("transcripts"):
            say("transcripts: {messages} messages of {sessions} sessions sent, {skipped} lines skipped".format(**sent))
        if clashes := result["clashes"]:
            named = ", ".join(f"{one['path']}" for one in clashes)
            say(f"{count_noun(len(clashes), 'conflict')}: {named}")
        _print_skipped(result["skipped"])
        note(*result["notices"], *result["warnings"])

    code = RequestError(result["notCompared"], "").exit_code if "notCompared" in result else 0
    code = code or (EXIT_STORAGE if result["filesFailed"] else 0)
    is_broken = not code and Narrowing(this.root).problem()  # then nothing was compared
    return Output(result, print_text, exit_code=EXIT_CONFIG if is_broken else code)


def _print_skipped(skipped: list[dict[str, str]]) -> None:
    """Print each skipped file with the reason.

    Files that every sync skips (denied, not memory here, erased, or another project's) are counted in one line with a hint.
    """
    for item in skipped:
        if item["reason"] not in (DENIED, ELSEWHERE, FORGOTTEN, OWN_PROJECT):
            remark(f"skipped {item['path']}: {item['reason']}")
    if others := [item["path"] for item in skipped if item["reason"] == OWN_PROJECT]:
        folders = count_noun(len(others), "folder is a project of its own", "folders are projects of their own")
        note(f"{folders}, and not indexed with this one: {_some(others)}")
        note("hint: to have one indexed, give it a section of its own: docs/notes.md")
    if elsewhere := [item["path"] for item in skipped if item["reason"] == ELSEWHERE]:
        files = count_noun(len(elsewhere), "file is", "files are")
        note(f"{files} on the daemon, but not memory on this device: {_some(elsewhere)}")
        note("hint: confide forget PATH deletes them there; to have them indexed from here: docs/notes.md")
    if denied := [item["path"] for item in skipped if item["reason"] == DENIED]:
        files = count_noun(len(denied), "file is", "files are")
        note(f"{files} not sent, since this device has no right to write there: {_some(denied)}")
        note("hint: the daemon's operator gives it with: confided device edit NAME --scope write")
    if forgotten := [item["path"] for item in skipped if item["reason"] == FORGOTTEN]:
        files = count_noun(len(forgotten), "file is", "files are")
        note(f"{files} not sent, because you had them forgotten: {_some(forgotten)}")
        note("hint: to send them again: confide forget --undo PATH")


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")


@command
def quickstart(
    here: CommandContext,
    project: ProjectDir = Path(),
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Add the entry to this project's .mcp.json.")
    ] = False,
    as_json: bool = False,
) -> Output:
    """Set up this device without a server: start a daemon, join it, index this project, print the
    next steps.
    """
    is_alone = load_pin(here.paths.link) is None
    if is_alone and here.config.on_demand:
        founding.allow_own_daemon(here.paths)
        note(*memory_notices())
    # Start the daemon first, which takes time; only then ask about the folder's project name.
    problem = asyncio.run(space_connection.introduce(here.paths, here.config))
    if isinstance(problem, DaemonStartError | NotJoinedError):
        raise problem
    this = asyncio.run(project_of(here, project))
    if this.name != GLOBAL_PROJECT and not as_json:
        here = markdown_offer.offer_markdown(here, this.root)
    result = asyncio.run(_compare(here, this, force=False))
    info = asyncio.run(call(here, this, "memory_status", {}, is_compared=False))

    def print_text() -> None:
        where = f"here, with its data in {here.paths.daemon_data}" if is_alone else "which this device has joined"
        row(f"a daemon answers, {where}, version {info['daemonVersion']}")
        is_project = this.name != GLOBAL_PROJECT  # otherwise a note has said that the folder is no project
        if is_project:
            row(f"this folder is the project {this.name} in the space {info['link']['space']}")
        files, pieces = count_noun(result["filesScanned"], "memory file"), count_noun(info["totalChunks"], "chunk")
        say(f"{files} compared, {pieces} indexed")
        asyncio.run(_offer_trust(here, this))
        if write:
            setup.add_entry(here, project, for_user=False)
        else:
            say(f"\nnow let your agent start it:  confide setup claude-code --write{'' if is_project else ' --user'}")
        if not is_project:
            say("then go to a project's folder")
        say('and try:  confide store "we chose postgres for its row locks"\n          confide search "why postgres"')

    is_added = as_json and write and setup.merge_for_claude_code(here, project)
    counts = {"filesScanned": result["filesScanned"], "totalChunks": info["totalChunks"], "entryAdded": is_added}
    markdown = markdown_offer.look(this.root)
    counts |= {"otherMarkdown": markdown.files, "otherMarkdownIsAll": markdown.is_all}
    told = {"project": this.name, "space": info["link"]["space"]}
    return Output({"daemonVersion": info["daemonVersion"], **counts, **told}, print_text)


async def _offer_trust(here: CommandContext, project: Project) -> None:
    if can_ask():
        async with here.client(project) as client:
            await trust.offer(client, [project.name], "")


async def _compare(here: CommandContext, project: Project, *, force: bool, is_meant: bool = False) -> dict[str, Any]:
    async with here.client(project) as client:
        client.files.meant_deletions = {project.name: None} if is_meant else await _meant(client, project)
        with Progress() as bar:
            client.files.on_progress = lambda done, total: bar.follow(done, total, "files")
            await send_queue(client, here)
            sent: dict[str, object] = {}
            if here.config.transcripts:
                from confide_proxy.sync.transcripts.transcript_streamer import send_all

                sent["transcripts"] = await send_all(
                    here.paths,
                    here.config,
                    client.connection,
                    client.space,
                    client.sealing,
                    force=force,
                    progress=lambda done, total: bar.follow(done // 1024, total // 1024, "transcripts, KiB"),
                )
            result, status = await until_indexed(client, force=force, progress=bar.follow)
            failed = client.files.failure_count
            result["skipped"] = list({tuple(item.items()): item for item in client.files.skipped_files}.values())
            if client.gives_receipts:
                await client.keep_receipt()
            here_too = (project.name, GLOBAL_PROJECT)
            clashes = [one for one in status["clashes"] if one["project"] in here_too]
            note(*ignored_notes(client))
            # In place: a missing field then counts as the daemon's fault, not as this command's.
            result |= {**sent, "clashes": clashes, "filesFailed": failed}
            result["notices"] = await asyncio.to_thread(client.files.notices)
            return result


async def _meant(client: CommandClient, project: Project) -> dict[str, frozenset[str]]:
    """Ask the user at a terminal whether to delete the missing memory files everywhere, for each
    folder by itself.

    Return the files, by project, that were asked about and are to be deleted: others may go missing
    while the question waits.
    """
    if not can_ask():
        return {}
    meant = {}
    for name, lost in (await asyncio.to_thread(client.files.missing)).items():
        where = f"in {project.root}" if name == project.name else "from the memory that all projects share"
        them = "them" if len(lost) > 1 else "it"
        said = f"{count_noun(len(lost), 'memory file')} went missing {where}: delete {them} everywhere?"
        if await ask_confirmation(said):
            meant[name] = lost
    return meant


async def until_indexed(
    client: CommandClient, *, force: bool, progress: Callable[[float, float | None, str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call `memory_sync` until all files are indexed. Return its results summed up, and the final
    status.

    One call waits up to ten minutes; further calls follow while chunks of text still lack
    embeddings. Raises the errors of `CommandClient.call`.
    """
    result = await client.call("memory_sync", {"force": force}, progress=progress, is_long=True)
    status = await client.call("memory_status", {})
    step, waiting = result, sys.maxsize
    for _ in range(_MOST_CALLS):
        # Stop if the daemon makes no progress, or reports nonsense.
        if not step["chunksUpdated"] or not 0 < status["queuedChunks"] < waiting:
            break
        waiting = status["queuedChunks"]
        step = await client.call("memory_sync", {}, progress=progress, is_long=True)
        for name in _COUNTED:
            result[name] += step[name]
        result["warnings"] = step["warnings"]
        status = await client.call("memory_status", {})
    return result, status
