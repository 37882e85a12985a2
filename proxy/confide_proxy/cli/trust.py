"""`confide trust`: a person vouches for what a file or a note of memory says now (docs/classes.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_memory.answers import ask
from confide_memory.documents import GLOBAL_PROJECT
from confide_proxy.cli.completion import memory_paths
from confide_proxy.cli.console import (
    DEADLINE_S,
    Here,
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
)
from confide_proxy.cli.search import document_of
from confide_proxy.errors import DeclinedError

_SHOWN: Final = 40
"""Lines of a document that are shown before the question."""
_MOST_CHARS: Final = 160
IsGlobal = Annotated[bool, typer.Option("--global", "-g", help="In the memory that all projects share.")]


@command
async def trust(
    here: Here,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH|ID...", help="As confide ls or a search shows it.", autocompletion=memory_paths),
    ],
    is_global: IsGlobal = False,
    project: ProjectDir = Path(),
) -> Output:
    """Trust what a file or a note says now, after a look at it: agents may be shown it unasked. Asks at a terminal, always."""
    if not sys.stdin.isatty():
        # There is no --yes: an agent that runs commands must not vouch for what it has read.
        raise DeclinedError(
            "nobody is here to be asked", hint="a person runs it in a terminal; there is no option for it"
        )
    this = await identified(here, project)
    own = GLOBAL_PROJECT if is_global else this.name
    done: list[dict[str, Any]] = []
    async with here.client(this) as client:
        await client.files.compare()
        for name, path in dict.fromkeys([await document_of(client, each, own) for each in paths]):
            of_file = {"project": name, "path": path}
            looked = await ask(client.connection, "trust", of_file, timeout_s=DEADLINE_S)
            if not looked["doubted"]:
                done.append({"path": path, "class": looked["class"], "trusted": False})
                continue
            text = (await ask(client.connection, "pull", of_file, timeout_s=DEADLINE_S))["text"]
            _show(path, text, looked["doubted"])
            await agreed(f"Trust {path} as it is now", is_sure=False)
            # Of just this text: it is refused where another one is there by now.
            answer = await ask(client.connection, "trust", {**of_file, "hash": looked["hash"]}, timeout_s=DEADLINE_S)
            done.append({"path": path, "class": answer["class"], "trusted": answer["trusted"]})

    def tell() -> None:
        for each in done:
            if each["trusted"]:
                row(f"{each['path']} is trusted as it is now: {each['class']}")
            else:
                remark(f"{each['path']} is {each['class']} already; there is nothing to trust")

    return Output({"project": own, "documents": done}, tell)


def _show(path: str, text: str, doubted: list[dict[str, Any]]) -> None:
    """The lines that would be trusted, each with its number, and why they are not."""
    lines = text.split("\n")
    left = _SHOWN
    say(f"{path}:")
    for one in doubted:
        first, last = one["first"], min(one["last"], len(lines))
        where = "its name" if not first else f"line {first}" if first == last else f"lines {first} to {last}"
        say(f"  {where}: {one['why']}")
        for number in range(first, last + 1) if first and left > 0 else ():
            say(f"  {number:>5}  {one_line(lines[number - 1])[:_MOST_CHARS]}")
            left -= 1
            if left <= 0:
                say(f"         … of {counted(len(lines), 'line')}; all of it: confide read {path}")
                break
