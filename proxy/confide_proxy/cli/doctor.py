"""The command `confide doctor`: check Confide on this device, and suggest remedies. It changes
nothing without `--fix`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto import portable
from confide_crypto.errors import ConfideError, LinkError, RequestError
from confide_crypto.keys.identity import fingerprint_words
from confide_crypto.transport.dial import shown_url
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.globs import matches
from confide_memory.versions import WINDOW, is_behind
from confide_proxy import VERSION, addons
from confide_proxy.addons import DoctorFinding
from confide_proxy.cli import entry_trial, markdown_offer, status_lines
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    clock,
    command,
    count_noun,
    folder_of,
    one_line,
    say,
    size,
    styled,
    wrap_line,
)
from confide_proxy.clients import client_files, hooks, known_clients, presence
from confide_proxy.clients.client_files import WriteReceipts
from confide_proxy.clients.config_entries import ConfigEntry
from confide_proxy.clients.known_clients import CLIENTS, NAME, KnownClient, program
from confide_proxy.clients.presence import Presence, Start
from confide_proxy.devices.space_connection import SpaceConnection
from confide_proxy.errors import FolderError, SpaceLockedError
from confide_proxy.hooks import counts
from confide_proxy.hooks.server.forgetting.waiting_removals import STUCK, waiting_removals
from confide_proxy.link import daemon, founding, local_process, services
from confide_proxy.link import device_identity as identities
from confide_proxy.link.connection_terms import attach_body
from confide_proxy.link.daemon_link import attach
from confide_proxy.link.device_identity import Form
from confide_proxy.offline.journal import Journal
from confide_proxy.paths import memory_notices
from confide_proxy.sync import project as projects
from confide_proxy.sync import workspace
from confide_proxy.sync.folder import Folder, FolderListing
from confide_proxy.sync.workspace import extra_of

LEAST_FREE_BYTES: Final = 200_000_000
"""Enough for a space of a few thousand notes with its index, and as much again for folding in its
log.
"""
_AHEAD_S: Final = 86_400.0
_FUTURE_S: Final = 300.0
_LINK_S: Final = 15.0
_LATE_SHARE: Final = 0.1
_STATE: Final = 10
"""The width of a line's columns other than the name of its check."""


def ok(check: str, detail: str) -> DoctorFinding:
    return DoctorFinding(check, "ok", detail)


def problem(check: str, error: ConfideError) -> DoctorFinding:
    return DoctorFinding(check, "problem", str(error), error.hint or "")


@command
async def doctor(
    here: CommandContext,
    project: ProjectDir = Path(),
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Fix what is safe to fix: permissions of Confide's files, paths in clients' entries."
        ),
    ] = False,
) -> Output:
    """Check configuration, link, key, clock, disk, queue, files and clients, and say what to do."""
    folder = folder_of(project)
    found = [each async for each in _checks(here, folder, fix=fix)]
    is_well = all(each.state != "problem" or each.isFixed for each in found)

    def print_text() -> None:
        width = max(len(each.check) for each in found)
        for each in found:
            state = "fixed" if each.isFixed else each.state
            style = {"problem": "red", "hint": "yellow"}.get(state, "green")
            lines = wrap_line(f"{state:<7} {each.check:<{width}}  {one_line(each.detail)}", width + _STATE)
            say(styled((lines[0][:7], style), "\n".join([lines[0][7:], *lines[1:]])))
            if each.hint and not each.isFixed:
                say("\n".join(wrap_line(f"{'':<{width + _STATE}}{one_line(each.hint)}", width + _STATE)))

    return Output([each._asdict() for each in found], print_text, exit_code=0 if is_well else 1)


async def _checks(here: CommandContext, folder: Path, *, fix: bool) -> AsyncIterator[DoctorFinding]:
    yield await asyncio.to_thread(_configuration, here)
    try:
        await asyncio.to_thread(founding.require, here.paths, here.config)
    except ConfideError as error:
        yield problem("set up", error)
    else:
        for notice in await asyncio.to_thread(memory_notices):
            yield DoctorFinding(
                "memory", "hint", notice, "confide setup writes into a client's entry what leads to this memory"
            )
        for check in (_rights, _key, _clock, _disk, _queue):
            yield await asyncio.to_thread(check, here, fix)
        async for each in _link(here):
            yield each
    yield await asyncio.to_thread(_files, here, folder)
    for each in await asyncio.to_thread(lambda: list(_shared_memory(here))):
        yield each
    for each in await asyncio.to_thread(lambda: list(_imports(folder))):
        yield each
    yield await asyncio.to_thread(_hooks, here)
    for find in await asyncio.to_thread(addons.each, "checks"):
        for each in await asyncio.to_thread(find, here.paths):
            yield each
    for trouble in await asyncio.to_thread(services.lasting, here.paths.seats):
        yield DoctorFinding(
            "sessions", "problem", trouble.what, "it goes on by itself; confide sync compares files now"
        )
    async for each in _clients(here, folder, fix=fix):
        yield each


