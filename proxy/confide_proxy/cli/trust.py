"""The command `confide trust`: the user confirms that the present text of a file or note may be
shown to agents unasked (docs/agents.md).
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import RequestError
from confide_memory import front_matter
from confide_memory.classes import UNTRUSTED
from confide_memory.commands.doing import doing
from confide_memory.commands.progress import Progress
from confide_memory.documents import GLOBAL_PROJECT, task_of
from confide_memory.forms import MAX_LISTED
from confide_memory.globs import fixed_part, is_glob, matches
from confide_memory.note_names import is_id
from confide_memory.wire.files import PULL
from confide_memory.wire.revisions import DOCUMENTS, TRUST, DocumentItem, DocumentsRequest, Doubt, TrustRequest
from confide_proxy.cli.completion import PathsOf
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    ask_confirmation,
    can_ask,
    command,
    count_noun,
    one_line,
    project_of,
    remark,
    require_consent,
    row,
    say,
    shown,
)
from confide_proxy.cli.search import document_of
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import DeclinedError
from confide_proxy.mcp.client import CommandClient

_SHOWN: Final = 40
"""Lines of a document that are shown before the question."""
_MOST_CHARS: Final = 160
_MOST_PAGES: Final = 10
"""Pages of documents that one command looks through: 5,000 documents."""


@command
async def trust(
    here: CommandContext,
    paths: PathsOf,
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """Show the present text of files or notes, ask at a terminal, and trust it: hooks may show it
    to agents.
    """
    if not sys.stdin.isatty():
        # There is no --yes: an agent that runs commands must not vouch for texts that it has read.
        raise DeclinedError(
            "this needs an answer, and there is no terminal to ask in",
            hint="a person runs it in a terminal; there is no option for it",
        )
    this = await project_of(here, project)
    own = GLOBAL_PROJECT if is_global else this.name
    paths = [to_project_path(here, project, path) for path in paths]
    async with here.client(this) as client:
        await client.files.compare()
        done, doubts = await _looked_at(
            client, [one for each in paths for one in await _find_documents(client, each, own)]
        )
        if doubts:
            await _show(doubts)
            await require_consent(_question(doubts), is_sure=False)
        done += await _trust_texts(client, doubts)

    def print_text() -> None:
        for each in done:
            if each["trusted"]:
                row(f"{each['path']} is trusted as it is now: {each['class']}")
            else:
                remark(f"{each['path']} is {each['class']} already; there is nothing to trust")

    return Output({"project": own, "documents": done}, print_text)


async def offer(client: CommandClient, projects: Iterable[str], path: str, *, ids: Collection[str] = ()) -> bool:
    """Offer at a terminal to look at the untrusted documents below a folder, in some projects, and
    to trust all of them with one yes.

    Args:
        path: the folder; "" for all documents.
        ids: offer only notes with these ids; empty for all documents.

    Returns False if nothing was asked.
    """
    if not can_ask():
        return False
    untrusted = [(name, one) for name in projects for one in await _list_untrusted(client, name, path)]
    # Results of tasks are accepted by their own command.
    found = [
        (name, one["path"]) for name, one in untrusted if (not ids or one["id"] in ids) and task_of(one["path"]) is None
    ]
    if not found:
        return False
    is_one = len(found) == 1
    said = count_noun(len(found), "file is untrusted and comes", "files are untrusted and come")
    them = "it" if is_one else "them"
    if not await ask_confirmation(f"{said} to an agent only when it searches; look at {them}, to trust {them}?"):
        later = found[0][1] if is_one else path or "'**/*.md'"
        remark(f"to do it later: confide trust {later}")
        return True
    _, doubts = await _looked_at(client, found)
    if doubts:
        await _show(doubts)
        if await ask_confirmation(f"{_question(doubts)}?"):
            row(f"trusted: {count_noun(len(await _trust_texts(client, doubts)), 'file')}")
    return True


class _Doubt(NamedTuple):
    """An untrusted text: the request that trusts it, and the lines to show to the user."""

    of_file: TrustRequest
    lines: list[str]


async def _looked_at(
    client: CommandClient, places: Iterable[tuple[str, str]]
) -> tuple[list[dict[str, object]], list[_Doubt]]:
    """Return the results for the trusted ones among the documents, each a project and a path, and
    what is untrusted of the others.
    """
    done: list[dict[str, object]] = []
    doubts: list[_Doubt] = []
    each_once = dict.fromkeys(places)
    with Progress() as bar:
        for number, (name, path) in enumerate(each_once, 1):
            looked = await TRUST.ask(client.connection, {"project": name, "path": path}, timeout_s=DEADLINE_S)
            bar.follow(number, len(each_once), "files")
            if not looked["doubted"]:
                done.append({"path": path, "class": looked["class"], "trusted": False})
                continue
            text = (await PULL.ask(client.connection, {"project": name, "path": path}, timeout_s=DEADLINE_S))["text"]
            of_file: TrustRequest = {"project": name, "path": path, "hash": looked["hash"]}
            doubts.append(_Doubt(of_file, list(_lines(path, text, looked["doubted"]))))
    return done, doubts


def _question(doubts: Sequence[_Doubt]) -> str:
    is_one = len(doubts) == 1
    what = doubts[0].of_file["path"] if is_one else count_noun(len(doubts), "file")
    return f"Trust {what} as {'it is' if is_one else 'they are'} now"


async def _trust_texts(client: CommandClient, doubts: Iterable[_Doubt]) -> list[dict[str, object]]:
    """Trust the texts that were shown. Each request names its text: the daemon refuses it if the
    document has changed.
    """
    done: list[dict[str, object]] = []
    for each in doubts:
        answer = await TRUST.ask(client.connection, each.of_file, timeout_s=DEADLINE_S)
        done.append({"path": each.of_file["path"], "class": answer["class"], "trusted": answer["trusted"]})
    return done


async def _find_documents(client: CommandClient, name: str, project: str) -> list[tuple[str, str]]:
    """Return project and path of the named document, or of the untrusted ones in a folder or of a
    glob.

    Raises RequestError if there are none; ToolError if no note, or more than one, has that id.
    """
    if is_id(name) or (not is_glob(name) and name.endswith(".md")):
        return [await document_of(client, name, project)]
    meant = [one for one in await _list(client, project, fixed_part(name)) if matches(one["path"], name)]
    if not meant:
        raise RequestError("not_found", f"there is no file {name} in {project}", "confide ls shows what there is")
    found = [one["path"] for one in meant if one["class"] == UNTRUSTED]
    if not found:
        raise RequestError("not_found", f"nothing in {name} is untrusted", "confide ls shows what is")
    return [(project, path) for path in found]


async def _list_untrusted(client: CommandClient, project: str, path: str) -> list[DocumentItem]:
    """Return the untrusted documents in a folder, those that were changed last first."""
    return [one for one in await _list(client, project, path) if one["class"] == UNTRUSTED]


async def _list(client: CommandClient, project: str, path: str) -> list[DocumentItem]:
    """Return the documents in a folder, those that were changed last first."""
    found: list[DocumentItem] = []
    total = 0
    for _ in range(_MOST_PAGES):
        body: DocumentsRequest = {"project": project, "path": path, "limit": MAX_LISTED, "offset": len(found)}
        answer = await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S)
        found += answer["documents"]
        total = answer["total"]
        # A daemon of before 0.3.0 knows no offset and has one page only.
        if not answer["documents"] or len(found) >= total or answer["offset"] is None:
            break
    if len(found) < total and any(one["class"] == UNTRUSTED for one in found):
        remark(f"note: there are {total:,} files; these are of the {len(found):,} that were changed last")
    return found


async def _show(doubts: Iterable[_Doubt]) -> None:
    """Print the lines that would be trusted, through a pager if they exceed the terminal."""
    lines = [line for each in doubts for line in each.lines]
    if len(lines) < shutil.get_terminal_size().lines:
        say("\n".join(lines))
    else:
        import pydoc  # loads much, and other commands import this module

        with doing.pause():
            # In a thread: the user may read for longer than a link survives without a keepalive.
            await asyncio.to_thread(pydoc.pager, shown("\n".join(lines) + "\n"))


def _lines(path: str, text: str, doubted: list[Doubt]) -> Iterator[str]:
    """Yield the lines of a text that would be trusted, each with its number and why it is
    untrusted; front matter as one line.
    """
    lines = text.split("\n")
    head = front_matter.split(text)[0].count("\n")
    left = _SHOWN
    yield f"{path}:"
    for one in doubted:
        first, last = one["first"], min(one["last"], len(lines))
        where = "its name" if not first else f"line {first}" if first == last else f"lines {first} to {last}"
        yield f"  {where}: {one['why']}"
        if first == 1 and head and left > 0:
            yield f"         {one_line(', '.join(map(str.strip, lines[1 : head - 1])))[: 4 * _MOST_CHARS]}"
            first = head + 1
        for number in range(first, last + 1) if first and left > 0 else ():
            if not lines[number - 1].strip():
                continue
            yield f"  {number:>5}  {one_line(lines[number - 1])[:_MOST_CHARS]}"
            left -= 1
            if left <= 0:
                yield f"         … of {count_noun(len(lines), 'line')}; all of it: confide read {path}"
                break
