"""Who asks: what a token, or the panel's cookie, stands for. Decided once, at the door; routes only ask what is allowed."""

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
"""Each of the other two has `memory:read` with it."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Who made a request.

    Attributes:
        name: a token's; for people and limits.
        key: what its sessions, streams and limits are counted by: of a token its SHA-256, in hex.
        scopes: of `SCOPES`.
        projects: those that it reaches; None for all.
        class_: of what it stores (docs/agents.md); "" for what the daemon gives a tool's call, `agent`.
        expires: seconds since 1970; None: never.
        is_of_token: a token's; else whoever let it in sees to its end.
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
        """Refuse who has not the scope. Raises RefusalError, 403."""
        if scope not in self.scopes:
            raise _missing(scope)

    def reaches(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def require_project(self, project: str) -> None:
        """Refuse who does not reach the project. Raises RefusalError, 403, with the same words whether there is such a project or not."""
        if not self.reaches(project):
            raise RefusalError(403, "denied", "this token does not reach that project", hint=_ANOTHER)

    @property
    def is_limited(self) -> bool:
        """Whether some project is out of its reach: then the daemon must be there to keep it to them."""
        return self.projects is not None

    def claims(self, *, is_write: bool) -> dict[str, object]:
        """What this machine says in `_meta` of a call that this identity makes."""
        said: dict[str, object] = {}
        if is_write and self.class_:
            said[CLASS] = self.class_
        if self.projects is not None:
            said[WITHIN] = {"projects": sorted(self.projects), "scope": "write" if self.has(WRITE) else "read"}
        return said


def identity_of_token(token: LocalToken) -> RequestIdentity:
    """Whom a token stands for."""
    projects = None if token.projects is None else frozenset(token.projects)
    class_ = "" if token.is_trusted else "untrusted"
    return RequestIdentity(token.name, token.digest, scopes_of(token.scopes), projects, class_, token.expires)


_ANOTHER: Final = "confide http token new makes another"


def _missing(scope: Scope) -> RefusalError:
    """403 of RFC 6750, with the scope that it takes."""
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
    """The scopes that the words `read`, `write`, `secrets` mean together. Raises ValueError: a word is none of these."""
    named = {scope.removeprefix("memory:"): scope for scope in SCOPES}
    if unknown := set(said) - named.keys():
        raise ValueError(min(unknown))
    return frozenset({READ, *(named[word] for word in said)})