def _configuration(here: CommandContext) -> DoctorFinding:
    file = here.paths.config
    return ok("configuration", str(file) if file.exists() else f"all defaults; {file} does not exist")


def _rights(here: CommandContext, fix: bool) -> DoctorFinding:
    """Check that other users have no access to private files and folders."""
    loose = [each for each in _private(here) if each.stat().st_mode & 0o077]
    if not loose:
        return ok("rights", f"{here.paths.state} is this user's alone")
    message = f"other users can read {loose[0]}{' and more' if len(loose) > 1 else ''}"
    if fix:
        with suppress(OSError):
            for each in loose:
                each.chmod(stat.S_IMODE(each.stat().st_mode) & 0o700)
            return DoctorFinding("rights", "problem", message, isFixed=True)
    return DoctorFinding("rights", "problem", message, f"chmod go-rwx {loose[0]}, or confide doctor --fix")


def _private(here: CommandContext) -> Iterator[Path]:
    paths = here.paths
    for each in (paths.state, paths.identity, paths.next_identity, paths.link, paths.daemon_data):
        if each.exists() and not each.is_symlink() and each.stat().st_uid == portable.user():
            yield each


def _key(here: CommandContext, _fix: bool) -> DoctorFinding:
    file = here.paths.identity
    if not file.exists() and not file.is_symlink():
        return ok("key", "none yet; it is made when it is first needed")
    try:
        kept = identities.read(file)
        kept.open()
    except ConfideError as error:
        return problem("key", error)
    where = "" if kept.form is Form.FILE else f", kept in this form: {kept.form.value}"
    return ok("key", f"{fingerprint_words(kept.public_key)}{where}")


def _clock(here: CommandContext, _fix: bool) -> DoctorFinding:
    now = time.time()
    newest = max((_written_at(each) for each in here.paths.state.glob("*")), default=0.0)
    if newest > now + _FUTURE_S:
        ahead = status_lines.duration(newest - now)
        return DoctorFinding(
            "clock", "problem", f"files here were written {ahead} in the future", "set the clock: timedatectl"
        )
    return ok("clock", clock(now))


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _disk(here: CommandContext, _fix: bool) -> DoctorFinding:
    place = here.paths.state if here.paths.state.exists() else here.paths.state.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return DoctorFinding("disk", "problem", f"{place} cannot be looked at: {error.strerror}")
    if not os.access(place, os.W_OK):
        return DoctorFinding(
            "disk", "problem", f"{place} cannot be written to", "is the disk read-only, or another user's?"
        )
    if free < LEAST_FREE_BYTES:
        return DoctorFinding("disk", "problem", f"{size(free)} free at {place}", "free some space")
    return ok("disk", f"{size(free)} free")


def _queue(here: CommandContext, _fix: bool) -> DoctorFinding:
    try:
        counts = Journal(here.paths.journal).counts()
    except ConfideError as error:
        return problem("queue", error)
    message = status_lines.waiting_line(counts.queued, counts.dead)
    if counts.damaged:
        return DoctorFinding(
            "queue", "problem", f"{counts.damaged} damaged records", "confide sync --queue names their file"
        )
    if counts.dead:
        return DoctorFinding(
            "queue",
            "problem",
            message,
            "confide sync --queue says why; then confide sync --queue --retry, or --drop ID",
        )
    return (
        DoctorFinding("queue", "hint", message, "confide sync sends them")
        if counts.queued
        else ok("queue", "nothing waits")
    )


