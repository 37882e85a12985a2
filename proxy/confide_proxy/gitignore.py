"""Memory is private by default: it is kept out of the project's commits."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from confide_proxy.folder import MEMORY_FOLDER

log = logging.getLogger(__name__)


def add_memory(root: Path) -> None:
    """Add `memory/` to the repository's `.gitignore`, unless git ignores it or tracks it already."""
    try:
        check = subprocess.run(
            ["git", "-C", str(root), "check-ignore", "-q", f"{MEMORY_FOLDER}/x.md"],
            capture_output=True,
            timeout=2.0,
            check=False,
        )
        tracked = subprocess.run(
            ["git", "-C", str(root), "ls-files", "--", MEMORY_FOLDER], capture_output=True, timeout=2.0, check=False
        )
        # 1 means "not ignored"; files that the team tracks already were meant to be shared, and stay so.
        if check.returncode != 1 or tracked.stdout.strip():
            return
        ignore = root / ".gitignore"
        before = ignore.read_text(encoding="utf-8") if ignore.exists() else ""
        if ignore.is_symlink():
            return
        gap = "" if not before or before.endswith("\n") else "\n"
        ignore.write_text(f"{before}{gap}{MEMORY_FOLDER}/\n", encoding="utf-8")
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
        log.warning("could not add %s/ to .gitignore: %s", MEMORY_FOLDER, type(error).__name__)
