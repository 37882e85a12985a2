"""Clients that use a space over HTTP with a token of the operator (docs/http-server.md). They are
rows of the registry with a token instead of a key.

A token is 32 random bytes that are shown once and stored as SHA-256. The hash takes the place of a
device's public key, so grants, expiry, the audit log and the revocations beside the data folder
work the same for both. It cannot complete a handshake, since it is no key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from confide_crypto.errors import printable
from confide_crypto.keys.bearer_tokens import new_token
from confide_daemon.access.enrolled_callers import Caller, Gateway, Grants, Scope
from confide_daemon.access.enrollment import EVERYTHING, MAX_PROJECTS, check_name, nearest, parse_projects
from confide_daemon.access.registry import Registry
from confide_daemon.errors import BadNameError, TakenError

DAYS: Final = 90
MOST_DAYS: Final = 3650
MOST: Final = 256
"""Most tokens: few enough for a readable list."""
GATEWAY_SCOPES: Final[tuple[Scope, ...]] = ("read", "write")
"""Without `secrets`, to which the daemon has no key, and without administration."""


def allow(
    registry: Registry, name: str, *, space: str, scope: str, projects: Sequence[str], days: int, gateway: Gateway
) -> tuple[str, Caller]:
    """Create a token for an HTTP client; return its text, which is stored nowhere, and the client's
    new entry in the registry.

    Args:
        projects: names of the projects that it may use; empty for all.
        days: number of days until it expires.

    Raises BadNameError if the name, scope, a project or the number of days is invalid; TakenError
    if the name is taken, the space does not exist, or there are too many tokens.
    """
    check_name(name, "gateway client")
    grants = Grants(name, _scope(scope), _projects(projects))
    if not 1 <= days <= MOST_DAYS:
        raise BadNameError(f"a token is good for 1 to {MOST_DAYS} days, not {days}", hint="leave --days out for 90")
    if space not in (known := registry.spaces()):
        raise no_space(check_name(space, "space"), known)
    if len(registry.gateway_clients()) >= MOST:
        raise TakenError(f"there are {MOST} gateway clients already", hint="confided http ls shows which are unused")
    text, digest = new_token()
    expires_at = registry.clock() + days * 86_400
    return text, registry.add_gateway_client(digest, grants, space=space, gateway=gateway, expires_at=expires_at)


def remove(registry: Registry, name: str) -> Caller:
    """Revoke the access of an HTTP client and return its entry. Raises TakenError if no client has
    this name.
    """
    known = [one.alias for one in registry.gateway_clients()]
    gone = registry.revoke(name) if name in known else None
    if gone is None:
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise TakenError(f"there is no gateway client named '{printable(name[:64])}'", hint=hint)
    return gone


def no_space(space: str, known: Collection[str]) -> TakenError:
    """Build the error for a space that does not exist; `known` has the names of those that do, from
    which it suggests one.
    """
    near = nearest(space, known)
    hint = f"did you mean {near}?" if near else f"the spaces are: {', '.join(known) or 'none yet'}"
    return TakenError(f"there is no space named '{printable(space[:64])}'", hint=hint)


def _scope(text: str) -> Scope:
    for scope in GATEWAY_SCOPES:
        if text == scope:
            return scope
    hint = "the scopes are read and write"
    if text == "secrets":
        hint = "nothing opens a sealed secret on a server; confide http token new NAME --scope secrets makes one on a device"
    raise BadNameError(f"'{printable(text[:64])}' is no scope of a gateway client", hint=hint)


def _projects(names: Sequence[str]) -> frozenset[str] | None:
    if not names:
        return None
    found: set[str] = set()
    for name in names:
        one = parse_projects(name)
        if one is None:
            raise BadNameError(f"'{EVERYTHING}' is no project", hint="leave --project out for all of them")
        found |= one
    if len(found) > MAX_PROJECTS:
        raise BadNameError(f"these are {len(found)} projects", hint=f"name at most {MAX_PROJECTS}")
    return frozenset(found)