async def _link(here: CommandContext) -> AsyncIterator[DoctorFinding]:
    paths = here.paths
    if not paths.identity.exists():  # a connection would create one
        yield ok("link", "not tried, since this device has no key yet")
        return
    try:
        pinned = await asyncio.to_thread(daemon.load_pin, paths.link)
        if pinned is None:
            own = await local_process.running(paths)
            if own is None:
                yield ok("link", "this device's own daemon does not run; it is started when it is needed")
                return
            yield ok("link", f"this device's own daemon runs as process {own.pid}, {shown_url(own.joined.url)}")
            yield _versions(own.version)
            return
    except ConfideError as error:
        yield problem("link", error)
        return
    version = ""
    out: ConfideError | None = None
    removals: list[str] = []
    more: list[DoctorFinding] = []
    asked = await asyncio.to_thread(addons.each, "doctor")
    try:
        async with asyncio.timeout(_LINK_S):
            began = time.perf_counter()
            async with SpaceConnection.open(paths, here.config) as space:
                took_ms = (time.perf_counter() - began) * 1000
                with suppress(RequestError):  # a device with access to some projects only
                    try:
                        body = attach_body(GLOBAL_PROJECT, here.config)
                        answer = await attach(space.connection, body, space.keyring.unlock)
                        version = answer["daemonVersion"]
                        await space.keyring.open(space.connection, answer)
                        out = space.keyring.problem
                    except SpaceLockedError as error:
                        out = error
                for find in asked:
                    more += await find(space.connection)
                removals = await waiting_removals(paths, space.keyring, space.connection)
    except TimeoutError:
        yield problem(
            "link", LinkError(f"{shown_url(pinned.url)} does not answer in time", hint="is confided running there?")
        )
        return
    except ConfideError as error:
        yield problem("link", error)
        return
    yield ok("link", f"{shown_url(pinned.url)} answers, connected within {took_ms:.0f} ms")
    yield _versions(version)
    if out is not None:
        yield problem("devices", out)
    for each in (*_removals(removals), *more):
        yield each


def _removals(waiting: list[str]) -> Iterator[DoctorFinding]:
    if stuck := [each for each in waiting if STUCK in each]:
        yield DoctorFinding("removals", "problem", "; ".join(stuck))
    if others := [each for each in waiting if STUCK not in each]:
        hint = "it goes on by itself; confide forget --verify RECEIPT shows how far what was forgotten is"
        yield DoctorFinding("removals", "hint", "; ".join(others), hint)


def _versions(of_daemon: str) -> DoctorFinding:
    message = f"confide {VERSION} here, confided {of_daemon}"
    if is_behind(VERSION, of_daemon) or is_behind(of_daemon, VERSION):
        older = "confide on this device" if is_behind(VERSION, of_daemon) else "confided"
        far = f"{message}: more than {WINDOW} minor versions apart, which is not tested"
        return DoctorFinding("versions", "problem", far, f"upgrade {older}; the daemon goes first: docs/upgrading.md")
    if of_daemon and of_daemon != VERSION:
        return DoctorFinding(
            "versions", "hint", message, "they work together; the newer one has more. Update the older one"
        )
    return ok("versions", f"confide {VERSION}" + (f", confided {of_daemon}" if of_daemon else ""))


def _files(here: CommandContext, folder: Path) -> DoctorFinding:
    claim = projects.identify(folder)
    if not claim.is_project:
        return DoctorFinding(
            "files", "hint", f"{claim.root} is no project", "run it in a project's folder, or name one: --project"
        )
    try:
        project = claim.grant()
        extra = extra_of(here.paths, here.config, project)
        listing = Folder(project.name, project.root, extra, here.config.max_file_kib * 1024).look()
    except FolderError as error:
        return problem("files", error)
    if unread := _unread(listing, project.root):
        return DoctorFinding("files", "problem", unread, "confide sync names all; chmod or chown them")
    if obstacles := workspace.obstacles(here.paths, Folder(project.name, project.root)):
        return DoctorFinding("files", "problem", "; ".join(obstacles))
    if missing := workspace.notices(here.paths, Folder(project.name, project.root)):
        return DoctorFinding("files", "hint", "; ".join(missing))
    message = f"{count_noun(len(listing.found), 'memory file')} in {project.root}"
    if here.config.extra and here.config.options_for(project.root) is None:
        state = "holds here, where files of it went up before" if extra else "does not hold here"
        message += f"; extra at the top of {here.paths.config} is of an earlier version, and {state}"
        return DoctorFinding("files", "hint", message, markdown_offer.advice(project.root, here.config.extra))
    if idle := [glob for glob in extra if not any(matches(file.path, glob) for file in listing.found)]:
        told = f"{message}; extra names no markdown file by {', '.join(idle)}"
        return DoctorFinding("files", "hint", told, "globs are relative to this folder, with / between names")
    return ok("files", message)


def _unread(listing: FolderListing, root: Path) -> str:
    """Describe the memory that cannot be read, as a sentence; "" if there is none."""
    unread = [f"{root / path} {why}" for path, why in listing.unread_memory().items()]
    return "" if not unread else f"{unread[0]}, and {len(unread) - 1} more" if len(unread) > 1 else unread[0]


