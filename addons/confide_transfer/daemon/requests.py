"""Handles the requests for import of other tools' memories (PROTOCOL.md 9), and for export of a
space and refill, which restores missing documents from an export (9.6).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.limits import MAX_MESSAGE
from confide_daemon.addons import SessionHost, SessionPart
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.errors import ToolError
from confide_daemon.notes.note_edit import Draft
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import DocumentRow
from confide_daemon.tools.note_fields import importance, one_line
from confide_memory import note, note_names
from confide_memory.documents import NOTES, check_path, check_text, is_note, iso
from confide_memory.note import (
    MAX_KEYWORDS,
    MAX_METADATA_BYTES,
    MAX_RELATIONS,
    MAX_TAGS,
    MAX_WORD,
    RELATIONS,
    Relation,
    moment_of,
)
from confide_transfer.daemon.bulk_import import Intake, Taken
from confide_transfer.shared.wire import (
    EXPORT,
    IMPORT,
    REFILL,
    Became,
    Exported,
    ExportPage,
    ExportRequest,
    Imported,
    ImportRequest,
    RefillAnswer,
    Refilled,
    RefillRequest,
)

MAX_CHARACTERS = 4 * 1024 * 1024
"""Limit of the texts of one request together; a single text has the limit of a document."""
# Limits of one answer. A document larger than this is sent alone.
PAGE_BYTES = 1024 * 1024
PAGE_DOCUMENTS = 500
# JSON needs up to six bytes for a character, and the answer has a note's text twice.
SURELY_FITS = MAX_MESSAGE // 16
MAX_DOCUMENT_BYTES = MAX_MESSAGE - 64 * 1024
SOURCE = "import"


class TransferRequests(SessionPart):
    """The requests for import, export and refill on one connection."""

    changing = ("import", "refill")

    def __init__(self, session: SessionHost) -> None:
        self._session = session
        self._space: Space
        self.operations = dict([IMPORT.by(self._import), EXPORT.by(self._export), REFILL.by(self._refill)])

    def use(self, space: Space) -> None:
        """Answer all further requests with the content of this space."""
        self._space = space

    async def _import(self, asked: ImportRequest) -> Imported:
        project, records = asked["project"], asked["records"]
        size = sum(len(str(record.get("content", ""))) for record in records if isinstance(record, Mapping))
        if size > MAX_CHARACTERS:
            hint = f"the limit is {MAX_CHARACTERS:,}"
            raise RequestError("too_large", "the records have too much text together", hint)
        grants = self._session.grants
        grants.require_write(project, NOTES)
        read = [_read(record) for record in records]
        drafts = [draft for draft in read if isinstance(draft, Draft)]
        intake = Intake(project, grants.alias, grants.projects_among(None), asked["again"])
        if asked["dryRun"]:
            became = await self._space.notes.read(lambda store: intake.try_out(store, drafts))
        else:
            became = await self._space.notes.write(lambda writer: intake.take(writer, drafts))
        taken = iter(became)
        results = [next(taken) if isinstance(draft, Draft) else draft for draft in read]
        for one in results:
            if one.result is not None:
                self._session.publish_here_too(
                    DocumentChange.of(project, one.path, one.result, one.result.previous_hash)
                )
        return {"results": [_answer(one) for one in results]}

    async def _export(self, asked: ExportRequest) -> ExportPage:
        project = asked["project"]
        grants = self._session.grants
        grants.require_project(project)
        following = await self._space.documents.following(
            frozenset((project,)), (project, asked["after"]), sources=grants.sources, limit=PAGE_DOCUMENTS + 1
        )
        found: list[Exported] = []
        size = 0
        for row in following[:PAGE_DOCUMENTS]:
            document = await self._document(row)
            size += len((document.get("text") or "").encode())
            if found and size > PAGE_BYTES:
                break
            found.append(document)
        self._session.grants.require_project(project)
        return {"documents": found, "complete": len(found) == len(following)}

    async def _document(self, row: DocumentRow) -> Exported:
        try:
            text = (await self._space.documents.read(row.project, row.path)).text
        except ConfideError as error:
            # The document was deleted just now, or its text is lost: export the others all the
            # same.
            return {"path": row.path, "problem": str(error)}
        found: Exported = {"path": row.path, "text": text}
        if is_note(row.path):
            found["note"] = fields(note.read(row.project, row.path, text))
        if len(text) > SURELY_FITS and _size(found) > MAX_DOCUMENT_BYTES:
            found.pop("note", None)
            if _size(found) > MAX_DOCUMENT_BYTES:
                return {"path": row.path, "problem": "is too large for one message"}
        return found

    async def _refill(self, asked: RefillRequest) -> RefillAnswer:
        project, is_dry = asked["project"], asked["dryRun"]
        return {"results": [await self._put_back(project, item, is_dry) for item in asked["documents"]]}

    async def _put_back(self, project: str, item: object, is_dry: bool) -> Refilled:
        path, text = (item.get("path"), item.get("text")) if isinstance(item, Mapping) else (None, None)
        if not isinstance(path, str) or not isinstance(text, str):
            raise RequestError("invalid", "a document has 'path' and 'text'")
        grants = self._session.grants
        try:
            grants.require_write(project, check_path(path))
            check_text(text)
            state, result = await self._space.documents.refill(project, path, text, author=grants.alias, is_dry=is_dry)
        except ConfideError as error:
            return {"state": "refused", "why": str(error)}
        if result is not None:
            self._session.publish_here_too(DocumentChange.of(project, path, result, result.previous_hash))
        return {"state": state}


def _read(record: Any) -> Draft | Taken:
    """Return the note that a record describes, or a refusal with the reason."""
    identity = record.get("id") if isinstance(record, Mapping) else None
    try:
        return _draft(record)
    except ToolError as error:
        known = identity if isinstance(identity, str) and note_names.ID.fullmatch(identity) else None
        return Taken("refused", known, error.in_one_line)


def _draft(record: Any) -> Draft:
    if not isinstance(record, Mapping):
        raise ToolError("a record is an object")
    if unknown := sorted(str(name)[:40] for name in record.keys() - _FIELDS.keys()):
        raise ToolError(f"unknown field '{unknown[0]}'", hint="do the versions of confide and confided fit?")
    fields: dict[str, Any] = {field: read(name, record.get(name)) for name, (field, read) in _FIELDS.items()}
    if fields["created"] is None:
        fields["created"] = fields["updated"] if fields["updated"] is not None else float(int(time.time()))
    return Draft(**{**fields, "source": fields["source"] or SOURCE})


def _identity(_name: str, value: Any) -> str:
    if not isinstance(value, str) or not note_names.ID.fullmatch(value):
        raise ToolError("'id' is not that of a note", hint="mem_<name>_<time>_<hash>")
    return value


def _content(_name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ToolError("'content' is empty")
    return value


def _task_id(_name: str, value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and note_names.TASK_ID.fullmatch(value)):
        raise ToolError("'taskId' is not usable as a folder's name", hint="letters, digits, '.', '_' and '-'")
    return value


def _word(most: int) -> _Read:
    def read(name: str, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > most:
            raise ToolError(f"'{name}' is not a text of at most {most} characters")
        return one_line(name, [value])[0]

    return read


def _words(most: int) -> _Read:
    def read(name: str, value: Any) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > most:
            raise ToolError(f"'{name}' is not a list of at most {most}")
        if not all(isinstance(word, str) and len(word) <= MAX_WORD for word in value):
            raise ToolError(f"'{name}' holds something that is no word of at most {MAX_WORD} characters")
        return one_line(name, value)

    return read


def _importance(_name: str, value: Any) -> float | str | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise ToolError("'importance' is not understood")
    return importance(value)


def _moment(name: str, value: Any) -> float | None:
    moment = moment_of(value)
    # ISO 8601 has no form for years after 9999 or before year 1.
    if value is not None and (moment is None or not 0 <= moment < 253_402_300_800):
        raise ToolError(f"'{name}' is no time between 1970 and 9999", hint="ISO 8601, in UTC")
    return None if moment is None else float(int(moment))


def _relations(_name: str, value: Any) -> tuple[Relation, ...]:
    items = [] if value is None else value
    if not isinstance(items, list) or len(items) > MAX_RELATIONS:
        raise ToolError(f"'relations' is not a list of at most {MAX_RELATIONS}")
    found = []
    for item in items:
        match item:
            case {"relation": str(kind), "id": str(other)} if kind in RELATIONS and note_names.ID.fullmatch(other):
                found.append(Relation(kind, other))
            case _:
                raise ToolError("'relations' holds an entry that is not {relation, id}")
    return tuple(dict.fromkeys(found))


def _metadata(_name: str, value: Any) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ToolError("'metadata' is not an object")
    try:
        size = _size(value)
    except (ValueError, RecursionError):
        raise ToolError("'metadata' is not JSON") from None
    if size > MAX_METADATA_BYTES:
        raise ToolError(f"'metadata' has {size:,} bytes", hint=f"the limit is {MAX_METADATA_BYTES:,}")
    return value


_Read = Callable[[str, Any], Any]
"""Reads a field of a record from its name and its value; raises ToolError if the form is wrong."""
_FIELDS: Final[Mapping[str, tuple[str, _Read]]] = {
    "id": ("id", _identity),
    "content": ("body", _content),
    "taskId": ("task_id", _task_id),
    "title": ("title", _word(note_names.MAX_TITLE)),
    **{name: (name, _word(MAX_WORD)) for name in ("type", "category", "entity", "source", "status")},
    "tags": ("tags", _words(MAX_TAGS)),
    "keywords": ("keywords", _words(MAX_KEYWORDS)),
    "importance": ("importance", _importance),
    "created": ("created", _moment),
    "updated": ("updated", _moment),
    "relations": ("relations", _relations),
    "metadata": ("metadata", _metadata),
}
"""Maps the name of a record's field to the draft's field and the function that reads it."""


def _answer(taken: Taken) -> Became:
    said: Became = {"state": taken.state}
    if taken.id is not None:
        said["id"] = taken.id
    if taken.why is not None:
        said["why"] = taken.why
    if taken.project is not None:
        said["project"] = taken.project
    return said


def _size(found: Mapping[str, object]) -> int:
    return len(json.dumps(found, ensure_ascii=False).encode())


def fields(found: note.Note) -> dict[str, object]:
    """Return a note as a JSON object, with all fields that its document states and none that exist
    only in this space.
    """
    said: dict[str, object] = {
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
        "created": None if found.created is None else iso(found.created),
        "updated": None if found.updated is None else iso(found.updated),
    }
    return {name: value for name, value in said.items() if value not in (None, [], {}, False)}
