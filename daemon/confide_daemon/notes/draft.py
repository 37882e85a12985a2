"""A note that is to be written: its fields as a caller gives them, and the document that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confide_memory import front_matter, note_names
from confide_memory.note import Relation
from confide_memory.timestamps import iso


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
        return note_names.heading_of(self.title, self.body)

    def named(self, seed: bytes) -> tuple[str, str]:
        """Its id and the path of its file; the same for the same seed."""
        identity = self.id or note_names.new_id(self.entity, self.heading, created=self.created, seed=seed)
        return identity, note_names.path_of(identity, self.heading, self.task_id)

    def text(self, identity: str, scope: str) -> str:
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
            "created": iso(self.created),
            "updated": iso(self.created if self.updated is None else self.updated),
        }
        return front_matter.compose(fields, self.body)
