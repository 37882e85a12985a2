"""The command `confide store`: store a line or a text in a memory file, or a note with fields
(docs/notes.md).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_memory.commands.group import ProgramCommand, parsed_by
from confide_memory.documents import GLOBAL_PROJECT, to_nfc
from confide_proxy.cli.console import (
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    command,
    input_text,
    one_line,
    project_of,
)
from confide_proxy.cli.search import call
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import InputError
from confide_proxy.offline import duplicate_lines
from confide_proxy.offline.operations import is_empty
from confide_proxy.sync.project import Project
from confide_proxy.sync.workspace import folders_of

if TYPE_CHECKING:
    from confide_proxy.offline.journal import QueuedCall


class TakesListItems(ProgramCommand):
    """A command whose text may be a markdown list item: an argument that begins with "- " is not
    read as an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        items = [argument for argument in args if argument.startswith("- ")]
        others = [argument for argument in args if not argument.startswith("- ")]
        return super().parse_args(ctx, [*others, "--", *items] if items else others)


def _field(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar)


@parsed_by(TakesListItems)
@command
def store(
    here: CommandContext,
    content: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - reads it from stdin.")],
    path: Annotated[str | None, typer.Option("--path", help="The file; today's log if left out.")] = None,
    heading: Annotated[str | None, typer.Option("--heading", help="Append below this heading.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file, or the heading's section.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Store a line that is there already once more.")] = False,
    is_global: IsGlobal = False,
    title: Annotated[str | None, _field("--title", help="What it is called.")] = None,
    tag: Annotated[list[str] | None, _field("--tag", "-t", metavar="TAG", help="Again for each.")] = None,
    kind: Annotated[str | None, _field("--type", help="Such as decision.", metavar="TYPE")] = None,
    category: Annotated[str | None, _field("--category", help="Such as facts or people.")] = None,
    entity: Annotated[str | None, _field("--entity", help="Who or what it is about.")] = None,
    importance: Annotated[
        str | None, _field("--importance", metavar="LEVEL", help="core, high, normal, low, or 0 to 1.")
    ] = None,
    keyword: Annotated[
        list[str] | None, _field("--keyword", metavar="WORD", help="Another word to find it by; again for each.")
    ] = None,
    status: Annotated[str | None, _field("--status", help="Such as open or done.")] = None,
    source: Annotated[str | None, _field("--source", help="Where it is from.")] = None,
    sensitive: Annotated[bool, _field("--sensitive", help="Seal the whole text.")] = False,
    related: Annotated[
        list[str] | None, _field("--related-to", metavar="ID", help="A note that it belongs to; again for each.")
    ] = None,
    project: ProjectDir = Path(),
) -> Output:
    """Remember something: a line in today's log, or with a title or a tag a note of its own."""
    fields: dict[str, object] = {
        "title": title,
        "tags": tag,
        "type": kind,
        "category": category,
        "entity": entity,
        "importance": _importance(importance),
        "keywords": keyword,
        "status": status,
        "source": source,
        "sensitive": sensitive or None,
        "relatedTo": related,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    place = {
        "path": to_nfc(to_project_path(here, project, path)) if path else None,
        "heading": heading,
        "mode": "replace" if replace else None,
    }
    place = {name: value for name, value in place.items() if value}
    if fields and place:
        first = {"path": "--path", "heading": "--heading", "mode": "--replace"}[next(iter(place))]
        raise typer.BadParameter("is for files, and a note has a file of its own: leave it out", param_hint=first)
    text = input_text() if content == "-" else content
    if not text.strip():
        raise InputError("the text is empty, so nothing was stored", hint='confide store "what to remember"')
    if any(not one.strip() for one in (*(tag or ()), *(keyword or ()))):
        raise InputError("a tag or a keyword is empty", hint="leave it out, or write a word")
    arguments = {"content": text, **place, **fields} | ({"project": GLOBAL_PROJECT} if is_global else {})
    is_asked = not (again or replace or fields)
    return asyncio.run(_store(here, project, arguments, is_asked=is_asked))


async def _store(here: CommandContext, folder: Path, arguments: dict[str, Any], *, is_asked: bool) -> Output:
    this = await project_of(here, folder, is_written=True)
    if is_asked and (found := await asyncio.to_thread(_find_in_files, here, this, arguments)):
        where = (
            f"{found.path}:{found.line}"
            if found.line
            else f"{found.path} (it waits for the daemon: confide sync --queue)"
        )
        shared = " [global]" if found.project == GLOBAL_PROJECT != this.name else ""
        data = {"path": found.path, "project": found.project, "linesWritten": 0, "line": found.line or None}
        message = f"is there already: {where}{shared}"
        return Output(
            {**data, "queued": False, "warnings": []}, one_line(message), ["hint: --again stores it once more"]
        )
    result = await call(here, this, "memory_store", arguments)
    return Output(result, one_line(_stored_sentence(result)), notes=[*result["warnings"], *_near(result)])


def _find_in_files(
    here: CommandContext, this: Project, arguments: dict[str, Any]
) -> duplicate_lines.LinePosition | None:
    folders = folders_of(here.paths, here.config, this)
    names = frozenset(folder.project for folder in folders)
    if arguments.get("project") or arguments.get("path"):
        # A named project or path is binding.
        folders = [folder for folder in folders if folder.project == arguments.get("project", this.name)]
    waiting: list[QueuedCall] = []
    if not is_empty(here.paths.journal):
        from confide_proxy.offline.journal import Journal

        waiting = Journal(here.paths.journal).waiting(names & {folder.project for folder in folders})
    return duplicate_lines.find(arguments["content"], folders, waiting, path=arguments.get("path"))


def _stored_sentence(result: dict[str, object]) -> str:
    called = result.get("shortId") or result.get("id")
    if not result["linesWritten"] and result["duplicates"]:
        return f"is there already: {result['path']} as note {called}"
    named = f" as note {called}" if called else ""
    revision = f" (revision {result['revision']})" if result["revision"] else ""  # a queued store has no revision
    return f"{'queued for' if result['queued'] else 'stored in'} {result['path']}{named}{revision}"


def _near(result: dict[str, Any]) -> list[str]:
    """Return sentences about notes with nearly the same text, which the user may want to delete."""
    if not result["linesWritten"]:
        return []
    return [
        f"{one['title']} says nearly the same ({one['similarity']:.2f}): {one['path']}" for one in result["duplicates"]
    ]


def _importance(said: str | None) -> float | str | None:
    """Parse an importance as the daemon does.

    It is checked here too: a queued store would be refused later, when no user is there to see it.
    """
    if said is None:
        return None
    from confide_memory.note import IMPORTANCE, importance_of

    try:
        value: float | str = float(said)
    except ValueError:
        value = said
    if importance_of(value) is None:
        raise InputError(f"'{said[:40]}' is no importance", hint=f"0 to 1, or {', '.join(IMPORTANCE)}")
    return value
