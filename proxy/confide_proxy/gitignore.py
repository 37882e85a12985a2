"""Memory is private by default: it is kept out of the project's commits."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from confide_proxy.walking import MEMORY_FOLDER

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
        if ignore.is_symlink():
            return
        before = ignore.read_bytes() if ignore.exists() else b""
        end = b"\r\n" if b"\r\n" in before else b"\n"
        gap = b"" if not before or before.endswith(b"\n") else end
        with ignore.open("ab") as file:
            file.write(gap + f"{MEMORY_FOLDER}/".encode() + end)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("could not add %s/ to .gitignore: %s", MEMORY_FOLDER, type(error).__name__)
