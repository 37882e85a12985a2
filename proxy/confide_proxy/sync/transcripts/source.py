"""Find the transcripts of one client on this device, and send them to the daemon.

The daemon stores how far each session was sent. A hash of the bytes right before that offset shows
if the file is still the same. The daemon accepts a batch only if it names the daemon's present
state, so nothing is stored twice, whichever process sends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import Final

from confide_crypto import atomic, portable
from confide_crypto.errors import RequestError
from confide_memory.documents import INLINE_BYTES, RequestChannel
from confide_memory.wire.files import TRANSCRIPT, TranscriptRequest, TranscriptState
from confide_proxy.link.daemon_link import RetryingLink
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync import project as projects
from confide_proxy.sync.project import Project
from confide_proxy.sync.project_names import named_over
from confide_proxy.sync.transcripts import claude_code, codex
from confide_proxy.sync.transcripts.parsers import Parser, sendable
from confide_proxy.sync.transcripts.transcript_files import (
    OutgoingBatch,
    TranscriptFile,
    collect,
    found_below,
    head_of,
    mark_of,
    open_below,
    origin_of,
)
from confide_proxy.sync.walk import Narrowing

log = logging.getLogger(__name__)

_DEADLINE_S: Final = 60.0
_BYTES_S: Final = 30_000
_FILE_CODES: Final = frozenset({"invalid", "too_large", "denied"})
"""Error codes that concern one session: it is skipped until the next connection, and the others
continue.
"""
AS_EXCLUDED: Final = "sessions/transcript.md"
"""A path that is excluded in projects that do not send their sessions, as with `exclude =
["sessions"]`.
"""
_MAX_CONFLICTS: Final = 8
"""Conflicts with other processes after which the session waits for the next look."""
_COMPACT_AFTER = 1000
"""Superseded lines after which the file is written again when it is next opened."""


@dataclass(slots=True)
class SentTotals:
    """Numbers of what was sent: sessions with new messages, messages, and skipped lines (damaged,
    unknown or too long).
    """

    sessions: int = 0
    messages: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """The next batch to send; None if nothing is due."""

    batch: OutgoingBatch | None
    head: str = ""
    mark: str = ""
    is_doubtful: bool = False  # the file is not the recorded one


PARSERS: Final[dict[str, Parser]] = {module.PARSER.agent: module.PARSER for module in (claude_code, codex)}
"""Parsers by the names in `config.TRANSCRIPT_SOURCES`."""


class TranscriptSource:
    """The transcripts that one client writes into a folder, and their transfer to one space.
    Without `sealing`, they can be inspected but not sent.

    Attributes:
        progress: this device's record of how far each session was sent.
        sent_totals: totals of what this object has sent.
    """

    def __init__(
        self, paths: ProxyPaths, space: str, parser: Parser, root: Path, sealing: SessionSealing | None = None
    ) -> None:
        self.parser = parser
        self.root = root
        self.sent_totals = SentTotals()
        self.progress = SourceProgress(paths.transcripts, space, root)
        self._paths = paths
        self._space = space
        self._sealing = sealing
        self._origins: dict[str, tuple[str, str]] = {}
        self._projects: dict[Path, tuple[Project, Narrowing]] = {}
        self._asked_sessions: set[str] = set()
        self._aside: set[str] = set()

    def on_up(self) -> None:
        """Start with a new connection: ask the daemon again how far each session was sent."""
        self._asked_sessions.clear()
        self._aside.clear()

    async def look_back(self, link: RequestChannel) -> None:
        """Check that the daemon still has what it last accepted from this source. If not, it was
        restored from an older copy, and the progress of all sessions is reset.

        A restore loses the newest states first. So it is enough to check the session that was sent
        last; the others need no requests.

        Raises RequestError, ConnectionLost or TimeoutError if the daemon cannot be asked.
        """
        newest = self.progress.newest()
        if newest is None:
            return
        session, known = newest
        try:
            answer = await TRANSCRIPT.ask(
                RetryingLink(link), self._request_of(session, known), timeout_s=_DEADLINE_S, bulk=True
            )
        except RequestError as error:
            if error.code not in _FILE_CODES:
                raise
            return  # this device may not send to its project any more
        present = _read_position(known, answer)
        same = (present.offset, present.mark, present.is_forgotten) == (known.offset, known.mark, known.is_forgotten)
        if present.version < known.version or (present.version == known.version and not same):
            log.warning("the daemon has lost transcripts that it had; they are sent again")
            await asyncio.to_thread(self.progress.go_back)

    def find_files(self) -> tuple[list[TranscriptFile], list[Path]]:
        """Return the existing transcripts, and the folders that were searched. Blocks."""
        return found_below(self.root, self.parser)

    def is_settled(self, file: TranscriptFile) -> bool:
        """Return True if nothing of the transcript has to be sent now."""
        known = self.progress.get(file.session)
        stat = (known.inode, known.size, known.mtime_ns)
        return file.session in self._aside or known.is_forgotten or stat == (file.inode, file.size, file.mtime_ns)

    def pending_bytes(self, files: list[TranscriptFile]) -> int:
        """Return the number of bytes in these transcripts that are not processed yet."""
        waiting = (file for file in files if not self.is_settled(file))
        return sum(max(0, file.size - self.progress.get(file.session).offset) for file in waiting)

    async def advance(
        self,
        link: RequestChannel,
        file: TranscriptFile,
        *,
        to_the_end: bool,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Send the new messages of one transcript in batches. Messages that do not fill a batch are
        only sent with `to_the_end`. `progress` is called with the number of processed bytes.

        Raises RequestError, ConnectionLost or TimeoutError if they cannot be sent.
        """
        messages = self.sent_totals.messages
        try:
            await self._advance(RetryingLink(link), file, to_the_end, progress)
        except TimeoutError:
            raise  # from the link; it is an OSError too
        except OSError as error:
            log.info("a transcript cannot be read: %s", error.strerror or type(error).__name__)
        except RequestError as error:
            if error.code not in _FILE_CODES:
                raise
            # Warn once: a device without write access would log a thousand of them.
            log.log(logging.INFO if self._aside else logging.WARNING, "a transcript is not sent: %s", error)
            self._aside.add(file.session)
        self.sent_totals.sessions += self.sent_totals.messages > messages

    async def _advance(
        self, link: RequestChannel, file: TranscriptFile, to_the_end: bool, progress: Callable[[int], None] | None
    ) -> None:
        placed = await self._place_position(link, file, self.progress.get(file.session))
        if placed is None:
            return
        known = placed
        conflicts = 0
        while conflicts < _MAX_CONFLICTS:
            if not known.version and file.session not in self._asked_sessions:
                named = self._request_of(file.session, known)
                answer = await TRANSCRIPT.ask(link, named, timeout_s=_DEADLINE_S, bulk=True)
                self._asked_sessions.add(file.session)
                known = _read_position(known, answer)
            step = await asyncio.to_thread(self._next, file, known, to_the_end)
            if step.is_doubtful:
                known = replace(known, version=0)
                continue
            if step.batch is None:
                return
            before = known
            known, taken = await self._send(link, file.session, known, step)
            if taken:
                self.sent_totals.messages += len(step.batch.messages)
                self.sent_totals.skipped += step.batch.skipped
                if progress:
                    progress(step.batch.end - step.batch.begin)
                if not step.batch.is_full:
                    known = replace(known, inode=file.inode, size=file.size, mtime_ns=file.mtime_ns)
            else:
                conflicts += 1
                known = replace(known, branch=before.branch)
            self._remember(file.session, known)
            if known.is_forgotten or (taken and not step.batch.is_full):
                return

    async def _place_position(
        self, link: RequestChannel, file: TranscriptFile, known: SessionPosition
    ) -> SessionPosition | None:
        """Return the position with the project of the session's working folder; None if that is not
        known yet, or excludes its sessions.
        """
        origin = self._origins.get(file.session) or await asyncio.to_thread(self._origin, file.path)
        if origin is None:
            return None
        self._origins[file.session] = origin
        cwd, branch = origin
        # Without a valid working folder, use the client's own name for it.
        folder = Path(sendable(cwd)) if cwd.startswith("/") else Path("/", file.path.parent.name.strip("-"))
        if folder not in self._projects:
            claim = await asyncio.to_thread(projects.identify, folder)
            project = await named_over(link, self._paths, claim, self._space)
            self._projects[folder] = (project, Narrowing(project.root))
        project, narrowing = self._projects[folder]
        if narrowing.excludes(AS_EXCLUDED):
            return None
        # A session stays under the old name of a renamed project, where its first part is.
        return known if known.project else replace(known, project=project.name, branch=branch)

    def _origin(self, path: Path) -> tuple[str, str] | None:
        with open_below(self.root, path) as fd:
            return origin_of(fd, self.parser)

    def _next(self, file: TranscriptFile, known: SessionPosition, to_the_end: bool) -> _Step:
        with open_below(self.root, file.path) as fd:
            head = head_of(fd)
            if not head:
                return _Step(None)
            is_same = not known.offset or (known.head == head and mark_of(fd, known.offset) == known.mark)
            if not is_same and file.session not in self._asked_sessions:
                return _Step(None, is_doubtful=True)
            begin = known.offset if is_same else 0
            assert self._sealing is not None
            sealer = self._sealing.sealer
            batch = collect(fd, self.parser, begin, sealer, branch=known.branch, mtime=file.mtime_ns / 1e9)
            is_due = batch.is_due or (to_the_end and batch.end > batch.begin)
            if not is_due:
                if batch.end == batch.begin and not self.is_settled(file):
                    self._remember(
                        file.session, replace(known, inode=file.inode, size=file.size, mtime_ns=file.mtime_ns)
                    )
                return _Step(None)
            return _Step(batch, head, mark_of(fd, batch.end))

    async def _send(
        self, link: RequestChannel, session: str, known: SessionPosition, step: _Step
    ) -> tuple[SessionPosition, bool]:
        batch = step.batch
        assert batch is not None
        assert self._sealing is not None
        await self._sealing.deposit.keep(link, batch.secrets)
        params: TranscriptRequest = {
            **self._request_of(session, known),
            "version": known.version,
            "from": batch.begin,
            "to": batch.end,
            "head": step.head,
            "mark": step.mark,
        }
        data = json.dumps(batch.messages, ensure_ascii=False, separators=(",", ":")).encode()
        deadline_s = _DEADLINE_S + len(data) / _BYTES_S
        if len(data) > INLINE_BYTES:
            answer = await TRANSCRIPT.ask(link, params, whole=data, timeout_s=deadline_s)
        else:
            inline: TranscriptRequest = {**params, "messages": batch.messages}
            answer = await TRANSCRIPT.ask(link, inline, timeout_s=deadline_s, bulk=True)
        self._asked_sessions.add(session)
        return _read_position(replace(known, branch=batch.branch), answer), answer["taken"]

    def _request_of(self, session: str, known: SessionPosition) -> TranscriptRequest:
        return {"project": known.project, "agent": self.parser.agent, "session": session}

    def _remember(self, session: str, known: SessionPosition) -> None:
        with suppress(OSError):  # a full disk: the daemon is asked again later
            self.progress.set(session, known)


