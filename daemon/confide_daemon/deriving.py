"""What is derived from a document's text: its pieces, the words it is found by beside them, and what it says of itself as a note."""

from __future__ import annotations

from dataclasses import dataclass, replace

from confide_daemon.chunks import ChunkSettings, Piece, cut
from confide_daemon.notes import naming, note
from confide_daemon.notes.front_matter import split
from confide_daemon.notes.note import Note
from confide_daemon.store import DocumentRow, PieceChanges, Store


@dataclass(frozen=True, slots=True)
class Derived:
    """What one text comes to. `note` is None where the document is none."""

    pieces: list[Piece]
    words: str = ""
    note: Note | None = None


def derive(project: str, path: str, text: str, settings: ChunkSettings) -> Derived:
    """The pieces and fields of a document. A note is cut without its front matter, and its title stands above all of its headings."""
    if not naming.is_note(path):
        return Derived(cut(text, settings))
    found = note.read(project, path, text)
    head, body = split(text)
    if not body.strip():
        return Derived(cut(text, settings), found.words, found)
    lines = head.count("\n")
    # A title that is the text's own first words would say them twice in each of its pieces: two points of recall@1 on notes without titles.
    title = "" if found.title == note.title_of(found.body) else found.title
    pieces = [
        replace(
            piece,
            start_line=piece.start_line + lines,
            end_line=piece.end_line + lines,
            heading=_below(title, piece.heading),
        )
        for piece in cut(body, settings)
    ]
    return Derived(pieces, found.words, found)


def keep(store: Store, row: DocumentRow, text: str, settings: ChunkSettings, *, now: float) -> PieceChanges:
    """Makes this what the store has derived of the document. Within a transaction that writes."""
    derived = derive(row.project, row.path, text, settings)
    changes = store.replace_pieces(row, derived.pieces, chunking=settings.name, now=now, words=derived.words)
    store.replace_note(row, derived.note, now=now)
    return changes


def forget(store: Store, row: DocumentRow, settings: ChunkSettings, *, now: float) -> None:
    """Takes away all that was derived of a document that is deleted."""
    store.replace_pieces(row, [], chunking=settings.name, now=now)
    store.replace_note(row, None, now=now)


def _below(title: str, heading: str) -> str:
    return heading if not title or heading.split(" > ", 1)[0] == title else f"{title} > {heading}" if heading else title
