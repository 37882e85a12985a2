"""Let other processes of this user, such as `confide run` in an agent's shell, ask the user a
question through the agent's client.

Each session whose client can ask has a socket of its own below `asks/` in the state folder, named
by its process ID. The asking process looks at all of them. A session qualifies if the asking
process works in the session's project. Of these, the session with the nearest common ancestor
process asks: it belongs to the very agent that started the asking process.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from confide_crypto.errors import printable
from confide_proxy.hooks.hook_process import CONNECT_S, answer_from, connect
from confide_proxy.hooks.server.prompt_listener import listen_as_process
from confide_proxy.hooks.server.question_form import MOST_CHOICES, MOST_TITLE, Choice, Question
from confide_proxy.paths import ProxyPaths

MOST_S: Final = 300.0
"""Longest time for an answer."""
LATER_S: Final = 900.0
"""Time for which a question waits for the next call of a client, and its answer for the asker."""
MOST_LATER: Final = 4
MOST_SESSIONS: Final = 32
MOST_TEXT: Final = 800
"""Characters of a question; a longer one is not asked."""
_MOST_NAME: Final = 40
_DEEPEST: Final = 32
_WAY_S: Final = 2.0
"""Time for the ways to a session and back."""


class PersonAnswer(NamedTuple):
    """The outcome of a question to the user.

    Attributes:
        choice: name of the choice; None for "not now", no answer, or no session that can ask.
        is_later: True if the session's client asks the user only at its next call of a read-only
            tool. Ask the same question again then to get the answer.
        is_asked: False if there was no session that could ask.
    """

    choice: str | None
    is_later: bool = False
    is_asked: bool = True


NO_ANSWER: Final = PersonAnswer(None, is_asked=False)


class PersonQuestions(Protocol):
    """The interface by which a session asks its client's user (`mcp.questions.Questions`).

    Attributes:
        has_answered: set when a call of the client has got its result.
    """

    has_answered: asyncio.Event

    @property
    def can_ask(self) -> bool:
        """Return True if the client can ask its user."""

    @property
    def can_ask_now(self) -> bool:
        """Return True if the client shows a question at once, False if only with its next tool
        call.
        """

    async def ask(self, question: Question, *, timeout_s: float) -> str | None:
        """Ask the user, and return the name of their choice; None if they chose none."""


def ask_session(
    paths: ProxyPaths, question: Question, *, program: str, cwd: Path | None = None, timeout_s: float = 60.0
) -> PersonAnswer:
    """Let a running session of this project ask its client's user, and return the answer. Blocks.

    Args:
        question: its text should say what the answer allows, in at most `MOST_TEXT` characters.
        program: name of the asking program that the user reads, such as "confide run".
        cwd: folder whose project the session must have; None means the working folder.
        timeout_s: longest wait in seconds, at most `MOST_S`.
    """
    end = time.monotonic() + min(timeout_s, MOST_S)
    state = _nearest(paths, cwd, end=end)
    if not state:
        return NO_ANSWER
    left = max(0.0, end - time.monotonic())
    asked = {"kind": "ask", "text": question.text, "choices": question.choices, "program": program}
    told = _ask_session(state, {**asked, "ms": int(left * 1000)}, end=end + _WAY_S)
    names = [choice.name for choice in question.choices]
    answer = told.get("answer")
    return PersonAnswer(answer if answer in names else None, told.get("later") is True, is_asked=bool(told))


def asking_session(paths: ProxyPaths) -> int:
    """Return the process ID of the session that `ask_session` would use; 0 if there is none.
    Blocks.
    """
    state = _nearest(paths, None, end=time.monotonic() + _WAY_S)
    return int(Path(state).name) if state else 0


class SessionAsk:
    """A session's socket, at which other processes of this user ask its client's user."""

    def __init__(self, paths: ProxyPaths, root: Path, questions: PersonQuestions) -> None:
        self._folder = paths.state / "asks"
        self._root = os.path.realpath(root)
        self._questions = questions
        self._later: dict[Question, _Later] = {}

    async def run(self) -> None:
        """Answer other processes until cancelled. Raises OSError if the socket cannot be created."""
        try:
            await listen_as_process(self._folder, self._answer)
        finally:
            for later in self._later.values():
                later.asking.cancel()

    async def _answer(self, asked: Mapping[str, Any]) -> dict[str, object]:
        if not self._questions.can_ask:
            return {}
        if asked.get("kind") == "whose":
            return {"root": self._root, "ancestors": _ancestors()}
        question = self._question(asked)
        if asked.get("kind") != "ask" or question is None:
            return {}
        if not self._questions.can_ask_now:
            return self._asked_later(question)
        ms = asked.get("ms")
        seconds = min(ms / 1000, MOST_S) if isinstance(ms, int) else MOST_S
        return {"answer": await self._questions.ask(question, timeout_s=seconds)}

    def _asked_later(self, question: Question) -> dict[str, object]:
        """Return the answer to a question that was asked before, once; otherwise ask it with the
        client's next call.
        """
        now = time.monotonic()
        self._later = {each: later for each, later in self._later.items() if now < later.end}
        later = self._later.get(question)
        if later is not None and later.asking.done():
            del self._later[question]
            return {"answer": None if later.asking.cancelled() else later.asking.result()}
        if later is None:
            if len(self._later) >= MOST_LATER:
                return {}
            asking = asyncio.ensure_future(self._questions.ask(question, timeout_s=LATER_S))
            self._later[question] = _Later(asking, now + 2 * LATER_S)
        return {"later": True}

    def _question(self, asked: Mapping[str, object]) -> Question | None:
        text, given, program = asked.get("text"), asked.get("choices"), asked.get("program")
        if not isinstance(text, str) or not isinstance(program, str) or not isinstance(given, list):
            return None
        if len(text) > MOST_TEXT:
            return None  # a person must not approve what was cut off
        choices = []
        for each in given[:MOST_CHOICES]:
            if not isinstance(each, list) or len(each) != 2 or not all(isinstance(part, str) for part in each):
                return None
            choices.append(Choice(each[0][:MOST_TITLE], printable(each[1][:MOST_TITLE])))
        who = printable(program[:_MOST_NAME])
        where = printable(Path(self._root).name[:_MOST_NAME])
        lines = [printable(line) for line in text.split("\n")]
        said = "\n".join(lines)
        return Question(f"A program that runs in {where} asks, as “{who}”:\n\n{said}", tuple(choices))


@dataclass(frozen=True, slots=True)
class _Later:
    """A question that waits for the client's next call, or its answer for the asker."""

    asking: asyncio.Future[str | None]
    end: float


