"""The authenticated sender of a request, with the rights of its token or of the panel's cookie.
Authentication creates it once; routes only check it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from confide_http.door.refusals import RefusalError
from confide_http.local.local_tokens import LocalToken
from confide_memory.tools.call import CLASS, WITHIN

Scope = Literal["memory:read", "memory:write", "memory:secrets"]
READ: Final[Scope] = "memory:read"
WRITE: Final[Scope] = "memory:write"
SECRETS: Final[Scope] = "memory:secrets"
SCOPES: Final[tuple[Scope, ...]] = (READ, WRITE, SECRETS)
"""The other two include `memory:read`."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """The authenticated sender of a request.

    Attributes:
        name: the token's name, for users and limits.
        key: the key under which its sessions, streams and limits are counted; for a token its
            SHA-256, in hex.
        scopes: some of `SCOPES`.
        projects: the names of the projects that it may use; None for all.
        class_: the class of the notes that it stores (docs/agents.md); "" for the daemon's default,
            `agent`.
        expires: end of its access in seconds since 1970; None for never.
        is_of_token: True for a token; otherwise the authenticating code checks its expiry.
    """

    name: str
    key: str
    scopes: frozenset[Scope]
    projects: frozenset[str] | None = None
    class_: str = "untrusted"
    expires: float | None = None
    is_of_token: bool = True

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise RefusalError with status 403 if the sender lacks this scope."""
        if scope not in self.scopes:
            raise _missing(scope)

    def reaches(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def require_project(self, project: str) -> None:
        """Raise RefusalError with status 403 if the sender may not use the project. The message
        does not reveal whether the project exists.
        """
        if not self.reaches(project):
            raise RefusalError(403, "denied", "this token does not reach that project", hint=_ANOTHER)

    @property
    def is_limited(self) -> bool:
        """True if the sender may not use all projects. Its calls then need the daemon, which
        enforces the limit.
        """
        return self.projects is not None

    def claims(self, *, is_write: bool) -> dict[str, object]:
        """Return the fields that this device adds to `_meta` of the sender's tool call: the class
        of its notes and its projects.
        """
        said: dict[str, object] = {}
        if is_write and self.class_:
            said[CLASS] = self.class_
        if self.projects is not None:
            said[WITHIN] = {"projects": sorted(self.projects), "scope": "write" if self.has(WRITE) else "read"}
        return said


def identity_of_token(token: LocalToken) -> RequestIdentity:
    """Return the sender of requests with this token."""
    projects = None if token.projects is None else frozenset(token.projects)
    class_ = "" if token.is_trusted else "untrusted"
    return RequestIdentity(token.name, token.digest, scopes_of(token.scopes), projects, class_, token.expires)


_ANOTHER: Final = "confide http token new makes another"


def _missing(scope: Scope) -> RefusalError:
    """Build the 403 of RFC 6750, with the required scope."""
    word = scope.removeprefix("memory:")
    what = "open sealed secrets" if scope == SECRETS else word
    return RefusalError(
        403,
        "denied",
        f"this token may not {what}",
        hint=f"confide http token new NAME --scope {word} makes one that may",
        headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
    )


def scopes_of(said: Collection[str]) -> frozenset[Scope]:
    """Return the scopes for the words `read`, `write` and `secrets`. Raises ValueError if there is
    any other word.
    """
    named = {scope.removeprefix("memory:"): scope for scope in SCOPES}
    if unknown := set(said) - named.keys():
        raise ValueError(min(unknown))
    return frozenset({READ, *(named[word] for word in said)})
