"""What a search answers: some lines of a document each, with why they were found and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confide_daemon.searching.snippets import Group, snippet
from confide_daemon.searching.succession import Relative, Succession
from confide_daemon.store.rows import HitRow, NoteRow, Supersession


@dataclass(frozen=True, slots=True)
class Hit:
    """Some lines of a document, and why they were found. Scores are in 0 to 1, but `vector` is a cosine in -1 to 1."""

    path: str
    project: str
    start_line: int
    end_line: int
    score: float
    vector: float | None  # None: no vector yet, or no model
    keyword: float
    recency: float
    importance: float
    usage: float
    snippet: str
    heading: str
    source: str
    author: str
    updated_at: str  # ISO 8601, UTC
    alike: int = 0  # other pieces of the project that say the same, and were left out
    document: int = 0
    note: NoteRow | None = None
    superseded_by: tuple[Supersession, ...] = ()
    related: tuple[Relative, ...] | None = None  # None: nobody asked


@dataclass(frozen=True, slots=True)
class Noted:
    """What is known of the notes among the hits; by document, and what they are related with by their ids."""

    notes: Mapping[int, NoteRow] = field(default_factory=dict)
    succession: Succession = field(default_factory=lambda: Succession(()))
    related: Mapping[str, tuple[Relative, ...]] | None = None

    def related_of(self, document: int) -> tuple[Relative, ...] | None:
        """What a document is related with; None where nobody asked, or it is no note."""
        note = self.notes.get(document)
        return None if self.related is None or note is None else self.related.get(note.id, ())


def hit_of(group: Group, rows: Mapping[int, HitRow], noted: Noted) -> Hit:
    """The hit that a group makes."""
    best = group.best
    ordered = group.rows(rows)
    first = rows[best.place.id]
    return Hit(
        path=first.path,
        project=first.project,
        start_line=ordered[0].start_line,
        end_line=ordered[-1].end_line,
        score=round(min(1.0, best.score), 4),
        vector=None if best.vector is None else round(best.vector, 4),
        keyword=round(best.keyword, 4),
        recency=round(best.recency, 4),
        importance=round(best.importance, 4),
        usage=round(best.usage, 4),
        snippet=snippet(ordered),
        heading=first.heading,
        source=first.source,
        author=first.author,
        updated_at=iso(first.updated_at),
        alike=group.alike,
        document=first.document,
        note=noted.notes.get(first.document),
        superseded_by=noted.succession.by(first.document),
        related=noted.related_of(first.document),
    )


def iso(moment: float) -> str:
    """A moment (seconds since 1970) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
