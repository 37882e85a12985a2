"""The entry that a client needs to start Confide, printed or merged into its own configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from confide_proxy.errors import SetupError

ENTRY: dict[str, Any] = {"command": "confide", "args": ["mcp"]}
NAME = "confide"


def claude_code_file(project: Path, *, for_user: bool) -> Path:
    """Claude Code's configuration: of one project (`.mcp.json`), or of the user (`~/.claude.json`)."""
    return Path.home() / ".claude.json" if for_user else project / ".mcp.json"


def as_text() -> str:
    """The entry as a person would paste it."""
    return json.dumps({"mcpServers": {NAME: ENTRY}}, indent=2)


def merge(path: Path) -> bool:
    """Add the entry to the JSON file `path`, and change nothing else in it. False if it was there already.

    Raises:
        SetupError: the file is not a JSON object, or cannot be written; it is left as it was.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise SetupError(path, "is not readable as JSON", hint="mend it, or paste the entry by hand") from error
    servers = document.setdefault("mcpServers", {}) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise SetupError(path, "does not hold an object of mcpServers", hint="mend it, or paste the entry by hand")
    if servers.get(NAME) == ENTRY:
        return False
    servers[NAME] = ENTRY
    target = path.resolve()  # a linked file (dotfiles in a repository) stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    try:
        # ASCII, so that half a surrogate pair in somebody else's entry comes through as it was.
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "w", encoding="ascii"
        ) as file:
            file.write(json.dumps(document, indent=2) + "\n")
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SetupError(path, f"cannot be written: {error.strerror}") from error
    return True


def _encoded(document: object) -> bytes:
    try:
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    except UnicodeEncodeError:
        # Half a surrogate pair in somebody else's entry: as an escape it comes through as it was.
        return (json.dumps(document, indent=2) + "\n").encode("ascii")
