"""Decisions that wait for a person, asked calmly by the session of an agent: after the agent's own
call is answered, one at a time, each topic at most once in a session and the same question at most
once a day.

Where no client can ask, the same decisions are made with commands.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from confide_crypto import atomic
from confide_crypto.errors import ConfideError
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks.server.question_form import Question
from confide_proxy.hooks.server.session_asks import PersonQuestions
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

log = logging.getLogger(__name__)

ASK_S: Final = 600.0
"""Time for a person's answer."""
LOOK_S: Final = 300.0
"""Shortest time between two looks for decisions."""
AGAIN_S: Final = 86_400.0
"""Time after which a question without an answer may be asked again."""
MOST_ASKED: Final = 500
_DECIDED: Final = 3_650 * AGAIN_S


class PendingDecision(NamedTuple):
    """A decision that waits for a person.

    Attributes:
        topic: such as "conflict"; a session asks one question of each.
        carry_out: called with the name of the person's choice. Raises ConfideError.
        is_open_to_agents: True if an agent's own tools could do the same, so that a page in its
            client may carry out a choice.
    """

    topic: str
    question: Question
    carry_out: Callable[[str], Awaitable[None]]
    is_open_to_agents: bool = False

    @property
    def id(self) -> str:
        """Return an id that is the same for the same question."""
        return _hash(self.question)


class OpensClient(Protocol):
    """Opens a connection to the daemon for a project (`mcp.client.CommandClient`)."""

    def __call__(self, project: Project) -> AbstractAsyncContextManager[Any]: ...


class DecisionPlace(NamedTuple):
    """Where decisions are looked for.

    Attributes:
        connect: opens a connection of its own for the time of a look, or of a decision.
        notify: passes a sentence to the agent, with the result of its next search.
    """

    paths: ProxyPaths
    config: ProxyConfig
    project: Project
    connect: OpensClient
    notify: Callable[[str], None]


Finds = Callable[[DecisionPlace], Awaitable[Sequence[PendingDecision]]]


class DecisionDesk:
    """The pending decisions of one session."""

    def __init__(self, place: DecisionPlace, questions: PersonQuestions, finders: Sequence[Finds]) -> None:
        self._place = place
        self._finders = finders
        self._questions = questions
        self._asked_questions = AskedQuestions(place.paths.state / "asked.json")
        self._topics: set[str] = set()

    async def run(self) -> None:
        """Ask until cancelled: after a call of the agent, whatever waits."""
        while True:
            self._questions.has_answered.clear()
            await self._questions.has_answered.wait()
            if self._questions.can_ask:
                await self.ask_all()
            await asyncio.sleep(LOOK_S)

    async def ask_all(self) -> None:
        """Ask each question that waits now, and carry out what the person chooses."""
        for find in self._finders:
            try:
                found = await find(self._place)
            except (ConfideError, TimeoutError, OSError) as error:
                log.info("pending decisions could not be read: %s", type(error).__name__)
                continue
            for decision in found:
                await self._ask_person(decision)

    async def _ask_person(self, decision: PendingDecision) -> None:
        question = decision.question
        if decision.topic in self._topics or await asyncio.to_thread(self._asked_questions.has, question):
            return
        self._topics.add(decision.topic)
        choice = await self._questions.ask(question, timeout_s=ASK_S)
        await asyncio.to_thread(self._asked_questions.note, question, _DECIDED if choice else AGAIN_S)
        if choice is None:
            return
        try:
            await decision.carry_out(choice)
        except (ConfideError, TimeoutError, OSError) as error:
            problem = error.with_hint if isinstance(error, ConfideError) else type(error).__name__
            log.warning("a decision could not be carried out: %s", problem)
            await asyncio.to_thread(self._asked_questions.note, question, AGAIN_S)


class AskedQuestions:
    """The questions that were asked on this device, by their hashes: no words are kept. Methods
    block briefly; where the file cannot be read or written, a question may come again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def has(self, question: Question) -> bool:
        """Return True if a question is not to be asked again yet."""
        return self._read().get(_hash(question), 0.0) > time.time()

    def note(self, question: Question, seconds: float) -> None:
        """Record a question, which is not asked again for some time."""
        now = time.time()
        kept = {name: end for name, end in self._read().items() if end > now}
        kept[_hash(question)] = now + seconds
        newest = sorted(kept.items(), key=lambda each: each[1])[-MOST_ASKED:]
        try:
            atomic.write(self._file, json.dumps(dict(newest)).encode(), is_kept=False)
        except OSError as error:
            log.info("a question could not be recorded: %s", error.strerror)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        items = found.items() if isinstance(found, dict) else ()
        return {name: float(end) for name, end in items if isinstance(end, int | float)}


def _hash(question: Question) -> str:
    return hashlib.blake2b(repr(question).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
