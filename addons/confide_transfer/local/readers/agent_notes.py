"""Reads the notes that agents' clients keep for all projects of a user, as notes of `global`.

- Claude Code's subagents: `agent-memory/` in its folder, a folder for each subagent. The folders
  of a project, `.claude/agent-memory` and `.claude/agent-memory-local`, are markdown of that
  project.
- Codex: `memories/` in its folder. Only its handbook and summary are read; the other files are
  what it makes them from.
- Gemini CLI: `~/.gemini/GEMINI.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from confide_proxy.clients.known_clients import claude_folder, codex_folder
from confide_proxy.errors import UnreadableError
from confide_transfer.local.import_files import is_folder
from confide_transfer.local.reader import Losses, MemoryRecord, Reader
from confide_transfer.local.readers.markdown import MarkdownReader

_OF_CODEX = ("MEMORY.md", "memory_summary.md")
_VERSION = "v1"
"""The first line of Codex's summary."""


class AgentNotes(Reader):
    """The reader of the notes that agents' clients keep beside their settings."""

    name = "agent-notes"
    title = "notes that an agent's client keeps"

    def places(self, home: Path) -> list[Path]:
        """Return the usual paths of these notes (see `Reader.places`)."""
        return [claude_folder() / "agent-memory", codex_folder() / "memories", home / ".gemini" / "GEMINI.md"]

    def recognises(self, path: Path) -> bool:
        """Return True if the path is one of the known folders and files of these agents, which
        environment variables may move.
        """
        try:
            return any(path.samefile(place) for place in self.places(Path.home()) if os.path.lexists(place))
        except (OSError, ValueError):
            return False

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        """Yield the notes as records (see `Reader.read`)."""
        for file in self._files(path):
            try:
                for record in MarkdownReader().read(file, losses):
                    if record.content.strip() != _VERSION:
                        yield replace(record, scope="global")
            except UnreadableError as error:
                if file == path:
                    raise
                losses.add(file.name, error.problem)

    def _files(self, path: Path) -> list[Path]:
        is_codexs = is_folder(path) and path.samefile(codex_folder() / "memories")
        return [path / name for name in _OF_CODEX if os.path.lexists(path / name)] if is_codexs else [path]


READER = AgentNotes()
