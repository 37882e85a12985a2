"""`confide daemon move`: moves a space from a device to a server, or back, with every secret, file
and revision (docs/server.md).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from confide_crypto.errors import ConfideError
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.sealing.pairing import parse_invite
from confide_memory.commands.progress import Progress
from confide_memory.commands.spelling import nearest_name
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    ask_confirmation,
    command,
    count_noun,
    note,
    project_of,
    say,
)
from confide_proxy.cli.join import pasted_invite
from confide_proxy.cli.search import send_queue
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.link import device_identity as identities
from confide_proxy.link import founding
from confide_proxy.link.daemon import KnownDaemon, load_pin
from confide_proxy.offline.operations import is_empty
from confide_transfer.errors import MoveError
from confide_transfer.move.local import journey
from confide_transfer.move.local import place as places
from confide_transfer.move.local.inventory import Holdings
from confide_transfer.move.local.journey import MoveSummary
from confide_transfer.move.local.place import MoveEnd, MoveNote

LOCAL: Final = "local"
_SHOWN: Final = 10


@command
def move(
    here: CommandContext,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="INVITE",
            help="The string that `confided invite` printed, or `local`; left out, it is asked for, or read from stdin.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    without_tasks: Annotated[
        bool, typer.Option("--without-tasks", help="Leave the tasks behind, also those that wait for a move to go on.")
    ] = False,
    project: ProjectDir = Path(),
    as_json: bool = False,
) -> Output:
    """Move this machine's memory to another daemon: every secret, file and revision."""
    target, invite = _target(to) if not dry_run or to is not None else (None, None)
    return asyncio.run(
        _move(
            here,
            target,
            invite,
            project,
            is_dry=dry_run,
            is_sure=is_sure,
            with_tasks=not without_tasks,
            as_json=as_json,
        )
    )


def _target(to: str | None) -> tuple[MoveEnd, Invite | None]:

    if to is None or to == "-":
        to = pasted_invite('paste the invite (not shown), or type "local"')
    if to.strip() == LOCAL:
        return MoveEnd(None), None
    if "#" not in to and nearest_name(to, [LOCAL], {}) == LOCAL:
        raise MoveError("this is not an invite", hint="did you mean confide daemon move --to local?")
    invite, pair = parse_invite(to)
    if pair is not None:
        problem = "this invite was made by a device, and leads into the memory that it has"
        raise MoveError(problem, hint="a move takes one of `confided invite NAME`; with this one: confide join")
    return MoveEnd(KnownDaemon(invite.websocket_url, invite.daemon_static)), invite


async def _move(
    here: CommandContext,
    target: MoveEnd | None,
    invite: Invite | None,
    project: Path,
    *,
    is_dry: bool,
    is_sure: bool,
    with_tasks: bool,
    as_json: bool,
) -> Output:

    await asyncio.to_thread(founding.require, here.paths, here.config)
    begun = await asyncio.to_thread(places.load, here.paths.move)
    source = await asyncio.to_thread(places.present, here.paths)
    if begun is not None and begun.is_over and source.is_same(begun.target) and not is_dry:
        told = await _finish(here, begun, with_tasks=with_tasks)
        if target is None or target.is_same(source):
            return Output({"moved": True, "to": source.name}, f"moved to {source.name}", told)
        note(*told)
    if target is not None and target.is_same(source):
        raise MoveError(f"the memory is at {source.name} already", hint="name another daemon")
    if not is_dry:
        await _settle(here, project)
    async with journey.Departure.open(here.paths, here.config) as departure:
        holdings, tasks = await departure.look()
        plan = _plan(holdings) | {"tasks": tasks}
        if is_dry or target is None:
            data = {"moved": False, "dryRun": True, "from": source.name, **plan, "otherDevices": departure.others}
            return Output(data, f"{_plan_line(plan)}\n{_others_text(departure.others)}".strip())
        if not is_sure:
            if as_json or not sys.stdin.isatty():
                raise MoveError("nothing was moved", hint="--yes moves without asking; --dry-run only looks")
            say(_plan_line(plan))
            if not await ask_confirmation(f"move it from {source.name} to {target.name}?"):
                raise MoveError("nothing was moved")
        with Progress() as bar:
            moved = await journey.Journey(here.paths, here.config, target, invite, with_tasks=with_tasks).go(
                departure, bar.follow
            )
    notes = await _adopt_new_daemon(here, project)
    return _output(here, source, target, moved, departure.others, notes)


async def _finish(here: CommandContext, begun: MoveNote, *, with_tasks: bool) -> list[str]:
    """Finish an interrupted move at the source, and return lines for the user if that fails."""

    try:
        await journey.finish(here.paths, here.config, begun, with_tasks=with_tasks)
    except (ConfideError, TimeoutError) as error:
        hint = error.hint if isinstance(error, ConfideError) else None
        message = f"the daemon that was left, {begun.source.name}, does not close its copy: {error}"
        return [message, *([f"hint: {hint}"] if hint else [])]
    return []


