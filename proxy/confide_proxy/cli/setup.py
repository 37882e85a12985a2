"""The command `confide setup [CLIENT]`: add the server, hooks and rules to a client's own files, or
remove them.

Changes are shown before they are written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import printable
from confide_memory.commands.spelling import nearest_name
from confide_proxy import addons
from confide_proxy.cli import markdown_offer
from confide_proxy.cli.console import (
    CommandContext,
    ProjectDir,
    ask_yes_no,
    can_ask,
    count_noun,
    folder_of,
    note,
    remark,
    say,
)
from confide_proxy.clients import auto_memory as own
from confide_proxy.clients import client_files, presence
from confide_proxy.clients import hooks as hooking
from confide_proxy.clients import rules as ruling
from confide_proxy.clients.client_files import FileChange, WriteReceipts
from confide_proxy.clients.config_entries import ConfigEntry, Items
from confide_proxy.clients.known_clients import CLIENTS, OWN_VARIABLES, KnownClient, program
from confide_proxy.clients.server_entry import ServerEntry
from confide_proxy.errors import SetupError
from confide_proxy.sync import project as projects

_MOST_SHOWN: Final = 60
"""The most lines shown of a difference: in a file written by hand, every line may change."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of Confide that `confide setup` adds to a client, or removes from it. `own_notes`
    is Claude Code's setting for its own notes.
    """

    server: bool = True
    hooks: bool = False
    rules: bool = False
    own_notes: bool = False


class UnknownClientError(typer.BadParameter):
    """The user has named a client that Confide does not know; the hint suggests the closest name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no client '{name[:40]}'", param_hint="CLIENT")
        near = nearest_name(name, _SHOWN_CLIENTS, {})
        everything = "confide setup --help lists them all"
        self.hint = f"did you mean confide setup {near}? {everything}" if near else everything


_PLUGIN: Final = "plugin"
_SHOWN_CLIENTS: Final = (*CLIENTS, _PLUGIN)


def setup(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLIENT]",
            help=f"{', '.join(CLIENTS)}; or {_PLUGIN}, to print the folder of the plugin.",
            show_default=False,
            autocompletion=lambda incomplete: [each for each in _SHOWN_CLIENTS if each.startswith(incomplete)],
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write it into the client's files instead of printing it.")
    ] = False,
    allow: Annotated[
        bool, typer.Option("--allow", help="Add rules too: the client no longer asks before it reads or stores.")
    ] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Add hooks too: relevant notes are added to prompts automatically.")
    ] = False,
    auto_memory: Annotated[
        bool, typer.Option("--auto-memory", help="Claude Code's own notes too: they are synced and found.")
    ] = False,
    user: Annotated[bool, typer.Option("--user", help="For all projects instead of this one.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take it out again; with --hooks, --allow or --auto-memory only that part.")
    ] = False,
    project: ProjectDir = Path(),
) -> None:
    """Configure your agent's program to start Confide.

    Without a client, Confide looks for the clients on this device, shows what would change in their
    files, and asks about each. In a pipe it changes nothing.
    """
    if name is None:
        if given := [
            option
            for option, is_given in (
                ("--write", write),
                ("--allow", allow),
                ("--hooks", hooks),
                ("--auto-memory", auto_memory),
                ("--remove", remove),
            )
            if is_given
        ]:
            raise typer.BadParameter(f"name a client: {', '.join(CLIENTS)}", param_hint=given[0])
        _look_for_clients(context.obj, folder_of(project), for_user=user)
    elif name == _PLUGIN:
        say(str(hooking.PLUGIN))
    elif (client := CLIENTS.get(name)) is None:
        raise UnknownClientError(name)
    else:
        parts = Parts(hooks=hooks, rules=allow, own_notes=auto_memory)
        _set_up(context.obj, client, parts, project.absolute(), is_written=write, is_removed=remove, for_user=user)


def _look_for_clients(here: CommandContext, folder: Path, *, for_user: bool) -> None:
    """Offer each client on this device the parts that it lacks."""
    found = [client for client in CLIENTS.values() if client.is_here()]
    if not found:
        say("no client that Confide knows is installed here")
        remark(f"hint: confide setup CLIENT prints the entry for one: {', '.join(CLIENTS)}")
    is_asked = can_ask()
    is_left = False
    for client in found:
        try:
            is_left |= _offer_parts(here, client, folder, for_user=for_user, is_asked=is_asked)
        except SetupError as error:
            note(f"{client.title} is left as it is: {error}")
    if is_left and not is_asked:
        remark("nothing was changed: run it in a terminal, or confide setup CLIENT --write --hooks --allow")


