"""Find the stored notes and memory entries that concern a tool call of an agent, to show them at
that moment.

The entries of a project are fetched from the daemon in the background, so a tool call waits for no
request. An entry is shown only if this device's own file contains the same text: so neither an
outdated copy nor a daemon can put words before an agent. Only after a failure are entries also
searched by meaning.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.sealing import placeholder
from confide_memory.actions import error_messages, failure_terms, shell_commands, triggers
from confide_memory.actions.failure_terms import NoteTerms, OutputTerms
from confide_memory.actions.triggers import COMMAND, ERROR, PATH
from confide_memory.classes.hostile import is_hostile
from confide_memory.documents import GLOBAL_PROJECT, RequestChannel
from confide_memory.errors import UnfitAnswerError
from confide_memory.wire.revisions import ACTIONS, ActionEntry
from confide_proxy.freshness.late_ties import LateTies
from confide_proxy.hooks import events, hook_paths
from confide_proxy.hooks.server import form

log = logging.getLogger(__name__)

REFRESH_S: Final = 5.0
"""Entries older than this are fetched again at the next tool call, beside it."""
REQUEST_S: Final = 5.0
MOST_PROJECTS: Final = 16
MOST_BYTES: Final = 500
"""Bytes of a whole answer, frame included."""
SESSION_TOKENS: Final = 400
"""Tokens that a session gets for each hundred tool calls."""
CALLS: Final = 100
MOST_FILE: Final = 512 * 1024
MOST_TRIED: Final = 4
"""Entries whose files are read before a tool call."""
_EXIT: Final = re.compile(
    r"^\s*(?:exit(?:ed)?(?: with)?(?: code| status)?|process exited with code)\s*:?\s*(-?\d+)",
    re.IGNORECASE | re.MULTILINE,
)
_QUESTION_CHARS: Final = 300
_FOR_ERROR: Final = 1000
"""Least rank of an entry that quotes the call's failure."""
_FOR_FAILURE: Final = 800
"""Least rank of an entry that describes the call's failure."""
_OF_TOOL: Final = 1.5
_FOR_COMMAND: Final = 500
MOST_SESSIONS: Final = 64


@dataclass(slots=True)
class _Entries:
    """A project's entries, as the daemon last gave them.

    Attributes:
        terms: of each entry, those of the failure that it describes.
        read: the terms of each text, before they are compared with others.
    """

    version: str = ""
    entries: list[ActionEntry] = field(default_factory=list)
    terms: list[NoteTerms | None] = field(default_factory=list)
    read: dict[str, NoteTerms | None] = field(default_factory=dict)
    fetched_at: float = float("-inf")


@dataclass(slots=True)
class _Spent:
    """The tool calls of a session, and the tokens added to it at them."""

    calls: int = 0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """The folders in which a tool call happens: the project's name, its root folder, and the folder
    of the global memory.
    """

    project: str
    root: str
    global_folder: str

    def file(self, project: str, path: str) -> str | None:
        """Return the path of a document's file on this device. None if the document is neither of
        this project nor global, or if its path is not a plain relative path.
        """
        folder = {self.project: self.root, GLOBAL_PROJECT: self.global_folder}.get(project)
        parts = path.split("/")
        if folder is None or os.path.isabs(path) or any(part in ("", ".", "..") for part in parts):
            return None
        return os.path.join(folder, *parts)

    def below(self, cwd: str, path: str) -> str:
        """Return the path of an edited file relative to the project's root; "" if the file is
        outside it.
        """
        whole = os.path.normpath(os.path.join(cwd, path))
        for folder in dict.fromkeys((self.root, os.path.realpath(self.root))):
            if whole.startswith(f"{folder}{os.sep}"):
                return whole[len(folder) + 1 :].replace(os.sep, "/")
        return ""


