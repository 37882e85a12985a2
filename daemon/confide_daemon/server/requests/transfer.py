"""The request by which a machine hands over memories of other systems: import (PROTOCOL.md 9)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.copies import Change
from confide_daemon.errors import ToolError
from confide_daemon.exchange import Operation, project_of
from confide_daemon.grants import Grants
from confide_daemon.notes import naming
from confide_daemon.notes.draft import Draft
from confide_daemon.notes.intake import Intake, Taken
from confide_daemon.notes.note import (
    MAX_KEYWORDS,
    MAX_METADATA_BYTES,
    MAX_RELATIONS,
    MAX_TAGS,
    MAX_TITLE,
    MAX_WORD,
    RELATIONS,
    Relation,
    moment_of,
)
from confide_daemon.space import Space
from confide_daemon.tools.note_form import importance, one_line

MAX_RECORDS = 200
"""Of one request: they are written in one transaction, and the space's other writes wait for it."""
MAX_CHARACTERS = 4 * 1024 * 1024
"""Of the texts of one request; one alone may be as long as a document."""
SOURCE = "import"
_WORDS = {
    "title": MAX_TITLE,
    "type": MAX_WORD,
    "category": MAX_WORD,
    "entity": MAX_WORD,
    "source": MAX_WORD,
    "status": MAX_WORD,
}
_FIELDS = frozenset(
    {
        "id",
        "content",
        "taskId",
        "tags",
        "keywords",
        "importance",
        "created",
        "updated",
        "relations",
        "metadata",
        *_WORDS,
    }
)


class ImportRequests:
    """One connection's imports."""

    def __init__(self, space: Space, grants: Callable[[], Grants], publish: Callable[[Change], None]) -> None:
        """`grants` is asked at each step; `publish` tells the machines of the space, this one too, of a new note."""
        self._space = space
        self._grants = grants
        self._publish = publish
        self.operations: dict[str, Operation] = {"import": self._import}

    async def _import(self, body: dict[str, Any]) -> dict[str, Any]:
        project, is_dry, again = project_of(body), _flag(body, "dryRun"), _flag(body, "again")
        records = body.get("records")
        if not isinstance(records, list):
            raise RequestError("invalid", "'records' must be a list")
        if len(records) > MAX_RECORDS:
            raise RequestError("too_large", f"'records' has {len(records)} entries", f"the limit is {MAX_RECORDS}")
        if (
            sum(len(str(record.get("content", ""))) for record in records if isinstance(record, Mapping))
            > MAX_CHARACTERS
        ):
            raise RequestError(
                "too_large", "the records have too much text together", f"the limit is {MAX_CHARACTERS:,}"
            )
        grants = self._grants()
        grants.require_write(project, naming.FOLDER)
        read = [_read(record) for record in records]
        drafts = [draft for draft in read if isinstance(draft, Draft)]
        intake = Intake(project, grants.alias, grants.projects_among(None), again)
        taken = iter(await self._space.notes.take(drafts, intake, is_dry=is_dry))
        results = [next(taken) if isinstance(draft, Draft) else draft for draft in read]
        for one in results:
            if one.result is not None:
                self._publish(Change.of(project, one.path, one.result, one.result.previous_hash))
        return {"results": [_answer(one) for one in results]}


def _read(record: Any) -> Draft | Taken:
    """The note that a record describes, or why it is none."""
    identity = record.get("id") if isinstance(record, Mapping) else None
    try:
        return _draft(record)
    except ToolError as error:
        known = identity if isinstance(identity, str) and naming.ID.fullmatch(identity) else None
        return Taken("refused", known, f"{error}; {error.hint}" if error.hint else str(error))


def _draft(record: Any) -> Draft:
    if not isinstance(record, Mapping):
        raise ToolError("a record is an object")
    if unknown := sorted(str(name)[:40] for name in record.keys() - _FIELDS):
        raise ToolError(f"unknown field '{unknown[0]}'", hint="do the versions of confide and confided fit?")
    identity, content = record.get("id"), record.get("content")
    if not isinstance(identity, str) or not naming.ID.fullmatch(identity):
        raise ToolError("'id' is not that of a note", hint="mem_<name>_<time>_<hash>")
    if not isinstance(content, str) or not content.strip():
        raise ToolError("'content' is empty")
    task_id = record.get("taskId")
    if task_id is not None and not (isinstance(task_id, str) and naming.TASK_ID.fullmatch(task_id)):
        raise ToolError("'taskId' is not usable as a folder's name", hint="letters, digits, '.', '_' and '-'")
    updated = _moment(record, "updated")
    created = _moment(record, "created")
    now = float(int(time.time()))
    words: dict[str, Any] = {name: _word(record, name, most) for name, most in _WORDS.items()}
    return Draft(
        body=content,
        created=created if created is not None else updated if updated is not None else now,
        updated=updated,
        task_id=task_id,
        tags=_words(record, "tags", MAX_TAGS),
        keywords=_words(record, "keywords", MAX_KEYWORDS),
        importance=_importance(record.get("importance")),
        relations=_relations(record.get("relations")),
        metadata=_metadata(record.get("metadata")),
        id=identity,
        **{**words, "source": words["source"] or SOURCE},
    )


def _word(record: Mapping[str, Any], name: str, most: int) -> str | None:
    value = record.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > most:
        raise ToolError(f"'{name}' is not a text of at most {most} characters")
    return one_line(name, [value])[0]


def _words(record: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    value = record.get(name, [])
    if not isinstance(value, list) or len(value) > most:
        raise ToolError(f"'{name}' is not a list of at most {most}")
    if not all(isinstance(word, str) and len(word) <= MAX_WORD for word in value):
        raise ToolError(f"'{name}' holds something that is no word of at most {MAX_WORD} characters")
    return one_line(name, value)


def _importance(value: Any) -> float | str | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise ToolError("'importance' is not understood")
    return importance(value)


def _moment(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    moment = moment_of(value)
    # A year of five digits could not be written as ISO 8601, nor one before the first.
    if value is not None and (moment is None or not 0 <= moment < 253_402_300_800):
        raise ToolError(f"'{name}' is no time between 1970 and 9999", hint="ISO 8601, in UTC")
    return None if moment is None else float(int(moment))


def _relations(value: Any) -> tuple[Relation, ...]:
    items = [] if value is None else value
    if not isinstance(items, list) or len(items) > MAX_RELATIONS:
        raise ToolError(f"'relations' is not a list of at most {MAX_RELATIONS}")
    found = []
    for item in items:
        match item:
            case {"relation": str(kind), "id": str(other)} if kind in RELATIONS and naming.ID.fullmatch(other):
                found.append(Relation(kind, other))
            case _:
                raise ToolError("'relations' holds an entry that is not {relation, id}")
    return tuple(dict.fromkeys(found))


def _metadata(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ToolError("'metadata' is not an object")
    try:
        size = len(json.dumps(value, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        raise ToolError("'metadata' is not JSON") from None
    if size > MAX_METADATA_BYTES:
        raise ToolError(f"'metadata' has {size:,} bytes", hint=f"the limit is {MAX_METADATA_BYTES:,}")
    return value


def _flag(body: dict[str, Any], key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise RequestError("invalid", f"'{key}' must be true or false")
    return value


def _answer(taken: Taken) -> dict[str, Any]:
    said = {"state": taken.state, "id": taken.id, "why": taken.why, "project": taken.project}
    return {name: value for name, value in said.items() if value is not None}
