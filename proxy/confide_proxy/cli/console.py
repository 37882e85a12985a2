"""Parts that all commands share: their context, running and output (data to stdout, the rest to
stderr), and questions to the user.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast

import typer

from confide_crypto.errors import ConfideError
from confide_memory.commands.console import (
    AsJson,
    Output,
    ask_confirmation,
    ask_yes_no,
    can_ask,
    clock,
    commands,
    count_noun,
    doing,
    json_text,
    note,
    one_line,
    print_json,
    print_output,
    read_line,
    remark,
    row,
    say,
    shown,
    size,
    styled,
    terminal,
    unseen,
    wrap_line,
)
from confide_memory.commands.group import ProgramCommand
from confide_memory.documents import GLOBAL_PROJECT, MAX_TEXT_BYTES
from confide_memory.wire.revisions import DOCUMENTS, PROJECTS, DocumentsRequest
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import DeclinedError, FolderError, InputError
from confide_proxy.link import founding
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync import project as projects
from confide_proxy.sync.project import Basis, Project
from confide_proxy.sync.project_names import allow, resolve_project

__all__ = [
    "AsJson",
    "Output",
    "ask_confirmation",
    "ask_yes_no",
    "can_ask",
    "clock",
    "count_noun",
    "doing",
    "json_text",
    "note",
    "one_line",
    "print_json",
    "print_output",
    "read_line",
    "remark",
    "row",
    "say",
    "shown",
    "size",
    "styled",
    "terminal",
    "unseen",
    "wrap_line",
]  # fmt: skip

if TYPE_CHECKING:
    from confide_proxy.mcp.client import CommandClient

ProjectDir = Annotated[
    Path, typer.Option("--project", "-p", metavar="DIR", help="The project's folder.", show_default="here")
]

IsGlobal = Annotated[bool, typer.Option("--global", "-g", help="In the memory that all projects share.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DEADLINE_S: Final = 30.0
"""Seconds for one request to the daemon."""
QUESTION_S: Final = 4.0
"""Seconds after which a read-only command reports that the daemon does not answer."""


RECODE: Final = "save or send it as UTF-8: iconv -f latin1 -t utf-8"


class CommandContext(NamedTuple):
    """The paths and the configuration of this device, as a command uses them."""

    paths: ProxyPaths
    config: ProxyConfig

    def client(self, project: Project, *, patience_s: float | None = None) -> CommandClient:
        """Return a client for the project, for use with `async with`. Entering it raises the errors
        of `CommandClient`.

        Args:
            patience_s: seconds for reaching the daemon; None for the link's own deadline.
        """
        doing.begin()
        from confide_proxy.mcp.client import CommandClient

        return CommandClient(self.paths, self.config, project, tell=doing, patience_s=patience_s)


def _here(context: typer.Context, *, as_json: bool) -> CommandContext:  # noqa: ARG001
    doing.begin()
    return cast("CommandContext", context.obj)


command = commands({"context": (typer.Context, inspect.Parameter.empty)}, _here, indent=2)
"""Turn a function with a `CommandContext` and options into a typer command (`commands`)."""


def input_text() -> str:
    """Read all of stdin. Raises InputError if it is not UTF-8, or longer than `MAX_TEXT_BYTES`."""
    # In tests, stdin may have no buffer.
    data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1) if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"the input is over {MAX_TEXT_BYTES // 2**20} MiB", hint="store it in parts")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the input is not UTF-8 text (byte {error.start})", hint=RECODE) from None


class TakesRevision(ProgramCommand):
    """A command with the option `--revision`. Its error message suggests the option if the user has
    written a bare number after the file.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            hint = f"; for an older text: --revision {rest[0]}" if rest[0].isdecimal() else ""
            ctx.fail(f"unexpected argument: {' '.join(rest)}{hint}")
        return rest


def folder_of(project: Path) -> Path:
    """Return the absolute path of the folder that `--project` names. Raises typer.BadParameter if
    it is no folder.
    """
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is not a folder", param_hint="--project")
    return project.absolute()


