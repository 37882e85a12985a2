"""Records where the texts of a space come from, by line where needed, and derives their trust
classes (docs/agents.md).

The class of an author follows from what the daemon itself knows: the request or tool by which the
text arrived. Untrusted lines stay untrusted when they are moved, copied, merged, restored or sent
again, because they are recognized by their content (`text_marks`) and not by their position. Only
`trust` raises a class; a user requests it for the text that the document has at that time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from confide_crypto.errors import RequestError
from confide_daemon.errors import DamagedError, NotFoundError
from confide_daemon.store.rows import DocumentRow, TextOrigin
from confide_daemon.store.space_store import Store
from confide_daemon.store.tables.class_table import Lines
from confide_memory import front_matter, note
from confide_memory.classes import AGENT, DERIVED, OWNER, UNTRUSTED, hostile, lowest, text_marks
from confide_memory.classes.text_marks import TextBlock
from confide_memory.documents import is_in_memory, is_note, text_hash

MOST_REVISIONS = 100_000
NEARLY_ALL = 0.8
WHENCE = "where it comes from"
IMPORTED, BY_RULE = "import", "hook"
"""Values of a note's source field, which only lower its class: imported from another program, or
made of a session by a rule."""


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The provenance of a new text. `sources` are the blocks that are untrusted because of who
    wrote them, and not because they match other untrusted text.
    """

    origin: TextOrigin
    sources: tuple[TextBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """The trust class of a document, and its untrusted lines.

    Attributes:
        doubted_lines: lines that come from an untrusted source or address a model, and that no user
            has trusted.
        is_whole: True if these lines make all lines of the document untrusted, because they are
            part of a note, of the front matter, or of the file's name.
    """

    class_: str
    doubted_lines: tuple[Lines, ...] = ()
    is_whole: bool = False

    def holds(self, first: int, last: int) -> bool:
        """Return True if any of the lines from `first` to `last`, both included, is untrusted."""
        return self.is_whole or any(begin <= last and first <= end for begin, end in self.doubted_lines)


def _with_any(lines: Sequence[str], blocks: Iterable[TextBlock], wanted: Collection[str]) -> list[TextBlock]:
    """Return the blocks that contain one of these lines, compared without surrounding blanks."""
    return [block for block in blocks if any(line.strip() in wanted for line in _lines_of(lines, block))]


def _is_doubted(by: str, text: str, added: Sequence[TextBlock]) -> bool:
    """Return True if text added by a writer of this class may be anyone's words."""
    return by == UNTRUSTED or (by != OWNER and _speaks(text, added))


def lines_of_others(text: str, others: Iterable[Lines]) -> frozenset[str]:
    """Return the lines of a text that the sender did not write, without surrounding blanks. These
    are the lines in the ranges `others`, except those that also occur elsewhere in the text.
    """
    lines = text.split("\n")
    theirs: set[str] = set()
    for first, last in others:
        theirs.update(line.strip() for line in lines[first - 1 : last])
        lines[first - 1 : last] = [""] * len(lines[first - 1 : last])
    return frozenset(theirs - {line.strip() for line in lines})


def provenance_of(
    store: Store, row: DocumentRow | None, path: str, text: str, by: str, *, others: Collection[str] = ()
) -> WrittenText:
    """Return the provenance of a document's new text by a writer of trust class `by`; `row` is the
    document's current state, or None if it is new. Lines among `others` have another author, and
    are untrusted until a user trusts them.
    """
    lines = text.split("\n")
    exact = store.classes.of_text(row.id, text_hash(text)) if row is not None else None
    if exact is None and not is_in_memory(path):
        return WrittenText(TextOrigin(UNTRUSTED, (), UNTRUSTED))  # transcripts, and other indexed files
    blocks = text_marks.blocks(lines)
    known = _blocks_with_known_marks(store, lines, blocks)
    if exact is not None:  # an earlier text keeps its provenance
        doubted = dict.fromkeys((*exact.doubted, *known))
        return WrittenText(TextOrigin(exact.made, tuple(sorted(doubted)), by))
    living = row if row is not None and not row.deleted else None
    before, earlier = _before(store, living)
    added = _added_blocks(lines, blocks, before)
    is_doubted = _is_doubted(by, text, added)
    found: set[Lines] = set(known)
    if living is None and _is_most(known, lines, blocks):
        found.update(blocks)  # a moved file, with its fields and short lines
    made = by if living is None else lowest((by, living.made))
    sources: list[TextBlock] = []
    if is_doubted and is_note(path):
        made = UNTRUSTED  # a note is one statement
    elif is_doubted:
        # In other files only these lines count: a log grows, and its earlier lines stay as trusted
        # as they were.
        made = AGENT if living is None else lowest((AGENT, living.made))
        sources = added
    elif lost := _recognizable(before, earlier.doubted):
        found.update(_with_any(lines, blocks, lost))
        if by in (AGENT, DERIVED) and not lost <= {line.strip() for line in lines}:
            # An agent's replacement for untrusted lines may say the same in other words.
            sources = added
    if others and (of_others := _untrusted_blocks(store, row, path, lines, _with_any(lines, blocks, others))):
        made = UNTRUSTED if is_note(path) else made
        sources = [*sources, *of_others]
    found.update(sources)
    return WrittenText(TextOrigin(made, tuple(sorted(found)), by), tuple(sources))


def _added_blocks(lines: Sequence[str], blocks: Iterable[TextBlock], before: Iterable[str]) -> list[TextBlock]:
    """Return the blocks with a line that the text before did not have."""
    present = {line.strip() for line in before}
    return [block for block in blocks if not present.issuperset(line.strip() for line in _lines_of(lines, block))]


def _recognizable(lines: Sequence[str], ranges: Iterable[Lines]) -> set[str]:
    """Return the lines of these ranges that have enough characters to be recognized by, without
    surrounding blanks.
    """
    return {line.strip() for begin, end in ranges for line in lines[begin - 1 : end] if _says(line)}


def _untrusted_blocks(
    store: Store, row: DocumentRow | None, path: str, lines: Sequence[str], blocks: Iterable[TextBlock]
) -> list[TextBlock]:
    """Return the blocks that no user has trusted in this document."""
    trusted = store.classes.trusted_parts(row.id) if row is not None else frozenset()
    return [one for one in blocks if _hash(lines, path, one) not in trusted]


def keep(store: Store, row: DocumentRow, text: str, found: WrittenText) -> None:
    """Store marks (hashes) of a new text's untrusted lines, so that they are recognized elsewhere.
    Call within the transaction that writes the text.
    """
    if found.sources:
        _mark(store, row.id, text.split("\n"), found.sources)


def judge(store: Store, row: DocumentRow, text: str) -> Judged:
    """Determine and store the trust class of a document's newest text, and return it with the
    untrusted lines. Call within a transaction that writes, since derived rows depend on the class.
    """
    origin = store.classes.of_revision(row.id, row.revision) or TextOrigin()
    judged = _judge(store, row, text, origin)
    store.classes.count_as(row.id, row.revision, judged.class_)
    if origin.made == UNTRUSTED and row.source == "memory":
        lines = text.split("\n")
        _mark(store, row.id, lines, text_marks.blocks(lines))
    return judged


def trust(store: Store, project: str, path: str, content: str, *, by: str) -> tuple[DocumentRow, str]:
    """Trust a document's whole current text, whose hash is `content`, on behalf of a user. Text
    that is added later is not included.

    Return the document and that text, so that the caller can update the derived rows. Raises
    NotFoundError if the document does not exist; RequestError if the text has changed since the
    user saw it.
    """
    row, text = _living(store, project, path)
    if row.hash != content:
        raise RequestError(
            "conflict", "the text has changed since it was shown", "look at it again, and repeat the command"
        )
    origin = store.classes.of_revision(row.id, row.revision) or TextOrigin()
    lines = text.split("\n")
    doubted = _judge(store, row, text, TextOrigin(AGENT, origin.doubted, origin.by)).doubted_lines
    store.classes.trust(row.id, [_hash(lines, path, one) for one in doubted], by=by, now=time.time())
    store.classes.set(
        row.id, row.revision, TextOrigin(OWNER if origin.made == UNTRUSTED else origin.made, (), origin.by)
    )
    numbers = _numbers(lines, text_marks.blocks(lines))
    store.classes.drop_marks(row.id, chain.from_iterable(numbers.values()))
    return row, text


@dataclass(frozen=True, slots=True)
class Doubts:
    """The untrusted lines of a document's text, each with a short reason. `hash` is the hash of the
    text; there are no lines if all of it is trusted.
    """

    class_: str
    hash: str
    lines: tuple[tuple[int, int, str], ...]


def doubts(store: Store, project: str, path: str) -> Doubts:
    """Return the untrusted lines of a document, which a user is asked to trust. Raises
    NotFoundError if the document does not exist.
    """
    row, text = _living(store, project, path)
    origin = store.classes.of_revision(row.id, row.revision) or TextOrigin()
    lines = text.split("\n")
    why = {(one.first, one.last): one.why for one in hostile.find(text)}
    found = _judge(store, row, text, TextOrigin(AGENT, origin.doubted, origin.by)).doubted_lines
    told = [(*one, why.get(one, "its file's name" if not one[0] else WHENCE)) for one in found]
    if origin.made == UNTRUSTED:
        told.insert(0, (1, len(lines), WHENCE))
    return Doubts(_judge(store, row, text, origin).class_, row.hash, tuple(told))


def lower(store: Store, project: str, path: str, revision: int) -> tuple[DocumentRow, str] | None:
    """Mark the lines as untrusted that an agent or a rule added in a revision, wherever they are in
    the document now.

    Return the document and its newest text, so that the caller can update the derived rows. Return
    None if a user wrote that revision, or the document has none of its lines any more. Raises
    NotFoundError if the document does not exist.
    """
    row, text = _living(store, project, path)
    then = store.classes.of_revision(row.id, revision)
    added = _lines_added_in(store, row, revision)
    if then is None or then.by not in (AGENT, DERIVED) or not added:
        return None
    lines = text.split("\n")
    _mark(store, row.id, added, text_marks.blocks(added))
    said = {line.strip() for line in added if _says(line)}
    blocks = text_marks.blocks(lines)
    here = {block for block in blocks if any(line.strip() in said for line in _lines_of(lines, block))}
    here.update(_blocks_with_known_marks(store, lines, blocks))
    origin = store.classes.of_revision(row.id, row.revision) or TextOrigin()
    made = UNTRUSTED if is_note(path) and here else origin.made
    store.classes.set(row.id, row.revision, TextOrigin(made, tuple(sorted({*origin.doubted, *here})), origin.by))
    return (row, text) if here else None


def old_text_origin(project: str, path: str, text: str | None) -> TextOrigin:
    """Return the provenance of a text that was stored before provenance was recorded, by the rules
    of the migration 0012_classes.sql.
    """
    if not is_in_memory(path):
        return TextOrigin()
    source = note.read(project, path, text).source if text is not None and is_note(path) else None
    made = UNTRUSTED if source == IMPORTED else DERIVED if source == BY_RULE else AGENT
    return TextOrigin(made, (), made)


def remake_marks(store: Store, document: int) -> None:
    """Compute the marks of a document's untrusted lines again after text in it was sealed
    (encrypted by its devices). Otherwise the old marks would allow guesses of the sealed text to be
    tested.
    """
    if not store.classes.is_kept(document):
        return
    store.classes.forget(document)
    path = next(row.path for row in store.documents.by_id([document]))
    for entry in store.documents.revisions(document, limit=MOST_REVISIONS):
        revision = None if entry.deleted else store.documents.revision(document, entry.number)
        origin = store.classes.of_revision(document, entry.number)
        if revision is not None and revision.text is not None and origin is not None:
            remark(store, document, path, revision.text, origin)


def remark(store: Store, document: int, path: str, text: str, origin: TextOrigin) -> None:
    """Store the marks of a revision's untrusted lines again after they were lost."""
    if is_in_memory(path) and (origin.made == UNTRUSTED or origin.doubted):
        lines = text.split("\n")
        blocks = text_marks.blocks(lines)
        some = [one for one in blocks if any(begin <= one.last and one.first <= end for begin, end in origin.doubted)]
        _mark(store, document, lines, blocks if origin.made == UNTRUSTED else some)


def _judge(store: Store, row: DocumentRow, text: str, origin: TextOrigin) -> Judged:
    if origin.made == UNTRUSTED:
        return Judged(UNTRUSTED)
    trusted = store.classes.trusted_parts(row.id)
    lines = text.split("\n")
    said = [(one.first, one.last) for one in hostile.find(text)]
    named = [(0, 0)] if hostile.is_hostile(_words(row.path)) else []
    all_of_them = dict.fromkeys((*origin.doubted, *said, *named))
    doubted = tuple(sorted(one for one in all_of_them if _hash(lines, row.path, one) not in trusted))
    head = front_matter.split(text)[0].count("\n")
    is_whole = bool(doubted) and (is_note(row.path) or any(first <= head for first, _ in doubted))
    return Judged(UNTRUSTED if doubted else origin.made, doubted, is_whole)


def _words(path: str) -> str:
    return path.removesuffix(".md").translate(str.maketrans("-_/.", "    "))


def _hash(lines: Sequence[str], path: str, doubted: Lines) -> str:
    first, last = doubted
    return text_hash("\n".join(lines[first - 1 : last]) if first else f"\0{path}")


def _blocks_with_known_marks(store: Store, lines: Sequence[str], blocks: Sequence[TextBlock]) -> list[TextBlock]:
    """Return the blocks that share text with untrusted text anywhere in the space."""
    if not store.classes.has_marks():
        return []
    numbers = _numbers(lines, blocks)
    there = store.classes.known_marks(frozenset().union(*numbers.values()))
    return text_marks.blocks_with(numbers, there)


def _numbers(lines: Sequence[str], blocks: Iterable[TextBlock]) -> dict[TextBlock, frozenset[int]]:
    """Return the marks of the blocks, without those of front matter: notes made in the same second
    share its dates.
    """
    head = front_matter.split("\n".join(lines))[0].count("\n")
    return text_marks.marks(lines, [block for block in blocks if block.first > head])


def _is_most(known: Iterable[TextBlock], lines: Sequence[str], blocks: Iterable[TextBlock]) -> bool:
    """Return True if these blocks contain nearly all words of a text, without its front matter."""
    head = front_matter.split("\n".join(lines))[0].count("\n")
    theirs, whole = (
        sum(len(line.split()) for block in some if block.first > head for line in _lines_of(lines, block))
        for some in (known, blocks)
    )
    return whole > 0 and theirs >= NEARLY_ALL * whole


def _mark(store: Store, document: int, lines: Sequence[str], blocks: Iterable[TextBlock]) -> None:
    numbers = _numbers(lines, blocks)
    if found := frozenset().union(*numbers.values()):
        store.classes.add_marks(document, found)


def _before(store: Store, row: DocumentRow | None) -> tuple[list[str], TextOrigin]:
    if row is None:
        return [], TextOrigin(OWNER)
    try:
        revision = store.documents.revision(row.id, row.revision)
    except DamagedError:
        revision = None
    origin = store.classes.of_revision(row.id, row.revision) or TextOrigin()
    return (revision.text or "").split("\n") if revision is not None else [], origin


def _living(store: Store, project: str, path: str) -> tuple[DocumentRow, str]:
    row = store.documents.find(project, path)
    revision = store.documents.revision(row.id, row.revision) if row is not None and not row.deleted else None
    if row is None or revision is None or revision.text is None:
        raise NotFoundError("no such document", hint="confide ls lists those there are")
    return row, revision.text


def _lines_added_in(store: Store, row: DocumentRow, number: int) -> list[str]:
    """Return the lines of a revision that the previous one did not have; other lines become blank."""
    try:
        then = store.documents.revision(row.id, number)
        earlier = store.documents.revision(row.id, store.documents.before(row.id, number))
    except DamagedError:
        return []
    if then is None or then.text is None:
        return []
    there = set((earlier.text or "").split("\n")) if earlier is not None else set()
    return ["" if line in there else line for line in then.text.split("\n")]


def _lines_of(lines: Sequence[str], block: TextBlock) -> Sequence[str]:
    return lines[block.first - 1 : block.last]


def _says(line: str) -> bool:
    """Return True if a line has enough characters to be recognized by, more than mere markdown
    syntax.
    """
    return sum(character.isalnum() for character in line) >= 8


def _speaks(text: str, blocks: Iterable[TextBlock]) -> bool:
    """Return True if one of the blocks contains a line of the text that addresses a model."""
    found = hostile.find(text)
    return bool(found) and any(one.first <= block.last and block.first <= one.last for block in blocks for one in found)
