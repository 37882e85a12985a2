"""What a store of one space offers, in the rows of `rows`. Every backend passes tests/daemon/test_store_contract.py.

A `Store` is one connection: used by one thread at a time. A space has one that writes and a few that read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from confide_daemon.chunks import Piece
from confide_daemon.embed.protocol import Vectors
from confide_daemon.store.rows import (
    Breach,
    DocumentRow,
    EntityRow,
    Filter,
    Generation,
    Healed,
    HitRow,
    NoteCounts,
    NoteFilter,
    NoteList,
    NotePiece,
    NotePlace,
    NoteRow,
    OperationRow,
    PieceChanges,
    Place,
    ProjectRow,
    RelationRow,
    RevisionEntry,
    RevisionRow,
    SealedEntry,
    SealedPlace,
    SealedRow,
    SourceCount,
    StoredText,
    Supersession,
    TranscriptRow,
    Waiting,
)

if TYPE_CHECKING:
    from confide_daemon.notes.note import Note


class Store(Protocol):
    """One connection to the database of a space. Every method may raise StorageError."""

    def close(self) -> None: ...
    def interrupt(self) -> None:
        """Makes what runs in it now fail; any thread may call it, also when it is closed."""

    def writing(self) -> AbstractContextManager[None]:
        """One transaction for all that is written inside: all or nothing, on disk when it ends."""

    def writing_derived(self) -> AbstractContextManager[None]:
        """The same for what can be rebuilt: a power cut may undo it."""

    def check_room(self) -> None:
        """Raises StorageError where the disk is too full for what can be rebuilt, before anybody computes or pays for that."""

    def reading(self) -> AbstractContextManager[None]:
        """One unchanging view for all that is read inside."""

    # documents
    def document(self, project: str, path: str) -> DocumentRow | None: ...
    def documents(self, projects: frozenset[str] | None) -> list[DocumentRow]:
        """Deleted ones included."""

    def documents_following(
        self, projects: frozenset[str] | None, after: tuple[str, str], *, sources: frozenset[str] | None, limit: int
    ) -> list[DocumentRow]:
        """Living documents of these sources, by (project, path), from the first above `after`; costs what it gives."""

    def documents_by_id(self, identities: Sequence[int]) -> list[DocumentRow]:
        """Those of them that there are."""

    def revision(self, document: int, number: int) -> RevisionRow | None: ...
    def save(self, project: str, path: str, text: str | None, *, author: str, now: float) -> DocumentRow:
        """A new revision of the document; None deletes it."""

    # history
    def revisions(self, document: int, *, limit: int) -> list[RevisionEntry]:
        """The newest ones, newest first."""

    def clashing(self, projects: frozenset[str] | None, *, limit: int) -> list[tuple[str, str, int]]:
        """(project, path, revision) of the documents whose text holds a clash."""

    def deleted_paths(self, project: str, *, limit: int) -> list[str]:
        """The memory files that were deleted and can come back, the last one first."""

    def deleted_files(self, project: str) -> list[str]:
        """The paths of all deleted documents, those whose texts were forgotten too."""

    def deleted_notes(self, projects: frozenset[str] | None, *, limit: int) -> list[DocumentRow]:
        """The documents of notes that were deleted and can come back, the last one first."""

    def forget_deleted(self, before: float, *, limit: int) -> int:
        """Removes the texts of documents that were deleted before then; of how many. Their revisions go on being counted."""

    # projects
    def projects(self, names: frozenset[str] | None, sources: frozenset[str] | None, *, limit: int) -> list[ProjectRow]:
        """Those that hold a living document of these sources, the last changed first."""

    def links(self) -> list[tuple[str, str]]:
        """Every pair of linked projects, once."""

    def add_link(self, one: str, other: str, *, now: float) -> None: ...
    def remove_link(self, one: str, other: str) -> None: ...

    # operations
    def operation(self, identity: str) -> OperationRow | None:
        """The change that was made under this id, if one was within `operations.KEPT_S`."""

    def add_operation(self, row: OperationRow, *, now: float) -> None:
        """Notes a change, in the transaction that makes it."""

    # transcripts
    def transcript(self, project: str, agent: str, session: str) -> TranscriptRow | None: ...
    def save_transcript(self, row: TranscriptRow, *, now: float) -> int:
        """Notes how far a session is, in the transaction that adds its messages; its id."""

    def transcript_parts(self, transcript: int) -> list[str]:
        """The paths of its documents, in order."""

    def add_transcript_part(self, transcript: int, document: int) -> None: ...
    def drop_transcript_parts(self, transcript: int) -> None:
        """It is in no document any more; the documents stay."""

    def drop_revision(self, document: int, number: int) -> None:
        """Forgets a revision that is not the newest."""

    # sealed records
    def put_sealed(self, row: SealedRow, record: bytes | SealedPlace) -> bool:
        """Stores a record, or where it is, in place of one of an older epoch; False where one is there that is not older.

        A place that a record has is no stray one any more, and one that it had is from now on.
        """

    def sealed(self, identity: bytes) -> bytes | SealedPlace | None:
        """The record of that name, or where it is."""

    def sealed_epoch(self, identity: bytes) -> int | None:
        """The epoch of the record of that name."""

    def sealed_after(self, number: int, *, is_placed: bool, limit: int) -> list[SealedEntry]:
        """The records that are elsewhere, or those that are here, by number behind `number`."""

    def move_sealed(self, entry: SealedEntry, record: bytes | SealedPlace, *, now: float) -> bool:
        """Has the record somewhere else than `entry` says; False where that is not so any more. Places as for `put_sealed`."""

    def sealed_count_at(self, *, is_placed: bool) -> int:
        """How many records are elsewhere, or here."""

    def add_strays(self, places: Sequence[tuple[SealedPlace, bytes]], *, due_at: float) -> None:
        """Notes places that no record has, with the names of those that they are for."""

    def strays(self, *, now: float, limit: int) -> list[tuple[SealedPlace, bytes]]:
        """Those that are due, with the names of their records."""

    def forget_strays(self, places: Sequence[SealedPlace]) -> None:
        """They are empty."""

    def sealed_list(self, after: bytes, *, limit: int, below: int | None) -> list[SealedRow]:
        """What is known of the records, by their names' bytes, behind `after`; of older epochs than `below`."""

    def sealed_count(self) -> int:
        """How many there are."""

    # pieces
    def add_pieces(self, document: DocumentRow, pieces: Sequence[Piece], *, now: float) -> None:
        """Adds pieces behind those of the document, whose text has grown at its end."""

    def replace_pieces(
        self, document: DocumentRow, pieces: Sequence[Piece], *, chunking: str, now: float, words: str = ""
    ) -> PieceChanges:
        """Makes these the pieces of the document; those with unchanged text keep their ids and vectors.

        Args:
            words: what they are found by beside their text and headings.
        """

    # notes
    def replace_note(self, document: DocumentRow, note: Note | None, *, now: float) -> None:
        """Makes this what is known of the document as a note; None: it is none, or deleted."""

    def note(self, identity: str, projects: frozenset[str] | None) -> NoteRow | None:
        """The note of that id, if it is in one of these projects."""

    def note_of(self, document: int) -> NoteRow | None:
        """What is known of a document as a note."""

    def note_twin(self, project: str, task_id: str | None, digest: bytes) -> NoteRow | None:
        """A note of the same place that says exactly the same."""

    def note_list(self, wanted: NoteFilter, *, sort: str, limit: int, offset: int) -> NoteList:
        """Notes by `updated`, `created`, `importance` or `usage`, the newest or highest first."""

    def note_relations(self, identities: Sequence[str], projects: frozenset[str] | None) -> list[RelationRow]:
        """What these notes state and what is stated of them, between notes that there are in these projects."""

    def notes_of(self, documents: Sequence[int]) -> dict[int, NoteRow]:
        """The notes among these documents."""

    def notes_named(self, identities: Sequence[str], projects: frozenset[str] | None) -> dict[str, NoteRow]:
        """Those of these notes that there are in these projects, by their ids."""

    def supersessions(self, documents: Sequence[int], projects: frozenset[str] | None) -> list[Supersession]:
        """Which notes of these projects say that they supersede one of these documents."""

    def succession(self, documents: Sequence[int], projects: frozenset[str] | None) -> list[Supersession]:
        """The same of the documents, of what supersedes them, and so on."""

    def permitted(self, documents: Sequence[int], allowed: Filter) -> list[int]:
        """Those of the documents that pass the filter."""

    def count_uses(self, uses: Mapping[int, int], *, now: float) -> None:
        """Adds to how often documents were read or shown; in a transaction that writes."""

    def note_pieces(self, documents: Sequence[int], *, first: int) -> list[NotePiece]:
        """So many first pieces of each note among the documents, in order."""

    def note_places(self, projects: frozenset[str] | None) -> list[NotePlace]:
        """Where the notes of the projects lie, the newest text first."""

    def note_count(self, projects: frozenset[str] | None, *, most: int) -> int:
        """How many notes the projects have, counted up to `most`."""

    def superseded(self, documents: Sequence[int], projects: frozenset[str] | None) -> set[int]:
        """Those of the notes that another note of the projects says it supersedes."""

    def tags_among(self, words: Sequence[str], projects: frozenset[str] | None) -> list[str]:
        """Those of the words, folded, that notes of the projects have for tags; in the order given."""

    def leave_uncut(self, document: int, *, chunking: str) -> None:
        """Notes settings with a document that keeps the pieces it has, since its text is lost."""

    def cut_otherwise(self, chunking: str, *, limit: int) -> list[DocumentRow]:
        """Documents whose pieces were cut by other settings, or not yet."""

    def entities(self, projects: frozenset[str] | None, *, tasks: bool | None, type: str | None) -> list[EntityRow]:
        """What the notes are about, the most written about first."""

    def entity_keys(self, projects: frozenset[str] | None, *, tasks: bool) -> list[str]:
        """The names of what notes are about, folded, each once; of notes that belong to tasks, or of others."""

    def entities_among(self, keys: Sequence[str], projects: frozenset[str] | None, *, tasks: bool) -> list[EntityRow]:
        """What is about these names, the most written about first."""

    def note_counts(self, projects: frozenset[str] | None) -> NoteCounts:
        """How many notes there are."""

    # vectors
    def generations(self) -> list[Generation]: ...
    def add_generation(
        self, provider: str, model: str, dimensions: int, *, live: bool, now: float, fresh: bool = False
    ) -> Generation:
        """A new, empty one; when it is to be fresh, the cache forgets what it has of the model."""

    def make_live(self, generation: int, *, now: float, keep: bool = False) -> None:
        """Swaps this generation in; the one before is dropped, or kept beside it."""

    def drop_generation(self, generation: int, *, now: float) -> None:
        """Its newest vectors stay in the cache."""

    def retire_vectors(self, generation: Generation, *, limit: int, keep: bool, now: float) -> int:
        """Takes some out, into the cache or for good; how many. So that a large generation goes in steps before it is dropped."""

    def waiting(self, generation: int, *, after: int, limit: int) -> list[Waiting]:
        """Pieces without a vector in the generation, by id, from above `after`."""

    def waiting_count(self, generation: int) -> int: ...
    def waiting_among(self, generation: int, projects: frozenset[str]) -> int:
        """How many pieces of these projects have no vector in the generation."""

    def known_vectors(self, generation: Generation, hashes: Sequence[bytes]) -> Mapping[bytes, Vectors]:
        """Vectors that are known for these texts, of pieces that are there or were."""

    def keep_vectors(self, generation: Generation, vectors: Sequence[tuple[bytes, Vectors]], *, now: float) -> None:
        """Puts vectors of texts into the cache, by the hash of the text."""

    def add_vectors(self, generation: int, vectors: Sequence[tuple[int, Vectors]]) -> int:
        """Stores them for the pieces that still exist and have none; how many that were."""

    def tokens_used(self, month: str) -> list[tuple[str, str, int]]:
        """(provider, model, tokens) that were embedded in a month, such as 2026-11."""

    def count_tokens(self, month: str, provider: str, model: str, tokens: int) -> None:
        """Adds tokens that are about to be embedded; a negative number takes back."""

    def warm(self, generation: int) -> bool:
        """Takes a bounded step towards fast searching, outside of any transaction; whether there is another. Searches need none."""

    # search
    def keyword_candidates(self, match: str, allowed: Filter, *, limit: int) -> list[tuple[int, float]]:
        """(piece, BM25 score, higher is better), best first. `match` is a query as `search.keyword_query` builds it."""

    def vector_candidates(
        self, generation: int, vector: Vectors, allowed: Filter, *, limit: int
    ) -> list[tuple[int, float]]:
        """(piece, cosine), nearest first."""

    def cosines(self, generation: int, vector: Vectors, pieces: Sequence[int]) -> dict[int, float]:
        """The true cosine of each piece that has a vector."""

    def vectors(self, generation: int, pieces: Sequence[int]) -> dict[int, Vectors]:
        """The vectors of the pieces that have one."""

    def places(self, pieces: Sequence[int]) -> list[Place]: ...
    def hits(self, pieces: Sequence[int]) -> dict[int, HitRow]: ...
    def pieces_of(self, document: int, *, limit: int) -> list[int]:
        """The first pieces of a document."""

    def texts_around(self, pieces: Sequence[int], *, reach: int) -> Mapping[tuple[int, int], str]:
        """The texts of the pieces and of so many before and after each in its document, by (document, position)."""

    # counts
    def piece_count(self) -> int: ...
    def has_transcripts(self) -> bool:
        """Whether any document is one; asked by every search."""

    def counts(self, projects: frozenset[str] | None) -> dict[str, SourceCount]:
        """By source."""

    def project_names(self) -> list[str]: ...
    def size_bytes(self) -> int: ...
    def oldest_waiting(self, generation: int) -> float | None:
        """When the longest waiting piece was added."""

    # health
    def heal(self) -> Healed:
        """Checks what is derived against what it is derived from, and puts it right, all of it at once."""

    def glance(self) -> list[Breach]:
        """What a look of some milliseconds finds wrong."""

    def examine(self) -> Iterator[list[Breach]]:
        """Reads everything, and says after each bounded slice what it has found wrong there."""

    def mend(self, what: str, *, limit: int) -> int:
        """Puts some of a breach right, in the caller's transaction; of how many, 0 when no more can be done.

        Raises:
            DamagedError: it takes a salvage.
        """

    def copy_readable(self) -> int:
        """Copies what can be read of a damaged database; how many rows that are not derived are lost."""

    def swap_copy(self) -> None:
        """Goes on with that copy, which nobody has written to since. No other connection may be open."""

    def begin_rekeying(self, key: bytes) -> Callable[[], None]:
        """Begins to copy the database under another key (32 bytes). Raises StorageError where there is no room for it.

        What it returns brings to the disk what is copied so far; any thread may call it.
        """

    def step_rekeying(self, *, leave: int) -> tuple[int, int]:
        """Copies some pages, about 1 MiB: how many are left, at least `leave`, and of how many. Others may write between two steps."""

    def finish_rekeying(self) -> None:
        """Copies the rest, and brings the copy to the disk. Nothing may be written between this and the swap."""

    def swap_rekeyed(self) -> None:
        """Goes on with the copy, under the new key. No other connection may be open."""

    def abandon_rekeying(self) -> None:
        """Ends a change of the key that is under way, if one is; the old key stays."""

    def sample_vectors(self, generation: int, count: int, *, seed: float) -> list[tuple[str, bytes]]:
        """(text, packed vector) of some pieces in a row, from a place that the seed (0 to 1) chooses."""

    def forget_damaged(self, before: float) -> bool:
        """Removes what was kept of a damaged database, if it is from before then (seconds since 1970); whether it was."""

    def note_breach(self, breach: Breach) -> None:
        """Writes down what was found, once until it is healed."""

    def settle_breaches(self, what: Sequence[str], *, now: float) -> None:
        """These are healed."""

    def breaches(self, *, limit: int) -> list[Breach]:
        """What was ever found, the newest first."""

    def mark(self, name: str) -> float:
        """A moment or flag of the upkeep; 0 if it was never set."""

    def set_mark(self, name: str, value: float) -> None: ...

    # room; all of it outside of any transaction
    def give_back(self) -> int:
        """Gives some of what is free to the file system; of how many bytes, 0 when no more is worth it."""

    def merge_words(self, *, begin: bool) -> bool:
        """A step towards a keyword index without what was deleted; False at the end."""

    def is_old(self) -> bool:
        """Whether room can be given back only after `compact`, which there is disk for."""

    def compact(self) -> None:
        """Writes the whole database anew; searches go on, writes wait."""

    def fold_log(self) -> bool:
        """Empties the log, unless somebody reads right now; whether it could."""

    # other texts in the place of stored ones (`store.rewriting`)
    def stored_texts(self, after: int, *, most_bytes: int, most: int) -> list[StoredText]:
        """Revisions with a text behind a change, in their order; one at least if there is any, however large."""

    def stored_count(self) -> int:
        """How many revisions have a text."""

    def is_older_than_sealing(self) -> bool:
        """Whether there are texts from before anything was sealed here."""

    def rewrite_text(self, change: int, before: str, text: str) -> tuple[str, int | None]:
        """Puts a text in the place of a revision's, if that has the hash `before`, in the caller's transaction.

        `rewritten`, `same`, `changed` or `gone`; and the document whose derived rows have to be made anew in the same transaction.

        Raises:
            InvalidTextError: it is not that text with stand-ins for some of its parts.
        """

    def forget_traces(self) -> None:
        """Removes what tells something of texts that are there no more (vectors of older texts, hashes), in the caller's transaction."""

    def optimize_words(self) -> None:
        """Leaves no word of what was deleted in the keyword index; `merge_words` comes before it, so that it takes little."""

    def copy_clean(self) -> None:
        """Writes the database anew, beside it, with nothing in it of what was deleted. What is written afterwards would not be there.

        Raises:
            StorageError: there is no room for it.
        """

    def damaged_copies(self) -> int:
        """How many former files of this database are kept, which were damaged."""

    def swap_clean(self) -> None:
        """Goes on with that copy. No other connection may be open.

        Raises:
            StorageError: another process has the database open.
        """
