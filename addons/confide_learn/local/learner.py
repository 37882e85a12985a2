"""The learner: reads the new parts of the transcripts that hooks have reported, lets judges find
what is worth keeping, and stores the findings that pass the checks.

Only one process of the device at a time holds the learner's lock. Findings are first written as
suggestions, then the position in the transcript advances, then the hooks' reports are deleted. A
process that is killed in between repeats the work, and known findings are not stored twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from confide_crypto import portable
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.sealing.placeholder import STANDIN
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_learn.local import note_delivery
from confide_learn.local.checks import SUMMARY, LearnedFinding, check_findings, is_a_persons, is_of_output
from confide_learn.local.exchanges import LearnedExchange, Reading, read, summary_of
from confide_learn.local.judges import Chain, chain_of
from confide_learn.local.note_delivery import Connects, Memory
from confide_learn.local.suggestions import (
    MOST_WAITING,
    LearnerProgress,
    Suggestion,
    Suggestions,
    TranscriptPosition,
    id_of,
    now,
    write_whole,
)
from confide_memory.classes import DERIVED, UNTRUSTED, hostile
from confide_memory.wire.revisions import LOWER, LowerRequest
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks import learning_queue
from confide_proxy.hooks.server.forgetting.forgotten_texts import ForgetRecords
from confide_proxy.locks import SEAT_AGAIN_S, Seat
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync import project as projects
from confide_proxy.sync.project import Project
from confide_proxy.sync.project_names import resolve_project
from confide_proxy.sync.transcripts.parsers import Parser
from confide_proxy.sync.transcripts.source import AS_EXCLUDED, PARSERS
from confide_proxy.sync.transcripts.transcript_files import head_of, mark_of, open_below, origin_of
from confide_proxy.sync.transcripts.transcript_streamer import folder_of
from confide_proxy.sync.walk import Narrowing

log = logging.getLogger(__name__)

SEAT: Final = "learn"
RULES: Final = "rules"
"""Name of the rule judge, which is always available."""
QUIET_S: Final = 60.0
"""Seconds without a new pointer before learning starts, so that it does not run while the user
works.
"""
LOOK_S: Final = 2.0
"""Interval of checks for pointers, in seconds; a check is one system call."""
TROUBLE_S: Final = 300.0
WINDOW: Final = 5
"""Most exchanges that are judged together."""
_BEHIND_BYTES: Final = 4 * 2**20
"""Bytes before the first pointer of a new transcript that are read; the rest was written while
learning was off.
"""
_ENDS: Final = frozenset({"Stop", "SessionEnd", "AfterAgent", "session.idle", "stop"})
"""Events after which the agent's turn is complete."""
_DEADLINE_S: Final = 20.0
_ABOUT_IT: Final = frozenset({"invalid", "not_found", "denied"})
_AT_AN_END: Final = frozenset({"SessionEnd"})


@dataclass(slots=True)
class Learned:
    """The result of one run of the learner.

    Attributes:
        sessions, exchanges: number that were read.
        found: number of new findings.
        stored: number of findings that became notes.
        skipped: number of transcripts that cannot be read, or whose client has no parser.
        unknown: number of lines that no parser knows.
        lowered: number of notes that agents stored after reading text of third parties, now marked
            untrusted.
        is_full: True if reading stopped because too many suggestions wait for the user.
        problems: the reasons why judges failed, by their names.
    """

    sessions: int = 0
    exchanges: int = 0
    found: int = 0
    stored: int = 0
    skipped: int = 0
    unknown: int = 0
    lowered: int = 0
    is_full: bool = False
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LearnedSession:
    """A transcript with its pointers."""

    path: Path
    root: Path
    parser: Parser
    session: str
    pointers: tuple[dict[str, Any], ...]

    @property
    def client(self) -> str:
        return self.parser.agent

    @property
    def has_ended(self) -> bool:
        return any(pointer["event"] in _AT_AN_END for pointer in self.pointers)

    def is_said(self, exchange: LearnedExchange) -> bool:
        """Return True if the agent's turn in an exchange is complete."""
        return any(each["event"] in _ENDS and each["offset"] > exchange.begin for each in self.pointers)

    @property
    def last_summary(self) -> str:
        """Return the client's last summary of the session; "" without one."""
        found = [
            pointer["more"]["compact_summary"] for pointer in self.pointers if "compact_summary" in pointer["more"]
        ]
        return found[-1] if found else ""

    def suggestion(self, project: Project, finding: LearnedFinding, judge: str, class_: str) -> Suggestion:
        """Convert a finding to a suggestion. All summaries of a session share one id."""
        said = f"session {self.session}" if finding.kind == SUMMARY else finding.text
        where = (project.name, str(project.root), self.session, self.client)
        identity = id_of(project.name, said)
        return Suggestion(identity, finding.text, finding.quote, finding.kind, *where, judge, now(), class_=class_)


