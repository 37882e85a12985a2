"""Enrollment of devices by the operator: invite a device and wait until it joins, add a pasted
public key, change rights.

Also checks the names of devices and spaces, which appear in logs, in lists and beside notes.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from confide_crypto.errors import printable
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import parse_public_key
from confide_daemon.access.enrolled_callers import SCOPES, Caller, Grants, Scope
from confide_daemon.access.registry import Registry, RegistryState
from confide_daemon.access.registry_invites import Invites, OpenInvite, UsedInvite
from confide_daemon.config import DEFAULT_PORT, DaemonConfig, parse_listen
from confide_daemon.datadir import instance
from confide_daemon.errors import BadNameError, StorageError, TakenError
from confide_memory.documents import SOURCES

POLL_S = 0.2
EVERYTHING = "all"
NEVER = "never"
MAX_PROJECT_CHARS = 256
MAX_PROJECTS = 256


@dataclass(frozen=True, slots=True)
class Rights:
    """The options of a command that set a device's rights, as typed. None means that the option was
    not given.
    """

    scope: str | None = None
    # projects, sources: comma-separated names, or `all`
    projects: str | None = None
    sources: str | None = None
    expires: str | None = None  # a length of time from now, or `never`

    @property
    def is_empty(self) -> bool:
        return self == Rights()

    def upon(self, grants: Grants, expires_at: float | None, *, now: float) -> tuple[Grants, float | None]:
        """Return the rights and the expiry that result from applying the given options to existing
        ones.

        Raises BadNameError if a scope, source, project or time is invalid.
        """
        if self.scope is not None:
            grants = replace(grants, scope=check_scope(self.scope))
        if self.projects is not None:
            grants = replace(grants, projects=parse_projects(self.projects))
        if self.sources is not None:
            grants = replace(grants, sources=parse_sources(self.sources))
        if self.expires is not None:
            expires_at = None if self.expires == NEVER else now + parse_span(self.expires)
        return grants, expires_at


@dataclass(frozen=True, slots=True)
class MadeInvite:
    """An invite that was just created, with its token, which is shown only once."""

    invite: Invite  # holds the secret; only `to_string` shows it
    entry: OpenInvite  # what the registry keeps of it


def make_invite(
    state: RegistryState,
    alias: str,
    *,
    space: str | None,
    rights: Rights,
    ttl_s: float,
    url: str,
    needs_approval: bool | None = None,
) -> MadeInvite:
    """Create an invite for a device that will be called `alias`, into a new or existing space named
    `space`.

    By default (`needs_approval=None`), only a device with scope `admin` needs the operator's
    approval. Raises BadNameError or InviteError if a name, right or address is invalid; TakenError
    if the name is taken, or there is no such space.
    """
    check_name(alias, "device")
    grants, expires_at = rights.upon(Grants(alias), None, now=state.registry.clock())
    home = _space_for(state.registry, alias, space)
    invite = Invite.new(state.identity.static_key, url)
    entry = Invites(state.registry).add(
        invite.invite_id,
        invite.invite_psk,
        grants,
        space=home,
        ttl_s=ttl_s,
        caller_expires_at=expires_at,
        needs_approval=grants.scope == "admin" if needs_approval is None else needs_approval,
    )
    return MadeInvite(invite, entry)


def wait_for_join(registry: Registry, made: MadeInvite, *, clock: Callable[[], float] = time.time) -> UsedInvite | None:
    """Wait until the invite is used, and return who used it. Return None if it expires or is
    deleted first.
    """
    invites, version = Invites(registry), None
    while True:
        with suppress(StorageError):  # it is asked again
            registry.follow()
        now = registry.version()
        if now != version:
            version = now
            used = invites.find_used(made.invite.invite_id)
            if used is not None:
                return used
            if all(entry.invite_id != made.invite.invite_id for entry in invites.open_ones()):
                return invites.find_used(made.invite.invite_id)
        if clock() >= made.entry.expires_at:
            return invites.find_used(made.invite.invite_id)
        time.sleep(POLL_S)


def add_line(registry: Registry, line: str, *, name: str | None, space: str | None, rights: Rights) -> Caller:
    """Enroll the public key of a line that `confide device key show` printed.

    Raises KeyTextError if the text is not such a line; BadNameError or TakenError if the name, a
    right or the space is not valid.
    """
    public_key, written = parse_public_key(line)
    alias = name or written
    if not alias:
        raise BadNameError("the key line has no name", hint="add one behind the key, or give --name")
    check_name(alias, "device")
    grants, expires_at = rights.upon(Grants(alias), None, now=registry.clock())
    return registry.add_caller(
        public_key, grants, space=_space_for(registry, alias, space), added_by="line", expires_at=expires_at
    )


def grant(registry: Registry, alias: str, rights: Rights) -> Caller:
    """Change a device's rights. Options that are not given keep their values.

    Raises BadNameError if a right is invalid; TakenError if there is no such device.
    """
    # Check before looking up the caller and outside the transaction: a mistyped right is an error
    # either way.
    rights.upon(Grants(alias), None, now=0.0)
    now = registry.clock()
    return _require_found(
        registry, alias, registry.grant(alias, lambda was: rights.upon(was.grants, was.expires_at, now=now))
    )


def approve(registry: Registry, caller: Caller) -> Caller:
    """Approve a device that waits for approval, after the operator has compared its six words.
    Raises TakenError if it is no longer enrolled.
    """
    return _require_found(registry, caller.alias, registry.approve(caller.public_key))


def rename(registry: Registry, alias: str, wanted: str) -> Caller:
    """Rename a device. Raises BadNameError if the new name is invalid; TakenError if it is taken,
    or there is no such device.
    """
    check_name(wanted, "device")
    return _require_found(registry, alias, registry.rename(alias, wanted))


def revoke(registry: Registry, alias: str) -> Caller:
    """Revoke a device's key. Raises TakenError if there is no such device."""
    return _require_found(registry, alias, registry.revoke(alias))


