"""Which projects a call looks at, by its `project` and `scope`; what of them the caller may see, its grants say."""

from __future__ import annotations

from confide_daemon.errors import ToolError
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext


def projects(context: ToolContext, project: str | None, scope: str) -> frozenset[str] | None:
    """The projects, None for all: this one, those linked with it and the global one; `scope` narrows, `project` replaces.

    Raises:
        ToolError: the two exclude each other.
    """
    if scope == "global":
        if project not in (None, GLOBAL_PROJECT):
            raise ToolError(f"scope 'global' leaves nothing of project '{project[:64]}'", hint="leave one of them out")
        return frozenset({GLOBAL_PROJECT})
    if project == "*":
        return None
    if project is not None:
        return frozenset({project})
    if context.project is None:
        return None
    if scope == "project":
        return frozenset({context.project})
    return frozenset({context.project, GLOBAL_PROJECT, *context.linked})
