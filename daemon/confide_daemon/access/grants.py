"""What one caller may do: a scope, and the projects and sources that it reaches.

Asked inside every operation, as the registry has it then, never once at the door: a grant that was taken away counts from the next step
on, also of an operation that is under way.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from confide_crypto.errors import printable
from confide_daemon.errors import GrantError
from confide_memory.documents import source_of

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
MAX_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Grants:
    """A caller's grants. What is refused is said with the command by which the daemon's operator gives it."""

    alias: str  # whose; the author of what it writes
    scope: Scope = "write"
    projects: frozenset[str] | None = None  # None for all. The global one is a project like any other
    sources: frozenset[str] | None = None  # of `SOURCES`; None for all

    @property
    def may_write(self) -> bool:
        """Whether the scope allows writing, wherever the caller may be."""
        return self.scope != "read"

    @property
    def reaches_all(self) -> bool:
        """Whether no project and no source is out of the caller's reach."""
        return self.projects is None and self.sources is None

    def has_project(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def has_source(self, source: str) -> bool:
        return self.sources is None or source in self.sources

    def reaches(self, project: str, path: str) -> bool:
        """Whether the caller may read the document."""
        return self.has_project(project) and self.has_source(source_of(path))

    def without_any(self) -> Self:
        """The same caller's once its access has ended."""
        return replace(self, scope="read", projects=frozenset(), sources=frozenset())

    def require_scope(self) -> None:
        """Refuse a caller that may only read. Raises GrantError."""
        if not self.may_write:
            raise self._missing("may read the memory but not write it", "scope", ["write"])

    def require_project(self, project: str) -> None:
        """Refuse a caller that does not reach the project. Raises GrantError."""
        if not self.has_project(project):
            shown = printable(project[:MAX_SHOWN_CHARS])
            raise self._missing(f"has no grant for the project '{shown}'", "projects", [*(self.projects or ()), shown])

    def require_every_project(self, what: str) -> None:
        """Refuse a caller that does not reach all projects something that concerns them all. Raises GrantError."""
        if self.projects is not None:
            raise self._missing(f"has no grant for all projects, which {what} concerns", "projects", ["all"])

    def require_source(self, source: str) -> None:
        """Refuse a caller that does not reach the source. Raises GrantError."""
        if not self.has_source(source):
            raise self._missing(f"has no grant for the source '{source}'", "sources", [*(self.sources or ()), source])

    def require_read(self, project: str, path: str) -> None:
        """Refuse a caller that may not read the document. Raises GrantError."""
        self.require_project(project)
        self.require_source(source_of(path))

    def require_write(self, project: str, path: str) -> None:
        """Refuse a caller that may not write the document. Raises GrantError."""
        self.require_scope()
        self.require_read(project, path)

    def projects_among(self, wanted: Iterable[str] | None) -> frozenset[str] | None:
        """Those of the wanted projects that the caller reaches; None (wanted or answered) is all there are.

        Raises GrantError where something is wanted, and none of it is reached.
        """
        if wanted is None:
            return self.projects
        names = list(wanted)
        found = frozenset(name for name in names if self.has_project(name))
        if names and not found:
            self.require_project(names[0])
        return found

    def _missing(self, what: str, option: str, values: list[str]) -> GrantError:
        value = shlex.quote(",".join(sorted(dict.fromkeys(values))))
        return GrantError(
            f"this machine {what}",
            hint=f"whoever runs the daemon gives it with: confided callers grant {self.alias} --{option} {value}",
        )
