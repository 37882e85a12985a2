"""Which projects a call looks at, by its `project` and `scope`; what of them the caller may see, its grants say."""

from __future__ import annotations

from dataclasses import dataclass

from confide_daemon.errors import ToolError
from confide_daemon.tools.context import GLOBAL_PROJECT, ToolContext


@dataclass(frozen=True, slots=True)
class Task:
    """A task of these projects; None: of any."""

    id: str
    projects: frozenset[str] | None


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


def task(context: ToolContext, project: str | None, scope: str, task_id: str | None) -> Task | None:
    """The task whose notes a call looks at beside all others; None where those of every task are left out.

    Args:
        scope: all, project, global or task; a task alone means scope task.

    Raises:
        ToolError: they do not go together, or the task is missing.
    """
    if scope == "task" and task_id is None:
        raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
    if task_id is None:
        return None
    if scope not in ("all", "task"):
        raise ToolError(f"'taskId' goes with scope 'task', not with '{scope}'", hint="leave one of them out")
    name = project or context.project
    return Task(task_id, None if name in (None, "*") else frozenset({name}))