def _offer_parts(here: CommandContext, client: KnownClient, folder: Path, *, for_user: bool, is_asked: bool) -> bool:
    """Show the parts that a client lacks, and ask whether to write them; return False if there are
    none.
    """
    had = presence.look(client, folder)
    parts = Parts(server=not had.is_set_up, hooks=not had.has_hooks, rules=True)
    entries = _entries(client, folder, parts, for_user=for_user, has_plugin=had.has_plugin)
    changes = [each for each in client_files.changes_to_add(entries) if each.is_one]
    if not changes:
        say(f"{client.title} is set up")
        return False
    say(f"{client.title} would get:")
    _preview(changes, entries)
    if is_asked and ask_yes_no(f"write this for {client.title}?"):
        _carry_out(here, client, changes, parts, folder, for_user=for_user)
    return True


def add_entry(here: CommandContext, project: Path, *, for_user: bool) -> None:
    """Show the change to Claude Code's configuration that adds the server `confide`, and write it."""
    _add(here, CLIENTS["claude-code"], project.absolute(), Parts(), for_user=for_user)


def merge_for_claude_code(here: CommandContext, project: Path) -> bool:
    """Add the server `confide` to Claude Code's configuration without any output.

    Returns False if it is there already. Raises SetupError if the file cannot be changed.
    """
    client = CLIENTS["claude-code"]
    (change,) = client_files.changes_to_add(_entries(client, project.absolute(), Parts(), for_user=False))
    if change.is_one:
        change.write(WriteReceipts(here.paths.client_files))
    return change.is_one


def _set_up(
    here: CommandContext,
    client: KnownClient,
    parts: Parts,
    folder: Path,
    *,
    is_written: bool,
    is_removed: bool,
    for_user: bool,
) -> None:
    if parts.own_notes and client.name != "claude-code":
        raise typer.BadParameter(f"{client.title} {own.NOT_POSSIBLE}", param_hint="--auto-memory")
    if is_removed:
        _remove(here, client, folder, parts, for_user=for_user)
    elif is_written:
        _add(here, client, folder, parts, for_user=for_user)
    elif parts.hooks or parts.rules or parts.own_notes:
        for change in client_files.changes_to_add(_entries(client, folder, parts, for_user=for_user)):
            _show(change)
        _print_next_steps(client, parts, is_written=False)
        remark("nothing was changed: run it again with --write")
    else:
        say(client.entry_text(program()))
        remark(f"paste this into {client.file(folder, for_user=for_user)}, or run it again with --write")


def _entries(
    client: KnownClient, folder: Path, parts: Parts, *, for_user: bool, has_plugin: bool = False
) -> Sequence[ConfigEntry]:
    command = program()
    found: list[ConfigEntry] = []
    if parts.server:
        found.append(_server(client, folder, for_user=for_user))
    if parts.hooks:
        found += hooking.hooks(client, folder, command, for_user=for_user)
    if parts.rules:
        found += ruling.rules(client, folder, for_user=for_user, has_plugin=has_plugin)
    if parts.own_notes:
        found.append(own.entry(folder, projects.identify(folder).root))
    return found


def _server(client: KnownClient, folder: Path, *, for_user: bool) -> ServerEntry:
    """Return the client's server entry. If Claude Code has one for this project alone, return that
    one: it takes precedence over all others.
    """
    starts = () if for_user else presence.look(client, folder).starts
    of_its_own = next((each for each in starts if each.below), None)
    if of_its_own is not None:
        return client.server(of_its_own.file, program(), below=of_its_own.below)
    return client.server(client.file(folder, for_user=for_user), program())


def _add(here: CommandContext, client: KnownClient, folder: Path, parts: Parts, *, for_user: bool) -> None:
    parts = replace(parts, own_notes=parts.own_notes and _may_take_notes(folder))
    had = presence.look(client, folder)
    if had.lost_plugin:
        note(f"{client.title} has the plugin too, but cannot load it: {had.lost_plugin[0]} does not exist. Remove it")
    if had.has_plugin:
        note(f"{client.title} has the plugin, which starts confide and brings hooks: neither is written beside it")
        parts = Parts(server=False, rules=parts.rules, own_notes=parts.own_notes)
    entries = [
        _in_place_of_another(each) if isinstance(each, ServerEntry) else each
        for each in _entries(client, folder, parts, for_user=for_user, has_plugin=had.has_plugin)
    ]
    for each in entries:
        if isinstance(each, ServerEntry):
            _note_what_stays(client, each, for_user=for_user)
    changes = client_files.changes_to_add(entries)
    _preview(changes, entries)
    changes = [each for each in changes if each.is_one or each.path not in _of_the_user(entries)]
    if not for_user and (top := _top(folder)) is not None:
        note(f"this applies to sessions that start in {folder}, not in {top}; --user applies to all folders")
    _carry_out(here, client, changes, parts, folder, for_user=for_user)