def require_caller(registry: Registry, alias: str) -> Caller:
    """Return the device with this name. Raises TakenError if there is no such device."""
    return _require_found(registry, alias, registry.caller_named(alias))


def take_back(registry: Registry, alias: str) -> OpenInvite:
    """Delete the open invite for this name, and return it. Raises TakenError if there is none."""
    gone = Invites(registry).remove(alias)
    if gone is None:
        waiting = [entry.alias for entry in Invites(registry).open_ones()]
        if registry.caller_named(alias) is not None:
            hint = f"{alias} has joined already; to shut it out: confided device rm {alias}"
        else:
            hint = _names_hint(alias, waiting, "open invites are for")
        raise TakenError(f"there is no open invite for '{printable(alias[:MAX_NAME_CHARS])}'", hint=hint)
    return gone


def check_scope(text: str) -> Scope:
    """Return the text as a scope, where `r` and `rw` are short forms. Raises BadNameError if it is
    not a scope.
    """
    wanted = {"r": "read", "rw": "write"}.get(text, text)
    for scope in SCOPES:
        if wanted == scope:
            return scope
    near = nearest(wanted, SCOPES)
    hint = f"did you mean {near}?" if near else f"the scopes are {', '.join(SCOPES)}"
    raise BadNameError(f"'{printable(text[:MAX_NAME_CHARS])}' is not a scope", hint=hint)


def parse_projects(text: str) -> frozenset[str] | None:
    """Parse comma-separated project names; return None for `all`. Raises BadNameError if the list
    is empty or a name is invalid.
    """
    if text.strip() == EVERYTHING:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(name and len(name) <= MAX_PROJECT_CHARS and name.isprintable() for name in names) or "*" in names:
        hint = f"projects stand with commas between them, as in app,global; for every one: {EVERYTHING}"
        raise BadNameError(f"'{printable(text[:MAX_NAME_CHARS])}' names no projects", hint=hint)
    if len(names) > MAX_PROJECTS:
        raise BadNameError(f"these are {len(names)} projects", hint=f"name at most {MAX_PROJECTS}, or {EVERYTHING}")
    return frozenset(names)


def parse_sources(text: str) -> frozenset[str] | None:
    """Parse comma-separated sources; return None for `all`. Raises BadNameError if a name is not a
    source.
    """
    if text.strip() == EVERYTHING:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SOURCES:
            near = nearest(name, SOURCES)
            hint = f"did you mean {near}?" if near else f"the sources are {', '.join(SOURCES)}; for both: {EVERYTHING}"
            raise BadNameError(f"'{printable(name[:MAX_NAME_CHARS])}' is not a source", hint=hint)
    return frozenset(names)


