"""The requests by which a space is written out and filled again from that: export, refill (PROTOCOL.md 9.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.limits import MAX_MESSAGE
from confide_daemon.copies import Change
from confide_daemon.documents import check_path, check_text
from confide_daemon.exchange import Operation, project_of, text_of
from confide_daemon.grants import Grants
from confide_daemon.notes import naming, note
from confide_daemon.notes.draft import stamp
from confide_daemon.space import Space
from confide_daemon.store import DocumentRow

# Of one answer: a document may be larger, and comes alone then.
PAGE_BYTES = 1024 * 1024
PAGE_DOCUMENTS = 500
MAX_REFILLED = 500
# JSON writes some letters in six bytes, and a note's text comes twice.
SURELY_FITS = MAX_MESSAGE // 16
MAX_DOCUMENT_BYTES = MAX_MESSAGE - 64 * 1024


class ExportRequests:
    """One connection's exports."""

    def __init__(self, space: Space, grants: Callable[[], Grants], publish: Callable[[Change], None]) -> None:
        """`grants` is asked at each step; `publish` tells the machines of the space of a new document."""
        self._space = space
        self._grants = grants
        self._publish = publish
        self.operations: dict[str, Operation] = {"export": self._export, "refill": self._refill}

    async def _export(self, body: dict[str, Any]) -> dict[str, Any]:
        project, after = project_of(body), text_of(body, "after")
        grants = self._grants()
        grants.require_project(project)
        following = await self._space.documents_following(
            frozenset((project,)), (project, after), sources=grants.sources, limit=PAGE_DOCUMENTS + 1
        )
        found: list[dict[str, Any]] = []
        size = 0
        for row in following[:PAGE_DOCUMENTS]:
            document = await self._document(row)
            size += len(document.get("text", "").encode())
            if found and size > PAGE_BYTES:
                break
            found.append(document)
        self._grants().require_project(project)
        return {"documents": found, "complete": len(found) == len(following)}

    async def _document(self, row: DocumentRow) -> dict[str, Any]:
        try:
            text = (await self._space.read(row.project, row.path)).text
        except ConfideError as error:
            # Deleted just now, or its text is lost: the others are written out all the same.
            return {"path": row.path, "problem": str(error)}
        found: dict[str, Any] = {"path": row.path, "text": text}
        if naming.is_note(row.path):
            found["note"] = fields(note.read(row.project, row.path, text))
        if len(text) > SURELY_FITS and _size(found) > MAX_DOCUMENT_BYTES:
            found.pop("note", None)
            if _size(found) > MAX_DOCUMENT_BYTES:
                return {"path": row.path, "problem": "is too large for one message"}
        return found

    async def _refill(self, body: dict[str, Any]) -> dict[str, Any]:
        project, is_dry = project_of(body), body.get("dryRun") is True
        documents = body.get("documents")
        if not isinstance(documents, list):
            raise RequestError("invalid", "'documents' must be a list")
        if len(documents) > MAX_REFILLED:
            raise RequestError("too_large", f"'documents' has {len(documents)} entries", f"the limit is {MAX_REFILLED}")
        return {"results": [await self._put_back(project, item, is_dry) for item in documents]}

    async def _put_back(self, project: str, item: Any, is_dry: bool) -> dict[str, str]:
        path, text = (item.get("path"), item.get("text")) if isinstance(item, Mapping) else (None, None)
        if not isinstance(path, str) or not isinstance(text, str):
            raise RequestError("invalid", "a document has 'path' and 'text'")
        grants = self._grants()
        try:
            grants.require_write(project, check_path(path))
            check_text(text)
            state, result = await self._space.refill(project, path, text, author=grants.alias, is_dry=is_dry)
        except ConfideError as error:
            return {"state": "refused", "why": str(error)}
        if result is not None:
            self._publish(Change.of(project, path, result, result.previous_hash))
        return {"state": state}


def _size(found: dict[str, Any]) -> int:
    return len(json.dumps(found, ensure_ascii=False).encode())


def fields(found: note.Note) -> dict[str, Any]:
    """A note as a record of JSON: what its document says, and nothing that only this space knows."""
    said: dict[str, Any] = {
        "id": found.id,
        "title": found.title,
        "content": found.body,
        "scope": found.scope,
        "taskId": found.task_id,
        "type": found.type,
        "category": found.category,
        "entity": found.entity,
        "tags": list(found.tags),
        "keywords": list(found.keywords),
        "importance": found.importance,
        "status": found.status,
        "source": found.source,
        "sensitive": found.sensitive,
        "relations": [relation.as_field() for relation in found.relations],
        "metadata": dict(found.metadata),
        "created": None if found.created is None else stamp(found.created),
        "updated": None if found.updated is None else stamp(found.updated),
    }
    return {name: value for name, value in said.items() if value not in (None, [], {}, False)}
