"""Stores session transcripts. The messages that a device sends in batches become documents named
`sessions/<day>-<agent>-<session>[-N].md`.

The daemon keeps the position up to which a session's transcript is stored, with a version number. A
batch names the version that its device knows. It is accepted only if that is the current version,
in the transaction that stores its messages. So a batch that is sent twice, late, or by two
processes is stored once. The answer to a rejected batch is the current position, from which the
device continues.

A document is markdown. Text is only appended to it, and does not change the meaning of earlier
lines:

    # Claude Code session of 2026-11-21

    Began 14:03 UTC on branch main; session 0a6afc57-2f31-4cb4-8ff0-01247f50c64c.

    ## User 14:03

    Why did we choose postgres?

    ## Assistant 14:03

    [tool Grep: postgres]

There is a heading at each change of speaker, and at least every ten minutes. Documents are divided
into chunks at headings, so each chunk names the speaker and the time. Times are UTC.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any, Final

from confide_crypto.errors import RequestError
from confide_daemon.documents.document_history import is_forgotten
from confide_daemon.documents.writer import Derive
from confide_daemon.store.rows import DocumentRow, TranscriptRow
from confide_daemon.store.space_store import Store
from confide_memory import documents
from confide_memory.forms import Carried
from confide_memory.markdown_blocks import FENCE, HEADING, structure
from confide_memory.wire.files import TranscriptState

Extend = Callable[[Store, DocumentRow, str, str, float], None]
"""Updates the derived rows of a document when text is appended: (store, document, text before,
added text, time). The index provides it.
"""
FOLDER: Final = "sessions/"
PART_BYTES: Final = 160 * 1024
"""A larger document gets a successor: appending rewrites and compresses the whole document."""
MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
MAX_MESSAGES: Final = 512
MAX_OFFSET: Final = 2**53
_AGENT = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MAX_WORD = 64
_MAX_BRANCH = 128
_SAME_BREATH_S = 600.0
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_BRANCH = re.compile(
    r"^(?:## \w+ [\d: -]+ \(branch |Began \d\d:\d\d UTC on branch )(.+?)(?:\)|; session [\w-]+\.)$", re.MULTILINE
)
_MAY_SWALLOW = re.compile(r"^ {0,3}(?:<|`{3}|~{3})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    role: str  # `user` or `assistant`
    text: str  # markdown
    time: datetime  # in UTC
    branch: str = ""  # "" if unknown


@dataclass(frozen=True, slots=True)
class SessionName:
    """The name of a session: its project, its agent and the agent's session id."""

    project: str
    agent: str
    session: str


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """The messages between two offsets of a transcript's file on a device.

    Attributes:
        version: the version of the stored position that the device knows; 0 if it knows none.
        begin: the offset of the first byte: that of the stored position, or 0 to replace everything
            that is stored.
        end: the offset after the last byte.
        head, mark: values stored for the device, by which it recognizes the file.
    """

    name: SessionName
    version: int
    begin: int
    end: int
    head: str
    mark: str
    messages: tuple[TranscriptMessage, ...]


@dataclass(frozen=True, slots=True)
class SessionProgress:
    """How far a session's transcript is stored. `version` is 0 if nothing of the session is stored."""

    version: int = 0
    offset: int = 0
    head: str = ""
    mark: str = ""
    forgotten: bool = False

    def to_json(self, *, taken: bool) -> TranscriptState:
        return {
            "version": self.version,
            "offset": self.offset,
            "head": self.head,
            "mark": self.mark,
            "forgotten": self.forgotten,
            "taken": taken,
        }


def name_of(params: Carried, project: str) -> SessionName:
    """Return the session that a request names. Raises RequestError if the name is missing or
    invalid.
    """
    agent, session = params.get("agent"), params.get("session")
    if not isinstance(agent, str) or not _AGENT.fullmatch(agent):
        raise RequestError("invalid", "'agent' must be a short name of lower-case letters, digits and hyphens")
    if not isinstance(session, str) or not _SESSION.fullmatch(session):
        raise RequestError("invalid", "'session' must be up to 100 letters, digits, _ and -")
    return SessionName(project, agent, session)


