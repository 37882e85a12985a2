"""Pure functions on the text of a note's document: compose it from a draft, and change its fields,
its text and its relations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confide_daemon.errors import ToolError
from confide_memory import front_matter, note, note_names
from confide_memory.actions import triggers
from confide_memory.documents import iso
from confide_memory.front_matter import FrontMatterError
from confide_memory.markdown_blocks import MARK, style_of
from confide_memory.mentions import fold_name
from confide_memory.note import MAX_KEYWORDS, MAX_RELATIONS, MAX_TAGS, Relation


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields of a note to be created. `created` is in seconds since 1970, and `importance` is
    in the form in which it is stored in the file.
    """

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
    metadata: Mapping[str, object] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    updated: float | None = None
    id: str | None = None  # None: it gets one

    @property
    def heading(self) -> str:
        """The title, or one made from the beginning of the text if there is none."""
        return note_names.heading_of(self.title, self.body)

    def id_and_path(self, seed: bytes) -> tuple[str, str]:
        """Return the note's id and the path of its file. They are the same for the same seed."""
        identity = self.id or note_names.new_id(self.entity, self.heading, created=self.created, seed=seed)
        return identity, note_names.path_of(identity, self.heading, self.task_id)

    def is_said_by(self, title: str, entity: str | None) -> bool:
        """Return True if an existing note with the same text loses nothing of the draft's title and
        entity: each of the two is equal, or the draft does not give it.
        """
        own = (self.title is None or self.heading == title, self.entity is None or same_name(self.entity, entity))
        return all(own)

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
            note.SEEN: dict(self.seen),
            **triggers.trigger_fields(self.body),
            "created": iso(self.created),
            "updated": iso(self.created if self.updated is None else self.updated),
        }
        return front_matter.compose(fields, self.body)


def same_name(one: str | None, other: str | None) -> bool:
    """Return True if two names of entities are equal, regardless of case and Unicode form."""
    return fold_name(one or "") == fold_name(other or "")


Change = Callable[[str], str]


def merge_draft(draft: Draft) -> Change:
    """Return a function that adds the draft's tags, keywords, relations and `seen` values to the
    document of a note with the same text.

    That function raises ToolError if the note would have too many tags or keywords, or its front
    matter cannot be read or changed in this way.
    """

    def change(text: str) -> str:
        said = note.read("", "", text)
        words: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int], ...] = (
            ("tags", said.tags, draft.tags, MAX_TAGS),
            ("keywords", said.keywords, draft.keywords, MAX_KEYWORDS),
        )
        for name, own, more, most in words:
            known = {word.casefold() for word in own}
            lacking = [word for word in more if word.casefold() not in known]
            if len(own) + len(lacking) > most:
                raise ToolError(f"a note has at most {most} {name}")
            if lacking:
                text = _edit(text, {name: [*own, *lacking]})
        if draft.seen:
            text = _edit(text, {note.SEEN: dict(draft.seen)})
        for relation in draft.relations:
            others = [one.other for one in said.relations if one.kind == relation.kind]
            if relation.other not in others:
                text = _edit(text, {"relations": _stating(text, relation.kind, [*others, relation.other])})
                said = note.read("", "", text)
        return text

    return change


def change_fields(
    fields: Mapping[str, object], content: str | None, stated: tuple[str, Sequence[str]] | None, *, now: float
) -> Change:
    """Return a function that sets these fields, and the note's text if `content` is given. A value
    of "" or an empty list removes the field.

    Args:
        fields: the new values, by field name.
        content: the new text; None keeps the old one.
        stated: a kind of relation, and all notes to which the note shall have it; None changes no
            relation.
        now: seconds since 1970, for the field `updated`. That is left unchanged if nothing else
            changes.

    That function raises ToolError if the front matter cannot be read or changed in this way.
    """

    def change(text: str) -> str:
        changes = {name: None if value in ("", [], (), {}) else value for name, value in fields.items()}
        if stated is not None:
            changes["relations"] = _stating(text, *stated)
        if content is not None:
            changes = {**_described_fields(text, content), **changes}  # neither, of a text that is sealed
        return _set_updated(text, _with_content(_edit(text, changes), content), now)

    return change


