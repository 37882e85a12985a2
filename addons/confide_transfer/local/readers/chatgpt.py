"""Reads the export of a ChatGPT account: `conversations.json`, or the zip or folder that contains
it.

A conversation is a transcript rather than a memory. It becomes one note of the type `episodic`,
with the messages of the user and of ChatGPT on the branch that was shown last; tool calls, thoughts
and hidden messages are left out, and a conversation without text is skipped. ChatGPT's memories of
the user (messages to its tool `bio`, and the list that some conversations begin with) and the
user's custom instructions become notes of their own with global scope. OpenAI documents no format:
this is the format of exports seen up to 2026.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

_FEEDBACK = re.compile(r"message_feedback\.json")
_SHOWN = {"user": "User", "assistant": "Assistant"}
_MAPPED = frozenset({"mapping", "title", "create_time", "update_time", "current_node", "id", "conversation_id"})
_CITATION = re.compile("\ue200[^\ue200\ue201]*\ue201|[\ue200-\ue206]")
"""Marks that ChatGPT's own page shows as footnotes."""
_REMEMBERED = re.compile(r"^\d{1,4}\. \[(\d{4}-\d{2}-\d{2})\]\. ", re.MULTILINE)
_MAX_MEMORIES = 20_000
_MAX_FEEDBACK = 10_000