async def project_of(here: CommandContext, folder: Path, *, is_written: bool = False) -> Project:
    """Return the project of a folder, as given by `--project`.

    If the folder is new on this device, the daemon decides its project, and the user is shown the
    project's name. The home folder and the root of the disk are no projects: for them only the
    global memory is used.

    Args:
        is_written: True if the command writes to the project's memory, so that there must be a
            project.

    Raises typer.BadParameter if the path is no folder; NotSetUpError, NotJoinedError or
    KeyFileError if the daemon cannot be asked; FolderError if a project is needed and the folder is
    none.
    """
    # The decision about a folder is stored, and a device that is not set up stores nothing.
    await asyncio.to_thread(founding.require, here.paths, here.config)
    claim = await asyncio.to_thread(projects.identify, folder_of(folder))
    if not claim.is_project:
        what = (
            "is the root of the disk, and no project"
            if claim.root.parent == claim.root
            else "is your home folder, and no project"
        )
        if is_written:
            raise FolderError(str(claim.root), what, hint="cd to a project's folder, or name it with --project")
        note(f"{claim.root} {what}: only the memory that all projects share is here")
        return projects.global_project(here.paths.global_folder)
    found = await resolve_project(here.paths, here.config, claim)
    if found.is_new and found.project.claim and await _is_the_same(here, found.project):
        return await asyncio.to_thread(allow, here.paths, claim)
    if found.is_new and (found.project.claim or found.earlier or claim.basis is Basis.FILE):
        note(found.notice)
    return found.project


@asynccontextmanager
async def asking(
    here: CommandContext, folder: Path, *, is_global: bool = False
) -> AsyncIterator[tuple[CommandClient, str]]:
    """Connect to the daemon for a command that only reads. Yield the client, and the name of the
    folder's project or, with `is_global`, of the global one.
    """
    project = await project_of(here, folder)
    async with here.client(project, patience_s=QUESTION_S) as client:
        yield client, GLOBAL_PROJECT if is_global else project.name


async def _is_the_same(here: CommandContext, project: Project) -> bool:
    """Ask the user at a terminal whether a folder is the existing project whose name it claims.

    Enter means no: the author of an archive chooses the name of its folder.
    """
    if not can_ask():
        return False

    try:
        async with here.client(project, patience_s=QUESTION_S) as client:
            known = await PROJECTS.ask(client.connection, {"project": project.name}, timeout_s=DEADLINE_S)
            files = next((each["files"] for each in known["projects"] if each["name"] == project.claim), 0)
            body: DocumentsRequest = {"project": project.claim, "limit": 1}
            newest = (await DOCUMENTS.ask(client.connection, body, timeout_s=DEADLINE_S))["documents"] if files else []
    except (ConfideError, TimeoutError):
        return False  # the notice says how to do it later
    if not files:
        return False
    of = f" of {newest[0]['author']}" if newest else ""
    return await ask_confirmation(f"is this the project {project.claim}{of} ({count_noun(files, 'file')})?")


def seconds(duration: str, units: str, *, most_days: int, option: str, examples: str) -> int:
    """Parse a duration such as `15m` into seconds. Raises typer.BadParameter if it is invalid, or
    too long.

    Args:
        units: the letters of the allowed units, such as "mhd".
        most_days: the longest duration.
        option, examples: the option and some valid values, for the error message.
    """
    match = re.fullmatch(rf"(\d{{1,9}})([{units}])", duration.strip())
    found = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0
    if not 0 < found <= most_days * 86400:
        raise typer.BadParameter(f"a time looks like {examples}, and is at most {most_days}d", param_hint=option)
    return found


async def require_consent(question: str, *, is_sure: bool, compared: str = "") -> None:
    """Ask the user to confirm, unless `is_sure` (the option `--yes`) is True.

    Args:
        compared: words that are printed first, for the user to compare with those on another
            device.

    Raises DeclinedError if the user does not confirm, or if there is no terminal to ask in.
    """
    if is_sure:
        return
    if compared:
        remark(compared)
    if not sys.stdin.isatty():
        what, then = (
            ("the words have to be compared", " once you have compared") if compared else ("this needs an answer", "")
        )
        raise DeclinedError(
            f"{what}, and there is no terminal to ask in", hint=f"run it in a terminal, or with --yes{then}"
        )
    if not await ask_confirmation(question):
        hint = "if the words differ, another server answers: do not go on" if compared else None
        raise DeclinedError("nothing was changed", hint=hint)
