"""The command `confide history`: a project's latest changes, a file's revisions and diffs
(docs/history.md).
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.commands.group import parsed_by
from confide_memory.documents import GLOBAL_PROJECT, local_time
from confide_memory.forms import MAX_REVISIONS
from confide_memory.wire.files import PULL, PullRequest
from confide_memory.wire.revisions import (
    HISTORY,
    HistoryRequest,
)
from confide_proxy.cli.completion import memory_paths
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    TakesRevision,
    asking,
    command,
    count_noun,
    folder_of,
    one_line,
    project_of,
    remark,
    say,
    styled,
)
from confide_proxy.cli.listing import MOST, Project_, changes
from confide_proxy.cli.search import document_of
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.sync import project as projects


@parsed_by(TakesRevision)
@command
async def history(
    here: CommandContext,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH|ID",
            help="A file or a note, for its revisions; a folder, for the changes below it.",
            show_default=False,
            autocompletion=memory_paths,
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many; of one file at most 100.")
    ] = 20,
    diff: Annotated[bool, typer.Option("--diff", "-d", help="Show what a revision changed, line by line.")] = False,
    revision: Annotated[
        int | None, typer.Option("--revision", "-r", min=1, help="With --diff: which one; the newest if left out.")
    ] = None,
    lists_changes: Annotated[
        bool, typer.Option("--changes", help="List changes with their devices, also of a single file.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Changes from then on: 2d, 12h, or a date.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Changes up to then; a date means its end.")
    ] = None,
    only: Project_ = None,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """List the latest changes, or the revisions of a file, newest first."""
    if revision is not None and not diff:
        raise typer.BadParameter(
            "goes with --diff; confide read --revision prints a whole text", param_hint="--revision"
        )
    path = to_project_path(here, project, path)
    is_folder = not path or path.endswith("/") or (projects.identify(folder_of(project)).root / path).is_dir()
    if lists_changes or since is not None or until is not None or only is not None or (is_folder and not diff):
        if diff:
            raise typer.BadParameter("goes with one file", param_hint="--diff")
        return await changes(
            here, path, limit=limit, since=since, until=until, only=only, is_global=is_global, project=project
        )
    limit = min(limit, MAX_REVISIONS)
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
        size = "deleted" if entry["deleted"] else count_noun(entry["bytes"], "byte")
        clash = "  conflict" if entry["clash"] else ""
        clash += "  untrusted" if entry["class"] == UNTRUSTED else ""
        lines.append(f"{entry['revision']:>4}  {local_time(entry['time'])}  {entry['author']:<{width}}  {size}{clash}")
    return Output({"project": name, "path": path, "revisions": revisions}, lines)


async def _difference(
    here: CommandContext, folder: Path, path: str, revision: int | None, *, is_global: bool
) -> Output:
    this = await project_of(here, folder)
    async with here.client(this) as client:
        name, path = await document_of(client, path, GLOBAL_PROJECT if is_global else this.name)
        answer = await HISTORY.ask(
            client.connection, {"project": name, "path": path, "limit": MAX_REVISIONS}, timeout_s=DEADLINE_S
        )
        known = answer["revisions"]
        chosen = next((each for each in known if revision in (None, each["revision"])), None)
        if chosen is None:
            hint = f"confide history {shlex.quote(path)} lists them, from {known[-1]['revision']} to {known[0]['revision']}"
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