class ActionRecall:
    """Cache of the entries that may concern tool calls, by project. It also limits how many tokens
    of them each session gets.
    """

    def __init__(self, link: RequestChannel) -> None:
        self._link = link
        self._projects: dict[str, _Entries] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._sessions: dict[str, _Spent] = {}

    def end(self) -> None:
        for task in self._refreshing.values():
            task.cancel()

    def refresh_soon(self, project: str, *, is_stale: bool = True) -> None:
        """Fetch a project's entries from the daemon in the background, unless they are being
        fetched already. With `is_stale` False, entries fetched less than `REFRESH_S` seconds ago
        are kept.
        """
        held = self._projects.get(project)
        if held is not None and not is_stale and time.monotonic() - held.fetched_at < REFRESH_S:
            return
        task = self._refreshing.get(project)
        if task is None or task.done():
            self._refreshing = {name: each for name, each in self._refreshing.items() if not each.done()}
            self._refreshing[project] = asyncio.get_running_loop().create_task(self._refresh(project))

    async def fitting(
        self, place: ActionPlace, asked: Mapping[str, object], ties: LateTies | None = None
    ) -> list[form.Quoted]:
        """Return the lines to show for the entries that concern a tool call, the most specific
        first.

        Entries are left out if this device's own file lacks their text, or if they are about
        something that no longer exists. `ties` knows which notes of the project are about files or
        code that still exist; None skips that check.
        """
        self.refresh_soon(place.project, is_stale=False)
        held = self._projects.get(place.project)
        if held is None:
            # The first call of a session may come before the entries: it waits for them, as long as
            # the hook does.
            await asyncio.shield(self._refreshing[place.project])
            held = self._projects.get(place.project, _Entries())
        return await asyncio.to_thread(_fitting, held, place, asked, ties)

    def count(self, session: str) -> None:
        """Count a tool call of a session. The session's token budget grows with every `CALLS`
        calls.
        """
        self._session_of(session).calls += 1

    def take(self, session: str, line: str) -> bool:
        """Return True if the session's token budget allows one more line, and subtract the line's
        tokens.
        """
        spent, cost = self._session_of(session), form.tokens(line)
        if spent.tokens + cost > SESSION_TOKENS * max(1, -(-spent.calls // CALLS)):
            return False
        spent.tokens += cost
        return True

    def _session_of(self, session: str) -> _Spent:
        found = self._sessions.pop(session, None) or _Spent()
        self._sessions[session] = found
        while len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return found

    async def _refresh(self, project: str) -> None:
        held = self._projects.get(project) or _Entries()
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await ACTIONS.ask(self._link, {"project": project, "known": held.version}, timeout_s=REQUEST_S)
            if answer["version"] != held.version:
                terms = await asyncio.to_thread(_terms, answer["entries"], held)
                held.version, held.entries, held.terms = answer["version"], answer["entries"], terms
        except (RequestError, UnfitAnswerError):
            held.entries, held.terms = [], []  # the daemon is older, or this caller has no grant for the project
        except (ConfideError, TimeoutError) as error:
            log.info("the notes at actions could not be fetched: %s", type(error).__name__)
            if isinstance(error, ConnectionLost) and project not in self._projects:
                return  # the link is not up yet: the next call asks again
        held.fetched_at = time.monotonic()
        self._projects[project] = held
        while len(self._projects) > MOST_PROJECTS:
            del self._projects[next(iter(self._projects))]


def has_failed(asked: Mapping[str, object]) -> bool | None:
    """Return True if a finished tool call has failed and False if not; None if neither its event
    nor its output shows that.
    """
    failed, output = asked.get("failed"), asked.get("output")
    if isinstance(failed, bool):
        return failed
    codes = _EXIT.findall(output[-2000:] + output[:2000]) if isinstance(output, str) else []
    return any(int(code) != 0 for code in codes) if codes else None


@dataclass(frozen=True, slots=True)
class FailureQuestion:
    """The query that is searched by meaning after a tool call has failed.

    Attributes:
        words: the command's program and the last error message in its output.
        names: the names that this message quotes, such as `psycopg2`. A note about another name
            does not help.
    """

    words: str
    names: tuple[str, ...]

    def is_answered_by(self, text: str) -> bool:
        """Return True if a text contains one of the names, or if the error message quotes none."""
        folded = text.casefold()
        return not self.names or any(name in folded for name in self.names)


def question(asked: Mapping[str, object]) -> FailureQuestion | None:
    """Return the query for a failed tool call; None if its output contains no error message."""
    output, command = asked.get("output"), asked.get("command")
    if not isinstance(output, str):
        return None
    lines = [line.strip() for line in output[-8000:].split("\n")]
    failing = [line for line in lines if error_messages.FAILS.search(line) and error_messages.signature(line)]
    if not failing:
        return None
    run = shell_commands.commands(command) if isinstance(command, str) else []
    head = " ".join(run[-1][:2]) if run else ""
    names = [match[0][1:-1].casefold() for match in error_messages.QUOTED.finditer(failing[-1])]
    return FailureQuestion(f"{head} {failing[-1]}".strip()[:_QUESTION_CHARS], tuple(names))


def _terms(entries: Sequence[ActionEntry], held: _Entries) -> list[NoteTerms | None]:
    """Return the terms of new entries; reads only the texts that were not among those held."""
    texts = {entry["snippet"] for entry in entries}
    held.read = {text: held.read[text] if text in held.read else failure_terms.of_note(text) for text in texts}
    return failure_terms.by_rarity(held.read[entry["snippet"]] for entry in entries)


def _fitting(
    held: _Entries, place: ActionPlace, asked: Mapping[str, object], ties: LateTies | None
) -> list[form.Quoted]:
    return _confirm(_matching(held, place, asked), place, ties)


class _Call:
    """A tool call, in the form in which entries are compared with it."""

    def __init__(self, place: ActionPlace, asked: Mapping[str, object]) -> None:
        given, command, output = asked.get("paths"), asked.get("command"), asked.get("output")
        cwd = str(asked.get("cwd"))
        paths = [path for path in given if isinstance(path, str)] if isinstance(given, list) else []
        self._paths = [below for path in paths if (below := place.below(cwd, path))]
        self._run = shell_commands.commands(command) if isinstance(command, str) else []
        self._failed_output: error_messages.FailedOutput | None = None
        self._output_terms: OutputTerms | None = None
        has_ended = has_failed(asked)
        if asked.get("kind") != events.AFTER or not isinstance(output, str) or has_ended is False:
            return
        is_reported = asked.get("failed") is True
        if not is_reported and (shell_commands.only_read(self._run) or error_messages.says_success(output)):
            return  # what it shows is another one's failure, or a word in what went well
        if has_ended:
            self._output_terms = OutputTerms(output, self._run)
        self._failed_output = error_messages.FailedOutput(output, is_sure=has_ended is True)

    def rank(self, entry: ActionEntry, terms: NoteTerms | None) -> float:
        """Return how much an entry concerns the call; 0 if it does not."""
        best = 0.0
        for trigger in entry["triggers"]:
            kind, key = trigger["kind"], trigger["key"]
            if kind == ERROR and self._failed_output is not None and self._failed_output.has(key):
                best = max(best, _FOR_ERROR + len(key))
            elif kind == COMMAND and self._run and shell_commands.is_command(key, self._run):
                best = max(best, _FOR_COMMAND + len(key.split()))
            elif kind == PATH and any(triggers.is_path(key, path) for path in self._paths):
                best = max(best, 1 + key.count("/") + (100 if key in self._paths else 0))
        if self._output_terms is None or terms is None or best >= _FOR_ERROR:
            return best
        weight = self._output_terms.weight(terms)
        if weight < failure_terms.LEAST:
            return best
        quotes = any(trigger["kind"] == ERROR for trigger in entry["triggers"])
        over = weight - (failure_terms.LEAST_QUOTED if quotes else failure_terms.LEAST)
        if over < 0:
            return best
        return max(best, _FOR_FAILURE + over + (_OF_TOOL if self._output_terms.is_of_tools(terms) else 0))


def _matching(held: _Entries, place: ActionPlace, asked: Mapping[str, object]) -> list[tuple[ActionEntry, bool]]:
    """Return the entries that concern a tool call, the most specific first, then the newest; each
    with True if it is about the call's failure.
    """
    call = _Call(place, asked)
    ranked: list[tuple[float, int, ActionEntry]] = []
    for number, (entry, terms) in enumerate(zip(held.entries, held.terms, strict=True)):
        rank = call.rank(entry, terms)
        if rank and form.may_come(entry, (place.project, GLOBAL_PROJECT)):
            ranked.append((-rank, number, entry))
    return [(entry, -rank >= _FOR_FAILURE) for rank, _, entry in sorted(ranked, key=lambda one: one[:2])]


def _confirm(
    found: Sequence[tuple[ActionEntry, bool]], place: ActionPlace, ties: LateTies | None = None
) -> list[form.Quoted]:
    lines: list[form.Quoted] = []
    for entry, is_for_failure in found[:MOST_TRIED]:
        if not _is_in_own_file(entry, place) or is_hostile(entry["snippet"]):
            continue
        is_own = entry["project"] == place.project
        mark = ties.marks_for_push([entry["path"]]).get(entry["path"]) if ties is not None and is_own else None
        if mark is not None and mark.is_gone:
            continue
        line = form.action(entry, MOST_BYTES, None if mark is None else mark.text)
        if line is not None:
            lines.append(line._replace(is_for_failure=is_for_failure))
    return lines


def _is_in_own_file(entry: ActionEntry, place: ActionPlace) -> bool:
    """Return True if the device's own file has the entry's words."""
    file = place.file(entry["project"], entry["path"])
    if file is None:
        return False
    try:
        text = hook_paths.plain(file, MOST_FILE).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    own = " ".join(text.split())
    at = 0
    for part in _without_secrets(entry["snippet"]):
        words = " ".join(part.split())
        at = own.find(words, at)
        if at < 0:
            return False
        at += len(words)
    return True


def _without_secrets(snippet: str) -> list[str]:
    """Return the parts of a text between its placeholders, whose values the file has in clear."""
    parts, start = [], 0
    for first, behind, _ in placeholder.find(snippet):
        parts.append(snippet[start:first])
        start = behind
    return [*parts, snippet[start:]]
