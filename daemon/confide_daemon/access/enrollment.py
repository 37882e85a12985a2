"""Enrolling machines from the operator's side: making an invite, waiting for its join, adding a pasted key line, changing grants.

And the names that people give to callers and spaces: they stand in logs, in lists and beside what a caller wrote.
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
    """What a command says about a caller's rights, as typed; None is not said."""

    scope: str | None = None
    # projects, sources: names with commas between them, or `all`
    projects: str | None = None
    sources: str | None = None
    expires: str | None = None  # a length of time from now, or `never`

    @property
    def is_empty(self) -> bool:
        return self == Rights()

    def upon(self, grants: Grants, expires_at: float | None, *, now: float) -> tuple[Grants, float | None]:
        """Those grants, and that end of them, with what is said in place of what was.

        Raises BadNameError: a scope, a source, a project or a time that is none.
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
    """An invite that waits to be used."""

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
    """An invite for a machine that will be called `alias`, into a new space of that name or into an existing one.

    Where `needs_approval` is not said, a caller that may do everything does.
    Raises BadNameError, InviteError: a name, a right or an address that cannot be; TakenError where the name is taken, or there is no
    such space.
    """
    check_name(alias, "machine")
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
    """Who used the invite, as soon as somebody has; None when it has expired or was taken back."""
    invites, version = Invites(registry), None
    while True:
        with suppress(StorageError):  # it is asked again
            registry.follow()
        now = registry.version()
        if now != version:
            version = now
            used = invites.used(made.invite.invite_id)
            if used is not None:
                return used
            if all(entry.invite_id != made.invite.invite_id for entry in invites.open_ones()):
                return invites.used(made.invite.invite_id)
        if clock() >= made.entry.expires_at:
            return invites.used(made.invite.invite_id)
        time.sleep(POLL_S)


def add_line(registry: Registry, line: str, *, name: str | None, space: str | None, rights: Rights) -> Caller:
    """Enroll the key of a line that `confide device key show` printed.

    Raises KeyTextError where it is no such line; BadNameError, TakenError where the name, a right or the space cannot be.
    """
    public_key, written = parse_public_key(line)
    alias = name or written
    if not alias:
        raise BadNameError("the key line has no name", hint="add one behind the key, or give --name")
    check_name(alias, "machine")
    grants, expires_at = rights.upon(Grants(alias), None, now=registry.clock())
    return registry.add_caller(
        public_key, grants, space=_space_for(registry, alias, space), added_by="line", expires_at=expires_at
    )


def grant(registry: Registry, alias: str, rights: Rights) -> Caller:
    """Change a caller's rights; what is not said stays.

    Raises BadNameError, TakenError where a right cannot be, or there is no such caller.
    """
    # Before the caller is looked for, and not inside the transaction: a mistyped right is told either way.
    rights.upon(Grants(alias), None, now=0.0)
    now = registry.clock()
    return _known(registry, alias, registry.grant(alias, lambda was: rights.upon(was.grants, was.expires_at, now=now)))


def approve(registry: Registry, caller: Caller) -> Caller:
    """Let a caller in that waits for it, whose words were compared. Raises TakenError where it is none any more."""
    return _known(registry, caller.alias, registry.approve(caller.public_key))


def rename(registry: Registry, alias: str, wanted: str) -> Caller:
    """Give a caller another name. Raises BadNameError, TakenError where the name cannot be, or is taken, or there is no such caller."""
    check_name(wanted, "machine")
    return _known(registry, alias, registry.rename(alias, wanted))


def revoke(registry: Registry, alias: str) -> Caller:
    """Shut a caller out. Raises TakenError where there is no such caller."""
    return _known(registry, alias, registry.revoke(alias))


def named(registry: Registry, alias: str) -> Caller:
    """The caller of this name. Raises TakenError where there is no such caller."""
    return _known(registry, alias, registry.caller_named(alias))


def take_back(registry: Registry, alias: str) -> OpenInvite:
    """Take the invite for this name back. Raises TakenError where there is none that can still be used."""
    gone = Invites(registry).remove(alias)
    if gone is None:
        waiting = [entry.alias for entry in Invites(registry).open_ones()]
        if registry.caller_named(alias) is not None:
            hint = f"{alias} has joined already; to shut it out: confided device rm {alias}"
        else:
            hint = _meant(alias, waiting, "open invites are for")
        raise TakenError(f"there is no open invite for '{printable(alias[:MAX_NAME_CHARS])}'", hint=hint)
    return gone


def check_scope(text: str) -> Scope:
    """`text` as a scope; `r` and `rw` are understood. Raises BadNameError where it is none."""
    wanted = {"r": "read", "rw": "write"}.get(text, text)
    for scope in SCOPES:
        if wanted == scope:
            return scope
    near = nearest(wanted, SCOPES)
    hint = f"did you mean {near}?" if near else f"the scopes are {', '.join(SCOPES)}"
    raise BadNameError(f"'{printable(text[:MAX_NAME_CHARS])}' is not a scope", hint=hint)


def parse_projects(text: str) -> frozenset[str] | None:
    """Project names with commas between them; None for `all`. Raises BadNameError where there is none, or one that no project can have."""
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
    """Sources with commas between them; None for `all`. Raises BadNameError where one of them is none."""
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
    """The address that a machine is told: as given, else as configured, else where the daemon listens.

    Raises InviteError where it is no such address.
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
                hint=f"to let this machine see it: --space {alias}; for a new one choose another name",
            )
        return alias
    if space in spaces:
        return space
    near = nearest(space, spaces)
    known = f"did you mean {near}?" if near else f"the spaces are: {', '.join(spaces) or 'none yet'}"
    raise TakenError(
        f"there is no space named '{check_name(space, 'space')}'", hint=f"{known}; without --space a new one is made"
    )


