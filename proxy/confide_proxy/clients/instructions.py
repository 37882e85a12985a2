"""Files that agents' programs load as a person's orders, and that import memory: then whoever writes to memory gives orders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confide_proxy.clients import files
from confide_proxy.clients.known import claude_folder
from confide_proxy.errors import SetupError

_NAMES: Final = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md", "QWEN.md")
_IMPORT: Final = re.compile(r"(?:^|(?<=\s))@(\S*\b(?:memory/\S+|memory\.md))", re.IGNORECASE | re.MULTILINE)
"""`@path`, as Claude Code, Gemini CLI and Qwen Code write it."""


def importing(project: Path) -> Iterator[tuple[Path, str]]:
    """The files of a project and of its user that import memory, each with what it imports first."""
    own = (claude_folder() / "CLAUDE.md", Path.home() / ".gemini" / "GEMINI.md")
    for file in (*(project / name for name in _NAMES), *own):
        try:
            found = _IMPORT.search(files.read(file) or "")
        except SetupError:
            continue
        if found is not None:
            yield file, found[1]
