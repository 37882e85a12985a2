"""`confide import`: imports memories of other systems, and markdown and JSON files, as notes
(docs/importing.md).

`confide export`: exports a space to a folder of markdown files, from which `import` restores
missing documents.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import RequestError
from confide_memory.commands.progress import Progress
from confide_memory.documents import GLOBAL_PROJECT, NOTES, local_time, to_nfc
from confide_memory.forms import MAX_LISTED
from confide_memory.wire.revisions import DOCUMENTS, HISTORY, PROJECTS, DocumentItem, DocumentsRequest, HistoryRequest
from confide_proxy.cli import trust
from confide_proxy.cli.console import (
    DEADLINE_S,
    AsJson,
    CommandContext,
    Output,
    ProjectDir,
    ask_confirmation,
    ask_yes_no,
    command,
    count_noun,
    print_json,
    project_of,
    remark,
    require_consent,
    row,
    say,
)
from confide_proxy.errors import DeclinedError, ToolError, UnreadableError
from confide_proxy.mcp.client import CommandClient
from confide_proxy.offline.operations import new_meta
from confide_proxy.sync import project as projects
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import extra_of
from confide_transfer.errors import ExportError
from confide_transfer.local import import_log
from confide_transfer.local import plan as plans
from confide_transfer.local.export import export_manifest, tree
from confide_transfer.local.export.tree import ExportReport
from confide_transfer.local.import_delivery import ImportOutcome, deliver
from confide_transfer.local.import_log import PastImport
from confide_transfer.local.plan import ImportPlan, ImportSource, Survey, stores_at

_OFFERED: Final = 5
_NOTES_FOLDER: Final = NOTES.rstrip("/")
_SHOWN: Final = 10
"""Number of skipped or refused items that are printed; `--json` lists more."""
_SHOWN_FAILURES: Final = 5
_TOLD: Final = {
    "new": "new",
    "known": "imported before",
    "identical": "the same as a note that is there",
    "deleted": "deleted since they were imported (--again brings them back)",
    "refused": "refused",
}
_BROUGHT: Final = {
    "new": "new",
    "same": "there already",
    "differs": "there with another text, which stays",
    "refused": "refused",
    "transcript": "transcripts, which come from their own devices",
}
_NOT_IMPORTED: Final = "nothing was imported; --yes imports without asking"


@command
async def export(
    here: CommandContext,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one that an earlier export is in.")],
    transcripts: Annotated[bool, typer.Option("--transcripts", help="Transcripts as well.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PROJECT", help="This project alone; again.")
    ] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Write all memory of the space to a folder: markdown files by project, and every note as a
    line of JSON.
    """
    this = await project_of(here, project)
    _check_outside(here, this, folder)
    async with here.client(this) as client:
        # The export includes files that were just saved.
        await client.files.compare()
        answer = await PROJECTS.ask(client.connection, {"project": this.name}, timeout_s=DEADLINE_S)
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

    def print_text() -> None:
        sealed = f", and {count_noun(report.secrets, 'sealed secret')}" if report.secrets else ""
        say(f"{_files(report)} in {folder}, {count_noun(report.notes, 'note')} among them{sealed}")
        _print_skipped(report)

    data = {
        "folder": str(folder),
        "files": report.files,
        "notes": report.notes,
        "projects": report.projects,
        "secrets": report.secrets,
        "skipped": report.skipped_files,
    }
    return Output(data, print_text)


def _files(report: ExportReport) -> str:
    return f"{count_noun(report.files, 'file')} of {count_noun(report.projects, 'project')}"


def _print_skipped(report: ExportReport) -> None:
    for item in report.skipped_files:
        remark(f"left out: {item['path']} [{item['project']}]: {item['reason']}")


def _check_outside(here: CommandContext, project: Project, into: Path) -> None:
    """Refuse a folder that is synced as memory: each export would include the earlier ones."""
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
        if place.is_relative_to(root) and one.could_hold(to_nfc(place.relative_to(root).as_posix())):
            raise ExportError(f"{into} is watched for memory", hint="name a folder outside of memory/")