def _note_what_stays(client: KnownClient, entry: ServerEntry, *, for_user: bool) -> None:
    """Name the arguments and the memory of an entry that is there already, and how to replace it."""
    kept = client_files.ask_entry(entry, lambda text: entry.kept(text, OWN_VARIABLES))
    if kept is not None:
        again = f"confide setup {client.name}{' --user' if for_user else ''}"
        note(
            f"{entry.file} has an entry that starts confide with {printable(kept)}: that stays",
            f"hint: to replace it, run {again} --remove, then {again} --write",
        )


def _in_place_of_another(entry: ServerEntry) -> ServerEntry:
    """Ask whether to replace the user's own entry, if it is not one for this program; otherwise it
    stays.
    """
    does = client_files.ask_entry(entry, entry.is_anothers)
    if does is None:
        return entry
    message = f"{entry.file} has an entry confide that {does}"
    if can_ask() and ask_yes_no(f"{message}: replace it by one that starts confide here?"):
        return replace(entry, replaces=True)
    note(f"{message}: it is left as it is", "hint: take it out there, or run this in a terminal and say yes")
    return entry


def _of_the_user(entries: Iterable[ConfigEntry]) -> set[Path]:
    """Return the files whose entry is the user's own, and stays."""
    servers = (each for each in entries if isinstance(each, ServerEntry) and not each.replaces)
    return {each.file for each in servers if client_files.ask_entry(each, each.is_anothers) is not None}


def _carry_out(
    here: CommandContext,
    client: KnownClient,
    changes: Sequence[FileChange],
    parts: Parts,
    folder: Path,
    *,
    for_user: bool,
) -> None:
    receipts = WriteReceipts(here.paths.client_files)
    is_new = False
    shared = []
    for change in changes:
        if change.is_one:
            change.write(receipts)
            is_new = True
        say(f"{'added confide to' if change.is_one else 'confide is already in'} {change.path}")
        if change.is_one and projects.is_shared(change.path):
            shared.append(str(change.path.relative_to(folder) if change.path.is_relative_to(folder) else change.path))
    if shared:
        # Settings for one folder have their own file, even if the user has entries of his own.
        instead = "add it" if for_user else "run again with --user, or add it"
        note(
            f"git would share {' and '.join(shared)} with everyone who clones this repository, and its paths are valid only on this device",
            f"hint: don't commit it: {instead} to .git/info/exclude",
        )
    if parts.own_notes:
        root = projects.identify(folder).root
        try:
            carried = own.take_along(_own_folder(folder), root, receipts)
        except SetupError:
            for change in changes:  # the setting without the notes would hide them from Claude Code
                if change.is_one and change.path == own.entry(folder, root).file:
                    FileChange(change.path, change.after, change.before).write()
            raise
        _print_notes(carried, "took along", root / own.FOLDER)
    _print_next_steps(client, parts, is_written=True)
    if is_new and parts.server:
        claim = projects.identify(folder_of(folder))
        if claim.is_project and can_ask():
            here = markdown_offer.offer_markdown(here, claim.root)
        for offer in addons.each("set_up"):
            offer(here, folder_of(folder))


