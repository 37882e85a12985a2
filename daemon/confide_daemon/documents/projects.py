"""The projects of a space: what each holds, and which are searched together.

A link holds both ways and for every machine of the space. It widens what a search looks at when it names no project, never what a
caller may see: that is asked in each query.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable

from confide_daemon.errors import LinkError, NotFoundError
from confide_daemon.store.rows import ProjectRow
from confide_daemon.store.store import Store
from confide_daemon.store.threads import StoreThreads
from confide_memory.document_path import GLOBAL_PROJECT

MAX_LISTED = 500
MAX_LINKS = 32
"""Of one project: a search looks into all of them."""


class Projects:
    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads
        self._links: frozenset[tuple[str, str]] = frozenset()

    async def open(self) -> None:
        """Read the links, which nobody else changes while the space is open."""
        self._links = frozenset(await self._threads.read(lambda store: store.projects.links()))

    def linked(self, project: str) -> frozenset[str]:
        """The projects that are linked with this one."""
        return frozenset(one if other == project else other for one, other in self._links if project in (one, other))

    async def listed(self, names: frozenset[str] | None, sources: frozenset[str] | None) -> list[ProjectRow]:
        """The projects that hold anything, the last changed first; at most `MAX_LISTED`."""
        return await self._threads.read(lambda store: store.projects.listed(names, sources, limit=MAX_LISTED))

    async def link(self, project: str, other: str, *, known: Iterable[str]) -> None:
        """Links two projects; `known`: those that the caller may be told of. Raises LinkError, or NotFoundError: it is none of them."""
        if other == project:
            raise LinkError("a project is not linked with itself", hint="name another one; confide projects lists them")
        if GLOBAL_PROJECT in (project, other):
            raise LinkError("the global memory is searched with every project already", hint="no link is needed")
        names = sorted(set(known) - {project})
        if other not in names:
            near = difflib.get_close_matches(other, names, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "confide projects lists those there are"
            raise NotFoundError("there is no such project in this space", hint=hint)
        if other not in self.linked(project):
            for name in (project, other):
                if len(self.linked(name)) >= MAX_LINKS:
                    raise LinkError(f"a project has at most {MAX_LINKS} links", hint="confide unlink ends one")

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.add_link(project, other, now=time.time())
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))

    async def unlink(self, project: str, other: str) -> None:
        """End a link. Raises NotFoundError: there is none."""
        if other not in self.linked(project):
            raise NotFoundError("the two projects are not linked", hint="confide link lists what is")

        def work(store: Store) -> list[tuple[str, str]]:
            with store.writing():
                store.projects.remove_link(project, other)
                return store.projects.links()

        self._links = frozenset(await self._threads.write(work))
