"""Answer hooks with text from memory: briefings and search results. They are fetched from the
daemon over the session's own connection, within the time that the hook waits.

While the daemon is unreachable only briefings are available, from disk. Search results are not,
because only the daemon stores who wrote each text.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_crypto.transport.task_group import raise_if_cancelled
from confide_memory.documents import GLOBAL_PROJECT, RequestChannel
from confide_memory.tools.call import SAID, said_now
from confide_memory.wire.revisions import BRIEFING, BriefingAnswer
from confide_memory.wire.session import LOOKUP, LookupRequest
from confide_proxy import addons
from confide_proxy.errors import KeyLockedError, NotJoinedError, NotSetUpError, UnfitAnswerError
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.hooks import block, briefings, events, prompt_filter, session_marks
from confide_proxy.hooks.hook_process import FIRST_S
from confide_proxy.hooks.server import form, usage
from confide_proxy.hooks.server.action_recall import MOST_BYTES, ActionPlace, ActionRecall, has_failed, question
from confide_proxy.hooks.server.shown import ShownLedger
from confide_proxy.hooks.server.usage import UsageState
from confide_proxy.link import session_values
from confide_proxy.link.daemon_link import Link
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.open_secrets import answer_run
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import before

log = logging.getLogger(__name__)

HIT_SCORE: Final = 0.4
"""Lowest score of a hit, on a scale for searches that no one asked for.

With it, 1 to 3 % of prompts that no note helps with get one beside logs, and up to 7 % beside 4,000
chunks of documentation (`python -m bench.quiet.fit`).
"""
ANSWER_S: Final = 0.3
"""Time for an answer to a hook that doesn't say how long it waits."""
WAY_S: Final = 0.02
"""Time for an answer's way back, subtracted from the time that the hook has left."""
DAEMON_S: Final = 0.25
"""Share of it for the daemon at a start; the rest is for the briefing on disk."""
KNOWN_S: Final = 60.0
"""Time for which a folder's project is cached; looking it up starts three git processes."""
MOST_KNOWN: Final = 64
SETTLE_S: Final = 2.0
"""Turns that end within this time share one new briefing. Doubled after each failure."""
LONGEST_SETTLE_S: Final = 60.0
"""Instead of so long a pause, a briefing that failed waits for the next turn."""
_LISTED: Final = 40
_FOUND: Final = 8
_REQUEST_S: Final = 5.0
_LOOK_S: Final = 0.01
_CLASSES: Final = "confide/classes"
_UNASKED: Final = "confide/unasked"
_SUMMARY: Final = "session-summary"
_FOR_A_PERSON = (KeyLockedError, NotJoinedError, NotSetUpError, DeniedError)
"""Reasons for a broken link that only the user can fix."""
_MESSAGE_CHARS: Final = 400
NOT_CHECKED: Final = "not checked since"
_FAILED: Final = "failure\0"
_AGAIN: Final = "again\0"
"""Before the places, in a session's record, of notes whose failure has come, and of those whose
failure has come again.
"""
_AT_ACTION: Final = "action\0"
"""Before the places of notes that a tool call got. A note of the briefing or of a prompt comes again
at the action, once: only there it is known to prevent a mistake (decision 44).
"""