def _described_fields(text: str, content: str) -> dict[str, object]:
    """Return the fields that a note's new text gives (`triggers.described`), without those whose
    values the old text does not give: their author wrote them.
    """
    parts = front_matter.parse(text)
    old, new = triggers.trigger_fields(parts.body), triggers.trigger_fields(content)
    return {name: new.get(name) for name in note.DESCRIBED if parts.fields.get(name) == old.get(name)}


def add_relation(relation: Relation, *, now: float) -> Change:
    """Return a function that adds a relation to a note's document, unless the note states it
    already. It raises the same errors as that of `change_fields`.
    """

    def change(text: str) -> str:
        raw = front_matter.parse(text).fields.get("relations")
        others = [other for kind, other in _entries(raw) if kind == relation.kind and isinstance(other, str)]
        if relation.other in others:
            return text
        return _set_updated(
            text, _edit(text, {"relations": _stating(text, relation.kind, [*others, relation.other])}), now
        )

    return change


def _edit(text: str, changes: Mapping[str, object]) -> str:
    try:
        return front_matter.edit(text, changes)
    except FrontMatterError as error:
        raise ToolError(
            f"this note cannot be changed field by field: {error}",
            hint="its file has to be put right first: read it with memory_read, and repair it by hand or with memory_store in mode replace",
        ) from None


def _set_updated(before: str, after: str, now: float) -> str:
    """Return the text with the time of the change, if the text has changed and has front matter."""
    if after == before or not front_matter.split(after)[0]:
        return after
    return _edit(after, {"updated": iso(now)})


def _with_content(text: str, content: str | None) -> str:
    """Replace the text below the front matter, and keep the blank lines between them."""
    if content is None:
        return text
    head, body = front_matter.split(text)
    if not head and body.startswith(MARK):
        head, body = MARK, body[1:]
    if body.replace("\r\n", "\n").strip("\n") == content.replace("\r\n", "\n").strip("\n"):
        return text
    ends = "\r\n" if style_of(text).crlf else "\n"
    above = body[: len(body) - len(body.lstrip("\r\n"))] or (ends if head not in ("", MARK) and not body else "")
    if head and not head.endswith(("\n", MARK)):
        head += ends
    plain = content.replace("\r\n", "\n").strip("\n") + "\n"
    if head in ("", MARK) and front_matter.split(plain)[0]:
        # A text that begins like front matter would be read as front matter, and the note as
        # another one.
        head, above = head + (front_matter.FENCE * 2).replace("\n", ends), ends
    return head + above + plain.replace("\n", ends)


def _stating(text: str, kind: str, others: Sequence[str]) -> Any:
    """Return the field `relations` in its present form, with exactly these notes for the kind; all
    other content stays, understood or not.
    """
    raw = front_matter.parse(text).fields.get("relations")
    if isinstance(raw, dict):
        found: Any = {**raw, kind: list(others)} if others else {name: raw[name] for name in raw if name != kind}
    elif raw is None or isinstance(raw, list):
        wanted = list(dict.fromkeys(others))
        found = [item for item in raw or () if not _is_of(item, kind) or item.get("id") in wanted]
        there = [item.get("id") for item in found if _is_of(item, kind)]
        found += [Relation(kind, other).as_field() for other in wanted if other not in there]
    else:
        raise ToolError(
            "the 'relations' of this note are not understood, so none can be added",
            hint="in its file, make them a list of {relation, id}",
        )
    if len(_entries(found)) > MAX_RELATIONS:
        raise ToolError(f"a note states at most {MAX_RELATIONS} relations", hint="state it in the other note instead")
    return found or None


def _is_of(item: Any, kind: str) -> bool:
    return isinstance(item, dict) and item.get("relation") == kind


def _entries(raw: Any) -> list[tuple[Any, Any]]:
    if isinstance(raw, dict):
        pairs = [(kind, others if isinstance(others, list) else [others]) for kind, others in raw.items()]
        return [(kind, other) for kind, others in pairs for other in others]
    if isinstance(raw, list):
        return [(item.get("relation"), item.get("id")) for item in raw if isinstance(item, dict)]
    return []
