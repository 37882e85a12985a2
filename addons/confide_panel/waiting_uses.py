"""The uses of secrets that wait for an answer in the panel. `confide run` asks over a socket of
this user, and a question ends with the command that asks.

They are only in memory. Only a form of the panel can answer one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confide_proxy.hooks.server.prompt_listener import listen_as_process
from confide_proxy.paths import ProxyPaths
from confide_proxy.run.approvals import ONCE, SESSION

FOLDER: Final = "uses"
WAIT_S: Final = 120.0
"""Time for an answer."""
NO: Final = "no"
CHOICES: Final = frozenset({ONCE, SESSION, NO})
MOST_WAITING: Final = 16
MOST_SECRETS: Final = 32
MOST_CHARS: Final = 24_000
"""Characters of a command line: `approvals.MOST_ASKED`, each quoted."""
_MOST_PATH: Final = 4096
_MOST_NAME: Final = 2000


@dataclass(frozen=True, slots=True)
class WaitingUse:
    """A command that waits before it uses secrets.

    Attributes:
        secrets: how the user knows each secret; never a value.
        line: the command line, quoted as for a shell.
        is_whole: False if an approval for the session covers other arguments too.
        folder: the folder in which it was started.
        at: the time when it asked, in seconds since 1970.
    """

    id: str
    secrets: tuple[str, ...]
    line: str
    program: str
    folder: str
    is_whole: bool
    at: float
    answer: asyncio.Future[str]


class WaitingUses:
    """The commands that wait for an answer at one gateway, in its event loop."""

    def __init__(self, paths: ProxyPaths) -> None:
        self._folder = paths.gateway / FOLDER
        self._waiting: dict[str, WaitingUse] = {}

    def all(self) -> list[WaitingUse]:
        """Return the commands that wait, oldest first."""
        return [each for each in self._waiting.values() if not each.answer.done()]

    def decide(self, identity: str, choice: str) -> WaitingUse | None:
        """Answer the command with this id with one of `CHOICES`. Return the command, or None if it
        no longer waits.
        """
        found = self._waiting.get(identity)
        if found is None or found.answer.done() or choice not in CHOICES:
            return None
        found.answer.set_result(choice)
        return found

    async def run(self) -> None:
        """Accept questions until cancelled. Raises OSError if the socket cannot be created."""
        await listen_as_process(self._folder, self._ask)

    async def _ask(self, said: Mapping[str, object]) -> dict[str, object]:
        use = _use_of(said)
        if use is None or len(self._waiting) >= MOST_WAITING:
            return {}
        self._waiting[use.id] = use
        try:
            async with asyncio.timeout(WAIT_S):
                return {"answer": await use.answer}
        except TimeoutError:
            return {"answer": NO}
        finally:
            del self._waiting[use.id]


def _use_of(said: Mapping[str, object]) -> WaitingUse | None:
    """Return the question of a message; None if it is not one, or too long to be shown whole."""
    named, texts = said.get("secrets"), [said.get(name) for name in ("line", "program", "folder")]
    limits = (MOST_CHARS, _MOST_PATH, _MOST_PATH)
    if not isinstance(named, list) or not 0 < len(named) <= MOST_SECRETS:
        return None
    if not all(isinstance(each, str) and len(each) <= _MOST_NAME for each in named):
        return None
    if not all(isinstance(each, str) and len(each) <= most for each, most in zip(texts, limits, strict=True)):
        return None
    line, program, folder = map(str, texts)
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    is_whole = said.get("whole") is True
    return WaitingUse(secrets.token_hex(16), tuple(named), line, program, folder, is_whole, time.time(), answer)
