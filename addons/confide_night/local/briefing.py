"""What a session is told first of the tasks of the last day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import confide_night.order.wire  # noqa: F401 - adds the request that is asked here
from confide_memory.answers import ask
from confide_memory.documents import Asks

DEADLINE_S: Final = 5.0
_ID_CHARS: Final = 6


async def briefing(link: Asks) -> str | None:
    """The line for the tasks of the last day; None where there is nothing to be said. Raises as a request, also where the daemon knows of
    none."""
    found = await ask(link, "task-report", {"brief": True}, timeout_s=DEADLINE_S)
    return line(found["counts"], found["ids"])


def line(counts: Iterable[Mapping[str, Any]], ids: Iterable[str]) -> str | None:
    """What they came to, in numbers and ids alone: nobody's words are in it. None: there are none."""
    said = [f"{one['count']} {one['state']}" for one in counts if one["count"]]
    named = next((each[:_ID_CHARS] for each in ids), "")
    if not said:
        return None
    return f"Tasks of last night: {', '.join(said)}{f' ({named})' if named else ''}: confide report"