async def _settle(here: CommandContext, project: Path) -> None:
    """Send the queue and the files that were just saved, so that the move includes them."""
    async with here.client(await project_of(here, project)) as client:
        is_sent = await send_queue(client, here)
        if not is_sent or not is_empty(here.paths.journal):
            hint = "confide sync --queue shows them; send or drop them first"
            raise MoveError("calls wait on this device for its daemon", hint=hint)
        await client.files.compare()


async def _adopt_new_daemon(here: CommandContext, project: Path) -> list[str]:
    """Use the new daemon at once, and return lines for the user if that fails."""
    try:
        async with here.client(await project_of(here, project)) as client:
            await client.files.compare()
            problem = client.sealing.keyring.problem
            return [] if problem is None else [str(problem), *([f"hint: {problem.hint}"] if problem.hint else [])]
    except (ConfideError, TimeoutError) as error:
        return [f"the new daemon was not used yet: {error}"]


def _plan(holdings: Holdings) -> dict[str, object]:
    living = [path for _, path in holdings.living if not path.startswith("sessions/")]
    return {
        "files": len(living),
        "revisions": len(holdings.revisions),
        "deleted": len(holdings.deleted),
        "projects": len(holdings.projects),
        "secrets": len(holdings.secrets),
        "links": len(holdings.links),
        "transcripts": len(holdings.sessions),
        "bytes": holdings.packed_bytes,
    }


def _plan_line(plan: dict[str, Any]) -> str:
    size = plan["bytes"]
    shown = f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{-(-size // 1024):,} KiB"
    parts = [
        f"{count_noun(plan['files'], 'file')} of {count_noun(plan['projects'], 'project')}",
        count_noun(plan["revisions"], "revision"),
    ]
    parts += [f"{plan['deleted']:,} deleted"] if plan["deleted"] else []
    rest = (("secrets", "sealed secret"), ("links", "link"), ("transcripts", "transcript"), ("tasks", "task"))
    parts += [count_noun(plan[name], one) for name, one in rest if plan[name]]
    return f"{', '.join(parts)}; {shown}"


def _others_text(others: list[str]) -> str:
    if not others:
        return ""
    shown = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
    return f"other devices, which join the new daemon themselves: {shown}"


def _output(
    here: CommandContext, source: MoveEnd, target: MoveEnd, moved: MoveSummary, others: list[str], notes: list[str]
) -> Output:
    words = fingerprint_words(identities.load_stored(here.paths.identity).public_key)
    plan = _plan(moved.holdings) | {"tasks": moved.tasks}
    kept = str(here.paths.daemon_data) if source.known_daemon is None else source.name
    data: dict[str, object] = {
        "moved": True,
        "dryRun": False,
        "from": source.name,
        "to": target.name,
        **plan,
        "words": words,
        "unreadable": len(moved.leftovers.unreadable),
        "unopened": len(moved.leftovers.unopened_records),
        "otherDevices": others,
        "kept": kept,
        "aside": None if moved.aside is None else str(moved.aside),
    }
    lines = [
        f"moved to {target.name}: {_plan_line(plan)}",
        "every revision was compared, and every secret opened there",
    ]
    if target.known_daemon is not None:
        lines.append(f"compare these words with the server's: {words}")
    if source.known_daemon is None:
        lines.append(
            f"the old copy is closed, and stays in {kept}; when you do not need it any more, delete that folder"
        )
    else:
        lines.append(f"the old copy is closed, and stays with the daemon at {kept}, whose operator can delete it")
    if moved.aside is not None:
        lines.append(f"an older memory that was in the way is in {moved.aside} now")
    if others:
        lines += [_others_text(others), "for each: confide device invite NAME here, and confide join there"]
    if moved.leftovers.unreadable:
        notes.append(f"{count_noun(len(moved.leftovers.unreadable), 'revision')} could not be read, and stayed behind")
    if moved.leftovers.unopened_records:
        notes.append(
            f"{count_noun(len(moved.leftovers.unopened_records), 'sealed secret')} could not be opened, and stayed behind"
        )
    if not moved.is_closed:
        notes.append(
            "the daemon that was left does not know yet, and has the tasks still; run confide daemon move again"
        )
    return Output(data, "\n".join(lines), notes)


def hint_of_move(here: CommandContext) -> None:
    """Print that this device's own memory stays behind when it joins another daemon, and that
    `confide daemon move` takes it along.
    """

    with suppress(ConfideError):
        is_alone = load_pin(here.paths.link) is None and here.paths.daemon_data.is_dir()
        if is_alone and RosterCache(here.paths.rosters).last() is not None:
            note("this device has a memory of its own; to take it along: confide daemon move --to INVITE")
