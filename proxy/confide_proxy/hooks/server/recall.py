"""What the seat's holder answers a hook: briefings and hits, asked of the daemon over the session's own link, within a hook's time.

A machine whose link is down has briefings alone, from its disk: hits need the classes that the daemon keeps.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_memory.documents import GLOBAL_PROJECT, RequestChannel
from confide_memory.wire.revisions import BRIEFING, BriefingAnswer
from confide_memory.wire.session import LOOKUP, LookupRequest
from confide_proxy import addons
from confide_proxy.errors import KeyLockedError, NotJoinedError, NotSetUpError, UnfitAnswerError
from confide_proxy.hooks import block, briefings, events, prompt_filter, startup_marks
from confide_proxy.hooks.server import form
from confide_proxy.hooks.server.shown import ShownLedger
from confide_proxy.link.daemon_link import Link
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls, ToolCall
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import before

log = logging.getLogger(__name__)

HIT_SCORE: Final = 0.4
"""What a hit scores at least, of a score made for what nobody asked for (`python -m bench.hook_prompts`). Of 120 everyday prompts without
an answer 97.5 % got nothing beside 50 notes, and 100 % beside our own documents; of 52 with an answer 2 % lost it. At 0.3 it were 92.5,
99 and 2 %, at 0.5 99, 100 and 4 %. Of 40 prompts that no weight was fitted on, 92.5 and 100 % got nothing."""
ANSWER_S: Final = 0.3
"""What a hook leaves of its time for an answer, when it has started and connected."""
WAY_S: Final = 0.02
"""What an answer needs on its way to a hook, of the time that the hook says it has left."""
DAEMON_S: Final = 0.25
"""What of it the daemon has at a start; the rest is for the briefing on the disk."""
KNOWN_S: Final = 60.0
"""Which project a folder is, is looked up again after so long: it costs three processes of git."""
MOST_KNOWN: Final = 64
SETTLE_S: Final = 2.0
"""Turns that end within this time have one new briefing."""
_LISTED: Final = 40
_FOUND: Final = 8
_REQUEST_S: Final = 5.0
_LOOK_S: Final = 0.01
_CLASSES: Final = "confide/classes"
_UNASKED: Final = "confide/unasked"
_SUMMARY: Final = "session-summary"
_FOR_A_PERSON = (KeyLockedError, NotJoinedError, NotSetUpError, DeniedError)
"""Why a link is down that only a person can mend."""
_MESSAGE_CHARS: Final = 400


class PromptRecall:
    """Answers hooks. Runs in the event loop of the process that holds the seat."""

    def __init__(self, paths: ProxyPaths, link: Link, sealing: SessionSealing, folders: list[Path]) -> None:
        """`folders`: of the projects that this process serves, whose briefings are made when the link comes up."""
        self._paths = paths
        self._state = os.fspath(paths.state)
        self._link = link
        self._sealing = sealing
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._shown = ShownLedger(os.path.join(self._state, "hooks", "shown.json"))
        self._known: dict[str, tuple[float, tuple[str, str] | None]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._is_kept = True

    async def begin(self) -> None:
        """This process has sat down."""
        await asyncio.to_thread(self._shown.load)

    def on_up(self) -> None:
        """The link is up."""
        for folder in self._folders:
            self._refresh_soon(
                folder, settle_s=0.0
            )  # a session of one prompt is over soon, and the next one begins with it

    def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What a hook is told: `context` for the model, `message` for the person. Nothing where there is nothing, or not in time."""
        kind, folder, session = (_text(asked, name) for name in ("kind", "cwd", "session"))
        if not os.path.isabs(folder):
            return {}
        try:
            async with asyncio.timeout(_time_for(asked)):
                if kind == events.START:
                    return await self._start(folder, session, _text(asked, "source"))
                if kind == events.PROMPT:
                    return await self._prompt(folder, session, asked)
                if kind == "turn":
                    self._refresh_soon(folder)
        except TimeoutError:
            log.info("a hook was not answered in time")
        except ConfideError as error:
            log.info("a hook was not answered: %s", type(error).__name__)
        return {}

    # -- starts ---------------------------------------------------------------------------------------------------

    async def _start(self, folder: str, session: str, source: str) -> dict[str, object]:
        if not self._shown.starts(session, source, is_anew=source in events.ANEW):
            return {}
        answer = await self._briefed(folder, session)
        if message := self._needed(session):
            answer["message"] = message
        self._keep_shown()
        return answer

    async def _briefed(self, folder: str, session: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(DAEMON_S):
                lines = await self._refreshed(folder) if self._link.is_up else None
        except (ConfideError, TimeoutError):
            lines = None
        if lines is None:
            context = await asyncio.to_thread(briefings.read, self._state, folder)
        else:
            self._shown.add(session, form.covered(lines))
            context = block.framed([each.line for each in lines]) if lines else ""
        return {"context": context} if context else {}

    def _needed(self, session: str) -> str:
        """What a person must do before there is a memory at all; once a session."""
        reason = self._link.reason
        if self._link.is_up or not isinstance(reason, _FOR_A_PERSON):
            return ""
        told = form.plain(f"Confide: {reason}" + (f"; hint: {reason.hint}" if reason.hint else ""), _MESSAGE_CHARS)
        persons = f"{session}\0person"  # who remembers what the model forgets
        if self._shown.has(persons, told):
            return ""
        self._shown.add(persons, [told])
        return told

    # -- prompts --------------------------------------------------------------------------------------------------

    async def _prompt(self, folder: str, session: str, asked: Mapping[str, object]) -> dict[str, object]:
        prompt = asked.get("prompt")
        question = prompt_filter.question(prompt) if isinstance(prompt, str) else ""
        briefing = await self._first_briefing(folder, session)
        kept: list[form.Quoted] = []
        if question and await self._is_linked():
            found = await self._search(folder, question)
            fresh = [each for each in found if not self._is_shown(session, each)]
            kept = form.within(fresh[: form.HITS], form.HIT_TOKENS)
        if not briefing and not kept:
            return {}
        # Before the answer is written: the same event may be here a second time already.
        self._shown.add(session, [each.place for each in kept])
        self._keep_shown()
        return {"context": block.framed([each.line for each in (*briefing, *kept)])}

    async def _first_briefing(self, folder: str, session: str) -> list[form.Quoted]:
        """What the start of a session would have said, had anybody listened or the disk had it: mostly in a project's first session."""
        if self._shown.has_begun(session) or not await asyncio.to_thread(startup_marks.is_missed, self._state, session):
            return []
        lines = await self._refreshed(folder) if await self._is_linked() else None
        if lines is None:
            return []
        if not self._shown.starts(session, "startup", is_anew=False):
            return []  # the same prompt came a second time meanwhile
        self._shown.add(session, form.covered(lines))
        return lines

    def _is_shown(self, session: str, hit: form.Quoted) -> bool:
        return self._shown.has(session, hit.place) or self._shown.has(session, hit.document)

    async def _is_linked(self) -> bool:
        """Whether the link is up; a first attempt is waited for as long as the hook has time."""
        while self._link.is_up is None and self._link.reason is None:  # noqa: ASYNC110 - the link tells its session alone
            await asyncio.sleep(_LOOK_S)
        return bool(self._link.is_up)

    async def _search(self, folder: str, question: str) -> list[form.Quoted]:
        project = await self._project(folder)
        if project is None:
            return []
        return await found(self._link, self._sealing, project, question)

    # -- briefings ------------------------------------------------------------------------------------------------

    def _refresh_soon(self, folder: str, *, settle_s: float = SETTLE_S) -> None:
        """Make the briefing of a folder's project anew, in a moment."""
        task = self._tasks.get(folder)
        if task is None or task.done():
            self._tasks = {name: each for name, each in self._tasks.items() if not each.done()}
            if len(self._tasks) < MOST_KNOWN:
                self._tasks[folder] = asyncio.get_running_loop().create_task(self._refresh(folder, settle_s))

    async def _refresh(self, folder: str, settle_s: float) -> None:
        await asyncio.sleep(settle_s)
        try:
            async with asyncio.timeout(_REQUEST_S):
                await self._refreshed(folder)
        except (ConfideError, TimeoutError) as error:
            log.info("no new briefing: %s", type(error).__name__)

    async def _refreshed(self, folder: str) -> list[form.Quoted] | None:
        """The lines of a folder's briefing as they are now, which the disk gets too; None where the folder is no known project."""
        project = await self._project(folder)
        if project is None:
            return None
        lines = form.within(await self._lines(project), form.BRIEFING_TOKENS, once=True)
        root = (await self._found(folder) or ("", folder))[1]
        name = hashlib.blake2b(f"{project}\0{root}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        try:
            await asyncio.to_thread(briefings.save, self._state, root, name, [each.line for each in lines])
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
        notes = form.notes(important, (project, GLOBAL_PROJECT))
        summary = await self._summary(project, summaries)
        # The last session's comes last, and has its room before the least important note has.
        ending = [summary] if summary else []
        lines = [*notes[:-1], *ending, *notes[-1:]] if len(notes) == form.NOTES else [*notes, *ending]
        heads = [each for name in dict.fromkeys((project, GLOBAL_PROJECT)) for each in form.head(pieces["head"], name)]
        written = [
            *form.newest_notes(newest, project, without=_SUMMARY),
            *form.entries(pieces["newest"], project),
        ]
        # What changed in the same second stays in this order.
        written.sort(key=lambda each: each.when, reverse=True)
        return [*first, *lines, *heads, *written]

    async def _pieces(self, project: str) -> BriefingAnswer:
        """How the `MEMORY.md` begins, and how the files that changed last end; nothing where the daemon knows of no such request."""
        try:
            return await BRIEFING.ask(self._link, {"project": project}, timeout_s=_REQUEST_S)
        except (RequestError, UnfitAnswerError):
            return {"head": [], "newest": []}

    async def _of_addons(self) -> list[form.Quoted]:
        """What add-ons have to say before all else."""
        found = []
        for briefing in await asyncio.to_thread(addons.each, "briefing"):
            try:
                line = await briefing(self._link)
            except (RequestError, UnfitAnswerError):
                continue  # the notes are worth more than this
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

    async def _look_up(self, project: str, tool: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        return await _looked_up(self._link, project, tool, arguments)

    async def _project(self, folder: str) -> str | None:
        found = await self._found(folder)
        return found[0] if found else None

    async def _found(self, folder: str) -> tuple[str, str] | None:
        """Name and root of the project that a folder is in; None where nobody has decided yet which it is."""
        known = self._known.pop(folder, None)
        if known is None or time.monotonic() - known[0] > KNOWN_S:
            known = (time.monotonic(), await asyncio.to_thread(_identified, self._paths, folder))
        self._known[folder] = known
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return known[1]

    def _keep_shown(self) -> None:
        self._is_kept = False
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while not self._is_kept:
            self._is_kept = True
            await asyncio.to_thread(self._shown.save, self._shown.kept())


async def found(link: RequestChannel, sealing: SessionSealing, project: str, question: str) -> list[form.Quoted]:
    """What a search for a prompt's question finds that may come unasked, the best first. Raises ConfideError, TimeoutError."""
    return form.hits(await _searched(link, sealing, project, question, HIT_SCORE))


async def scored(
    link: RequestChannel, sealing: SessionSealing, project: str, question: str
) -> list[tuple[float, form.Quoted]]:
    """Return what `found` looks at with its scores, results below `HIT_SCORE` included. Raises as `found`."""
    result = await _searched(link, sealing, project, question, 0.0)
    results = result.get("results")
    pairs: list[tuple[float, form.Quoted]] = []
    for one in results if isinstance(results, list) else ():
        score = one.get("score") if isinstance(one, dict) else None
        if isinstance(score, int | float):
            pairs += [(float(score), hit) for hit in form.hits({"results": [one]})]
    return pairs


async def _searched(
    link: RequestChannel, sealing: SessionSealing, project: str, question: str, least: float
) -> dict[str, object]:
    """Search the memory that may be added automatically, down to the score `least`."""
    arguments = {"query": question, "maxResults": _FOUND, "minScore": least}
    # Whatever of it is a credential goes out as its placeholder, or not at all.
    sealed = SealedCalls(sealing, project)
    given = await sealed.arguments(link, ToolCall("memory_search", arguments, project), is_lookup=True)
    return await _looked_up(link, project, "memory_search", given)


async def _looked_up(
    link: RequestChannel, project: str, tool: str, arguments: Mapping[str, object]
) -> dict[str, object]:
    # What is of another class is not even looked at; what comes all the same is left out by `form`.
    meta = {_CLASSES: list(form.TRUSTED), _UNASKED: True}
    body: LookupRequest = {"project": project, "tool": tool, "arguments": dict(arguments), "meta": meta}
    return (await LOOKUP.ask(link, body, timeout_s=_REQUEST_S))["result"]


def _time_for(asked: Mapping[str, object]) -> float:
    """Seconds that an answer may take."""
    left_ms = asked.get("ms")  # an older hook does not say it
    return min(ANSWER_S, max(0.0, left_ms / 1000 - WAY_S)) if isinstance(left_ms, int) else ANSWER_S


def _identified(paths: ProxyPaths, folder: str) -> tuple[str, str] | None:
    claim = projects.identify(Path(folder))
    if not claim.is_project:
        return GLOBAL_PROJECT, folder
    found = before(paths, claim)
    return (found.name, os.fspath(found.root)) if found else None


def _text(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name)
    return value if isinstance(value, str) else ""
