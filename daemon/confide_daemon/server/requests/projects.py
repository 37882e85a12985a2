"""Requests about projects and about the history of documents (PROTOCOL.md 9): projects, links,
link, unlink; history, documents, changes, deleted, restore, forget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.addons import SessionHost
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.document_history import EVERYTHING, MOST_FORGOTTEN_LISTED
from confide_daemon.documents.document_listing import Listed
from confide_daemon.documents.document_service import MAX_LISTED
from confide_daemon.spaces.space import Space
from confide_memory.classes import OWNER
from confide_memory.documents import check_stored_path, iso
from confide_memory.wire import revisions as wire
from confide_memory.wire.files import OfProject


async def queued_for(space: Space, grants: Grants, of_all: int) -> int:
    """Return how many chunks that the caller may read still wait for a vector. `of_all`: the number
    for the whole space.
    """
    return of_all if grants.projects is None else await space.index.count_queued(grants.projects)


class ProjectRequests:
    """Answers the project requests of one connection. What its caller may not read is treated as
    nonexistent.
    """

    def __init__(self, space: Space, session: SessionHost) -> None:
        self._space = space
        self._session = session
        self.operations = dict(
            [
                wire.PROJECTS.by(self._projects),
                wire.LINKS.by(self._links),
                wire.LINK.by(self._link),
                wire.UNLINK.by(self._unlink),
                wire.HISTORY.by(self._history),
                wire.DOCUMENTS.by(self._documents),
                wire.CHANGES.by(self._changes),
                wire.DELETED.by(self._list_deleted),
                wire.RESTORE.by(self._restore),
                wire.FORGET.by(self._forget),
            ]
        )

    async def _projects(self, asked: OfProject) -> wire.Projects:
        grants = self._session.grants
        found = await self._space.projects.list_projects(grants.projects, grants.sources)
        linked = self._space.projects.linked_projects(asked["project"])
        grants = self._session.grants
        return {
            "projects": [
                {"name": row.name, "files": row.files, "updated": iso(row.updated_at), "linked": row.name in linked}
                for row in found
                if grants.has_project(row.name)
            ],
            "complete": len(found) < MAX_LISTED,
        }

    async def _links(self, asked: OfProject) -> wire.Linked:
        self._session.grants.require_project(asked["project"])
        return self._links_of(asked["project"])

    async def _link(self, asked: wire.LinkRequest) -> wire.Linked:
        project, other = asked["project"], asked["other"]
        self._require_both(project, other)
        known = await self._space.status(self._session.grants.projects)
        self._require_both(project, other)
        await self._space.projects.link(project, other, known=known.projects)
        return self._links_of(project)

    async def _unlink(self, asked: wire.LinkRequest) -> wire.Linked:
        project, other = asked["project"], asked["other"]
        self._require_both(project, other)
        await self._space.projects.unlink(project, other)
        return self._links_of(project)

    def _require_both(self, project: str, other: str) -> None:
        grants = self._session.grants
        grants.require_scope()
        grants.require_project(project)
        grants.require_project(other)

    def _links_of(self, project: str) -> wire.Linked:
        grants = self._session.grants
        return {
            "linked": sorted(name for name in self._space.projects.linked_projects(project) if grants.has_project(name))
        }

    async def _history(self, asked: wire.HistoryRequest) -> wire.History:
        project, path = asked["project"], asked["path"]
        self._session.grants.require_read(project, path)
        found = await self._space.history.revisions(project, path, limit=asked["limit"])
        self._session.grants.require_read(project, path)
        return {
            "revisions": [
                {
                    "revision": entry.number,
                    "author": entry.author,
                    "time": iso(entry.created_at),
                    "bytes": entry.bytes,
                    "deleted": entry.deleted,
                    "clash": entry.clash,
                    "class": entry.class_,
                }
                for entry in found
            ]
        }

    async def _documents(self, asked: wire.DocumentsRequest) -> wire.DocumentsPage:
        project = asked["project"]
        self._require_memory(project)
        if (at := asked["at"]) is not None:
            return await self._documents_at(asked, at)
        page = await self._space.listing.documents(
            project,
            below=asked["path"],
            limit=asked["limit"],
            offset=asked["offset"],
            sort=asked["sort"],
            around=asked["around"],
            with_folders=asked["folders"],
        )
        self._require_memory(project)
        return {
            "documents": [_document_item(one) for one in page.documents],
            "total": page.total,
            "offset": page.offset,
            "folders": [{"path": path, "documents": number} for path, number in page.folders],
        }

    async def _documents_at(self, asked: wire.DocumentsRequest, at: str) -> wire.DocumentsPage:
        project, offset = asked["project"], asked["offset"]
        page = await self._space.listing.documents_at(
            project,
            below=asked["path"],
            moment=datetime.fromisoformat(at).timestamp(),
            limit=asked["limit"],
            offset=offset,
        )
        self._require_memory(project)
        found: list[wire.DocumentItem] = [
            {**_document_item(one), "current": is_current} for one, is_current in page.documents
        ]
        return {
            "documents": found,
            "total": page.total,
            "offset": offset,
            "at": at,
            "lost": page.lost_documents,
            "now": datetime.now(UTC).isoformat(),
        }

    async def _changes(self, asked: wire.ChangesRequest) -> wire.Changes:
        project, path, since, limit = asked["project"], asked["path"], asked["since"], asked["limit"]
        self._require_memory(project)
        moment = datetime.fromisoformat(since).timestamp() if since else 0.0
        listing = self._space.listing
        if (after := asked["after"]) is None:
            until = datetime.fromisoformat(asked["until"]).timestamp() if asked["until"] else math.inf
            rows = await listing.changes(project, below=path, since=moment, until=until, limit=limit)
            found = [(one, one.row.id) for one in rows]
        else:
            is_limited = not self._session.grants.reaches_all
            found = await listing.changes_after(
                project, below=path, after=after, since=moment, limit=limit, is_limited=is_limited
            )
        self._require_memory(project)
        return {
            "changes": [
                {
                    "path": one.row.path,
                    "revision": one.row.revision,
                    "author": one.row.author,
                    "time": iso(one.row.created_at),
                    "bytes": one.row.bytes,
                    "deleted": bool(one.row.deleted),
                    "clash": bool(one.row.clash),
                    "words": one.words,
                    "change": one.row.change,
                    "id": identity,
                }
                for one, identity in found
            ]
        }

    def _require_memory(self, project: str) -> None:
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")

    async def _list_deleted(self, asked: OfProject) -> wire.Deleted:
        project = asked["project"]
        self._session.grants.require_project(project)
        found = await self._space.history.list_deleted(project)
        grants = self._session.grants
        return {
            "documents": [
                {
                    "path": item.path,
                    "revision": item.last.number,
                    "bytes": item.last.bytes,
                    "author": item.author,
                    "time": iso(item.deleted_at),
                    "restorableUntil": iso(item.restorable_until),
                }
                for item in found
                if grants.reaches(project, item.path)
            ]
        }

    async def _restore(self, asked: wire.RestoreRequest) -> wire.RestoreAnswer:
        project, path = asked["project"], asked["path"]
        grants = self._session.grants
        grants.require_write(project, path)
        result = await self._space.documents.restore(
            project, check_stored_path(path), revision=asked["revision"], author=grants.alias, by=OWNER
        )
        if result.changed:
            self._session.publish_here_too(DocumentChange.of(project, path, result, result.previous_hash))
        return {
            "revision": result.revision,
            "hash": result.hash,
            "changed": result.changed,
            "indexed": True,
            "queued": await queued_for(self._space, self._session.grants, result.queued_pieces),
        }

    async def _forget(self, asked: wire.ForgetRequest) -> wire.ForgetAnswer:
        """Forget one batch; the caller repeats until it is complete. No device is notified, since
        none may touch its file.
        """
        project, paths = asked["project"], asked["paths"]
        self._require_writer(project)
        names = paths or [EVERYTHING]
        if asked["undo"]:
            taken = await self._space.documents.take_again(project, names)
            return {"documents": list(taken[:MOST_FORGOTTEN_LISTED]), "total": len(taken), "complete": True}
        if asked["dryRun"]:
            found = await self._space.documents.paths_to_forget(project, names, reaches=self._reaches(project))
            return {"documents": found[:MOST_FORGOTTEN_LISTED], "total": len(found), "complete": False}
        step = await self._space.documents.forget(
            project, names, author=self._session.grants.alias, reaches=self._reaches(project)
        )
        if not paths:
            for name in await self._space.transcripts.sessions(project):
                self._require_writer(project)
                await self._space.transcripts.forget(name, author=self._session.grants.alias)
        return {"documents": list(step.documents), "total": step.total, "complete": step.is_complete}

    def _require_writer(self, project: str) -> None:
        self._require_memory(project)
        self._session.grants.require_scope()

    def _reaches(self, project: str) -> Callable[[str], bool]:
        """Return a check that the caller may currently write the document at a path."""
        return lambda path: (grants := self._session.grants).may_write and grants.reaches(project, path)


def _document_item(one: Listed) -> wire.DocumentItem:
    return {
        "path": one.row.path,
        "revision": one.row.revision,
        "author": one.row.author,
        "time": iso(one.row.updated_at),
        "bytes": one.row.bytes,
        "lines": one.lines,
        "title": one.title,
        "id": one.row.id,
        "clash": bool(one.row.clash),
        "class": one.row.class_,
        "words": one.words,
    }
