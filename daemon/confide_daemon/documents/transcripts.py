"""Session transcripts: messages that a machine sends in batches become documents `sessions/<day>-<agent>-<session>[-N].md`.

The daemon's word counts for how far a session has come. A batch names the version of that state which its machine has seen, and is taken
only if it is the present one, in the transaction that stores its messages; so a batch that is sent twice, late, or by two processes is
taken once. What is not taken is answered with the present state, from which the machine goes on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon import dialogue, documents
from confide_daemon.chunks import Piece, cut
from confide_daemon.dialogue import Message
from confide_daemon.index import IndexSettings
from confide_daemon.store import DocumentRow, Store, TranscriptRow

FOLDER: Final = "sessions/"
PART_BYTES: Final = 160 * 1024
"""A document that is larger gets a successor: adding to one writes it anew, and compresses all of it."""
MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_MESSAGES: Final = 512
MAX_OFFSET: Final = 2**53
_AGENT = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MAX_WORD = 64
_MAX_BRANCH = 128


@dataclass(frozen=True, slots=True)
class Name:
    """Which session of which agent, in which project."""

    project: str
    agent: str
    session: str


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages between two offsets of a transcript's file.

    Attributes:
        version: of the state that the machine has seen; 0 where there was none.
        begin: where it begins: the offset of that state, or 0 to begin anew in place of all that is there.
        end: where it ends, in bytes.
        head, mark: what the machine knows the file again by; kept for it.
    """

    name: Name
    version: int
    begin: int
    end: int
    head: str
    mark: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class State:
    """How far a session has come; version 0 where nothing of it is known."""

    version: int = 0
    offset: int = 0
    head: str = ""
    mark: str = ""
    forgotten: bool = False

    def as_json(self, *, taken: bool) -> dict[str, Any]:
        """The answer to a request."""
        return {
            "version": self.version,
            "offset": self.offset,
            "head": self.head,
            "mark": self.mark,
            "forgotten": self.forgotten,
            "taken": taken,
        }


# ---------------------------------------------------------------- what is asked


def name_of(params: dict[str, Any], project: str) -> Name:
    """The session that a request is about.

    Raises:
        RequestError: it names none.
    """
    agent, session = params.get("agent"), params.get("session")
    if not isinstance(agent, str) or not _AGENT.fullmatch(agent):
        raise RequestError("invalid", "'agent' must be a short name of lower-case letters, digits and hyphens")
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise RequestError("invalid", "'session' must be up to 100 letters, digits, _ and -")
    return Name(project, agent, session)


def batch_of(params: dict[str, Any], name: Name) -> Batch | None:
    """The batch in a request, or None where it only asks how far the session is.

    Raises:
        RequestError: the parameters are not those of a batch.
    """
    if "messages" not in params:
        return None
    version, begin, end = (_number(params, key) for key in ("version", "from", "to"))
    if begin > end:
        raise RequestError("invalid", "a batch ends before it begins")
    items = params["messages"]
    if not isinstance(items, list) or len(items) > MAX_MESSAGES:
        raise RequestError("invalid", f"'messages' must be a list of at most {MAX_MESSAGES}")
    messages = tuple(_message(item) for item in items)
    return Batch(name, version, begin, end, _word(params, "head"), _word(params, "mark"), messages)


def messages_in(body: bytes) -> list[Any]:
    """The messages that came as the body of a stream.

    Raises:
        RequestError: they are no JSON list.
    """
    try:
        items = json.loads(body)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        raise RequestError("invalid", "the body must be a JSON list of messages")
    return items


def _message(item: Any) -> Message:
    match item:
        case {"role": "user" | "assistant" as role, "text": str(text), "time": str(moment)}:
            branch = item.get("branch", "")
            if isinstance(branch, str) and len(branch) <= _MAX_BRANCH and (branch.isprintable() or not branch):
                return Message(role, documents.check_text(text), _moment(moment), branch)
    raise RequestError("invalid", "a message is not {role, text, time, branch}")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise RequestError("invalid", "a message's time is not ISO 8601") from None
    if moment.year < 1970:
        raise RequestError("invalid", "a message's time is before 1970")
    return moment


def _number(params: dict[str, Any], key: str) -> int:
    value = params.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_OFFSET:
        raise RequestError("invalid", f"'{key}' must be a whole number from 0 on")
    return value


