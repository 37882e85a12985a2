"""Enrolling machines from the operator's side: making an invite, waiting for its join, adding a pasted key line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from confide_crypto.enroll import Invite
from confide_crypto.keys import parse_public_key
from confide_daemon import address
from confide_daemon.config import DEFAULT_PORT, DaemonConfig, parse_listen
from confide_daemon.errors import BadNameError, TakenError
from confide_daemon.names import check_name, nearest
from confide_daemon.registry import SCOPES, Caller, Registry, Scope, UsedInvite
from confide_daemon.state import State

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class MadeInvite:
    """An invite that waits to be used.

    Attributes:
        invite: holds the secret; only `to_string` shows it.
        url: the address in it, without the secret.
        expires_at: seconds since the epoch.
    """

    invite: Invite
    url: str
    alias: str
    space: str
    scope: Scope
    expires_at: float


def make_invite(state: State, alias: str, *, space: str | None, scope: str, ttl_s: float, url: str) -> MadeInvite:
    """An invite for a machine that will be called `alias`, into a new space of that name or into an existing one.

    Raises:
        BadNameError, InviteError: a name, a scope or an address that cannot be.
        TakenError: the name is taken, or there is no such space.
    """
    check_name(alias, "machine")
    checked = check_scope(scope)
    home = _space_for(state.registry, alias, space)
    invite = Invite.new(state.identity.static_key, url)
    expires_at = state.registry.add_invite(
        invite.invite_id, invite.invite_psk, alias, space=home, scope=checked, ttl_s=ttl_s
    )
    return MadeInvite(invite, url, alias, home, checked, expires_at)


def wait_for_join(registry: Registry, made: MadeInvite, *, clock: Callable[[], float] = time.time) -> UsedInvite | None:
    """Who used the invite, as soon as somebody has; None when it has expired."""
    version = None
    while True:
        now = registry.version()
        if now != version:
            version = now
            used = registry.used_invite(made.invite.invite_id)
            if used is not None:
                return used
        if clock() >= made.expires_at:
            return registry.used_invite(made.invite.invite_id)
        time.sleep(POLL_S)


def add_line(registry: Registry, line: str, *, name: str | None, space: str | None, scope: str) -> Caller:
    """Enroll the key of a line that `confide key show` printed.

    Raises:
        KeyTextError: it is no such line.
        BadNameError, TakenError: the name or the space cannot be.
    """
    public_key, written = parse_public_key(line)
    alias = name or written
    if not alias:
        raise BadNameError("the key line has no name", hint="add one behind the key, or give --name")
    check_name(alias, "machine")
    return registry.add_caller(
        public_key, alias, space=_space_for(registry, alias, space), scope=check_scope(scope), added_by="line"
    )


def check_scope(text: str) -> Scope:
    """`text` as a scope; `r` and `rw` are understood.

    Raises:
        BadNameError: it is none.
    """
    wanted = {"r": "read", "rw": "write"}.get(text, text)
    for scope in SCOPES:
        if wanted == scope:
            return scope
    raise BadNameError(f"'{text[:20]}' is not a scope", hint=f"the scopes are {', '.join(SCOPES)}")


def public_url(state: State, config: DaemonConfig, given: str | None) -> str:
    """The address that a machine is told: as given, else as configured, else where the daemon listens.

    Raises:
        InviteError: it is no such address.
    """
    if given or config.server.public_url:
        url = given or config.server.public_url
        return url if "://" in url else f"confide://{url}"
    running = address.read(state.folder.address)
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
