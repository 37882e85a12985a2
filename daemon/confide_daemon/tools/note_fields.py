"""The fields of a note in `memory_store`: parameters, limits, the note's project and task, and the
check that sensitive text is sealed.

Before a device sends a text for a note that it does not have, it asks if the note is sensitive
(`is-sensitive`, PROTOCOL.md 9.7), and if so seals all of the text. The check here is the second
line of defense: it refuses text that a device sends in clear nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confide_crypto.sealing import placeholder
from confide_daemon.errors import ToolError
from confide_daemon.notes.note_edit import Draft
from confide_daemon.tools.tool_context import ToolContext
from confide_memory import front_matter, note_names
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.note import (
    IMPORTANCE,
    MAX_KEYWORDS,
    MAX_RELATIONS,
    MAX_TAGS,
    MAX_WORD,
    RELATIONS,
    SCOPES,
    Relation,
    importance_of,
)
from confide_memory.tools.arguments import split_words

# No minimum length in the schema, which would cost every client tokens: `one_line` checks it.
WORD: dict[str, object] = {"type": "string", "maxLength": MAX_WORD}
# Accepts a path too, which identifies a note without an id.
ID: dict[str, object] = {"type": "string", "maxLength": 512}

# The fields of a note in `memory_store` and `memory_update`.
FIELDS: dict[str, dict[str, object]] = {
    "title": {"type": "string", "maxLength": note_names.MAX_TITLE},
    "type": {**WORD, "description": "core_identity, project_context, task_instruction, episodic, ..."},
    "category": {**WORD, "description": "facts, preferences, projects, people, decisions, ..."},
    "entity": {**WORD, "description": "Who or what it is about"},
    "tags": {"type": "array", "items": WORD, "maxItems": MAX_TAGS},
    "importance": {
        "anyOf": [{"type": "number"}, {"type": "string"}],
        "description": "0-1, or core, high, normal, low",
    },
    "keywords": {"type": "array", "items": WORD, "maxItems": MAX_KEYWORDS, "description": "Other words to find it by"},
    "source": WORD,
    "status": WORD,
    "metadata": {"type": "object"},
    "sensitive": {"type": "boolean"},
}

# Any of these makes the stored text a note.
PROPERTIES: dict[str, dict[str, object]] = {
    **FIELDS,
    "scope": {"type": "string", "enum": list(SCOPES)},
    "taskId": {"type": "string", "maxLength": 64},
    "relatedTo": {"type": "array", "items": ID, "maxItems": MAX_RELATIONS, "description": "Note ids"},
    "relation": {"type": "string", "enum": list(RELATIONS)},
}


WITH_NOTES: tuple[str, ...] = (
    *(
        "type",
        "category",
        "entity",
        "keywords",
        "source",
        "status",
        "metadata",
        "scope",
        "taskId",
        "relatedTo",
        "relation",
    ),
)
"""Parameters listed only with the other note tools: each costs tokens in every session, and is
useful only there.
"""


def place(context: ToolContext, arguments: dict[str, Any]) -> tuple[str, str | None]:
    """Return the project of a new note, and its task (None: it belongs to no task).

    Raises ToolError if scope, task and project contradict each other or one is missing.
    """
    scope, task_id, project = arguments.get("scope"), arguments.get("taskId"), arguments.get("project")
    if scope == "task" and task_id is None:
        raise ToolError("scope 'task' needs 'taskId'", hint="the name of the task, such as release-42")
    if task_id is not None and scope not in (None, "task"):
        raise ToolError(f"'taskId' goes with scope 'task', not with '{scope}'", hint="leave one of them out")
    if task_id is not None and not note_names.TASK_ID.fullmatch(task_id):
        raise ToolError("'taskId' is not usable as a folder's name", hint="letters, digits, '.', '_' and '-'")
    if scope == "global" and project not in (None, GLOBAL_PROJECT):
        raise ToolError("scope 'global' and a project exclude each other", hint="leave one of them out")
    if scope == "project" and project == GLOBAL_PROJECT:
        raise ToolError("scope 'project' needs a project other than 'global'", hint="use scope 'global'")
    if scope in ("project", "task") and (project or context.project) in (None, GLOBAL_PROJECT):
        raise ToolError(f"scope '{scope}' needs 'project'", hint="this session has no project of its own")
    return GLOBAL_PROJECT if scope == "global" else project or context.project or GLOBAL_PROJECT, task_id


def draft(context: ToolContext, arguments: dict[str, Any], task_id: str | None) -> Draft:
    """Return the note that the parameters of a call describe. `task_id` None: it belongs to no
    task.

    Raises ToolError if parameters contradict each other or have invalid values.
    """
    of_files = [name for name in ("path", "heading", "mode", "expectedRevision") if name in arguments]
    if of_files and (of_files != ["mode"] or arguments["mode"] != "append"):
        given = of_files[0]
        raise ToolError(
            f"'{given}' is for files, and a note has a file of its own",
            hint=f"leave out {given}, or the fields of a note",
        )
    if "relation" in arguments and "relatedTo" not in arguments:
        raise ToolError("'relation' needs 'relatedTo'", hint="the ids of the notes it is a relation to")
    kind = arguments.get("relation", "see_also")
    words: dict[str, Any] = {
        name: one_line(name, [arguments[name]])[0]
        for name in ("title", "type", "category", "entity", "source", "status")
        if name in arguments
    }
    return Draft(
        body=arguments["content"],
        created=context.moment,
        task_id=task_id,
        tags=one_line("tags", arguments.get("tags", ())),
        keywords=one_line("keywords", arguments.get("keywords", ())),
        importance=importance(arguments.get("importance")),
        sensitive=arguments.get("sensitive", False),
        relations=tuple(Relation(kind, other) for other in dict.fromkeys(arguments.get("relatedTo", ()))),
        metadata=arguments.get("metadata", {}),
        seen=context.seen or {},
        **words,
    )


def importance(value: float | str | None) -> float | str | None:
    """Check the importance of a note and return it in the form in which notes store it. Raises
    ToolError if it is invalid.
    """
    if value is None:
        return None
    if importance_of(value) is None:
        raise ToolError("'importance' is not understood", hint=f"0 to 1, or {', '.join(IMPORTANCE)}")
    return value.strip().lower() if isinstance(value, str) else value


def one_line(name: str, values: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the values with each run of whitespace replaced by one blank. `name`: the parameter,
    for the error. Tags are also split at commas. Raises ToolError if a value contains control
    characters.
    """
    found = []
    for value in split_words(values) if name == "tags" else values:
        words = " ".join(value.split())
        if not words or not words.isprintable():
            problem = "holds control characters" if words else "is empty"
            raise ToolError(f"'{name}' {problem}", hint="one line of plain text")
        found.append(words)
    return tuple(dict.fromkeys(found))


def refuse_plain(text: str) -> None:
    """Raise ToolError if a text for a sensitive note is not sealed completely."""
    if not placeholder.only(text):
        raise ToolError(
            "the text of a sensitive note comes sealed, and this one does not",
            hint="update confide on this machine, or say it again: the note may have become sensitive just now",
        )


def sealed_only(change: Callable[[str], str], content: str | None) -> Callable[[str], str]:
    """Wrap a function that changes a note's text. The wrapper raises ToolError if the changed note
    is marked as sensitive and would contain text in clear.

    `content`: the text that the change inserts; None: it inserts none.
    """

    def change_and_check(text: str) -> str:
        after = change(text)
        if is_sensitive(after):
            if content is not None:
                refuse_plain(content)
            elif not is_sensitive(text) and not placeholder.only(front_matter.split(after)[1]):
                raise ToolError(
                    "the text of this note is with the daemon in clear",
                    hint="give the content too, so that it is sealed; confide secrets scan --stored seals older revisions",
                )
        return after

    return change_and_check