def _sessions(paths: ProxyPaths) -> list[str]:
    try:
        found = [each for each in (paths.state / "asks").iterdir() if each.name.isdecimal()]
    except OSError:
        return []
    return [os.fspath(each) for each in found[:MOST_SESSIONS]]


def _nearest(paths: ProxyPaths, cwd: Path | None, *, end: float) -> str:
    """Return the state folder of the session that is to ask; "" if there is none."""
    folder = os.path.realpath(cwd or Path.cwd())
    own, found = _ancestors(), []
    for state in _sessions(paths):
        told = _ask_session(state, {"kind": "whose"}, end=min(end, time.monotonic() + _WAY_S))
        root, theirs = told.get("root"), told.get("ancestors")
        if not isinstance(root, str) or not isinstance(theirs, list) or not _is_below(folder, root):
            continue
        distance = next((step for step, each in enumerate(own) if each in theirs), _DEEPEST)
        found.append((distance, -len(root), state))
    return min(found)[2] if found else ""


def _ask_session(state: str, message: Mapping[str, object], *, end: float) -> dict[str, object]:
    """Return a session's answer; empty if there is none in time."""
    try:
        connection = connect(state, CONNECT_S)
        if connection is None:
            return {}
        with connection:
            connection.settimeout(_WAY_S)
            connection.sendall(json.dumps(message).encode() + b"\n")
            return answer_from(connection, end=end)
    except (OSError, ValueError, RecursionError):
        return {}


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip(os.sep) + os.sep)


def _ancestors() -> list[int]:
    """Return the processes above this one, the nearest first; only the parent on systems without
    `/proc`.
    """
    found = [os.getppid()]
    while len(found) < _DEEPEST and found[-1] > 1:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{found[-1]}/stat", "rb") as file:
            found.append(int(file.read(4096).rpartition(b")")[2].split()[1]))
            continue
        break
    return found
