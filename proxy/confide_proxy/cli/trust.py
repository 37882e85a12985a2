"""The command `confide trust`: the user vouches for the present text of a file or note
(docs/agents.md).
"""

from __future__ import annotations

import asyncio
import pydoc
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_crypto.errors import RequestError
from confide_memory.classes import UNTRUSTED
from confide_memory.commands.doing import doing
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.forms import MAX_LISTED
from confide_memory.globs import fixed_part, is_glob, matches
from confide_memory.note_names import is_id
from confide_memory.wire.files import PULL
from confide_memory.wire.revisions import DOCUMENTS, TRUST, DocumentsRequest, Doubt, TrustRequest
from confide_proxy.cli.completion import PathsOf
from confide_proxy.cli.console import (
    DEADLINE_S,
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    agreed,
    command,
    counted,
    identified,
    one_line,
    remark,
    row,
    say,
    shown,
)
from confide_proxy.cli.search import document_of
from confide_proxy.errors import DeclinedError

if TYPE_CHECKING:
    from confide_proxy.mcp.client import CommandClient

_SHOWN: Final = 40
"""Lines of a document that are shown before the question."""
_MOST_CHARS: Final = 160


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
    this = await identified(here, project)
    own = GLOBAL_PROJECT if is_global else this.name
    done: list[dict[str, object]] = []
    doubts: list[_Doubt] = []
    async with here.client(this) as client:
        await client.files.compare()
        for name, path in dict.fromkeys([one for each in paths for one in await _meant(client, each, own)]):
            looked = await TRUST.ask(client.connection, {"project": name, "path": path}, timeout_s=DEADLINE_S)
            if not looked["doubted"]:
                done.append({"path": path, "class": looked["class"], "trusted": False})
                continue
            text = (await PULL.ask(client.connection, {"project": name, "path": path}, timeout_s=DEADLINE_S))["text"]
            doubts.append(
                _Doubt(
                    {"project": name, "path": path, "hash": looked["hash"]}, list(_lines(path, text, looked["doubted"]))
                )
            )
        if doubts:
            await _show([line for each in doubts for line in each.lines])
            what = doubts[0].of_file["path"] if len(doubts) == 1 else counted(len(doubts), "file")
            await agreed(f"Trust {what} as {'it is' if len(doubts) == 1 else 'they are'} now", is_sure=False)
        for each in doubts:
            # The request names this very text: the daemon refuses it if the document has changed.
            answer = await TRUST.ask(client.connection, each.of_file, timeout_s=DEADLINE_S)
            done.append({"path": each.of_file["path"], "class": answer["class"], "trusted": answer["trusted"]})

    def print_text() -> None:
        for each in done:
            if each["trusted"]:
                row(f"{each['path']} is trusted as it is now: {each['class']}")
            else:
                remark(f"{each['path']} is {each['class']} already; there is nothing to trust")

    return Output({"project": own, "documents": done}, print_text)


class _Doubt(NamedTuple):
    """An untrusted text: the request that trusts it, and the lines to show to the user."""

    of_file: TrustRequest
    lines: list[str]


async def _meant(client: CommandClient, name: str, project: str) -> list[tuple[str, str]]:
    """Return project and path of the named document, or of the untrusted ones in a folder or of a
    glob.

    Raises RequestError if there are none, and ToolError as `document_of`.
    """
    if is_id(name) or (not is_glob(name) and name.endswith(".md")):
        return [await document_of(client, name, project)]
    body: DocumentsRequest = {"project": project, "path": fixed_part(name), "limit": MAX_LISTED}
    answer = await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S)
    if answer["total"] > MAX_LISTED:
        remark(f"note: there are {answer['total']:,} files; these are of the {MAX_LISTED} that were changed last")
    found = [each["path"] for each in answer["documents"] if each["class"] == UNTRUSTED and matches(each["path"], name)]
    if not found:
        raise RequestError("not_found", f"nothing in {name} is untrusted", "confide ls shows what is")
    return [(project, path) for path in found]


async def _show(lines: list[str]) -> None:
    """Print the lines that would be trusted, through a pager if they exceed the terminal."""
    if len(lines) < shutil.get_terminal_size().lines:
        say("\n".join(lines))
    else:
        with doing.paused():
            # In a thread: the user may read for longer than a link survives without a keepalive.
            await asyncio.to_thread(pydoc.pager, shown("\n".join(lines)))


def _lines(path: str, text: str, doubted: list[Doubt]) -> Iterator[str]:
    """Yield the lines of a text that would be trusted, each with its number and why it is
    untrusted.
    """
    lines = text.split("\n")
    left = _SHOWN
    yield f"{path}:"
    for one in doubted:
        first, last = one["first"], min(one["last"], len(lines))
        where = "its name" if not first else f"line {first}" if first == last else f"lines {first} to {last}"
        yield f"  {where}: {one['why']}"
        for number in range(first, last + 1) if first and left > 0 else ():
            yield f"  {number:>5}  {one_line(lines[number - 1])[:_MOST_CHARS]}"
            left -= 1
            if left <= 0:
                yield f"         … of {counted(len(lines), 'line')}; all of it: confide read {path}"
                break
