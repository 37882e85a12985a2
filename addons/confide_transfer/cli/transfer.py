"""`confide import`: memories of other systems, and markdown and JSON files, become notes (docs/importing.md).

And `confide export`: all memory of a space becomes a folder of markdown files, which `import` brings back where it is missing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confide_crypto.errors import RequestError
from confide_memory.answers import ask
from confide_memory.documents import GLOBAL_PROJECT, composed
from confide_proxy.cli.console import (
    DEADLINE_S,
    AsJson,
    Here,
    Output,
    ProjectDir,
    command,
    confirmed,
    counted,
    identified,
    print_json,
    remark,
    row,
    say,
    terminal,
    wanted,
)
from confide_proxy.cli.progress import SyncProgress
from confide_proxy.errors import ExportError, UnreadableError
from confide_proxy.sync import project as projects

if TYPE_CHECKING:
    from confide_proxy.sync.project import Project
    from confide_transfer.local.delivery import Outcome
    from confide_transfer.local.export.tree import Report
    from confide_transfer.local.plan import Plan, Store, Survey

_OFFERED = 5
_SHOWN = 10
"""Of what was skipped or refused; `--json` names more."""
_TOLD = {
    "new": "new",
    "known": "imported before",
    "identical": "the same as a note that is there",
    "deleted": "deleted since they were imported (--again brings them back)",
    "refused": "refused",
}


@command
async def export(
    here: Here,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one that an earlier export is in.")],
    transcripts: Annotated[bool, typer.Option("--transcripts", help="Transcripts as well.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PROJECT", help="This project alone; again.")
    ] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Write all memory of the space to a folder: markdown files by project, and every note as a line of JSON."""
    from confide_transfer.local.export import tree

    this = await identified(here, project)
    _check_outside(here, this, folder)
    async with here.client(this) as client:
        # What was saved a moment ago belongs to it.
        await client.files.compare()
        answer = await ask(client.connection, "projects", {"project": this.name}, timeout_s=DEADLINE_S)
        names = [one["name"] for one in answer["projects"]]
        if unknown := [name for name in only or () if name not in names]:
            known = ", ".join(names) or "none"
            raise RequestError("not_found", f"there is no project '{unknown[0]}' in this space", f"there are: {known}")
        is_all = answer["complete"]
        is_whole = is_all and not only
        report = await tree.write(
            client.connection, only or names, folder, is_whole=is_whole, with_transcripts=transcripts
        )
        if not only and not is_all:
            report.skip("", "", f"there are more than {len(names)} projects; --only names one")

    def tell() -> None:
        sealed = f", and {counted(report.secrets, 'sealed secret')}" if report.secrets else ""
        files = f"{counted(report.files, 'file')} of {counted(report.projects, 'project')}"
        say(f"{files} in {folder}, {counted(report.notes, 'note')} among them{sealed}")
        _tell_skipped(report)

    data = {
        "folder": str(folder),
        "files": report.files,
        "notes": report.notes,
        "projects": report.projects,
        "secrets": report.secrets,
        "skipped": report.skipped,
    }
    return Output(data, tell)


def _tell_skipped(report: Report) -> None:
    for item in report.skipped:
        remark(f"left out: {item['path']} [{item['project']}]: {item['reason']}")


def _check_outside(here: Here, project: Project, into: Path) -> None:
    """Refuse a folder that is sent up as memory: each export would hold all those before it."""
    from confide_proxy.sync.folder import Folder
    from confide_proxy.sync.workspace import extra_of

    try:
        place = into.resolve()
    except RuntimeError:
        raise ExportError(f"{into} is a symlink in a circle", hint="name another folder") from None
    watched = (
        Folder(project.name, project.root, extra_of(here.paths, here.config, project)),
        Folder(GLOBAL_PROJECT, here.paths.global_folder, ()),
    )
    for one in watched:
        root = one.root.resolve()
        if place.is_relative_to(root) and one.could_hold(composed(place.relative_to(root).as_posix())):
            raise ExportError(f"{into} is watched for memory", hint="name a folder outside of memory/")


