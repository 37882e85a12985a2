"""Transcripts: batches as a machine sends them, and the files that the clients write."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SESSION = "0a6afc57-2f31-4cb4-8ff0-01247f50c64c"
BEGAN = datetime(2026, 11, 20, 14, 3, tzinfo=UTC)


def said(role: str, text: str, *, minutes: float = 0, branch: str = "main") -> dict[str, str]:
    """A message as it is sent, so long after the session began."""
    return {"role": role, "text": text, "time": at(minutes), "branch": branch}


def at(minutes: float) -> str:
    """A time as clients write it."""
    return (BEGAN + timedelta(minutes=minutes)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def batch(
    begin: int, end: int, *messages: dict[str, str], version: int, session: str = SESSION, project: str = "proj"
) -> dict[str, Any]:
    """A `transcript` request."""
    return {
        "project": project,
        "agent": "claude-code",
        "session": session,
        "version": version,
        "from": begin,
        "to": end,
        "head": "h",
        "mark": f"m{end}",
        "messages": list(messages),
    }


class ClaudeSession:
    """A transcript that Claude Code is writing, below its projects folder."""

    def __init__(self, projects: Path, cwd: Path, session: str = SESSION) -> None:
        folder = projects / str(cwd).replace("/", "-").replace(".", "-")
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{session}.jsonl"
        self._cwd = str(cwd)
        self._session = session
        self._count = 0

    def user(self, text: Any, **more: Any) -> None:
        """What a person says, or a list of blocks."""
        self.write({"type": "user", "message": {"role": "user", "content": text}, **more})

    def assistant(self, *blocks: dict[str, Any], **more: Any) -> None:
        """What the agent says."""
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(blocks)}
        self.write({"type": "assistant", "requestId": "req_1", "message": message, **more})

    def write(self, record: dict[str, Any]) -> None:
        """A record, with what every one has."""
        self._count += 1
        common = {
            "parentUuid": None,
            "isSidechain": False,
            "userType": "external",
            "cwd": self._cwd,
            "sessionId": self._session,
            "version": "2.1.12",
            "gitBranch": "main",
            "uuid": f"u{self._count}",
            "timestamp": at(self._count / 60),
        }
        self.write_raw(json.dumps({**common, **record}).encode() + b"\n")

    def write_raw(self, data: bytes) -> None:
        """Bytes, at the end."""
        with self.path.open("ab") as file:
            file.write(data)


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
