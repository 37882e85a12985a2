"""A note that is to be written: its fields as a caller gives them, and the document that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confide_daemon.notes import front_matter, naming
from confide_daemon.notes.note import MAX_TITLE, Relation, title_of


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields of a new note; `created` is seconds since 1970, `importance` as it is to stand in the file."""

    body: str
    created: float
    title: str | None = None
    task_id: str | None = None
    type: str | None = None
    category: str | None = None
    entity: str | None = None
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    importance: float | str | None = None
    status: str | None = None
    source: str | None = None
    sensitive: bool = False
    relations: tuple[Relation, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    updated: float | None = None
    id: str | None = None  # None: it gets one

    @property
    def heading(self) -> str:
        """Its title, or what its text gives for one."""
        return (self.title or title_of(self.body) or "Note")[:MAX_TITLE]

    def named(self, seed: bytes) -> tuple[str, str]:
        """Its id and the path of its file; the same for the same seed."""
        identity = self.id or naming.new_id(self.entity, self.heading, created=self.created, seed=seed)
        return identity, naming.path_of(identity, self.heading, self.task_id)

    def text(self, identity: str, scope: str) -> str:
        """The document."""
        fields = {
            "id": identity,
            "title": self.heading,
            "scope": scope,
            "taskId": self.task_id,
            "type": self.type,
            "category": self.category,
            "entity": self.entity,
            "tags": list(self.tags),
            "importance": self.importance,
            "keywords": list(self.keywords),
            "status": self.status,
            "source": self.source,
            "sensitive": self.sensitive or None,
            "relations": [relation.as_field() for relation in self.relations],
            "metadata": dict(self.metadata),
            "created": stamp(self.created),
            "updated": stamp(self.created if self.updated is None else self.updated),
        }
        return front_matter.compose(fields, self.body)


def stamp(moment: float) -> str:
    """A moment as it stands in a note: ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
