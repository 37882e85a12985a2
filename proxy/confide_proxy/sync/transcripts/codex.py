"""Parser for Codex's transcripts: `sessions/YYYY/MM/DD/rollout-<time>-<session>.jsonl` below
`~/.codex`, or below `CODEX_HOME`.

A line is `{timestamp, type, payload}`. `session_meta`, the first one, describes the session;
`response_item` contains messages and calls; `event_msg` repeats them for the display. Only the
first line and `turn_context` name the working folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from confide_proxy.sync.transcripts.parsers import (
    ParsedLine,
    Parser,
    ToolOutcome,
    UnknownLineError,
    clean_text,
    error_in,
    mention,
    record_of,
    stored_in,
    text_in,
    utc,
)

_SILENT = frozenset({"event_msg", "compacted", "turn_context", "session_meta", "world_state", "token_usage_record"})
_OMITTED = frozenset(
    {
        "reasoning", "function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output",
        "ghost_snapshot", "compaction", "context_compaction", "other",
    }
)  # fmt: skip
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"})
_INSERTED = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "<permissions", "<recommended_plugins>")
"""Beginnings of Codex's own texts in place of the user."""
_EXIT = re.compile(r"(?:exit code|exited with code):? (\d{1,9})", re.IGNORECASE)
_HEAD_CHARS = 400
_AGENTS_FILE = "# AGENTS.md instructions for "
_NAME = re.compile(r"rollout-[0-9T-]*?-?([0-9a-f]{8}-[0-9a-f-]{27})")
_ROLLOUT = re.compile(r"rollout-([A-Za-z0-9_-]{1,90})")


def _session_of(path: Path) -> str | None:
    """Return the session id at the end of the file name."""
    if path.suffix != ".jsonl":
        return None
    found = _NAME.fullmatch(path.stem) or _ROLLOUT.fullmatch(path.stem)
    return found[1] if found else None


def _parse(line: bytes) -> ParsedLine:
    record = record_of(line)
    kind, payload = record.get("type"), record.get("payload")
    if not isinstance(payload, dict) or (kind != "response_item" and kind not in _SILENT):
        raise UnknownLineError("no record of a rollout")
    time = utc(text_in(record, "timestamp"))
    if kind == "session_meta":
        git = payload.get("git")
        branch = text_in(git, "branch") if isinstance(git, dict) else ""
        return ParsedLine(time=time, branch=branch, session=text_in(payload, "id"), cwd=text_in(payload, "cwd"))
    if kind in _SILENT:
        return ParsedLine(time=time, cwd=text_in(payload, "cwd") if kind == "turn_context" else "")
    return _item(payload, time)


def _item(item: dict[str, object], time: str) -> ParsedLine:
    kind, role = text_in(item, "type"), text_in(item, "role")
    if kind == "message":
        if role not in ("user", "assistant"):
            return ParsedLine(time=time)  # messages of the developer and the system
        text = _content(item.get("content"), is_user=role == "user")
        return ParsedLine("user" if role == "user" else "assistant", text, time) if text else ParsedLine(time=time)
    if kind in _CALLS:
        call = _call(kind, item)
        return ParsedLine("assistant", call, time, calls=((text_in(item, "call_id"), call),))
    if kind in _OMITTED:
        is_outcome = kind.endswith("_call_output")
        output = item.get("output")
        said, failed = _said_in(output), is_outcome and _has_failed(output)
        outcome = ToolOutcome(
            text_in(item, "call_id"), failed, stored_in(said), error_in(_output_in(output)) if failed else ""
        )
        return ParsedLine(time=time, outcomes=(outcome,) if is_outcome else ())
    raise UnknownLineError("an unknown item of a rollout")


def _content(content: Any, *, is_user: bool) -> str:
    if not isinstance(content, list):
        raise UnknownLineError("a message without content")
    parts = []
    for block in content:
        kind = text_in(block, "type") if isinstance(block, dict) else ""
        if kind in ("input_text", "output_text", "text"):
            text = text_in(block, "text")
            if not (is_user and text.lstrip().startswith((*_INSERTED, _AGENTS_FILE))):
                parts.append(clean_text(text))
        elif kind == "input_image":
            parts.append("[image]")
    return "\n\n".join(part for part in parts if part)


def _has_failed(output: Any) -> bool:
    """Return True if the output begins with a non-zero exit code."""
    if isinstance(output, dict):
        return output.get("success") is False or _has_failed(output.get("content"))
    if not isinstance(output, str):
        return False
    if output.startswith("{"):
        try:
            table = json.loads(output)
        except (ValueError, RecursionError):
            return False
        metadata = table.get("metadata") if isinstance(table, dict) else None
        return isinstance(metadata, dict) and metadata.get("exit_code") not in (0, None)
    found = _EXIT.search(output, 0, _HEAD_CHARS)
    return found is not None and int(found[1]) != 0


def _said_in(output: Any) -> Any:
    """Return a tool's result: a text, or an MCP result that the output contains as it is or as
    JSON.
    """
    if isinstance(output, str) and output.startswith(("{", "[")):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return output
    return output.get("content") if isinstance(output, dict) else output


def _output_in(output: Any) -> Any:
    """Return the text of a result, which older versions write as JSON with its exit code."""
    if isinstance(output, str) and output.startswith("{"):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return output
    return output.get("output", output.get("content")) if isinstance(output, dict) else output


def _call(kind: str, item: dict[str, object]) -> str:
    if kind in ("local_shell_call", "web_search_call"):
        return mention("shell" if kind == "local_shell_call" else "web_search", item.get("action"))
    name = text_in(item, "name") or kind
    if namespace := text_in(item, "namespace"):
        name = f"{namespace.rstrip('_')}__{name}"
    if kind == "custom_tool_call":
        return mention(name, None)  # its input is a whole patch
    try:
        arguments = json.loads(text_in(item, "arguments") or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return mention(name, arguments)


PARSER = Parser("codex", "CODEX_HOME", ".codex", "sessions", 3, _session_of, _parse)