def _shared_memory(here: CommandContext) -> Iterator[DoctorFinding]:
    """Yield what keeps the memory that all projects share from being used here."""
    folder = Folder(GLOBAL_PROJECT, here.paths.global_folder.absolute())
    try:
        found = [f"{folder.root} {why}"] if (why := workspace.folder_problem(folder.root)) else []
        found = found or [each for each in (_unread(folder.look(), folder.root),) if each]
    except FolderError as error:
        yield problem("shared files", error)
        return
    for each in found or workspace.obstacles(here.paths, folder):
        yield DoctorFinding("shared files", "problem", each, "projects are synchronized without it meanwhile")


def _imports(folder: Path) -> Iterator[DoctorFinding]:
    """Yield files through which a client loads memory as instructions of the user, regardless of
    its author.
    """
    for file, what in presence.importing(folder):
        message = f"{file} imports @{what}: your agent follows what an agent or another device stores there"
        yield DoctorFinding(
            "imports", "hint", message, "take the import out: hooks bring memory as quoted data (docs/agents.md)"
        )


def _hooks(here: CommandContext) -> DoctorFinding:
    """Report the latest outcomes of hooks, which report nothing themselves (docs/agents.md)."""
    if not here.config.hooks:
        return ok("hooks", f"off: {here.paths.config}")
    found = counts.read(str(here.paths.state))
    if not found:
        return ok("hooks", "no hook has run yet")
    by = Counter(outcome for _, _, outcome, _, _ in found)
    failed = [(at, why) for at, _, outcome, _, why in found if outcome == counts.FAILED]
    names = (counts.ANSWERED, counts.SILENT, counts.POINTED, counts.LATE)
    parts = [f"{by[name]} {name}" for name in names if by[name]]
    parts += [f"{by[counts.ABSENT]} found no session to ask"] if by[counts.ABSENT] else []
    if failed:
        at, why = failed[-1]
        parts.append(f"{len(failed)} failed, last {why} at {clock(at)}")
    message = f"{len(found)} ran since {clock(found[0][0])}: {', '.join(parts)}"
    if by[counts.ABSENT] > len(found) * _LATE_SHARE:
        way = "a session that is just beginning has none yet; confide sync --watch answers from the first prompt on"
        return DoctorFinding("hooks", "hint", message, way)
    if by[counts.LATE] > len(found) * _LATE_SHARE:
        return DoctorFinding("hooks", "hint", message, "is a session stopped (Ctrl-Z), or this device busy?")
    if len(failed) > len(found) * _LATE_SHARE:
        way = 'confide setup CLIENT --hooks --write writes them again; else report it with the word behind "last"'
        return DoctorFinding("hooks", "hint", message, way)
    return ok("hooks", message)


async def _clients(here: CommandContext, folder: Path, *, fix: bool) -> AsyncIterator[DoctorFinding]:
    for client in CLIENTS.values():
        try:
            had = await asyncio.to_thread(presence.look, client, folder)
        except ConfideError as error:
            yield problem(client.name, error)
            continue
        lost = [each for each in had.starts if each.command and shutil.which(each.command) is None]
        if had.lost_plugin:
            yield _lost_plugin(client, had.lost_plugin[0])
        if lost:
            message = f"{lost[0].file} starts {lost[0].command}, which is not there"
            is_ours = Path(lost[0].command).name == NAME
            yield _check_missing_file(here, client, folder, lost[0].file, message, fix=fix and is_ours)
        elif had.lost_hooks:
            message = f"{client.title} is to load {had.lost_hooks[0]}, which is not there: it runs no hooks"
            yield _check_missing_file(here, client, folder, None, message, fix=fix)
        elif had.is_set_up:
            yield await _well(here, client, had, folder)
        elif client.is_here() and not had.lost_plugin:
            message = f"{client.title} is installed, but does not start confide"
            yield DoctorFinding(client.name, "hint", message, f"confide setup {client.name} --write")
        shared = next((each.file for each in had.starts if projects.is_tracked(each.file)), None)
        if shared is not None:
            message = (
                f"{shared} is in the repository, and has paths of this device: other people's clients cannot start it"
            )
            hint = f"confide setup {client.name} --remove, then confide setup {client.name} --write --user"
            yield DoctorFinding(client.name, "hint", message, hint)