def import_memories(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files, folders or stores; what is found, if left out.", show_default=False
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The system that wrote them; recognised if left out.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Import without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was imported once and deleted since.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Delete the notes that came from there.")] = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Turn other memories into notes: a look at what there is first, and nothing twice."""
    from confide_transfer.local.export import manifest
    from confide_transfer.local.plan import Plan

    here: Here = context.obj
    if undo and not paths:
        raise typer.BadParameter("name the files, folders or stores whose notes are to go", param_hint="--undo")
    this = asyncio.run(identified(here, project))
    if undo:
        _undo(here, this, Plan(_stores(paths or [], system, this), this, here.config), dry_run, yes, as_json)
        return
    if paths and system is None and any(manifest.is_tree(path) for path in paths):
        _bring_back(here, this, paths, is_sure=False if dry_run else yes or None, as_json=as_json)
        return
    plan = Plan(_stores(paths or [], system, this), this, here.config)
    _look_and_import(here, this, plan, again, as_json, is_sure=False if dry_run else yes or None)


def _undo(here: Here, this: Project, plan: Plan, is_dry: bool, is_sure: bool, as_json: bool) -> None:
    from confide_transfer.cli.import_undo import undone

    plan.survey()
    found = asyncio.run(undone(here, this, plan, is_dry=is_dry, is_sure=is_sure))
    if as_json:
        print_json(found.data)
    elif callable(found.tell):
        found.tell()
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def offer(here: Here, folder: Path) -> None:
    """Tell what could be imported into the project of this folder, and at a terminal ask about it; nothing where there is nothing."""
    from confide_transfer.local.plan import Plan

    stores = _stores([], None, projects.identify(folder).granted())
    if not stores:
        return
    more = f" and {len(stores) - _OFFERED} more" if len(stores) > _OFFERED else ""
    named = ", ".join(store.shown for store in stores[:_OFFERED])
    remark(f"there are other memories: {named}{more}; to look at them: confide import")
    if sys.stdin.isatty() and sys.stdout.isatty() and wanted("look at them now?"):
        this = asyncio.run(identified(here, folder))
        _look_and_import(here, this, Plan(stores, this, here.config), again=False, as_json=False, is_sure=None)


def _look_and_import(
    here: Here, this: Project, plan: Plan, again: bool, as_json: bool, *, is_sure: bool | None
) -> None:
    surveys = plan.survey()
    if not as_json:
        _preview(surveys, this)
    if not plan.notes:
        _nothing(plan, this, as_json)
        return
    asyncio.run(_carry_out(here, this, plan, again, as_json, is_sure=is_sure))


def _stores(paths: list[Path], system: str | None, this: Project) -> list[Store]:
    from confide_transfer.local import plan
    from confide_transfer.local.plan import stores_at

    if paths:
        return stores_at(list(dict.fromkeys(map(_existing, paths))), system)
    if system is not None:
        stores_at([], system)
        return [one for one in plan.in_project(this) if one.reader.name == system] + plan.in_home(Path.home(), system)
    return plan.in_project(this) + plan.in_home(Path.home())


def _existing(path: Path) -> Path:
    # A link that somebody has typed is followed; those inside a folder are not.
    try:
        return path.expanduser().resolve()
    except RuntimeError as error:  # no such user, or links in a circle
        raise UnreadableError(path, f"leads nowhere ({error})") from None


async def _carry_out(
    here: Here, this: Project, plan: Plan, again: bool, as_json: bool, *, is_sure: bool | None
) -> None:
    """`is_sure`: False for a look alone, None to ask."""
    from confide_transfer.local.delivery import deliver

    is_told = ""
    async with here.client(this) as client:
        link, sealing = client.connection, client.sealing
        if is_sure is None or not is_sure:
            outcome = await deliver(plan, link, sealing, is_dry=True, again=again)
            may_ask = is_sure is None and sys.stdin.isatty() and not as_json
            if may_ask:
                is_told = _counts(outcome)
                say(is_told)
                is_sure = bool(outcome.states["new"]) and await confirmed(f"import into {this.name}?")
            if not is_sure:
                _show(plan, this, outcome, as_json, is_dry=True, is_told=is_told)
                if is_sure is None or may_ask:
                    remark("nothing was imported; --yes imports without asking")
                return
        with SyncProgress(terminal(stderr=True)) as bar:
            outcome = await deliver(
                plan, link, sealing, again=again, progress=lambda done, total: bar.follow(done, total, "notes")
            )
            report = await client.files.compare()  # the notes are files, and these are on disk now
    _show(plan, this, outcome, as_json, is_dry=False, is_told=is_told)
    for item in report.skipped[:_SHOWN]:
        remark(f"skipped {item['path']}: {item['reason']}")


def _preview(surveys: list[Survey], this: Project) -> None:
    width = max((len(survey.store.shown) for survey in surveys), default=0)
    for survey in surveys:
        row(f"{survey.store.shown:<{width}}  {_line(survey, this)}")
        for title in survey.titles[:3]:
            row(f"    {title}")
        for skipped in survey.losses.named[:_SHOWN]:
            remark(f"skipped {skipped.origin}: {skipped.reason}")
        if survey.losses.count > _SHOWN:
            remark(f"and {survey.losses.count - _SHOWN} more were skipped")


def _line(survey: Survey, this: Project) -> str:
    parts = (
        f"{survey.store.reader.title}: {counted(survey.notes, 'note')}",
        f"for {_named(survey.projects)}" if set(survey.projects) - {this.name} else "",
        _named(survey.categories),
        f"importance {_named(survey.levels)}" if survey.levels else "",
        f"tags {_named(survey.tags)}" if survey.tags else "",
        *survey.remarks,
    )
    return "; ".join(filter(None, parts))


def _named(counter: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count}" for name, count in counter.most_common(4))
    return f"{shown}, …" if len(counter) > 4 else shown


def _counts(outcome: Outcome) -> str:
    words = _TOLD | {"known": _TOLD["known"] + outcome.known_elsewhere}
    told = [f"{outcome.states[state]:,} {what}" for state, what in words.items() if outcome.states[state]]
    sealed = f"; credentials in it, which are sealed: {outcome.sealed:,}" if outcome.sealed else ""
    return f"{counted(outcome.done, 'note')}: {', '.join(told)}{sealed}"


def _show(plan: Plan, this: Project, outcome: Outcome, as_json: bool, *, is_dry: bool, is_told: str) -> None:
    """`is_told`: the counts that a person has seen already."""
    if as_json:
        twins = [{"origin": origin, "id": identity or None} for origin, identity in outcome.twins]
        print_json({"project": this.name, "dryRun": is_dry, **outcome.as_json(plan), "identical": twins})
        return
    if (counts := _counts(outcome)) != is_told:
        say(counts)
    for one in outcome.refused[:_SHOWN]:
        remark(f"refused {one.origin}: {one.reason}")
    for origin, identity in outcome.twins[:_SHOWN]:
        other = f"confide read {identity}" if identity else "another one of these"
        remark(f"not stored, since a note says just this: {origin}; it is {other}")
    if not is_dry and outcome.states["new"]:
        say(f"imported {counted(outcome.states['new'], 'note')}: {_places(outcome, this)}")
        remark("they are found by searches, and come unasked once you trust them: confide trust memory/notes")


def _places(outcome: Outcome, this: Project) -> str:
    """Where the new ones are: those of this project as files here, the others with the daemon."""
    own = outcome.projects[this.name]
    others = [
        f"{count:,} into the project {name}" for name, count in sorted(outcome.projects.items()) if name != this.name
    ]
    return ", ".join([f"{own:,} into memory/notes"] * bool(own) + others)


def _nothing(plan: Plan, this: Project, as_json: bool) -> None:
    from confide_transfer.local.delivery import Outcome

    failures = [survey.failure for survey in plan.surveys if survey.failure]
    if len(failures) == len(plan.stores) == 1:
        raise failures[0]
    if as_json:
        print_json({"project": this.name, "dryRun": True, **Outcome().as_json(plan)})
    elif not failures:
        remark("nothing to import was found; name files or folders: confide import notes/ export.json")


def _bring_back(here: Here, this: Project, trees: list[Path], *, is_sure: bool | None, as_json: bool) -> None:
    """Put the documents of an export back where they are missing; `is_sure` is False for a look alone, None to ask."""
    if len(trees) > 1:
        raise ExportError("an export is brought back by itself", hint="name one folder at a time")
    may_ask = sys.stdin.isatty() and not as_json
    report, is_dry = asyncio.run(_filled(here, this, trees[0], is_sure, may_ask=may_ask))
    if as_json:
        print_json(
            {
                "dryRun": is_dry,
                "files": report.files,
                "projects": report.projects,
                "counts": report.counts,
                "secrets": {"brought": report.secrets, "unopened": report.closed},
                "skipped": report.skipped,
            }
        )
        return
    _tell_counts(report)
    _tell_skipped(report)
    if is_dry:
        remark("nothing was imported; --yes imports without asking")
    else:
        say(f"done: {counted(report.counts.get('new', 0), 'file')} brought back")


def _tell_counts(report: Report) -> None:
    words = {
        "new": "new",
        "same": "there already",
        "differs": "there with another text, which stays",
        "refused": "refused",
        "transcript": "transcripts, which come from their own machines",
    }
    said = [f"{report.counts[state]} {what}" for state, what in words.items() if report.counts.get(state)]
    files = f"{counted(report.files, 'file')} of {counted(report.projects, 'project')}"
    say(f"{files}: {', '.join(said) or 'none'}")
    if report.secrets:
        say(f"with them: {counted(report.secrets, 'sealed secret')}")
    if report.closed:
        verb = "is" if report.closed == 1 else "are"
        remark(
            f"{counted(report.closed, 'sealed secret')} {verb} of a space whose devices this machine is not among: what names them comes"
            " back, they do not; import on one of its devices"
        )


async def _filled(
    here: Here, this: Project, folder: Path, is_sure: bool | None, *, may_ask: bool
) -> tuple[Report, bool]:
    """What was brought back, or would be; and whether it was a look alone."""
    from confide_transfer.local.export import tree

    async with here.client(this) as client:
        is_dry = not is_sure
        report = await tree.fill(client.connection, client.sealing, folder, is_dry=is_dry)
        if is_dry and is_sure is None and may_ask and report.counts.get("new"):
            _tell_counts(report)
            if await confirmed("import them?"):
                is_dry = False
                report = await tree.fill(client.connection, client.sealing, folder, is_dry=False)
        if not is_dry:
            await client.files.compare()
    return report, is_dry
