"""Ask the user about decisions that wait for them, without interrupting the agent: after a tool
call is answered, one question at a time. Each topic is asked at most once in a session, and the
same question at most once a day.

If a client cannot ask its user, the same decisions are made with commands.
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
        topic: such as "conflict"; a session asks at most one question of each topic.
        carry_out: called with the name of the person's choice. Raises ConfideError if it fails.
        is_open_to_agents: True if an agent's own tools could do the same. A page in the agent's
            client may then carry out a choice.
    """

    topic: str
    question: Question
    carry_out: Callable[[str], Awaitable[None]]
    is_open_to_agents: bool = False

    @property
    def id(self) -> str:
        """Return the decision's id, a hash of its question. It is the same whenever the same
        question is asked.
        """
        return _hash(self.question)


class OpensClient(Protocol):
    """A function that opens a connection to the daemon for a project (`mcp.client.CommandClient`)."""

    def __call__(self, project: Project) -> AbstractAsyncContextManager[Any]: ...


class DecisionPlace(NamedTuple):
    """The project whose pending decisions are looked for, and the access to its daemon and its
    agent.

    Attributes:
        connect: opens a separate connection to the daemon, to look for decisions or to carry one
            out.
        notify: adds a sentence for the agent to the result of its next search.
    """

    paths: ProxyPaths
    config: ProxyConfig
    project: Project
    connect: OpensClient
    notify: Callable[[str], None]


Finds = Callable[[DecisionPlace], Awaitable[Sequence[PendingDecision]]]


class DecisionDesk:
    """Asks the user of one session about the pending decisions of its project."""

    def __init__(self, place: DecisionPlace, questions: PersonQuestions, finders: Sequence[Finds]) -> None:
        self._place = place
        self._finders = finders
        self._questions = questions
        self._asked_questions = AskedQuestions(place.paths.state / "asked.json")
        self._topics: set[str] = set()

    async def run(self) -> None:
        """Look for pending decisions after a tool call of the agent, at most every `LOOK_S`
        seconds, and ask the user about them. Runs until cancelled.
        """
        while True:
            self._questions.has_answered.clear()
            await self._questions.has_answered.wait()
            if self._questions.can_ask:
                await self.ask_all()
            await asyncio.sleep(LOOK_S)

    async def ask_all(self) -> None:
        """Ask the user about each pending decision, and carry out what they choose."""
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
    """The questions that were asked on this device, stored as hashes without their text. Methods
    block briefly. If the file cannot be read or written, a question may be asked again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def has(self, question: Question) -> bool:
        """Return True if a question was asked so recently that it must not be asked again yet."""
        return self._read().get(_hash(question), 0.0) > time.time()

    def note(self, question: Question, seconds: float) -> None:
        """Record a question, so that it is not asked again for so many seconds."""
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
