"""`confide import`: memories of other systems, and markdown and JSON files, become notes (docs/importing.md)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_proxy import export_commands, projects
from confide_proxy.asking import confirmed
from confide_proxy.errors import UnreadableError
from confide_proxy.options import AsJson, ProjectDir, err, folder_of, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here
    from confide_proxy.importing.delivery import Outcome
    from confide_proxy.importing.plan import Plan, Store, Survey
    from confide_proxy.projects import Project

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


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    app.command("import")(import_memories)


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
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Turn other memories into notes: a look at what there is first, and nothing twice."""
    from confide_proxy import export_manifest
    from confide_proxy.importing.plan import Plan

    here: Here = context.obj
    this = projects.identify(folder_of(project))
    if paths and system is None and any(export_manifest.is_tree(path) for path in paths):
        export_commands.bring_back(here, this, paths, is_sure=False if dry_run else yes or None, as_json=as_json)
        return
    plan = Plan(_stores(paths or [], system, this), this, here.config)
    _look_and_import(here, this, plan, again, as_json, is_sure=False if dry_run else yes or None)


def offer(here: Here, folder: Path) -> None:
    """Tell what could be imported into the project of this folder, and at a terminal ask about it; nothing where there is nothing."""
    from confide_proxy.importing.plan import Plan

    this = projects.identify(folder)
    stores = _stores([], None, this)
    if not stores:
        return
    more = f" and {len(stores) - _OFFERED} more" if len(stores) > _OFFERED else ""
    named = ", ".join(store.shown for store in stores[:_OFFERED])
    err.print(f"there are other memories: {named}{more}; to look at them: confide import", markup=False)
    if sys.stdin.isatty() and sys.stdout.isatty() and typer.confirm("look at them now?", err=True):
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
    from confide_proxy.importing import detection
    from confide_proxy.importing.plan import stores_at

    if paths:
        return stores_at(list(dict.fromkeys(map(_existing, paths))), system)
    if system is not None:
        stores_at([], system)
        return [one for one in detection.in_project(this) if one.reader.name == system] + detection.in_home(
            Path.home(), system
        )
    return detection.in_project(this) + detection.in_home(Path.home())


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
    from confide_proxy.client import Client
    from confide_proxy.importing.delivery import deliver
    from confide_proxy.progress import SyncProgress

    async with Client(here.paths, here.config, this) as client:
        link, sealing = client.connection, client.sealing
        if is_sure is None or not is_sure:
            outcome = await deliver(plan, link, sealing, is_dry=True, again=again)
            may_ask = is_sure is None and sys.stdin.isatty() and not as_json
            if may_ask:
                out.print(_counts(outcome), markup=False)
                is_sure = bool(outcome.states["new"]) and await confirmed(f"import into {this.name}?")
            if not is_sure:
                _show(plan, this, outcome, as_json, is_dry=True)
                if is_sure is None or may_ask:
                    err.print("nothing was imported; --yes imports without asking", markup=False)
                return
        with SyncProgress(err) as bar:
            outcome = await deliver(
                plan, link, sealing, again=again, progress=lambda done, total: bar.follow(done, total, "notes")
            )
            report = await client.sync()  # the notes are files, and these are on disk now
    _show(plan, this, outcome, as_json, is_dry=False)
    for item in report.skipped[:_SHOWN]:
        err.print(f"skipped {item['path']}: {item['reason']}", markup=False)


def _preview(surveys: list[Survey], this: Project) -> None:
    width = max((len(survey.store.shown) for survey in surveys), default=0)
    for survey in surveys:
        out.print(f"{survey.store.shown:<{width}}  {_line(survey, this)}", markup=False)
        for title in survey.titles[:3]:
            out.print(f"    {title}", markup=False)
        for skipped in survey.losses.named[:_SHOWN]:
            err.print(f"skipped {skipped.origin}: {skipped.reason}", markup=False)
        if survey.losses.count > _SHOWN:
            err.print(f"and {survey.losses.count - _SHOWN} more were skipped", markup=False)


def _line(survey: Survey, this: Project) -> str:
    parts = [f"{survey.store.reader.title}: {_notes(survey.notes)}"]
    if set(survey.projects) - {this.name}:
        parts.append(f"for {_named(survey.projects)}")
    if survey.categories:
        parts.append(_named(survey.categories))
    if survey.levels:
        parts.append(f"importance {_named(survey.levels)}")
    if survey.tags:
        parts.append(f"tags {_named(survey.tags)}")
    if survey.losses.count:
        parts.append(f"{survey.losses.count} skipped")
    if survey.problem:
        parts.append(survey.problem)
    return "; ".join(parts)


def _named(counter: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count}" for name, count in counter.most_common(4))
    return f"{shown}, …" if len(counter) > 4 else shown


def _notes(count: int) -> str:
    return "1 note" if count == 1 else f"{count:,} notes"


def _counts(outcome: Outcome) -> str:
    words = _TOLD | {"known": _TOLD["known"] + outcome.known_elsewhere}
    told = [f"{outcome.states[state]:,} {what}" for state, what in words.items() if outcome.states[state]]
    sealed = f"; credentials in it, which are sealed: {outcome.sealed:,}" if outcome.sealed else ""
    return f"{_notes(outcome.done)}: {', '.join(told)}{sealed}"


def _show(plan: Plan, this: Project, outcome: Outcome, as_json: bool, *, is_dry: bool) -> None:
    if as_json:
        print_json(_as_json(plan, this, outcome, is_dry=is_dry))
        return
    out.print(_counts(outcome), markup=False)
    for one in outcome.refused[:_SHOWN]:
        err.print(f"refused {one.origin}: {one.reason}", markup=False)
    if not is_dry and outcome.states["new"]:
        others = sorted(outcome.projects - {this.name})
        where = f"{', '.join(others)}, on the daemon" if this.name not in outcome.projects else "memory/notes"
        out.print(f"imported {_notes(outcome.states['new'])} into {where}", markup=False)


def _as_json(plan: Plan, this: Project, outcome: Outcome, *, is_dry: bool) -> dict[str, Any]:
    return {
        "project": this.name,
        "dryRun": is_dry,
        "stores": [survey.as_json() for survey in plan.surveys],
        "results": outcome.as_json(),
        "refused": [{"origin": one.origin, "reason": one.reason} for one in outcome.refused],
        "sealed": outcome.sealed,
    }


def _nothing(plan: Plan, this: Project, as_json: bool) -> None:
    from confide_proxy.importing.delivery import Outcome

    failures = [survey.failure for survey in plan.surveys if survey.failure]
    if len(failures) == len(plan.stores) == 1:
        raise failures[0]
    if as_json:
        print_json(_as_json(plan, this, Outcome(), is_dry=True))
    elif not failures:
        err.print("nothing to import was found; name files or folders: confide import notes/ export.json", markup=False)
