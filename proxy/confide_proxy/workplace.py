"""Where an agent works, as far as the daemon may be told: names, never paths, and no credentials of a remote."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Any

from confide_proxy.projects import Project, branch, remote


async def describe(project: Project) -> dict[str, Any]:
    """What the request `workplace` answers (PROTOCOL.md 9.4)."""
    return {
        "platform": sys.platform,
        "directory": project.root.name,
        "git": await asyncio.to_thread(_git, project) if project.is_git else None,
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _git(project: Project) -> dict[str, str | None]:
    return {"repository": project.root.name, "branch": branch(project.root), "remote": remote(project.root)}