@dataclass(frozen=True, slots=True)
class _ImportRequest:
    """The options of an import; `is_sure` is False for a preview only, None to ask the user."""

    here: CommandContext
    this: Project
    is_sure: bool | None = None
    as_json: bool = False
    again: bool = False

    @property
    def may_ask(self) -> bool:
        """Return True if the user has to confirm, and is at a terminal."""
        return self.is_sure is None and sys.stdin.isatty() and not self.as_json


def import_memories(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Files, folders or stores; what is found, if left out.", show_default=False
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The tool that wrote them; detected if left out.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Import without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported, and store nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was imported once and deleted since.")] = False,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Delete the notes that came from there; without PATH, those of the last import."),
    ] = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Import notes from other tools: shows a preview first, and adds only what is new."""
    here: CommandContext = context.obj
    this = asyncio.run(project_of(here, project))
    asked = _ImportRequest(here, this, False if dry_run else yes or None, as_json, again)
    if undo and not paths and system is None:
        _finish(asyncio.run(_undo_last(asked, is_dry=dry_run, is_sure=yes)), as_json=as_json)
        return
    if paths and system is None and not undo and any(export_manifest.is_tree(path) for path in paths):
        _bring_back(asked, paths)
        return
    plan = ImportPlan(_stores(paths or [], system, this), this, here.config)
    if not undo:
        _look_and_import(asked, plan)
        return
    plan.survey()
    _finish(asyncio.run(_undo(asked, plan, is_dry=dry_run, is_sure=yes)), as_json=as_json)


def _finish(result: tuple[dict[str, object], int], *, as_json: bool) -> None:
    data, code = result
    if as_json:
        print_json(data)
    if code:
        raise typer.Exit(code)


def offer(here: CommandContext, folder: Path) -> None:
    """Offer to import memories of other tools that exist for this folder's project, and ask at a
    terminal. Print nothing if there are none.
    """
    stores = _stores([], None, projects.identify(folder).grant())
    if not stores:
        return
    more = f" and {len(stores) - _OFFERED} more" if len(stores) > _OFFERED else ""
    named = ", ".join(store.label for store in stores[:_OFFERED])
    remark(f"there are other memories: {named}{more}; to look at them: confide import")
    if sys.stdin.isatty() and sys.stdout.isatty() and ask_yes_no("look at them now?"):
        this = asyncio.run(project_of(here, folder))
        _look_and_import(_ImportRequest(here, this), ImportPlan(stores, this, here.config))


def _stores(paths: list[Path], system: str | None, this: Project) -> list[ImportSource]:
    if paths:
        return stores_at(list(dict.fromkeys(map(_existing, paths))), system)
    if system is not None:
        stores_at([], system)
        found = [one for one in plans.to_project_path(this) if one.reader.name == system]
        return found + plans.in_home(Path.home(), system)
    return plans.to_project_path(this) + plans.in_home(Path.home())


def _existing(path: Path) -> Path:
    # A symlink that the user typed is followed; symlinks inside a folder are not.
    try:
        return path.expanduser().resolve()
    except RuntimeError as error:  # no such user, or links in a circle
        raise UnreadableError(path, f"leads nowhere ({error})") from None


def _look_and_import(asked: _ImportRequest, plan: ImportPlan) -> None:
    surveys = plan.survey()
    if not asked.as_json:
        _preview(surveys, asked.this)
    if plan.notes:
        asyncio.run(_carry_out(asked, plan))
        return
    failures = [survey.failure for survey in surveys if survey.failure]
    if len(failures) == len(surveys) == 1:
        raise failures[0]
    if asked.as_json:
        print_json({"project": asked.this.name, "dryRun": True, **ImportOutcome().to_json(plan)})
    elif not failures:
        remark("nothing to import was found; name files or folders: confide import notes/ export.json")


async def _carry_out(asked: _ImportRequest, plan: ImportPlan) -> None:
    is_told, is_sure = "", asked.is_sure
    async with asked.here.client(asked.this) as client:
        link, sealing = client.connection, client.sealing
        if not is_sure:
            outcome = await deliver(plan, link, sealing, is_dry=True, again=asked.again)
            if asked.may_ask:
                is_told = _counts(outcome)
                say(is_told)
                is_sure = bool(outcome.states["new"]) and await ask_confirmation(f"import into {asked.this.name}?")
            if not is_sure:
                _show(asked, plan, outcome, is_dry=True, is_told=is_told)
                if asked.is_sure is None:
                    remark(_NOT_IMPORTED)
                return
        with Progress() as bar:
            outcome = await deliver(
                plan, link, sealing, again=asked.again, progress=lambda done, total: bar.follow(done, total, "notes")
            )
            report = await client.files.compare()  # the notes are files, and these are on disk now
        _show(asked, plan, outcome, is_dry=False, is_told=is_told)
        for item in report.skipped[:_SHOWN]:
            remark(f"skipped {item['path']}: {item['reason']}")
        if outcome.ids and not asked.as_json:
            is_asked = asked.is_sure is None and await trust.offer(
                client, sorted(outcome.projects), _NOTES_FOLDER, ids=set(outcome.ids)
            )
            if not is_asked:
                remark(
                    f"searches find them; they are added to prompts once you trust them: confide trust {_NOTES_FOLDER}"
                )


def _preview(surveys: list[Survey], this: Project) -> None:
    width = max((len(survey.store.label) for survey in surveys), default=0)
    for survey in surveys:
        row(f"{survey.store.label:<{width}}  {_line(survey, this)}")
        for title in survey.titles[:3]:
            row(f"    {title}")
        for skipped in survey.losses.skips[:_SHOWN]:
            remark(f"skipped {skipped.origin}: {skipped.reason}")
        if survey.losses.count > _SHOWN:
            remark(f"and {survey.losses.count - _SHOWN} more were skipped")


def _line(survey: Survey, this: Project) -> str:
    parts = (
        f"{survey.store.reader.title}: {count_noun(survey.notes, 'note')}",
        f"for {_join_counts(survey.projects)}" if set(survey.projects) - {this.name} else "",
        _join_counts(survey.categories),
        f"importance {_join_counts(survey.levels)}" if survey.levels else "",
        f"tags {_join_counts(survey.tags)}" if survey.tags else "",
        *survey.remarks,
    )
    return "; ".join(filter(None, parts))


def _join_counts(counter: Counter[str]) -> str:
    shown = ", ".join(f"{name} {count}" for name, count in counter.most_common(4))
    return f"{shown}, …" if len(counter) > 4 else shown


def _counts(outcome: ImportOutcome) -> str:
    words = _TOLD | {"known": _TOLD["known"] + outcome.known_in_others}
    lines = [f"{outcome.states[state]:,} {what}" for state, what in words.items() if outcome.states[state]]
    sealed = f"; credentials in it, which are sealed: {outcome.sealed:,}" if outcome.sealed else ""
    return f"{count_noun(outcome.done, 'note')}: {', '.join(lines)}{sealed}"


def _show(asked: _ImportRequest, plan: ImportPlan, outcome: ImportOutcome, *, is_dry: bool, is_told: str) -> None:
    """Print the result; `is_told` are the counts that the user has seen already."""
    if asked.as_json:
        twins = [{"origin": origin, "id": identity or None} for origin, identity in outcome.twins]
        print_json({"project": asked.this.name, "dryRun": is_dry, **outcome.to_json(plan), "identical": twins})
        return
    if (counts := _counts(outcome)) != is_told:
        say(counts)
    for one in outcome.refused[:_SHOWN]:
        remark(f"refused {one.origin}: {one.reason}")
    for origin, identity in outcome.twins[:_SHOWN]:
        other = f"confide read {identity}" if identity else "another one of these"
        remark(f"not stored, since a note says just this: {origin}; it is {other}")
    if not is_dry and outcome.states["new"]:
        say(f"imported {count_noun(outcome.states['new'], 'note')}: {_places(outcome, asked.this)}")


def _places(outcome: ImportOutcome, this: Project) -> str:
    """Return where the new notes are: as files here for this project, at the daemon for others."""
    own = outcome.projects[this.name]
    others = [
        f"{count:,} into the project {name}" for name, count in sorted(outcome.projects.items()) if name != this.name
    ]
    return ", ".join([f"{own:,} into {_NOTES_FOLDER}"] * bool(own) + others)


async def _undo(
    asked: _ImportRequest, plan: ImportPlan, *, is_dry: bool, is_sure: bool
) -> tuple[dict[str, object], int]:
    """Delete the notes of a surveyed plan, and return the result for `--json` and the exit code.

    Each note is found by its origin, independent of who imported it and of later edits.
    """
    deleted: list[str] = []
    failed: list[dict[str, str]] = []
    async with asked.here.client(asked.this) as client:
        outcome = await deliver(plan, client.connection, client.sealing, is_dry=True)
        known = outcome.states["known"]
        if known and not is_dry:
            question = f"delete {count_noun(known, 'note')} that came from there? They can be restored for a while"
            await require_consent(question, is_sure=is_sure)
            with Progress() as bar:
                for number, identity in enumerate(plan.ids, 1):
                    await _delete(client, identity, deleted, failed)
                    bar.follow(number, len(plan.ids), "notes")
            await client.files.compare()
    if not asked.as_json:
        if is_dry or not known:
            row(f"{count_noun(known, 'note')} of {asked.this.name} and others came from there")
        else:
            _print_deleted(deleted, failed)
    data = {"project": asked.this.name, "dryRun": is_dry, "known": known, "deleted": deleted, "failed": failed}
    return data, 7 if failed else 0


def _print_deleted(deleted: list[str], failed: list[dict[str, str]]) -> None:
    row(f"deleted {count_noun(len(deleted), 'note')}; they come back with: confide restore --since 1h")
    for one in failed[:_SHOWN_FAILURES]:
        remark(f"not deleted: {one['id']}: {one['why']}")
    if len(failed) > _SHOWN_FAILURES:
        remark(f"and {len(failed) - _SHOWN_FAILURES:,} more were not deleted")


async def _undo_last(asked: _ImportRequest, *, is_dry: bool, is_sure: bool) -> tuple[dict[str, object], int]:
    """Delete what the last import of this device stored, except the notes that were edited since;
    return the result for `--json` and the exit code.

    Raises RequestError if no import is known, or if the last one was undone.
    """
    deleted: list[str] = []
    failed: list[dict[str, str]] = []
    async with asked.here.client(asked.this) as client:
        await client.files.compare()  # so that the latest edits count
        last = await asyncio.to_thread(import_log.newest, asked.here.paths.state, client.sealing.keyring.space)
        if last is None:
            hint = "name the files, folders or stores whose notes to delete: confide import PATH --undo"
            raise RequestError("not_found", "this device knows of no import", hint)
        what = f"the import of {local_time(last.at)} from {', '.join(last.sources)}"
        if last.undone:
            hint = "an earlier one: confide import PATH --undo"
            raise RequestError("not_found", f"{what} was undone already, {local_time(last.undone)}", hint)
        there, edited = await _find_unedited(client, last)
        if there and not is_dry:
            question = f"delete {count_noun(len(there), 'note')} of {what}? They can be restored for a while"
            await require_consent(question, is_sure=is_sure)
            with Progress() as bar:
                for number, (identity, revision) in enumerate(there.items(), 1):
                    await _delete(client, identity, deleted, failed, revision=revision)
                    bar.follow(number, len(there), "notes")
            await client.files.compare()
        if not is_dry and not failed:
            await asyncio.to_thread(last.record_undo)
    gone = last.count - len(there) - len(edited)
    if not asked.as_json:
        if is_dry:
            row(f"{count_noun(len(there), 'note')} of {what} would be deleted")
        else:
            _print_deleted(deleted, failed)
        for path in edited[:_SHOWN]:
            remark(f"kept, since it was edited: {path}")
        if len(edited) > _SHOWN:
            remark(f"and {len(edited) - _SHOWN:,} more that were edited")
        if gone:
            remark(f"{count_noun(gone, 'note is', 'notes are')} gone already")
    data = {"project": asked.this.name, "dryRun": is_dry, "importedAt": last.at, "known": len(there)}
    return {**data, "deleted": deleted, "kept": edited, "gone": gone, "failed": failed}, 7 if failed else 0


async def _find_unedited(client: CommandClient, last: PastImport) -> tuple[dict[str, int], list[str]]:
    """Return the notes of an import that are there as it stored them, with their revisions, and the
    paths of those that were edited since.
    """
    there: dict[str, int] = {}
    edited: list[str] = []
    for project, ids in last.ids.items():
        wanted_ids, offset = set(ids), 0
        while True:
            body: DocumentsRequest = {"project": project, "path": _NOTES_FOLDER, "limit": MAX_LISTED}
            body |= {"offset": offset, "sort": "path"}
            page = (await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S))["documents"]
            for each in page:
                if (identity := each["id"] or "") not in wanted_ids:
                    continue
                if await _is_first(client, project, each):
                    there[identity] = each["revision"]
                else:
                    edited.append(each["path"])
            offset += len(page)
            if len(page) < MAX_LISTED:
                break
    return there, edited


async def _is_first(client: CommandClient, project: str, note: DocumentItem) -> bool:
    """Return True if a note has the text that it was made with, or brought back with."""
    if note["revision"] == 1:
        return True
    body: HistoryRequest = {"project": project, "path": note["path"], "limit": 2}
    before = (await HISTORY.ask(client.connection, body, timeout_s=DEADLINE_S))["revisions"][1:]
    return not before or before[0]["deleted"]


async def _delete(
    client: CommandClient,
    identity: str,
    deleted: list[str],
    failed: list[dict[str, str]],
    *,
    revision: int | None = None,
) -> None:
    try:
        arguments = {"id": identity} | ({"expectedRevision": revision} if revision else {})
        answer = await client.call("memory_delete", arguments, more_meta=new_meta())
    except DeclinedError:
        raise
    except (RequestError, ToolError) as error:
        if "no note" not in str(error) and getattr(error, "code", "") != "not_found":
            failed.append({"id": identity, "why": str(error)})
        return
    if answer["deleted"]:
        deleted.append(identity)
    else:
        failed.append({"id": identity, "why": "; ".join(answer["warnings"]) or "it stays"})


def _bring_back(asked: _ImportRequest, trees: list[Path]) -> None:
    """Restore the missing documents of an export."""
    if len(trees) > 1:
        raise ExportError("an export is brought back by itself", hint="name one folder at a time")
    report, is_dry = asyncio.run(_fill(asked, trees[0]))
    if asked.as_json:
        print_json(
            {
                "dryRun": is_dry,
                "files": report.files,
                "projects": report.projects,
                "counts": report.counts,
                "secrets": {"brought": report.secrets, "unopened": report.closed_records},
                "skipped": report.skipped_files,
            }
        )
        return
    _print_counts(report)
    _print_skipped(report)
    if is_dry:
        remark(_NOT_IMPORTED)
    else:
        say(f"done: {count_noun(report.counts.get('new', 0), 'file')} brought back")


def _print_counts(report: ExportReport) -> None:
    said = [f"{report.counts[state]} {what}" for state, what in _BROUGHT.items() if report.counts.get(state)]
    say(f"{_files(report)}: {', '.join(said) or 'none'}")
    if report.secrets:
        say(f"with them: {count_noun(report.secrets, 'sealed secret')}")
    if report.closed_records:
        verb = "is" if report.closed_records == 1 else "are"
        remark(
            f"{count_noun(report.closed_records, 'sealed secret')} {verb} of a space whose devices this device is not among:"
            " what names them comes back, they do not; import on one of its devices"
        )


async def _fill(asked: _ImportRequest, folder: Path) -> tuple[ExportReport, bool]:
    """Return the report of a restore or its preview, and True if it was only a preview."""
    async with asked.here.client(asked.this) as client:
        is_dry = not asked.is_sure
        report = await tree.fill(client.connection, client.sealing, folder, is_dry=is_dry)
        if is_dry and asked.may_ask and report.counts.get("new"):
            _print_counts(report)
            if await ask_confirmation("import them?"):
                is_dry = False
                report = await tree.fill(client.connection, client.sealing, folder, is_dry=False)
        if not is_dry:
            await client.files.compare()
    return report, is_dry