def batch_of(params: Carried, name: SessionName) -> MessageBatch | None:
    """Return the batch of messages in a request, or None if the request only asks for the stored
    position. Raises RequestError if the batch is invalid.
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
    return MessageBatch(name, version, begin, end, _word(params, "head"), _word(params, "mark"), messages)


def messages_in(body: bytes) -> list[Any]:
    """Return the messages in the body of a streamed request. Raises RequestError if the body is not
    a JSON list.
    """
    try:
        items = json.loads(body)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        raise RequestError("invalid", "the body must be a JSON list of messages")
    return items


def _message(item: Any) -> TranscriptMessage:
    match item:
        case {"role": "user" | "assistant" as role, "text": str(text), "time": str(moment)}:
            branch = item.get("branch", "")
            if isinstance(branch, str) and len(branch) <= _MAX_BRANCH and (branch.isprintable() or not branch):
                return TranscriptMessage(role, documents.check_text(text), _moment(moment), branch)
    raise RequestError("invalid", "a message is not {role, text, time, branch}")


def _moment(text: str) -> datetime:
    moment = documents.parse_time(text)
    if moment is None:
        raise RequestError("invalid", "a message's time is not ISO 8601")
    if moment.year < 1970:
        raise RequestError("invalid", "a message's time is before 1970")
    return moment


def _number(params: Carried, key: str) -> int:
    value = params.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_OFFSET:
        raise RequestError("invalid", f"'{key}' must be a whole number from 0 on")
    return value


def _word(params: Carried, key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or len(value) > _MAX_WORD or not value.isascii():
        raise RequestError("invalid", f"'{key}' must be a short string")
    return value


def state(store: Store, name: SessionName) -> SessionProgress:
    row = store.transcripts.find(name.project, name.agent, name.session)
    return (
        SessionProgress()
        if row is None
        else SessionProgress(row.version, row.offset, row.head, row.mark, row.forgotten)
    )


def take(
    store: Store, batch: MessageBatch, *, author: str, derive: Derive, extend: Extend
) -> tuple[SessionProgress, bool]:
    """Store a batch of messages if it continues from the stored position. Return the position now,
    and True if the batch was stored.
    """
    name, now = batch.name, time.time()
    with store.writing():
        present = state(store, name)
        is_next = batch.begin == present.offset or (batch.begin == 0 and batch.version > 0)
        if batch.version != present.version or not is_next or present.forgotten:
            return present, False
        if is_forgotten(store, name.project, FOLDER):
            after = replace(present, version=present.version + 1, forgotten=True)  # as its whole project is
            _save(store, name, after, now=now)
            return after, False
        messages = batch.messages
        if store.forgettings.guards():
            messages = tuple(replace(one, text=store.forgettings.cut(one.text)) for one in messages)
        after = SessionProgress(present.version + 1, batch.end, batch.head, batch.mark)
        identity = _save(store, name, after, now=now)
        if batch.begin < present.offset:
            _bury(store, identity, name, derive, author=author, now=now)
        _Parts(store, identity, name, derive, extend, author, now).add(messages)
        return after, True


def forget(store: Store, name: SessionName, *, author: str, derive: Derive) -> SessionProgress:
    """Delete a session's documents with their texts, and accept no more messages of this session."""
    now = time.time()
    with store.writing():
        present = state(store, name)
        after = replace(present, version=present.version + 1, forgotten=True)
        identity = _save(store, name, after, now=now)
        rows = [store.documents.find(name.project, path) for path in store.transcripts.parts(identity)]
        store.vectors.forget([row.id for row in rows if row is not None])
        for document in _bury(store, identity, name, derive, author=author, now=now):
            store.documents.drop_revisions(document.id, below=document.revision)
        return after


def _save(store: Store, name: SessionName, after: SessionProgress, *, now: float) -> int:
    return store.transcripts.save(TranscriptRow(0, *astuple(name), *astuple(after)), now=now)


def _bury(
    store: Store, transcript: int, name: SessionName, derive: Derive, *, author: str, now: float
) -> list[DocumentRow]:
    """Delete the session's documents; their last texts stay in the history, as with any deletion."""
    buried = []
    for path in store.transcripts.parts(transcript):
        row = store.documents.find(name.project, path)
        if row is not None and not row.deleted:
            gone = store.documents.save(name.project, path, None, author=author, now=now)
            derive(store, gone, None, now)
            buried.append(gone)
    store.transcripts.drop_parts(transcript)
    return buried