class Learner:
    """Learns from the sessions of this device. `connect` opens a connection to the daemon for a
    project.
    """

    def __init__(self, paths: ProxyPaths, config: ProxyConfig, connect: Connects) -> None:
        self._paths = paths
        self._config = config
        self._connect = connect
        self._folder = paths.learn
        self._seat = Seat(paths.seats, SEAT)
        self.suggestions = Suggestions(self._folder, ForgetRecords(paths).is_forgotten)

    async def run(self) -> None:
        """Learn whenever no hook has reported a session for a minute, until cancelled. Processes of
        the device take turns.

        Raises OSError if the state folder is not writable.
        """
        if not self._config.learn.is_on or os.environ.get("CONFIDE_LEARNING"):
            return
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                if self.quiet_s() < QUIET_S or not self._seat.try_take():
                    continue
                try:
                    learned = await self.learn()
                    rest_s = TROUBLE_S if learned.is_full else 0.0
                except (ConfideError, TimeoutError, OSError) as error:
                    raise_if_cancelled()
                    log.info("learning stopped: %s", error if isinstance(error, ConfideError) else type(error).__name__)
                    rest_s = TROUBLE_S
                self._seat.leave()
                await asyncio.sleep(rest_s)
        finally:
            self._seat.leave()

    def quiet_s(self) -> float:
        """Return the seconds since a hook last reported a session; -1 if there is no report."""
        try:
            status = (self._folder / "pointers.jsonl").stat()
        except OSError:
            return -1.0
        return max(0.0, time.time() - status.st_mtime) if status.st_size else -1.0

    @contextmanager
    def try_lock(self, *, wait_s: float) -> Iterator[bool]:
        """Acquire the learner's lock within `wait_s` seconds; yield True if that succeeded. Raises
        OSError if the lock file cannot be used.
        """
        end = time.monotonic() + wait_s
        while not (is_ours := self._seat.try_take()) and time.monotonic() < end:
            time.sleep(min(SEAT_AGAIN_S, max(0.0, end - time.monotonic())))
        try:
            yield is_ours
        finally:
            self._seat.leave()

    async def learn(self) -> Learned:
        """Learn from all sessions that hooks have reported. The caller holds the lock.

        Raises ConfideError or TimeoutError if the daemon is unreachable or refuses; OSError if the
        disk fails. The next run repeats unfinished work.
        """
        learned = Learned()
        if not self._config.learn.is_on:
            return learned
        found, lines = await asyncio.to_thread(learning_queue.read, self._paths.state)
        if not found:
            return learned
        chain = chain_of(self._config.learn, self._folder)
        progress = await asyncio.to_thread(LearnerProgress, self._folder)
        sessions = list(self._sessions(found, learned))
        for session in sessions:
            if len(await asyncio.to_thread(self.suggestions.waiting)) >= MOST_WAITING:
                learned.is_full = True
                break
            try:
                await self._session(session, chain, progress, learned)
            except (ConfideError, TimeoutError):
                raise
            except OSError as error:
                if not await asyncio.to_thread(_is_readable, session):
                    learned.skipped += 1  # deleted, or owned by another user
                    continue
                raise error
        learned.problems = chain.problems
        if not learned.is_full:
            await asyncio.to_thread(learning_queue.forget, self._paths.state, lines)
        last = {"at": now(), **asdict(learned)}
        await asyncio.to_thread(write_whole, self._folder / "last.json", last)
        return learned

    def _sessions(self, found: list[dict[str, Any]], learned: Learned) -> Iterator[_LearnedSession]:
        """Yield the readable transcripts in their clients' folders. A path outside of them is not
        opened.
        """
        by_path: dict[tuple[str, str], list[dict[str, object]]] = {}
        for pointer in found:
            by_path.setdefault((pointer["client"], pointer["transcript"]), []).append(pointer)
        for (client, transcript), its in by_path.items():
            if (parser := PARSERS.get(client)) is not None and (root := folder_of(parser, self._config)) is not None:
                path = _below(root, transcript)
                session = parser.session_of(path) if path is not None else None
                if path is not None and session is not None:
                    yield _LearnedSession(root / path, root, parser, session, tuple(its))
                    continue
            learned.skipped += 1

    async def _session(
        self, session: _LearnedSession, chain: Chain, progress: LearnerProgress, learned: Learned
    ) -> None:
        cwd = await asyncio.to_thread(_folder_of, session)
        if cwd is None:
            return  # the first lines are not written yet
        claim = await asyncio.to_thread(projects.identify, Path(cwd))
        if await asyncio.to_thread(Narrowing(claim.root).excludes, AS_EXCLUDED):
            return
        project = (
            (await resolve_project(self._paths, self._config, claim)).project
            if claim.is_project
            else projects.global_project(self._paths.global_folder)
        )
        learned.sessions += 1
        async with self._connect(project) as memory:
            is_read = False
            while not is_read:
                is_read = await self._stretch(session, project, memory, chain, progress, learned)
            known = await asyncio.to_thread(progress.get, str(session.path))
            await self._suggest_summary(session, project, memory, learned, is_tainted=known.tainted)
            if self._config.learn.mode == "auto":
                await self._deliver(project, memory, learned)

    async def _stretch(
        self,
        session: _LearnedSession,
        project: Project,
        memory: Memory,
        chain: Chain,
        progress: LearnerProgress,
        learned: Learned,
    ) -> bool:
        """Judge the next exchanges of a transcript; return True if its end is reached."""
        path = str(session.path)
        sealer = memory.sealing.sealer
        known, reading = await asyncio.to_thread(_read, session, progress.get(path), sealer)
        exchanges = reading.exchanges
        if exchanges and not reading.is_full and not session.is_said(exchanges[-1]):
            exchanges = exchanges[:-1]  # the agent is still working on it
        learned.unknown += reading.unknown_entries
        learned.exchanges += len(exchanges)
        is_tainted = known.tainted
        for exchange in exchanges:
            learned.lowered += await _lower(memory, exchange, is_before=is_tainted)
            is_tainted = is_tainted or exchange.is_foreign
        count = known.exchanges
        is_read_by = known.tainted
        for window in windows(exchanges, count):
            judge, findings = await chain.findings(window, session.client)
            is_read_by = is_read_by or any(exchange.is_foreign for exchange in window)
            for finding in check_findings(findings, window):
                # The rules keep the user's sentence verbatim; a model's text may also contain text
                # of a web page.
                is_own = not is_read_by or (judge == RULES and is_a_persons(finding, window))
                is_own = is_own and not is_of_output(finding, window)
                suggestion = session.suggestion(project, finding, judge, DERIVED if is_own else UNTRUSTED)
                learned.found += await self._keep(suggestion, memory, reading)
        end = exchanges[-1].end if exchanges else known.offset
        if end > known.offset:
            mark = await asyncio.to_thread(_mark, session, end)
            moved = replace(
                known, offset=end, mark=mark, exchanges=count + len(exchanges), tainted=is_tainted, at=now()
            )
            await asyncio.to_thread(progress.set, path, moved)
        return not reading.is_full or end <= known.offset

    async def _keep(self, suggestion: Suggestion, memory: Memory, reading: Reading | None = None) -> bool:
        """Store a suggestion; return True if it is new. First sends the daemon the secrets that its
        placeholders refer to.
        """
        if reading is not None:
            named_here = {found[0] for found in STANDIN.finditer(f"{suggestion.text}\n{suggestion.quote}")}
            if secrets := [reading.secrets[each] for each in named_here if each in reading.secrets]:
                await memory.sealing.deposit.keep(memory.connection, secrets)
        state = "storing" if self._config.learn.mode == "auto" else "waiting"
        return await asyncio.to_thread(self.suggestions.add, replace(suggestion, state=state))

    async def _suggest_summary(
        self, session: _LearnedSession, project: Project, memory: Memory, learned: Learned, *, is_tainted: bool
    ) -> None:
        """Suggest one note about a session that was compacted or has ended."""
        if not session.last_summary and not session.has_ended:
            return
        make = partial(_summary, session, memory.sealing.sealer, is_tainted=is_tainted)
        text, reading = await asyncio.to_thread(make)
        if not text or hostile.is_hostile(text):
            return
        class_ = UNTRUSTED if session.last_summary and is_tainted else DERIVED
        judge = "client" if session.last_summary else RULES
        suggestion = session.suggestion(project, LearnedFinding(text, "", SUMMARY), judge, class_)
        learned.found += await self._keep(suggestion, memory, reading)

    async def _deliver(self, project: Project, memory: Memory, learned: Learned) -> None:
        for suggestion in await asyncio.to_thread(self.suggestions.all):
            if suggestion.state == "storing" and suggestion.project == project.name:
                stored = await note_delivery.store(memory, suggestion, is_accepted=False)
                await asyncio.to_thread(self.suggestions.put, stored)
                learned.stored += stored.state == "stored"


