"""Tasks of a space that moves (PROTOCOL.md 9.8): brought once the daemon that was left is closed, and begun only where they are."""

from __future__ import annotations

from typing import Any, Final

import confide_night.order.wire  # noqa: F401 - adds the requests that are asked here
from confide_crypto.errors import RequestError
from confide_memory.answers import ask
from confide_memory.documents import Asks
from confide_memory.forms import encoded
from confide_proxy.errors import UnfitAnswerError

DEADLINE_S: Final = 60.0
MAX_PAGES: Final = 100_000
"""Beyond, a daemon's list has no end."""
_NOTHING: Final[dict[str, Any]] = {"tasks": [], "slots": [], "logs": [], "runners": [], "spent": []}


async def bring(source: Asks, target: Asks) -> int:
    """Bring all tasks from the daemon that was left, and have the other one begin with them; how many. Done twice, it is as done once.

    Raises RequestError, ConnectionLost, TimeoutError: from the links; UnfitAnswerError: the list has no end.
    """
    after, count = "", 0
    for _ in range(MAX_PAGES):
        page = await ask(source, "move-tasks", {"after": after}, timeout_s=DEADLINE_S, bulk=True)
        apart = page.pop("unreadable")
        count += len(page["tasks"]) + len(apart["tasks"] if apart else ())
        following = page.pop("next")
        body = _wire({**page, **({"unreadable": apart} if apart else {})})
        if not await _take(target, {**body, "isLast": following is None}):
            return count
        if following is None:
            return count
        if following == after:
            break
        after = following
    raise UnfitAnswerError


async def give_up(target: Asks) -> None:
    """Have the daemon that a space has come to wait for no tasks any more, and begin nothing of those that have come. Raises as `bring`."""
    await _take(target, {**_NOTHING, "isLast": True, "givenUp": True})


async def _take(target: Asks, body: dict[str, Any]) -> bool:
    """Whether they were awaited."""
    try:
        await ask(target, "move-tasks-in", body, timeout_s=DEADLINE_S, bulk=True)
    except RequestError as error:
        if error.code != "conflict":
            raise
        return False  # it has them all, and its answer was lost
    return True


def _wire(value: dict[str, Any]) -> dict[str, Any]:
    """As it is sent, from how it was read: keys are in hex, all else that is bytes in base64."""
    return {name: _sent(name, one) for name, one in value.items()}


def _sent(name: str, value: Any) -> Any:
    match value:
        case bytes():
            return value.hex() if name in ("key", "runner", "signer") else encoded(value)
        case dict():
            return _wire(value)
        case list():
            return [_wire(one) for one in value]
    return value
