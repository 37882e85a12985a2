"""What is derived of a document's text: its pieces, the words it is found by beside them, and what it says of itself as a note."""

from __future__ import annotations

from dataclasses import replace

from confide_daemon.config import ChunkSettings
from confide_daemon.retrieval.chunking.chunker import cut
from confide_daemon.store.rows import DocumentRow, Piece, PieceChanges
from confide_daemon.store.store import Store
from confide_memory import note, note_names
from confide_memory.front_matter import split
from confide_memory.note import Note


class Derivation:
    """Keeps what a store has derived of documents in step with their texts; within a transaction that writes."""

    def __init__(self, chunks: ChunkSettings) -> None:
        self.chunks = chunks

    def keep(self, store: Store, row: DocumentRow, text: str | None, now: float) -> PieceChanges:
        """The document has this text now; None: it is deleted, and all that was derived of it goes."""
        found = note.read(row.project, row.path, text) if text is not None and note_names.is_note(row.path) else None
        pieces = [] if text is None else self._pieces(text, found)
        words = "" if found is None else found.words
        changes = store.pieces.replace(row, pieces, chunking=self.chunks.name, now=now, words=words)
        store.notes.replace(row, found, now=now)
        return changes

    def extend(self, store: Store, row: DocumentRow, before: str, added: str, now: float) -> None:
        """The document got more text at its end, which begins with a heading, so that the pieces before it stay as they are.

        Args:
            row: as it is now, but cut as it was.
            before: the text that it had, below a title.
        """
        if row.chunking == self.chunks.name:
            title = before.split("\n", 1)[0].removeprefix("# ")
            store.pieces.add(row, self._below(added, before.count("\n"), title), now=now)

    def _pieces(self, text: str, found: Note | None) -> list[Piece]:
        """A note is cut without its front matter, and its title stands above all of its headings."""
        head, body = split(text) if found is not None else ("", text)
        if found is None or not body.strip():
            return cut(text, self.chunks)
        # A title that is the text's own first words would say them twice in each of its pieces: two points of recall@1 on notes
        # without titles.
        return self._below(
            body, head.count("\n"), "" if found.title == note_names.title_of(found.body) else found.title
        )

    def _below(self, text: str, lines: int, title: str) -> list[Piece]:
        """The pieces of a text that stands below so many lines and this title."""
        return [
            replace(
                piece,
                start_line=piece.start_line + lines,
                end_line=piece.end_line + lines,
                heading=_heading_below(title, piece.heading),
            )
            for piece in cut(text, self.chunks)
        ]


def _heading_below(title: str, heading: str) -> str:
    return heading if not title or heading.split(" > ", 1)[0] == title else f"{title} > {heading}" if heading else title