def windows(exchanges: Sequence[LearnedExchange], before: int) -> Iterator[Sequence[LearnedExchange]]:
    """Yield groups of new exchanges that are judged together; a group ends at every fifth exchange
    of the session. `before` is the number of exchanges that were judged already.
    """
    start = 0
    while start < len(exchanges):
        size = WINDOW - (before + start) % WINDOW
        yield exchanges[start : start + size]
        start += size


async def _lower(memory: Memory, exchange: LearnedExchange, *, is_before: bool) -> int:
    """Mark as untrusted at the daemon what the agent stored after reading text of third parties;
    return how many documents that are.

    Raises ConnectionLost, TimeoutError: from the link; RequestError unless it concerns a single
    document.
    """
    count = 0
    for project, path, revision in exchange.list_tainted(is_before=is_before):
        body: LowerRequest = {"project": project, "path": path, "revision": revision}
        try:
            answer = await LOWER.ask(memory.connection, body, timeout_s=_DEADLINE_S)
        except RequestError as error:
            if error.code not in _ABOUT_IT:
                raise
            continue  # deleted, in a project that this device may not write to, or an older daemon without classes
        count += bool(answer["lowered"])
    return count


def _below(root: Path, transcript: str) -> Path | None:
    """Return the transcript's path if it is below its client's folder; otherwise None."""
    try:
        path = Path(transcript)
        if not path.is_absolute() or ".." in path.parts or "\0" in transcript:
            return None
        for base in (root, root.resolve()):
            if path.is_relative_to(base):
                return path.relative_to(base)
    except (OSError, ValueError, RuntimeError):
        return None
    return None