class PromptRecall:
    """Answers the hooks of this device. It runs in the event loop of the process that was chosen to
    do so (`seat`).
    """

    def __init__(self, paths: ProxyPaths, link: Link, sealing: SessionSealing, folders: list[Path]) -> None:
        """`folders` are those of the projects that this process serves; their briefings are made
        when the link comes up.
        """
        self._paths = paths
        self._state = os.fspath(paths.state)
        self._link = link
        self._sealing = sealing
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._shown_ledger = ShownLedger(os.path.join(self._state, "hooks", "shown.json"))
        self._usage = usage.UsageFile(self._state)
        self._projects: dict[str, tuple[float, tuple[str, str] | None]] = {}
        self._actions = ActionRecall(link)
        self._late_ties: dict[str, LateTies] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outdated: set[str] = set()  # folders whose briefing was asked for since it was last made
        self._keeping: asyncio.Task[None] | None = None
        self._is_kept = True

    async def begin(self) -> None:
        """Load the counters, and the record of the texts that sessions have been shown."""
        await asyncio.to_thread(self._shown_ledger.load)
        await asyncio.to_thread(self._usage.refresh)

    def on_up(self) -> None:
        """Refresh the briefings, since the connection to the daemon is up again."""
        for folder in self._folders:
            self._refresh_soon(
                folder, settle_s=0.0
            )  # a session of one prompt is over soon, and the next one begins with it

    def end(self) -> None:
        """Stop background work, and write the counters to disk: the agent's last answer often comes
        right before the session's end. Blocks briefly.
        """
        self._usage.flush()
        self._actions.end()
        for task in self._tasks.values():
            task.cancel()

    async def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a hook: `context` for the model and `message` for the user. {} if
        there is nothing to say, or if it would come too late.
        """
        kind, folder, session = (_text(asked, name) for name in ("kind", "cwd", "session"))
        if not os.path.isabs(folder):
            return {}
        try:
            async with asyncio.timeout(_time_for(asked)):
                if kind == events.START:
                    return await self._start(folder, session, _text(asked, "source"))
                if kind == events.PROMPT:
                    return await self._prompt(folder, session, asked)
                if kind in (events.BEFORE, events.AFTER):
                    return await self._action(folder, session, asked)
                if kind == session_values.KIND:
                    return await answer_run(asked, self._link, self._sealing) if self._link.is_up else {}
                if kind == "turn":
                    self._refresh_soon(folder)
                    await self._count_named_notes(folder, session, _text(asked, "answer"))
        except TimeoutError:
            log.info("a hook was not answered in time")
        except ConfideError as error:
            log.info("a hook was not answered: %s", type(error).__name__)
        return {}

    # -- starts ---------------------------------------------------------------------------------------------------

    async def _start(self, folder: str, session: str, source: str) -> dict[str, object]:
        if not self._shown_ledger.starts(session, source, is_anew=source in events.ANEW):
            return {}
        answer = await self._briefing_answer(folder, session)
        if message := self._user_action(session):
            answer["message"] = message
        self._keep_shown()
        return answer

    async def _briefing_answer(self, folder: str, session: str) -> dict[str, object]:
        try:
            async with asyncio.timeout(DAEMON_S):
                lines = await self._refresh_briefing(folder) if self._link.is_up else None
        except (ConfideError, TimeoutError):
            lines = None
        if lines is None:
            context = await asyncio.to_thread(briefings.read, self._state, folder)
        else:
            self._shown_ledger.add(session, form.quoted_places(lines))
            context = block.frame_lines([each.line for each in lines]) if lines else ""
        if context:
            self._count(session, usage.START, lines or (), context)
        return {"context": context} if context else {}

    def _user_action(self, session: str) -> str:
        """Return what the user must do before memory is available; once per session."""
        reason = self._link.reason
        if self._link.is_up or not isinstance(reason, _FOR_A_PERSON):
            return ""
        told = form.plain(f"Confide: {reason}" + (f"; hint: {reason.hint}" if reason.hint else ""), _MESSAGE_CHARS)
        persons = f"{session}\0person"  # kept when the model's context is cleared
        if self._shown_ledger.has(persons, told):
            return ""
        self._shown_ledger.add(persons, [told])
        return told

    # -- prompts --------------------------------------------------------------------------------------------------

    async def _prompt(self, folder: str, session: str, asked: Mapping[str, object]) -> dict[str, object]:
        prompt = asked.get("prompt")
        question = prompt_filter.question(prompt) if isinstance(prompt, str) else ""
        briefing = await self._first_briefing(folder, session)
        kept: list[form.Quoted] = []
        if question and await self._is_linked():
            await asyncio.to_thread(self._usage.refresh)
            found = sorted(await self._search(folder, question), key=self._is_sunk)
            fresh = [each for each in found if not self._is_shown(session, each)]
            kept = form.within(fresh[: form.HITS], form.HIT_TOKENS)
        if not briefing and not kept:
            return {}
        # Before the answer is written: the same event may already have arrived a second time.
        self._shown_ledger.add(session, [each.place for each in kept])
        for event, lines in ((usage.START, briefing), (usage.PROMPT, kept)):
            if lines:
                self._count(session, event, lines, block.frame_lines([each.line for each in lines]))
        self._keep_shown()
        return {"context": block.frame_lines([each.line for each in (*briefing, *kept)])}

    async def _first_briefing(self, folder: str, session: str) -> list[form.Quoted]:
        """Return the briefing that the session's start missed, as no process listened and none was
        on disk: mostly in a project's first session.
        """
        if self._shown_ledger.has_begun(session) or not await asyncio.to_thread(
            session_marks.is_missed, self._state, session
        ):
            return []
        lines = await self._refresh_briefing(folder) if await self._is_linked() else None
        if lines is None:
            return []
        if not self._shown_ledger.starts(session, "startup", is_anew=False):
            return []  # the same prompt came a second time meanwhile
        self._shown_ledger.add(session, form.quoted_places(lines))
        return lines

    def _is_shown(self, session: str, hit: form.Quoted) -> bool:
        return self._shown_ledger.has(session, hit.place) or self._shown_ledger.has(session, hit.document)

    async def _is_linked(self) -> bool:
        """Return True if the link is up; wait for a first attempt as long as the hook has time."""
        while self._link.is_up is None and self._link.reason is None:  # noqa: ASYNC110 - the link notifies only its session
            await asyncio.sleep(_LOOK_S)
        return bool(self._link.is_up)

    async def _search(self, folder: str, question: str) -> list[form.Quoted]:
        project = await self._project(folder)
        if project is None:
            return []
        return await self._true(folder, await search_hits(self._link, self._sealing, project, question))

    async def _true(self, folder: str, lines: list[form.Quoted]) -> list[form.Quoted]:
        """Return these lines without those about what no longer exists, and with marks at those
        about something that was changed.
        """
        place = await self._find_project(folder)
        own = {
            line: line.document.partition("\0")[2]
            for line in lines
            if place and line.document.startswith(f"{place[0]}\0")
        }
        if place is None or not own:
            return lines
        marks = await asyncio.to_thread(self._ties(*place).marks_for_push, own.values())
        made = []
        for line in lines:
            mark = marks.get(own.get(line, ""))
            if mark is None:
                made.append(line)
            elif not mark.is_gone:
                made.append(form.add_mark(line, mark.text))
        return made

    def _ties(self, project: str, root: str) -> LateTies:
        """Return the ties of a project's notes; the first use of them is in a thread."""
        ties = self._late_ties.get(root) or LateTies(Path(root), project, self._sealing)
        self._late_ties[root] = ties
        while len(self._late_ties) > MOST_KNOWN:
            del self._late_ties[next(iter(self._late_ties))]
        return ties

    # -- tool calls -----------------------------------------------------------------------------------------------

    async def _action(self, folder: str, session: str, asked: Mapping[str, object]) -> dict[str, object]:
        self._actions.count(session)
        is_failure = asked.get("kind") == events.AFTER and has_failed(asked) is True
        found = await self._find_project(folder)
        if found is None:
            return {}
        place = ActionPlace(*found, os.fspath(self._paths.global_folder))
        self._count_named(place.project, asked)
        await self._is_linked()
        for line in sorted(await self._actions.fitting(place, asked, self._ties(*found)), key=self._is_sunk):
            if not self._is_met(session, line):
                return self._shown_at_action(session, line, is_failure=is_failure)
            self._count_failure(session, line)
        if is_failure and self._link.is_up and (failure := question(asked)):
            for line in await self._search(folder, failure.words):
                is_short = len(block.frame_lines([line.line]).encode()) <= MOST_BYTES
                if is_short and failure.is_answered_by(line.text) and not self._is_met(session, line):
                    return self._shown_at_action(session, line, is_failure=True)
        return {}

    def _is_met(self, session: str, line: form.Quoted) -> bool:
        """Return True if a tool call of this session has got the note."""
        return self._shown_ledger.has(session, f"{_AT_ACTION}{line.place}")

    def _shown_at_action(self, session: str, line: form.Quoted, *, is_failure: bool) -> dict[str, object]:
        if not self._actions.take(session, line.line):
            return {}
        is_covered = line.is_for_failure
        marks = ["", _AT_ACTION, *([_FAILED] if is_covered else [])]
        self._shown_ledger.add(session, [f"{mark}{line.place}" for mark in marks])
        context = block.frame_lines([line.line])
        event = usage.FAILURE if is_failure or is_covered else usage.ACTION
        self._count(session, event, [line], context, is_covered=is_covered)
        self._keep_shown()
        return {"context": context}

    # -- counters -------------------------------------------------------------------------------------------------

    def _is_sunk(self, line: form.Quoted) -> bool:
        """Return True if a note was shown often and never used, so that others come before it."""
        note = self._usage.state.notes.get(line.document)
        return note is not None and note.is_sunk and not line.is_pinned

    def _count(
        self, session: str, event: str, lines: Iterable[form.Quoted], context: str, *, is_covered: bool = False
    ) -> None:
        """Count what is shown at an event; the caller writes it with `_keep_shown`."""
        shown = [_note(line) for line in lines if line.document]
        tokens, now, by = usage.tokens_of(context), time.time(), usage.session_of(session)
        self._usage.add(
            lambda state: state.show(event, shown, tokens=tokens, now=now, session=by, is_covered=is_covered)
        )

    def _count_failure(self, session: str, line: form.Quoted) -> None:
        """Count, once per session each, that a failure came after its note had been shown, and that
        it came again.
        """
        has_come = self._shown_ledger.has(session, f"{_FAILED}{line.place}")
        mark = f"{_AGAIN if has_come else _FAILED}{line.place}"
        if line.is_for_failure and not self._shown_ledger.has(session, mark):
            self._shown_ledger.add(session, [mark])
            note, now = _note(line), time.time()
            count = UsageState.again if has_come else UsageState.meet
            self._usage.add(lambda state: count(state, note.project, note.path, now))
            self._keep_shown()

    def _count_named(self, project: str, asked: Mapping[str, object]) -> None:
        """Count the notes that a tool call names in its command or its paths."""
        paths = asked.get("paths")
        named = [each for each in paths if isinstance(each, str)] if isinstance(paths, list) else []
        text, now = "\n".join([_text(asked, "command"), *named]), time.time()
        if any(note.is_named_in(text, project) for note in self._usage.state.open_notes(now)):
            self._usage.add(lambda state: state.mention(project, text, now))
            self._keep_shown()

    async def _count_named_notes(self, folder: str, session: str, text: str) -> None:
        """Count the notes that an agent's final answer names, before the hook gets its
        answer: the session may end next.
        """
        if text:
            project, now, by = await self._project(folder) or "", time.time(), usage.session_of(session)
            self._usage.add(lambda state: state.mention(project, text, now, by))
            await asyncio.to_thread(self._usage.flush)

    # -- briefings ------------------------------------------------------------------------------------------------

    def _refresh_soon(self, folder: str, *, settle_s: float = SETTLE_S) -> None:
        """Refresh the briefing of a folder's project after a moment."""
        self._tasks = {name: each for name, each in self._tasks.items() if not each.done()}
        if folder not in self._tasks and len(self._tasks) >= MOST_KNOWN:
            return
        self._outdated.add(folder)
        if folder not in self._tasks:
            self._tasks[folder] = asyncio.get_running_loop().create_task(self._refresh(folder, settle_s))

    async def _refresh(self, folder: str, settle_s: float) -> None:
        """Refresh a briefing until it is of the time of the last request for it. After a failure it
        is tried again while the link is up.
        """
        pause_s = settle_s
        while folder in self._outdated:
            await asyncio.sleep(pause_s)
            self._outdated.discard(folder)
            try:
                async with asyncio.timeout(_REQUEST_S):
                    await self._refresh_briefing(folder)
                pause_s = SETTLE_S
            except (ConfideError, TimeoutError) as error:
                raise_if_cancelled()
                log.info("no new briefing: %s", type(error).__name__)
                pause_s = max(SETTLE_S, 2 * pause_s)
                if self._link.is_up and pause_s < LONGEST_SETTLE_S:
                    self._outdated.add(folder)

    async def _refresh_briefing(self, folder: str) -> list[form.Quoted] | None:
        """Fetch and store the lines of a folder's briefing; return None if the folder belongs to no
        known project.
        """
        project = await self._project(folder)
        if project is None:
            return None
        self._actions.refresh_soon(project)
        await asyncio.to_thread(self._usage.refresh)
        listed = await self._lines(project)
        found = await self._true(folder, listed)
        gone = {each.document for each in listed if each.is_important} - {each.document for each in found}
        lines = form.within(
            [*form.outdated_line(len(gone)), *sorted(found, key=self._is_sunk)], form.BRIEFING_TOKENS, once=True
        )
        root = (await self._find_project(folder) or ("", folder))[1]
        name = hashlib.blake2b(f"{project}\0{root}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        try:
            await asyncio.to_thread(briefings.save, self._state, root, name, [_for_later(each) for each in lines])
        except OSError as error:
            log.info("a briefing could not be kept: %s", error.strerror)
        return lines

    async def _lines(self, project: str) -> list[form.Quoted]:
        listed = {"sort": "importance", "limit": _LISTED}
        last = {"type": [_SUMMARY], "sort": "updated", "limit": 1, "project": project}
        latest = {"sort": "updated", "limit": _LISTED, "project": project}
        important, summaries, newest, pieces, first = await asyncio.gather(
            self._look_up(project, "memory_list", listed),
            self._look_up(project, "memory_list", last),
            self._look_up(project, "memory_list", latest),
            self._pieces(project),
            self._of_addons(),
        )
        notes = form.notes(important, (project, GLOBAL_PROJECT), self._is_sunk)
        summary = await self._summary(project, summaries)
        # The last session's summary comes last, but has priority over the least important note.
        ending = [summary] if summary else []
        lines = [*notes[:-1], *ending, *notes[-1:]] if len(notes) == form.NOTES else [*notes, *ending]
        heads = [each for name in dict.fromkeys((project, GLOBAL_PROJECT)) for each in form.head(pieces["head"], name)]
        written = [
            *form.newest_notes(newest, project, without=_SUMMARY),
            *form.entries(pieces["newest"], project),
        ]
        # The sort is stable: entries of the same second keep this order.
        written.sort(key=lambda each: each.when, reverse=True)
        return [*first, *lines, *heads, *written]

    async def _pieces(self, project: str) -> BriefingAnswer:
        """Fetch the starts of `MEMORY.md` files and the ends of the last changed files; empty if
        the daemon lacks this request.
        """
        try:
            return await BRIEFING.ask(self._link, {"project": project}, timeout_s=_REQUEST_S)
        except (RequestError, UnfitAnswerError):
            return {"head": [], "newest": []}

    async def _of_addons(self) -> list[form.Quoted]:
        """Return the lines of add-ons, which come first."""
        found = []
        for briefing in await asyncio.to_thread(addons.each, "briefing"):
            try:
                line = await briefing(self._link)
            except (RequestError, UnfitAnswerError):
                continue  # the notes matter more
            found += [form.Quoted(line, "", "", is_whole=False)] if line else []
        return found

    async def _summary(self, project: str, listed: Mapping[str, object]) -> form.Quoted | None:
        memories = listed.get("memories")
        note = memories[0] if isinstance(memories, list) and memories else None
        if not isinstance(note, dict) or note.get("class") not in form.TRUSTED or not isinstance(note.get("id"), str):
            return None
        content = (await self._look_up(project, "memory_get", {"id": note["id"]})).get("content")
        return form.summary(note, content) if isinstance(content, str) else None

    # -- the daemon -----------------------------------------------------------------------------------------------

    async def _look_up(self, project: str, tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
        return await _looked_up(self._link, project, tool, arguments)

    async def _project(self, folder: str) -> str | None:
        found = await self._find_project(folder)
        return found[0] if found else None

    async def _find_project(self, folder: str) -> tuple[str, str] | None:
        """Return name and root of the project that contains a folder, or None if that isn't decided
        yet.
        """
        known = self._projects.pop(folder, None)
        if known is None or time.monotonic() - known[0] > KNOWN_S:
            known = (time.monotonic(), await asyncio.to_thread(_identify, self._paths, folder))
        self._projects[folder] = known
        while len(self._projects) > MOST_KNOWN:
            del self._projects[next(iter(self._projects))]
        return known[1]

    def _keep_shown(self) -> None:
        self._is_kept = False
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while not self._is_kept:
            self._is_kept = True
            await asyncio.to_thread(self._shown_ledger.save, self._shown_ledger.to_text())
            await asyncio.to_thread(self._usage.flush)


async def search_hits(link: RequestChannel, sealing: SessionSealing, project: str, question: str) -> list[form.Quoted]:
    """Search memory for a prompt's question. Return the results that may be shown automatically,
    the best first. Raises ConfideError or TimeoutError if the search fails.
    """
    return form.hits(await _search_project(link, sealing, project, question, HIT_SCORE))


async def search_scores(
    link: RequestChannel, sealing: SessionSealing, project: str, question: str
) -> list[tuple[float, form.Quoted]]:
    """Return the results that `search_hits` chooses from, with their scores, including those below
    `HIT_SCORE`. Raises ConfideError or TimeoutError if the search fails.
    """
    result = await _search_project(link, sealing, project, question, 0.0)
    results = result.get("results")
    pairs: list[tuple[float, form.Quoted]] = []
    for one in results if isinstance(results, list) else ():
        score = one.get("score") if isinstance(one, dict) else None
        if isinstance(score, int | float):
            pairs += [(float(score), hit) for hit in form.hits({"results": [one]})]
    return pairs


async def _search_project(
    link: RequestChannel, sealing: SessionSealing, project: str, question: str, least: float
) -> dict[str, object]:
    """Search the memory that may be added automatically, down to the score `least`."""
    arguments = {"query": question, "maxResults": _FOUND, "minScore": least}
    # Credentials in it are sent as placeholders, or not at all.
    sealed = SealedCalls(sealing, project)
    given = await sealed.arguments(link, ToolCall("memory_search", arguments, project), is_lookup=True)
    return await _looked_up(link, project, "memory_search", given)


async def _looked_up(
    link: RequestChannel, project: str, tool: str, arguments: Mapping[str, object]
) -> dict[str, object]:
    # The daemon searches only these classes; `form` drops others that it returns anyway.
    meta = {_CLASSES: list(form.TRUSTED), _UNASKED: True, SAID: said_now()}
    body: LookupRequest = {"project": project, "tool": tool, "arguments": dict(arguments), "meta": meta}
    return (await LOOKUP.ask(link, body, timeout_s=_REQUEST_S))["result"]


def _for_later(line: form.Quoted) -> str:
    """Return a line for a session that starts at another time: what is true now may not be then."""
    is_fresh = line.is_tied and not line.has_mark
    return form.add_mark(line, NOT_CHECKED).line if is_fresh else line.line


def _note(line: form.Quoted) -> usage.ShownNote:
    project, _, path = line.document.partition("\0")
    return usage.ShownNote(project, path, line.id)


def _time_for(asked: Mapping[str, object]) -> float:
    """Return the seconds for an answer."""
    if asked.get("kind") == session_values.KIND:
        return session_values.time_for(asked)
    left_ms = asked.get("ms")  # an older hook doesn't send it
    return min(FIRST_S, max(0.0, left_ms / 1000 - WAY_S)) if isinstance(left_ms, int) else ANSWER_S


def _identify(paths: ProxyPaths, folder: str) -> tuple[str, str] | None:
    claim = projects.identify(Path(folder))
    if not claim.is_project:
        return GLOBAL_PROJECT, folder
    found = before(paths, claim)
    return (found.name, os.fspath(found.root)) if found else None


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    return value if isinstance(value, str) else ""