def _records(export: AccountExport, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
    """Yield the conversations in the order of the export, then the memories, then the custom
    instructions.
    """
    feedback: dict[str, list[Any]] = {}
    for number, item in enumerate(export.elements(_FEEDBACK, losses)):
        if number < _MAX_FEEDBACK and isinstance(item.get("conversation_id"), str):
            feedback.setdefault(item["conversation_id"], []).append(
                {key: value for key, value in item.items() if key not in ("conversation_id", "user_id") and value}
            )
    memories: dict[str, MemoryRecord] = {}
    instructions: tuple[str, MemoryRecord] | None = None
    count = 0
    for count, conversation in enumerate(export.elements(CONVERSATIONS, losses), 1):
        origin = conversation.get("conversation_id") or conversation.get("id")
        if not isinstance(origin, str) or not isinstance(conversation.get("mapping"), dict):
            losses.add(f"conversation {count}", "has no id or no messages")
            continue
        origin = to_json(origin)
        nodes = {key: node for key, node in conversation["mapping"].items() if isinstance(node, dict)}
        for memory in _memories(nodes, origin):
            known = memories.get(memory.origin)
            if (known is None and len(memories) < _MAX_MEMORIES) or (known and _rank(memory) < _rank(known)):
                memories[memory.origin] = memory
        found = _instructions(nodes, conversation)
        if found is not None and (instructions is None or found[0] > instructions[0]):
            instructions = found
        yield from split_record(_conversation(conversation, nodes, origin, feedback.get(origin, [])))
    if not count and losses.skips:
        raise UnreadableError(path, losses.skips[0].reason)
    yield from memories.values()
    if instructions is not None:
        yield instructions[1]


def _conversation(conversation: Fields, nodes: Fields, origin: str, feedback: list[Any]) -> MemoryRecord:
    turns = []
    for message in _branch(nodes, conversation.get("current_node")):
        who = _SHOWN.get(str(table(message, "author").get("role")))
        is_hidden = table(message, "metadata").get("is_visually_hidden_from_conversation")
        if who and message.get("recipient") in (None, "all") and not is_hidden:
            turns.append((who, to_json(_text(message))))
    content = dialogue(turns)
    metadata = {key: value for key, value in conversation.items() if key not in _MAPPED and value}
    if feedback:
        metadata["message_feedback"] = feedback
    title = conversation.get("title")
    return MemoryRecord(
        READER.name,
        f"conversation:{origin}",
        content,
        title=to_json(title) if isinstance(title, str) and title.strip() else first_line(content),
        type="episodic",
        created=moment(conversation.get("create_time")),
        updated=moment(conversation.get("update_time")),
        metadata=metadata,
    )


def _branch(nodes: Fields, last: Any) -> list[Fields]:
    """Return the messages from the first to the last, without answers that were generated again and
    questions that were edited.
    """
    if not isinstance(last, str) or last not in nodes:
        leaves = [key for key, node in nodes.items() if not node.get("children") and table(node, "message")]
        last = max(leaves, key=lambda key: _time(table(nodes[key], "message")), default=None)
    found = []
    seen = set()
    while isinstance(last, str) and last in nodes and last not in seen:
        seen.add(last)
        found.append(table(nodes[last], "message"))
        last = nodes[last].get("parent")
    return [message for message in reversed(found) if message]


def _time(message: Fields) -> float:
    time = message.get("create_time")
    return time if isinstance(time, int | float) else 0


def _text(message: Fields) -> str:
    """Return the visible text of a message, with names in place of pictures and files."""
    content = table(message, "content")
    if content.get("content_type") not in ("text", "multimodal_text"):
        return ""
    shown = []
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else []:
        match part:
            case str(text):
                shown.append(_CITATION.sub("", text))
            case {"content_type": "audio_transcription", "text": str(text)}:
                shown.append(text)
            case {"content_type": "image_asset_pointer"}:
                shown.append("[image]")
    attachments = rows(table(message, "metadata"), "attachments")
    shown += [f"[file: {one['name']}]" for one in attachments if isinstance(one.get("name"), str)]
    return "\n\n".join(text for text in shown if text.strip())


def _memories(nodes: Fields, conversation: str) -> Iterator[MemoryRecord]:
    """Yield the memories that ChatGPT stored in this conversation."""
    for node in nodes.values():
        message = table(node, "message")
        content = table(message, "content")
        listed = content.get("model_set_context")
        if isinstance(listed, str):
            # ["", date, text, date, text, ...]
            found = _REMEMBERED.split(listed)
            for date, text in zip(found[1::2], found[2::2], strict=False):
                yield _memory(text, f"{date}T00:00:00Z", conversation, "model_set_context")
        elif content and table(message, "author").get("role") == "assistant" and message.get("recipient") == "bio":
            parts = content.get("parts")
            text = "\n".join(part for part in parts if isinstance(part, str)) if isinstance(parts, list) else ""
            text = text or str(content.get("text") or "")
            yield _memory(text, moment(message.get("create_time")), conversation, "bio")


def _memory(text: str, created: str | None, conversation: str, source: str) -> MemoryRecord:
    text = to_json(text).strip()
    # The export has no id for it; the same text in two conversations is one memory.
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return MemoryRecord(
        READER.name,
        f"memory:{digest}",
        text,
        scope="global",
        category="facts",
        created=moment(created),
        metadata={"conversation_id": conversation, "source": source},
    )


def _rank(memory: MemoryRecord) -> tuple[bool, str]:
    """Return a sort key that puts the best-known time first: the time of storing before the day in
    a list, and the earliest of several.
    """
    return memory.metadata["source"] == "model_set_context", memory.created or "~"


def _instructions(nodes: Fields, conversation: Fields) -> tuple[str, MemoryRecord] | None:
    """Return the custom instructions at the start of this conversation, and its time."""
    for node in nodes.values():
        content = table(table(node, "message"), "content")
        if content.get("content_type") != "user_editable_context":
            continue
        said = [("About the person", content.get("user_profile")), ("How to answer", content.get("user_instructions"))]
        parts = [
            f"## {name}\n\n{to_json(text).strip()}" for name, text in said if isinstance(text, str) and text.strip()
        ]
        if parts:
            time = moment(conversation.get("create_time")) or ""
            text = "\n\n".join(parts)
            # Without a time of creation: it would differ in each export, and so would the note's
            # id.
            return time, MemoryRecord(
                READER.name,
                "custom-instructions",
                text,
                title="Custom instructions for ChatGPT",
                scope="global",
                type="core_identity",
                category="preferences",
                updated=time or None,
            )
    return None


READER = AccountReader(
    name="chatgpt",
    title="ChatGPT (export of the account)",
    sender="OpenAI",
    messages=b"mapping",
    records=_records,
)