def _known(registry: Registry, alias: str, caller: Caller | None) -> Caller:
    if caller is not None:
        return caller
    hint = _meant(alias, [known.alias for known in registry.callers()], "machines are")
    if any(entry.alias == alias for entry in Invites(registry).open_ones()):
        hint = f"{alias} has an invite and has not joined yet; to take it back: confided invite --cancel {alias}"
    raise TakenError(f"there is no machine named '{printable(alias[:MAX_NAME_CHARS])}'", hint=hint)


def _meant(name: str, known: list[str], what: str) -> str:
    near = nearest(name, known)
    return f"did you mean {near}?" if near else f"the {what}: {', '.join(known) or 'none'}"


MAX_NAME_CHARS = 48
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_SPAN = re.compile(r"(\d{1,6})\s*([smhd])")
_SPAN_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_TTL_S = 30 * 86400
LONGEST_SPAN_S = 3650 * 86400
# `invite ls` and `invite rm` are old spellings of commands, which still work.
RESERVED_NAMES = ("ls", "rm")


def check_name(text: str, what: str) -> str:
    """`text`, if it can name a caller or a space.

    Raises BadNameError: empty, too long, with characters other than letters, digits, dots, hyphens and underscores, or a command's.
    """
    if what == "machine" and text in RESERVED_NAMES:
        raise BadNameError(
            f"'{text}' cannot name a machine: confided invite {text} is a command", hint="choose another name"
        )
    if len(text) > MAX_NAME_CHARS or not _NAME.fullmatch(text):
        shown = printable(text[:MAX_NAME_CHARS])
        raise BadNameError(
            f"'{shown}' cannot name a {what}",
            hint=f"use up to {MAX_NAME_CHARS} letters, digits, dots, hyphens and underscores, as in laptop-2",
        )
    return text


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A valid name like `wanted` that is not taken: cleaned, and numbered if need be."""
    clean = _FOREIGN.sub("-", wanted).strip("-._")[: MAX_NAME_CHARS - 4] or "machine"
    names = set(taken)
    number = 1
    candidate = clean
    while candidate in names:
        number += 1
        candidate = f"{clean}-{number}"
    return candidate


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def parse_ttl(text: str) -> float:
    """Seconds of a time such as `15m`, `1h` or `2d`. Raises BadNameError where it is none, or longer than 30 days."""
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_TTL_S:
        raise BadNameError(f"'{text[:20]}' is not a time to live", hint="use 90s, 15m, 1h or 2d; at most 30d")
    return seconds


def parse_span(text: str) -> float:
    """Seconds of a time such as `1h`, `2d` or `90d`, of at most ten years. Raises BadNameError where it is none."""
    seconds = _span(text)
    if not 0 < seconds <= LONGEST_SPAN_S:
        raise BadNameError(f"'{text[:20]}' is not a length of time", hint="use 1h, 2d or 90d; at most 3650d")
    return seconds


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text.strip().lower())
    return float(int(match[1]) * _SPAN_S[match[2]]) if match else 0.0