def _is_readable(session: _LearnedSession) -> bool:
    try:
        with open_below(session.root, session.path):
            return True
    except OSError:
        return False


def _folder_of(session: _LearnedSession) -> str | None:
    """Return the absolute working folder of a session; None until its first lines are written."""
    with open_below(session.root, session.path) as fd:
        origin = origin_of(fd, session.parser)
    said = next((pointer["more"]["cwd"] for pointer in session.pointers if pointer["more"].get("cwd")), "")
    cwd = (origin[0] if origin else "") or said
    return cwd if cwd.startswith("/") and "\0" not in cwd else None


def _read(session: _LearnedSession, known: TranscriptPosition, sealer: Any) -> tuple[TranscriptPosition, Reading]:
    """Read the next exchanges of a transcript. Starts over if the file was rewritten or is shorter
    than before.
    """
    with open_below(session.root, session.path) as fd:
        head = head_of(fd)
        is_same = bool(known.offset) and known.head == head and mark_of(fd, known.offset) == known.mark
        if not is_same:
            begin = 0 if known.offset else _first_offset(fd, session)
            known = TranscriptPosition(
                head=head, note=known.note, offset=begin, tainted=begin > 0
            )  # the skipped part may contain a web page
        return known, read(fd, session.parser, known.offset, sealer)


def _first_offset(fd: int, session: _LearnedSession) -> int:
    """Return where to start in a new transcript: at its beginning, unless it is long."""
    first: int = min(pointer["offset"] for pointer in session.pointers)
    begin = min(first, os.fstat(fd).st_size) - _BEHIND_BYTES
    if begin <= 0:
        return 0
    end: int = portable.read_at(fd, _BEHIND_BYTES, begin).find(b"\n")
    return int(begin) + end + 1


def _mark(session: _LearnedSession, offset: int) -> str:
    with open_below(session.root, session.path) as fd:
        return mark_of(fd, offset)


def _summary(session: _LearnedSession, sealer: Any, *, is_tainted: bool) -> tuple[str, Reading | None]:
    with open_below(session.root, session.path) as fd:
        day = time.strftime("%Y-%m-%d", time.localtime(session.pointers[-1]["at"]))
        return summary_of(fd, session.parser, sealer, session.last_summary, day, is_tainted=is_tainted)


def background_tasks(
    paths: ProxyPaths, config: ProxyConfig, connect: Connects
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the background task of an agent's session, by name: it learns until cancelled, taking
    turns with the device's other processes.
    """
    return {"learning": lambda: Learner(paths, config, connect).run()}
