"""The command `confided device`: list the devices that may connect; add, approve, rename, limit and
remove them.
"""

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
from confide_daemon.addons import revocation_folders
from confide_daemon.cli.console import (
    CommandContext,
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

_TRIES = 3
"""Attempts to type six words."""
Name = Annotated[str, typer.Argument(help="The device, as `confided device ls` shows it.")]


@command
def devices(
    here: CommandContext,
    name: Annotated[str | None, typer.Argument(help="Show everything about this device.", show_default="all")] = None,
) -> Output:
    """List the devices that may connect, or show everything about one."""
    with here.open_state() as state:
        if name is not None:
            return _details(enrollment.require_caller(state.registry, name))
        found = state.registry.callers()
    width = max((len(caller.alias) for caller in found), default=0)
    empty = "no device may connect yet; invite one with: confided invite laptop"
    return Output(list(map(facts, found)), (_line(caller, width) for caller in found), empty=empty)


def _details(caller: Caller) -> Output:
    data = facts(caller)
    lines = {
        "name": caller.alias,
        "fingerprint": data["fingerprint"],
        "key": data["key"] or "none: it connects by HTTP with a token",
        "space": caller.space,
        "scope": caller.scope,
        "projects": _join_names(caller.grants.projects),
        "sources": _join_names(caller.grants.sources),
        "added": f"{clock(caller.added_at)} by {_way(caller)}",
        "approved": clock(caller.approved_at) if caller.approved_at else "not yet",
        "expires": clock(caller.expires_at) if caller.expires_at else "never",
        "last seen": clock(caller.last_seen_at) if caller.last_seen_at else "never",
    }
    if caller.proxy_version:
        lines["confide"] = f"version {caller.proxy_version}, when it last connected"
    if data["nextFingerprint"]:
        lines["new key"] = f"{data['nextFingerprint']}, from its first connection on"
    return Output(data, [f"{label:<12} {value}" for label, value in lines.items()])


@command
def add(
    here: CommandContext,
    line: Annotated[str, typer.Argument(help="The line that `confide device key show` prints on the device.")],
    name: Annotated[
        str | None, typer.Option("--name", help="A name for the device.", show_default="the line's own")
    ] = None,
    space: Space = None,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
) -> Output:
    """Add a device by its public key line, without an invite."""
    rights = rights_of(scope, projects, sources, expires)
    with here.open_state() as state:
        caller = enrollment.add_line(state.registry, line, name=name, space=space, rights=rights)
        key = format_daemon_key(state.identity.static_key)

    def print_text() -> None:
        say(f"added: {caller.alias}  {fingerprint_words(caller.public_key)}")
        remark(f"On the device, run: confide join --pin <url> {key}")

    return Output({**facts(caller), "daemonKey": key}, print_text)


@command
def approve(
    here: CommandContext,
    name: Name,
    words: Annotated[
        str | None, typer.Option("--words", help="The six words that the device shows; without them, the command asks.")
    ] = None,
) -> Output:
    """Approve a device that has joined, by the six words that it shows."""
    with here.open_state() as state:
        caller = enrollment.require_caller(state.registry, name)
        if caller.approved_at is None:
            confirm(caller, words)
        is_new = caller.approved_at is None
        caller = enrollment.approve(state.registry, caller)
    data = facts(caller)
    done = "approved" if is_new else "already approved"
    return Output(data, [f"{done}: {caller.alias}  {data['fingerprint']}"])


@command
def edit(
    here: CommandContext,
    name: Name,
    new_name: Annotated[str | None, typer.Argument(help="Its new name.", show_default="unchanged")] = None,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
) -> Output:
    """Change the name of a device, or what it may do.

    Options that you leave out keep their values. A connected device has its new rights within a
    second. With a new name it stays connected, and keeps its space.
    """
    rights = rights_of(scope, projects, sources, expires)
    if new_name is None and rights.is_empty:
        raise typer.BadParameter("give a new name, or at least one of --scope, --projects, --sources, --expires")
    lines, missing = [], []
    with here.open_state() as state:
        if new_name is not None:
            caller = enrollment.rename(state.registry, name, new_name)
            lines.append(f"renamed: {name} is now {caller.alias}")
        if not rights.is_empty:
            caller = enrollment.grant(state.registry, new_name or name, rights)
            missing = _missing_projects(state, caller) if projects is not None else []
            lines.append(_line(caller, len(caller.alias)))
    notes = [
        f"note: project '{one}' is empty; {caller.alias} will reach the notes that are added to it" for one in missing
    ]
    return Output(facts(caller), lines, notes)


def _missing_projects(state: RegistryState, caller: Caller) -> list[str]:
    """Return the projects of the grant that hold nothing; none if the database key is with the
    devices, so that this command cannot open it.
    """
    wanted = (caller.grants.projects or frozenset()) - {GLOBAL_PROJECT}
    path = state.folder.space(caller.space_id)
    if not wanted or not path.exists():
        return sorted(wanted)
    try:
        _, key = Custodian(caller.space_id, state.folder, state.master).opening_key()
        with contextlib.closing(Store.open(path, key, writer=False, now=time.time())) as store:
            known = {row.name for row in store.projects.list_projects(wanted, None, limit=len(wanted))}
    except ConfideError:
        return []
    return sorted(wanted - known)


@command
def remove(
    here: CommandContext,
    name: Name,
    added: Annotated[
        bool,
        typer.Option(
            "--added", help="Also remove the devices and apps that it has let in, those that these let in, and so on."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Output:
    """Remove a device for good.

    Its connections end within a second. The command then lists the devices and apps that this
    device has let in, and asks whether to remove these too.
    """
    with here.open_state() as state:
        if not (yes or here.is_quiet) and can_ask():
            words = fingerprint_words(enrollment.require_caller(state.registry, name).public_key)
            # It can come back only with a new invite and a new key.
            if not typer.confirm(f"Remove {name}  {words}  for good?", err=True):
                error = ConfideError(
                    "nothing was changed", hint=f"to remove it without a question: confided device rm {name} --yes"
                )
                error.exit_code = EXIT_INPUT
                raise error
        gone = enrollment.revoke(state.registry, name)
        revocations = Revocations.from_folders(revocation_folders(here.config()), state)
        if revocations is not None:
            revocations.keep(state.registry)
        roster = Rosters(state.registry).current(gone.space_id)
        brought = _remove_let_in(state.registry, gone, roster, is_all=added)
        if revocations is not None:
            revocations.keep(state.registry)
    words = fingerprint_words(gone.public_key)
    is_device = roster is not None and gone.public_key in roster.devices

    def print_text() -> None:
        say(f"removed: {gone.alias}  {words}")
        if is_device:
            remark(
                f"It still has the keys of its space. To change them, run on another device: confide device rm {words}"
            )
        for one, went in brought:
            if went:
                say(f"removed: {one.alias}  {fingerprint_words(one.public_key)}  which {gone.alias} had let in")
            else:
                remark(
                    f"{gone.alias} had let in {one.alias}, which may still connect. To remove it: confided device rm {one.alias}"
                )

    listed = [
        {"name": one.alias, "fingerprint": fingerprint_words(one.public_key), "isRevoked": went}
        for one, went in brought
    ]
    data = {"revoked": gone.alias, "fingerprint": words, "isDevice": is_device, "broughtIn": listed}
    return Output(data, print_text)


def _remove_let_in(
    registry: Registry, gone: Caller, roster: Roster | None, *, is_all: bool
) -> list[tuple[Caller, bool]]:
    """Return the devices and apps that a device let in, directly or through others, each with
    whether it was removed too.

    Asks a person about each at a terminal.
    """
    keys = [gone.public_key, *(roster.earlier_keys(gone.public_key) if roster else ())]
    added_by = roster.added_by if roster else {}
    brought: dict[bytes, tuple[Caller, bool]] = {}
    ended = set(keys)
    # In rounds: until it is removed itself, one of them may let in another.
    while new := [one for one in registry.brought_in_by(keys, added_by) if one.public_key not in brought]:
        for one in sorted(new, key=lambda one: one.gateway is not None):  # devices first: apps end with their devices
            # An app of a removed device ends without a question: it can sign in again through
            # another device.
            is_program = one.gateway is not None and one.invited_by in ended
            is_to_go = is_all or is_program or (can_ask() and _is_to_go(gone, one))
            brought[one.public_key] = one, is_to_go
            if is_to_go:
                enrollment.revoke(registry, one.alias)
                ended.add(one.public_key)
    return list(brought.values())


def _is_to_go(gone: Caller, one: Caller) -> bool:
    words = fingerprint_words(one.public_key)
    return typer.confirm(f"{gone.alias} has let in {one.alias}  {words}. Remove it too?", err=True)


def confirm(caller: Caller, given: str | None = None) -> None:
    """Ask the operator for the six words that the device shows, unless they are `given`.

    The words are not shown for comparison. People would compare only the first and the last word,
    and an attacker finds a key with these two in minutes (docs/decisions/).

    Raises ConfideError if the words are wrong, or if there is no terminal to ask at.
    """
    if given is None and not can_ask():
        raise ConfideError(
            f"{caller.alias} was not approved: there is no terminal to ask for its words",
            hint=f"pass the words that the device shows: confided device approve {caller.alias} --words WORDS",
        )
    if given is None:
        remark(f"{caller.alias} wants to connect.")
    for left in reversed(range(1 if given is not None else _TRIES)):
        words = (
            given
            if given is not None
            else typer.prompt("Type the six words that the device shows", default="", show_default=False, err=True)
        )
        if typed_words(words) == fingerprint_words(caller.public_key):
            return
        if not words:
            break
        if left:
            remark("The words do not match. Is there a typing error?")
    raise ConfideError(
        f"{caller.alias} was not approved and cannot connect: the words do not match",
        hint=f"if you typed what the device shows, another device used its invite; remove that one: confided device rm {caller.alias}",
    )


def rights_json(grants: Grants) -> dict[str, object]:
    """Return the rights of a device or of an invite as `--json` shows them; null stands for all."""
    return {
        "scope": grants.scope,
        "projects": None if grants.projects is None else sorted(grants.projects),
        "sources": None if grants.sources is None else sorted(grants.sources),
    }


def facts(caller: Caller) -> dict[str, object]:
    """Return a device as `--json` shows it. Times are in seconds since 1970; null stands for all,
    never, or not yet.
    """
    return {
        "name": caller.alias,
        "space": caller.space,
        **rights_json(caller.grants),
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
    parts += [f"projects {_join_names(grants.projects)}"] if grants.projects is not None else []
    parts += [f"sources {_join_names(grants.sources)}"] if grants.sources is not None else []
    why = caller.refusal_reason(time.time())
    if why == "disabled":
        parts.append("waits for approval")
    elif caller.expires_at is not None:
        parts.append(f"{'expired' if why == 'expired' else 'expires'} {clock(caller.expires_at)}")
    return "  ".join(parts)


def _way(caller: Caller) -> str:
    """Return how a device was added: by an invite of the operator or of another device, a key line,
    or a file.
    """
    return f"{caller.added_by} of {caller.inviter}" if caller.inviter else caller.added_by


def _join_names(names: frozenset[str] | None) -> str:
    return "all" if names is None else ",".join(sorted(names))
