"""Transcripts as SQL: how far each one is, and which documents it is in."""

from __future__ import annotations

from dataclasses import replace

from confide_daemon.store.database import Table
from confide_daemon.store.rows import TranscriptRow

_COLUMNS = 't.id, p.name, t.agent, t.session, t.version, t."offset", t.head, t.mark, t.forgotten'


class TranscriptTable(Table):
    """How far each session is, and its documents."""

    def find(self, project: str, agent: str, session: str) -> TranscriptRow | None:
        """How far a session is, or None if nothing of it is known."""
        sql = f"""SELECT {_COLUMNS} FROM transcript t JOIN project p ON p.id = t.project
                  WHERE p.name = ? AND t.agent = ? AND t.session = ?"""  # noqa: S608 - the columns are the constant above
        found = self._rows(sql, (project, agent, session))
        if not found:
            return None
        return replace(TranscriptRow(*found[0]), forgotten=bool(found[0][-1]))

    def save(self, row: TranscriptRow, *, now: float) -> int:
        """Notes how far a session is, in the transaction that adds its messages; its id."""
        self._rows("INSERT INTO project (name) VALUES (?) ON CONFLICT DO NOTHING", (row.project,))
        sql = """INSERT INTO transcript (project, agent, session, version, "offset", head, mark, forgotten, updated_at)
                 SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM project WHERE name = ?
                 ON CONFLICT (project, agent, session) DO UPDATE SET version = excluded.version, "offset" = excluded."offset",
                 head = excluded.head, mark = excluded.mark, forgotten = excluded.forgotten, updated_at = excluded.updated_at
                 RETURNING id"""
        values = (row.agent, row.session, row.version, row.offset, row.head, row.mark, row.forgotten, now, row.project)
        return int(self._rows(sql, values)[0][0])

    def parts(self, transcript: int) -> list[str]:
        """The paths of its documents, in order."""
        sql = """SELECT d.path FROM transcript_part t JOIN document d ON d.id = t.document
                 WHERE t.transcript = ? ORDER BY t.position"""
        return [path for (path,) in self._rows(sql, (transcript,))]

    def add_part(self, transcript: int, document: int) -> None:
        """A further document, behind the others."""
        sql = """INSERT INTO transcript_part (document, transcript, position)
                 SELECT ?, ?, coalesce(max(position), 0) + 1 FROM transcript_part WHERE transcript = ?"""
        self._rows(sql, (document, transcript, transcript))

    def drop_parts(self, transcript: int) -> None:
        """It is in no document any more; the documents stay."""
        self._rows("DELETE FROM transcript_part WHERE transcript = ?", (transcript,))