@dataclass(frozen=True, slots=True)
class _Parts:
    """The documents of a session, while messages are appended."""

    store: Store
    transcript: int
    name: SessionName
    derive: Derive
    extend_derived: Extend
    author: str
    now: float

    def add(self, messages: Sequence[TranscriptMessage]) -> None:
        """Append the messages, in as many documents as needed."""
        paths = self.store.transcripts.parts(self.transcript)
        number = max(1, len(paths))
        row = self.store.documents.find(self.name.project, paths[-1]) if paths else None
        if row is not None and row.deleted:
            row = None  # a user has deleted it, so a new document begins
            number += 1
        text = self._text(row)
        room = PART_BYTES - len(text.encode())
        waiting: list[TranscriptMessage] = []
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

    def _write(self, row: DocumentRow | None, text: str, messages: list[TranscriptMessage], number: int) -> None:
        if row is None:
            self._begin(messages, number)
        else:
            self._extend(row, text, render(messages, day=row.day, branch=branch_in(text)))

    def _begin(self, messages: list[TranscriptMessage], number: int) -> None:
        name, first = self.name, messages[0]
        text = title(name.agent, name.session, first, number)
        text += render(messages, day=first.time.date().isoformat(), branch=first.branch)
        row = self._save(self._free_path(first, number), text)
        self.derive(self.store, row, text, self.now)
        self.store.transcripts.add_part(self.transcript, row.id)

    def _extend(self, row: DocumentRow, text: str, added: str) -> None:
        saved = self._save(row.path, text + added)
        # Its text is the beginning of the new one: if it were kept, a day's work would be stored
        # hundreds of times.
        self.store.documents.drop_revision(row.id, row.revision)
        self.extend_derived(self.store, saved, text, added, self.now)

    def _save(self, path: str, text: str) -> DocumentRow:
        return self.store.documents.save(self.name.project, path, text, author=self.author, now=self.now)

    def _free_path(self, first: TranscriptMessage, number: int) -> str:
        day = first.time.date().isoformat()
        stem = f"{FOLDER}{day}-{self.name.agent}-{self.name.session}"
        while True:
            path = f"{stem}.md" if number == 1 else f"{stem}-{number}.md"
            row = self.store.documents.find(self.name.project, path)
            if row is None or row.deleted:
                return path
            number += 1

    def _text(self, row: DocumentRow | None) -> str:
        revision = self.store.documents.revision(row.id, row.revision) if row is not None else None
        return revision.text or "" if revision is not None else ""


def title(agent: str, session: str, first: TranscriptMessage, part: int) -> str:
    """Return the first lines of a session's document: its heading, and when and where the session
    began.
    """
    name = " ".join(word.capitalize() for word in agent.split("-"))
    branch = f" on branch {first.branch}" if first.branch else ""
    more = f", part {part}" if part > 1 else ""
    day, clock = first.time.date().isoformat(), _clock(first.time)
    return f"# {name} session of {day}{more}\n\nBegan {clock} UTC{branch}; session {session}.\n"


def render(messages: Sequence[TranscriptMessage], *, day: str, branch: str) -> str:
    """Return the lines to append to a session's document for these messages. Messages of one
    speaker on one branch within ten minutes share a heading; the first message always gets one.

    `day`: the document's ISO day; the heading of a message of another day names that day. `branch`:
    the branch that the document named last (`branch_in`).
    """
    pieces = []
    role = ""
    heading_at = messages[0].time if messages else None
    for message in messages:
        has_moved = bool(message.branch) and message.branch != branch
        assert heading_at is not None
        if message.role != role or has_moved or abs((message.time - heading_at).total_seconds()) > _SAME_BREATH_S:
            own_day = message.time.date().isoformat()
            clock = _clock(message.time) if own_day == day else f"{own_day} {_clock(message.time)}"
            pieces.append(
                f"\n## {message.role.capitalize()} {clock}{f' (branch {message.branch})' if has_moved else ''}\n"
            )
            heading_at, role = message.time, message.role
        branch = message.branch or branch
        pieces.append(f"\n{body(message.text)}\n")
    return "".join(pieces)


def branch_in(text: str) -> str:
    """Return the branch that the last heading of a document names, otherwise the one at its
    beginning; "" if neither names one.
    """
    named = _BRANCH.findall(text)
    return named[-1] if named else ""


def body(text: str) -> str:
    """Return a message's text in a form that cannot affect the lines after it. Its headings move
    two levels down, and an open code fence is closed. If the text would still change the meaning of
    later lines, it is shown as code.
    """
    lines: list[str] = []
    fence = ""
    for line in text.strip("\n").split("\n"):
        mark = FENCE.match(line)
        if fence:
            if mark and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif found := HEADING.match(line):
            line = f"{'#' * min(6, len(found[1]) + 2)} {found[2].strip()}"
        elif _UNDERLINE.match(line) and lines and lines[-1].strip():
            lines.append("")  # after a blank line it is not a heading's underline
        lines.append(line)
    if fence:
        lines.append(fence)
    whole = "\n".join(lines)
    if _MAY_SWALLOW.search(whole) and not _ends_with_itself(whole):
        return "\n".join("    " + line for line in text.strip("\n").split("\n"))
    return whole


def _ends_with_itself(text: str) -> bool:
    """Return True if a heading directly below the text is parsed as a heading."""
    lines = text.count("\n") + 2
    return any(heading.line == lines and heading.level == 2 for heading in structure(f"{text}\n\n## End\n")[1])


def _clock(moment: datetime) -> str:
    return moment.strftime("%H:%M")
