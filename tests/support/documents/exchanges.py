"""Exchanges of a session, as a judge gets them; and a transcript of Claude Code's that pointers lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.documents.transcripts import SESSION, ClaudeSession, text

from confide_learn.local.exchanges import ExchangeMessage, LearnedExchange
from confide_proxy.hooks import learning_queue


def exchange(user: str, *said: ExchangeMessage, begin: int = 0) -> LearnedExchange:
    """One exchange; without more the agent says "Done."."""
    return LearnedExchange(
        begin, begin + 1, (ExchangeMessage("user", user), *(said or (ExchangeMessage("assistant", "Done."),)))
    )


class Pointed:
    """A session whose hooks leave pointers, on a machine whose state is in `state`."""

    def __init__(self, state: Path, config: Path, projects: Path, cwd: Path, session: str = SESSION) -> None:
        self._state = state
        self._config = config
        self.talk = ClaudeSession(projects, cwd, session)
        self._session = session

    def said(self, user: str, answer: str = "Done.", *, event: str = "Stop", **more: str) -> None:
        """An exchange, and the pointer at its end."""
        self.talk.user(user)
        self.talk.assistant(text(answer))
        self.point(event, **more)

    def point(self, event: str = "Stop", **more: Any) -> None:
        """What a hook leaves."""
        path = self.talk.path
        size = path.stat().st_size if path.exists() else 0
        assert learning_queue.append(
            self._state,
            config=self._config,
            session=self._session,
            client="claude-code",
            transcript=str(path),
            offset=size,
            event=event,
            more=more,
        )
