"""Where an agent works, as far as the daemon may be told: names, never paths, and no credentials of a remote."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from confide_proxy.projects import Project, branch, remote


async def describe(project: Project, shown: Callable[[str], str] = str) -> dict[str, Any]:
    """What the request `workplace` answers (PROTOCOL.md 9.4). `shown` makes of a name what the daemon may see of it."""
    return {
        "platform": sys.platform,
        "directory": shown(project.root.name),
        "git": await asyncio.to_thread(_git, project, shown) if project.is_git else None,
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _git(project: Project, shown: Callable[[str], str]) -> dict[str, str | None]:
    found = {"repository": project.root.name, "branch": branch(project.root), "remote": remote(project.root)}
    return {name: shown(value) if value else value for name, value in found.items()}