def _remove(here: CommandContext, client: KnownClient, folder: Path, parts: Parts, *, for_user: bool) -> None:
    is_all = not parts.hooks and not parts.rules and not parts.own_notes
    has_notes = client.name == "claude-code"
    meant = Parts(hooks=True, rules=True, own_notes=has_notes) if is_all else replace(parts, server=False)
    receipts = WriteReceipts(here.paths.client_files) if is_all else None
    entries = list(_entries(client, folder, replace(meant, server=False, rules=False), for_user=for_user))
    places = presence.places(client, folder) if meant.server else []
    ours = [client.server(file, program(), below=below) for file, below in places if below and not for_user]
    ours += [client.server(client.file(folder, for_user=for_user), program())] if meant.server else []
    for each in ours:
        if (does := client_files.ask_entry(each, each.is_anothers)) is not None:
            note(f"{each.file} has an entry confide that {does}: it is yours, and stays")
    entries = [*ours, *entries]
    entries += ruling.all_rules(client, folder, for_user=for_user) if meant.rules else ()
    root = projects.identify(folder).root
    had_notes = meant.own_notes and client_files.is_in(own.entry(folder, root))
    changes = [each for each in client_files.changes_to_remove(entries, receipts) if each.is_one]
    for change in changes:
        _show(change)
    if had_notes:
        place = _own_folder(folder)
        _print_notes(own.give_back(place, root, WriteReceipts(here.paths.client_files)), "put back", place)
    for change in changes:
        change.write()
        say(f"removed confide from {change.path}")
    if not changes and not _of_the_user(ours):
        say(f"confide is not in {client.file(folder, for_user=for_user)}")


def _own_folder(folder: Path) -> Path:
    claim = projects.identify(folder)
    above = [each for each in (claim.root, *claim.root.parents) if (each / ".git").exists()]
    return own.own_folder(list(dict.fromkeys([*above[:1], claim.home, claim.root])))


def _may_take_notes(folder: Path) -> bool:
    """Ask whether to move Claude Code's own notes into memory; without a terminal the answer is
    yes.

    Returns False if they stay: the setting must be left out then, since it would hide them from
    Claude Code.
    """
    own.check_no_other()
    place = _own_folder(folder)
    number = own.count(place)
    if not number or client_files.is_in(own.entry(folder, projects.identify(folder).root)):
        return True
    message = f"{count_noun(number, 'note')} of Claude Code's own {'is' if number == 1 else 'are'} in {place}"
    if not can_ask() or ask_yes_no(f"{message}: take them along?", by_default=True):
        return True
    note("they stay where Claude Code reads them, and so does its setting: --auto-memory is left out")
    return False


def _print_notes(carried: own.Carried, verb: str, place: Path) -> None:
    if carried.names:
        say(f"{verb} {count_noun(len(carried.names), 'note')} of Claude Code's own: {place}")
    for why in carried.left:
        remark(f"left where it is: {why}")


def _print_next_steps(client: KnownClient, parts: Parts, *, is_written: bool) -> None:
    """Print the parts that a client does not support, and the steps left to the user."""
    if parts.rules and (why := ruling.NOT_POSSIBLE.get(client.name)):
        note(why)
    if parts.hooks and (why := hooking.NOT_POSSIBLE.get(client.name)):
        note(why)
    if parts.own_notes and is_written:
        say(f"Claude Code's own notes go to {own.FOLDER} from its next start; its index there stays on this device")
    if parts.hooks and is_written and (what := hooking.AFTERWARDS.get(client.name)):
        say(what)


def _top(folder: Path) -> Path | None:
    """Return the top of the folder's repository, or None if the folder is the top or in no
    repository.
    """
    real = folder.resolve()
    top = next((each for each in (real, *real.parents) if (each / ".git").exists()), None)
    return None if top == real else top


def _preview(changes: Sequence[FileChange], entries: Sequence[ConfigEntry]) -> None:
    """Show each difference. At a terminal, summarize long ones and offer to show them whole."""
    new = [change for change in changes if change.is_one]
    lines = sum(len(_difference(change)) for change in new)
    if lines <= _MOST_SHOWN or not can_ask():
        for change in new:
            _show(change)
        return
    events = sum(isinstance(each, Items) and each.path[:1] == ("hooks",) for each in entries)
    rules = sum(len(each.items) for each in entries if isinstance(each, Items) and each.path[-1] == "allow")
    parts = (
        count_noun(lines, "line"),
        f"hooks at {count_noun(events, 'event')}" if events else "",
        count_noun(rules, "rule") if rules else "",
    )
    where = " and ".join(str(change.path) for change in new)
    say(f"{', '.join(filter(None, parts))} for {where}")
    if ask_yes_no("show them?"):
        for change in new:
            _show(change, most=lines)


def _difference(change: FileChange) -> list[str]:
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    lines = difflib.unified_diff(before, after, lineterm="", n=1)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _show(change: FileChange, *, most: int = _MOST_SHOWN) -> None:
    """Print one change."""
    if not change.is_one:
        say(f"confide is already in {change.path}")
        return
    say(f"{change.path}:")
    shown = _difference(change)
    for line in shown[:most]:
        say(line)
    if len(shown) > most:
        say(f"… and {len(shown) - most:,} more lines")
