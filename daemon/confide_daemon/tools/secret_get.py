"""`secret_get`: what stands behind a placeholder. The proxy answers it, since it alone can open a record; here it is described."""

from __future__ import annotations

from typing import Any

from confide_daemon.errors import ToolError
from confide_daemon.tools.context import ToolContext, ToolResult
from confide_daemon.tools.definition import TEXT, Definition, record

MAX_ID_CHARS = 80
"""A whole placeholder has 75 at most: the longest kind has 32."""

DEFINITION = Definition(
    name="secret_get",
    title="Open a sealed secret",
    description="The value behind a placeholder `(sealed:kind:id)`. Only when it is needed; never store or repeat it.",
    properties={
        "id": {"type": "string", "minLength": 32, "maxLength": MAX_ID_CHARS, "description": "The placeholder or its id"}
    },
    required=("id",),
    output=record({"id": TEXT, "kind": TEXT, "value": TEXT}),
    read_only=True,
    idempotent=True,
)


async def call(_context: ToolContext, _arguments: dict[str, Any]) -> ToolResult:
    """Say that this call should not have come here.

    Raises:
        ToolError: always.
    """
    raise ToolError(
        "secret_get opens a secret on the machine that the agent runs on, and its proxy has not done so",
        hint="update confide there; the daemon has no key to it",
    )