def _word(params: dict[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or len(value) > _MAX_WORD or not value.isascii():
        raise RequestError("invalid", f"'{key}' must be a short string")
    return value


# ---------------------------------------------------------------- what is done


def state(store: Store, name: Name) -> State:
    """How far a session is."""
    row = store.transcript(name.project, name.agent, name.session)
    return State() if row is None else State(row.version, row.offset, row.head, row.mark, row.forgotten)


def take(store: Store, settings: IndexSettings, batch: Batch, *, author: str) -> tuple[State, bool]:
    """Store a batch, if it goes on from the present state: (the state now, whether it was taken)."""
    name, now = batch.name, time.time()
    with store.writing():
        present = state(store, name)
        is_next = batch.begin == present.offset or (batch.begin == 0 and batch.version > 0)
        if batch.version != present.version or not is_next or present.forgotten:
            return present, False
        after = State(present.version + 1, batch.end, batch.head, batch.mark)
        row = TranscriptRow(0, name.project, name.agent, name.session, *_columns(after))
        identity = store.save_transcript(row, now=now)
        if batch.begin < present.offset:
            _bury(store, settings, identity, name, author=author, now=now)
        _Parts(store, settings, identity, name, author=author, now=now).add(batch.messages)
        return after, True


def forget(store: Store, settings: IndexSettings, name: Name, *, author: str) -> State:
    """Delete a session's documents with their texts; nothing of it is taken again."""
    now = time.time()
    with store.writing():
        present = state(store, name)
        after = replace(present, version=present.version + 1, forgotten=True)
        row = TranscriptRow(0, name.project, name.agent, name.session, *_columns(after), forgotten=True)
        identity = store.save_transcript(row, now=now)
        for document in _bury(store, settings, identity, name, author=author, now=now):
            for number in range(1, document.revision):
                store.drop_revision(document.id, number)
        return after


def _columns(now: State) -> tuple[int, int, str, str]:
    return now.version, now.offset, now.head, now.mark


def _bury(
    store: Store, settings: IndexSettings, transcript: int, name: Name, *, author: str, now: float
) -> list[DocumentRow]:
    """Delete the session's documents; as with any other one, what was last in them stays in their history."""
    buried = []
    for path in store.transcript_parts(transcript):
        row = store.document(name.project, path)
        if row is not None and not row.deleted:
            gone = store.save(name.project, path, None, author=author, now=now)
            store.replace_pieces(gone, [], chunking=settings.chunks.name, now=now)
            buried.append(gone)
    store.drop_transcript_parts(transcript)
    return buried


class _Parts:
    """The documents of one session, while messages are added to them."""

    def __init__(
        self, store: Store, settings: IndexSettings, transcript: int, name: Name, *, author: str, now: float
    ) -> None:
        self._store = store
        self._settings = settings
        self._transcript = transcript
        self._name = name
        self._author = author
        self._now = now

    def add(self, messages: Sequence[Message]) -> None:
        """Add the messages, in as many documents as it takes."""
        paths = self._store.transcript_parts(self._transcript)
        number = max(1, len(paths))
        row = self._store.document(self._name.project, paths[-1]) if paths else None
        if row is not None and row.deleted:
            row = None  # somebody has deleted it: what follows begins a new one
            number += 1
        text = self._text(row)
        room = PART_BYTES - len(text.encode())
        waiting: list[Message] = []
        for message in messages:
            size = len(message.text.encode())
            if waiting and size > room:
                self._write(row, text, waiting, number)
                row, text, waiting, room = None, "", [], PART_BYTES
                number += 1
            elif size > room and row is not None:
                row, text, room = None, "", PART_BYTES
                number += 1
            waiting.append(message)
            room -= size
        if waiting:
            self._write(row, text, waiting, number)

    def _write(self, row: DocumentRow | None, text: str, messages: list[Message], number: int) -> None:
        if row is None:
            self._begin(messages, number)
        else:
            self._extend(row, text, dialogue.rendered(messages, day=row.day, branch=dialogue.branch_in(text)))

    def _begin(self, messages: list[Message], number: int) -> None:
        name, first = self._name, messages[0]
        text = dialogue.title(name.agent, name.session, first, number)
        text += dialogue.rendered(messages, day=first.time.date().isoformat(), branch=first.branch)
        row = self._save(self._free_path(first, number), text)
        pieces = cut(text, self._settings.chunks)
        self._store.replace_pieces(row, pieces, chunking=self._settings.chunks.name, now=self._now)
        self._store.add_transcript_part(self._transcript, row.id)

    def _extend(self, row: DocumentRow, text: str, added: str) -> None:
        saved = self._save(row.path, text + added)
        # Its text is the beginning of the new one: kept, a day's work would be stored hundreds of times over.
        self._store.drop_revision(row.id, row.revision)
        if row.chunking == self._settings.chunks.name:
            # What is added begins with a heading, so the pieces before it stay as they are.
            top = text.split("\n", 1)[0].removeprefix("# ")
            lines = text.count("\n")
            pieces = [_moved(piece, lines, top) for piece in cut(added, self._settings.chunks)]
            self._store.add_pieces(saved, pieces, now=self._now)

    def _save(self, path: str, text: str) -> DocumentRow:
        return self._store.save(self._name.project, path, text, author=self._author, now=self._now)

    def _free_path(self, first: Message, number: int) -> str:
        day = first.time.date().isoformat()
        stem = f"sessions/{day}-{self._name.agent}-{self._name.session}"
        while True:
            path = f"{stem}.md" if number == 1 else f"{stem}-{number}.md"
            row = self._store.document(self._name.project, path)
            if row is None or row.deleted:
                return path
            number += 1

    def _text(self, row: DocumentRow | None) -> str:
        revision = self._store.revision(row.id, row.revision) if row is not None else None
        return revision.text or "" if revision is not None else ""


def _moved(piece: Piece, lines: int, top: str) -> Piece:
    """A piece of what was added, as a piece of the whole."""
    return replace(
        piece,
        start_line=piece.start_line + lines,
        end_line=piece.end_line + lines,
        heading=f"{top} > {piece.heading}" if piece.heading else top,
    )
