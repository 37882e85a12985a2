"""Reads the export of a Claude account (claude.ai): `conversations.json`, or the zip or folder that
contains it.

A conversation is a transcript rather than a memory. It becomes one note of the type `episodic`,
with the messages of the user and of Claude; tool calls and thoughts are left out, and a
conversation without text is skipped. Claude's memories of the user and of each project
(`memories.json`), and the instructions and documents of projects, become notes of their own.
Anthropic documents no format: this is the format of exports seen up to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from confide_proxy.errors import UnreadableError
from confide_transfer.local.fields import moment, to_json
from confide_transfer.local.formats.account_export import (
    CONVERSATIONS,
    AccountExport,
    AccountReader,
    dialogue,
    first_line,
    rows,
    split_record,
    table,
)
from confide_transfer.local.reader import Fields, Losses, MemoryRecord

_MEMORIES = re.compile(r"memories\.json|memories/[^/]+\.json")
_PROJECTS = re.compile(r"projects\.json|projects/[^/]+\.json")
_SHOWN = {"human": "User", "assistant": "Assistant"}
_CONVERSATION = frozenset({"uuid", "name", "created_at", "updated_at", "chat_messages", "account"})
_PROJECT = frozenset({"uuid", "name", "description", "prompt_template", "docs", "created_at", "updated_at", "creator"})
_MOST_ATTACHED = 20_000
"""Limit of characters of a text attached to a message; full documents are read from projects."""


def _records(export: AccountExport, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
    """Yield the memories, then the projects with their documents, then the conversations, in the
    order of the export.
    """
    is_any = False
    names: dict[str, str] = {}
    for project in export.elements(_PROJECTS, losses):
        # Reads only the names: the documents of all projects may be too large to hold.
        if isinstance(project.get("uuid"), str) and _word(project, "name"):
            names[project["uuid"]] = _word(project, "name")
    for memory in export.elements(_MEMORIES, losses):
        is_any = True
        for record in _memories(memory, names):
            yield from split_record(record)
    unheard = Losses()
    for number, project in enumerate(export.elements(_PROJECTS, unheard), 1):
        is_any = True
        if not isinstance(project.get("uuid"), str):
            losses.add(f"project {number}", "has no uuid")
        elif not project.get("is_starter_project"):  # Anthropic's own example
            for record in _project(project, losses):
                yield from split_record(record)
    for number, conversation in enumerate(export.elements(CONVERSATIONS, losses), 1):
        is_any = True
        if isinstance(conversation.get("uuid"), str) and isinstance(conversation.get("chat_messages"), list):
            yield from split_record(_conversation(conversation))
        else:
            losses.add(f"conversation {number}", "has no uuid or no messages")
    if not is_any and losses.skips:
        raise UnreadableError(path, losses.skips[0].reason)


def _memories(memory: Fields, names: dict[str, str]) -> Iterator[MemoryRecord]:
    account = _word(memory, "account_uuid")
    text = memory.get("conversations_memory")
    if isinstance(text, str) and text.strip():
        yield MemoryRecord(
            READER.name,
            f"memory:{account}",
            to_json(text).strip(),
            title="What Claude remembers",
            scope="global",
            type="core_identity",
            category="facts",
        )
    for project, text in table(memory, "project_memories").items():
        if isinstance(text, str) and text.strip():
            name = names.get(project)
            yield MemoryRecord(
                READER.name,
                f"project-memory:{to_json(project)}",
                to_json(text).strip(),
                title=f"What Claude remembers of {name}" if name else "What Claude remembers of a project",
                type="project_context",
                category="projects",
                entity=name,
                relations=(("part_of", f"project:{project}"),) if name else (),
            )


def _project(project: Fields, losses: Losses) -> Iterator[MemoryRecord]:
    name, uuid = _word(project, "name"), to_json(project["uuid"])
    about: Fields = {"type": "project_context", "category": "projects", "entity": name or None}
    said = [_word(project, "description")]
    if instructions := _word(project, "prompt_template"):
        said.append(f"## Instructions\n\n{instructions}")
    yield MemoryRecord(
        READER.name,
        f"project:{uuid}",
        # A project without text is still the target of its documents' relations.
        "\n\n".join(part for part in said if part) or name,
        title=name or None,
        created=moment(project.get("created_at")),
        updated=moment(project.get("updated_at")),
        metadata={key: value for key, value in project.items() if key not in _PROJECT and value},
        **about,
    )
    docs = project.get("docs")
    for number, doc in enumerate(docs if isinstance(docs, list) else [], 1):
        match doc:
            case {"uuid": str(own), "content": str(content)}:
                yield MemoryRecord(
                    READER.name,
                    f"doc:{to_json(own)}",
                    to_json(content),
                    title=_word(doc, "filename") or None,
                    created=moment(doc.get("created_at")),
                    relations=(("part_of", f"project:{uuid}"),),
                    **about,
                )
            case _:
                losses.add(f"document {number} of project {uuid}", "has no uuid or no content")


def _conversation(conversation: Fields) -> MemoryRecord:
    turns = []
    for message in conversation["chat_messages"]:
        if isinstance(message, dict) and (who := _SHOWN.get(_word(message, "sender"))):
            turns.append((who, to_json(_text(message))))
    content = dialogue(turns)
    return MemoryRecord(
        READER.name,
        f"conversation:{to_json(conversation['uuid'])}",
        content,
        title=_word(conversation, "name") or first_line(content),
        type="episodic",
        created=moment(conversation.get("created_at")),
        updated=moment(conversation.get("updated_at")),
        metadata={key: value for key, value in conversation.items() if key not in _CONVERSATION and value},
    )


def _text(message: Fields) -> str:
    """Return the visible text of a message, with attached texts and the names of other files."""
    blocks = message.get("content")
    shown = [
        block["text"]
        for block in rows(message, "content")
        if block.get("type") in ("text", "voice_note") and isinstance(block.get("text"), str)
    ]
    # Old exports have only the text.
    parts = shown if any(text.strip() for text in shown) or blocks else [_word(message, "text")]
    for attachment in rows(message, "attachments"):
        text = _word(attachment, "extracted_content")
        text = text if len(text) <= _MOST_ATTACHED else f"{text[:_MOST_ATTACHED]}\n[…]"
        parts.append(f"[file: {_word(attachment, 'file_name') or 'pasted text'}]" + (f"\n\n{text}" if text else ""))
    parts += [f"[file: {name}]" for file in rows(message, "files") if (name := _word(file, "file_name"))]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _word(item: Fields, key: str) -> str:
    """Return the text of this name, or ""."""
    value = item.get(key)
    return to_json(value).strip() if isinstance(value, str) else ""


READER = AccountReader(
    name="claude-ai",
    title="Claude (export of the account)",
    sender="Anthropic",
    messages=b"chat_messages",
    records=_records,
    others=(_MEMORIES, _PROJECTS),
    mark=b'"conversations_memory"',
)