def _read_position(known: SessionPosition, answer: TranscriptState) -> SessionPosition:
    """Return the position from a response of the daemon."""
    return SessionPosition(
        known.project,
        known.branch,
        answer["version"],
        answer["offset"],
        answer["head"],
        answer["mark"],
        answer["forgotten"],
    )


@dataclass(frozen=True, slots=True)
class SessionPosition:
    """How far the transcript of one session was sent.

    Attributes:
        project: the session's project; "" while it is unknown.
        branch: the git branch that was named last before the offset.
        version, offset, head, mark: the daemon's state of the session (PROTOCOL.md 9.5).
        is_forgotten: True if a user had the session deleted at the daemon; it is never sent again.
        inode, size, mtime_ns: the file's identity when nothing was left to send; 0 otherwise.
    """

    project: str = ""
    branch: str = ""
    version: int = 0
    offset: int = 0
    head: str = ""
    mark: str = ""
    is_forgotten: bool = False
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class SourceProgress:
    """How far the sessions of one source were sent to one space, stored in a file. Methods access
    the disk briefly.
    """

    def __init__(self, folder: Path, space: str, source: Path) -> None:
        name = hashlib.blake2b(f"{space}\0{source}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._file = folder / f"{name}.jsonl"
        self._positions: dict[str, SessionPosition] = {}
        if self._load() > len(self._positions) + _COMPACT_AFTER:
            self._compact()

    def get(self, session: str) -> SessionPosition:
        """Return the progress of a session; that of an unknown session starts at 0."""
        return self._positions.get(session, SessionPosition())

    def newest(self) -> tuple[str, SessionPosition] | None:
        """Return the session whose state the daemon reported last, with its progress. None if the
        daemon has not reported any.
        """
        return next(((name, known) for name, known in reversed(self._positions.items()) if known.version), None)

    def clear(self) -> None:
        """Forget the progress of all sessions in memory; the file stays."""
        self._positions.clear()

    def go_back(self) -> None:
        """Reset the progress of all sessions, in the file too, except for sessions that were
        deleted at the daemon.

        Raises OSError if the file cannot be written.
        """
        self._positions = {session: known for session, known in self._positions.items() if known.is_forgotten}
        self._compact()

    def set(self, session: str, known: SessionPosition) -> None:
        """Record the progress of a session. Raises OSError if the file cannot be written; the
        progress is kept in memory all the same.
        """
        self._put(session, known)
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | portable.CLOSED | portable.NO_LINK, 0o600)
        try:
            # A single write per line: O_APPEND keeps the lines of two processes apart.
            os.write(fd, _encode(session, known))
        finally:
            os.close(fd)

    def _put(self, session: str, known: SessionPosition) -> None:
        if known.version != self.get(session).version:
            self._positions.pop(session, None)  # to move it to the end
        self._positions[session] = known

    def _load(self) -> int:
        try:
            lines = self._file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return 0
        for line in lines:
            try:
                session, *values = json.loads(line)
                known = SessionPosition(*values)
            except (ValueError, TypeError):
                continue  # damaged, or of another version: the daemon is asked
            is_sound = all(
                type(value) is type(usual) for value, usual in zip(values, astuple(SessionPosition()), strict=False)
            )
            if isinstance(session, str) and is_sound:
                self._put(session, known)
        return len(lines)

    def _compact(self) -> None:
        atomic.write(self._file, b"".join(starmap(_encode, self._positions.items())), is_kept=False)


def _encode(session: str, known: SessionPosition) -> bytes:
    return json.dumps([session, *astuple(known)], separators=(",", ":")).encode() + b"\n"
