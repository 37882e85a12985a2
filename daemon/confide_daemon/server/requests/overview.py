"""Requests about a memory as a whole (PROTOCOL.md 9): changes by day, relations, and the briefing
at the start of a session.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from confide_daemon.addons import SessionHost
from confide_daemon.documents.action_notes import ActionNote
from confide_daemon.retrieval.search.results import LINK
from confide_daemon.spaces.space import Space
from confide_daemon.store.rows import HitRow
from confide_daemon.store.tables.mention_table import LinkRow
from confide_daemon.store.tables.overview_queries import StatedRelation
from confide_memory import front_matter
from confide_memory.documents import GLOBAL_PROJECT, iso
from confide_memory.forms import MAX_ACTIONS, MAX_DAYS
from confide_memory.wire.files import OfProject
from confide_memory.wire.revisions import (
    ACTIONS,
    BRIEFING,
    DAYS,
    RELATIONS,
    ActionEntry,
    ActionsAnswer,
    ActionsRequest,
    BriefingAnswer,
    BriefingPiece,
    DaysItem,
    DaysRequest,
    Relations,
    RelationsRequest,
)
from confide_memory.wire.revisions import RelationItem as Relation

_USUAL_ENTRY: Final = 400
"""Characters of an entry beside its text and its keys."""
_MOST_ACTION_CHARS: Final = 512 * 1024
"""Characters of all entries in one answer, half of what an answer may have."""


class OverviewRequests:
    """Answers the overview requests of one connection, without anything that its caller may not
    read.
    """

    def __init__(self, space: Space, session: SessionHost) -> None:
        self._space = space
        self._session = session
        self.operations = dict(
            [
                DAYS.by(self._days),
                RELATIONS.by(self._relations),
                BRIEFING.by(self._briefing),
                ACTIONS.by(self._actions),
            ]
        )

    async def _days(self, asked: DaysRequest) -> DaysItem:
        moment = datetime.fromisoformat(asked["since"]).timestamp()
        grants = self._session.grants
        days, ages = await self._space.listing.days(
            grants.projects, grants.sources, since=moment, zone_s=60 * asked["zone"], limit=MAX_DAYS
        )
        grants = self._session.grants
        return {
            "days": [
                {"day": row.day, "project": row.project, "kind": row.kind, "count": row.number}
                for row in days
                if grants.has_project(row.project)
            ],
            "ages": [{"days": days, "recalls": recalls} for days, recalls in ages],
        }

    async def _relations(self, asked: RelationsRequest) -> Relations:
        project, path, limit = asked["project"], asked["path"], asked["limit"]
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")
        listing = self._space.listing
        stated = [] if path else await listing.relations(project, grants.projects, limit=limit)
        links = await listing.links(project, path=path, limit=limit) if path or asked["links"] else []
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")
        found = [_relation_item(row) for row in stated if grants.has_project(row.other_project)]
        known = {(row["id"], row["otherId"]) for row in found}
        return {
            "relations": [*found, *(_link(project, row) for row in links if (row.id, row.other) not in known)][:limit]
        }

    async def _briefing(self, asked: OfProject) -> BriefingAnswer:
        project = asked["project"]
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")
        found = await self._space.listing.briefing(project, with_global=grants.has_project(GLOBAL_PROJECT))
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")

        def pieces(rows: Iterable[HitRow]) -> list[BriefingPiece]:
            return [piece for row in rows if grants.has_project(row.project) and (piece := _piece(row)) is not None]

        return {"head": pieces(found.head), "newest": pieces(found.newest)}

    async def _actions(self, asked: ActionsRequest) -> ActionsAnswer:
        project = asked["project"]
        self._session.grants.require_project(project)
        self._session.grants.require_source("memory")
        projects = dict.fromkeys((project, GLOBAL_PROJECT))
        found = [
            note
            for name in projects
            if self._session.grants.has_project(name)
            for note in await self._space.actions.of(name, limit=MAX_ACTIONS)
        ]
        short = await self._space.notes.short(
            [note.id for note in found if note.id], self._session.grants.projects_among(None)
        )
        grants = self._session.grants
        grants.require_project(project)
        grants.require_source("memory")
        entries = _within((note for note in found if grants.has_project(note.row.project)), short)
        version = hashlib.blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=16).hexdigest()
        return {"version": version, "entries": [] if version == asked["known"] else entries}


def _within(found: Iterable[ActionNote], short: Mapping[str, str]) -> list[ActionEntry]:
    """Return the entries as they are sent, as many as fit into an answer. `short`: the short form of
    each note's id.
    """
    entries: list[ActionEntry] = []
    left = _MOST_ACTION_CHARS
    for note in found:
        entry = _action(note, short)
        left -= len(entry["snippet"]) + sum(len(one["key"]) for one in entry["triggers"]) + _USUAL_ENTRY
        if left < 0 or len(entries) == MAX_ACTIONS:
            break
        entries.append(entry)
    return entries


def _action(note: ActionNote, short: Mapping[str, str]) -> ActionEntry:
    return {
        "project": note.row.project,
        "path": note.row.path,
        "startLine": note.entry.line,
        "id": short.get(note.id, note.id) if note.id else None,
        "snippet": note.entry.text,
        "author": note.row.author,
        "updatedAt": iso(note.row.updated_at),
        "triggers": [{"kind": one.kind, "key": one.key} for one in note.entry.triggers],
        "class": note.class_,
    }


def _relation_item(row: StatedRelation) -> Relation:
    return {
        "id": row.id,
        "title": row.title,
        "relation": row.relation,
        "otherId": row.other,
        "otherTitle": row.other_title,
        "otherProject": row.other_project,
    }


def _link(project: str, row: LinkRow) -> Relation:
    return {
        "id": row.id or "",
        "title": row.title,
        "relation": LINK,
        "otherId": row.other or "",
        "otherTitle": row.other_title,
        "otherProject": project,
        "path": row.path,
        "otherPath": row.other_path,
        "target": row.target,
    }


def _piece(row: HitRow) -> BriefingPiece | None:
    """Return a chunk as it is sent; None if it is all front matter."""
    fields, text = front_matter.split(f"{row.text}\n") if row.position == 0 else ("", row.text)
    if not text.strip():
        return None
    return {
        "path": row.path,
        "project": row.project,
        "startLine": row.start_line + fields.count("\n"),
        "endLine": row.end_line,
        "snippet": text.rstrip("\n"),
        "heading": row.heading,
        "author": row.author,
        "updatedAt": iso(row.updated_at),
        "class": row.class_,
    }