def public_url(state: RegistryState, config: DaemonConfig, given: str | None) -> str:
    """Return the address that devices connect to. It is the given one, else the configured one,
    else the address on which the daemon listens.

    Raises InviteError if the address is not valid.
    """
    if given or config.server.public_url:
        url = given or config.server.public_url
        return url if "://" in url else f"confide://{url}"
    running = instance.read(state.folder.address)
    if running is not None:
        return running.url
    host, port = parse_listen(config.server.listen)
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every interface: from this machine, the loopback one
        host = "127.0.0.1"
    return f"confide://[{host}]:{port or DEFAULT_PORT}" if ":" in host else f"confide://{host}:{port or DEFAULT_PORT}"


def _space_for(registry: Registry, alias: str, space: str | None) -> str:
    spaces = registry.spaces()
    if space is None:
        if alias in spaces:
            raise TakenError(
                f"there is a space named {alias} already",
                hint=f"to let this device see it: --space {alias}; for a new one choose another name",
            )
        return alias
    if space in spaces:
        return space
    near = nearest(space, spaces)
    known = f"did you mean {near}?" if near else f"the spaces are: {', '.join(spaces) or 'none yet'}"
    raise TakenError(
        f"there is no space named '{check_name(space, 'space')}'", hint=f"{known}; without --space a new one is made"
    )


def _require_found(registry: Registry, alias: str, caller: Caller | None) -> Caller:
    if caller is not None:
        return caller
    hint = _names_hint(alias, [known.alias for known in registry.callers()], "devices are")
    if any(entry.alias == alias for entry in Invites(registry).open_ones()):
        hint = f"{alias} has an invite and has not joined yet; to take it back: confided invite --cancel {alias}"
    raise TakenError(f"there is no device named '{printable(alias[:MAX_NAME_CHARS])}'", hint=hint)


def _names_hint(name: str, known: list[str], what: str) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"the {what}: {', '.join(known) or 'none'}"


MAX_NAME_CHARS = 48
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_SPAN = re.compile(r"(\d{1,6})\s*([smhd])")
_SPAN_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_TTL_S = 30 * 86400
LONGEST_SPAN_S = 3650 * 86400
# `invite ls` and `invite rm` are old forms of commands that still work.
RESERVED_NAMES = ("ls", "rm")


def check_name(text: str, what: str) -> str:
    """Return the text if it is a valid name for a device or a space.

    Raises BadNameError if it is empty, too long, contains other characters than letters, digits,
    dots, hyphens and underscores, or is the name of a command.
    """
    if what == "device" and text in RESERVED_NAMES:
        raise BadNameError(
            f"'{text}' cannot name a device: confided invite {text} is a command", hint="choose another name"
        )
    if len(text) > MAX_NAME_CHARS or not _NAME.fullmatch(text):
        shown = printable(text[:MAX_NAME_CHARS])
        raise BadNameError(
            f"'{shown}' cannot name a {what}",
            hint=f"use up to {MAX_NAME_CHARS} letters, digits, dots, hyphens and underscores, as in laptop-2",
        )
    return text


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a valid name similar to `wanted` that is not among `taken`. Invalid characters are
    replaced, and a number is added if needed.
    """
    clean = _FOREIGN.sub("-", wanted).strip("-._")[: MAX_NAME_CHARS - 4] or "machine"
    names = set(taken)
    number = 1
    candidate = clean
    while candidate in names:
        number += 1
        candidate = f"{clean}-{number}"
    return candidate


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is most likely a misspelling of, or None if none is
    similar.
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def parse_ttl(text: str) -> float:
    """Parse a duration such as `15m`, `1h` or `2d`, and return it in seconds. Raises BadNameError
    if it is invalid or longer than 30 days.
    """
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_TTL_S:
        raise BadNameError(f"'{text[:20]}' is not a time to live", hint="use 90s, 15m, 1h or 2d; at most 30d")
    return seconds


def parse_span(text: str) -> float:
    """Parse a duration such as `1h`, `2d` or `90d`, and return it in seconds. Raises BadNameError
    if it is invalid or longer than ten years.
    """
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_SPAN_S:
        raise BadNameError(f"'{text[:20]}' is not a length of time", hint="use 1h, 2d or 90d; at most 3650d")
    return seconds


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text.strip().lower())
    return float(int(match[1]) * _SPAN_S[match[2]]) if match else 0.0
