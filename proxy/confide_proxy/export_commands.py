"""`confide export`: all memory of a space as a folder of markdown files (docs/importing.md)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_proxy import projects
from confide_proxy.asking import confirmed
from confide_proxy.errors import ExportError
from confide_proxy.options import AsJson, ProjectDir, err, folder_of, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here
    from confide_proxy.export_tree import Report
    from confide_proxy.projects import Project

_DEADLINE_S = 30.0


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    app.command()(export)


def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one that an earlier export is in.")],
    transcripts: Annotated[bool, typer.Option("--transcripts", help="Transcripts as well.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PROJECT", help="This project alone; again.")
    ] = None,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Write all memory of the space to a folder: markdown files by project, and every note as a line of JSON."""
    report = asyncio.run(_export(context.obj, project, folder, transcripts, only or []))
    if as_json:
        print_json(report)
        return
    sealed = f", and {report['secrets']} sealed secrets" if report["secrets"] else ""
    out.print(
        f"{report['files']} files of {report['projects']} projects in {folder}, {report['notes']} of them notes{sealed}",
        markup=False,
    )
    for item in report["skipped"]:
        err.print(f"left out: {item['path']} [{item['project']}]: {item['reason']}", markup=False)


def bring_back(here: Here, this: Project, trees: list[Path], *, is_sure: bool | None, as_json: bool) -> None:
    """Put the documents of an export back where they are missing; `is_sure` is False for a look alone, None to ask."""
    if len(trees) > 1:
        raise ExportError("an export is brought back by itself", hint="name one folder at a time")
    told = asyncio.run(_bring_back(here, this, trees[0], is_sure, may_ask=sys.stdin.isatty() and not as_json))
    if as_json:
        print_json(told)
        return
    _tell_counts(told)
    for item in told["skipped"]:
        err.print(f"left out: {item['path']} [{item['project']}]: {item['reason']}", markup=False)
    if told["dryRun"]:
        err.print("nothing was imported; --yes imports without asking", markup=False)


def _tell_counts(told: dict[str, Any]) -> None:
    words = {
        "new": "new",
        "same": "there already",
        "differs": "there with another text, which stays",
        "refused": "refused",
        "transcript": "transcripts, which come from their own machines",
    }
    said = [f"{told['counts'][state]} {what}" for state, what in words.items() if told["counts"].get(state)]
    out.print(f"{told['files']} files of {told['projects']} projects: {', '.join(said) or 'none'}", markup=False)
    if told["secrets"]["brought"]:
        out.print(f"{told['secrets']['brought']} sealed secrets come with them", markup=False)
    if told["secrets"]["unopened"]:
        err.print(
            f"{told['secrets']['unopened']} sealed secrets are of a space whose devices this machine is not among: what names them comes"
            " back, they do not; import on one of its devices",
            markup=False,
        )


async def _bring_back(here: Here, this: Project, tree: Path, is_sure: bool | None, *, may_ask: bool) -> dict[str, Any]:
    from confide_proxy import export_tree
    from confide_proxy.client import Client

    async with Client(here.paths, here.config, this) as client:
        is_dry = not is_sure
        report = await export_tree.fill(client.connection, client.sealing, tree, is_dry=is_dry, progress=_nobody)
        if is_dry and is_sure is None and may_ask and report.counts.get("new"):
            _tell_counts(_told(report, is_dry=True))
            if await confirmed("import them?"):
                is_dry = False
                report = await export_tree.fill(client.connection, client.sealing, tree, is_dry=False, progress=_nobody)
        if not is_dry:
            await client.sync()
    return _told(report, is_dry=is_dry)


def _told(report: Report, *, is_dry: bool) -> dict[str, Any]:
    return {
        "dryRun": is_dry,
        "files": report.files,
        "projects": report.projects,
        "counts": report.counts,
        "secrets": {"brought": report.secrets, "unopened": report.closed},
        "skipped": report.skipped,
    }


def _nobody(_done: int, _project: str) -> None:
    """Who follows the progress."""


def _check_outside(here: Here, project: Project, into: Path) -> None:
    """Refuse a folder that is sent up as memory: each export would hold all those before it."""
    from confide_proxy.folder import Folder

    try:
        place = into.resolve()
    except RuntimeError:
        raise ExportError(f"{into} is a symlink in a circle", hint="name another folder") from None
    watched = (
        Folder(project.name, project.root, here.config.extra),
        Folder(projects.GLOBAL, here.paths.global_folder, ()),
    )
    for one in watched:
        root = one.root.resolve()
        if place.is_relative_to(root) and one.could_hold(place.relative_to(root).as_posix()):
            raise ExportError(f"{into} is watched for memory", hint="name a folder outside of memory/")


async def _export(here: Here, folder: Path, into: Path, transcripts: bool, only: list[str]) -> dict[str, Any]:
    from confide_crypto.errors import RequestError
    from confide_proxy import export_tree
    from confide_proxy.answers import records
    from confide_proxy.client import Client

    project = projects.identify(folder_of(folder))
    _check_outside(here, project, into)
    async with Client(here.paths, here.config, project) as client:
        # What was saved a moment ago belongs to it.
        await client.sync()
        answer = await client.connection.request("projects", {"project": project.name}, timeout_s=_DEADLINE_S)
        names = [one["name"] for one in records(answer, "projects", name=str)]
        if unknown := [name for name in only if name not in names]:
            known = ", ".join(names) or "none"
            raise RequestError("not_found", f"there is no project '{unknown[0]}' in this space", f"there are: {known}")
        is_all = answer.get("complete") is True
        report = await export_tree.write(
            client.connection,
            only or names,
            into,
            is_whole=is_all and not only,
            with_transcripts=transcripts,
            progress=_nobody,
        )
        if not only and not is_all:
            report.skip("", "", f"there are more than {len(names)} projects; --only names one")
    return {
        "folder": str(into),
        "files": report.files,
        "notes": report.notes,
        "projects": report.projects,
        "secrets": report.secrets,
        "skipped": report.skipped,
    }
