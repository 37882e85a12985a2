"""Claude Code's notes of its own, put into a project's memory where its owner wants that: `confide setup claude-code --auto-memory`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confide_memory.documents import MEMORY_FOLDER
from confide_proxy.clients import jsonc
from confide_proxy.clients.entries import Entry, Member
from confide_proxy.clients.own_notes import KEY
from confide_proxy.clients.rules import claude_settings

FOLDER: Final = f"{MEMORY_FOLDER}/claude"
NOT_POSSIBLE: Final = "keeps no notes of its own in files: --auto-memory is for claude-code"


def entry(project: Path, root: Path) -> Entry:
    """What goes into a person's own settings of the project in `root`, which team mates do not share."""
    return _Directory(claude_settings(project, for_user=False), str(root / FOLDER))


@dataclass(frozen=True, slots=True)
class _Directory:
    """One that is another than ours is a person's, and stays."""

    file: Path
    value: str

    def added(self, text: str) -> str:
        old = jsonc.at(jsonc.read(text), (KEY,))
        if old not in (None, self.value):
            raise jsonc.JsoncError(f"has another {KEY} already")
        return self._member.added(text)

    def removed(self, text: str) -> str:
        return self._member.removed(text) if self.is_in(text) else text

    def is_in(self, text: str) -> bool:
        return bool(jsonc.at(jsonc.read(text), (KEY,)) == self.value)

    @property
    def _member(self) -> Member:
        return Member(self.file, (KEY,), self.value, has_comments=False)
