"""Calls that a machine may have to send twice, and does not want made twice (PROTOCOL.md 7.12).

A machine gives a call that changes something an id of its own, as `confide/operation` in the call's `_meta`; after a broken link it sends
the call again under that id. What waited on it while the daemon was away comes as `call`, which names its project: the agent that said
it may have worked in another one than the connection's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from confide_crypto.errors import RequestError
from confide_daemon.tools import calls
from confide_daemon.tools.catalogue import definitions
from confide_daemon.tools.context import ToolContext

META_OPERATION = "confide/operation"
META_SAID = "confide/said"
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_SAID_CHARS = 40


@dataclass(frozen=True, slots=True)
class Origin:
    """What a machine says of a call.

    Attributes:
        operation: the id under which it may send it again.
        said: when it was made, by that machine's clock, with its time zone.
    """

    operation: str | None = None
    said: datetime | None = None

    @classmethod
    def of(cls, operation: Any, said: Any) -> Origin:
        """Both as they stand in a message, None where they are not given.

        Raises:
            RequestError: one of them is not of its form.
        """
        if operation is not None and not (isinstance(operation, str) and _ID.fullmatch(operation)):
            raise RequestError("invalid", "the id of an operation is 32 lower-case hex digits")
        if said is None:
            return cls(operation)
        try:
            if not isinstance(said, str) or len(said) > _MAX_SAID_CHARS:
                raise ValueError
            return cls(operation, datetime.fromisoformat(said))
        except ValueError:
            raise RequestError("invalid", "the time of a call is not an ISO 8601 time") from None

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any] | None) -> Origin:
        """What the `_meta` of a tool call says. Raises as `of`."""
        return cls.of(meta.get(META_OPERATION), meta.get(META_SAID)) if meta else cls()

    def within(self, context: ToolContext) -> ToolContext:
        """The surroundings of the call, with this."""
        return replace(context, operation=self.operation, said=self.said)


async def call_again(
    body: Mapping[str, Any], surroundings: Callable[[str], ToolContext], project: str
) -> dict[str, Any]:
    """Make a call that waited on a machine.

    Args:
        body: `operation`, `said`, `tool`, `arguments` (PROTOCOL.md 9).
        surroundings: those of a call in a project.

    Returns:
        `result`: the tool's structured result.

    Raises:
        RequestError: it cannot be made; the code says whether it is worth trying again.
    """
    tool, arguments = body.get("tool"), body.get("arguments")
    if not isinstance(tool, str) or not isinstance(arguments, dict) or body.get("operation") is None:
        raise RequestError("invalid", "a call names its operation, its tool and its arguments")
    origin = Origin.of(body["operation"], body.get("said"))
    # Whatever the connection lists: a command, or another session, may bring what waits.
    if not any(known.name == tool and known.offline == "queue" for known in definitions(("all",))):
        raise RequestError("invalid", "no such tool, or none whose calls wait on a machine")
    result = await calls.run(tool, arguments, origin.within(surroundings(project)), ("all",))
    if result.is_error:
        text = "\n".join(part.text for part in result.content if part.type == "text")
        problem, _, hint = text.partition("\nhint: ")
        raise RequestError(str((result.meta or {}).get("confide/code", "internal")), problem, hint or None)
    return {"result": result.structured_content}
