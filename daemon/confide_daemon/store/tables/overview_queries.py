"""SQL for numbers about the growth, use and links of a memory, shown on the panel's pages. It never
reads a text.
"""

# ruff: noqa: S608 - only constants of ours are put into SQL; every value is a parameter

from __future__ import annotations

from typing import NamedTuple

from confide_daemon.store.database import Table, within

MOST_REVISIONS = 50_000
"""Newest revisions that the days are counted from: 40 ms. A space with more in that time sees only
the last of them.
"""
RECALLED = "recalled"
_SPANS = (1, 7, 30, 90, 365)
"""Days; older documents form one more group."""


class DayRow(NamedTuple):
    """The number of changes of one kind on a day in a project. `kind`: the trust class of the
    revisions' author, or `deleted`, `said` (messages of a transcript) or `recalled` (texts shown to
    an agent).
    """

    day: str
    project: str
    kind: str
    number: int


class StatedRelation(NamedTuple):
    """A relation from one note to another, with the titles of both."""

    id: str
    title: str
    relation: str
    other: str
    other_title: str
    other_project: str


class OverviewTable(Table):
    """Queries over the projects and sources that a caller may read; None means all."""

    def days(
        self,
        projects: frozenset[str] | None,
        sources: frozenset[str] | None,
        *,
        since: float,
        zone_s: int,
        limit: int,
    ) -> list[DayRow]:
        """Count the changes of each day and the recalls (texts shown to an agent), newest day
        first, at most `limit` rows.

        In a time zone that is not a whole number of hours from UTC, the hour around midnight counts
        for the day in which it begins.

        Args:
            since: the start, in seconds since 1970.
            zone_s: seconds by which a day begins before UTC's.
        """
        (reached, names), (chosen, more) = within("p.name", projects), within("d.source", sources)
        where = f" JOIN project p ON p.id = d.project WHERE true{reached}{chosen}"
        sql = f"""WITH last AS MATERIALIZED (SELECT document, created_at, by, text IS NULL AS gone FROM revision
                      WHERE created_at >= ? ORDER BY change DESC LIMIT {MOST_REVISIONS})
                  SELECT date(l.created_at + ?, 'unixepoch'), p.name,
                      CASE WHEN d.source = 'sessions' THEN 'said' WHEN l.gone THEN 'deleted' ELSE coalesce(l.by, 'agent') END, count(*)
                      FROM last l JOIN document d ON d.id = l.document{where} GROUP BY 1, 2, 3
                  UNION ALL
                  SELECT date(3600 * d.hour + ?, 'unixepoch'), p.name, '{RECALLED}', sum(d.uses)
                      FROM recall d{where} AND d.hour >= ? GROUP BY 1, 2
                  ORDER BY 1 DESC, 2, 3 LIMIT ?"""
        values = (since, zone_s, *names, *more, zone_s, *names, *more, int(since // 3600), limit)
        return [DayRow(*row) for row in self._rows(sql, values)]

    def ages(
        self, projects: frozenset[str] | None, sources: frozenset[str] | None, *, now: float
    ) -> list[tuple[int | None, int]]:
        """Return how often documents were recalled (shown to an agent), grouped by the days since
        their last change: (at most this many days, number of recalls). The last group (None) has
        the older documents.
        """
        (reached, names), (chosen, more) = within("p.name", projects), within("d.source", sources)
        spans = " ".join(f"WHEN d.updated_at > ? - {span * 86400} THEN {span}" for span in _SPANS)
        sql = f"""SELECT CASE {spans} END AS age, sum(u.uses) FROM document_use u JOIN document d ON d.id = u.document
                  JOIN project p ON p.id = d.project WHERE NOT d.deleted{reached}{chosen} GROUP BY 1"""
        found = {row[0]: int(row[1]) for row in self._rows(sql, (*[now] * len(_SPANS), *names, *more))}
        return [(span, found.get(span, 0)) for span in (*_SPANS, None)]

    def relations(self, project: str, projects: frozenset[str] | None, *, limit: int) -> list[StatedRelation]:
        """Return up to `limit` relations from the notes of a project to other notes, those of the
        most important notes first.
        """
        reached, names = within("pb.name", projects)
        sql = f"""SELECT a.id, a.title, r.kind, b.id, b.title, pb.name FROM note a JOIN project pa ON pa.id = a.project
                  JOIN note_relation r ON r.document = a.document JOIN note b ON b.id = r.other JOIN project pb ON pb.id = b.project
                  WHERE pa.name = ?{reached} ORDER BY a.importance DESC, a.updated_at DESC, r.kind, b.id LIMIT ?"""
        return [StatedRelation(*row) for row in self._rows(sql, (project, *names, limit))]

    def unused_since(self, moment: float) -> int:
        """Count the notes that were neither used nor changed since a time (seconds since 1970).
        Notes of tasks do not count.
        """
        sql = """SELECT count(*) FROM note n LEFT JOIN document_use u ON u.document = n.document
                 WHERE n.task IS NULL AND n.updated_at < ? AND coalesce(u.used_at, 0) < ?"""
        return int(self._one(sql, (moment, moment)) or 0)

    def stray_relations(self) -> int:
        """Count the relations that lead to notes which do not exist."""
        sql = "SELECT count(*) FROM note_relation r WHERE NOT EXISTS (SELECT 1 FROM note b WHERE b.id = r.other)"
        return int(self._one(sql) or 0)

    def findings(self) -> str | None:
        """Return the findings of the last nightly check as text, or None if there was none."""
        return self._one("SELECT findings FROM night_findings")  # type: ignore[no-any-return]

    def keep_findings(self, at: float, findings: str) -> None:
        """Replace the stored findings of the nightly check. `at`: its time, in seconds since 1970."""
        self._rows("INSERT OR REPLACE INTO night_findings (only, at, findings) VALUES (1, ?, ?)", (at, findings))
