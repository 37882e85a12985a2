"""The commands about machines: list, add, approve, rename, change what they may do, shut one out."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

import typer

from confide_crypto.errors import EXIT_INPUT, ConfideError
from confide_crypto.keys.identity import fingerprint_words, format_daemon_key, format_public_key, typed_words
from confide_crypto.sealing.roster import Roster
from confide_daemon.access import enrollment
from confide_daemon.access.enrolled_callers import Caller, Grants
from confide_daemon.access.registry import Registry, RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import beside_the_data
from confide_daemon.cli.console import (
    AsJson,
    CommandContext,
    Config,
    Data,
    Expires,
    Output,
    Projects,
    Scope,
    Sources,
    Space,
    can_ask,
    clock,
    command,
    remark,
    rights_of,
    say,
)
from confide_daemon.sealing.rosters import Rosters
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.store.space_store import Store
from confide_memory.documents import GLOBAL_PROJECT

callers_app = typer.Typer(invoke_without_command=True)
_TRIES = 3
"""To type six words."""
Name = Annotated[str, typer.Argument(help="The machine, as `confided callers` shows it.")]


@callers_app.callback()
def callers(context: typer.Context, config_file: Config = None, data: Data = None, as_json: AsJson = False) -> None:
    """List the machines that may connect."""
    if context.invoked_subcommand is None:
        _list(config_file=config_file, data=data, as_json=as_json)


@command
def _list(here: CommandContext) -> Output:
    with here.opened() as state:
        found = state.registry.callers()
    width = max((len(caller.alias) for caller in found), default=0)
    empty = "no machine may connect yet; invite one with: confided invite laptop"
    return Output(list(map(facts, found)), (_line(caller, width) for caller in found), empty=empty)


@callers_app.command("add", epilog="confided callers add 'x25519 … laptop'")
@command
def callers_add(
    here: CommandContext,
    line: Annotated[str, typer.Argument(help="The line that `confide device key show` prints on the machine.")],
    name: Annotated[
        str | None, typer.Option("--name", help="What to call the machine.", show_default="the line's own")
    ] = None,
    space: Space = None,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
) -> Output:
    """Let a machine in by its public key line, without an invite."""
    rights = rights_of(scope, projects, sources, expires)
    with here.opened() as state:
        caller = enrollment.add_line(state.registry, line, name=name, space=space, rights=rights)
        key = format_daemon_key(state.identity.static_key)

    def print_text() -> None:
        say(f"added: {caller.alias}  {fingerprint_words(caller.public_key)}")
        remark(f"On the machine: confide join --pin <url> {key}")

    return Output({**facts(caller), "daemonKey": key}, print_text)


@callers_app.command("show", epilog="confided callers show laptop")
@command
def callers_show(here: CommandContext, name: Name) -> Output:
    """Show everything about one machine."""
    with here.opened() as state:
        caller = enrollment.named(state.registry, name)
    told = facts(caller)
    lines = {
        "name": caller.alias,
        "fingerprint": told["fingerprint"],
        "key": told["key"] or "none: it comes by HTTP with a token",
        "space": caller.space,
        "scope": caller.scope,
        "projects": _listed(caller.grants.projects),
        "sources": _listed(caller.grants.sources),
        "added": f"{clock(caller.added_at)} by {_way(caller)}",
        "approved": clock(caller.approved_at) if caller.approved_at else "not yet",
        "expires": clock(caller.expires_at) if caller.expires_at else "never",
        "last seen": clock(caller.last_seen_at) if caller.last_seen_at else "never",
    }
    if caller.proxy_version:
        lines["confide"] = f"version {caller.proxy_version}, when it was last connected"
    if told["nextFingerprint"]:
        lines["new key"] = f"{told['nextFingerprint']}, from its first connection on"
    return Output(told, [f"{label:<12} {value}" for label, value in lines.items()])


@callers_app.command("approve", epilog="confided callers approve laptop")
@command
def callers_approve(
    here: CommandContext,
    name: Name,
    words: Annotated[
        str | None, typer.Option("--words", help="The six words that the machine shows; left out, they are asked for.")
    ] = None,
) -> Output:
    """Let a machine in that has joined and waits, by the six words that it shows."""
    with here.opened() as state:
        caller = enrollment.named(state.registry, name)
        if caller.approved_at is None:
            confirm(caller, words)
        is_new = caller.approved_at is None
        caller = enrollment.approve(state.registry, caller)
    told = facts(caller)
    done = "approved" if is_new else "was approved already"
    return Output(told, [f"{done}: {caller.alias}  {told['fingerprint']}"])


@callers_app.command("rename", epilog="confided callers rename laptop desk")
@command
def callers_rename(
    here: CommandContext, name: Name, new_name: Annotated[str, typer.Argument(help="What to call it from now on.")]
) -> Output:
    """Give a machine another name; it stays connected, and keeps its space."""
    with here.opened() as state:
        caller = enrollment.rename(state.registry, name, new_name)
    return Output(facts(caller), [f"renamed: {name} is now {caller.alias}"])


@callers_app.command("grant", epilog="confided callers grant laptop --projects app,web")
@command
def callers_grant(
    here: CommandContext,
    name: Name,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
) -> Output:
    """Change what a machine may do, within a second also where it is connected; what is not given stays as it was."""
    rights = rights_of(scope, projects, sources, expires)
    if rights.is_empty:
        raise typer.BadParameter("give at least one of --scope, --projects, --sources, --expires")
    with here.opened() as state:
        caller = enrollment.grant(state.registry, name, rights)
        missing = _missing_projects(state, caller) if projects is not None else []
    notes = [
        f"note: nothing is stored in a project '{one}' yet; {caller.alias} reaches what will be" for one in missing
    ]
    return Output(facts(caller), [_line(caller, len(caller.alias))], notes)


def _missing_projects(state: RegistryState, caller: Caller) -> list[str]:
    """The projects of its grant that hold nothing, as far as the database can be opened here: its machines may keep the key."""
    wanted = (caller.grants.projects or frozenset()) - {GLOBAL_PROJECT}
    path = state.folder.space(caller.space_id)
    if not wanted or not path.exists():
        return sorted(wanted)
    try:
        _, key = Custodian(caller.space_id, state.folder, state.master).opening_key()
        with contextlib.closing(Store.open(path, key, writer=False, now=time.time())) as store:
            known = {row.name for row in store.projects.listed(wanted, None, limit=len(wanted))}
    except ConfideError:
        return []
    return sorted(wanted - known)


@command
def revoke(
    here: CommandContext,
    name: Name,
    added: Annotated[
        bool, typer.Option("--added", help="Shut out as well what it has brought in, what that has, and so on.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Output:
    """Shut a machine out for good; its live connections end within a second. Then list whom it has brought in."""
    with here.opened() as state:
        if not (yes or here.is_quiet) and can_ask():
            words = fingerprint_words(enrollment.named(state.registry, name).public_key)
            # It comes back by a new invite alone, with another key.
            if not typer.confirm(f"Shut out {name}  {words}  for good?", err=True):
                error = ConfideError(
                    "nothing was changed", hint=f"with --yes nobody is asked: confided revoke {name} --yes"
                )
                error.exit_code = EXIT_INPUT
                raise error
        gone = enrollment.revoke(state.registry, name)
        revocations = Revocations.configured(beside_the_data(here.config()), state)
        if revocations is not None:
            revocations.keep(state.registry)
        roster = Rosters(state.registry).current(gone.space_id)
        brought = _shut_out_brought(state.registry, gone, roster, is_all=added)
        if revocations is not None:
            revocations.keep(state.registry)
    words = fingerprint_words(gone.public_key)
    is_device = roster is not None and gone.public_key in roster.devices

    def print_text() -> None:
        say(f"revoked: {gone.alias}  {words}")
        if is_device:
            remark(
                f"It still has the keys of its space: for new ones, on another of its machines, confide device rm {words}"
            )
        for one, went in brought:
            if went:
                say(f"revoked: {one.alias}  {fingerprint_words(one.public_key)}  which it had brought in")
            else:
                remark(f"It had brought in {one.alias}, which may still connect: confided revoke {one.alias}")

    listed = [
        {"name": one.alias, "fingerprint": fingerprint_words(one.public_key), "isRevoked": went}
        for one, went in brought
    ]
    told = {"revoked": gone.alias, "fingerprint": words, "isDevice": is_device, "broughtIn": listed}
    return Output(told, print_text)


def _shut_out_brought(
    registry: Registry, gone: Caller, roster: Roster | None, *, is_all: bool
) -> list[tuple[Caller, bool]]:
    """Whom a machine has brought in, and these, each with whether it was shut out too; a person is asked where one is there."""
    keys = [gone.public_key, *(roster.earlier_keys(gone.public_key) if roster else ())]
    added_by = roster.added_by if roster else {}
    brought: dict[bytes, tuple[Caller, bool]] = {}
    ended = set(keys)
    # Again: until it is shut out itself, one of them may let in another.
    while new := [one for one in registry.brought_in_by(keys, added_by) if one.public_key not in brought]:
        for one in sorted(new, key=lambda one: one.gateway is not None):  # machines first: programs go with theirs
            # A program signs in again, by a machine that may let it in; nobody is asked whether one of a stolen one may stay.
            is_program = one.gateway is not None and one.invited_by in ended
            is_to_go = is_all or is_program or (can_ask() and _is_to_go(gone, one))
            brought[one.public_key] = one, is_to_go
            if is_to_go:
                enrollment.revoke(registry, one.alias)
                ended.add(one.public_key)
    return list(brought.values())


def _is_to_go(gone: Caller, one: Caller) -> bool:
    words = fingerprint_words(one.public_key)
    return typer.confirm(f"{gone.alias} has brought in {one.alias}  {words}: shut it out too?", err=True)


def confirm(caller: Caller, given: str | None = None) -> None:
    """Have the words that the machine shows typed, unless they are `given`; ends the command where they are not its words.

    They are not shown to be looked at: people compare the first and the last, and a key with these two costs minutes (docs/decisions/).

    Raises ConfideError where they are others, or nobody can be asked.
    """
    if given is None and not can_ask():
        raise ConfideError(
            f"{caller.alias} was not approved: this is no terminal to ask at",
            hint=f"give the words that it shows: confided callers approve {caller.alias} --words WORDS",
        )
    if given is None:
        remark(f"{caller.alias} wants to connect.")
    for left in reversed(range(1 if given is not None else _TRIES)):
        words = (
            given
            if given is not None
            else typer.prompt("Type the six words that it shows", default="", show_default=False, err=True)
        )
        if typed_words(words) == fingerprint_words(caller.public_key):
            return
        if not words:
            break
        if left:
            remark("Those are other words; was one mistyped?")
    raise ConfideError(
        f"{caller.alias} was not approved, and cannot connect: these are not its words",
        hint=f"were they typed as it shows them? if so, somebody else has joined in its place: confided revoke {caller.alias}",
    )


def granted(grants: Grants) -> dict[str, object]:
    """What a machine may do, or will once it uses its invite, as --json shows it; null is all."""
    return {
        "scope": grants.scope,
        "projects": None if grants.projects is None else sorted(grants.projects),
        "sources": None if grants.sources is None else sorted(grants.sources),
    }


def facts(caller: Caller) -> dict[str, object]:
    """A machine as --json shows it. Times are seconds since 1970; null is all, never, or not yet."""
    return {
        "name": caller.alias,
        "space": caller.space,
        **granted(caller.grants),
        "fingerprint": fingerprint_words(caller.public_key),
        "key": None if caller.gateway else format_public_key(caller.public_key, caller.alias),
        "addedBy": caller.added_by,
        "invitedBy": caller.inviter,
        "invitedByFingerprint": fingerprint_words(caller.invited_by) if caller.invited_by else None,
        "addedAt": caller.added_at,
        "approvedAt": caller.approved_at,
        "expiresAt": caller.expires_at,
        "lastSeenAt": caller.last_seen_at,
        "nextFingerprint": fingerprint_words(caller.successor) if caller.successor else None,
        "proxyVersion": caller.proxy_version,
    }


def _line(caller: Caller, width: int) -> str:
    words = fingerprint_words(caller.public_key)
    parts = [
        f"{caller.alias:<{width}}",
        caller.space,
        caller.scope,
        words,
        f"{_way(caller)} {clock(caller.added_at)}",
    ]
    grants = caller.grants
    parts += [f"projects {_listed(grants.projects)}"] if grants.projects is not None else []
    parts += [f"sources {_listed(grants.sources)}"] if grants.sources is not None else []
    why = caller.closed(time.time())
    if why == "disabled":
        parts.append("waits for approval")
    elif caller.expires_at is not None:
        parts.append(f"{'expired' if why == 'expired' else 'expires'} {clock(caller.expires_at)}")
    return "  ".join(parts)


def _way(caller: Caller) -> str:
    """How a machine came: by an invite of the operator's or of another machine, a line, or a file."""
    return f"{caller.added_by} of {caller.inviter}" if caller.inviter else caller.added_by


def _listed(names: frozenset[str] | None) -> str:
    return "all" if names is None else ",".join(sorted(names))