async def _well(here: CommandContext, client: KnownClient, had: Presence, folder: Path) -> DoctorFinding:
    """Check a client that is set up: its entry works, reaches this memory, and hooks bring memory."""
    start = next((each for each in had.starts if not each.off), None)
    if had.starts and start is None and not had.has_plugin:
        message = f"{client.title} has confide switched off: {had.starts[0].off}"
        return DoctorFinding(client.name, "hint", message, "switch it on in the client, or in that file")
    how, state = "has the plugin", "ok"
    if start is not None and start.address:
        return await _check_remote_entry(client, start, folder)
    if start is not None:
        how = f"starts {start.command}: {start.file}"
        if (wrong := _other_memory(client, start)) is not None:
            return wrong
        if entry_trial.is_strange(start, client.file(folder, for_user=True)):
            state = "hint"
            how += ", which was not tried, since a file of the project says more than confide setup writes"
        elif not here.paths.identity.exists():
            how += ", which was not tried, since a session would make this device's key"
        elif (wrong := await _check_entry_program(client, start, folder)) is not None:
            return wrong
    if had.hooks_off and (had.hooked or had.has_plugin):
        message = f"{client.title} {how}; its hooks are switched off: {had.hooks_off}"
        return DoctorFinding(client.name, "hint", message, "switch them on there")
    if had.has_hooks:
        return DoctorFinding(client.name, state, f"{client.title} {how}; with hooks")
    if client.name in hooks.NOT_POSSIBLE:
        return DoctorFinding(client.name, state, f"{client.title} {how}; it has no hooks")
    message = f"{client.title} {how}; without hooks, so memory is used only when the agent asks"
    return DoctorFinding(client.name, state, message, f"confide setup {client.name} --write --hooks")


async def _check_remote_entry(client: KnownClient, start: Start, folder: Path) -> DoctorFinding:
    """Check a client's entry that calls a server at an address instead of starting one."""
    message = f"{client.title} calls {start.address}, and starts nothing here: {start.file}"
    if start.file != client.file(folder, for_user=True):
        return DoctorFinding(client.name, "hint", f"{message}; not tried, since a file of the project names it")
    if why := await entry_trial.call(start.address):
        return DoctorFinding(
            client.name, "problem", f"{message}; {why}", "is the gateway running there? docs/http-server.md"
        )
    return ok(client.name, f"{message}; it accepts connections; its login was not tried")


async def _check_entry_program(client: KnownClient, start: Start, folder: Path) -> DoctorFinding | None:
    """Start an entry's program as the client does; return None if it answers."""
    if not (why := await entry_trial.start(start, folder)):
        return None
    message = f"{client.title} starts {start.command}: {start.file}; {why}"
    again = f"confide setup {client.name} --write puts it right, and confide mcp says in a terminal what is wrong"
    return DoctorFinding(client.name, "problem", message, again)


def _other_memory(client: KnownClient, start: Start) -> DoctorFinding | None:
    """Check that an entry's program uses the same memory as this command.

    Clients start it with few of the shell's variables.
    """
    there, own = known_clients.which_memory(start.environment), known_clients.which_memory(os.environ)
    if there == own:
        return None
    differing = ", ".join(sorted({*there, *own}))
    message = f"{start.file} leads to another memory than this command uses: {differing} differ"
    again = f"confide setup {client.name} --write"
    hint = f"{again} with the variables that it is to have" if own else f"take {differing} out of its entry"
    return DoctorFinding(client.name, "problem", message, hint)


def _lost_plugin(client: KnownClient, folder: Path) -> DoctorFinding:
    again = {
        "claude-code": "claude plugin marketplace remove confide, then add and install it again",
        "gemini": "gemini extensions uninstall confide, then link it again",
    }
    message = f"{client.title} has the plugin from {folder}, which is not there: it loads nothing of it"
    return DoctorFinding(client.name, "problem", message, f"{again[client.name]}: docs/clients.md")


def _check_missing_file(
    here: CommandContext, client: KnownClient, folder: Path, file: Path | None, told: str, *, fix: bool
) -> DoctorFinding:
    """Report an entry or hooks that name a missing file; fix them with `fix`."""
    if fix and _point_to_program(here, client, folder, file):
        return DoctorFinding(client.name, "problem", told, isFixed=True)
    return DoctorFinding(client.name, "problem", told, f"confide setup {client.name} --write, or confide doctor --fix")


def _point_to_program(here: CommandContext, client: KnownClient, folder: Path, file: Path | None) -> bool:
    """Write this program's path into our entries of a file and the hooks beside it; True on
    success.
    """
    try:
        command_line = program()
        entries: list[ConfigEntry] = [
            client.server(place, command_line, below=below)
            for place, below in presence.places(client, folder)
            if place == file and client_files.is_in(client.server(place, command_line, below=below))
        ]
        for for_user in (False, True):
            entries += [
                each
                for each in hooks.hooks(client, folder, command_line, for_user=for_user)
                if client_files.is_in(each)
            ]
        for change in client_files.changes_to_add(entries):
            if change.is_one:
                change.write(WriteReceipts(here.paths.client_files))
    except ConfideError:
        return False
    return True
